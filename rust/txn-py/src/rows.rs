//! Rows to be written, as Python hands their Arrow buffers over.

use pyo3::pybacked::PyBackedBytes;
use txn_client::rows::{BinaryRows, HeaderBuffers, HeaderRows, Numbers, Rows};

/// A binary column: offsets, data, validity.
pub(crate) type BinaryBuffers = (PyBackedBytes, PyBackedBytes, Option<PyBackedBytes>);
/// A header column: list offsets and validity, key offsets and data, value offsets, data and validity.
pub(crate) type HeaderColumn = (
    PyBackedBytes,
    Option<PyBackedBytes>,
    PyBackedBytes,
    PyBackedBytes,
    PyBackedBytes,
    PyBackedBytes,
    Option<PyBackedBytes>,
);

/// The buffers of some rows, as `Writer.write` of the stub has them.
pub(crate) struct RowBuffers {
    pub(crate) rows: usize,
    pub(crate) key: Option<BinaryBuffers>,
    pub(crate) value: BinaryBuffers,
    pub(crate) headers: Option<HeaderColumn>,
    pub(crate) partition: Option<PyBackedBytes>,
    pub(crate) timestamp_ms: Option<PyBackedBytes>,
}

impl RowBuffers {
    /// The rows, once every length and offset is checked.
    ///
    /// # Errors
    /// The message names the buffer that does not fit.
    pub(crate) fn rows(&self) -> Result<Rows<'_>, String> {
        let rows = self.rows;
        Ok(Rows {
            count: rows,
            keys: self
                .key
                .as_ref()
                .map(|column| binary_rows("key", rows, column))
                .transpose()?,
            values: binary_rows("value", rows, &self.value)?,
            headers: self
                .headers
                .as_ref()
                .map(|column| header_rows(rows, column))
                .transpose()?,
            partitions: self
                .partition
                .as_deref()
                .map(|n| Numbers::new("partition", rows, n))
                .transpose()?,
            timestamps_ms: self
                .timestamp_ms
                .as_deref()
                .map(|n| Numbers::new("timestamp_ms", rows, n))
                .transpose()?,
        })
    }
}

fn binary_rows<'a>(
    name: &str,
    rows: usize,
    column: &'a BinaryBuffers,
) -> Result<BinaryRows<'a>, String> {
    let (offsets, data, validity) = column;
    BinaryRows::new(name, rows, offsets, data, validity.as_deref())
}

fn header_rows(rows: usize, column: &HeaderColumn) -> Result<HeaderRows<'_>, String> {
    let (
        list_offsets,
        list_validity,
        key_offsets,
        key_data,
        value_offsets,
        value_data,
        value_validity,
    ) = column;
    let buffers = HeaderBuffers {
        list_offsets,
        list_validity: list_validity.as_deref(),
        key_offsets,
        key_data,
        value_offsets,
        value_data,
        value_validity: value_validity.as_deref(),
    };
    HeaderRows::new(rows, buffers)
}
