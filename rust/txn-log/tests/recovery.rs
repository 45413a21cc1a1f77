//! The log after a crash: exactly the whole batches, or an error that names the damage.

mod common;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::journal::{Journal, Noted};
use common::{
    ProducerState, SMALL, TestProducerState, append, build, delete_records, files, log_bytes,
    marker, open, plain, transactional, try_open, try_open_from, write_history,
};
use proptest::prelude::*;
use txn_log::disk::{self, Witness};
use txn_log::{CorruptLog, OpenError, PartitionLog, Past, Settings};
use txn_protocol::batch::Batches;

/// Leaves a directory as a killed process does: no close, no index files, old snapshots.
fn crashed_history(directory: &Path) -> ProducerState {
    let (log, producer_state) = open(directory, false);
    write_history(&log);
    producer_state.state()
}

fn open_after_power_failure(directory: &Path) -> (PartitionLog, Arc<TestProducerState>) {
    let past = Past {
        power_failed: true,
        ..Past::default()
    };
    try_open_from(directory, SMALL, past).unwrap()
}

fn flip(path: &Path, position: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], position).unwrap();
}

fn corruption(directory: &Path) -> CorruptLog {
    match try_open(directory, SMALL, false) {
        Err(OpenError::Corrupt(corrupt)) => corrupt,
        Err(error) => panic!("another error: {error}"),
        Ok((log, _)) => panic!("it opened, up to {}", log.state().log_end_offset),
    }
}

/// The segment files with their content.
fn contents(directory: &Path, extension: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let read = |path: PathBuf| (path.clone(), fs::read(path).unwrap());
    files(directory, extension).into_iter().map(read).collect()
}

fn last_segment(directory: &Path) -> PathBuf {
    files(directory, "log").pop().unwrap()
}

#[test]
fn a_killed_log_comes_back_as_it_was() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state) = open(root.path(), false);
    write_history(&log);
    let (state, bytes) = (log.state(), log_bytes(root.path()));
    drop(log);
    let (log, recovered) = open(root.path(), false);
    assert_eq!(log.state(), state);
    assert_eq!(log_bytes(root.path()), bytes);
    assert_eq!(recovered.state(), producer_state.state());
    assert!(
        recovered.restored.lock().unwrap()[0].is_some(),
        "from a snapshot"
    );
    assert_eq!(append(&log, plain(1, 5)), state.log_end_offset);
}

#[test]
fn a_closed_log_comes_back_from_its_snapshot_and_replays_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state) = open(root.path(), false);
    write_history(&log);
    let state = log.state();
    log.close().unwrap();
    let (log, recovered) = open(root.path(), true);
    assert_eq!(log.state(), state);
    assert_eq!(recovered.state(), producer_state.state());
    assert!(recovered.replayed.lock().unwrap().is_empty());
}

#[test]
fn recovery_and_closing_write_the_same_indexes() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    write_history(&log);
    log.close().unwrap();
    let closed = [
        contents(root.path(), "index"),
        contents(root.path(), "timeindex"),
    ];
    assert!(closed[0].iter().any(|(_, bytes)| !bytes.is_empty()));
    for path in closed.iter().flatten().map(|(path, _)| path) {
        fs::write(path, b"rubbish").unwrap();
    }
    drop(open(root.path(), false));
    assert_eq!(
        [
            contents(root.path(), "index"),
            contents(root.path(), "timeindex")
        ],
        closed
    );
}

#[test]
fn a_clean_log_without_indexes_is_read_all_the_same() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    write_history(&log);
    let end = log.state().log_end_offset;
    log.close().unwrap();
    let all = log_bytes(root.path());
    for path in [files(root.path(), "index"), files(root.path(), "timeindex")].concat() {
        fs::remove_file(path).unwrap();
    }
    let (log, _) = open(root.path(), true);
    let mut read = Vec::new();
    let mut next = 0;
    while next < end {
        let bytes = log.read(next, 500).unwrap();
        next = Batches::new(&bytes).last().unwrap().last_offset() + 1;
        read.extend(bytes);
    }
    assert_eq!(read, all);
}

