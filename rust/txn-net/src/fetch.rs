//! Fetch, versions 4 to 18: runs of stored batches, from segment to socket.
//!
//! [`FetchRequest::parse`] makes a plan of the request. [`FetchRequest::readiness`] says, from the
//! logs' published offsets alone, whether it can be answered now; if not it waits in the
//! purgatory. [`FetchRequest::answer`] locates the bytes and writes everything around them; the
//! records themselves are [`Chunk::File`]s that never enter this process.
//!
//! # Isolation
//! `read_uncommitted` reads up to the high watermark, which on one node is the log end.
//! `read_committed` reads up to the last stable offset; the answer names every aborted transaction
//! that overlaps its bytes. The bound is read once per partition and answer: batches beyond
//! it are not even located.
//!
//! # Deviations from Apache Kafka
//! - There are no fetch sessions: every answer has session id 0, which KIP-227 allows, and
//!   clients then send full requests. A request that goes on with a session is answered
//!   `FETCH_SESSION_ID_NOT_FOUND`, after which clients start anew.
//! - Any partition's error is answered at once; Kafka lets a request with unknown topics wait
//!   for the others.
//! - `LastFetchedEpoch` is not compared: one node's log never diverges from itself.
//!
//! A partition that is named more than once counts once, as in Kafka. It keeps its first place,
//! and the offset and sizes that come last.
//!
//! Sources: `FetchRequest.json`, `FetchResponse.json`; KIP-74 (`max_bytes`), KIP-98 (isolation),
//! KIP-227 (sessions), KIP-320 (leader epochs), KIP-516 (topic ids).

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use txn_log::{Isolation, LentFile, LogState, PartitionLog, ReadError, can_lend_files};
use txn_protocol::apis;
use txn_protocol::codes;
use txn_protocol::frame::{LENGTH_BYTES, begin_response, set_length};
use txn_protocol::{Malformed, Put, Reader};

use crate::access::{Access, Action, Sender, first_of};
use crate::catalog::{Catalog, Topic, TopicId, TopicKey};
use crate::chunk::Chunk;
use crate::partition_limit::require_few;
use crate::turn::Turn;

/// The most record bytes in one answer, but for a first batch that is larger: the default of
/// Kafka's `fetch.max.bytes`.
const MAX_ANSWER_BYTES: u64 = 55 << 20;

/// Records up to this size are copied into the answer: one read and one send are cheaper than
/// a sendfile between two sends.
const COPY_BYTES: u64 = 32 << 10;

/// The most bytes copied for one answer. They stay in this process's memory until the client takes
/// them.
const COPIED_BYTES: u64 = 1 << 20;

/// The most bytes that are verified for one answer, but for a first batch that is larger. Verified
/// are bytes that the start believed and no reader has read since. The reactor's other
/// connections wait meanwhile: some milliseconds, if the disk has to be asked.
const CHECKED_BYTES: u64 = 4 << 20;

/// The time a request may spend on opening partitions that no request has named since the start:
/// the reactor's other connections wait meanwhile. It is told `NOT_LEADER_OR_FOLLOWER` of those that are left,
/// and its client asks again.
const OPENING_MAX: Duration = Duration::from_millis(25);

/// A Fetch, parsed. It borrows nothing, because it may wait.
pub struct FetchRequest {
    version: i16,
    correlation_id: i32,
    max_wait: Duration,
    min_bytes: u64,
    max_bytes: u64,
    is_read_committed: bool,
    session_error: i16,
    topics: Vec<WantedTopic>,
    partitions: Vec<WantedPartition>,
    /// The rest of [`OPENING_MAX`].
    opening: Cell<Duration>,
    /// For each topic the place of the first of its name or id; empty until that matters.
    first_of: Vec<usize>,
    /// Number of topics that have their verdict.
    authorized: usize,
}

struct WantedTopic {
    /// Name or id, sent back as the request has it.
    key: OwnedKey,
    topic: Option<Arc<Topic>>,
    /// Its reader may not see it.
    is_refused: bool,
    /// Number of its partitions in the request; they follow those of the topic before.
    partitions: usize,
}

enum OwnedKey {
    Name(Box<[u8]>),
    Id(TopicId),
}

impl OwnedKey {
    fn borrow(&self) -> TopicKey<'_> {
        match self {
            Self::Name(name) => TopicKey::Name(name),
            Self::Id(id) => TopicKey::Id(id),
        }
    }
}

#[derive(Clone, Copy)]
struct WantedPartition {
    /// Position in the request's topics.
    topic: usize,
    index: i32,
    /// -1: the reader does not say.
    leader_epoch: i32,
    start: i64,
    max_bytes: u64,
}

/// The readiness of a request to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It can, with enough bytes, with an error, or because it does not want to wait.
    Ready,
    /// There is too little yet.
    TooLittle,
}

