//! Truncation: a replica removes batches that its leader does not have.
//!
//! # Order
//! Every step leaves files that open as a prefix of the log, never shorter than the truncation
//! point, so a crash between two of them is a truncation that was not finished or not begun:
//!
//! 1. The log's entries in the checkpoints are lowered, durably: no proof is left that the log got
//!    further, and a start reads every batch that may still be there. In the other order a crash
//!    would leave a proof of batches that are gone, which a start takes for damage.
//! 2. Leader epochs that begin at or above the new end leave their checkpoint, snapshots above it
//!    are removed.
//! 3. Readers and the published offsets are taken back. From here on only the end of the
//!    truncation or another start leads to a log that takes batches.
//! 4. Segments above are removed, newest first, each `.log` after its indexes and durable before
//!    the next: the rest has no hole, not even after a power failure.
//! 5. The segment that holds the new end is cut and synced, before other bytes take
//!    the place: old batches must not come back behind new ones.
//! 6. The producer state is rebuilt from the nearest snapshot, with the aborted transactions.
//!
//! A reader that located bytes before step 5 may be sent less than it was promised, and asks
//! again. No consumer is meant to be there: its records lie below the high watermark, and only an
//! unclean election takes that back.
//!
//! [`PartitionLog::truncate_fully_and_start_at`] removes every segment in the same way. A crash in
//! it may leave any prefix of the log, or nothing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use txn_protocol::codes;

use crate::aborted::AbortedTxns;
use crate::aborted_sums::{self, AbortedSums};
use crate::disk;
use crate::epochs::{self, Epochs};
use crate::error::{AppendError, OpenError, ReadError};
use crate::log::{Condition, LogWriter, PartitionLog};
use crate::offsets::Role;
use crate::recovery;
use crate::segment::{Segment, file_path};
use crate::snapshot;
use crate::synced_end::SyncedEnd;

/// Lowers every entry of a log in the checkpoints that is above a bound, durably. Until the
/// truncation has ended, no checkpoint may be written with more.
///
/// The bound is the least log end that a crash in the truncation may leave.
pub type LowerCheckpoints<'a> = &'a mut dyn FnMut(i64) -> io::Result<()>;

/// Where a log is cut.
struct CutPoint {
    /// Segments that stay, the one that is cut among them.
    kept: usize,
    /// Bytes that stay of the last of them.
    position: u64,
    /// The new log end.
    end: i64,
}

impl PartitionLog {
    /// Removes every batch that ends above `offset`, durably; returns the log end. That is
    /// `offset`, or less where a batch or a gap of compaction reaches over it. Below the log start
    /// nothing is left, and the log begins at `offset`.
    ///
    /// Below the high watermark it is legal too: an unclean election asks for that. The log calls
    /// `lower_checkpoints` before it changes a file, under its locks; it may ask the log for its
    /// offsets, and must not append to it, sync it or remove of it.
    ///
    /// # Errors
    /// `Refused` unless the log is a follower's; `Closed`; `Io`, after which the log may take no
    /// batch until it is opened again, unless `lower_checkpoints` failed.
    pub fn truncate_to(
        &self,
        offset: i64,
        lower_checkpoints: LowerCheckpoints<'_>,
    ) -> Result<i64, AppendError> {
        self.truncate(|log, synced, writer| {
            let state = log.state();
            if offset >= state.log_end_offset {
                // An epoch in which it led without a batch may begin here, and the leader knows it not.
                log.cut_epochs(state.log_end_offset)
                    .map_err(AppendError::Io)?;
                return Ok(state.log_end_offset);
            }
            if offset < state.log_start_offset {
                return log.start_again_at(offset, lower_checkpoints, synced, writer);
            }
            let cut = log.cut_point(offset).map_err(read_failed)?;
            if cut.end < state.log_start_offset {
                let start = state.log_start_offset;
                return log.start_again_at(start, lower_checkpoints, synced, writer);
            }
            lower_checkpoints(cut.end).map_err(AppendError::Io)?;
            log.cut_to(&cut, synced, writer)
        })
    }

