//! The records inside a batch, uncompressed.
//!
//! ```text
//! length varint · attributes i8 · timestamp delta varlong · offset delta varint
//! key length varint (-1: null) · key · value length varint (-1: null) · value
//! header count varint · each: key length varint · key · value length varint (-1: null) · value
//! ```
//!
//! Varints are zigzag and little-endian in groups of seven bits: at most 5 bytes for 32 bits,
//! 10 for 64. Every length is checked against the bytes left before it is used; nothing is
//! allocated.
//!
//! Source: Kafka's protocol guide, "Record"; KIP-82 (headers).

use std::fmt;

/// Records whose bytes do not add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Which record of the batch, from 0; the record count if bytes are left over.
    pub index: i32,
    /// The fault.
    pub reason: &'static str,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} of the batch: {}", self.index, self.reason)
    }
}

impl std::error::Error for RecordError {}

/// One record, borrowed from its batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Offset minus the batch's base offset.
    pub offset_delta: i32,
    /// Timestamp minus the batch's base timestamp, in ms.
    pub timestamp_delta: i64,
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null.
    pub value: Option<&'a [u8]>,
    /// Its headers.
    pub headers: Headers<'a>,
}

/// A record's headers, already checked to be whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Headers<'a> {
    /// Number of remaining records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The undecoded bytes after the header count.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        let key = read_nullable(&mut self.bytes).ok()?.unwrap_or_default();
        Some((key, read_nullable(&mut self.bytes).ok()?))
    }
}

/// The records of a batch, in order; ends after the last or after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    count: i32,
    index: i32,
}

impl<'a> Records<'a> {
    /// Iterates `count` records over uncompressed bytes; bytes left over are an error.
    #[must_use]
    pub fn new(bytes: &'a [u8], count: i32) -> Self {
        Self {
            bytes,
            count: count.max(0),
            index: 0,
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.index;
        if index == self.count {
            let left_over = !std::mem::take(&mut self.bytes).is_empty();
            return left_over.then_some(Err(RecordError {
                index,
                reason: "bytes are left over after the last record",
            }));
        }
        match read_body(&mut self.bytes).and_then(read_record) {
            Ok(record) => {
                self.index += 1;
                Some(Ok(record))
            }
            Err(reason) => {
                (self.bytes, self.count, self.index) = (&[], 0, 0);
                Some(Err(RecordError { index, reason }))
            }
        }
    }
}

/// Reads a record, its length taken off, to the last of its bytes.
#[inline]
fn read_record(mut body: &[u8]) -> Result<Record<'_>, &'static str> {
    body = body.get(1..).ok_or("it has no attributes")?;
    let timestamp_delta = read_varlong(&mut body).ok_or("its timestamp delta is cut")?;
    let offset_delta = read_varint(&mut body).ok_or("its offset delta is cut")?;
    let key = read_nullable(&mut body)?;
    let value = read_nullable(&mut body)?;
    let count = read_varint(&mut body).ok_or("its header count is cut")?;
    let headers = Headers {
        bytes: body,
        count: usize::try_from(count).map_err(|_| "its header count is negative")?,
    };
    for _ in 0..headers.count {
        read_nullable(&mut body)?.ok_or("a header has no key")?;
        read_nullable(&mut body)?;
    }
    if !body.is_empty() {
        return Err("its length does not fit its fields");
    }
    Ok(Record {
        offset_delta,
        timestamp_delta,
        key,
        value,
        headers,
    })
}

/// Takes one record's bytes, without its length.
fn read_body<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let length = read_varint(rest).ok_or("its length is cut")?;
    let length = usize::try_from(length).map_err(|_| "its length is negative")?;
    take(rest, length).ok_or("its length reaches over the end of the batch")
}

