//! The part that a start after a crash believes, and the part that it reads again.

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;

use common::{
    SMALL, append, build, delete_records, essence, files, log_bytes, marker, open, open_from,
    plain, replay_of, tear_snapshots, tick, transactional, try_open_from, write_history,
};
use txn_log::{OpenError, PartitionLog, Past, Settings, losses};
use txn_protocol::batch::Batches;

fn behind(recovery_point: i64) -> Past {
    Past {
        recovery_point,
        ..Past::default()
    }
}

/// Syncs after each batch until one begins the second segment; returns the recovery point, where the
/// first one ends.
fn roll_at_recovery_point(log: &PartitionLog, directory: &Path) -> i64 {
    loop {
        log.sync().unwrap();
        let synced = log.recovery_point();
        append(log, plain(1, 200));
        if files(directory, "log").len() == 2 {
            return synced;
        }
    }
}

fn flip(path: &Path, position: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[position] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_sync_moves_the_recovery_point_to_the_end() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    assert_eq!(log.recovery_point(), 0);
    append(&log, plain(3, 10));
    assert_eq!(log.recovery_point(), 0);
    log.sync().unwrap();
    assert_eq!(log.recovery_point(), 3);
}

#[test]
fn a_tick_syncs_what_is_sealed_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    write_history(&log);
    assert_eq!(log.recovery_point(), 0);
    tick(&log);
    let active = log.sealed_segments().unwrap().last().unwrap().end_offset;
    assert_eq!(log.recovery_point(), active);
}

/// The story: a checkpoint written between a roll and the next sync named the log no more, and
/// after a power failure its directory could be missing without a word.
#[test]
fn a_roll_leaves_the_recovery_point_where_it_is() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    let synced = roll_at_recovery_point(&log, root.path());
    assert!(log.flush_due().is_some());
    assert_eq!(log.recovery_point(), synced);
}

#[test]
fn a_start_after_a_kill_goes_on_from_the_recovery_point_of_the_run_before() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, plain(3, 10));
    log.sync().unwrap();
    append(&log, plain(2, 10));
    drop(log);

    for power_failed in [false, true] {
        let past = Past {
            power_failed,
            ..behind(3)
        };
        let (log, _) = open_from(root.path(), past);
        assert_eq!(log.recovery_point(), 3);
    }
}

/// The story: sealed after the last sync, believed by the start after a kill, and never forced.
#[test]
fn a_start_after_a_kill_forces_the_indexes_of_a_segment_that_ends_at_the_recovery_point() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    let point = roll_at_recovery_point(&log, root.path());
    drop(log);

    let (log, _) = open_from(root.path(), behind(point));

    assert_eq!(log.flush_due(), Some(point));
    tick(&log);
    assert_eq!(log.flush_due(), None);
}

#[test]
fn flush_settings_sync_without_being_asked() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        flush_messages: 5,
        ..SMALL
    };
    let (log, _) = try_open_from(root.path(), settings, Past::default()).unwrap();
    append(&log, plain(4, 10));
    assert_eq!(log.recovery_point(), 0);
    append(&log, plain(1, 10));
    assert_eq!(log.recovery_point(), 5);
    append(&log, plain(1, 10));
    log.configure(Settings {
        flush_ms: 0,
        ..SMALL
    });
    tick(&log);
    assert_eq!(log.recovery_point(), 6);
}

#[test]
fn only_what_lies_behind_the_recovery_point_is_read() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state) = open(root.path(), false);
    write_history(&log);
    log.sync().unwrap();
    append(&log, plain(2, 5));
    let (state, point, bytes) = (log.state(), log.recovery_point(), log_bytes(root.path()));
    drop(log);
    // Damage that a full scan would stop at.
    flip(&files(root.path(), "log")[0], 80);
    let (log, recovered) = try_open_from(root.path(), SMALL, behind(point)).unwrap();
    assert_eq!(log.state(), state);
    assert_eq!(recovered.state(), producer_state.state());
    assert_eq!(log_bytes(root.path()).len(), bytes.len());
    assert!(try_open_from(root.path(), SMALL, behind(0)).is_err());
}

#[test]
fn every_recovery_point_gives_the_same_state() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state) = open(root.path(), false);
    write_history(&log);
    let state = log.state();
    drop(log);
    for recovery_point in 0..=state.log_end_offset {
        let (log, recovered) = try_open_from(root.path(), SMALL, behind(recovery_point)).unwrap();
        assert_eq!(log.state(), state, "recovery point {recovery_point}");
        assert_eq!(
            recovered.state(),
            producer_state.state(),
            "recovery point {recovery_point}"
        );
    }
}

