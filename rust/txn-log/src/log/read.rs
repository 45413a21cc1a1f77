//! Reads: batches by offset, and the damage that readers meet. No lock of the writer is taken.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, PoisonError};

use crate::error::{CorruptLog, ReadError};
use crate::log::PartitionLog;
use crate::open_files::{LentFile, OpenFile};
use crate::producer_state::AbortedTxn;
use crate::sound_run::WantedRun;

/// A run of whole batches in one file.
#[derive(Clone, Debug)]
pub struct Slice {
    /// `None` if there is nothing to read.
    file: Option<OpenFile>,
    /// The position of the first batch.
    pub position: u64,
    /// Bytes; 0 if there is nothing.
    pub len: u64,
    /// Exclusive upper bound of the offsets in it.
    pub end_offset: i64,
    /// Bytes of it that had to be read now, to see whether they are sound.
    pub checked: u64,
}

impl Slice {
    /// Lends its file to an answer, as [`OpenFile::lend`]; `None` also if there is none.
    #[must_use]
    pub fn lend(&self) -> Option<LentFile> {
        self.file.as_ref().and_then(OpenFile::lend)
    }

    /// Reads its bytes.
    ///
    /// # Errors
    /// The disk's error.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len as usize];
        if let Some(file) = &self.file {
            file.read_exact_at(&mut bytes, self.position)?;
        }
        Ok(bytes)
    }
}

impl PartitionLog {
    /// Finds the whole batches of `[start, end)` up to `max_bytes`, from the one that holds
    /// `start`.
    ///
    /// With `at_least_one` the first batch is returned however large it is. Batches of more
    /// than one segment take more than one call. At the log end, and when not one batch fits,
    /// the slice is empty. A batch that reaches beyond `end` is left out. The slice ends before a
    /// batch that is damaged.
    ///
    /// # Errors
    /// `OutOfRange` below the log start or above the log end, `Io`, `Closed`, and `Corrupt` if the
    /// batch that holds `start` is damaged.
    pub fn locate(
        &self,
        start: i64,
        end: i64,
        max_bytes: u64,
        at_least_one: bool,
    ) -> Result<Slice, ReadError> {
        self.locate_within(start, end, max_bytes, at_least_one, u64::MAX)
    }

    /// Like `locate`, but reads at most `checked_max` bytes that were believed at the start and not
    /// read since, or one batch if `at_least_one`. The slice then ends there, and the rest takes
    /// another call.
    ///
    /// # Errors
    /// The errors of `locate`.
    pub fn locate_within(
        &self,
        start: i64,
        end: i64,
        max_bytes: u64,
        at_least_one: bool,
        checked_max: u64,
    ) -> Result<Slice, ReadError> {
        self.reading(|| self.locate_sound(start, end, max_bytes, at_least_one, checked_max))
    }

    fn locate_sound(
        &self,
        start: i64,
        end: i64,
        max_bytes: u64,
        at_least_one: bool,
        checked_max: u64,
    ) -> Result<Slice, ReadError> {
        // In this order: records below the log end are in the segments that are there now.
        let state = self.state();
        let segments = self.segments();
        if self.is_closed() {
            return Err(ReadError::Closed);
        }
        // The start is looked at after the segments: it rises before they are removed.
        if start < self.offsets.log_start() || start > state.log_end_offset {
            let state = self.state();
            return Err(ReadError::OutOfRange { start, state });
        }
        // Bytes may be in the file before the log end is published: stay below it.
        let end = end.min(state.log_end_offset);
        let wanted = WantedRun {
            start,
            end,
            bytes_max: max_bytes,
            at_least_one,
        };
        let first = segments.partition_point(|segment| segment.base_offset <= start);
        let candidates = segments.iter().skip(first.saturating_sub(1));
        for segment in candidates.take_while(|segment| segment.base_offset < end) {
            if segment.next_offset() <= start {
                continue;
            }
            let Some((run, checked)) = segment.sound_run(wanted, checked_max)? else {
                if segment.find(start)?.is_some() {
                    break; // it is here, but it does not fit
                }
                continue; // compaction left nothing from `start` on in this segment
            };
            return Ok(Slice {
                file: Some(segment.file.get()?),
                position: run.position,
                len: run.len,
                end_offset: run.end_offset,
                checked,
            });
        }
        Ok(Slice {
            file: None,
            position: 0,
            len: 0,
            end_offset: start,
            checked: 0,
        })
    }

