//! `compression.type`: clients' batches are stored under their topic's codec, with all else as it
//! was.

mod common;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use common::{CLIENT, SMALL, TestProducerState, marker, try_open};
use txn_log::builder::BatchBuilder;
use txn_log::compression::{Compression, decompress};
use txn_log::content::AppendBudget;
use txn_log::producer_state::AdmitResult;
use txn_log::{AppendError, Inspected, PartitionLog, Settings};
use txn_protocol::batch::{BatchView, Batches, Codec, HEADER_BYTES};
use txn_protocol::codes;

const CODECS: [Codec; 5] = [
    Codec::None,
    Codec::Gzip,
    Codec::Snappy,
    Codec::Lz4,
    Codec::Zstd,
];

/// Settings of a topic with this `compression.type`, at the codec's default level.
fn under(codec: Codec) -> Settings {
    Settings {
        compression: Some(Compression::of(codec)),
        segment_bytes: 1 << 30,
        ..SMALL
    }
}

fn open(directory: &Path, settings: Settings) -> (PartitionLog, Arc<TestProducerState>) {
    try_open(directory, settings, false).unwrap()
}

/// A transactional batch whose largest timestamp is neither its first nor its last.
fn batch(codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec);
    (builder.producer_id, builder.producer_epoch) = (7, 3);
    (builder.base_sequence, builder.is_transactional) = (40, true);
    let value = vec![9; 50_000];
    for timestamp in [1000, 3000, 2000] {
        builder.push(timestamp, Some(b"k"), Some(&value), &[(b"h", None)]);
    }
    builder.seal().unwrap()
}

/// A batch of one codec, whose compressed records are these bytes.
fn around(codec: Codec, packed: &[u8]) -> Vec<u8> {
    let mut bytes = batch(codec);
    bytes.truncate(HEADER_BYTES);
    bytes.extend_from_slice(packed);
    let length = (bytes.len() - 12) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn content(batch: &BatchView<'_>) -> Vec<u8> {
    let mut content = Vec::new();
    let codec = batch.codec().unwrap();
    decompress(codec, batch.records(), &mut content, usize::MAX).unwrap();
    content
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_batch_is_stored_under_its_topics_codec_and_all_else_stays() {
    for (sent, wanted) in CODECS
        .iter()
        .flat_map(|&one| CODECS.map(|other| (one, other)))
    {
        let root = tempfile::tempdir().unwrap();
        let (log, producer_state) = open(root.path(), under(wanted));
        let original = batch(sent);
        log.append(CLIENT, &mut batch(Codec::None)).unwrap();
        let appended = log.append(CLIENT, &mut original.clone()).unwrap();
        assert_eq!(appended.base_offset, 3);
        let stored = log.read(3, u64::MAX).unwrap();
        let (before, after) = (
            BatchView::parse(&original).unwrap(),
            BatchView::parse(&stored).unwrap(),
        );
        after.validate().unwrap();
        assert_eq!(after.codec(), Ok(wanted), "{sent:?}");
        assert_eq!(content(&after), content(&before), "{sent:?} to {wanted:?}");
        assert_eq!(
            (
                after.base_offset(),
                after.last_offset_delta(),
                after.record_count()
            ),
            (3, 2, 3)
        );
        assert_eq!(
            (after.base_timestamp(), after.max_timestamp()),
            (1000, 3000)
        );
        assert_eq!(
            (
                after.producer_id(),
                after.producer_epoch(),
                after.base_sequence()
            ),
            (7, 3, 40)
        );
        assert!(after.is_transactional() && !after.is_control() && !after.is_log_append_time());
        assert_eq!(
            producer_state.candidates.lock().unwrap()[1].base_sequence,
            40
        );
        assert_eq!(
            log.offset_for_timestamp(2500, i64::MAX).unwrap(),
            Some((1, 3000))
        );
    }
}

#[test]
fn a_batch_that_has_its_topics_codec_keeps_its_bytes() {
    for codec in CODECS {
        let root = tempfile::tempdir().unwrap();
        let settings = Settings {
            compression: Some(Compression { codec, level: 1 }),
            ..under(codec)
        };
        let (log, _) = open(root.path(), settings);
        let original = batch(codec);
        log.append(CLIENT, &mut original.clone()).unwrap();
        assert_eq!(
            log.read(0, u64::MAX).unwrap()[21..],
            original[21..],
            "{codec:?}"
        );
    }
}

#[test]
fn a_level_is_kept_to() {
    let mut builder = BatchBuilder::new(Codec::None);
    let value: Vec<u8> = (0..200_000u64)
        .flat_map(|n| ((n * n / 7) as u32).to_be_bytes())
        .collect();
    builder.push(1, None, Some(&value), &[]);
    let original = builder.seal().unwrap();
    for (codec, low, high) in [(Codec::Gzip, 1, 9), (Codec::Zstd, 1, 19)] {
        let [large, small] = [low, high].map(|level| {
            let root = tempfile::tempdir().unwrap();
            let compression = Some(Compression { codec, level });
            let max_message_bytes = 1 << 20;
            let settings = Settings {
                compression,
                max_message_bytes,
                ..under(codec)
            };
            let (log, _) = open(root.path(), settings);
            log.append(CLIENT, &mut original.clone()).unwrap();
            log.read(0, u64::MAX).unwrap().len()
        });
        assert!(small < large, "{codec:?}: {small} and {large}");
    }
}

#[test]
fn log_append_time_is_stamped_on_a_repacked_batch() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        log_append_time: true,
        ..under(Codec::Zstd)
    };
    let (log, _) = open(root.path(), settings);
    let appended = log.append(CLIENT, &mut batch(Codec::Gzip)).unwrap();
    let stored = log.read(0, u64::MAX).unwrap();
    let view = BatchView::parse(&stored).unwrap();
    view.validate().unwrap();
    assert!(view.is_log_append_time() && view.codec() == Ok(Codec::Zstd));
    assert_eq!(view.max_timestamp(), appended.log_append_time);
    let found = log.offset_for_timestamp(appended.log_append_time, i64::MAX);
    assert_eq!(found.unwrap(), Some((0, appended.log_append_time)));
}

