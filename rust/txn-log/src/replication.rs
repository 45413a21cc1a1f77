//! A log as one replica of several: its role, its leader epochs, and batches taken from a leader.
//!
//! A follower stores a batch byte for byte: offset, leader epoch, sequence and markers are decided
//! by the leader. The producer state learns them by `replay`, as at a start, so a follower behaves
//! like a recovery that never ends. The checksum is verified, because the bytes crossed a network.
//!
//! # Continuity
//! Invariant: a batch begins where the log ends. There are two exceptions: a compacted log has
//! gaps, and the first batch of an empty log may begin below its start, because the log start of
//! the leader may lie within a batch.
//!
//! # Epochs
//! A batch of a later epoch than that of the Fetch is dropped, with all batches behind it. Such an
//! answer shows that the leader was replaced. The follower has to ask again under the new epoch,
//! and may have to truncate first. Source: KAFKA-18723.

use std::io;
use std::sync::atomic::Ordering;

use txn_protocol::batch::{BatchView, Batches, Header};
use txn_protocol::codes;

use crate::builder::decode_marker;
use crate::error::AppendError;
use crate::log::batch_check::refuse_batch;
use crate::log::{Condition, LogWriter, PartitionLog};
use crate::offsets::Role;
use crate::producer_state::{AbortedTxn, ProducerStateError, ReplayedBatch};
use crate::segment::Incoming;
use crate::truncation::LowerCheckpoints;

impl PartitionLog {
    /// Sets the role under a leader epoch; returns the log end. That is where a leader's epoch
    /// begins, also if nothing is ever written in it. The high watermark stays, but that of a sole
    /// replica is its log end. Batches decided under the role before are appended before this, or
    /// refused.
    pub fn set_role(&self, role: Role, leader_epoch: i32) -> i64 {
        let end = {
            let mut writer = self.writer_even_if_failed();
            let end = self.offsets.log_end();
            self.lead(leader_epoch);
            if role == Role::Leader && self.epochs_mut().begin(leader_epoch, end) {
                // A start forgets an epoch without a batch, so the file has time until the first.
                self.has_unstored_epoch.store(true, Ordering::Relaxed);
            }
            writer.role = role;
            self.offsets.set_role(role);
            end
        };
        self.watchers.wake();
        end
    }

    /// Its role in its partition.
    #[must_use]
    pub fn role(&self) -> Role {
        self.offsets.role()
    }

    /// Raises the high watermark, to the log end at most, and wakes waiting readers; returns true
    /// if it rose. That of a sole replica is its log end.
    pub fn raise_high_watermark(&self, high_watermark: i64) -> bool {
        let rose = self.offsets.raise_high_watermark(high_watermark);
        if rose {
            self.watchers.wake();
        }
        rose
    }

    /// The latest epoch that it has a batch of, or led in; `None` if there is none. A follower
    /// fetches with it.
    #[must_use]
    pub fn latest_epoch(&self) -> Option<i32> {
        self.epochs().latest()
    }

    /// Stores batches that a leader sent for the log end, as they are; returns the new log end. A
    /// part of a batch at the end is left out, and so is all from the first batch of a later epoch
    /// than `leader_epoch`. An empty log whose first batch reaches over its start begins anew, see
    /// [`Self::truncate_fully_and_start_at`].
    ///
    /// # Errors
    /// `Refused` unless the log is a follower's, and for a batch that does not go on from the log
    /// end; `Corrupt` for one that is damaged; `Io`, `Closed`. The batches before it are stored.
    pub fn append_as_follower(
        &self,
        batches: &[u8],
        leader_epoch: i32,
        lower_checkpoints: LowerCheckpoints<'_>,
    ) -> Result<i64, AppendError> {
        let start = self.state().log_start_offset;
        if let Some(first) = Batches::new(batches).next() {
            self.start_within(&first, lower_checkpoints)?;
        }
        let appended = self.append_run(batches, leader_epoch);
        if appended.is_ok() {
            self.offsets.raise_log_start(start);
        }
        self.note_outcome(&appended);
        self.watchers.wake();
        appended
    }

