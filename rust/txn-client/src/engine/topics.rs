//! Topics: the leaders of their partitions, and the records that wait for a partition.
//!
//! Knowledge of a leader is a guess until the leader answers. It is asked for again after an answer
//! or a lost connection that disproves it, and when it is old. A record for a topic that is not
//! known waits here; `send` never waits for metadata.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use txn_protocol::codes;

use super::accumulator::{Partition, Record};
use super::{Millis, NodeId};
use crate::error::KafkaError;
use crate::messages::cluster::TopicMetadata;
use crate::partitioner::{InTurn, partition_of};

/// A record without a partition, as its own copy.
#[derive(Debug)]
pub(crate) struct Unplaced {
    pub(crate) partition: Option<i32>,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub(crate) timestamp_ms: i64,
    pub(crate) delivery: Option<u64>,
    pub(crate) created: Millis,
    pub(crate) bytes: usize,
}

impl Unplaced {
    pub(crate) fn new(record: &Record<'_>, partition: Option<i32>, now: Millis) -> Self {
        let owned =
            |(key, value): &(&[u8], Option<&[u8]>)| (key.to_vec(), value.map(<[u8]>::to_vec));
        Self {
            partition,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.iter().map(owned).collect(),
            timestamp_ms: record.timestamp_ms,
            delivery: record.delivery,
            created: now,
            bytes: record.bytes(),
        }
    }

    /// Calls `use_it` with the record, borrowed.
    pub(crate) fn with<T>(&self, use_it: impl FnOnce(&Record<'_>) -> T) -> T {
        let headers: Vec<(&[u8], Option<&[u8]>)> = self
            .headers
            .iter()
            .map(|(key, value)| (key.as_slice(), value.as_deref()))
            .collect();
        use_it(&Record {
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &headers,
            timestamp_ms: self.timestamp_ms,
            delivery: self.delivery,
        })
    }

    pub(crate) fn record_bytes(&self) -> usize {
        self.key.as_ref().map_or(0, Vec::len) + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// One topic that was written to.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    /// Per partition: its leader, -1 for none now.
    leaders: Vec<NodeId>,
    pub(crate) partitions: Vec<Partition>,
    pub(crate) unplaced: VecDeque<Unplaced>,
    in_turn: InTurn,
    is_stale: bool,
    learned: Millis,
    /// Since when a node says that there is no such topic.
    pub(crate) unknown_since: Option<Millis>,
}

/// The answer to "which partition?".
#[derive(Debug)]
pub(crate) enum Place {
    At(usize),
    /// Known once the topic is.
    Later,
}

impl Topic {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            leaders: Vec::new(),
            partitions: Vec::new(),
            unplaced: VecDeque::new(),
            in_turn: InTurn::new(1),
            is_stale: true,
            learned: 0,
            unknown_since: None,
        }
    }

    /// The partition of a record.
    pub(crate) fn place(&mut self, record: &Record<'_>, partition: Option<i32>) -> Place {
        let count = self.leaders.len() as i32;
        if count == 0 {
            return Place::Later;
        }
        match (partition, record.key) {
            (Some(partition), _) if partition < count => Place::At(partition as usize),
            (Some(_), _) => {
                self.is_stale = true; // it may be new
                Place::Later
            }
            (None, Some(key)) => Place::At(partition_of(key, count) as usize),
            (None, None) => Place::At(self.in_turn.next(record.bytes(), count) as usize),
        }
    }

    /// The leader of a partition, if one is known and there is one.
    pub(crate) fn leader(&self, partition: usize) -> Option<NodeId> {
        self.leaders.get(partition).copied().filter(|&id| id >= 0)
    }

    /// Number of partitions; 0 if the topic is not known.
    pub(crate) fn count(&self) -> usize {
        self.leaders.len()
    }

