//! The durability service: group commit, failures, stops, and want of threads.

mod common;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{append, files, marker, no_checkpoints, open, plain, transactional};
use proptest::prelude::*;
use txn_log::disk::{self, Change, DiskFault, Witness};
use txn_log::durability::OnDurable;
use txn_log::{Durability, PartitionLog, Role};
use txn_protocol::batch::Batches;

const WAIT: Duration = Duration::from_secs(20);
const BAD_DISK: i32 = 5;

/// A disk that counts the syncs of one `.log`, holds each until it is let go, and may refuse them.
struct SlowDisk {
    begun: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<bool>>,
}

impl Witness for SlowDisk {
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault> {
        let Change::Sync(path) = change else {
            return Ok(());
        };
        if path.extension().is_none_or(|name| name != "log") {
            return Ok(());
        }
        let _ = self.begun.lock().unwrap().send(());
        // A disk that nobody holds any more syncs at once.
        if self.go_on.lock().unwrap().recv().unwrap_or(true) {
            return Ok(());
        }
        let error = io::Error::from_raw_os_error(BAD_DISK);
        Err(DiskFault { written: 0, error })
    }
}

/// The test's end of a `SlowDisk`.
struct Hold {
    begun: Receiver<()>,
    go_on: Sender<bool>,
}

fn slow(directory: &Path) -> Hold {
    let (tell, begun) = channel();
    let (go_on, wait) = channel();
    let disk = SlowDisk {
        begun: Mutex::new(tell),
        go_on: Mutex::new(wait),
    };
    disk::watch(directory, Arc::new(disk));
    Hold { begun, go_on }
}

struct Unsyncable;

impl Witness for Unsyncable {
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault> {
        if matches!(change, Change::Sync(_)) {
            let error = io::Error::from_raw_os_error(BAD_DISK);
            return Err(DiskFault { written: 0, error });
        }
        Ok(())
    }
}

fn log_at(directory: &Path) -> Arc<PartitionLog> {
    let (log, _) = open(directory, false);
    append(&log, plain(1, 10));
    Arc::new(log)
}

/// Tells the number of a waiter, and how its wait ended.
struct Waits {
    tell: Sender<(u32, Result<(), String>)>,
    told: Receiver<(u32, Result<(), String>)>,
}

impl Waits {
    fn new() -> Self {
        let (tell, told) = channel();
        Self { tell, told }
    }

    fn waiter(&self, number: u32) -> OnDurable {
        let tell = self.tell.clone();
        Box::new(move |durable| {
            let durable = durable.map_err(ToString::to_string);
            tell.send((number, durable)).unwrap();
        })
    }

    fn next(&self) -> (u32, Result<(), String>) {
        self.told.recv_timeout(WAIT).unwrap()
    }

    fn numbers(&self, count: usize) -> Vec<u32> {
        let ended = (0..count).map(|_| self.next());
        let mut numbers: Vec<_> = ended
            .map(|(number, durable)| {
                durable.unwrap();
                number
            })
            .collect();
        numbers.sort_unstable();
        numbers
    }

    fn is_silent(&self) -> bool {
        self.told.try_recv().is_err()
    }
}

#[test]
fn every_log_is_on_the_disk_when_its_waiter_is_called() {
    let directory = tempfile::tempdir().unwrap();
    let logs: Vec<_> = (0..10)
        .map(|name| log_at(&directory.path().join(name.to_string())))
        .collect();
    assert!(logs.iter().all(|log| log.recovery_point() == 0));
    let (durability, waits) = (Durability::new(3), Waits::new());
    for (number, log) in (0..).zip(&logs) {
        durability.when_durable(log, 1, waits.waiter(number));
    }
    assert_eq!(waits.numbers(10), (0..10).collect::<Vec<_>>());
    assert!(logs.iter().all(|log| log.recovery_point() == 1));
}

#[test]
fn one_sync_serves_those_before_it_and_the_next_one_those_during_it() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_at(directory.path());
    let disk = slow(directory.path());
    let (durability, waits) = (Durability::new(3), Waits::new());
    durability.when_durable(&log, 1, waits.waiter(0));
    disk.begun.recv_timeout(WAIT).unwrap();
    durability.when_durable(&log, 1, waits.waiter(1)); // the sync under way covers it
    for number in 2..10 {
        append(&log, plain(1, 10));
        let end = log.state().log_end_offset;
        durability.when_durable(&log, end, waits.waiter(number));
    }
    assert!(waits.is_silent());
    disk.go_on.send(true).unwrap();
    assert_eq!(waits.numbers(2), [0, 1]);
    disk.begun.recv_timeout(WAIT).unwrap();
    assert!(waits.is_silent());
    disk.go_on.send(true).unwrap();
    assert_eq!(waits.numbers(8), (2..10).collect::<Vec<_>>());
    assert!(disk.begun.try_recv().is_err());
}

