//! Compaction against an oracle: after any appends, cleanings and interruptions, a reader of
//! committed records finds the last value of every key, at the offset it was written to.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{CLIENT, TestProducerState, delete_records, files, marker};
use proptest::prelude::*;
use txn_log::builder::BatchBuilder;
use txn_log::compaction::{Cleaned, Cleaner, Cleaning};
use txn_log::compression;
use txn_log::disk::{self, Change, DiskFault, Witness};

use txn_log::{PartitionLog, Past, Settings};
use txn_protocol::batch::{BatchView, Batches, Codec, Header};
use txn_protocol::records::Records;

const RETENTION_MS: i64 = 1000;

const COMPACTED: Settings = Settings {
    segment_bytes: 700,
    index_interval_bytes: 200,
    is_compacted: true,
    is_deleted_by_retention: false,
    ..Settings::KAFKA
};

/// (offset, timestamp, key, value).
type StoredRecord = (i64, i64, Vec<u8>, Option<Vec<u8>>);

/// A directory in memory if possible: every swap waits for the disk several times.
fn temporary() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

fn cleaner() -> Cleaner {
    Cleaner::new(1 << 20, 0.9, f64::INFINITY)
}

/// A cleaning of everything that may be cleaned.
fn cleaning(first_dirty_offset: i64, now_ms: i64) -> Cleaning {
    Cleaning {
        first_dirty_offset,
        end: i64::MAX,
        delete_retention_ms: RETENTION_MS,
        now_ms,
    }
}

fn clean(log: &PartitionLog, first_dirty_offset: i64, now_ms: i64) -> Cleaned {
    let cleaning = cleaning(first_dirty_offset, now_ms);
    cleaner().clean(log, &cleaning).unwrap()
}

fn reopen(directory: &Path, was_clean: bool) -> (PartitionLog, Arc<TestProducerState>) {
    common::try_open(directory, COMPACTED, was_clean).unwrap()
}

fn keyed(producer_id: i64, codec: Codec, records: &[(i64, &str, Option<&str>)]) -> BatchBuilder {
    let mut builder = BatchBuilder::new(codec);
    if producer_id >= 0 {
        (
            builder.producer_id,
            builder.producer_epoch,
            builder.base_sequence,
        ) = (producer_id, 0, 0);
    }
    for (timestamp_ms, key, value) in records {
        let value = value.map(str::as_bytes);
        builder.push(*timestamp_ms, Some(key.as_bytes()), value, &[]);
    }
    builder
}

fn append(log: &PartitionLog, records: &[(i64, &str, Option<&str>)]) -> i64 {
    let mut batch = keyed(-1, Codec::None, records).seal().unwrap();
    log.append(CLIENT, &mut batch).unwrap().base_offset
}

fn append_transactional(
    log: &PartitionLog,
    producer_id: i64,
    records: &[(i64, &str, Option<&str>)],
) {
    let mut builder = keyed(producer_id, Codec::None, records);
    builder.is_transactional = true;
    log.append(CLIENT, &mut builder.seal().unwrap()).unwrap();
}

/// Rolls by appending records that nobody will look for.
fn fill(log: &PartitionLog) {
    let large = "f".repeat(COMPACTED.segment_bytes as usize);
    append(log, &[(1, "filler", Some(&large))]);
    append(log, &[(1, "filler", Some(&large))]);
}

fn stored_bytes(log: &PartitionLog) -> Vec<u8> {
    let state = log.state();
    let (mut offset, mut bytes) = (state.log_start_offset, Vec::new());
    while offset < state.log_end_offset {
        let slice = log.locate(offset, i64::MAX, 4096, true).unwrap();
        if slice.len == 0 {
            break;
        }
        bytes.extend(log.read(offset, 4096).unwrap());
        offset = slice.end_offset;
    }
    bytes
}

fn records_of(batch: &BatchView<'_>) -> Vec<StoredRecord> {
    let mut content = Vec::new();
    compression::decompress(
        batch.codec().unwrap(),
        batch.records(),
        &mut content,
        1 << 24,
    )
    .unwrap();
    Records::new(&content, batch.record_count())
        .map(|record| {
            let record = record.unwrap();
            (
                batch.base_offset() + i64::from(record.offset_delta),
                batch.base_timestamp() + record.timestamp_delta,
                record.key.unwrap().to_vec(),
                record.value.map(<[u8]>::to_vec),
            )
        })
        .collect()
}

fn headers(log: &PartitionLog) -> Vec<Header> {
    let bytes = stored_bytes(log);
    Batches::new(&bytes).map(|batch| *batch.header()).collect()
}

/// Every data record that is stored, of any transaction.
fn stored(log: &PartitionLog) -> Vec<StoredRecord> {
    let bytes = stored_bytes(log);
    let data = Batches::new(&bytes).filter(|batch| !batch.is_control());
    data.flat_map(|batch| records_of(&batch)).collect()
}

