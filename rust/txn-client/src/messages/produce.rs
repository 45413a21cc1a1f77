//! `Produce` v9–12, at most one batch per partition, acks = all.

use txn_protocol::{Malformed, Put, Reader};

use super::read_partitions;

/// One batch and where it goes.
#[derive(Clone, Copy, Debug)]
pub struct PartitionBatch<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// Partition.
    pub partition: i32,
    /// One record batch.
    pub batch: &'a [u8],
}

/// The result of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionResponse {
    /// Topic name.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// 0: stored.
    pub error_code: i16,
    /// Offset of the batch's first record; -1 if it was not stored, or is not remembered.
    pub base_offset: i64,
    /// When the node appended it, in ms; -1 unless the topic has `LogAppendTime`.
    pub append_time_ms: i64,
    /// The node's message, with the first record it names.
    pub message: Option<String>,
}

/// Writes everything but the batches, as the pieces that go around them: `pieces[i]`, then `parts[i].batch`,
/// and `pieces[parts.len()]` at the end. So a batch is never copied on its way to the socket.
///
/// `head` is the start of the frame (size and header); the size is filled in by the sender. Parts
/// of one topic must follow each other: each run becomes one topic of the request.
#[must_use]
pub fn encode(
    head: Vec<u8>,
    transactional_id: Option<&str>,
    timeout_ms: i32,
    parts: &[PartitionBatch<'_>],
) -> Vec<Vec<u8>> {
    let mut pieces = Vec::with_capacity(parts.len() + 1);
    let mut e = head;
    e.put_compact_nullable_string(transactional_id);
    e.put_i16(-1); // acks: all
    e.put_i32(timeout_ms);
    e.put_compact_length(parts.chunk_by(|a, b| a.topic == b.topic).count());
    for of_topic in parts.chunk_by(|a, b| a.topic == b.topic) {
        e.put_compact_string(of_topic[0].topic);
        e.put_compact_length(of_topic.len());
        for part in of_topic {
            e.put_i32(part.partition);
            e.put_compact_length(part.batch.len());
            pieces.push(std::mem::take(&mut e));
            e.put_no_tags(true);
        }
        e.put_no_tags(true);
    }
    e.put_no_tags(true);
    pieces.push(e);
    pieces
}

/// Reads an answer.
pub fn decode(r: &mut Reader<'_>) -> Result<Vec<PartitionResponse>, Malformed> {
    let responses = read_partitions(r, |r, topic| {
        let (partition, error_code) = (r.i32()?, r.i16()?);
        let (base_offset, append_time_ms) = (r.i64()?, r.i64()?);
        r.i64()?; // log start offset
        let records = r.compact_array(|r| {
            let (index, text) = (r.i32()?, r.compact_nullable_string()?);
            r.skip_tags(true)?;
            Ok(format!("record {index}: {}", text.unwrap_or("refused")))
        })?;
        let message = r.compact_nullable_string()?.map(ToOwned::to_owned);
        r.skip_tags(true)?;
        let message = records.into_iter().next().or(message);
        Ok(PartitionResponse {
            topic: topic.to_owned(),
            partition,
            error_code,
            base_offset,
            append_time_ms,
            message,
        })
    })?;
    r.i32()?; // throttle time
    r.skip_tags(true)?;
    Ok(responses)
}