#[test]
fn a_clean_log_whose_tail_is_torn_after_all_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    write_history(&log);
    let last = append(&log, plain(1, 100));
    log.close().unwrap();
    let path = last_segment(root.path());
    let size = fs::metadata(&path).unwrap().len();
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(size - 10)
        .unwrap();
    let found = try_open(root.path(), SMALL, true);
    assert!(matches!(found, Err(OpenError::Corrupt(corrupt)) if corrupt.path == path));
    assert_eq!(fs::metadata(&path).unwrap().len(), size - 10);
    let (log, _) = open_after_power_failure(root.path());
    assert_eq!(log.state().log_end_offset, last);
}

#[test]
fn zeros_behind_the_last_batch_are_cut_after_a_power_failure_and_else_refused() {
    let root = tempfile::tempdir().unwrap();
    let state = crashed_history(root.path());
    let before = log_bytes(root.path());
    let path = last_segment(root.path());
    let size = fs::metadata(&path).unwrap().len();
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(size + 5000)
        .unwrap();
    assert_eq!(corruption(root.path()).position, size);
    let (log, producer_state) = open_after_power_failure(root.path());
    assert_eq!(log_bytes(root.path()), before);
    assert_eq!(producer_state.state(), state);
    let [cut] = log.cuts() else {
        panic!("{:?}", log.cuts())
    };
    assert_eq!((&cut.path, cut.position, cut.bytes), (&path, size, 5000));
    assert_eq!(cut.first_offset, log.state().log_end_offset);
    assert!(cut.reason.starts_with("power failure: "), "{cut:?}");
}

/// The part that a killed process leaves of a batch that it was writing: its beginning, of any
/// length.
#[test]
fn a_torn_write_of_any_length_is_cut_and_told_of() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, plain(3, 10));
    let (state, size) = (log.state(), log.size_bytes());
    append(&log, transactional(7, 2));
    drop(log);
    let path = last_segment(root.path());
    let whole = fs::read(&path).unwrap();
    for torn in size as usize + 1..whole.len() {
        fs::write(&path, &whole[..torn]).unwrap();
        let (log, _) = open(root.path(), false);
        assert_eq!(log.state(), state);
        assert_eq!(fs::metadata(&path).unwrap().len(), size);
        let [cut] = log.cuts() else {
            panic!("{:?}", log.cuts())
        };
        assert_eq!(
            (&cut.path, cut.position, cut.first_offset),
            (&path, size, 3)
        );
        assert_eq!(cut.bytes, torn as u64 - size);
        assert!(cut.reason.starts_with("torn write of a killed process: "));
    }
}

/// P9, P2: one flipped bit in a commit marker, the last batch, was taken for a torn write: the
/// marker was cut without a word, and an acknowledged commit was lost.
#[test]
fn no_flipped_bit_of_the_last_batch_is_taken_for_a_torn_write() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, transactional(7, 2));
    let position = log.size_bytes() as usize;
    log.append_marker(&marker(7, true)).unwrap();
    drop(log);
    let path = last_segment(root.path());
    let intact = fs::read(&path).unwrap();
    for at in position..intact.len() {
        for bit in 0..8 {
            let mut damaged = intact.clone();
            damaged[at] ^= 1 << bit;
            fs::write(&path, &damaged).unwrap();
            let found = try_open(root.path(), SMALL, false);
            // The leader epoch is under no checksum; nothing is lost with it.
            let is_unused = (12..16).contains(&(at - position));
            match found {
                Ok((log, _)) => assert!(is_unused && log.state().last_stable_offset == 3),
                Err(OpenError::Corrupt(corrupt)) => {
                    assert_eq!((&corrupt.path, corrupt.position), (&path, position as u64));
                }
                Err(error) => panic!("{error}"),
            }
            assert_eq!(fs::read(&path).unwrap(), damaged);
        }
    }
}

/// 21 acknowledged batches were overwritten, and the log was served from offset 0 on.
#[test]
fn garbage_in_the_place_of_batches_or_behind_them_is_no_torn_write() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    for _ in 0..6 {
        append(&log, plain(2, 20));
    }
    drop(log);
    let path = last_segment(root.path());
    let intact = fs::read(&path).unwrap();
    let overwritten = vec![0xa5; intact.len()];
    let appended = [&intact[..], &[0xa5; 500]].concat();
    let short = [&intact[..], &[0xa5; 9]].concat();
    for damaged in [overwritten, appended, short] {
        fs::write(&path, &damaged).unwrap();
        assert_eq!(corruption(root.path()).path, path);
        assert_eq!(fs::read(&path).unwrap(), damaged);
    }
}

