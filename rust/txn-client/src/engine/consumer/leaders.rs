//! Topics as a consumer knows them: ids, and the leaders of their partitions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use txn_protocol::codes;

use super::Place;
use crate::engine::settings::backoff;
use crate::engine::{Millis, NodeId};
use crate::messages::cluster::TopicMetadata;
use crate::messages::consumer::TopicId;

#[derive(Debug, Default)]
pub(super) struct Topic {
    /// Per partition: its leader, -1 for none now.
    leaders: BTreeMap<i32, NodeId>,
    id: Option<TopicId>,
    /// 0, or why nothing is known of it.
    pub(super) error_code: i16,
    /// True once the program knows of `error_code`.
    pub(super) is_reported: bool,
    is_stale: bool,
    learned: Millis,
    /// Since when the cluster does not know it.
    pub(super) unknown_since: Option<Millis>,
}

/// All topics that were asked for.
#[derive(Debug, Default)]
pub(super) struct Leaders {
    by_name: HashMap<Arc<str>, Topic>,
    names: HashMap<TopicId, Arc<str>>,
    pub(super) is_asking: bool,
    ask_at: Millis,
    failures: u32,
}

impl Leaders {
    /// The leader of a partition, if there is one.
    pub(super) fn leader(&self, place: &Place) -> Option<NodeId> {
        let leader = self.by_name.get(&place.0)?.leaders.get(&place.1);
        leader.copied().filter(|&id| id >= 0)
    }

    /// The number of a topic's partitions, 0 if the cluster has no such topic; None: not known.
    pub(super) fn partitions(&self, name: &str) -> Option<i32> {
        i32::try_from(self.by_name.get(name)?.leaders.len()).ok()
    }

    /// What is known of a topic.
    pub(super) fn topic_mut(&mut self, name: &str) -> Option<&mut Topic> {
        self.by_name.get_mut(name)
    }

    /// The name of a topic.
    pub(super) fn name(&self, id: &TopicId) -> Option<&Arc<str>> {
        self.names.get(id)
    }

    /// Has a topic asked for again.
    pub(super) fn mark_stale(&mut self, name: &str) {
        if let Some(topic) = self.by_name.get_mut(name) {
            topic.is_stale = true;
        }
    }

    /// Has the topics asked for again in which the node leads a partition.
    pub(super) fn mark_stale_at(&mut self, node: NodeId) {
        for topic in self.by_name.values_mut() {
            topic.is_stale |= topic.leaders.values().any(|&leader| leader == node);
        }
    }

    /// True if a question may be asked now.
    pub(super) fn may_ask(&self, now: Millis) -> bool {
        !self.is_asking && self.ask_at <= now
    }

    /// True if the topic is to be asked for.
    pub(super) fn is_wanted(&self, name: &str, now: Millis, age_max_ms: Millis) -> bool {
        self.by_name
            .get(name)
            .is_none_or(|topic| topic.is_stale || topic.learned + age_max_ms <= now)
    }

    /// When a question may be asked next.
    pub(super) fn ask_at(&self) -> Millis {
        self.ask_at
    }

    /// Learns from an answer.
    pub(super) fn learn(&mut self, answers: &[TopicMetadata], now: Millis, retry_ms: Millis) {
        let mut is_settled = true;
        for answer in answers.iter().filter(|answer| !answer.name.is_empty()) {
            let name: Arc<str> = answer.name.as_str().into();
            let topic = self.by_name.entry(Arc::clone(&name)).or_default();
            topic.learned = now;
            if answer.error_code != 0 {
                topic.is_reported &= topic.error_code == answer.error_code;
                topic.error_code = answer.error_code;
                if answer.error_code == codes::UNKNOWN_TOPIC_OR_PARTITION {
                    topic.unknown_since.get_or_insert(now);
                    topic.leaders.clear();
                }
                topic.is_stale = true;
                is_settled = false;
                continue;
            }
            topic.error_code = 0;
            topic.is_reported = false;
            topic.unknown_since = None;
            let has_leader = |code: i16| matches!(code, 0 | codes::REPLICA_NOT_AVAILABLE);
            let leaders = answer.partitions.iter();
            topic.leaders = leaders
                .map(|&(code, p, leader)| (p, if has_leader(code) { leader } else { -1 }))
                .collect();
            topic.is_stale = topic.leaders.values().any(|&leader| leader < 0);
            is_settled &= !topic.is_stale;
            if topic.id != answer.id {
                topic.id = answer.id;
            }
            if let Some(id) = answer.id {
                self.names.insert(id, name);
            }
        }
        self.pause(
            if is_settled { 0 } else { self.failures + 1 },
            now,
            retry_ms,
        );
    }

    /// Waits before asking again: an answer did not come.
    pub(super) fn failed(&mut self, now: Millis, retry_ms: Millis) {
        self.pause(self.failures + 1, now, retry_ms);
    }

    fn pause(&mut self, failures: u32, now: Millis, retry_ms: Millis) {
        self.is_asking = false;
        self.failures = failures;
        self.ask_at = now + backoff(retry_ms, failures);
    }
}
