//! P9: a swap that a stop cut short is finished as its broker would finish it. A damaged one can be
//! given up.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{
    SMALL, append, files, log_bytes, marker, open, open_from, plain, transactional, try_open_from,
};
use txn_log::{OpenError, PartitionLog, Past, losses};

/// A compacted log that an Apache Kafka has left without a stop in order.
fn of_kafka() -> Past {
    Past {
        cleaned_end: Some(0),
        was_left_by_kafka: true,
        ..Past::default()
    }
}

fn of_txn() -> Past {
    Past {
        was_left_by_kafka: false,
        ..of_kafka()
    }
}

/// A log of several segments, in the second of which a transaction was aborted.
fn long_log(directory: &Path) -> (PartitionLog, Vec<i64>) {
    let (log, _) = open(directory, false);
    for nth in 0..30 {
        append(&log, plain(1, 180));
        if nth == 9 {
            append(&log, transactional(7, 1));
            log.append_marker(&marker(7, false)).unwrap();
        }
    }
    let sealed = log.sealed_segments().unwrap();
    let bases = sealed.iter().map(|segment| segment.base_offset).collect();
    (log, bases)
}

fn file(directory: &Path, base: i64, extension: &str) -> PathBuf {
    directory.join(format!("{base:020}.{extension}"))
}

/// Renames a segment's files as Kafka does, the log first.
fn rename(directory: &Path, base: i64, from: &str, to: &str) {
    for extension in ["log", "index", "timeindex", "txnindex"] {
        let name = |suffix: &str| file(directory, base, &format!("{extension}{suffix}"));
        if name(from).exists() {
            fs::rename(name(from), name(to)).unwrap();
        }
    }
}

/// The bytes of the log behind a segment's.
fn bytes_behind(directory: &Path, base: i64) -> Vec<u8> {
    let all = log_bytes(directory);
    let first = fs::read(file(directory, base, "log")).unwrap();
    assert_eq!(base, 0);
    all[first.len()..].to_vec()
}

/// The story: Kafka's cleaner may leave nothing of a segment. Killed in the swap it left a `.log.swap`
/// of no bytes, and the partition was refused, though Kafka starts and has every key.
#[test]
fn an_empty_cleaned_segment_of_kafka_takes_the_place_of_the_old_one() {
    for renamed in [0, 1, 4] {
        let root = tempfile::tempdir().unwrap();
        let (log, _) = long_log(root.path());
        let state = log.state();
        drop(log);
        let rest = bytes_behind(root.path(), 0);
        fs::write(file(root.path(), 0, "log.swap"), b"").unwrap();
        fs::write(file(root.path(), 0, "index.swap"), b"").unwrap();
        for extension in &["log", "index", "timeindex", "txnindex"][..renamed] {
            let old = file(root.path(), 0, extension);
            fs::rename(&old, file(root.path(), 0, &format!("{extension}.deleted"))).unwrap();
        }
        assert_eq!(
            losses::examine(root.path(), &SMALL, of_kafka()).unwrap(),
            None
        );
        let (log, _) = open_from(root.path(), of_kafka());
        assert_eq!(log_bytes(root.path()), rest, "{renamed} files were renamed");
        assert_eq!(log.state().log_end_offset, state.log_end_offset);
        for extension in ["cleaned", "swap", "deleted"] {
            assert_eq!(files(root.path(), extension), Vec::<PathBuf>::new());
        }
        drop(log);
        let (log, _) = open_from(root.path(), of_txn());
        assert_eq!(log.state().log_end_offset, state.log_end_offset);
    }
}

#[test]
fn a_transaction_index_whose_log_has_its_name_gets_its_own() {
    let root = tempfile::tempdir().unwrap();
    let (log, bases) = long_log(root.path());
    let aborted = log.aborted_in(0, i64::MAX);
    assert_eq!(aborted.len(), 1);
    drop(log);
    let base = bases[1];
    let index = file(root.path(), base, "txnindex");
    let entries = fs::read(&index).unwrap();
    assert!(!entries.is_empty());
    fs::rename(&index, file(root.path(), base, "txnindex.swap")).unwrap();
    let past = Past {
        recovery_point: *bases.last().unwrap(),
        ..of_kafka()
    };
    let (log, _) = open_from(root.path(), past);
    assert_eq!(fs::read(&index).unwrap(), entries);
    assert_eq!(log.aborted_in(0, i64::MAX), aborted);
}

#[test]
fn an_old_transaction_index_of_kafka_does_not_outlive_its_segment() {
    let root = tempfile::tempdir().unwrap();
    let (log, bases) = long_log(root.path());
    drop(log);
    let base = bases[1];
    let kept = fs::read(file(root.path(), base, "log")).unwrap();
    let first = 12 + u32::from_be_bytes(kept[8..12].try_into().unwrap()) as usize;
    fs::write(file(root.path(), base, "log.swap"), &kept[..first]).unwrap();
    let past = Past {
        recovery_point: *bases.last().unwrap(),
        ..of_kafka()
    };
    let (log, _) = open_from(root.path(), past);
    assert_eq!(log.aborted_in(0, i64::MAX), []);
    assert_eq!(
        fs::read(file(root.path(), base, "log")).unwrap().len(),
        first
    );
}

