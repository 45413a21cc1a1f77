//! A model of a Kafka cluster: strict where brokers are strict, and with one log for all replicas.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use txn_protocol::batch::BatchView;
use txn_protocol::codes;
use txn_protocol::records::Records;

use super::Random;
use crate::engine::request::{Part, Request, Response};
use crate::messages::cluster::{BrokerAddress, Metadata, TopicMetadata};
use crate::messages::produce::PartitionResponse;
use crate::messages::transactions::ProducerIdAndEpoch;

/// Batches that a node remembers of a producer.
const REMEMBERED: usize = 5;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    Record {
        producer_id: i64,
        is_transactional: bool,
        value: String,
    },
    Marker {
        producer_id: i64,
        commit: bool,
    },
}

#[derive(Debug, Default)]
struct Remembered {
    epoch: i16,
    /// (first sequence, last sequence) of the last batches.
    last: VecDeque<(i32, i32)>,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) leader: i32,
    pub(super) entries: Vec<Entry>,
    producers: BTreeMap<i64, Remembered>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Empty,
    Ongoing,
    Complete { commit: bool },
}

#[derive(Debug)]
struct Txn {
    who: ProducerIdAndEpoch,
    state: State,
    partitions: BTreeSet<(String, i32)>,
    groups: BTreeSet<String>,
    pending: BTreeMap<(String, i32), i64>,
}

/// The cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) is_v2: bool,
    pub(super) nodes: Vec<i32>,
    pub(super) down: BTreeSet<i32>,
    pub(super) logs: BTreeMap<(String, i32), Log>,
    /// A liar: it forgets the sequences that it has stored.
    pub(super) forgets: bool,
    /// Chance in 1,000 that a request that could succeed is refused for a while.
    pub(super) refusals: u64,
    /// Largest batch that it stores, in bytes.
    pub(super) batch_bytes_max: usize,
    /// Batches that it has refused for their size.
    pub(super) too_large: u64,
    /// It answers every EndTxn(abort) with `TRANSACTION_ABORTABLE`.
    pub(super) refuses_aborts: bool,
    pub(super) coordinator: i32,
    pub(super) offsets: BTreeMap<(String, i32), i64>,
    transactions: BTreeMap<String, Txn>,
    next_producer_id: i64,
}

impl Cluster {
    pub(super) fn new(is_v2: bool, topics: &[(&str, i32)]) -> Self {
        let mut logs = BTreeMap::new();
        for (name, count) in topics {
            for partition in 0..*count {
                let log = Log {
                    leader: partition % 3 + 1,
                    ..Log::default()
                };
                logs.insert(((*name).to_owned(), partition), log);
            }
        }
        Self {
            is_v2,
            nodes: vec![1, 2, 3],
            down: BTreeSet::new(),
            logs,
            forgets: false,
            refusals: 0,
            batch_bytes_max: usize::MAX,
            too_large: 0,
            refuses_aborts: false,
            coordinator: 1,
            offsets: BTreeMap::new(),
            transactions: BTreeMap::new(),
            next_producer_id: 1000,
        }
    }

    pub(super) fn address(node: i32) -> BrokerAddress {
        BrokerAddress {
            id: node,
            host: format!("n{node}"),
            port: 9092,
        }
    }

    /// Moves leadership and coordination from a node to others that are up.
    pub(super) fn move_from(&mut self, node: i32, random: &mut Random) {
        let up: Vec<i32> = self
            .nodes
            .iter()
            .copied()
            .filter(|n| !self.down.contains(n) && *n != node)
            .collect();
        if up.is_empty() {
            return;
        }
        for log in self.logs.values_mut().filter(|log| log.leader == node) {
            log.leader = up[random.below(up.len() as u64) as usize];
        }
        if self.coordinator == node {
            self.coordinator = up[random.below(up.len() as u64) as usize];
        }
    }

