//! The promises of a partition's log to appenders and readers.

mod common;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use common::{
    CLIENT, SMALL, TestProducerState, append, build, delete_records, files, log_bytes, marker,
    open, plain, transactional, try_open,
};
use proptest::prelude::*;
use txn_log::builder::BatchBuilder;
use txn_log::content::AppendBudget;
use txn_log::producer_state::AdmitResult;
use txn_log::{
    AppendError, LogState, Origin, PartitionLog, Past, ProducerStateManager, ReadError, Settings,
    Watcher,
};
use txn_protocol::batch::{BatchView, Batches, Codec};
use txn_protocol::records::Records;

fn refused(log: &PartitionLog, mut batch: Vec<u8>) -> i16 {
    log.append(CLIENT, &mut batch).unwrap_err().code()
}

/// Changes a batch and gives it a matching checksum.
fn forged(mut batch: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    change(&mut batch);
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

#[test]
fn nothing_is_on_disk_until_the_first_append() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("orders-0");
    let (log, producer_state) = open(&directory, false);
    assert_eq!(
        log.state(),
        LogState {
            log_start_offset: 0,
            high_watermark: 0,
            log_end_offset: 0,
            last_stable_offset: 0
        }
    );
    assert_eq!(log.read(0, 100).unwrap(), b"");
    assert!(!directory.exists());
    assert_eq!(*producer_state.restored.lock().unwrap(), [None]);
    append(&log, plain(1, 5));
    let names: Vec<String> = ["index", "log", "timeindex"]
        .iter()
        .flat_map(|extension| files(&directory, extension))
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    let base = "00000000000000000000";
    assert_eq!(
        names,
        [
            format!("{base}.index"),
            format!("{base}.log"),
            format!("{base}.timeindex")
        ]
    );
    let epochs = std::fs::read_to_string(directory.join("leader-epoch-checkpoint")).unwrap();
    assert_eq!(epochs, "0\n1\n0 0\n");
}

#[test]
fn the_directory_carries_the_metadata_it_was_given() {
    let root = tempfile::tempdir().unwrap();
    let text = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n";
    let producer_state: Arc<dyn ProducerStateManager> = Arc::new(TestProducerState::default());
    let directory = root.path().join("orders-0");
    let log = PartitionLog::open(
        directory.clone(),
        producer_state,
        SMALL,
        Some(text.to_owned()),
        Past::default(),
    )
    .unwrap();
    append(&log, plain(1, 5));
    assert_eq!(
        std::fs::read_to_string(directory.join("partition.metadata")).unwrap(),
        text
    );
}

#[test]
fn a_batch_is_stored_as_sent_but_for_offset_and_leader_epoch() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, plain(3, 5));
    let sent = plain(2, 7);
    let mut batch = sent.clone();
    let appended = log.append(CLIENT, &mut batch).unwrap();
    assert_eq!((appended.base_offset, appended.log_append_time), (3, -1));
    let stored = log.read(3, 1).unwrap();
    assert_eq!(stored, batch);
    assert_eq!(stored[..8], 3i64.to_be_bytes());
    assert_eq!(stored[12..16], 0i32.to_be_bytes());
    assert_eq!((&stored[8..12], &stored[16..]), (&sent[8..12], &sent[16..]));
    BatchView::parse(&stored).unwrap().validate().unwrap();
}

#[test]
fn damaged_bytes_are_refused_as_corrupt() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    let mut flipped = plain(1, 50);
    flipped[80] ^= 1;
    assert_eq!(refused(&log, flipped), 2);
    let mut cut = plain(1, 50);
    cut.pop();
    assert_eq!(refused(&log, cut), 2);
    assert_eq!(refused(&log, Vec::new()), 2);
    assert_eq!(log.state().log_end_offset, 0);
}

