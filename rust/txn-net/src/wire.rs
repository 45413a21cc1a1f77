//! Kafka's primitive types, read from borrowed bytes and written to a buffer.
//!
//! A [`Reader`] believes nothing: every length and count is checked against the bytes that
//! are left before anything is done with it, so that no request makes us read past its end or
//! reserve memory for what it only announces. Variable parts are handed out as ranges into the
//! request, because the request's bytes are changed in place later (see `produce`).
//!
//! *Flexible* message versions (KIP-482) write lengths as unsigned varints of length + 1, and
//! end every structure with tagged fields; the others use fixed-size lengths and -1 for null.
//! Every negative length is read as null, as Kafka does.

use std::fmt;
use std::ops::Range;

/// Bytes that are no request of the version they claim to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where in the frame, in bytes.
    pub at: usize,
    /// What is wrong there.
    pub reason: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the request is malformed at byte {}: {}",
            self.at, self.reason
        )
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
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Position of the next byte to read.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The bytes from here to where another reader of the same request is.
    pub fn until(&self, later: Reader<'_>) -> &'a [u8] {
        &self.bytes[self.at..later.at]
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Says that something is wrong here.
    pub fn malformed(&self, reason: &'static str) -> Malformed {
        Malformed {
            at: self.at,
            reason,
        }
    }

    fn fail<T>(&self, reason: &'static str) -> Read<T> {
        Err(self.malformed(reason))
    }

    fn fixed<const N: usize>(&mut self) -> Read<[u8; N]> {
        match self.bytes[self.at..].first_chunk::<N>() {
            Some(chunk) => {
                self.at += N;
                Ok(*chunk)
            }
            None => self.fail("it ends inside a fixed-size field"),
        }
    }

    pub fn i8(&mut self) -> Read<i8> {
        self.fixed().map(i8::from_be_bytes)
    }

    pub fn i16(&mut self) -> Read<i16> {
        self.fixed().map(i16::from_be_bytes)
    }

    pub fn i32(&mut self) -> Read<i32> {
        self.fixed().map(i32::from_be_bytes)
    }

    pub fn i64(&mut self) -> Read<i64> {
        self.fixed().map(i64::from_be_bytes)
    }

    /// An unsigned varint of at most 32 bits.
    fn uvarint(&mut self) -> Read<u32> {
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

    /// A length of a flexible version: beyond 31 bits it has come round and is negative.
    fn compact_length(&mut self) -> Read<i32> {
        Ok((self.uvarint()? as i32).wrapping_sub(1))
    }

    /// Takes `length` bytes; null if it is negative.
    fn run(&mut self, length: i32) -> Read<Option<Range<usize>>> {
        match usize::try_from(length) {
            Ok(length) if length <= self.left() => {
                let start = self.at;
                self.at += length;
                Ok(Some(start..self.at))
            }
            Ok(_) => self.fail("a length is larger than what is left of the request"),
            Err(_) => Ok(None),
        }
    }

    /// A nullable string, not checked to be UTF-8.
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

    /// A string that may not be null.
    pub fn string(&mut self, is_flexible: bool) -> Read<Range<usize>> {
        match self.nullable_string(is_flexible)? {
            Some(range) => Ok(range),
            None => self.fail("a string that has to be there is null"),
        }
    }

    /// Nullable bytes: also how records travel.
    pub fn nullable_bytes(&mut self, is_flexible: bool) -> Read<Option<Range<usize>>> {
        let length = if is_flexible {
            self.compact_length()?
        } else {
            self.i32()?
        };
        self.run(length)
    }

    /// Bytes that may not be null.
    pub fn bytes(&mut self, is_flexible: bool) -> Read<Range<usize>> {
        match self.nullable_bytes(is_flexible)? {
            Some(range) => Ok(range),
            None => self.fail("bytes that have to be there are null"),
        }
    }

    /// A topic id, 16 bytes.
    pub fn uuid(&mut self) -> Read<Range<usize>> {
        self.fixed::<16>().map(|_| self.at - 16..self.at)
    }

    /// How many items an array has, when each takes at least `item_bytes`.
    pub fn array(&mut self, is_flexible: bool, item_bytes: usize) -> Read<usize> {
        match self.nullable_array(is_flexible, item_bytes)? {
            Some(count) => Ok(count),
            None => self.fail("an array that has to be there is null"),
        }
    }

    /// Like [`Reader::array`], of one that may be null.
    pub fn nullable_array(&mut self, is_flexible: bool, item_bytes: usize) -> Read<Option<usize>> {
        let count = if is_flexible {
            self.compact_length()?
        } else {
            self.i32()?
        };
        match usize::try_from(count) {
            Ok(count) if count <= self.left() / item_bytes => Ok(Some(count)),
            Ok(_) => self.fail("an array announces more items than the request has bytes for"),
            Err(_) => Ok(None),
        }
    }

    /// Skips so many bytes.
    pub fn skip(&mut self, size: usize) -> Read<()> {
        if size > self.left() {
            return self.fail("it ends inside a fixed-size field");
        }
        self.at += size;
        Ok(())
    }

    /// Skips tagged fields; versions that are not flexible have none.
    pub fn skip_tags(&mut self, is_flexible: bool) -> Read<()> {
        if !is_flexible {
            return Ok(());
        }
        for _ in 0..self.uvarint()? {
            self.uvarint()?;
            let size = self.uvarint()?;
            self.skip(size as usize)?;
        }
        Ok(())
    }
}

/// Writes primitive types; implemented for the buffer of an answer.
pub trait Put {
    fn put(&mut self, bytes: &[u8]);

    fn put_i16(&mut self, value: i16) {
        self.put(&value.to_be_bytes());
    }

    fn put_i32(&mut self, value: i32) {
        self.put(&value.to_be_bytes());
    }

    fn put_i64(&mut self, value: i64) {
        self.put(&value.to_be_bytes());
    }

    fn put_uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.put(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.put(&[value as u8]);
    }

    /// An array's count or the length of bytes.
    fn put_length(&mut self, length: usize, is_flexible: bool) {
        if is_flexible {
            self.put_uvarint(length as u32 + 1);
        } else {
            self.put_i32(length as i32);
        }
    }

    fn put_nullable_string(&mut self, text: Option<&[u8]>, is_flexible: bool) {
        match (text, is_flexible) {
            (Some(text), true) => self.put_uvarint(text.len() as u32 + 1),
            (Some(text), false) => self.put_i16(text.len() as i16),
            (None, true) => self.put_uvarint(0),
            (None, false) => self.put_i16(-1),
        }
        self.put(text.unwrap_or_default());
    }

    /// No tagged fields; nothing in versions that have none.
    fn put_no_tags(&mut self, is_flexible: bool) {
        if is_flexible {
            self.put(&[0]);
        }
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Begins a frame: room for its length, the correlation id, and the response header's tags.
pub fn begin_answer(out: &mut Vec<u8>, correlation_id: i32, is_flexible: bool) {
    out.put_i32(0);
    out.put_i32(correlation_id);
    out.put_no_tags(is_flexible);
}

/// Writes a frame's length, once it is known, over the room left by [`begin_answer`].
pub fn set_length(frame: &mut [u8], length: usize) {
    frame[..4].copy_from_slice(&(length as i32).to_be_bytes());
}

/// Writes the correlation id of a frame begun elsewhere.
pub fn set_correlation_id(frame: &mut [u8], correlation_id: i32) {
    frame[4..8].copy_from_slice(&correlation_id.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn varints_come_back_as_they_went() {
        for value in [0, 1, 127, 128, 300, 16_383, 16_384, u32::MAX] {
            let mut out = Vec::new();
            out.put_uvarint(value);
            assert_eq!(Reader::new(&out).uvarint(), Ok(value));
        }
    }
}
