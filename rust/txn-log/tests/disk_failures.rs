//! A disk that fails, tears and forgets: a log's behaviour meanwhile, and the findings of a start
//! after it.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use common::journal::{Journal, Noted, after_kill, after_power_failure};
use common::{
    CLIENT, ProducerState, SMALL, TestProducerState, append, build, delete_records, files,
    log_bytes, marker, open, plain, tick, transactional, try_open_from, write_history,
};
use proptest::prelude::*;
use txn_log::disk::{self, Change, DiskFault, Witness};
use txn_log::write_health::HealthChange as WriteHealth;
use txn_log::{AppendError, PartitionLog, Past};
use txn_protocol::batch::{Batches, stamp_offset};

const NO_SPACE: i32 = 28;
const BAD_DISK: i32 = 5;

/// Fails the changes it is told to, from now until it is told otherwise.
#[derive(Default)]
struct Broken(Mutex<Option<Rule>>);

/// Which changes fail.
type Rule = fn(&Change<'_>) -> Option<DiskFault>;

impl Broken {
    fn set(&self, fault: Option<Rule>) {
        *self.0.lock().unwrap() = fault;
    }
}

impl Witness for Broken {
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault> {
        let fault = *self.0.lock().unwrap();
        fault.and_then(|fault| fault(change)).map_or(Ok(()), Err)
    }
}

/// A log on a disk that a test may break.
fn on_a_disk(directory: &Path) -> (PartitionLog, Arc<TestProducerState>, Arc<Broken>) {
    on_a_disk_since(directory, false)
}

fn on_a_disk_since(
    directory: &Path,
    was_clean: bool,
) -> (PartitionLog, Arc<TestProducerState>, Arc<Broken>) {
    let broken = Arc::new(Broken::default());
    disk::watch(directory, Arc::clone(&broken) as Arc<dyn Witness>);
    let (log, producer_state) = open(directory, was_clean);
    (log, producer_state, broken)
}

/// Half of the bytes written to a segment arrive.
fn full(change: &Change<'_>) -> Option<DiskFault> {
    match change {
        Change::Write(path, _, bytes) if path.extension().is_some_and(|it| it == "log") => {
            Some(DiskFault {
                written: bytes.len() / 2,
                error: io::Error::from_raw_os_error(NO_SPACE),
            })
        }
        _ => None,
    }
}

fn unsyncable(change: &Change<'_>) -> Option<DiskFault> {
    matches!(change, Change::Sync(_)).then(|| DiskFault {
        written: 0,
        error: io::Error::from_raw_os_error(BAD_DISK),
    })
}

fn unsyncable_snapshots(change: &Change<'_>) -> Option<DiskFault> {
    let is_snapshot = |path: &Path| path.extension().is_some_and(|it| it == "snapshot");
    match change {
        Change::Sync(path) if is_snapshot(path) => unsyncable(change),
        _ => None,
    }
}

fn uncuttable(change: &Change<'_>) -> Option<DiskFault> {
    let cut = matches!(change, Change::Truncate(..)).then(|| DiskFault {
        written: 0,
        error: io::Error::from_raw_os_error(BAD_DISK),
    });
    cut.or_else(|| full(change))
}

#[test]
fn a_full_disk_refuses_batches_and_shows_the_others() {
    let root = tempfile::tempdir().unwrap();
    let (log, _, broken) = on_a_disk(root.path());
    append(&log, transactional(7, 2));
    let (state, bytes) = (log.state(), log_bytes(root.path()));
    broken.set(Some(full));
    for mut batch in [
        plain(1, 5),
        transactional(7, 1),
        build(8, false, 1, 5),
        plain(1, 5),
    ] {
        let error = log.append(CLIENT, &mut batch).unwrap_err();
        assert_eq!(error.code(), 56, "{error}");
    }
    assert!(log.append_marker(&marker(7, true)).is_err());
    assert_eq!((log.state(), log_bytes(root.path())), (state, bytes));
    disk::release(root.path());
}

#[test]
fn space_that_comes_back_heals_the_log_and_its_gate() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state, broken) = on_a_disk(root.path());
    for round in 0..20 {
        append(&log, transactional(round % 3, 2));
    }
    log.append_marker(&marker(0, false)).unwrap();
    let before = producer_state.state();
    broken.set(Some(full));
    assert!(log.append_marker(&marker(1, false)).is_err());
    assert_ne!(
        producer_state.state(),
        before,
        "the producer_state believed the marker written"
    );
    broken.set(None);
    let offset = append(&log, plain(1, 5));
    assert_eq!(offset, 41);
    assert_eq!(producer_state.state(), before);
    assert_eq!(log.aborted_in(0, 42), [(0, 0)]);
    log.append_marker(&marker(1, false)).unwrap();
    let (state, bytes) = (producer_state.state(), log_bytes(root.path()));
    log.close().unwrap();
    let (_, recovered) = open(root.path(), true);
    assert_eq!((recovered.state(), log_bytes(root.path())), (state, bytes));
    disk::release(root.path());
}

