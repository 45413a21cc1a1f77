//! Threads that decompress large batches, which would keep a reactor from its other connections.
//!
//! A Produce whose compressed batches are large, or have to be recompressed with their topic's
//! codec, comes here with its frame. Its batches are opened one at a time, and after each the
//! request goes to the end of the queue: a client that sends many large batches delays only itself.
//! Then the request returns to its reactor, which appends. With `REPACKED_BYTES_MAX` of
//! recompressed bytes it returns earlier, and comes here again. There are as many threads as
//! reactors, started by the first such request.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::kept_produce::KeptProduce;
use crate::mailbox::{Mailbox, Message};
use crate::produce::{REPACKED_BYTES_MAX, Unopened};
use crate::token::RequestToken;

/// A Produce whose batches are opened here.
pub struct Large {
    pub token: RequestToken,
    pub mailbox: Arc<Mailbox>,
    pub produce: KeptProduce,
    /// The batches still to be opened.
    pub batches: VecDeque<Unopened>,
    /// Bytes that wait for their append.
    pub repacked: usize,
}

impl Large {
    /// Opens one batch; false once there is none, or enough to append.
    fn open_next(&mut self) -> bool {
        if let Some(batch) = self.batches.pop_front() {
            self.repacked += self.produce.request.open(&self.produce.body, &batch);
        }
        !self.batches.is_empty() && self.repacked < REPACKED_BYTES_MAX
    }

    fn finish(self: Box<Self>) {
        let (token, mailbox) = (self.token, Arc::clone(&self.mailbox));
        mailbox.post(Message::Opened(token, self));
    }
}

/// The queue to the threads, and the threads.
pub struct Opener {
    queue: Arc<Queue>,
    threads_max: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Box<Large>>,
    is_stopping: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request whose turn it is; `None` once there will be none.
    fn next(&self) -> Option<Box<Large>> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_stopping {
                return None;
            }
            if let Some(request) = waiting.requests.pop_front() {
                return Some(request);
            }
            let woken = self.changed.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Opener {
    /// A pool of at most so many threads.
    pub fn new(threads_max: usize) -> Self {
        Self {
            queue: Arc::default(),
            threads_max,
            threads: Mutex::default(),
        }
    }

    /// Opens the batches of a request and posts it back; on the calling thread if the system has no
    /// other left.
    pub fn open(&self, mut request: Box<Large>) {
        if self.is_running() {
            self.queue.lock().requests.push_back(request);
            self.queue.changed.notify_one();
        } else {
            while request.open_next() {}
            request.finish();
        }
    }

    fn is_running(&self) -> bool {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        while threads.len() < self.threads_max {
            let queue = Arc::clone(&self.queue);
            let name = format!("txn-opener-{}", threads.len());
            let Ok(thread) = thread::Builder::new().name(name).spawn(move || run(&queue)) else {
                break;
            };
            threads.push(thread);
        }
        !threads.is_empty()
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        let mut waiting = self.queue.lock();
        waiting.is_stopping = true;
        waiting.requests.clear();
        drop(waiting);
        self.queue.changed.notify_all();
        let threads = std::mem::take(
            self.threads
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn run(queue: &Queue) {
    while let Some(mut request) = queue.next() {
        let (token, mailbox) = (request.token, Arc::clone(&request.mailbox));
        match catch_unwind(AssertUnwindSafe(|| request.open_next())) {
            Ok(true) => queue.lock().requests.push_back(request),
            Ok(false) => request.finish(),
            Err(_) => {
                mailbox.post(Message::Disconnect(token)); // a bug; as in a connection's turn
            }
        }
    }
}