#[test]
fn without_the_snapshot_of_the_recovery_point_more_is_replayed() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state) = open(root.path(), false);
    write_history(&log);
    log.sync().unwrap();
    let point = log.recovery_point();
    drop(log);
    for path in files(root.path(), "snapshot") {
        flip(&path, 3);
        let (_, recovered) = try_open_from(root.path(), SMALL, behind(point)).unwrap();
        assert_eq!(recovered.state(), producer_state.state());
    }
}

#[test]
fn a_damaged_marker_that_is_replayed_is_told_of_below_the_recovery_point_too() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, transactional(1, 2));
    log.append_marker(&marker(1, true)).unwrap();
    while files(root.path(), "log").len() == 1 {
        append(&log, plain(1, 200));
    }
    log.sync().unwrap();
    let point = log.recovery_point();
    drop(log);
    let damaged = files(root.path(), "log").remove(0);
    let bytes = fs::read(&damaged).unwrap();
    let at = Batches::new(&bytes)
        .take(2)
        .map(|batch| batch.bytes().len())
        .sum::<usize>();
    flip(&damaged, at - 1); // the number of headers of the control record
    for path in files(root.path(), "snapshot") {
        fs::remove_file(path).unwrap();
    }

    let opened = try_open_from(root.path(), SMALL, behind(point));

    let Err(OpenError::Corrupt(corrupt)) = opened else {
        panic!("it opened");
    };
    assert_eq!(corrupt.path, damaged);
}

#[test]
fn a_recovery_point_beyond_the_end_proves_a_loss() {
    // The story: after a power failure a log that was emptied, or that had lost its last segment,
    // was served as far as it went, though the checkpoint said that more was on the disk.
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    write_history(&log);
    drop(log);
    let last = files(root.path(), "log").pop().unwrap();
    let torn = fs::read(&last).unwrap();
    fs::write(&last, &torn[..torn.len() - 1]).unwrap();
    for power_failed in [false, true] {
        let past = Past {
            power_failed,
            ..behind(1 << 40)
        };
        let refused = try_open_from(root.path(), SMALL, past);
        assert!(matches!(refused, Err(OpenError::Corrupt(_))));
        assert_eq!(fs::metadata(&last).unwrap().len() as usize, torn.len() - 1);
    }
}

#[test]
fn after_a_power_failure_an_emptied_log_is_refused_if_something_of_it_was_on_the_disk() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, plain(2, 60));
    log.sync().unwrap();
    let past = Past {
        power_failed: true,
        ..behind(log.recovery_point())
    };
    drop(log);
    let file = files(root.path(), "log").pop().unwrap();
    fs::write(&file, b"").unwrap();

    let Err(OpenError::Corrupt(corrupt)) = try_open_from(root.path(), SMALL, past) else {
        panic!("it opened");
    };

    assert!(corrupt.reason.contains("on the disk up to 2"), "{corrupt}");
    let unsynced = Past {
        recovery_point: 0,
        ..past
    };
    assert!(try_open_from(root.path(), SMALL, unsynced).is_ok());
}

/// Makes a file so much longer by a hole.
fn add_hole(path: &Path, bytes: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() + bytes)
        .unwrap();
}

#[test]
fn a_hole_of_256_gib_at_the_end_is_not_read() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, plain(2, 60));
    drop(log);
    let last = files(root.path(), "log").pop().unwrap();
    let size = fs::metadata(&last).unwrap().len();
    add_hole(&last, 256 << 30);

    let Err(OpenError::Corrupt(corrupt)) = try_open_from(root.path(), SMALL, behind(0)) else {
        panic!("no kill leaves such a log");
    };
    assert!(corrupt.reason.contains("Nothing was cut"), "{corrupt}");
    let power_failed = Past {
        power_failed: true,
        ..behind(0)
    };
    let (log, _) = try_open_from(root.path(), SMALL, power_failed).unwrap();
    assert_eq!(log.state().log_end_offset, 2);
    assert_eq!(fs::metadata(&last).unwrap().len(), size);
}

#[test]
fn a_batch_behind_a_hole_of_256_gib_is_found() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, plain(2, 60));
    drop(log);
    let last = files(root.path(), "log").pop().unwrap();
    let mut next = fs::read(&last).unwrap();
    next[..8].copy_from_slice(&2_i64.to_be_bytes()); // its offset, which no checksum covers
    add_hole(&last, 256 << 30);
    let mut file = fs::OpenOptions::new().append(true).open(&last).unwrap();
    file.write_all(&next).unwrap();

    let Err(OpenError::Corrupt(corrupt)) = try_open_from(root.path(), SMALL, behind(0)) else {
        panic!("it opened");
    };

    assert!(
        corrupt.reason.contains("a valid batch follows"),
        "{corrupt}"
    );
}