    #[allow(clippy::too_many_lines, reason = "one arm per request")]
    pub(super) fn handle(&mut self, node: i32, request: &Request, random: &mut Random) -> Response {
        let is_refused = random.below(1000) < self.refusals;
        let of_coordinator = if self.coordinator != node {
            codes::NOT_COORDINATOR
        } else if is_refused {
            [
                codes::CONCURRENT_TRANSACTIONS,
                codes::COORDINATOR_LOAD_IN_PROGRESS,
            ][random.below(2) as usize]
        } else {
            0
        };
        match request {
            Request::Metadata { topics, .. } => Response::Metadata(self.metadata(topics)),
            Request::FindCoordinator { .. } => Response::Coordinator(if is_refused {
                Err((codes::COORDINATOR_NOT_AVAILABLE, None))
            } else {
                Ok(Self::address(self.coordinator))
            }),
            Request::InitProducerId {
                transactional_id: None,
                ..
            } => {
                self.next_producer_id += 1;
                Response::Identity(0, (self.next_producer_id, 0))
            }
            Request::InitProducerId {
                transactional_id: Some(id),
                current,
                ..
            } => match of_coordinator {
                0 => self.init(id, *current),
                code => Response::Identity(code, (-1, -1)),
            },
            Request::InitTwoPhase { .. } => unreachable!("no client here prepares"),
            Request::AddPartitions {
                transactional_id,
                who,
                partitions,
            } => {
                let code = match of_coordinator {
                    0 => self.open(transactional_id, *who),
                    code => code,
                };
                let added = partitions
                    .iter()
                    .map(|(topic, partition)| (topic.to_string(), *partition));
                if code == 0 {
                    self.txn(transactional_id).partitions.extend(added.clone());
                }
                Response::Partitions(added.map(|(t, p)| (t, p, code)).collect())
            }
            Request::AddOffsets {
                transactional_id,
                who,
                group,
            } => {
                let code = match of_coordinator {
                    0 => self.open(transactional_id, *who),
                    code => code,
                };
                if code == 0 {
                    self.txn(transactional_id).groups.insert(group.clone());
                }
                Response::Code(code)
            }
            Request::CommitOffsets {
                is_v2,
                transactional_id,
                who,
                group,
                offsets,
                ..
            } => {
                let code = match of_coordinator {
                    0 if *is_v2 => self.open(transactional_id, *who),
                    0 => self.check_open(transactional_id, *who, |txn| txn.groups.contains(group)),
                    code => code,
                };
                if code == 0 {
                    let txn = self.txn(transactional_id);
                    txn.pending.extend(
                        offsets
                            .iter()
                            .map(|o| ((o.topic.clone(), o.partition), o.offset)),
                    );
                }
                Response::Partitions(
                    offsets
                        .iter()
                        .map(|o| (o.topic.clone(), o.partition, code))
                        .collect(),
                )
            }
            Request::EndTxn {
                is_v2,
                transactional_id,
                who,
                commit,
            } => match of_coordinator {
                0 if self.refuses_aborts && !commit => {
                    Response::End(codes::TRANSACTION_ABORTABLE, is_v2.then_some((-1, -1)))
                }
                0 => self.end(*is_v2, transactional_id, *who, *commit),
                code => Response::End(code, is_v2.then_some((-1, -1))),
            },
            Request::Produce {
                is_v2,
                transactional_id,
                parts,
                ..
            } => {
                let id = transactional_id.as_deref();
                Response::Produce(
                    parts
                        .iter()
                        .map(|part| self.produce(node, *is_v2, id, part, random))
                        .collect(),
                )
            }
            of_consumers => unreachable!("no producer sends {of_consumers:?}"),
        }
    }

    fn metadata(&self, topics: &[std::sync::Arc<str>]) -> Metadata {
        let up = self.nodes.iter().filter(|node| !self.down.contains(node));
        let topic = |name: &std::sync::Arc<str>| {
            let of_topic = self.logs.iter().filter(|((topic, _), _)| **topic == **name);
            let partitions: Vec<_> = of_topic.map(|((_, p), log)| (0, *p, log.leader)).collect();
            TopicMetadata {
                error_code: if partitions.is_empty() {
                    codes::UNKNOWN_TOPIC_OR_PARTITION
                } else {
                    0
                },
                name: name.to_string(),
                id: None,
                is_internal: false,
                partitions,
            }
        };
        Metadata {
            brokers: up.map(|&node| Self::address(node)).collect(),
            controller: 1,
            topics: topics.iter().map(topic).collect(),
        }
    }

