//! The end of a log: a failed sync, `close` and `delete`.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::disk;
use crate::log::{Condition, PartitionLog};
use crate::log_files::METADATA_NAME;
use crate::segment::file_path;

/// Suffix of the name of a directory that is being removed.
const DOOMED_SUFFIX: &str = "-delete";
/// The longest name that file systems take.
const NAME_BYTES_MAX: usize = 255;

impl PartitionLog {
    /// Refuses further batches after a failed sync: the kernel may have dropped bytes.
    pub(crate) fn fail_after_sync(&self, error: &io::Error) {
        self.has_failed_sync.store(true, Ordering::Release);
        let reason = format!("a sync failed: {error}");
        let mut writer = self.writer_even_if_failed();
        // The last moment to do it; nothing is appended any more, so it stays as it is.
        let _ = self.heal(&mut writer);
        if !matches!(writer.condition, Condition::Closed | Condition::Failed(_)) {
            self.write_health.fail(&format!(
                "{reason}. Repair the disk, then restart the broker"
            ));
            writer.condition = Condition::Failed(reason);
        }
    }

    /// Syncs, writes indexes and the producer state's snapshot, and closes. Closing twice is fine.
    ///
    /// # Errors
    /// The disk's error, now or in an append before: the log is closed, but the directory must not
    /// be taken for a clean one.
    pub fn close(&self) -> io::Result<()> {
        let mut was_broken_off = false;
        let mut writer = self.writer.lock().unwrap_or_else(|poisoned| {
            was_broken_off = true;
            poisoned.into_inner()
        });
        let healed = self.heal(&mut writer);
        let finished = match std::mem::replace(&mut writer.condition, Condition::Closed) {
            Condition::Closed => return Ok(()),
            Condition::Failed(reason) => Err(io::Error::other(reason)),
            Condition::Diverged(_) => healed,
            Condition::Open if was_broken_off => Err(io::Error::other("a bug broke off an append")),
            Condition::Open => self.finish_files(writer.is_as_closed),
        };
        drop(writer); // the reporter of a failed sync takes it
        let synced = self.sync_rest();
        self.release();
        finished.and(synced)
    }

    /// Brings the files of an open log to the state a clean start trusts; `sync_rest` has them on
    /// the disk. Under the lock.
    fn finish_files(&self, are_as_closed: bool) -> io::Result<()> {
        let segments = self.segments();
        let Some(active) = segments.last() else {
            return Ok(());
        };
        self.require_in_place()?;
        let end = self.offsets.log_end();
        if are_as_closed
            && !active.has_rebuilt_indexes()
            && file_path(&self.directory, end, "snapshot").exists()
        {
            return Ok(());
        }
        // A clean start believes the files of the active segment too.
        active.store_indexes()?;
        self.store_aborted_sum(active)?;
        self.note_seal(Arc::clone(active));
        self.write_snapshot(end)?;
        self.has_new_files.store(true, Ordering::Release);
        Ok(())
    }

    /// Closes and removes the directory with everything in it.
    ///
    /// It is renamed first, see `doomed_name`: a crash leaves the name either to a whole log or
    /// free. The owner of a data directory removes directories of this name when it opens its logs.
    ///
    /// # Errors
    /// The disk's error; the log is closed all the same.
    pub fn delete(&self) -> io::Result<()> {
        self.writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .condition = Condition::Closed;
        self.is_deleted.store(true, Ordering::Release);
        self.release();
        let name = self.directory.file_name().unwrap_or_default();
        let pending_deletes = doomed_name(&name.to_string_lossy());
        let pending_deletes = self.directory.with_file_name(pending_deletes);
        match disk::rename_if_there(&self.directory, &pending_deletes) {
            Ok(true) => remove_directory(&pending_deletes),
            Ok(false) => Ok(()),
            // An overlay renames no directory of a lower layer.
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                remove_in_place(&self.directory)
            }
            Err(error) => Err(error),
        }
    }

    fn release(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.pending_deletes.remove_all();
        self.replace_segments(Vec::new());
        self.watchers.wake();
    }
}

/// The name of a directory on its way out: `<topic>-<n>.<32 hexadecimal digits>-delete`, and of a
/// long topic as many characters as fit. The digits are random, so that two of the same name, or of
/// the same beginning, can be on their way at once. Source: Kafka's name for them.
fn doomed_name(name: &str) -> String {
    let random = || RandomState::new().build_hasher().finish();
    let (topic, partition) = name.rsplit_once('-').unwrap_or((name, "0"));
    let end = format!(
        "-{partition}.{:016x}{:016x}{DOOMED_SUFFIX}",
        random(),
        random()
    );
    let fits = NAME_BYTES_MAX.saturating_sub(end.len()).min(topic.len());
    format!("{}{end}", topic.get(..fits).unwrap_or_default())
}

/// Removes a directory under its own name. Its topic's id goes last: by that a start knows the rest of
/// a topic that the metadata log calls deleted.
fn remove_in_place(directory: &Path) -> io::Result<()> {
    let id = directory.join(METADATA_NAME);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else if entry.path() != id {
            disk::remove(&entry.path())?;
        }
    }
    disk::remove_if_there(&id)?;
    remove_directory(directory)
}

/// Removes a directory and everything in it, if it is there.
fn remove_directory(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
