//! The ring of the process's open files of segments: when it is full, a clock closes idle ones.
//!
//! A file that was used since the clock last passed stays; one that was not used is closed. The
//! system's limit is one per process, so there is one ring. A [`RingFile`] adds itself when it is
//! opened. An [`OpenFile`] counts itself in the ring, also while an answer borrows it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Files open at a time until [`set_open_files_max`] says otherwise.
const OPEN_FILES_MAX: usize = 256;
/// Number of files closed when the system has no descriptor left for another need.
const CLOSED_AT_ONCE: usize = 32;

pub(super) static RING: Ring = Ring {
    max: AtomicUsize::new(OPEN_FILES_MAX),
    open: AtomicUsize::new(0),
    lent: AtomicUsize::new(0),
    pins: AtomicUsize::new(0),
    files: Mutex::new(VecDeque::new()),
};

/// Sets how many files of segments this process has open at a time.
///
/// Answers under way may keep more open for a moment.
pub fn set_open_files_max(max: usize) {
    RING.max.store(max.max(1), Ordering::Relaxed);
    RING.make_room(0);
}

/// Number of files of segments that this process has open.
#[must_use]
pub fn open_files() -> usize {
    RING.open.load(Ordering::Relaxed)
}

/// Closes the files that were not used since the last call. For a worker, now and then.
pub fn close_idle_files() {
    RING.turn(RING.len(), false, |_| false);
}

/// A file that stands in the ring while it is open.
pub(super) trait RingFile: Send + Sync {
    /// Closes the file unless it was used lately or is in use; false if it stays in the ring.
    fn close_if_idle(&self, may_sync: bool) -> bool;

    /// Leaves the sync of written bytes to another process.
    fn forget_writes(&self);
}

pub(super) type RingEntries = VecDeque<Weak<dyn RingFile>>;

/// Makes an attempt that needs descriptors; if the system has none left, closes some files and
/// makes it again.
pub(crate) fn with_descriptors<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match attempt() {
        Err(error) if txn_sys::is_out_of_descriptors(&error) => {
            let target = open_files().saturating_sub(CLOSED_AT_ONCE);
            RING.close_until(|open| open <= target);
            attempt()
        }
        done => done,
    }
}

/// The ring of open files.
pub(super) struct Ring {
    max: AtomicUsize,
    pub open: AtomicUsize,
    /// Number of them, or of those closed here since, that are lent to answers under way.
    pub lent: AtomicUsize,
    pub pins: AtomicUsize,
    /// The next to be looked at first. Each file stands here at most once.
    files: Mutex<RingEntries>,
}

impl Ring {
    pub fn lock(&self) -> MutexGuard<'_, RingEntries> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn len(&self) -> usize {
        self.lock().len()
    }

    pub fn lent_max(&self) -> usize {
        self.max.load(Ordering::Relaxed).div_ceil(2)
    }

    /// Closes files until `more` can be opened, or all are in use.
    pub fn make_room(&self, more: usize) {
        let max = self.max.load(Ordering::Relaxed);
        let has_room = |open: usize| open + more <= max;
        if !has_room(self.open.load(Ordering::Relaxed)) {
            self.close_until(has_room);
        }
    }

    fn close_until(&self, is_enough: impl Fn(usize) -> bool) {
        // One round takes the marks of use away, the next one closes. Those that have to wait for
        // the disk come last.
        let round = self.len();
        self.turn(2 * round, false, &is_enough);
        self.turn(round, true, &is_enough);
    }

    /// Looks at up to `steps` files, closing the idle ones, until `is_enough`.
    fn turn(&self, steps: usize, may_sync: bool, is_enough: impl Fn(usize) -> bool) {
        for _ in 0..steps {
            if is_enough(self.open.load(Ordering::Relaxed)) {
                return;
            }
            let Some(next) = self.lock().pop_front() else {
                return;
            };
            if let Some(file) = next.upgrade()
                && !file.close_if_idle(may_sync)
            {
                self.lock().push_back(next);
            }
        }
    }

    pub fn add<T: RingFile + 'static>(&self, file: &Arc<T>) {
        let mut files = self.lock();
        let entry = Arc::downgrade(file);
        files.push_back(entry);
        // Files of logs that are gone are dropped here once they are most of the ring.
        if files.len() > 64 + 2 * self.open.load(Ordering::Relaxed) {
            files.retain(|file| file.strong_count() > 0);
        }
    }
}

/// An open file. It stays open as long as somebody has it.
#[derive(Clone, Debug)]
pub struct OpenFile(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    file: File,
    /// Number of answers under way that it is lent to.
    lent: AtomicUsize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        RING.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for OpenFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0.file
    }
}

impl OpenFile {
    pub(super) fn new(file: File) -> Self {
        RING.open.fetch_add(1, Ordering::Relaxed);
        let lent = AtomicUsize::new(0);
        Self(Arc::new(Counted { file, lent }))
    }

    /// True if the caller is the only one that has the file.
    pub(super) fn has_one_owner(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Lends the file for an answer that may wait for its client. `None` if half of the files
    /// that may be open are lent: clients that do not read leave the other half to the others.
    #[must_use]
    pub fn lend(&self) -> Option<LentFile> {
        let is_first = self.0.lent.fetch_add(1, Ordering::Relaxed) == 0;
        let lending = LentFile(self.clone()); // given back when it is dropped
        if is_first && RING.lent.fetch_add(1, Ordering::Relaxed) >= RING.lent_max() {
            return None;
        }
        Some(lending)
    }
}

/// An open file lent to an answer under way.
#[derive(Debug)]
pub struct LentFile(OpenFile);

impl Deref for LentFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LentFile {
    fn drop(&mut self) {
        if self.0.0.lent.fetch_sub(1, Ordering::Relaxed) == 1 {
            RING.lent.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// True if [`OpenFile::lend`] would lend now.
#[must_use]
pub fn can_lend_files() -> bool {
    RING.lent.load(Ordering::Relaxed) < RING.lent_max()
}
