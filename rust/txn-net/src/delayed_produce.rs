//! A Produce whose batches are appended and whose answer has to wait.
//!
//! Each partition waits independently. Its batch has to be synced if that was promised; with
//! `acks=all` the high watermark has to reach the end of the batch. The answer is encoded as a
//! success from the beginning. When the request is completed, the error code of each failed
//! partition is written into it.
//!
//! The deadline counts from the end of the append, as in Kafka. A partition that is not done then
//! is answered `REQUEST_TIMED_OUT`; its batch stays in the log, at the offset the answer names. A
//! partition whose leadership is lost before the high watermark comes is answered
//! `NOT_LEADER_OR_FOLLOWER`: the next leader may not have the batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use txn_log::durability::OnDurable;
use txn_log::{PartitionLog, Watcher};
use txn_protocol::codes;

use crate::partition::PartitionHandle;

/// An appended batch whose answer may have to wait.
pub struct AppendedBatch {
    pub partition: Arc<PartitionHandle>,
    pub log: Arc<PartitionLog>,
    /// The offset behind its last record.
    pub end: i64,
    /// The epoch in which it was appended.
    pub leader_epoch: i32,
    /// Position of the partition's error code in the answer.
    pub code_at: usize,
}

impl AppendedBatch {
    /// True if the high watermark has reached its end.
    ///
    /// # Errors
    /// Kafka's error code: this node no longer leads in the epoch of the append.
    pub fn is_replicated(&self) -> Result<bool, i16> {
        self.partition.is_replicated(self.end, self.leader_epoch)
    }
}

/// The events that an answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Every batch is on the disk.
    pub is_synced: bool,
    /// Every in-sync replica has every batch.
    pub is_replicated: bool,
}

/// The answer, and the partitions that hold it back.
pub struct DelayedProduce {
    answer: Vec<u8>,
    partitions: Vec<DelayedPartition>,
    waits_for_replicas: bool,
}

struct DelayedPartition {
    batch: AppendedBatch,
    /// `None`: it does not wait for the disk.
    sync: Option<Arc<SyncState>>,
}

/// A log that has to be on the disk up to an offset, and the call that follows.
pub struct DiskWait {
    pub log: Arc<PartitionLog>,
    pub end: i64,
    pub on_durable: OnDurable,
}

/// The state of a batch's sync: written by the thread that syncs, read by the reactor.
struct SyncState(AtomicU8);

const SYNC_PENDING: u8 = 0;
const SYNC_DONE: u8 = 1;
const SYNC_FAILED: u8 = 2;

impl DelayedProduce {
    /// Holds an answer until its promise is kept.
    ///
    /// # Args
    /// - `answer`: the whole frame, as it is sent if every batch succeeds.
    pub fn new(answer: Vec<u8>, batches: Vec<AppendedBatch>, promise: Promise) -> Self {
        let delayed = |batch| DelayedPartition {
            batch,
            sync: promise
                .is_synced
                .then(|| Arc::new(SyncState(AtomicU8::new(SYNC_PENDING)))),
        };
        Self {
            answer,
            partitions: batches.into_iter().map(delayed).collect(),
            waits_for_replicas: promise.is_replicated,
        }
    }

    /// The logs whose high watermark is awaited.
    pub fn logs(&self) -> impl Iterator<Item = &Arc<PartitionLog>> {
        let awaited = |one: &&DelayedPartition| one.batch.is_replicated() == Ok(false);
        let waiting = self.waits_for_replicas.then_some(&self.partitions);
        let partitions = waiting.into_iter().flatten();
        partitions.filter(awaited).map(|one| &one.batch.log)
    }

    /// Returns one wait for each partition that waits for the disk; each calls `watcher` at its end.
    pub fn disk_waits(&self, watcher: &Arc<dyn Watcher>) -> Vec<DiskWait> {
        let wait = |partition: &DelayedPartition| {
            let (sync, watcher) = (Arc::clone(partition.sync.as_ref()?), Arc::clone(watcher));
            Some(DiskWait {
                log: Arc::clone(&partition.batch.log),
                end: partition.batch.end,
                on_durable: Box::new(move |durable| {
                    let state = if durable.is_ok() {
                        SYNC_DONE
                    } else {
                        SYNC_FAILED
                    };
                    sync.0.store(state, Ordering::Release);
                    watcher.log_advanced();
                }),
            })
        };
        self.partitions.iter().filter_map(wait).collect()
    }

