//! The offset up to which a log is on the disk.

use std::time::Instant;

/// Up to where a log is on the disk. Separate from the writer: appends go on while the disk
/// works.
#[derive(Debug)]
pub(crate) struct SyncedEnd {
    pub end: i64,
    /// The time of the last sync.
    pub at: Instant,
}

impl SyncedEnd {
    pub fn new(end: i64) -> Self {
        Self {
            end,
            at: Instant::now(),
        }
    }

    /// Lowers a recovery point that is no longer in the log.
    pub fn lower_to(&mut self, end: i64) {
        self.end = self.end.min(end);
    }
}