#[test]
fn batches_that_clients_may_not_write_are_refused_as_invalid() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state) = open(root.path(), false);
    let two = [plain(1, 5), plain(1, 5)].concat();
    let old_format = forged(plain(1, 5), |batch| batch[16] = 1);
    let control = forged(transactional(7, 1), |batch| batch[22] |= 0x20);
    let offset = forged(plain(1, 5), |batch| batch[7] = 1);
    let no_records = forged(plain(1, 5), |batch| batch[60] = 0);
    let too_many = forged(plain(1, 5), |batch| batch[60] = 2);
    let span = forged(plain(2, 5), |batch| batch[26] = 2);
    let no_producer = forged(plain(1, 5), |batch| batch[22] |= 0x10);
    let record_length = forged(plain(1, 5), |batch| batch[61] += 2);
    for batch in [
        two,
        old_format,
        control,
        offset,
        no_records,
        too_many,
        span,
        no_producer,
        record_length,
    ] {
        assert_eq!(refused(&log, batch), 87);
    }
    assert!(producer_state.candidates.lock().unwrap().is_empty());
    assert_eq!(log.state().log_end_offset, 0);
}

#[test]
fn codecs_and_append_times_and_sizes_have_codes_of_their_own() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        max_message_bytes: 200,
        ..SMALL
    };
    let (log, _) = try_open(root.path(), settings, false).unwrap();
    assert_eq!(
        refused(&log, forged(plain(1, 5), |batch| batch[22] |= 5)),
        76
    );
    assert_eq!(
        refused(&log, forged(plain(1, 5), |batch| batch[22] |= 8)),
        32
    );
    assert_eq!(refused(&log, plain(1, 300)), 10);
    let mut large = plain(1, 300);
    assert!(
        log.append(Origin::Coordinator, &mut large).is_ok(),
        "a coordinator is not bounded"
    );
}

#[test]
fn a_record_that_is_too_large_after_decompression_refuses_its_compressed_batch() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        max_decompressed_message_bytes: 100,
        ..SMALL
    };
    let (log, _) = try_open(root.path(), settings, false).unwrap();
    for (codec, bytes, code) in [
        (Codec::Gzip, 50, None),
        (Codec::Gzip, 150, Some(87)),
        (Codec::Zstd, 150, Some(87)),
        (Codec::None, 150, None),
    ] {
        let mut builder = BatchBuilder::new(codec);
        builder.push(5, None, Some(&vec![b'a'; bytes]), &[]);
        let answer = log.append(CLIENT, &mut builder.seal().unwrap());
        assert_eq!(
            answer.err().map(|error| error.code()),
            code,
            "{codec:?} {bytes}"
        );
    }
}

#[test]
fn compressed_batches_are_stored_as_they_came() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    let mut builder = BatchBuilder::new(Codec::Gzip);
    builder.push(5, None, Some(b"value"), &[]);
    let batch = builder.seal().unwrap();
    assert_eq!(append(&log, batch.clone()), 0);
    assert_eq!(log.read(0, 1).unwrap()[16..], batch[16..]);
}

#[test]
fn a_batch_that_nobody_can_open_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    // Not gzip at all, but sealed as a gzip batch of one record.
    let mut batch = forged(plain(1, 5), |batch| batch[22] |= 1);
    let refused = log.append(CLIENT, &mut batch).unwrap_err();
    assert_eq!(refused.code(), 87);
    assert!(
        refused
            .to_string()
            .contains("it does not begin as gzip does")
    );
    assert_eq!(log.state().log_end_offset, 0);
}

fn budget_of(bytes: usize) -> AppendBudget {
    AppendBudget { bytes, names: 0 }
}

