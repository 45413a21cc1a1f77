//! Batches, records and codecs as bytes: known ones, round trips, and rubbish.

use proptest::prelude::*;
use txn_log::builder::{BatchBuilder, decode_marker, encode_marker};
use txn_log::compression::{CompressionError, compress, decompress};
use txn_log::content;
use txn_log::producer_state::Marker;
use txn_log::record_rules::RecordRules;
use txn_protocol::batch::{BatchError, BatchView, Batches, Codec, HEADER_BYTES};
use txn_protocol::records::{Records, read_varint, read_varlong, varlong_size, write_varlong};

const CODECS: [Codec; 5] = [
    Codec::None,
    Codec::Gzip,
    Codec::Snappy,
    Codec::Lz4,
    Codec::Zstd,
];

/// One record "v" under key "k" with header h=1, at time 1000, of producer 7 epoch 2 sequence 9,
/// written out by hand from the protocol guide.
fn golden() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&[0; 8]); // base offset
    bytes.extend_from_slice(&[0, 0, 0, 62]); // length: 49 of header, 13 of records
    bytes.extend_from_slice(&[0xff; 4]); // leader epoch -1
    bytes.push(2); // magic
    bytes.extend_from_slice(&[0; 4]); // crc, below
    bytes.extend_from_slice(&[0, 0x10]); // attributes: transactional
    bytes.extend_from_slice(&[0, 0, 0, 0]); // last offset delta
    bytes.extend_from_slice(&1000i64.to_be_bytes()); // base timestamp
    bytes.extend_from_slice(&1000i64.to_be_bytes()); // max timestamp
    bytes.extend_from_slice(&7i64.to_be_bytes());
    bytes.extend_from_slice(&[0, 2]);
    bytes.extend_from_slice(&[0, 0, 0, 9]);
    bytes.extend_from_slice(&[0, 0, 0, 1]); // one record
    bytes.extend_from_slice(&[24, 0, 0, 0]); // length 12, attributes, both deltas
    bytes.extend_from_slice(&[2, b'k', 2, b'v']);
    bytes.extend_from_slice(&[2, 2, b'h', 2, b'1']); // one header
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

#[test]
fn a_batch_is_the_bytes_of_the_protocol_guide() {
    let mut builder = BatchBuilder::new(Codec::None);
    (
        builder.producer_id,
        builder.producer_epoch,
        builder.base_sequence,
    ) = (7, 2, 9);
    builder.is_transactional = true;
    builder.push(1000, Some(b"k"), Some(b"v"), &[(b"h", Some(b"1"))]);
    assert_eq!(builder.seal().unwrap(), golden());
}

#[test]
fn the_fields_of_a_batch_are_read_back() {
    let bytes = golden();
    let batch = BatchView::parse(&bytes).unwrap();
    batch.validate().unwrap();
    assert_eq!(
        (batch.size(), batch.magic(), batch.leader_epoch()),
        (74, 2, -1)
    );
    assert_eq!(
        (
            batch.base_offset(),
            batch.last_offset(),
            batch.record_count()
        ),
        (0, 0, 1)
    );
    assert_eq!(
        (batch.base_timestamp(), batch.max_timestamp()),
        (1000, 1000)
    );
    assert_eq!(
        (
            batch.producer_id(),
            batch.producer_epoch(),
            batch.base_sequence()
        ),
        (7, 2, 9)
    );
    assert!(batch.is_transactional() && !batch.is_control() && !batch.is_log_append_time());
    assert_eq!(batch.codec(), Ok(Codec::None));
    let record = Records::new(batch.records(), 1).next().unwrap().unwrap();
    assert_eq!(
        (record.key, record.value),
        (Some(&b"k"[..]), Some(&b"v"[..]))
    );
    let headers: Vec<_> = record.headers.collect();
    assert_eq!(headers, [(&b"h"[..], Some(&b"1"[..]))]);
}

#[test]
fn a_marker_is_the_bytes_kafka_writes() {
    let marker = Marker {
        producer_id: 7,
        producer_epoch: 2,
        coordinator_epoch: 0x0102,
        is_commit: true,
        timestamp_ms: 1000,
    };
    let bytes = encode_marker(&marker);
    // length 16, attributes, deltas, key (length 4): version 0, type 1 (commit);
    // value (length 6): version 0, coordinator epoch; no headers.
    let record = [32, 0, 0, 0, 8, 0, 0, 0, 1, 12, 0, 0, 0, 0, 1, 2, 0];
    assert_eq!(bytes.len(), HEADER_BYTES + record.len());
    assert_eq!(bytes[61..], record);
    assert_eq!(bytes[21..23], [0, 0x30]); // transactional, control
    assert_eq!(bytes[53..57], [0xff; 4]); // base sequence -1
    BatchView::parse(&bytes).unwrap().validate().unwrap();
    assert_eq!(decode_marker(&record), Some((true, 0x0102)));
}

