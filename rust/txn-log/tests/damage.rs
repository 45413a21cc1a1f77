//! P9: damage made while nobody ran is found when it is read, and never shown.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{SMALL, append, files, marker, open, plain, transactional, try_open, try_open_from};
use proptest::prelude::*;
use tempfile::TempDir;
use txn_log::builder::BatchBuilder;
use txn_log::{CorruptLog, PartitionLog, Past, ReadError, Settings};
use txn_protocol::batch::{Batches, Codec};

/// Of a `.txnindex`.
const ENTRY_BYTES: usize = 34;

/// A log of several segments that was closed; its batches by base offset.
fn closed_log(directory: &Path) -> Vec<(i64, Vec<u8>)> {
    let (log, _) = open(directory, false);
    for round in 0..30 {
        append(&log, plain(2, 60));
        append(&log, transactional(round % 3, 3));
        log.append_marker(&marker(round % 3, round % 2 == 0))
            .unwrap();
    }
    let batches = read_all(&log).unwrap();
    log.close().unwrap();
    batches
}

/// Every batch, one at a time.
fn read_all(log: &PartitionLog) -> Result<Vec<(i64, Vec<u8>)>, ReadError> {
    let mut found = Vec::new();
    let mut next = 0;
    while next < log.state().log_end_offset {
        let bytes = log.read(next, 1)?;
        let batch = Batches::new(&bytes).next().unwrap();
        found.push((batch.base_offset(), batch.bytes().to_vec()));
        next = batch.last_offset() + 1;
    }
    Ok(found)
}

/// The aborted transactions that a reader of any range is told of.
fn told_of_aborted(log: &PartitionLog) -> Vec<Vec<(i64, i64)>> {
    let end = log.state().log_end_offset;
    (0..end)
        .flat_map(|start| (start + 1..=end).map(move |until| (start, until)))
        .map(|(start, until)| log.aborted_in(start, until))
        .collect()
}

fn flip(path: &Path, position: usize, bit: u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[position] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
}

#[test]
fn damage_is_never_shown_and_the_rest_of_the_log_is() {
    let root = tempfile::tempdir().unwrap();
    let batches = closed_log(root.path());
    let path = &files(root.path(), "log")[1];
    let base: i64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    flip(path, 100, 3);
    let (log, _) = open(root.path(), true);
    let Err(ReadError::Corrupt(damage)) = log.read(base, 1) else {
        panic!("damage was shown");
    };
    assert_eq!((&damage.path, damage.position), (path, 0));
    let second = batches.iter().find(|(offset, _)| *offset > base).unwrap();
    assert_eq!(log.read(second.0, 1).unwrap(), second.1);
    assert_eq!(log.read(0, 1).unwrap(), batches[0].1);
    append(&log, plain(1, 5));
}

