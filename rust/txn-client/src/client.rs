//! The calls that answer at once: topics, offsets, producer identities, transactions.
//!
//! Each is safe to repeat after a lost answer, and is repeated:
//! - `init_producer_id` bumps the epoch once more, which fences nobody but its own lost answer;
//! - `end_txn` finds the transaction ended the same way and answers the same (version 5: also the same
//!   next identity, because the old epoch is recognised; versions 3–4 leave the epoch as it was);
//! - offsets and partitions are sets;
//! - everything else only reads.
//!
//! Sources: KIP-98, KIP-447, KIP-664, KIP-890.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use txn_protocol::Reader;
use txn_protocol::codes;

use crate::cluster::{Cluster, Retry, no_such_partition, subject};
use crate::connection::Address;
use crate::error::KafkaError;
use crate::fetch::{Fetch, Selection};
use crate::interrupt::Interrupt;
use crate::messages::cluster::CoordinatorOf;
use crate::messages::transactions::{Description, ProducerIdAndEpoch};
use crate::messages::{self, ClientApi, cluster as cluster_messages, transactions};
use crate::security::Security;
use crate::writer::{Writer, WriterSettings};

/// A cluster's description of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// Number of its partitions.
    pub partitions: usize,
    /// Its id; None from nodes that give topics none.
    pub id: Option<[u8; 16]>,
}

/// A blocking client; see the module and `txn._core.KafkaClient`.
#[derive(Clone, Debug)]
pub struct Client {
    cluster: Arc<Cluster>,
}

impl Client {
    /// A client that connects with its first call. Every call goes on for `timeout`.
    ///
    /// # Errors
    /// 42 for addresses that are none.
    pub fn new(
        bootstrap_servers: &str,
        client_id: &str,
        security: Security,
        timeout: Duration,
        interrupt: Option<Interrupt>,
    ) -> Result<Self, KafkaError> {
        Ok(Self {
            cluster: Arc::new(Cluster::new(
                bootstrap_servers,
                client_id,
                security,
                timeout,
                interrupt,
            )?),
        })
    }

    /// 2 if partitions join a transaction by themselves (`transaction.version` ≥ 2), else 1.
    ///
    /// # Errors
    /// If no node can be reached.
    pub fn transaction_version(&self) -> Result<i16, KafkaError> {
        #[allow(clippy::redundant_closure_for_method_calls)]
        // the method's path has one lifetime too few
        self.cluster.retry(|retry| retry.transaction_version())
    }

    /// The names of all topics but Kafka's own, sorted.
    ///
    /// # Errors
    /// If no node answers.
    pub fn topics(&self) -> Result<Vec<String>, KafkaError> {
        let (metadata, _) = self.cluster.retry(|retry| retry.metadata(None))?;
        let users = metadata
            .topics
            .into_iter()
            .filter(|topic| !topic.is_internal && topic.error_code == 0);
        let mut names: Vec<_> = users.map(|topic| topic.name).collect();
        names.sort();
        Ok(names)
    }

