//! The partitions of a fetch session, by topic and by order, and those that are open.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use txn_protocol::codes;

use super::records::Reading;
use super::sent::SentOffsets;
use super::session_watch::{Alarm, LogWatch};
use super::wanted::{INITIAL_EPOCH, OwnedKey, WantedPartition, WantedParts};
use crate::catalog::{Catalog, Topic, TopicKey};

/// Memory of a partition in a session, with its watcher.
const PARTITION_BYTES: usize = 320;
/// Memory of a topic in a session, beside its name.
const TOPIC_BYTES: usize = 192;

/// The memory of a session of so many partitions and topics, and bytes of their names.
pub fn session_bytes(partitions: usize, topics: usize, name_bytes: usize) -> usize {
    // A name stands in the topic and in the index by key.
    partitions * PARTITION_BYTES + topics * TOPIC_BYTES + 3 * name_bytes
}

pub struct SessionState {
    /// The epoch that the next request has to have.
    pub epoch: i32,
    pub topics: Vec<Option<SessionTopic>>,
    pub partitions: Vec<Option<SessionPartition>>,
    pub free_topics: Vec<u32>,
    pub free_partitions: Vec<u32>,
    pub by_key: HashMap<OwnedKey, u32>,
    pub by_place: HashMap<(u32, i32), u32>,
    pub name_bytes: usize,
    /// `(order, slot)` of the open partitions.
    pub open: BTreeSet<(u64, u32)>,
    pub next_order: u64,
    /// [`Catalog::changes`] as of the last look at the topics.
    pub changes: u64,
    /// The isolation level as of the last look at the open partitions.
    pub is_read_committed: bool,
    /// [`Access::generation`] of the verdicts.
    pub generation: u64,
    /// Topics that have no verdict of this request yet.
    pub unasked: Vec<u32>,
    /// Topics whose id has had no name so far.
    pub unnamed: BTreeSet<u32>,
    pub refused: BTreeSet<u32>,
    /// A topic was removed or replaced since the last request. A waiting request is answered then,
    /// also if the change was seen before its notice came.
    pub has_lost_topic: bool,
}

/// The epoch of a session that has ended. A client may name it and gets an error too.
const ENDED: i32 = -2;

pub struct SessionTopic {
    pub key: OwnedKey,
    /// The name, once it is known.
    pub name: Option<Box<[u8]>>,
    /// The topic, or Kafka's error code of its partitions.
    pub found: Result<Weak<Topic>, i16>,
    pub partitions: usize,
}

pub struct SessionPartition {
    pub topic: u32,
    pub wanted: WantedPartition,
    pub order: u64,
    pub sent: SentOffsets,
    pub watch: Option<LogWatch>,
}

impl SessionState {
    pub fn new(changes: u64, is_read_committed: bool) -> Self {
        Self {
            epoch: next_epoch(INITIAL_EPOCH),
            topics: Vec::new(),
            partitions: Vec::new(),
            free_topics: Vec::new(),
            free_partitions: Vec::new(),
            by_key: HashMap::new(),
            by_place: HashMap::new(),
            name_bytes: 0,
            open: BTreeSet::new(),
            next_order: 0,
            changes,
            is_read_committed,
            generation: u64::MAX,
            unasked: Vec::new(),
            unnamed: BTreeSet::new(),
            refused: BTreeSet::new(),
            has_lost_topic: false,
        }
    }

    /// The state of a session that has ended: no request is its next.
    pub fn ended() -> Self {
        Self {
            epoch: ENDED,
            ..Self::new(0, false)
        }
    }

    pub fn bytes(&self) -> usize {
        session_bytes(self.partitions.len(), self.topics.len(), self.name_bytes)
    }

    pub fn check_epoch(&self, epoch: i32) -> Result<(), i16> {
        if self.epoch == epoch && epoch != ENDED {
            Ok(())
        } else {
            Err(codes::INVALID_FETCH_SESSION_EPOCH)
        }
    }

    pub fn partition(&mut self, slot: u32) -> &mut SessionPartition {
        let partition = self.partitions[slot as usize].as_mut();
        partition.expect("an open partition is in the session")
    }