#[test]
fn who_looks_at_the_gate_of_a_log_that_failed_sees_what_is_stored() {
    // It showed a transaction that nobody had, until the next append; and after a failed sync,
    // behind which there is none, until the broker was started again.
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state, broken) = on_a_disk(root.path());
    append(&log, transactional(1, 2));
    let before = producer_state.state();
    for _ in 0..3 {
        broken.set(Some(full));
        assert!(log.append(CLIENT, &mut transactional(7, 1)).is_err());
        log.settle().unwrap();
        assert_eq!(producer_state.state(), before);
        assert!(log.append_marker(&marker(1, true)).is_err());
        assert_ne!(
            producer_state.state(),
            before,
            "the producer_state believed the marker written"
        );
        log.settle().unwrap();
        assert_eq!(producer_state.state(), before);
    }
    assert!(log.append(CLIENT, &mut transactional(7, 1)).is_err());
    broken.set(Some(unsyncable));
    assert!(log.sync().is_err());
    assert_eq!(producer_state.state(), before);
    broken.set(None);
    log.settle().unwrap();
    assert!(log.append(CLIENT, &mut plain(1, 5)).is_err());
    disk::release(root.path());
}

#[test]
fn a_log_start_shows_nothing_of_a_transaction_whose_marker_was_refused() {
    // P4: until the log heals its producer state believes that the transaction has ended.
    for is_commit in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let (log, _, broken) = on_a_disk(root.path());
        append(&log, transactional(1, 3));
        broken.set(Some(full));
        assert!(log.append_marker(&marker(1, is_commit)).is_err());
        assert_eq!(delete_records(&log, 1).unwrap(), 1);
        let state = log.state();
        assert_eq!((state.last_stable_offset, state.log_end_offset), (1, 3));
        broken.set(None);
        append(&log, plain(1, 5));
        assert_eq!(log.state().last_stable_offset, 1);
        disk::release(root.path());
    }
}

#[test]
fn a_gate_that_cannot_be_settled_is_no_answer() {
    let root = tempfile::tempdir().unwrap();
    let (log, _, broken) = on_a_disk(root.path());
    append(&log, transactional(1, 2));
    broken.set(Some(uncuttable));
    assert!(log.append(CLIENT, &mut transactional(7, 1)).is_err());
    assert!(log.settle().is_err());
    broken.set(None);
    log.settle().unwrap();
    assert_eq!(append(&log, transactional(7, 1)), 2);
    disk::release(root.path());
}

#[test]
fn a_plain_batch_that_failed_leaves_nothing_to_heal() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state, broken) = on_a_disk(root.path());
    append(&log, plain(1, 5));
    let restored = producer_state.restored.lock().unwrap().len();
    broken.set(Some(full));
    assert!(log.append(CLIENT, &mut plain(1, 5)).is_err());
    broken.set(None);
    assert_eq!(append(&log, plain(1, 5)), 1);
    assert_eq!(producer_state.restored.lock().unwrap().len(), restored);
    disk::release(root.path());
}

#[test]
fn while_the_torn_batch_cannot_be_cut_off_nothing_is_taken() {
    let root = tempfile::tempdir().unwrap();
    let (log, _, broken) = on_a_disk(root.path());
    append(&log, plain(1, 5));
    broken.set(Some(uncuttable));
    assert!(matches!(
        log.append(CLIENT, &mut plain(1, 5)),
        Err(AppendError::Io(_))
    ));
    let error = log.append(CLIENT, &mut plain(1, 5)).unwrap_err();
    assert_eq!(error.code(), 56);
    assert!(error.to_string().contains("offset 1"), "{error}");
    assert_eq!(log.state().log_end_offset, 1);
    disk::release(root.path());
}

