//! A partition of this node: its role, and its log once a request has named it.
//!
//! Produce and Fetch take the answers `NOT_LEADER_OR_FOLLOWER`, `KAFKA_STORAGE_ERROR`,
//! `FENCED_LEADER_EPOCH` and `UNKNOWN_LEADER_EPOCH` from the role. Role and leader epoch are one
//! atomic word, so a reader sees both of one moment without a lock.
//!
//! An append holds a [`Leadership`], under which the role stays. So nothing is appended in the name
//! of a leader once [`PartitionHandle::set_role`] has returned, and a follower may truncate its log
//! at once. A change waits for the appends under way.
//!
//! On one node every partition is the leader's from the moment its log is opened, in the epoch
//! of the log. A partition whose log cannot be had is answered with the error its opening gave.
//!
//! # Deviations from Apache Kafka
//! - A follower answers no Fetch, in any version; Kafka serves consumers from Fetch 11 on
//!   (KIP-392).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use txn_log::{Isolation, PartitionLog};

use txn_protocol::codes;

/// The role of this node in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionRole {
    /// It takes batches, and answers Fetch up to the high watermark of the log.
    Leader {
        /// The epoch of its leadership.
        leader_epoch: i32,
    },
    /// It copies another node's log.
    Follower {
        /// The epoch of that node's leadership.
        leader_epoch: i32,
    },
    /// Its log was refused or is damaged.
    Offline,
}

/// Tags in the upper half of a role's word; the leader epoch is the lower half.
const UNOPENED: u64 = 0;
const LEADER: u64 = 1;
const FOLLOWER: u64 = 2;
const OFFLINE: u64 = 3;

impl PartitionRole {
    fn word(self) -> u64 {
        let (tag, leader_epoch) = match self {
            Self::Leader { leader_epoch } => (LEADER, leader_epoch),
            Self::Follower { leader_epoch } => (FOLLOWER, leader_epoch),
            Self::Offline => (OFFLINE, -1),
        };
        (tag << 32) | u64::from(leader_epoch.cast_unsigned())
    }

    /// `None` if no role was taken yet.
    fn from_word(word: u64) -> Option<Self> {
        let leader_epoch = (word as u32).cast_signed();
        match word >> 32 {
            UNOPENED => None,
            LEADER => Some(Self::Leader { leader_epoch }),
            FOLLOWER => Some(Self::Follower { leader_epoch }),
            _ => Some(Self::Offline),
        }
    }

    /// Checks that this node leads, in the epoch a client knows.
    ///
    /// # Args
    /// - `known_epoch`: the leader epoch of the request; negative if it has none.
    ///
    /// # Errors
    /// Kafka's error code. A wrong epoch is told before a wrong role.
    pub(crate) fn check_leader(self, known_epoch: i32) -> Result<(), i16> {
        let (leader_epoch, is_leader) = match self {
            Self::Leader { leader_epoch } => (leader_epoch, true),
            Self::Follower { leader_epoch } => (leader_epoch, false),
            Self::Offline => return Err(codes::KAFKA_STORAGE_ERROR),
        };
        match known_epoch {
            epoch if epoch < 0 => {}
            epoch if epoch < leader_epoch => return Err(codes::FENCED_LEADER_EPOCH),
            epoch if epoch > leader_epoch => return Err(codes::UNKNOWN_LEADER_EPOCH),
            _ => {}
        }
        if is_leader {
            Ok(())
        } else {
            Err(codes::NOT_LEADER_OR_FOLLOWER)
        }
    }
}

/// A partition's role and log.
#[derive(Default)]
pub struct PartitionHandle {
    role: AtomicU64,
    /// Shared by appends, exclusive to a change of the role.
    changing: RwLock<()>,
    log: OnceLock<Arc<PartitionLog>>,
}

/// Leadership of a partition: while it is held the role stays.
pub struct Leadership<'a> {
    pub leader_epoch: i32,
    _role_stays: RwLockReadGuard<'a, ()>,
}

impl PartitionHandle {
    /// Its role; `None` before the first request that names it, unless one was set.
    pub fn role(&self) -> Option<PartitionRole> {
        PartitionRole::from_word(self.role.load(Ordering::Acquire))
    }

    /// Takes a role, once no append is under way.
    pub fn set_role(&self, role: PartitionRole) {
        let _exclusive = self
            .changing
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        self.role.store(role.word(), Ordering::Release);
    }

    /// Its log, if it was opened.
    pub fn log(&self) -> Option<&Arc<PartitionLog>> {
        self.log.get()
    }

