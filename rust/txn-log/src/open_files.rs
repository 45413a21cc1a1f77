//! Open files of segments: a bounded number of them, for any number of partitions.
//!
//! A [`SegmentFile`] knows its path and gives out its file, opened when it is needed. All open
//! ones of the process stand in one ring, for the system's limit is one per process. When the ring
//! is full the clock goes round it. A file that was used since the last round stays; one that was
//! not used is closed. A file in use, by a read or an answer under way, is never taken
//! away: its borrowers keep it.
//!
//! # Invariants
//! 1. A path is never opened as another file than the one first opened: device, inode and birth
//!    are compared, and the file holds at least the bytes that were written to it. All three change
//!    when an overlay copies a file up from a lower layer, at its first opening for writing or its
//!    renaming. So they are compared just before these, and noted again just after.
//! 2. A failed write-back of bytes that were written here is told by the next sync, whether the
//!    file was closed meanwhile or not. See [`SegmentFile::close_if_idle`].
//! 3. A renamed segment is opened under its new name: renaming happens under the file's lock, and no
//!    other file is given a name that is still taken.
//! 4. A file is open for writing only since something was to be written to it: to read a log changes
//!    nothing, and needs no right to write. From then on its readers get that descriptor, for an
//!    older one may be of the lower layer.
//!
//! # Locks
//! `syncing`, a file's lock, then the ring's. The ring's lock is never held while a file's is
//! waited for. `syncing`, which is held while the ring turns, is not waited for there.
//!
//! # Forks
//! A child of this process has the ring, and of the threads only the one that forked. That one
//! holds the ring's lock over the fork, as nobody would let go of it in the child: see
//! [`hold_open_files_over_forks`]. A file's lock may be held there for ever, so the ring only tries it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
    Weak,
};
use std::time::SystemTime;

use txn_sys::Pin;

use crate::{disk, in_place};

/// Files open at a time until [`set_open_files_max`] says otherwise.
const OPEN_FILES_MAX: usize = 256;
/// Number of written files that may be closed without being forced to the disk. Each takes a
/// mapping; a process has 65,530 unless the machine's administrator changed that.
const PINS_MAX: usize = 32 << 10;
/// Number of files closed when the system has no descriptor left for another need.
const CLOSED_AT_ONCE: usize = 32;

