//! The pool of open files, with room for very few. The maximum is the process's, so these tests
//! have a process of their own and run one after the other.

mod common;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use common::{append, delete_records, files, open};
use txn_log::builder::BatchBuilder;
use txn_log::disk::{self, Change, DiskFault, Witness};
use txn_log::{PartitionLog, ReadError, can_lend_files, open_files, set_open_files_max};
use txn_protocol::batch::{Batches, Codec, HEADER_BYTES};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn with_max(max: usize) -> MutexGuard<'static, ()> {
    let turn = ONE_AT_A_TIME.lock();
    set_open_files_max(max);
    turn.unwrap_or_else(PoisonError::into_inner)
}

/// One record that no other log and no other offset has.
fn record(log: usize, offset: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None);
    let value = format!("{log} {offset} ").repeat(20);
    builder.push(1000, Some(b"key"), Some(value.as_bytes()), &[]);
    builder.seal().unwrap()
}

fn log_of(directory: &Path, number: usize, records: i64) -> PartitionLog {
    let (log, _) = open(directory, false);
    for offset in 0..records {
        append(&log, record(number, offset));
    }
    log
}

/// Reads the batch at an offset, which has to be the one that was appended there.
fn read_checked(log: &PartitionLog, number: usize, offset: i64) -> Result<(), ReadError> {
    let bytes = log.read(offset, 1)?;
    let batch = Batches::new(&bytes).next().unwrap();
    assert_eq!(batch.base_offset(), offset);
    let appended = record(number, offset);
    assert_eq!(
        batch.bytes()[HEADER_BYTES..],
        appended[HEADER_BYTES..],
        "log {number}, offset {offset}"
    );
    Ok(())
}

#[test]
fn every_read_is_right_while_files_are_closed_written_and_removed() {
    let _turn = with_max(3);
    let root = tempfile::tempdir().unwrap();
    let logs: Vec<PartitionLog> = (0..6)
        .map(|number| log_of(&root.path().join(number.to_string()), number, 30))
        .collect();
    let segments: usize = (0..6)
        .map(|number| files(&root.path().join(number.to_string()), "log").len())
        .sum();
    assert!(segments > 12, "{segments} segments");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..3u64)
            .map(|reader| {
                let (logs, is_done) = (&logs, &is_done);
                scope.spawn(move || {
                    let mut random = reader * 2 + 1;
                    let mut right = 0;
                    while right < 300 || !is_done.load(Ordering::Relaxed) {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        let number = (random >> 33) as usize % logs.len();
                        let log = &logs[number];
                        let state = log.state();
                        let count = state.log_end_offset - state.log_start_offset;
                        let offset = state.log_start_offset + (random >> 40) as i64 % count;
                        match read_checked(log, number, offset) {
                            Ok(()) => right += 1,
                            Err(ReadError::OutOfRange { start, .. }) => {
                                assert!(start < log.state().log_start_offset);
                            }
                            Err(error) => panic!("log {number}, offset {offset}: {error}"),
                        }
                    }
                })
            })
            .collect();
        for offset in 30..90 {
            for (number, log) in logs.iter().enumerate() {
                append(log, record(number, offset));
            }
            let log = &logs[offset as usize % logs.len()];
            delete_records(log, offset - 25).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    set_open_files_max(3);
    assert!(open_files() <= 3, "{} are open", open_files());
    for log in &logs {
        log.sync().unwrap();
    }
}

/// Closes the files of a log by using another's.
fn push_out(other: &PartitionLog) {
    for _ in 0..2 {
        set_open_files_max(1);
        read_checked(other, 9, 0).unwrap();
    }
    assert_eq!(open_files(), 1);
}

#[test]
fn another_file_under_the_same_name_is_an_error() {
    let _turn = with_max(1);
    let root = tempfile::tempdir().unwrap();
    let log = log_of(&root.path().join("0"), 0, 3);
    let other = log_of(&root.path().join("9"), 9, 1);
    push_out(&other);
    let path = &files(log.directory(), "log")[0];
    let kept = path.with_extension("kept");
    fs::rename(path, &kept).unwrap();
    assert!(matches!(log.read(0, 1), Err(ReadError::Io(_))));
    fs::copy(&kept, path).unwrap();
    let error = log.read(0, 1).unwrap_err().to_string();
    assert!(error.contains("is another file than before"), "{error}");
    assert!(log.append(common::CLIENT, &mut record(0, 3)).is_err());

    fs::rename(&kept, path).unwrap();

    read_checked(&log, 0, 2).unwrap();
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(10)
        .unwrap();
    push_out(&other);
    let error = log.read(0, 1).unwrap_err().to_string();
    assert!(error.contains("has 10 bytes, but"), "{error}");
}