/// The last of the new segments gets its name first; a `.cleaned` before it proves that the old
/// segment is whole.
#[test]
fn a_split_of_kafka_that_is_not_decided_leaves_the_old_segment() {
    let root = tempfile::tempdir().unwrap();
    let (log, bases) = long_log(root.path());
    drop(log);
    let before = log_bytes(root.path());
    let old = fs::read(file(root.path(), bases[1], "log")).unwrap();
    let first = 12 + u32::from_be_bytes(old[8..12].try_into().unwrap()) as usize;
    fs::write(file(root.path(), bases[1], "log.cleaned"), &old[..first]).unwrap();
    fs::write(file(root.path(), bases[1] + 1, "log.swap"), &old[first..]).unwrap();
    drop(open_from(root.path(), of_kafka()));
    assert_eq!(log_bytes(root.path()), before);
    assert_eq!(files(root.path(), "swap"), Vec::<PathBuf>::new());
}

#[test]
fn a_damaged_swap_is_refused_and_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    drop(long_log(root.path()));
    let swap = file(root.path(), 0, "log.swap");
    for bytes in [&b""[..], b"half a batch"] {
        fs::write(&swap, bytes).unwrap();
        for found in [
            try_open_from(root.path(), SMALL, of_txn()).map(|_| ()),
            losses::examine(root.path(), &SMALL, of_txn()).map(|_| ()),
        ] {
            match found {
                Err(OpenError::Corrupt(damage)) => assert_eq!(damage.path, swap),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The story: an operator gave up the log without the swap. The next start met the swap
/// again, refused the partition, and no broker came up on the directory.
#[test]
fn a_damaged_swap_is_given_up_and_old_segments_that_are_there_stay() {
    let root = tempfile::tempdir().unwrap();
    drop(long_log(root.path()));
    let before = log_bytes(root.path());
    let swap = file(root.path(), 0, "log.swap");
    fs::write(&swap, b"half a batch").unwrap();
    let plan = losses::plan(root.path(), &SMALL, of_txn(), None).unwrap();
    assert_eq!(plan.in_the_way, [swap]);
    assert_eq!(plan.given_up, []);
    for _ in 0..2 {
        losses::carry_out(root.path(), &plan).unwrap();
    }
    drop(open_from(root.path(), of_txn()));
    assert_eq!(log_bytes(root.path()), before);
}

#[test]
fn of_a_damaged_swap_whose_old_segments_are_gone_the_sound_part_stays() {
    for past in [of_txn(), of_kafka()] {
        let root = tempfile::tempdir().unwrap();
        let (log, _) = long_log(root.path());
        let end = log.state().log_end_offset;
        drop(log);
        let swap = file(root.path(), 0, "log.swap");
        let mut bytes = fs::read(file(root.path(), 0, "log")).unwrap();
        let first = 12 + u32::from_be_bytes(bytes[8..12].try_into().unwrap()) as usize;
        bytes.truncate(first + 5);
        fs::write(&swap, &bytes).unwrap();
        rename(root.path(), 0, "", ".deleted");
        let plan = losses::plan(root.path(), &SMALL, past, None).unwrap();
        assert_eq!((plan.last_kept, plan.kept_end), (Some(0), 1));
        assert_eq!((plan.position, plan.next_offset), (first as u64, end));
        assert_eq!(plan.given_up[0], (swap, first as u64, 5));
        for _ in 0..2 {
            losses::carry_out(root.path(), &plan).unwrap();
        }
        let (log, _) = open_from(root.path(), of_txn());
        assert_eq!(log.read(0, 1).unwrap(), bytes[..first]);
        assert_eq!(log.state().log_end_offset, end);
    }
}

/// No start has finished the swap yet. The rest of the log is given up, not the cleaned segment.
#[test]
fn a_sound_swap_stands_for_its_segments_in_a_log_that_is_given_up() {
    let root = tempfile::tempdir().unwrap();
    let (log, bases) = long_log(root.path());
    let end = log.state().log_end_offset;
    drop(log);
    let kept = fs::read(file(root.path(), 0, "log")).unwrap();
    fs::write(file(root.path(), 0, "log.swap"), &kept).unwrap();
    rename(root.path(), 0, "", ".deleted");
    fs::write(file(root.path(), bases[1], "log"), b"garbage").unwrap();
    let plan = losses::plan(root.path(), &SMALL, of_txn(), None).unwrap();
    assert_eq!((plan.last_kept, plan.kept_end), (Some(bases[1]), bases[1]));
    losses::carry_out(root.path(), &plan).unwrap();
    let (log, _) = open_from(root.path(), of_txn());
    assert_eq!(log.state().log_end_offset, end);
    assert!(log_bytes(root.path()).starts_with(&kept));
}
