//! Log start, high watermark, last stable offset and log end: one published state.
//!
//! # Invariants
//! 1. log start ≤ last stable offset ≤ high watermark ≤ log end, in every state a reader sees.
//! 2. Each of the four only rises, but for `Offsets::truncate_to` and `Offsets::restart_at`.
//! 3. The last stable offset is that of a log that ended at the high watermark: a transaction
//!    whose marker lies at or above the high watermark counts as open.
//!
//! # Readers
//! Readers take no lock. A change makes `version` odd, stores the offsets, and makes `version`
//! even again; a reader that saw it odd or changed reads again. After a few attempts it waits for
//! the lock of the change, whose thread the scheduler may have put aside.
//!
//! # Who moves the high watermark
//! The [`Role`] decides it. A sole replica has no other copy to wait for: its high watermark is its
//! log end. A leader and a follower get theirs from their caller.

use std::collections::VecDeque;
use std::hint;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Attempts to read a state without the lock.
const SPINS: usize = 32;

/// A log's offsets at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogState {
    /// First offset that is stored.
    pub log_start_offset: i64,
    /// End of the records that every in-sync replica has; at most the log end.
    pub high_watermark: i64,
    /// Exclusive end of the records that a `read_committed` reader may see; at most the high
    /// watermark.
    pub last_stable_offset: i64,
    /// The offset the next record will get.
    pub log_end_offset: i64,
}

impl LogState {
    /// Exclusive upper bound of the offsets that a reader may see.
    #[must_use]
    pub fn readable_end(&self, isolation: Isolation) -> i64 {
        match isolation {
            Isolation::LogEnd => self.log_end_offset,
            Isolation::HighWatermark => self.high_watermark,
            Isolation::TxnCommitted => self.last_stable_offset,
        }
    }
}

/// The isolation of a reader. Source: Kafka's `FetchIsolation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// A follower, which copies everything.
    LogEnd,
    /// A consumer with `read_uncommitted`.
    HighWatermark,
    /// A consumer with `read_committed`.
    TxnCommitted,
}

/// The role of this node's replica in its partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The only replica: the high watermark is the log end.
    #[default]
    SoleReplica,
    /// Takes batches from clients; its high watermark is set from the offsets of the in-sync
    /// replicas.
    Leader,
    /// Takes batches from the leader, and the high watermark with them.
    Follower,
}

impl Role {
    /// True if clients' batches are appended here.
    #[must_use]
    pub fn is_leader(self) -> bool {
        self != Self::Follower
    }
}

/// The published offsets, and the state that changes of them need.
pub(crate) struct Offsets {
    /// Odd while a change is under way.
    version: AtomicU64,
    log_start: AtomicI64,
    high_watermark: AtomicI64,
    last_stable: AtomicI64,
    log_end: AtomicI64,
    /// Raised by every change that takes offsets back, so that a reader can tell that it happened.
    truncations: AtomicU64,
    changing: Mutex<Changing>,
}

/// The part of the state that only a change looks at.
struct Changing {
    role: Role,
    /// First unstable offset as of a log end, where it changed: as of the high watermark or
    /// below, then by rising log end. Never empty.
    unstable: VecDeque<(i64, Option<i64>)>,
}

impl Changing {
    /// First unstable offset as of the high watermark; forgets older ones.
    fn unstable_at(&mut self, high_watermark: i64) -> Option<i64> {
        while let Some(&(end, _)) = self.unstable.get(1)
            && end <= high_watermark
        {
            self.unstable.pop_front();
        }
        self.unstable[0].1
    }

    fn note(&mut self, log_end: i64, first_unstable: Option<i64>) {
        if self
            .unstable
            .back()
            .is_some_and(|&(_, last)| last != first_unstable)
        {
            self.unstable.push_back((log_end, first_unstable));
        }
    }
}

impl Offsets {
    /// The offsets of a log that was just opened.
    ///
    /// Unless it is a sole replica, its high watermark is that of its checkpoint, and the last
    /// stable offset waits at the log start until the high watermark reaches the log end: which
    /// transactions were open at an offset between the two is no longer known.
    pub fn new(
        role: Role,
        log_start: i64,
        high_watermark: i64,
        log_end: i64,
        first_unstable: Option<i64>,
    ) -> Self {
        let mut unstable = VecDeque::from([(log_start, first_unstable)]);
        let high_watermark = match role {
            Role::SoleReplica => log_end,
            Role::Leader | Role::Follower => high_watermark.clamp(log_start, log_end),
        };
        if high_watermark < log_end {
            // A transaction whose marker lies between the two may have begun at any stored offset.
            unstable = VecDeque::from([(log_start, Some(log_start)), (log_end, first_unstable)]);
        }
        let offsets = Self {
            version: AtomicU64::new(0),
            log_start: AtomicI64::new(log_start),
            high_watermark: AtomicI64::new(high_watermark),
            last_stable: AtomicI64::new(log_start),
            log_end: AtomicI64::new(log_end),
            truncations: AtomicU64::new(0),
            changing: Mutex::new(Changing { role, unstable }),
        };
        offsets.change(raise_stable);
        offsets
    }

