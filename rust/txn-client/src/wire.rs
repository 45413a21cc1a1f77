//! Kafka's primitive types, written and read.
//!
//! Every request this crate sends is of a *flexible* version: lengths are unsigned varints of
//! length + 1 (0 is null), and every structure ends with tagged fields. Numbers are big endian.
//!
//! # Invariants
//! A length read from the network is compared with the bytes that are left before anything is
//! allocated or sliced, so a damaged or hostile answer ends in `Malformed` and in nothing else.
//!
//! Sources: Apache Kafka protocol guide, "Protocol primitive types"; KIP-482 (flexible versions).
#![allow(
    clippy::missing_errors_doc,
    reason = "what reads bytes fails with `Malformed` and with nothing else"
)]

use std::fmt;

/// Bytes that do not follow the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What was being read.
    pub what: &'static str,
    /// How many bytes were left of the message.
    pub left: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no sound {} in the last {} bytes", self.what, self.left)
    }
}

/// Reads a message front to back.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// How many bytes are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    fn malformed<T>(&self, what: &'static str) -> Result<T, Malformed> {
        Err(Malformed {
            what,
            left: self.bytes.len(),
        })
    }

    fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let Some((taken, rest)) = self.bytes.split_at_checked(length) else {
            return self.malformed(what);
        };
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let Some((taken, rest)) = self.bytes.split_first_chunk() else {
            return self.malformed(what);
        };
        self.bytes = rest;
        Ok(*taken)
    }

    /// An 8-bit number.
    pub fn i8(&mut self) -> Result<i8, Malformed> {
        self.array("int8").map(i8::from_be_bytes)
    }

    /// A byte that is 0 or not.
    pub fn boolean(&mut self) -> Result<bool, Malformed> {
        self.i8().map(|value| value != 0)
    }

    /// A 16-bit number.
    pub fn i16(&mut self) -> Result<i16, Malformed> {
        self.array("int16").map(i16::from_be_bytes)
    }

    /// A 32-bit number.
    pub fn i32(&mut self) -> Result<i32, Malformed> {
        self.array("int32").map(i32::from_be_bytes)
    }

    /// A 64-bit number.
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array("int64").map(i64::from_be_bytes)
    }

    /// An unsigned varint of at most 32 bits.
    pub fn uvarint(&mut self) -> Result<u32, Malformed> {
        let mut value: u64 = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array("unsigned varint")?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).or_else(|_| self.malformed("unsigned varint"));
            }
        }
        self.malformed("unsigned varint")
    }

    /// Bytes, or null.
    pub fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.uvarint()? {
            0 => Ok(None),
            n => self.take(n as usize - 1, "bytes").map(Some),
        }
    }

    /// A string, or null.
    pub fn nullable_string(&mut self) -> Result<Option<&'a str>, Malformed> {
        let Some(bytes) = self.nullable_bytes()? else {
            return Ok(None);
        };
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => self.malformed("string"),
        }
    }

    /// A string.
    pub fn string(&mut self) -> Result<&'a str, Malformed> {
        match self.nullable_string()? {
            Some(text) => Ok(text),
            None => self.malformed("string"),
        }
    }

    /// A 16-byte id.
    pub fn uuid(&mut self) -> Result<[u8; 16], Malformed> {
        self.array("uuid")
    }

    /// The elements of an array, each read by `element`; null is empty.
    pub fn array_of<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = (self.uvarint()? as usize).saturating_sub(1);
        if count > self.left() {
            return self.malformed("array"); // an element takes at least one byte
        }
        // Not with_capacity(count): a lying count could still ask for many times the message's size.
        let mut elements = Vec::new();
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    /// Skips an array of 32-bit numbers.
    pub fn skip_i32s(&mut self) -> Result<(), Malformed> {
        let count = (self.uvarint()? as usize).saturating_sub(1);
        self.take(count.saturating_mul(4), "array of int32")
            .map(|_| ())
    }

    /// Skips the tagged fields that end a structure.
    pub fn tags(&mut self) -> Result<(), Malformed> {
        self.tagged(|_, _| Ok(()))
    }

    /// Hands each tagged field to `field` as (tag, its bytes).
    pub fn tagged(
        &mut self,
        mut field: impl FnMut(u32, Reader<'a>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        for _ in 0..self.uvarint()? {
            let tag = self.uvarint()?;
            let length = self.uvarint()? as usize;
            field(tag, Reader::new(self.take(length, "tagged field")?))?;
        }
        Ok(())
    }
}

/// Writes a message front to back.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    /// What is written so far.
    pub bytes: Vec<u8>,
}

impl Encoder {
    /// Writes an 8-bit number.
    pub fn i8(&mut self, value: i8) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        self.i8(i8::from(value));
    }

    /// Writes a 16-bit number.
    pub fn i16(&mut self, value: i16) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes a 32-bit number.
    pub fn i32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes a 64-bit number.
    pub fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes an unsigned varint.
    pub fn uvarint(&mut self, mut value: u32) {
        while value > 0x7f {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Writes the length of a string, of bytes or of an array.
    pub fn length(&mut self, length: usize) {
        self.uvarint(u32::try_from(length + 1).expect("requests stay below 4 GiB"));
    }

    /// Writes a string.
    pub fn string(&mut self, value: &str) {
        self.length(value.len());
        self.bytes.extend_from_slice(value.as_bytes());
    }

    /// Writes a string, or null.
    pub fn nullable_string(&mut self, value: Option<&str>) {
        match value {
            Some(text) => self.string(text),
            None => self.uvarint(0),
        }
    }

    /// Writes an array, each element by `element`.
    pub fn array_of<T>(
        &mut self,
        elements: impl ExactSizeIterator<Item = T>,
        mut element: impl FnMut(&mut Self, T),
    ) {
        self.length(elements.len());
        for each in elements {
            element(self, each);
        }
    }

    /// Writes that a structure has no tagged fields.
    pub fn no_tags(&mut self) {
        self.uvarint(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unsigned_varints_are_seven_bits_a_byte_low_bits_first() {
        let mut encoder = Encoder::default();
        encoder.uvarint(300);
        assert_eq!(encoder.bytes, [0xac, 0x02]);
    }

    #[test]
    fn a_varint_of_more_than_32_bits_is_refused() {
        assert!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x1f])
                .uvarint()
                .is_err()
        );
        assert!(
            Reader::new(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01])
                .uvarint()
                .is_err()
        );
    }

    #[test]
    fn an_array_longer_than_the_message_is_refused_before_it_is_read() {
        let mut reader = Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2]);
        let error = reader.array_of(Reader::i8).unwrap_err();
        assert_eq!(
            error,
            Malformed {
                what: "array",
                left: 2
            }
        );
    }

    #[test]
    fn a_null_string_is_not_an_empty_one() {
        assert_eq!(Reader::new(&[0]).nullable_string(), Ok(None));
        assert_eq!(Reader::new(&[1]).nullable_string(), Ok(Some("")));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(number: u32, text: Option<String>, ids: Vec<i32>) {
            let mut encoder = Encoder::default();
            encoder.uvarint(number);
            encoder.nullable_string(text.as_deref());
            encoder.array_of(ids.iter(), |e, id| e.i32(*id));
            encoder.no_tags();
            let mut reader = Reader::new(&encoder.bytes);
            prop_assert_eq!(reader.uvarint(), Ok(number));
            prop_assert_eq!(reader.nullable_string(), Ok(text.as_deref()));
            prop_assert_eq!(reader.array_of(Reader::i32), Ok(ids));
            prop_assert_eq!(reader.tags(), Ok(()));
            prop_assert_eq!(reader.left(), 0);
        }
    }
}