/// Reads a field that may be null, after its length.
///
/// # Errors
/// The fault: a length that is cut, negative, or larger than the bytes left.
#[inline]
pub fn read_nullable<'a>(body: &mut &'a [u8]) -> Result<Option<&'a [u8]>, &'static str> {
    let length = read_varint(body).ok_or("a field's length is cut")?;
    if length == -1 {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| "a field's length is negative")?;
    let field = take(body, length).ok_or("a field's length reaches over the end of the record")?;
    Ok(Some(field))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

/// Reads a zigzag varint of 32 bits from the front of `bytes`; `None` if it is cut or too long.
#[must_use]
#[inline]
pub fn read_varint(bytes: &mut &[u8]) -> Option<i32> {
    let raw = u32::try_from(read_unsigned(bytes, 5)?).ok()?;
    Some((raw >> 1) as i32 ^ -((raw & 1) as i32))
}

/// Reads a zigzag varint of 64 bits from the front of `bytes`; `None` if it is cut or too long.
#[must_use]
#[inline]
pub fn read_varlong(bytes: &mut &[u8]) -> Option<i64> {
    let raw = read_unsigned(bytes, 10)?;
    Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

#[inline]
fn read_unsigned(bytes: &mut &[u8], bytes_max: usize) -> Option<u64> {
    // Most numbers of a record have one byte, most others two.
    match *bytes {
        [byte, rest @ ..] if byte & 0x80 == 0 => {
            *bytes = rest;
            return Some(u64::from(*byte));
        }
        [low, high, rest @ ..] if high & 0x80 == 0 => {
            *bytes = rest;
            return Some(u64::from(low & 0x7f) | u64::from(*high) << 7);
        }
        _ => {}
    }
    read_long(bytes, bytes_max)
}

fn read_long(bytes: &mut &[u8], bytes_max: usize) -> Option<u64> {
    let mut value = 0u64;
    for (at, &byte) in bytes.iter().take(bytes_max).enumerate() {
        let group = u64::from(byte & 0x7f);
        if at == 9 && group > 1 {
            return None; // more than 64 bits
        }
        value |= group << (7 * at);
        if byte & 0x80 == 0 {
            *bytes = &bytes[at + 1..];
            return Some(value);
        }
    }
    None
}

/// Appends a zigzag varint; the same bytes for a number whether it is 32 or 64 bits wide.
#[inline]
pub fn write_varlong(value: i64, output: &mut Vec<u8>) {
    let mut raw = zigzag(value);
    while raw >= 0x80 {
        output.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    output.push(raw as u8);
}

/// Number of bytes that `write_varlong` appends: 1–10.
#[must_use]
#[inline]
pub fn varlong_size(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[inline]
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn varints_are_zigzag_and_low_bits_first() {
        let written = |value| {
            let mut out = Vec::new();
            write_varlong(value, &mut out);
            out
        };
        assert_eq!(written(0), [0]);
        assert_eq!(written(-1), [1]);
        assert_eq!(written(150), [0xac, 0x02]);
        assert_eq!(written(i64::MIN).len(), 10);
    }

    proptest! {
        #[test]
        fn varints_come_back_as_they_went(value in any::<i64>(), tail in any::<Vec<u8>>()) {
            let mut bytes = Vec::new();
            write_varlong(value, &mut bytes);
            prop_assert_eq!(bytes.len(), varlong_size(value));
            bytes.extend_from_slice(&tail);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(read_varlong(&mut rest), Some(value));
            prop_assert_eq!(rest, tail.as_slice());
            let narrow = read_varint(&mut bytes.as_slice());
            prop_assert_eq!(narrow, i32::try_from(value).ok());
        }

        #[test]
        fn hostile_records_end_in_one_error_and_never_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            count in any::<i32>(),
        ) {
            let results: Vec<_> = Records::new(&bytes, count).collect();
            prop_assert!(results.len() <= bytes.len() + 1);
            let errors = results.iter().filter(|result| result.is_err()).count();
            prop_assert!(errors <= 1);
        }
    }
}
