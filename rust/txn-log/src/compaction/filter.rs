//! What a cleaning leaves of one batch.
//!
//! A record stays if it is the last of its key, unless it is a tombstone that has been seen
//! long enough; one without a key goes. A batch keeps its offsets and its sequences whatever
//! goes from it, so that its producer's last sequence stays known: base offset and last offset
//! delta never change, and a batch that has to stay without records is a bare header.
//!
//! # The delete horizon (KIP-534)
//! Tombstones, and markers of transactions that left nothing else, stay for
//! `delete.retention.ms` after the first cleaning that would let them go, so that a reader on
//! its way through the log still meets them. That cleaning notes the time: attribute bit 6
//! says that the base timestamp is it, and the records' deltas count from there.
//!
//! Kept records are copied byte for byte, unless their timestamp deltas change. Base timestamp
//! and codec stay, the largest timestamp is that of the records left. Source: Kafka,
//! `MemoryRecords.filterTo`; it makes the base timestamp that of the first record left.

use crate::batch::{self, BatchView, HEADER_BYTES, Header};
use crate::compaction::offset_map::OffsetMap;
use crate::compression::{self, Codec};
use crate::records::{Record, Records, read_varint, read_varlong, varlong_size, write_varlong};

/// Largest content of one batch that is opened.
pub(crate) const CONTENT_BYTES_MAX: usize = 512 << 20;

/// What is left of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// All of it, as it is.
    Whole,
    /// These bytes.
    Rewritten(Vec<u8>),
    /// Nothing.
    Nothing,
}

/// What decides over records.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a> {
    /// Last offsets of the keys in the part of the log that is being cleaned.
    pub last_offsets: &'a OffsetMap,
    /// The time of the cleaning.
    pub now_ms: i64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
}

impl Rules<'_> {
    fn keeps(&self, record: &Record<'_>, offset: i64, are_deletes_due: bool) -> bool {
        let Some(key) = record.key else {
            return false;
        };
        let is_last = self.last_offsets.get(key).is_none_or(|last| offset >= last);
        is_last && !(record.value.is_none() && are_deletes_due)
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

/// Filters a data batch. `has_to_stay`: at least its header; of an aborted one no more than it.
///
/// # Errors
/// What is wrong with the batch's content.
pub(crate) fn filter_data(
    batch: &BatchView<'_>,
    is_aborted: bool,
    has_to_stay: bool,
    rules: &Rules<'_>,
) -> Result<Left, String> {
    if is_aborted || batch.record_count() == 0 {
        return Ok(without_records(batch, has_to_stay));
    }
    let mut opened = Vec::new();
    let content = content_of(batch, &mut opened)?;
    let are_deletes_due = rules.is_due(batch);
    let mut kept: Vec<&[u8]> = Vec::with_capacity(batch.record_count() as usize);
    let mut has_tombstones = false;
    let mut max_timestamp = -1;
    for_each_record(content, batch.record_count(), |bytes, record| {
        let offset = batch.base_offset() + i64::from(record.offset_delta);
        if rules.keeps(record, offset, are_deletes_due) {
            kept.push(bytes);
            has_tombstones |= record.value.is_none();
            max_timestamp = max_timestamp.max(batch.base_timestamp() + record.timestamp_delta);
        }
    })?;
    if batch.is_log_append_time() {
        max_timestamp = batch.max_timestamp();
    }
    if kept.is_empty() {
        return Ok(without_records(batch, has_to_stay));
    }
    let is_horizon_new = has_tombstones && batch.delete_horizon_ms().is_none();
    if kept.len() == batch.record_count() as usize && !is_horizon_new {
        return Ok(Left::Whole);
    }
    let horizon_ms = is_horizon_new.then(|| rules.horizon_ms());
    rewrite(batch, &kept, max_timestamp, horizon_ms).map(Left::Rewritten)
}

/// Filters a marker. `is_idle`: of its transaction nothing else is left. `has_to_stay`: it is
/// all that tells its producer's epoch, or where the log ends.
///
/// A marker is kept whole or not at all: an empty one would not tell the epoch to a replay.
///
/// # Errors
/// What is wrong with the batch's content.
pub(crate) fn filter_marker(
    batch: &BatchView<'_>,
    is_idle: bool,
    has_to_stay: bool,
    rules: &Rules<'_>,
) -> Result<Left, String> {
    if !is_idle {
        return Ok(Left::Whole);
    }
    if batch.delete_horizon_ms().is_none() && batch.record_count() > 0 {
        let mut opened = Vec::new();
        let content = content_of(batch, &mut opened)?;
        let mut kept = Vec::new();
        for_each_record(content, batch.record_count(), |bytes, _| kept.push(bytes))?;
        let horizon_ms = Some(rules.horizon_ms());
        return rewrite(batch, &kept, batch.max_timestamp(), horizon_ms).map(Left::Rewritten);
    }
    let is_due = rules.is_due(batch) || batch.record_count() == 0;
    Ok(if is_due && !has_to_stay {
        Left::Nothing
    } else {
        Left::Whole
    })
}

/// The uncompressed records of a batch; `opened` holds them if they had to be opened.
///
/// # Errors
/// What the codec says.
pub(crate) fn content_of<'a>(
    batch: &BatchView<'a>,
    opened: &'a mut Vec<u8>,
) -> Result<&'a [u8], String> {
    let codec = batch.codec().map_err(|error| error.to_string())?;
    if codec == Codec::None {
        return Ok(batch.records());
    }
    opened.clear();
    compression::decompress(codec, batch.records(), opened, CONTENT_BYTES_MAX)
        .map_err(|error| error.to_string())?;
    Ok(opened)
}

