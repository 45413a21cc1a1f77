//! The offsets at which a log has to begin and to end.
//!
//! # Invariant
//! A checkpoint, an index, a snapshot or an epoch beyond the last batch proves that records are
//! gone. The log is then refused.

use std::path::PathBuf;

use super::listing::corrupt;
use super::segments::UnopenedSegments;
use crate::epochs::{self, Epochs};
use crate::error::OpenError;
use crate::segment::{Segment, file_path};
use crate::snapshot;

impl UnopenedSegments<'_> {
    /// Fails if an index file proves that there was a segment which is gone. A removal that was
    /// cut short leaves some too, but of segments that others were behind.
    pub(super) fn require_no_lost_segment(
        &self,
        orphans: &[(i64, PathBuf)],
    ) -> Result<(), OpenError> {
        let last = self.base_offsets.last().copied().unwrap_or(-1);
        let is_lost = |base_offset: i64| self.past.was_clean || base_offset > last;
        match orphans.iter().rev().find(|(base, _)| is_lost(*base)) {
            Some((_, path)) if !self.past.power_failed => {
                let reason = format!(
                    "it is missing, though {} is there. Nothing was changed",
                    path.display()
                );
                Err(corrupt(path.with_extension("log"), 0, reason))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the log does not begin and end where it has to. After a power failure the log has
    /// to reach its recovery point; anything behind it may be missing.
    pub(super) fn require_end(&self, segments: &[Segment]) -> Result<(), OpenError> {
        let past = &self.past;
        let end = segments.last().map_or(0, Segment::next_offset);
        let (path, position) = match segments.last() {
            Some(last) => (last.path("log"), last.size()),
            None => (self.directory.to_owned(), 0),
        };
        let lost = |proof: String| {
            let reason = format!("the log ends at offset {end}, but {proof}. Nothing was changed");
            Err(corrupt(path.clone(), position, reason))
        };
        if past.power_failed {
            let point = past.recovery_point;
            return if point > end {
                let name = "recovery-point-offset-checkpoint";
                lost(format!("{name} says it was on the disk up to {point}"))
            } else {
                self.require_start(segments)
            };
        }
        let recorded = [
            (past.recovery_point, "recovery-point-offset-checkpoint"),
            (past.high_watermark, "replication-offset-checkpoint"),
        ];
        let mut said = recorded.into_iter().filter(|(offset, _)| *offset > 0);
        if past.was_clean {
            // Both were written at the stop: one that alone says something else is itself wrong.
            let is_confirmed = said.clone().any(|(offset, _)| offset == end);
            if let (false, Some((offset, name))) = (is_confirmed, said.next()) {
                return lost(format!("{name} says it was closed at {offset}"));
            }
        } else if let Some((offset, name)) = said.find(|(offset, _)| *offset > end) {
            return lost(format!("{name} says it had come to {offset}"));
        }
        if let Some(start) = past.log_start_offset.filter(|&start| start > end) {
            return lost(format!(
                "log-start-offset-checkpoint says it begins at {start}"
            ));
        }
        self.require_start(segments)?;
        if self.directory.is_dir() {
            if let Some(&newest) = snapshot::offsets(self.directory)?.first()
                && newest > end
            {
                let name = file_path(self.directory, newest, "snapshot");
                return lost(format!("{} is of offset {newest}", name.display()));
            }
            if let Some(start) = Epochs::load(self.directory)?.and_then(|found| found.last_start())
                && start > end
            {
                return lost(format!("{} has an epoch from {start} on", epochs::NAME));
            }
        }
        Ok(())
    }

    /// Fails if the first segments are gone, and not by a removal: that notes first, durably, where
    /// the log begins then. After a power failure the file of the segment at the start was on the
    /// disk if the recovery point lies behind the start.
    fn require_start(&self, segments: &[Segment]) -> Result<(), OpenError> {
        let past = &self.past;
        let Some(start) = past.log_start_offset else {
            return Ok(());
        };
        let is_noted_first = past.was_clean || !past.was_left_by_kafka;
        let was_on_disk = !past.power_failed || past.recovery_point > start;
        if !is_noted_first || !was_on_disk {
            return Ok(());
        }
        let says = format!(
            "log-start-offset-checkpoint says that the log begins at offset {start}. Nothing was \
             changed"
        );
        match segments.first() {
            None => {
                let reason = format!("it holds no segment, but {says}");
                Err(corrupt(self.directory.to_owned(), 0, reason))
            }
            Some(first) if first.base_offset > start => {
                let reason = format!("it is the first segment, but {says}");
                Err(corrupt(first.path("log"), 0, reason))
            }
            Some(_) => Ok(()),
        }
    }
}