#[test]
fn a_batch_beyond_the_budget_is_not_opened_until_it_was_inspected() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    let mut builder = BatchBuilder::new(Codec::Zstd);
    builder.push(5, None, Some(&vec![7; 300_000]), &[]);
    let mut batch = builder.seal().unwrap();
    let (mut content, mut budget) = (None, budget_of(200_000));
    let refused = log.append_within(CLIENT, &mut batch, &mut content, &mut budget);
    assert!(matches!(refused, Err(AppendError::Uninspected)));
    assert_eq!((content, budget.bytes), (None, 0));
    let (mut opened, mut names) = (0, 0);
    content = Some(
        log.inspect(
            CLIENT,
            &BatchView::parse(&batch).unwrap(),
            &mut opened,
            &mut names,
        )
        .unwrap(),
    );
    assert!(opened > 300_000);
    log.append_within(CLIENT, &mut batch, &mut content, &mut budget)
        .unwrap();
    let (mut content, mut budget) = (None, budget_of(400_000));
    log.append_within(CLIENT, &mut batch, &mut content, &mut budget)
        .unwrap();
    assert!(content.is_some() && budget.bytes < 100_000);
}

#[test]
fn log_append_time_is_stamped_with_a_new_checksum() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        log_append_time: true,
        ..SMALL
    };
    let (log, producer_state) = try_open(root.path(), settings, false).unwrap();
    let mut batch = build(7, false, 2, 5);
    let appended = log.append(CLIENT, &mut batch).unwrap();
    let stored = log.read(0, 1).unwrap();
    let view = BatchView::parse(&stored).unwrap();
    view.validate().unwrap();
    assert!(view.is_log_append_time());
    assert_eq!(view.max_timestamp(), appended.log_append_time);
    assert!(appended.log_append_time > 1_600_000_000_000);
    assert_eq!(
        producer_state.candidates.lock().unwrap()[0].max_timestamp_ms,
        appended.log_append_time
    );
    let found = log
        .offset_for_timestamp(appended.log_append_time, i64::MAX)
        .unwrap();
    assert_eq!(found, Some((0, appended.log_append_time)));
}

/// A segment on the disk still holds deleted records, and a search named one of them.
#[test]
fn a_search_by_time_finds_no_deleted_record() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    for _ in 0..2 {
        append(&log, plain(3, 5));
    }
    delete_records(&log, 1).unwrap();
    let (start, _) = log.offset_for_timestamp(0, i64::MAX).unwrap().unwrap();
    assert_eq!(start, 1);
    delete_records(&log, 3).unwrap();
    let (start, _) = log.offset_for_timestamp(0, i64::MAX).unwrap().unwrap();
    assert_eq!(start, 3);
    delete_records(&log, 6).unwrap();
    assert_eq!(log.offset_for_timestamp(0, i64::MAX).unwrap(), None);
}

#[test]
fn plain_batches_do_not_ask_the_gate() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state) = open(root.path(), false);
    append(&log, plain(2, 5));
    assert!(producer_state.candidates.lock().unwrap().is_empty());
    append(&log, transactional(7, 3));
    let candidate = producer_state.candidates.lock().unwrap()[0];
    assert_eq!((candidate.origin, candidate.next_offset), (CLIENT, 2));
    assert_eq!((candidate.producer_id, candidate.record_count), (7, 3));
}

#[test]
fn verdicts_other_than_admit_write_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state) = open(root.path(), false);
    append(&log, plain(1, 5));
    let before = log_bytes(root.path());
    let ask = |admitted: AdmitResult| {
        *producer_state.next_verdict.lock().unwrap() = Some(admitted);
        log.append(CLIENT, &mut transactional(7, 1)).unwrap_err()
    };
    assert!(matches!(ask(AdmitResult::Join), AppendError::Join));
    let duplicate = ask(AdmitResult::Duplicate { base_offset: 42 });
    assert!(matches!(
        duplicate,
        AppendError::Duplicate { base_offset: 42 }
    ));
    assert_eq!(ask(AdmitResult::Refuse { code: 90 }).code(), 90);
    assert_eq!(log_bytes(root.path()), before);
    assert_eq!(log.state().log_end_offset, 1);
    assert_eq!(append(&log, transactional(7, 1)), 1);
}

