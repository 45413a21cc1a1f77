//! The watchers of a log: requests that wait for it to grow.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Someone who waits for a log to grow.
pub trait Watcher: Send + Sync {
    /// One of the log's offsets moved, or the log was closed. Called without the
    /// partition's lock, on the thread that appended; must not block.
    fn log_advanced(&self);

    /// True if it is not to be called again: the log forgets it.
    fn is_spent(&self) -> bool {
        false
    }
}

/// The watchers that are woken when the log advances. Copied to be woken, so that waking holds no
/// lock and a watcher may leave while it is called.
///
/// Cost: logarithmic in the watchers to come and to leave, linear to wake.
#[derive(Default)]
pub(crate) struct Watchers {
    next_id: AtomicU64,
    by_id: Mutex<BTreeMap<u64, Arc<dyn Watcher>>>,
}

impl Watchers {
    pub fn add(&self, watcher: Arc<dyn Watcher>) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(id, watcher);
        id
    }

    pub fn remove(&self, id: u64) {
        self.lock().remove(&id);
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    pub fn wake(&self) {
        let by_id = |(id, watcher): (&u64, &Arc<dyn Watcher>)| (*id, Arc::clone(watcher));
        let watchers: Vec<_> = self.lock().iter().map(by_id).collect();
        for (id, watcher) in watchers {
            watcher.log_advanced();
            if watcher.is_spent() {
                self.remove(id);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<dyn Watcher>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
