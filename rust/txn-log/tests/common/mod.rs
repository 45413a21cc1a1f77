//! A producer state in Rust for the tests: small, but with real open and aborted transactions, so that
//! recovery can be held against it.
#![allow(dead_code)] // each test file uses its part

pub mod journal;

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, Mutex};

use txn_log::builder::{BatchBuilder, decode_marker};
use txn_log::producer_state::{
    AbortedTxn, AdmitResult, BatchKind, IncomingBatch, LastBatch, Marker, ProducerStateError,
    ProducerStateManager, ReplayedBatch,
};
use txn_log::{OpenError, Origin, PartitionLog, Past, ReadError, Settings};
use txn_protocol::batch::{BatchView, Batches, Codec};

/// The checkpoints of a log that has none: nothing is noted.
#[allow(clippy::unnecessary_wraps)] // the log wants a Result
pub fn no_checkpoints(_: i64) -> io::Result<()> {
    Ok(())
}

/// The knowledge of a producer state; equal states must answer equally.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerState {
    /// First offset of the open transaction of each producer id.
    pub open: BTreeMap<i64, i64>,
    pub aborted: Vec<AbortedTxn>,
    /// Last offsets of the last five data batches of each producer id.
    pub recent: BTreeMap<i64, Vec<i64>>,
}

impl ProducerState {
    fn first_unstable(&self) -> Option<i64> {
        self.open.values().min().copied()
    }

    fn remember(&mut self, producer_id: i64, last_offset: i64) {
        let recent = self.recent.entry(producer_id).or_default();
        recent.push(last_offset);
        recent.sort_unstable();
        recent.dedup();
        recent.drain(..recent.len().saturating_sub(5));
    }

    fn data(&mut self, producer_id: i64, offsets: RangeInclusive<i64>, is_transactional: bool) {
        self.remember(producer_id, *offsets.end());
        if is_transactional {
            self.open.entry(producer_id).or_insert(*offsets.start());
        }
    }

    fn end(&mut self, producer_id: i64, offset: i64, is_commit: bool) -> Option<AbortedTxn> {
        let first_offset = self.open.remove(&producer_id)?;
        let entry = AbortedTxn {
            producer_id,
            first_offset,
            last_offset: offset,
            last_stable_offset: self.first_unstable().unwrap_or(offset + 1),
        };
        if is_commit {
            return None;
        }
        self.aborted.push(entry);
        Some(entry)
    }

    /// Like Kafka's snapshot: open transactions, and only the last batch of each producer.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (producer_id, recent) in &self.recent {
            let first_offset = self.open.get(producer_id).copied().unwrap_or(-1);
            for number in [*producer_id, first_offset, recent[recent.len() - 1]] {
                bytes.extend_from_slice(&number.to_be_bytes());
            }
        }
        let crc = !crc32c::crc32c(&bytes); // four zeros, all that is left of a torn file, are none
        bytes.extend_from_slice(&crc.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, crc) = bytes.split_last_chunk::<4>()?;
        if !crc32c::crc32c(bytes) != u32::from_be_bytes(*crc) {
            return None;
        }
        let mut state = Self::default();
        for entry in bytes.chunks_exact(24) {
            let number = |at: usize| i64::from_be_bytes(*entry[at..].first_chunk().unwrap());
            if number(8) >= 0 {
                state.open.insert(number(0), number(8));
            }
            state.recent.insert(number(0), vec![number(16)]);
        }
        Some(state)
    }
}

/// A producer state that admits everything, unless told otherwise, and counts its calls.
#[derive(Debug, Default)]
pub struct TestProducerState {
    pub state: Mutex<ProducerState>,
    pub next_verdict: Mutex<Option<AdmitResult>>,
    pub candidates: Mutex<Vec<IncomingBatch>>,
    pub restored: Mutex<Vec<Option<Vec<u8>>>>,
    pub replayed: Mutex<Vec<ReplayedBatch>>,
}

impl TestProducerState {
    pub fn state(&self) -> ProducerState {
        self.state.lock().unwrap().clone()
    }
}

impl ProducerStateManager for TestProducerState {
    fn admit(&self, candidate: &IncomingBatch) -> AdmitResult {
        self.candidates.lock().unwrap().push(*candidate);
        if let Some(admitted) = self.next_verdict.lock().unwrap().take() {
            return admitted;
        }
        let mut state = self.state.lock().unwrap();
        state.data(
            candidate.producer_id,
            candidate.next_offset..=candidate.next_offset + i64::from(candidate.record_count) - 1,
            candidate.is_transactional,
        );
        AdmitResult::Admit {
            first_unstable_offset: state.first_unstable(),
            aborted: None,
        }
    }

