//! `txn._core.crc32c`: the checksum of batches and snapshots.

use pyo3::prelude::*;

#[pyfunction]
#[pyo3(name = "crc32c")]
fn checksum(data: &[u8]) -> u32 {
    ::crc32c::crc32c(data)
}

/// Adds the function to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(checksum, module)?)
}
