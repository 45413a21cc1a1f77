//! A partition of this node: its state, and its log once a request has named it.
//!
//! The state has the role and the leader epoch, or says that the log is offline. Produce and Fetch
//! answer `NOT_LEADER_OR_FOLLOWER`, `KAFKA_STORAGE_ERROR`, `FENCED_LEADER_EPOCH` and
//! `UNKNOWN_LEADER_EPOCH` by it. It is one atomic word, so a reader sees role and epoch of one
//! moment without a lock.
//!
//! An append holds a [`Leadership`], under which the role stays. So nothing is appended in the name
//! of a leader once [`PartitionHandle::set_state`] has returned, and a follower may truncate its log
//! at once. A change waits for the appends under way.
//!
//! On one node every partition is led from the moment its log is opened, in the epoch of the log. A
//! request for a partition whose log cannot be opened gets the error of the opening.
//!
//! # Deviations from Apache Kafka
//! - A follower answers no Fetch, in any version; Kafka serves consumers from Fetch 11 on
//!   (KIP-392).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use txn_log::{Isolation, PartitionLog, Role};

use txn_protocol::codes;

/// The state of this node's replica of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// A leader takes batches, and answers Fetch up to the high watermark of the log.
    Online {
        /// Whether clients append here, or batches are copied from the leader.
        role: Role,
        /// The epoch of the leader, which may be another node.
        leader_epoch: i32,
    },
    /// Its log was refused or is damaged.
    Offline,
}

/// Tags in the upper half of a state's word; the leader epoch is the lower half.
const UNOPENED: u64 = 0;
const SOLE_REPLICA: u64 = 1;
const LEADER: u64 = 2;
const FOLLOWER: u64 = 3;
const OFFLINE: u64 = 4;

impl ReplicaState {
    fn word(self) -> u64 {
        let (tag, leader_epoch) = match self {
            Self::Online { role, leader_epoch } => {
                let tag = match role {
                    Role::SoleReplica => SOLE_REPLICA,
                    Role::Leader => LEADER,
                    Role::Follower => FOLLOWER,
                };
                (tag, leader_epoch)
            }
            Self::Offline => (OFFLINE, -1),
        };
        (tag << 32) | u64::from(leader_epoch.cast_unsigned())
    }

    /// `None` if no state was set yet.
    fn from_word(word: u64) -> Option<Self> {
        let role = match word >> 32 {
            UNOPENED => return None,
            SOLE_REPLICA => Role::SoleReplica,
            LEADER => Role::Leader,
            FOLLOWER => Role::Follower,
            _ => return Some(Self::Offline),
        };
        let leader_epoch = (word as u32).cast_signed();
        Some(Self::Online { role, leader_epoch })
    }

    /// Checks that this node leads, in the epoch a client knows.
    ///
    /// # Args
    /// - `known_epoch`: the leader epoch of the request; negative if it has none.
    ///
    /// # Errors
    /// Kafka's error code. A wrong epoch is reported before a wrong role.
    pub(crate) fn check_leader(self, known_epoch: i32) -> Result<(), i16> {
        let Self::Online { role, leader_epoch } = self else {
            return Err(codes::KAFKA_STORAGE_ERROR);
        };
        match known_epoch {
            epoch if epoch < 0 => {}
            epoch if epoch < leader_epoch => return Err(codes::FENCED_LEADER_EPOCH),
            epoch if epoch > leader_epoch => return Err(codes::UNKNOWN_LEADER_EPOCH),
            _ => {}
        }
        if role.is_leader() {
            Ok(())
        } else {
            Err(codes::NOT_LEADER_OR_FOLLOWER)
        }
    }

    /// The epoch that this node leads in, if it leads.
    fn epoch_led(self) -> Option<i32> {
        match self {
            Self::Online { role, leader_epoch } if role.is_leader() => Some(leader_epoch),
            _ => None,
        }
    }
}

/// A partition's state and log.
#[derive(Default)]
pub struct PartitionHandle {
    state: AtomicU64,
    /// Shared by appends, exclusive to a change of the state.
    changing: RwLock<()>,
    log: OnceLock<Arc<PartitionLog>>,
}

/// Leadership of a partition: while it is held the role stays.
pub struct Leadership<'a> {
    pub leader_epoch: i32,
    _role_stays: RwLockReadGuard<'a, ()>,
}

impl PartitionHandle {
    /// Its state; `None` before the first request that names it, unless one was set.
    pub fn state(&self) -> Option<ReplicaState> {
        ReplicaState::from_word(self.state.load(Ordering::Acquire))
    }

