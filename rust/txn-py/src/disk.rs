//! `watch_disk` and `release_disk`: every change of a log to its files, shown to Python beforehand.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use txn_log::disk::{self, Change, DiskFault, Witness};

/// `DiskFault` of the stub: the bytes of a write that arrive all the same, and the error number.
type DiskFaultTuple = (usize, i32);

/// Asks a Python function about each change. A function that raises refuses the change.
struct PyWitness(Py<PyAny>);

impl PyWitness {
    fn ask(&self, py: Python<'_>, change: &Change<'_>) -> PyResult<Option<DiskFaultTuple>> {
        let empty = Path::new("");
        let (kind, path, target, position, bytes): (_, _, _, _, &[u8]) = match *change {
            Change::Create(path) => ("create", path, empty, 0, &[]),
            Change::Write(path, position, bytes) => ("write", path, empty, position, bytes),
            Change::Truncate(path, length) => ("truncate", path, empty, length, &[]),
            Change::Rename(path, target) => ("rename", path, target, 0, &[]),
            Change::Remove(path) => ("remove", path, empty, 0, &[]),
            Change::Sync(path) => ("sync", path, empty, 0, &[]),
            Change::SyncDirectory(path) => ("sync_directory", path, empty, 0, &[]),
        };
        let fault = self.0.bind(py).call1((
            kind,
            path.to_string_lossy(),
            target.to_string_lossy(),
            position,
            PyBytes::new(py, bytes),
        ))?;
        fault.extract()
    }
}

impl Witness for PyWitness {
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault> {
        let fault = Python::try_attach(|py| {
            self.ask(py, change).unwrap_or_else(|error| {
                error.write_unraisable(py, Some(self.0.bind(py)));
                Some((0, EIO))
            })
        });
        match fault.flatten() {
            None => Ok(()),
            Some((written, number)) => Err(DiskFault {
                written,
                error: io::Error::from_raw_os_error(number),
            }),
        }
    }
}

/// The error number of a change whose witness raised.
const EIO: i32 = 5;

/// Shows a function every change to the files of logs below a directory, until `release_disk`.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // extracted from Python
fn watch_disk(directory: PathBuf, witness: Py<PyAny>) {
    disk::watch(&directory, Arc::new(PyWitness(witness)));
}

/// Ends `watch_disk`.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // extracted from Python
fn release_disk(directory: PathBuf) {
    disk::release(&directory);
}

/// Adds this file's functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(watch_disk, module)?)?;
    module.add_function(wrap_pyfunction!(release_disk, module)?)
}