    /// Learns the leaders.
    fn learn(&mut self, answer: &TopicMetadata, now: Millis) {
        let mut leaders = vec![-1; answer.partitions.len().max(self.leaders.len())];
        for &(error_code, partition, leader) in &answer.partitions {
            let slot = usize::try_from(partition)
                .ok()
                .and_then(|i| leaders.get_mut(i));
            // 9: a replica is missing, but there is a leader.
            if let (0 | codes::REPLICA_NOT_AVAILABLE, Some(slot)) = (error_code, slot) {
                *slot = leader;
            }
        }
        if self.leaders.is_empty() {
            self.in_turn = InTurn::new(leaders.len() as i32);
        }
        let has_all = !leaders.is_empty() && leaders.iter().all(|&leader| leader >= 0);
        self.partitions
            .resize_with(leaders.len().max(self.partitions.len()), Partition::default);
        self.leaders = leaders;
        self.is_stale = !has_all;
        self.learned = now;
        self.unknown_since = None;
    }
}

/// All topics that were written to.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    pub(crate) all: Vec<Topic>,
    by_name: HashMap<Arc<str>, usize>,
    pub(crate) is_asking: bool,
    pub(crate) ask_at: Millis,
    failures: u32,
}

impl Topics {
    /// The index of a topic.
    pub(crate) fn index(&mut self, name: &str) -> usize {
        if let Some(&index) = self.by_name.get(name) {
            return index;
        }
        let topic = Topic::new(name);
        self.by_name.insert(Arc::clone(&topic.name), self.all.len());
        self.all.push(topic);
        self.all.len() - 1
    }

    /// Has the topic asked for again.
    pub(crate) fn mark_stale(&mut self, index: usize) {
        self.all[index].is_stale = true;
    }

    /// Has the topics asked for again in which the node leads a partition.
    pub(crate) fn mark_stale_at(&mut self, node: NodeId) {
        for topic in &mut self.all {
            topic.is_stale |= topic.leaders.contains(&node);
        }
    }

    /// The topics to ask for now. Those without records are left alone.
    pub(crate) fn wanted(&self, now: Millis, age_max_ms: Millis) -> Vec<Arc<str>> {
        if self.is_asking || now < self.ask_at {
            return Vec::new();
        }
        let is_used = |t: &&Topic| {
            !t.unplaced.is_empty() || t.partitions.iter().any(|partition| !partition.is_empty())
        };
        let is_wanted = |t: &&Topic| t.is_stale || t.learned + age_max_ms <= now;
        let wanted = self.all.iter().filter(is_wanted).filter(is_used);
        wanted.map(|topic| Arc::clone(&topic.name)).collect()
    }

    /// Learns from an answer. Returns the topics that can never be written to, with their codes.
    pub(crate) fn learn(
        &mut self,
        answers: &[TopicMetadata],
        now: Millis,
        retry_ms: Millis,
    ) -> Vec<(usize, i16)> {
        let mut refused = Vec::new();
        for answer in answers {
            let Some(&index) = self.by_name.get(answer.name.as_str()) else {
                continue;
            };
            let topic = &mut self.all[index];
            match answer.error_code {
                codes::NONE if !answer.partitions.is_empty() => topic.learn(answer, now),
                codes::NONE | codes::LEADER_NOT_AVAILABLE => {}
                codes::UNKNOWN_TOPIC_OR_PARTITION => {
                    topic.unknown_since.get_or_insert(now);
                }
                code if crate::error::is_retriable(code) => {}
                code => refused.push((index, code)),
            }
        }
        let is_settled = self.all.iter().all(|topic| !topic.is_stale);
        self.pause(
            if is_settled { 0 } else { self.failures + 1 },
            now,
            retry_ms,
        );
        refused
    }

    /// Waits before asking again: an answer did not come, or did not help.
    pub(crate) fn failed(&mut self, now: Millis, retry_ms: Millis) {
        self.pause(self.failures + 1, now, retry_ms);
    }

    fn pause(&mut self, failures: u32, now: Millis, retry_ms: Millis) {
        self.is_asking = false;
        self.failures = failures;
        // Stale knowledge comes in bursts, from every partition of a node that went away.
        self.ask_at = now + super::settings::backoff(retry_ms, failures);
    }
}

/// The error for records of a topic that is not there.
pub(crate) fn no_topic(name: &str) -> KafkaError {
    let message = format!(
        "there is no topic '{name}', and the cluster does not make it by itself \
         (auto.create.topics.enable): create it, or correct the name"
    );
    KafkaError::refused(codes::UNKNOWN_TOPIC_OR_PARTITION, message)
}
