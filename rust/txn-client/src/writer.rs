//! Rows become record batches and are produced, exactly once per batch.
//!
//! Rows are encoded straight into one open batch per partition. A full batch is *sealed*: it gets its
//! sequence number, is compressed and checksummed, and never changes again. Sealed batches are sent in
//! the order they were sealed, up to `IN_FLIGHT_MAX` requests at a time to each node.
//!
//! # Why nothing is lost, doubled or reordered
//! A node stores a batch only if its sequence follows the one before, and remembers the last five per
//! producer and partition. So a batch whose fate is unknown is sent again as it was: stored before, it
//! is answered as a duplicate, which is success. After any error everything in flight is first waited
//! for or given up (`rewind`), and what is not acknowledged is sent again in order. While that happens a
//! gap (code 45) behind a batch that failed is the failure's echo; a gap anywhere else is final.
//!
//! Five requests in flight are not enough of a bound. A batch that was stored and refused is sent again,
//! in front of later ones. It may fail again while those are stored. If others followed them, the node
//! would forget it. So each batch in flight is within five of the oldest unacknowledged one.
//!
//! # Invariants
//! 1. Per partition, batches are sent with sequences 0, 1·n, … without a gap, by one producer identity.
//! 2. A partition's batches in flight are all on one connection. They are among the first `IN_FLIGHT_MAX`
//!    from its oldest unacknowledged batch on, so the node remembers each of them.
//! 3. An identity has one writer: a second one would count its sequences from 0 again, and its batches
//!    would be taken for duplicates and dropped without a word.
//! 4. After a final error the writer refuses everything: it cannot tell what it wrote.
//!
//! Transaction version 1: a partition joins by `AddPartitionsToTxn` before its first batch, and Produce
//! stays at version 11 or lower. Version 2: Produce 12 joins it.
//!
//! Sources: KIP-98 (idempotent producer), KIP-890 (transaction version 2), Apache Kafka
//! `ProducerStateManager` (five batches).

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use txn_log::builder::BatchBuilder;
use txn_protocol::Reader;
use txn_protocol::batch::Codec;
use txn_protocol::codes;

use crate::client::transaction_error;
use crate::cluster::{Cluster, Retry, no_such_partition};
use crate::connection::{Address, BrokerConnection};
use crate::error::{self, KafkaError};
use crate::messages::cluster::CoordinatorOf;
use crate::messages::transactions::{self, ProducerIdAndEpoch};
use crate::messages::{self, produce};
use crate::partitioner::{InTurn, partition_of};
use crate::rows::Rows;

/// Requests a node may owe an answer to: as many batches as it remembers of a producer.
const IN_FLIGHT_MAX: usize = 5;
/// A request takes further batches while it is smaller than this.
const REQUEST_BYTES: usize = 1 << 20;
/// More than a record's lengths, deltas and attributes ever take.
const RECORD_OVERHEAD_BYTES: usize = 40;
const HEADER_OVERHEAD_BYTES: usize = 10;

/// How rows are put into batches.
#[derive(Clone, Copy, Debug)]
pub struct WriterSettings {
    /// Size after which a batch is full, before compression.
    pub batch_bytes: usize,
    /// How batches are compressed.
    pub codec: Codec,
    /// The client's knowledge of a topic counts up to this age when the writer meets the topic.
    pub metadata_age_max: Duration,
}

/// Writes under one producer identity; see the module.
#[derive(Debug)]
pub struct Writer {
    cluster: Arc<Cluster>,
    transactional_id: Option<String>,
    who: ProducerIdAndEpoch,
    transaction_version: i16,
    settings: WriterSettings,
    topics: Vec<WrittenTopic>,
    /// Sealed, not in flight, by `order`.
    ready: VecDeque<SealedBatch>,
    links: BTreeMap<Address, Link>,
    sealed: u64,
    acknowledged: u64,
    /// Whether this writer took `who` for itself.
    has_claimed: bool,
    /// Set by an acknowledgement: the timeout starts anew.
    has_progressed: bool,
    frame: Vec<u8>,
    failure: Option<KafkaError>,
}

#[derive(Debug)]
struct WrittenTopic {
    name: String,
    partitions: Vec<WrittenPartition>,
    in_turn: InTurn,
}

