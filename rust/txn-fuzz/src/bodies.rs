//! Requests that Rust reads: the header, Produce, Fetch, and the shape of every other body.
//!
//! ```text
//!  0       1                             2 …
//!  kind  · version, or number of steps · frame · or steps of two bytes each, then a body
//! ```
//! The steps of a shape are Python's, made from Kafka's schemas. A target that reads them from its input has them
//! all, and all others.

use txn_net::fuzzing::answer;
use txn_protocol::apis::{FETCH, PRODUCE, apis};
use txn_protocol::frame::{Front, RequestHeader, front};
use txn_protocol::shape::{Shape, Step};

use crate::seeds;

/// The most items that a body may name, as brokers allow.
const ITEMS_MAX: usize = 10_000;
/// An answer has at most so many bytes for each byte of its request, beside `ANSWER_BYTES`: the sentence that
/// refuses a batch.
const ANSWER_RATIO: usize = 64;
const ANSWER_BYTES: usize = 256;

pub fn run(data: &[u8]) {
    let [kind, number, rest @ ..] = data else {
        return;
    };
    match kind % 4 {
        0 => header(rest),
        1 => body(PRODUCE, i16::from(*number), rest),
        2 => body(FETCH, i16::from(*number), rest),
        _ => shape(usize::from(*number % 32), rest, kind & 4 > 0),
    }
}

fn header(bytes: &[u8]) {
    if let Front::Whole(frame) = front(bytes, 1 << 20) {
        assert!(frame.end <= bytes.len());
        if let Ok(header) = RequestHeader::parse(&bytes[frame.clone()]) {
            assert!(header.body <= frame.len() && header.api_version >= 0);
        }
    }
}

fn body(api_key: i16, version: i16, bytes: &[u8]) {
    let mut body = bytes.to_vec();
    if let Some(size) = answer(api_key, version, &mut body) {
        assert!(
            size <= ANSWER_BYTES + ANSWER_RATIO * bytes.len(),
            "{size} bytes answer {}",
            bytes.len()
        );
    }
}

fn shape(steps: usize, bytes: &[u8], is_flexible: bool) {
    let Some((steps, body)) = bytes.split_at_checked(2 * steps) else {
        return;
    };
    let steps = steps.chunks_exact(2).map(|step| {
        let size = usize::from(step[1]);
        match step[0] % 9 {
            0 => Step::Fixed(size),
            1 => Step::String,
            2 => Step::NullableString,
            3 => Step::Bytes,
            4 => Step::NullableBytes,
            5 => Step::Array(size),
            6 => Step::NullableArray(size),
            7 => Step::Nullable(size),
            _ => Step::Tags,
        }
    });
    let Some(shape) = Shape::new(steps.collect(), is_flexible) else {
        return;
    };
    if let Ok(Some(plain)) = shape.plain(body, ITEMS_MAX) {
        // Plain is plain.
        assert!(plain.len() <= body.len() + 4 * ITEMS_MAX);
        assert_eq!(shape.plain(&plain, ITEMS_MAX), Ok(None));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let with = |head: [u8; 2], rest: &[u8]| [&head, rest].concat();
    let mut seeds = Vec::new();
    for api in apis() {
        let frame = seeds::request(api.key, api.first_flexible.min(3), &[0; 8]);
        seeds.push(with([0, 0], &frame));
    }
    let batch = seeds::batch(seeds::CODECS[0], 3, false);
    for version in 3..=13 {
        let body = seeds::produce(version, Some("id"), &batch);
        seeds.push(with([1, version as u8], &body));
    }
    for version in 4..=18 {
        seeds.push(with([2, version as u8], &seeds::fetch(version, 0)));
    }
    // A string, an array of a number and a structure that may be null, and tags.
    let steps = [2, 0, 6, 5, 0, 2, 7, 2, 0, 1, 8, 0, 8, 0, 4, 0, 8, 0];
    let flexible = [2, b'a', 3, 0, 1, 1, 7, 0, 0, 0, 2, 0xff, 0, 0, 1, 9, 1, 5];
    seeds.push(with([7, 9], &[&steps[..], &flexible].concat()));
    let legacy = [0xff, 0xff, 0, 0, 0, 1, 0, 7, 0xff, 0xff, 0xff, 0xfe];
    let steps = [2, 0, 6, 1, 0, 2, 4, 0];
    seeds.push(with([3, 4], &[&steps[..], &legacy].concat()));
    seeds
}
