//! Removal of segments from a log.
//!
//! Invariant: a segment is removed in this order. The new log start is written durably to
//! `log-start-offset-checkpoint`, and published. The segment leaves the segment list. Its files are
//! renamed to `*.deleted`, and removed after `file.delete.delay.ms`. A reader that has the file
//! open reads on; a later reader finds its offset out of range. The oldest segment goes first, so a
//! crash leaves one log without a hole. Leftovers are removed when the log is opened.
//!
//! So a log whose first segment lies behind its entry has lost one. Before the entry is written,
//! everything below the new start is synced, and the segment that contains it. So a log start is
//! never beyond the end that a power failure leaves.
//!
//! The active segment is not removed, unless it is sealed first.
//!
//! Only a snapshot has the producers of removed segments. Without it, a batch that is sent again
//! after a restart would be stored again. So a snapshot at the end of these segments is on the disk
//! before the entry.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::disk;
use crate::error::{AppendError, ReadError};
use crate::log::{LogWriter, PartitionLog};
use crate::log_files::{DELETED_SUFFIX, SEGMENT_FILES};
use crate::segment::{Segment, file_path};
use crate::snapshot;

/// Notes a log start in `log-start-offset-checkpoint`, durably. It is called under the log's
/// maintenance lock; it may ask the log for its offsets, and must not remove of it.
pub type NoteStart<'a> = &'a mut dyn FnMut(i64) -> io::Result<()>;

impl PartitionLog {
    /// Moves the log start offset up to `offset`, durably, and removes the segments that lie wholly
    /// below it; returns the log start offset. It never moves down.
    ///
    /// # Errors
    /// `OutOfRange` beyond the high watermark, `Io`, `Closed`. Nothing is removed if `note_start`
    /// fails; the next start may find the new log start all the same.
    pub fn delete_records(&self, offset: i64, note_start: NoteStart<'_>) -> Result<i64, ReadError> {
        if self.is_closed() {
            return Err(ReadError::Closed);
        }
        let start = self.state().log_start_offset;
        if offset <= start {
            return Ok(start);
        }
        let _maintenance = self.maintenance(); // no truncation comes between
        let state = self.state();
        if offset > state.high_watermark {
            let start = offset;
            return Err(ReadError::OutOfRange { start, state });
        }
        self.raise_start(offset, note_start)?;
        Ok(self.state().log_start_offset)
    }

    /// Notes and publishes a higher log start, and removes the sealed segments below it; says how
    /// many. Under the maintenance lock.
    pub(crate) fn raise_start(&self, offset: i64, note_start: NoteStart<'_>) -> io::Result<usize> {
        self.snapshot_producers_below(offset)?;
        self.sync_up_to(offset)?;
        note_start(offset)?;
        let removed = {
            let writer = self.writer_even_if_failed();
            if self.is_closed() {
                return Ok(0);
            }
            self.offsets.raise_log_start(offset);
            self.take_segments_below(&writer, offset)
        };
        self.watchers.wake();
        if !removed.is_empty() {
            self.rename_deleted_segments(&removed)?;
            self.prune_snapshots()?;
        }
        Ok(removed.len())
    }

    /// Writes a snapshot with the producers of the segments below `offset`, for the next sync. A
    /// power failure may have removed the snapshot that was written at their end.
    fn snapshot_producers_below(&self, offset: i64) -> io::Result<()> {
        let segments = self.segments();
        let below = count_below(&segments, offset);
        if below == 0 {
            return Ok(());
        }
        let first_kept = &segments[below];
        let durable_end = self.durable_end().min(first_kept.next_offset());
        let base_offsets = self.base_offsets();
        let is_enough = |at: i64| {
            // The one at a base offset is on the disk once the segment before it is.
            at >= first_kept.base_offset
                && (at <= durable_end || base_offsets.binary_search(&at).is_ok())
        };
        if snapshot::offsets(&self.directory)?
            .into_iter()
            .any(is_enough)
        {
            return Ok(());
        }
        let refused = |refused: AppendError| io::Error::other(refused.to_string());
        let _writer = self.writer().map_err(refused)?;
        let end_offset = self.offsets.log_end();
        if self
            .segments()
            .last()
            .is_some_and(|active| active.size() > 0)
        {
            self.roll(&self.settings(), end_offset)?;
            return Ok(());
        }
        self.write_snapshot(end_offset)?;
        disk::sync_if_there(&file_path(&self.directory, end_offset, "snapshot"))?;
        self.has_new_files.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes the snapshots that no start needs any more.
    pub(crate) fn prune_snapshots(&self) -> io::Result<()> {
        let durable_end = self.durable_end();
        snapshot::prune(&self.directory, i64::MAX, &self.base_offsets(), durable_end)?;
        Ok(())
    }

    /// Removes the sealed segments below an offset from the list and from the producer state.
    fn take_segments_below(
        &self,
        _writer: &MutexGuard<'_, LogWriter>,
        offset: i64,
    ) -> Vec<Arc<Segment>> {
        let segments = self.segments();
        let (removed, kept) = segments.split_at(count_below(&segments, offset));
        if let (false, Some(first)) = (removed.is_empty(), kept.first()) {
            self.producer_state.forget_below(first.base_offset);
            let mut aborted = self.aborted.write().unwrap_or_else(PoisonError::into_inner);
            aborted.forget_below(first.base_offset);
            drop(aborted);
            self.replace_segments(kept.to_vec());
        }
        removed.to_vec()
    }

    /// Renames the files of segments that are in the list no more, to be removed later.
    pub(crate) fn rename_deleted_segments(&self, segments: &[Arc<Segment>]) -> io::Result<()> {
        let due = Instant::now() + Duration::from_millis(self.settings().file_delete_delay_ms);
        for segment in segments {
            for extension in SEGMENT_FILES {
                let deleted = free_deleted_name(segment, extension);
                let is_renamed = if extension == "log" {
                    segment.file.rename_if_there(&deleted)?
                } else {
                    disk::rename_if_there(&segment.path(extension), &deleted)?
                };
                if is_renamed {
                    self.pending_deletes.push(due, deleted);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn base_offsets(&self) -> Vec<i64> {
        let segments = self.segments();
        segments.iter().map(|segment| segment.base_offset).collect()
    }
}

/// The number of sealed segments that lie wholly below an offset.
fn count_below(segments: &[Arc<Segment>], offset: i64) -> usize {
    let sealed = &segments[..segments.len().saturating_sub(1)];
    sealed.partition_point(|segment| segment.next_offset() <= offset)
}

/// The name under which a segment's file waits for its deletion: Kafka's, `<base>.log.deleted`. If
/// an earlier segment of the same base offset still waits under it, as after two cleanings within
/// `file.delete.delay.ms`, then `<base>.log.2.deleted` and so on: readers may open it again.
fn free_deleted_name(segment: &Segment, extension: &str) -> PathBuf {
    let plain = segment.path(&format!("{extension}.{DELETED_SUFFIX}"));
    let numbered =
        (2..).map(|number: u64| segment.path(&format!("{extension}.{number}.{DELETED_SUFFIX}")));
    std::iter::once(plain)
        .chain(numbered)
        .find(|name| name.symlink_metadata().is_err())
        .expect("a directory has fewer files")
}
