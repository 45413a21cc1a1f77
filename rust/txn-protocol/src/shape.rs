//! Bodies of requests that Python decodes: checked first, and made plain.
//!
//! Python's protocol library reserves memory for the announced count of an array, which aborts
//! the process where there is less. It refuses unknown tagged fields, which KIP-482 skips, and
//! lengths below -1, which are null to Kafka. A [`Shape`] holds the places of lengths, counts and
//! tagged fields in a body of one version. None of these requests has known tagged fields.

use std::ops::Range;

use crate::reader::{Malformed, Reader};

/// One step through a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This number of bytes.
    Fixed(usize),
    /// A string.
    String,
    /// A string or null.
    NullableString,
    /// Bytes or records.
    Bytes,
    /// Bytes, records or null.
    NullableBytes,
    /// An array; this number of steps behind it describes an item.
    Array(usize),
    /// An array or null.
    NullableArray(usize),
    /// A byte that is negative if the structure of this number of steps is null (KIP-893).
    Nullable(usize),
    /// The tagged fields at the end of a structure.
    Tags,
}

/// Notes from the way through a body.
struct Notes {
    edits: Vec<Edit>,
    /// Number of items that its arrays may still have.
    items_left: usize,
}

/// A place to replace, and its replacement.
type Edit = (Range<usize>, &'static [u8]);

/// No tagged fields, or the length of a null in a flexible version.
const NOTHING: &[u8] = &[0];

/// The longest length of a null in the other versions.
const MINUS_ONE: &[u8] = &[0xff; 4];

/// The body of one version of one request.
#[derive(Debug)]
pub struct Shape {
    steps: Vec<Step>,
    is_flexible: bool,
}

impl Shape {
    /// Stores the steps of a body in the order of its bytes. Returns `None` if one reaches beyond
    /// the last of its structure, or if an array's items may have no bytes.
    #[must_use]
    pub fn new(steps: Vec<Step>, is_flexible: bool) -> Option<Self> {
        is_sound(&steps).then_some(Self { steps, is_flexible })
    }

    /// Looks through a body, and copies it if it has tagged fields or a null with a length other
    /// than -1. The copy lacks the fields, and has -1. Bytes behind the last step are left as they
    /// are.
    ///
    /// Its arrays, those within arrays too, may have `items_max` items in all. A decoded item takes
    /// a hundred times the memory that its sender pays for it.
    ///
    /// # Errors
    /// The body ends too soon, or has a length or count that cannot be, or a null that may not, or
    /// too many items.
    pub fn plain(&self, body: &[u8], items_max: usize) -> Result<Option<Vec<u8>>, Malformed> {
        let mut notes = Notes {
            edits: Vec::new(),
            items_left: items_max,
        };
        self.pass(&self.steps, &mut Reader::new(body), &mut notes)?;
        let edits = notes.edits;
        if edits.is_empty() {
            return Ok(None);
        }
        let mut kept = Vec::with_capacity(body.len());
        let mut at = 0;
        for (Range { start, end }, plain) in edits {
            kept.extend_from_slice(&body[at..start]);
            kept.extend_from_slice(plain);
            at = end;
        }
        kept.extend_from_slice(&body[at..]);
        Ok(Some(kept))
    }

    /// The length of a null; `size` bytes where lengths have a fixed size.
    fn null(&self, size: usize) -> &'static [u8] {
        if self.is_flexible {
            NOTHING
        } else {
            &MINUS_ONE[..size]
        }
    }

    /// Passes over the bytes of the steps; notes places to replace, and their replacements.
    fn pass(
        &self,
        steps: &[Step],
        reader: &mut Reader<'_>,
        notes: &mut Notes,
    ) -> Result<(), Malformed> {
        let mut steps = steps;
        while let Some((step, mut rest)) = steps.split_first() {
            let before = *reader;
            match *step {
                Step::Fixed(size) => reader.skip(size)?,
                Step::String => {
                    reader.string(self.is_flexible)?;
                }
                Step::NullableString => {
                    if reader.nullable_string(self.is_flexible)?.is_none() {
                        note(&mut notes.edits, before, *reader, self.null(2));
                    }
                }
                Step::Bytes => {
                    reader.bytes(self.is_flexible)?;
                }
                Step::NullableBytes => {
                    if reader.nullable_bytes(self.is_flexible)?.is_none() {
                        note(&mut notes.edits, before, *reader, self.null(4));
                    }
                }
                Step::Array(length) => {
                    let count = reader.array(self.is_flexible, 1)?;
                    rest = self.pass_items(count, rest, length, reader, notes)?;
                }
                Step::NullableArray(length) => {
                    let count = reader.nullable_array(self.is_flexible, 1)?;
                    if count.is_none() {
                        note(&mut notes.edits, before, *reader, self.null(4));
                    }
                    rest = self.pass_items(count.unwrap_or(0), rest, length, reader, notes)?;
                }
                Step::Nullable(length) => {
                    let (structure, behind) = rest.split_at(length);
                    if reader.i8()? >= 0 {
                        self.pass(structure, reader, notes)?;
                    }
                    rest = behind;
                }
                Step::Tags => {
                    reader.skip_tags(true)?;
                    note(&mut notes.edits, before, *reader, NOTHING);
                }
            }
            steps = rest;
        }
        Ok(())
    }

    /// Passes over an array's items, of `length` steps each; returns the steps behind them.
    fn pass_items<'s>(
        &self,
        count: usize,
        steps: &'s [Step],
        length: usize,
        reader: &mut Reader<'_>,
        notes: &mut Notes,
    ) -> Result<&'s [Step], Malformed> {
        notes.items_left = notes
            .items_left
            .checked_sub(count)
            .ok_or_else(|| reader.malformed("its arrays have too many items"))?;
        let (item, behind) = steps.split_at(length);
        for _ in 0..count {
            self.pass(item, reader, notes)?;
        }
        Ok(behind)
    }
}

