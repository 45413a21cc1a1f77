//! Limits, upkeep and counters that all logs of the process share.

use std::sync::Arc;

use pyo3::prelude::*;
use txn_log::CorruptLog;
use txn_log::write_health::HealthChange;

use super::PyPartitionLog;
use crate::durability::PyDurability;
use crate::server::{HistogramTuple, histogram_tuple};

/// `(damaged, troubles)` of the stub.
type TickedTuple = (Vec<(String, String, u64)>, Vec<(String, Option<String>)>);

/// Does what is due in many logs; returns the damage readers met, and which logs began or ceased
/// to refuse batches.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // extracted from Python
pub(super) fn tick(
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
pub(super) fn raise_descriptor_limit() -> std::io::Result<u64> {
    txn_sys::raise_descriptor_limit()
}

/// Returns freed memory to the system; see [`txn_sys::keep_freed_memory_below`].
#[pyfunction]
pub(super) fn keep_freed_memory_below(bytes: u32) {
    txn_sys::keep_freed_memory_below(bytes);
}

/// Sets how many segment files this process has open at a time.
#[pyfunction]
pub(super) fn set_open_files_max(py: Python<'_>, max: usize) {
    py.detach(|| txn_log::set_open_files_max(max));
}

/// How many segment files this process has open.
#[pyfunction]
pub(super) fn open_files() -> usize {
    txn_log::open_files()
}

/// Closes the segment files that were not used since the last call.
#[pyfunction]
pub(super) fn close_idle_files(py: Python<'_>) {
    py.detach(txn_log::close_idle_files);
}

/// How many times this process has synced a file of a log.
#[pyfunction]
pub(super) fn sync_count() -> u64 {
    txn_log::disk::sync_times().count()
}

/// The times of those syncs, as `Server.metrics` has times, and how many are under way.
#[pyfunction]
pub(super) fn sync_metrics() -> (HistogramTuple, u64) {
    let times = histogram_tuple(txn_log::disk::sync_times());
    (times, txn_log::disk::syncs_in_progress())
}

/// The upper bounds of the buckets of times, in seconds.
#[pyfunction]
pub(super) fn bucket_bounds_s() -> Vec<f64> {
    txn_log::histogram::bounds_s().to_vec()
}