    /// True if every partition has its outcome. Cost: an atomic load for each.
    pub fn is_ready(&self) -> bool {
        let mut outcomes = self.partitions.iter().map(|one| self.outcome(one));
        outcomes.all(|outcome| outcome.is_some())
    }

    /// The answer; a partition without an outcome has timed out.
    pub fn complete(mut self) -> Vec<u8> {
        let mut answer = std::mem::take(&mut self.answer);
        for partition in &self.partitions {
            let code = self.outcome(partition);
            let code = code.unwrap_or(codes::REQUEST_TIMED_OUT);
            set_error(&mut answer, partition.batch.code_at, code);
        }
        answer
    }

    /// Kafka's error code, 0 for success; `None` while the partition waits.
    fn outcome(&self, partition: &DelayedPartition) -> Option<i16> {
        let sync = partition.sync.as_ref();
        let sync = sync.map_or(SYNC_DONE, |sync| sync.0.load(Ordering::Acquire));
        if sync == SYNC_FAILED {
            return Some(codes::KAFKA_STORAGE_ERROR);
        }
        let replicated = if self.waits_for_replicas {
            partition.batch.is_replicated()
        } else {
            Ok(true)
        };
        match replicated {
            Err(code) => Some(code),
            Ok(is_replicated) => (is_replicated && sync == SYNC_DONE).then_some(codes::NONE),
        }
    }
}