#[test]
fn damage_below_the_recovery_point_is_no_torn_tail() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    write_history(&log);
    log.sync().unwrap();
    let point = log.recovery_point();
    drop(log);
    let last = files(root.path(), "log").pop().unwrap();
    let size = fs::metadata(&last).unwrap().len() as usize;
    flip(&last, size - 1);
    let opened = try_open_from(root.path(), SMALL, behind(point));
    let Err(OpenError::Corrupt(corrupt)) = opened else {
        panic!("it opened");
    };
    assert_eq!(corrupt.path, last);
    assert!(
        corrupt.reason.contains("its full length is there"),
        "{corrupt}"
    );
    let power_failed = |recovery_point| Past {
        power_failed: true,
        ..behind(recovery_point)
    };
    let opened = try_open_from(root.path(), SMALL, power_failed(point));
    let Err(OpenError::Corrupt(corrupt)) = opened else {
        panic!("it opened");
    };
    assert_eq!(corrupt.path, last);
    assert!(corrupt.reason.contains("was on the disk"), "{corrupt}");
    assert_eq!(fs::metadata(&last).unwrap().len() as usize, size);
    // Nothing of it was synced as far as anybody knows.
    assert!(try_open_from(root.path(), SMALL, power_failed(0)).is_ok());
}

#[test]
fn after_a_power_failure_the_log_ends_at_the_first_torn_batch() {
    for (what, position) in [("the second batch's offset", 80), ("a record", 70)] {
        let root = tempfile::tempdir().unwrap();
        let (log, _) = open(root.path(), false);
        write_history(&log);
        drop(log);
        let logs = files(root.path(), "log");
        flip(&logs[1], position);
        assert!(try_open_from(root.path(), SMALL, behind(0)).is_err());
        let past = Past {
            power_failed: true,
            ..behind(0)
        };
        let (log, _) = try_open_from(root.path(), SMALL, past).unwrap();
        assert_eq!(files(root.path(), "log"), logs[..2], "{what}");
        assert!(log.state().log_end_offset > 0);
    }
}

/// A log and its directory, in which a sealed segment has lost its last batch; the lost offsets.
fn history_with_a_gap(root: &Path) -> (Vec<std::path::PathBuf>, std::ops::Range<i64>) {
    let (log, _) = open(root, false);
    write_history(&log);
    drop(log);
    let logs = files(root, "log");
    let bytes = fs::read(&logs[1]).unwrap();
    let last = Batches::new(&bytes).last().unwrap();
    let left = bytes.len() - last.size();
    fs::write(&logs[1], &bytes[..left]).unwrap();
    (logs, last.base_offset()..last.last_offset() + 1)
}

/// The start took such a gap for the cleaner's, and served the log with a hole (seed 9002898 of the
/// simulation).
#[test]
fn after_a_power_failure_a_compacted_log_ends_where_a_sealed_segment_lost_its_end() {
    let root = tempfile::tempdir().unwrap();
    let (logs, lost) = history_with_a_gap(root.path());
    let past = Past {
        power_failed: true,
        cleaned_end: Some(lost.start),
        ..behind(0)
    };

    let (log, producer_state) = try_open_from(root.path(), SMALL, past).unwrap();

    assert_eq!(log.state().log_end_offset, lost.start);
    assert_eq!(files(root.path(), "log"), logs[..2]);
    let cut = &log.cuts()[0];
    assert_eq!((&cut.path, cut.first_offset), (&logs[1], lost.start));
    assert_eq!(cut.reason, "power failure: its end is missing");
    let replayed = replay_of(&log_bytes(root.path()));
    assert_eq!(essence(&producer_state.state()), essence(&replayed));
    assert_eq!(append(&log, plain(2, 60)), lost.start);
    let known = (log.state(), log.aborted_in(0, i64::MAX));
    log.close().unwrap();
    let (log, _) = open(root.path(), true);
    assert_eq!((log.state(), log.aborted_in(0, i64::MAX)), known);
}

/// Apache Kafka's cleaner keeps the last batch of a cleaning, and not of each segment.
#[test]
fn a_gap_that_a_cleaner_may_have_left_stays() {
    let root = tempfile::tempdir().unwrap();
    let (logs, lost) = history_with_a_gap(root.path());
    let killed = Past {
        cleaned_end: Some(0),
        ..behind(0)
    };
    let power_failed = Past {
        power_failed: true,
        ..killed
    };
    let pasts = [
        killed,
        Past {
            cleaned_end: Some(lost.end),
            ..power_failed
        },
        Past {
            recovery_point: lost.end,
            ..power_failed
        },
        Past {
            was_left_by_kafka: true, // which notes the end of a cleaning after it
            ..power_failed
        },
    ];
    for past in pasts {
        let (log, _) = try_open_from(root.path(), SMALL, past).unwrap();
        assert_eq!(log.cuts(), [], "{past:?}");
        assert_eq!(files(root.path(), "log"), logs, "{past:?}");
    }
}

