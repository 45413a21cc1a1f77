//! The truncation of a replica: whole, durable, with a crash between any two steps.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::journal::{Journal, after_kill, after_power_failure};
use common::{
    CLIENT, TestProducerState, append, build, essence, files, marker, no_checkpoints, open,
    open_from, plain, replay_of, transactional, try_open_from, write_history,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use txn_log::disk::{self, Witness};
use txn_log::{AppendError, Isolation, PartitionLog, Past, Role};
use txn_protocol::batch::Batches;

/// A follower's log with the history of [`write_history`], one epoch for every four rounds.
fn follower(directory: &Path) -> (PartitionLog, Arc<TestProducerState>) {
    let (log, producer_state) = open(directory, false);
    write_history(&log);
    log.set_role(Role::Leader, 3);
    append(&log, plain(2, 60));
    log.set_role(Role::Follower, 3);
    (log, producer_state)
}

fn stored(log: &PartitionLog) -> Vec<u8> {
    let mut bytes = Vec::new();
    let state = log.state();
    let mut next = state.log_start_offset;
    while next < state.log_end_offset {
        let run = log.read(next, 1 << 20).unwrap();
        next = Batches::new(&run).last().unwrap().last_offset() + 1;
        bytes.extend_from_slice(&run);
    }
    bytes
}

fn ends(bytes: &[u8]) -> Vec<i64> {
    let ends = Batches::new(bytes).map(|batch| batch.last_offset() + 1);
    [0].into_iter().chain(ends).collect()
}

/// Log, producer state, aborted transactions and last stable offset are those of a log that never
/// held more.
fn check_whole(
    log: &PartitionLog,
    producer_state: &TestProducerState,
    expected: &[u8],
) -> Result<(), TestCaseError> {
    let bytes = stored(log);
    prop_assert_eq!(ends(&bytes), ends(expected));
    prop_assert!(bytes == expected);
    let replayed = replay_of(expected);
    prop_assert_eq!(essence(&producer_state.state()), essence(&replayed));
    let named = log.aborted_in(0, i64::MAX);
    prop_assert_eq!(named.len(), replayed.aborted.len());
    let state = log.state();
    let open = replay_of(prefix(expected, state.high_watermark)).open;
    let first = open.values().min().copied().unwrap_or(i64::MAX);
    prop_assert_eq!(state.last_stable_offset, first.min(state.high_watermark));
    Ok(())
}

fn prefix(bytes: &[u8], end: i64) -> &[u8] {
    let below = Batches::new(bytes).take_while(|batch| batch.last_offset() < end);
    &bytes[..below.map(|batch| batch.size()).sum()]
}

#[test]
fn a_log_that_is_truncated_is_as_if_it_never_had_more() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = follower(root.path());
    let whole = stored(&log);
    drop(log);
    for offset in (0..*ends(&whole).last().unwrap()).rev() {
        let root = tempfile::tempdir().unwrap();
        let (log, producer_state) = follower(root.path());

        let end = log.truncate_to(offset, &mut no_checkpoints).unwrap();

        assert!(end <= offset && ends(&whole).contains(&end));
        assert!(
            !ends(&whole)
                .iter()
                .any(|&other| other > end && other <= offset)
        );
        let state = log.state();
        assert_eq!((state.log_end_offset, state.high_watermark), (end, end));
        check_whole(&log, &producer_state, prefix(&whole, end)).unwrap();
        assert!(log.recovery_point() <= end);
        assert!(files(root.path(), "snapshot").iter().all(|path| {
            let offset: i64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
            offset <= end
        }));
        log.append_as_follower(&whole[prefix(&whole, end).len()..], 3, &mut no_checkpoints)
            .unwrap();
        check_whole(&log, &producer_state, &whole).unwrap();
        log.close().unwrap();
        let (log, producer_state) = open(root.path(), true);
        check_whole(&log, &producer_state, &whole).unwrap();
    }
}

