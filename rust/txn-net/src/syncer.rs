//! The thread that forces acknowledged batches to the disk before they are acknowledged.
//!
//! With `durability=always` the answer to a Produce waits here, and with `durability=commit` that
//! of a producer whose transactions another system decides on. The thread takes everything that
//! waits, syncs every partition once, and posts the answers: the more clients wait, the more
//! answers one sync pays for (group commit). Answers that arrive during a sync belong to the next.
//! It is started by the first answer that waits.

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};

use txn_log::PartitionLog;

use crate::mailbox::{Mailbox, Message, RequestToken};
use crate::produce::{AwaitingSync, set_storage_error};

/// An answer that waits for the disk.
pub struct DelayedResponse {
    pub token: RequestToken,
    pub mailbox: Arc<Mailbox>,
    /// The whole frame, as it is sent if every sync succeeds.
    pub answer: Vec<u8>,
    pub awaiting_sync: Vec<AwaitingSync>,
}

/// The producers whose transactional batches are on the disk before they are acknowledged.
///
/// It is asked behind the append: a batch that was appended before its producer came here is
/// found by who forces what there is from then on.
#[derive(Default)]
pub struct ForcedProducers(RwLock<HashSet<i64>>);

impl ForcedProducers {
    /// Takes a producer in, or lets it go.
    pub fn set(&self, producer_id: i64, is_forced: bool) {
        let mut ids = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if is_forced {
            ids.insert(producer_id);
        } else {
            ids.remove(&producer_id);
        }
    }

    pub fn contains(&self, producer_id: i64) -> bool {
        let ids = self.0.read().unwrap_or_else(PoisonError::into_inner);
        ids.contains(&producer_id)
    }
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
    held: Vec<DelayedResponse>,
    is_stopping: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Syncer {
    /// Sends an answer once its partitions are on the disk; on the calling thread if the system
    /// has no other left.
    pub fn hold(&self, held: DelayedResponse) {
        if self.is_running() {
            self.queue.lock().held.push(held);
            self.queue.changed.notify_one();
        } else {
            release(vec![held], |log| log.sync().is_ok());
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

    /// Finishes what waits, and the thread.
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
        while waiting.held.is_empty() && !waiting.is_stopping {
            waiting = queue
                .changed
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if waiting.held.is_empty() {
            return;
        }
        let held = std::mem::take(&mut waiting.held);
        drop(waiting);
        release(held, |log| log.sync().is_ok());
    }
}

/// Syncs every log once and posts the answers, with an error where a log could not be synced.
fn release(held: Vec<DelayedResponse>, mut sync: impl FnMut(&PartitionLog) -> bool) {
    let mut synced: Vec<(Arc<PartitionLog>, bool)> = Vec::new();
    for mut one in held {
        for (log, at) in std::mem::take(&mut one.awaiting_sync) {
            let known = synced.iter().find(|(other, _)| Arc::ptr_eq(other, &log));
            let is_synced = if let Some((_, is_synced)) = known {
                *is_synced
            } else {
                let is_synced = sync(&log);
                synced.push((log, is_synced));
                is_synced
            };
            if !is_synced {
                set_storage_error(&mut one.answer, at);
            }
        }
        one.mailbox.post(Message::Reply(one.token, one.answer));
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::mailbox;
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

    struct Logs(tempfile::TempDir);

    impl Logs {
        fn new() -> Self {
            Self(tempfile::TempDir::new().unwrap())
        }

        fn open(&self, name: &str) -> Arc<PartitionLog> {
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

    fn held(logs: &[(&Arc<PartitionLog>, usize)]) -> DelayedResponse {
        let poll = mio::Poll::new().unwrap();
        DelayedResponse {
            token: RequestToken::new(0, 0, 1),
            mailbox: Arc::new(mailbox::open(&poll, mio::Token(0)).unwrap()),
            answer: vec![0; 60],
            awaiting_sync: logs
                .iter()
                .map(|(log, at)| (Arc::clone(log), *at))
                .collect(),
        }
    }

    fn answer(mailbox: &Mailbox) -> Vec<u8> {
        match mailbox.take() {
            Some(Message::Reply(_, answer)) => answer,
            _ => panic!("no answer was posted"),
        }
    }

    #[test]
    fn one_sync_of_a_partition_releases_every_answer_that_waits_for_it() {
        let logs = Logs::new();
        let (one, two) = (logs.open("one"), logs.open("two"));
        let held = vec![held(&[(&one, 10), (&two, 30)]), held(&[(&one, 10)])];
        let mailboxes: Vec<_> = held.iter().map(|one| Arc::clone(&one.mailbox)).collect();
        let mut synced = Vec::new();
        release(held, |log| {
            synced.push(log.directory().to_owned());
            true
        });
        assert_eq!(synced, [one.directory(), two.directory()]);
        assert_eq!(answer(&mailboxes[0]), [0; 60]);
        assert_eq!(answer(&mailboxes[1]), [0; 60]);
    }

    #[test]
    fn a_partition_that_cannot_be_synced_is_not_acknowledged_and_the_others_are() {
        let logs = Logs::new();
        let (good, bad) = (logs.open("good"), logs.open("bad"));
        let held = held(&[(&good, 10), (&bad, 30)]);
        let mailbox = Arc::clone(&held.mailbox);
        release(vec![held], |log| log.directory() == good.directory());
        let answer = answer(&mailbox);
        assert_eq!(answer[..30], [0; 30]);
        assert_eq!(answer[30..32], 56_i16.to_be_bytes());
        assert_eq!(answer[32..48], [0xff; 16]);
    }
}
