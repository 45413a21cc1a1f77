//! Directories in memory, of processes that may end in any way.

use std::fs;
use std::path::Path;
use std::process;
use std::sync::Once;

use tempfile::{Builder, TempDir};

const PREFIX: &str = "txn-fuzz-";
static CLEARED: Once = Once::new();

/// A directory that no disk has to keep.
pub(crate) fn directory() -> TempDir {
    let shared = Path::new("/dev/shm");
    let place = if shared.is_dir() {
        shared.to_owned()
    } else {
        std::env::temp_dir()
    };
    // The server of the request path lives until its process ends, which drops nothing.
    CLEARED.call_once(|| remove_left(&place));
    let prefix = format!("{PREFIX}{}-", process::id());
    let made = Builder::new().prefix(&prefix).tempdir_in(place);
    made.expect("a directory in memory")
}

/// Removes the directories of processes that are gone.
fn remove_left(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if let Some((process, _)) = name.and_then(|rest| rest.split_once('-'))
            && process.parse::<u32>().is_ok()
            && !Path::new("/proc").join(process).exists()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_processes_that_are_gone_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let of = |process: u32| place.path().join(format!("{PREFIX}{process}-ab"));
        for process in [process::id(), u32::MAX] {
            fs::create_dir(of(process)).unwrap();
        }
        remove_left(place.path());
        assert!(of(process::id()).exists());
        assert!(!of(u32::MAX).exists());
    }
}