#[test]
fn a_failed_sync_is_final_until_the_log_is_opened_again() {
    let root = tempfile::tempdir().unwrap();
    let (log, _, broken) = on_a_disk(root.path());
    append(&log, plain(1, 5));
    broken.set(Some(unsyncable));
    assert!(log.sync().is_err());
    broken.set(None);
    assert!(log.sync().is_err(), "the kernel may have dropped the bytes");
    let error = log.append(CLIENT, &mut plain(1, 5)).unwrap_err();
    assert!(error.to_string().contains("restart the broker"), "{error}");
    assert_eq!(log.read(0, 100).unwrap().len(), log.size_bytes() as usize);
    assert!(log.close().is_err());
    assert_eq!(append(&open(root.path(), false).0, plain(1, 5)), 1);
    disk::release(root.path());
}

#[test]
fn a_failed_sync_is_final_for_a_log_that_had_a_batch_to_heal() {
    // It healed at the next append and took batches again, none of which could be synced.
    let root = tempfile::tempdir().unwrap();
    let (log, _, broken) = on_a_disk(root.path());
    append(&log, plain(1, 5));
    broken.set(Some(full));
    assert!(log.append(CLIENT, &mut transactional(7, 1)).is_err());
    broken.set(Some(unsyncable));
    assert!(log.sync().is_err());
    broken.set(None);
    let error = log.append(CLIENT, &mut plain(1, 5)).unwrap_err();
    assert!(error.to_string().contains("restart the broker"), "{error}");
    disk::release(root.path());
}

/// The story: the failure was noted under the partition's lock, which noting takes too, and the
/// stop of the broker hung.
#[test]
fn a_disk_that_refuses_the_last_sync_of_a_close_fails_the_close() {
    let root = tempfile::tempdir().unwrap();
    let (log, _, broken) = on_a_disk(root.path());
    append(&log, transactional(7, 1));
    broken.set(Some(unsyncable_snapshots));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(log.close()).unwrap());
    let closed = told.recv_timeout(std::time::Duration::from_secs(20));
    assert!(closed.expect("it hangs").is_err());
    disk::release(root.path());
}

#[test]
fn trouble_is_told_when_it_begins_and_when_it_ends() {
    let root = tempfile::tempdir().unwrap();
    let (log, _, broken) = on_a_disk(root.path());
    append(&log, plain(1, 5));
    assert_eq!(log.take_write_health(), []);
    broken.set(Some(full));
    for _ in 0..3 {
        assert!(log.append(CLIENT, &mut plain(1, 5)).is_err());
    }
    let began = log.take_write_health();
    assert!(matches!(&began[..], [WriteHealth::Began(reason)] if reason.contains("os error 28")));
    broken.set(None);
    append(&log, plain(1, 5));
    append(&log, plain(1, 5));
    assert_eq!(log.take_write_health(), [WriteHealth::Ended]);
    broken.set(Some(unsyncable));
    assert!(log.sync().is_err());
    assert!(log.append(CLIENT, &mut plain(1, 5)).is_err());
    let last = log.take_write_health();
    assert!(
        matches!(&last[..], [WriteHealth::Began(reason)] if reason.contains("restart the broker"))
    );
    disk::release(root.path());
}

// ---------------------------------------------------------------- the cost of a close

/// A log whose changes are written down from now on.
fn noted(root: &Path, was_clean: bool) -> (PartitionLog, Arc<Journal>) {
    let (log, _) = open(root, was_clean);
    let journal = Arc::new(Journal::default());
    disk::watch(root, Arc::clone(&journal) as Arc<dyn Witness>);
    (log, journal)
}

#[test]
fn a_close_forces_each_file_once() {
    let root = tempfile::tempdir().unwrap();
    let (log, journal) = noted(root.path(), false);
    append(&log, transactional(7, 1));

    log.close().unwrap();

    let journal = journal.0.lock().unwrap();
    let mut synced: Vec<_> = journal
        .iter()
        .filter_map(|change| match change {
            Noted::Sync(path) => path.to_str(),
            _ => None,
        })
        .collect();
    synced.sort_unstable();
    assert_eq!(
        synced,
        [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "00000000000000000000.txnindex",
            "00000000000000000001.snapshot",
            "leader-epoch-checkpoint",
        ]
    );
    disk::release(root.path());
}

/// A stop wrote and forced the indexes and the snapshot of every partition there was.
#[test]
fn the_close_of_a_log_that_took_nothing_since_a_clean_start_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, transactional(7, 1));
    log.close().unwrap();
    let (log, journal) = noted(root.path(), true);
    log.read(0, 100).unwrap();

    log.close().unwrap();

    assert_eq!(journal.len(), 0);
    disk::release(root.path());
}

