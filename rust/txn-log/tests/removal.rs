//! Removal of records and segments from a log: `DeleteRecords`, retention, and a cleaned segment
//! that takes the place of others.

mod common;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use common::{
    SMALL, append, build, delete_records, files, log_bytes, marker, open, open_from, plain, retain,
    tear_snapshots, tick, transactional, try_open, try_open_from,
};
use txn_log::disk::{self, Change, DiskFault, Witness};
use txn_log::losses;
use txn_log::{OpenError, PartitionLog, Past, ReadError, Role, Settings};
use txn_protocol::batch::Batches;

/// A log of several segments, seven batches each.
fn long_log(directory: &Path) -> PartitionLog {
    let (log, _) = open(directory, false);
    for _ in 0..30 {
        append(&log, plain(1, 180));
    }
    log
}

fn bases(directory: &Path) -> Vec<i64> {
    let stem = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    files(directory, "log").iter().map(stem).collect()
}

fn is_out_of_range(log: &PartitionLog, offset: i64) -> bool {
    matches!(log.read(offset, 100), Err(ReadError::OutOfRange { .. }))
}

const COMPACTED: Past = Past {
    cleaned_end: Some(0),
    role: Role::SoleReplica,
    was_clean: false,
    power_failed: false,
    recovery_point: 0,
    high_watermark: 0,
    log_start_offset: None,
    was_left_by_kafka: false,
};

fn from_start(log_start_offset: i64, was_clean: bool) -> Past {
    Past {
        was_clean,
        log_start_offset: Some(log_start_offset),
        ..Past::default()
    }
}

#[test]
fn deleted_records_are_out_of_range_and_their_whole_segments_go() {
    let root = tempfile::tempdir().unwrap();
    let log = long_log(root.path());
    let second = bases(root.path())[1];
    assert_eq!(delete_records(&log, second + 1).unwrap(), second + 1);
    assert_eq!(log.state().log_start_offset, second + 1);
    assert_eq!(bases(root.path())[0], second);
    assert!(is_out_of_range(&log, second));
    let first = Batches::new(&log.read(second + 1, 1).unwrap())
        .next()
        .unwrap()
        .base_offset();
    assert_eq!(first, second + 1);
    assert!(
        files(root.path(), "snapshot")
            .iter()
            .all(|path| !path.ends_with("00.snapshot"))
    );
}

/// A batch that is sent again after the restart would be stored again otherwise.
#[test]
fn a_producer_of_removed_segments_stays_known_where_power_took_their_snapshots() {
    for active_is_empty in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let (log, _) = open(root.path(), false);
        append(&log, build(7, false, 1, 20));
        for _ in 0..30 {
            append(&log, plain(1, 180));
        }
        drop(log);
        if active_is_empty {
            fs::write(files(root.path(), "log").last().unwrap(), b"").unwrap();
        }
        tear_snapshots(root.path());
        let power_failed = Past {
            power_failed: true,
            ..Past::default()
        };
        let (log, _) = open_from(root.path(), power_failed);
        let first_kept = *bases(root.path()).last().unwrap();
        let log_end_offset = log.state().log_end_offset;
        assert_eq!(log_end_offset == first_kept, active_is_empty);
        delete_records(&log, first_kept).unwrap();
        drop(log);
        for power_failed in [false, true] {
            let past = Past {
                power_failed,
                ..from_start(first_kept, false)
            };
            let (log, producers) = open_from(root.path(), past);
            assert_eq!(producers.state().recent.get(&7), Some(&vec![0]));
            assert_eq!(log.state().log_end_offset, log_end_offset);
        }
    }
}

#[test]
fn the_log_start_never_moves_down_nor_beyond_the_end() {
    let root = tempfile::tempdir().unwrap();
    let log = long_log(root.path());
    assert_eq!(delete_records(&log, 20).unwrap(), 20);
    assert_eq!(delete_records(&log, 3).unwrap(), 20);
    assert!(matches!(
        delete_records(&log, 31),
        Err(ReadError::OutOfRange { .. })
    ));
    assert_eq!(delete_records(&log, 30).unwrap(), 30);
    assert_eq!(log.read(30, 100).unwrap(), b"");
    assert_eq!(append(&log, plain(1, 5)), 30);
    assert_eq!(log.state().log_start_offset, 30);
}