#[test]
fn the_checksum_is_crc_32c() {
    // The check value of the polynomial, and not the one of CRC-32 (0xcbf43926).
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn parsing_says_what_is_missing() {
    let bytes = golden();
    let error = BatchView::parse(&bytes[..40]).unwrap_err();
    assert_eq!(
        error,
        BatchError::Truncated {
            needed: 61,
            available: 40
        }
    );
    let error = BatchView::parse(&bytes[..70]).unwrap_err();
    assert_eq!(
        error,
        BatchError::Truncated {
            needed: 74,
            available: 70
        }
    );
    let mut short = bytes.clone();
    short[8..12].copy_from_slice(&48i32.to_be_bytes());
    assert_eq!(
        BatchView::parse(&short).unwrap_err(),
        BatchError::Length { length: 48 }
    );
    let mut old = bytes;
    old[16] = 1;
    assert_eq!(
        BatchView::parse(&old).unwrap_err(),
        BatchError::Magic { magic: 1 }
    );
}

#[test]
fn batches_stop_at_a_partial_one() {
    let two = [golden(), golden()].concat();
    let mut batches = Batches::new(&two[..two.len() - 1]);
    assert_eq!(batches.by_ref().count(), 1);
    assert_eq!(batches.rest().len(), 73);
}

#[test]
fn varints_are_zigzag_groups_of_seven_bits() {
    let known: [(i64, &[u8]); 6] = [
        (0, &[0]),
        (-1, &[1]),
        (1, &[2]),
        (64, &[0x80, 0x01]),
        (-65, &[0x81, 0x01]),
        (
            i64::MIN,
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        ),
    ];
    for (value, bytes) in known {
        let mut written = Vec::new();
        write_varlong(value, &mut written);
        assert_eq!(written, bytes);
        assert_eq!(read_varlong(&mut &*written), Some(value));
    }
}

#[test]
fn varints_that_are_cut_or_too_long_are_refused() {
    assert_eq!(read_varint(&mut &[0x80u8, 0x80][..]), None);
    assert_eq!(
        read_varint(&mut &[0xff, 0xff, 0xff, 0xff, 0x0f][..]),
        Some(i32::MIN)
    );
    assert_eq!(read_varint(&mut &[0xff, 0xff, 0xff, 0xff, 0x1f][..]), None);
    assert_eq!(
        read_varint(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00][..]),
        None
    );
    assert_eq!(read_varlong(&mut &[0xff; 10][..]), None);
}

#[test]
fn records_out_of_place_are_refused() {
    let mut builder = BatchBuilder::new(Codec::None);
    builder.push(0, None, Some(b"a"), &[]);
    builder.push(0, None, Some(b"b"), &[]);
    let mut batch = builder.seal().unwrap();
    let inspect = |batch: &[u8]| {
        let batch = BatchView::parse(batch).unwrap();
        content::inspect(&batch, &RecordRules::NONE, usize::MAX, &mut 0, &mut 0).map(|_| ())
    };
    assert!(inspect(&batch).is_ok());
    let second_delta = batch.len() - 5; // delta, null key, length, value, no headers
    assert_eq!(batch[second_delta], 2);
    batch[second_delta] = 0;
    let refused = inspect(&batch).unwrap_err().to_string();
    assert!(refused.starts_with("record 1 of the batch"), "{refused}");
}

#[test]
fn snappy_is_read_bare_and_in_xerial_frames_joined_or_not() {
    let content: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let bare = snap::raw::Encoder::new().compress_vec(&content).unwrap();
    let mut opened = Vec::new();
    decompress(Codec::Snappy, &bare, &mut opened, usize::MAX).unwrap();
    assert_eq!(opened, content);
    let mut framed = Vec::new();
    compress(Codec::Snappy, &content, &mut framed).unwrap();
    assert_eq!(
        framed[..16],
        [
            0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1
        ]
    );
    let joined = [framed.clone(), framed].concat();
    opened.clear();
    decompress(Codec::Snappy, &joined, &mut opened, usize::MAX).unwrap();
    assert_eq!(opened, [content.clone(), content].concat());
}

#[test]
fn lz4_frames_have_independent_blocks() {
    let mut framed = Vec::new();
    compress(Codec::Lz4, &vec![7; 200_000], &mut framed).unwrap();
    assert_eq!(framed[..4], 0x184d_2204u32.to_le_bytes());
    assert_eq!(framed[4] & 0xe0, 0x60, "version 01, blocks independent");
}

#[test]
fn content_beyond_the_cap_is_refused() {
    let content = vec![0; 100_000];
    for codec in CODECS {
        let mut compressed = Vec::new();
        compress(codec, &content, &mut compressed).unwrap();
        let mut opened = Vec::new();
        let error = decompress(codec, &compressed, &mut opened, 99_999).unwrap_err();
        assert!(
            matches!(error, CompressionError::TooLarge { cap: 99_999 }),
            "{codec:?}: {error}"
        );
        assert!(opened.capacity() < 1 << 20, "{codec:?}");
        opened.clear();
        decompress(codec, &compressed, &mut opened, 100_000).unwrap();
        assert_eq!(opened, content);
    }
}

