//! The fetch sessions of a broker: its own memory, bounded in number and in bytes.
//!
//! # Room
//! A session that finds room is opened. Otherwise another one goes, the first of:
//! 1. the one used least recently, if nobody used it for two minutes (as in Kafka);
//! 2. of the same owner, the one with the fewest partitions, if it was opened more than two
//!    minutes ago and has fewer than the new one (Kafka's rule, but for the owner);
//! 3. of the owner who holds the most, the one used least recently, if that owner then still holds
//!    as much as the new session's owner will.
//!
//! If none goes, none is opened: the answer has session id 0, and the client goes on with full
//! requests. So an owner can push out its own sessions only, and those of an owner who holds
//! more than it does. Owners who want many sessions end with equal shares, and stay there.
//!
//! An owner is a principal at a host. Kafka knows no owners: there any client may push out the
//! sessions of others by larger ones, and close a session whose id it guesses.
//!
//! No session is privileged. In Kafka those of followers are; here no replica fetches like that.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use txn_log::histogram::Counter;

use super::sent::SentPartition;
use super::session::{FetchSession, SessionOwner};
use super::session_state::session_bytes;
use super::wanted::WantedParts;
use crate::catalog::Catalog;

/// The most memory of all sessions.
const MAX_BYTES: usize = 128 << 20;

/// A session that nobody used for longer is given up for a new one. Kafka's
/// `MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS`.
const EVICTION_AGE: Duration = Duration::from_secs(120);

/// The sessions now, and those that had to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionSnapshot {
    /// Number of sessions.
    pub sessions: usize,
    /// Number of their partitions.
    pub partitions: usize,
    /// Number of sessions that went for others, or for want of memory, since the start.
    pub evictions: u64,
}

/// The fetch sessions of a broker.
pub struct FetchSessions {
    catalog: Arc<Catalog>,
    max_sessions: usize,
    max_bytes: usize,
    started: Instant,
    sessions: RwLock<Sessions>,
    /// Sum of the bytes of all sessions.
    bytes: AtomicUsize,
    evictions: Counter,
    ids: RandomState,
    next_id: AtomicU64,
}

type Sessions = HashMap<i32, Arc<FetchSession>>;

/// The sessions and the bytes of an owner.
#[derive(Clone, Copy, Default)]
struct Holding {
    sessions: usize,
    bytes: usize,
}

/// A session that wants room, or more of it.
struct Newcomer<'a> {
    id: i32,
    owner: &'a SessionOwner,
    partitions: usize,
    /// Sessions and bytes that it adds to those of its owner.
    sessions: usize,
    bytes: usize,
}

impl FetchSessions {
    /// No sessions yet, and at most so many at a time.
    pub fn new(catalog: Arc<Catalog>, max_sessions: usize) -> Self {
        Self::with_limits(catalog, max_sessions, MAX_BYTES)
    }

    /// Like `new`, with another bound of the memory.
    pub(super) fn with_limits(
        catalog: Arc<Catalog>,
        max_sessions: usize,
        max_bytes: usize,
    ) -> Self {
        Self {
            catalog,
            max_sessions,
            max_bytes,
            started: Instant::now(),
            sessions: RwLock::default(),
            bytes: AtomicUsize::new(0),
            evictions: Counter::default(),
            ids: RandomState::new(),
            next_id: AtomicU64::new(0),
        }
    }

    /// The counts now.
    pub fn snapshot(&self) -> SessionSnapshot {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        let size = |one: &Arc<FetchSession>| one.size.load(Ordering::Relaxed);
        SessionSnapshot {
            sessions: sessions.len(),
            partitions: sessions.values().map(size).sum(),
            evictions: self.evictions.get(),
        }
    }