#[test]
fn a_batch_that_had_to_join_may_be_appended_again_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    let settings = Settings {
        log_append_time: true,
        ..SMALL
    };
    let (log, producer_state) = try_open(root.path(), settings, false).unwrap();
    let mut batch = transactional(7, 1);
    *producer_state.next_verdict.lock().unwrap() = Some(AdmitResult::Join);
    assert!(matches!(
        log.append(CLIENT, &mut batch),
        Err(AppendError::Join)
    ));
    assert_eq!(log.append(CLIENT, &mut batch).unwrap().base_offset, 0);
}

#[test]
fn the_last_stable_offset_waits_for_the_oldest_open_transaction() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    let stable = || log.state().last_stable_offset;
    append(&log, plain(2, 5));
    assert_eq!(stable(), 2);
    append(&log, transactional(7, 1)); // 2
    append(&log, transactional(8, 1)); // 3
    append(&log, plain(1, 5)); // 4
    assert_eq!(stable(), 2);
    assert_eq!(log.append_marker(&marker(7, true)).unwrap(), 5);
    assert_eq!(stable(), 3);
    assert_eq!(log.append_marker(&marker(8, false)).unwrap(), 6);
    assert_eq!(stable(), 7);
    assert_eq!(log.state().log_end_offset, 7);
}

#[test]
fn aborts_are_named_where_they_overlap() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, plain(10, 5)); // 0..10
    append(&log, transactional(7, 2)); // 10, 11
    log.append_marker(&marker(7, false)).unwrap(); // 12
    append(&log, plain(10, 5)); // 13..23
    assert_eq!(log.aborted_in(0, 10), []);
    assert_eq!(log.aborted_in(13, 23), []);
    assert_eq!(log.aborted_in(0, 11), [(7, 10)]);
    assert_eq!(log.aborted_in(12, 13), [(7, 10)]);
}

#[test]
fn aborts_are_named_by_first_offset_also_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, transactional(8, 1)); // 0
    append(&log, transactional(7, 2)); // 1, 2
    log.append_marker(&marker(7, false)).unwrap();
    log.append_marker(&marker(8, false)).unwrap();
    assert_eq!(log.aborted_in(0, 2), [(8, 0), (7, 1)]);
    drop(log);
    let (log, _) = open(root.path(), false);
    assert_eq!(log.aborted_in(0, 2), [(8, 0), (7, 1)]);
}

#[test]
fn a_marker_is_a_control_batch_of_one_record() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, transactional(7, 1));
    let offset = log.append_marker(&marker(7, true)).unwrap();
    let stored = log.read(offset, 1).unwrap();
    let view = BatchView::parse(&stored).unwrap();
    view.validate().unwrap();
    assert!(view.is_control() && view.is_transactional());
    assert_eq!(
        (
            view.producer_id(),
            view.producer_epoch(),
            view.base_sequence()
        ),
        (7, 0, -1)
    );
    assert_eq!(
        (
            view.base_offset(),
            view.record_count(),
            view.max_timestamp()
        ),
        (1, 1, 1500)
    );
    let record = Records::new(view.records(), 1).next().unwrap().unwrap();
    assert_eq!(record.key, Some(&[0, 0, 0, 1][..]));
    assert_eq!(record.value, Some(&[0, 0, 0, 0, 0, 5][..]));
}

#[test]
fn reads_outside_the_log_say_what_is_there() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, plain(3, 5));
    assert_eq!(log.read(3, 100).unwrap(), b"");
    for start in [-1, 4] {
        let error = log.read(start, 100).unwrap_err();
        assert!(matches!(error, ReadError::OutOfRange { .. }), "{error}");
        assert!(error.to_string().contains("[0, 3)"), "{error}");
    }
}