static RING: Ring = Ring {
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

type RingEntries = VecDeque<Weak<SegmentFile>>;

thread_local! {
    static HELD: RefCell<Option<MutexGuard<'static, RingEntries>>> = const { RefCell::new(None) };
}

/// Makes every fork of the process wait for the ring, so that no child waits for it for ever.
///
/// # Errors
/// There is no memory for it.
pub fn hold_open_files_over_forks() -> io::Result<()> {
    txn_sys::at_fork(hold, let_go, disown)
}

extern "C" fn hold() {
    let entries = RING.lock();
    let _ = HELD.try_with(|held| held.replace(Some(entries)));
}

extern "C" fn let_go() {
    let _ = HELD.try_with(RefCell::take);
}

/// In the child. Written files are its parent's to force to the disk, and are closed here without
/// that; answers under way are its parent's too.
extern "C" fn disown() {
    if let Ok(Some(entries)) = HELD.try_with(RefCell::take) {
        for file in entries.iter().filter_map(Weak::upgrade) {
            file.is_written.store(false, Ordering::Release);
        }
    }
    RING.lent.store(0, Ordering::Relaxed);
    disk::forget_syncs_in_progress();
}

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
struct Ring {
    max: AtomicUsize,
    open: AtomicUsize,
    /// Number of them, or of those closed here since, that are lent to answers under way.
    lent: AtomicUsize,
    pins: AtomicUsize,
    /// The next to be looked at first. Each file stands here at most once.
    files: Mutex<RingEntries>,
}

impl Ring {
    fn lock(&self) -> MutexGuard<'_, RingEntries> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn len(&self) -> usize {
        self.lock().len()
    }

    fn lent_max(&self) -> usize {
        self.max.load(Ordering::Relaxed).div_ceil(2)
    }

    /// Closes files until `more` can be opened, or all are in use.
    fn make_room(&self, more: usize) {
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

    fn add(&self, file: &Arc<SegmentFile>) {
        let mut files = self.lock();
        files.push_back(Arc::downgrade(file));
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
    fn new(file: File) -> Self {
        RING.open.fetch_add(1, Ordering::Relaxed);
        let lent = AtomicUsize::new(0);
        Self(Arc::new(Counted { file, lent }))
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

/// A pinned inode, one of at most [`PINS_MAX`].
#[derive(Debug)]
struct CountedPin(Pin);

impl CountedPin {
    fn of(file: &OpenFile) -> Option<Self> {
        if RING.pins.fetch_add(1, Ordering::Relaxed) < PINS_MAX
            && let Ok(pin) = Pin::of(file.as_fd())
        {
            return Some(Self(pin));
        }
        RING.pins.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for CountedPin {
    fn drop(&mut self) {
        RING.pins.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tells a file from every other one that had or will have its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    /// An inode's number is given again; `None` where the file system keeps no birth.
    born: Option<SystemTime>,
}

impl FileIdentity {
    fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            born: found.created().ok(),
        }
    }
}

/// The `.log` file of a segment.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    path: PathBuf,
    /// Used since the clock last passed.
    is_used: AtomicBool,
    /// Bytes may have been written that no fdatasync covers yet.
    is_written: AtomicBool,
    syncs_before_close: AtomicBool,
    /// Bytes it has to have when it is opened again.
    written_end: AtomicU64,
    /// Held from before an fdatasync until its failure is noted: the kernel tells a descriptor
    /// of it once, so another one beside it would succeed.
    syncing: Mutex<()>,
    place: RwLock<Place>,
}

#[derive(Debug)]
struct Place {
    identity: FileIdentity,
    open: Option<OpenFile>,
    /// The open file may be written to.
    is_writable: bool,
    /// The name it has now, if that is not `path`.
    renamed: Option<PathBuf>,
    is_in_ring: bool,
    /// The pin of the file that was closed before its written bytes were forced to the disk.
    pin: Option<CountedPin>,
    /// The error of the fdatasync before a close: from then on the file's bytes are unknown.
    failure: Option<String>,
}

impl SegmentFile {
    /// Makes or empties a file.
    pub fn create(path: PathBuf) -> io::Result<Arc<Self>> {
        RING.make_room(1);
        let file = disk::create(&path)?;
        let found = file.metadata()?;
        let created = Arc::new(Self::new(path, &found, Some(file)));
        RING.add(&created);
        Ok(created)
    }

    /// Finds a file that is there, and its bytes; it is opened when it is needed.
    ///
    /// # Errors
    /// Those of stat(2); `InvalidInput` if it is not a regular file.
    pub fn find(path: PathBuf) -> io::Result<(Arc<Self>, u64)> {
        let found = fs::metadata(&path)?;
        if !found.is_file() {
            let name = path.display();
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name} is not a regular file"),
            ));
        }
        Ok((Arc::new(Self::new(path, &found, None)), found.len()))
    }

    fn new(path: PathBuf, found: &Metadata, open: Option<File>) -> Self {
        Self {
            path,
            is_used: AtomicBool::new(false),
            is_written: AtomicBool::new(false),
            syncs_before_close: AtomicBool::new(true),
            written_end: AtomicU64::new(found.len()),
            syncing: Mutex::new(()),
            place: RwLock::new(Place {
                identity: FileIdentity::of(found),
                is_in_ring: open.is_some(),
                is_writable: open.is_some(),
                open: open.map(OpenFile::new),
                renamed: None,
                pin: None,
                failure: None,
            }),
        }
    }

    /// The path of the segment's `.log`, which a removed one has left.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if bytes are forced to the disk before the file is closed for want of descriptors.
    pub fn set_syncs_before_close(&self, syncs: bool) {
        self.syncs_before_close.store(syncs, Ordering::Relaxed);
    }

    /// The open file, to be read; opens it if it is closed.
    ///
    /// # Errors
    /// Those of open(2); `NotFound` for a removed segment. `Other` if something else has
    /// its name.
    pub fn get(self: &Arc<Self>) -> io::Result<OpenFile> {
        self.get_for(false)
    }

    fn get_for(self: &Arc<Self>, writing: bool) -> io::Result<OpenFile> {
        {
            let place = self.place();
            if let Some(file) = place.open_for(writing) {
                // A load first: a hot file's cache line is not written to by every reader.
                if !self.is_used.load(Ordering::Relaxed) {
                    self.is_used.store(true, Ordering::Relaxed);
                }
                return Ok(file.clone());
            }
        }
        self.reopen(writing)
    }

    #[cold]
    fn reopen(self: &Arc<Self>, writing: bool) -> io::Result<OpenFile> {
        RING.make_room(1);
        let mut place = self.place_mut();
        if let Some(file) = place.open_for(writing) {
            return Ok(file.clone());
        }
        let path = place.renamed.as_deref().unwrap_or(&self.path);
        let written_end = self.written_end.load(Ordering::Acquire);
        let file = if writing {
            let before = fs::metadata(path)?;
            require_same(path, place.identity, &before, written_end)?;
            let file = open(path, true)?;
            let found = file.metadata()?;
            let is_as_before =
                found.len() == before.len() && found.modified()? == before.modified()?;
            if !is_as_before {
                require_same(path, place.identity, &found, written_end)?;
            }
            place.identity = FileIdentity::of(&found);
            file
        } else {
            let file = open(path, false)?;
            require_same(path, place.identity, &file.metadata()?, written_end)?;
            file
        };
        let file = OpenFile::new(file);
        place.open = Some(file.clone());
        place.is_writable = writing;
        self.is_used.store(true, Ordering::Relaxed);
        if !std::mem::replace(&mut place.is_in_ring, true) {
            RING.add(self);
        }
        Ok(file)
    }

    /// When the file was last written to, without opening it.
    pub fn modified(&self) -> io::Result<SystemTime> {
        let place = self.place();
        match &place.open {
            Some(file) => file.metadata()?.modified(),
            None => fs::metadata(place.renamed.as_deref().unwrap_or(&self.path))?.modified(),
        }
    }

    /// Writes all bytes at a position.
    pub fn write_at(self: &Arc<Self>, position: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.get_for(true)?;
        let written = disk::write_at(&file, &self.path, position, bytes);
        if written.is_ok() {
            let end = position + bytes.len() as u64;
            self.written_end.fetch_max(end, Ordering::AcqRel);
        }
        // After the write, so that a sync under way does not take the mark for bytes that it did
        // not cover. While `file` is held, so that it is not closed between the two.
        self.is_written.store(true, Ordering::Release);
        drop(file);
        written
    }

    /// Cuts or grows the file.
    pub fn truncate(self: &Arc<Self>, len: u64) -> io::Result<()> {
        let file = self.get_for(true)?;
        // Before: cut or not, no more than this is needed of it.
        self.written_end.fetch_min(len, Ordering::AcqRel);
        let cut = disk::truncate(&file, &self.path, len);
        self.is_written.store(true, Ordering::Release);
        drop(file);
        cut
    }

    /// Forces the bytes to the disk. Of a segment that was removed nothing is left to force.
    ///
    /// # Errors
    /// The disk's, now or when the file was last closed: that one is not forgotten.
    pub fn sync(self: &Arc<Self>) -> io::Result<()> {
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        // Its bytes lie below a log start that was noted, or in a cleaned segment that was synced.
        if self.is_removed() {
            return Ok(());
        }
        if let Some(failure) = &self.place().failure {
            return Err(io::Error::other(failure.clone()));
        }
        let file = match self.get() {
            // It was removed just now. A file that vanished under its own name is an error.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_removed() => {
                return Ok(());
            }
            opened => opened?,
        };
        // Before the sync: bytes that are written meanwhile set it again.
        self.is_written.store(false, Ordering::Release);
        let synced = disk::sync(&file, &self.path)
            .and_then(|()| self.unpin())
            .and_then(|()| self.require_in_place());
        if synced.is_err() {
            self.is_written.store(true, Ordering::Release);
        }
        synced
    }

    /// Fails if something else moved the file away, removed or replaced it: the next start finds
    /// no byte of it.
    pub fn require_in_place(&self) -> io::Result<()> {
        let place = self.place(); // nobody renames it meanwhile
        if place.renamed.is_some() {
            return Ok(()); // it was removed
        }
        in_place::require_at(&self.path, |found| {
            FileIdentity::of(found) == place.identity
        })
    }

    /// Lets go of a file that was closed before its bytes were forced to the disk. Reports bytes
    /// that were lost since it was opened.
    fn unpin(&self) -> io::Result<()> {
        if self.place().pin.is_none() {
            return Ok(());
        }
        let pin = self.place_mut().pin.take();
        pin.map_or(Ok(()), |pin| pin.0.take_failure())
    }

    /// Gives the file another name.
    pub fn rename_if_there(&self, to: &Path) -> io::Result<bool> {
        // Under the lock: nobody opens the old name, which a cleaned segment may soon have, for
        // this file.
        let mut place = self.place_mut();
        let is_same = |found: Metadata| FileIdentity::of(&found) == place.identity;
        let was_same = fs::metadata(&self.path).is_ok_and(is_same);
        let renamed = disk::rename_if_there(&self.path, to);
        if let Ok(true) = renamed {
            place.renamed = Some(to.to_owned());
            if let (true, Ok(found)) = (was_same, fs::metadata(to)) {
                place.identity = FileIdentity::of(&found);
            }
        }
        renamed
    }

    /// Closes the file if nobody uses it and nothing was written since it was last forced to the
    /// disk. For one that is not needed soon.
    pub fn close_if_synced(&self) {
        let mut place = self.place_mut();
        if !self.is_written.load(Ordering::Acquire) && place.is_idle() {
            place.open = None;
        }
    }

    /// Closes the file unless it was used lately or is in use; false if it stays in the ring.
    ///
    /// Linux reports a failed write-back to each descriptor that was open when it happened. If it
    /// was reported to none, it goes to the first one opened after it (errseq, since 4.13). But the
    /// report is kept with the inode in memory. An inode that nothing holds may be dropped once its
    /// pages are clean, which a failed write-back makes them. A later open then finds no error and
    /// an fdatasync succeeds, though the bytes are lost. So the inode of a written file is pinned
    /// until its bytes were forced to the disk. Where that is not possible, they are forced to it
    /// now.
    fn close_if_idle(&self, may_sync: bool) -> bool {
        if self.is_used.swap(false, Ordering::Relaxed) {
            return false;
        }
        if may_sync && self.has_to_stay() {
            self.sync_to_close();
        }
        let mut place = match self.place.try_write() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false, // it is being used
        };
        // Nobody else has the file and nobody can be given it: written bytes are marked so.
        if !place.is_idle() || (self.has_to_stay() && !place.pin()) {
            return false;
        }
        place.open = None;
        place.is_in_ring = false;
        true
    }

    /// Forces the bytes to the disk unless that is being done; the next `sync` tells of a failure.
    fn sync_to_close(&self) {
        let _syncing = match self.syncing.try_lock() {
            Ok(syncing) => syncing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // Without the file's lock: readers go on meanwhile.
        let Some(file) = self.place().open.clone() else {
            return;
        };
        self.is_written.store(false, Ordering::Release);
        let synced = disk::sync(&file, &self.path).and_then(|()| self.unpin());
        if let Err(error) = synced {
            let failure = format!("{}: {error}", self.path.display());
            self.place_mut().failure.get_or_insert(failure);
        }
    }

    /// True if the file may not be closed as it is.
    fn has_to_stay(&self) -> bool {
        self.syncs_before_close.load(Ordering::Relaxed) && self.is_written.load(Ordering::Acquire)
    }

    /// True if its segment was removed: the file has the name under which it waits for its deletion.
    fn is_removed(&self) -> bool {
        self.place().renamed.is_some()
    }

    fn place(&self) -> RwLockReadGuard<'_, Place> {
        self.place.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn place_mut(&self) -> RwLockWriteGuard<'_, Place> {
        self.place.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The open file, if it can be used to read, or to write.
    fn open_for(&self, writing: bool) -> Option<&OpenFile> {
        self.open.as_ref().filter(|_| self.is_writable || !writing)
    }

    /// True if nobody was given the file. Under the lock no new one can be.
    fn is_idle(&self) -> bool {
        self.open
            .as_ref()
            .is_none_or(|file| Arc::strong_count(&file.0) == 1)
    }

    /// Pins the open file; says whether it is. A pin stays until the next sync: of the same inode,
    /// it tells of all that was lost since.
    fn pin(&mut self) -> bool {
        if let (None, Some(file)) = (&self.pin, &self.open) {
            self.pin = CountedPin::of(file);
        }
        self.pin.is_some() || self.open.is_none()
    }
}