#[derive(Debug, Default)]
struct WrittenPartition {
    open: Option<BatchBuilder>,
    next_sequence: i32,
    /// How many batches were sealed.
    sealed: u64,
    /// Numbers of the sealed batches that are not acknowledged.
    unacknowledged: BTreeSet<u64>,
    /// Transaction version 1: whether the coordinator knows that it takes part.
    has_joined: bool,
    /// Where its batches in flight are.
    leader: Option<Address>,
    /// Whether a batch of it failed and has not been sent again yet.
    is_rewinding: bool,
}

impl WrittenPartition {
    /// Whether the node still remembers the oldest unacknowledged batch once it has stored this one.
    fn may_send(&self, sealed: &SealedBatch) -> bool {
        let oldest = self.unacknowledged.first();
        oldest.is_none_or(|oldest| sealed.number - oldest < IN_FLIGHT_MAX as u64)
    }
}

/// A batch that never changes again.
#[derive(Debug)]
struct SealedBatch {
    order: u64,
    topic: usize,
    partition: usize,
    /// Its place among the batches of its partition, from 0.
    number: u64,
    rows: u32,
    base_sequence: i32,
    bytes: Vec<u8>,
}

/// A connection to a leader and the batches of each request in flight on it.
#[derive(Debug)]
struct Link {
    connection: BrokerConnection,
    in_flight: VecDeque<Vec<SealedBatch>>,
}

