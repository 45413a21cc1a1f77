//! `PartitionLog`, `encode_batch` and `decode_batches`.
//!
//! A log calls its producer state under the partition's lock, so whoever takes that lock must not hold
//! the interpreter: every method that may lock or read a disk detaches first, and the producer state
//! attaches for the time of its call. An exception inside a producer state is reported as unraisable
//! and refuses the batch; it never unwinds through the log.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyIndexError, PyOSError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyString};
use txn_log::builder::{BatchBuilder, decode_marker};
use txn_log::compression;
use txn_log::compression::Compression;
use txn_log::producer_state::{
    AbortedTxn, AdmitResult, IncomingBatch, LastBatch, Marker, ProducerStateError, ReplayedBatch,
};
use txn_log::write_health::HealthChange;
use txn_log::{
    AppendError, CorruptLog, Cut, Expired, OpenError, Origin, Past, ProducerStateManager,
    ReadError, RecordCounter, Role, Sealed, Settings,
};
use txn_protocol::batch::{BatchError, BatchView, Batches, Codec};
use txn_protocol::codes;
use txn_protocol::records::Records;

use crate::durability::PyDurability;
use crate::errors::{CorruptLogError, LogRefusedError};
use crate::server::{HistogramTuple, histogram_tuple};

/// Largest content of one compressed batch that `decode_batches` opens.
const DECODED_BYTES_MAX: usize = 512 << 20;

/// `AbortedTxn` of the stub.
type AbortedTuple = (i64, i64, i64, i64);
/// `ReplayedBatch` of the stub.
pub(crate) type ReplayedTuple = (i64, i64, i64, i16, i32, i64, u8, i32);
/// `Cut` of the stub.
pub(crate) type CutTuple = (String, u64, u64, i64, String);
/// `SealedSegment` of the stub.
type SealedTuple = (i64, i64, u64, i64, i64);
/// `Expired` of the stub.
type ExpiredTuple = (i64, u64);
/// `AdmitResult` of the stub.
type AdmitTuple = (i64, i64, Option<AbortedTuple>);

// ---------------------------------------------------------------- the producer state

/// A partition's rules in Python.
///
/// What is called for every batch is held as a bound method, so that a call looks nothing up;
/// one of each other method would double the memory of a partition nobody writes to.
struct PyProducerState {
    producer_state: Py<PyAny>,
    admit: Py<PyAny>,
}

impl PyProducerState {
    fn new(producer_state: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            producer_state: producer_state.clone().unbind(),
            admit: producer_state.getattr("admit")?.unbind(),
        })
    }

    fn call<'py, A: PyCallArgs<'py>>(
        &self,
        py: Python<'py>,
        method: &Bound<'py, PyString>,
        arguments: A,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.producer_state.bind(py).call_method1(method, arguments)
    }

    /// Asks whether a batch is admitted; a failure of the rules is a refusal.
    fn admitted(
        &self,
        call: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>>,
    ) -> AdmitResult {
        let refused = AdmitResult::Refuse {
            code: codes::UNKNOWN_SERVER_ERROR,
        };
        let admitted = Python::try_attach(|py| {
            let admitted = call(py)
                .and_then(|answer| answer.extract::<AdmitTuple>())
                .and_then(read_verdict);
            admitted.unwrap_or_else(|error| {
                error.write_unraisable(py, Some(self.producer_state.bind(py)));
                refused
            })
        });
        admitted.unwrap_or(refused) // the interpreter is going down
    }

    /// Asks for anything else; what goes wrong is the log's to handle.
    fn ask<T>(
        call: impl for<'py> FnOnce(Python<'py>) -> PyResult<T>,
    ) -> Result<T, ProducerStateError> {
        Python::try_attach(|py| call(py).map_err(|error| ProducerStateError(error.to_string())))
            .unwrap_or_else(|| {
                Err(ProducerStateError(
                    "the interpreter is going down".to_owned(),
                ))
            })
    }
}

fn read_verdict((kind, value, aborted): AdmitTuple) -> PyResult<AdmitResult> {
    let code =
        || i16::try_from(value).map_err(|_| PyValueError::new_err(format!("error code {value}")));
    match kind {
        0 => Ok(AdmitResult::Admit {
            first_unstable_offset: (value >= 0).then_some(value),
            aborted: aborted.map(read_aborted),
        }),
        1 => Ok(AdmitResult::Duplicate { base_offset: value }),
        2 => Ok(AdmitResult::Join),
        3 => Ok(AdmitResult::Refuse { code: code()? }),
        _ => Err(PyValueError::new_err(format!(
            "admitted of unknown kind {kind}"
        ))),
    }
}

