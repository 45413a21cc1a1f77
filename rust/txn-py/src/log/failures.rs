//! The exceptions of Python for the errors of a log.
//!
//! # Invariant
//! Damage keeps its file and position, and an error of the system keeps its number.

use std::io;

use pyo3::exceptions::{PyIndexError, PyOSError, PyValueError};
use pyo3::prelude::*;
use txn_log::{AppendError, CorruptLog, OpenError, ReadError};
use txn_protocol::codes;

use crate::errors::{CorruptLogError, LogRefusedError};

pub(crate) fn open_failed(error: OpenError) -> PyErr {
    match error {
        OpenError::Corrupt(corrupt) => corrupt_log(&corrupt),
        OpenError::Io(error) => io_failed(&error),
        error @ OpenError::ProducerStateManager(_) => producer_state_failed(&error.to_string()),
    }
}

/// The partition's rules raised where nothing could be refused.
pub(crate) fn producer_state_failed(reason: &str) -> PyErr {
    PyValueError::new_err(reason.to_owned())
}

pub(super) fn append_failed(error: AppendError) -> PyErr {
    match error {
        AppendError::Io(error) => io_failed(&error),
        AppendError::Duplicate { .. } => {
            LogRefusedError::new_err((error.to_string(), codes::DUPLICATE_SEQUENCE_NUMBER))
        }
        error => LogRefusedError::new_err((error.to_string(), error.code())),
    }
}

pub(super) fn read_failed(error: ReadError) -> PyErr {
    match error {
        ReadError::Corrupt(corrupt) => corrupt_log(&corrupt),
        ReadError::Io(error) => io_failed(&error),
        ReadError::Closed => append_failed(AppendError::Closed),
        error @ ReadError::OutOfRange { .. } => PyIndexError::new_err(error.to_string()),
    }
}

pub(crate) fn corrupt_log(corrupt: &CorruptLog) -> PyErr {
    let path = corrupt.path.display().to_string();
    CorruptLogError::new_err((corrupt.to_string(), path, corrupt.position))
}

/// An `OSError` with the error number, where there is one.
pub(crate) fn io_failed(error: &io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, error.to_string())),
        None => PyOSError::new_err(error.to_string()),
    }
}