impl FetchRequest {
    /// Reads a request's body and looks its topics up.
    ///
    /// # Errors
    /// It is not a Fetch request of that version.
    pub fn parse(
        body: &[u8],
        version: i16,
        correlation_id: i32,
        catalog: &Catalog,
    ) -> Result<Self, Malformed> {
        let is_flexible = is_flexible(version);
        let mut reader = Reader::new(body);
        if version < 15 {
            reader.i32()?; // replica_id; from version 15 on in a tagged field
        }
        let max_wait_ms = reader.i32()?;
        let min_bytes = reader.i32()?;
        let max_bytes = reader.i32()?;
        let is_read_committed = match reader.i8()? {
            0 => false,
            1 => true,
            _ => {
                let at = reader.at() - 1;
                return Err(Malformed {
                    at,
                    reason: "there is no such isolation level",
                });
            }
        };
        let session_error = if version >= 7 {
            parse_session(&mut reader)?
        } else {
            codes::NONE
        };
        let mut request = Self {
            version,
            correlation_id,
            max_wait: Duration::from_millis(max_wait_ms.max(0) as u64),
            min_bytes: min_bytes.max(0) as u64,
            max_bytes: (max_bytes.max(0) as u64).min(MAX_ANSWER_BYTES),
            is_read_committed,
            session_error,
            topics: Vec::new(),
            partitions: Vec::new(),
            opening: Cell::new(OPENING_MAX),
            first_of: Vec::new(),
            authorized: 0,
        };
        for _ in 0..reader.array(is_flexible, 2)? {
            request.parse_topic(&mut reader, body, catalog)?;
        }
        if version >= 7 {
            skip_forgotten_topics(&mut reader, version)?;
        }
        if version >= 11 {
            reader.string(is_flexible)?; // rack_id
        }
        reader.skip_tags(is_flexible)?;
        request.keep_each_once();
        Ok(request)
    }

