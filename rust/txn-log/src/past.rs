//! The facts about the earlier life of a log that are known when it is opened.

use crate::offsets::Role;
use crate::settings::Settings;

/// The known past of a log when it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// It was closed, so its files may be trusted.
    pub was_clean: bool,
    /// It was not, and the machine went down: unsynced bytes may be torn anywhere.
    pub power_failed: bool,
    /// Its entry in `recovery-point-offset-checkpoint`, or 0: everything below was on the disk.
    pub recovery_point: i64,
    /// Its entry in `replication-offset-checkpoint`, or 0: the log has got that far once.
    pub high_watermark: i64,
    /// Its entry in `log-start-offset-checkpoint`.
    pub log_start_offset: Option<i64>,
    /// The broker before was an Apache Kafka, which notes a log start after the removal of the
    /// segments below it, and a cleaned end after the cleaning.
    pub was_left_by_kafka: bool,
    /// Its entry in `cleaner-offset-checkpoint`: it was compacted up to here, so between its batches
    /// offsets may be missing.
    pub cleaned_end: Option<i64>,
    /// Its role in its partition from the start. Unless it is the sole replica, `high_watermark` is
    /// also its high watermark, as far as the log reaches.
    pub role: Role,
}

impl Past {
    /// True if offsets may be missing between the batches of the log.
    pub(crate) fn may_have_gaps(&self, settings: &Settings) -> bool {
        self.cleaned_end.is_some() || settings.is_compacted
    }

    /// True if the power failed before the batches from `end` on reached the disk, though those of
    /// the segment that begins at `next` did. A compacted log loses its batches so, too, see
    /// `recovery`. An Apache Kafka that was killed may have cleaned beyond the end that it noted.
    pub(crate) fn has_lost(&self, end: i64, next: i64) -> bool {
        let is_of_cleaner =
            self.was_left_by_kafka || self.cleaned_end.is_some_and(|cleaned| end < cleaned);
        self.power_failed && next > end && next > self.recovery_point && !is_of_cleaner
    }
}
