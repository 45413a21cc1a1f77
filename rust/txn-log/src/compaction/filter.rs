//! The part of one batch that a cleaning leaves.
//!
//! A record stays if it is the last of its key, unless it is a tombstone that has been seen
//! long enough. One without a key goes. A batch keeps its offsets and its sequences under any
//! removal, so that its producer's last sequence stays known. Base offset and last offset delta
//! never change, and a batch that has to stay without records is a bare header.
//!
//! # The delete horizon (KIP-534)
//! Tombstones, and markers of transactions that left nothing else, stay for
//! `delete.retention.ms` after the first cleaning that would let them go. So a reader on
//! its way through the log still meets them. That cleaning notes the time: attribute bit 6
//! says that the base timestamp is it, and the records' deltas count from there.
//!
//! # Memory
//! Content of up to 1 MiB is opened once and held; larger content is opened anew by each reading,
//! piece by piece, and written piece by piece.
//!
//! Kept records are copied, unless their timestamp deltas change. Base timestamp and codec stay, the largest timestamp is that of the records left. Source: Kafka,
//! `MemoryRecords.filterTo`; it makes the base timestamp that of the first record left.

use std::ops::ControlFlow;

use txn_protocol::batch::{self, BatchView, Codec, HEADER_BYTES, Header};
use txn_protocol::records::{varlong_size, write_varlong};

use crate::compaction::offset_map::{KeyHasher, OffsetMap};
use crate::compression::{self, Compression, CompressionError, Packer};
use crate::content::{self, RecordHead, RecordReader, Visitor};
use crate::opening::{Opening, Reading};

/// Largest content of one batch that is held.
const HELD_BYTES_MAX: usize = 1 << 20;

/// The rest of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilteredBatch {
    /// All of it, as it is.
    Whole,
    /// These bytes.
    Rewritten(Vec<u8>),
    /// Nothing.
    Nothing,
}

/// The judge of records.
#[derive(Clone, Copy)]
pub(crate) struct RecordFilter<'a> {
    /// Last offsets of the keys in the part of the log that is being cleaned.
    pub last_offsets: &'a OffsetMap,
    /// The time of the cleaning.
    pub now_ms: i64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
}

impl RecordFilter<'_> {
    fn keeps(
        &self,
        record: &RecordHead,
        key: &KeyHasher,
        offset: i64,
        are_deletes_due: bool,
    ) -> bool {
        let is_last = self.last_offsets.get(key).is_none_or(|last| offset >= last);
        record.has_key && is_last && (record.has_value || !are_deletes_due)
    }

    fn is_due(&self, header: &Header) -> bool {
        header
            .delete_horizon_ms()
            .is_some_and(|horizon_ms| horizon_ms <= self.now_ms)
    }

    fn horizon_ms(&self) -> i64 {
        self.now_ms.saturating_add(self.delete_retention_ms)
    }
}

/// The content of a batch, to be read as often as is needed.
pub(crate) struct BatchContent<'a> {
    codec: Codec,
    bytes: &'a [u8],
    count: i32,
    last_offset_delta: i32,
}

impl<'a> BatchContent<'a> {
    /// Opens a batch; `held` is for its content.
    ///
    /// # Errors
    /// The codec's error.
    pub fn of(batch: &BatchView<'a>, held: &'a mut Vec<u8>) -> Result<Self, String> {
        let codec = batch.codec().map_err(|error| error.to_string())?;
        let mut source = Self {
            codec,
            bytes: batch.records(),
            count: batch.record_count(),
            last_offset_delta: batch.last_offset_delta(),
        };
        if codec == Codec::None {
            return Ok(source);
        }
        held.clear();
        match compression::decompress(codec, source.bytes, held, HELD_BYTES_MAX) {
            Ok(()) => (source.codec, source.bytes) = (Codec::None, held),
            Err(CompressionError::TooLarge { .. }) => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(source)
    }

    fn open(&self) -> Opening<'a> {
        Opening::new(self.codec, self.bytes, Reading::Lenient, usize::MAX)
    }