/// What a reader gets who goes on from slice to slice, and the damage that it meets at last.
fn read_on(log: &PartitionLog, max_bytes: u64) -> (Vec<u8>, CorruptLog) {
    let (mut bytes, mut next) = (Vec::new(), 0);
    loop {
        match log.locate(next, i64::MAX, max_bytes, true) {
            Ok(slice) => {
                assert!(slice.end_offset > next, "it stands still at {next}");
                bytes.extend(slice.read().unwrap());
                next = slice.end_offset;
            }
            Err(ReadError::Corrupt(damage)) => return (bytes, damage),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_reader_gets_each_batch_before_damage_and_then_meets_it() {
    // The story: with the default sizes a fetch read far beyond its offset, met the damage there and
    // failed as a whole. None of the sound records before it could be read.
    let root = tempfile::tempdir().unwrap();
    let open = || try_open(root.path(), Settings::KAFKA, true);
    let (log, _) = open().unwrap();
    for _ in 0..30 {
        append(&log, plain(2, 600));
    }
    log.close().unwrap();
    let path = &files(root.path(), "log")[0];
    let intact = fs::read(path).unwrap();
    let batch = intact.len() / 30;
    let mut met = 0;
    for nth in [0, 1, 13, 14, 20] {
        for (place, bit) in [(100, 3), (30, 6), (6, 0), (7, 4), (11, 0), (16, 2)] {
            // A checksummed value, attributes, base offset, length and magic.
            flip(path, nth * batch + place, bit);
            for max_bytes in [1, 3 * batch as u64, u64::MAX] {
                let Ok((log, _)) = open() else {
                    continue; // its start has met the damage
                };
                let (bytes, damage) = read_on(&log, max_bytes);
                let sound = &intact[..nth * batch];
                assert!(bytes == sound, "{nth}, {place}: {} bytes", bytes.len());
                assert_eq!(
                    (&damage.path, damage.position as usize),
                    (path, nth * batch)
                );
                assert_eq!(log.take_damage(), [damage]);
                met += 1;
            }
            fs::write(path, &intact).unwrap();
        }
    }
    assert!(met > 50, "{met} were met by a reader");
}

#[test]
fn a_transaction_index_that_lost_entries_is_made_anew() {
    // The story: of an index that was emptied, or cut behind an entry, nothing showed that aborted
    // transactions were missing, and readers were shown their records.
    let root = tempfile::tempdir().unwrap();
    closed_log(root.path());
    let (log, _) = open(root.path(), true);
    let told = told_of_aborted(&log);
    log.close().unwrap();
    for path in targets(root.path(), &["txnindex"]) {
        let whole = fs::read(&path).unwrap();
        for left in [0, whole.len() - ENTRY_BYTES] {
            fs::write(&path, &whole[..left]).unwrap();
            let (log, _) = open(root.path(), true);
            assert_eq!(
                told_of_aborted(&log),
                told,
                "{left} bytes of {}",
                path.display()
            );
            log.close().unwrap();
            assert_eq!(fs::read(&path).unwrap(), whole);
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(told_of_aborted(&open(root.path(), true).0), told);
    }
    fs::write(root.path().join("txnindex-checkpoint"), "0\n1\n0 1 7\n").unwrap();
    let (log, _) = open(root.path(), true);
    assert_eq!(told_of_aborted(&log), told);
}

#[test]
fn damage_is_told_once() {
    let root = tempfile::tempdir().unwrap();
    closed_log(root.path());
    flip(&files(root.path(), "log")[0], 100, 3);
    let (log, _) = open(root.path(), true);
    assert!(log.read(0, 1).is_err());
    assert!(log.read(0, 1).is_err());
    assert_eq!(log.take_damage().len(), 1);
    assert!(log.read(0, 1).is_err());
    assert_eq!(log.take_damage(), []);
}

#[test]
fn a_read_checks_no_more_than_it_may_and_comes_to_the_end_all_the_same() {
    // The story: the first fetch of 55 MB after a restart computed every checksum at once, while
    // all other connections of its reactor waited.
    let directory = TempDir::new().unwrap();
    let open = || try_open(directory.path(), Settings::KAFKA, true).unwrap().0;
    let log = open();
    for _ in 0..40 {
        append(&log, plain(1, 1000));
    }
    log.close().unwrap();
    let log = open();
    let end = log.state().log_end_offset;
    let batch = plain(1, 1000).len() as u64;

    let mut lengths = Vec::new();
    let mut next = 0;
    while next < end {
        let slice = log
            .locate_within(next, end, u64::MAX, true, 8 * batch)
            .unwrap();
        assert!(slice.checked <= 8 * batch);
        lengths.push(slice.len / batch);
        next = slice.end_offset;
    }

    assert_eq!(lengths, [8; 5]);
    let again = log.locate_within(0, end, u64::MAX, true, 0).unwrap();
    assert_eq!((again.len, again.checked), (40 * batch, 0));
}

#[test]
fn who_may_check_nothing_is_shown_nothing_or_a_single_batch() {
    let directory = TempDir::new().unwrap();
    let (log, _) = open(directory.path(), true);
    append(&log, plain(1, 1000));
    append(&log, plain(1, 1000));
    log.close().unwrap();
    let (log, _) = open(directory.path(), true);
    let read = |at_least_one| log.locate_within(0, 2, u64::MAX, at_least_one, 0).unwrap();
    assert_eq!(read(false).len, 0);
    assert_eq!(read(true).end_offset, 1);
    assert_eq!(read(false).end_offset, 1); // that one is known to be sound by now
}

#[test]
fn a_search_by_time_meets_damage_too() {
    let root = tempfile::tempdir().unwrap();
    closed_log(root.path());
    flip(&files(root.path(), "log")[0], 100, 3);
    let (log, _) = open(root.path(), true);
    let found = log.offset_for_timestamp(1000, i64::MAX);
    assert!(matches!(found, Err(ReadError::Corrupt(_))));
}

#[test]
fn an_index_that_points_at_the_wrong_batch_is_made_anew() {
    // Its entries rise as they should, so only the batches tell. A reader was sent past the
    // batches between the wrong offset and the right one.
    let root = tempfile::tempdir().unwrap();
    let batches = closed_log(root.path());
    let path = files(root.path(), "index")
        .into_iter()
        .find(|path| fs::metadata(path).unwrap().len() >= 16)
        .unwrap();
    let bytes = fs::read(&path).unwrap();
    assert!(bytes[3] > 2, "{bytes:?}");
    let mut lying = bytes.clone();
    lying[3] = 1; // the first entry's offset
    fs::write(&path, lying).unwrap();
    let (log, _) = open(root.path(), true);
    assert_eq!(read_all(&log).unwrap(), batches);
}

/// A closed log of one record per batch, whose times go up and down; the times by offset.
fn timed_log(directory: &Path) -> Vec<i64> {
    let (log, _) = open(directory, false);
    let times: Vec<i64> = (0..60).map(|nth| 10 * (nth * 37 % 60)).collect();
    for &time in &times {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.push(time, Some(b"key"), Some(&[b'v'; 60]), &[]);
        append(&log, builder.seal().unwrap());
    }
    log.close().unwrap();
    times
}

/// The files of a closed log that a bit may be flipped in.
fn targets(directory: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    extensions
        .iter()
        .flat_map(|extension| files(directory, extension))
        .filter(|path| fs::metadata(path).unwrap().len() > 0)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// One bit of any segment or offset index: every batch is read as it was, or not at all. A log
    /// that was closed was on the disk as a whole, which its recovery point says; else a flipped
    /// length of the very last batch could not be told from one that was torn.
    #[test]
    fn no_flipped_bit_is_shown(nth in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let root = tempfile::tempdir().unwrap();
        let batches = closed_log(root.path());
        let targets = targets(root.path(), &["log", "index"]);
        let path = &targets[nth.index(targets.len())];
        let size = fs::metadata(path).unwrap().len() as usize;
        let position = at.index(size);
        let last_log = files(root.path(), "log").pop().unwrap();
        // Of the log's very last batch nothing but itself knows the offset.
        let last_batch = size - batches.last().unwrap().1.len().min(size);
        prop_assume!(*path != last_log || !(last_batch..last_batch + 8).contains(&position));
        flip(path, position, bit);
        let past = Past { was_clean: true, recovery_point: 180, ..Past::default() };
        let Ok((log, _)) = try_open_from(root.path(), SMALL, past) else { return Ok(()) };
        for (offset, batch) in &batches {
            match log.read(*offset, 1) {
                Ok(bytes) => {
                    let shown = Batches::new(&bytes).next().unwrap().bytes().to_vec();
                    // The leader epoch, bytes 12 to 15, is under no checksum either.
                    prop_assert_eq!(&shown[..12], &batch[..12]);
                    prop_assert_eq!(&shown[16..], &batch[16..]);
                }
                Err(ReadError::Corrupt(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// One bit of any transaction index: readers are told of the same aborted transactions. It is
    /// under no checksum, and a wrong entry showed them aborted records.
    #[test]
    fn no_flipped_bit_of_a_transaction_index_is_believed(nth in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let root = tempfile::tempdir().unwrap();
        closed_log(root.path());
        let (log, _) = open(root.path(), true);
        let told = told_of_aborted(&log);
        log.close().unwrap();
        let targets = targets(root.path(), &["txnindex"]);
        let path = &targets[nth.index(targets.len())];
        flip(path, at.index(fs::metadata(path).unwrap().len() as usize), bit);
        let (log, _) = open(root.path(), true);
        prop_assert_eq!(told_of_aborted(&log), told);
    }

    /// One bit of any index: a search by time finds the same record as before. A time that had
    /// become smaller hid the batches between it and the next entry.
    #[test]
    fn no_flipped_bit_of_an_index_misleads_a_search_by_time(nth in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let root = tempfile::tempdir().unwrap();
        let times = timed_log(root.path());
        let targets = targets(root.path(), &["index", "timeindex"]);
        let path = &targets[nth.index(targets.len())];
        flip(path, at.index(fs::metadata(path).unwrap().len() as usize), bit);
        let (log, _) = open(root.path(), true);
        for time in (0..620).step_by(5) {
            let first = times.iter().position(|&it| it >= time);
            let wanted = first.map(|offset| (offset as i64, times[offset]));
            prop_assert_eq!(log.offset_for_timestamp(time, i64::MAX).unwrap(), wanted);
        }
        let latest = times.iter().position(|&it| it == 590).unwrap();
        prop_assert_eq!(log.offset_of_max_timestamp(i64::MAX).unwrap(), Some((latest as i64, 590)));
    }
}