/// Segments that were emptied, cut or removed were served without a word, against any checkpoints.
#[test]
fn what_checkpoints_prove_to_be_missing_is_refused() {
    for was_clean in [true, false] {
        for (recovery_point, high_watermark) in [(0, 6), (6, 0), (6, 6)] {
            let root = tempfile::tempdir().unwrap();
            let (log, _) = open(root.path(), false);
            (0..6).for_each(|_| assert!(append(&log, plain(1, 20)) >= 0));
            log.close().unwrap();
            let past = Past {
                was_clean,
                recovery_point,
                high_watermark,
                ..Past::default()
            };
            let is_refused = || match try_open_from(root.path(), SMALL, past) {
                Err(OpenError::Corrupt(corrupt)) => corrupt.reason.contains("the log ends at"),
                _ => false,
            };
            assert!(!is_refused());
            for path in files(root.path(), "snapshot") {
                fs::remove_file(path).unwrap(); // it would prove the loss too
            }
            let path = last_segment(root.path());
            let intact = fs::read(&path).unwrap();
            let first_batch = Batches::new(&intact).next().unwrap().size();
            for left in [0, first_batch, first_batch + 70] {
                fs::write(&path, &intact[..left]).unwrap();
                let is_torn = left > first_batch;
                assert!(is_refused() || (was_clean && is_torn), "{left} bytes");
                assert_eq!(fs::metadata(&path).unwrap().len(), left as u64);
            }
            for path in [files(root.path(), "log"), files(root.path(), "index")].concat() {
                fs::remove_file(path).unwrap();
            }
            let found = try_open_from(root.path(), SMALL, past);
            assert!(matches!(found, Err(OpenError::Corrupt(_))));
        }
    }
}

#[test]
fn after_a_clean_stop_an_end_beyond_what_was_recorded_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    (0..6).for_each(|_| assert!(append(&log, plain(1, 20)) >= 0));
    log.close().unwrap();
    let recorded = |recovery_point, high_watermark| Past {
        was_clean: true,
        recovery_point,
        high_watermark,
        ..Past::default()
    };
    let refused = try_open_from(root.path(), SMALL, recorded(4, 4));
    assert!(matches!(refused, Err(OpenError::Corrupt(_))));
    // One of the two was damaged: the log and the other agree.
    for past in [recorded(6, 4), recorded(900, 6), recorded(0, 6)] {
        let (log, _) = try_open_from(root.path(), SMALL, past).unwrap();
        assert_eq!(log.state().log_end_offset, 6);
    }
}

#[test]
fn a_sealed_segment_that_does_not_reach_the_next_is_refused_however_the_log_is_opened() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    write_history(&log);
    let end = log.state().log_end_offset;
    log.close().unwrap();
    let first = files(root.path(), "log").remove(0);
    let intact = fs::read(&first).unwrap();
    let last_batch = Batches::new(&intact).last().unwrap().size();
    let clean = Past {
        was_clean: true,
        recovery_point: end,
        ..Past::default()
    };
    let believed = Past {
        was_clean: false,
        ..clean
    };
    for (what, left) in [
        ("a batch less", intact.len() - last_batch),
        ("torn", intact.len() - 3),
        ("empty", 0),
    ] {
        fs::write(&first, &intact[..left]).unwrap();
        for past in [clean, believed, Past::default()] {
            match try_open_from(root.path(), SMALL, past) {
                Err(OpenError::Corrupt(corrupt)) => assert_eq!(corrupt.path, first, "{what}"),
                _ => panic!("{what}: it opened with {past:?}"),
            }
        }
        assert_eq!(fs::metadata(&first).unwrap().len(), left as u64);
    }
    // Of a compacted log batches may be gone, but none is cut in half.
    fs::write(&first, &intact[..intact.len() - last_batch]).unwrap();
    let compacted = Past {
        cleaned_end: Some(0),
        ..clean
    };
    assert!(try_open_from(root.path(), SMALL, compacted).is_ok());
}

