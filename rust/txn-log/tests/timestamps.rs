//! Records whose time is too far from the broker's, and records of before 1970.

mod common;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use common::{CLIENT, SMALL, try_open};
use txn_log::builder::BatchBuilder;
use txn_log::content::AppendBudget;
use txn_log::{AppendError, PartitionLog, Settings};
use txn_protocol::batch::{BatchView, Codec};
use txn_protocol::codes;

const HOUR_MS: i64 = 3_600_000;

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

fn open(directory: &Path, settings: Settings) -> PartitionLog {
    try_open(directory, settings, false).unwrap().0
}

fn batch(codec: Codec, timestamps: &[i64]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec);
    for timestamp in timestamps {
        builder.push(*timestamp, None, Some(b"value"), &[]);
    }
    builder.seal().unwrap()
}

/// The error code of an append, 0 if it is taken.
fn append(log: &PartitionLog, codec: Codec, timestamps: &[i64]) -> i16 {
    match log.append(CLIENT, &mut batch(codec, timestamps)) {
        Ok(_) => 0,
        Err(AppendError::InvalidRecords { code, .. }) => code,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_record_more_than_an_hour_ahead_is_refused_by_default() {
    let root = tempfile::tempdir().unwrap();
    let log = open(root.path(), SMALL);
    let ahead = now_ms() + HOUR_MS;
    assert_eq!(append(&log, Codec::None, &[0, ahead - 60_000]), 0);
    assert_eq!(
        append(&log, Codec::Lz4, &[0, ahead + 60_000, 0]),
        codes::INVALID_TIMESTAMP
    );
    assert_eq!(log.state().log_end_offset, 2);
}

#[test]
fn a_record_too_far_behind_is_refused_wherever_it_is_in_its_batch() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        timestamp_before_max_ms: HOUR_MS,
        ..SMALL
    };
    let log = open(root.path(), settings);
    let (now, old) = (now_ms(), now_ms() - 2 * HOUR_MS);
    for codec in [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ] {
        assert_eq!(
            append(&log, codec, &[now, old, now]),
            codes::INVALID_TIMESTAMP
        );
        assert_eq!(append(&log, codec, &[now, -1, now]), 0);
    }
}

#[test]
fn records_of_any_age_are_taken_by_default() {
    let root = tempfile::tempdir().unwrap();
    let log = open(root.path(), SMALL);
    assert_eq!(append(&log, Codec::None, &[0, -1, 1]), 0);
}

#[test]
fn with_log_append_time_the_producers_time_does_not_matter() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        log_append_time: true,
        timestamp_before_max_ms: 0,
        timestamp_after_max_ms: 0,
        ..SMALL
    };
    let log = open(root.path(), settings);
    assert_eq!(append(&log, Codec::None, &[0, now_ms() + HOUR_MS]), 0);
}

#[test]
fn records_of_before_1970_are_stored_and_give_their_batch_no_largest_time() {
    let root = tempfile::tempdir().unwrap();
    let log = open(root.path(), SMALL);
    for codec in [Codec::None, Codec::Zstd] {
        for timestamps in [&[-5000][..], &[-3000, -2000], &[-1, -2000], &[-9000, -1]] {
            let mut bytes = batch(codec, timestamps);
            log.append(CLIENT, &mut bytes).unwrap();
            let stored = BatchView::parse(&bytes).unwrap();
            assert_eq!(stored.base_timestamp(), timestamps[0]);
            assert_eq!(stored.max_timestamp(), -1, "{timestamps:?}");
        }
        for timestamps in [&[1000, -9000, 500][..], &[-9000, 700, 1000]] {
            let mut bytes = batch(codec, timestamps);
            log.append(CLIENT, &mut bytes).unwrap();
            assert_eq!(BatchView::parse(&bytes).unwrap().max_timestamp(), 1000);
        }
    }
}

#[test]
fn records_of_before_1970_are_no_segments_age_and_no_searchs_find() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        retention_ms: HOUR_MS,
        ..SMALL
    };
    let log = open(root.path(), settings);
    assert_eq!(append(&log, Codec::None, &[-5000]), 0);
    assert_eq!(append(&log, Codec::Gzip, &[-HOUR_MS, -7]), 0);
    assert_eq!(log.offset_for_timestamp(0, i64::MAX).unwrap(), None);
    assert_eq!(log.offset_of_max_timestamp(i64::MAX).unwrap(), None);
    assert_eq!(
        log.find_expired(now_ms()).unwrap(),
        None,
        "by the time of its file, as Kafka's"
    );
    assert_eq!(append(&log, Codec::None, &[-9000, 700]), 0);
    let found = Some((4, 700));
    assert_eq!(log.offset_for_timestamp(0, i64::MAX).unwrap(), found);
    assert_eq!(log.offset_of_max_timestamp(i64::MAX).unwrap(), found);
    log.close().unwrap();
    drop(log);
    let log = open(root.path(), settings);
    assert_eq!(log.state().log_end_offset, 5);
    assert_eq!(log.offset_of_max_timestamp(i64::MAX).unwrap(), found);
}

#[test]
fn a_record_of_before_1970_is_too_early_where_there_is_a_limit() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        timestamp_before_max_ms: now_ms() + HOUR_MS,
        ..SMALL
    };
    let log = open(root.path(), settings);
    assert_eq!(append(&log, Codec::None, &[-5000, -1]), 0);
    assert_eq!(
        append(&log, Codec::None, &[5000, -2 * HOUR_MS]),
        codes::INVALID_TIMESTAMP
    );
}

#[test]
fn every_bad_record_is_named_up_to_the_budget() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        is_compacted: true,
        ..SMALL
    };
    let log = open(root.path(), settings);
    let far = now_ms() + 2 * HOUR_MS;
    for codec in [Codec::None, Codec::Lz4] {
        let mut builder = BatchBuilder::new(codec);
        for (key, timestamp) in [(true, 5), (false, 5), (true, far), (false, far), (true, -1)] {
            builder.push(timestamp, key.then_some(b"key"), Some(b"value"), &[]);
        }
        let mut bytes = builder.seal().unwrap();
        for (names, left, named) in [(9, 7, &[1, 2, 3][..]), (1, 0, &[1, 2]), (0, 0, &[1])] {
            let mut budget = AppendBudget {
                names,
                ..AppendBudget::MAX
            };
            let refused = log.append_within(CLIENT, &mut bytes, &mut None, &mut budget);
            let Err(AppendError::InvalidRecords { code, records, .. }) = refused else {
                panic!("{refused:?}");
            };
            let is_for_time = named.len() > 1;
            assert_eq!(code == codes::INVALID_TIMESTAMP, is_for_time);
            assert_eq!(budget.names, left);
            let indexes: Vec<_> = records.iter().map(|record| record.index).collect();
            assert_eq!(indexes, named);
            let has_key_fault = |at: usize| records[at].message.contains("without a key");
            assert!(has_key_fault(0) && (named.len() < 3 || has_key_fault(2)));
            assert!(named.len() < 2 || records[1].message.contains("after.max.ms"));
        }
    }
    assert_eq!(log.state().log_end_offset, 0);
}