    /// Removes everything and begins at `offset`, which may be beyond the log end; returns it.
    ///
    /// # Errors
    /// The errors of [`Self::truncate_to`].
    pub fn truncate_fully_and_start_at(
        &self,
        offset: i64,
        lower_checkpoints: LowerCheckpoints<'_>,
    ) -> Result<i64, AppendError> {
        self.truncate(|log, synced, writer| {
            log.start_again_at(offset, lower_checkpoints, synced, writer)
        })
    }

    /// Number of times that offsets were taken back since the log was opened.
    #[must_use]
    pub fn truncations(&self) -> u64 {
        self.offsets.truncations()
    }

    /// Runs a truncation alone: no sync, append, removal or swap is under way beside it.
    fn truncate(
        &self,
        truncate: impl FnOnce(&Self, &mut SyncedEnd, &mut LogWriter) -> Result<i64, AppendError>,
    ) -> Result<i64, AppendError> {
        let end = {
            let _maintenance = self.maintenance();
            let mut synced = self.synced().map_err(AppendError::Io)?;
            let mut writer = self.writer()?; // after `synced`: a sync that fails takes it too
            if writer.role != Role::Follower {
                return Err(AppendError::Refused {
                    code: codes::NOT_LEADER_OR_FOLLOWER,
                    message: format!(
                        "{} is not truncated: it follows no leader",
                        self.directory.display()
                    ),
                });
            }
            truncate(self, &mut synced, &mut writer)?
        };
        self.watchers.wake();
        Ok(end)
    }

    /// Where the last batch ends that ends at or below an offset within the log.
    fn cut_point(&self, offset: i64) -> Result<CutPoint, ReadError> {
        let segments = self.segments();
        let mut kept = segments
            .partition_point(|segment| segment.base_offset < offset)
            .max(1);
        loop {
            let segment = &segments[kept - 1];
            let beyond = segment.find(offset)?;
            let position = beyond.map_or(segment.size(), |(position, _)| position);
            let bound = beyond.map_or(segment.next_offset(), |(_, header)| header.base_offset());
            let last = segment.last_below(bound)?;
            match last {
                Some(last) => {
                    let end = last.last_offset() + 1;
                    return Ok(CutPoint {
                        kept,
                        position,
                        end,
                    });
                }
                // Nothing of it stays: the log ends with the segment before, unless it is the first.
                None if kept > 1 => kept -= 1,
                None => {
                    let end = segment.base_offset;
                    return Ok(CutPoint {
                        kept,
                        position,
                        end,
                    });
                }
            }
        }
    }

    fn cut_to(
        &self,
        cut: &CutPoint,
        synced: &mut SyncedEnd,
        writer: &mut LogWriter,
    ) -> Result<i64, AppendError> {
        self.cut_epochs(cut.end).map_err(AppendError::Io)?;
        self.remove_snapshots_above(cut.end)
            .map_err(AppendError::Io)?;
        let segments = self.segments();
        let last = segments[cut.kept - 1]
            .cut(cut.position, cut.end)
            .map_err(read_failed)?;
        let mut left = segments[..cut.kept].to_vec();
        left[cut.kept - 1] = Arc::new(last);
        self.replace_segments(left);
        self.offsets.truncate_to(cut.end);
        self.lower_recovery_point(synced, cut.end);
        self.unsynced_seals()
            .retain(|seal| seal.base_offset < segments[cut.kept - 1].base_offset);
        let done = self
            .remove_newest_first(&segments[cut.kept..])
            .and_then(|()| {
                let last = &segments[cut.kept - 1];
                last.file.truncate(cut.position)?;
                last.sync()?;
                let base_offsets: Vec<i64> = segments[cut.kept - 1..]
                    .iter()
                    .map(|segment| segment.base_offset)
                    .collect();
                self.drop_aborted_sums(&base_offsets)
            });
        self.finish_truncation(writer, done)?;
        Ok(cut.end)
    }