    /// Partition count and id of each topic, by one request; None for a topic that is not there.
    ///
    /// A topic that this client has seen is asked for again for some seconds before it counts as gone, as is
    /// every one with `is_patient`.
    ///
    /// # Errors
    /// If no node answers, or one refuses a topic (29, 17).
    pub fn describe_topics(
        &self,
        names: &[&str],
        is_patient: bool,
    ) -> Result<Vec<Option<TopicInfo>>, KafkaError> {
        if is_patient {
            for name in names {
                self.cluster.mark_topic_seen(name);
            }
        }
        let ask = |retry: &Retry<'_>, is_patient: bool| {
            let (metadata, node) = retry.metadata(Some(names))?;
            let describe = |name: &&str| {
                let found = metadata.topics.iter().find(|topic| topic.name == **name);
                let error_code = found.map_or(codes::UNKNOWN_TOPIC_OR_PARTITION, |t| t.error_code);
                if let (Some(topic), 0) = (found, error_code) {
                    return Ok(Some(TopicInfo {
                        partitions: topic.partitions.len(),
                        id: topic.id,
                    }));
                }
                let subject = format!("topic '{name}'");
                let error = retry.topic_error(error_code, &node, "Metadata", name, &subject);
                let is_unknown = error.code == codes::UNKNOWN_TOPIC_OR_PARTITION;
                if is_unknown && !(is_patient && error.is_retriable) {
                    self.cluster.mark_topic_deleted(name);
                    return Ok(None);
                }
                Err(error)
            };
            names.iter().map(describe).collect()
        };
        // A topic that was seen before may be unknown to a node that has just started.
        match self.cluster.retry(|retry| ask(retry, true)) {
            Err(error) if error.code == codes::UNKNOWN_TOPIC_OR_PARTITION => {
                self.cluster.retry(|retry| ask(retry, false))
            }
            answer => answer,
        }
    }

    /// Number of partitions of a topic, asked for now.
    ///
    /// # Errors
    /// 3 for an unknown topic.
    pub fn partition_count(&self, topic: &str) -> Result<usize, KafkaError> {
        self.cluster
            .retry(|retry| retry.topic(topic).map(|topic| topic.partitions.len()))
    }

    /// Makes a topic and waits until every partition has a leader; false if it was there.
    ///
    /// After a lost answer the second attempt may find the topic there: it then says false.
    ///
    /// # Errors
    /// The cluster's refusals: partitions, configs, rights.
    pub fn create_topic(
        &self,
        topic: &str,
        partitions: i32,
        configs: &[(String, String)],
    ) -> Result<bool, KafkaError> {
        let made = self.cluster.retry(|retry| {
            let node = Self::controller(retry)?;
            let timeout_ms = millis(retry.answer_timeout());
            let encode = |e: &mut Vec<u8>, _: i16| {
                cluster_messages::encode_create_topics(e, topic, partitions, configs, timeout_ms);
            };
            let (results, name) = retry.call(
                &node,
                messages::CREATE_TOPICS,
                encode,
                cluster_messages::decode_create_topics,
            )?;
            match results.into_iter().next() {
                Some((codes::NONE, _)) => Ok(true),
                Some((codes::TOPIC_ALREADY_EXISTS, _)) => Ok(false),
                Some((error_code, detail)) => {
                    let subject = format!("topic '{topic}'");
                    Err(KafkaError::answered(
                        error_code,
                        &name,
                        "CreateTopics",
                        &subject,
                        detail.as_deref(),
                    ))
                }
                None => Err(KafkaError::malformed(
                    &name,
                    "CreateTopics",
                    &"it names no topic",
                )),
            }
        })?;
        self.cluster.mark_topic_seen(topic);
        self.cluster.retry(|retry| {
            let count = retry.topic(topic)?.partitions.len();
            (0..count).try_for_each(|partition| retry.leader(topic, partition as i32).map(|_| ()))
        })?;
        Ok(made)
    }

    fn controller(retry: &Retry<'_>) -> Result<Address, KafkaError> {
        let (metadata, _) = retry.metadata(Some(&[]))?;
        let controller = metadata
            .brokers
            .into_iter()
            .find(|b| b.id == metadata.controller);
        match controller {
            Some(broker) => Ok(Address {
                host: broker.host,
                port: broker.port,
            }),
            None => retry.any_node(), // it passes the request on (KIP-590)
        }
    }

    /// Offsets by time, one per requested partition: -1 the end, -2 the start. Else the first
    /// record at or after the time in ms (-1 if there is none).
    ///
    /// # Errors
    /// 3 for an unknown topic or partition.
    pub fn list_offsets(
        &self,
        topic: &str,
        partitions: &[i32],
        timestamp_ms: i64,
        read_committed: bool,
    ) -> Result<Vec<i64>, KafkaError> {
        let mut found: HashMap<i32, i64> = HashMap::new();
        self.cluster.retry(|retry| {
            let mut by_leader: BTreeMap<Address, Vec<i32>> = BTreeMap::new();
            for &partition in partitions.iter().filter(|p| !found.contains_key(p)) {
                let wanted = by_leader
                    .entry(retry.leader(topic, partition)?)
                    .or_default();
                if !wanted.contains(&partition) {
                    wanted.push(partition);
                }
            }
            for (node, wanted) in by_leader {
                let encode = |e: &mut Vec<u8>, _: i16| {
                    cluster_messages::encode_list_offsets(
                        e,
                        topic,
                        &wanted,
                        timestamp_ms,
                        read_committed,
                    );
                };
                let api = messages::LIST_OFFSETS;
                let (offsets, name) = retry.call(&node, api, encode, |r, _| {
                    cluster_messages::decode_list_offsets(r)
                })?;
                for (partition, error_code, offset) in offsets {
                    if error_code != 0 {
                        let subject = format!("partition {topic}-{partition}");
                        return Err(retry.topic_error(error_code, &name, api.name, topic, &subject));
                    }
                    found.insert(partition, offset);
                }
                if let Some(missing) = wanted.iter().find(|p| !found.contains_key(p)) {
                    let what = format!("it does not name partition {topic}-{missing}");
                    return Err(KafkaError::malformed(&name, api.name, &what));
                }
            }
            Ok(())
        })?;
        Ok(partitions
            .iter()
            .map(|partition| found[partition])
            .collect())
    }

    /// Reads the records of `[start, end)` of one partition.
    ///
    /// # Errors
    /// 3 for an unknown topic or partition.
    pub fn fetch(
        &self,
        topic: &str,
        partition: i32,
        selection: Selection,
    ) -> Result<Fetch, KafkaError> {
        let leaders = self.cluster.retry(|retry| retry.leaders(topic))?;
        if usize::try_from(partition).map_or(true, |i| i >= leaders.len()) {
            self.cluster.forget_topic(topic); // partitions may have been added since
            let leaders = self.cluster.retry(|retry| retry.leaders(topic))?;
            if usize::try_from(partition).map_or(true, |i| i >= leaders.len()) {
                return Err(no_such_partition(topic, partition, leaders.len()));
            }
        }
        Ok(Fetch::new(
            Arc::clone(&self.cluster),
            topic,
            partition,
            selection,
        ))
    }

    /// Begins or resumes a producer identity; `current` is (-1, -1) for a first call. Fences every
    /// earlier one of this transactional id and aborts its open transaction. Without an id: an
    /// idempotent identity. With `is_two_phase` its transactions never time out, whatever
    /// `timeout_ms` says, and an answer to it is durable (KIP-939).
    ///
    /// # Errors
    /// 90 if `current` is no longer the newest, 50 for a timeout the cluster does not allow. For a
    /// two-phase commit: 35 if the cluster does not offer it, 53 if it does not allow it.
    pub fn init_producer_id(
        &self,
        transactional_id: Option<&str>,
        timeout_ms: i32,
        current: ProducerIdAndEpoch,
        is_two_phase: bool,
    ) -> Result<ProducerIdAndEpoch, KafkaError> {
        let api = if is_two_phase {
            messages::INIT_TWO_PHASE_PRODUCER_ID
        } else {
            messages::INIT_PRODUCER_ID
        };
        init_producer_id(&self.cluster, api, transactional_id, timeout_ms, current)
    }

    /// Commits or aborts the transaction that was written under `who`; returns the identity to use next.
    ///
    /// Transaction version 1 leaves the identity as it was. A further writer under it would count its
    /// sequences from 0 again, which nodes take for duplicates: renew it by `init_producer_id` first.
    ///
    /// # Errors
    /// 47, 90 if fenced; 48 if nothing is open or it ended the other way; 49 if the id has another producer.
    pub fn end_txn(
        &self,
        transactional_id: &str,
        who: ProducerIdAndEpoch,
        commit: bool,
    ) -> Result<ProducerIdAndEpoch, KafkaError> {
        self.cluster.retry(|retry| {
            let api = match retry.transaction_version()? {
                2 => messages::END_TXN.at_least(5),
                _ => messages::END_TXN.at_most(4),
            };
            let node = retry.coordinator(CoordinatorOf::Transaction, transactional_id)?;
            let encode = |e: &mut Vec<u8>, _: i16| {
                transactions::encode_end_txn(e, transactional_id, who, commit);
            };
            let ((error_code, next), name) =
                retry.call(&node, api, encode, transactions::decode_end_txn)?;
            if error_code == 0 {
                return Ok(next.unwrap_or(who));
            }
            let what = format!("EndTxn({})", if commit { "commit" } else { "abort" });
            Err(transaction_error(
                error_code,
                &name,
                &what,
                transactional_id,
                who,
            ))
        })
    }

    /// The coordinators' entries of transactions, in the requested order; an unknown id has error
    /// code 105.
    ///
    /// # Errors
    /// If a coordinator cannot be reached.
    pub fn describe_transactions(
        &self,
        transactional_ids: &[String],
    ) -> Result<Vec<Description>, KafkaError> {
        let mut found: HashMap<String, Description> = HashMap::new();
        self.cluster.retry(|retry| {
            let mut by_node: BTreeMap<Address, Vec<&str>> = BTreeMap::new();
            for id in transactional_ids
                .iter()
                .filter(|id| !found.contains_key(*id))
            {
                let wanted = by_node
                    .entry(retry.coordinator(CoordinatorOf::Transaction, id)?)
                    .or_default();
                if !wanted.contains(&id.as_str()) {
                    wanted.push(id);
                }
            }
            for (node, wanted) in by_node {
                let api = messages::DESCRIBE_TRANSACTIONS;
                let encode = |e: &mut Vec<u8>, _: i16| transactions::encode_describe(e, &wanted);
                let (descriptions, name) =
                    retry.call(&node, api, encode, |r, _| transactions::decode_describe(r))?;
                for description in descriptions {
                    let error_code = description.error_code;
                    if error_code != 0 && crate::error::is_retriable(error_code) {
                        let subject =
                            subject(CoordinatorOf::Transaction, &description.transactional_id);
                        return Err(KafkaError::answered(
                            error_code, &name, api.name, &subject, None,
                        ));
                    }
                    found.insert(description.transactional_id.clone(), description);
                }
                if let Some(missing) = wanted.iter().find(|id| !found.contains_key(**id)) {
                    let what = format!("it does not name transactional id '{missing}'");
                    return Err(KafkaError::malformed(&name, api.name, &what));
                }
            }
            Ok(())
        })?;
        Ok(transactional_ids
            .iter()
            .map(|id| found[id].clone())
            .collect())
    }

    /// The transactions in `states` (none: all) whose id starts with `prefix`, from every node, sorted by id.
    ///
    /// # Errors
    /// If one node cannot be asked: a partial list would hide open transactions. 42 for an unknown state.
    pub fn list_transactions(
        &self,
        states: &[String],
        prefix: &str,
    ) -> Result<Vec<(String, i64, String)>, KafkaError> {
        self.cluster.retry(|retry| {
            let (metadata, _) = retry.metadata(Some(&[]))?;
            let mut listed = Vec::new();
            for broker in metadata.brokers {
                let node = Address { host: broker.host, port: broker.port };
                let api = messages::LIST_TRANSACTIONS;
                let encode = |e: &mut Vec<u8>, _: i16| transactions::encode_list(e, states);
                let (listing, name) = retry.call(&node, api, encode, |r, _| transactions::decode_list(r))?;
                if listing.error_code != 0 {
                    let subject = format!("prefix '{prefix}'");
                    return Err(KafkaError::answered(listing.error_code, &name, api.name, &subject, None));
                }
                if !listing.unknown_states.is_empty() {
                    let message = format!(
                        "{name} does not know the transaction states {:?}; use Kafka's names, as Ongoing or PrepareCommit",
                        listing.unknown_states
                    );
                    return Err(KafkaError::refused(codes::INVALID_REQUEST, message));
                }
                listed.extend(listing.transactions.into_iter().filter(|(id, ..)| id.starts_with(prefix)));
            }
            listed.sort();
            Ok(listed)
        })
    }

    /// Commits (topic, partition, next offset) of a simple group inside the open transaction.
    ///
    /// # Errors
    /// 47, 90 if fenced; 48, 120 if the transaction is not open any more; 25 if the group has live members.
    pub fn add_offsets(
        &self,
        transactional_id: &str,
        who: ProducerIdAndEpoch,
        group: &str,
        offsets: &[(String, i32, i64)],
    ) -> Result<(), KafkaError> {
        let offsets: Vec<_> = offsets
            .iter()
            .map(|(topic, partition, offset)| {
                transactions::GroupOffset::new(topic, *partition, *offset)
            })
            .collect();
        let api = if self.transaction_version()? == 2 {
            messages::TXN_OFFSET_COMMIT.at_least(5)
        } else {
            self.add_group(transactional_id, who, group)?;
            messages::TXN_OFFSET_COMMIT.at_most(4)
        };
        self.cluster.retry(|retry| {
            let node = retry.coordinator(CoordinatorOf::Group, group)?;
            let encode = |e: &mut Vec<u8>, _: i16| {
                transactions::encode_txn_offset_commit(
                    e,
                    transactional_id,
                    who,
                    group,
                    &transactions::GroupMember::none(),
                    &offsets,
                );
            };
            let (results, name) = retry.call(&node, api, encode, |r, _| {
                transactions::decode_partition_errors(r)
            })?;
            match results.iter().find(|(.., error_code)| *error_code != 0) {
                None => Ok(()),
                Some((topic, partition, error_code)) => {
                    let what =
                        format!("TxnOffsetCommit of {topic}-{partition} for group '{group}'");
                    Err(transaction_error(
                        *error_code,
                        &name,
                        &what,
                        transactional_id,
                        who,
                    ))
                }
            }
        })
    }

    fn add_group(
        &self,
        transactional_id: &str,
        who: ProducerIdAndEpoch,
        group: &str,
    ) -> Result<(), KafkaError> {
        self.cluster.retry(|retry| {
            let node = retry.coordinator(CoordinatorOf::Transaction, transactional_id)?;
            let encode = |e: &mut Vec<u8>, _: i16| {
                transactions::encode_add_offsets(e, transactional_id, who, group);
            };
            let decode = |r: &mut Reader<'_>, _: i16| transactions::decode_add_offsets(r);
            let (error_code, name) =
                retry.call(&node, messages::ADD_OFFSETS_TO_TXN, encode, decode)?;
            if error_code == 0 {
                return Ok(());
            }
            let what = format!("AddOffsetsToTxn of group '{group}'");
            Err(transaction_error(
                error_code,
                &name,
                &what,
                transactional_id,
                who,
            ))
        })
    }

    /// Writes columns under `who`; without a transactional id under a new idempotent identity.
    ///
    /// # Errors
    /// If no node can be reached.
    pub fn writer(
        &self,
        transactional_id: Option<&str>,
        who: ProducerIdAndEpoch,
        settings: WriterSettings,
    ) -> Result<Writer, KafkaError> {
        let who = match transactional_id {
            Some(_) => who,
            None => self.init_producer_id(None, i32::MAX, (-1, -1), false)?,
        };
        let transaction_version = self.transaction_version()?;
        Ok(Writer::new(
            Arc::clone(&self.cluster),
            transactional_id,
            who,
            transaction_version,
            settings,
        ))
    }

    /// The address of a node that answers.
    ///
    /// # Errors
    /// If no node answers; each is tried once.
    pub fn any_node(&self) -> Result<Address, KafkaError> {
        self.cluster.begin().any_node()
    }

    /// The highest version of an API that a node offers within the caller's range.
    ///
    /// # Errors
    /// If the node does not answer, or with 35.
    pub fn version(&self, node: &Address, api: ClientApi) -> Result<i16, KafkaError> {
        let connection = self.cluster.begin().connect(node)?;
        let version = connection.version(api);
        self.cluster.put_back(connection);
        version
    }

    /// Sends a request whose body the caller encoded, once, and returns the body of the answer.
    ///
    /// The error codes in the answer are the caller's to read, and to repeat for.
    ///
    /// # Errors
    /// Network errors and late answers.
    pub fn send(
        &self,
        node: &Address,
        api: ClientApi,
        version: i16,
        body: &[u8],
    ) -> Result<Vec<u8>, KafkaError> {
        let retry = self.cluster.begin();
        let mut connection = retry.connect(node)?;
        let encode = |e: &mut Vec<u8>| e.extend_from_slice(body);
        let answer = connection.exchange(api, version, retry.answer_timeout(), encode);
        self.cluster.put_back(connection);
        let (mut frame, start) = answer?;
        Ok(frame.split_off(start))
    }

    /// Closes idle connections; every later call fails.
    pub fn close(&self) {
        self.cluster.close();
    }
}