    /// All four, as they were at one moment. Takes no lock unless a change is under way.
    pub fn state(&self) -> LogState {
        for _ in 0..SPINS {
            let version = self.version.load(Ordering::Acquire);
            if version.is_multiple_of(2) {
                let state = self.load();
                fence(Ordering::Acquire); // the offsets are loaded before the version is again
                if self.version.load(Ordering::Relaxed) == version {
                    return state;
                }
            }
            hint::spin_loop();
        }
        let _changing = self.lock();
        self.load()
    }

    pub fn log_start(&self) -> i64 {
        self.log_start.load(Ordering::Acquire)
    }

    pub fn log_end(&self) -> i64 {
        self.log_end.load(Ordering::Acquire)
    }

    /// Exclusive upper bound of the offsets that a reader may see.
    pub fn readable_end(&self, isolation: Isolation) -> i64 {
        let end = match isolation {
            Isolation::LogEnd => &self.log_end,
            Isolation::HighWatermark => &self.high_watermark,
            Isolation::TxnCommitted => &self.last_stable,
        };
        end.load(Ordering::Acquire)
    }

    /// Number of times that offsets were taken back.
    pub fn truncations(&self) -> u64 {
        self.truncations.load(Ordering::Acquire)
    }

    pub fn role(&self) -> Role {
        self.lock().role
    }

    /// Sets the role. The high watermark stays, but that of a sole replica is its log end.
    pub fn set_role(&self, role: Role) {
        self.change(|changing, state| {
            changing.role = role;
            follow_log_end(changing, state);
            raise_stable(changing, state);
        });
    }

    /// Shows a batch that was written.
    pub fn append(&self, log_end: i64, first_unstable: Option<i64>) {
        self.change(|changing, state| {
            changing.note(log_end, first_unstable);
            state.log_end_offset = log_end;
            follow_log_end(changing, state);
            raise_stable(changing, state);
        });
    }

    /// Raises the high watermark, to the log end at most; says whether it rose. That of a sole
    /// replica is there already.
    pub fn raise_high_watermark(&self, high_watermark: i64) -> bool {
        self.change(|changing, state| {
            let wanted = high_watermark.min(state.log_end_offset);
            let rises = wanted > state.high_watermark;
            if rises {
                state.high_watermark = wanted;
                raise_stable(changing, state);
            }
            rises
        })
    }

    /// Raises the log start, and the other offsets where they are below it.
    pub fn raise_log_start(&self, log_start: i64) {
        self.change(|_, state| {
            state.log_start_offset = state.log_start_offset.max(log_start);
            state.high_watermark = state.high_watermark.max(state.log_start_offset);
            state.last_stable_offset = state.last_stable_offset.max(state.log_start_offset);
        });
    }

    /// Lowers the log end. No `read_committed` reader sees anything until
    /// [`Self::end_truncation`]: a committed transaction may have lost its marker.
    pub fn truncate_to(&self, log_end: i64) {
        self.change(|changing, state| {
            let known = changing.unstable.iter();
            let kept = known.take_while(|&&(end, _)| end <= log_end).count();
            changing.unstable.truncate(kept.max(1));
            state.log_end_offset = log_end;
            state.high_watermark = state.high_watermark.min(log_end);
            state.last_stable_offset = state.log_start_offset;
        });
        self.truncations.fetch_add(1, Ordering::AcqRel);
    }

    /// Shows `read_committed` readers their part of a log that was cut, by the first unstable
    /// offset as of its end.
    pub fn end_truncation(&self, first_unstable: Option<i64>) {
        self.change(|changing, state| {
            if state.high_watermark == state.log_end_offset {
                changing.unstable = VecDeque::from([(state.log_end_offset, first_unstable)]);
            } else {
                changing.note(state.log_end_offset, first_unstable);
            }
            raise_stable(changing, state);
        });
    }

    /// Begins anew at an offset, with nothing stored.
    pub fn restart_at(&self, offset: i64) {
        self.change(|changing, state| {
            changing.unstable = VecDeque::from([(offset, None)]);
            *state = LogState {
                log_start_offset: offset,
                high_watermark: offset,
                last_stable_offset: offset,
                log_end_offset: offset,
            };
        });
        self.truncations.fetch_add(1, Ordering::AcqRel);
    }

