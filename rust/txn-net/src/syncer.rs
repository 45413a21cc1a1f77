//! The thread that syncs acknowledged batches before they are acknowledged.
//!
//! With `durability=always` the answer to a Produce waits for it, and with `durability=commit` that
//! of a producer whose transactions another system decides on. The thread takes all jobs that wait,
//! syncs every log once, and calls back. So the more clients wait, the more answers one sync pays
//! for (group commit). Jobs that arrive during a sync belong to the next. The first job starts the
//! thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use txn_log::PartitionLog;

/// A log to be synced, and the call that follows.
pub struct SyncJob {
    pub log: Arc<PartitionLog>,
    /// Told whether everything appended before the job is on the disk.
    pub on_synced: Box<dyn FnOnce(bool) + Send>,
}

/// The queue to the thread, and the thread.
#[derive(Default)]
pub struct Syncer {
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: Vec<SyncJob>,
    is_stopping: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Syncer {
    /// Syncs the logs and calls back; on the calling thread if the system has no other left.
    pub fn sync(&self, jobs: Vec<SyncJob>) {
        if self.is_running() {
            self.queue.lock().jobs.extend(jobs);
            self.queue.changed.notify_one();
        } else {
            sync_all(jobs, |log| log.sync().is_ok());
        }
    }

    fn is_running(&self) -> bool {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let queue = Arc::clone(&self.queue);
            let name = "txn-syncer".to_owned();
            *thread = thread::Builder::new()
                .name(name)
                .spawn(move || run(&queue))
                .ok();
        }
        thread.is_some()
    }

    /// Finishes the jobs, and the thread.
    pub fn stop(&self) {
        self.queue.lock().is_stopping = true;
        self.queue.changed.notify_one();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(queue: &Queue) {
    loop {
        let mut waiting = queue.lock();
        while waiting.jobs.is_empty() && !waiting.is_stopping {
            waiting = queue
                .changed
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if waiting.jobs.is_empty() {
            return;
        }
        let jobs = std::mem::take(&mut waiting.jobs);
        drop(waiting);
        sync_all(jobs, |log| log.sync().is_ok());
    }
}

/// Syncs every log once and calls back for each job.
fn sync_all(jobs: Vec<SyncJob>, mut sync: impl FnMut(&PartitionLog) -> bool) {
    let mut synced: Vec<(Arc<PartitionLog>, bool)> = Vec::new();
    for SyncJob { log, on_synced } in jobs {
        let known = synced.iter().find(|(other, _)| Arc::ptr_eq(other, &log));
        let is_synced = if let Some((_, is_synced)) = known {
            *is_synced
        } else {
            let is_synced = sync(&log);
            synced.push((log, is_synced));
            is_synced
        };
        on_synced(is_synced);
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use txn_log::producer_state::{
        AbortedTxn, AdmitResult, Candidate, LastBatch, Marker, ProducerStateError,
        ProducerStateManager, ReplayedBatch,
    };
    use txn_log::{Past, Settings};

    /// The producer state of a log that takes nothing of producers.
    pub struct Shut;

    impl ProducerStateManager for Shut {
        fn admit(&self, _: &Candidate) -> AdmitResult {
            AdmitResult::Refuse { code: -1 }
        }

        fn admit_marker(&self, _: i64, _: &Marker) -> AdmitResult {
            AdmitResult::Refuse { code: -1 }
        }

        fn forget_below(&self, _: i64) {}

        fn forget_aborted(&self, _: &[i64]) -> Result<(), ProducerStateError> {
            Ok(())
        }

        fn last_batches(&self) -> Result<Vec<LastBatch>, ProducerStateError> {
            Ok(Vec::new())
        }

        fn snapshot(&self) -> Result<Vec<u8>, ProducerStateError> {
            Ok(Vec::new())
        }

        fn restore(&self, _: Option<&[u8]>, _: &[AbortedTxn]) -> Result<(), ProducerStateError> {
            Ok(())
        }

        fn replay(&self, _: &[ReplayedBatch]) -> Result<Vec<AbortedTxn>, ProducerStateError> {
            Ok(Vec::new())
        }

        fn backfill(&self, _: &[ReplayedBatch]) -> Result<(), ProducerStateError> {
            Ok(())
        }

        fn first_unstable_offset(&self) -> Result<Option<i64>, ProducerStateError> {
            Ok(None)
        }
    }

    /// Empty logs in a directory that goes with this.
    pub struct Logs(tempfile::TempDir);

    impl Logs {
        pub fn new() -> Self {
            Self(tempfile::TempDir::new().unwrap())
        }

        pub fn open(&self, name: &str) -> Arc<PartitionLog> {
            let path = self.0.path().join(name);
            let log = PartitionLog::open(
                path,
                Arc::new(Shut),
                Settings::default(),
                None,
                Past::default(),
            );
            Arc::new(log.unwrap())
        }
    }

    /// A job that notes its result.
    fn job(log: &Arc<PartitionLog>, told: &Arc<Mutex<Vec<bool>>>) -> SyncJob {
        let told = Arc::clone(told);
        SyncJob {
            log: Arc::clone(log),
            on_synced: Box::new(move |is_synced| told.lock().unwrap().push(is_synced)),
        }
    }

    #[test]
    fn one_sync_of_a_log_is_told_to_every_job_that_waits_for_it() {
        let logs = Logs::new();
        let (good, bad) = (logs.open("good"), logs.open("bad"));
        let told = Arc::default();
        let jobs = [&good, &bad, &good].map(|log| job(log, &told));
        let mut synced = Vec::new();
        sync_all(jobs.into(), |log| {
            synced.push(log.directory().to_owned());
            log.directory() == good.directory()
        });
        assert_eq!(synced, [good.directory(), bad.directory()]);
        assert_eq!(*told.lock().unwrap(), [true, false, true]);
    }
}
