//! Kafka's primitive types, read from borrowed bytes.
//!
//! A [`Reader`] trusts no length: each length and count is checked against the bytes left before
//! it is used. No message makes it read past the end or reserve announced memory.
//!
//! *Flexible* message versions (KIP-482) write lengths as unsigned varints of length + 1, and end
//! every structure with tagged fields. The others use fixed-size lengths and -1 for null. Every
//! negative length is null, as in Kafka.
//!
//! Methods with `is_flexible` return ranges of the message: the broker changes its requests in
//! place later. The `compact` methods return borrowed values of flexible versions.
//!
//! Source: Kafka's protocol guide, "Protocol Primitive Types".
#![allow(
    clippy::missing_errors_doc,
    reason = "each method that reads fails with `Malformed` and nothing else"
)]

use std::fmt;
use std::ops::Range;

/// Bytes that do not follow the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Position in the message, in bytes.
    pub at: usize,
    /// The fault at that position.
    pub reason: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed at byte {}: {}", self.at, self.reason)
    }
}

impl std::error::Error for Malformed {}

type Read<T> = Result<T, Malformed>;

/// The longest string, in bytes: older versions could not announce more.
const STRING_BYTES_MAX: i32 = i16::MAX as i32;

/// Reads primitive types front to back.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the first of `bytes`.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Position of the next byte to read.
    #[inline]
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// The bytes from here to the position of another reader of the same message.
    #[must_use]
    pub fn until(&self, later: Reader<'_>) -> &'a [u8] {
        &self.bytes[self.at..later.at]
    }

    /// Number of bytes left.
    #[inline]
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The error for a fault at this position.
    #[must_use]
    pub fn malformed(&self, reason: &'static str) -> Malformed {
        Malformed {
            at: self.at,
            reason,
        }
    }

    fn fail<T>(&self, reason: &'static str) -> Read<T> {
        Err(self.malformed(reason))
    }

    #[inline]
    fn fixed<const N: usize>(&mut self) -> Read<[u8; N]> {
        match self.bytes[self.at..].first_chunk::<N>() {
            Some(chunk) => {
                self.at += N;
                Ok(*chunk)
            }
            None => self.fail("it ends inside a fixed-size field"),
        }
    }

    /// An 8-bit number.
    #[inline]
    pub fn i8(&mut self) -> Read<i8> {
        self.fixed().map(i8::from_be_bytes)
    }

    /// A byte that is 0 or another value.
    #[inline]
    pub fn bool(&mut self) -> Read<bool> {
        self.i8().map(|value| value != 0)
    }

    /// A 16-bit number.
    #[inline]
    pub fn i16(&mut self) -> Read<i16> {
        self.fixed().map(i16::from_be_bytes)
    }

    /// A 32-bit number.
    #[inline]
    pub fn i32(&mut self) -> Read<i32> {
        self.fixed().map(i32::from_be_bytes)
    }

    /// A 64-bit number.
    #[inline]
    pub fn i64(&mut self) -> Read<i64> {
        self.fixed().map(i64::from_be_bytes)
    }

    /// An unsigned varint of at most 32 bits.
    #[inline]
    pub fn uvarint(&mut self) -> Read<u32> {
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.fixed()?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && bits > 0x0f {
                return self.fail("a varint is larger than 32 bits");
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        self.fail("a varint is longer than five bytes")
    }

    /// A length of a flexible version; beyond 31 bits it wraps to a negative one.
    #[inline]
    fn compact_length(&mut self) -> Read<i32> {
        Ok((self.uvarint()? as i32).wrapping_sub(1))
    }

    /// The range of the next `length` bytes; null if it is negative.
    #[inline]
    fn run(&mut self, length: i32) -> Read<Option<Range<usize>>> {
        match usize::try_from(length) {
            Ok(length) if length <= self.left() => {
                let start = self.at;
                self.at += length;
                Ok(Some(start..self.at))
            }
            Ok(_) => self.fail("a length is larger than the rest of the message"),
            Err(_) => Ok(None),
        }
    }

    /// The range of a string or null; its bytes may not be UTF-8.
    pub fn nullable_string(&mut self, is_flexible: bool) -> Read<Option<Range<usize>>> {
        let length = if is_flexible {
            self.compact_length()?
        } else {
            i32::from(self.i16()?)
        };
        if length > STRING_BYTES_MAX {
            return self.fail("a string is longer than 32,767 bytes");
        }
        self.run(length)
    }

    /// The range of a string; its bytes may not be UTF-8.
    pub fn string(&mut self, is_flexible: bool) -> Read<Range<usize>> {
        match self.nullable_string(is_flexible)? {
            Some(range) => Ok(range),
            None => self.fail("a string that has to be there is null"),
        }
    }

    /// The range of bytes, of records, or null.
    pub fn nullable_bytes(&mut self, is_flexible: bool) -> Read<Option<Range<usize>>> {
        let length = if is_flexible {
            self.compact_length()?
        } else {
            self.i32()?
        };
        self.run(length)
    }

    /// The range of bytes.
    pub fn bytes(&mut self, is_flexible: bool) -> Read<Range<usize>> {
        match self.nullable_bytes(is_flexible)? {
            Some(range) => Ok(range),
            None => self.fail("bytes that have to be there are null"),
        }
    }

    /// The range of a 16-byte id.
    pub fn uuid(&mut self) -> Read<Range<usize>> {
        self.fixed::<16>().map(|_| self.at - 16..self.at)
    }

    /// A 16-byte id.
    pub fn uuid_bytes(&mut self) -> Read<[u8; 16]> {
        self.fixed()
    }

    /// The number of an array's items; each item takes at least `item_bytes`.
    pub fn array(&mut self, is_flexible: bool, item_bytes: usize) -> Read<usize> {
        match self.nullable_array(is_flexible, item_bytes)? {
            Some(count) => Ok(count),
            None => self.fail("an array that has to be there is null"),
        }
    }

    /// Like [`Reader::array`], or null.
    pub fn nullable_array(&mut self, is_flexible: bool, item_bytes: usize) -> Read<Option<usize>> {
        let count = if is_flexible {
            self.compact_length()?
        } else {
            self.i32()?
        };
        match usize::try_from(count) {
            Ok(count) if count <= self.left() / item_bytes => Ok(Some(count)),
            Ok(_) => self.fail("an array announces more items than the message has bytes for"),
            Err(_) => Ok(None),
        }
    }

    /// Skips `size` bytes.
    pub fn skip(&mut self, size: usize) -> Read<()> {
        if size > self.left() {
            return self.fail("it ends inside a fixed-size field");
        }
        self.at += size;
        Ok(())
    }

    /// Skips tagged fields; versions that are not flexible have none.
    #[inline]
    pub fn skip_tags(&mut self, is_flexible: bool) -> Read<()> {
        if is_flexible {
            self.tags(|_, _| Ok(()))
        } else {
            Ok(())
        }
    }

    /// Hands each tagged field to `field`: its tag, and a reader that ends with the field.
    #[inline]
    pub fn tags(&mut self, mut field: impl FnMut(u32, Reader<'a>) -> Read<()>) -> Read<()> {
        for _ in 0..self.uvarint()? {
            let tag = self.uvarint()?;
            let size = self.uvarint()? as usize;
            let start = self.at;
            self.skip(size)?;
            let value = Reader {
                bytes: &self.bytes[..self.at],
                at: start,
            };
            field(tag, value)?;
        }
        Ok(())
    }

    /// Compact bytes or null.
    #[inline]
    pub fn compact_nullable_bytes(&mut self) -> Read<Option<&'a [u8]>> {
        let bytes = self.bytes;
        Ok(self.nullable_bytes(true)?.map(|range| &bytes[range]))
    }

    /// A compact string or null.
    pub fn compact_nullable_string(&mut self) -> Read<Option<&'a str>> {
        let Some(range) = self.nullable_string(true)? else {
            return Ok(None);
        };
        let at = range.start;
        match std::str::from_utf8(&self.bytes[range]) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(Malformed {
                at,
                reason: "a string is not UTF-8",
            }),
        }
    }

    /// A compact string.
    pub fn compact_string(&mut self) -> Read<&'a str> {
        match self.compact_nullable_string()? {
            Some(text) => Ok(text),
            None => self.fail("a string that has to be there is null"),
        }
    }

    /// The elements of a compact array, each read by `element`; null is empty.
    pub fn compact_array<T>(&mut self, element: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        self.array_of(true, element)
    }

    /// Like [`Reader::compact_array`], in either encoding.
    pub fn array_of<T>(
        &mut self,
        is_flexible: bool,
        mut element: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<Vec<T>> {
        let count = self.nullable_array(is_flexible, 1)?.unwrap_or(0);
        // Not with_capacity(count): a false count could still ask for many times the message's size.
        let mut elements = Vec::new();
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    /// Skips a compact array of elements of `element_bytes` each.
    pub fn skip_compact_array(&mut self, element_bytes: usize) -> Read<()> {
        let count = self.nullable_array(true, element_bytes)?.unwrap_or(0);
        self.skip(count * element_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::Put;
    use proptest::prelude::*;

    #[test]
    fn a_length_beyond_the_request_is_malformed() {
        let mut reader = Reader::new(&[0x7f, 0xff, 0xff, 0xff, 1, 2]);
        assert!(reader.nullable_bytes(false).is_err());
    }

    /// Only -1 was; the others closed the connection.
    #[test]
    fn every_negative_length_is_null() {
        for length in [-1, -2, i16::MIN] {
            let bytes = length.to_be_bytes();
            assert_eq!(Reader::new(&bytes).nullable_string(false), Ok(None));
            assert!(Reader::new(&bytes).string(false).is_err());
        }
        for length in [-1, -2, i32::MIN] {
            let bytes = length.to_be_bytes();
            assert_eq!(Reader::new(&bytes).nullable_bytes(false), Ok(None));
            assert_eq!(Reader::new(&bytes).nullable_array(false, 1), Ok(None));
            assert!(Reader::new(&bytes).array(false, 1).is_err());
        }
    }

    #[test]
    fn a_compact_zero_is_null_and_so_is_a_length_that_came_round() {
        for bytes in [&[0][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]] {
            assert_eq!(Reader::new(bytes).nullable_string(true), Ok(None));
            assert_eq!(Reader::new(bytes).nullable_bytes(true), Ok(None));
            assert_eq!(Reader::new(bytes).nullable_array(true, 1), Ok(None));
            assert!(Reader::new(bytes).string(true).is_err());
        }
        assert_eq!(Reader::new(&[1]).nullable_string(true), Ok(Some(1..1)));
    }

    #[test]
    fn a_string_has_32767_bytes_at_most() {
        let of_length = |length: u32| {
            let mut bytes = Vec::new();
            bytes.put_uvarint(length + 1);
            bytes.resize(bytes.len() + length as usize, b'x');
            bytes
        };
        assert!(Reader::new(&of_length(32_767)).string(true).is_ok());
        assert!(Reader::new(&of_length(32_768)).string(true).is_err());
        assert!(Reader::new(&of_length(32_768)).nullable_bytes(true).is_ok());
    }

    #[test]
    fn an_array_of_more_items_than_bytes_is_malformed() {
        let mut bytes = 4_i32.to_be_bytes().to_vec();
        bytes.extend([0; 11]);
        assert!(Reader::new(&bytes).array(false, 3).is_err());
        bytes.push(0);
        assert_eq!(Reader::new(&bytes).array(false, 3), Ok(4));
    }

    #[test]
    fn a_null_array_is_malformed() {
        assert!(
            Reader::new(&(-1_i32).to_be_bytes())
                .array(false, 1)
                .is_err()
        );
        assert!(Reader::new(&[0]).array(true, 1).is_err());
    }

    #[test]
    fn a_varint_of_more_than_32_bits_is_malformed() {
        assert_eq!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).uvarint(),
            Ok(u32::MAX)
        );
        assert!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x1f])
                .uvarint()
                .is_err()
        );
        assert!(Reader::new(&[0x80; 9]).uvarint().is_err());
    }

    #[test]
    fn unknown_tagged_fields_are_skipped_and_a_long_one_is_malformed() {
        let mut reader = Reader::new(&[2, 0, 1, 9, 5, 2, 9, 9, 7]);
        assert_eq!(reader.skip_tags(true), Ok(()));
        assert_eq!(reader.at(), 8);
        assert!(Reader::new(&[1, 0, 9, 1]).skip_tags(true).is_err());
        assert!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f])
                .skip_tags(true)
                .is_err()
        );
    }

    #[test]
    fn a_tagged_field_is_read_within_its_bounds() {
        let mut reader = Reader::new(&[2, 7, 2, 0, 5, 9, 1, 3, 8]);
        let mut found = Vec::new();
        let result = reader.tags(|tag, mut field| {
            found.push((tag, field.at(), field.left(), field.i16().is_ok()));
            Ok(())
        });
        assert_eq!(result, Ok(()));
        assert_eq!(found, [(7, 3, 2, true), (9, 7, 1, false)]);
        assert_eq!(reader.left(), 1);
    }

    #[test]
    fn a_string_that_is_not_utf8_is_malformed_where_it_begins() {
        let error = Reader::new(&[3, 0xff, 0xff]).compact_string().unwrap_err();
        assert_eq!(error.at, 1);
    }

    #[test]
    fn a_compact_array_longer_than_the_message_is_refused_before_it_is_read() {
        let mut reader = Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x07, 1, 2]);
        assert!(reader.compact_array(Reader::i8).is_err());
        let mut reader = Reader::new(&[3, 0, 0, 0, 1, 0, 0, 0]);
        assert!(reader.skip_compact_array(4).is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_read_or_malformed_and_never_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            steps in prop::collection::vec(0..16_u8, 0..16),
            is_flexible in any::<bool>(),
        ) {
            let mut reader = Reader::new(&bytes);
            for step in steps {
                let before = reader.at();
                let result = match step {
                    0 => reader.i8().map(drop),
                    1 => reader.i16().map(drop),
                    2 => reader.i32().map(drop),
                    3 => reader.i64().map(drop),
                    4 => reader.uvarint().map(drop),
                    5 => reader.string(is_flexible).map(drop),
                    6 => reader.nullable_string(is_flexible).map(drop),
                    7 => reader.bytes(is_flexible).map(drop),
                    8 => reader.array(is_flexible, 3).map(drop),
                    9 => reader.skip_tags(true),
                    10 => reader.uuid().map(drop),
                    11 => reader.compact_string().map(drop),
                    12 => reader.compact_nullable_bytes().map(drop),
                    13 => reader.compact_array(Reader::i16).map(drop),
                    14 => reader.skip_compact_array(4),
                    _ => reader.skip(7),
                };
                prop_assert!(before <= reader.at() && reader.at() <= bytes.len());
                if let Err(error) = result {
                    prop_assert!(error.at <= bytes.len());
                    break;
                }
            }
        }
    }
}