#[test]
fn a_slice_of_a_removed_segment_is_readable_while_it_is_lent() {
    let _turn = with_max(2);
    let root = tempfile::tempdir().unwrap();
    let log = log_of(&root.path().join("0"), 0, 3);
    let other = log_of(&root.path().join("9"), 9, 1);
    let slice = log.locate(1, i64::MAX, 1, true).unwrap();
    let lent = slice.lend().unwrap();
    log.delete().unwrap();
    assert!(!log.directory().exists());
    read_checked(&other, 9, 0).unwrap();
    set_open_files_max(1);
    read_checked(&other, 9, 0).unwrap();

    let bytes = slice.read().unwrap();

    assert_eq!(bytes[HEADER_BYTES..], record(0, 1)[HEADER_BYTES..]);
    drop((slice, lent, log));
    set_open_files_max(1);
    assert!(open_files() <= 1);
}

/// Has a copy of the first segment take its place, as after a cleaning that drops nothing.
fn swap_first(log: &PartitionLog) {
    let sealed = log.sealed_segments().unwrap();
    fs::copy(
        &sealed[0].path,
        sealed[0].path.with_extension("log.cleaned"),
    )
    .unwrap();
    fs::write(sealed[0].path.with_extension("txnindex.cleaned"), b"").unwrap();
    assert!(log.swap_segments(&[sealed[0].base_offset], 0).unwrap());
}

#[test]
fn a_segment_that_a_cleaned_one_replaced_needs_no_sync() {
    // The story: a close failed with "….log.deleted is another file than before". Two cleanings
    // within `file.delete.delay.ms` had given the name to a second file.
    let _turn = with_max(1);
    let root = tempfile::tempdir().unwrap();
    let log = log_of(&root.path().join("0"), 0, 30);
    let other = log_of(&root.path().join("9"), 9, 1);
    push_out(&other);
    for _ in 0..2 {
        swap_first(&log);
    }
    let waiting = files(log.directory(), "deleted");
    let logs = waiting
        .iter()
        .filter(|path| path.to_string_lossy().contains(".log."));
    assert_eq!(logs.count(), 2, "each removed file keeps a name of its own");

    log.sync().unwrap();

    log.close().unwrap();
    assert_eq!(
        files(log.directory(), "deleted"),
        [] as [std::path::PathBuf; 0]
    );
}

#[test]
fn half_of_the_files_are_lent_and_no_more() {
    let _turn = with_max(4);
    let root = tempfile::tempdir().unwrap();
    let logs: Vec<PartitionLog> = (0..3)
        .map(|number| log_of(&root.path().join(number.to_string()), number, 1))
        .collect();
    let slices: Vec<_> = logs
        .iter()
        .map(|log| log.locate(0, i64::MAX, 1, true).unwrap())
        .collect();
    let first = slices[0].lend().unwrap();
    let again = slices[0].lend().unwrap();
    assert!(can_lend_files(), "a file counts once");
    let _second = slices[1].lend().unwrap();
    assert!(!can_lend_files());
    assert!(slices[2].lend().is_none());
    drop(first);
    assert!(slices[2].lend().is_none());
    drop(again);
    assert!(can_lend_files());
    assert!(slices[2].lend().is_some());
}

/// The paths of the files that were forced to the disk.
#[derive(Default)]
struct SyncedFiles(Mutex<Vec<String>>);

impl Witness for SyncedFiles {
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault> {
        if let Change::Sync(path) = change {
            let path = path.display().to_string();
            self.0.lock().unwrap().push(path);
        }
        Ok(())
    }
}

#[test]
fn a_written_file_that_is_closed_is_pinned_until_it_is_synced() {
    let _turn = with_max(1);
    let root = tempfile::tempdir().unwrap();
    let other = log_of(&root.path().join("9"), 9, 1);
    let log = log_of(&root.path().join("0"), 0, 3);
    let path = files(log.directory(), "log")[0].display().to_string();
    let is_mapped = || {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| line.ends_with(&path))
    };
    assert!(!is_mapped());
    let syncs = Arc::new(SyncedFiles::default());
    disk::watch(root.path(), Arc::clone(&syncs) as Arc<dyn Witness>);

    push_out(&other);

    assert!(is_mapped());
    assert!(syncs.0.lock().unwrap().is_empty());
    read_checked(&log, 0, 1).unwrap();
    push_out(&other);
    assert!(is_mapped());
    log.sync().unwrap();
    assert!(syncs.0.lock().unwrap().contains(&path));
    assert!(!is_mapped());
    push_out(&other);
    assert!(!is_mapped(), "nothing was written since");
    disk::release(root.path());
}

#[test]
fn a_pinned_file_may_be_cut_and_removed_by_others() {
    let _turn = with_max(1);
    let root = tempfile::tempdir().unwrap();
    let other = log_of(&root.path().join("9"), 9, 1);
    let log = log_of(&root.path().join("0"), 0, 3);
    let path = files(log.directory(), "log").remove(0);
    push_out(&other);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(0).unwrap();
    assert!(log.read(0, 1).is_err());
    fs::remove_file(&path).unwrap();
    assert!(log.read(0, 1).is_err());
    assert!(log.sync().is_err());
    let maps = || fs::read_to_string("/proc/self/maps").unwrap();
    let name = path.display().to_string();
    assert!(maps().contains(&name));
    drop(log);
    assert!(!maps().contains(&name));
}