    /// Leaves one of the partitions that are named more than once.
    ///
    /// Cost: a sort of the partitions; none for a request of one.
    fn keep_each_once(&mut self) {
        if self.partitions.len() < 2 {
            return;
        }
        self.find_first();
        let of_partition = |(place, one): (usize, &WantedPartition)| {
            let topic = self.first_of.get(one.topic).copied().unwrap_or_default();
            (topic, one.index, place)
        };
        let mut named: Vec<_> = (self.partitions.iter().enumerate())
            .map(of_partition)
            .collect();
        named.sort_unstable();
        let mut is_left_out = Vec::new();
        for of_one in named.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            let [(_, _, first), .., (_, _, last)] = *of_one else {
                continue; // it is named once
            };
            is_left_out.resize(self.partitions.len(), false);
            for &(_, _, place) in &of_one[1..] {
                is_left_out[place] = true;
                self.topics[self.partitions[place].topic].partitions -= 1;
            }
            let topic = self.partitions[first].topic;
            self.partitions[first] = WantedPartition {
                topic,
                ..self.partitions[last]
            };
        }
        if !is_left_out.is_empty() {
            let mut is_left_out = is_left_out.into_iter();
            self.partitions
                .retain(|_| is_left_out.next() == Some(false));
        }
    }

    /// Finds the topics that are named more than once.
    fn find_first(&mut self) {
        if self.first_of.is_empty() && self.topics.len() > 1 {
            self.first_of = first_of(self.topics.len(), |at| self.topics[at].key.borrow());
        }
    }

    fn parse_topic(
        &mut self,
        reader: &mut Reader<'_>,
        body: &[u8],
        catalog: &Catalog,
    ) -> Result<(), Malformed> {
        let is_flexible = is_flexible(self.version);
        let key = parse_key(reader, body, self.version)?;
        let partitions = reader.array(is_flexible, 16)?;
        let named = self.partitions.len() + partitions;
        require_few(reader, named, self.topics.len())?;
        for _ in 0..partitions {
            let index = reader.i32()?;
            let leader_epoch = if self.version >= 9 { reader.i32()? } else { -1 };
            let start = reader.i64()?;
            if self.version >= 12 {
                reader.i32()?; // last_fetched_epoch
            }
            if self.version >= 5 {
                reader.i64()?; // log_start_offset, of followers
            }
            let max_bytes = reader.i32()?.max(0) as u64;
            reader.skip_tags(is_flexible)?;
            let topic = self.topics.len();
            self.partitions.push(WantedPartition {
                topic,
                index,
                leader_epoch,
                start,
                max_bytes,
            });
        }
        reader.skip_tags(is_flexible)?;
        let topic = catalog.find(key);
        let key = match key {
            TopicKey::Name(name) => OwnedKey::Name(name.into()),
            TopicKey::Id(id) => OwnedKey::Id(id.try_into().expect("the parser takes 16 bytes")),
        };
        self.topics.push(WantedTopic {
            key,
            topic,
            is_refused: false,
            partitions,
        });
        Ok(())
    }

    /// Refuses the topics that the reader may not read. An unknown topic id is nobody's to refuse.
    ///
    /// Returns false if the turn was over before each topic had its verdict; then it goes on when
    /// it is called again.
    pub fn authorize(&mut self, access: &Access, sender: Sender<'_>, turn: &mut Turn) -> bool {
        while self.authorized < self.topics.len() {
            let at = self.authorized;
            self.authorized += 1;
            if let Some(&first) = self.first_of.get(at).filter(|&&first| first < at) {
                self.topics[at].is_refused = self.topics[first].is_refused;
                if self.topics[first].topic.is_none() {
                    self.topics[at].topic = None; // it was made since, and nobody was asked
                }
                continue;
            }
            let wanted = &self.topics[at];
            let name = match (&wanted.key, &wanted.topic) {
                (OwnedKey::Name(name), _) => name,
                (OwnedKey::Id(_), Some(found)) => found.name.as_bytes(),
                (OwnedKey::Id(_), None) => continue,
            };
            if access.remembers(sender, Action::ReadTopic, name) {
                continue;
            }
            if self.first_of.is_empty() && self.topics.len() > 1 {
                self.find_first();
                self.authorized = at; // it may have been named before
                continue;
            }
            self.topics[at].is_refused = !access.ask(sender, Action::ReadTopic, name);
            if turn.is_over() {
                return self.authorized == self.topics.len();
            }
        }
        true
    }

    /// Cap the response at `bytes` of batches.
    pub fn limit_bytes(&mut self, bytes: u64) {
        self.max_bytes = self.max_bytes.min(bytes);
        self.min_bytes = self.min_bytes.min(self.max_bytes);
    }

    pub fn correlation_id(&self) -> i32 {
        self.correlation_id
    }

    /// The most time it may wait.
    pub fn max_wait(&self) -> Duration {
        self.max_wait
    }

    /// Number of partitions it reads.
    pub fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    /// The logs it reads, each once.
    pub fn logs(&self) -> impl Iterator<Item = &Arc<PartitionLog>> {
        self.each()
            .filter_map(|(topic, wanted)| self.log(topic.topic.as_ref()?, wanted.index).ok())
    }

    /// The log of a partition, opened if there is time for it.
    fn log<'a>(&self, topic: &'a Topic, index: i32) -> Result<&'a Arc<PartitionLog>, i16> {
        if let Some(log) = topic.partition(index)?.log() {
            return Ok(log);
        }
        let left = self.opening.get();
        if left.is_zero() {
            return Err(codes::NOT_LEADER_OR_FOLLOWER);
        }
        let began = Instant::now();
        let log = topic.log(index);
        self.opening.set(left.saturating_sub(began.elapsed()));
        log
    }

    /// True if one of its topics was removed or replaced since it was parsed.
    pub fn is_outdated(&self) -> bool {
        self.topics
            .iter()
            .any(|wanted| wanted.topic.as_ref().is_some_and(|one| !one.is_current()))
    }

    /// Looks its topics up again.
    pub fn refresh(&mut self, catalog: &Catalog) {
        for wanted in &mut self.topics {
            wanted.topic = catalog.find(wanted.key.borrow());
        }
    }

    fn each(&self) -> impl Iterator<Item = (&WantedTopic, &WantedPartition)> {
        self.partitions
            .iter()
            .map(|wanted| (&self.topics[wanted.topic], wanted))
    }

    /// Says whether it can be answered now.
    ///
    /// A reader in a segment that is complete is behind, so it does not wait for more bytes (Kafka,
    /// `DelayedFetch`). Cost: a few atomic loads per partition; with `min_bytes` above 1 also an
    /// index look-up.
    pub fn readiness(&self) -> Readiness {
        if self.max_wait.is_zero() || self.partitions.is_empty() || self.session_error != 0 {
            return Readiness::Ready;
        }
        let mut bytes = 0;
        for (topic, wanted) in self.each() {
            let Ok(readable) = self.readable(topic, wanted) else {
                return Readiness::Ready;
            };
            if self.min_bytes > 1 && readable.log.is_behind(readable.start, readable.end) {
                return Readiness::Ready;
            }
            let cap = wanted.max_bytes.min(self.max_bytes).max(1);
            bytes += readable.bytes(self.min_bytes.min(cap));
        }
        if bytes >= self.min_bytes.min(self.max_bytes.max(1)) {
            Readiness::Ready
        } else {
            Readiness::TooLittle
        }
    }

    fn readable<'a>(
        &self,
        topic: &'a WantedTopic,
        wanted: &WantedPartition,
    ) -> Result<Readable<'a>, i16> {
        if topic.is_refused {
            return Err(codes::TOPIC_AUTHORIZATION_FAILED);
        }
        let Some(found) = &topic.topic else {
            return Err(match topic.key {
                OwnedKey::Name(_) => codes::UNKNOWN_TOPIC_OR_PARTITION,
                OwnedKey::Id(_) => codes::UNKNOWN_TOPIC_ID,
            });
        };
        let log = self.log(found, wanted.index)?;
        found
            .partition(wanted.index)?
            .check_leader(wanted.leader_epoch)?;
        let truncations = log.truncations(); // before the state that they may take back
        let state = log.state();
        if wanted.start < state.log_start_offset || wanted.start > state.log_end_offset {
            return Err(codes::OFFSET_OUT_OF_RANGE);
        }
        let isolation = if self.is_read_committed {
            Isolation::TxnCommitted
        } else {
            Isolation::HighWatermark
        };
        Ok(Readable {
            log,
            truncations,
            state,
            start: wanted.start,
            end: state.readable_end(isolation),
        })
    }

    /// An answer without a topic, for a client that is muted; a whole frame.
    pub fn throttled(&self, throttle_ms: i32) -> Chunk {
        let is_flexible = is_flexible(self.version);
        let mut out = Vec::new();
        begin_response(&mut out, self.correlation_id, is_flexible);
        out.put_i32(throttle_ms);
        if self.version >= 7 {
            out.put_i16(codes::NONE);
            out.put_i32(0); // session_id: none
        }
        out.put_length(0, is_flexible);
        out.put_no_tags(is_flexible);
        let length = out.len() - LENGTH_BYTES;
        set_length(&mut out, length);
        Chunk::bytes(out)
    }

    /// Locates the records and writes the answer, a whole frame in chunks, and the bytes of
    /// batches in it.
    ///
    /// Partitions are served in the request's order until `max_bytes` is reached; the first that
    /// has records gets at least one whole batch. Without `may_copy` small records are sent from
    /// their files, too: until the client takes the answer, it holds little memory.
    pub fn answer(&self, may_copy: bool) -> (Vec<Chunk>, u64) {
        let is_flexible = is_flexible(self.version);
        let mut answer = FetchResponse::default();
        begin_response(&mut answer.out, self.correlation_id, is_flexible);
        answer.put_i32(0); // throttle_time_ms
        if self.version >= 7 {
            answer.put_i16(self.session_error);
            answer.put_i32(0); // session_id: none
        }
        if self.session_error == codes::NONE {
            let named = self.topics.iter().filter(|topic| topic.partitions > 0);
            answer.put_length(named.count(), is_flexible);
            self.put_topics(&mut answer, may_copy);
        } else {
            answer.put_length(0, is_flexible);
        }
        answer.put_no_tags(is_flexible);
        let record_bytes = answer.record_bytes;
        (answer.finish(), record_bytes)
    }

    fn put_topics(&self, answer: &mut FetchResponse, may_copy: bool) {
        let is_flexible = is_flexible(self.version);
        let mut room = FetchBudget {
            bytes: self.max_bytes,
            copied: if may_copy { COPIED_BYTES } else { 0 },
            unchecked: CHECKED_BYTES,
            is_untouched: true,
        };
        let mut partitions = self.partitions.iter();
        for topic in self.topics.iter().filter(|topic| topic.partitions > 0) {
            match topic.key.borrow() {
                TopicKey::Name(name) => answer.put_nullable_string(Some(name), is_flexible),
                TopicKey::Id(id) => answer.put(id),
            }
            answer.put_length(topic.partitions, is_flexible);
            for wanted in partitions.by_ref().take(topic.partitions) {
                answer.put_i32(wanted.index);
                let found = self
                    .readable(topic, wanted)
                    .and_then(|readable| readable.found(wanted.max_bytes, &mut room));
                match found {
                    Ok(found) => self.put_found(answer, found),
                    Err(code) => self.put_error(answer, code),
                }
                answer.put_no_tags(is_flexible);
            }
            answer.put_no_tags(is_flexible);
        }
    }

    fn put_found(&self, answer: &mut FetchResponse, found: FetchedPartition<'_>) {
        let aborted = if self.is_read_committed {
            found.aborted()
        } else {
            Vec::new()
        };
        // A truncation may have taken the marker of a transaction in the records, and its entry.
        if found.log.truncations() != found.truncations {
            return self.put_error(answer, codes::NOT_LEADER_OR_FOLLOWER);
        }
        let state = &found.state;
        self.put_offsets(
            answer,
            codes::NONE,
            state.high_watermark,
            state.last_stable_offset,
            state.log_start_offset,
        );
        let is_flexible = is_flexible(self.version);
        if self.is_read_committed {
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
    }

    fn put_error(&self, answer: &mut FetchResponse, code: i16) {
        let code = if code == codes::KAFKA_STORAGE_ERROR && self.version <= 5 {
            codes::NOT_LEADER_OR_FOLLOWER // those versions do not know the other (KIP-112)
        } else {
            code
        };
        self.put_offsets(answer, code, -1, -1, -1);
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

    fn put_offsets(
        &self,
        answer: &mut FetchResponse,
        code: i16,
        high_watermark: i64,
        last_stable_offset: i64,
        log_start_offset: i64,
    ) {
        answer.put_i16(code);
        answer.put_i64(high_watermark);
        answer.put_i64(last_stable_offset);
        if self.version >= 5 {
            answer.put_i64(log_start_offset);
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

/// The record bytes that an answer may still take.
struct FetchBudget {
    bytes: u64,
    /// Bytes that may still be copied.
    copied: u64,
    /// Bytes that may still be verified for it.
    unchecked: u64,
    /// No partition has had records yet, so the next may exceed every limit by one batch.
    is_untouched: bool,
}

/// The offsets `[start, end)` of one partition that a request may see.
struct Readable<'a> {
    log: &'a Arc<PartitionLog>,
    truncations: u64,
    state: LogState,
    start: i64,
    end: i64,
}

/// One partition's part of an answer.
struct FetchedPartition<'a> {
    log: &'a PartitionLog,
    truncations: u64,
    state: LogState,
    start: i64,
    end: i64,
    records: FetchRecords,
}

enum FetchRecords {
    None,
    Copied(Vec<u8>),
    InFile {
        file: LentFile,
        position: u64,
        len: usize,
    },
}

impl FetchRecords {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Copied(bytes) => bytes.len(),
            Self::InFile { len, .. } => *len,
        }
    }
}

