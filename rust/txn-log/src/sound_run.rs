//! Runs of batches that end before damage: a reader gets all sound batches, and gets the damage
//! when it asks for its offset.

use txn_protocol::batch::BatchError;

use crate::error::{CorruptLog, ReadError};
use crate::scan::ScanError;
use crate::segment::{Run, Segment};

/// The batches that a reader wants of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedRun {
    pub start: i64,
    /// Exclusive; a batch that reaches it is left out.
    pub end: i64,
    pub bytes_max: u64,
    /// The first batch is wanted however large it is.
    pub at_least_one: bool,
}

impl Segment {
    /// Like [`Segment::run`], of batches that are sound; also returns how many bytes were read to
    /// know that, at most `checked_max` or one batch.
    ///
    /// # Errors
    /// `Corrupt` if the first of them is damaged, or the way to it.
    pub fn sound_run(
        &self,
        wanted: WantedRun,
        checked_max: u64,
    ) -> Result<Option<(Run, u64)>, ReadError> {
        let Some(mut run) = self.run_to_damage(wanted)? else {
            return Ok(None);
        };
        let showable = self.showable(run.position, run.len, checked_max);
        if showable < run.len {
            let bytes_max = showable;
            match self.run_to_damage(WantedRun {
                bytes_max,
                ..wanted
            })? {
                Some(shorter) => run = shorter,
                None => return Ok(None),
            }
        }
        loop {
            match self.verify(run.position, run.len) {
                // Each time it ends earlier.
                Err(ReadError::Corrupt(damage)) => match self.run_below(wanted, damage)? {
                    Some(shorter) => run = shorter,
                    None => return Ok(None),
                },
                checked => return Ok(Some((run, checked?))),
            }
        }
    }

    /// The run up to the first header that makes no sense.
    fn run_to_damage(&self, wanted: WantedRun) -> Result<Option<Run>, ReadError> {
        match self.run(wanted) {
            Err(ReadError::Corrupt(damage)) => self.run_below(wanted, damage),
            found => found,
        }
    }

    /// The run of the batches before damage; the damage, if it comes before all of them.
    ///
    /// Cost: the headers from the start on. Only a reader that meets damage pays it.
    fn run_below(&self, wanted: WantedRun, damage: CorruptLog) -> Result<Option<Run>, ReadError> {
        let from = self.position_before(wanted.start)?;
        let mut scanner = self.scan_between(from, damage.position)?;
        let mut next_offset = self.base_offset;
        let mut run: Option<Run> = None;
        loop {
            let (at, header) = match scanner.next() {
                Ok(Some(found)) => found,
                Err(ScanError::Io(error)) => return Err(error.into()),
                Ok(None) | Err(ScanError::Bad { .. }) => break,
            };
            if self.check_offsets(at, &header, next_offset).is_err() {
                break;
            }
            next_offset = header.last_offset() + 1;
            if header.last_offset() < wanted.start {
                continue;
            }
            if header.last_offset() >= wanted.end {
                // As the first one it has a wrong offset: the damage behind it is before the end.
                return run.map_or_else(
                    || {
                        let reason = "the batch's base offset is too far on";
                        let value = header.base_offset();
                        let error = BatchError::Inconsistent { reason, value };
                        Err(self.corrupt(at, &error).into())
                    },
                    |run| Ok(Some(run)),
                );
            }
            let position = run.map_or(at, |run| run.position);
            let len = at + header.size() as u64 - position;
            let is_needed = run.is_none() && wanted.at_least_one;
            if len > wanted.bytes_max && !is_needed {
                return Ok(run);
            }
            run = Some(Run {
                position,
                len,
                end_offset: next_offset,
            });
        }
        run.map_or(Err(damage.into()), |run| Ok(Some(run)))
    }
}
