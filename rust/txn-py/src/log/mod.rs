//! `PartitionLog`: one partition's log, as Python knows it.
//!
//! # Invariant
//! A log calls its producer state under the partition's lock. A thread that takes this lock must not
//! hold the interpreter: every method that may lock or read a disk detaches first, and the producer
//! state attaches for the time of its call.

mod batches;
mod failures;
mod process;
mod producer_state;
mod record_counter;
mod values;

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use txn_log::builder::BatchBuilder;
use txn_log::producer_state::Marker;
use txn_log::{AppendError, Expired, Origin, Past, ReadError, Role, Settings};
use txn_protocol::batch::Codec;

use batches::{EncodedRecord, sealed};
use failures::{append_failed, read_failed};
use producer_state::PyProducerState;
use record_counter::PyRecordCounter;
use values::{ExpiredTuple, SealedTuple, describe_sealed, read_role};

pub(crate) use failures::{corrupt_log, io_failed, open_failed, producer_state_failed};
pub(crate) use producer_state::{ReplayedTuple, write_replayed};
pub(crate) use values::{CutTuple, cut_tuples, read_settings};

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

/// A call of Python that brings a log's entries in the checkpoints to an offset.
fn noting(call: &Py<PyAny>) -> impl FnMut(i64) -> std::io::Result<()> + Send + '_ {
    |offset| Python::attach(|py| call.call1(py, (offset,)).map(drop)).map_err(std::io::Error::other)
}

/// Adds the classes and functions of this folder to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    txn_log::hold_open_files_over_forks()?;
    module.add_class::<PyPartitionLog>()?;
    module.add_class::<PyRecordCounter>()?;
    module.add_function(wrap_pyfunction!(process::tick, module)?)?;
    module.add_function(wrap_pyfunction!(process::raise_descriptor_limit, module)?)?;
    module.add_function(wrap_pyfunction!(process::keep_freed_memory_below, module)?)?;
    module.add_function(wrap_pyfunction!(process::set_open_files_max, module)?)?;
    module.add_function(wrap_pyfunction!(process::open_files, module)?)?;
    module.add_function(wrap_pyfunction!(process::close_idle_files, module)?)?;
    module.add_function(wrap_pyfunction!(process::sync_count, module)?)?;
    module.add_function(wrap_pyfunction!(process::sync_metrics, module)?)?;
    module.add_function(wrap_pyfunction!(process::bucket_bounds_s, module)?)?;
    module.add_function(wrap_pyfunction!(batches::encode_batch, module)?)?;
    module.add_function(wrap_pyfunction!(batches::decode_batches, module)?)
}
