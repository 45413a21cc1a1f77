//! The topics that Produce and Fetch may use.
//!
//! Python adds topics (`Server.add_topic`). Reactors look up each topic of a request. The lock is
//! held only for the look-up: its result is an `Arc`, so no log is called under the lock.
//!
//! A topic is added without its logs. A log is requested when a request first names its partition,
//! so an unused partition needs only eight words. That request may need the interpreter and the
//! disk, and holds no lock of this crate.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use txn_log::PartitionLog;
use txn_protocol::codes;

use crate::partition::PartitionHandle;

/// A topic id, as on the wire.
pub type TopicId = [u8; 16];

/// Gives the log of a partition, the same whenever it gives one, or Kafka's error code for the
/// request at hand.
pub type LogOf = Box<dyn Fn(usize) -> Result<Arc<PartitionLog>, i16> + Send + Sync>;

/// A topic that is served.
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: TopicId,
    /// Clients may read but not write it.
    pub is_internal: bool,
    /// Partitions by index; a log is opened when it is first needed.
    partitions: Box<[Arc<PartitionHandle>]>,
    log_of: LogOf,
    is_current: AtomicBool,
}

impl Topic {
    /// Describes a topic.
    #[must_use]
    pub fn new(
        name: String,
        id: TopicId,
        partition_count: usize,
        log_of: LogOf,
        is_internal: bool,
    ) -> Self {
        Self {
            name,
            id,
            is_internal,
            partitions: (0..partition_count).map(|_| Arc::default()).collect(),
            log_of,
            is_current: AtomicBool::new(true),
        }
    }

    /// A partition's role and log.
    ///
    /// # Errors
    /// There is no such partition.
    pub(crate) fn partition(&self, index: i32) -> Result<&Arc<PartitionHandle>, i16> {
        let index = usize::try_from(index).ok();
        index
            .and_then(|index| self.partitions.get(index))
            .ok_or(codes::UNKNOWN_TOPIC_OR_PARTITION)
    }

    /// The log of a partition; opened if this node leads it, or no role was set.
    ///
    /// # Errors
    /// Kafka's error code: there is no such partition, or its log cannot be had now.
    pub(crate) fn log(&self, index: i32) -> Result<&Arc<PartitionLog>, i16> {
        let partition = self.partition(index)?;
        if let Some(log) = partition.log() {
            return Ok(log);
        }
        partition.check_leader(-1)?;
        Ok(partition.opened((self.log_of)(index as usize)?))
    }

    /// True if the catalog still has it; false once it is removed or replaced.
    pub(crate) fn is_current(&self) -> bool {
        self.is_current.load(Ordering::Acquire)
    }
}

