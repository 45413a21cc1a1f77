//! Notices that a directory was moved away, removed or replaced under the broker.
//!
//! Open files go with a directory that is moved, and names do not. The next start then misses the
//! bytes that are written to them, and new files are made elsewhere. So no sync succeeds of a file
//! that is not at its path, and no file is made then. The data directory is told by its lock file:
//! no other one has that inode while the broker holds it open.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::log::PartitionLog;

const LOCK_FILE_NAME: &str = ".lock";

/// The lock file of a data directory: device and inode.
pub type LockFile = (u64, u64);

/// Fails unless a file is found at its path. A path that cannot be looked at proves nothing.
pub(crate) fn require_at(path: &Path, is_it: impl FnOnce(&Metadata) -> bool) -> io::Result<()> {
    match path.metadata() {
        Ok(found) if is_it(&found) => Ok(()),
        Ok(_) => Err(gone(path, "is another file than before")),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Err(gone(path, "is gone")),
            _ => Ok(()),
        },
    }
}

fn gone(path: &Path, what: &str) -> io::Error {
    let name = path.display();
    io::Error::other(format!(
        "{name} {what}: something else than this broker moved, removed or replaced it"
    ))
}

impl PartitionLog {
    /// Tells the lock file of its data directory. Without one, no lock file is looked for. Before
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