/// Records that a reader of committed records finds: it drops those of the named transactions.
fn committed(log: &PartitionLog) -> Vec<StoredRecord> {
    let state = log.state();
    let bytes = stored_bytes(log);
    let mut ahead = log.aborted_in(state.log_start_offset, state.last_stable_offset);
    ahead.reverse();
    let (mut aborted, mut found) = (BTreeSet::new(), Vec::new());
    for batch in Batches::new(&bytes) {
        if batch.last_offset() >= state.last_stable_offset {
            break;
        }
        while ahead
            .last()
            .is_some_and(|entry| entry.1 <= batch.last_offset())
        {
            aborted.insert(ahead.pop().unwrap().0);
        }
        if batch.is_control() {
            aborted.remove(&batch.producer_id());
        } else if !(batch.is_transactional() && aborted.contains(&batch.producer_id())) {
            found.extend(records_of(&batch));
        }
    }
    found
}

fn last_values(records: &[StoredRecord]) -> BTreeMap<Vec<u8>, (i64, Vec<u8>)> {
    let mut values = BTreeMap::new();
    for (offset, _, key, value) in records {
        match value {
            Some(value) => values.insert(key.clone(), (*offset, value.clone())),
            None => values.remove(key),
        };
    }
    values
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

// ---------------------------------------------------------------- kept records

#[test]
fn the_last_value_of_every_key_stays_at_its_offset() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    append(&log, &[(10, "a", Some("1")), (11, "b", Some("1"))]);
    append(&log, &[(12, "a", Some("2")), (13, "c", Some("1"))]);
    fill(&log);
    let cleaned = clean(&log, 0, 100);
    let named = |(offset, timestamp, key, value): StoredRecord| {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (offset, timestamp, text(key), value.map(text))
    };
    let found: Vec<_> = stored(&log).into_iter().take(3).map(named).collect();
    let value = |text: &str| Some(text.to_owned());
    assert_eq!(
        found,
        [
            (1, 11, "b".to_owned(), value("1")),
            (2, 12, "a".to_owned(), value("2")),
            (3, 13, "c".to_owned(), value("1")),
        ]
    );
    assert!(cleaned.bytes_after < cleaned.bytes_before);
    assert_eq!(log.state().log_start_offset, 0);
}

#[test]
fn nothing_from_the_dirty_end_on_is_touched() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    append(&log, &[(10, "a", Some("1"))]);
    fill(&log);
    append(&log, &[(11, "a", Some("2"))]);
    let cleaned = clean(&log, 0, 100);
    let before = stored_bytes(&log);
    append(&log, &[(12, "a", Some("3"))]);
    let again = clean(&log, cleaned.end, 100);
    assert_eq!(again.end, cleaned.end);
    assert_eq!(stored_bytes(&log)[..before.len()], before);
}

#[test]
fn a_tombstone_stays_for_its_retention_after_it_was_first_cleaned() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    append(&log, &[(10, "a", Some("1"))]);
    append(&log, &[(11, "a", None), (12, "b", Some("1"))]);
    fill(&log);
    let tombstones = |log: &PartitionLog| -> Vec<StoredRecord> {
        let without_value = |record: &StoredRecord| record.3.is_none();
        stored(log).into_iter().filter(without_value).collect()
    };
    let end = clean(&log, 0, 5000).end;
    assert_eq!(tombstones(&log), [(1, 11, b"a".to_vec(), None)]);
    let horizons: Vec<Option<i64>> = headers(&log)
        .iter()
        .map(Header::delete_horizon_ms)
        .collect();
    assert_eq!(horizons[0], Some(5000 + RETENTION_MS));
    clean(&log, end, 5000 + RETENTION_MS - 1);
    assert_eq!(tombstones(&log), [(1, 11, b"a".to_vec(), None)]);
    clean(&log, end, 5000 + RETENTION_MS);
    assert_eq!(tombstones(&log), []);
    assert_eq!(stored(&log)[0], (2, 12, b"b".to_vec(), Some(b"1".to_vec())));
}

#[test]
fn aborted_records_go_and_do_not_hide_committed_ones() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    append(&log, &[(10, "a", Some("1"))]);
    append_transactional(&log, 7, &[(11, "a", Some("2"))]);
    append_transactional(&log, 8, &[(12, "b", Some("1"))]);
    log.append_marker(&marker(7, false)).unwrap();
    log.append_marker(&marker(8, true)).unwrap();
    fill(&log);
    clean(&log, 0, 100);
    let offsets: Vec<i64> = stored(&log).iter().map(|record| record.0).collect();
    assert_eq!(offsets[..2], [0, 2]);
}