/// Writes an error over one partition of an answer that says success.
///
/// A batch that a disk refused has no offset: base offset and append time, the 16 bytes behind the
/// code in every version, become -1. With any other code the batch is in the log, and the answer
/// keeps its offset, as Kafka's does.
fn set_error(answer: &mut [u8], code_at: usize, code: i16) {
    answer[code_at..code_at + 2].copy_from_slice(&code.to_be_bytes());
    if code == codes::KAFKA_STORAGE_ERROR {
        answer[code_at + 2..code_at + 18].fill(0xff);
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use txn_log::builder::BatchBuilder;
    use txn_log::{Origin, Role};
    use txn_protocol::batch::Codec;

    use super::*;
    use crate::partition::ReplicaState;
    use crate::test_logs::Logs;

    struct Ignored;

    impl Watcher for Ignored {
        fn log_advanced(&self) {}
    }

    const LEADER: ReplicaState = ReplicaState::Online {
        role: Role::SoleReplica,
        leader_epoch: 0,
    };
    const FOLLOWER: ReplicaState = ReplicaState::Online {
        role: Role::Follower,
        leader_epoch: 1,
    };
    const SYNCED: Promise = Promise {
        is_synced: true,
        is_replicated: false,
    };
    const REPLICATED: Promise = Promise {
        is_synced: false,
        is_replicated: true,
    };

    /// An answer of zeros that waits for two batches, at 10 and 40, and the partitions. The high
    /// watermark is 0.
    fn delayed(logs: &Logs, promise: Promise) -> (DelayedProduce, [Arc<PartitionHandle>; 2]) {
        let partitions = ["one", "two"].map(|name| {
            let partition = PartitionHandle::default();
            let log = partition.opened(logs.open(name));
            log.set_role(Role::Leader, 0);
            append(log);
            Arc::new(partition)
        });
        let batch = |partition: &Arc<PartitionHandle>, code_at| AppendedBatch {
            partition: Arc::clone(partition),
            log: Arc::clone(partition.log().unwrap()),
            end: 1,
            leader_epoch: 0,
            code_at,
        };
        let batches = vec![batch(&partitions[0], 10), batch(&partitions[1], 40)];
        let delayed = DelayedProduce::new(vec![0; 60], batches, promise);
        (delayed, partitions)
    }

    fn append(log: &PartitionLog) {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.push(0, None, Some(b"x"), &[]);
        let mut batch = builder.seal().unwrap();
        let origin = Origin::Client {
            transaction_version: 2,
            transactional_id_hash: None,
        };
        log.append(origin, &mut batch).unwrap();
    }

    fn disk_waits(delayed: &DelayedProduce) -> Vec<DiskWait> {
        let watcher: Arc<dyn Watcher> = Arc::new(Ignored);
        delayed.disk_waits(&watcher)
    }

    fn succeed(wait: DiskWait) {
        (wait.on_durable)(Ok(()));
    }

    fn fail(wait: DiskWait) {
        (wait.on_durable)(Err(&io::Error::other("the disk refuses")));
    }

    /// The error codes of both partitions.
    fn codes_of(delayed: DelayedProduce) -> [i16; 2] {
        let answer = delayed.complete();
        [10, 40].map(|at| i16::from_be_bytes([answer[at], answer[at + 1]]))
    }

    fn raise(partition: &PartitionHandle) {
        assert!(partition.log().unwrap().raise_high_watermark(1));
    }

    #[test]
    fn an_answer_waits_for_every_partition_and_says_success_when_all_are_on_the_disk() {
        let logs = Logs::new();
        let (delayed, _) = delayed(&logs, SYNCED);
        assert_eq!(delayed.logs().count(), 0);
        for wait in disk_waits(&delayed) {
            assert!(!delayed.is_ready());
            succeed(wait);
        }
        assert!(delayed.is_ready());
        assert_eq!(delayed.complete(), [0; 60]);
    }

    #[test]
    fn a_partition_that_cannot_be_synced_is_not_acknowledged_and_the_others_are() {
        let logs = Logs::new();
        let (delayed, _) = delayed(&logs, SYNCED);
        let mut waits = disk_waits(&delayed);
        fail(waits.pop().unwrap());
        succeed(waits.pop().unwrap());
        let answer = delayed.complete();
        assert_eq!(answer[..40], [0; 40]);
        assert_eq!(answer[40..42], codes::KAFKA_STORAGE_ERROR.to_be_bytes());
        assert_eq!(answer[42..58], [0xff; 16]);
        assert_eq!(answer[58..], [0; 2]);
    }

    #[test]
    fn a_partition_that_is_not_done_in_time_is_timed_out_and_keeps_its_offset() {
        let logs = Logs::new();
        let (delayed, _) = delayed(&logs, SYNCED);
        succeed(disk_waits(&delayed).pop().unwrap());
        assert!(!delayed.is_ready());
        let answer = delayed.complete();
        assert_eq!(answer[10..12], codes::REQUEST_TIMED_OUT.to_be_bytes());
        assert_eq!((&answer[..10], &answer[12..]), (&[0; 10][..], &[0; 48][..]));
    }

    #[test]
    fn an_answer_waits_until_the_high_watermark_has_passed_every_batch() {
        let logs = Logs::new();
        let (delayed, partitions) = delayed(&logs, REPLICATED);
        assert!(disk_waits(&delayed).is_empty());
        assert_eq!(delayed.logs().count(), 2);
        raise(&partitions[0]);
        assert!(!delayed.is_ready());
        assert_eq!(delayed.logs().count(), 1);
        raise(&partitions[1]);
        assert!(delayed.is_ready());
        assert_eq!(delayed.complete(), [0; 60]);
    }

    #[test]
    fn a_partition_whose_leadership_is_lost_says_so_even_if_it_is_won_again() {
        let logs = Logs::new();
        let (delayed, [first, second]) = delayed(&logs, REPLICATED);
        raise(&first);
        second.set_state(FOLLOWER);
        assert!(delayed.is_ready());
        second.set_state(ReplicaState::Online {
            role: Role::Leader,
            leader_epoch: 2,
        });
        raise(&second); // for other records
        assert_eq!(codes_of(delayed), [0, codes::NOT_LEADER_OR_FOLLOWER]);
    }

    #[test]
    fn a_partition_that_is_closed_or_offline_acknowledges_nothing_that_was_not_replicated() {
        let logs = Logs::new();
        let (delayed, [first, second]) = delayed(&logs, REPLICATED);
        first.log().unwrap().close().unwrap();
        second.set_state(ReplicaState::Offline);
        assert!(delayed.is_ready());
        let expected = [codes::NOT_LEADER_OR_FOLLOWER, codes::KAFKA_STORAGE_ERROR];
        assert_eq!(codes_of(delayed), expected);
    }

    #[test]
    fn a_batch_that_is_on_the_disk_still_waits_for_its_replicas_and_one_that_fails_does_not() {
        let logs = Logs::new();
        let both = Promise {
            is_synced: true,
            is_replicated: true,
        };
        let (delayed, [first, _]) = delayed(&logs, both);
        assert_eq!(first.state(), Some(LEADER));
        let mut waits = disk_waits(&delayed);
        fail(waits.pop().unwrap());
        succeed(waits.pop().unwrap());
        assert!(!delayed.is_ready());
        raise(&first);
        assert!(delayed.is_ready());
        assert_eq!(codes_of(delayed), [0, codes::KAFKA_STORAGE_ERROR]);
    }
}
