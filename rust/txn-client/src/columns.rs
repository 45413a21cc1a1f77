//! Record batches become Arrow buffers.
//!
//! A binary column is `rows + 1` offsets (`i32`), the bytes of all its values back to back, and a
//! validity bitmap (least significant bit first, 1 = present) that is left out while nothing is null.
//! Everything is little endian, on any machine.
//!
//! # Invariants
//! 1. Every column has the same number of rows.
//! 2. Offsets never pass `i32`: a chunk is cut at `CHUNK_BYTES`, and one batch holds at most
//!    `BATCH_BYTES_MAX` after decompression, or less if the caller says so.
//!
//! Source: Arrow columnar format, "Variable-size Binary Layout" and "Variable-size List Layout".

use std::ops::Range;

use txn_log::compression::{self, CompressionError};
use txn_protocol::batch::{BatchView, Codec};
use txn_protocol::records::{Headers, Records};

/// Size after which a chunk is handed over, in bytes of all its columns.
pub const CHUNK_BYTES: usize = 64 << 20;
/// Largest batch accepted after decompression, in bytes.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

/// Which parts of a record become columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Keys.
    pub keys: bool,
    /// Values.
    pub values: bool,
    /// Headers.
    pub headers: bool,
}

/// Byte strings, some of them null.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BinaryColumn {
    /// `i32` little endian, one more than rows.
    pub offsets: Vec<u8>,
    /// All values back to back.
    pub data: Vec<u8>,
    /// `None`: no null.
    pub validity: Option<Vec<u8>>,
    pub(crate) rows: usize,
}

impl BinaryColumn {
    pub(crate) fn new() -> Self {
        Self {
            offsets: vec![0; 4],
            ..Self::default()
        }
    }

    fn bytes(&self) -> usize {
        self.offsets.len() + self.data.len() + bits_bytes(self.validity.as_ref())
    }

    pub(crate) fn push(&mut self, value: Option<&[u8]>) {
        self.data.extend_from_slice(value.unwrap_or_default());
        self.offsets
            .extend_from_slice(&(self.data.len() as i32).to_le_bytes());
        if value.is_none() || self.validity.is_some() {
            note_validity(&mut self.validity, self.rows, value.is_some());
        }
        self.rows += 1;
    }
}

fn bits_bytes(validity: Option<&Vec<u8>>) -> usize {
    validity.map_or(0, Vec::len)
}

/// Sets bit `row` of a bitmap that so far has one bit for each earlier row, or is not there because all are 1.
fn note_validity(validity: &mut Option<Vec<u8>>, row: usize, is_valid: bool) {
    let bits = validity.get_or_insert_with(|| {
        let mut bits = vec![0xff; row / 8];
        if !row.is_multiple_of(8) {
            bits.push((1 << (row % 8)) - 1);
        }
        bits
    });
    if row.is_multiple_of(8) {
        bits.push(0);
    }
    bits[row / 8] |= u8::from(is_valid) << (row % 8);
}

/// Headers as a list of (key, value) per row; a row without headers is null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderColumn {
    /// `i32` little endian, one more than rows: positions in `keys` and `values`.
    pub list_offsets: Vec<u8>,
    /// `None`: every row has headers.
    pub list_validity: Option<Vec<u8>>,
    /// Header keys; never null.
    pub keys: BinaryColumn,
    /// Header values.
    pub values: BinaryColumn,
}

impl HeaderColumn {
    fn bytes(&self) -> usize {
        let lists = self.list_offsets.len() + bits_bytes(self.list_validity.as_ref());
        lists + self.keys.bytes() + self.values.bytes()
    }

    fn push(&mut self, row: usize, headers: Headers<'_>) {
        let is_valid = !headers.is_empty();
        for (key, value) in headers {
            self.keys.push(Some(key));
            self.values.push(value);
        }
        self.list_offsets
            .extend_from_slice(&(self.keys.rows as i32).to_le_bytes());
        if !is_valid || self.list_validity.is_some() {
            note_validity(&mut self.list_validity, row, is_valid);
        }
    }
}

/// Some rows of one partition, by offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Number of rows.
    pub rows: usize,
    /// Where a following fetch starts: after the last batch looked at, also if it held nothing to show.
    pub next_offset: i64,
    /// `i64` little endian.
    pub offsets: Vec<u8>,
    /// `i64` little endian, milliseconds as they were sent: they need not fit into a finer unit.
    pub timestamps_ms: Vec<u8>,
    /// `i32` little endian: 0 set by the producer, 1 by the log.
    pub timestamp_types: Vec<u8>,
    /// Keys, if wanted.
    pub key: Option<BinaryColumn>,
    /// Values, if wanted.
    pub value: Option<BinaryColumn>,
    /// Headers, if wanted.
    pub headers: Option<HeaderColumn>,
}

impl Columns {
    /// No rows yet.
    #[must_use]
    pub fn new(parts: Parts, next_offset: i64) -> Self {
        let header_column = || HeaderColumn {
            list_offsets: vec![0; 4],
            list_validity: None,
            keys: BinaryColumn::new(),
            values: BinaryColumn::new(),
        };
        Self {
            rows: 0,
            next_offset,
            offsets: Vec::new(),
            timestamps_ms: Vec::new(),
            timestamp_types: Vec::new(),
            key: parts.keys.then(BinaryColumn::new),
            value: parts.values.then(BinaryColumn::new),
            headers: parts.headers.then(header_column),
        }
    }