    fn admit_marker(&self, next_offset: i64, marker: &Marker) -> AdmitResult {
        let mut state = self.state.lock().unwrap();
        let aborted = state.end(marker.producer_id, next_offset, marker.is_commit);
        AdmitResult::Admit {
            first_unstable_offset: state.first_unstable(),
            aborted,
        }
    }

    fn forget_below(&self, log_start_offset: i64) {
        let mut state = self.state.lock().unwrap();
        state
            .aborted
            .retain(|entry| entry.last_offset >= log_start_offset);
    }

    fn forget_aborted(&self, last_offsets: &[i64]) -> Result<(), ProducerStateError> {
        let mut state = self.state.lock().unwrap();
        state
            .aborted
            .retain(|entry| !last_offsets.contains(&entry.last_offset));
        Ok(())
    }

    fn last_batches(&self) -> Result<Vec<LastBatch>, ProducerStateError> {
        let state = self.state.lock().unwrap();
        let batches = state.recent.iter().flat_map(|(&producer_id, recent)| {
            recent.iter().map(move |&last_offset| LastBatch {
                producer_id,
                producer_epoch: 0,
                last_offset: Some(last_offset),
            })
        });
        Ok(batches.collect())
    }

    fn snapshot(&self) -> Result<Vec<u8>, ProducerStateError> {
        Ok(self.state.lock().unwrap().encode())
    }

    fn restore(
        &self,
        snapshot: Option<&[u8]>,
        aborted: &[AbortedTxn],
    ) -> Result<(), ProducerStateError> {
        self.restored
            .lock()
            .unwrap()
            .push(snapshot.map(<[u8]>::to_vec));
        self.replayed.lock().unwrap().clear();
        let state = snapshot.map_or(Some(ProducerState::default()), ProducerState::decode);
        let mut state = state.ok_or_else(|| ProducerStateError("damaged".to_owned()))?;
        state.aborted = aborted.to_vec();
        *self.state.lock().unwrap() = state;
        Ok(())
    }

    fn replay(&self, batches: &[ReplayedBatch]) -> Result<Vec<AbortedTxn>, ProducerStateError> {
        self.replayed.lock().unwrap().extend_from_slice(batches);
        let mut state = self.state.lock().unwrap();
        let mut aborted = Vec::new();
        for batch in batches {
            let producer_id = batch.producer_id;
            let offsets = batch.base_offset..=batch.last_offset;
            match batch.kind {
                BatchKind::Idempotent => state.data(producer_id, offsets, false),
                BatchKind::Transactional => state.data(producer_id, offsets, true),
                BatchKind::AbortMarker | BatchKind::CommitMarker => {
                    let is_commit = batch.kind == BatchKind::CommitMarker;
                    aborted.extend(state.end(producer_id, batch.base_offset, is_commit));
                }
            }
        }
        Ok(aborted)
    }

    fn backfill(&self, batches: &[ReplayedBatch]) -> Result<(), ProducerStateError> {
        let mut state = self.state.lock().unwrap();
        for batch in batches {
            if matches!(batch.kind, BatchKind::Idempotent | BatchKind::Transactional) {
                state.remember(batch.producer_id, batch.last_offset);
            }
        }
        Ok(())
    }

    fn first_unstable_offset(&self) -> Result<Option<i64>, ProducerStateError> {
        Ok(self.state.lock().unwrap().first_unstable())
    }
}

pub const CLIENT: Origin = Origin::Client {
    transaction_version: 2,
    transactional_id_hash: None,
};

/// Segments of a few batches, an index entry every few batches.
pub const SMALL: Settings = Settings {
    segment_bytes: 2000,
    index_interval_bytes: 300,
    ..Settings::KAFKA
};

pub fn open(directory: &Path, was_clean: bool) -> (PartitionLog, Arc<TestProducerState>) {
    try_open(directory, SMALL, was_clean).unwrap()
}

/// Opens the directory of a log that was closed, or not, and had its log start moved up.
pub fn open_from(directory: &Path, past: Past) -> (PartitionLog, Arc<TestProducerState>) {
    try_open_from(directory, SMALL, past).unwrap()
}

pub fn try_open(
    directory: &Path,
    settings: Settings,
    was_clean: bool,
) -> Result<(PartitionLog, Arc<TestProducerState>), OpenError> {
    let past = Past {
        was_clean,
        ..Past::default()
    };
    try_open_from(directory, settings, past)
}