#[test]
fn the_last_stable_offset_is_never_below_the_log_start() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, transactional(7, 2));
    append(&log, plain(1, 5));
    assert_eq!(log.state().last_stable_offset, 0);
    delete_records(&log, 3).unwrap();
    assert_eq!(log.state().last_stable_offset, 3);
    drop(log);
    let (log, _) = open_from(root.path(), from_start(3, false));
    assert_eq!(log.state().last_stable_offset, 3);
    log.append_marker(&marker(7, true)).unwrap();
    assert_eq!(log.state().last_stable_offset, 4);
}

#[test]
fn a_log_opens_where_it_was_told_to_start() {
    let root = tempfile::tempdir().unwrap();
    let log = long_log(root.path());
    delete_records(&log, 17).unwrap();
    let state = log.state();
    drop(log);
    for was_clean in [false, true] {
        let (log, _) = open_from(root.path(), from_start(17, was_clean));
        assert_eq!(log.state(), state);
        assert!(is_out_of_range(&log, 16));
        log.close().unwrap();
    }
}

#[test]
fn a_start_beyond_the_end_proves_a_loss_unless_the_power_failed() {
    let root = tempfile::tempdir().unwrap();
    drop(long_log(root.path()));
    let beyond = from_start(31, false);
    let refused = try_open_from(root.path(), SMALL, beyond);
    assert!(matches!(refused, Err(OpenError::Corrupt(_))));
    let power_failed = true;
    let past = Past {
        power_failed,
        ..beyond
    };
    let (log, _) = open_from(root.path(), past);
    assert_eq!(log.state().log_start_offset, 0);
}

#[test]
fn a_reader_of_a_removed_segment_reads_on() {
    let root = tempfile::tempdir().unwrap();
    let log = long_log(root.path());
    let slice = log.locate(0, i64::MAX, 500, true).unwrap();
    let before = log.read(0, 500).unwrap();
    delete_records(&log, 30).unwrap();
    log.close().unwrap();
    let bytes = slice.read().unwrap();
    assert_eq!(bytes, before);
}

#[test]
fn what_was_removed_is_renamed_first_and_gone_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let log = long_log(root.path());
    delete_records(&log, 30).unwrap();
    assert!(!files(root.path(), "deleted").is_empty());
    drop(log);
    drop(open_from(root.path(), from_start(30, false)));
    assert_eq!(files(root.path(), "deleted"), Vec::<PathBuf>::new());
}

#[test]
fn aborted_transactions_below_the_start_are_forgotten() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state) = open(root.path(), false);
    append(&log, transactional(7, 1));
    log.append_marker(&marker(7, false)).unwrap();
    for _ in 0..20 {
        append(&log, plain(1, 180));
    }
    delete_records(&log, 20).unwrap();
    assert_eq!(producer_state.state().aborted, []);
    assert_eq!(log.aborted_in(0, 30), []);
}

/// The part that a cleaner leaves of the first two segments: every other batch.
fn clean(log: &PartitionLog, directory: &Path) -> (Vec<i64>, Vec<u8>) {
    let sealed = log.sealed_segments().unwrap();
    let bytes: Vec<u8> = [&sealed[0], &sealed[1]]
        .iter()
        .flat_map(|segment| fs::read(&segment.path).unwrap())
        .collect();
    let kept: Vec<u8> = Batches::new(&bytes)
        .step_by(2)
        .flat_map(|batch| batch.bytes().to_vec())
        .collect();
    let base = sealed[0].base_offset;
    fs::write(directory.join(format!("{base:020}.log.cleaned")), &kept).unwrap();
    fs::write(directory.join(format!("{base:020}.txnindex.cleaned")), b"").unwrap();
    (vec![base, sealed[1].base_offset], kept)
}

#[test]
fn a_cleaned_segment_takes_the_place_of_those_it_was_made_from() {
    let root = tempfile::tempdir().unwrap();
    let log = long_log(root.path());
    let end = log.sealed_segments().unwrap()[1].end_offset;
    let (old, kept) = clean(&log, root.path());
    assert!(log.swap_segments(&old, 0).unwrap());
    let sealed = log.sealed_segments().unwrap();
    assert_eq!((sealed[0].base_offset, sealed[0].end_offset), (0, end));
    assert_eq!(fs::read(&sealed[0].path).unwrap(), kept);
    let read = |offset| {
        Batches::new(&log.read(offset, 1).unwrap())
            .next()
            .unwrap()
            .base_offset()
    };
    assert_eq!((read(0), read(1), read(2), read(end - 1)), (0, 2, 2, end));
    let before = (log.state(), log_bytes(root.path()));
    drop(log);
    let (log, _) = open_from(root.path(), COMPACTED);
    assert_eq!((log.state(), log_bytes(root.path())), before);
}

