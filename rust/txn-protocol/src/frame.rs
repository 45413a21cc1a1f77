//! Frames, and the headers of requests and responses.
//!
//! A frame is a big-endian `i32` length and that many bytes. A request's bytes are: API key
//! `i16`, version `i16`, correlation id `i32`, client id (nullable string, never compact),
//! then, in header version 2, tagged fields. The header's version is not on the wire: it follows
//! from the first flexible version of the API. A response begins with the correlation id and, in
//! header version 1, tagged fields; a response of `ApiVersions` never has header version 1.
//!
//! Sources: Kafka's protocol guide; KIP-482 (flexible versions); KIP-511 (`ApiVersions`).

use std::ops::Range;

use crate::apis::{API_VERSIONS, api, is_flexible};
use crate::encoder::Put;
use crate::reader::{Malformed, Reader};

/// Bytes of a frame's length.
pub const LENGTH_BYTES: usize = 4;

/// The state of the first bytes waiting on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Front {
    /// A whole frame; the range is its content, without the length.
    Whole(Range<usize>),
    /// The beginning of a frame.
    Partial {
        /// Bytes that are missing at least; 1 or more.
        missing: usize,
    },
    /// A length that is negative or above the limit.
    Refused,
}

/// Classifies the first bytes of `input`.
#[inline]
#[must_use]
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
    /// API key of an existing API.
    pub api_key: i16,
    /// Version; 0 or more.
    pub api_version: i16,
    /// Number that the response carries too.
    pub correlation_id: i32,
    /// Range of the client id; its bytes may not be UTF-8.
    pub client_id: Option<Range<usize>>,
    /// Position of the body.
    pub body: usize,
}

impl RequestHeader {
    /// Reads the header at the start of a frame's content.
    ///
    /// # Errors
    /// An API key that does not exist, a negative version, or bytes that end too soon.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        let api_key = reader.i16()?;
        let api = api(api_key).ok_or(Malformed {
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
        reader.skip_tags(api.is_flexible(api_version))?;
        Ok(Self {
            api_key,
            api_version,
            correlation_id,
            client_id,
            body: reader.at(),
        })
    }
}

/// Begins a request's frame: room for its length, then its header.
///
/// # Panics
/// An API key that does not exist.
pub fn begin_request(
    out: &mut Vec<u8>,
    api_key: i16,
    api_version: i16,
    correlation_id: i32,
    client_id: &str,
) {
    let api = api(api_key).expect("the caller names an existing API");
    out.put_i32(0);
    out.put_i16(api_key);
    out.put_i16(api_version);
    out.put_i32(correlation_id);
    out.put_nullable_string(Some(client_id.as_bytes()), false);
    out.put_no_tags(api.is_flexible(api_version));
}

/// Begins a response's frame: room for its length, the correlation id, and the header's tags.
pub fn begin_response(out: &mut Vec<u8>, correlation_id: i32, is_flexible: bool) {
    out.put_i32(0);
    out.put_i32(correlation_id);
    out.put_no_tags(is_flexible);
}

/// Reads a response's header at the start of a frame's content; returns the correlation id.
///
/// # Errors
/// Bytes that end too soon.
pub fn read_response_header(
    reader: &mut Reader<'_>,
    api_key: i16,
    api_version: i16,
) -> Result<i32, Malformed> {
    let correlation_id = reader.i32()?;
    reader.skip_tags(is_flexible(api_key, api_version) && api_key != API_VERSIONS)?;
    Ok(correlation_id)
}

/// Writes a frame's length over the room left at its beginning.
#[inline]
pub fn set_length(frame: &mut [u8], length: usize) {
    frame[..LENGTH_BYTES].copy_from_slice(&(length as i32).to_be_bytes());
}

/// Writes the correlation id of a request's frame.
#[inline]
pub fn set_request_correlation_id(frame: &mut [u8], correlation_id: i32) {
    frame[8..12].copy_from_slice(&correlation_id.to_be_bytes());
}

/// Writes the correlation id of a response's frame.
#[inline]
pub fn set_correlation_id(frame: &mut [u8], correlation_id: i32) {
    frame[4..8].copy_from_slice(&correlation_id.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let last = crate::apis::apis().last().unwrap().key;
        for api_key in [-1, 4, 7, last + 1, i16::MAX] {
            assert!(RequestHeader::parse(&header(api_key, 0, &[0])).is_err());
        }
        assert!(RequestHeader::parse(&header(last, 0, &[0])).is_ok());
    }

    #[test]
    fn a_header_cut_anywhere_is_malformed() {
        let whole = header(0, 9, &[0]);
        for end in 0..whole.len() {
            assert!(RequestHeader::parse(&whole[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_request_begins_with_a_header_of_its_version() {
        let golden = |api_key, api_version| {
            let mut frame = Vec::new();
            begin_request(&mut frame, api_key, api_version, 9, "txn");
            frame
        };
        let v1 = [0, 0, 0, 0, 0, 18, 0, 0, 0, 0, 0, 9, 0, 3, b't', b'x', b'n'];
        assert_eq!(golden(18, 0), v1);
        let v2 = [
            0, 0, 0, 0, 0, 26, 0, 5, 0, 0, 0, 9, 0, 3, b't', b'x', b'n', 0,
        ];
        assert_eq!(golden(26, 5), v2);
        let mut frame = golden(26, 5);
        set_request_correlation_id(&mut frame, 10);
        let parsed = RequestHeader::parse(&frame[4..]).unwrap();
        assert_eq!((parsed.api_key, parsed.api_version), (26, 5));
        assert_eq!((parsed.correlation_id, parsed.body), (10, 14));
    }

    #[test]
    fn a_response_begins_with_its_correlation_id_and_a_length_set_later() {
        let mut frame = Vec::new();
        begin_response(&mut frame, 1, true);
        set_length(&mut frame, 5);
        set_correlation_id(&mut frame, 7);
        assert_eq!(frame, [0, 0, 0, 5, 0, 0, 0, 7, 0]);
        let mut reader = Reader::new(&frame[4..]);
        assert_eq!(read_response_header(&mut reader, 26, 5), Ok(7));
        assert_eq!(reader.left(), 0);
    }

    #[test]
    fn a_response_of_api_versions_has_no_tagged_fields_in_its_header() {
        let mut reader = Reader::new(&[0, 0, 0, 7, 1, 2]);
        assert_eq!(read_response_header(&mut reader, 18, 3), Ok(7));
        assert_eq!(reader.at(), 4);
    }
}
