//! The durability service: it reports when the records of a log are on the disk.
//!
//! Every part of a broker that waits for the disk calls [`Durability::when_durable`]: a reactor
//! with an answer to Produce, the control loop with a commit, the background with a flush.
//!
//! # Group commit
//! Each log has a queue of waiters, and at most one sync of a log is under way. A sync covers all
//! records that the log has when it begins. So it serves the waiters that came before it, and later
//! ones whose records it covers. The others share the next sync. A waiter whose records are on the
//! disk already is called at once, the others in the order of their syncs. The durable end of a log
//! is its [`PartitionLog::recovery_point`].
//!
//! Different logs are synced in parallel. A journaling file system commits its journal once for
//! many files that are synced at the same time. In sequence, each sync would wait for a commit of
//! its own.
//!
//! # Failures
//! A failed sync is final for its log, and its write health reports it once. Every waiter of the
//! log, now and later, gets the failure; waiters of other logs do not. The waiters of a log that is
//! truncated get an error, too: their records may be gone.
//!
//! # Threads
//! There are at most `threads_max` threads, each started when it is first needed. If the system has
//! none, and after [`Durability::stop`], the calling thread syncs.
//!
//! # Locks
//! The lock of the queue is held only for a few steps. No log is synced and no waiter is called
//! under it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::log::PartitionLog;

/// Called once: the records are on the disk, or the reason why that is unknown. It runs on a
/// thread of the service or, inside `when_durable`, on the caller's; it must not block.
pub type OnDurable = Box<dyn FnOnce(Result<(), &io::Error>) + Send>;

/// The service, and its threads.
pub struct Durability {
    queue: Arc<SyncQueue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    threads_max: usize,
}

#[derive(Default)]
struct SyncQueue {
    pending: Mutex<PendingSyncs>,
    changed: Condvar,
}

#[derive(Default)]
struct PendingSyncs {
    /// Logs whose sync has to begin, the first to wait first.
    due: VecDeque<Arc<PartitionLog>>,
    /// The waiters of each log that is due or being synced; the latter's line may be empty.
    lines: HashMap<LogId, Vec<Waiter>>,
    /// Threads that wait for a log.
    idle: usize,
    is_stopping: bool,
}

/// The address of a log: no other has it while an `Arc` of the log is held beside it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct LogId(usize);

impl LogId {
    fn of(log: &Arc<PartitionLog>) -> Self {
        Self(Arc::as_ptr(log) as usize)
    }
}

struct Waiter {
    /// The end of its records.
    offset: i64,
    /// Those of the log when it began to wait.
    truncations: u64,
    on_durable: OnDurable,
}

impl Waiter {
    /// True if the log was truncated since: its records may be gone.
    fn is_orphaned(&self, log: &PartitionLog) -> bool {
        self.truncations != log.truncations()
    }
}

impl Durability {
    /// Makes a service that has no thread yet.
    #[must_use]
    pub fn new(threads_max: usize) -> Self {
        Self {
            queue: Arc::default(),
            threads: Mutex::default(),
            threads_max,
        }
    }

    /// Calls back once all records of a log below `offset` are on the disk, or if that fails.
    ///
    /// The offset is at most the log end. The records of a deleted log count as synced.
    pub fn when_durable(&self, log: &Arc<PartitionLog>, offset: i64, on_durable: OnDurable) {
        self.when_each_durable([(log, offset, on_durable)]);
    }

    /// As `when_durable`, for several waits at once.
    pub fn when_each_durable<'a>(
        &self,
        waits: impl IntoIterator<Item = (&'a Arc<PartitionLog>, i64, OnDurable)>,
    ) {
        let (mut pending, mut due) = (None, 0);
        for (log, offset, on_durable) in waits {
            if log.is_durable(offset) {
                pending = None; // nobody is called under the lock
                on_durable(Ok(()));
                continue;
            }
            let waiter = Waiter {
                offset,
                truncations: log.truncations(),
                on_durable,
            };
            let pending = pending.get_or_insert_with(|| self.queue.lock());
            match pending.lines.entry(LogId::of(log)) {
                Entry::Occupied(mut line) => line.get_mut().push(waiter),
                Entry::Vacant(line) => {
                    line.insert(vec![waiter]);
                    pending.due.push_back(Arc::clone(log));
                    due += 1;
                }
            }
        }
        drop(pending);
        if due > 0 {
            self.begin(due);
        }
    }

    /// Wake up to `due` sync threads; sync inline if none runs.
    fn begin(&self, due: usize) {
        let pending = self.queue.lock();
        let has_thread = self.has_threads(&pending);
        let to_wake = due.min(pending.idle);
        drop(pending);
        if has_thread {
            for _ in 0..to_wake {
                self.queue.changed.notify_one();
            }
        } else {
            while let Some(log) = self.queue.try_next() {
                self.queue.sync(&log);
            }
        }
    }