    fn txn(&mut self, id: &str) -> &mut Txn {
        self.transactions.get_mut(id).expect("it was checked")
    }

    fn init(&mut self, id: &str, current: ProducerIdAndEpoch) -> Response {
        let Some(txn) = self.transactions.get(id) else {
            self.next_producer_id += 1;
            let who = (self.next_producer_id, 0);
            let (partitions, groups, pending) = Default::default();
            let txn = Txn {
                who,
                state: State::Empty,
                partitions,
                groups,
                pending,
            };
            self.transactions.insert(id.to_owned(), txn);
            return Response::Identity(0, who);
        };
        let who = txn.who;
        if current.0 >= 0 && current == (who.0, who.1 - 1) && txn.state != State::Ongoing {
            return Response::Identity(0, who); // it is asked again
        }
        if current.0 >= 0 && current != who {
            return Response::Identity(codes::PRODUCER_FENCED, (-1, -1));
        }
        if txn.state == State::Ongoing {
            self.mark(id, false);
        }
        let txn = self.txn(id);
        txn.who.1 += 1;
        txn.state = State::Empty;
        let who = txn.who;
        Response::Identity(0, who)
    }

    /// Lets something join a transaction, which begins it.
    fn open(&mut self, id: &str, who: ProducerIdAndEpoch) -> i16 {
        let Some(txn) = self.transactions.get_mut(id) else {
            return codes::INVALID_PRODUCER_ID_MAPPING;
        };
        if txn.who != who {
            return codes::INVALID_PRODUCER_EPOCH;
        }
        if txn.state != State::Ongoing {
            txn.state = State::Ongoing;
            (txn.partitions, txn.groups, txn.pending) = Default::default();
        }
        0
    }

    fn check_open(&self, id: &str, who: ProducerIdAndEpoch, is_in: impl Fn(&Txn) -> bool) -> i16 {
        match self.transactions.get(id) {
            Some(txn) if txn.who != who => codes::INVALID_PRODUCER_EPOCH,
            Some(txn) if txn.state == State::Ongoing && is_in(txn) => 0,
            _ => codes::INVALID_TXN_STATE,
        }
    }

    fn end(&mut self, is_v2: bool, id: &str, who: ProducerIdAndEpoch, commit: bool) -> Response {
        let Some(txn) = self.transactions.get(id) else {
            return Response::End(codes::INVALID_PRODUCER_ID_MAPPING, None);
        };
        let (state, now) = (txn.state, txn.who);
        let is_again = is_v2 && who == (now.0, now.1 - 1);
        let refused = |code| Response::End(code, is_v2.then_some((-1, -1)));
        if who != now && !is_again {
            return refused(codes::PRODUCER_FENCED);
        }
        match state {
            State::Complete { commit: done } if is_again || !is_v2 => {
                let code = if done == commit {
                    0
                } else {
                    codes::INVALID_TXN_STATE
                };
                Response::End(code, is_v2.then_some(now))
            }
            _ if is_again => refused(codes::PRODUCER_FENCED),
            State::Ongoing => {
                self.mark(id, commit);
                let txn = self.txn(id);
                txn.state = State::Complete { commit };
                txn.who.1 += i16::from(is_v2);
                let next = txn.who;
                Response::End(0, is_v2.then_some(next))
            }
            _ if is_v2 && !commit => {
                let txn = self.txn(id);
                txn.state = State::Complete { commit };
                txn.who.1 += 1;
                let next = txn.who;
                Response::End(0, Some(next))
            }
            _ => refused(codes::INVALID_TXN_STATE),
        }
    }

    fn mark(&mut self, id: &str, commit: bool) {
        let txn = self.txn(id);
        let (producer_id, pending) = (txn.who.0, std::mem::take(&mut txn.pending));
        let partitions = std::mem::take(&mut txn.partitions);
        for place in partitions {
            let log = self.logs.get_mut(&place).expect("a partition that joined");
            log.entries.push(Entry::Marker {
                producer_id,
                commit,
            });
        }
        if commit {
            self.offsets.extend(pending);
        }
    }

