//! A fetch session: its partitions, and those of them that may have changed (KIP-227).
//!
//! # Open partitions
//! A partition is *open* if the next answer may have to tell of it. One that has nothing to read
//! and whose offsets the client knows is *quiet*. A request of the session looks at the open
//! partitions alone. So an idle session of a thousand partitions costs as much as one of one.
//!
//! A quiet partition opens again when
//! - its log calls the watcher that lies on it from the first time it is quiet,
//! - a request names it,
//! - topics or roles change ([`Catalog::changes`]), or access control lists do,
//! - the isolation level of the requests changes.
//!
//! A watcher that has fired is armed again *before* the state of its partition is read. So no
//! change after a reading is missed.
//!
//! # Order
//! Open partitions are served in the order in which they came. One that got records goes behind
//! all others, so that no partition starves under `max_bytes`.
//!
//! # Locks
//! A session has one lock. The lock of its [`Alarm`] is taken under it, never the reverse.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use txn_log::{PartitionLog, Watcher};
use txn_protocol::codes;

use super::answer::{SentOffsets, SentPartition};
use super::records::{FetchBudget, FetchedPartition, Reading};
use super::session_cache::SessionOwner;
use super::{FetchRequest, OwnedKey, Readiness, Tally, WantedPartition};
use crate::access::{Access, Action, Sender};
use crate::catalog::{Catalog, Topic, TopicKey};
use crate::turn::Turn;

/// Memory of a partition in a session, with its watcher.
const PARTITION_BYTES: usize = 320;
/// Memory of a topic in a session, beside its name.
const TOPIC_BYTES: usize = 192;

/// The memory of a session of so many partitions and topics, and bytes of their names.
pub fn session_bytes(partitions: usize, topics: usize, name_bytes: usize) -> usize {
    // A name stands in the topic and in the index by key.
    partitions * PARTITION_BYTES + topics * TOPIC_BYTES + 3 * name_bytes
}

/// A fetch session. Any reactor may serve its requests.
pub struct FetchSession {
    pub id: i32,
    pub owner: SessionOwner,
    /// Times in ms since the start of the server.
    pub opened_ms: u64,
    pub used_ms: AtomicU64,
    /// Number of partitions, and the memory of the session, as of its last request.
    pub size: AtomicUsize,
    pub bytes: AtomicUsize,
    catalog: Arc<Catalog>,
    uses_ids: bool,
    alarm: Arc<Alarm>,
    state: Mutex<SessionState>,
}

/// A partition's part of an answer.
pub struct SessionPart {
    pub slot: u32,
    /// The topic, where it is another than that of the part before.
    pub key: Option<OwnedKey>,
    pub index: i32,
    pub result: Result<FetchedPartition, i16>,
}

struct SessionState {
    /// The epoch that the next request has to have.
    epoch: i32,
    topics: Vec<Option<SessionTopic>>,
    partitions: Vec<Option<SessionPartition>>,
    free_topics: Vec<u32>,
    free_partitions: Vec<u32>,
    by_key: HashMap<OwnedKey, u32>,
    by_place: HashMap<(u32, i32), u32>,
    name_bytes: usize,
    /// `(order, slot)` of the open partitions.
    open: BTreeSet<(u64, u32)>,
    next_order: u64,
    /// [`Catalog::changes`] as of the last look at the topics.
    changes: u64,
    /// The isolation level as of the last look at the open partitions.
    is_read_committed: bool,
    /// [`Access::generation`] of the verdicts.
    generation: u64,
    /// Topics that have no verdict of this request yet.
    unasked: Vec<u32>,
    /// Topics whose id has had no name so far.
    unnamed: BTreeSet<u32>,
    refused: BTreeSet<u32>,
}

struct SessionTopic {
    key: OwnedKey,
    /// The name, once it is known.
    name: Option<Box<[u8]>>,
    /// The topic, or Kafka's error code of its partitions.
    found: Result<Weak<Topic>, i16>,
    partitions: usize,
}

struct SessionPartition {
    topic: u32,
    wanted: WantedPartition,
    order: u64,
    sent: SentOffsets,
    watch: Option<LogWatch>,
}

/// Tells a session which of its partitions may have changed.
#[derive(Default)]
struct Alarm(Mutex<Fired>);

#[derive(Default)]
struct Fired {
    slots: Vec<u32>,
    /// The request of the session that waits.
    waiter: Option<Arc<dyn Watcher>>,
}

