//! Waiting for a log to grow.

use std::sync::Arc;

use crate::log::PartitionLog;
use crate::watchers::Watcher;

impl PartitionLog {
    /// Calls `watcher` whenever the log advances, until `unwatch` with the returned id.
    ///
    /// Look at `state` after this, not before: appends in between are not announced.
    #[must_use]
    pub fn watch(&self, watcher: Arc<dyn Watcher>) -> u64 {
        self.watchers.add(watcher)
    }

    /// Stops calling a watcher; a call under way on another thread may still end after this.
    pub fn unwatch(&self, id: u64) {
        self.watchers.remove(id);
    }

    /// Number of watchers.
    #[must_use]
    pub fn watcher_count(&self) -> usize {
        self.watchers.len()
    }
}