#[test]
fn the_close_of_an_untouched_log_makes_what_a_clean_start_missed() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, transactional(7, 1));
    log.close().unwrap();
    let kept = ["timeindex", "snapshot"].map(|extension| files(root.path(), extension));
    for lost in kept.concat() {
        fs::remove_file(&lost).unwrap();

        open(root.path(), true).0.close().unwrap();

        assert!(lost.exists(), "{}", lost.display());
    }
}

/// A batch that the disk refused may have left files behind: the log is not as it was closed.
#[test]
fn the_close_after_a_refused_append_finishes_the_files() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, plain(1, 5));
    log.close().unwrap();
    let (log, _, broken) = on_a_disk_since(root.path(), true);
    broken.set(Some(full));
    assert!(log.append(CLIENT, &mut plain(1, 5)).is_err());
    broken.set(None);
    disk::release(root.path());
    let journal = Arc::new(Journal::default());
    disk::watch(root.path(), Arc::clone(&journal) as Arc<dyn Witness>);

    log.close().unwrap();

    assert_ne!(journal.len(), 0);
    disk::release(root.path());
}

#[test]
fn a_start_that_is_cut_short_loses_no_aborted_transaction() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    write_history(&log);
    tick(&log);
    let past = Past {
        recovery_point: log.recovery_point(),
        ..Past::default()
    };
    let known = log.aborted_in(0, i64::MAX);
    drop(log);
    let indexes = files(root.path(), "txnindex");
    let lost = indexes
        .iter()
        .find(|path| fs::metadata(path).unwrap().len() > 0)
        .unwrap();
    fs::remove_file(lost).unwrap();
    fs::remove_file(root.path().join("txnindex-checkpoint")).unwrap();
    let broken = Arc::new(Broken::default());
    disk::watch(root.path(), Arc::clone(&broken) as Arc<dyn Witness>);
    broken.set(Some(|change| match change {
        Change::Write(path, ..) if path.extension()? == "txnindex" => Some(DiskFault {
            written: 0,
            error: io::Error::from_raw_os_error(BAD_DISK),
        }),
        _ => None,
    }));
    assert!(try_open_from(root.path(), SMALL, past).is_err());
    assert_eq!(fs::metadata(lost).unwrap().len(), 0);
    disk::release(root.path());

    let (log, producer_state) = try_open_from(root.path(), SMALL, past).unwrap();

    assert_eq!(log.aborted_in(0, i64::MAX), known);
    assert_eq!(producer_state.state().aborted.len(), known.len());
}

/// Brings producer state and file together while the swap forces the new index to the disk.
struct SettlesOnce(Mutex<Option<Arc<PartitionLog>>>);

impl Witness for SettlesOnce {
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault> {
        if let Change::Sync(path) = change
            && path.extension().is_some_and(|found| found == "txnindex")
        {
            let log = self.0.lock().unwrap().take();
            log.map_or(Ok(()), |log| log.settle())
                .expect("the disk works again");
        }
        Ok(())
    }
}

#[test]
fn a_swap_beside_a_failed_append_keeps_the_cleaned_index() {
    let root = tempfile::tempdir().unwrap();
    let (log, _, broken) = on_a_disk(root.path());
    let log = Arc::new(log);
    write_history(&log);
    let known = log.aborted_in(0, i64::MAX);
    let sealed = log.sealed_segments().unwrap();
    let base_offsets: Vec<i64> = sealed.iter().map(|segment| segment.base_offset).collect();
    for extension in ["log", "txnindex"] {
        let olds = sealed.iter().flat_map(|segment| {
            let path = segment.path.with_extension(extension);
            fs::read(path).unwrap()
        });
        let path = sealed[0].path.with_extension(extension);
        let cleaned = path.with_extension(format!("{extension}.cleaned"));
        fs::write(cleaned, olds.collect::<Vec<u8>>()).unwrap();
    }
    broken.set(Some(full));
    assert!(log.append(CLIENT, &mut build(30, false, 1, 40)).is_err());
    disk::release(root.path());
    let settles = Arc::new(SettlesOnce(Mutex::new(Some(Arc::clone(&log)))));
    disk::watch(root.path(), Arc::clone(&settles) as Arc<dyn Witness>);

    assert!(log.swap_segments(&base_offsets, 0).unwrap());

    assert!(settles.0.lock().unwrap().is_none());
    disk::release(root.path());
    log.close().unwrap();
    let (log, producer_state) = open(root.path(), true);
    assert_eq!(log.aborted_in(0, i64::MAX), known);
    assert_eq!(producer_state.state().aborted.len(), known.len());
}

