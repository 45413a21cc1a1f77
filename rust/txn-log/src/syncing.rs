//! Syncs of a log: group sync, the recovery point, and the syncs beside the appends.
//!
//! Invariant: everything below the recovery point is on the disk: batches, and the indexes and
//! producer snapshots of the segments that end below it. A start after a crash relies on that.
//! Every sync raises the recovery point, and only a truncation lowers it, because it proves that
//! the log was there. A segment that ends exactly at it may have been sealed after the sync,
//! without its indexes. Sealed segments are synced in the background, see
//! [`PartitionLog::flush_due`].

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::aborted_sums::AbortedSums;
use crate::disk;
use crate::epochs::Epochs;
use crate::log::PartitionLog;
use crate::log_files::METADATA_NAME;
use crate::offsets::Isolation;
use crate::segment::{Segment, file_path};
use crate::synced_end::SyncedEnd;

impl PartitionLog {
    /// Forces everything appended before the call to the disk; concurrent calls share the work.
    /// A deleted log has nothing left to sync.
    ///
    /// # Errors
    /// The disk's; the log then takes no more batches, and every later sync fails.
    pub fn sync(&self) -> io::Result<()> {
        self.sync_up_to(self.offsets.log_end()).map(drop)
    }

    /// Forces everything below `offset` to the disk; returns the end of all that is there. If the
    /// active segment has a part of it, all of that segment is synced.
    ///
    /// # Errors
    /// The errors of `sync`.
    pub fn sync_up_to(&self, offset: i64) -> io::Result<i64> {
        let synced = self.synced().and_then(|mut synced| {
            if self.durable_end() < offset || self.has_new_files.load(Ordering::Acquire) {
                // Waiting callers find their work done if it is synced as a whole.
                let end = self.end_of_sync(offset).max(synced.end);
                self.sync_to(&mut synced, end)?;
            }
            Ok(synced.end)
        });
        match synced {
            Err(_) if self.is_deleted() => Ok(offset),
            synced => synced,
        }
    }

    /// The end of the sealed segments, or of the log if that does not reach `offset`.
    fn end_of_sync(&self, offset: i64) -> i64 {
        let segments = self.segments();
        let sealed_end = segments.last().map(|active| active.base_offset);
        sealed_end
            .filter(|&sealed_end| offset <= sealed_end)
            .unwrap_or_else(|| self.offsets.log_end())
    }

    /// True if everything below `offset` is on the disk, and no sync has failed.
    pub(crate) fn is_durable(&self, offset: i64) -> bool {
        self.durable_end() >= offset && !self.has_failed_sync.load(Ordering::Acquire)
    }

    /// Everything below is on the disk: batches, and the indexes of segments that end below it.
    #[must_use]
    pub fn recovery_point(&self) -> i64 {
        self.recovery_point.load(Ordering::Acquire)
    }

    /// Everything below was synced by this run or a clean stop: batches, and the
    /// indexes of the segments that end up to here, with the snapshots at their ends.
    pub(crate) fn durable_end(&self) -> i64 {
        let unsynced = self.unsynced_seals();
        let first_end = unsynced.first().map(|segment| segment.next_offset());
        drop(unsynced);
        let synced = self.synced_end.load(Ordering::Acquire);
        first_end.map_or(synced, |end| synced.min(end - 1))
    }

    /// The limit for `replication-offset-checkpoint`: the high watermark, unless a sync failed.
    /// The bytes that the disk refused then may be gone from memory too, and a later start would
    /// miss them.
    #[must_use]
    pub fn proven_end(&self) -> i64 {
        if self.has_failed_sync.load(Ordering::Acquire) {
            self.recovery_point()
        } else {
            self.offsets.readable_end(Isolation::HighWatermark)
        }
    }

    /// The offset up to which the log has to be synced now: the end of the sealed segments, or the
    /// log end if bytes have waited for `flush.ms`; `None` if nothing is due. Cheap.
    #[must_use]
    pub fn flush_due(&self) -> Option<i64> {
        if self.is_closed() {
            return None;
        }
        let synced_at = self.synced().ok()?.at; // an error was reported when it failed
        let end = self.offsets.log_end();
        let flush_ms = self.settings().flush_ms;
        if flush_ms < i64::MAX
            && self.synced_end.load(Ordering::Acquire) < end
            && synced_at.elapsed() >= Duration::from_millis(flush_ms as u64)
        {
            return Some(end);
        }
        let seals = self.unsynced_seals();
        seals.last().map(|segment| segment.next_offset())
    }

    /// Removes the files of removed segments whose delay is over.
    pub fn remove_due_files(&self) {
        self.pending_deletes.remove_due(Instant::now());
    }

    /// Notes that nothing more is appended to a segment. Under the partition's lock.
    pub(crate) fn note_seal(&self, sealed: Arc<Segment>) {
        self.unsynced_seals().push(sealed);
    }

    pub(crate) fn sync_rest(&self) -> io::Result<()> {
        let mut synced = self.synced()?;
        let end = self.offsets.log_end();
        self.sync_to(&mut synced, end)
    }

    pub(crate) fn synced(&self) -> io::Result<MutexGuard<'_, SyncedEnd>> {
        let synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has_failed_sync.load(Ordering::Acquire) {
            return Err(io::Error::other(format!(
                "{}: an earlier sync failed, and what it lost is unknown: no batch is taken and no \
                 commit is final here. Repair the disk, then restart the broker",
                self.directory.display()
            )));
        }
        Ok(synced)
    }

    fn sync_to(&self, synced: &mut SyncedEnd, end: i64) -> io::Result<()> {
        match self.sync_between(synced.end, end) {
            Ok(()) => {
                synced.end = end;
                synced.at = Instant::now();
                self.synced_end.fetch_max(end, Ordering::AcqRel);
                self.recovery_point.fetch_max(end, Ordering::AcqRel);
                Ok(())
            }
            Err(error) => {
                self.fail_after_sync(&error);
                Err(error)
            }
        }
    }

    fn sync_between(&self, from: i64, to: i64) -> io::Result<()> {
        let has_new_files = self.has_new_files.swap(false, Ordering::AcqRel);
        let seals = std::mem::take(&mut *self.unsynced_seals());
        let mut done = Ok(());
        for sealed in &seals {
            done = done.and_then(|()| self.sync_seal(sealed));
        }
        if done.is_err() {
            self.unsynced_seals().splice(0..0, seals);
            return done;
        }
        for segment in self.segments().iter() {
            let is_synced = seals.iter().any(|sealed| Arc::ptr_eq(sealed, segment));
            if !is_synced && segment.next_offset() > from && segment.base_offset < to {
                segment.sync()?;
            }
        }
        if has_new_files {
            Epochs::sync(&self.directory)?;
            AbortedSums::sync(&self.directory)?;
            disk::sync_if_there(&self.directory.join(METADATA_NAME))?;
            disk::sync_directory(&self.directory)?;
            disk::sync_directory_above(&self.directory)?;
        }
        Ok(())
    }

    /// Forces a sealed segment, and the snapshot of the state at its end.
    fn sync_seal(&self, sealed: &Segment) -> io::Result<()> {
        sealed.sync_sealed()?;
        let snapshot = file_path(&self.directory, sealed.next_offset(), "snapshot");
        disk::sync_if_there(&snapshot)?;
        sealed.file.close_if_synced();
        Ok(())
    }

    pub(crate) fn unsynced_seals(&self) -> MutexGuard<'_, Vec<Arc<Segment>>> {
        self.unsynced_seals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
