//! `SegmentReader` and `SegmentCheck`: looking into segments without ever writing.

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use txn_log::compression;
use txn_log::inspect::{Check, Fault, Suspect, Walk, WalkItem};
use txn_protocol::batch::{BatchView, Codec, HEADER_BYTES, Header};
use txn_protocol::records::Records;

use crate::errors::CorruptLogError;
use crate::log::{ReplayedTuple, write_replayed};

/// Largest content of one compressed batch that is opened.
const CONTENT_BYTES_MAX: usize = 512 << 20;

/// `SeenBatch` of the stub.
type BatchTuple = (
    u64,
    usize,
    i64,
    i64,
    i32,
    i32,
    i16,
    (i64, i16, i32),
    (i64, i64),
    (u32, Option<String>),
);
/// `Damage` of the stub.
type DamageTuple = (u64, u64, String);
/// `SeenRecord` of the stub.
type RecordTuple<'py> = (
    i64,
    i64,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
    Vec<(Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>)>,
);
/// `Fault` of the stub.
type FaultTuple = (u8, u64, u64, bool, String);

/// A `.log` file, read batch by batch.
#[pyclass(frozen, module = "txn._core")]
pub struct SegmentReader {
    path: PathBuf,
}

#[pymethods]
impl SegmentReader {
    #[new]
    fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn batches(
        &self,
        py: Python<'_>,
        position: u64,
        bytes: u64,
    ) -> PyResult<(Vec<BatchTuple>, Vec<DamageTuple>, u64)> {
        py.detach(|| {
            let mut walk = Walk::open(&self.path, position, None)?;
            let (mut batches, mut damaged) = (Vec::new(), Vec::new());
            walk.advance(bytes, |found| match found {
                WalkItem::Batch {
                    position,
                    batch,
                    fault,
                } => {
                    let fault = fault.map(|error| error.to_string());
                    batches.push(describe(position, &batch, fault));
                }
                WalkItem::Damage(damage) => {
                    damaged.push((damage.position, damage.end, damage.error.to_string()));
                }
            })?;
            Ok((batches, damaged, walk.position()))
        })
        .map_err(|error: io::Error| self.failed(&error))
    }

    fn records<'py>(&self, py: Python<'py>, position: u64) -> PyResult<Vec<RecordTuple<'py>>> {
        let batch = py
            .detach(|| read_batch(&self.path, position))
            .map_err(|error| self.failed(&error))?;
        let damaged = |reason: String| {
            let path = self.path.display().to_string();
            CorruptLogError::new_err((reason, path, position))
        };
        let batch = BatchView::parse(&batch).map_err(|error| damaged(error.to_string()))?;
        let content = py.detach(|| open_batch(&batch)).map_err(damaged)?;
        Records::new(&content, batch.record_count())
            .map(|record| {
                let record = record.map_err(|error| damaged(error.to_string()))?;
                let timestamp = if batch.is_log_append_time() {
                    batch.max_timestamp()
                } else {
                    batch.base_timestamp().wrapping_add(record.timestamp_delta)
                };
                let offset = batch
                    .base_offset()
                    .wrapping_add(i64::from(record.offset_delta));
                let bytes = |field: Option<&[u8]>| field.map(|bytes| PyBytes::new(py, bytes));
                let headers = record
                    .headers
                    .map(|(key, value)| (PyBytes::new(py, key), bytes(value)))
                    .collect();
                Ok((
                    offset,
                    timestamp,
                    bytes(record.key),
                    bytes(record.value),
                    headers,
                ))
            })
            .collect()
    }
}

impl SegmentReader {
    fn failed(&self, error: &io::Error) -> PyErr {
        failed(&self.path, error)
    }
}

fn describe(position: u64, batch: &BatchView<'_>, fault: Option<String>) -> BatchTuple {
    (
        position,
        batch.bytes().len(),
        batch.base_offset(),
        batch.last_offset(),
        batch.record_count(),
        batch.leader_epoch(),
        batch.attributes(),
        (
            batch.producer_id(),
            batch.producer_epoch(),
            batch.base_sequence(),
        ),
        (batch.base_timestamp(), batch.max_timestamp()),
        (batch.crc(), fault),
    )
}

fn read_batch(path: &Path, position: u64) -> io::Result<Vec<u8>> {
    let file = txn_sys::open_plain(path)?;
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, position)?;
    let header = Header::parse(&header)
        .map_err(|error| io::Error::new(ErrorKind::InvalidData, error.to_string()))?;
    let left = file.metadata()?.len().saturating_sub(position);
    let mut bytes = vec![
        0;
        header
            .size()
            .min(usize::try_from(left).unwrap_or(usize::MAX))
    ];
    file.read_exact_at(&mut bytes, position)?;
    Ok(bytes)
}

