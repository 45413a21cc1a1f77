//! Searches for records by time. No lock of the writer is taken.

use std::cmp::Reverse;
use std::os::unix::fs::FileExt;

use txn_protocol::batch::{BatchView, Header};

use crate::error::{CorruptLog, ReadError};
use crate::index::TimestampOffset;
use crate::log::PartitionLog;
use crate::search;
use crate::search::{Budget, Searched};
use crate::segment::Segment;

impl PartitionLog {
    /// Finds (offset, timestamp) of the first record below `end` at or after a time.
    ///
    /// Exact to the record; markers and deleted records are none. Where batches that claim such a record yield
    /// some 32 MiB without it, the search ends, and the next record counts as found.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn offset_for_timestamp(
        &self,
        timestamp_ms: i64,
        end: i64,
    ) -> Result<Option<(i64, i64)>, ReadError> {
        self.reading(|| self.first_since(timestamp_ms, end))
    }

    fn first_since(&self, timestamp_ms: i64, end: i64) -> Result<Option<(i64, i64)>, ReadError> {
        let (start, end) = (self.offsets.log_start(), end.min(self.offsets.log_end()));
        let mut budget = Budget::of_one_search();
        for segment in self
            .segments()
            .iter()
            .take_while(|segment| segment.base_offset < end)
        {
            let largest = segment.largest_timestamp()?;
            if largest.is_none_or(|largest| largest.timestamp < timestamp_ms) {
                continue;
            }
            let mut scanner = segment.scan_since(timestamp_ms)?;
            while let Some((position, header)) =
                scanner.next().map_err(|error| segment.damaged(error))?
            {
                if header.base_offset() >= end {
                    return Ok(None);
                }
                let is_deleted = header.last_offset() < start;
                if is_deleted || header.is_control() || header.max_timestamp() < timestamp_ms {
                    continue;
                }
                let bytes = scanner.bytes(position, header.size())?;
                // Behind the end nothing is wanted, so the first there ends the search too.
                let is_wanted = |offset, timestamp| {
                    offset >= end || (offset >= start && timestamp >= timestamp_ms)
                };
                match search_batch(segment, position, bytes, &mut budget, is_wanted)? {
                    Searched::Found(found) => return Ok(Some(found).filter(|&(at, _)| at < end)),
                    Searched::Nothing => {}
                    Searched::GaveUp(next) => {
                        let next = next.max(header.base_offset()).max(start);
                        return Ok((next < end).then_some((next, header.max_timestamp())));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Finds (offset, timestamp) of the first record below `end` with the largest timestamp;
    /// `end` lies between batches. A marker counts as a record here, as in Kafka.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn offset_of_max_timestamp(&self, end: i64) -> Result<Option<(i64, i64)>, ReadError> {
        self.reading(|| self.latest(end))
    }

    fn latest(&self, end: i64) -> Result<Option<(i64, i64)>, ReadError> {
        let end = end.min(self.offsets.log_end());
        let segments = self.segments();
        let mut claims = Vec::new();
        for segment in segments
            .iter()
            .take_while(|segment| segment.base_offset < end)
        {
            if let Some(largest) = segment.largest_timestamp()? {
                claims.push((segment, largest));
            }
        }
        // The largest first: if the segment has the record it claims, few others are read.
        claims.sort_by_key(|(_, largest)| Reverse(largest.timestamp));
        let mut budget = Budget::of_one_search();
        let mut best: Option<(i64, i64)> = None;
        for (segment, largest) in claims {
            let is_better = |offset: i64, timestamp: i64| {
                best.is_none_or(|(best, known)| (timestamp, best) > (known, offset))
            };
            if !is_better(segment.base_offset, largest.timestamp) {
                continue;
            }
            let Some((position, header)) = latest_batch(segment, largest, end)? else {
                continue;
            };
            if !is_better(header.base_offset(), header.max_timestamp()) {
                continue;
            }
            let mut bytes = vec![0; header.size()];
            segment.file.get()?.read_exact_at(&mut bytes, position)?;
            let mut here: Option<(i64, i64)> = None;
            let is_wanted = |offset, timestamp| {
                if here.is_none_or(|(_, known)| timestamp > known) {
                    here = Some((offset, timestamp));
                }
                timestamp >= header.max_timestamp()
            };
            let searched = search_batch(segment, position, &bytes, &mut budget, is_wanted)?;
            if let Searched::GaveUp(next) = searched {
                return Ok(Some((next, header.max_timestamp())));
            }
            best = here.filter(|&(at, time)| is_better(at, time)).or(best);
        }
        Ok(best)
    }
}

/// The first batch of a segment below `end` with the largest timestamp, by its header.
fn latest_batch(
    segment: &Segment,
    largest: TimestampOffset,
    end: i64,
) -> Result<Option<(u64, Header)>, ReadError> {
    let is_wanted = |header: &Header| {
        let has_records = header.record_count() > 0;
        has_records && header.max_timestamp() >= 0 && header.last_offset() < end
    };
    let indexed = segment
        .find(largest.offset)?
        .filter(|(_, header)| is_wanted(header) && header.max_timestamp() == largest.timestamp);
    if indexed.is_some() {
        return Ok(indexed);
    }
    // The largest is an empty batch's, or lies beyond `end`: look at every batch.
    let mut latest: Option<(u64, Header)> = None;
    let mut scanner = segment.scan_from(0)?;
    while let Some((position, header)) = scanner.next().map_err(|error| segment.damaged(error))? {
        let least = latest.map_or(i64::MIN, |(_, header)| header.max_timestamp());
        if is_wanted(&header) && header.max_timestamp() > least {
            latest = Some((position, header));
        }
    }
    Ok(latest)
}

/// Looks for a record in a stored batch, once its bytes are known to be sound.
fn search_batch(
    segment: &Segment,
    position: u64,
    bytes: &[u8],
    budget: &mut Budget,
    is_wanted: impl FnMut(i64, i64) -> bool,
) -> Result<Searched, ReadError> {
    let damaged = |reason: String| {
        let path = segment.path("log");
        ReadError::Corrupt(CorruptLog {
            path,
            position,
            reason,
        })
    };
    segment.verify(position, bytes.len() as u64)?;
    let batch = BatchView::parse(bytes).map_err(|error| damaged(error.to_string()))?;
    Ok(search::first_record(&batch, budget, is_wanted))
}