fn read_aborted(
    (producer_id, first_offset, last_offset, last_stable_offset): AbortedTuple,
) -> AbortedTxn {
    AbortedTxn {
        producer_id,
        first_offset,
        last_offset,
        last_stable_offset,
    }
}

fn write_aborted(entry: &AbortedTxn) -> AbortedTuple {
    (
        entry.producer_id,
        entry.first_offset,
        entry.last_offset,
        entry.last_stable_offset,
    )
}

pub(crate) fn write_replayed(batch: &ReplayedBatch) -> ReplayedTuple {
    (
        batch.base_offset,
        batch.last_offset,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.max_timestamp_ms,
        batch.kind.code(),
        batch.coordinator_epoch,
    )
}

impl ProducerStateManager for PyProducerState {
    fn admit(&self, candidate: &IncomingBatch) -> AdmitResult {
        self.admitted(|py| {
            self.admit.bind(py).call1((
                candidate.origin.code(),
                candidate.next_offset,
                candidate.producer_id,
                candidate.producer_epoch,
                candidate.base_sequence,
                candidate.record_count,
                candidate.max_timestamp_ms,
                candidate.is_transactional,
                candidate.origin.transactional_id_hash(),
            ))
        })
    }

    fn admit_marker(&self, next_offset: i64, marker: &Marker) -> AdmitResult {
        self.admitted(|py| {
            self.call(
                py,
                intern!(py, "admit_marker"),
                (
                    next_offset,
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.coordinator_epoch,
                    marker.is_commit,
                    marker.timestamp_ms,
                ),
            )
        })
    }

    fn forget_below(&self, log_start_offset: i64) {
        Python::try_attach(|py| {
            let forgot = self.call(py, intern!(py, "forget_below"), (log_start_offset,));
            // It frees memory, and no answer depends on it.
            if let Err(error) = forgot {
                error.write_unraisable(py, Some(self.producer_state.bind(py)));
            }
        });
    }

    fn forget_aborted(&self, last_offsets: &[i64]) -> Result<(), ProducerStateError> {
        Self::ask(|py| {
            self.call(py, intern!(py, "forget_aborted"), (last_offsets,))
                .map(|_| ())
        })
    }

    fn last_batches(&self) -> Result<Vec<LastBatch>, ProducerStateError> {
        Self::ask(|py| {
            let batches: Vec<(i64, i16, i64)> =
                self.call(py, intern!(py, "last_batches"), ())?.extract()?;
            let read = |(producer_id, producer_epoch, last_offset): (i64, i16, i64)| LastBatch {
                producer_id,
                producer_epoch,
                last_offset: (last_offset >= 0).then_some(last_offset),
            };
            Ok(batches.into_iter().map(read).collect())
        })
    }

    fn snapshot(&self) -> Result<Vec<u8>, ProducerStateError> {
        Self::ask(|py| {
            let answer = self
                .call(py, intern!(py, "snapshot"), ())
                .and_then(|answer| answer.extract::<Vec<u8>>());
            // The log goes on without this snapshot, so nobody else would hear of it.
            answer.inspect_err(|error| {
                error
                    .clone_ref(py)
                    .write_unraisable(py, Some(self.producer_state.bind(py)));
            })
        })
    }

    fn restore(
        &self,
        snapshot: Option<&[u8]>,
        aborted: &[AbortedTxn],
    ) -> Result<(), ProducerStateError> {
        Self::ask(|py| {
            let snapshot = snapshot.map(|bytes| PyBytes::new(py, bytes));
            let aborted: Vec<AbortedTuple> = aborted.iter().map(write_aborted).collect();
            self.call(py, intern!(py, "restore"), (snapshot, aborted))
                .map(|_| ())
        })
    }

    fn replay(&self, batches: &[ReplayedBatch]) -> Result<Vec<AbortedTxn>, ProducerStateError> {
        Self::ask(|py| {
            let batches: Vec<ReplayedTuple> = batches.iter().map(write_replayed).collect();
            let aborted = self.call(py, intern!(py, "replay"), (batches,))?;
            let aborted: Vec<AbortedTuple> = aborted.extract()?;
            Ok(aborted.into_iter().map(read_aborted).collect())
        })
    }

    fn backfill(&self, batches: &[ReplayedBatch]) -> Result<(), ProducerStateError> {
        Self::ask(|py| {
            let batches: Vec<ReplayedTuple> = batches.iter().map(write_replayed).collect();
            self.call(py, intern!(py, "backfill"), (batches,))
                .map(|_| ())
        })
    }