    /// Sets the state, once no append is under way.
    pub fn set_state(&self, state: ReplicaState) {
        let _exclusive = self
            .changing
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        self.state.store(state.word(), Ordering::Release);
    }

    /// Its log, if it was opened.
    pub fn log(&self) -> Option<&Arc<PartitionLog>> {
        self.log.get()
    }

    /// Keeps a log that was opened. A partition without a state has the log's role and leader epoch
    /// from then on.
    pub fn opened(&self, log: Arc<PartitionLog>) -> &Arc<PartitionLog> {
        let log = self.log.get_or_init(|| log);
        let online = ReplicaState::Online {
            role: log.role(),
            leader_epoch: log.leader_epoch(),
        };
        // It fails where a state was set meanwhile, which then counts.
        let _ = self.state.compare_exchange(
            UNOPENED,
            online.word(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        log
    }

    /// Checks that this node leads the partition; one without a state may be opened and led.
    ///
    /// # Errors
    /// The errors of [`ReplicaState::check_leader`].
    pub fn check_leader(&self, known_epoch: i32) -> Result<(), i16> {
        self.state()
            .map_or(Ok(()), |state| state.check_leader(known_epoch))
    }

    /// Keeps the role for an append.
    ///
    /// # Errors
    /// The errors of [`ReplicaState::check_leader`].
    pub fn lead(&self) -> Result<Leadership<'_>, i16> {
        let role_stays = self.changing.read().unwrap_or_else(PoisonError::into_inner);
        self.check_leader(-1)?;
        let Some(leader_epoch) = self.state().and_then(ReplicaState::epoch_led) else {
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
        if self.state().and_then(ReplicaState::epoch_led) != Some(leader_epoch) {
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

    const LEADER_OF_5: ReplicaState = ReplicaState::Online {
        role: Role::SoleReplica,
        leader_epoch: 5,
    };
    const ALSO_LEADER_OF_5: ReplicaState = ReplicaState::Online {
        role: Role::Leader,
        leader_epoch: 5,
    };
    const FOLLOWER_OF_5: ReplicaState = ReplicaState::Online {
        role: Role::Follower,
        leader_epoch: 5,
    };

    #[test]
    fn a_state_survives_its_word() {
        let negative = ReplicaState::Online {
            role: Role::Follower,
            leader_epoch: -1,
        };
        for state in [
            LEADER_OF_5,
            ALSO_LEADER_OF_5,
            FOLLOWER_OF_5,
            negative,
            ReplicaState::Offline,
        ] {
            assert_eq!(ReplicaState::from_word(state.word()), Some(state));
        }
        assert_eq!(ReplicaState::from_word(UNOPENED), None);
    }

    #[test]
    fn a_wrong_epoch_is_reported_before_a_wrong_role() {
        for (state, in_its_epoch) in [
            (LEADER_OF_5, Ok(())),
            (ALSO_LEADER_OF_5, Ok(())),
            (FOLLOWER_OF_5, Err(codes::NOT_LEADER_OR_FOLLOWER)),
        ] {
            assert_eq!(state.check_leader(4), Err(codes::FENCED_LEADER_EPOCH));
            assert_eq!(state.check_leader(6), Err(codes::UNKNOWN_LEADER_EPOCH));
            assert_eq!(state.check_leader(5), in_its_epoch);
            assert_eq!(state.check_leader(-1), in_its_epoch);
        }
        let offline = ReplicaState::Offline.check_leader(6);
        assert_eq!(offline, Err(codes::KAFKA_STORAGE_ERROR));
    }

    #[test]
    fn a_partition_leads_once_its_log_is_opened_unless_a_state_was_set() {
        let logs = Logs::new();
        let log = logs.open("one");
        log.lead(5);
        let (led, followed) = (PartitionHandle::default(), PartitionHandle::default());
        followed.set_state(FOLLOWER_OF_5);
        led.opened(Arc::clone(&log));
        followed.opened(log);
        assert_eq!(led.state(), Some(LEADER_OF_5));
        assert_eq!(followed.state(), Some(FOLLOWER_OF_5));
    }

    #[test]
    fn a_state_changes_when_no_append_is_under_way_and_none_follows() {
        let logs = Logs::new();
        let handle = PartitionHandle::default();
        handle.opened(logs.open("one"));
        let has_changed = AtomicBool::new(false);
        thread::scope(|scope| {
            let append = handle.lead().unwrap();
            let change = scope.spawn(|| {
                handle.set_state(FOLLOWER_OF_5);
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
