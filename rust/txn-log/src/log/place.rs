//! The place of a log on the disk: nothing is written once its directory is elsewhere.

use std::io;
use std::os::unix::fs::MetadataExt;

use crate::in_place::{LockFile, require_at};
use crate::log::PartitionLog;

const LOCK_FILE_NAME: &str = ".lock";

impl PartitionLog {
    /// Sets the lock file of its data directory. Without one, no lock file is looked for. Before
    /// the first append.
    pub fn set_lock_file(&self, lock_file: LockFile) {
        let _ = self.lock_file.set(lock_file);
    }

    /// Fails unless data directory and active segment are at their paths.
    pub(crate) fn require_in_place(&self) -> io::Result<()> {
        if let (Some(&lock_file), Some(root)) = (self.lock_file.get(), self.directory.parent()) {
            require_at(&root.join(LOCK_FILE_NAME), |found| {
                (found.dev(), found.ino()) == lock_file
            })?;
        }
        let segments = self.segments();
        segments
            .last()
            .map_or(Ok(()), |active| active.file.require_in_place())
    }
}