    fn first_unstable_offset(&self) -> Result<Option<i64>, ProducerStateError> {
        Self::ask(|py| {
            let offset: i64 = self
                .call(py, intern!(py, "first_unstable_offset"), ())?
                .extract()?;
            Ok((offset >= 0).then_some(offset))
        })
    }
}

// ---------------------------------------------------------------- the log

/// One partition's log: Kafka's segment files and indexes in one directory.
#[pyclass(frozen, name = "PartitionLog", module = "txn._core")]
pub struct PyPartitionLog {
    /// The log that Produce and Fetch use.
    pub(crate) log: Arc<txn_log::PartitionLog>,
}

#[pymethods]
impl PyPartitionLog {
    #[new]
    #[pyo3(signature = (
        directory,
        producer_state,
        settings = None,
        *,
        partition_metadata = None,
        was_clean = false,
        power_failed = false,
        recovery_point = 0,
        high_watermark = 0,
        log_start_offset = None,
        was_left_by_kafka = false,
        cleaned_end = None,
        role = "sole_replica",
        syncs_before_close = true,
        lock_file = None,
    ))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)] // keywords to Python
    fn new(
        py: Python<'_>,
        directory: PathBuf,
        producer_state: &Bound<'_, PyAny>,
        settings: Option<&Bound<'_, PyDict>>,
        partition_metadata: Option<String>,
        was_clean: bool,
        power_failed: bool,
        recovery_point: i64,
        high_watermark: i64,
        log_start_offset: Option<i64>,
        was_left_by_kafka: bool,
        cleaned_end: Option<i64>,
        role: &str,
        syncs_before_close: bool,
        lock_file: Option<(u64, u64)>,
    ) -> PyResult<Self> {
        let producer_state = Arc::new(PyProducerState::new(producer_state)?);
        let settings = settings.map_or(Ok(Settings::KAFKA), read_settings)?;
        let past = Past {
            was_clean,
            power_failed,
            recovery_point,
            high_watermark,
            log_start_offset,
            was_left_by_kafka,
            cleaned_end,
            role: read_role(role)?,
        };
        py.detach(|| {
            txn_log::PartitionLog::open(
                directory,
                producer_state,
                settings,
                partition_metadata,
                past,
            )
        })
        .map(|log| {
            log.set_syncs_before_close(syncs_before_close);
            if let Some(lock_file) = lock_file {
                log.set_lock_file(lock_file);
            }
            Self { log: Arc::new(log) }
        })
        .map_err(open_failed)
    }

    #[getter]
    fn directory(&self) -> String {
        self.log.directory().display().to_string()
    }

    fn cuts(&self) -> Vec<CutTuple> {
        cut_tuples(self.log.cuts())
    }

    #[getter]
    fn log_start_offset(&self) -> i64 {
        self.log.state().log_start_offset
    }

    #[getter]
    fn high_watermark(&self) -> i64 {
        self.log.state().high_watermark
    }

    #[getter]
    fn log_end_offset(&self) -> i64 {
        self.log.state().log_end_offset
    }

    #[getter]
    fn last_stable_offset(&self) -> i64 {
        self.log.state().last_stable_offset
    }

    #[getter]
    fn role(&self) -> &'static str {
        match self.log.role() {
            Role::SoleReplica => "sole_replica",
            Role::Leader => "leader",
            Role::Follower => "follower",
        }
    }

    fn set_role(&self, py: Python<'_>, role: &str, leader_epoch: i32) -> PyResult<i64> {
        let role = read_role(role)?;
        Ok(py.detach(|| self.log.set_role(role, leader_epoch)))
    }

    #[getter]
    fn latest_epoch(&self) -> Option<i32> {
        self.log.latest_epoch()
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python
    fn append_as_follower(
        &self,
        py: Python<'_>,
        batches: &[u8],
        leader_epoch: i32,
        lower_checkpoints: Py<PyAny>,
    ) -> PyResult<i64> {
        let mut lower = noting(&lower_checkpoints);
        py.detach(|| {
            let log = &self.log;
            log.append_as_follower(batches, leader_epoch, &mut lower)
        })
        .map_err(append_failed)
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python
    fn truncate_to(
        &self,
        py: Python<'_>,
        offset: i64,
        lower_checkpoints: Py<PyAny>,
    ) -> PyResult<i64> {
        let mut lower = noting(&lower_checkpoints);
        py.detach(|| self.log.truncate_to(offset, &mut lower))
            .map_err(append_failed)
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python
    fn truncate_fully_and_start_at(
        &self,
        py: Python<'_>,
        offset: i64,
        lower_checkpoints: Py<PyAny>,
    ) -> PyResult<i64> {
        let mut lower = noting(&lower_checkpoints);
        py.detach(|| self.log.truncate_fully_and_start_at(offset, &mut lower))
            .map_err(append_failed)
    }

    #[getter]
    fn truncations(&self) -> u64 {
        self.log.truncations()
    }

    fn raise_high_watermark(&self, py: Python<'_>, high_watermark: i64) -> bool {
        py.detach(|| self.log.raise_high_watermark(high_watermark))
    }

    #[getter]
    fn leader_epoch(&self) -> i32 {
        self.log.leader_epoch()
    }

    fn lead(&self, leader_epoch: i32) {
        self.log.lead(leader_epoch);
    }

    fn epoch_of(&self, offset: i64) -> i32 {
        self.log.epoch_of(offset)
    }

    fn end_of_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        self.log.end_of_epoch(epoch)
    }

    #[getter]
    fn recovery_point(&self) -> i64 {
        self.log.recovery_point()
    }

    #[getter]
    fn proven_end(&self) -> i64 {
        self.log.proven_end()
    }

    #[getter]
    fn size_bytes(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.log.size_bytes())
    }

    fn sealed_segments(&self, py: Python<'_>) -> PyResult<Vec<SealedTuple>> {
        let sealed: Result<Vec<SealedTuple>, ReadError> = py.detach(|| {
            let segments = self.log.sealed_segments()?;
            segments.iter().map(describe_sealed).collect()
        });
        sealed.map_err(|error| {
            let is_closed = self.log.is_closed();
            read_failed(if is_closed { ReadError::Closed } else { error })
        })
    }

    fn configure(&self, settings: &Bound<'_, PyDict>) -> PyResult<()> {
        self.log.configure(read_settings(settings)?);
        Ok(())
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python
    fn append_records(
        &self,
        py: Python<'_>,
        records: Vec<EncodedRecord>,
        timestamp_ms: i64,
        producer: Option<(i64, i16)>,
    ) -> PyResult<i64> {
        let mut builder = BatchBuilder::new(Codec::None);
        if let Some((producer_id, producer_epoch)) = producer {
            builder.producer_id = producer_id;
            builder.producer_epoch = producer_epoch;
            builder.is_transactional = true;
        }
        let mut batch = sealed(builder, &records, timestamp_ms)?;
        py.detach(|| self.log.append(Origin::Coordinator, &mut batch))
            .map(|appended| appended.base_offset)
            .map_err(append_failed)
    }

    fn append(&self, py: Python<'_>, batch: &[u8]) -> PyResult<i64> {
        let mut batch = batch.to_vec();
        py.detach(|| self.log.append(Origin::Coordinator, &mut batch))
            .map(|appended| appended.base_offset)
            .map_err(append_failed)
    }

    fn append_of_client(
        &self,
        py: Python<'_>,
        batch: &[u8],
        transaction_version: u8,
        transactional_id_hash: Option<i32>,
    ) -> PyResult<(i64, i64)> {
        let mut batch = batch.to_vec();
        let origin = Origin::Client {
            transaction_version,
            transactional_id_hash,
        };
        match py.detach(|| self.log.append(origin, &mut batch)) {
            Ok(appended) => Ok((0, appended.base_offset)),
            Err(AppendError::Duplicate { base_offset }) => Ok((1, base_offset)),
            Err(AppendError::Join) => Ok((2, 0)),
            Err(AppendError::Refused { code, .. } | AppendError::InvalidRecords { code, .. }) => {
                Ok((3, code.into()))
            }
            Err(error) => Err(append_failed(error)),
        }
    }

    fn append_marker(
        &self,
        py: Python<'_>,
        producer_id: i64,
        producer_epoch: i16,
        coordinator_epoch: i32,
        is_commit: bool,
        timestamp_ms: i64,
    ) -> PyResult<i64> {
        let marker = Marker {
            producer_id,
            producer_epoch,
            coordinator_epoch,
            is_commit,
            timestamp_ms,
        };
        py.detach(|| self.log.append_marker(&marker))
            .map_err(append_failed)
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python
    fn delete_records(&self, py: Python<'_>, offset: i64, note_start: Py<PyAny>) -> PyResult<i64> {
        let mut note = noting(&note_start);
        py.detach(|| self.log.delete_records(offset, &mut note))
            .map_err(read_failed)
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        start: i64,
        max_bytes: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py
            .detach(|| self.log.read(start, max_bytes))
            .map_err(read_failed)?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn aborted_in(&self, py: Python<'_>, start: i64, end: i64) -> Vec<(i64, i64)> {
        py.detach(|| self.log.aborted_in(start, end))
    }

    fn offset_for_timestamp(
        &self,
        py: Python<'_>,
        timestamp_ms: i64,
        end: i64,
    ) -> PyResult<Option<(i64, i64)>> {
        py.detach(|| self.log.offset_for_timestamp(timestamp_ms, end))
            .map_err(read_failed)
    }

    fn offset_of_max_timestamp(&self, py: Python<'_>, end: i64) -> PyResult<Option<(i64, i64)>> {
        py.detach(|| self.log.offset_of_max_timestamp(end))
            .map_err(read_failed)
    }

    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.log.settle())
            .map_err(|error| io_failed(&error))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        if self.log.is_closed() && !self.log.is_deleted() {
            return Err(append_failed(AppendError::Closed));
        }
        py.detach(|| self.log.sync())
            .map_err(|error| io_failed(&error))
    }

    fn find_expired(&self, py: Python<'_>, now_ms: i64) -> PyResult<Option<ExpiredTuple>> {
        let found = py
            .detach(|| self.log.find_expired(now_ms))
            .map_err(read_failed)?;
        Ok(found.map(|expired| (expired.end_offset, expired.truncations)))
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python
    fn remove_expired(
        &self,
        py: Python<'_>,
        expired: ExpiredTuple,
        note_start: Py<PyAny>,
    ) -> PyResult<usize> {
        let (end_offset, truncations) = expired;
        let expired = Expired {
            end_offset,
            truncations,
        };
        let mut note = noting(&note_start);
        py.detach(|| self.log.remove_expired(expired, &mut note))
            .map_err(read_failed)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.log.is_closed() {
            return Err(append_failed(AppendError::Closed));
        }
        py.detach(|| self.log.close())
            .map_err(|error| io_failed(&error))
    }

    fn delete(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.log.delete())
            .map_err(|error| io_failed(&error))
    }
}

fn read_role(name: &str) -> PyResult<Role> {
    match name {
        "sole_replica" => Ok(Role::SoleReplica),
        "leader" => Ok(Role::Leader),
        "follower" => Ok(Role::Follower),
        _ => Err(PyValueError::new_err(format!("there is no role '{name}'"))),
    }
}

/// A log's settings from Kafka's names of topic settings; the others are passed over.
pub(crate) fn read_settings(given: &Bound<'_, PyDict>) -> PyResult<Settings> {
    fn set<'py, T: FromPyObjectOwned<'py>>(
        given: &Bound<'py, PyDict>,
        name: &str,
        field: &mut T,
    ) -> PyResult<()> {
        if let Some(value) = given.get_item(name)? {
            *field = value.extract().map_err(Into::into)?;
        }
        Ok(())
    }
    let mut settings = Settings::KAFKA;
    set(given, "segment.bytes", &mut settings.segment_bytes)?;
    set(given, "segment.ms", &mut settings.segment_ms)?;
    set(given, "segment.jitter.ms", &mut settings.segment_jitter_ms)?;
    set(
        given,
        "segment.index.bytes",
        &mut settings.segment_index_bytes,
    )?;
    set(
        given,
        "index.interval.bytes",
        &mut settings.index_interval_bytes,
    )?;
    set(given, "max.message.bytes", &mut settings.max_message_bytes)?;
    set(
        given,
        "max.decompressed.message.bytes",
        &mut settings.max_decompressed_message_bytes,
    )?;
    set(
        given,
        "message.timestamp.before.max.ms",
        &mut settings.timestamp_before_max_ms,
    )?;
    set(
        given,
        "message.timestamp.after.max.ms",
        &mut settings.timestamp_after_max_ms,
    )?;
    set(given, "retention.ms", &mut settings.retention_ms)?;
    set(given, "retention.bytes", &mut settings.retention_bytes)?;
    set(
        given,
        "file.delete.delay.ms",
        &mut settings.file_delete_delay_ms,
    )?;
    set(given, "flush.messages", &mut settings.flush_messages)?;
    set(given, "flush.ms", &mut settings.flush_ms)?;
    let (mut timestamps, mut policy) = ("CreateTime".to_owned(), "delete".to_owned());
    set(given, "message.timestamp.type", &mut timestamps)?;
    set(given, "cleanup.policy", &mut policy)?;
    settings.log_append_time = timestamps == "LogAppendTime";
    settings.compression = read_compression(given)?;
    settings.is_deleted_by_retention = policy.split(',').any(|word| word.trim() == "delete");
    settings.is_compacted = policy.split(',').any(|word| word.trim() == "compact");
    Ok(settings)
}

/// The compression that batches are stored under; `None` for the producer's.
fn read_compression(given: &Bound<'_, PyDict>) -> PyResult<Option<Compression>> {
    let name: String = match given.get_item("compression.type")? {
        Some(name) => name.extract()?,
        None => return Ok(None),
    };
    let codec = match name.as_str() {
        "producer" => return Ok(None),
        "uncompressed" => Codec::None,
        name => Codec::from_name(name).ok_or_else(|| {
            PyValueError::new_err(format!("there is no compression.type '{name}'"))
        })?,
    };
    let mut compression = Compression::of(codec);
    if let Some(level) = given.get_item(format!("compression.{name}.level"))? {
        compression.level = level.extract()?;
    }
    Ok(Some(compression))
}

fn describe_sealed(segment: &Sealed) -> Result<SealedTuple, ReadError> {
    Ok((
        segment.base_offset,
        segment.end_offset,
        segment.size,
        segment.first_timestamp()?.unwrap_or(-1),
        segment.largest_timestamp.unwrap_or(-1),
    ))
}

pub(crate) fn cut_tuples(cuts: &[Cut]) -> Vec<CutTuple> {
    cuts.iter()
        .map(|cut| {
            let path = cut.path.display().to_string();
            let reason = cut.reason.clone();
            (path, cut.position, cut.bytes, cut.first_offset, reason)
        })
        .collect()
}

pub(crate) fn open_failed(error: OpenError) -> PyErr {
    match error {
        OpenError::Corrupt(corrupt) => corrupt_log(&corrupt),
        OpenError::Io(error) => io_failed(&error),
        error @ OpenError::ProducerStateManager(_) => producer_state_failed(&error.to_string()),
    }
}

/// The partition's rules raised where nothing could be refused.
pub(crate) fn producer_state_failed(reason: &str) -> PyErr {
    PyValueError::new_err(reason.to_owned())
}

/// A call of Python that brings a log's entries in the checkpoints to an offset.
fn noting(call: &Py<PyAny>) -> impl FnMut(i64) -> std::io::Result<()> + Send + '_ {
    |offset| Python::attach(|py| call.call1(py, (offset,)).map(drop)).map_err(std::io::Error::other)
}