impl<'a> Readable<'a> {
    /// Estimates its bytes, at most `cap`; exact as to whether there are any.
    fn bytes(&self, cap: u64) -> u64 {
        if self.start >= self.end {
            0
        } else if cap <= 1 {
            1
        } else {
            self.log.available(self.start, self.end, cap).max(1)
        }
    }

    fn found(self, max_bytes: u64, room: &mut FetchBudget) -> Result<FetchedPartition<'a>, i16> {
        let Self {
            log,
            truncations,
            state,
            start,
            end,
        } = self;
        let max_bytes = max_bytes.min(room.bytes);
        let nothing = FetchedPartition {
            log,
            truncations,
            state,
            start,
            end: start,
            records: FetchRecords::None,
        };
        if start >= end || (max_bytes == 0 && !room.is_untouched) {
            return Ok(nothing);
        }
        let max_bytes = if can_lend_files() {
            max_bytes
        } else {
            max_bytes.min(COPY_BYTES) // it has to be copied
        };
        let slice =
            match log.locate_within(start, end, max_bytes, room.is_untouched, room.unchecked) {
                Ok(slice) => slice,
                Err(ReadError::OutOfRange { .. }) => return Err(codes::OFFSET_OUT_OF_RANGE),
                Err(ReadError::Closed) => return Err(codes::NOT_LEADER_OR_FOLLOWER),
                Err(ReadError::Corrupt(_)) => return Err(codes::CORRUPT_MESSAGE),
                Err(ReadError::Io(_)) => return Err(codes::KAFKA_STORAGE_ERROR),
            };
        if slice.len == 0 {
            return Ok(nothing);
        }
        room.unchecked = room.unchecked.saturating_sub(slice.checked);
        let end = slice.end_offset;
        let is_copied = slice.len <= COPY_BYTES.min(room.copied);
        let lent = if is_copied { None } else { slice.lend() };
        let records = match lent {
            Some(file) => FetchRecords::InFile {
                file,
                position: slice.position,
                len: slice.len as usize,
            },
            // Too many files are lent. The first records are copied, so that the client gets on;
            // others it asks for again.
            None if !is_copied && !room.is_untouched => return Ok(nothing),
            None => match slice.read() {
                Ok(bytes) => FetchRecords::Copied(bytes),
                Err(_) => return Err(codes::KAFKA_STORAGE_ERROR),
            },
        };
        if let FetchRecords::Copied(bytes) = &records {
            room.copied = room.copied.saturating_sub(bytes.len() as u64);
        }
        room.is_untouched = false;
        room.bytes = room.bytes.saturating_sub(records.len() as u64);
        Ok(FetchedPartition {
            log,
            truncations,
            state,
            start,
            end,
            records,
        })
    }
}