#[test]
fn a_segment_that_is_gone_is_refused_if_anything_tells() {
    let root = tempfile::tempdir().unwrap();
    crashed_history(root.path());
    let logs = files(root.path(), "log");
    let kept: Vec<Vec<u8>> = logs.iter().map(|path| fs::read(path).unwrap()).collect();
    for (path, bytes) in logs.iter().zip(&kept).skip(1) {
        fs::remove_file(path).unwrap();
        assert!(try_open(root.path(), SMALL, false).is_err(), "{path:?}");
        fs::write(path, bytes).unwrap();
    }
    // Retention takes the first ones, and a kill may come between a segment's files.
    open(root.path(), false).0.close().unwrap();
    fs::remove_file(&logs[0]).unwrap();
    assert!(try_open(root.path(), SMALL, true).is_err());
    fs::remove_file(logs[0].with_extension("index")).unwrap();
    fs::remove_file(logs[0].with_extension("timeindex")).unwrap();
    fs::remove_file(logs[0].with_extension("txnindex")).unwrap();
    let began_at = |log_start_offset| Past {
        was_clean: true,
        log_start_offset,
        ..Past::default()
    };
    let refused = try_open_from(root.path(), SMALL, began_at(Some(0)));
    assert!(matches!(refused, Err(OpenError::Corrupt(corrupt)) if corrupt.path == logs[1]));
    assert!(try_open_from(root.path(), SMALL, began_at(None)).is_ok());
}

/// A FIFO in the place of a segment made the start wait for ever.
#[test]
fn something_else_in_the_place_of_a_file_is_named() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("log");
    crashed_history(&directory);
    let log = files(&directory, "log").remove(0);
    let mut paths: Vec<PathBuf> = ["index", "timeindex", "txnindex", "snapshot"]
        .map(|extension| log.with_extension(extension))
        .to_vec();
    paths.push(directory.join("leader-epoch-checkpoint"));
    paths.push(directory.join("partition.metadata"));
    paths.push(log.with_extension("log.swap"));
    paths.push(log);
    for path in paths {
        let kept = fs::read(&path).ok();
        let put_back = || {
            drop(fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)));
            if let Some(bytes) = &kept {
                fs::write(&path, bytes).unwrap();
            }
        };
        let _ = fs::remove_file(&path);
        for kind in [
            "a FIFO",
            "a directory",
            "a symbolic link to nothing",
            "a device",
        ] {
            match kind {
                "a FIFO" => make_fifo(&path),
                "a directory" => fs::create_dir(&path).unwrap(),
                "a device" => std::os::unix::fs::symlink("/dev/zero", &path).unwrap(),
                _ => std::os::unix::fs::symlink("nowhere", &path).unwrap(),
            }
            for was_clean in [true, false] {
                match try_open(&directory, SMALL, was_clean) {
                    Err(OpenError::Corrupt(corrupt)) => {
                        assert_eq!(corrupt.path, path);
                        assert!(corrupt.reason.contains(kind), "{corrupt}");
                    }
                    _ => panic!("{kind} in the place of {path:?}"),
                }
            }
            drop(fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)));
        }
        put_back();
    }
    let elsewhere = root.path().join("elsewhere");
    fs::rename(&directory, &elsewhere).unwrap();
    fs::write(&directory, b"").unwrap();
    assert_eq!(corruption(&directory).path, directory);
    fs::remove_file(&directory).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &directory).unwrap();
    assert!(try_open(&directory, SMALL, false).is_ok());
}

fn make_fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

#[test]
fn damage_with_a_valid_batch_behind_it_is_named_and_nothing_is_cut() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, plain(1, 50));
    let position = log.size_bytes();
    append(&log, plain(3, 50));
    append(&log, plain(1, 50));
    drop(log);
    let path = last_segment(root.path());
    flip(&path, position + 70);
    let before = fs::read(&path).unwrap();
    let corrupt = corruption(root.path());
    assert_eq!((&corrupt.path, corrupt.position), (&path, position));
    assert!(
        corrupt.reason.contains("a valid batch follows"),
        "{corrupt}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// A damaged base offset, which no checksum covers, once made the batches behind it look like
/// a torn tail, because their offsets were lower than expected: they were cut.
#[test]
fn offsets_that_jump_ahead_and_back_are_damage() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, plain(1, 50));
    let position = log.size_bytes();
    append(&log, plain(1, 50));
    let next_position = log.size_bytes();
    append(&log, plain(1, 50));
    drop(log);
    let path = last_segment(root.path());
    flip(&path, position + 5);
    let corrupt = corruption(root.path());
    assert_eq!((&corrupt.path, corrupt.position), (&path, position));
    // Where compaction may have left a gap, only the batch behind it tells.
    let past = Past {
        cleaned_end: Some(0),
        ..Past::default()
    };
    match try_open_from(root.path(), SMALL, past) {
        Err(OpenError::Corrupt(corrupt)) => {
            assert_eq!((corrupt.path, corrupt.position), (path, next_position));
        }
        _ => panic!("it opened"),
    }
}