#[test]
fn a_marker_stays_while_a_batch_of_its_transaction_does_and_then_as_long_as_a_tombstone() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    append_transactional(&log, 7, &[(11, "a", Some("1"))]);
    log.append_marker(&marker(7, true)).unwrap();
    append(&log, &[(12, "a", Some("2"))]);
    fill(&log);
    let markers = |log: &PartitionLog| -> Vec<Option<i64>> {
        let found = headers(log).into_iter().filter(Header::is_control);
        found.map(|header| header.delete_horizon_ms()).collect()
    };
    // The producer is still known by its empty batch, so the marker has to stay.
    let end = clean(&log, 0, 100).end;
    assert_eq!(headers(&log)[0].record_count(), 0);
    assert_eq!(markers(&log), [None]);
    // Once five others are known, its batch goes, and the marker gets its horizon, and goes.
    for nth in 0..5 {
        append_transactional(&log, 7, &[(20 + nth, "c", Some("1"))]);
    }
    let end = clean(&log, end, 200).end;
    assert_eq!(markers(&log), [None]);
    let end = clean(&log, end, 300).end;
    assert_eq!(markers(&log), [Some(300 + RETENTION_MS)]);
    clean(&log, end, 300 + RETENTION_MS);
    assert_eq!(markers(&log), []);
}

#[test]
fn nothing_is_cleaned_beyond_the_last_stable_offset() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    append(&log, &[(10, "a", Some("1"))]);
    append_transactional(&log, 7, &[(11, "a", Some("2"))]);
    fill(&log);
    let before = stored_bytes(&log);
    let cleaned = clean(&log, 0, 100);
    assert_eq!(cleaned.end, 0);
    assert_eq!(stored_bytes(&log), before);
}

#[test]
fn records_without_a_key_go() {
    let directory = temporary();
    let old = Settings {
        is_compacted: false,
        ..COMPACTED
    };
    let (log, _) = common::try_open(directory.path(), old, false).unwrap();
    let mut builder = BatchBuilder::new(Codec::None);
    builder.push(5, None, Some(b"v"), &[]);
    log.append(CLIENT, &mut builder.seal().unwrap()).unwrap();
    append(&log, &[(6, "a", Some("1"))]);
    fill(&log);
    clean(&log, 0, 100);
    assert_eq!(stored(&log)[0].0, 1);
}

#[test]
fn a_full_map_ends_the_cleaning_early_and_the_next_one_goes_on() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    for round in 0..3 {
        for key in 0..40 {
            append(&log, &[(round, &format!("key-{key}"), Some("v"))]);
        }
    }
    fill(&log);
    let values = last_values(&stored(&log));
    let small = Cleaner::new(20 * 24, 0.5, f64::INFINITY); // ten keys
    let mut end = 0;
    let mut cleanings = 0;
    loop {
        let cleaned = small.clean(&log, &cleaning(end, 100)).unwrap();
        assert!(cleaned.keys <= 10);
        assert_eq!(last_values(&stored(&log)), values);
        if cleaned.end == end {
            break;
        }
        end = cleaned.end;
        cleanings += 1;
    }
    assert!(cleanings > 10, "{cleanings} cleanings");
    let below_end = |record: &&StoredRecord| record.0 < end;
    assert_eq!(stored(&log).iter().filter(below_end).count(), 41);
}

#[test]
fn a_batch_with_more_keys_than_the_map_takes_is_cleaned_all_the_same() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    let keys: Vec<String> = (0..200).map(|key| format!("key-{key}")).collect();
    let records: Vec<_> = keys
        .iter()
        .map(|key| (1, key.as_str(), Some("v")))
        .collect();
    append(&log, &records);
    fill(&log);
    let small = Cleaner::new(0, 0.9, f64::INFINITY);
    assert!(small.clean(&log, &cleaning(0, 100)).unwrap().end >= 200);
}

#[test]
fn small_segments_are_joined_and_none_outgrows_its_limit() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    for round in 0..50 {
        for key in 0..20 {
            append(&log, &[(round, &format!("key-{key}"), Some("value"))]);
        }
    }
    fill(&log);
    let before = files(directory.path(), "log").len();
    let end = clean(&log, 0, 100).end;
    clean(&log, end, 100); // segments that are small now are joined
    let logs = files(directory.path(), "log");
    assert!(
        logs.len() * 4 < before,
        "{} of {before} segments",
        logs.len()
    );
    let sizes = logs.iter().map(|path| fs::metadata(path).unwrap().len());
    let cleaned = sizes.take(logs.len() - 2); // not the fillers'
    assert!(cleaned.max().unwrap() <= COMPACTED.segment_bytes);
}

#[test]
fn a_cleaned_segment_tells_how_far_it_reaches_though_nothing_is_left_in_it() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    for round in 0..40 {
        append(&log, &[(round, "a", Some("value"))]);
    }
    fill(&log);
    clean(&log, 0, 100);
    let logs = files(directory.path(), "log");
    let first = fs::read(&logs[0]).unwrap();
    let only = BatchView::parse(&first).unwrap();
    let next = logs[1].file_stem().unwrap().to_str().unwrap();
    assert_eq!((only.size(), only.record_count()), (first.len(), 0));
    assert_eq!(only.last_offset() + 1, next.parse::<i64>().unwrap());
}

