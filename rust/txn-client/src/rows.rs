//! Rows to be written, as borrowed Arrow buffers: the reverse of `columns`.
//!
//! Buffers come from outside, so every length and every offset is checked once, when a column is
//! made; reading a row afterwards cannot fail. Buffers may be longer than needed, as Arrow pads them,
//! and the first offset need not be 0, as in a slice.

/// Byte strings, some of them null.
#[derive(Clone, Copy, Debug)]
pub struct BinaryRows<'a> {
    offsets: &'a [u8],
    data: &'a [u8],
    validity: Option<&'a [u8]>,
}

impl<'a> BinaryRows<'a> {
    /// A column of `rows` rows; `name` is for messages.
    ///
    /// # Errors
    /// The message names which buffer is too short or which row's offsets are not inside `data`.
    pub fn new(
        name: &str,
        rows: usize,
        offsets: &'a [u8],
        data: &'a [u8],
        validity: Option<&'a [u8]>,
    ) -> Result<Self, String> {
        check_offsets(name, rows, offsets, data.len())?;
        check_validity(name, rows, validity)?;
        Ok(Self {
            offsets,
            data,
            validity,
        })
    }

    /// One row's bytes.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<&'a [u8]> {
        is_valid(self.validity, row)
            .then(|| &self.data[offset(self.offsets, row)..offset(self.offsets, row + 1)])
    }
}

/// Headers: a list of (key, value) per row.
#[derive(Clone, Copy, Debug)]
pub struct HeaderRows<'a> {
    list_offsets: &'a [u8],
    list_validity: Option<&'a [u8]>,
    keys: BinaryRows<'a>,
    values: BinaryRows<'a>,
}

/// The buffers of `HeaderRows`, in the order in which Python hands them over.
#[derive(Clone, Copy, Debug)]
pub struct HeaderBuffers<'a> {
    /// `i32`, one more than rows: positions of the entries.
    pub list_offsets: &'a [u8],
    /// Which rows have a list.
    pub list_validity: Option<&'a [u8]>,
    /// Header keys; never null.
    pub key_offsets: &'a [u8],
    /// All keys.
    pub key_data: &'a [u8],
    /// Header values.
    pub value_offsets: &'a [u8],
    /// All values.
    pub value_data: &'a [u8],
    /// Which values are not null.
    pub value_validity: Option<&'a [u8]>,
}

impl<'a> HeaderRows<'a> {
    /// Headers of `rows` rows.
    ///
    /// # Errors
    /// As `BinaryRows::new`.
    pub fn new(rows: usize, buffers: HeaderBuffers<'a>) -> Result<Self, String> {
        let HeaderBuffers {
            list_offsets,
            list_validity,
            ..
        } = buffers;
        check_offsets("headers", rows, list_offsets, i32::MAX as usize)?;
        check_validity("headers", rows, list_validity)?;
        let entries = offset(list_offsets, rows);
        let (key_offsets, value_offsets) = (buffers.key_offsets, buffers.value_offsets);
        Ok(Self {
            list_offsets,
            list_validity,
            keys: BinaryRows::new("header keys", entries, key_offsets, buffers.key_data, None)?,
            values: BinaryRows::new(
                "header values",
                entries,
                value_offsets,
                buffers.value_data,
                buffers.value_validity,
            )?,
        })
    }

    /// Puts one row's headers into `into`.
    pub fn get(&self, row: usize, into: &mut Vec<(&'a [u8], Option<&'a [u8]>)>) {
        into.clear();
        if is_valid(self.list_validity, row) {
            for entry in offset(self.list_offsets, row)..offset(self.list_offsets, row + 1) {
                into.push((
                    self.keys.get(entry).expect("keys have no validity"),
                    self.values.get(entry),
                ));
            }
        }
    }
}

/// Fixed-width little-endian numbers, one per row.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<'a, const WIDTH: usize> {
    values: &'a [u8],
}

impl<'a, const WIDTH: usize> Numbers<'a, WIDTH> {
    /// A column of `rows` numbers.
    ///
    /// # Errors
    /// If the buffer is too short.
    pub fn new(name: &str, rows: usize, values: &'a [u8]) -> Result<Self, String> {
        match rows
            .checked_mul(WIDTH)
            .and_then(|bytes| values.get(..bytes))
        {
            Some(values) => Ok(Self { values }),
            None => Err(format!(
                "{name}: {} bytes for {rows} numbers of {WIDTH}",
                values.len()
            )),
        }
    }