#[test]
fn a_swap_against_segments_that_are_gone_does_nothing() {
    let root = tempfile::tempdir().unwrap();
    let log = long_log(root.path());
    let (old, _) = clean(&log, root.path());
    delete_records(&log, old[1]).unwrap();
    let before = log_bytes(root.path());
    assert!(!log.swap_segments(&old, 0).unwrap());
    assert_eq!(log_bytes(root.path()), before);
    assert_eq!(files(root.path(), "cleaned"), Vec::<PathBuf>::new());
}

#[test]
fn a_swap_that_a_crash_cut_short_is_finished_or_undone_at_every_step() {
    let name = |base: i64, extension: &str| format!("{base:020}.{extension}");
    let rename = |root: &Path, base: i64, from: &str, to: &str| {
        fs::rename(root.join(name(base, from)), root.join(name(base, to))).unwrap();
    };
    for steps in 0..=6 {
        let root = tempfile::tempdir().unwrap();
        let log = long_log(root.path());
        let (old, kept) = clean(&log, root.path());
        let state = log.state();
        let untouched = log_bytes(root.path());
        let first_two: usize = log.sealed_segments().unwrap()[..2]
            .iter()
            .map(|segment| segment.size as usize)
            .sum();
        drop(log);
        let step: [&dyn Fn(); 6] = [
            &|| rename(root.path(), 0, "txnindex.cleaned", "txnindex.swap"),
            &|| rename(root.path(), 0, "log.cleaned", "log.swap"),
            &|| rename(root.path(), 0, "log", "log.deleted"),
            &|| rename(root.path(), old[1], "log", "log.deleted"),
            &|| rename(root.path(), 0, "txnindex.swap", "txnindex"),
            &|| rename(root.path(), 0, "log.swap", "log"),
        ];
        step[..steps].iter().for_each(|step| step());
        let (log, _) = open_from(root.path(), COMPACTED);
        let cleaned = [&kept, &untouched[first_two..]].concat();
        let expected = if steps < 2 { untouched } else { cleaned };
        assert_eq!(log_bytes(root.path()), expected, "after {steps} steps");
        assert_eq!(log.state(), state, "after {steps} steps");
        for extension in ["cleaned", "swap", "deleted"] {
            assert_eq!(files(root.path(), extension), Vec::<PathBuf>::new());
        }
    }
}

// ---------------------------------------------------------------- rolling and retention

/// A batch of one record at a time.
fn at(timestamp_ms: i64) -> Vec<u8> {
    let mut builder = txn_log::builder::BatchBuilder::new(txn_protocol::batch::Codec::None);
    builder.push(timestamp_ms, None, Some(&[b'v'; 100]), &[]);
    builder.seal().unwrap()
}

fn open_with(directory: &Path, settings: Settings) -> PartitionLog {
    try_open(directory, settings, false).unwrap().0
}

const LARGE: Settings = Settings {
    segment_bytes: 1 << 20,
    ..SMALL
};

#[test]
fn a_segment_rolls_when_a_batch_is_so_much_later_than_its_first() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        segment_ms: 1000,
        ..LARGE
    };
    let log = open_with(root.path(), settings);
    for timestamp_ms in [5000, 5500, 6000, 6001, 7001, 100, 7002] {
        append(&log, at(timestamp_ms));
    }
    assert_eq!(bases(root.path()), [0, 3, 6]);
}

#[test]
fn the_age_of_a_segment_is_known_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        segment_ms: 1000,
        ..LARGE
    };
    append(&open_with(root.path(), settings), at(5000));
    let log = open_with(root.path(), settings);
    append(&log, at(5900));
    append(&log, at(6001));
    assert_eq!(bases(root.path()), [0, 2]);
}

#[test]
fn jitter_makes_a_segment_roll_earlier_but_never_later() {
    let rolls: Vec<usize> = (0..40)
        .map(|_| {
            let root = tempfile::tempdir().unwrap();
            let settings = Settings {
                segment_ms: 1000,
                segment_jitter_ms: 1000,
                ..LARGE
            };
            let log = open_with(root.path(), settings);
            append(&log, at(5000));
            append(&log, at(5500));
            append(&log, at(6001));
            bases(root.path()).len()
        })
        .collect();
    assert!(rolls.iter().all(|&count| count >= 2), "{rolls:?}");
    assert!(rolls.contains(&2) && rolls.contains(&3), "{rolls:?}");
}