/// The last segment of a run may be empty, as Kafka's cleaner leaves it. Then nothing told how far the
/// cleaned one reached, and a crash in the swap left a `.log.swap` that looked emptied.
#[test]
fn a_run_that_ends_with_an_empty_segment_keeps_a_batch_too() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    for _ in 0..3 {
        append(&log, &[(1, "k", Some("v"))]);
        fill(&log);
    }
    append(&log, &[(1, "k", Some("newest"))]);
    let sealed = log.sealed_segments().unwrap();
    let (first, second) = (sealed[0].path.clone(), sealed[1].path.clone());
    drop(log);
    fs::write(&second, b"").unwrap();
    let (log, _) = reopen(directory.path(), false);
    clean(&log, 0, 0);
    assert!(fs::metadata(&first).unwrap().len() > 0);
    let sealed = log.sealed_segments().unwrap();
    for segment in sealed {
        drop(fs::write(&segment.path, b"")); // every one is empty
    }
    drop(log);
    let before = names_of_logs(directory.path());
    let (log, _) = reopen(directory.path(), false);
    clean(&log, 0, 0);
    assert_eq!(names_of_logs(directory.path()), before);
    assert_eq!(last_values(&committed(&log))[&b"k"[..]].1, b"newest");
}

#[test]
fn times_are_found_exactly_after_a_cleaning() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    append(&log, &[(50, "a", Some("1")), (900, "b", Some("1"))]);
    append(&log, &[(60, "c", Some("1"))]);
    append(&log, &[(70, "b", Some("2")), (80, "d", Some("1"))]);
    fill(&log);
    clean(&log, 0, 5000);
    let end = log.state().log_end_offset;
    assert_eq!(log.offset_for_timestamp(51, end).unwrap(), Some((2, 60)));
    assert_eq!(log.offset_for_timestamp(81, end).unwrap(), None);
    assert_eq!(log.offset_of_max_timestamp(end).unwrap(), Some((4, 80)));
}

#[test]
fn the_largest_timestamp_is_not_that_of_an_empty_batch() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    let mut batch = keyed(7, Codec::None, &[(900, "a", Some("1"))])
        .seal()
        .unwrap();
    log.append(CLIENT, &mut batch).unwrap();
    append(&log, &[(50, "a", Some("2"))]);
    fill(&log);
    clean(&log, 0, 5000);
    assert_eq!(headers(&log)[0].record_count(), 0);
    let end = log.state().log_end_offset;
    assert_eq!(log.offset_of_max_timestamp(end).unwrap(), Some((1, 50)));
}

#[test]
fn a_reader_goes_on_through_a_swap_and_skips_what_is_gone() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    for round in 0..30 {
        append(&log, &[(round, "a", Some("value"))]);
    }
    fill(&log);
    let before = log.locate(3, i64::MAX, 100, true).unwrap();
    clean(&log, 0, 100);
    let bytes = before.read().unwrap();
    assert_eq!(Batches::new(&bytes).next().unwrap().base_offset(), 3);
    assert_eq!(stored(&log)[0].0, 29);
    let mut offset = 4;
    while offset < 29 {
        let bytes = log.read(offset, 1).unwrap();
        let batch = Batches::new(&bytes).next().unwrap();
        assert!(batch.last_offset() >= offset);
        offset = batch.last_offset() + 1;
    }
}

#[test]
fn damage_ends_a_cleaning_and_changes_nothing() {
    for damaged_byte in [65, 130] {
        let directory = temporary();
        let (log, _) = reopen(directory.path(), false);
        append(&log, &[(10, "a", Some("1"))]);
        append(&log, &[(10, "a", Some("2"))]);
        fill(&log);
        let path = &files(directory.path(), "log")[0];
        let mut bytes = fs::read(path).unwrap();
        bytes[damaged_byte] ^= 1;
        fs::write(path, &bytes).unwrap();
        let error = cleaner()
            .clean(&log, &cleaning(0, 100))
            .unwrap_err()
            .to_string();
        assert!(error.contains("00000000000000000000.log"), "{error}");
        assert_eq!(fs::read(path).unwrap(), bytes);
        assert_eq!(files(directory.path(), "cleaned"), Vec::<PathBuf>::new());
    }
}

/// The offset of a batch is under no checksum, and a cleaning once took a damaged one as it
/// was: the log then seemed to end there.
#[test]
fn a_damaged_offset_ends_a_cleaning_too() {
    for offset in [1i64 << 56, 0] {
        let directory = temporary();
        let (log, _) = reopen(directory.path(), false);
        append(&log, &[(10, "a", Some("1"))]);
        append(&log, &[(10, "a", Some("2"))]);
        fill(&log);
        let path = &files(directory.path(), "log")[0];
        let mut bytes = fs::read(path).unwrap();
        let second = Batches::new(&bytes).next().unwrap().size();
        bytes[second..second + 8].copy_from_slice(&offset.to_be_bytes());
        fs::write(path, &bytes).unwrap();
        assert!(cleaner().clean(&log, &cleaning(0, 100)).is_err());
        assert_eq!(fs::read(path).unwrap(), bytes);
    }
}

