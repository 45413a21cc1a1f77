//! Frames, and the header in front of every request.
//!
//! A frame is a big-endian `i32` length and that many bytes. A request's bytes are: API key
//! `i16`, version `i16`, correlation id `i32`, client id (nullable string, never compact),
//! then, in header version 2, tagged fields. Which header a version uses is not written
//! anywhere on the wire; one has to know from which version on an API is flexible.
//!
//! Sources: Kafka's protocol guide; KIP-482 (flexible versions, header version 2).

use std::ops::Range;

use crate::wire::{Malformed, Reader};

/// API key of Produce.
pub const PRODUCE: i16 = 0;
/// API key of Fetch.
pub const FETCH: i16 = 1;

/// Bytes of a frame's length.
pub const LENGTH_BYTES: usize = 4;

/// The first version with request header 2 for each API key, counted from key 0; `NEVER` for
/// APIs that are flexible in no version, `GONE` for those that Kafka 4 no longer has.
#[rustfmt::skip]
const FIRST_FLEXIBLE: [i16; 93] = [
    //  0 Produce .. 9 OffsetFetch
    9, 12, 6, 9, GONE, GONE, GONE, GONE, 8, 6,
    // 10 FindCoordinator .. 19 CreateTopics
    3, 6, 4, 4, 4, 5, 3, NEVER, 3, 5,
    // 20 DeleteTopics .. 29 DescribeAcls
    4, 2, 2, 4, 3, 3, 3, 1, 3, 2,
    // 30 CreateAcls .. 39 RenewDelegationToken
    2, 2, 4, 2, 2, 2, 2, 2, 2, 2,
    // 40 ExpireDelegationToken .. 49 AlterClientQuotas
    2, 2, 2, 2, 1, 0, 0, NEVER, 1, 1,
    // 50 DescribeUserScramCredentials .. 59 FetchSnapshot
    0, 0, 0, 1, 1, 0, 0, 0, 0, 0,
    // 60 DescribeCluster .. 92 DeleteShareGroupOffsets
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0,
];
const NEVER: i16 = i16::MAX;
const GONE: i16 = -1;

/// What the first bytes waiting on a connection are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Front {
    /// A whole frame; the range is its content, without the length.
    Whole(Range<usize>),
    /// The beginning of one; so many bytes are missing, or at least.
    Partial {
        /// At least 1.
        missing: usize,
    },
    /// A length that is negative or above the limit.
    Refused,
}

/// Looks at the first bytes of `input`.
pub fn front(input: &[u8], max_request_bytes: usize) -> Front {
    let Some(length) = input.first_chunk::<LENGTH_BYTES>() else {
        return Front::Partial {
            missing: LENGTH_BYTES - input.len(),
        };
    };
    let length = match usize::try_from(i32::from_be_bytes(*length)) {
        Ok(length) if length <= max_request_bytes => length,
        _ => return Front::Refused,
    };
    let received = input.len() - LENGTH_BYTES;
    if received < length {
        Front::Partial {
            missing: length - received,
        }
    } else {
        Front::Whole(LENGTH_BYTES..LENGTH_BYTES + length)
    }
}

/// The header of a request; ranges are positions in the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    /// Not checked to be UTF-8.
    pub client_id: Option<Range<usize>>,
    /// Where the request itself begins.
    pub body: usize,
}

impl RequestHeader {
    /// Reads the header at the start of a frame's content.
    ///
    /// # Errors
    /// An API key that does not exist, a negative version, or bytes that end too soon.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        let api_key = reader.i16()?;
        let first_flexible = usize::try_from(api_key)
            .ok()
            .and_then(|key| FIRST_FLEXIBLE.get(key).copied())
            .filter(|first| *first != GONE)
            .ok_or(Malformed {
                at: 0,
                reason: "there is no such API key",
            })?;
        let api_version = reader.i16()?;
        if api_version < 0 {
            return Err(Malformed {
                at: 2,
                reason: "the version is negative",
            });
        }
        let correlation_id = reader.i32()?;
        let client_id = reader.nullable_string(false)?;
        reader.skip_tags(api_version >= first_flexible)?;
        Ok(Self {
            api_key,
            api_version,
            correlation_id,
            client_id,
            body: reader.at(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Put;

    fn header(api_key: i16, api_version: i16, tail: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_i16(api_key);
        bytes.put_i16(api_version);
        bytes.put_i32(42);
        bytes.put_nullable_string(Some(b"me"), false);
        bytes.extend_from_slice(tail);
        bytes
    }

    #[test]
    fn a_frame_is_whole_when_its_last_byte_is_there() {
        assert_eq!(front(&[0, 0], 10), Front::Partial { missing: 2 });
        assert_eq!(front(&[0, 0, 0, 3, 1], 10), Front::Partial { missing: 2 });
        assert_eq!(front(&[0, 0, 0, 3, 1, 2, 3, 9, 9], 10), Front::Whole(4..7));
    }

    #[test]
    fn a_length_that_is_negative_or_above_the_limit_is_refused_before_its_bytes_arrive() {
        assert_eq!(front(&[0xff, 0xff, 0xff, 0xff], 10), Front::Refused);
        assert_eq!(front(&[0x7f, 0xff, 0xff, 0xff], 10), Front::Refused);
        assert_eq!(front(&[0, 0, 0, 11], 10), Front::Refused);
        assert_eq!(front(&[0, 0, 0, 10], 10), Front::Partial { missing: 10 });
    }

    #[test]
    fn a_flexible_version_has_tagged_fields_after_a_client_id_that_is_not_compact() {
        let parsed = RequestHeader::parse(&header(3, 12, &[0, 7, 7])).unwrap();
        assert_eq!(parsed.body, 13);
        assert_eq!(parsed.client_id, Some(10..12));
        let parsed = RequestHeader::parse(&header(3, 8, &[7, 7])).unwrap();
        assert_eq!(parsed.body, 12);
    }

    #[test]
    fn api_versions_of_a_version_yet_unknown_has_a_flexible_header() {
        assert_eq!(
            RequestHeader::parse(&header(18, 5, &[0, 1])).unwrap().body,
            13
        );
    }

    #[test]
    fn sasl_handshake_and_offset_delete_are_never_flexible() {
        assert_eq!(RequestHeader::parse(&header(17, 1, &[1])).unwrap().body, 12);
        assert_eq!(RequestHeader::parse(&header(47, 0, &[1])).unwrap().body, 12);
    }

    #[test]
    fn an_api_key_that_does_not_exist_is_malformed() {
        for api_key in [-1, 4, 7, 93, i16::MAX] {
            assert!(RequestHeader::parse(&header(api_key, 0, &[0])).is_err());
        }
        assert!(RequestHeader::parse(&header(92, 0, &[0])).is_ok());
    }

    #[test]
    fn a_header_cut_anywhere_is_malformed() {
        let whole = header(0, 9, &[0]);
        for end in 0..whole.len() {
            assert!(RequestHeader::parse(&whole[..end]).is_err(), "cut at {end}");
        }
    }
}