fn append_failed(error: AppendError) -> PyErr {
    match error {
        AppendError::Io(error) => io_failed(&error),
        AppendError::Duplicate { .. } => {
            LogRefusedError::new_err((error.to_string(), codes::DUPLICATE_SEQUENCE_NUMBER))
        }
        error => LogRefusedError::new_err((error.to_string(), error.code())),
    }
}

fn read_failed(error: ReadError) -> PyErr {
    match error {
        ReadError::Corrupt(corrupt) => corrupt_log(&corrupt),
        ReadError::Io(error) => io_failed(&error),
        ReadError::Closed => append_failed(AppendError::Closed),
        error @ ReadError::OutOfRange { .. } => PyIndexError::new_err(error.to_string()),
    }
}

pub(crate) fn corrupt_log(corrupt: &CorruptLog) -> PyErr {
    let path = corrupt.path.display().to_string();
    CorruptLogError::new_err((corrupt.to_string(), path, corrupt.position))
}

/// An `OSError` with the error number, where there is one.
pub(crate) fn io_failed(error: &io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, error.to_string())),
        None => PyOSError::new_err(error.to_string()),
    }
}

/// `(damaged, troubles)` of the stub.
type TickedTuple = (Vec<(String, String, u64)>, Vec<(String, Option<String>)>);