    /// Starts an empty log at the first batch, which reaches over the log start.
    fn start_within(
        &self,
        first: &BatchView<'_>,
        lower_checkpoints: LowerCheckpoints<'_>,
    ) -> Result<(), AppendError> {
        let state = self.state();
        let start = state.log_start_offset;
        let reaches_over = first.base_offset() < start && first.last_offset() >= start;
        if start == state.log_end_offset && reaches_over {
            first.validate().map_err(refuse_batch)?;
            self.truncate_fully_and_start_at(first.base_offset(), lower_checkpoints)?;
        }
        Ok(())
    }

    fn append_run(&self, batches: &[u8], leader_epoch: i32) -> Result<i64, AppendError> {
        let mut writer = self.writer()?;
        if writer.role != Role::Follower {
            return Err(self.misplaced("it follows no leader"));
        }
        let mut batches = Batches::new(batches);
        for batch in batches.by_ref() {
            batch.validate().map_err(refuse_batch)?;
            if batch.leader_epoch() > leader_epoch {
                break;
            }
            self.append_one(&mut writer, &batch)?;
        }
        Ok(self.offsets.log_end())
    }

    fn append_one(&self, writer: &mut LogWriter, batch: &BatchView<'_>) -> Result<(), AppendError> {
        let header = batch.header();
        let end = self.offsets.log_end();
        let settings = self.settings();
        let is_gap = header.base_offset() > end;
        if header.base_offset() < end || (is_gap && !settings.is_compacted) {
            return Err(self.misplaced(&format!(
                "it ends at offset {end}, and the batch begins at {}",
                header.base_offset()
            )));
        }
        writer.is_as_closed = false;
        let incoming = Incoming {
            bytes: batch.size() as u64,
            last_offset: header.last_offset(),
            max_timestamp: header.max_timestamp(),
        };
        // A gap lies in the segment that begins with it: a start after a power failure takes one
        // between two segments for a loss.
        let is_near = header.last_offset() - end <= i64::from(i32::MAX);
        let segment_base = if is_near { end } else { header.base_offset() };
        let segment = self
            .segment_for(&settings, segment_base, &incoming)
            .and_then(|segment| {
                self.begin_epoch(header.leader_epoch(), header.base_offset())?;
                Ok(segment)
            })
            .map_err(AppendError::Io)?;
        let replayed = replayed(header, batch);
        let mut aborted = None;
        if let Some(replayed) = replayed {
            match self.learn(&replayed) {
                Ok((ended, first_unstable_offset)) => {
                    aborted = ended;
                    writer.first_unstable_offset = first_unstable_offset;
                }
                Err(error) => {
                    writer.condition = Condition::Diverged(error.0.clone());
                    return Err(AppendError::Io(io::Error::other(error.0)));
                }
            }
        }
        if let Err(error) = self.write(&segment, header, batch.bytes(), aborted) {
            return Err(self.fail(writer, &segment, replayed.is_some(), error));
        }
        self.offsets
            .append(header.last_offset() + 1, writer.first_unstable_offset);
        Ok(())
    }

    /// Replays a batch into the producer state; returns the aborted transaction it ends, and the first
    /// unstable offset behind it.
    fn learn(
        &self,
        batch: &ReplayedBatch,
    ) -> Result<(Option<AbortedTxn>, Option<i64>), ProducerStateError> {
        let ended = self.producer_state.replay(std::slice::from_ref(batch))?;
        Ok((
            ended.first().copied(),
            self.producer_state.first_unstable_offset()?,
        ))
    }

    fn misplaced(&self, reason: &str) -> AppendError {
        AppendError::Refused {
            code: codes::NOT_LEADER_OR_FOLLOWER,
            message: format!(
                "{} takes no batch of a leader: {reason}",
                self.directory.display()
            ),
        }
    }
}

/// The meaning of a batch for the producer state; `None` without a producer id, and for a control
/// record that ends no transaction.
fn replayed(header: &Header, batch: &BatchView<'_>) -> Option<ReplayedBatch> {
    if header.producer_id() < 0 {
        return None;
    }
    if !header.is_control() {
        return Some(ReplayedBatch::of(header, None));
    }
    let marker = decode_marker(batch.records())?;
    Some(ReplayedBatch::of(header, Some(marker)))
}
