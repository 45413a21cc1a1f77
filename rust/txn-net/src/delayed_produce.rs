//! A Produce whose batches are appended and whose answer waits.
//!
//! Each partition waits for itself: its batch has to reach the disk where that was promised. The
//! answer is a whole frame from the beginning, and says success. When the request is completed,
//! the error code of each partition that failed or is not done is written over.
//!
//! The deadline counts from the end of the append, as in Kafka. A partition that is not done then
//! is answered `REQUEST_TIMED_OUT`; its batch stays in the log, at the offset the answer names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use txn_log::{PartitionLog, Watcher};

use crate::syncer::SyncJob;
use txn_protocol::codes;

/// An appended batch whose answer waits.
pub struct AppendedBatch {
    pub log: Arc<PartitionLog>,
    /// Position of the partition's error code in the answer.
    pub code_at: usize,
}

/// The answer, and the partitions that hold it back.
pub struct DelayedProduce {
    answer: Vec<u8>,
    partitions: Vec<DelayedPartition>,
}

struct DelayedPartition {
    code_at: usize,
    log: Arc<PartitionLog>,
    sync: Arc<SyncState>,
}

/// Whether a batch is on the disk: written by the thread that syncs, read by the reactor.
struct SyncState(AtomicU8);

const SYNC_PENDING: u8 = 0;
const SYNC_DONE: u8 = 1;
const SYNC_FAILED: u8 = 2;

impl DelayedProduce {
    /// Holds an answer until every one of `batches` is on the disk.
    ///
    /// # Args
    /// - `answer`: the whole frame, as it is sent if every batch succeeds.
    pub fn new(answer: Vec<u8>, batches: Vec<AppendedBatch>) -> Self {
        let delayed = |batch: AppendedBatch| DelayedPartition {
            code_at: batch.code_at,
            log: batch.log,
            sync: Arc::new(SyncState(AtomicU8::new(SYNC_PENDING))),
        };
        Self {
            answer,
            partitions: batches.into_iter().map(delayed).collect(),
        }
    }

    /// One job for each partition that waits for the disk; `watcher` is called when it is done.
    pub fn sync_jobs(&self, watcher: &Arc<dyn Watcher>) -> Vec<SyncJob> {
        let job = |partition: &DelayedPartition| {
            let (sync, watcher) = (Arc::clone(&partition.sync), Arc::clone(watcher));
            SyncJob {
                log: Arc::clone(&partition.log),
                on_synced: Box::new(move |is_synced| {
                    let state = if is_synced { SYNC_DONE } else { SYNC_FAILED };
                    sync.0.store(state, Ordering::Release);
                    watcher.log_advanced();
                }),
            }
        };
        self.partitions.iter().map(job).collect()
    }

    /// Whether every partition has its outcome. Cost: an atomic load for each.
    pub fn is_ready(&self) -> bool {
        self.partitions.iter().all(|one| one.outcome().is_some())
    }

    /// The answer; a partition without an outcome has timed out.
    pub fn complete(self) -> Vec<u8> {
        let mut answer = self.answer;
        for partition in &self.partitions {
            let code = partition.outcome().unwrap_or(codes::REQUEST_TIMED_OUT);
            set_error(&mut answer, partition.code_at, code);
        }
        answer
    }
}

impl DelayedPartition {
    /// Kafka's error code, 0 for success; `None` while the partition waits.
    fn outcome(&self) -> Option<i16> {
        match self.sync.0.load(Ordering::Acquire) {
            SYNC_PENDING => None,
            SYNC_FAILED => Some(codes::KAFKA_STORAGE_ERROR),
            _ => Some(codes::NONE),
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
    use super::*;
    use crate::syncer::tests::Logs;

    struct Ignored;

    impl Watcher for Ignored {
        fn log_advanced(&self) {}
    }

    /// An answer of zeros that waits for two partitions, at 10 and 40, and their jobs.
    fn delayed(logs: &Logs) -> (DelayedProduce, Vec<SyncJob>) {
        let batch = |name: &str, code_at| AppendedBatch {
            log: logs.open(name),
            code_at,
        };
        let batches = vec![batch("one", 10), batch("two", 40)];
        let delayed = DelayedProduce::new(vec![0; 60], batches);
        let watcher: Arc<dyn Watcher> = Arc::new(Ignored);
        let jobs = delayed.sync_jobs(&watcher);
        (delayed, jobs)
    }

    #[test]
    fn an_answer_waits_for_every_partition_and_says_success_when_all_are_on_the_disk() {
        let logs = Logs::new();
        let (delayed, jobs) = delayed(&logs);
        for job in jobs {
            assert!(!delayed.is_ready());
            (job.on_synced)(true);
        }
        assert!(delayed.is_ready());
        assert_eq!(delayed.complete(), [0; 60]);
    }

    #[test]
    fn a_partition_that_cannot_be_synced_is_not_acknowledged_and_the_others_are() {
        let logs = Logs::new();
        let (delayed, mut jobs) = delayed(&logs);
        (jobs.pop().unwrap().on_synced)(false);
        (jobs.pop().unwrap().on_synced)(true);
        let answer = delayed.complete();
        assert_eq!(answer[..40], [0; 40]);
        assert_eq!(answer[40..42], codes::KAFKA_STORAGE_ERROR.to_be_bytes());
        assert_eq!(answer[42..58], [0xff; 16]);
        assert_eq!(answer[58..], [0; 2]);
    }

    #[test]
    fn a_partition_that_is_not_done_in_time_is_timed_out_and_keeps_its_offset() {
        let logs = Logs::new();
        let (delayed, mut jobs) = delayed(&logs);
        (jobs.pop().unwrap().on_synced)(true);
        assert!(!delayed.is_ready());
        let answer = delayed.complete();
        assert_eq!(answer[10..12], codes::REQUEST_TIMED_OUT.to_be_bytes());
        assert_eq!((&answer[..10], &answer[12..]), (&[0; 10][..], &[0; 48][..]));
    }
}
