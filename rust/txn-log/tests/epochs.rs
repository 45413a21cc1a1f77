//! A log's treatment of leader epochs that another broker left, or that its leader is given.

mod common;

use std::fs;
use std::path::Path;

use common::{CLIENT, open, plain};
use txn_log::PartitionLog;
use txn_protocol::batch::Batches;

/// Two batches of epoch 0, then two of epoch 2; the log is closed.
fn write_two_epochs(directory: &Path) {
    let (log, _) = open(directory, false);
    append(&log);
    append(&log);
    log.lead(2);
    append(&log);
    append(&log);
    log.close().unwrap();
}

fn append(log: &PartitionLog) {
    log.append(CLIENT, &mut plain(5, 5)).unwrap();
}

fn stored_epochs(log: &PartitionLog) -> Vec<i32> {
    let bytes = log.read(0, 1 << 20).unwrap();
    let batches = Batches::new(&bytes).map(|batch| batch.leader_epoch());
    batches.collect()
}

fn checkpoint(directory: &Path) -> String {
    fs::read_to_string(directory.join("leader-epoch-checkpoint")).unwrap()
}

#[test]
fn batches_carry_the_epoch_of_their_leader() {
    let root = tempfile::tempdir().unwrap();
    write_two_epochs(root.path());
    let (log, _) = open(root.path(), true);
    assert_eq!(stored_epochs(&log), [0, 0, 2, 2]);
    assert_eq!(checkpoint(root.path()), "0\n2\n0 0\n2 10\n");
}

#[test]
fn a_log_that_is_told_nothing_goes_on_in_the_epoch_of_its_newest_batch() {
    let root = tempfile::tempdir().unwrap();
    write_two_epochs(root.path());
    let (log, _) = open(root.path(), true);
    log.lead(1);
    append(&log);
    assert_eq!(log.leader_epoch(), 2);
    assert_eq!(stored_epochs(&log), [0, 0, 2, 2, 2]);
}

#[test]
fn an_epoch_ends_where_the_next_begins_and_the_leaders_at_the_log_end() {
    let root = tempfile::tempdir().unwrap();
    write_two_epochs(root.path());
    let (log, _) = open(root.path(), true);
    log.lead(4);
    let ends = [-1, 0, 1, 2, 3, 4, 5].map(|epoch| log.end_of_epoch(epoch));
    assert_eq!(
        ends,
        [
            None,
            Some((0, 10)),
            Some((0, 10)),
            Some((2, 20)),
            Some((2, 20)),
            Some((4, 20)),
            None
        ]
    );
    assert_eq!(
        [0, 9, 10, 19, 20].map(|offset| log.epoch_of(offset)),
        [0, 0, 2, 2, 4]
    );
}

#[test]
fn a_checkpoint_that_is_missing_or_damaged_is_made_from_the_batches() {
    for was_clean in [true, false] {
        for damage in [None, Some(""), Some("0\n1\nx"), Some("\u{0}\u{0}")] {
            let root = tempfile::tempdir().unwrap();
            write_two_epochs(root.path());
            let path = root.path().join("leader-epoch-checkpoint");
            match damage {
                None => fs::remove_file(path).unwrap(),
                Some(text) => fs::write(path, text).unwrap(),
            }
            let (log, _) = open(root.path(), was_clean);
            assert_eq!(log.leader_epoch(), 2);
            assert_eq!(checkpoint(root.path()), "0\n2\n0 0\n2 10\n");
        }
    }
}

#[test]
fn a_checkpoint_that_lags_behind_a_crash_is_brought_up_to_the_batches() {
    let root = tempfile::tempdir().unwrap();
    write_two_epochs(root.path());
    fs::write(root.path().join("leader-epoch-checkpoint"), "0\n1\n0 0\n").unwrap();
    let (log, _) = open(root.path(), false);
    assert_eq!(log.end_of_epoch(0), Some((0, 10)));
    assert_eq!(checkpoint(root.path()), "0\n2\n0 0\n2 10\n");
}

#[test]
fn an_epoch_whose_batches_a_crash_cut_off_is_forgotten() {
    let root = tempfile::tempdir().unwrap();
    write_two_epochs(root.path());
    fs::write(
        root.path().join("leader-epoch-checkpoint"),
        "0\n3\n0 0\n2 10\n7 20\n",
    )
    .unwrap();
    let (log, _) = open(root.path(), false);
    assert_eq!(log.leader_epoch(), 2);
    assert_eq!(checkpoint(root.path()), "0\n2\n0 0\n2 10\n");
}

#[test]
fn a_checkpoint_that_contradicts_the_batches_is_made_anew() {
    // The story: a flipped bit in an epoch's first offset told consumers that their log was cut.
    for wrong in [
        "0 0\n2 11\n",
        "0 0\n2 5\n",
        "0 0\n1 10\n",
        "0 0\n3 10\n",
        "0 3\n2 10\n",
        "1 0\n2 10\n",
        "0 0\n2 20\n",
    ] {
        let root = tempfile::tempdir().unwrap();
        write_two_epochs(root.path());
        let path = root.path().join("leader-epoch-checkpoint");
        fs::write(&path, format!("0\n2\n{wrong}")).unwrap();
        let (log, _) = open(root.path(), true);
        assert_eq!(log.end_of_epoch(0), Some((0, 10)), "{wrong:?}");
        assert_eq!(checkpoint(root.path()), "0\n2\n0 0\n2 10\n", "{wrong:?}");
    }
}