fn init_producer_id(
    cluster: &Cluster,
    api: ClientApi,
    transactional_id: Option<&str>,
    timeout_ms: i32,
    current: ProducerIdAndEpoch,
) -> Result<ProducerIdAndEpoch, KafkaError> {
    cluster.retry(|retry| {
        let node = match transactional_id {
            Some(id) => retry.coordinator(CoordinatorOf::Transaction, id)?,
            None => retry.any_node()?,
        };
        let encode = |e: &mut Vec<u8>, version: i16| {
            transactions::encode_init_producer_id(
                e,
                version,
                transactional_id,
                timeout_ms,
                current,
            );
        };
        let decode = transactions::decode_init_producer_id;
        let ((error_code, identity), name) = retry.call(&node, api, encode, decode)?;
        if error_code == 0 {
            return Ok(identity);
        }
        let id = transactional_id.unwrap_or("(none)");
        Err(transaction_error(
            error_code,
            &name,
            "InitProducerId",
            id,
            current,
        ))
    })
}

/// The error a node answered about a producer.
#[must_use]
pub fn transaction_error(
    error_code: i16,
    node: &str,
    what: &str,
    id: &str,
    who: ProducerIdAndEpoch,
) -> KafkaError {
    let subject = format!(
        "transactional id '{id}', producer id {}, producer epoch {}",
        who.0, who.1
    );
    KafkaError::answered(error_code, node, what, &subject, None)
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