#[test]
fn segments_roll_at_their_size_and_leave_a_snapshot_each() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    for _ in 0..40 {
        append(&log, build(7, false, 1, 200));
    }
    let segments = files(root.path(), "log");
    assert!(segments.len() > 3, "{segments:?}");
    for segment in &segments {
        let bytes = std::fs::read(segment).unwrap();
        assert!(bytes.len() <= 2000);
        let base = BatchView::parse(&bytes).unwrap().base_offset();
        assert_eq!(
            segment.file_stem().unwrap().to_str().unwrap(),
            format!("{base:020}")
        );
    }
    let snapshots: Vec<_> = files(root.path(), "snapshot")
        .iter()
        .map(|path| path.file_stem().unwrap().to_owned())
        .collect();
    let bases: Vec<_> = segments[1..]
        .iter()
        .map(|path| path.file_stem().unwrap().to_owned())
        .collect();
    assert_eq!(snapshots, bases);
    assert_eq!(log.size_bytes(), log_bytes(root.path()).len() as u64);
}

#[test]
fn a_batch_larger_than_a_segment_gets_one_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    append(&log, plain(1, 5));
    append(&log, plain(1, 5000));
    append(&log, plain(1, 5));
    assert_eq!(files(root.path(), "log").len(), 3);
    assert_eq!(Batches::new(&log.read(1, 1).unwrap()).count(), 1);
}

#[test]
fn changed_settings_hold_for_the_next_append() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    log.configure(Settings {
        max_message_bytes: 100,
        ..SMALL
    });
    assert_eq!(refused(&log, plain(1, 300)), 10);
}

#[test]
fn a_log_that_cannot_write_takes_nothing_more_but_is_read() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(root.path(), false);
    for _ in 0..8 {
        append(&log, plain(1, 150));
    }
    // The next segment's file swallows nothing: every write fails as on a full disk.
    let next = root.path().join(format!("{:020}.log", 8));
    std::os::unix::fs::symlink("/dev/full", next).unwrap();
    let error = log.append(CLIENT, &mut transactional(7, 40)).unwrap_err();
    assert!(matches!(error, AppendError::Io(_)), "{error}");
    let error = log.append(CLIENT, &mut plain(1, 5)).unwrap_err();
    assert_eq!(error.code(), 56);
    assert!(error.to_string().contains("offset 8"), "{error}");
    assert!(log.append_marker(&marker(7, true)).is_err());
    assert_eq!(log.state().log_end_offset, 8);
    assert_eq!(Batches::new(&log.read(0, 10_000).unwrap()).count(), 8);
    assert!(log.close().is_err(), "the directory is no clean one");
}

#[test]
fn a_closed_log_refuses_and_a_deleted_one_is_gone() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("orders-0");
    let (log, _) = open(&directory, false);
    append(&log, plain(1, 5));
    log.close().unwrap();
    log.close().unwrap();
    assert!(matches!(
        log.append(CLIENT, &mut plain(1, 5)),
        Err(AppendError::Closed)
    ));
    assert!(matches!(log.read(0, 1), Err(ReadError::Closed)));
    log.delete().unwrap();
    assert!(!directory.exists());
    log.delete().unwrap();
}

#[test]
fn a_log_with_the_longest_name_is_deleted_while_others_of_its_beginning_are() {
    // The story: the directory was renamed to its name and `-delete`, more than a file system
    // takes for topics of 247 characters and more. Nor does one that is there already matter.
    let root = tempfile::tempdir().unwrap();
    for topic in ["orders".to_owned(), "t".repeat(249)] {
        let left = root.path().join(format!("{}-delete", &topic[..6]));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("left"), b"").unwrap();
        let (log, _) = open(&root.path().join(format!("{topic}-99999")), false);
        append(&log, plain(1, 5));
        log.delete().unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        fs::remove_dir_all(left).unwrap();
    }
}

/// It failed, and with it a commit of everything else the transaction had written.
#[test]
fn a_sync_of_a_log_that_was_deleted_meanwhile_succeeds() {
    let root = tempfile::tempdir().unwrap();
    let (log, _) = open(&root.path().join("orders-0"), false);
    append(&log, plain(1, 5));
    log.delete().unwrap();
    log.sync().unwrap();
}

