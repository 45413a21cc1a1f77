//! `Fetch` v12 of one partition, without a fetch session.

use txn_protocol::{Malformed, Put, Reader};

/// What to read.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// Partition.
    pub partition: i32,
    /// First offset wanted.
    pub offset: i64,
    /// True for committed records only.
    pub read_committed: bool,
    /// Time that the node may wait for `bytes_min`.
    pub wait_ms: i32,
    /// 0: answer at once.
    pub bytes_min: i32,
    /// Largest requested answer; the first batch comes whole at any size.
    pub bytes_max: i32,
}

/// Bounds of one `Fetch`.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Time that the node may wait for `bytes_min`.
    pub wait_ms: i32,
    /// Bytes for which the node answers at once.
    pub bytes_min: i32,
    /// Largest requested answer; the first batch comes whole at any size.
    pub bytes_max: i32,
    /// True for committed records only.
    pub read_committed: bool,
}

/// The answer for a partition. Borrowed from the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response<'a> {
    /// 0, or why there are no records.
    pub error_code: i16,
    /// Exclusive end of the records that a `read_uncommitted` reader may see.
    pub high_watermark: i64,
    /// Exclusive end of the records that a `read_committed` reader may see; -1: not told.
    pub last_stable_offset: i64,
    /// First offset of the log.
    pub log_start_offset: i64,
    /// (producer id, first offset) of aborted transactions in the range.
    pub aborted: Vec<(i64, i64)>,
    /// Record batches back to back; the last may be cut.
    pub records: &'a [u8],
    /// Bytes of the answer behind `records`: their place, for a caller that keeps the answer.
    pub bytes_after: usize,
}

/// Writes a fetch.
pub fn encode(e: &mut Vec<u8>, request: &Request<'_>) {
    let bounds = Bounds {
        wait_ms: request.wait_ms,
        bytes_min: request.bytes_min,
        bytes_max: request.bytes_max,
        read_committed: request.read_committed,
    };
    let asked = (request.partition, request.offset, request.bytes_max);
    encode_topics(e, bounds, [(request.topic, [asked])].into_iter());
}

/// Writes a fetch of topics, each with (partition, first offset wanted, largest answer for it).
pub(super) fn encode_topics<'a, P>(
    e: &mut Vec<u8>,
    bounds: Bounds,
    topics: impl ExactSizeIterator<Item = (&'a str, P)>,
) where
    P: IntoIterator<Item = (i32, i64, i32), IntoIter: ExactSizeIterator>,
{
    e.put_i32(-1); // replica id: a consumer
    e.put_i32(bounds.wait_ms);
    e.put_i32(bounds.bytes_min);
    e.put_i32(bounds.bytes_max);
    e.put_bool(bounds.read_committed);
    e.put_i32(0); // session id
    e.put_i32(-1); // session epoch: no session (KIP-227)
    e.put_compact_array(topics, |e, (topic, partitions)| {
        e.put_compact_string(topic);
        e.put_compact_array(
            partitions.into_iter(),
            |e, (partition, offset, bytes_max)| {
                e.put_i32(partition);
                e.put_i32(-1); // current leader epoch: unknown
                e.put_i64(offset);
                e.put_i32(-1); // last fetched epoch
                e.put_i64(-1); // log start offset: only followers have one
                e.put_i32(bytes_max);
                e.put_no_tags(true);
            },
        );
        e.put_no_tags(true);
    });
    e.put_compact_length(0); // forgotten topics
    e.put_compact_string(""); // rack
    e.put_no_tags(true);
}

/// Reads an answer; `None` if it says nothing of the partition, as when the node throttles.
pub fn decode<'a>(r: &mut Reader<'a>, partition: i32) -> Result<Option<Response<'a>>, Malformed> {
    r.i32()?; // throttle time
    let error_code = r.i16()?;
    r.i32()?; // session id
    let mut found = None;
    r.compact_array(|r| {
        r.compact_string()?; // one topic was asked for
        r.compact_array(|r| {
            let (index, response) = decode_partition(r)?;
            if index == partition {
                found = Some(response);
            }
            Ok(())
        })?;
        r.skip_tags(true)
    })?;
    r.skip_tags(true)?;
    if error_code != 0 {
        return Ok(Some(Response {
            error_code,
            ..Response::default()
        }));
    }
    Ok(found)
}

/// Reads the answer for one partition, with its number.
pub(super) fn decode_partition<'a>(r: &mut Reader<'a>) -> Result<(i32, Response<'a>), Malformed> {
    let index = r.i32()?;
    let mut response = Response {
        error_code: r.i16()?,
        high_watermark: r.i64()?,
        last_stable_offset: r.i64()?,
        log_start_offset: r.i64()?,
        ..Response::default()
    };
    response.aborted = r.compact_array(|r| {
        let aborted = (r.i64()?, r.i64()?);
        r.skip_tags(true)?;
        Ok(aborted)
    })?;
    r.i32()?; // preferred read replica: only told to clients that name a rack
    response.records = r.compact_nullable_bytes()?.unwrap_or_default();
    response.bytes_after = r.left();
    r.skip_tags(true)?;
    Ok((index, response))
}