    /// Reads whole stored batches from the one that holds `start`, at least one if there is one.
    ///
    /// # Errors
    /// The errors of `locate`.
    pub fn read(&self, start: i64, max_bytes: u64) -> Result<Vec<u8>, ReadError> {
        Ok(self.locate(start, i64::MAX, max_bytes, true)?.read()?)
    }

    /// Estimates the bytes stored in `[start, end)`, at most `cap`.
    ///
    /// Never too few, and at most an index interval and a batch too many at each end; 0 only
    /// if there is nothing. Reads no batch.
    #[must_use]
    pub fn available(&self, start: i64, end: i64, cap: u64) -> u64 {
        let end = end.min(self.offsets.log_end());
        if start >= end {
            return 0;
        }
        let mut bytes = 0;
        for segment in self.segments().iter() {
            if bytes >= cap || segment.base_offset >= end {
                break;
            }
            bytes += segment.estimate(start, end);
        }
        bytes.min(cap)
    }

    /// True if `[start, end)` begins in an earlier segment than the one that `end` lies in.
    #[must_use]
    pub fn is_behind(&self, start: i64, end: i64) -> bool {
        let segments = self.segments();
        let begun = |offset| segments.partition_point(|segment| segment.base_offset <= offset);
        start < end && begun(start) < begun(end)
    }

    /// Lists `(producer_id, first_offset)` of the aborted transactions overlapping
    /// `[start, end)`, by first offset. Takes no lock of the writer and asks nobody.
    #[must_use]
    pub fn aborted_in(&self, start: i64, end: i64) -> Vec<(i64, i64)> {
        let known = self.aborted.read().unwrap_or_else(PoisonError::into_inner);
        known.overlapping(start, end)
    }

    /// The aborted transactions overlapping `[start, end)`, by last offset.
    pub(crate) fn aborted_between(&self, start: i64, end: i64) -> Vec<AbortedTxn> {
        let known = self.aborted.read().unwrap_or_else(PoisonError::into_inner);
        known.between(start, end).copied().collect()
    }

    /// Reads, again where the files of a segment were removed or replaced meanwhile, and notes
    /// the damage met.
    pub(crate) fn reading<T>(
        &self,
        read: impl Fn() -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        loop {
            let before = self.segments();
            match read() {
                Err(ReadError::Io(_)) if self.is_closed() => return Err(ReadError::Closed),
                Err(ReadError::Corrupt(_)) if self.is_deleted() => return Err(ReadError::Closed),
                // A segment that was cut meanwhile may look damaged to a reader of its old end.
                Err(ReadError::Io(_) | ReadError::Corrupt(_))
                    if !Arc::ptr_eq(&before, &self.segments()) => {}
                answer => return self.report(answer),
            }
        }
    }

    /// Remembers damage that a reader met, once each, for `take_damage`.
    fn report<T>(&self, answer: Result<T, ReadError>) -> Result<T, ReadError> {
        if let Err(ReadError::Corrupt(corrupt)) = &answer {
            let mut damage = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
            if !damage.met.contains(corrupt) {
                damage.met.push(corrupt.clone());
            }
        }
        answer
    }

    /// The damage that readers met and nobody has been told of yet.
    #[must_use]
    pub fn take_damage(&self) -> Vec<CorruptLog> {
        let mut damage = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        let untold = damage.met[damage.told..].to_vec();
        damage.told = damage.met.len();
        untold
    }
}
