//! The bytes of requests and of answers, in the Kafka protocol.

use txn_log::builder::BatchBuilder;
use txn_protocol::batch::Codec;

use crate::running::TOPIC;

/// Bytes in Kafka's fixed-size encodings.
#[derive(Clone, Default)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    pub fn i8(mut self, value: i8) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn i16(mut self, value: i16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn i64(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn text(self, text: &str) -> Self {
        self.i16(text.len() as i16).raw(text.as_bytes())
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub fn frame(self) -> Vec<u8> {
        [&(self.0.len() as i32).to_be_bytes()[..], &self.0].concat()
    }
}

pub fn header(api_key: i16, api_version: i16, correlation_id: i32) -> Bytes {
    Bytes::default()
        .i16(api_key)
        .i16(api_version)
        .i32(correlation_id)
        .text("me")
}

/// Metadata 0, which is for Python to answer.
pub fn control(correlation_id: i32) -> Vec<u8> {
    header(3, 0, correlation_id).i32(0).frame()
}

pub fn produce_to(
    topic: &str,
    transactional_id: Option<&str>,
    acks: i16,
    parts: &[(i32, &[u8])],
) -> Vec<u8> {
    let start = header(0, 8, 1);
    let start = match transactional_id {
        Some(id) => start.text(id),
        None => start.i16(-1),
    };
    let start = start
        .i16(acks)
        .i32(1000)
        .i32(1)
        .text(topic)
        .i32(parts.len() as i32);
    let append =
        |bytes: Bytes, part: &(i32, &[u8])| bytes.i32(part.0).i32(part.1.len() as i32).raw(part.1);
    parts.iter().fold(start, append).frame()
}

pub fn produce(acks: i16, records: &[u8]) -> Vec<u8> {
    produce_to(TOPIC, None, acks, &[(0, records)])
}

/// Error code and base offset of each partition of a Produce 8 answer of one topic without messages.
pub fn produced(answer: &[u8]) -> Vec<(i16, i64)> {
    let mut rest = &answer[8..];
    let name = rest.i16();
    rest = &rest[name as usize..];
    let partitions = rest.i32();
    (0..partitions)
        .map(|_| {
            rest.i32();
            let outcome = (rest.i16(), rest.i64());
            assert_eq!((rest.i64(), rest.i64() >= -1, rest.i32()), (-1, true, 0));
            let message = rest.i16().max(0);
            rest = &rest[message as usize..];
            outcome
        })
        .collect()
}

pub trait Take {
    fn i16(&mut self) -> i16;
    fn i32(&mut self) -> i32;
    fn i64(&mut self) -> i64;
}

impl Take for &[u8] {
    fn i16(&mut self) -> i16 {
        i16::from_be_bytes(fixed(self))
    }

    fn i32(&mut self) -> i32 {
        i32::from_be_bytes(fixed(self))
    }

    fn i64(&mut self) -> i64 {
        i64::from_be_bytes(fixed(self))
    }
}

fn fixed<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (front, rest) = bytes.split_first_chunk().unwrap();
    *bytes = rest;
    *front
}

pub struct Wanted {
    pub start: i64,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub isolation: i8,
    pub leader_epoch: i32,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            start: 0,
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: 10 << 20,
            isolation: 0,
            leader_epoch: -1,
        }
    }
}

/// Fetch 9 of partition 0.
pub fn fetch(wanted: &Wanted) -> Vec<u8> {
    let start = header(1, 9, 2)
        .i32(-1)
        .i32(wanted.max_wait_ms)
        .i32(wanted.min_bytes);
    let start = start
        .i32(wanted.max_bytes)
        .i8(wanted.isolation)
        .i32(0)
        .i32(-1);
    let start = start
        .i32(1)
        .text(TOPIC)
        .i32(1)
        .i32(0)
        .i32(wanted.leader_epoch);
    start
        .i64(wanted.start)
        .i64(-1)
        .i32(wanted.max_bytes)
        .i32(0)
        .frame()
}

/// The answer of Fetch 9 for one partition.
#[derive(Debug, PartialEq, Eq)]
pub struct Fetched {
    pub code: i16,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub aborted: Option<Vec<(i64, i64)>>,
    pub records: Vec<u8>,
}

pub fn fetched(answer: &[u8]) -> Fetched {
    let mut rest = &answer[4..];
    assert_eq!(
        (rest.i32(), rest.i16(), rest.i32(), rest.i32()),
        (0, 0, 0, 1)
    );
    let name = rest.i16();
    rest = &rest[name as usize..];
    assert_eq!((rest.i32(), rest.i32()), (1, 0));
    let (code, high_watermark, last_stable_offset) = (rest.i16(), rest.i64(), rest.i64());
    rest.i64();
    let aborted = match rest.i32() {
        -1 => None,
        count => Some((0..count).map(|_| (rest.i64(), rest.i64())).collect()),
    };
    let length = rest.i32();
    assert_eq!(rest.len(), length as usize);
    Fetched {
        code,
        high_watermark,
        last_stable_offset,
        aborted,
        records: rest.to_vec(),
    }
}

pub fn batch_of(producer_id: i64, is_transactional: bool, value: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None);
    if producer_id >= 0 {
        (
            builder.producer_id,
            builder.producer_epoch,
            builder.base_sequence,
        ) = (producer_id, 0, 0);
    }
    builder.is_transactional = is_transactional;
    builder.push(1_700_000_000_000, None, Some(value), &[]);
    builder.seal().unwrap()
}

pub fn batch(value: &[u8]) -> Vec<u8> {
    batch_of(-1, false, value)
}

/// The batch as it is stored: offset and leader epoch stamped.
pub fn stored(batch: &[u8], base_offset: i64) -> Vec<u8> {
    let mut bytes = batch.to_vec();
    bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
    bytes[12..16].copy_from_slice(&0_i32.to_be_bytes());
    bytes
}