fn open(path: &Path, writing: bool) -> io::Result<File> {
    with_descriptors(|| OpenOptions::new().read(true).write(writing).open(path))
}

/// Fails if another file than before has a name, or the same one has lost bytes.
fn require_same(
    path: &Path,
    known: FileIdentity,
    found: &Metadata,
    written_end: u64,
) -> io::Result<()> {
    let is_same = FileIdentity::of(found) == known;
    if is_same && found.len() >= written_end {
        return Ok(());
    }
    let what = if is_same {
        format!("has {} bytes, but {written_end} were written", found.len())
    } else {
        "is another file than before".to_owned()
    };
    Err(io::Error::other(format!(
        "{} {what}: something else than this broker changed the directory",
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use std::time::Duration;

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
    fn no_other_thread_has_the_ring_while_one_forks() {
        hold();
        let is_done = Arc::new(AtomicBool::new(false));
        let other = {
            let is_done = Arc::clone(&is_done);
            std::thread::spawn(move || {
                close_idle_files();
                is_done.store(true, Ordering::Release);
            })
        };
        std::thread::sleep(std::time::Duration::from_millis(50));
        let was_done = is_done.load(Ordering::Acquire);
        let_go();
        other.join().unwrap();
        assert!(!was_done);
        assert!(is_done.load(Ordering::Acquire));
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
}
