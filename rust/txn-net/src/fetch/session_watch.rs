//! Watchers on the logs of a session's partitions.
//!
//! A watcher fires once: it names its partition to the session, and calls the request that waits. Then its
//! log forgets it. So a session that nobody uses any more costs an append nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use txn_log::{PartitionLog, Watcher};

/// Notes which partitions of a session may have changed.
#[derive(Default)]
pub struct Alarm(Mutex<Fired>);

#[derive(Default)]
pub struct Fired {
    pub slots: Vec<u32>,
    /// The request of the session that waits.
    pub waiter: Option<Arc<dyn Watcher>>,
}

impl Alarm {
    pub fn lock(&self) -> MutexGuard<'_, Fired> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The watcher on the log of one partition.
struct PartitionAlarm {
    slot: u32,
    has_fired: AtomicBool,
    alarm: Arc<Alarm>,
}

impl Watcher for PartitionAlarm {
    fn log_advanced(&self) {
        if self.has_fired.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut fired = self.alarm.lock();
        fired.slots.push(self.slot);
        let waiter = fired.waiter.clone();
        drop(fired);
        if let Some(waiter) = waiter {
            waiter.log_advanced();
        }
    }

    fn is_spent(&self) -> bool {
        true
    }
}

/// A watch on a log, which dropping takes back. It keeps no log that is deleted.
pub struct LogWatch {
    log: Weak<PartitionLog>,
    id: u64,
    alarm: Arc<PartitionAlarm>,
}

impl LogWatch {
    /// Watches the log of the partition in a slot.
    pub fn new(log: &Arc<PartitionLog>, slot: u32, alarm: &Arc<Alarm>) -> Self {
        let alarm = Arc::new(PartitionAlarm {
            slot,
            has_fired: AtomicBool::new(false),
            alarm: Arc::clone(alarm),
        });
        Self {
            log: Arc::downgrade(log),
            id: log.watch(Arc::clone(&alarm) as Arc<dyn Watcher>),
            alarm,
        }
    }

    /// True if a change of the log from now on is not missed.
    pub fn is_live(&self, log: &Arc<PartitionLog>) -> bool {
        !self.alarm.has_fired.load(Ordering::Acquire)
            && std::ptr::eq(self.log.as_ptr(), Arc::as_ptr(log))
    }
}

impl Drop for LogWatch {
    fn drop(&mut self) {
        if let Some(log) = self.log.upgrade() {
            log.unwatch(self.id);
        }
    }
}
