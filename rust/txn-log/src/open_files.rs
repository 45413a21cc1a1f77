//! Open files of segments: a bounded number of them, for any number of partitions.
//!
//! A [`SegmentFile`] knows its path, and opens its file when it is needed. All open files of the
//! process are in one ring, because the limit of the system is one per process (`ring`). A file
//! that is used by a read or an answer under way stays open until they are done.
//!
//! # Invariants
//! 1. A path is never opened as another file than the one first opened: device, inode and birth
//!    are compared, and the file holds at least the bytes that were written to it. All three change
//!    when an overlay copies a file up from a lower layer, at its first opening for writing or its
//!    renaming. So they are compared just before these, and noted again just after.
//! 2. The next sync reports a failed write-back of bytes that were written here, whether the file
//!    was closed meanwhile or not. See `pins`.
//! 3. A renamed segment is opened under its new name: renaming happens under the file's lock, and no
//!    other file is given a name that is still taken.
//! 4. A file is open for writing only since something was to be written to it: to read a log changes
//!    nothing, and needs no right to write. From then on its readers get that descriptor, for an
//!    older one may be of the lower layer.
//!
//! # Locks
//! `syncing`, a file's lock, then the ring's. The ring's lock is never held while a file's is
//! waited for. `syncing`, which is held while the ring turns, is not waited for there.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::SystemTime;

use crate::{disk, in_place};

mod forks;
mod pins;
mod ring;

pub use forks::hold_open_files_over_forks;
use pins::CountedPin;
pub(crate) use ring::with_descriptors;
pub use ring::{
    LentFile, OpenFile, can_lend_files, close_idle_files, open_files, set_open_files_max,
};
use ring::{RING, RingFile};

/// Distinguishes a file from every other one that had or will have its name.
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
    /// The pin of the file that was closed before its written bytes were synced.
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
    /// The errors of stat(2); `InvalidInput` if it is not a regular file.
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

    /// True if bytes are synced before the file is closed for want of descriptors.
    pub fn set_syncs_before_close(&self, syncs: bool) {
        self.syncs_before_close.store(syncs, Ordering::Relaxed);
    }

    /// The open file, to be read; opens it if it is closed.
    ///
    /// # Errors
    /// The errors of open(2); `NotFound` for a removed segment. `Other` if something else has
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

    /// Syncs the bytes. A segment that was removed has nothing left to sync.
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

    /// Releases the pin of a file that was closed before its bytes were synced. Reports bytes
    /// that were lost since it was opened.
    fn unpin(&self) -> io::Result<()> {
        if self.place().pin.is_none() {
            return Ok(());
        }
        let pin = self.place_mut().pin.take();
        pin.map_or(Ok(()), CountedPin::take_failure)
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

    /// Closes the file if nobody uses it and nothing was written since it was last synced to the
    /// disk. For one that is not needed soon.
    pub fn close_if_synced(&self) {
        let mut place = self.place_mut();
        if !self.is_written.load(Ordering::Acquire) && place.is_idle() {
            place.open = None;
        }
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

impl RingFile for SegmentFile {
    /// Closes the file unless it was used lately or is in use; false if it stays in the ring.
    ///
    /// A written file is pinned first, see [`pins`]; where that is not possible, it is synced now.
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

    fn forget_writes(&self) {
        self.is_written.store(false, Ordering::Release);
    }
}

impl Place {
    /// The open file, if it can be used to read, or to write.
    fn open_for(&self, writing: bool) -> Option<&OpenFile> {
        self.open.as_ref().filter(|_| self.is_writable || !writing)
    }

    /// True if nobody was given the file. Under the lock no new one can be.
    fn is_idle(&self) -> bool {
        self.open.as_ref().is_none_or(OpenFile::has_one_owner)
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
mod tests;
