//! The damaged part of a log, and the way to give it up: `txn_log::losses`.
#![allow(clippy::needless_pass_by_value)] // pyo3 hands arguments over

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use txn_log::losses::{self, FirstLost, LossPlan};
use txn_log::{Past, Role, Settings};

use crate::log::{CutTuple, cut_tuples, io_failed, open_failed, read_settings};

/// `LossPlanTuple` of the stub.
type PlanTuple = (
    Option<i64>,
    u64,
    i64,
    i64,
    i32,
    Vec<PathBuf>,
    Vec<(PathBuf, u64, u64)>,
);

/// Reads the known past of a log, by the names of `PartitionLog`'s arguments.
fn read_past(past: &Bound<'_, PyDict>) -> PyResult<Past> {
    fn field<T>(past: &Bound<'_, PyDict>, name: &str, default: T) -> PyResult<T>
    where
        T: for<'a, 'py> FromPyObject<'a, 'py>,
        for<'a, 'py> <T as FromPyObject<'a, 'py>>::Error: Into<PyErr>,
    {
        match past.get_item(name)? {
            Some(value) => value.extract().map_err(Into::into),
            None => Ok(default),
        }
    }
    Ok(Past {
        was_clean: field(past, "was_clean", false)?,
        power_failed: field(past, "power_failed", false)?,
        recovery_point: field(past, "recovery_point", 0)?,
        high_watermark: field(past, "high_watermark", 0)?,
        log_start_offset: field(past, "log_start_offset", None)?,
        was_left_by_kafka: field(past, "was_left_by_kafka", false)?,
        cleaned_end: field(past, "cleaned_end", None)?,
        role: Role::SoleReplica, // a look at the files needs none
    })
}

#[pyfunction]
fn examine_log(
    py: Python<'_>,
    directory: PathBuf,
    settings: &Bound<'_, PyDict>,
    past: &Bound<'_, PyDict>,
) -> PyResult<Option<Vec<CutTuple>>> {
    let (settings, past): (Settings, Past) = (read_settings(settings)?, read_past(past)?);
    py.detach(|| losses::examine(&directory, &settings, past))
        .map(|cuts| cuts.map(|cuts| cut_tuples(&cuts)))
        .map_err(open_failed)
}

#[pyfunction]
fn plan_loss(
    py: Python<'_>,
    directory: PathBuf,
    settings: &Bound<'_, PyDict>,
    past: &Bound<'_, PyDict>,
    first_lost: Option<FirstLost>,
) -> PyResult<PlanTuple> {
    let (settings, past): (Settings, Past) = (read_settings(settings)?, read_past(past)?);
    let plan = py
        .detach(|| losses::plan(&directory, &settings, past, first_lost))
        .map_err(|error| io_failed(&error))?;
    Ok((
        plan.last_kept,
        plan.position,
        plan.kept_end,
        plan.next_offset,
        plan.leader_epoch,
        plan.in_the_way,
        plan.given_up,
    ))
}

#[pyfunction]
fn carry_out_loss(py: Python<'_>, directory: PathBuf, plan: PlanTuple) -> PyResult<i64> {
    let (last_kept, position, kept_end, next_offset, leader_epoch, in_the_way, given_up) = plan;
    let plan = LossPlan {
        last_kept,
        position,
        kept_end,
        next_offset,
        leader_epoch,
        in_the_way,
        given_up,
    };
    py.detach(|| losses::carry_out(&directory, &plan))
        .map_err(|error| io_failed(&error))
}

/// Adds this file's functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(examine_log, module)?)?;
    module.add_function(wrap_pyfunction!(plan_loss, module)?)?;
    module.add_function(wrap_pyfunction!(carry_out_loss, module)?)
}