/// Makes a stored batch one whose checksum is right and that nobody can open, as earlier versions
/// took them from clients.
fn spoil(directory: &Path, change: impl Fn(&mut [u8])) {
    let path = directory.join(format!("{:020}.log", 0));
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    let size = Header::parse(&bytes).unwrap().size();
    let crc = crc32c::crc32c(&bytes[21..size]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    fs::write(&path, &bytes).unwrap();
}

#[test]
fn a_batch_that_nobody_can_read_stays_and_the_cleaning_goes_on() {
    type Corruption = fn(&mut [u8]);
    let changes: [Corruption; 4] = [
        |bytes| bytes[22] |= 1, // gzip that is none
        |bytes| bytes[65] = 9,  // another offset delta
        |bytes| bytes[57..61].copy_from_slice(&1i32.to_be_bytes()), // fewer records
        |bytes| bytes[69] = 0x7f, // a length that overruns
    ];
    for change in changes {
        let root = temporary();
        let directory = root.path().join("t-0");
        let (log, _) = reopen(&directory, true);
        append(&log, &[(1, "a", Some("1")), (1, "b", Some("1"))]);
        for lap in 2..30 {
            append(&log, &[(lap, "a", Some("2")), (lap, "b", Some("2"))]);
        }
        log.close().unwrap();
        drop(log);
        spoil(&directory, change);
        let (log, _) = reopen(&directory, true);
        let first = |log: &PartitionLog| {
            let bytes = stored_bytes(log);
            bytes[..Header::parse(&bytes).unwrap().size()].to_vec()
        };
        let spoiled = first(&log);

        let cleaned = clean(&log, 0, 100);

        let told = cleaned.unreadable.expect("it is told of");
        assert_eq!((told.batches, told.position, told.offset), (1, 0, 0));
        assert_eq!(told.path, directory.join(format!("{:020}.log", 0)));
        assert!(cleaned.bytes_after < cleaned.bytes_before);
        assert_eq!(first(&log), spoiled);
        let again = clean(&log, cleaned.end, 100);
        assert_eq!(again.unreadable, None, "once is enough");
        assert_eq!(first(&log), spoiled);
        log.close().unwrap();
        drop(log);
        let (log, _) = reopen(&directory, true);
        assert_eq!(first(&log), spoiled);
    }
}

/// A batch of which half can be read: its value of a key must not supersede a readable one.
#[test]
fn keys_of_an_unreadable_batch_supersede_nothing() {
    let root = temporary();
    let directory = root.path().join("t-0");
    let (log, _) = reopen(&directory, true);
    append(&log, &[(1, "a", Some("readable"))]);
    let second = append(&log, &[(2, "a", Some("lost")), (2, "b", Some("lost"))]);
    for lap in 3..30 {
        append(&log, &[(lap, "c", Some("2"))]);
    }
    log.close().unwrap();
    drop(log);
    let path = directory.join(format!("{:020}.log", 0));
    let mut bytes = fs::read(&path).unwrap();
    let at = Header::parse(&bytes).unwrap().size();
    let size = Header::parse(&bytes[at..]).unwrap().size();
    bytes[at + size - 1] = 1; // the second record has -1 headers
    let crc = crc32c::crc32c(&bytes[at + 21..at + size]);
    bytes[at + 17..at + 21].copy_from_slice(&crc.to_be_bytes());
    fs::write(&path, &bytes).unwrap();
    let (log, _) = reopen(&directory, true);

    let cleaned = clean(&log, 0, 100);

    assert_eq!(cleaned.unreadable.unwrap().offset, second);
    let bytes = stored_bytes(&log);
    let readable = BatchView::parse(&bytes).unwrap();
    assert_eq!(
        records_of(&readable)[0].3.as_deref(),
        Some(&b"readable"[..])
    );
}

/// Content larger than the held part is filtered as it is opened, to the same result.
#[test]
fn a_batch_that_is_large_inside_is_thinned_out() {
    let large = "x".repeat(3 << 20);
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let root = temporary();
        let settings = Settings {
            segment_bytes: 1 << 20,
            ..COMPACTED
        };
        let directory = root.path().join("t-0");
        let (log, _) = common::try_open(&directory, settings, true).unwrap();
        let records = [
            (1, "a", Some("old")),
            (2, "b", Some(large.as_str())),
            (3, "c", Some("old")),
        ];
        let mut batch = keyed(-1, codec, &records).seal().unwrap();
        log.append(CLIENT, &mut batch).unwrap();
        append(&log, &[(4, "a", Some("new")), (4, "c", None)]);
        while log.sealed_segments().unwrap().is_empty() {
            append(&log, &[(5, "roll", Some(&"r".repeat(100_000)))]);
        }
        let cleaned = clean(&log, 0, 100);
        assert_eq!(cleaned.unreadable, None);
        let bytes = stored_bytes(&log);
        let thinned = records_of(&BatchView::parse(&bytes).unwrap());
        assert_eq!(thinned.len(), 1, "{codec:?}");
        assert_eq!(thinned[0].2, b"b");
        assert_eq!(thinned[0].3.as_deref(), Some(large.as_bytes()));
    }
}