#[test]
fn an_epoch_begins_where_its_leader_was_elected_and_goes_with_a_truncation() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, plain(4, 5));
    assert_eq!(log.set_role(Role::Leader, 2), 4);
    assert_eq!(log.latest_epoch(), Some(2));
    assert_eq!(log.end_of_epoch(0), Some((0, 4)));
    assert_eq!(log.set_role(Role::Leader, 5), 4);
    append(&log, plain(3, 5));
    assert_eq!(
        (log.end_of_epoch(2), log.end_of_epoch(4)),
        (Some((0, 4)), Some((0, 4)))
    );
    assert_eq!(log.end_of_epoch(5), Some((5, 7)));
    let stored = fs::read_to_string(root.path().join("leader-epoch-checkpoint")).unwrap();
    assert_eq!(stored, "0\n2\n0 0\n5 4\n");
    log.set_role(Role::Leader, 6);
    log.set_role(Role::Follower, 7);
    assert_eq!(log.truncate_to(7, &mut no_checkpoints).unwrap(), 7);
    assert_eq!(log.latest_epoch(), Some(5));
    assert_eq!(log.truncate_to(4, &mut no_checkpoints).unwrap(), 4);
    assert_eq!(log.latest_epoch(), Some(0));
}

#[test]
fn a_follower_takes_nothing_of_clients_and_a_leader_nothing_of_a_leader() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = follower(root.path());
    let refused = log.append(CLIENT, &mut plain(1, 5));
    assert!(
        matches!(refused, Err(AppendError::Refused { code: 6, .. })),
        "{refused:?}"
    );
    log.set_role(Role::Leader, 4);
    let refused = log.append_as_follower(&plain(1, 5), 4, &mut no_checkpoints);
    assert!(
        matches!(refused, Err(AppendError::Refused { code: 6, .. })),
        "{refused:?}"
    );
    let refused = log.truncate_to(1, &mut no_checkpoints);
    assert!(
        matches!(refused, Err(AppendError::Refused { code: 6, .. })),
        "{refused:?}"
    );
}

#[test]
fn batches_of_a_later_epoch_out_of_place_or_damaged_are_not_stored() {
    let (root, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (leader, _) = open(root.path(), false);
    append(&leader, plain(2, 5));
    leader.lead(4);
    append(&leader, plain(2, 5));
    let bytes = stored(&leader);
    let (log, _) = open(copy.path(), false);
    log.set_role(Role::Follower, 3);
    assert_eq!(
        log.append_as_follower(&bytes, 3, &mut no_checkpoints)
            .unwrap(),
        2
    );
    let again = log.append_as_follower(&bytes, 4, &mut no_checkpoints);
    assert!(
        matches!(again, Err(AppendError::Refused { .. })),
        "{again:?}"
    );
    let second = &bytes[prefix(&bytes, 2).len()..];
    let mut damaged = second.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let refused = log.append_as_follower(&damaged, 4, &mut no_checkpoints);
    assert!(
        matches!(refused, Err(AppendError::Corrupt { .. })),
        "{refused:?}"
    );
    assert_eq!(
        log.append_as_follower(&second[..second.len() - 1], 4, &mut no_checkpoints)
            .unwrap(),
        2
    );
    assert_eq!(
        log.append_as_follower(second, 4, &mut no_checkpoints)
            .unwrap(),
        4
    );
    assert_eq!(stored(&log), bytes);
    assert_eq!(log.end_of_epoch(0), Some((0, 2)));
}

#[test]
fn an_empty_log_may_begin_within_a_batch() {
    let (root, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (leader, _) = open(root.path(), false);
    append(&leader, plain(5, 5));
    let bytes = stored(&leader);
    let (log, _) = open(copy.path(), false);
    log.set_role(Role::Follower, 0);
    assert_eq!(
        log.truncate_fully_and_start_at(3, &mut no_checkpoints)
            .unwrap(),
        3
    );
    assert_eq!(
        log.append_as_follower(&bytes, 0, &mut no_checkpoints)
            .unwrap(),
        5
    );
    assert_eq!(
        (
            log.state().log_start_offset,
            log.readable_end(Isolation::LogEnd)
        ),
        (3, 5)
    );
    assert_eq!(log.read(3, 1).unwrap(), bytes);
    drop(log);
    let past = Past {
        log_start_offset: Some(3),
        ..Past::default()
    };
    let (log, _) = open_from(copy.path(), past);
    assert_eq!(
        (log.state().log_start_offset, log.state().log_end_offset),
        (3, 5)
    );
}

#[test]
fn a_log_that_starts_again_holds_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state) = follower(root.path());
    let end = log.state().log_end_offset;
    for offset in [end + 100, 7] {
        assert_eq!(
            log.truncate_fully_and_start_at(offset, &mut no_checkpoints)
                .unwrap(),
            offset
        );
        let state = log.state();
        assert_eq!(
            (state.log_start_offset, state.log_end_offset),
            (offset, offset)
        );
        assert_eq!(essence(&producer_state.state()), essence(&replay_of(&[])));
        assert_eq!(
            (log.latest_epoch(), log.aborted_in(0, i64::MAX)),
            (None, vec![])
        );
        log.set_role(Role::Leader, 9);
        assert_eq!(append(&log, transactional(1, 2)), offset);
        log.set_role(Role::Follower, 9);
    }
    log.close().unwrap();
    let (log, producer_state) = open(root.path(), true);
    assert_eq!(
        (log.state().log_start_offset, log.state().log_end_offset),
        (7, 9)
    );
    assert_eq!(producer_state.state().open, [(1, 7)].into());
}