pub fn try_open_from(
    directory: &Path,
    settings: Settings,
    past: Past,
) -> Result<(PartitionLog, Arc<TestProducerState>), OpenError> {
    let producer_state = Arc::new(TestProducerState::default());
    let as_producer_state: Arc<dyn ProducerStateManager> =
        Arc::clone(&producer_state) as Arc<dyn ProducerStateManager>;
    let log = PartitionLog::open(
        directory.to_path_buf(),
        as_producer_state,
        settings,
        None,
        past,
    )?;
    Ok((log, producer_state))
}

/// Appends a client's batch; returns its base offset.
pub fn append(log: &PartitionLog, mut batch: Vec<u8>) -> i64 {
    log.append(CLIENT, &mut batch).unwrap().base_offset
}

/// Moves the log start up, noted in no checkpoint.
pub fn delete_records(log: &PartitionLog, offset: i64) -> Result<i64, ReadError> {
    log.delete_records(offset, &mut no_checkpoints)
}

/// Removes the segments that retention no longer keeps, noted in no checkpoint; says how many.
pub fn retain(log: &PartitionLog, now_ms: i64) -> Result<usize, ReadError> {
    match log.find_expired(now_ms)? {
        Some(expired) => log.remove_expired(expired, &mut no_checkpoints),
        None => Ok(0),
    }
}

/// A log of several segments with open, committed and aborted transactions.
pub fn write_history(log: &PartitionLog) {
    for round in 0..12 {
        append(log, plain(2, 60));
        append(log, transactional(round % 3, 3));
        append(log, build(20 + round % 2, false, 1, 40));
        if round % 2 == 1 {
            log.append_marker(&marker(round % 3, round % 4 == 1))
                .unwrap();
        }
    }
}

/// A batch of `count` records without a producer.
pub fn plain(count: usize, value_bytes: usize) -> Vec<u8> {
    build(-1, false, count, value_bytes)
}

pub fn transactional(producer_id: i64, count: usize) -> Vec<u8> {
    build(producer_id, true, count, 20)
}

pub fn build(
    producer_id: i64,
    is_transactional: bool,
    count: usize,
    value_bytes: usize,
) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None);
    if producer_id >= 0 {
        (
            builder.producer_id,
            builder.producer_epoch,
            builder.base_sequence,
        ) = (producer_id, 0, 0);
    }
    builder.is_transactional = is_transactional;
    for nth in 0..count {
        let value = vec![b'v'; value_bytes];
        builder.push(1000 + nth as i64, Some(b"key"), Some(&value), &[]);
    }
    builder.seal().unwrap()
}

pub fn marker(producer_id: i64, is_commit: bool) -> Marker {
    Marker {
        producer_id,
        producer_epoch: 0,
        coordinator_epoch: 5,
        is_commit,
        timestamp_ms: 1500,
    }
}

/// All `.log` files of a directory, in order, concatenated.
pub fn log_bytes(directory: &Path) -> Vec<u8> {
    files(directory, "log")
        .into_iter()
        .flat_map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// The files with an extension, in order.
pub fn files(directory: &Path, extension: &str) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|other| other == extension))
        .collect();
    files.sort_unstable();
    files
}

/// The meaning of a stored batch for a producer state; `None` if there is none.
pub fn replayed(batch: &BatchView<'_>) -> Option<ReplayedBatch> {
    if batch.producer_id() < 0 {
        return None;
    }
    let marker = batch
        .is_control()
        .then(|| decode_marker(batch.records()).unwrap());
    Some(ReplayedBatch::of(batch.header(), marker))
}

/// Open transactions, aborted ones, and the last batch of each producer: the part of a state that
/// does not depend on how much of a log was recalled.
pub type Essence = (BTreeMap<i64, i64>, Vec<AbortedTxn>, BTreeMap<i64, i64>);

pub fn essence(state: &ProducerState) -> Essence {
    let last = |(id, recent): (&i64, &Vec<i64>)| (*id, *recent.last().unwrap());
    (
        state.open.clone(),
        state.aborted.clone(),
        state.recent.iter().map(last).collect(),
    )
}

/// The state that a replay of these batches from the first on makes of an empty one.
pub fn replay_of(bytes: &[u8]) -> ProducerState {
    let fresh = TestProducerState::default();
    for batch in Batches::new(bytes) {
        fresh.replay(replayed(&batch).as_slice()).unwrap();
    }
    fresh.state()
}

/// Does the work beside the appends that is due.
/// Leaves the snapshots as a power failure leaves those that were not forced to the disk.
pub fn tear_snapshots(directory: &Path) {
    for snapshot in files(directory, "snapshot") {
        std::fs::write(snapshot, b"").unwrap();
    }
}

pub fn tick(log: &PartitionLog) {
    log.remove_due_files();
    if let Some(end) = log.flush_due() {
        log.sync_up_to(end).unwrap();
    }
}