    /// A session of an owner.
    pub fn find(&self, id: i32, owner: &SessionOwner) -> Option<Arc<FetchSession>> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        let found = sessions.get(&id).filter(|one| one.owner == *owner);
        found.map(Arc::clone)
    }

    /// Closes a session of an owner, if there is one.
    pub fn close(&self, id: i32, owner: &SessionOwner) {
        if self.find(id, owner).is_some() {
            let gone = self.remove(&mut self.write(), id);
            end(gone);
        }
    }

    /// Records that a session is used, and its memory now. Returns false if there is no room for the
    /// memory that it has grown by: then it is gone.
    pub fn keep(&self, session: &FetchSession, now: Instant) -> bool {
        let now_ms = self.ms(now);
        session.used_ms.store(now_ms, Ordering::Relaxed);
        if session.measured_bytes() == session.bytes.load(Ordering::Relaxed) {
            return true;
        }
        let mut gone = Vec::new();
        let mut sessions = self.write();
        if !sessions.contains_key(&session.id) {
            return true; // it went a moment ago, and ends with this request
        }
        // Read under the lock: another request of the session may have grown it meanwhile, and its
        // measure must not be replaced by an older one.
        let bytes = session.measured_bytes();
        let before = session.bytes.swap(bytes, Ordering::Relaxed);
        self.change_bytes(before, bytes);
        let grown = Newcomer {
            id: session.id,
            owner: &session.owner,
            partitions: session.size.load(Ordering::Relaxed),
            sessions: 0,
            bytes: 0,
        };
        let is_kept = self.make_room(&mut sessions, &grown, now_ms, &mut gone);
        if !is_kept {
            gone.extend(self.evict(&mut sessions, session.id));
        }
        drop(sessions);
        end(gone);
        is_kept
    }

    /// Opens a session for a full request that is answered; returns its id, or 0 if there is no
    /// room for it.
    pub fn open(
        &self,
        owner: &SessionOwner,
        request: &WantedParts<'_>,
        sent: &[SentPartition],
        now: Instant,
    ) -> i32 {
        let now_ms = self.ms(now);
        let name_bytes = request.topics.iter().map(|topic| topic.key.name_bytes());
        let (partitions, topics) = (request.partitions.len(), request.topics.len());
        let newcomer = Newcomer {
            id: 0,
            owner,
            partitions,
            sessions: 1,
            bytes: session_bytes(partitions, topics, name_bytes.sum()),
        };
        let mut gone = Vec::new();
        let has_room = self.make_room(&mut self.write(), &newcomer, now_ms, &mut gone);
        end(gone);
        if !has_room {
            return 0;
        }
        let id = self.fresh_id();
        // It is made without the lock: that takes a while for many partitions.
        let session = FetchSession::new(id, owner.clone(), now_ms, &self.catalog, request, sent);
        let bytes = session.bytes.load(Ordering::Relaxed);
        let mut sessions = self.write();
        let has_room = self.has_room(&sessions, 1, bytes); // others may have been faster
        if !has_room || sessions.contains_key(&id) {
            return 0;
        }
        self.change_bytes(0, bytes);
        sessions.insert(id, Arc::new(session));
        id
    }

    /// Keeps the sessions as they are, until the guard is dropped.
    #[cfg(test)]
    pub fn hold(&self) -> impl Drop + '_ {
        self.sessions.read().unwrap()
    }

    /// True if somebody waits to change the sessions.
    #[cfg(test)]
    pub fn is_awaited(&self) -> bool {
        self.sessions.try_read().is_err()
    }

    /// Sum of the bytes of all sessions.
    #[cfg(test)]
    pub fn counted_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Sessions> {
        (self.sessions.write()).unwrap_or_else(PoisonError::into_inner)
    }

    fn ms(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_millis() as u64
    }

    /// A positive id that nobody can guess.
    fn fresh_id(&self) -> i32 {
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        let id = (self.ids.hash_one(number) >> 33) as i32;
        id.max(1)
    }

    /// Replaces the bytes of one session in the sum. Under the lock.
    fn change_bytes(&self, before: usize, now: usize) {
        let bytes = self.bytes.load(Ordering::Relaxed) - before + now;
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn has_room(&self, held: &Sessions, sessions: usize, bytes: usize) -> bool {
        held.len() + sessions <= self.max_sessions
            && self.bytes.load(Ordering::Relaxed) + bytes <= self.max_bytes
    }

    /// Takes sessions out until there is room for another; false if none may go.
    fn make_room(
        &self,
        held: &mut Sessions,
        newcomer: &Newcomer<'_>,
        now_ms: u64,
        gone: &mut Vec<Arc<FetchSession>>,
    ) -> bool {
        while !self.has_room(held, newcomer.sessions, newcomer.bytes) {
            let is_one_too_many = held.len() + newcomer.sessions > self.max_sessions;
            let Some(victim) = victim(held, newcomer, is_one_too_many, now_ms) else {
                return false;
            };
            gone.extend(self.evict(held, victim));
        }
        true
    }

    fn evict(&self, held: &mut Sessions, id: i32) -> Option<Arc<FetchSession>> {
        self.evictions.add(1);
        self.remove(held, id)
    }

    fn remove(&self, held: &mut Sessions, id: i32) -> Option<Arc<FetchSession>> {
        let gone = held.remove(&id)?;
        self.change_bytes(gone.bytes.load(Ordering::Relaxed), 0);
        Some(gone)
    }
}

/// Ends sessions that left the cache, without its lock.
fn end(gone: impl IntoIterator<Item = Arc<FetchSession>>) {
    for session in gone {
        session.end();
    }
}

/// The session that goes for another, by the rules of the module.
///
/// Cost: linear in the sessions.
fn victim(
    held: &Sessions,
    newcomer: &Newcomer<'_>,
    is_one_too_many: bool,
    now_ms: u64,
) -> Option<i32> {
    let age = EVICTION_AGE.as_millis() as u64;
    let used = |one: &Arc<FetchSession>| one.used_ms.load(Ordering::Relaxed);
    let others = || held.values().filter(|one| one.id != newcomer.id);
    let oldest = others().min_by_key(|one| used(one))?;
    if now_ms.saturating_sub(used(oldest)) > age {
        return Some(oldest.id);
    }
    let size = |one: &Arc<FetchSession>| one.size.load(Ordering::Relaxed);
    let smallest = others()
        .filter(|one| one.owner == *newcomer.owner)
        .filter(|one| now_ms.saturating_sub(one.opened_ms) > age)
        .min_by_key(|one| (size(one), one.id))
        .filter(|one| size(one) < newcomer.partitions);
    if let Some(smallest) = smallest {
        return Some(smallest.id);
    }
    let mut holdings: HashMap<&SessionOwner, Holding> = HashMap::new();
    for one in held.values() {
        let holding = holdings.entry(&one.owner).or_default();
        holding.sessions += 1;
        holding.bytes += one.bytes.load(Ordering::Relaxed);
    }
    let own = holdings.remove(newcomer.owner).unwrap_or_default();
    let most = holdings.into_iter().max_by_key(|(_, holding)| {
        if is_one_too_many {
            holding.sessions
        } else {
            holding.bytes
        }
    });
    let (owner, most) = most?;
    let of_most = others().filter(|one| one.owner == *owner);
    let victim = of_most.min_by_key(|one| used(one))?;
    let holds_as_much = if is_one_too_many {
        most.sessions > own.sessions + newcomer.sessions
    } else {
        let left = most.bytes - victim.bytes.load(Ordering::Relaxed);
        left >= own.bytes + newcomer.bytes
    };
    holds_as_much.then_some(victim.id)
}
