//! `txn._core.error_codes`: the table of Kafka's error codes.

use pyo3::prelude::*;
use txn_protocol::codes::ERROR_CODES;

/// (code, name, whether it is retriable, advice).
type ErrorCodeRow = (i16, &'static str, bool, &'static str);

/// The error codes by number: number, Kafka's name, whether it is retriable, advice.
#[pyfunction]
fn error_codes() -> Vec<ErrorCodeRow> {
    let row =
        |row: &txn_protocol::codes::ErrorCode| (row.code, row.name, row.is_retriable, row.advice);
    ERROR_CODES.iter().map(row).collect()
}

/// Adds the function to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(error_codes, module)?)
}