/// The name of a topic in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopicKey<'a> {
    /// A name, before Produce 13 and Fetch 13; not checked to be UTF-8.
    Name(&'a [u8]),
    /// 16 bytes, since.
    Id(&'a [u8]),
}

/// The topics that are served, by name and by id.
#[derive(Default)]
pub struct Catalog {
    topics: RwLock<Topics>,
    changes: AtomicU64,
}

#[derive(Default)]
struct Topics {
    by_name: HashMap<Box<[u8]>, Arc<Topic>>,
    by_id: HashMap<TopicId, Arc<Topic>>,
}

impl Topics {
    fn remove(&mut self, name: &[u8]) -> Option<Arc<Topic>> {
        let topic = self.by_name.remove(name)?;
        self.by_id.remove(&topic.id);
        topic.is_current.store(false, Ordering::Release);
        Some(topic)
    }
}

impl Catalog {
    /// Finds a topic. Cost: one hash look-up under a shared lock.
    pub fn find(&self, key: TopicKey<'_>) -> Option<Arc<Topic>> {
        let topics = self.topics.read().expect("no look-up panics");
        match key {
            TopicKey::Name(name) => topics.by_name.get(name).cloned(),
            TopicKey::Id(id) => topics.by_id.get(id).cloned(),
        }
    }

    /// Serves a topic in place of the one of the same name. Partitions stay, with their roles and
    /// logs, if others are added to them. Otherwise each log is asked for again: a partition that is
    /// taken out of service answers no request from a log that was found before.
    pub fn add(&self, mut topic: Topic) {
        let mut topics = self.topics.write().expect("no look-up panics");
        let replaced = topics.remove(topic.name.as_bytes());
        let grows = |before: &&Arc<Topic>| {
            before.id == topic.id && before.partitions.len() < topic.partitions.len()
        };
        if let Some(before) = replaced.as_ref().filter(grows) {
            for (partition, known) in topic.partitions.iter_mut().zip(&before.partitions) {
                *partition = Arc::clone(known);
            }
        }
        let topic = Arc::new(topic);
        topics
            .by_name
            .insert(topic.name.as_bytes().into(), Arc::clone(&topic));
        topics.by_id.insert(topic.id, topic);
        self.note_change();
        drop(topics); // the last owner of a replaced log may be `replaced`: close it without the lock
        drop(replaced);
    }

    /// Serves a topic no longer; nothing happens if it is unknown.
    pub fn remove(&self, name: &str) {
        let removed = self
            .topics
            .write()
            .expect("no look-up panics")
            .remove(name.as_bytes());
        self.note_change();
        drop(removed);
    }

    /// Number of changes so far of topics and of the roles of their partitions. To be read before the state
    /// that they change.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// A topic or a role has changed.
    pub fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::ReplicaState;
    use txn_log::Role;

    fn topic(name: &str, id: u8) -> Topic {
        Topic::new(
            name.to_owned(),
            [id; 16],
            0,
            Box::new(|_| Err(codes::KAFKA_STORAGE_ERROR)),
            false,
        )
    }

    #[test]
    fn a_topic_is_found_by_name_and_by_id() {
        let catalog = Catalog::default();
        catalog.add(topic("pay", 7));
        assert!(catalog.find(TopicKey::Name(b"pay")).is_some());
        assert!(catalog.find(TopicKey::Id(&[7; 16])).is_some());
        assert!(catalog.find(TopicKey::Name(b"\xff")).is_none());
        assert!(catalog.find(TopicKey::Id(&[0; 16])).is_none());
    }

    #[test]
    fn a_topic_made_again_is_not_found_under_its_old_id() {
        let catalog = Catalog::default();
        catalog.add(topic("pay", 7));
        let before = catalog.find(TopicKey::Name(b"pay")).unwrap();
        catalog.add(topic("pay", 8));
        assert!(catalog.find(TopicKey::Id(&[7; 16])).is_none());
        assert!(catalog.find(TopicKey::Id(&[8; 16])).is_some());
        assert!(!before.is_current());
    }

    #[test]
    fn partitions_keep_their_roles_when_others_are_added() {
        let with = |id: u8, partition_count| {
            let log_of = Box::new(|_| Err(codes::KAFKA_STORAGE_ERROR));
            Topic::new("pay".to_owned(), [id; 16], partition_count, log_of, false)
        };
        let catalog = Catalog::default();
        let role = |index| {
            let topic = catalog.find(TopicKey::Name(b"pay")).unwrap();
            topic.partition(index).unwrap().state()
        };
        catalog.add(with(7, 1));
        let topic = catalog.find(TopicKey::Name(b"pay")).unwrap();
        let follower = ReplicaState::Online {
            role: Role::Follower,
            leader_epoch: 3,
        };
        topic.partition(0).unwrap().set_state(follower);
        catalog.add(with(7, 2));
        assert_eq!((role(0), role(1)), (Some(follower), None));
        catalog.add(with(7, 2));
        assert_eq!(
            (role(0), role(1)),
            (None, None),
            "its logs are asked for again"
        );
        catalog.add(with(8, 2));
        assert_eq!((role(0), role(1)), (None, None));
    }

    #[test]
    fn a_removed_topic_is_gone_under_both_its_names() {
        let catalog = Catalog::default();
        catalog.add(topic("pay", 7));
        catalog.remove("pay");
        catalog.remove("pay");
        assert!(catalog.find(TopicKey::Name(b"pay")).is_none());
        assert!(catalog.find(TopicKey::Id(&[7; 16])).is_none());
    }
}