/// Calls `see` with every record and its bytes, length included.
fn for_each_record<'a>(
    content: &'a [u8],
    count: i32,
    mut see: impl FnMut(&'a [u8], &Record<'a>),
) -> Result<(), String> {
    let mut from = content;
    for index in 0..count {
        let mut body = from;
        let length = read_varint(&mut body).and_then(|length| usize::try_from(length).ok());
        let end = length.map(|length| from.len() - body.len() + length);
        let (bytes, rest) = end
            .and_then(|end| from.split_at_checked(end))
            .ok_or_else(|| format!("record {index} of the batch reaches over its end"))?;
        let record = Records::new(bytes, 1).next().expect("one was asked for");
        see(bytes, &record.map_err(|error| error.to_string())?);
        from = rest;
    }
    Ok(())
}

fn without_records(batch: &BatchView<'_>, has_to_stay: bool) -> Left {
    if !has_to_stay {
        return Left::Nothing;
    }
    if batch.record_count() == 0 {
        return Left::Whole;
    }
    let header = Header {
        attributes: batch::without_content(batch.attributes()),
        base_timestamp: batch.max_timestamp(),
        record_count: 0,
        ..*batch.header()
    };
    Left::Rewritten(seal(header, vec![0; HEADER_BYTES]))
}

/// The batch with the kept records only; with a new horizon, their timestamps count from it.
fn rewrite(
    batch: &BatchView<'_>,
    kept: &[&[u8]],
    max_timestamp: i64,
    horizon_ms: Option<i64>,
) -> Result<Vec<u8>, String> {
    let mut header = Header {
        max_timestamp,
        record_count: kept.len() as i32,
        ..*batch.header()
    };
    let mut content = Vec::with_capacity(batch.records().len());
    match horizon_ms {
        None => kept
            .iter()
            .for_each(|bytes| content.extend_from_slice(bytes)),
        Some(horizon_ms) => {
            header.attributes = batch::with_delete_horizon(header.attributes);
            header.base_timestamp = horizon_ms;
            let earlier_by = batch.base_timestamp().wrapping_sub(horizon_ms);
            for &bytes in kept {
                shift_timestamp(bytes, earlier_by, &mut content);
            }
        }
    }
    let codec = batch.codec().map_err(|error| error.to_string())?;
    let mut bytes = vec![0; HEADER_BYTES];
    compression::compress(codec, &content, &mut bytes).map_err(|error| error.to_string())?;
    Ok(seal(header, bytes))
}