/// Looks at the log, and leaves, while it is being woken.
struct Curious {
    log: Mutex<Weak<PartitionLog>>,
    producer_state: Arc<TestProducerState>,
    id: Mutex<Option<u64>>,
    seen: Mutex<Vec<i64>>,
    wakes: AtomicUsize,
}

impl Watcher for Curious {
    fn log_advanced(&self) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        let log = self.log.lock().unwrap().upgrade().unwrap();
        self.seen.lock().unwrap().push(log.state().log_end_offset);
        // Takes the partition's lock, and stores nothing.
        *self.producer_state.next_verdict.lock().unwrap() = Some(AdmitResult::Join);
        assert!(log.append(CLIENT, &mut transactional(8, 1)).is_err());
        if let Some(id) = self.id.lock().unwrap().take() {
            log.unwatch(id);
        }
    }
}

#[test]
fn watchers_are_woken_after_the_lock_and_may_leave_meanwhile() {
    let root = tempfile::tempdir().unwrap();
    let (log, producer_state) = open(root.path(), false);
    let log = Arc::new(log);
    append(&log, transactional(7, 1));
    log.append_marker(&marker(7, false)).unwrap();
    let watcher = Arc::new(Curious {
        log: Mutex::new(Arc::downgrade(&log)),
        producer_state,
        id: Mutex::new(None),
        seen: Mutex::default(),
        wakes: AtomicUsize::new(0),
    });
    let id = log.watch(Arc::clone(&watcher) as Arc<dyn Watcher>);
    append(&log, plain(2, 5));
    *watcher.id.lock().unwrap() = Some(id);
    append(&log, plain(1, 5));
    append(&log, plain(1, 5));
    assert_eq!(*watcher.seen.lock().unwrap(), [4, 5]);
    assert_eq!(watcher.wakes.load(Ordering::SeqCst), 2);
}

#[test]
fn a_reader_beside_a_writer_sees_whole_batches_and_a_stable_offset_that_only_rises() {
    let root = tempfile::tempdir().unwrap();
    let log = Arc::new(open(root.path(), false).0);
    let writer = std::thread::spawn({
        let log = Arc::clone(&log);
        move || {
            for round in 0..150 {
                append(&log, plain(2, 30));
                append(&log, transactional(round % 3, 1));
                log.append_marker(&marker(round % 3, round % 2 == 0))
                    .unwrap();
            }
        }
    });
    let (mut next, mut stable) = (0, 0);
    while next < 600 {
        let state = log.state();
        assert!(stable <= state.last_stable_offset);
        assert!(state.last_stable_offset <= state.log_end_offset);
        stable = state.last_stable_offset;
        let slice = log.locate(next, stable, 1000, true).unwrap();
        let bytes = slice.read().unwrap();
        let mut batches = Batches::new(&bytes);
        for batch in batches.by_ref() {
            batch.validate().unwrap();
            assert_eq!(batch.base_offset(), next);
            assert!(batch.last_offset() < stable);
            next = batch.last_offset() + 1;
        }
        assert!(batches.rest().is_empty());
        assert_eq!(slice.end_offset, next);
    }
    writer.join().unwrap();
}