impl Alarm {
    fn lock(&self) -> MutexGuard<'_, Fired> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The watcher on the log of one partition.
struct PartitionAlarm {
    slot: u32,
    has_fired: AtomicBool,
    alarm: Arc<Alarm>,
}

impl Watcher for PartitionAlarm {
    fn log_advanced(&self) {
        if self.has_fired.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut fired = self.alarm.lock();
        fired.slots.push(self.slot);
        let waiter = fired.waiter.clone();
        drop(fired);
        if let Some(waiter) = waiter {
            waiter.log_advanced();
        }
    }
}

/// A watch on a log, which dropping takes back. It keeps no log that is deleted.
struct LogWatch {
    log: Weak<PartitionLog>,
    id: u64,
    alarm: Arc<PartitionAlarm>,
}

impl LogWatch {
    fn is_of(&self, log: &Arc<PartitionLog>) -> bool {
        std::ptr::eq(self.log.as_ptr(), Arc::as_ptr(log))
    }
}

impl Drop for LogWatch {
    fn drop(&mut self) {
        if let Some(log) = self.log.upgrade() {
            log.unwatch(self.id);
        }
    }
}

impl FetchSession {
    /// The session of a full request, after its answer.
    pub fn new(
        id: i32,
        owner: SessionOwner,
        now_ms: u64,
        catalog: &Arc<Catalog>,
        request: &FetchRequest,
        sent: &[SentPartition],
    ) -> Self {
        let mut state = SessionState::new(catalog.changes(), request.reading.is_read_committed);
        state.add(request, catalog);
        for (partition, told) in request.partitions.iter().zip(sent) {
            let key = &request.topics[partition.topic].key;
            if let Some(kept) = state.partition_of(key, partition.index) {
                kept.sent = told.offsets;
            }
        }
        let (size, bytes) = (state.by_place.len(), state.bytes());
        Self {
            id,
            owner,
            opened_ms: now_ms,
            used_ms: AtomicU64::new(now_ms),
            size: AtomicUsize::new(size),
            bytes: AtomicUsize::new(bytes),
            catalog: Arc::clone(catalog),
            uses_ids: super::has_topic_ids(request.version),
            alarm: Arc::default(),
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the changes that a request brings. Returns the epoch that the session comes to by it;
    /// `None` if it has no partition any more.
    ///
    /// # Errors
    /// Kafka's error code: the request is not the next, or names topics in the other way.
    pub fn update(
        &self,
        epoch: i32,
        uses_ids: bool,
        request: &FetchRequest,
    ) -> Result<Option<i32>, i16> {
        let mut state = self.lock();
        if state.epoch != epoch {
            return Err(codes::INVALID_FETCH_SESSION_EPOCH);
        }
        if self.uses_ids != uses_ids {
            return Err(codes::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        state.add(request, &self.catalog);
        for (key, partitions) in &request.forgotten {
            for &index in partitions {
                state.forget(key, index);
            }
        }
        state.epoch = next_epoch(epoch);
        if state.by_place.is_empty() {
            return Ok(None);
        }
        state.begin_request(&self.catalog);
        self.size.store(state.by_place.len(), Ordering::Relaxed);
        Ok(Some(state.epoch))
    }

    #[cfg(test)]
    pub fn set_epoch(&self, epoch: i32) {
        self.lock().epoch = epoch;
    }

    /// The memory it takes now.
    pub fn measured_bytes(&self) -> usize {
        self.lock().bytes()
    }

    /// Number of open partitions.
    pub fn open_count(&self) -> usize {
        self.lock().open.len()
    }

    /// Kafka's error code for a request by which the session has come to an epoch: another request
    /// may have come since.
    pub fn check_epoch(&self, epoch: i32) -> i16 {
        self.lock().check_epoch(epoch).err().unwrap_or(codes::NONE)
    }

    /// Asks for the verdicts that have changed or are not permissions.
    ///
    /// Returns false if the turn was over before each topic had its verdict.
    pub fn authorize(&self, access: &Access, sender: Sender<'_>, turn: &mut Turn) -> bool {
        let mut state = self.lock();
        let generation = access.generation();
        if state.generation != generation {
            state.generation = generation;
            state.ask_for_all();
        }
        let is_checked = access.is_checked();
        while let Some(slot) = state.unasked.pop() {
            let Some(topic) = &state.topics[slot as usize] else {
                continue;
            };
            let Some(name) = topic.name.as_deref().filter(|_| is_checked) else {
                continue; // an unknown id is nobody's to refuse
            };
            let is_remembered = access.remembers(sender, Action::ReadTopic, name);
            let is_allowed = is_remembered || access.ask(sender, Action::ReadTopic, name);
            state.decide(slot, is_allowed);
            if !is_remembered && turn.is_over() {
                break;
            }
        }
        state.unasked.is_empty()
    }

    /// Says whether a request can be answered now, see [`FetchRequest::readiness`]. A partition
    /// that has become quiet is open no more.
    pub fn readiness(&self, epoch: i32, reading: &Reading, mut tally: Tally) -> Readiness {
        let mut state = self.lock();
        if state.check_epoch(epoch).is_err() {
            return Readiness::Ready;
        }
        state.take_note(self, reading);
        let open: Vec<u32> = state.open.iter().map(|&(_, slot)| slot).collect();
        tally.is_any_read = open.len() < state.by_place.len(); // quiet ones are read
        for slot in open {
            if self.look_at(&mut state, slot, reading, &mut tally) {
                let order = state.partition(slot).order;
                state.open.remove(&(order, slot));
                tally.is_any_read = true;
            }
        }
        tally.readiness()
    }

    /// Looks at an open partition; true if it is quiet, and opens again when it changes.
    fn look_at(
        &self,
        state: &mut SessionState,
        slot: u32,
        reading: &Reading,
        tally: &mut Tally,
    ) -> bool {
        let topic = state.find(slot);
        let partition = state.partition(slot);
        loop {
            if let Some(watch) = &partition.watch {
                // A swap: it has to see the state that the log published before it fired.
                watch.alarm.has_fired.swap(false, Ordering::AcqRel);
            }
            let readable = match &topic {
                Ok(topic) => reading.readable(topic, &partition.wanted),
                Err(code) => Err(*code),
            };
            let log = match &readable {
                Ok(one)
                    if one.start >= one.end
                        && one.diverging.is_none()
                        && SentOffsets::from(&one.state) == partition.sent =>
                {
                    one.log
                }
                _ => {
                    tally.add(partition.wanted.max_bytes, &readable);
                    return false;
                }
            };
            if partition.watch.as_ref().is_some_and(|one| one.is_of(log)) {
                return true;
            }
            // It may have changed before the watch, so it is read again.
            let alarm = Arc::new(PartitionAlarm {
                slot,
                has_fired: AtomicBool::new(false),
                alarm: Arc::clone(&self.alarm),
            });
            partition.watch = Some(LogWatch {
                log: Arc::downgrade(log),
                id: log.watch(Arc::clone(&alarm) as Arc<dyn Watcher>),
                alarm,
            });
        }
    }

    /// Locates the records of the open partitions, and leaves out those of which there is nothing to
    /// tell.
    ///
    /// # Errors
    /// Kafka's error code: another request of the session has come since.
    pub fn locate(
        &self,
        epoch: i32,
        reading: &Reading,
        budget: &mut FetchBudget,
    ) -> Result<Vec<SessionPart>, i16> {
        let mut state = self.lock();
        state.check_epoch(epoch)?;
        state.take_note(self, reading);
        let mut parts = Vec::new();
        let mut topic_before = None;
        let open: Vec<u32> = state.open.iter().map(|&(_, slot)| slot).collect();
        for slot in open {
            let topic = state.find(slot);
            let partition = state.partition(slot);
            let result = topic.and_then(|topic| {
                let readable = reading.readable(&topic, &partition.wanted)?;
                readable.found(partition.wanted.max_bytes, budget)
            });
            let is_told = match &result {
                Err(_) => true,
                Ok(found) => {
                    found.records.len() > 0
                        || found.diverging.is_some()
                        || SentOffsets::from(&found.state) != partition.sent
                }
            };
            if !is_told {
                continue;
            }
            let (topic, index) = (partition.topic, partition.wanted.index);
            let is_other = topic_before.replace(topic) != Some(topic);
            let topic = state.topics[topic as usize].as_ref();
            parts.push(SessionPart {
                slot,
                key: topic.filter(|_| is_other).map(|one| one.key.clone()),
                index,
                result,
            });
        }
        Ok(parts)
    }

    /// Takes note of an answer that is sent: its partitions with records go behind all others.
    pub fn note_sent(&self, epoch: i32, sent: &[SentPartition]) {
        let mut state = self.lock();
        if state.check_epoch(epoch).is_err() {
            return;
        }
        for one in sent {
            state.partition(one.slot).sent = one.offsets;
            if one.has_records {
                state.move_to_end(one.slot);
            }
        }
    }

    /// Calls a watcher from now on when a partition may have changed, in place of the one before.
    pub fn set_waiter(&self, waiter: Arc<dyn Watcher>) {
        self.alarm.lock().waiter = Some(waiter);
    }

    /// Calls a watcher no longer.
    pub fn take_waiter(&self, waiter: &Arc<dyn Watcher>) {
        let mut fired = self.alarm.lock();
        let is_it =
            |one: &mut Arc<dyn Watcher>| std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(waiter));
        let taken = fired.waiter.take_if(is_it);
        drop(fired);
        drop(taken);
    }

    /// True if one of its topics was removed or replaced since the last look.
    pub fn is_outdated(&self) -> bool {
        let state = self.lock();
        state.changes != self.catalog.changes()
            && state.topics.iter().flatten().any(|topic| {
                let found = topic.found.as_ref().map(Weak::upgrade);
                found.is_ok_and(|one| one.is_none_or(|one| !one.is_current()))
            })
    }
}

impl SessionState {
    fn new(changes: u64, is_read_committed: bool) -> Self {
        Self {
            epoch: next_epoch(super::INITIAL_EPOCH),
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
        }
    }

    fn bytes(&self) -> usize {
        session_bytes(self.partitions.len(), self.topics.len(), self.name_bytes)
    }

    fn check_epoch(&self, epoch: i32) -> Result<(), i16> {
        if self.epoch == epoch {
            Ok(())
        } else {
            Err(codes::INVALID_FETCH_SESSION_EPOCH)
        }
    }

    fn partition(&mut self, slot: u32) -> &mut SessionPartition {
        let partition = self.partitions[slot as usize].as_mut();
        partition.expect("an open partition is in the session")
    }

    fn partition_of(&mut self, key: &OwnedKey, index: i32) -> Option<&mut SessionPartition> {
        let topic = *self.by_key.get(key)?;
        let slot = *self.by_place.get(&(topic, index))?;
        Some(self.partition(slot))
    }

    /// Adds the partitions of a request, or changes what it wants of them. All of them are open.
    fn add(&mut self, request: &FetchRequest, catalog: &Catalog) {
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

    fn topic_slot(&mut self, key: &OwnedKey, catalog: &Catalog) -> u32 {
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

    fn add_partition(&mut self, topic_slot: u32, wanted: &WantedPartition) -> u32 {
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

    fn next_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    fn forget(&mut self, key: &OwnedKey, index: i32) {
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

    fn move_to_end(&mut self, slot: u32) {
        let next = self.next_order();
        let before = std::mem::replace(&mut self.partition(slot).order, next);
        if self.open.remove(&(before, slot)) {
            self.open.insert((next, slot));
        }
    }

    /// Names the topics whose ids have become known, and has the refused asked for again.
    fn begin_request(&mut self, catalog: &Catalog) {
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
    }

    fn ask_for_all(&mut self) {
        let count = self.topics.len() as u32;
        self.unasked = (0..count).collect();
    }

    fn decide(&mut self, topic: u32, is_allowed: bool) {
        if is_allowed {
            self.refused.remove(&topic); // its partitions are open
        } else if self.refused.insert(topic) {
            self.changes = u64::MAX; // look at all again
        }
    }

    /// The topic of a partition, or Kafka's error code.
    fn find(&self, slot: u32) -> Result<Arc<Topic>, i16> {
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
    fn take_note(&mut self, session: &FetchSession, reading: &Reading) {
        let changes = session.catalog.changes();
        if self.changes != changes {
            self.changes = changes; // before the topics are looked up
            for topic in self.topics.iter_mut().flatten() {
                topic.resolve(&session.catalog);
            }
            self.open_all();
        }
        if self.is_read_committed != reading.is_read_committed {
            self.is_read_committed = reading.is_read_committed;
            self.open_all();
        }
        let fired = std::mem::take(&mut session.alarm.lock().slots);
        for slot in fired {
            if let Some(partition) = &self.partitions[slot as usize] {
                self.open.insert((partition.order, slot));
            }
        }
    }

    fn open_all(&mut self) {
        let partitions = self.partitions.iter().enumerate();
        let open = partitions.filter_map(|(slot, one)| Some((one.as_ref()?.order, slot as u32)));
        self.open = open.collect();
    }
}

impl SessionTopic {
    /// Looks the topic up. A topic that is known by its id keeps its name: another one of that name
    /// is not the one that was asked for.
    fn resolve(&mut self, catalog: &Catalog) {
        self.found = match (&self.key, &self.name) {
            (OwnedKey::Id(_), None) => Err(codes::UNKNOWN_TOPIC_ID),
            (key, _) => match catalog.find(key.borrow()) {
                Some(found) => Ok(Arc::downgrade(&found)),
                None => Err(self.missing(catalog)),
            },
        };
    }

    fn missing(&self, catalog: &Catalog) -> i16 {
        match (&self.key, &self.name) {
            (OwnedKey::Id(_), Some(name)) if catalog.find(TopicKey::Name(name)).is_some() => {
                codes::INCONSISTENT_TOPIC_ID
            }
            _ => codes::UNKNOWN_TOPIC_OR_PARTITION,
        }
    }
}

/// The epoch of the request that follows one with this epoch.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}
