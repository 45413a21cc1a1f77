//! The exceptions of the extension.

use pyo3::create_exception;
use pyo3::exceptions::{PyBaseException, PyException};
use pyo3::prelude::*;

create_exception!(
    txn._core,
    CorruptLogError,
    PyException,
    "Stored bytes are damaged."
);
create_exception!(
    txn._core,
    LogRefusedError,
    PyException,
    "The log or its producer_state refused a batch."
);
create_exception!(
    txn._core,
    KafkaError,
    PyException,
    "A Kafka node answered with an error, or could not be reached."
);

/// Returns and clears the exception that C code set before it called Python, if any.
#[pyfunction]
fn take_pending_exception(py: Python<'_>) -> Option<Py<PyBaseException>> {
    PyErr::take(py).map(|error| error.into_value(py))
}

/// Adds the exceptions to the module. Each prints as its first argument, the message.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let message = py.eval(
        c"lambda error: str(error.args[0]) if error.args else ''",
        None,
        None,
    )?;
    for (name, kind) in [
        ("CorruptLogError", py.get_type::<CorruptLogError>()),
        ("LogRefusedError", py.get_type::<LogRefusedError>()),
        ("KafkaError", py.get_type::<KafkaError>()),
    ] {
        kind.setattr("__str__", &message)?;
        module.add(name, kind)?;
    }
    module.add_function(wrap_pyfunction!(take_pending_exception, module)?)
}
