//! Record batches as bytes: `encode_batch` and `decode_batches`.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use txn_log::CorruptLog;
use txn_log::builder::{BatchBuilder, decode_marker};
use txn_log::compression;
use txn_protocol::batch::{BatchError, BatchView, Batches, Codec};
use txn_protocol::records::Records;

use super::failures::corrupt_log;

/// Largest content of one compressed batch that `decode_batches` opens.
const DECODED_BYTES_MAX: usize = 512 << 20;

/// One uncompressed record batch v2 with base offset 0.
#[pyfunction]
#[pyo3(
    signature = (
        records,
        timestamp_ms,
        producer_id = -1,
        producer_epoch = -1,
        base_sequence = -1,
        is_transactional = false,
    ),
    // Written out, because negative defaults would show as `...`.
    text_signature = "(records, timestamp_ms, producer_id=-1, producer_epoch=-1, \
                      base_sequence=-1, is_transactional=False)"
)]
#[allow(clippy::needless_pass_by_value)] // extracted from Python
pub(super) fn encode_batch(
    py: Python<'_>,
    records: Vec<EncodedRecord>,
    timestamp_ms: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    is_transactional: bool,
) -> PyResult<Bound<'_, PyBytes>> {
    let mut builder = BatchBuilder::new(Codec::None);
    builder.producer_id = producer_id;
    builder.producer_epoch = producer_epoch;
    builder.base_sequence = base_sequence;
    builder.is_transactional = is_transactional;
    Ok(PyBytes::new(py, &sealed(builder, &records, timestamp_ms)?))
}

/// Key and value of a record to be written.
pub(super) type EncodedRecord = (Option<PyBackedBytes>, Option<PyBackedBytes>);

/// The bytes of a batch of these records, all of one time.
pub(super) fn sealed(
    mut builder: BatchBuilder,
    records: &[EncodedRecord],
    timestamp_ms: i64,
) -> PyResult<Vec<u8>> {
    if records.is_empty() {
        return Err(PyValueError::new_err("a batch needs at least one record"));
    }
    for (key, value) in records {
        builder.push(timestamp_ms, key.as_deref(), value.as_deref(), &[]);
    }
    let batch = builder.seal();
    batch.map_err(|error| PyValueError::new_err(error.to_string()))
}

/// `DecodedBatch` of the stub.
pub(super) type DecodedTuple<'py> = (i64, i64, i64, i16, i8, Vec<DecodedRecord<'py>>);
pub(super) type DecodedRecord<'py> = (
    i64,
    i64,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
);

/// Decodes whole batches; a partial batch at the end is left out.
#[pyfunction]
pub(super) fn decode_batches<'py>(
    py: Python<'py>,
    data: &[u8],
) -> PyResult<Vec<DecodedTuple<'py>>> {
    let mut batches = Batches::new(data);
    let mut decoded = Vec::new();
    let mut position = 0;
    while let Some(batch) = batches.next() {
        // One at a time: what one holds inside is let go before the next.
        let opened = py.detach(|| open_batch(batch, position));
        let opened = opened.map_err(|corrupt| corrupt_log(&corrupt))?;
        decoded.push(decode_batch(py, data, &opened)?);
        position = data.len() - batches.rest().len();
    }
    match BatchView::parse(batches.rest()) {
        Err(BatchError::Truncated { .. }) => Ok(decoded),
        Err(error) => Err(corrupt_log(&damaged(position, error.to_string()))),
        Ok(_) => unreachable!("the iterator stops where parsing fails"),
    }
}

/// A batch, and its records if they had to be decompressed.
struct OpenedBatch<'a> {
    batch: BatchView<'a>,
    position: usize,
    content: Option<Vec<u8>>,
}

fn open_batch(batch: BatchView<'_>, position: usize) -> Result<OpenedBatch<'_>, CorruptLog> {
    let damaged = |reason: String| damaged(position, reason);
    batch
        .validate_crc()
        .map_err(|error| damaged(error.to_string()))?;
    let codec = batch.codec().map_err(|error| damaged(error.to_string()))?;
    let mut content = None;
    if codec != Codec::None {
        let content = content.insert(Vec::new());
        compression::decompress(codec, batch.records(), content, DECODED_BYTES_MAX)
            .map_err(|error| damaged(error.to_string()))?;
    }
    Ok(OpenedBatch {
        batch,
        position,
        content,
    })
}

fn decode_batch<'py>(
    py: Python<'py>,
    data: &[u8],
    opened: &OpenedBatch<'_>,
) -> PyResult<DecodedTuple<'py>> {
    let batch = &opened.batch;
    let content = opened.content.as_deref().unwrap_or(batch.records());
    let marker = if batch.is_control() {
        decode_marker(content)
    } else {
        None
    };
    let kind = match marker {
        Some((is_commit, _)) => {
            if is_commit {
                3
            } else {
                2
            }
        }
        None if batch.producer_id() < 0 => -1,
        None => i8::from(batch.is_transactional()),
    };
    // Control records that end no transaction mean nothing to any reader.
    let count = if batch.is_control() && marker.is_none() {
        0
    } else {
        batch.record_count()
    };
    let content = if count == 0 { &data[..0] } else { content };
    let records = Records::new(content, count).map(|record| {
        let record =
            record.map_err(|error| corrupt_log(&damaged(opened.position, error.to_string())))?;
        let timestamp = if batch.is_log_append_time() {
            batch.max_timestamp()
        } else {
            batch.base_timestamp().wrapping_add(record.timestamp_delta)
        };
        let bytes = |field: Option<&[u8]>| field.map(|bytes| PyBytes::new(py, bytes));
        let offset = batch
            .base_offset()
            .wrapping_add(i64::from(record.offset_delta));
        Ok((offset, timestamp, bytes(record.key), bytes(record.value)))
    });
    let records = records.collect::<PyResult<Vec<_>>>()?;
    Ok((
        batch.base_offset(),
        batch.last_offset(),
        batch.producer_id(),
        batch.producer_epoch(),
        kind,
        records,
    ))
}

/// Damage in bytes that came from no file of ours.
fn damaged(position: usize, reason: String) -> CorruptLog {
    CorruptLog {
        path: PathBuf::from("the data given"),
        position: position as u64,
        reason,
    }
}