#[test]
fn a_segment_rolls_when_an_index_is_full() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        segment_index_bytes: 36, // four offsets or three times, one of which is kept free
        index_interval_bytes: 0,
        ..LARGE
    };
    let log = open_with(root.path(), settings);
    for timestamp_ms in 1..=12 {
        append(&log, at(timestamp_ms));
    }
    log.close().unwrap();
    let sizes = |extension| -> Vec<u64> {
        let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
        files(root.path(), extension).iter().map(size).collect()
    };
    assert!(sizes("log").len() > 2);
    assert!(sizes("index").iter().all(|&bytes| bytes <= 36));
    assert!(sizes("timeindex").iter().all(|&bytes| bytes <= 36));
}

#[test]
fn retention_by_age_removes_the_segments_whose_records_are_all_old() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        segment_ms: 99,
        retention_ms: 1000,
        ..LARGE
    };
    let log = open_with(root.path(), settings);
    for timestamp_ms in [1000, 1100, 1200, 1300] {
        append(&log, at(timestamp_ms));
    }
    assert_eq!(retain(&log, 2000).unwrap(), 0);
    assert_eq!(retain(&log, 2201).unwrap(), 3);
    assert_eq!(bases(root.path()), [3]);
    assert_eq!(log.state().log_start_offset, 3);
    assert!(is_out_of_range(&log, 2));
}

#[test]
fn when_all_is_old_an_empty_segment_keeps_the_end() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        retention_ms: 1000,
        ..LARGE
    };
    let log = open_with(root.path(), settings);
    append(&log, build(7, false, 3, 10));
    assert_eq!(retain(&log, 1_000_000).unwrap(), 1);
    assert_eq!(retain(&log, 2_000_000).unwrap(), 0);
    let state = log.state();
    assert_eq!((state.log_start_offset, state.log_end_offset), (3, 3));
    assert_eq!(bases(root.path()), [3]);
    drop(log);
    let log = open_with(root.path(), settings);
    assert_eq!(log.state(), state);
    assert_eq!(append(&log, at(1)), 3);
}

#[test]
fn retention_by_size_keeps_at_least_so_much() {
    let root = tempfile::tempdir().unwrap();
    let log = long_log(root.path());
    let before = log.size_bytes();
    log.configure(Settings {
        retention_ms: -1,
        retention_bytes: 4000,
        ..SMALL
    });
    assert!(retain(&log, 0).unwrap() > 0);
    assert!((4000..before).contains(&log.size_bytes()));
    let oldest = log.sealed_segments().unwrap()[0].size;
    assert!(log.size_bytes() - oldest < 4000);
}

#[test]
fn a_compacted_log_loses_nothing_by_age() {
    let root = tempfile::tempdir().unwrap();
    let log = long_log(root.path());
    log.configure(Settings {
        is_deleted_by_retention: false,
        is_compacted: true,
        retention_ms: 1,
        retention_bytes: 1,
        ..SMALL
    });
    assert_eq!(retain(&log, i64::MAX).unwrap(), 0);
}

#[test]
fn removed_files_go_after_their_delay() {
    let root = tempfile::tempdir().unwrap();
    let log = long_log(root.path());
    delete_records(&log, 30).unwrap();
    tick(&log);
    assert!(!files(root.path(), "deleted").is_empty());
    drop(log);
    let log = long_log(root.path().join("other").as_path());
    log.configure(Settings {
        file_delete_delay_ms: 0,
        ..SMALL
    });
    delete_records(&log, 30).unwrap();
    tick(&log);
    assert_eq!(
        files(&root.path().join("other"), "deleted"),
        Vec::<PathBuf>::new()
    );
}

/// A start after a kill leaves sealed segments to the next sync, and their files closed.
#[test]
fn a_sync_passes_segments_that_were_removed_before_it_came_to_them() {
    let root = tempfile::tempdir().unwrap();
    drop(long_log(root.path()));
    let (log, _) = open(root.path(), false);
    log.configure(Settings {
        retention_bytes: 0,
        file_delete_delay_ms: 0,
        ..SMALL
    });
    assert_eq!(log.recovery_point(), 0);
    assert!(retain(&log, 0).unwrap() > 1);
    tick(&log);
    assert_eq!(log.recovery_point(), 30);
    append(&log, plain(1, 180));
    log.sync().unwrap();
}