/// Appends one batch of a kind.
fn write(log: &PartitionLog, step: u8, producer_id: i64) {
    match step {
        0..=2 => drop(append(log, plain(1 + step as usize, 60))),
        3..=5 => drop(append(log, transactional(producer_id, 2))),
        6 => drop(append(log, build(10 + producer_id, false, 1, 60))),
        7 => drop(log.append_marker(&marker(producer_id, true)).unwrap()),
        _ => drop(log.append_marker(&marker(producer_id, false)).unwrap()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Any history, truncated anywhere and gone on with, stopped at any change to the disk. No
    /// checkpoint proves more than is left.
    #[test]
    fn a_crash_leaves_a_truncation_done_or_begun_or_neither(
        old in prop::collection::vec((0u8..=8, 0i64..3), 5..50),
        new in prop::collection::vec((0u8..=8, 0i64..3), 0..12),
        at in any::<prop::sample::Index>(),
        crashes in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 12),
        seed in any::<u64>(),
    ) {
        let root = tempfile::tempdir().unwrap();
        let journal = Arc::new(Journal::default());
        disk::watch(root.path(), Arc::clone(&journal) as Arc<dyn Witness>);
        let (log, producer_state) = open(root.path(), false);
        for &(step, producer_id) in &old {
            write(&log, step, producer_id);
        }
        log.sync().unwrap();
        let old_bytes = stored(&log);
        log.set_role(Role::Follower, 1);
        let began = journal.len();
        let offset = at.index(log.state().log_end_offset as usize + 1) as i64;
        let before = log.recovery_point();
        let (mut lowered, mut lowered_at) = (before, began);
        let end = log
            .truncate_to(offset, &mut |bound| {
                (lowered, lowered_at) = (before.min(bound), journal.len());
                Ok(())
            })
            .unwrap();
        let ended = journal.len();
        let after = log.recovery_point();
        check_whole(&log, &producer_state, prefix(&old_bytes, end))?;
        log.set_role(Role::Leader, 2);
        for &(step, producer_id) in &new {
            write(&log, step, producer_id);
        }
        let new_bytes = stored(&log);
        check_whole(&log, &producer_state, &new_bytes)?;
        disk::release(root.path());
        drop(log);
        let journal = journal.0.lock().unwrap().clone();
        let mut random = seed | 1;
        let mut dice = |sides: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % sides
        };
        for (crash, power_failed) in crashes {
            let crash = began + crash.index(journal.len() + 1 - began);
            let found = if power_failed {
                after_power_failure(&journal, crash, &mut dice)
            } else {
                after_kill(&journal, crash, &mut dice)
            };
            let root = tempfile::tempdir().unwrap();
            for (name, bytes) in &found {
                fs::write(root.path().join(name), bytes).unwrap();
            }
            let checkpoint = match crash {
                _ if crash <= lowered_at && dice(2) == 0 => before,
                _ if crash >= ended && dice(2) == 0 => after,
                _ => lowered,
            };
            let past = Past {
                power_failed,
                recovery_point: checkpoint,
                high_watermark: checkpoint,
                ..Past::default()
            };
            let (log, producer_state) = match try_open_from(root.path(), common::SMALL, past) {
                Ok(opened) => opened,
                Err(error) => return Err(TestCaseError::fail(format!("it does not open: {error}"))),
            };
            let bytes = stored(&log);
            let log_end = log.state().log_end_offset;
            prop_assert!(log_end >= end, "{log_end} {end}");
            let is_old = old_bytes.starts_with(&bytes) && crash < ended;
            prop_assert!(is_old || new_bytes.starts_with(&bytes), "neither what was nor what is");
            check_whole(&log, &producer_state, &bytes)?;
            log.set_role(Role::Follower, 3);
            prop_assert_eq!(log.truncate_to(end, &mut no_checkpoints).unwrap(), end);
            check_whole(&log, &producer_state, prefix(&old_bytes, end))?;
        }
    }
}