#[test]
fn a_stopped_cleaner_leaves_the_log_as_it_is() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    append(&log, &[(10, "a", Some("1")), (11, "a", Some("2"))]);
    fill(&log);
    let before = stored_bytes(&log);
    let stopped = cleaner();
    stopped.stop();
    assert!(stopped.clean(&log, &cleaning(0, 100)).is_err());
    assert_eq!(stored_bytes(&log), before);
    assert_eq!(files(directory.path(), "cleaned"), Vec::<PathBuf>::new());
}

#[test]
fn a_compacted_log_refuses_records_without_a_key() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    for codec in [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ] {
        let mut builder = BatchBuilder::new(codec);
        builder.push(5, Some(b"k"), Some(b"v"), &[]);
        builder.push(5, None, Some(b"v"), &[]);
        let refused = log
            .append(CLIENT, &mut builder.seal().unwrap())
            .unwrap_err();
        assert_eq!(refused.code(), 87, "{codec:?}");
    }
    assert_eq!(log.state().log_end_offset, 0);
}

/// Deletes a log when the swap is halfway.
struct Deletes(Arc<PartitionLog>);

impl Witness for Deletes {
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault> {
        if matches!(change, Change::Rename(from, _) if from.ends_with("00000000000000000000.log.swap"))
        {
            disk::release(self.0.directory());
            self.0.delete().unwrap();
        }
        Ok(())
    }
}

#[test]
fn a_log_that_is_deleted_in_the_middle_of_a_swap_stays_deleted() {
    let directory = temporary();
    let (log, _) = reopen(&directory.path().join("log"), false);
    let log = Arc::new(log);
    append(&log, &[(10, "a", Some("1")), (11, "a", Some("2"))]);
    fill(&log);
    disk::watch(log.directory(), Arc::new(Deletes(Arc::clone(&log))));
    assert!(cleaner().clean(&log, &cleaning(0, 100)).is_err());
    assert!(log.is_deleted());
    assert!(!log.directory().exists());
}

/// Deletes records of a log's first segments while they are being cleaned.
struct DeletesRecords(Arc<PartitionLog>);

impl Witness for DeletesRecords {
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault> {
        if matches!(change, Change::Create(path) if path.ends_with("00000000000000000000.log.cleaned"))
        {
            disk::release(self.0.directory());
            delete_records(&self.0, 30).unwrap();
        }
        Ok(())
    }
}

#[test]
fn segments_that_are_removed_while_they_are_cleaned_do_not_come_back() {
    let directory = temporary();
    let (log, _) = reopen(directory.path(), false);
    let log = Arc::new(log);
    for round in 0..40 {
        append(&log, &[(round, "a", Some("value"))]);
    }
    fill(&log);
    disk::watch(log.directory(), Arc::new(DeletesRecords(Arc::clone(&log))));
    assert!(cleaner().clean(&log, &cleaning(0, 100)).is_err());
    assert_eq!(log.state().log_start_offset, 30);
    assert_eq!(files(directory.path(), "cleaned"), Vec::<PathBuf>::new());
    assert!(log.locate(0, i64::MAX, 100, true).is_err());
    clean(&log, 30, 100);
    assert_eq!(stored(&log)[0].0, 39);
}

// ---------------------------------------------------------------- the model

#[derive(Clone, Debug)]
enum CleanerStep {
    /// A batch: of which producer (-1: none, 0–2: idempotent, 3–5: transactional), how it is
    /// compressed, and its records: key and value, or a tombstone.
    Append(i64, Codec, Vec<(u8, Option<u8>)>),
    /// The end of a transaction, if one is open.
    End(i64, bool),
    /// A cleaning, this much later, with memory for so many keys.
    Clean(i64, usize),
    /// A start, after a stop or a crash; without the snapshots or with them.
    Open(bool, bool),
}

fn codec() -> impl Strategy<Value = Codec> {
    prop_oneof![
        4 => Just(Codec::None),
        1 => Just(Codec::Gzip),
        1 => Just(Codec::Snappy),
        1 => Just(Codec::Lz4),
        1 => Just(Codec::Zstd),
    ]
}

fn step() -> impl Strategy<Value = CleanerStep> {
    let record = (0..6u8, prop::option::weighted(0.75, any::<u8>()));
    prop_oneof![
        12 => (-1..6i64, codec(), prop::collection::vec(record, 1..5))
            .prop_map(|(producer_id, codec, records)| CleanerStep::Append(producer_id, codec, records)),
        5 => (3..6i64, any::<bool>()).prop_map(|(id, is_commit)| CleanerStep::End(id, is_commit)),
        2 => (0..2 * RETENTION_MS, 1..40usize).prop_map(|(later, keys)| CleanerStep::Clean(later, keys)),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(clean, forget)| CleanerStep::Open(clean, forget)),
    ]
}

/// A log and everything that ever went into it.
struct Model {
    directory: tempfile::TempDir,
    log: PartitionLog,
    producer_state: Arc<TestProducerState>,
    written: BTreeMap<i64, StoredRecord>,
    /// Offsets of the records of open transactions, and of aborted ones.
    open: BTreeMap<i64, Vec<i64>>,
    aborted: BTreeSet<i64>,
    cleaned_end: i64,
    now_ms: i64,
}

