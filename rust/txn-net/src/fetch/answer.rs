//! The bytes of an answer to Fetch, around the records.

use std::time::Instant;

use txn_protocol::Put;
use txn_protocol::codes;
use txn_protocol::frame::{LENGTH_BYTES, begin_response, set_length};

use super::records::{FetchBudget, FetchRecords, FetchedPartition, led_epoch, names_leader};
use super::sent::{SentOffsets, SentPartition};
use super::session::SessionPart;
use super::wanted::{OwnedKey, is_flexible};
use super::{FetchRequest, SessionUse};
use crate::catalog::TopicKey;
use crate::chunk::Chunk;
use crate::node::NodeEndpoint;

/// Tags of fields of a partition.
const DIVERGING_EPOCH_TAG: u8 = 0;
const CURRENT_LEADER_TAG: u8 = 1;
/// Tag of a field of the answer.
const NODE_ENDPOINTS_TAG: u8 = 0;
/// The first version that tells of leaders (KIP-951).
const LEADERS_SINCE: i16 = 16;

/// Position of the session id in a frame, behind correlation id, throttle time and error code; a
/// flexible header has one byte more.
const SESSION_ID_AT: usize = LENGTH_BYTES + 4 + 4 + 2;

/// An answer that is not sent yet.
pub struct FetchAnswer {
    /// A whole frame.
    pub chunks: Vec<Chunk>,
    /// Bytes of batches in it.
    pub record_bytes: u64,
    /// The partitions of a session that it names, with their offsets; empty without a session.
    sent: Vec<SentPartition>,
}

impl FetchRequest {
    /// An answer without a topic, for a client that is muted; a whole frame. Its session stays as it
    /// is, and the next answer tells what this one would have told.
    pub fn throttled(&self, throttle_ms: i32) -> Chunk {
        let (code, session_id) = match &self.session {
            SessionUse::None | SessionUse::Opens(..) => (codes::NONE, 0),
            SessionUse::Refused(code) => (*code, 0),
            SessionUse::Follows(session, epoch) => (session.check_epoch(*epoch), session.id),
        };
        let mut answer = self.begin_answer(throttle_ms, code, session_id);
        answer.put_length(0, is_flexible(self.version));
        answer.put_no_tags(is_flexible(self.version));
        answer.finish().swap_remove(0)
    }

    fn begin_answer(&self, throttle_ms: i32, code: i16, session_id: i32) -> FetchResponse {
        let mut answer = FetchResponse::default();
        begin_response(
            &mut answer.out,
            self.correlation_id,
            is_flexible(self.version),
        );
        answer.put_i32(throttle_ms);
        if self.version >= 7 {
            answer.put_i16(code);
            answer.put_i32(session_id);
        }
        answer
    }

    /// Locates the records and writes the answer. [`Self::settle`] ends it if it is to be sent.
    ///
    /// Partitions are served in the order of the request, or of the session, until `max_bytes` is reached; the
    /// first that has records gets at least one whole batch. Without `may_copy` small records are sent from
    /// their files, too: until the client takes the answer, it holds little memory.
    /// A client with an old leader is told that `node` leads, if that is given.
    pub fn answer(&self, may_copy: bool, node: Option<&NodeEndpoint>) -> FetchAnswer {
        let is_flexible = is_flexible(self.version);
        let mut budget = FetchBudget::new(self.max_bytes, may_copy);
        let mut sent = Vec::new();
        let node = node.filter(|_| self.version >= LEADERS_SINCE);
        let mut answer = match &self.session {
            SessionUse::None | SessionUse::Opens(..) => {
                let mut answer = self.begin_answer(0, codes::NONE, 0);
                answer.leader_id = node.map(|node| node.id);
                self.put_topics(&mut answer, &mut budget, &mut sent);
                answer
            }
            SessionUse::Refused(code) => {
                let mut answer = self.begin_answer(0, *code, 0);
                answer.put_length(0, is_flexible);
                answer
            }
            SessionUse::Follows(session, epoch) => {
                let parts = session.locate(*epoch, &self.reading, &mut budget);
                let code = parts.as_ref().err().copied().unwrap_or(codes::NONE);
                let parts = parts.unwrap_or_default();
                let told = |part: &SessionPart| SentPartition::new(part.slot, &part.result);
                sent = parts.iter().map(told).collect();
                let mut answer = self.begin_answer(0, code, session.id);
                answer.leader_id = node.map(|node| node.id);
                self.put_parts(&mut answer, parts);
                answer
            }
        };
        match node.filter(|_| answer.names_leader) {
            Some(node) => node.put(&mut answer),
            None => answer.put_no_tags(is_flexible),
        }
        FetchAnswer {
            record_bytes: answer.record_bytes,
            chunks: answer.finish(),
            sent,
        }
    }