#[test]
fn a_log_that_takes_its_time_holds_up_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let slow_log = log_at(&directory.path().join("slow"));
    let log = log_at(&directory.path().join("other"));
    let disk = slow(&directory.path().join("slow"));
    let (durability, waits) = (Durability::new(2), Waits::new());
    for number in 0..5 {
        durability.when_durable(&slow_log, 1, waits.waiter(number));
    }
    disk.begun.recv_timeout(WAIT).unwrap();
    durability.when_durable(&log, 1, waits.waiter(9));
    assert_eq!(waits.next(), (9, Ok(())));
    drop(disk);
    assert_eq!(waits.numbers(5), [0, 1, 2, 3, 4]);
}

#[test]
fn records_that_are_on_the_disk_are_waited_for_by_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_at(directory.path());
    log.sync().unwrap();
    append(&log, plain(1, 10));
    let (durability, waits) = (Durability::new(1), Waits::new());
    durability.when_durable(&log, 1, waits.waiter(0));
    assert_eq!(waits.told.try_recv().unwrap(), (0, Ok(())));
    assert_eq!(log.recovery_point(), 1);
}

#[test]
fn a_log_that_cannot_be_forced_fails_its_own_waiters_now_and_later_and_tells_once() {
    let directory = tempfile::tempdir().unwrap();
    let (good, bad) = (directory.path().join("good"), directory.path().join("bad"));
    let logs = [log_at(&good), log_at(&bad)];
    disk::watch(&bad, Arc::new(Unsyncable));
    let (durability, waits) = (Durability::new(2), Waits::new());
    for (number, log) in (0..).zip([&logs[0], &logs[1], &logs[1]]) {
        durability.when_durable(log, 1, waits.waiter(number));
    }
    let mut ended: Vec<_> = (0..3).map(|_| waits.next()).collect();
    ended.sort();
    assert_eq!(ended[0], (0, Ok(())));
    for (_, durable) in &ended[1..] {
        let reason = durable.as_ref().unwrap_err();
        assert!(
            reason.contains("Input/output error") || reason.contains("an earlier sync failed"),
            "{reason}"
        );
    }
    durability.when_durable(&logs[1], 0, waits.waiter(3));
    assert!(waits.next().1.unwrap_err().contains("an earlier sync"));
    durability.flush_due(&logs);
    assert_eq!(logs[1].take_write_health().len(), 1);
    assert!(logs[0].take_write_health().is_empty());
}

#[test]
fn waits_that_are_begun_together_end_each_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let [forced, good, bad] = ["forced", "good", "bad"].map(|name| directory.path().join(name));
    let logs = [&forced, &good, &bad].map(|path| log_at(path));
    logs[0].sync().unwrap();
    disk::watch(&bad, Arc::new(Unsyncable));
    for threads in [0, 1, 3] {
        let (durability, waits) = (Durability::new(threads), Waits::new());
        append(&logs[1], plain(1, 10));
        let end = logs[1].state().log_end_offset;
        let asked = [(&logs[1], end), (&logs[0], 1), (&logs[2], 1), (&logs[1], 1)];
        let numbered = asked.iter().zip(0..);
        durability.when_each_durable(
            numbered.map(|((log, end), number)| (*log, *end, waits.waiter(number))),
        );
        let mut ended: Vec<_> = (0..4).map(|_| waits.next()).collect();
        ended.sort();
        let is_done: Vec<_> = ended.iter().map(|(_, durable)| durable.is_ok()).collect();
        assert_eq!(is_done, [true, true, false, true], "{threads} threads");
    }
}

#[test]
fn those_who_came_during_a_sync_that_fails_are_told_too() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_at(directory.path());
    let disk = slow(directory.path());
    let (durability, waits) = (Durability::new(1), Waits::new());
    durability.when_durable(&log, 1, waits.waiter(0));
    disk.begun.recv_timeout(WAIT).unwrap();
    append(&log, plain(1, 10));
    durability.when_durable(&log, 2, waits.waiter(1));
    disk.go_on.send(false).unwrap();
    assert!(waits.next().1.is_err());
    assert!(waits.next().1.is_err());
}

#[test]
fn nothing_of_a_deleted_log_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_at(&directory.path().join("topic-0"));
    log.delete().unwrap();
    let (durability, waits) = (Durability::new(1), Waits::new());
    durability.when_durable(&log, 1, waits.waiter(0));
    assert_eq!(waits.next(), (0, Ok(())));
}

#[test]
fn records_that_a_truncation_took_are_never_said_to_be_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_at(&directory.path().join("truncated"));
    let other = log_at(&directory.path().join("other"));
    append(&log, plain(1, 10));
    let disk = slow(&directory.path().join("other"));
    let (durability, waits) = (Durability::new(1), Waits::new());
    durability.when_durable(&other, 1, waits.waiter(0)); // keeps the only thread busy
    disk.begun.recv_timeout(WAIT).unwrap();
    durability.when_durable(&log, 2, waits.waiter(1));
    log.set_role(Role::Follower, 1);
    assert_eq!(log.truncate_to(1, &mut no_checkpoints).unwrap(), 1);
    log.set_role(Role::SoleReplica, 2);
    append(&log, plain(1, 10)); // other records, at the same offset
    drop(disk);
    assert_eq!(waits.next(), (0, Ok(())));
    let (number, durable) = waits.next();
    assert!(durable.unwrap_err().contains("no longer in the log"));
    assert_eq!(number, 1);
}

