//! Parts that several targets' seeds are made of: batches, requests.

use txn_log::builder::BatchBuilder;
use txn_protocol::Put;
use txn_protocol::apis;
use txn_protocol::batch::Codec;
use txn_protocol::frame::{begin_request, set_length};

/// A plausible time in ms.
pub const TIME_MS: i64 = 1_700_000_000_000;
/// The topic that servers of targets have.
pub const TOPIC: &str = "pay";
/// Its id.
pub const TOPIC_ID: [u8; 16] = [7; 16];
/// Every codec.
pub const CODECS: [Codec; 5] = [
    Codec::None,
    Codec::Gzip,
    Codec::Snappy,
    Codec::Lz4,
    Codec::Zstd,
];

/// A batch of records with and without keys, values and headers.
///
/// # Panics
/// A codec has no memory.
#[must_use]
pub fn batch(codec: Codec, records: usize, is_transactional: bool) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec);
    builder.is_transactional = is_transactional;
    if is_transactional {
        builder.producer_id = 7;
        builder.producer_epoch = 0;
        builder.base_sequence = 0;
    }
    for number in 0..records {
        let text = format!("record {number} ").repeat(1 + number % 5);
        let key = (number % 3 > 0).then_some(text.as_bytes());
        let value = (number % 4 > 0).then_some(text.as_bytes());
        let headers: [(&[u8], Option<&[u8]>); 2] = [(b"h", Some(b"1")), (b"", None)];
        let headers = &headers[..number % 3];
        builder.push(TIME_MS + number as i64, key, value, headers);
    }
    builder.seal().expect("the codecs have memory")
}

/// The body of a Produce of one batch.
#[must_use]
pub fn produce(version: i16, transactional_id: Option<&str>, batch: &[u8]) -> Vec<u8> {
    let is_flexible = apis::is_flexible(apis::PRODUCE, version);
    let mut out = Vec::new();
    out.put_nullable_string(transactional_id.map(str::as_bytes), is_flexible);
    out.put_i16(-1);
    out.put_i32(100);
    out.put_length(1, is_flexible);
    put_topic(&mut out, version >= 13, is_flexible);
    out.put_length(1, is_flexible);
    out.put_i32(0);
    out.put_length(batch.len(), is_flexible);
    out.put(batch);
    for _ in 0..3 {
        out.put_no_tags(is_flexible);
    }
    out
}

/// In place of a session id: targets open a session and put its id here.
pub const SESSION: i32 = i32::from_be_bytes(*b"SESS");

/// The body of a Fetch of one partition.
#[must_use]
pub fn fetch(version: i16, offset: i64) -> Vec<u8> {
    fetch_in((0, -1), version, Some(offset), false)
}

/// The body of a Fetch of a session, by its id and epoch, that names one partition or none, and
/// forgets it or not.
#[must_use]
pub fn fetch_in(session: (i32, i32), version: i16, offset: Option<i64>, forgets: bool) -> Vec<u8> {
    let is_flexible = apis::is_flexible(apis::FETCH, version);
    let mut out = Vec::new();
    if version < 15 {
        out.put_i32(-1);
    }
    out.put_i32(0); // it does not wait
    out.put_i32(1);
    out.put_i32(1 << 20);
    out.put_i8(1);
    if version >= 7 {
        out.put_i32(session.0);
        out.put_i32(session.1);
    }
    out.put_length(usize::from(offset.is_some()), is_flexible);
    if let Some(offset) = offset {
        put_wanted(&mut out, version, offset);
    }
    if version >= 7 {
        out.put_length(usize::from(forgets), is_flexible);
        if forgets {
            put_topic(&mut out, version >= 13, is_flexible);
            out.put_length(1, is_flexible);
            out.put_i32(0);
            out.put_no_tags(is_flexible);
        }
    }
    if version >= 11 {
        out.put_nullable_string(Some(b""), is_flexible);
    }
    out.put_no_tags(is_flexible);
    out
}

/// A topic of one partition that a Fetch reads.
fn put_wanted(out: &mut Vec<u8>, version: i16, offset: i64) {
    let is_flexible = apis::is_flexible(apis::FETCH, version);
    put_topic(out, version >= 13, is_flexible);
    out.put_length(1, is_flexible);
    out.put_i32(0);
    if version >= 9 {
        out.put_i32(-1);
    }
    out.put_i64(offset);
    if version >= 12 {
        out.put_i32(-1);
    }
    if version >= 5 {
        out.put_i64(-1);
    }
    out.put_i32(1 << 20);
    out.put_no_tags(is_flexible);
    out.put_no_tags(is_flexible);
}

fn put_topic(out: &mut Vec<u8>, by_id: bool, is_flexible: bool) {
    if by_id {
        out.put(&TOPIC_ID);
    } else {
        out.put_nullable_string(Some(TOPIC.as_bytes()), is_flexible);
    }
}

/// A whole request.
#[must_use]
pub fn request(api_key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    begin_request(&mut out, api_key, version, 9, "fuzz");
    out.put(body);
    let length = out.len() - 4;
    set_length(&mut out, length);
    out
}