fn open_batch(batch: &BatchView<'_>) -> Result<Vec<u8>, String> {
    let codec = batch.codec().map_err(|error| error.to_string())?;
    if codec == Codec::None {
        return Ok(batch.records().to_vec());
    }
    let mut content = Vec::new();
    compression::decompress(codec, batch.records(), &mut content, CONTENT_BYTES_MAX)
        .map_err(|error| error.to_string())?;
    Ok(content)
}

/// A segment and its indexes, held against each other.
#[pyclass(frozen, module = "txn._core")]
pub struct SegmentCheck {
    path: PathBuf,
    check: Mutex<Check>,
}

#[pymethods]
impl SegmentCheck {
    #[new]
    #[pyo3(signature = (path, base_offset, index, time_index, *, is_deep))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        base_offset: i64,
        index: &[u8],
        time_index: &[u8],
        is_deep: bool,
    ) -> PyResult<Self> {
        let check = py
            .detach(|| Check::open(&path, base_offset, index, time_index, is_deep))
            .map_err(|error| failed(&path, &error))?;
        Ok(Self {
            path,
            check: Mutex::new(check),
        })
    }

    fn advance(&self, py: Python<'_>, bytes: u64) -> PyResult<Vec<ReplayedTuple>> {
        py.detach(|| {
            let replayed = self.check.lock().expect("no check panics").advance(bytes)?;
            Ok(replayed.iter().map(write_replayed).collect())
        })
        .map_err(|error: io::Error| failed(&self.path, &error))
    }

    #[getter]
    fn position(&self) -> u64 {
        self.read(Check::position)
    }

    #[getter]
    fn end(&self) -> u64 {
        self.read(Check::end)
    }

    #[getter]
    fn batches(&self) -> u64 {
        self.read(|check| check.seen().batches)
    }

    #[getter]
    fn records(&self) -> u64 {
        self.read(|check| check.seen().records)
    }

    #[getter]
    fn first_offset(&self) -> Option<i64> {
        self.read(|check| check.seen().first_offset)
    }

    #[getter]
    fn next_offset(&self) -> i64 {
        self.read(|check| check.seen().next_offset)
    }

    #[getter]
    fn is_damaged(&self) -> bool {
        self.read(|check| check.seen().is_damaged)
    }

    #[getter]
    fn leader_epochs(&self) -> Vec<(i32, u64, i64, i64)> {
        self.read(|check| {
            let runs = check.seen().leader_epochs.iter();
            runs.map(|run| {
                (
                    run.leader_epoch,
                    run.position,
                    run.first_offset,
                    run.last_offset,
                )
            })
            .collect()
        })
    }

    #[getter]
    fn gaps(&self) -> Vec<(u64, i64, i64)> {
        self.read(|check| {
            let seen = check.seen();
            let last = seen.last_gap.filter(|last| !seen.gaps.contains(last));
            seen.gaps
                .iter()
                .chain(&last)
                .map(|gap| (gap.position, gap.expected, gap.found))
                .collect()
        })
    }

    #[getter]
    fn faults(&self) -> Vec<FaultTuple> {
        self.read(|check| check.seen().faults.iter().map(write_fault).collect())
    }

    #[getter]
    fn faults_left_out(&self) -> u64 {
        self.read(|check| check.seen().faults_left_out)
    }
}

impl SegmentCheck {
    fn read<T>(&self, read: impl FnOnce(&Check) -> T) -> T {
        read(&self.check.lock().expect("no check panics"))
    }
}

fn write_fault(fault: &Fault) -> FaultTuple {
    let suspect = match fault.suspect {
        Suspect::Log => 0,
        Suspect::OffsetIndex => 1,
        Suspect::TimeIndex => 2,
    };
    let reason = fault.reason.clone();
    (
        suspect,
        fault.position,
        fault.end,
        fault.may_be_torn,
        reason,
    )
}

/// An `OSError` that names the file.
fn failed(path: &Path, error: &io::Error) -> PyErr {
    let path = path.display().to_string();
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, error.to_string(), path)),
        None => PyOSError::new_err(format!("{path}: {error}")),
    }
}

/// Adds this file's classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SegmentReader>()?;
    module.add_class::<SegmentCheck>()
}
