//! Tests of the batches that a compaction keeps.

use super::*;
use crate::builder::{BatchBuilder, encode_marker};
use crate::producer_state::Marker;
use txn_protocol::records::Records;

const NOW_MS: i64 = 5000;

/// Rules by which the keys given are superseded at offset 100.
fn with_rules<T>(superseded: &[&[u8]], now_ms: i64, run: impl FnOnce(&RecordFilter<'_>) -> T) -> T {
    let mut last_offsets = OffsetMap::new(1 << 16, 0.9, 100);
    for key in superseded {
        let mut hasher = last_offsets.hasher();
        hasher.write(key);
        assert!(last_offsets.put(&hasher, 100));
    }
    run(&RecordFilter {
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

fn rewritten(left: Result<FilteredBatch, String>) -> Vec<u8> {
    match left {
        Ok(FilteredBatch::Rewritten(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

/// (offset, timestamp, key, value, bytes of headers) of each record.
type FilteredRecord = (i64, i64, Vec<u8>, Option<Vec<u8>>, Vec<u8>);

fn records(bytes: &[u8]) -> Vec<FilteredRecord> {
    let batch = BatchView::parse(bytes).unwrap();
    batch.validate().unwrap();
    let mut content = Vec::new();
    let codec = batch.codec().unwrap();
    compression::decompress(codec, batch.records(), &mut content, usize::MAX).unwrap();
    Records::new(&content, batch.record_count())
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
        filter_data(&batch, false, false, rules, &mut Vec::new())
    });
    assert_eq!(left, Ok(FilteredBatch::Whole));
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
            rewritten(filter_data(&batch, false, false, rules, &mut Vec::new()))
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
        rewritten(filter_data(&batch, false, false, rules, &mut Vec::new()))
    });
    assert_eq!(records(&first), records(&bytes));
    let dated = BatchView::parse(&first).unwrap();
    assert_eq!(dated.delete_horizon_ms(), Some(NOW_MS + 1000));
    assert_eq!(dated.max_timestamp(), 2004);
    let before = with_rules(&[], NOW_MS + 999, |rules| {
        filter_data(&dated, false, false, rules, &mut Vec::new())
    });
    assert_eq!(before, Ok(FilteredBatch::Whole));
    let then = with_rules(&[], NOW_MS + 1000, |rules| {
        rewritten(filter_data(&dated, false, false, rules, &mut Vec::new()))
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
        assert_eq!(
            filter_data(&batch, true, false, rules, &mut Vec::new()),
            Ok(FilteredBatch::Nothing)
        );
        rewritten(filter_data(&batch, true, true, rules, &mut Vec::new()))
    });
    let empty = BatchView::parse(&left).unwrap();
    empty.validate().unwrap();
    assert_eq!((left.len(), empty.record_count()), (HEADER_BYTES, 0));
    assert_eq!((empty.base_offset(), empty.last_offset()), (40, 44));
    assert_eq!((empty.base_sequence(), empty.producer_epoch()), (11, 3));
    assert_eq!(empty.codec(), Ok(Codec::None));
    let again = with_rules(&[], NOW_MS, |rules| {
        filter_data(&empty, false, true, rules, &mut Vec::new())
    });
    assert_eq!(again, Ok(FilteredBatch::Whole));
    let gone = with_rules(&[], NOW_MS, |rules| {
        filter_data(&empty, false, false, rules, &mut Vec::new())
    });
    assert_eq!(gone, Ok(FilteredBatch::Nothing));
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
        filter_marker(&batch, false, false, rules, &mut Vec::new())
    });
    assert_eq!(needed, Ok(FilteredBatch::Whole));
    let left = with_rules(&[], NOW_MS, |rules| {
        rewritten(filter_marker(&batch, true, false, rules, &mut Vec::new()))
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
            filter_marker(&dated, true, has_to_stay, rules, &mut Vec::new())
        })
    };
    assert_eq!(at(NOW_MS + 999, false), Ok(FilteredBatch::Whole));
    assert_eq!(at(NOW_MS + 1000, true), Ok(FilteredBatch::Whole));
    assert_eq!(at(NOW_MS + 1000, false), Ok(FilteredBatch::Nothing));
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
        filter_data(&batch, false, false, rules, &mut Vec::new())
    });
    assert!(left.unwrap_err().contains("record 4"));
}