    /// Forces the part of each log that is due, see [`PartitionLog::flush_due`]. Blocks. One log
    /// after the other, so that no other waiter stands in line behind many.
    pub fn flush_due<'a>(&self, logs: impl IntoIterator<Item = &'a Arc<PartitionLog>>) {
        for log in logs {
            let Some(offset) = log.flush_due() else {
                continue;
            };
            let (tell, told) = sync_channel(1);
            let on_durable = move |_: Result<(), &io::Error>| tell.send(()).expect("it waits");
            self.when_durable(log, offset, Box::new(on_durable));
            told.recv().expect("every waiter is called");
        }
    }

    /// Finishes all that is due, and the threads.
    pub fn stop(&self) {
        self.queue.lock().is_stopping = true;
        self.queue.changed.notify_all();
        let threads = std::mem::take(&mut *self.threads());
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts more threads if all are busy; says whether there is one.
    fn has_threads(&self, pending: &PendingSyncs) -> bool {
        if pending.is_stopping {
            return false;
        }
        let mut threads = self.threads();
        let missing = pending.due.len().saturating_sub(pending.idle);
        for _ in threads.len()..self.threads_max.min(threads.len() + missing) {
            let queue = Arc::clone(&self.queue);
            let thread = thread::Builder::new()
                .name("txn-sync".to_owned())
                .spawn(move || queue.run());
            threads.extend(thread); // if the system has no more, those there are do it
        }
        !threads.is_empty()
    }
}

impl Drop for Durability {
    fn drop(&mut self) {
        self.stop();
    }
}

impl SyncQueue {
    fn lock(&self) -> MutexGuard<'_, PendingSyncs> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some(log) = self.next() {
            self.sync(&log);
        }
    }

    /// Waits for a log that is due; `None` at the stop.
    fn next(&self) -> Option<Arc<PartitionLog>> {
        let mut pending = self.lock();
        pending.idle += 1;
        while pending.due.is_empty() && !pending.is_stopping {
            pending = self
                .changed
                .wait(pending)
                .unwrap_or_else(PoisonError::into_inner);
        }
        pending.idle -= 1;
        pending.due.pop_front()
    }

    fn try_next(&self) -> Option<Arc<PartitionLog>> {
        self.lock().due.pop_front()
    }

    /// Forces a log, and calls the waiters that this serves.
    fn sync(&self, log: &Arc<PartitionLog>) {
        let id = LogId::of(log);
        let first = self.lock().lines.get_mut(&id).map(std::mem::take);
        let first = first.unwrap_or_default();
        let furthest = first.iter().map(|waiter| waiter.offset).max();
        let synced = catch_unwind(AssertUnwindSafe(|| {
            log.sync_up_to(furthest.unwrap_or_default())
        }));
        let synced = synced.unwrap_or_else(|_| {
            let bug = io::Error::other("a bug broke off a sync");
            log.fail_after_sync(&bug);
            Err(bug)
        });
        let late = self.take_served(log, &synced);
        for waiter in first.into_iter().chain(late) {
            let orphaned;
            let outcome = match &synced {
                Err(error) => Err(error),
                Ok(end) if waiter.offset <= *end && !waiter.is_orphaned(log) => Ok(()),
                Ok(_) => {
                    orphaned = gone(log);
                    Err(&orphaned)
                }
            };
            // The next waiters hear of it even if this one has a bug.
            let _ = catch_unwind(AssertUnwindSafe(|| (waiter.on_durable)(outcome)));
        }
        self.requeue(log);
    }

    /// Takes the waiters that came during a sync and need no other.
    fn take_served(&self, log: &Arc<PartitionLog>, synced: &io::Result<i64>) -> Vec<Waiter> {
        let is_served = |waiter: &Waiter| match synced {
            Ok(end) => waiter.offset <= *end || waiter.is_orphaned(log),
            Err(_) => true,
        };
        let mut pending = self.lock();
        let line = pending.lines.get_mut(&LogId::of(log));
        let (served, left) = line
            .map(std::mem::take)
            .unwrap_or_default()
            .into_iter()
            .partition(is_served);
        pending.lines.insert(LogId::of(log), left);
        served
    }

    /// The log is due again if there are more waiters. No thread is woken: this one takes the next.
    fn requeue(&self, log: &Arc<PartitionLog>) {
        let mut pending = self.lock();
        if pending
            .lines
            .get(&LogId::of(log))
            .is_some_and(Vec::is_empty)
        {
            pending.lines.remove(&LogId::of(log));
            return;
        }
        pending.due.push_back(Arc::clone(log));
    }
}

/// The records that were waited for are no longer in the log.
#[cold]
fn gone(log: &PartitionLog) -> io::Error {
    let directory = log.directory().display();
    io::Error::other(format!(
        "{directory}: the records that were to be forced are no longer in the log"
    ))
}