    fn bytes(&self, row: usize) -> [u8; WIDTH] {
        let bytes = &self.values[row * WIDTH..(row + 1) * WIDTH];
        bytes.try_into().expect("as long as asked for")
    }
}

impl Numbers<'_, 4> {
    /// One row's number.
    #[must_use]
    pub fn get(&self, row: usize) -> i32 {
        i32::from_le_bytes(self.bytes(row))
    }

    /// Smallest and largest, if there are rows.
    #[must_use]
    pub fn bounds(&self) -> Option<(i32, i32)> {
        let numbers = || (0..self.values.len() / 4).map(|row| self.get(row));
        Some((numbers().min()?, numbers().max()?))
    }
}

impl Numbers<'_, 8> {
    /// One row's number.
    #[must_use]
    pub fn get(&self, row: usize) -> i64 {
        i64::from_le_bytes(self.bytes(row))
    }
}

/// Rows for one topic.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Number of rows.
    pub count: usize,
    /// `None`: no row has a key.
    pub keys: Option<BinaryRows<'a>>,
    /// Null values are tombstones.
    pub values: BinaryRows<'a>,
    /// `None`: no row has headers.
    pub headers: Option<HeaderRows<'a>>,
    /// Partition of each row, -1: by its key. `None`: all by their keys.
    pub partitions: Option<Numbers<'a, 4>>,
    /// `None`: now.
    pub timestamps_ms: Option<Numbers<'a, 8>>,
}

fn offset(offsets: &[u8], row: usize) -> usize {
    let bytes = &offsets[row * 4..row * 4 + 4];
    i32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize
}

fn is_valid(validity: Option<&[u8]>, row: usize) -> bool {
    validity.is_none_or(|bits| bits[row / 8] >> (row % 8) & 1 == 1)
}

fn check_offsets(name: &str, rows: usize, offsets: &[u8], limit: usize) -> Result<(), String> {
    let needed = rows.checked_add(1).and_then(|count| count.checked_mul(4));
    let Some(used) = needed.and_then(|needed| offsets.get(..needed)) else {
        return Err(format!(
            "{name}: {} offsets for {rows} rows; one more than rows is needed",
            offsets.len() / 4
        ));
    };
    let mut before = 0;
    for row in 0..=rows {
        let offset = i32::from_le_bytes(used[row * 4..row * 4 + 4].try_into().expect("four bytes"));
        if offset < before || offset as usize > limit {
            return Err(format!(
                "{name}: offset {row} is {offset} after {before}, with {limit} bytes of data"
            ));
        }
        before = offset;
    }
    Ok(())
}

fn check_validity(name: &str, rows: usize, validity: Option<&[u8]>) -> Result<(), String> {
    match validity {
        Some(bits) if bits.len() < rows.div_ceil(8) => Err(format!(
            "{name}: a validity bitmap of {} bytes for {rows} rows",
            bits.len()
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(values: &[i32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn a_sliced_column_starts_anywhere_in_its_data() {
        let offsets = offsets(&[2, 4, 4, 5]);
        let column = BinaryRows::new("value", 3, &offsets, b"..abc", Some(&[0b101])).unwrap();
        assert_eq!(
            [column.get(0), column.get(1), column.get(2)],
            [Some(&b"ab"[..]), None, Some(&b"c"[..])]
        );
    }

    #[test]
    fn offsets_that_leave_the_data_or_go_back_are_refused() {
        let refused =
            |values: &[i32]| BinaryRows::new("value", 2, &offsets(values), b"abc", None).is_err();
        assert!(
            refused(&[0, 1, 4]) && refused(&[0, 2, 1]) && refused(&[-1, 0, 1]) && refused(&[0, 1])
        );
        assert!(!refused(&[0, 1, 3]));
    }

    #[test]
    fn a_short_bitmap_is_refused() {
        let offsets = offsets(&[0; 10]);
        assert!(
            BinaryRows::new("key", 9, &offsets, b"", Some(&[0xff]))
                .unwrap_err()
                .contains("validity")
        );
    }

    #[test]
    fn header_entries_may_not_pass_the_keys() {
        let (list, keys) = (offsets(&[0, 2]), offsets(&[0, 1]));
        let buffers = HeaderBuffers {
            list_offsets: &list,
            list_validity: None,
            key_offsets: &keys,
            key_data: b"k",
            value_offsets: &keys,
            value_data: b"v",
            value_validity: None,
        };
        assert!(
            HeaderRows::new(1, buffers)
                .unwrap_err()
                .contains("header keys")
        );
    }
}
