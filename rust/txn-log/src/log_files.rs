//! The names of the files of a log, and the removal of files.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::disk;
use crate::segment::file_path;

/// Names the topic that a partition's directory is of.
pub(crate) const METADATA_NAME: &str = "partition.metadata";
/// The suffix of the names of a removed segment's files.
pub(crate) const DELETED_SUFFIX: &str = "deleted";
/// The files of a segment; `.log` first, for without it the others mean nothing.
pub(crate) const SEGMENT_FILES: [&str; 4] = ["log", "index", "timeindex", "txnindex"];

/// Files on their way out, and when they go.
#[derive(Debug, Default)]
pub(crate) struct PendingDeletes(Mutex<VecDeque<(Instant, PathBuf)>>);

impl PendingDeletes {
    pub fn push(&self, due: Instant, path: PathBuf) {
        self.lock().push_back((due, path));
    }

    /// Removes files whose time has come. The next start tries again to remove the rest.
    pub fn remove_due(&self, now: Instant) {
        let mut files = self.lock();
        while files.front().is_some_and(|(due, _)| *due <= now) {
            let (_, path) = files.pop_front().expect("looked at above");
            let _ = disk::remove_if_there(&path);
        }
    }

    /// Removes everything.
    pub fn remove_all(&self) {
        for (_, path) in self.lock().drain(..) {
            let _ = disk::remove_if_there(&path);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, PathBuf)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a segment's files, at once.
pub(crate) fn remove_segment(directory: &Path, base_offset: i64) -> io::Result<()> {
    for extension in SEGMENT_FILES {
        disk::remove_if_there(&file_path(directory, base_offset, extension))?;
    }
    Ok(())
}
