//! Forks: no child of this process waits for the ring's lock for ever.
//!
//! A child has the ring, and of the threads only the one that forked. So that thread holds the
//! ring's lock over the fork, and releases it in parent and child. Another thread may have held a
//! file's lock, which stays locked in the child: the ring only tries it.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, Weak};

use super::ring::{RING, RingEntries};
use crate::disk;

thread_local! {
    static HELD: RefCell<Option<MutexGuard<'static, RingEntries>>> = const { RefCell::new(None) };
}

/// Makes every fork of the process wait for the ring, so that no child waits for it for ever.
///
/// # Errors
/// There is no memory for it.
pub fn hold_open_files_over_forks() -> io::Result<()> {
    txn_sys::at_fork(fork_begins, fork_ended, fork_in_child)
}

extern "C" fn fork_begins() {
    let entries = RING.lock();
    let _ = HELD.try_with(|held| held.replace(Some(entries)));
}

extern "C" fn fork_ended() {
    let _ = HELD.try_with(RefCell::take);
}

/// Runs in the child. The parent syncs the written files, so the child closes them as they are. The
/// answers under way are the parent's, too.
extern "C" fn fork_in_child() {
    if let Ok(Some(entries)) = HELD.try_with(RefCell::take) {
        for file in entries.iter().filter_map(Weak::upgrade) {
            file.forget_writes();
        }
    }
    RING.lent.store(0, Ordering::Relaxed);
    disk::forget_syncs_in_progress();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::open_files::ring::close_idle_files;

    #[test]
    fn no_other_thread_has_the_ring_while_one_forks() {
        fork_begins();
        let is_done = Arc::new(AtomicBool::new(false));
        let other = {
            let is_done = Arc::clone(&is_done);
            std::thread::spawn(move || {
                close_idle_files();
                is_done.store(true, Ordering::Release);
            })
        };
        std::thread::sleep(std::time::Duration::from_millis(50));
        let was_done = is_done.load(Ordering::Acquire);
        fork_ended();
        other.join().unwrap();
        assert!(!was_done);
        assert!(is_done.load(Ordering::Acquire));
    }
}
