//! Threads that force logs to the disk, side by side, for somebody who must not block.
//!
//! A file system with a journal writes it once for many files that are forced at the same time. One
//! after the other, each would wait for a commit of its own.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::log::PartitionLog;

/// The result of a set of logs.
#[derive(Debug, PartialEq, Eq)]
pub struct Pass {
    /// The number that `submit` was given.
    pub number: u64,
    /// The logs that could not be forced, by their place in the set, and the disk's error.
    pub failures: Vec<(usize, String)>,
}

/// Told, on one of the threads, that a pass has ended.
pub type OnPass = Box<dyn Fn(Pass) + Send + Sync>;

/// The threads. They are started when they are first needed.
pub struct SyncPool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    threads_max: usize,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    on_pass: OnPass,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    is_stopping: bool,
}

struct Job {
    log: Arc<PartitionLog>,
    index: usize,
    pass: Arc<Mutex<UnderWay>>,
}

struct UnderWay {
    pass: Pass,
    left: usize,
}

impl SyncPool {
    /// Makes a pool that has no thread yet.
    #[must_use]
    pub fn new(threads_max: usize, on_pass: OnPass) -> Self {
        let shared = Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            on_pass,
        };
        Self {
            shared: Arc::new(shared),
            threads: Mutex::default(),
            threads_max,
        }
    }

    /// Forces logs, and tells `on_pass` when each was forced or failed. Returns at once.
    ///
    /// # Errors
    /// There is no thread and the system has none left, or the pool was stopped.
    pub fn submit(&self, number: u64, logs: Vec<Arc<PartitionLog>>) -> io::Result<()> {
        if logs.is_empty() {
            (self.shared.on_pass)(Pass {
                number,
                failures: Vec::new(),
            });
            return Ok(());
        }
        let pass = Arc::new(Mutex::new(UnderWay {
            pass: Pass {
                number,
                failures: Vec::new(),
            },
            left: logs.len(),
        }));
        let mut queue = self.shared.lock();
        if queue.is_stopping {
            return Err(io::Error::other("the broker is stopping"));
        }
        let missing = (queue.jobs.len() + logs.len()).saturating_sub(queue.idle);
        self.start_threads(missing)?;
        let count = logs.len();
        for (index, log) in logs.into_iter().enumerate() {
            let pass = Arc::clone(&pass);
            queue.jobs.push_back(Job { log, index, pass });
        }
        drop(queue);
        for _ in 0..count {
            self.shared.changed.notify_one();
        }
        Ok(())
    }

    /// Finishes the submitted sets, and the threads.
    pub fn stop(&self) {
        self.shared.lock().is_stopping = true;
        self.shared.changed.notify_all();
        let threads = std::mem::take(&mut *self.threads());
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_threads(&self, missing: usize) -> io::Result<()> {
        let mut threads = self.threads();
        let wanted = missing.min(self.threads_max - threads.len());
        for _ in 0..wanted {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new()
                .name("txn-sync".to_owned())
                .spawn(move || shared.run());
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) if threads.is_empty() => return Err(error),
                Err(_) => break, // those there are do it
            }
        }
        Ok(())
    }
}

impl Drop for SyncPool {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some(job) = self.next() {
            let synced = catch_unwind(AssertUnwindSafe(|| job.log.sync()));
            let synced = synced.unwrap_or_else(|_| Err(io::Error::other("a bug broke off a sync")));
            let mut under_way = job.pass.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = synced {
                let failure = (job.index, error.to_string());
                under_way.pass.failures.push(failure);
            }
            under_way.left -= 1;
            if under_way.left == 0 {
                let failures = std::mem::take(&mut under_way.pass.failures);
                let number = under_way.pass.number;
                drop(under_way);
                (self.on_pass)(Pass { number, failures });
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        queue.idle += 1;
        while queue.jobs.is_empty() && !queue.is_stopping {
            queue = self
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        queue.idle -= 1;
        queue.jobs.pop_front()
    }
}