impl FetchedPartition<'_> {
    fn aborted(&self) -> Vec<(i64, i64)> {
        if self.start < self.end {
            self.log.aborted_in(self.start, self.end)
        } else {
            Vec::new()
        }
    }
}

/// An answer being written: bytes up to here, and the chunks before them.
#[derive(Default)]
struct FetchResponse {
    out: Vec<u8>,
    chunks: Vec<Chunk>,
    /// Bytes of batches in it.
    record_bytes: u64,
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

fn parse_session(reader: &mut Reader<'_>) -> Result<i16, Malformed> {
    reader.i32()?; // session_id: of no session we know
    match reader.i32()? {
        0 | -1 => Ok(codes::NONE), // a full request, which opens or closes a session
        _ => Ok(codes::FETCH_SESSION_ID_NOT_FOUND),
    }
}

fn skip_forgotten_topics(reader: &mut Reader<'_>, version: i16) -> Result<(), Malformed> {
    let is_flexible = is_flexible(version);
    for _ in 0..reader.array(is_flexible, 2)? {
        if has_topic_ids(version) {
            reader.uuid()?;
        } else {
            reader.string(is_flexible)?;
        }
        for _ in 0..reader.array(is_flexible, 4)? {
            reader.i32()?;
        }
        reader.skip_tags(is_flexible)?;
    }
    Ok(())
}

fn parse_key<'a>(
    reader: &mut Reader<'_>,
    body: &'a [u8],
    version: i16,
) -> Result<TopicKey<'a>, Malformed> {
    if has_topic_ids(version) {
        Ok(TopicKey::Id(&body[reader.uuid()?]))
    } else {
        Ok(TopicKey::Name(&body[reader.string(is_flexible(version))?]))
    }
}

fn is_flexible(version: i16) -> bool {
    apis::is_flexible(apis::FETCH, version)
}

