//! The sparse indexes of one segment, in memory and as Kafka's files.
//!
//! While a segment is written its indexes live here; the files are written when it is closed
//! or sealed. They are caches: a missing or senseless one is rebuilt from the batches, and
//! after a crash all of them are.
//!
//! A batch gets an entry when more than `index.interval.bytes` were written since the batch
//! that got the last one. Source: Kafka, `LogSegment.append`.

mod offset;
mod time;

use std::io;
use std::path::Path;

use txn_protocol::batch::Header;

use crate::disk;
pub(crate) use offset::{OffsetIndex, OffsetIndexEntry};
pub(crate) use time::TimeIndex;

/// A timestamp and the last offset of the first batch that has it as its largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimestampOffset {
    pub timestamp: i64,
    pub offset: i64,
}

/// Both indexes of a segment, and the state that the next entries need.
#[derive(Clone, Debug)]
pub(crate) struct Indexes {
    base_offset: i64,
    pub offsets: OffsetIndex,
    pub times: TimeIndex,
    /// The largest timestamp so far; `None` while no batch has one.
    pub largest: Option<TimestampOffset>,
    bytes_since_entry: u64,
    /// They were read from files, whose entries are held against the batches when they are used.
    pub is_loaded: bool,
}

impl Indexes {
    pub fn new(base_offset: i64) -> Self {
        Self {
            base_offset,
            offsets: OffsetIndex::default(),
            times: TimeIndex::default(),
            largest: None,
            bytes_since_entry: 0,
            is_loaded: false,
        }
    }

    /// Notes a batch stored at `position`; its last offset must fit the segment.
    pub fn note(&mut self, header: &Header, position: u64, interval_bytes: u64) {
        self.note_timestamp(header);
        if self.bytes_since_entry > interval_bytes {
            self.offsets
                .append(self.relative(header.last_offset()), position as u32);
            self.note_largest();
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += header.size() as u64;
    }

    /// Notes only the timestamp of a batch that the offset index has already.
    pub fn note_timestamp(&mut self, header: &Header) {
        let timestamp = header.max_timestamp();
        if timestamp > self.largest.map_or(-1, |largest| largest.timestamp) {
            let offset = header.last_offset();
            self.largest = Some(TimestampOffset { timestamp, offset });
        }
    }

    /// True if a file of `bytes_max` bytes has no room for another entry of one of the two. The
    /// time index keeps one free, for the largest timestamp when it is closed.
    pub fn are_full(&self, bytes_max: u64) -> bool {
        let fit = |entry_bytes: usize| bytes_max as usize / entry_bytes;
        self.offsets.len() >= fit(offset::ENTRY_BYTES)
            || self.times.len() + 1 >= fit(time::ENTRY_BYTES)
    }

    /// Where to start looking for the first batch whose last offset is `offset` or more.
    pub fn entry_before(&self, offset: i64) -> Option<OffsetIndexEntry> {
        self.offsets.entry_before(offset - self.base_offset)
    }

    /// A position at or after the end of the batches that lie wholly below `offset`; `None`:
    /// the end of the segment.
    pub fn position_after(&self, offset: i64) -> Option<u64> {
        self.offsets.position_after(offset - self.base_offset)
    }

    /// The largest timestamp of the batches up to an offset, all of them older than a time.
    pub fn largest_before_time(&self, timestamp: i64) -> Option<TimestampOffset> {
        let entry = self.times.last_below(timestamp)?;
        Some(absolute(self.base_offset, entry))
    }

    /// Writes both files, the time index closed by the segment's largest timestamp.
    pub fn store(&mut self, offset_path: &Path, time_path: &Path) -> io::Result<()> {
        self.note_largest();
        disk::write(offset_path, &self.offsets.encode())?;
        disk::write(time_path, &self.times.encode())
    }

    /// Reads both files of a segment of `size` bytes; `None` if one is missing or senseless.
    pub fn load(
        base_offset: i64,
        size: u64,
        offset_path: &Path,
        time_path: &Path,
    ) -> io::Result<Option<Self>> {
        let (Some(offsets), Some(times)) = (
            disk::read_derived(offset_path)?,
            disk::read_derived(time_path)?,
        ) else {
            return Ok(None);
        };
        let (Some(offsets), Some(times)) = (
            OffsetIndex::decode(&offsets, size),
            TimeIndex::decode(&times),
        ) else {
            return Ok(None);
        };
        // An empty time index is right only for batches without timestamps; they are rare, and
        // rebuilding is cheap where the offset index is empty too.
        if size > 0 && times.last().is_none() {
            return Ok(None);
        }
        let largest = times.last().map(|entry| absolute(base_offset, entry));
        let bytes_since_entry = size - offsets.last_position();
        Ok(Some(Self {
            base_offset,
            offsets,
            times,
            largest,
            bytes_since_entry,
            is_loaded: true,
        }))
    }

    fn note_largest(&mut self) {
        if let Some(largest) = self.largest {
            let relative_offset = self.relative(largest.offset);
            self.times.append(largest.timestamp, relative_offset);
        }
    }

    fn relative(&self, offset: i64) -> u32 {
        let relative = offset - self.base_offset;
        assert!(
            (0..=i64::from(i32::MAX)).contains(&relative),
            "offset {offset} is too far from base offset {}",
            self.base_offset
        );
        relative as u32
    }
}

fn absolute(base_offset: i64, (timestamp, relative_offset): (i64, u32)) -> TimestampOffset {
    TimestampOffset {
        timestamp,
        offset: base_offset + i64::from(relative_offset),
    }
}
