//! Retention: finds the segments that are too old, or more than `retention.bytes`.
//!
//! The decision is pure: sizes and ages of the segments determine how many of the oldest may be
//! removed. As in Kafka, the newest record of a segment decides its age, and a segment is removed
//! by size only if `retention.bytes` remain without it. The active segment may be removed too: it
//! is sealed first, and an empty one replaces it.
//!
//! A segment is removed by size because of later records. These are synced before: otherwise a
//! power failure could leave less than `retention.bytes`.
//!
//! The removal has two steps, so that one write of `log-start-offset-checkpoint` can note the new
//! starts of many logs before any of them loses a segment.

use std::io;

use crate::error::ReadError;
use crate::log::PartitionLog;
use crate::removal::NoteStart;
use crate::settings::Settings;

/// Retention's view of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub bytes: u64,
    /// When its newest record was written, in ms.
    pub newest_ms: i64,
    /// Exclusive upper bound of its offsets.
    pub end_offset: i64,
}

/// Segments that retention no longer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The log start without them.
    pub end_offset: i64,
    /// Number of times that offsets of the log had been taken back, see
    /// [`PartitionLog::truncations`].
    pub truncations: u64,
}

/// Segments that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// How many of the oldest.
    pub count: usize,
    /// How many of them go whatever comes after them: by their age or the log start.
    pub alone: usize,
}

/// The oldest segments that may go.
pub(crate) fn expired(
    segments: &[Candidate],
    settings: &Settings,
    log_start_offset: i64,
    now_ms: i64,
) -> Due {
    let sealed = &segments[..segments.len().saturating_sub(1)];
    let by_start = count_while(sealed, |segment| segment.end_offset <= log_start_offset);
    if !settings.is_deleted_by_retention {
        return Due {
            count: by_start,
            alone: by_start,
        };
    }
    let is_old = |segment: &Candidate| now_ms - segment.newest_ms > settings.retention_ms;
    let by_age = if settings.retention_ms < 0 {
        0
    } else {
        count_while(segments, is_old)
    };
    let total: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let mut excess = match u64::try_from(settings.retention_bytes) {
        Ok(kept) => total.saturating_sub(kept),
        Err(_) => 0,
    };
    let by_size = count_while(segments, |segment| {
        let goes = segment.bytes > 0 && segment.bytes <= excess;
        excess = excess.saturating_sub(segment.bytes);
        goes
    });
    let alone = by_start.max(by_age);
    Due {
        count: alone.max(by_size),
        alone,
    }
}

fn count_while(segments: &[Candidate], mut goes: impl FnMut(&Candidate) -> bool) -> usize {
    segments.iter().take_while(|segment| goes(segment)).count()
}

impl PartitionLog {
    /// Finds the segments that `retention.ms`, `retention.bytes` and the log start no longer keep.
    /// For a worker.
    ///
    /// # Errors
    /// `Io`, `Corrupt` where the age of a segment had to be read from its batches; `Closed`.
    pub fn find_expired(&self, now_ms: i64) -> Result<Option<Expired>, ReadError> {
        self.unless_deleted(|| self.expired_at(now_ms))
    }

    /// Removes segments that were found to be expired; says how many. None go if the log was
    /// truncated since. For a worker.
    ///
    /// # Errors
    /// `Io`, `Closed`. Nothing is removed if `note_start` fails.
    pub fn remove_expired(
        &self,
        expired: Expired,
        note_start: NoteStart<'_>,
    ) -> Result<usize, ReadError> {
        self.unless_deleted(|| {
            let _maintenance = self.maintenance();
            if self.is_closed() {
                return Err(ReadError::Closed);
            }
            if self.truncations() != expired.truncations {
                return Ok(0);
            }
            Ok(self.raise_start(expired.end_offset, note_start)?)
        })
    }

    /// A failure in a log that was deleted meanwhile is none of its disk.
    fn unless_deleted<T>(
        &self,
        work: impl FnOnce() -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        match work() {
            Err(_) if self.is_deleted() => Err(ReadError::Closed),
            done => done,
        }
    }