#[test]
fn markers_stay_uncompressed() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), under(Codec::Gzip));
    log.append(CLIENT, &mut batch(Codec::None)).unwrap();
    log.append_marker(&marker(7, true)).unwrap();
    let stored = log.read(0, u64::MAX).unwrap();
    let codecs: Vec<_> = Batches::new(&stored)
        .map(|batch| (batch.codec().unwrap(), batch.is_control()))
        .collect();
    assert_eq!(codecs, [(Codec::Gzip, false), (Codec::None, true)]);
}

#[test]
fn a_batch_that_grows_beyond_max_message_bytes_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        max_message_bytes: 100_000,
        ..under(Codec::None)
    };
    let (log, _) = open(root.path(), settings);
    let mut small = batch(Codec::Zstd);
    assert!(small.len() < 1000);
    let refused = log.append(CLIENT, &mut small).unwrap_err();
    assert_eq!(refused.code(), codes::MESSAGE_TOO_LARGE);
    assert!(
        refused
            .to_string()
            .contains("more than max.message.bytes=100000")
    );
    assert_eq!(log.state().log_end_offset, 0);
}

#[test]
fn nothing_is_repacked_without_being_inspected_and_a_result_outlives_its_settings() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state) = open(root.path(), under(Codec::Lz4));
    let mut bytes = batch(Codec::None);
    let (mut inspected, mut budget) = (None, AppendBudget::MAX);
    let refused = log.append_within(CLIENT, &mut bytes, &mut inspected, &mut budget);
    assert!(matches!(refused, Err(AppendError::Uninspected)));
    let view = BatchView::parse(&bytes).unwrap();
    assert!(log.repacks(&view));
    inspected = Some(log.inspect(CLIENT, &view, &mut 0, &mut 0).unwrap());
    assert!(matches!(
        &inspected,
        Some(Inspected {
            repacked: Some(_),
            ..
        })
    ));
    log.configure(under(Codec::Gzip));
    *producer_state.next_verdict.lock().unwrap() = Some(AdmitResult::Join);
    let joins = log.append_within(CLIENT, &mut bytes, &mut inspected, &mut budget);
    assert!(matches!(joins, Err(AppendError::Join)));
    log.append_within(CLIENT, &mut bytes, &mut inspected, &mut budget)
        .unwrap();
    let stored = log.read(0, u64::MAX).unwrap();
    assert_eq!(BatchView::parse(&stored).unwrap().codec(), Ok(Codec::Lz4));
}

#[test]
fn a_batch_with_a_wrong_checksum_is_refused_however_it_would_be_stored() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), under(Codec::Zstd));
    let mut damaged = batch(Codec::None);
    let inspected = log
        .inspect(CLIENT, &BatchView::parse(&damaged).unwrap(), &mut 0, &mut 0)
        .unwrap();
    damaged[17] ^= 1;
    let refused = log.append(CLIENT, &mut damaged.clone()).unwrap_err();
    assert_eq!(refused.code(), codes::CORRUPT_MESSAGE);
    let mut budget = AppendBudget::MAX;
    let refused = log.append_within(CLIENT, &mut damaged, &mut Some(inspected), &mut budget);
    assert_eq!(refused.unwrap_err().code(), codes::CORRUPT_MESSAGE);
}

/// librdkafka reads the first gzip member alone. A consumer of it made no progress beyond a batch
/// of two, and reported nothing.
#[test]
fn streams_that_some_clients_read_in_part_are_stored_as_one() {
    let plain = batch(Codec::None);
    let content_sent = content(&BatchView::parse(&plain).unwrap());
    let (first, second) = content_sent.split_at(30);
    let joined = around(Codec::Gzip, &[gzip(first), gzip(second)].concat());
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), SMALL);
    log.append(CLIENT, &mut joined.clone()).unwrap();
    let stored = log.read(0, u64::MAX).unwrap();
    let view = BatchView::parse(&stored).unwrap();
    view.validate().unwrap();
    assert_eq!(view.codec(), Ok(Codec::Gzip));
    let mut one = flate2::read::GzDecoder::new(view.records());
    let mut read = Vec::new();
    std::io::Read::read_to_end(&mut one, &mut read).unwrap();
    assert_eq!(read, content_sent);
}