// ---------------------------------------------------------------- crashes

/// Power takes the first of two batches. The start after it cuts both, and a batch of the first
/// one's length is appended. Power that took the cut and left this batch would show the second one
/// behind it again.
#[test]
fn a_second_power_failure_brings_back_no_batch_that_a_start_had_cut() {
    let name = Path::new("00000000000000000000.log");
    let root = tempfile::tempdir().unwrap();
    let mut bytes = build(-1, false, 1, 50);
    let first_bytes = bytes.len();
    let mut second = build(7, false, 1, 50);
    stamp_offset(&mut second, 1, 0);
    bytes.extend(second);
    bytes[first_bytes - 1] ^= 1;
    fs::write(root.path().join(name), &bytes).unwrap();
    let journal = Journal(Mutex::new(vec![
        Noted::Create(name.into()),
        Noted::Write(name.into(), 0, bytes),
        Noted::Sync(name.into()),
        Noted::SyncDirectory,
    ]));
    let journal = Arc::new(journal);
    disk::watch(root.path(), Arc::clone(&journal) as Arc<dyn Witness>);
    let power_failed = Past {
        power_failed: true,
        ..Past::default()
    };
    let (log, _) = try_open_from(root.path(), SMALL, power_failed).unwrap();
    assert_eq!(log.cuts().len(), 1);
    append(&log, build(-1, false, 1, 50));
    drop(log);
    disk::release(root.path());

    let journal = journal.0.lock().unwrap().clone();
    for nth in 0..400_usize {
        let mut left = nth;
        let mut dice = |sides: usize| {
            let thrown = left % sides;
            left /= sides;
            thrown
        };
        let files = after_power_failure(&journal, journal.len(), &mut dice);
        let again = tempfile::tempdir().unwrap();
        for (name, bytes) in &files {
            fs::write(again.path().join(name), bytes).unwrap();
        }
        let (log, producer_state) = try_open_from(again.path(), SMALL, power_failed).unwrap();
        assert!(log.state().log_end_offset <= 1, "{:?}", log.state());
        assert_eq!(producer_state.state().recent.get(&7), None);
    }
}

/// The state when so many changes had been made.
#[derive(Clone, Debug)]
struct Mark {
    changes: usize,
    end: i64,
    synced: i64,
    start: i64,
    recovery_point: i64,
}

/// The events of a log, and its content after each step.
struct Story {
    journal: Vec<Noted>,
    marks: Vec<Mark>,
    /// Log starts, and when each was noted in the checkpoint.
    notes: Vec<(usize, i64)>,
    /// The producer state by log end.
    states: HashMap<i64, ProducerState>,
    /// Every batch by base offset.
    batches: BTreeMap<i64, Vec<u8>>,
}

fn play(steps: &[(u8, i64)]) -> Story {
    let root = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::default());
    disk::watch(root.path(), Arc::clone(&journal) as Arc<dyn Witness>);
    let (log, producer_state) = open(root.path(), false);
    let mut batches = BTreeMap::new();
    let mut states = HashMap::from([(0, ProducerState::default())]);
    let mut marks = Vec::new();
    let mut notes = Vec::new();
    let mut synced = 0;
    let mut checkpointed = 0;
    for &(step, producer_id) in steps {
        let end = log.state().log_end_offset;
        match step {
            0..=2 => drop(append(&log, plain(1, 40 * step as usize))),
            3..=5 => drop(append(&log, transactional(producer_id, 2))),
            6 => drop(append(&log, build(10 + producer_id, false, 1, 60))),
            7 => drop(log.append_marker(&marker(producer_id, true)).unwrap()),
            8 => drop(log.append_marker(&marker(producer_id, false)).unwrap()),
            9 => {
                log.sync().unwrap();
                synced = end;
            }
            10 => tick(&log),
            11 => checkpointed = log.recovery_point(),
            _ => {
                let start = log.state().log_start_offset;
                let mut note = |start| {
                    notes.push((journal.len(), start));
                    Ok(())
                };
                log.delete_records(start + (end - start) / 3, &mut note)
                    .unwrap();
                synced = synced.max(log.recovery_point());
            }
        }
        let state = log.state();
        if state.log_end_offset > end {
            if notes.is_empty() {
                notes.push((journal.len(), 0)); // with the first record
            }
            batches.insert(end, log.read(end, 1).unwrap());
        }
        states
            .entry(state.log_end_offset)
            .or_insert_with(|| producer_state.state());
        marks.push(Mark {
            changes: journal.len(),
            end: state.log_end_offset,
            synced,
            start: state.log_start_offset,
            recovery_point: checkpointed,
        });
    }
    disk::release(root.path());
    let journal = journal.0.lock().unwrap().clone();
    Story {
        journal,
        marks,
        notes,
        states,
        batches,
    }
}