/// Does what is due in many logs; returns the damage readers met, and which logs began or ceased
/// to refuse batches.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // extracted from Python
fn tick(
    py: Python<'_>,
    logs: Vec<Py<PyPartitionLog>>,
    durability: &Bound<'_, PyDurability>,
) -> TickedTuple {
    let durability = Arc::clone(&durability.get().service);
    let logs: Vec<_> = logs.iter().map(|log| Arc::clone(&log.get().log)).collect();
    py.detach(|| {
        for log in &logs {
            log.remove_due_files();
        }
        durability.flush_due(&logs);
        let damaged = logs.iter().flat_map(|log| log.take_damage());
        let tell = |damage: CorruptLog| {
            let path = damage.path.display().to_string();
            (damage.to_string(), path, damage.position)
        };
        let damaged = damaged.map(tell).collect();
        let troubles = logs.iter().flat_map(|log| {
            let directory = log.directory().display().to_string();
            let changes = log.take_write_health().into_iter();
            changes.map(move |change| match change {
                HealthChange::Began(reason) => (directory.clone(), Some(reason)),
                HealthChange::Ended => (directory.clone(), None),
            })
        });
        (damaged, troubles.collect())
    })
}

/// Raises the soft limit of open files to the hard one; returns the limit.
#[pyfunction]
fn raise_descriptor_limit() -> std::io::Result<u64> {
    txn_sys::raise_descriptor_limit()
}