/// Base offset, last offset and bytes of every stored batch, by reading everything.
fn scan(directory: &Path) -> Vec<(i64, i64, Vec<u8>)> {
    Batches::new(&log_bytes(directory))
        .map(|batch| {
            (
                batch.base_offset(),
                batch.last_offset(),
                batch.bytes().to_vec(),
            )
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn lookups_equal_a_linear_scan(
        batches in prop::collection::vec((1usize..6, 0usize..400), 1..60),
        queries in prop::collection::vec((0i64..200, 0i64..250, 0u64..3000, any::<bool>()), 30),
        reopen in 0u8..3,
    ) {
        let root = tempfile::tempdir().unwrap();
        let (mut log, _) = open(root.path(), false);
        for (count, value_bytes) in batches {
            append(&log, plain(count, value_bytes));
        }
        if reopen > 0 {
            log.close().unwrap();
            log = open(root.path(), reopen == 1).0;
        }
        let all = scan(root.path());
        let bases: Vec<i64> = files(root.path(), "log")
            .iter()
            .map(|path| path.file_stem().unwrap().to_str().unwrap().parse().unwrap())
            .collect();
        let log_end = all[all.len() - 1].1 + 1;
        for (start, end, bytes_max, at_least_one) in queries {
            let start = start.min(log_end);
            // By hand: the batches of one segment, from the one that holds `start`.
            let wanted: Vec<_> = all.iter().filter(|(_, last, _)| *last >= start && *last < end).collect();
            let segment_end = |base: i64| bases.iter().copied().find(|b| *b > base).unwrap_or(i64::MAX);
            let mut expected: Vec<u8> = Vec::new();
            let mut expected_end = start;
            for (base, last, bytes) in &wanted {
                let fits = (expected.len() + bytes.len()) as u64 <= bytes_max;
                let is_first_allowed = expected.is_empty() && at_least_one;
                if *base >= segment_end(wanted[0].0) || !(fits || is_first_allowed) {
                    break;
                }
                expected.extend_from_slice(bytes);
                expected_end = last + 1;
            }
            let slice = log.locate(start, end, bytes_max, at_least_one).unwrap();
            let bytes = slice.read().unwrap();
            prop_assert_eq!(&bytes, &expected);
            prop_assert!(slice.end_offset >= expected_end);
            prop_assert!(expected.is_empty() || slice.end_offset <= end.min(log_end).max(expected_end));
            let is_there = all.iter().any(|(base, last, _)| *last >= start && *base < end);
            let stored: usize = wanted.iter().map(|(_, _, bytes)| bytes.len()).sum();
            let available = log.available(start, end, u64::MAX);
            prop_assert_eq!(available > 0, is_there && start < end.min(log_end));
            prop_assert!(available >= stored as u64);
            prop_assert!(log.available(start, end, 100) <= 100);
        }
    }

    #[test]
    fn searches_by_time_equal_a_linear_scan(
        batches in prop::collection::vec(
            (prop::collection::vec(0i64..300, 1..6), 0u8..5, any::<bool>()), 1..40),
        queries in prop::collection::vec((0i64..310, 0usize..40), 20),
    ) {
        let root = tempfile::tempdir().unwrap();
        let (log, _) = open(root.path(), false);
        let mut records: Vec<(i64, i64)> = Vec::new(); // (offset, timestamp)
        let mut ends = vec![0];
        let mut markers: Vec<(i64, i64)> = Vec::new();
        for (timestamps, codec, with_marker) in batches {
            let mut builder = BatchBuilder::new(Codec::from_id(codec).unwrap());
            let base = log.state().log_end_offset;
            for (nth, timestamp) in timestamps.iter().enumerate() {
                builder.push(*timestamp, None, Some(&[0; 60]), &[]);
                records.push((base + nth as i64, *timestamp));
            }
            append(&log, builder.seal().unwrap());
            ends.push(log.state().log_end_offset);
            if with_marker {
                markers.push((log.state().log_end_offset, 1500));
                log.append_marker(&marker(7, true)).unwrap(); // no record to a search since a time
                ends.push(log.state().log_end_offset);
            }
        }
        for (timestamp, nth_end) in queries {
            let end = ends[nth_end % ends.len()];
            let below: Vec<_> = records.iter().copied().filter(|(offset, _)| *offset < end).collect();
            let expected = below.iter().copied().find(|(_, at)| *at >= timestamp);
            prop_assert_eq!(log.offset_for_timestamp(timestamp, end).unwrap(), expected);
            let first_marker = markers.first().copied().filter(|(offset, _)| *offset < end);
            let largest = below.iter().map(|(_, at)| *at).max();
            let latest = below.iter().copied().find(|(_, at)| Some(*at) == largest);
            let expected = first_marker.or(latest);
            prop_assert_eq!(log.offset_of_max_timestamp(end).unwrap(), expected);
        }
    }
}