    /// Ends an answer that is about to be sent: its session is opened, or takes note of it.
    pub fn settle(&self, answer: &mut FetchAnswer, now: Instant) {
        match &self.session {
            SessionUse::None | SessionUse::Refused(_) => {}
            SessionUse::Follows(session, epoch) => session.note_sent(*epoch, &answer.sent),
            SessionUse::Opens(sessions, owner) => {
                let opened = sessions.open(owner, &self.parts(), &answer.sent, now);
                if let Some(Chunk::Bytes { data, .. }) = answer.chunks.first_mut() {
                    let at = SESSION_ID_AT + usize::from(is_flexible(self.version));
                    data[at..at + 4].copy_from_slice(&opened.to_be_bytes());
                }
            }
        }
    }

    fn put_topics(
        &self,
        answer: &mut FetchResponse,
        budget: &mut FetchBudget,
        sent: &mut Vec<SentPartition>,
    ) {
        let is_flexible = is_flexible(self.version);
        let is_opening = matches!(self.session, SessionUse::Opens(..));
        let named = self.topics.iter().filter(|topic| topic.partitions > 0);
        answer.put_length(named.clone().count(), is_flexible);
        let mut partitions = self.partitions.iter();
        for topic in named {
            self.put_key(answer, &topic.key);
            answer.put_length(topic.partitions, is_flexible);
            for wanted in partitions.by_ref().take(topic.partitions) {
                let found = self
                    .readable(topic, wanted)
                    .and_then(|readable| readable.found(wanted.max_bytes, budget));
                if is_opening {
                    sent.push(SentPartition::new(sent.len() as u32, &found));
                }
                let leader_epoch = || led_epoch(topic.topic.as_ref()?, wanted.index);
                self.put_partition(answer, wanted.index, found, leader_epoch);
            }
            answer.put_no_tags(is_flexible);
        }
    }

    fn put_parts(&self, answer: &mut FetchResponse, parts: Vec<SessionPart>) {
        let is_flexible = is_flexible(self.version);
        let topics = parts.chunk_by(|_, next| next.key.is_none());
        let counts: Vec<usize> = topics.map(<[SessionPart]>::len).collect();
        answer.put_length(counts.len(), is_flexible);
        let mut parts = parts.into_iter();
        for count in counts {
            for (place, part) in parts.by_ref().take(count).enumerate() {
                if let Some(key) = part.key.filter(|_| place == 0) {
                    self.put_key(answer, &key);
                    answer.put_length(count, is_flexible);
                }
                self.put_partition(answer, part.index, part.result, || part.leader_epoch);
            }
            answer.put_no_tags(is_flexible);
        }
    }

    fn put_key(&self, answer: &mut FetchResponse, key: &OwnedKey) {
        match key.borrow() {
            TopicKey::Name(name) => {
                answer.put_nullable_string(Some(name), is_flexible(self.version));
            }
            TopicKey::Id(id) => answer.put(id),
        }
    }

    fn put_partition(
        &self,
        answer: &mut FetchResponse,
        index: i32,
        result: Result<FetchedPartition, i16>,
        leader_epoch: impl FnOnce() -> Option<i32>,
    ) {
        answer.put_i32(index);
        let code = match result {
            Ok(found) => return self.put_found(answer, found),
            Err(code) => code,
        };
        self.put_error(answer, code);
        let led = if names_leader(code) {
            answer.leader_id.zip(leader_epoch())
        } else {
            None
        };
        match led {
            Some((leader_id, leader_epoch)) => {
                answer.names_leader = true;
                answer.put(&[1, CURRENT_LEADER_TAG, 9]); // one field of 9 bytes
                answer.put_i32(leader_id);
                answer.put_i32(leader_epoch);
                answer.put_no_tags(true);
            }
            None => answer.put_no_tags(is_flexible(self.version)),
        }
    }