/// Returns freed memory to the system; see [`txn_sys::keep_freed_memory_below`].
#[pyfunction]
fn keep_freed_memory_below(bytes: u32) {
    txn_sys::keep_freed_memory_below(bytes);
}

/// Sets how many segment files this process has open at a time.
#[pyfunction]
fn set_open_files_max(py: Python<'_>, max: usize) {
    py.detach(|| txn_log::set_open_files_max(max));
}

/// How many segment files this process has open.
#[pyfunction]
fn open_files() -> usize {
    txn_log::open_files()
}

/// Closes the segment files that were not used since the last call.
#[pyfunction]
fn close_idle_files(py: Python<'_>) {
    py.detach(txn_log::close_idle_files);
}

/// How many times this process has synced a file of a log.
#[pyfunction]
fn sync_count() -> u64 {
    txn_log::disk::sync_times().count()
}

/// The times of those syncs, as `Server.metrics` has times, and how many are under way.
#[pyfunction]
fn sync_metrics() -> (HistogramTuple, u64) {
    let times = histogram_tuple(txn_log::disk::sync_times());
    (times, txn_log::disk::syncs_in_progress())
}

/// The upper bounds of the buckets of times, in seconds.
#[pyfunction]
fn bucket_bounds_s() -> Vec<f64> {
    txn_log::histogram::bounds_s().to_vec()
}