/// True if each structure lies within the one around it, and every item has bytes.
fn is_sound(mut steps: &[Step]) -> bool {
    while let Some((step, rest)) = steps.split_first() {
        let length = match *step {
            Step::Array(0) | Step::NullableArray(0) | Step::Fixed(0) => return false,
            Step::Array(length) | Step::NullableArray(length) | Step::Nullable(length) => length,
            _ => 0,
        };
        let Some((structure, behind)) = rest.split_at_checked(length) else {
            return false;
        };
        if !is_sound(structure) {
            return false;
        }
        steps = behind;
    }
    true
}

/// Notes that the bytes between two places have to be `plain`, unless they are.
fn note(edits: &mut Vec<Edit>, from: Reader<'_>, to: Reader<'_>, plain: &'static [u8]) {
    if from.until(to) != plain {
        edits.push((from.at()..to.at(), plain));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A string and an array of structures, each an i16 and null or a structure of a byte.
    fn shape(is_flexible: bool) -> Shape {
        let all = [
            Step::NullableString,
            Step::NullableArray(5),
            Step::Fixed(2),
            Step::Nullable(2),
            Step::Fixed(1),
            Step::Tags,
            Step::Tags,
            Step::NullableBytes,
            Step::Tags,
        ];
        let steps = if is_flexible {
            all.to_vec()
        } else {
            vec![
                Step::NullableString,
                Step::NullableArray(1),
                Step::Fixed(2),
                Step::NullableBytes,
            ]
        };
        Shape::new(steps, is_flexible).unwrap()
    }

    const TAGS: [u8; 6] = [2, 0, 0, 9, 1, 5];

    /// The body with these bytes in place of every tagged section.
    fn flexible(tags: &[u8]) -> Vec<u8> {
        let parts: [&[u8]; 9] = [
            &[2, b'a', 3],
            &[0, 1, 1, 7],
            tags,
            tags,
            &[0, 2, 0xff],
            tags,
            &[0],
            tags,
            b"behind",
        ];
        parts.concat()
    }

    #[test]
    fn a_body_without_tagged_fields_is_left_as_it_is() {
        assert_eq!(shape(true).plain(&flexible(&[0]), 100), Ok(None));
        let legacy = [0, 1, b'a', 0, 0, 0, 1, 0, 7, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(shape(false).plain(&legacy, 100), Ok(None));
        for end in 0..legacy.len() {
            assert!(shape(false).plain(&legacy[..end], 100).is_err());
        }
    }

    #[test]
    fn tagged_fields_are_taken_out_of_every_structure() {
        let kept = shape(true).plain(&flexible(&TAGS), 100);
        assert_eq!(kept, Ok(Some(flexible(&[0]))));
    }

    #[test]
    fn every_null_gets_the_length_of_minus_one() {
        let legacy = [0x80, 0, 0xff, 0xff, 0xff, 0xfe, 0x80, 0, 0, 0];
        assert_eq!(shape(false).plain(&legacy, 100), Ok(Some(vec![0xff; 10])));
        let came_round = [0xff, 0xff, 0xff, 0xff, 0x0f];
        let parts: [&[u8]; 3] = [&came_round, &came_round, &[0, 0, 0]];
        assert_eq!(
            shape(true).plain(&parts.concat(), 100),
            Ok(Some(vec![0; 5]))
        );
    }

    #[test]
    fn null_is_malformed_where_it_may_not_be() {
        for steps in [
            vec![Step::String],
            vec![Step::Bytes],
            vec![Step::Array(1), Step::Fixed(1)],
        ] {
            let of = |is_flexible| Shape::new(steps.clone(), is_flexible).unwrap();
            assert!(of(true).plain(&[0], 100).is_err());
            assert_eq!(of(true).plain(&[1], 100), Ok(None));
            assert!(of(false).plain(&[0xff; 4], 100).is_err());
            assert_eq!(of(false).plain(&[0; 4], 100), Ok(None));
        }
    }

    #[test]
    fn a_body_cut_anywhere_is_malformed() {
        let body = flexible(&TAGS);
        for end in 0..body.len() - b"behind".len() {
            assert!(
                shape(true).plain(&body[..end], 100).is_err(),
                "cut at {end}"
            );
        }
    }

    #[test]
    fn an_array_of_more_items_than_bytes_is_malformed() {
        let compact = [1, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0];
        assert!(shape(true).plain(&compact, 100).is_err());
        let legacy = [0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0];
        assert!(shape(false).plain(&legacy, 100).is_err());
    }

    #[test]
    fn the_items_of_all_arrays_are_counted_together() {
        let of_arrays = Shape::new(
            vec![
                Step::Array(2),
                Step::NullableArray(1),
                Step::Fixed(1),
                Step::Array(1),
                Step::Fixed(1),
            ],
            true,
        );
        let of_arrays = of_arrays.unwrap();
        let body = [3, 3, 0, 0, 3, 0, 0, 2, 0]; // two with two each, and one
        assert_eq!(of_arrays.plain(&body, 7), Ok(None));
        assert!(of_arrays.plain(&body, 6).is_err());
        let null = [2, 0, 1];
        assert_eq!(of_arrays.plain(&null, 1), Ok(None));
    }

    #[test]
    fn steps_that_reach_beyond_the_last_are_no_shape() {
        assert!(Shape::new(vec![Step::Array(1)], true).is_none());
        assert!(Shape::new(vec![Step::Array(0), Step::Tags], true).is_none());
        assert!(Shape::new(vec![Step::Nullable(2), Step::Tags], true).is_none());
        assert!(Shape::new(vec![Step::Fixed(0)], true).is_none());
        // Within the body, and not within the array's items.
        let inner = vec![Step::Array(2), Step::Nullable(2), Step::Tags, Step::Tags];
        assert!(Shape::new(inner, true).is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            for is_flexible in [false, true] {
                let _ = shape(is_flexible).plain(&body, 100);
            }
        }
    }
}