#[test]
fn every_flipped_byte_of_an_inner_batch_is_found() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, plain(1, 10));
    let position = log.size_bytes();
    append(&log, plain(2, 10));
    let end = log.size_bytes();
    append(&log, plain(1, 10));
    drop(log);
    let path = last_segment(root.path());
    let intact = fs::read(&path).unwrap();
    for at in position..end {
        flip(&path, at);
        let in_batch = at - position;
        let found = try_open(root.path(), SMALL, false);
        // The leader epoch is under no checksum, and nothing here uses it.
        let is_unused = (12..16).contains(&in_batch);
        let is_named = matches!(found, Err(OpenError::Corrupt(_)));
        assert!(is_named || is_unused, "byte {in_batch} of the batch");
        fs::write(&path, &intact).unwrap();
    }
}

#[test]
fn damage_in_an_earlier_segment_is_named() {
    let root = tempfile::tempdir().unwrap();
    crashed_history(root.path());
    let first = files(root.path(), "log").remove(0);
    let size = fs::metadata(&first).unwrap().len();
    flip(&first, size - 1);
    let corrupt = corruption(root.path());
    assert_eq!(corrupt.path, first);
    assert!(
        corrupt.reason.contains("a valid batch follows"),
        "{corrupt}"
    );
}

#[test]
fn a_torn_end_of_an_earlier_segment_is_cut_after_a_power_failure_if_nothing_valid_follows() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    for _ in 0..12 {
        append(&log, plain(1, 150));
    }
    drop(log);
    let segments = files(root.path(), "log");
    assert_eq!(segments.len(), 2);
    // As after a power failure: the new segment is there, but none of its bytes, and the one
    // before it lost its last batch.
    fs::write(&segments[1], vec![0; 600]).unwrap();
    let size = fs::metadata(&segments[0]).unwrap().len();
    let kept = Batches::new(&fs::read(&segments[0]).unwrap()).count() as i64 - 1;
    OpenOptions::new()
        .write(true)
        .open(&segments[0])
        .unwrap()
        .set_len(size - 1)
        .unwrap();
    assert_eq!(corruption(root.path()).path, segments[0]);
    let (log, _) = open_after_power_failure(root.path());
    assert_eq!(log.state().log_end_offset, kept);
    assert_eq!(files(root.path(), "log").len(), 1);
    let cut: Vec<&PathBuf> = log.cuts().iter().map(|cut| &cut.path).collect();
    assert_eq!(cut, [&segments[0], &segments[1]]);
    assert_eq!(append(&log, plain(1, 5)), kept);
}

#[test]
fn a_torn_batch_that_contains_batches_is_cut() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        segment_bytes: 1 << 20,
        ..SMALL
    };
    let (log, _) = try_open(root.path(), settings, false).unwrap();
    append(&log, plain(1, 10));
    let size = log.size_bytes();
    // Someone keeps another log's batches as values, with offsets that could be ours.
    let mut inner = plain(1, 10);
    inner[7] = 2;
    let mut builder = txn_log::builder::BatchBuilder::new(txn_protocol::batch::Codec::None);
    for _ in 0..5 {
        builder.push(0, None, Some(&inner), &[]);
    }
    append(&log, builder.seal().unwrap());
    drop(log);
    let path = last_segment(root.path());
    let torn = fs::metadata(&path).unwrap().len() - 5;
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(torn)
        .unwrap();
    let (log, _) = try_open(root.path(), settings, false).unwrap();
    assert_eq!((log.state().log_end_offset, log.size_bytes()), (1, size));
}

#[test]
fn an_abort_that_never_reached_the_transaction_index_is_written_there() {
    let root = tempfile::tempdir().unwrap();
    let state = crashed_history(root.path());
    let before = contents(root.path(), "txnindex");
    assert!(!before.is_empty());
    for (path, bytes) in before.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        fs::write(path, &bytes[..bytes.len() - 34]).unwrap();
    }
    let (log, producer_state) = open(root.path(), false);
    assert_eq!(producer_state.state(), state);
    assert_eq!(contents(root.path(), "txnindex"), before);
    for entry in &state.aborted {
        let named = log.aborted_in(entry.first_offset, entry.first_offset + 1);
        assert!(named.contains(&(entry.producer_id, entry.first_offset)));
    }
}