    fn expired_at(&self, now_ms: i64) -> Result<Option<Expired>, ReadError> {
        let _maintenance = self.maintenance();
        if self.is_closed() {
            return Err(ReadError::Closed);
        }
        let segments = self.segments();
        let candidates = segments
            .iter()
            .map(|segment| {
                Ok(Candidate {
                    bytes: segment.size(),
                    newest_ms: segment.newest_ms()?,
                    end_offset: segment.next_offset(),
                })
            })
            .collect::<Result<Vec<_>, ReadError>>()?;
        let state = self.state();
        let due = expired(
            &candidates,
            &self.settings(),
            state.log_start_offset,
            now_ms,
        );
        // Offsets that are not replicated yet stay, at any age.
        let is_replicated = |segment: &Candidate| segment.end_offset <= state.high_watermark;
        let mut count = due.count.min(count_while(&candidates, is_replicated));
        if count == segments.len()
            && !self.seal_active(candidates.last().map(|last| last.end_offset))?
        {
            count = count.saturating_sub(1);
        }
        if count > due.alone
            && let Some(counted) = candidates.last()
        {
            self.sync_up_to(counted.end_offset)?;
        }
        Ok(count.checked_sub(1).map(|last| Expired {
            end_offset: candidates[last].end_offset,
            truncations: self.truncations(),
        }))
    }

    /// Seals the active segment, if it holds something and still ends at `end_offset`.
    fn seal_active(&self, end_offset: Option<i64>) -> io::Result<bool> {
        let writer = self.writer_even_if_failed();
        let segments = self.segments();
        let Some(active) = segments.last().filter(|active| active.size() > 0) else {
            return Ok(false);
        };
        if end_offset != Some(active.next_offset()) || !writer.is_open() {
            return Ok(false);
        }
        self.roll(&self.settings(), active.next_offset())?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    /// Segments of ten offsets each: (bytes, newest).
    fn segments(facts: &[(u64, i64)]) -> Vec<Candidate> {
        let candidate = |(nth, &(bytes, newest_ms)): (usize, &(u64, i64))| Candidate {
            bytes,
            newest_ms,
            end_offset: 10 * (nth as i64 + 1),
        };
        facts.iter().enumerate().map(candidate).collect()
    }

    fn policy(retention_ms: i64, retention_bytes: i64) -> Settings {
        Settings {
            retention_ms,
            retention_bytes,
            ..Settings::KAFKA
        }
    }

    #[test]
    fn segments_go_from_the_oldest_to_the_first_that_is_young() {
        let aged = segments(&[
            (5, NOW - 101),
            (5, NOW - 200),
            (5, NOW - 100),
            (5, NOW - 300),
        ]);
        assert_eq!(expired(&aged, &policy(100, -1), 0, NOW).count, 2);
        assert_eq!(expired(&aged, &policy(-1, -1), 0, NOW).count, 0);
    }

    #[test]
    fn all_may_go_by_age_the_active_one_too() {
        let aged = segments(&[(5, 0), (5, 1)]);
        assert_eq!(expired(&aged, &policy(100, -1), 0, NOW).count, 2);
    }

    #[test]
    fn a_segment_goes_by_size_only_if_enough_is_left_without_it() {
        let sized = segments(&[(10, NOW), (10, NOW), (10, NOW)]);
        assert_eq!(expired(&sized, &policy(-1, 25), 0, NOW).count, 0);
        assert_eq!(expired(&sized, &policy(-1, 20), 0, NOW).count, 1);
        assert_eq!(expired(&sized, &policy(-1, 9), 0, NOW).count, 2);
        assert_eq!(expired(&sized, &policy(-1, 0), 0, NOW).count, 3);
    }

    #[test]
    fn sealed_segments_below_the_log_start_go_whatever_the_policy() {
        let compacted = Settings {
            is_deleted_by_retention: false,
            ..policy(0, 0)
        };
        let three = segments(&[(10, 0), (10, 0), (10, 0)]);
        assert_eq!(expired(&three, &compacted, 0, NOW).count, 0);
        assert_eq!(expired(&three, &compacted, 19, NOW).count, 1);
        assert_eq!(expired(&three, &compacted, 30, NOW).count, 2);
    }

    #[test]
    fn an_empty_segment_does_not_go_by_size() {
        assert_eq!(
            expired(&segments(&[(0, NOW)]), &policy(-1, 0), 0, NOW).count,
            0
        );
    }
}
