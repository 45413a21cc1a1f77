//! Tests of the ring of open files.

use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use super::pins::PINS_MAX;
use super::*;
use crate::disk::{Change, DiskFault, Witness};

/// Every pin there may be, so that no file is pinned meanwhile.
struct NoPins;

impl NoPins {
    fn take() -> Self {
        RING.pins.fetch_add(PINS_MAX, Ordering::Relaxed);
        Self
    }
}

impl Drop for NoPins {
    fn drop(&mut self) {
        RING.pins.fetch_sub(PINS_MAX, Ordering::Relaxed);
    }
}

/// Counts the syncs; fails the first if it is told to.
#[derive(Default)]
struct SyncCounter {
    count: AtomicUsize,
    first_fails: AtomicBool,
}

impl Witness for SyncCounter {
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault> {
        if let Change::Sync(_) = change
            && self.count.fetch_add(1, Ordering::Relaxed) == 0
            && self.first_fails.load(Ordering::Relaxed)
        {
            return Err(bad_disk());
        }
        Ok(())
    }
}

fn bad_disk() -> DiskFault {
    DiskFault {
        written: 0,
        error: io::Error::from_raw_os_error(5),
    }
}

fn written_file(directory: &Path) -> Arc<SegmentFile> {
    let file = SegmentFile::create(directory.join("00000000000000000000.log")).unwrap();
    file.write_at(0, b"written").unwrap();
    assert!(!file.close_if_idle(false), "it was used lately");
    file
}

fn is_open(file: &SegmentFile) -> bool {
    file.place().open.is_some()
}

#[test]
fn a_written_file_that_cannot_be_pinned_is_synced_before_it_is_closed() {
    let root = tempfile::tempdir().unwrap();
    let syncs = Arc::new(SyncCounter::default());
    disk::watch(root.path(), Arc::clone(&syncs) as Arc<dyn Witness>);
    let _no_pins = NoPins::take();
    let file = written_file(root.path());
    assert!(!file.close_if_idle(false));
    assert!(is_open(&file));
    assert_eq!(syncs.count.load(Ordering::Relaxed), 0);

    assert!(file.close_if_idle(true));

    assert!(!is_open(&file));
    assert_eq!(syncs.count.load(Ordering::Relaxed), 1);
    disk::release(root.path());
}

#[test]
fn a_sync_that_failed_before_a_close_is_told_by_every_later_one() {
    let root = tempfile::tempdir().unwrap();
    let syncs = Arc::new(SyncCounter::default());
    syncs.first_fails.store(true, Ordering::Relaxed);
    disk::watch(root.path(), Arc::clone(&syncs) as Arc<dyn Witness>);
    let _no_pins = NoPins::take();
    let file = written_file(root.path());

    assert!(file.close_if_idle(true));

    for _ in 0..2 {
        assert!(file.sync().unwrap_err().to_string().contains("os error 5"));
    }
    disk::release(root.path());
}

#[test]
fn a_file_of_which_no_sync_is_promised_is_closed_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    let _no_pins = NoPins::take();
    let file = written_file(root.path());
    file.set_syncs_before_close(false);
    assert!(file.close_if_idle(false));
    assert!(!is_open(&file));
}

/// Holds the first sync until another has come to the disk too, or cannot; then it fails.
struct FirstWaits {
    begun: Mutex<Sender<()>>,
    overtaken: (Mutex<Sender<()>>, Mutex<Receiver<()>>),
    count: AtomicUsize,
}

impl Witness for FirstWaits {
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault> {
        let Change::Sync(_) = change else {
            return Ok(());
        };
        if self.count.fetch_add(1, Ordering::Relaxed) > 0 {
            let _ = self.overtaken.0.lock().unwrap().send(());
            return Ok(());
        }
        self.begun.lock().unwrap().send(()).unwrap();
        let overtaken = self.overtaken.1.lock().unwrap();
        let _ = overtaken.recv_timeout(Duration::from_millis(200));
        Err(bad_disk())
    }
}

/// The kernel tells one descriptor of a failed write-back once.
#[test]
fn a_sync_beside_one_that_fails_before_a_close_does_not_succeed() {
    let root = tempfile::tempdir().unwrap();
    let (begun, has_begun) = channel();
    let (overtake, overtaken) = channel();
    let witness = FirstWaits {
        begun: Mutex::new(begun),
        overtaken: (Mutex::new(overtake), Mutex::new(overtaken)),
        count: AtomicUsize::new(0),
    };
    disk::watch(root.path(), Arc::new(witness));
    let _no_pins = NoPins::take();
    let file = written_file(root.path());
    thread::scope(|scope| {
        let closing = scope.spawn(|| file.close_if_idle(true));
        has_begun.recv().unwrap();
        assert!(file.sync().is_err());
        closing.join().unwrap();
    });
    disk::release(root.path());
}