    fn start_again_at(
        &self,
        offset: i64,
        lower_checkpoints: LowerCheckpoints<'_>,
        synced: &mut SyncedEnd,
        writer: &mut LogWriter,
    ) -> Result<i64, AppendError> {
        lower_checkpoints(0).map_err(AppendError::Io)?; // a crash may leave no batch at all
        // Without the file a start makes it from the remaining batches.
        disk::remove_if_there(&self.directory.join(epochs::NAME)).map_err(AppendError::Io)?;
        self.remove_snapshots_above(-1).map_err(AppendError::Io)?;
        let segments = self.segments();
        self.replace_segments(Vec::new());
        self.offsets.restart_at(offset);
        *self.epochs_mut() = Epochs::default();
        self.has_unstored_epoch.store(false, Ordering::Relaxed);
        self.lower_recovery_point(synced, offset);
        self.unsynced_seals().clear();
        let done = self.remove_newest_first(&segments).and_then(|()| {
            disk::remove_if_there(&self.directory.join(aborted_sums::NAME))?;
            self.roll(&self.settings(), offset)?.sync()
        });
        self.finish_truncation(writer, done)?;
        Ok(offset)
    }

    /// Rebuilds the producer state of a log that was cut, and shows `read_committed` readers the
    /// records that they may see. If that fails, or the cut did, the log takes no more batches.
    fn finish_truncation(
        &self,
        writer: &mut LogWriter,
        cut: io::Result<()>,
    ) -> Result<(), AppendError> {
        let rebuilt = cut.map_err(OpenError::from).and_then(|()| {
            let producer_state = self.producer_state.as_ref();
            let rebuilt =
                recovery::derive_producer_state(&self.directory, producer_state, &self.segments())?;
            disk::sync_directory(&self.directory)?;
            Ok(rebuilt)
        });
        match rebuilt {
            Ok((aborted, first_unstable_offset)) => {
                *self.aborted_mut() = AbortedTxns::new(aborted);
                writer.first_unstable_offset = first_unstable_offset;
                writer.is_as_closed = false;
                self.offsets.end_truncation(first_unstable_offset);
                Ok(())
            }
            Err(error) => {
                let reason = format!("a truncation could not be finished: {error}");
                self.write_health.fail(&reason);
                writer.condition = Condition::Failed(reason.clone());
                Err(AppendError::Io(io::Error::other(reason)))
            }
        }
    }

    /// Forgets the leader epochs that begin at or above an offset.
    fn cut_epochs(&self, log_end_offset: i64) -> io::Result<()> {
        let mut epochs = self.epochs_mut();
        let mut cut = epochs.clone();
        cut.truncate(log_end_offset);
        if cut == *epochs {
            return Ok(());
        }
        if self.directory.is_dir() {
            cut.store(&self.directory)?;
            Epochs::sync(&self.directory)?;
        }
        self.has_unstored_epoch.store(false, Ordering::Relaxed);
        *epochs = cut;
        Ok(())
    }

    fn remove_snapshots_above(&self, offset: i64) -> io::Result<()> {
        if !self.directory.is_dir() {
            return Ok(());
        }
        for above in snapshot::offsets(&self.directory)? {
            if above > offset {
                disk::remove_if_there(&file_path(&self.directory, above, "snapshot"))?;
            }
        }
        // Before other batches are written: one of these must not come back and fit them.
        disk::sync_directory(&self.directory)
    }

    fn remove_newest_first(&self, segments: &[Arc<Segment>]) -> io::Result<()> {
        for segment in segments.iter().rev() {
            // An index without its `.log` would be taken for a segment that was lost.
            for extension in ["txnindex", "timeindex", "index", "log"] {
                disk::remove_if_there(&segment.path(extension))?;
            }
            disk::sync_directory(&self.directory)?;
        }
        Ok(())
    }

    fn drop_aborted_sums(&self, base_offsets: &[i64]) -> io::Result<()> {
        let mut sums = AbortedSums::load(&self.directory)?;
        sums.replace(base_offsets, &[]);
        sums.store(&self.directory)?;
        AbortedSums::sync(&self.directory)
    }

    fn lower_recovery_point(&self, synced: &mut SyncedEnd, log_end_offset: i64) {
        synced.lower_to(log_end_offset);
        self.synced_end.fetch_min(log_end_offset, Ordering::AcqRel);
        self.recovery_point
            .fetch_min(log_end_offset, Ordering::AcqRel);
    }
}

/// A part of the log's own files could not be read.
fn read_failed(error: ReadError) -> AppendError {
    AppendError::Io(io::Error::other(error))
}