impl Model {
    fn new() -> Self {
        let directory = temporary();
        let (log, producer_state) = reopen(directory.path(), false);
        Self {
            directory,
            log,
            producer_state,
            written: BTreeMap::new(),
            open: BTreeMap::new(),
            aborted: BTreeSet::new(),
            cleaned_end: 0,
            now_ms: 10_000,
        }
    }

    fn play(&mut self, step: &CleanerStep) {
        match step {
            CleanerStep::Append(producer_id, codec, records) => {
                self.append(*producer_id, *codec, records);
            }
            CleanerStep::End(producer_id, is_commit) => {
                if let Some(offsets) = self.open.remove(producer_id) {
                    self.log
                        .append_marker(&marker(*producer_id, *is_commit))
                        .unwrap();
                    if !is_commit {
                        self.aborted.extend(offsets);
                    }
                }
            }
            CleanerStep::Clean(later, keys) => self.clean(*later, *keys),
            CleanerStep::Open(was_clean, forgets) => self.reopen(*was_clean, *forgets),
        }
        self.check();
    }

    fn append(&mut self, producer_id: i64, codec: Codec, records: &[(u8, Option<u8>)]) {
        let texts: Vec<(String, Option<String>)> = records
            .iter()
            .map(|(key, value)| (format!("key-{key}"), value.map(|it| format!("value-{it}"))))
            .collect();
        self.now_ms += 1;
        let borrowed: Vec<(i64, &str, Option<&str>)> = texts
            .iter()
            .map(|(key, value)| (self.now_ms, key.as_str(), value.as_deref()))
            .collect();
        let mut builder = keyed(producer_id, codec, &borrowed);
        builder.is_transactional = producer_id >= 3;
        let mut batch = builder.seal().unwrap();
        let base_offset = self.log.append(CLIENT, &mut batch).unwrap().base_offset;
        for (nth, (timestamp, key, value)) in borrowed.iter().enumerate() {
            let offset = base_offset + nth as i64;
            let value = value.map(|value| value.as_bytes().to_vec());
            let record = (offset, *timestamp, key.as_bytes().to_vec(), value);
            self.written.insert(offset, record);
            if producer_id >= 3 {
                self.open.entry(producer_id).or_default().push(offset);
            }
        }
    }

    fn clean(&mut self, later: i64, keys: usize) {
        self.now_ms += later;
        let small = Cleaner::new(keys * 2 * 24, 0.5, f64::INFINITY);
        let untouched = self.log.state();
        let cleaning = cleaning(self.cleaned_end, self.now_ms);
        let before = stored_bytes(&self.log);
        let cleaned = small.clean(&self.log, &cleaning).unwrap();
        assert!(cleaned.end >= self.cleaned_end);
        assert_eq!(self.log.state(), untouched);
        self.cleaned_end = cleaned.end;
        let behind = |bytes: &[u8]| -> Vec<Vec<u8>> {
            let batches = Batches::new(bytes).filter(|batch| batch.base_offset() >= cleaned.end);
            batches.map(|batch| batch.bytes().to_vec()).collect()
        };
        assert_eq!(behind(&stored_bytes(&self.log)), behind(&before));
    }

    fn reopen(&mut self, was_clean: bool, forgets: bool) {
        let mut before = self.producer_state.state();
        if was_clean {
            self.log.close().unwrap();
        }
        if forgets {
            for path in files(self.directory.path(), "snapshot") {
                fs::remove_file(path).unwrap();
            }
        }
        (self.log, self.producer_state) = reopen(self.directory.path(), was_clean);
        let mut after = self.producer_state.state();
        // Aborted transactions that left nothing are forgotten; `check` reads the named ones.
        (before.aborted, after.aborted) = (Vec::new(), Vec::new());
        assert_eq!(after, before);
    }