#[test]
fn an_entry_whose_marker_was_torn_off_is_removed() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state) = open(root.path(), false);
    append(&log, transactional(7, 2));
    let before = producer_state.state();
    log.append_marker(&marker(7, false)).unwrap();
    drop(log);
    let path = last_segment(root.path());
    let size = fs::metadata(&path).unwrap().len();
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(size - 1)
        .unwrap();
    let (log, recovered) = open(root.path(), false);
    assert_eq!(recovered.state(), before);
    assert!(
        contents(root.path(), "txnindex")
            .iter()
            .all(|(_, bytes)| bytes.is_empty())
    );
    assert_eq!(
        (log.state().last_stable_offset, log.state().log_end_offset),
        (0, 2)
    );
}

/// P4: a transaction index that was gone counted as one without entries, and aborted records were
/// shown.
#[test]
fn transaction_indexes_that_are_gone_are_made_anew() {
    for was_clean in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let state = crashed_history(root.path());
        open(root.path(), false).0.close().unwrap();
        let before = contents(root.path(), "txnindex");
        for path in files(root.path(), "txnindex") {
            fs::remove_file(path).unwrap();
        }
        let (_, producer_state) = open(root.path(), was_clean);
        assert_eq!(producer_state.state(), state);
        assert_eq!(contents(root.path(), "txnindex"), before);
    }
}

/// P6: a producer's last batches are known from the snapshot alone once they are deleted.
#[test]
fn a_lost_transaction_index_does_not_cost_what_only_the_snapshot_knows() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, build(20, false, 1, 40));
    while log.sealed_segments().unwrap().len() < 2 {
        append(&log, plain(2, 60));
    }
    delete_records(&log, log.sealed_segments().unwrap()[0].end_offset).unwrap();
    log.close().unwrap();
    let (log, producer_state) = open(root.path(), true);
    let state = producer_state.state();
    assert!(state.recent.contains_key(&20));
    log.close().unwrap();
    for path in files(root.path(), "txnindex") {
        fs::remove_file(path).unwrap();
    }
    assert_eq!(open(root.path(), true).1.state(), state);
}

#[test]
fn an_entry_without_any_marker_is_not_believed() {
    let root = tempfile::tempdir().unwrap();
    let state = crashed_history(root.path());
    let first = files(root.path(), "log").remove(0);
    let mut entry = [0u8; 34];
    (entry[9], entry[17], entry[25]) = (20, 0, 1); // producer 20 aborted [0, 1]: it never did
    fs::write(first.with_extension("txnindex"), entry).unwrap();
    let (_, producer_state) = open(root.path(), false);
    assert_eq!(producer_state.state(), state);
}

#[test]
fn damaged_snapshots_are_passed_over_down_to_a_full_replay() {
    let root = tempfile::tempdir().unwrap();
    let state = crashed_history(root.path());
    let snapshots = files(root.path(), "snapshot");
    assert!(snapshots.len() > 1);
    flip(&snapshots[snapshots.len() - 1], 3);
    let (_, producer_state) = open(root.path(), false);
    assert_eq!(producer_state.state(), state);
    assert_eq!(producer_state.restored.lock().unwrap().len(), 2);
    snapshots[..snapshots.len() - 1]
        .iter()
        .for_each(|path| flip(path, 3));
    let (_, producer_state) = open(root.path(), false);
    assert_eq!(producer_state.state(), state);
    assert_eq!(producer_state.restored.lock().unwrap().last(), Some(&None));
}

#[test]
fn a_snapshot_beyond_the_log_end_is_removed_after_a_power_failure_and_else_proves_a_loss() {
    let root = tempfile::tempdir().unwrap();
    let state = crashed_history(root.path());
    let beyond = root.path().join(format!("{:020}.snapshot", 100_000));
    fs::copy(&files(root.path(), "snapshot")[0], &beyond).unwrap();
    let corrupt = corruption(root.path());
    assert_eq!(corrupt.path, last_segment(root.path()));
    assert!(corrupt.reason.contains("is of offset 100000"), "{corrupt}");
    let journal = Arc::new(Journal::default());
    disk::watch(root.path(), Arc::clone(&journal) as Arc<dyn Witness>);
    let (_, producer_state) = open_after_power_failure(root.path());
    disk::release(root.path());
    assert_eq!(producer_state.state(), state);
    assert!(!beyond.exists());
    let changes = journal.0.lock().unwrap();
    let is_removal =
        |change: &Noted| matches!(change, Noted::Remove(name) if beyond.ends_with(name));
    let removal = changes.iter().position(is_removal).unwrap();
    let is_forced = |change: &Noted| matches!(change, Noted::SyncDirectory);
    assert!(changes[removal..].iter().any(is_forced), "{changes:?}");
}

