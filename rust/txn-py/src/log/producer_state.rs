//! The producer state of a partition, whose rules are in Python.
//!
//! # Invariant
//! The log calls it under the partition's lock, with the interpreter released. An exception inside it
//! is reported as unraisable and refuses the batch; it never unwinds through the log.

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use txn_log::ProducerStateManager;
use txn_log::producer_state::{
    AbortedTxn, AdmitResult, IncomingBatch, LastBatch, Marker, ProducerStateError, ReplayedBatch,
};
use txn_protocol::codes;

/// `AbortedTxn` of the stub.
type AbortedTuple = (i64, i64, i64, i64);
/// `ReplayedBatch` of the stub.
pub(crate) type ReplayedTuple = (i64, i64, i64, i16, i32, i64, u8, i32);
/// `AdmitResult` of the stub.
type AdmitTuple = (i64, i64, Option<AbortedTuple>);

/// A partition's rules in Python.
///
/// What is called for every batch is held as a bound method, so that a call looks nothing up;
/// one of each other method would double the memory of a partition nobody writes to.
pub(super) struct PyProducerState {
    producer_state: Py<PyAny>,
    admit: Py<PyAny>,
}

impl PyProducerState {
    pub(super) fn new(producer_state: &Bound<'_, PyAny>) -> PyResult<Self> {
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

pub(super) fn read_verdict((kind, value, aborted): AdmitTuple) -> PyResult<AdmitResult> {
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

pub(super) fn read_aborted(
    (producer_id, first_offset, last_offset, last_stable_offset): AbortedTuple,
) -> AbortedTxn {
    AbortedTxn {
        producer_id,
        first_offset,
        last_offset,
        last_stable_offset,
    }
}

pub(super) fn write_aborted(entry: &AbortedTxn) -> AbortedTuple {
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
