//! `RecordCounter`: the numbers of records between offsets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use txn_log::RecordCounter;

use super::PyPartitionLog;
use super::failures::read_failed;

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