    /// Changes the offsets as one.
    fn change<T>(&self, change: impl FnOnce(&mut Changing, &mut LogState) -> T) -> T {
        let mut changing = self.lock();
        let mut state = self.load();
        let result = change(&mut changing, &mut state);
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release); // the version is odd before the first offset is stored
        self.log_start
            .store(state.log_start_offset, Ordering::Release);
        self.log_end.store(state.log_end_offset, Ordering::Release);
        self.high_watermark
            .store(state.high_watermark, Ordering::Release);
        self.last_stable
            .store(state.last_stable_offset, Ordering::Release);
        self.version.store(version + 2, Ordering::Release);
        result
    }

    fn load(&self) -> LogState {
        LogState {
            log_start_offset: self.log_start.load(Ordering::Acquire),
            high_watermark: self.high_watermark.load(Ordering::Acquire),
            last_stable_offset: self.last_stable.load(Ordering::Acquire),
            log_end_offset: self.log_end.load(Ordering::Acquire),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Changing> {
        // A panic leaves no change half done: nothing between the stores can fail.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// On one node the high watermark is the log end.
fn follow_log_end(changing: &Changing, state: &mut LogState) {
    if changing.role == Role::SoleReplica {
        state.high_watermark = state.log_end_offset;
    }
}

/// LSO = min(first unstable offset as of the high watermark, high watermark), never below the log
/// start nor below the published one.
fn raise_stable(changing: &mut Changing, state: &mut LogState) {
    let high_watermark = state.high_watermark;
    let first_unstable = changing.unstable_at(high_watermark);
    let stable = first_unstable.map_or(high_watermark, |first| first.min(high_watermark));
    state.last_stable_offset = state.last_stable_offset.max(stable);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(offsets: &Offsets) -> [i64; 4] {
        let state = offsets.state();
        [
            state.log_start_offset,
            state.last_stable_offset,
            state.high_watermark,
            state.log_end_offset,
        ]
    }

    #[test]
    fn the_high_watermark_of_a_sole_replica_is_its_log_end() {
        let offsets = Offsets::new(Role::SoleReplica, 0, 0, 5, None);
        assert_eq!(numbers(&offsets), [0, 5, 5, 5]);
        offsets.append(8, Some(5));
        assert_eq!(numbers(&offsets), [0, 5, 8, 8]);
        assert!(!offsets.raise_high_watermark(20));
        offsets.append(9, None);
        assert_eq!(numbers(&offsets), [0, 9, 9, 9]);
    }

    #[test]
    fn a_leaders_readers_stop_at_the_high_watermark() {
        let offsets = Offsets::new(Role::Leader, 0, 0, 0, None);
        offsets.append(3, None);
        assert_eq!(numbers(&offsets), [0, 0, 0, 3]);
        assert!(offsets.raise_high_watermark(2));
        assert!(!offsets.raise_high_watermark(1));
        assert!(offsets.raise_high_watermark(7));
        assert_eq!(numbers(&offsets), [0, 3, 3, 3]);
        for (isolation, end) in [
            (Isolation::LogEnd, 3),
            (Isolation::HighWatermark, 3),
            (Isolation::TxnCommitted, 3),
        ] {
            assert_eq!(offsets.readable_end(isolation), end);
            assert_eq!(offsets.state().readable_end(isolation), end);
        }
    }

    #[test]
    fn a_transaction_is_open_until_its_marker_is_below_the_high_watermark() {
        let offsets = Offsets::new(Role::Leader, 0, 0, 0, None);
        offsets.append(3, Some(0)); // data
        offsets.append(4, None); // its marker
        offsets.append(6, None);
        offsets.raise_high_watermark(3);
        assert_eq!(numbers(&offsets), [0, 0, 3, 6]);
        offsets.raise_high_watermark(4);
        assert_eq!(numbers(&offsets), [0, 4, 4, 6]);
    }

    #[test]
    fn a_log_that_lost_a_marker_shows_no_record_of_its_transaction() {
        let offsets = Offsets::new(Role::SoleReplica, 0, 0, 0, None);
        offsets.append(3, Some(0));
        offsets.append(4, None);
        offsets.set_role(Role::Follower);
        offsets.truncate_to(3);
        assert_eq!(numbers(&offsets), [0, 0, 3, 3]);
        offsets.end_truncation(Some(0));
        assert_eq!(numbers(&offsets), [0, 0, 3, 3]);
        assert_eq!(offsets.truncations(), 1);
    }

    #[test]
    fn a_replica_that_was_opened_shows_committed_records_once_its_whole_log_is_replicated() {
        let offsets = Offsets::new(Role::Follower, 1, 6, 9, None);
        assert_eq!(numbers(&offsets), [1, 1, 6, 9]);
        offsets.raise_high_watermark(9);
        assert_eq!(numbers(&offsets), [1, 9, 9, 9]);
        let beyond = Offsets::new(Role::Follower, 1, 20, 9, Some(4));
        assert_eq!(numbers(&beyond), [1, 4, 9, 9]);
    }
}