#[test]
fn a_snappy_block_that_lies_about_its_size_allocates_nothing() {
    let lie = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]; // 4 GiB in seven bytes
    let mut opened = Vec::new();
    assert!(decompress(Codec::Snappy, &lie, &mut opened, usize::MAX).is_err());
    assert_eq!(opened.capacity(), 0);
}

type Sample = (
    i64,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Vec<(Vec<u8>, Option<Vec<u8>>)>,
);

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..200);
    let nullable = || prop::option::of(bytes());
    let headers = prop::collection::vec((bytes(), nullable()), 0..3);
    prop::collection::vec((0i64..1 << 50, nullable(), nullable(), headers), 1..20)
}

fn build(codec: Codec, samples: &[Sample]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec);
    for (timestamp, key, value, headers) in samples {
        let headers: Vec<_> = headers
            .iter()
            .map(|(key, value)| (key.as_slice(), value.as_deref()))
            .collect();
        builder.push(*timestamp, key.as_deref(), value.as_deref(), &headers);
    }
    builder.seal().unwrap()
}

proptest! {
    #[test]
    fn what_is_built_is_read(samples in samples(), codec in 0u8..5) {
        let codec = Codec::from_id(codec).unwrap();
        let bytes = build(codec, &samples);
        let batch = BatchView::parse(&bytes).unwrap();
        batch.validate().unwrap();
        prop_assert_eq!(batch.size(), bytes.len());
        prop_assert_eq!(batch.codec(), Ok(codec));
        prop_assert_eq!(batch.max_timestamp(), samples.iter().map(|sample| sample.0).max().unwrap());
        let mut content = Vec::new();
        decompress(codec, batch.records(), &mut content, 1 << 20).unwrap();
        let mut read: Vec<Sample> = Vec::new();
        for (nth, record) in Records::new(&content, batch.record_count()).enumerate() {
            let record = record.unwrap();
            prop_assert_eq!(record.offset_delta as usize, nth);
            let headers = record.headers.map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)));
            read.push((
                batch.base_timestamp() + record.timestamp_delta,
                record.key.map(<[u8]>::to_vec),
                record.value.map(<[u8]>::to_vec),
                headers.collect(),
            ));
        }
        prop_assert_eq!(read, samples);
    }

    #[test]
    fn varints_round_trip(value in any::<i64>()) {
        let mut bytes = Vec::new();
        write_varlong(value, &mut bytes);
        prop_assert_eq!(bytes.len(), varlong_size(value));
        let mut rest = bytes.as_slice();
        prop_assert_eq!(read_varlong(&mut rest), Some(value));
        prop_assert!(rest.is_empty());
        let narrow = i32::try_from(value).ok();
        prop_assert_eq!(read_varint(&mut bytes.as_slice()), narrow);
    }

    #[test]
    fn a_flipped_bit_under_the_checksum_is_found(samples in samples(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = build(Codec::None, &samples);
        let covered = at.index(bytes.len() - 21);
        bytes[21 + covered] ^= 1 << bit;
        let found = BatchView::parse(&bytes).and_then(|batch| batch.validate());
        let is_found = matches!(found, Err(BatchError::Crc { .. }));
        prop_assert!(is_found);
    }

    #[test]
    fn rubbish_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..400), count in any::<i32>()) {
        for batch in Batches::new(&bytes) {
            let _ = batch.validate();
        }
        let _ = Records::new(&bytes, count).count();
        let _ = decode_marker(&bytes);
        for codec in CODECS {
            let _ = decompress(codec, &bytes, &mut Vec::new(), 1 << 16);
        }
    }

    #[test]
    fn a_damaged_batch_with_a_right_checksum_is_survived(
        samples in samples(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = build(Codec::None, &samples);
        for (at, value) in changes {
            let at = 17 + at.index(bytes.len() - 17);
            bytes[at] = value;
        }
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        let batch = BatchView::parse(&bytes).unwrap();
        let _ = (batch.validate(), batch.codec(), batch.last_offset());
        let inspected = content::inspect(&batch, &RecordRules::NONE, usize::MAX, &mut 0, &mut 0);
        let iterated = Records::new(batch.records(), batch.record_count());
        let is_read = iterated.clone().all(|record| record.is_ok());
        let in_order = iterated.flatten().zip(0..).all(|(record, nth)| record.offset_delta == nth);
        let is_plain = batch.codec() == Ok(Codec::None);
        prop_assert!(!is_plain || inspected.is_ok() == (is_read && in_order));
    }

    #[test]
    fn damaged_compression_is_survived(
        content in prop::collection::vec(any::<u8>(), 0..5000),
        codec in 1u8..5,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let codec = Codec::from_id(codec).unwrap();
        let mut compressed = Vec::new();
        compress(codec, &content, &mut compressed).unwrap();
        for (at, value) in changes {
            let at = at.index(compressed.len());
            compressed[at] = value;
        }
        let mut opened = Vec::new();
        let _ = decompress(codec, &compressed, &mut opened, 1 << 16);
        prop_assert!(opened.len() <= (1 << 16) + 1);
    }
}