impl Writer {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        transactional_id: Option<&str>,
        who: ProducerIdAndEpoch,
        transaction_version: i16,
        settings: WriterSettings,
    ) -> Self {
        Self {
            cluster,
            transactional_id: transactional_id.map(ToOwned::to_owned),
            who,
            transaction_version,
            settings,
            topics: Vec::new(),
            ready: VecDeque::new(),
            links: BTreeMap::new(),
            sealed: 0,
            acknowledged: 0,
            has_claimed: false,
            has_progressed: false,
            frame: Vec::new(),
            failure: None,
        }
    }

    /// Adds rows; sends the batches that become full. Nothing is certain before `flush`.
    ///
    /// # Errors
    /// 3 for an unknown topic or partition, before any row is taken. Everything else is final for the writer.
    pub fn write(&mut self, topic: &str, rows: &Rows<'_>) -> Result<(), KafkaError> {
        self.check()?;
        let index = self.topic(topic)?;
        self.check_partitions(index, rows)?;
        let result = self.add(index, rows);
        self.note(result)
    }

    /// Sends what is left and waits for every acknowledgement; returns the rows written so far.
    ///
    /// # Errors
    /// As `write`.
    pub fn flush(&mut self) -> Result<u64, KafkaError> {
        self.check()?;
        let result = self.seal_all().and_then(|()| self.pump(true));
        self.note(result)?;
        Ok(self.acknowledged)
    }

    fn check(&self) -> Result<(), KafkaError> {
        self.failure
            .as_ref()
            .map_or(Ok(()), |failure| Err(failure.clone()))
    }

    fn note(&mut self, result: Result<(), KafkaError>) -> Result<(), KafkaError> {
        if let Err(error) = &result {
            self.links.clear();
            self.failure = Some(error.clone());
        }
        result
    }

    fn topic(&mut self, name: &str) -> Result<usize, KafkaError> {
        if let Some(index) = self.topics.iter().position(|topic| topic.name == name) {
            return Ok(index);
        }
        // A client may live for days, and rows of one key have to meet those of newer clients.
        self.cluster
            .forget_old_topic(name, self.settings.metadata_age_max);
        let count = match self.cluster.retry(|retry| retry.leaders(name)) {
            Ok(leaders) => leaders.len(),
            Err(error) if error.code == codes::UNKNOWN_TOPIC_OR_PARTITION => {
                self.make_topic(name)?
            }
            Err(error) => return Err(error),
        };
        if count == 0 {
            return Err(no_such_partition(name, 0, 0));
        }
        let partitions = (0..count).map(|_| WrittenPartition::default()).collect();
        self.topics.push(WrittenTopic {
            name: name.to_owned(),
            partitions,
            in_turn: InTurn::new(count as i32),
        });
        Ok(self.topics.len() - 1)
    }

    /// Makes the cluster create a topic, as a Java producer does; returns its partition count.
    ///
    /// A node answers "unknown" both while it makes a topic and when `auto.create.topics.enable` is
    /// false, so it is asked again for as long as for a topic that was seen before.
    fn make_topic(&self, name: &str) -> Result<usize, KafkaError> {
        self.cluster.mark_topic_seen(name);
        let made = self
            .cluster
            .retry(|retry| retry.topic_made_if_missing(name));
        made.map(|topic| topic.partitions.len()).map_err(|error| {
            self.cluster.mark_topic_deleted(name);
            if error.code != codes::UNKNOWN_TOPIC_OR_PARTITION {
                return error;
            }
            let message = format!(
                "there is no topic '{name}', and the cluster does not make it by itself \
                 (auto.create.topics.enable): create it, or correct the name"
            );
            KafkaError::refused(codes::UNKNOWN_TOPIC_OR_PARTITION, message)
        })
    }

    /// Refuses rows for partitions that do not exist, also after asking again: they may be new.
    fn check_partitions(&mut self, topic: usize, rows: &Rows<'_>) -> Result<(), KafkaError> {
        let Some((lowest, highest)) = rows.partitions.and_then(|partitions| partitions.bounds())
        else {
            return Ok(());
        };
        let topic = &mut self.topics[topic];
        if highest >= topic.partitions.len() as i32 {
            self.cluster.forget_topic(&topic.name);
            let count = self
                .cluster
                .retry(|retry| retry.leaders(&topic.name))?
                .len();
            topic
                .partitions
                .resize_with(count.max(topic.partitions.len()), WrittenPartition::default);
        }
        let refused = if lowest < -1 { lowest } else { highest };
        if lowest < -1 || highest >= topic.partitions.len() as i32 {
            return Err(no_such_partition(
                &topic.name,
                refused,
                topic.partitions.len(),
            ));
        }
        Ok(())
    }

    fn add(&mut self, index: usize, rows: &Rows<'_>) -> Result<(), KafkaError> {
        let now_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_millis() as i64);
        let (batch_bytes, codec) = (self.settings.batch_bytes, self.settings.codec);
        let mut headers = Vec::new();
        for row in 0..rows.count {
            let key = rows.keys.and_then(|keys| keys.get(row));
            let value = rows.values.get(row);
            if let Some(column) = &rows.headers {
                column.get(row, &mut headers);
            }
            let of_headers = |(key, value): &(&[u8], Option<&[u8]>)| {
                HEADER_OVERHEAD_BYTES + key.len() + value.map_or(0, <[u8]>::len)
            };
            let bytes = RECORD_OVERHEAD_BYTES
                + key.map_or(0, <[u8]>::len)
                + value.map_or(0, <[u8]>::len)
                + headers.iter().map(of_headers).sum::<usize>();
            if bytes > i32::MAX as usize / 2 {
                return Err(self.row_too_large(index, row, bytes));
            }
            let topic = &mut self.topics[index];
            let count = topic.partitions.len() as i32;
            let chosen = rows.partitions.map_or(-1, |partitions| partitions.get(row));
            let partition = match (chosen, key) {
                (0.., _) => chosen,
                (_, Some(key)) => partition_of(key, count),
                (_, None) => topic.in_turn.next(bytes, count),
            } as usize;
            let open = &topic.partitions[partition].open;
            if open
                .as_ref()
                .is_some_and(|open| open.record_count() > 0 && open.size() + bytes > batch_bytes)
            {
                self.seal(index, partition)?;
                self.pump(false)?;
            }
            let open = self.topics[index].partitions[partition]
                .open
                .get_or_insert_with(|| {
                    let mut open = BatchBuilder::new(codec);
                    (open.producer_id, open.producer_epoch) = self.who;
                    open.is_transactional = self.transactional_id.is_some();
                    open
                });
            let timestamp_ms = rows
                .timestamps_ms
                .map_or(now_ms, |timestamps| timestamps.get(row));
            open.push(timestamp_ms, key, value, &headers);
        }
        Ok(())
    }

    fn row_too_large(&self, topic: usize, row: usize, bytes: usize) -> KafkaError {
        let message = format!(
            "row {row} for topic '{}' has {bytes} bytes; no Kafka takes a record of 1 GiB: split it",
            self.topics[topic].name
        );
        KafkaError::refused(codes::MESSAGE_TOO_LARGE, message)
    }

    fn seal_all(&mut self) -> Result<(), KafkaError> {
        for topic in 0..self.topics.len() {
            for partition in 0..self.topics[topic].partitions.len() {
                self.seal(topic, partition)?;
            }
        }
        Ok(())
    }

    /// Turns a partition's open batch, if it has rows, into one that is ready to be sent.
    fn seal(&mut self, topic: usize, partition: usize) -> Result<(), KafkaError> {
        let state = &mut self.topics[topic].partitions[partition];
        let Some(open) = state.open.as_mut().filter(|open| open.record_count() > 0) else {
            return Ok(());
        };
        let rows = open.record_count() as u32;
        let base_sequence = state.next_sequence;
        open.base_sequence = base_sequence;
        let bytes = open.seal().map_err(|error| {
            KafkaError::refused(
                codes::UNKNOWN_SERVER_ERROR,
                format!("rows could not be compressed: {error}"),
            )
        })?;
        state.next_sequence = sequence_after(base_sequence, rows);
        let number = state.sealed;
        state.sealed += 1;
        state.unacknowledged.insert(number);
        self.ready.push_back(SealedBatch {
            order: self.sealed,
            topic,
            partition,
            number,
            rows,
            base_sequence,
            bytes,
        });
        self.sealed += 1;
        Ok(())
    }

    /// Sends everything that is ready; with `drain` also waits for every acknowledgement.
    fn pump(&mut self, drain: bool) -> Result<(), KafkaError> {
        let cluster = Arc::clone(&self.cluster);
        let mut retry = cluster.begin();
        loop {
            let result = self.attempt(&retry, drain);
            if std::mem::take(&mut self.has_progressed) {
                retry.restart();
            }
            let Err(error) = result else { break };
            let error = self.rewind(&retry, error);
            retry.after(error)?;
        }
        if drain {
            for (_, link) in std::mem::take(&mut self.links) {
                cluster.put_back(link.connection);
            }
            self.forget_leaders();
        }
        Ok(())
    }

    fn claim(&mut self) -> Result<(), KafkaError> {
        if self.has_claimed || self.cluster.claim(self.who) {
            self.has_claimed = true;
            return Ok(());
        }
        let message = format!(
            "another writer already wrote as producer id {}, producer epoch {}: this one's batches would be taken for \
             duplicates of those; use the next identity that end_txn gave, or after transaction version 1 one from \
             init_producer_id",
            self.who.0, self.who.1
        );
        Err(KafkaError::refused(codes::INVALID_REQUEST, message))
    }

    fn attempt(&mut self, retry: &Retry<'_>, drain: bool) -> Result<(), KafkaError> {
        if !self.ready.is_empty() {
            self.claim()?;
        }
        self.join(retry)?;
        while let Some(first) = self.ready.front() {
            let leader = self.leader(retry, first.topic, first.partition)?;
            if !self.links.contains_key(&leader) {
                let connection = retry.connect(&leader)?;
                self.links.insert(
                    leader.clone(),
                    Link {
                        connection,
                        in_flight: VecDeque::new(),
                    },
                );
            }
            let first = &self.ready[0];
            let link = &self.links[&leader];
            // A node is logged in to again only while nothing is in flight.
            let is_full = link.in_flight.len() >= IN_FLIGHT_MAX
                || link.connection.is_stale() && !link.in_flight.is_empty();
            // If the first one waits for an older batch of its partition, that one is in flight there.
            if is_full || !self.topics[first.topic].partitions[first.partition].may_send(first) {
                self.receive(retry, &leader)?;
            } else {
                self.send(retry, &leader)?;
            }
        }
        while let Some(leader) = self
            .links
            .iter()
            .find(|(_, l)| drain && !l.in_flight.is_empty())
            .map(|(a, _)| a.clone())
        {
            self.receive(retry, &leader)?;
        }
        Ok(())
    }

    fn leader(
        &self,
        retry: &Retry<'_>,
        topic: usize,
        partition: usize,
    ) -> Result<Address, KafkaError> {
        let known = &self.topics[topic].partitions[partition].leader;
        known.as_ref().map_or_else(
            || retry.leader(&self.topics[topic].name, partition as i32),
            |l| Ok(l.clone()),
        )
    }

    /// Transaction version 1: tells the coordinator which partitions are about to be written.
    fn join(&mut self, retry: &Retry<'_>) -> Result<(), KafkaError> {
        let Some(id) = self
            .transactional_id
            .as_deref()
            .filter(|_| self.transaction_version < 2)
        else {
            return Ok(());
        };
        let mut joining: Vec<(usize, usize)> =
            self.ready.iter().map(|s| (s.topic, s.partition)).collect();
        joining.sort_unstable();
        joining.dedup();
        joining.retain(|&(topic, partition)| !self.topics[topic].partitions[partition].has_joined);
        if joining.is_empty() {
            return Ok(());
        }
        let named: Vec<_> = joining
            .iter()
            .map(|&(t, p)| (self.topics[t].name.as_str(), p as i32))
            .collect();
        let node = retry.coordinator(CoordinatorOf::Transaction, id)?;
        let api = messages::ADD_PARTITIONS_TO_TXN;
        let (results, name) = retry.call(
            &node,
            api,
            |e, _| transactions::encode_add_partitions(e, id, self.who, &named),
            |r, _| transactions::decode_partition_errors(r),
        )?;
        // This code only says that another partition of the request was refused.
        let refused = |&&(.., error_code): &&(String, i32, i16)| error_code != 0;
        let first = results
            .iter()
            .filter(refused)
            .min_by_key(|(.., error_code)| *error_code == codes::OPERATION_NOT_ATTEMPTED);
        if let Some((topic, partition, error_code)) = first {
            let what = format!("{} of {topic}-{partition}", api.name);
            return Err(transaction_error(*error_code, &name, &what, id, self.who));
        }
        for (topic, partition) in joining {
            self.topics[topic].partitions[partition].has_joined = true;
        }
        Ok(())
    }

    /// Sends one request: the first ready batch of each partition that this node leads.
    fn send(&mut self, retry: &Retry<'_>, leader: &Address) -> Result<(), KafkaError> {
        let (mut batches, mut left, mut bytes) = (Vec::<SealedBatch>::new(), VecDeque::new(), 0);
        let mut passed = HashSet::new(); // partitions whose next batch is in this request or has to wait
        for sealed in std::mem::take(&mut self.ready) {
            let is_next = passed.insert((sealed.topic, sealed.partition))
                && self.topics[sealed.topic].partitions[sealed.partition].may_send(&sealed);
            let fits =
                is_next && (batches.is_empty() || bytes + sealed.bytes.len() <= REQUEST_BYTES);
            if fits && self.leader(retry, sealed.topic, sealed.partition).as_ref() == Ok(leader) {
                self.topics[sealed.topic].partitions[sealed.partition].leader =
                    Some(leader.clone());
                bytes += sealed.bytes.len();
                batches.push(sealed);
            } else {
                left.push_back(sealed);
            }
        }
        self.ready = left;
        batches.sort_by_key(|sealed| (sealed.topic, sealed.partition));
        let api = match (&self.transactional_id, self.transaction_version) {
            (None, _) => messages::PRODUCE,
            (Some(_), 2..) => messages::PRODUCE.at_least(12),
            (Some(_), _) => messages::PRODUCE.at_most(11),
        };
        let parts: Vec<_> = batches
            .iter()
            .map(|sealed| produce::PartitionBatch {
                topic: &self.topics[sealed.topic].name,
                partition: sealed.partition as i32,
                batch: &sealed.bytes,
            })
            .collect();
        let link = self.links.get_mut(leader).expect("attempt made it");
        let refreshed = link.connection.refresh(retry.answer_timeout());
        let result = refreshed
            .and_then(|()| link.connection.version(api))
            .and_then(|version| {
                let head = link.connection.head(api, version);
                let timeout_ms = (retry.answer_timeout().as_millis() / 2) as i32;
                let mut pieces =
                    produce::encode(head, self.transactional_id.as_deref(), timeout_ms, &parts);
                let bodies: Vec<&[u8]> = parts.iter().map(|part| part.batch).collect();
                // A batch may be large, and acknowledgements may be waiting behind it.
                let timeout = self.cluster.timeout();
                link.connection
                    .send(api, version, &mut pieces, &bodies, timeout)
            });
        link.in_flight.push_back(batches); // also if it failed: `rewind` takes them back
        result
    }

    /// Waits for one answer of a node and settles its batches.
    fn receive(&mut self, retry: &Retry<'_>, leader: &Address) -> Result<(), KafkaError> {
        let link = self
            .links
            .get_mut(leader)
            .expect("it has requests in flight");
        let body = link
            .connection
            .receive(&mut self.frame, retry.answer_timeout())?;
        let responses = produce::decode(&mut Reader::new(&self.frame[body..]));
        let responses = responses.map_err(|error| link.connection.malformed("Produce", &error))?;
        let node = link.connection.name().to_owned();
        let mut failure: Option<KafkaError> = None;
        for sealed in link.in_flight.pop_front().expect("an answer to a request") {
            let topic = &mut self.topics[sealed.topic];
            let of_batch = |o: &&produce::PartitionResponse| {
                o.partition == sealed.partition as i32 && o.topic == topic.name
            };
            let Some(response) = responses.iter().find(of_batch) else {
                let what = format!("it does not name {}-{}", topic.name, sealed.partition);
                return Err(link.connection.malformed("Produce", &what));
            };
            if matches!(
                response.error_code,
                codes::NONE | codes::DUPLICATE_SEQUENCE_NUMBER
            ) {
                self.acknowledged += u64::from(sealed.rows);
                self.has_progressed = true;
                let partition = &mut topic.partitions[sealed.partition];
                partition.unacknowledged.remove(&sealed.number);
                continue;
            }
            let partition = &mut topic.partitions[sealed.partition];
            let is_echo = response.error_code == codes::OUT_OF_ORDER_SEQUENCE_NUMBER
                && partition.is_rewinding;
            partition.is_rewinding = true;
            if !is_echo {
                let id = self.transactional_id.as_deref();
                let error = refusal(retry, &node, &topic.name, &sealed, response, id, self.who);
                // A final error outweighs one that may pass.
                if failure
                    .as_ref()
                    .is_none_or(|known| known.is_retriable && !error.is_retriable)
                {
                    failure = Some(error);
                }
            }
            self.ready.push_back(sealed); // put in order by `rewind`
        }
        failure.map_or(Ok(()), Err)
    }

    /// After an error: waits for what can still be answered, and makes everything else ready again, in order.
    ///
    /// Returns the error to go on with: a final one, if one came up.
    fn rewind(&mut self, retry: &Retry<'_>, mut error: KafkaError) -> KafkaError {
        let leaders: Vec<Address> = self.links.keys().cloned().collect();
        for leader in leaders {
            while error.is_retriable {
                let link = &self.links[&leader];
                if link.connection.is_broken() || link.in_flight.is_empty() {
                    break;
                }
                if let Err(next) = self.receive(retry, &leader) {
                    error = if next.is_retriable { error } else { next };
                }
            }
            let mut link = self.links.remove(&leader).expect("it was listed");
            self.ready.extend(link.in_flight.drain(..).flatten());
            self.cluster.put_back(link.connection);
        }
        self.ready
            .make_contiguous()
            .sort_by_key(|sealed| sealed.order);
        self.forget_leaders();
        error
    }

    fn forget_leaders(&mut self) {
        for partition in self
            .topics
            .iter_mut()
            .flat_map(|topic| &mut topic.partitions)
        {
            partition.leader = None;
            partition.is_rewinding = false;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        for (_, link) in std::mem::take(&mut self.links) {
            self.cluster.put_back(link.connection); // which keeps only those that owe nothing
        }
    }
}

