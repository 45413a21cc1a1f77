//! `Cleaner`: the speed and the memory that all cleanings of a broker share.

use pyo3::prelude::*;
use txn_log::compaction::{CleanError, Cleaner, Cleaning, Unreadable};

use crate::log::{PyPartitionLog, corrupt_log, io_failed, producer_state_failed};

/// The resources of a compaction; see `txn_log::compaction`.
#[pyclass(frozen, name = "Cleaner", module = "txn._core")]
pub struct PyCleaner(Cleaner);

/// Where the dirty part begins, bytes before, bytes after, keys, batches that cannot be read.
type CleanedTuple = (i64, u64, u64, u64, Option<UnreadableTuple>);
/// Their number; path, position and offset of the first; its fault.
type UnreadableTuple = (u64, String, u64, i64, String);

#[pymethods]
impl PyCleaner {
    #[new]
    #[pyo3(signature = (*, map_bytes, load_factor, bytes_per_second))]
    fn new(map_bytes: usize, load_factor: f64, bytes_per_second: f64) -> Self {
        Self(Cleaner::new(map_bytes, load_factor, bytes_per_second))
    }

    #[pyo3(signature = (log, *, first_dirty_offset, end, delete_retention_ms, now_ms))]
    fn clean(
        &self,
        py: Python<'_>,
        log: &PyPartitionLog,
        first_dirty_offset: i64,
        end: i64,
        delete_retention_ms: i64,
        now_ms: i64,
    ) -> PyResult<Option<CleanedTuple>> {
        let cleaning = Cleaning {
            first_dirty_offset,
            end,
            delete_retention_ms,
            now_ms,
        };
        match py.detach(|| self.0.clean(&log.log, &cleaning)) {
            Ok(cleaned) => Ok(Some((
                cleaned.end,
                cleaned.bytes_before,
                cleaned.bytes_after,
                cleaned.keys,
                cleaned.unreadable.map(|found| {
                    let path = found.path.display().to_string();
                    let Unreadable {
                        batches,
                        position,
                        offset,
                        reason,
                        ..
                    } = found;
                    (batches, path, position, offset, reason)
                }),
            ))),
            Err(CleanError::Interrupted) => Ok(None),
            Err(CleanError::Io(error)) => Err(io_failed(&error)),
            Err(CleanError::Corrupt(corrupt)) => Err(corrupt_log(&corrupt)),
            Err(CleanError::ProducerStateManager(reason)) => Err(producer_state_failed(&reason)),
        }
    }

    fn stop(&self) {
        self.0.stop();
    }
}

/// Adds this file's class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyCleaner>()
}
