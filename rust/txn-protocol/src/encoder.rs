//! Kafka's primitive types, written to a buffer.
//!
//! `compact` methods write the types of flexible versions (KIP-482); methods with `is_flexible`
//! write those of either. Numbers are big endian.

/// Writes primitive types.
///
/// # Panics
/// A string of 32 KiB and more, and an array or bytes of 2 GiB and more: no message of ours has one.
pub trait Put {
    /// Appends bytes as they are.
    fn put(&mut self, bytes: &[u8]);

    /// Appends an 8-bit number.
    #[inline]
    fn put_i8(&mut self, value: i8) {
        self.put(&value.to_be_bytes());
    }

    /// Appends 1 or 0.
    #[inline]
    fn put_bool(&mut self, value: bool) {
        self.put_i8(i8::from(value));
    }

    /// Appends a 16-bit number.
    #[inline]
    fn put_i16(&mut self, value: i16) {
        self.put(&value.to_be_bytes());
    }

    /// Appends a 32-bit number.
    #[inline]
    fn put_i32(&mut self, value: i32) {
        self.put(&value.to_be_bytes());
    }

    /// Appends a 64-bit number.
    #[inline]
    fn put_i64(&mut self, value: i64) {
        self.put(&value.to_be_bytes());
    }

    /// Appends an unsigned varint.
    #[inline]
    fn put_uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.put(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.put(&[value as u8]);
    }

    /// Appends an array's count or the length of bytes.
    #[inline]
    fn put_length(&mut self, length: usize, is_flexible: bool) {
        if is_flexible {
            self.put_compact_length(length);
        } else {
            self.put_i32(i32::try_from(length).expect("lengths stay below 2 GiB"));
        }
    }

    /// Appends the length of a compact string, of compact bytes, or of a compact array.
    #[inline]
    fn put_compact_length(&mut self, length: usize) {
        let length = i32::try_from(length).expect("lengths stay below 2 GiB");
        self.put_uvarint(length as u32 + 1);
    }

    /// Appends a string or null.
    #[inline]
    fn put_nullable_string(&mut self, text: Option<&[u8]>, is_flexible: bool) {
        match (text, is_flexible) {
            (Some(text), true) => self.put_compact_length(text.len()),
            (Some(text), false) => {
                self.put_i16(i16::try_from(text.len()).expect("strings stay below 32 KiB"));
            }
            (None, true) => self.put_uvarint(0),
            (None, false) => self.put_i16(-1),
        }
        self.put(text.unwrap_or_default());
    }

    /// Appends a compact string.
    #[inline]
    fn put_compact_string(&mut self, text: &str) {
        self.put_compact_nullable_string(Some(text));
    }

    /// Appends a compact string or null.
    #[inline]
    fn put_compact_nullable_string(&mut self, text: Option<&str>) {
        self.put_nullable_string(text.map(str::as_bytes), true);
    }

    /// Appends a compact array, each element by `element`.
    #[inline]
    fn put_compact_array<T>(
        &mut self,
        elements: impl ExactSizeIterator<Item = T>,
        mut element: impl FnMut(&mut Self, T),
    ) where
        Self: Sized,
    {
        self.put_compact_length(elements.len());
        for each in elements {
            element(self, each);
        }
    }

    /// Appends an empty list of tagged fields; nothing in versions without them.
    #[inline]
    fn put_no_tags(&mut self, is_flexible: bool) {
        if is_flexible {
            self.put(&[0]);
        }
    }
}

impl Put for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Reader;
    use proptest::prelude::*;

    fn bytes(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out);
        out
    }

    #[test]
    fn numbers_are_big_endian() {
        assert_eq!(bytes(|out| out.put_i8(-2)), [0xfe]);
        assert_eq!(bytes(|out| out.put_i16(0x0102)), [1, 2]);
        assert_eq!(bytes(|out| out.put_i32(0x0102_0304)), [1, 2, 3, 4]);
        assert_eq!(bytes(|out| out.put_i64(-1)), [0xff; 8]);
        assert_eq!(bytes(|out| out.put_bool(true)), [1]);
    }

    #[test]
    fn unsigned_varints_are_seven_bits_a_byte_low_bits_first() {
        assert_eq!(bytes(|out| out.put_uvarint(300)), [0xac, 0x02]);
    }

    #[test]
    fn strings_have_a_length_of_two_bytes_or_a_varint_one_up() {
        let text = Some(&b"ab"[..]);
        assert_eq!(
            bytes(|out| out.put_nullable_string(text, false)),
            [0, 2, b'a', b'b']
        );
        assert_eq!(
            bytes(|out| out.put_nullable_string(text, true)),
            [3, b'a', b'b']
        );
        assert_eq!(
            bytes(|out| out.put_nullable_string(None, false)),
            [0xff, 0xff]
        );
        assert_eq!(bytes(|out| out.put_nullable_string(None, true)), [0]);
        assert_eq!(bytes(|out| out.put_compact_string("")), [1]);
    }

    #[test]
    fn arrays_have_a_length_of_four_bytes_or_a_varint_one_up() {
        assert_eq!(bytes(|out| out.put_length(2, false)), [0, 0, 0, 2]);
        assert_eq!(bytes(|out| out.put_length(2, true)), [3]);
        let ids = [7_i16, 8];
        let array = bytes(|out| out.put_compact_array(ids.iter(), |out, id| out.put_i16(*id)));
        assert_eq!(array, [3, 0, 7, 0, 8]);
    }

    #[test]
    fn only_flexible_versions_have_tagged_fields() {
        assert_eq!(bytes(|out| out.put_no_tags(true)), [0]);
        assert!(bytes(|out| out.put_no_tags(false)).is_empty());
    }

    proptest! {
        #[test]
        fn values_come_back_as_they_went(
            (byte, is_true, short, number, long) in any::<(i8, bool, i16, i32, i64)>(),
            varint in any::<u32>(),
            text in any::<Option<String>>(),
            ids in any::<Vec<i32>>(),
            is_flexible in any::<bool>(),
        ) {
            let mut out = Vec::new();
            out.put_i8(byte);
            out.put_bool(is_true);
            out.put_i16(short);
            out.put_i32(number);
            out.put_i64(long);
            out.put_uvarint(varint);
            out.put_compact_nullable_string(text.as_deref());
            out.put_compact_array(ids.iter(), |out, id| out.put_i32(*id));
            out.put_nullable_string(text.as_ref().map(String::as_bytes), is_flexible);
            out.put_length(ids.len(), is_flexible);
            for id in &ids {
                out.put_i32(*id);
            }
            out.put_no_tags(is_flexible);

            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.i8(), Ok(byte));
            prop_assert_eq!(reader.bool(), Ok(is_true));
            prop_assert_eq!(reader.i16(), Ok(short));
            prop_assert_eq!(reader.i32(), Ok(number));
            prop_assert_eq!(reader.i64(), Ok(long));
            prop_assert_eq!(reader.uvarint(), Ok(varint));
            prop_assert_eq!(reader.compact_nullable_string(), Ok(text.as_deref()));
            prop_assert_eq!(reader.compact_array(Reader::i32), Ok(ids.clone()));
            let range = reader.nullable_string(is_flexible).unwrap();
            prop_assert_eq!(range.map(|range| &out[range]), text.as_ref().map(String::as_bytes));
            prop_assert_eq!(reader.array(is_flexible, 4), Ok(ids.len()));
            reader.skip(4 * ids.len()).unwrap();
            prop_assert_eq!(reader.skip_tags(is_flexible), Ok(()));
            prop_assert_eq!(reader.left(), 0);
        }
    }
}