/// The error for a batch that was not stored.
fn refusal(
    retry: &Retry<'_>,
    node: &str,
    topic: &str,
    sealed: &SealedBatch,
    response: &produce::PartitionResponse,
    transactional_id: Option<&str>,
    who: ProducerIdAndEpoch,
) -> KafkaError {
    let id = transactional_id.map_or_else(String::new, |id| format!(", transactional id '{id}'"));
    let subject = format!(
        "partition {topic}-{} (batch of {} rows, {} bytes, sequence {}{id}, producer id {}, producer epoch {})",
        sealed.partition,
        sealed.rows,
        sealed.bytes.len(),
        sealed.base_sequence,
        who.0,
        who.1
    );
    let error = KafkaError::answered(
        response.error_code,
        node,
        "Produce",
        &subject,
        response.message.as_deref(),
    );
    let is_retriable = error.is_retriable
        && (response.error_code != codes::UNKNOWN_TOPIC_OR_PARTITION
            || retry
                .topic_error(response.error_code, node, "Produce", topic, &subject)
                .is_retriable);
    debug_assert!(!is_retriable || error::is_retriable(response.error_code));
    KafkaError {
        is_retriable,
        ..error
    }
}

/// The sequence after a batch of `rows`: after 2³¹ − 1 comes 0.
fn sequence_after(base: i32, rows: u32) -> i32 {
    ((i64::from(base) + i64::from(rows)) & i64::from(i32::MAX)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap_to_zero_after_the_largest_number() {
        assert_eq!(sequence_after(i32::MAX, 1), 0);
        assert_eq!(sequence_after(i32::MAX - 2, 5), 2);
        assert_eq!(sequence_after(0, 3), 3);
    }
}