#[test]
fn an_offset_that_nothing_was_appended_at_ends_in_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_at(directory.path());
    let (durability, waits) = (Durability::new(1), Waits::new());
    durability.when_durable(&log, 5, waits.waiter(0));
    assert!(waits.next().1.is_err());
}

#[test]
fn a_stop_finishes_all_that_waits_and_the_caller_does_what_comes_later() {
    let directory = tempfile::tempdir().unwrap();
    let logs: Vec<_> = (0..20)
        .map(|name| log_at(&directory.path().join(name.to_string())))
        .collect();
    let (durability, waits) = (Durability::new(2), Waits::new());
    for log in &logs {
        durability.when_durable(log, 1, waits.waiter(0));
    }
    durability.stop();
    assert_eq!(waits.told.try_iter().count(), 20);
    append(&logs[0], plain(1, 10));
    durability.when_durable(&logs[0], 2, waits.waiter(1));
    assert_eq!(waits.told.try_recv().unwrap(), (1, Ok(())));
}

#[test]
fn without_a_thread_the_caller_syncs() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_at(directory.path());
    let (durability, waits) = (Durability::new(0), Waits::new());
    durability.when_durable(&log, 1, waits.waiter(0));
    assert_eq!(waits.told.try_recv().unwrap(), (0, Ok(())));
    assert_eq!(log.recovery_point(), 1);
}

#[test]
fn a_waiter_with_a_bug_harms_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_at(directory.path());
    let (durability, waits) = (Durability::new(1), Waits::new());
    durability.when_durable(&log, 1, Box::new(|_| panic!("a bug")));
    durability.when_durable(&log, 1, waits.waiter(0));
    assert_eq!(waits.next(), (0, Ok(())));
    append(&log, plain(1, 10));
    durability.when_durable(&log, 2, waits.waiter(1));
    assert_eq!(waits.next(), (1, Ok(())));
}

/// How many bytes of each file had been written when its last sync began.
#[derive(Default)]
struct Forced(Mutex<HashMap<PathBuf, u64>>);

impl Witness for Forced {
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault> {
        if let Change::Sync(path) = change {
            let written = fs::metadata(path).unwrap().len();
            self.0.lock().unwrap().insert(path.to_path_buf(), written);
        }
        Ok(())
    }
}

impl Forced {
    /// True if every batch below an offset lies in bytes that were forced.
    fn has_all_below(&self, directory: &Path, end: i64) -> bool {
        let forced = self.0.lock().unwrap();
        files(directory, "log").into_iter().all(|path| {
            let bytes = fs::read(&path).unwrap();
            let below = Batches::new(&bytes).take_while(|batch| batch.last_offset() < end);
            let below: usize = below.map(|batch| batch.size()).sum();
            below as u64 <= forced.get(&path).copied().unwrap_or_default()
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Many threads append and wait, and segments are rolled: nobody is called before the disk has
    /// the records, and everybody is called once.
    #[test]
    fn a_waiter_is_called_once_and_not_before_its_records_are_on_the_disk(
        threads_max in 0_usize..4,
        writers in 1_usize..5,
        batches in 1_usize..12,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["0", "1"].map(|name| directory.path().join(name));
        let logs = paths.each_ref().map(|path| log_at(path));
        let forced = Arc::new(Forced::default());
        disk::watch(directory.path(), Arc::clone(&forced) as Arc<dyn Witness>);
        let durability = Durability::new(threads_max);
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            for writer in 0..writers {
                let (logs, durability, tell) = (&logs, &durability, tell.clone());
                let forced = &forced;
                scope.spawn(move || {
                    for number in 0..batches {
                        let log = &logs[(writer + number) % 2];
                        let end = append(log, transactional(writer as i64, 1)) + 1;
                        let (tell, forced) = (tell.clone(), Arc::clone(forced));
                        let path = log.directory().to_owned();
                        let on_durable: OnDurable = Box::new(move |durable| {
                            let is_there = forced.has_all_below(&path, end);
                            tell.send(durable.is_ok() && is_there).unwrap();
                        });
                        durability.when_durable(log, end, on_durable);
                    }
                });
            }
        });
        durability.stop();
        drop(tell);
        disk::release(directory.path());
        let called: Vec<bool> = told.iter().collect();
        prop_assert_eq!(called, vec![true; writers * batches]);
    }
}

#[test]
fn a_flush_forces_the_sealed_segments_of_each_log_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let logs: Vec<_> = (0..3)
        .map(|name| log_at(&directory.path().join(name.to_string())))
        .collect();
    for log in &logs[..2] {
        for _ in 0..40 {
            append(log, transactional(1, 2));
        }
        log.append_marker(&marker(1, true)).unwrap();
    }
    Durability::new(1).flush_due(&logs);
    for log in &logs[..2] {
        let sealed_end = log.sealed_segments().unwrap().last().unwrap().end_offset;
        assert_eq!(log.recovery_point(), sealed_end);
        assert!(log.flush_due().is_none());
    }
    assert_eq!(logs[2].recovery_point(), 0);
}