#[test]
fn a_gap_that_begins_below_the_recovery_point_is_damage() {
    let root = tempfile::tempdir().unwrap();
    let (logs, lost) = history_with_a_gap(root.path());
    let past = Past {
        power_failed: true,
        cleaned_end: Some(0),
        ..behind(lost.start + 1)
    };

    let Err(OpenError::Corrupt(corrupt)) = try_open_from(root.path(), SMALL, past) else {
        panic!("it opened");
    };

    assert_eq!(corrupt.path, logs[1]);
    assert!(corrupt.reason.contains("its end is missing"), "{corrupt}");
    let plan = losses::plan(root.path(), &SMALL, past, None).unwrap();
    assert_eq!(plan.kept_end, lost.start);
    assert_eq!(plan.given_up.len(), logs.len() - 2);
}

/// A batch whose header was sound, and that ended below the recovery point, was cut off with
/// everything behind it that had been synced.
#[test]
fn after_a_power_failure_nothing_below_the_recovery_point_is_cut() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    for _ in 0..4 {
        append(&log, plain(2, 60));
    }
    log.sync().unwrap();
    let past = Past {
        power_failed: true,
        ..behind(log.recovery_point())
    };
    drop(log);
    let last = files(root.path(), "log").pop().unwrap();
    let before = fs::metadata(&last).unwrap().len();
    flip(&last, 70);
    let opened = try_open_from(root.path(), SMALL, past);
    assert!(matches!(opened, Err(OpenError::Corrupt(_))));
    assert_eq!(fs::metadata(&last).unwrap().len(), before);
}

#[test]
fn after_a_power_failure_indexes_whose_segment_is_gone_go_too() {
    let root = tempfile::tempdir().unwrap();
    drop(open(root.path(), false));
    fs::create_dir_all(root.path()).unwrap();
    for extension in ["index", "timeindex", "txnindex"] {
        fs::write(
            root.path().join(format!("{:020}.{extension}", 7)),
            b"rubbish",
        )
        .unwrap();
    }
    let power_failed = true;
    let past = Past {
        power_failed,
        ..behind(0)
    };
    let (log, _) = try_open_from(root.path(), SMALL, past).unwrap();
    assert_eq!(
        files(root.path(), "txnindex"),
        Vec::<std::path::PathBuf>::new()
    );
    assert_eq!(log.state().log_end_offset, 0);
}

#[test]
fn aborted_transactions_outlive_a_power_failure_after_a_roll_at_the_recovery_point() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, transactional(1, 2));
    log.append_marker(&marker(1, false)).unwrap();
    let recovery_point = roll_at_recovery_point(&log, root.path());
    let known = log.aborted_in(0, i64::MAX);
    assert_eq!(known.len(), 1);
    drop(log);
    // Neither was forced to the disk: the segment was the active one at the sync.
    fs::write(&files(root.path(), "txnindex")[0], b"").unwrap();
    fs::write(root.path().join("txnindex-checkpoint"), b"").unwrap();

    let past = Past {
        power_failed: true,
        recovery_point,
        ..Past::default()
    };
    let (log, producer_state) = open_from(root.path(), past);

    assert_eq!(log.aborted_in(0, i64::MAX), known);
    assert_eq!(producer_state.state().aborted.len(), 1);
    assert_eq!(log.state().log_end_offset, recovery_point + 1);
}

/// The story: a start after a kill took the snapshot of a roll for one that was on the disk, and
/// removed the one that was. It alone knew the producers of a removed segment.
#[test]
fn a_start_after_a_kill_keeps_the_snapshot_that_was_forced() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, build(7, false, 1, 20));
    while files(root.path(), "log").len() < 2 {
        append(&log, plain(1, 180));
    }
    drop(log);
    tear_snapshots(root.path());
    let power_failed = Past {
        power_failed: true,
        ..Past::default()
    };
    let (log, _) = open_from(root.path(), power_failed);
    let base = log.sealed_segments().unwrap()[0].end_offset;
    log.close().unwrap();
    let end = log.state().log_end_offset;
    drop(log);
    let closed = Past {
        was_clean: true,
        recovery_point: end,
        high_watermark: end,
        log_start_offset: Some(0),
        ..Past::default()
    };
    let (log, _) = open_from(root.path(), closed);
    delete_records(&log, base).unwrap();
    assert_eq!(files(root.path(), "log").len(), 1);
    let point = roll_at_recovery_point(&log, root.path());
    drop(log);

    let past = Past {
        log_start_offset: Some(base),
        ..behind(point)
    };
    drop(open_from(root.path(), past)); // killed again, before its first tick
    fs::write(root.path().join(format!("{point:020}.snapshot")), b"").unwrap();
    let past = Past {
        power_failed: true,
        ..past
    };
    let (_, producer_state) = open_from(root.path(), past);

    assert_eq!(producer_state.state().recent.get(&7), Some(&vec![0]));
}
