//! A fetch session: its partitions, and those of them that may have changed (KIP-227).
//!
//! # Open partitions
//! A partition is *open* if the next answer may have to tell of it. One that has nothing to read
//! and whose offsets the client knows is *quiet*. A request of the session looks at the open
//! partitions alone. So an idle session of a thousand partitions costs as much as one of one.
//!
//! A quiet partition opens again when
//! - its log calls the watcher that lies on it while it is quiet,
//! - a request names it,
//! - topics or roles change ([`Catalog::changes`]), or access control lists do,
//! - the isolation level of the requests changes.
//!
//! A watcher fires once. A partition is quiet only if its watcher has not fired *after* the state was
//! read, so no change after a reading is missed.
//!
//! # Order
//! Open partitions are served in the order in which they came. One that got records goes behind
//! all others, so that no partition starves under `max_bytes`.
//!
//! # Locks
//! A session has one lock. The lock of its [`Alarm`] may be taken under it, never the reverse. It is
//! held while Python answers ([`FetchSession::authorize`]), so nobody takes it under the lock of the
//! cache: all requests of all sessions would wait. The cache reads the session's sizes without it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use txn_log::Watcher;
use txn_protocol::codes;

use super::records::{FetchBudget, FetchedPartition, Reading, led_epoch, names_leader};
use super::sent::{SentOffsets, SentPartition};
use super::session_state::{SessionState, next_epoch};
use super::session_watch::{Alarm, LogWatch};
use super::tally::Tally;
use super::wanted::{OwnedKey, Readiness, WantedParts};
use crate::access::{Access, Action, Sender};
use crate::catalog::Catalog;
use crate::turn::Turn;

/// The principal and the host of a session's clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionOwner {
    principal: Arc<str>,
    host: Arc<str>,
}

impl SessionOwner {
    pub fn of(sender: Sender<'_>) -> Self {
        Self {
            principal: Arc::clone(sender.principal),
            host: Arc::clone(sender.host),
        }
    }
}

/// A fetch session. Any reactor may serve its requests.
pub struct FetchSession {
    pub id: i32,
    pub owner: SessionOwner,
    /// Times in ms since the start of the server.
    pub opened_ms: u64,
    pub used_ms: AtomicU64,
    /// Number of partitions as of its last request.
    pub size: AtomicUsize,
    /// The memory that the cache counts for it; it changes under the cache's lock alone.
    pub bytes: AtomicUsize,
    /// The memory as of its last request; it changes under the session's lock alone.
    measured_bytes: AtomicUsize,
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
    /// The epoch in which this node leads it, for a client that has to find its leader.
    pub leader_epoch: Option<i32>,
}

impl FetchSession {
    /// The session of a full request, after its answer.
    pub fn new(
        id: i32,
        owner: SessionOwner,
        now_ms: u64,
        catalog: &Arc<Catalog>,
        request: &WantedParts<'_>,
        sent: &[SentPartition],
    ) -> Self {
        let mut state = SessionState::new(catalog.changes(), request.is_read_committed);
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
            measured_bytes: AtomicUsize::new(bytes),
            catalog: Arc::clone(catalog),
            uses_ids: request.uses_ids,
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
    pub fn update(&self, epoch: i32, request: &WantedParts<'_>) -> Result<Option<i32>, i16> {
        let mut state = self.lock();
        state.check_epoch(epoch)?;
        if self.uses_ids != request.uses_ids {
            return Err(codes::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        state.add(request, &self.catalog);
        for (key, partitions) in request.forgotten {
            for &index in partitions {
                state.forget(key, index);
            }
        }
        state.epoch = next_epoch(epoch);
        if state.by_place.is_empty() {
            return Ok(None); // the session goes with this request
        }
        state.begin_request(&self.catalog);
        self.size.store(state.by_place.len(), Ordering::Relaxed);
        self.measured_bytes.store(state.bytes(), Ordering::Relaxed);
        Ok(Some(state.epoch))
    }

    /// Ends a session that left the cache. Its memory goes at once, also if a request of it waits:
    /// that is answered with an error now.
    pub fn end(&self) {
        let ended = std::mem::replace(&mut *self.lock(), SessionState::ended());
        let waiter = self.alarm.lock().waiter.take();
        drop(ended); // its watchers go without the lock
        if let Some(waiter) = waiter {
            waiter.log_advanced();
        }
    }

    #[cfg(test)]
    pub fn set_epoch(&self, epoch: i32) {
        self.lock().epoch = epoch;
    }

    /// The memory that it took after its last request. It takes no lock.
    pub fn measured_bytes(&self) -> usize {
        self.measured_bytes.load(Ordering::Relaxed)
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
        state.take_note(&self.catalog, &self.alarm, reading);
        if state.has_lost_topic {
            return Readiness::Ready;
        }
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
            if partition.watch.as_ref().is_some_and(|one| one.is_live(log)) {
                return true;
            }
            // It may have changed before the watch, so it is read again.
            partition.watch = Some(LogWatch::new(log, slot, &self.alarm));
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
        state.take_note(&self.catalog, &self.alarm, reading);
        let mut parts = Vec::new();
        let mut topic_before = None;
        let open: Vec<u32> = state.open.iter().map(|&(_, slot)| slot).collect();
        for slot in open {
            let topic = state.find(slot);
            let partition = state.partition(slot);
            let result = topic.as_ref().map_err(|&code| code).and_then(|topic| {
                let readable = reading.readable(topic, &partition.wanted)?;
                readable.found(partition.wanted.max_bytes, budget)
            });
            let index = partition.wanted.index;
            let leader_epoch = match (&result, &topic) {
                (Err(code), Ok(topic)) if names_leader(*code) => led_epoch(topic, index),
                _ => None,
            };
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
            let topic = partition.topic;
            let is_other = topic_before.replace(topic) != Some(topic);
            let topic = state.topics[topic as usize].as_ref();
            parts.push(SessionPart {
                slot,
                key: topic.filter(|_| is_other).map(|one| one.key.clone()),
                index,
                result,
                leader_epoch,
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