    /// Bytes of all columns so far. A row without key, value and headers has some as well.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of = |column: &Option<BinaryColumn>| column.as_ref().map_or(0, BinaryColumn::bytes);
        let fixed = self.offsets.len() + self.timestamps_ms.len() + self.timestamp_types.len();
        let headers = self.headers.as_ref().map_or(0, HeaderColumn::bytes);
        fixed + of(&self.key) + of(&self.value) + headers
    }

    /// Adds the records of a data batch whose offsets are in `wanted`; `scratch` is for decompression,
    /// of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// The fault of the batch. The chunk is then of no use.
    pub fn push_batch(
        &mut self,
        batch: &BatchView<'_>,
        wanted: &Range<i64>,
        scratch: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<(), String> {
        let codec = batch.codec().map_err(|e| e.to_string())?;
        let bytes = if codec == Codec::None {
            batch.records()
        } else {
            scratch.clear();
            let bytes_max = bytes_max.min(BATCH_BYTES_MAX);
            compression::decompress(codec, batch.records(), scratch, bytes_max).map_err(
                |error| match error {
                    CompressionError::TooLarge { .. } => {
                        format!("{error}, which fetch.batch.bytes allows")
                    }
                    CompressionError::Damaged { .. } => error.to_string(),
                },
            )?;
            scratch
        };
        let (base_offset, base_timestamp) = (batch.base_offset(), batch.base_timestamp());
        let append_time = batch.is_log_append_time().then(|| batch.max_timestamp());
        let timestamp_type = i32::from(append_time.is_some()).to_le_bytes();
        for record in Records::new(bytes, batch.record_count()) {
            let record = record.map_err(|e| e.to_string())?;
            if !(0..=batch.last_offset_delta()).contains(&record.offset_delta) {
                return Err(format!(
                    "a record's offset delta is {}, outside the batch",
                    record.offset_delta
                ));
            }
            let offset = base_offset + i64::from(record.offset_delta);
            if !wanted.contains(&offset) {
                continue;
            }
            let timestamp_ms =
                append_time.unwrap_or(base_timestamp.wrapping_add(record.timestamp_delta));
            self.offsets.extend_from_slice(&offset.to_le_bytes());
            self.timestamps_ms
                .extend_from_slice(&timestamp_ms.to_le_bytes());
            self.timestamp_types.extend_from_slice(&timestamp_type);
            if let Some(column) = &mut self.key {
                column.push(record.key);
            }
            if let Some(column) = &mut self.value {
                column.push(record.value);
            }
            if let Some(column) = &mut self.headers {
                column.push(self.rows, record.headers);
            }
            self.rows += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use txn_log::builder::BatchBuilder;

    use super::*;

    fn numbers(bytes: &[u8]) -> Vec<i32> {
        bytes
            .chunks_exact(4)
            .map(|b| i32::from_le_bytes(b.try_into().unwrap()))
            .collect()
    }

    /// A chunk is cut by its bytes. Rows without key and value had none, so that one chunk took all
    /// that the node sent.
    #[test]
    fn rows_without_any_part_have_bytes() {
        let mut builder = BatchBuilder::new(Codec::None);
        for _ in 0..1000 {
            builder.push(0, None, None, &[]);
        }
        let batch = builder.seal().unwrap();
        let bytes = |is_wanted| {
            let parts = Parts {
                keys: is_wanted,
                values: is_wanted,
                headers: is_wanted,
            };
            let mut columns = Columns::new(parts, 0);
            let batch = BatchView::parse(&batch).unwrap();
            columns
                .push_batch(&batch, &(0..1000), &mut Vec::new(), 1 << 20)
                .unwrap();
            assert_eq!(columns.rows, 1000);
            columns.bytes()
        };
        // 8 of the offset, 8 of the time, 4 of its type; then 4 for each of key, value and headers.
        assert_eq!(bytes(false), 20_000);
        assert!((32_000..33_000).contains(&bytes(true)), "{}", bytes(true));
    }

    #[test]
    fn a_column_without_nulls_has_no_bitmap() {
        let mut column = BinaryColumn::new();
        column.push(Some(b"ab"));
        column.push(Some(b""));
        column.push(Some(b"c"));
        assert_eq!(
            (
                numbers(&column.offsets),
                column.data.as_slice(),
                column.validity
            ),
            (vec![0, 2, 2, 3], &b"abc"[..], None)
        );
    }

    #[test]
    fn the_first_null_marks_every_earlier_row_present() {
        let mut column = BinaryColumn::new();
        for _ in 0..10 {
            column.push(Some(b"x"));
        }
        column.push(None);
        column.push(Some(b"y"));
        assert_eq!(column.validity, Some(vec![0xff, 0b1011]));
        assert_eq!(numbers(&column.offsets)[10..], [10, 10, 11]);
    }

    #[test]
    fn a_null_in_the_first_row_starts_the_bitmap_with_a_zero() {
        let mut column = BinaryColumn::new();
        column.push(None);
        column.push(Some(b""));
        assert_eq!(column.validity, Some(vec![0b10]));
    }

    #[test]
    fn a_null_at_row_eight_starts_a_second_byte() {
        let mut column = BinaryColumn::new();
        for _ in 0..8 {
            column.push(Some(b""));
        }
        column.push(None);
        assert_eq!(column.validity, Some(vec![0xff, 0]));
    }
}