/// Open transactions, aborted ones, and the last batch of each producer.
type RetainedState = (BTreeMap<i64, i64>, Vec<(i64, i64)>, BTreeMap<i64, i64>);

/// The part of a state that does not depend on how much was removed, or recalled.
fn essence(state: &ProducerState, start: i64) -> RetainedState {
    let aborted = state
        .aborted
        .iter()
        .filter(|entry| entry.last_offset >= start);
    (
        state.open.clone(),
        aborted
            .map(|entry| (entry.producer_id, entry.last_offset))
            .collect(),
        state
            .recent
            .iter()
            .map(|(id, recent)| (*id, *recent.last().unwrap()))
            .collect(),
    )
}

fn check(
    story: &Story,
    crash: usize,
    power_failed: bool,
    dice: &mut impl FnMut(usize) -> usize,
) -> Result<(), TestCaseError> {
    let files = if power_failed {
        after_power_failure(&story.journal, crash, dice)
    } else {
        after_kill(&story.journal, crash, dice)
    };
    let root = tempfile::tempdir().unwrap();
    for (name, bytes) in &files {
        fs::write(root.path().join(name), bytes).unwrap();
    }
    let nothing = Mark {
        changes: 0,
        end: 0,
        synced: 0,
        start: 0,
        recovery_point: 0,
    };
    let before = story
        .marks
        .iter()
        .rev()
        .find(|mark| mark.changes <= crash)
        .unwrap_or(&nothing);
    let noted = story.notes.iter().rev().find(|(when, _)| *when <= crash);
    let past = Past {
        power_failed,
        recovery_point: before.recovery_point,
        log_start_offset: noted.map(|(_, start)| *start),
        ..Past::default()
    };
    let (log, producer_state) = match try_open_from(root.path(), SMALL, past) {
        Ok(opened) => opened,
        Err(error) => return Err(TestCaseError::fail(format!("it does not open: {error}"))),
    };
    let state = log.state();
    prop_assert!(
        state.log_end_offset >= before.synced,
        "P2: {state:?} {before:?}"
    );
    prop_assert!(
        power_failed || state.log_end_offset >= before.end,
        "P1: {state:?} {before:?}"
    );
    prop_assert!(
        state.log_start_offset >= before.start,
        "{state:?} {before:?}"
    );
    let mut next = state.log_start_offset;
    while next < state.log_end_offset {
        let bytes = log
            .read(next, 1)
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
        let batch = Batches::new(&bytes).next().unwrap();
        prop_assert_eq!(
            Some(batch.bytes()),
            story.batches.get(&batch.base_offset()).map(Vec::as_slice)
        );
        next = batch.last_offset() + 1;
    }
    let Some(known) = story.states.get(&state.log_end_offset) else {
        return Err(TestCaseError::fail(format!(
            "no batch ends at {}",
            state.log_end_offset
        )));
    };
    let start = state.log_start_offset;
    prop_assert_eq!(
        essence(&producer_state.state(), start),
        essence(known, start),
        "P8"
    );
    prop_assert_eq!(
        log.aborted_in(start, i64::MAX).len(),
        essence(known, start).1.len()
    );
    prop_assert_eq!(append(&log, plain(1, 5)), state.log_end_offset);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    /// Any history, stopped at any change to the disk.
    #[test]
    fn p1_p2_p3_p8_hold_wherever_a_log_is_stopped(
        steps in prop::collection::vec((0u8..=12, 0i64..3), 5..60),
        crashes in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 12),
        seed in any::<u64>(),
    ) {
        let story = play(&steps);
        let mut random = seed | 1;
        let mut dice = |sides: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % sides
        };
        for (at, power_failed) in crashes {
            let crash = at.index(story.journal.len() + 1);
            check(&story, crash, power_failed, &mut dice)?;
        }
    }
}