#[test]
fn a_segment_that_another_program_removed_fails_the_sync() {
    let root = tempfile::tempdir().unwrap();
    drop(long_log(root.path()));
    let (log, _) = open(root.path(), false);
    fs::remove_file(&files(root.path(), "log")[1]).unwrap();
    assert!(log.sync().is_err());
}

#[test]
fn the_producers_of_removed_records_are_known_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state) = open(root.path(), false);
    append(&log, build(7, false, 1, 10));
    for _ in 0..20 {
        append(&log, plain(1, 180));
    }
    delete_records(&log, 20).unwrap();
    let before = producer_state.state();
    drop(log);
    let (_, producer_state) = open_from(root.path(), from_start(20, false));
    assert_eq!(producer_state.state(), before);
}

/// Deletes a log just before one of its files or directories is changed.
struct DeletesAt(Arc<PartitionLog>, fn(&Change<'_>) -> bool);

impl Witness for DeletesAt {
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault> {
        if (self.1)(change) {
            disk::release(self.0.directory());
            self.0.delete().unwrap();
        }
        Ok(())
    }
}

/// A long log in a directory of its own that is deleted at a change to the disk.
fn deleted_at(root: &Path, change: fn(&Change<'_>) -> bool) -> Arc<PartitionLog> {
    let log = Arc::new(long_log(&root.join("orders-0")));
    let witness = DeletesAt(Arc::clone(&log), change);
    disk::watch(log.directory(), Arc::new(witness));
    log
}

#[test]
fn work_beside_the_appends_of_a_log_that_is_deleted_meanwhile_is_no_failure() {
    // The story: ten minutes of hostile requests logged `log.not_synced` twice, "No such file or
    // directory": a tick synced sealed segments of a topic that was being deleted.
    let root = tempfile::tempdir().unwrap();
    let ticked = deleted_at(root.path(), |change| matches!(change, Change::Sync(_)));
    tick(&ticked);
    assert!(ticked.is_deleted());
    assert!(ticked.take_write_health().is_empty());

    let retained = deleted_at(
        root.path(),
        |change| matches!(change, Change::Rename(_, to) if to.ends_with("00000000000000000000.log.deleted")),
    );
    let young = Settings {
        retention_ms: 0,
        ..SMALL
    };
    retained.configure(young);
    assert!(matches!(
        retain(&retained, i64::MAX / 2),
        Err(ReadError::Closed)
    ));
    assert!(retained.is_deleted());
    assert!(matches!(
        retain(&retained, i64::MAX / 2),
        Err(ReadError::Closed)
    ));
    assert!(retained.sealed_segments().unwrap().is_empty());
    assert!(retained.take_damage().is_empty());
}

/// Notes of a log start and changes to the disk, in their order.
#[derive(Default)]
struct Order(Mutex<Vec<String>>);

impl Order {
    fn add(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn position(&self, what: &str) -> usize {
        let all = self.0.lock().unwrap();
        all.iter().position(|each| each == what).unwrap()
    }
}

impl Witness for Order {
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault> {
        match change {
            Change::Sync(path) if path.extension().is_some_and(|found| found == "log") => {
                self.add("sync".to_owned());
            }
            Change::Rename(_, to) if to.extension().is_some_and(|found| found == "deleted") => {
                self.add("removal".to_owned());
            }
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn a_log_start_is_noted_behind_the_sync_and_before_the_first_removal() {
    let removals: [fn(&PartitionLog, &Order); 2] = [
        |log, order| {
            let mut note = |start| {
                order.add(format!("note {start}"));
                Ok(())
            };
            log.delete_records(30, &mut note).unwrap();
        },
        |log, order| {
            let expired = log.find_expired(i64::MAX).unwrap().unwrap();
            let mut note = |start| {
                order.add(format!("note {start}"));
                Ok(())
            };
            assert!(log.remove_expired(expired, &mut note).unwrap() > 1);
        },
    ];
    for remove in removals {
        let root = tempfile::tempdir().unwrap();
        let log = long_log(root.path());
        log.configure(Settings {
            retention_ms: 0,
            ..SMALL
        });
        let order = Arc::new(Order::default());
        disk::watch(root.path(), Arc::clone(&order) as Arc<dyn Witness>);

        remove(&log, &order);

        disk::release(root.path());
        assert!(order.position("sync") < order.position("note 30"));
        assert!(order.position("note 30") < order.position("removal"));
    }
}

#[test]
fn what_goes_by_size_goes_once_the_records_that_count_for_it_are_on_the_disk() {
    let root = tempfile::tempdir().unwrap();
    let log = long_log(root.path());
    log.sync_up_to(bases(root.path())[1]).unwrap();
    log.configure(Settings {
        retention_ms: -1,
        retention_bytes: 4000,
        ..SMALL
    });
    assert!(log.recovery_point() < log.state().log_end_offset);

    let expired = log.find_expired(0).unwrap().unwrap();

    assert!(expired.end_offset < log.state().log_end_offset);
    assert_eq!(log.recovery_point(), log.state().log_end_offset);
}

#[test]
fn what_goes_by_age_waits_for_no_later_record() {
    let root = tempfile::tempdir().unwrap();
    let log = long_log(root.path());
    let synced = log.recovery_point();
    log.configure(Settings {
        retention_ms: 0,
        ..SMALL
    });
    log.find_expired(i64::MAX).unwrap().unwrap();
    assert_eq!(log.recovery_point(), synced);
}

#[test]
fn nothing_is_removed_if_its_start_cannot_be_noted() {
    let root = tempfile::tempdir().unwrap();
    let log = long_log(root.path());
    log.configure(Settings {
        retention_ms: 0,
        ..SMALL
    });
    let before = (log.state(), bases(root.path()));
    let mut full = |_| Err(io::Error::other("the disk is full"));
    assert!(log.delete_records(20, &mut full).is_err());
    assert_eq!((log.state(), bases(root.path())), before);
    let expired = log.find_expired(i64::MAX).unwrap().unwrap();
    assert!(log.remove_expired(expired, &mut full).is_err());
    assert_eq!(log.state(), before.0);
    assert!(retain(&log, i64::MAX).unwrap() > 0);
    assert_eq!(log.state().log_start_offset, 30);
}

/// Removes the first segment of a log, as a fault of the disk may; returns the log start and the
/// next segment.
fn first_segment_gone(directory: &Path) -> (i64, PathBuf) {
    let log = long_log(directory);
    log.sync().unwrap();
    drop(log);
    for extension in ["log", "index", "timeindex", "txnindex"] {
        fs::remove_file(files(directory, extension).remove(0)).unwrap();
    }
    (0, files(directory, "log").remove(0))
}

#[test]
fn a_first_segment_that_no_removal_took_is_missed_after_a_kill_and_a_power_failure() {
    let root = tempfile::tempdir().unwrap();
    let (start, next) = first_segment_gone(root.path());
    let killed = from_start(start, false);
    let power_failed = Past {
        power_failed: true,
        recovery_point: 30,
        ..killed
    };
    for past in [killed, power_failed] {
        let refused = try_open_from(root.path(), SMALL, past);
        assert!(matches!(refused, Err(OpenError::Corrupt(error)) if error.path == next));
    }
    // Nothing proves that the first segment ever was on the disk, or that there was an entry.
    let unsynced = Past {
        recovery_point: 0,
        ..power_failed
    };
    let without_entry = Past {
        log_start_offset: None,
        ..killed
    };
    let of_kafka = Past {
        was_left_by_kafka: true,
        ..killed
    };
    for past in [unsynced, without_entry, of_kafka] {
        assert!(try_open_from(root.path(), SMALL, past).is_ok());
    }
}

#[test]
fn a_log_without_any_segment_that_has_a_start_is_damaged_unless_the_power_failed() {
    let root = tempfile::tempdir().unwrap();
    let killed = from_start(0, false);
    let refused = try_open_from(root.path(), SMALL, killed);
    assert!(matches!(refused, Err(OpenError::Corrupt(_))));
    let power_failed = Past {
        power_failed: true,
        ..killed
    };
    assert!(try_open_from(root.path(), SMALL, power_failed).is_ok());
}

#[test]
fn the_loss_of_a_first_segment_is_carried_out_from_the_next_one_on() {
    let root = tempfile::tempdir().unwrap();
    let (start, next) = first_segment_gone(root.path());
    let plan = losses::plan(root.path(), &SMALL, from_start(start, false), None).unwrap();
    assert_eq!((plan.kept_end, plan.next_offset), (30, 30));
    let first = losses::carry_out(root.path(), &plan).unwrap();
    assert_eq!(
        format!("{first:020}.log"),
        next.file_name().unwrap().to_str().unwrap()
    );
    let (log, _) = open_from(root.path(), from_start(first, false));
    assert_eq!(log.state().log_start_offset, first);
}
