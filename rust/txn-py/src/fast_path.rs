//! The fast path of `poll`: it is open for one thread at a time, and only while no rule about
//! positions, errors or callbacks has to run between two records.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of no thread.
const NOBODY: u64 = 0;

static THREADS: AtomicU64 = AtomicU64::new(NOBODY + 1);

thread_local! {
    static THREAD: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
}

fn this_thread() -> u64 {
    THREAD.with(|&number| number)
}

/// Whether a thread may read on the fast path, and when it last did.
pub(crate) struct FastPath {
    owner: AtomicU64,
    reader: AtomicU64,
    began: Instant,
    read_ns: AtomicU64,
}

impl FastPath {
    /// A path that is closed.
    pub(crate) fn new() -> Self {
        Self {
            owner: AtomicU64::new(NOBODY),
            reader: AtomicU64::new(NOBODY),
            began: Instant::now(),
            read_ns: AtomicU64::new(0),
        }
    }

    /// Opens it for the calling thread, and for no other.
    pub(crate) fn open(&self) {
        self.owner.store(this_thread(), Ordering::Release);
    }

    /// Closes it.
    pub(crate) fn close(&self) {
        self.owner.store(NOBODY, Ordering::Release);
    }

    /// True if it is open for the calling thread.
    pub(crate) fn is_open(&self) -> bool {
        self.owner.load(Ordering::Acquire) == this_thread()
    }

    /// Remembers that the calling thread has read a record.
    pub(crate) fn note_read(&self) {
        let now_ns = self.began.elapsed().as_nanos() as u64;
        self.reader.store(this_thread(), Ordering::Relaxed);
        self.read_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Seconds since the calling thread has read a record. None: another thread did, or nobody.
    pub(crate) fn read_age_s(&self) -> Option<f64> {
        let read_ns = self.read_ns.load(Ordering::Relaxed);
        let age_ns = (self.began.elapsed().as_nanos() as u64).saturating_sub(read_ns);
        let is_mine = self.reader.load(Ordering::Relaxed) == this_thread();
        is_mine.then_some(Duration::from_nanos(age_ns).as_secs_f64())
    }
}