    fn produce(
        &mut self,
        node: i32,
        is_v2: bool,
        id: Option<&str>,
        part: &Part,
        random: &mut Random,
    ) -> PartitionResponse {
        let place = (part.topic.to_string(), part.partition);
        let code = self.append(node, is_v2, id, &place, &part.batch, random);
        PartitionResponse {
            topic: place.0,
            partition: place.1,
            error_code: code,
            base_offset: -1,
            append_time_ms: -1,
            message: None,
        }
    }

    fn append(
        &mut self,
        node: i32,
        is_v2: bool,
        id: Option<&str>,
        place: &(String, i32),
        batch: &[u8],
        random: &mut Random,
    ) -> i16 {
        let bytes = batch.len();
        let batch = BatchView::parse(batch).expect("a sound batch");
        batch.validate().expect("a sound batch");
        let header = *batch.header();
        let who = (header.producer_id, header.producer_epoch);
        let Some(log) = self.logs.get(place) else {
            return codes::UNKNOWN_TOPIC_OR_PARTITION;
        };
        if log.leader != node {
            return codes::NOT_LEADER_OR_FOLLOWER;
        }
        if bytes > self.batch_bytes_max {
            self.too_large += 1;
            return codes::MESSAGE_TOO_LARGE;
        }
        if random.below(1000) < self.refusals {
            return codes::NOT_ENOUGH_REPLICAS;
        }
        if let Some(id) = id {
            let code = if is_v2 {
                self.open(id, who)
            } else {
                self.check_open(id, who, |txn| txn.partitions.contains(place))
            };
            if code != 0 {
                return code;
            }
            self.txn(id).partitions.insert(place.clone());
        }
        let log = self.logs.get_mut(place).expect("it was found");
        let remembered = log.producers.entry(who.0).or_default();
        let (first, last) = (
            header.base_sequence,
            header.base_sequence + header.record_count - 1,
        );
        if who.1 < remembered.epoch {
            return codes::INVALID_PRODUCER_EPOCH;
        }
        if who.1 > remembered.epoch {
            *remembered = Remembered {
                epoch: who.1,
                last: VecDeque::new(),
            };
        }
        if remembered.last.contains(&(first, last)) && !self.forgets {
            return 0;
        }
        let expected = remembered.last.back().map_or(0, |(_, last)| last + 1);
        if first != expected && !self.forgets {
            return codes::OUT_OF_ORDER_SEQUENCE_NUMBER;
        }
        remembered.last.push_back((first, last));
        if remembered.last.len() > REMEMBERED {
            remembered.last.pop_front();
        }
        for record in Records::new(batch.records(), header.record_count) {
            let value = record.expect("a sound record").value.expect("a value");
            log.entries.push(Entry::Record {
                producer_id: who.0,
                is_transactional: id.is_some(),
                value: String::from_utf8(value.to_vec()).expect("text"),
            });
        }
        // Stored, and refused all the same.
        if random.below(1000) < self.refusals {
            codes::NOT_ENOUGH_REPLICAS_AFTER_APPEND
        } else {
            0
        }
    }

    /// The values that a reader of committed records sees.
    pub(super) fn visible(&self, place: &(String, i32)) -> Vec<String> {
        let mut visible: Vec<(i64, String, bool)> = Vec::new();
        for entry in &self.logs[place].entries {
            match entry {
                Entry::Record {
                    producer_id,
                    is_transactional,
                    value,
                } => {
                    visible.push((*producer_id, value.clone(), !is_transactional));
                }
                Entry::Marker {
                    producer_id,
                    commit: true,
                } => {
                    visible
                        .iter_mut()
                        .filter(|(id, ..)| id == producer_id)
                        .for_each(|(.., is_sure)| *is_sure = true);
                }
                Entry::Marker {
                    producer_id,
                    commit: false,
                } => {
                    visible.retain(|(id, _, is_sure)| *is_sure || id != producer_id);
                }
            }
        }
        visible
            .into_iter()
            .filter(|(.., is_sure)| *is_sure)
            .map(|(_, value, _)| value)
            .collect()
    }
}
