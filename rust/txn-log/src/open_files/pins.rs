//! Pins: a written file may be closed before its sync, and the sync still reports lost bytes.
//!
//! Linux reports a failed write-back to each descriptor that was open when it happened. If no
//! descriptor got the report, the first one opened afterwards gets it (errseq, since 4.13). But the
//! report is kept with the inode in memory. The kernel may drop an inode that nothing holds once its
//! pages are clean, and a failed write-back makes them clean. A later open then finds no error and
//! its fdatasync succeeds, though the bytes are lost. So the inode of a written file is pinned from
//! its close to the next sync.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use txn_sys::Pin;

use super::ring::{OpenFile, RING};

/// Number of written files that may be closed without a sync. Each takes a
/// mapping; a process has 65,530 unless the machine's administrator changed that.
pub(super) const PINS_MAX: usize = 32 << 10;

/// A pinned inode, one of at most [`PINS_MAX`].
#[derive(Debug)]
pub(super) struct CountedPin(Pin);

impl CountedPin {
    pub fn of(file: &OpenFile) -> Option<Self> {
        if RING.pins.fetch_add(1, Ordering::Relaxed) < PINS_MAX
            && let Ok(pin) = Pin::of(file.as_fd())
        {
            return Some(Self(pin));
        }
        RING.pins.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// Reports a write-back that failed since the file was pinned.
    pub fn take_failure(self) -> io::Result<()> {
        self.0.take_failure()
    }
}

impl Drop for CountedPin {
    fn drop(&mut self) {
        RING.pins.fetch_sub(1, Ordering::Relaxed);
    }
}
