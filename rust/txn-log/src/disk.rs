//! Every change a log makes to the disk, in one place, so that tests can fail it, tear it, or
//! write it down.
//!
//! A [`Witness`] sees each change to the files below one directory before it is made, and may
//! turn it into an error. Without one (always, outside tests) that costs an atomic load.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use crate::histogram::{Histogram, Times};
use crate::open_files::with_descriptors;

/// One change to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// A file is made, or emptied.
    Create(&'a Path),
    /// Bytes are written at a position.
    Write(&'a Path, u64, &'a [u8]),
    /// A file is cut or grown to a length.
    Truncate(&'a Path, u64),
    /// A file gets another name.
    Rename(&'a Path, &'a Path),
    /// A file is removed.
    Remove(&'a Path),
    /// A file's bytes are synced.
    Sync(&'a Path),
    /// A directory's entries are synced.
    SyncDirectory(&'a Path),
}

/// A fault: the outcome of a change in place of success.
#[derive(Debug)]
pub struct DiskFault {
    /// Number of bytes of a `Write` that arrive all the same.
    pub written: usize,
    /// The error that the log gets.
    pub error: io::Error,
}

/// Someone who sees every change to the files of a directory before it is made.
pub trait Witness: Send + Sync {
    /// Allows the change, or refuses it with an error.
    ///
    /// # Errors
    /// The fault's error.
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault>;
}

static WITNESSES: RwLock<Vec<(PathBuf, Arc<dyn Witness>)>> = RwLock::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Shows a witness every change below a directory, until [`release`].
pub fn watch(directory: &Path, witness: Arc<dyn Witness>) {
    let mut witnesses = WITNESSES.write().unwrap_or_else(PoisonError::into_inner);
    witnesses.push((directory.to_owned(), witness));
    COUNT.store(witnesses.len(), Ordering::Release);
}

/// Ends a [`watch`].
pub fn release(directory: &Path) {
    let mut witnesses = WITNESSES.write().unwrap_or_else(PoisonError::into_inner);
    witnesses.retain(|(watched, _)| watched != directory);
    COUNT.store(witnesses.len(), Ordering::Release);
}

fn ask(path: &Path, change: &Change<'_>) -> Result<(), DiskFault> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    let witness = {
        let witnesses = WITNESSES.read().unwrap_or_else(PoisonError::into_inner);
        let found = witnesses
            .iter()
            .find(|(watched, _)| path.starts_with(watched));
        found.map(|(_, witness)| Arc::clone(witness))
    };
    witness.map_or(Ok(()), |witness| witness.before(change))
}

fn announce(path: &Path, change: &Change<'_>) -> io::Result<()> {
    ask(path, change).map_err(|fault| fault.error)
}

/// Writes all bytes at a position of an open file.
pub(crate) fn write_at(file: &File, path: &Path, position: u64, bytes: &[u8]) -> io::Result<()> {
    match ask(path, &Change::Write(path, position, bytes)) {
        Ok(()) => file.write_all_at(bytes, position),
        Err(fault) => {
            file.write_all_at(&bytes[..fault.written.min(bytes.len())], position)?;
            Err(fault.error)
        }
    }
}

/// New files and directories are for this user alone, under any umask; existing ones keep their
/// mode.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// Makes or empties a file and opens it.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    announce(path, &Change::Create(path))?;
    with_descriptors(|| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE)
            .open(path)
    })
}

/// Opens a file to write to its present contents, made if it is missing.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    with_descriptors(|| {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path)
    })
}

/// Opens a file to read it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    with_descriptors(|| File::open(path))
}

/// More bytes than any file has that is derived from the batches of a log: a snapshot of more than
/// five million producers, say.
const DERIVED_BYTES_MAX: u64 = 256 << 20;

/// Reads a file whose content can be derived from the batches of its log again. It is `None` if it
/// is missing, or too large to be such a file.
pub(crate) fn read_derived(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let len = file.metadata()?.len();
    if len > DERIVED_BYTES_MAX {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(len as usize);
    file.take(DERIVED_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Makes a directory, unless it is there. None is made above it: a data directory that is gone was
/// moved away, and another of its name would hide that.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Makes or replaces a file with these bytes; it may be torn by a crash.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = create(path)?;
    write_at(&file, path, 0, bytes)
}

/// Makes or replaces a file whole or not at all, by way of a file of another name. Something else
/// of that name, as a FIFO or a directory, is moved aside.
pub(crate) fn replace(path: &Path, unfinished: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::symlink_metadata(unfinished).is_ok_and(|found| !found.is_file()) {
        move_aside(unfinished)?;
    }
    write(unfinished, bytes)?;
    rename(unfinished, path)
}

/// Last part of the name of whatever stood in the way of a file.
pub(crate) const ASIDE_SUFFIX: &str = "given-up";

/// Renames an entry that has the name of a file and is none, if there is one.
pub(crate) fn move_aside(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ASIDE_SUFFIX);
    rename_if_there(path, name.as_ref()).map(|_| ())
}

/// Cuts or grows an open file.
pub(crate) fn truncate(file: &File, path: &Path, len: u64) -> io::Result<()> {
    announce(path, &Change::Truncate(path, len))?;
    file.set_len(len)
}

pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    announce(from, &Change::Rename(from, to))?;
    fs::rename(from, to)
}

/// Renames a file that may be missing; says whether it was there.
pub(crate) fn rename_if_there(from: &Path, to: &Path) -> io::Result<bool> {
    match rename(from, to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn remove(path: &Path) -> io::Result<()> {
    announce(path, &Change::Remove(path))?;
    fs::remove_file(path)
}

/// Removes a file that may be gone already.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

static SYNCS: Histogram = Histogram::new();
static SYNCS_IN_PROGRESS: AtomicU64 = AtomicU64::new(0);

/// Number of times that this process has synced a file of a log, and their duration.
#[must_use]
pub fn sync_times() -> Times {
    SYNCS.times()
}

/// Number of files of logs that are being synced now.
#[must_use]
pub fn syncs_in_progress() -> u64 {
    SYNCS_IN_PROGRESS.load(Ordering::Relaxed)
}

/// In a forked child: the syncs under way are its parent's.
pub(crate) fn forget_syncs_in_progress() {
    SYNCS_IN_PROGRESS.store(0, Ordering::Relaxed);
}

/// Forces an open file's bytes, and the size needed to read them back, to the disk.
pub(crate) fn sync(file: &File, path: &Path) -> io::Result<()> {
    announce(path, &Change::Sync(path))?;
    SYNCS_IN_PROGRESS.fetch_add(1, Ordering::Relaxed);
    let began = Instant::now();
    let synced = txn_sys::sync_data(file.as_fd());
    SYNCS.record(began.elapsed());
    SYNCS_IN_PROGRESS.fetch_sub(1, Ordering::Relaxed);
    synced
}

/// Forces a file to the disk, if it is there.
pub(crate) fn sync_if_there(path: &Path) -> io::Result<()> {
    match open(path) {
        Ok(file) => sync(&file, path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Forces the entry of a file or directory to the disk.
pub(crate) fn sync_directory_above(path: &Path) -> io::Result<()> {
    let above = path.parent().unwrap_or(Path::new("."));
    let is_here = above.as_os_str().is_empty();
    sync_directory(if is_here { Path::new(".") } else { above })
}

/// Forces a directory's entries to the disk.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    announce(path, &Change::SyncDirectory(path))?;
    with_descriptors(|| txn_sys::sync_directory(path))
}
