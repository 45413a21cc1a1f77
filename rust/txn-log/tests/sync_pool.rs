//! Logs forced side by side, and the callers that are told of it.

mod common;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::{append, open, plain};
use txn_log::PartitionLog;
use txn_log::disk::{self, Change, Fault, Witness};
use txn_log::sync_pool::{Pass, SyncPool};

const WAIT: Duration = Duration::from_secs(20);
const BAD_DISK: i32 = 5;

struct Unsyncable;

impl Witness for Unsyncable {
    fn before(&self, change: &Change<'_>) -> Result<(), Fault> {
        if matches!(change, Change::Sync(_)) {
            let error = io::Error::from_raw_os_error(BAD_DISK);
            return Err(Fault { written: 0, error });
        }
        Ok(())
    }
}

fn pool(threads_max: usize) -> (SyncPool, Receiver<Pass>) {
    let (tell, told) = channel();
    let pool = SyncPool::new(threads_max, Box::new(move |pass| tell.send(pass).unwrap()));
    (pool, told)
}

fn log_at(directory: &Path) -> Arc<PartitionLog> {
    let (log, _) = open(directory, false);
    append(&log, plain(1, 10));
    Arc::new(log)
}

fn forced(number: u64) -> Pass {
    let failures = Vec::new();
    Pass { number, failures }
}

#[test]
fn a_pass_ends_when_every_log_is_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let logs: Vec<_> = (0..10)
        .map(|name| log_at(&directory.path().join(name.to_string())))
        .collect();
    assert!(logs.iter().all(|log| log.recovery_point() == 0));
    let (pool, told) = pool(3);
    pool.submit(7, logs.clone()).unwrap();
    assert_eq!(told.recv_timeout(WAIT).unwrap(), forced(7));
    assert!(logs.iter().all(|log| log.recovery_point() == 1));
}

#[test]
fn a_log_that_cannot_be_forced_is_named_and_the_others_are_forced() {
    let directory = tempfile::tempdir().unwrap();
    let (good, bad) = (directory.path().join("good"), directory.path().join("bad"));
    let logs = vec![log_at(&good), log_at(&bad)];
    disk::watch(&bad, Arc::new(Unsyncable));
    let (pool, told) = pool(2);
    pool.submit(1, logs.clone()).unwrap();
    let pass = told.recv_timeout(WAIT).unwrap();
    assert_eq!(pass.failures.len(), 1);
    assert_eq!(pass.failures[0].0, 1);
    assert!(
        pass.failures[0].1.contains("Input/output error"),
        "{pass:?}"
    );
    assert_eq!(logs[0].recovery_point(), 1);
}

#[test]
fn nothing_to_force_is_a_pass_too() {
    let (pool, told) = pool(1);
    pool.submit(3, Vec::new()).unwrap();
    assert_eq!(told.recv_timeout(WAIT).unwrap(), forced(3));
}

#[test]
fn a_stop_finishes_what_was_submitted_and_takes_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_at(directory.path());
    let (pool, told) = pool(1);
    for number in 0..50 {
        pool.submit(number, vec![Arc::clone(&log)]).unwrap();
    }
    pool.stop();
    assert_eq!(told.try_iter().count(), 50);
    assert!(pool.submit(50, vec![log]).is_err());
}