fn has_topic_ids(version: i16) -> bool {
    version >= 13
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;
    use txn_log::builder::BatchBuilder;
    use txn_log::{Origin, Past, Settings};
    use txn_protocol::batch::Codec;

    use super::*;
    use crate::access::Ada;

    const NAME: &[u8] = b"pay";
    const ID: TopicId = [7; 16];

    fn put_topic(out: &mut Vec<u8>, version: i16) {
        if has_topic_ids(version) {
            out.put(&ID);
        } else {
            out.put_nullable_string(Some(NAME), is_flexible(version));
        }
    }

    /// A request for partition 0 of one topic that forgets another.
    fn request(version: i16, isolation: i8, session_epoch: i32) -> Vec<u8> {
        let is_flexible = is_flexible(version);
        let mut out = Vec::new();
        if version < 15 {
            out.put_i32(-1);
        }
        out.put_i32(500);
        out.put_i32(1);
        out.put_i32(1 << 20);
        out.put(&isolation.to_be_bytes());
        if version >= 7 {
            out.put_i32(0);
            out.put_i32(session_epoch);
        }
        out.put_length(1, is_flexible);
        put_topic(&mut out, version);
        out.put_length(1, is_flexible);
        out.put_i32(0);
        if version >= 9 {
            out.put_i32(-1);
        }
        out.put_i64(5);
        if version >= 12 {
            out.put_i32(-1);
        }
        if version >= 5 {
            out.put_i64(-1);
        }
        out.put_i32(1 << 20);
        if version >= 17 {
            out.put(&[1, 0, 16]); // one tagged field: replica_directory_id
            out.put(&[0; 16]);
        } else {
            out.put_no_tags(is_flexible);
        }
        out.put_no_tags(is_flexible);
        if version >= 7 {
            out.put_length(1, is_flexible);
            put_topic(&mut out, version);
            out.put_length(1, is_flexible);
            out.put_i32(9);
            out.put_no_tags(is_flexible);
        }
        if version >= 11 {
            out.put_nullable_string(Some(b""), is_flexible);
        }
        out.put_no_tags(is_flexible);
        out
    }

    fn parse(body: &[u8], version: i16) -> Result<FetchRequest, Malformed> {
        FetchRequest::parse(body, version, 42, &Catalog::default())
    }

    fn answer(request: &FetchRequest) -> Vec<u8> {
        match request.answer(true).0.remove(0) {
            Chunk::Bytes { data, .. } => data,
            Chunk::File { .. } => panic!("an answer begins with bytes"),
        }
    }

    #[test]
    fn every_version_is_read_and_its_topic_is_sent_back() {
        for version in 4..=18 {
            let request = parse(&request(version, 1, 0), version).unwrap();
            assert!(request.is_read_committed);
            assert_eq!(request.partitions[0].start, 5, "version {version}");
            assert_eq!(request.readiness(), Readiness::Ready);
            let out = answer(&request);
            let topic: &[u8] = if version >= 13 { &ID } else { NAME };
            assert!(out.windows(topic.len()).any(|window| window == topic));
            let length = i32::from_be_bytes(*out.first_chunk().unwrap());
            assert_eq!(length as usize, out.len() - 4);
            assert_eq!(out[4..8], 42_i32.to_be_bytes());
        }
    }

    #[test]
    fn a_request_cut_anywhere_is_malformed_and_what_follows_it_is_ignored() {
        for version in 4..=18 {
            let body = request(version, 0, -1);
            for end in 0..body.len() {
                assert!(
                    parse(&body[..end], version).is_err(),
                    "version {version} cut at {end}"
                );
            }
            assert!(parse(&[&body[..], &[0]].concat(), version).is_ok());
        }
    }

    /// A topic's name, and partitions of it with the offset to read from.
    type Named<'a> = (&'a [u8], &'a [(i32, i64)]);

    /// A request of version 11 for these.
    fn naming(topics: &[Named<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        for value in [-1, 500, 1, 1 << 20] {
            out.put_i32(value); // replica_id, max_wait_ms, min_bytes, max_bytes
        }
        out.put(&[0]); // isolation_level
        out.put_i32(0); // session_id
        out.put_i32(-1); // session_epoch
        out.put_i32(topics.len() as i32);
        for (name, partitions) in topics {
            out.put_nullable_string(Some(name), false);
            out.put_i32(partitions.len() as i32);
            for &(index, start) in *partitions {
                out.put_i32(index);
                out.put_i32(-1); // current_leader_epoch
                out.put_i64(start);
                out.put_i64(-1); // log_start_offset
                out.put_i32(1 << 20); // partition_max_bytes
            }
        }
        out.put_i32(0); // forgotten_topics_data
        out.put_nullable_string(Some(b""), false);
        out
    }

    /// Lists (place of the topic, partition, offset) of a request.
    fn wanted(request: &FetchRequest) -> Vec<(usize, i32, i64)> {
        let of = |one: &WantedPartition| (one.topic, one.index, one.start);
        request.partitions.iter().map(of).collect()
    }

    #[test]
    fn a_partition_named_again_keeps_its_first_place_and_gets_what_was_said_last() {
        let body = naming(&[
            (b"a", &[(0, 1), (1, 2), (0, 3)]),
            (b"b", &[(0, 4)]),
            (b"a", &[(1, 5), (2, 6)]),
            (b"b", &[(0, 7)]),
        ]);
        let request = parse(&body, 11).unwrap();
        let expected = [(0, 0, 3), (0, 1, 5), (1, 0, 7), (2, 2, 6)];
        assert_eq!(wanted(&request), expected);
        let mut out = Vec::new();
        begin_response(&mut out, 42, false);
        out.put_i32(0);
        out.put_i16(0);
        out.put_i32(0);
        out.put_i32(3);
        for (name, indexes) in [(b"a", &[0, 1][..]), (b"b", &[0]), (b"a", &[2])] {
            out.put_nullable_string(Some(name), false);
            out.put_i32(indexes.len() as i32);
            for index in indexes {
                out.put_i32(*index);
                let mut error = FetchResponse::default();
                request.put_error(&mut error, codes::UNKNOWN_TOPIC_OR_PARTITION);
                out.put(&error.out);
            }
        }
        let length = out.len() - 4;
        set_length(&mut out, length);
        assert_eq!(answer(&request), out);
    }

    #[test]
    fn a_partition_named_60_000_times_is_read_and_answered_once() {
        // The story: each was watched and woken for itself, and a watcher came and went in time
        // linear in those there were. One such request held a reactor for 39 s.
        let partitions = vec![(0, 0); 60_000];
        let request = parse(&naming(&[(b"a", &partitions)]), 11).unwrap();
        assert_eq!(request.partition_count(), 1);
        let topics: Vec<Named<'_>> = vec![(b"a", &[(0, 0)]); 60_000];
        let request = parse(&naming(&topics), 11).unwrap();
        assert_eq!(request.partition_count(), 1);
        assert!(answer(&request).len() < 200);
    }

    #[test]
    fn each_name_is_asked_for_once_in_turns_of_any_length() {
        // The story: a name that is refused was asked for as often as a request had it, and one
        // request had it 199,000 times.
        let named = [b"b", b"a", b"b", b"c", b"b", b"a"].map(|name| (&name[..], &[][..]));
        for (time, turns) in [(Duration::ZERO, 4), (Duration::from_secs(3600), 1)] {
            let (access, asked) = Access::of_letter('a');
            let ada = Ada::connected();
            let mut request = parse(&naming(&named), 11).unwrap();
            let mut authorize = || request.authorize(&access, ada.sender(), &mut Turn::of(time));
            let taken = 1 + std::iter::from_fn(|| (!authorize()).then_some(())).count();
            assert!(authorize());
            assert_eq!(taken, turns);
            assert_eq!(*asked.lock().unwrap(), ["b", "a", "c"]);
            let refused: Vec<bool> = request.topics.iter().map(|one| one.is_refused).collect();
            assert_eq!(refused, [true, false, true, true, true, false]);
        }
    }

    #[test]
    fn an_isolation_level_that_does_not_exist_is_malformed() {
        assert!(parse(&request(11, 2, 0), 11).is_err());
    }

    #[test]
    fn a_request_that_goes_on_with_a_session_is_told_that_there_is_none() {
        let request = parse(&request(7, 0, 3), 7).unwrap();
        assert_eq!(request.readiness(), Readiness::Ready);
        let out = answer(&request);
        let mut expected = Vec::new();
        begin_response(&mut expected, 42, false);
        expected.put_i32(0);
        expected.put_i16(codes::FETCH_SESSION_ID_NOT_FOUND);
        expected.put_i32(0);
        expected.put_i32(0);
        set_length(&mut expected, 18);
        assert_eq!(out, expected);
    }

    #[test]
    fn versions_that_know_no_storage_error_hear_of_another_leader() {
        let catalog = Catalog::default();
        let name = std::str::from_utf8(NAME).unwrap().to_owned();
        let log_of = Box::new(|_| Err(codes::KAFKA_STORAGE_ERROR));
        catalog.add(Topic::new(name, ID, 1, log_of, false));
        for (version, expected) in [
            (4, codes::NOT_LEADER_OR_FOLLOWER),
            (5, codes::NOT_LEADER_OR_FOLLOWER),
            (6, codes::KAFKA_STORAGE_ERROR),
        ] {
            let request = FetchRequest::parse(&request(version, 0, 0), version, 42, &catalog);
            let out = answer(&request.unwrap());
            let at = 4 + 4 + 4 + 4 + 2 + NAME.len() + 4 + 4; // up to the partition's error code
            assert_eq!(out[at..at + 2], expected.to_be_bytes(), "version {version}");
        }
    }

    #[test]
    fn a_reader_in_a_complete_segment_waits_for_no_more_bytes() {
        // The story: a reader that was behind waited `fetch.max.wait.ms` wherever less than
        // `fetch.min.bytes` was left up to the log end.
        let directory = tempfile::TempDir::new().unwrap();
        let settings = Settings {
            segment_bytes: 1000,
            ..Settings::default()
        };
        let path = directory.path().join("pay-0");
        let shut = Arc::new(crate::test_logs::Shut);
        let log = PartitionLog::open(path, shut, settings, None, Past::default());
        let log = Arc::new(log.unwrap());
        let origin = Origin::Client {
            transaction_version: 2,
            transactional_id_hash: None,
        };
        for _ in 0..3 {
            let mut builder = BatchBuilder::new(Codec::None);
            builder.push(5, None, Some(&[7; 400]), &[]);
            log.append(origin, &mut builder.seal().unwrap()).unwrap();
        }
        let catalog = Catalog::default();
        let name = std::str::from_utf8(NAME).unwrap().to_owned();
        let log_of = Box::new(move |_| Ok(Arc::clone(&log)));
        catalog.add(Topic::new(name, ID, 1, log_of, false));
        let readiness = |start| {
            let body = naming(&[(NAME, &[(0, start)])]);
            let mut request = FetchRequest::parse(&body, 11, 42, &catalog).unwrap();
            request.min_bytes = 1 << 20;
            request.readiness()
        };
        assert_eq!(
            [0, 1, 2, 3].map(readiness),
            [
                Readiness::Ready, // the segment of the first two batches is complete
                Readiness::Ready,
                Readiness::TooLittle,
                Readiness::TooLittle,
            ]
        );
    }

    #[test]
    fn once_its_time_to_open_partitions_is_over_a_request_is_told_to_ask_again() {
        // The story: ten thousand partitions that nobody had named were opened for one request,
        // which held the reactor for 0.7 s.
        let directory = tempfile::TempDir::new().unwrap();
        let opened = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = Arc::clone(&opened);
        let path = directory.path().join("pay-0");
        let log_of = Box::new(move |_| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let log = PartitionLog::open(
                path.clone(),
                Arc::new(crate::test_logs::Shut),
                Settings::default(),
                None,
                Past::default(),
            );
            Ok(Arc::new(log.unwrap()))
        });
        let catalog = Catalog::default();
        let name = std::str::from_utf8(NAME).unwrap().to_owned();
        catalog.add(Topic::new(name, ID, 3, log_of, false));
        let parse = || {
            let body = naming(&[(NAME, &[(0, 0), (1, 0), (2, 0)])]);
            FetchRequest::parse(&body, 11, 42, &catalog).unwrap()
        };
        let is_readable = |request: &FetchRequest| {
            request
                .each()
                .map(|(topic, wanted)| request.readable(topic, wanted).err())
                .collect::<Vec<_>>()
        };
        let request = parse();
        request
            .log(request.topics[0].topic.as_ref().unwrap(), 1)
            .unwrap();
        request.opening.set(Duration::ZERO);
        let told = Some(codes::NOT_LEADER_OR_FOLLOWER);
        assert_eq!(is_readable(&request), [told, None, told]);
        assert_eq!(request.readiness(), Readiness::Ready);
        assert_eq!(opened.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert_eq!(is_readable(&parse()), [None, None, None], "it asked again");
    }

    #[test]
    fn an_answer_of_many_small_parts_holds_a_mebibyte_of_them_and_names_the_rest() {
        // The story: parts of up to 32 KiB were copied, however many. A client that fetched two
        // thousand partitions and took nothing had the broker keep 55 MB for each connection.
        let directory = tempfile::TempDir::new().unwrap();
        let log = PartitionLog::open(
            directory.path().join("pay-0"),
            Arc::new(crate::test_logs::Shut),
            Settings::default(),
            None,
            Past::default(),
        );
        let log = Arc::new(log.unwrap());
        let mut builder = BatchBuilder::new(Codec::None);
        builder.push(0, None, Some(&vec![7; 30_000]), &[]);
        let mut batch = builder.seal().unwrap();
        let origin = Origin::Client {
            transaction_version: 2,
            transactional_id_hash: None,
        };
        log.append(origin, &mut batch).unwrap();
        let catalog = Catalog::default();
        let name = std::str::from_utf8(NAME).unwrap().to_owned();
        let log_of = Box::new(move |_| Ok(Arc::clone(&log)));
        catalog.add(Topic::new(name, ID, 1, log_of, false));
        let mut request = FetchRequest::parse(&request(11, 0, -1), 11, 42, &catalog).unwrap();
        let wanted = WantedPartition {
            start: 0,
            ..request.partitions[0]
        };
        request.partitions = vec![wanted; 500];
        request.topics[0].partitions = 500;
        request.max_bytes = MAX_ANSWER_BYTES;

        let (chunks, _) = request.answer(true);

        let sent: usize = chunks.iter().map(Chunk::left).sum();
        assert!(sent > 500 * batch.len());
        let held = |chunk: &Chunk| match chunk {
            Chunk::Bytes { data, .. } => data.capacity(),
            Chunk::File { .. } => 0,
        };
        let held: usize = chunks.iter().map(held).sum();
        assert!(held < 3 << 20, "{held} bytes are held");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic_or_keep_more_than_they_pay_for(
            body in prop::collection::vec(any::<u8>(), 0..300),
            version in 4_i16..=18,
        ) {
            if let Ok(parsed) = parse(&body, version) {
                prop_assert!(parsed.partitions.capacity() <= body.len());
                answer(&parsed);
            }
        }

        #[test]
        fn a_damaged_request_is_answered_or_malformed_and_never_a_panic(
            version in 4_i16..=18,
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut body = request(version, 1, 0);
            for (index, byte) in damage {
                let at = index.index(body.len());
                body[at] = byte;
            }
            if let Ok(parsed) = parse(&body, version) {
                parsed.readiness();
                answer(&parsed);
            }
        }
    }
}