/// Appends a record whose timestamp delta is larger by `by`.
fn shift_timestamp(record: &[u8], by: i64, output: &mut Vec<u8>) {
    const READ: &str = "the record was read before";
    let mut body = record;
    read_varint(&mut body).expect(READ);
    let (attributes, mut rest) = body.split_first().expect(READ);
    let timestamp_delta = read_varlong(&mut rest).expect(READ).wrapping_add(by);
    write_varlong(
        (1 + varlong_size(timestamp_delta) + rest.len()) as i64,
        output,
    );
    output.push(*attributes);
    write_varlong(timestamp_delta, output);
    output.extend_from_slice(rest);
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
mod tests {
    use super::*;
    use crate::builder::{BatchBuilder, encode_marker};
    use crate::gate::Marker;

    const NOW_MS: i64 = 5000;

    /// Rules by which the keys given are superseded at offset 100.
    fn with_rules<T>(superseded: &[&[u8]], now_ms: i64, run: impl FnOnce(&Rules<'_>) -> T) -> T {
        let mut last_offsets = OffsetMap::new(1 << 16, 0.9, 100);
        for key in superseded {
            assert!(last_offsets.put(key, 100));
        }
        run(&Rules {
            last_offsets: &last_offsets,
            now_ms,
            delete_retention_ms: 1000,
        })
    }

    /// Five records of one producer at offsets 40–44; the last one is a tombstone.
    fn five(codec: Codec) -> Vec<u8> {
        let mut builder = BatchBuilder::new(codec);
        (
            builder.producer_id,
            builder.producer_epoch,
            builder.base_sequence,
        ) = (7, 3, 11);
        for nth in 0..5u8 {
            let value = (nth < 4).then_some(&b"value"[..]);
            let headers: &[(&[u8], Option<&[u8]>)] = &[(b"h", Some(b"1")), (b"i", None)];
            builder.push(2000 + i64::from(nth), Some(&[nth]), value, headers);
        }
        let mut bytes = builder.seal().unwrap();
        batch::stamp_offset(&mut bytes, 40, 2);
        bytes
    }

    fn rewritten(left: Result<Left, String>) -> Vec<u8> {
        match left {
            Ok(Left::Rewritten(bytes)) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// (offset, timestamp, key, value, bytes of headers) of each record.
    type Seen = (i64, i64, Vec<u8>, Option<Vec<u8>>, Vec<u8>);

    fn records(bytes: &[u8]) -> Vec<Seen> {
        let batch = BatchView::parse(bytes).unwrap();
        batch.validate().unwrap();
        let mut opened = Vec::new();
        let content = content_of(&batch, &mut opened).unwrap();
        Records::new(content, batch.record_count())
            .map(|record| {
                let record = record.unwrap();
                (
                    batch.base_offset() + i64::from(record.offset_delta),
                    batch.base_timestamp() + record.timestamp_delta,
                    record.key.unwrap().to_vec(),
                    record.value.map(<[u8]>::to_vec),
                    record.headers.bytes().to_vec(),
                )
            })
            .collect()
    }

    #[test]
    fn a_batch_that_keeps_all_is_not_rewritten() {
        let mut builder = BatchBuilder::new(Codec::Zstd);
        builder.push(1, Some(b"a"), Some(b"v"), &[]);
        let bytes = builder.seal().unwrap();
        let batch = BatchView::parse(&bytes).unwrap();
        let left = with_rules(&[], NOW_MS, |rules| {
            filter_data(&batch, false, false, rules)
        });
        assert_eq!(left, Ok(Left::Whole));
    }

    #[test]
    fn a_thinned_batch_keeps_offsets_sequences_and_everything_of_its_records() {
        for codec in [
            Codec::None,
            Codec::Gzip,
            Codec::Snappy,
            Codec::Lz4,
            Codec::Zstd,
        ] {
            let bytes = five(codec);
            let batch = BatchView::parse(&bytes).unwrap();
            let left = with_rules(&[&[0], &[2], &[4]], NOW_MS, |rules| {
                rewritten(filter_data(&batch, false, false, rules))
            });
            let thinned = BatchView::parse(&left).unwrap();
            let expected = Header {
                length: thinned.header().length,
                crc: thinned.crc(),
                record_count: 2,
                max_timestamp: 2003,
                ..*batch.header()
            };
            assert_eq!(*thinned.header(), expected);
            let all = records(&bytes);
            assert_eq!(records(&left), [all[1].clone(), all[3].clone()]);
        }
    }

    #[test]
    fn a_tombstone_gets_a_horizon_that_stays_and_goes_once_it_is_reached() {
        let bytes = five(Codec::None);
        let batch = BatchView::parse(&bytes).unwrap();
        let first = with_rules(&[], NOW_MS, |rules| {
            rewritten(filter_data(&batch, false, false, rules))
        });
        assert_eq!(records(&first), records(&bytes));
        let dated = BatchView::parse(&first).unwrap();
        assert_eq!(dated.delete_horizon_ms(), Some(NOW_MS + 1000));
        assert_eq!(dated.max_timestamp(), 2004);
        let before = with_rules(&[], NOW_MS + 999, |rules| {
            filter_data(&dated, false, false, rules)
        });
        assert_eq!(before, Ok(Left::Whole));
        let then = with_rules(&[], NOW_MS + 1000, |rules| {
            rewritten(filter_data(&dated, false, false, rules))
        });
        assert_eq!(records(&then), records(&bytes)[..4]);
        let still_dated = BatchView::parse(&then).unwrap();
        assert_eq!(still_dated.delete_horizon_ms(), Some(NOW_MS + 1000));
    }

    #[test]
    fn a_batch_without_records_is_a_bare_header_or_nothing() {
        let bytes = five(Codec::Lz4);
        let batch = BatchView::parse(&bytes).unwrap();
        let left = with_rules(&[], NOW_MS, |rules| {
            assert_eq!(filter_data(&batch, true, false, rules), Ok(Left::Nothing));
            rewritten(filter_data(&batch, true, true, rules))
        });
        let empty = BatchView::parse(&left).unwrap();
        empty.validate().unwrap();
        assert_eq!((left.len(), empty.record_count()), (HEADER_BYTES, 0));
        assert_eq!((empty.base_offset(), empty.last_offset()), (40, 44));
        assert_eq!((empty.base_sequence(), empty.producer_epoch()), (11, 3));
        assert_eq!(empty.codec(), Ok(Codec::None));
        let again = with_rules(&[], NOW_MS, |rules| filter_data(&empty, false, true, rules));
        assert_eq!(again, Ok(Left::Whole));
        let gone = with_rules(&[], NOW_MS, |rules| {
            filter_data(&empty, false, false, rules)
        });
        assert_eq!(gone, Ok(Left::Nothing));
    }

    #[test]
    fn a_marker_of_nothing_gets_a_horizon_and_goes_unless_its_epoch_is_needed() {
        let bytes = encode_marker(&Marker {
            producer_id: 7,
            producer_epoch: 3,
            coordinator_epoch: 5,
            is_commit: true,
            timestamp_ms: 1500,
        });
        let batch = BatchView::parse(&bytes).unwrap();
        let needed = with_rules(&[], NOW_MS, |rules| {
            filter_marker(&batch, false, false, rules)
        });
        assert_eq!(needed, Ok(Left::Whole));
        let left = with_rules(&[], NOW_MS, |rules| {
            rewritten(filter_marker(&batch, true, false, rules))
        });
        let dated = BatchView::parse(&left).unwrap();
        dated.validate().unwrap();
        assert_eq!(dated.delete_horizon_ms(), Some(NOW_MS + 1000));
        assert_eq!(
            crate::builder::decode_marker(dated.records()),
            Some((true, 5))
        );
        let at = |now_ms: i64, has_to_stay: bool| {
            with_rules(&[], now_ms, |rules| {
                filter_marker(&dated, true, has_to_stay, rules)
            })
        };
        assert_eq!(at(NOW_MS + 999, false), Ok(Left::Whole));
        assert_eq!(at(NOW_MS + 1000, true), Ok(Left::Whole));
        assert_eq!(at(NOW_MS + 1000, false), Ok(Left::Nothing));
    }

    #[test]
    fn records_that_reach_over_the_end_are_damage() {
        let mut bytes = five(Codec::None);
        bytes.truncate(bytes.len() - 1);
        let mut header = *BatchView::parse(&five(Codec::None)).unwrap().header();
        header.length -= 1;
        header.write(&mut bytes);
        let batch = BatchView::parse(&bytes).unwrap();
        let left = with_rules(&[], NOW_MS, |rules| {
            filter_data(&batch, false, false, rules)
        });
        assert!(left.unwrap_err().contains("record 4"));
    }
}