    fn check(&self) {
        // Gaps lie within segments: a start takes one between two of them for a loss.
        let segments = files(self.directory.path(), "log");
        for pair in segments.windows(2) {
            let bytes = fs::read(&pair[0]).unwrap();
            let last = Batches::new(&bytes).last().unwrap();
            assert_eq!(last.last_offset() + 1, base_of(&pair[1]));
        }
        let unended: BTreeSet<i64> = self.open.values().flatten().copied().collect();
        let stable = self.log.state().last_stable_offset;
        let is_committed = |offset: i64| {
            offset < stable && !unended.contains(&offset) && !self.aborted.contains(&offset)
        };
        // Stored records are the written ones, in order.
        let stored = stored(&self.log);
        assert!(stored.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for record in &stored {
            assert_eq!(Some(record), self.written.get(&record.0));
        }
        // Read records are committed, and the last values are all there.
        let read = committed(&self.log);
        assert!(read.iter().all(|record| is_committed(record.0)));
        let written: Vec<StoredRecord> = self
            .written
            .values()
            .filter(|record| is_committed(record.0))
            .cloned()
            .collect();
        assert_eq!(last_values(&read), last_values(&written));
        // The clean part has no key twice, and nothing of aborted transactions.
        let clean = stored.iter().filter(|record| record.0 < self.cleaned_end);
        let mut keys = BTreeSet::new();
        for (offset, _, key, _) in clean {
            assert!(
                !self.aborted.contains(offset),
                "offset {offset} was aborted"
            );
            assert!(
                keys.insert(key),
                "{key:?} is there twice below {}",
                self.cleaned_end
            );
        }
        // The dirty part is complete.
        let dirty = |offset: &i64| *offset >= self.cleaned_end;
        let expected: Vec<i64> = self.written.keys().copied().filter(dirty).collect();
        let found: Vec<i64> = stored.iter().map(|record| record.0).filter(dirty).collect();
        assert_eq!(found, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_finds_the_last_committed_value_of_every_key(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let mut model = Model::new();
        for step in &steps {
            model.play(step);
        }
    }

    /// Every state of the files between two steps of a swap is made by hand, from a directory
    /// before a cleaning and the same one after it.
    #[test]
    fn a_crash_between_any_two_steps_of_a_swap_loses_nothing(
        steps in prop::collection::vec(step(), 40..100)
    ) {
        let mut model = Model::new();
        for step in &steps {
            model.play(step);
        }
        let before = temporary();
        copy_directory(model.directory.path(), before.path());
        let values = last_values(&committed(&model.log));
        let state = model.producer_state.state();
        model.clean(RETENTION_MS, 40);
        let crashed = crashes(before.path(), model.directory.path());
        for ((crashed, logs), power_failed) in crashed.iter().zip([false, true].into_iter().cycle()) {
            let past = Past { power_failed, ..Past::default() };
            let opened = common::try_open_from(crashed.path(), COMPACTED, past);
            let (log, producer_state) = opened.unwrap();
            prop_assert_eq!(last_values(&committed(&log)), values.clone());
            prop_assert_eq!(&producer_state.state().open, &state.open);
            prop_assert_eq!(&producer_state.state().recent, &state.recent);
            prop_assert_eq!(log.state(), model.log.state());
            prop_assert_eq!(&names_of_logs(crashed.path()), logs);
            for extension in ["cleaned", "swap", "deleted"] {
                prop_assert_eq!(files(crashed.path(), extension), Vec::<PathBuf>::new());
            }
            clean(&log, 0, model.now_ms);
            prop_assert_eq!(last_values(&committed(&log)), values.clone());
        }
    }
}

/// The base offset that the name of a segment's file tells.
fn base_of(path: &Path) -> i64 {
    path.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

fn names_of_logs(directory: &Path) -> Vec<String> {
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    files(directory, "log").iter().map(name).collect()
}

/// The directory after each step of the first swap that made `after` from `before`, and the
/// segments that a start has to make of it.
fn crashes(before: &Path, after: &Path) -> Vec<(tempfile::TempDir, Vec<String>)> {
    let (old_logs, new_logs) = (names_of_logs(before), names_of_logs(after));
    let is_changed = |name: &&String| {
        fs::read(before.join(name)).unwrap() != fs::read(after.join(name)).unwrap()
    };
    let Some(first) = new_logs.iter().find(is_changed) else {
        return Vec::new();
    };
    let next = new_logs.iter().find(|name| *name > first).unwrap();
    let olds: Vec<&String> = old_logs
        .iter()
        .filter(|name| (first..next).contains(name))
        .collect();
    let index = first.replace(".log", ".txnindex");
    let mut states = Vec::new();
    let is_left = |name: &&String| *name == first || !olds.contains(name);
    let swapped: Vec<String> = old_logs.iter().filter(is_left).cloned().collect();
    let mut keep = |directory: &Path, is_decided: bool| {
        let kept = temporary();
        copy_directory(directory, kept.path());
        let logs = if is_decided { &swapped } else { &old_logs };
        states.push((kept, logs.clone()));
    };
    let work = temporary();
    copy_directory(before, work.path());
    let at = |name: &str| work.path().join(name);
    let rename = |from: &str, to: &str| {
        if at(from).exists() {
            fs::rename(at(from), at(to)).unwrap();
        }
    };
    fs::write(at(&format!("{first}.cleaned")), b"half").unwrap();
    keep(work.path(), false);
    fs::copy(after.join(first), at(&format!("{first}.cleaned"))).unwrap();
    let entries = fs::read(after.join(&index)).unwrap_or_default();
    fs::write(at(&format!("{index}.cleaned")), entries).unwrap();
    keep(work.path(), false);
    for name in [&index, first] {
        rename(&format!("{name}.cleaned"), &format!("{name}.swap"));
        keep(work.path(), name == first); // the log's second name is the decision
    }
    for old in &olds {
        for extension in ["log", "index", "timeindex", "txnindex"] {
            let name = old.replace("log", extension);
            rename(&name, &format!("{name}.deleted"));
            keep(work.path(), true);
        }
    }
    for name in [&index, first] {
        rename(&format!("{name}.swap"), name);
        keep(work.path(), true);
    }
    states
}
