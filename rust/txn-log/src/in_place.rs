//! Detects that a directory was moved away, removed or replaced under the broker.
//!
//! Open files stay open when a directory is moved, but names are resolved anew. So the next start
//! would miss the bytes written to them, and new files would be created elsewhere. Therefore a sync
//! fails if its file is not at its path, and no file is created then. The lock file identifies the
//! data directory: no other file has its inode while the broker holds it open.

use std::fs::Metadata;
use std::io;
use std::path::Path;

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