#[test]
fn overlapping_segments_are_named() {
    let root = tempfile::tempdir().unwrap();
    crashed_history(root.path());
    let first = files(root.path(), "log").remove(0);
    let overlapping = root.path().join(format!("{:020}.log", 1));
    fs::copy(first, &overlapping).unwrap();
    assert_eq!(corruption(root.path()).path, overlapping);
}

#[test]
fn a_segment_with_an_impossible_name_is_named() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(format!("{:020}.log", i64::MAX));
    fs::write(&path, plain(1, 5)).unwrap();
    assert_eq!(corruption(root.path()).path, path);
}

#[test]
fn a_log_that_starts_late_keeps_its_start() {
    let root = tempfile::tempdir().unwrap();
    crashed_history(root.path());
    let first = files(root.path(), "log").remove(0);
    fs::remove_file(first).unwrap();
    let second = files(root.path(), "log").remove(0);
    let start: i64 = second
        .file_stem()
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    let (log, _) = open(root.path(), false);
    assert_eq!(log.state().log_start_offset, start);
    assert!(log.read(start - 1, 1).is_err());
    assert!(!log.read(start, 1).unwrap().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    /// After a power failure: cut anywhere in the last segment, then maybe overwritten by rubbish
    /// that arrived instead of the bytes.
    #[test]
    fn recovery_keeps_exactly_the_prefix_of_whole_batches(
        cut_permille in 0u64..=1000,
        rubbish in prop::collection::vec(any::<u8>(), 0..300),
        was_clean in any::<bool>(),
    ) {
        let root = tempfile::tempdir().unwrap();
        let (log, _) = open(root.path(), false);
        write_history(&log);
        if was_clean {
            log.close().unwrap();
        }
        drop(log);
        let path = last_segment(root.path());
        let whole = fs::read(&path).unwrap();
        let cut = (whole.len() as u64 * cut_permille / 1000) as usize;
        let mut torn = whole[..cut].to_vec();
        torn.extend_from_slice(&rubbish);
        fs::write(&path, &torn).unwrap();
        let kept: usize = {
            let sizes = Batches::new(&whole).map(|batch| batch.size());
            sizes.scan(0, |end, size| { *end += size; Some(*end) }).take_while(|end| *end <= cut).last().unwrap_or(0)
        };
        let (log, producer_state) = open_after_power_failure(root.path());
        prop_assert_eq!(fs::read(&path).unwrap(), &whole[..kept]);
        prop_assert_eq!(log.cuts().len(), usize::from(torn.len() > kept));
        let end = Batches::new(&log_bytes(root.path())).last().unwrap().last_offset() + 1;
        prop_assert_eq!(log.state().log_end_offset, end);
        // The producer state equals a replay of the same batches, without any snapshot.
        for snapshot in files(root.path(), "snapshot") {
            fs::remove_file(snapshot).unwrap();
        }
        let (replayed_log, replayed) = open(root.path(), false);
        prop_assert_eq!(producer_state.state(), replayed.state());
        prop_assert_eq!(log.state(), replayed_log.state());
        prop_assert_eq!(append(&log, plain(1, 5)), end);
    }

    /// Any one flipped byte is an error, or costs nothing.
    #[test]
    fn a_flipped_byte_never_leads_to_damaged_batches(at_permille in 0u64..1000) {
        let root = tempfile::tempdir().unwrap();
        crashed_history(root.path());
        let intact = log_bytes(root.path());
        let paths = files(root.path(), "log");
        let path = &paths[paths.len() - 1];
        let size = fs::metadata(path).unwrap().len();
        flip(path, size * at_permille / 1000);
        if let Ok((log, _)) = try_open(root.path(), SMALL, false) {
            let kept = log_bytes(root.path());
            for batch in Batches::new(&kept) {
                batch.validate_crc().unwrap();
            }
            let end = Batches::new(&intact).last().unwrap().last_offset() + 1;
            prop_assert_eq!(log.state().log_end_offset, end);
            prop_assert_eq!(kept.len(), intact.len());
        }
    }
}
