//! Bodies of requests that Python decodes: looked through before, and freed of tagged fields.
//!
//! Python's protocol library believes the count of an array and reserves memory for it, which
//! aborts the process where there is not so much; and it refuses tagged fields that it does not
//! know, which KIP-482 says to pass over. A [`Shape`] knows where in a body of one version the
//! counts and the tagged fields are. None of these requests has tagged fields that are known.

use std::ops::Range;

use crate::wire::{Malformed, Reader};

/// One step through a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many bytes.
    Fixed(usize),
    /// A string or null.
    String,
    /// Bytes, records or null.
    Bytes,
    /// An array or null; the next so many steps are those of an item.
    Array(usize),
    /// A byte that tells whether the structure of the next so many steps follows (KIP-893).
    Nullable(usize),
    /// The tagged fields at the end of a structure.
    Tags,
}

/// The body of one version of one request.
#[derive(Debug)]
pub struct Shape {
    steps: Vec<Step>,
    is_flexible: bool,
}

impl Shape {
    /// Takes the steps of a body in the order of its bytes; `None` if one reaches beyond the
    /// last, or if an array's items may have no bytes.
    #[must_use]
    pub fn new(steps: Vec<Step>, is_flexible: bool) -> Option<Self> {
        let is_sound =
            steps
                .iter()
                .enumerate()
                .all(|(at, step)| match (*step, steps.len() - at - 1) {
                    (Step::Array(length), left) => 0 < length && length <= left,
                    (Step::Nullable(length), left) => length <= left,
                    (Step::Fixed(size), _) => size > 0,
                    _ => true,
                });
        is_sound.then_some(Self { steps, is_flexible })
    }

    /// Looks through a body, and copies it without tagged fields if it has any. Bytes behind the
    /// last step are left as they are.
    ///
    /// # Errors
    /// The body ends too soon, or has a length or count that cannot be.
    pub fn without_tags(&self, body: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        let mut tags = Vec::new();
        self.pass(&self.steps, &mut Reader::new(body), &mut tags)?;
        if tags.is_empty() {
            return Ok(None);
        }
        let mut kept = Vec::with_capacity(body.len());
        let mut at = 0;
        for Range { start, end } in tags {
            kept.extend_from_slice(&body[at..start]);
            kept.push(0);
            at = end;
        }
        kept.extend_from_slice(&body[at..]);
        Ok(Some(kept))
    }

    /// Passes over what the steps say; notes where tagged fields are.
    fn pass(
        &self,
        steps: &[Step],
        reader: &mut Reader<'_>,
        tags: &mut Vec<Range<usize>>,
    ) -> Result<(), Malformed> {
        let mut steps = steps;
        while let Some((step, mut rest)) = steps.split_first() {
            match *step {
                Step::Fixed(size) => reader.skip(size)?,
                Step::String => {
                    reader.nullable_string(self.is_flexible)?;
                }
                Step::Bytes => {
                    reader.nullable_bytes(self.is_flexible)?;
                }
                Step::Array(length) => {
                    let (item, behind) = rest.split_at(length);
                    for _ in 0..reader.nullable_array(self.is_flexible, 1)?.unwrap_or(0) {
                        self.pass(item, reader, tags)?;
                    }
                    rest = behind;
                }
                Step::Nullable(length) => {
                    let (structure, behind) = rest.split_at(length);
                    if reader.i8()? >= 0 {
                        self.pass(structure, reader, tags)?;
                    }
                    rest = behind;
                }
                Step::Tags => {
                    let start = reader.at();
                    reader.skip_tags(true)?;
                    if reader.at() > start + 1 {
                        tags.push(start..reader.at());
                    }
                }
            }
            steps = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A string and an array of structures, each an i16 and null or a structure of a byte.
    fn shape(is_flexible: bool) -> Shape {
        let all = [
            Step::String,
            Step::Array(5),
            Step::Fixed(2),
            Step::Nullable(2),
            Step::Fixed(1),
            Step::Tags,
            Step::Tags,
            Step::Bytes,
            Step::Tags,
        ];
        let steps = if is_flexible {
            all.to_vec()
        } else {
            vec![Step::String, Step::Array(1), Step::Fixed(2), Step::Bytes]
        };
        Shape::new(steps, is_flexible).unwrap()
    }

    const TAGS: [u8; 6] = [2, 0, 0, 9, 1, 5];

    /// With these bytes in place of every tagged section.
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
        assert_eq!(shape(true).without_tags(&flexible(&[0])), Ok(None));
        let legacy = [0, 1, b'a', 0, 0, 0, 1, 0, 7, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(shape(false).without_tags(&legacy), Ok(None));
        for end in 0..legacy.len() {
            assert!(shape(false).without_tags(&legacy[..end]).is_err());
        }
    }

    #[test]
    fn tagged_fields_are_taken_out_of_every_structure() {
        let kept = shape(true).without_tags(&flexible(&TAGS));
        assert_eq!(kept, Ok(Some(flexible(&[0]))));
    }

    #[test]
    fn a_body_cut_anywhere_is_malformed() {
        let body = flexible(&TAGS);
        for end in 0..body.len() - b"behind".len() {
            assert!(
                shape(true).without_tags(&body[..end]).is_err(),
                "cut at {end}"
            );
        }
    }

    #[test]
    fn an_array_of_more_items_than_bytes_is_malformed() {
        let compact = [1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
        assert!(shape(true).without_tags(&compact).is_err());
        let legacy = [0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0];
        assert!(shape(false).without_tags(&legacy).is_err());
    }

    #[test]
    fn steps_that_reach_beyond_the_last_are_no_shape() {
        assert!(Shape::new(vec![Step::Array(1)], true).is_none());
        assert!(Shape::new(vec![Step::Array(0), Step::Tags], true).is_none());
        assert!(Shape::new(vec![Step::Nullable(2), Step::Tags], true).is_none());
        assert!(Shape::new(vec![Step::Fixed(0)], true).is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            for is_flexible in [false, true] {
                let _ = shape(is_flexible).without_tags(&body);
            }
        }
    }
}
