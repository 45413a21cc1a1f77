//! The answer to a Produce request.
//!
//! # Invariant
//! It names topics and partitions in the request's order, each once.

use txn_protocol::Put;
use txn_protocol::codes;
use txn_protocol::frame::{begin_response, set_length};

use super::request::{AppendResult, ProduceRequest};
use super::version::{is_flexible, topic_key};
use crate::catalog::TopicKey;
use crate::delayed_produce::AppendedBatch;

/// The most bytes of a topic's name.
const TOPIC_NAME_MAX: usize = 249;

impl ProduceRequest {
    /// The version of the request.
    pub fn version(&self) -> i16 {
        self.version
    }

    /// The error code of the first partition that refused its batch, and the partition in words.
    ///
    /// A sender chooses the name of a topic: as many bytes of it are shown as a topic's name has.
    pub fn first_failure(&self, body: &[u8]) -> Option<(i16, String)> {
        let mut partitions = self.partitions.iter();
        let mut first = None;
        let mut failures = 0;
        for topic in &self.topics {
            for partition in partitions.by_ref().take(topic.partitions) {
                if let AppendResult::Failed(failure) = &partition.result {
                    failures += 1;
                    first = first.or(Some((topic, partition.index, failure.code)));
                }
            }
        }
        let (topic, index, code) = first?;
        let mut reason = match topic_key(self.version, &body[topic.key.clone()]) {
            TopicKey::Name(name) => {
                let shown = &name[..name.len().min(TOPIC_NAME_MAX)];
                format!("{}-{index}", String::from_utf8_lossy(shown))
            }
            TopicKey::Id(_) => format!("partition {index} of a topic by its id"),
        };
        if failures > 1 {
            reason = format!("{reason} and {} others", failures - 1);
        }
        Some((code, reason))
    }

    /// Writes the answer as a whole frame, and lists the batches it may have to wait for. These are
    /// the batches to be synced, and with `acks=all` those above the high watermark.
    ///
    /// # Args
    /// - `body`: the parsed bytes.
    /// - `throttle_ms`: the time that its client is muted for.
    /// - `out`: empty.
    pub fn encode(
        &mut self,
        body: &[u8],
        correlation_id: i32,
        throttle_ms: i32,
        out: &mut Vec<u8>,
    ) -> Vec<AppendedBatch> {
        let is_flexible = is_flexible(self.version);
        let mut batches = Vec::new();
        begin_response(out, correlation_id, is_flexible);
        out.put_length(self.topics.len(), is_flexible);
        let mut partitions = self.partitions.iter_mut();
        for topic in &self.topics {
            match topic_key(self.version, &body[topic.key.clone()]) {
                TopicKey::Name(name) => out.put_nullable_string(Some(name), is_flexible),
                TopicKey::Id(id) => out.put(id),
            }
            out.put_length(topic.partitions, is_flexible);
            for partition in partitions.by_ref().take(topic.partitions) {
                out.put_i32(partition.index);
                if let Some(batch) = partition.result.take_batch() {
                    let code_at = out.len();
                    batches.push(AppendedBatch { code_at, ..batch });
                }
                partition.result.encode(self.version, out);
            }
            out.put_no_tags(is_flexible);
        }
        out.put_i32(throttle_ms);
        out.put_no_tags(is_flexible);
        let length = out.len() - 4;
        set_length(out, length);
        batches
    }
}

impl AppendResult {
    fn encode(&self, version: i16, out: &mut Vec<u8>) {
        let is_flexible = is_flexible(version);
        let (code, base_offset, log_append_time, log_start_offset, failure) = match self {
            Self::Stored { appended, .. } => (
                codes::NONE,
                appended.base_offset,
                appended.log_append_time,
                appended.log_start_offset,
                None,
            ),
            Self::Failed(failure) => (
                failure.code,
                -1,
                -1,
                failure.log_start_offset,
                Some(failure),
            ),
            Self::Pending => unreachable!("an answer is written when nothing is pending"),
        };
        out.put_i16(code);
        out.put_i64(base_offset);
        out.put_i64(log_append_time);
        if version >= 5 {
            out.put_i64(log_start_offset);
        }
        if version >= 8 {
            let records = failure.map_or(&[][..], |failure| &failure.records);
            out.put_length(records.len(), is_flexible);
            for record in records {
                out.put_i32(record.index);
                out.put_nullable_string(Some(record.message.as_bytes()), is_flexible);
                out.put_no_tags(is_flexible);
            }
            let message = failure.and_then(|failure| failure.message.as_deref());
            out.put_nullable_string(message.map(str::as_bytes), is_flexible);
        }
        // KIP-951's CurrentLeader is never there. One node answers NOT_LEADER_OR_FOLLOWER only for a
        // partition that is being deleted or stopped, and such a partition has no leader to name.
        out.put_no_tags(is_flexible);
    }
}