// ---------------------------------------------------------------- batches as bytes

/// One uncompressed record batch v2 with base offset 0.
#[pyfunction]
#[pyo3(
    signature = (
        records,
        timestamp_ms,
        producer_id = -1,
        producer_epoch = -1,
        base_sequence = -1,
        is_transactional = false,
    ),
    // Written out, because negative defaults would show as `...`.
    text_signature = "(records, timestamp_ms, producer_id=-1, producer_epoch=-1, \
                      base_sequence=-1, is_transactional=False)"
)]
#[allow(clippy::needless_pass_by_value)] // extracted from Python
fn encode_batch(
    py: Python<'_>,
    records: Vec<EncodedRecord>,
    timestamp_ms: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    is_transactional: bool,
) -> PyResult<Bound<'_, PyBytes>> {
    let mut builder = BatchBuilder::new(Codec::None);
    builder.producer_id = producer_id;
    builder.producer_epoch = producer_epoch;
    builder.base_sequence = base_sequence;
    builder.is_transactional = is_transactional;
    Ok(PyBytes::new(py, &sealed(builder, &records, timestamp_ms)?))
}

/// Key and value of a record to be written.
type EncodedRecord = (Option<PyBackedBytes>, Option<PyBackedBytes>);

/// The bytes of a batch of these records, all of one time.
fn sealed(
    mut builder: BatchBuilder,
    records: &[EncodedRecord],
    timestamp_ms: i64,
) -> PyResult<Vec<u8>> {
    if records.is_empty() {
        return Err(PyValueError::new_err("a batch needs at least one record"));
    }
    for (key, value) in records {
        builder.push(timestamp_ms, key.as_deref(), value.as_deref(), &[]);
    }
    let batch = builder.seal();
    batch.map_err(|error| PyValueError::new_err(error.to_string()))
}

/// `DecodedBatch` of the stub.
type DecodedTuple<'py> = (i64, i64, i64, i16, i8, Vec<DecodedRecord<'py>>);
type DecodedRecord<'py> = (
    i64,
    i64,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
);

/// Decodes whole batches; a partial batch at the end is left out.
#[pyfunction]
fn decode_batches<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Vec<DecodedTuple<'py>>> {
    let mut batches = Batches::new(data);
    let mut decoded = Vec::new();
    let mut position = 0;
    while let Some(batch) = batches.next() {
        // One at a time: what one holds inside is let go before the next.
        let opened = py.detach(|| open_batch(batch, position));
        let opened = opened.map_err(|corrupt| corrupt_log(&corrupt))?;
        decoded.push(decode_batch(py, data, &opened)?);
        position = data.len() - batches.rest().len();
    }
    match BatchView::parse(batches.rest()) {
        Err(BatchError::Truncated { .. }) => Ok(decoded),
        Err(error) => Err(corrupt_log(&damaged(position, error.to_string()))),
        Ok(_) => unreachable!("the iterator stops where parsing fails"),
    }
}

/// A batch, and its records if they had to be decompressed.
struct OpenedBatch<'a> {
    batch: BatchView<'a>,
    position: usize,
    content: Option<Vec<u8>>,
}