    pub fn partition_of(&mut self, key: &OwnedKey, index: i32) -> Option<&mut SessionPartition> {
        let topic = *self.by_key.get(key)?;
        let slot = *self.by_place.get(&(topic, index))?;
        Some(self.partition(slot))
    }

    /// Adds the partitions of a request, or changes what it wants of them. All of them are open.
    pub fn add(&mut self, request: &WantedParts<'_>, catalog: &Catalog) {
        let mut partitions = request.partitions.iter();
        for topic in request.topics.iter().filter(|topic| topic.partitions > 0) {
            let topic_slot = self.topic_slot(&topic.key, catalog);
            for wanted in partitions.by_ref().take(topic.partitions) {
                let slot = self.by_place.get(&(topic_slot, wanted.index)).copied();
                let slot = slot.unwrap_or_else(|| self.add_partition(topic_slot, wanted));
                let partition = self.partition(slot);
                partition.wanted = *wanted;
                let order = partition.order;
                self.open.insert((order, slot));
            }
        }
    }

    pub fn topic_slot(&mut self, key: &OwnedKey, catalog: &Catalog) -> u32 {
        if let Some(&slot) = self.by_key.get(key) {
            return slot;
        }
        let slot = self.free_topics.pop().unwrap_or_else(|| {
            self.topics.push(None);
            self.topics.len() as u32 - 1
        });
        let name = match key {
            OwnedKey::Name(name) => Some(name.clone()),
            OwnedKey::Id(id) => {
                let found = catalog.find(TopicKey::Id(id));
                found.map(|topic| topic.name.as_bytes().into())
            }
        };
        if name.is_none() {
            self.unnamed.insert(slot);
        }
        let mut topic = SessionTopic {
            key: key.clone(),
            name,
            found: Err(codes::UNKNOWN_TOPIC_ID),
            partitions: 0,
        };
        topic.resolve(catalog);
        self.name_bytes += topic.name.as_ref().map_or(0, |name| name.len());
        self.topics[slot as usize] = Some(topic);
        self.by_key.insert(key.clone(), slot);
        self.unasked.push(slot);
        slot
    }

    pub fn add_partition(&mut self, topic_slot: u32, wanted: &WantedPartition) -> u32 {
        let slot = self.free_partitions.pop().unwrap_or_else(|| {
            self.partitions.push(None);
            self.partitions.len() as u32 - 1
        });
        let order = self.next_order();
        self.partitions[slot as usize] = Some(SessionPartition {
            topic: topic_slot,
            wanted: *wanted,
            order,
            sent: SentOffsets::NONE,
            watch: None,
        });
        self.by_place.insert((topic_slot, wanted.index), slot);
        if let Some(topic) = &mut self.topics[topic_slot as usize] {
            topic.partitions += 1;
        }
        slot
    }

    pub fn next_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    pub fn forget(&mut self, key: &OwnedKey, index: i32) {
        let Some(&topic_slot) = self.by_key.get(key) else {
            return;
        };
        let Some(slot) = self.by_place.remove(&(topic_slot, index)) else {
            return;
        };
        if let Some(gone) = self.partitions[slot as usize].take() {
            self.open.remove(&(gone.order, slot));
            self.free_partitions.push(slot);
        }
        let topic = &mut self.topics[topic_slot as usize];
        if let Some(one) = topic {
            one.partitions -= 1;
        }
        if let Some(gone) = topic.take_if(|one| one.partitions == 0) {
            self.name_bytes -= gone.name.as_ref().map_or(0, |name| name.len());
            self.by_key.remove(key);
            self.unnamed.remove(&topic_slot);
            self.refused.remove(&topic_slot);
            self.free_topics.push(topic_slot);
        }
    }

    pub fn move_to_end(&mut self, slot: u32) {
        let next = self.next_order();
        let before = std::mem::replace(&mut self.partition(slot).order, next);
        if self.open.remove(&(before, slot)) {
            self.open.insert((next, slot));
        }
    }