    /// Reads every record, whose offsets have to rise and lie in the batch.
    ///
    /// # Errors
    /// Their fault; those before it were visited.
    pub fn read(&self, visitor: &mut impl Visitor) -> Result<(), String> {
        let mut in_place = InPlace {
            visitor,
            least: 0,
            most: self.last_offset_delta,
            out_of_place: None,
        };
        content::walk(&mut self.open(), self.count, &mut in_place)
            .map_err(|error| error.to_string())?;
        match in_place.out_of_place {
            None => Ok(()),
            Some(delta) => Err(format!("a record has the offset delta {delta}")),
        }
    }

    /// Reads every record, to see whether all can be read.
    ///
    /// # Errors
    /// The errors of `read`.
    pub fn check(&self) -> Result<(), String> {
        self.read(&mut |_: &RecordHead| ControlFlow::Continue(()))
    }
}

/// Passes records on while their offsets rise within the batch.
struct InPlace<'v, V> {
    visitor: &'v mut V,
    least: i32,
    most: i32,
    out_of_place: Option<i32>,
}

impl<V: Visitor> Visitor for InPlace<'_, V> {
    fn key(&mut self, piece: &[u8]) {
        self.visitor.key(piece);
    }

    fn record(&mut self, record: &RecordHead) -> ControlFlow<()> {
        let delta = record.offset_delta;
        if delta < self.least || delta > self.most {
            self.out_of_place = Some(delta);
            return ControlFlow::Break(());
        }
        self.least = delta.saturating_add(1);
        self.visitor.record(record)
    }
}

/// Which records of a batch stay.
struct Choice<'a> {
    rules: &'a RecordFilter<'a>,
    base_offset: i64,
    base_timestamp: i64,
    are_deletes_due: bool,
    key: KeyHasher,
    keeps: Vec<bool>,
    kept: usize,
    has_tombstones: bool,
    max_timestamp: i64,
}

impl Visitor for Choice<'_> {
    fn key(&mut self, piece: &[u8]) {
        self.key.write(piece);
    }

    fn record(&mut self, record: &RecordHead) -> ControlFlow<()> {
        let key = std::mem::replace(&mut self.key, self.rules.last_offsets.hasher());
        let offset = self.base_offset + i64::from(record.offset_delta);
        let keeps = self.rules.keeps(record, &key, offset, self.are_deletes_due);
        if keeps {
            let timestamp = self.base_timestamp.wrapping_add(record.timestamp_delta);
            self.kept += 1;
            self.has_tombstones |= !record.has_value;
            self.max_timestamp = self.max_timestamp.max(timestamp);
        }
        self.keeps.push(keeps);
        ControlFlow::Continue(())
    }
}

/// Filters a data batch. `has_to_stay`: at least its header; of an aborted one no more than it.
/// `held` is for its content.
///
/// # Errors
/// The fault of the batch's content.
pub(crate) fn filter_data(
    batch: &BatchView<'_>,
    is_aborted: bool,
    has_to_stay: bool,
    rules: &RecordFilter<'_>,
    held: &mut Vec<u8>,
) -> Result<FilteredBatch, String> {
    if is_aborted || batch.record_count() == 0 {
        return Ok(without_records(batch, has_to_stay));
    }
    let source = BatchContent::of(batch, held)?;
    let mut choice = Choice {
        rules,
        base_offset: batch.base_offset(),
        base_timestamp: batch.base_timestamp(),
        are_deletes_due: rules.is_due(batch),
        key: rules.last_offsets.hasher(),
        keeps: Vec::new(),
        kept: 0,
        has_tombstones: false,
        max_timestamp: -1,
    };
    source.read(&mut choice)?;
    if choice.kept == 0 {
        return Ok(without_records(batch, has_to_stay));
    }
    let is_horizon_new = choice.has_tombstones && batch.delete_horizon_ms().is_none();
    if choice.kept == choice.keeps.len() && !is_horizon_new {
        return Ok(FilteredBatch::Whole);
    }
    let max_timestamp = if batch.is_log_append_time() {
        batch.max_timestamp()
    } else {
        choice.max_timestamp
    };
    let horizon_ms = is_horizon_new.then(|| rules.horizon_ms());
    rewrite(batch, &source, &choice.keeps, max_timestamp, horizon_ms).map(FilteredBatch::Rewritten)
}