fn open_batch(batch: BatchView<'_>, position: usize) -> Result<OpenedBatch<'_>, CorruptLog> {
    let damaged = |reason: String| damaged(position, reason);
    batch
        .validate_crc()
        .map_err(|error| damaged(error.to_string()))?;
    let codec = batch.codec().map_err(|error| damaged(error.to_string()))?;
    let mut content = None;
    if codec != Codec::None {
        let content = content.insert(Vec::new());
        compression::decompress(codec, batch.records(), content, DECODED_BYTES_MAX)
            .map_err(|error| damaged(error.to_string()))?;
    }
    Ok(OpenedBatch {
        batch,
        position,
        content,
    })
}

fn decode_batch<'py>(
    py: Python<'py>,
    data: &[u8],
    opened: &OpenedBatch<'_>,
) -> PyResult<DecodedTuple<'py>> {
    let batch = &opened.batch;
    let content = opened.content.as_deref().unwrap_or(batch.records());
    let marker = if batch.is_control() {
        decode_marker(content)
    } else {
        None
    };
    let kind = match marker {
        Some((is_commit, _)) => {
            if is_commit {
                3
            } else {
                2
            }
        }
        None if batch.producer_id() < 0 => -1,
        None => i8::from(batch.is_transactional()),
    };
    // Control records that end no transaction mean nothing to any reader.
    let count = if batch.is_control() && marker.is_none() {
        0
    } else {
        batch.record_count()
    };
    let content = if count == 0 { &data[..0] } else { content };
    let records = Records::new(content, count).map(|record| {
        let record =
            record.map_err(|error| corrupt_log(&damaged(opened.position, error.to_string())))?;
        let timestamp = if batch.is_log_append_time() {
            batch.max_timestamp()
        } else {
            batch.base_timestamp().wrapping_add(record.timestamp_delta)
        };
        let bytes = |field: Option<&[u8]>| field.map(|bytes| PyBytes::new(py, bytes));
        let offset = batch
            .base_offset()
            .wrapping_add(i64::from(record.offset_delta));
        Ok((offset, timestamp, bytes(record.key), bytes(record.value)))
    });
    let records = records.collect::<PyResult<Vec<_>>>()?;
    Ok((
        batch.base_offset(),
        batch.last_offset(),
        batch.producer_id(),
        batch.producer_epoch(),
        kind,
        records,
    ))
}

/// Damage in bytes that came from no file of ours.
fn damaged(position: usize, reason: String) -> CorruptLog {
    CorruptLog {
        path: PathBuf::from("the data given"),
        position: position as u64,
        reason,
    }
}

/// Adds this file's classes and functions to the module.
/// `RecordCounter` of the stub.
#[pyclass(frozen, name = "RecordCounter", module = "txn._core")]
pub struct PyRecordCounter(RecordCounter);

#[pymethods]
impl PyRecordCounter {
    #[new]
    fn new(log: &PyPartitionLog) -> Self {
        Self(RecordCounter::new(Arc::clone(&log.log)))
    }

    #[allow(clippy::needless_pass_by_value)] // pyo3 makes a vector of the sequence
    fn count(
        &self,
        py: Python<'_>,
        offsets: Vec<i64>,
        seconds: f64,
    ) -> PyResult<(i64, Vec<Option<i64>>)> {
        let time = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
        let deadline = Instant::now()
            .checked_add(time)
            .ok_or_else(|| PyValueError::new_err("the time has no end"))?;
        let counted = py
            .detach(|| self.0.count(&offsets, deadline))
            .map_err(read_failed)?;
        Ok((counted.last_stable_offset, counted.records))
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    txn_log::hold_open_files_over_forks()?;
    module.add_class::<PyPartitionLog>()?;
    module.add_class::<PyRecordCounter>()?;
    module.add_function(wrap_pyfunction!(tick, module)?)?;
    module.add_function(wrap_pyfunction!(raise_descriptor_limit, module)?)?;
    module.add_function(wrap_pyfunction!(keep_freed_memory_below, module)?)?;
    module.add_function(wrap_pyfunction!(set_open_files_max, module)?)?;
    module.add_function(wrap_pyfunction!(open_files, module)?)?;
    module.add_function(wrap_pyfunction!(close_idle_files, module)?)?;
    module.add_function(wrap_pyfunction!(sync_count, module)?)?;
    module.add_function(wrap_pyfunction!(sync_metrics, module)?)?;
    module.add_function(wrap_pyfunction!(bucket_bounds_s, module)?)?;
    module.add_function(wrap_pyfunction!(encode_batch, module)?)?;
    module.add_function(wrap_pyfunction!(decode_batches, module)?)
}