    fn put_found(&self, answer: &mut FetchResponse, found: FetchedPartition) {
        self.put_offsets(answer, codes::NONE, SentOffsets::from(&found.state));
        let is_flexible = is_flexible(self.version);
        if let Some(aborted) = found.aborted {
            answer.put_length(aborted.len(), is_flexible);
            for (producer_id, first_offset) in aborted {
                answer.put_i64(producer_id);
                answer.put_i64(first_offset);
                answer.put_no_tags(is_flexible);
            }
        } else {
            self.put_null_array(answer);
        }
        self.put_preferred_replica(answer);
        answer.put_length(found.records.len(), is_flexible);
        answer.put_records(found.records);
        match found.diverging {
            Some((epoch, end_offset)) if is_flexible => {
                answer.put(&[1, DIVERGING_EPOCH_TAG, 13]); // one field of 13 bytes
                answer.put_i32(epoch);
                answer.put_i64(end_offset);
                answer.put_no_tags(true);
            }
            _ => answer.put_no_tags(is_flexible),
        }
    }

    pub(super) fn put_error(&self, answer: &mut FetchResponse, code: i16) {
        let code = if code == codes::KAFKA_STORAGE_ERROR && self.version <= 5 {
            codes::NOT_LEADER_OR_FOLLOWER // those versions do not know the other (KIP-112)
        } else {
            code
        };
        self.put_offsets(answer, code, SentOffsets::NONE);
        match code {
            codes::UNKNOWN_TOPIC_OR_PARTITION
            | codes::UNKNOWN_TOPIC_ID
            | codes::TOPIC_AUTHORIZATION_FAILED => {
                answer.put_length(0, is_flexible(self.version));
            }
            _ => self.put_null_array(answer),
        }
        self.put_preferred_replica(answer);
        answer.put_length(0, is_flexible(self.version));
    }

    fn put_offsets(&self, answer: &mut FetchResponse, code: i16, offsets: SentOffsets) {
        answer.put_i16(code);
        answer.put_i64(offsets.high_watermark);
        answer.put_i64(offsets.last_stable_offset);
        if self.version >= 5 {
            answer.put_i64(offsets.log_start_offset);
        }
    }

    fn put_null_array(&self, answer: &mut FetchResponse) {
        if is_flexible(self.version) {
            answer.put_uvarint(0);
        } else {
            answer.put_i32(-1);
        }
    }

    fn put_preferred_replica(&self, answer: &mut FetchResponse) {
        if self.version >= 11 {
            answer.put_i32(-1);
        }
    }
}

impl NodeEndpoint {
    /// Writes the tagged fields of an answer that names it.
    fn put(&self, answer: &mut FetchResponse) {
        let mut field = Vec::new();
        field.put_length(1, true);
        field.put_i32(self.id);
        field.put_nullable_string(Some(self.host.as_bytes()), true);
        field.put_i32(i32::from(self.port));
        field.put_nullable_string(None, true); // rack
        field.put_no_tags(true);
        answer.put(&[1, NODE_ENDPOINTS_TAG]);
        answer.put_uvarint(field.len() as u32);
        answer.put(&field);
    }
}

/// An answer being written: bytes up to here, and the chunks before them.
#[derive(Default)]
pub(super) struct FetchResponse {
    pub out: Vec<u8>,
    chunks: Vec<Chunk>,
    /// Bytes of batches in it.
    record_bytes: u64,
    /// This node, if the answer may tell that it leads a partition, and whether it does.
    leader_id: Option<i32>,
    names_leader: bool,
}

impl Put for FetchResponse {
    fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
}

impl FetchResponse {
    fn put_records(&mut self, records: FetchRecords) {
        self.record_bytes += records.len() as u64;
        match records {
            FetchRecords::None => {}
            FetchRecords::Copied(bytes) => self.put(&bytes),
            FetchRecords::InFile {
                file,
                position,
                len,
            } => {
                self.chunks
                    .push(Chunk::bytes(std::mem::take(&mut self.out)));
                self.chunks.push(Chunk::File {
                    file,
                    position,
                    left: len,
                });
            }
        }
    }

    fn finish(mut self) -> Vec<Chunk> {
        if !self.out.is_empty() {
            self.chunks.push(Chunk::bytes(self.out));
        }
        let bytes: usize = self.chunks.iter().map(Chunk::left).sum();
        match self.chunks.first_mut() {
            Some(Chunk::Bytes { data, .. }) => set_length(data, bytes - 4),
            _ => unreachable!("an answer begins with its header"),
        }
        self.chunks
    }
}