    /// Names the topics whose ids have become known, and has the refused asked for again.
    pub fn begin_request(&mut self, catalog: &Catalog) {
        for slot in std::mem::take(&mut self.unnamed) {
            let Some(topic) = &mut self.topics[slot as usize] else {
                continue;
            };
            if let OwnedKey::Id(id) = &topic.key
                && let Some(found) = catalog.find(TopicKey::Id(id))
            {
                self.name_bytes += found.name.len();
                topic.name = Some(found.name.as_bytes().into());
                topic.resolve(catalog);
                self.unasked.push(slot);
            } else {
                self.unnamed.insert(slot);
            }
        }
        self.unasked.extend(&self.refused);
        if self.unasked.len() > self.topics.len() {
            // A request before was given up amid its questions.
            self.unasked.sort_unstable();
            self.unasked.dedup();
        }
        self.has_lost_topic = false;
    }

    pub fn ask_for_all(&mut self) {
        let count = self.topics.len() as u32;
        self.unasked = (0..count).collect();
    }

    pub fn decide(&mut self, topic: u32, is_allowed: bool) {
        if is_allowed {
            self.refused.remove(&topic); // its partitions are open
        } else if self.refused.insert(topic) {
            self.changes = u64::MAX; // look at all again
        }
    }

    /// The topic of a partition, or Kafka's error code.
    pub fn find(&self, slot: u32) -> Result<Arc<Topic>, i16> {
        let Some(SessionPartition { topic, .. }) = self.partitions[slot as usize] else {
            return Err(codes::UNKNOWN_TOPIC_OR_PARTITION);
        };
        let topic_slot = topic;
        if self.refused.contains(&topic_slot) {
            return Err(codes::TOPIC_AUTHORIZATION_FAILED);
        }
        match &self.topics[topic_slot as usize] {
            Some(SessionTopic { found, .. }) => match found {
                Ok(found) => found.upgrade().ok_or(codes::NOT_LEADER_OR_FOLLOWER),
                Err(code) => Err(*code),
            },
            None => Err(codes::UNKNOWN_TOPIC_OR_PARTITION),
        }
    }

    /// Opens the partitions that have changed since the last look.
    pub fn take_note(&mut self, catalog: &Catalog, alarm: &Alarm, reading: &Reading) {
        let changes = catalog.changes();
        if self.changes != changes {
            self.changes = changes; // before the topics are looked up
            for topic in self.topics.iter_mut().flatten() {
                let before = topic.place();
                topic.resolve(catalog);
                self.has_lost_topic |= before.is_some() && before != topic.place();
            }
            self.open_all();
        }
        if self.is_read_committed != reading.is_read_committed {
            self.is_read_committed = reading.is_read_committed;
            self.open_all();
        }
        let fired = std::mem::take(&mut alarm.lock().slots);
        for slot in fired {
            if let Some(partition) = &self.partitions[slot as usize] {
                self.open.insert((partition.order, slot));
            }
        }
    }

    pub fn open_all(&mut self) {
        let partitions = self.partitions.iter().enumerate();
        let open = partitions.filter_map(|(slot, one)| Some((one.as_ref()?.order, slot as u32)));
        self.open = open.collect();
    }
}

impl SessionTopic {
    /// The address of the topic that was found.
    fn place(&self) -> Option<*const Topic> {
        self.found.as_ref().ok().map(Weak::as_ptr)
    }

    /// Looks the topic up. A topic that is known by its id keeps its name: another one of that name
    /// is not the one that was asked for.
    pub fn resolve(&mut self, catalog: &Catalog) {
        self.found = match (&self.key, &self.name) {
            (OwnedKey::Id(_), None) => Err(codes::UNKNOWN_TOPIC_ID),
            (key, _) => match catalog.find(key.borrow()) {
                Some(found) => Ok(Arc::downgrade(&found)),
                None => Err(self.missing(catalog)),
            },
        };
    }

    pub fn missing(&self, catalog: &Catalog) -> i16 {
        match (&self.key, &self.name) {
            (OwnedKey::Id(_), Some(name)) if catalog.find(TopicKey::Name(name)).is_some() => {
                codes::INCONSISTENT_TOPIC_ID
            }
            _ => codes::UNKNOWN_TOPIC_OR_PARTITION,
        }
    }
}

/// The epoch of the request that follows one with this epoch.
pub fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}