    /// Keeps a log that was opened. A partition without a role is led from then on, in the epoch of
    /// the log.
    pub fn opened(&self, log: Arc<PartitionLog>) -> &Arc<PartitionLog> {
        let log = self.log.get_or_init(|| log);
        let leader_epoch = log.leader_epoch();
        let leader = PartitionRole::Leader { leader_epoch };
        // It fails where a role was set meanwhile, which then counts.
        let _ = self.role.compare_exchange(
            UNOPENED,
            leader.word(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        log
    }

    /// Checks that this node leads the partition; one without a role may be opened and led.
    ///
    /// # Errors
    /// As [`PartitionRole::check_leader`].
    pub fn check_leader(&self, known_epoch: i32) -> Result<(), i16> {
        self.role()
            .map_or(Ok(()), |role| role.check_leader(known_epoch))
    }

    /// Keeps the role for an append.
    ///
    /// # Errors
    /// As [`PartitionRole::check_leader`].
    pub fn lead(&self) -> Result<Leadership<'_>, i16> {
        let role_stays = self.changing.read().unwrap_or_else(PoisonError::into_inner);
        self.check_leader(-1)?;
        let Some(PartitionRole::Leader { leader_epoch }) = self.role() else {
            return Err(codes::NOT_LEADER_OR_FOLLOWER); // its log was not opened
        };
        Ok(Leadership {
            leader_epoch,
            _role_stays: role_stays,
        })
    }

    /// True if every in-sync replica has the offsets below `end`, which were appended in an epoch.
    ///
    /// # Errors
    /// Kafka's error code: this node leads no longer, or in another epoch. A new leader may have
    /// truncated the offsets, and the high watermark may have passed other records since.
    pub fn is_replicated(&self, end: i64, leader_epoch: i32) -> Result<bool, i16> {
        if self.role() != Some(PartitionRole::Leader { leader_epoch }) {
            self.check_leader(-1)?;
            return Err(codes::NOT_LEADER_OR_FOLLOWER);
        }
        match self.log() {
            Some(log) if !log.is_closed() => Ok(log.readable_end(Isolation::HighWatermark) >= end),
            _ => Err(codes::NOT_LEADER_OR_FOLLOWER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_logs::Logs;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    const LEADER_OF_5: PartitionRole = PartitionRole::Leader { leader_epoch: 5 };
    const FOLLOWER_OF_5: PartitionRole = PartitionRole::Follower { leader_epoch: 5 };

    #[test]
    fn a_role_and_its_epoch_survive_their_word() {
        let negative = PartitionRole::Follower { leader_epoch: -1 };
        for role in [LEADER_OF_5, FOLLOWER_OF_5, negative, PartitionRole::Offline] {
            assert_eq!(PartitionRole::from_word(role.word()), Some(role));
        }
        assert_eq!(PartitionRole::from_word(UNOPENED), None);
    }

    #[test]
    fn a_wrong_epoch_is_told_before_a_wrong_role() {
        for (role, in_its_epoch) in [
            (LEADER_OF_5, Ok(())),
            (FOLLOWER_OF_5, Err(codes::NOT_LEADER_OR_FOLLOWER)),
        ] {
            assert_eq!(role.check_leader(4), Err(codes::FENCED_LEADER_EPOCH));
            assert_eq!(role.check_leader(6), Err(codes::UNKNOWN_LEADER_EPOCH));
            assert_eq!(role.check_leader(5), in_its_epoch);
            assert_eq!(role.check_leader(-1), in_its_epoch);
        }
        let offline = PartitionRole::Offline.check_leader(6);
        assert_eq!(offline, Err(codes::KAFKA_STORAGE_ERROR));
    }

    #[test]
    fn a_partition_leads_once_its_log_is_opened_unless_it_was_told_otherwise() {
        let logs = Logs::new();
        let log = logs.open("one");
        log.lead(5);
        let (led, followed) = (PartitionHandle::default(), PartitionHandle::default());
        followed.set_role(FOLLOWER_OF_5);
        led.opened(Arc::clone(&log));
        followed.opened(log);
        assert_eq!(led.role(), Some(LEADER_OF_5));
        assert_eq!(followed.role(), Some(FOLLOWER_OF_5));
    }

    #[test]
    fn a_role_changes_when_no_append_is_under_way_and_none_follows() {
        let logs = Logs::new();
        let handle = PartitionHandle::default();
        handle.opened(logs.open("one"));
        let has_changed = AtomicBool::new(false);
        thread::scope(|scope| {
            let append = handle.lead().unwrap();
            let change = scope.spawn(|| {
                handle.set_role(FOLLOWER_OF_5);
                has_changed.store(true, Ordering::SeqCst);
            });
            while handle.changing.try_read().is_ok() {
                thread::yield_now(); // until the change waits
            }
            assert!(!has_changed.load(Ordering::SeqCst));
            drop(append);
            change.join().unwrap();
        });
        assert_eq!(handle.lead().err(), Some(codes::NOT_LEADER_OR_FOLLOWER));
    }
}