/// Filters a marker. `is_idle`: of its transaction nothing else is left. `has_to_stay`: it is
/// all that tells its producer's epoch, or where the log ends.
///
/// A marker is kept whole or not at all: an empty one would not tell the epoch to a replay.
///
/// # Errors
/// The fault of the batch's content.
pub(crate) fn filter_marker(
    batch: &BatchView<'_>,
    is_idle: bool,
    has_to_stay: bool,
    rules: &RecordFilter<'_>,
    held: &mut Vec<u8>,
) -> Result<FilteredBatch, String> {
    if !is_idle {
        return Ok(FilteredBatch::Whole);
    }
    if batch.delete_horizon_ms().is_none() && batch.record_count() > 0 {
        let source = BatchContent::of(batch, held)?;
        let mut keeps = Vec::new();
        source.read(&mut |_: &RecordHead| {
            keeps.push(true);
            ControlFlow::Continue(())
        })?;
        let horizon_ms = Some(rules.horizon_ms());
        let left = rewrite(batch, &source, &keeps, batch.max_timestamp(), horizon_ms);
        return left.map(FilteredBatch::Rewritten);
    }
    let is_due = rules.is_due(batch) || batch.record_count() == 0;
    Ok(if is_due && !has_to_stay {
        FilteredBatch::Nothing
    } else {
        FilteredBatch::Whole
    })
}

fn without_records(batch: &BatchView<'_>, has_to_stay: bool) -> FilteredBatch {
    if !has_to_stay {
        return FilteredBatch::Nothing;
    }
    if batch.record_count() == 0 {
        return FilteredBatch::Whole;
    }
    let header = Header {
        attributes: batch::without_content(batch.attributes()),
        base_timestamp: batch.max_timestamp(),
        record_count: 0,
        ..*batch.header()
    };
    FilteredBatch::Rewritten(seal(header, vec![0; HEADER_BYTES]))
}

/// The batch with the kept records only; with a new horizon, their timestamps count from it.
fn rewrite(
    batch: &BatchView<'_>,
    source: &BatchContent<'_>,
    keeps: &[bool],
    max_timestamp: i64,
    horizon_ms: Option<i64>,
) -> Result<Vec<u8>, String> {
    let mut header = Header {
        max_timestamp,
        record_count: keeps.iter().filter(|&&keeps| keeps).count() as i32,
        ..*batch.header()
    };
    let mut earlier_by = 0;
    if let Some(horizon_ms) = horizon_ms {
        header.attributes = batch::with_delete_horizon(header.attributes);
        header.base_timestamp = horizon_ms;
        earlier_by = batch.base_timestamp().wrapping_sub(horizon_ms);
    }
    let codec = batch.codec().map_err(|error| error.to_string())?;
    let bytes = pack(source, keeps, earlier_by, codec).map_err(|error| error.to_string())?;
    Ok(seal(header, bytes))
}

/// Packs the kept records behind room for a header, each timestamp delta larger by `earlier_by`.
fn pack(
    source: &BatchContent<'_>,
    keeps: &[bool],
    earlier_by: i64,
    codec: Codec,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let room = vec![0; HEADER_BYTES];
    let mut packer = Packer::new(Compression::of(codec), None, room)?;
    let mut opening = source.open();
    let mut front = Vec::new();
    for (index, &keeps) in (0..).zip(keeps) {
        let mut record = RecordReader::new(&mut opening, index)?;
        if !keeps {
            let rest = record.left();
            record.pass(rest, |_| {})?;
            continue;
        }
        let attributes = record.byte("it has no attributes")?;
        let timestamp_delta = record.varlong("its timestamp delta is cut")?;
        let timestamp_delta = timestamp_delta.wrapping_add(earlier_by);
        let rest = record.left();
        let length = 1 + varlong_size(timestamp_delta) + rest;
        front.clear();
        write_varlong(length as i64, &mut front);
        front.push(attributes);
        write_varlong(timestamp_delta, &mut front);
        let mut written = packer.write(&front);
        record.pass(rest, |piece| {
            if written.is_ok() {
                written = packer.write(piece);
            }
        })?;
        written?;
    }
    Ok(packer.finish()?)
}

/// Writes a header with the right length and checksum before the records in `bytes`.
fn seal(mut header: Header, mut bytes: Vec<u8>) -> Vec<u8> {
    header.length = Header::length_of(bytes.len());
    header.write(&mut bytes);
    header.crc = batch::checksum(&bytes);
    header.write(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests;
