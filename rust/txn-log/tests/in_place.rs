//! A log whose directory is moved away, removed or replaced by something else.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use common::{CLIENT, append, open, plain};
use txn_log::{AppendError, LockFile, PartitionLog};

/// A data directory with a lock file, and the path of a partition in it.
fn data_directory(above: &Path) -> (PathBuf, LockFile) {
    let root = above.join("data");
    fs::create_dir(&root).unwrap();
    fs::write(root.join(".lock"), "").unwrap();
    let found = fs::metadata(root.join(".lock")).unwrap();
    (root, (found.dev(), found.ino()))
}

fn refused(log: &PartitionLog) -> String {
    match log.append(CLIENT, &mut plain(1, 180)) {
        Err(AppendError::Io(error)) => error.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_file_that_was_moved_away_is_not_synced() {
    let above = tempfile::tempdir().unwrap();
    let (root, _) = data_directory(above.path());
    let (log, _) = open(&root.join("orders-0"), false);
    append(&log, plain(1, 180));
    log.sync().unwrap();
    append(&log, plain(1, 180));
    fs::rename(&root, above.path().join("moved")).unwrap();
    let error = log.sync().unwrap_err().to_string();
    assert!(
        error.contains("00000000000000000000.log is gone"),
        "{error}"
    );
    assert_eq!(log.recovery_point(), 1);
}

#[test]
fn a_file_that_was_removed_is_not_synced() {
    let above = tempfile::tempdir().unwrap();
    let (root, _) = data_directory(above.path());
    let (log, _) = open(&root.join("orders-0"), false);
    append(&log, plain(1, 180));
    fs::remove_file(root.join("orders-0/00000000000000000000.log")).unwrap();
    assert!(log.sync().is_err());
}

#[test]
fn no_file_is_made_in_a_directory_that_took_the_place_of_the_former() {
    let above = tempfile::tempdir().unwrap();
    let (root, lock_file) = data_directory(above.path());
    let (unwritten, _) = open(&root.join("unwritten-0"), false);
    unwritten.set_lock_file(lock_file);
    fs::rename(&root, above.path().join("moved")).unwrap();
    let (copy, _) = data_directory(above.path());
    assert!(refused(&unwritten).contains(".lock is another file than before"));
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 1);

    fs::remove_dir_all(&copy).unwrap();
    fs::rename(above.path().join("moved"), &root).unwrap();
    append(&unwritten, plain(1, 180));
}

#[test]
fn no_data_directory_is_made_anew() {
    let above = tempfile::tempdir().unwrap();
    let root = above.path().join("data");
    let (log, _) = open(&root.join("orders-0"), false);
    let _ = refused(&log);
    assert!(!root.exists());
}

#[test]
fn a_log_does_not_roll_beside_another_that_took_its_place() {
    let above = tempfile::tempdir().unwrap();
    let (root, _) = data_directory(above.path());
    let partition = root.join("orders-0");
    let (log, _) = open(&partition, false);
    append(&log, plain(1, 180));
    fs::rename(&partition, root.join("moved-0")).unwrap();
    let (other, _) = open(&partition, false);
    append(&other, plain(1, 180));
    let before = fs::read_dir(&partition).unwrap().count();
    let error = (0..30).find_map(|_| log.append(CLIENT, &mut plain(1, 180)).err());
    assert!(matches!(error, Some(AppendError::Io(_))), "{error:?}");
    assert_eq!(fs::read_dir(&partition).unwrap().count(), before);
}
