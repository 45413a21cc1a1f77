//! Reading `[start, end)` of one partition, as chunks of columns.
//!
//! One answer is decoded while the next is on its way. The following offsets are known from batch
//! headers alone, so the next request leaves before the records of this answer are looked at.
//!
//! # The records that are returned
//! - Control batches (markers) are never returned.
//! - With `read_committed` the node answers up to the last stable offset and names the aborted
//!   transactions of the range. Going through the batches by offset, a producer id counts as aborted
//!   from the first offset of such a transaction to its abort marker; its batches in between are skipped.
//! - Records before `start` in the first batch and from `end` on in the last are skipped.
//!
//! # When it is over
//! When the next offset is at or past `end`. Records are not the measure: the last offsets may be
//! markers, aborted, or compacted away. If the node may show everything up to `end` but has no batch
//! left there, that is the end too (a compacted tail) — but only if the node's own disk says so: with
//! tiered storage an empty answer may only mean that the remote read took too long.
//! If the node may not yet show everything up to `end` the fetch waits, until the timeout.
//!
//! Sources: KIP-98 (`read_committed`), KIP-74 (an oversized first batch comes whole), KIP-405 (tiered storage).

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use txn_log::builder::decode_marker;
use txn_protocol::Reader;
use txn_protocol::batch::{BatchError, BatchView, Header};
use txn_protocol::codes;

use crate::cluster::{Cluster, Retry};
use crate::columns::{CHUNK_BYTES, Columns, Parts};
use crate::connection::BrokerConnection;
use crate::error::KafkaError;
use crate::messages::{self, fetch};

/// Time that a node may wait for the first byte; short, so that a stop is noticed.
const WAIT: Duration = Duration::from_millis(500);
/// Largest answer ever asked for.
const ANSWER_BYTES_MAX: i32 = 1 << 30;
/// `ListOffsets` timestamp for the first offset on the node's own disk; since version 8 (KIP-405).
const EARLIEST_LOCAL: i64 = -4;

/// The range to read.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    /// First offset, inclusive.
    pub start: i64,
    /// Last offset, exclusive.
    pub end: i64,
    /// True if records of open and aborted transactions are hidden.
    pub read_committed: bool,
    /// Largest answer asked for; grows if a batch does not fit.
    pub bytes_max: i32,
    /// Bytes to which the records of one compressed batch may come.
    pub content_bytes_max: usize,
    /// Which columns to make.
    pub parts: Parts,
}

/// Reading one partition; see the module.
#[derive(Debug)]
pub struct Fetch {
    cluster: Arc<Cluster>,
    topic: String,
    partition: i32,
    selection: Selection,
    /// First offset not handed over yet.
    next_offset: i64,
    connection: Option<BrokerConnection>,
    /// True if a request for `next_offset` (after `answer`) is in flight on `connection`.
    is_asked: bool,
    /// Received, not decoded to its end.
    answer: Option<FetchedBatches>,
    /// The last answer's buffer, to be used again.
    spare: Vec<u8>,
    scratch: Vec<u8>,
    /// A final error is told again: nobody may take the rest for the end.
    failure: Option<KafkaError>,
}

/// Whole batches, and their producers with aborted transactions.
#[derive(Debug)]
struct FetchedBatches {
    frame: Vec<u8>,
    /// Where in `frame` the next batch starts, and where the last whole one ends.
    at: usize,
    end: usize,
    /// Offset after the last whole batch.
    next_offset: i64,
    aborted: Aborted,
}

/// The result of an attempt to get the next answer.
enum FetchAttempt {
    Batches(FetchedBatches),
    /// The node has no whole batch from `next_offset` on; it may show records up to `limit`.
    Nothing {
        limit: i64,
    },
    /// The answer was too small for the next batch; ask for a larger one.
    TooSmall,
    /// The answer told nothing, as when the node throttles; ask again later.
    Silence,
}

impl Fetch {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        topic: &str,
        partition: i32,
        selection: Selection,
    ) -> Self {
        Self {
            cluster,
            topic: topic.to_owned(),
            partition,
            selection,
            next_offset: selection.start,
            connection: None,
            is_asked: false,
            answer: None,
            spare: Vec::new(),
            scratch: Vec::new(),
            failure: None,
        }
    }

    /// The topic being read.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The partition being read.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// The next rows, or `None` at the end. After a retriable error it may be called again.
    ///
    /// # Errors
    /// 1 if the next offset is not in the log (any more), 2 for damaged batches, 7 if `end` stays
    /// out of reach, and network errors that outlast the timeout.
    pub fn next_chunk(&mut self) -> Result<Option<Columns>, KafkaError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let result = self.advance();
        if let Err(error) = &result {
            self.connection = None;
            self.is_asked = false;
            if !error.is_retriable {
                self.failure = Some(error.clone());
            }
        }
        result
    }

    fn advance(&mut self) -> Result<Option<Columns>, KafkaError> {
        loop {
            if let Some(mut answer) = self.answer.take() {
                let columns = self.decode(&mut answer)?;
                self.next_offset = columns.next_offset;
                if answer.at < answer.end {
                    self.answer = Some(answer);
                } else {
                    self.spare = answer.frame;
                }
                if columns.rows > 0 {
                    return Ok(Some(columns));
                }
            } else if self.next_offset >= self.selection.end {
                self.put_back();
                return Ok(None);
            } else {
                match self.next_answer()? {
                    Some(answer) => self.answer = Some(answer),
                    None => self.next_offset = self.selection.end,
                }
            }
        }
    }

    fn put_back(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.cluster.put_back(connection);
        }
        self.is_asked = false;
    }

    /// Waits for whole batches from `next_offset` on; `None` if there are none before `end` any more.
    fn next_answer(&mut self) -> Result<Option<FetchedBatches>, KafkaError> {
        let cluster = Arc::clone(&self.cluster);
        let mut retry = cluster.begin();
        let mut limit_before = i64::MIN;
        // The finding of the attempt before one whose answer has little time. If that is late, it is the cause.
        let mut cause = None;
        loop {
            match self.attempt(&retry) {
                Ok(FetchAttempt::Batches(answer)) => return Ok(Some(answer)),
                Ok(FetchAttempt::TooSmall) if !retry.is_interrupted() => {}
                Ok(FetchAttempt::TooSmall | FetchAttempt::Silence) => {
                    if retry.left().is_zero() || retry.is_interrupted() {
                        return Err(self.no_answer_error());
                    }
                    cause = (retry.left() < 2 * WAIT).then(|| self.no_answer_error());
                    retry.pause();
                }
                Ok(FetchAttempt::Nothing { limit }) => {
                    // The limit must have been there before the read: only then was everything below it looked at.
                    if limit_before >= self.selection.end {
                        match self.is_local(&retry) {
                            Ok(true) => return Ok(None),
                            Ok(false) => {}
                            Err(error) => retry.after(error)?,
                        }
                    }
                    limit_before = limit;
                    if retry.left().is_zero() || retry.is_interrupted() {
                        return Err(self.out_of_range_error(limit));
                    }
                    let is_short = retry.left() < 2 * WAIT && limit < self.selection.end;
                    cause = is_short.then(|| self.out_of_range_error(limit));
                }
                Err(error) => {
                    self.connection = None;
                    self.is_asked = false;
                    let is_late = error.code == codes::REQUEST_TIMED_OUT;
                    let cause = cause.take().filter(|_| is_late);
                    retry.after(error).map_err(|error| cause.unwrap_or(error))?;
                    limit_before = i64::MIN;
                }
            }
        }
    }

    fn attempt(&mut self, retry: &Retry<'_>) -> Result<FetchAttempt, KafkaError> {
        if self.connection.is_none() {
            let leader = retry.leader(&self.topic, self.partition)?;
            self.connection = Some(retry.connect(&leader)?);
        }
        if !self.is_asked {
            self.ask(retry, self.next_offset)?;
        }
        let connection = self.connection.as_mut().expect("set above");
        self.is_asked = false;
        let mut frame = std::mem::take(&mut self.spare);
        let (timeout, whole) = (retry.answer_timeout(), retry.large_answer_timeout());
        let body = connection.receive_large(&mut frame, timeout, whole)?;
        let response = fetch::decode(&mut Reader::new(&frame[body..]), self.partition);
        let response = response.map_err(|e| connection.malformed("Fetch", &e))?;
        let Some(response) = response else {
            self.spare = frame;
            return Ok(FetchAttempt::Silence);
        };
        if response.error_code != 0 {
            let name = connection.name().to_owned();
            return Err(self.answered(retry, response.error_code, &name));
        }
        let whole = self.scan(response.records)?;
        if whole.bytes == 0 {
            if response.records.is_empty() {
                let is_committed =
                    self.selection.read_committed && response.last_stable_offset >= 0;
                let limit = if is_committed {
                    response.last_stable_offset
                } else {
                    response.high_watermark
                };
                self.spare = frame;
                return Ok(FetchAttempt::Nothing { limit });
            }
            let before = self.selection.bytes_max;
            let grown = before.saturating_mul(2).max(whole.needed);
            self.selection.bytes_max = grown.min(ANSWER_BYTES_MAX);
            self.spare = frame;
            if self.selection.bytes_max <= before {
                return Ok(FetchAttempt::Silence); // no answer can hold the batch
            }
            return Ok(FetchAttempt::TooSmall);
        }
        let aborted = Aborted::new(response.aborted);
        let at = frame.len() - response.bytes_after - response.records.len();
        let answer = FetchedBatches {
            at,
            end: at + whole.bytes,
            frame,
            next_offset: whole.next_offset,
            aborted,
        };
        if answer.next_offset < self.selection.end {
            // A failure here shows when the answer is waited for; the received part is good.
            self.is_asked = self.ask(retry, answer.next_offset).is_ok();
            if !self.is_asked {
                self.connection = None;
            }
        }
        Ok(FetchAttempt::Batches(answer))
    }

    fn ask(&mut self, retry: &Retry<'_>, offset: i64) -> Result<(), KafkaError> {
        let request = fetch::Request {
            topic: &self.topic,
            partition: self.partition,
            offset,
            read_committed: self.selection.read_committed,
            wait_ms: WAIT.min(retry.left() / 2).as_millis() as i32, // the rest is for its answer
            bytes_min: 1,
            bytes_max: self.selection.bytes_max,
        };
        let connection = self
            .connection
            .as_mut()
            .expect("only called with a connection");
        connection.refresh(retry.answer_timeout())?;
        let version = connection.version(messages::FETCH)?;
        let timeout = retry.answer_timeout();
        connection.request(messages::FETCH, version, timeout, |e| {
            fetch::encode(e, &request);
        })?;
        self.is_asked = true;
        Ok(())
    }

    /// Finds the whole batches of an answer by their headers.
    fn scan(&self, records: &[u8]) -> Result<Whole, KafkaError> {
        let mut whole = Whole {
            bytes: 0,
            next_offset: self.next_offset,
            needed: 0,
        };
        loop {
            match BatchView::parse(&records[whole.bytes..]) {
                Ok(batch) => {
                    whole.bytes += batch.size();
                    whole.next_offset = batch.last_offset().saturating_add(1);
                }
                Err(BatchError::Truncated { needed, .. }) => {
                    whole.needed = i32::try_from(needed).unwrap_or(ANSWER_BYTES_MAX);
                    break;
                }
                Err(BatchError::Magic { magic }) => {
                    let message = format!(
                        "{}-{} at offset {} is stored in message format {magic}; this client reads format 2: rewrite \
                         the topic with a client of Kafka 0.11 or newer",
                        self.topic, self.partition, whole.next_offset
                    );
                    return Err(KafkaError::refused(
                        codes::UNSUPPORTED_FOR_MESSAGE_FORMAT,
                        message,
                    ));
                }
                Err(error) => return Err(self.damaged(whole.next_offset, &error.to_string())),
            }
        }
        if whole.bytes > 0 && whole.next_offset <= self.next_offset {
            let what = format!(
                "the node answered with batches that end at offset {}",
                whole.next_offset
            );
            return Err(self.damaged(self.next_offset, &what));
        }
        Ok(whole)
    }

    /// Reads the body of an answer to its end, as `next_chunk` reads one of a node's; returns its rows.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn read(&mut self, body: &[u8]) -> Result<usize, KafkaError> {
        let malformed = |e| KafkaError::malformed("the node", "Fetch", &e);
        let response = fetch::decode(&mut Reader::new(body), self.partition).map_err(malformed)?;
        let Some(response) = response else {
            return Ok(0);
        };
        let whole = self.scan(response.records)?;
        let mut answer = FetchedBatches {
            at: 0,
            end: whole.bytes,
            frame: response.records.to_vec(),
            next_offset: whole.next_offset,
            aborted: Aborted::new(response.aborted),
        };
        let mut rows = 0;
        while answer.at < answer.end {
            rows += self.decode(&mut answer)?.rows;
        }
        Ok(rows)
    }

    /// Decodes batches of the answer until it or the chunk is full.
    fn decode(&mut self, answer: &mut FetchedBatches) -> Result<Columns, KafkaError> {
        let Selection {
            start,
            end,
            read_committed,
            content_bytes_max,
            parts,
            ..
        } = self.selection;
        let mut columns = Columns::new(parts, self.next_offset);
        while answer.at < answer.end && columns.bytes() < CHUNK_BYTES {
            let batch = BatchView::parse(&answer.frame[answer.at..answer.end])
                .expect("scan found it whole");
            answer.at += batch.size();
            if batch.base_offset() >= end {
                answer.at = answer.end;
                break;
            }
            if let Err(error) = batch.validate() {
                return Err(self.damaged(batch.base_offset(), &error.to_string()));
            }
            let is_aborted = answer.aborted.covers(&batch) && read_committed;
            if !batch.is_control() && !is_aborted {
                let wanted = start..end;
                columns
                    .push_batch(&batch, &wanted, &mut self.scratch, content_bytes_max)
                    .map_err(|reason| self.unreadable(&batch, &reason))?;
            }
            columns.next_offset = batch.last_offset().saturating_add(1).min(end);
        }
        if answer.at == answer.end {
            columns.next_offset = answer.next_offset.min(end);
        }
        Ok(columns)
    }

    /// True if the node reads `next_offset` from its own disk, so that an empty answer means an
    /// empty log there.
    fn is_local(&self, retry: &Retry<'_>) -> Result<bool, KafkaError> {
        let connection = self.connection.as_ref().expect("it just answered");
        let api = messages::LIST_OFFSETS.at_least(8).at_most(8);
        if connection.version(api).is_err() {
            return Ok(true); // older than tiered storage
        }
        let encode = |e: &mut Vec<u8>, _: i16| {
            messages::cluster::encode_list_offsets(
                e,
                &self.topic,
                &[self.partition],
                EARLIEST_LOCAL,
                false,
            );
        };
        let decode = |r: &mut Reader<'_>, _: i16| messages::cluster::decode_list_offsets(r);
        let (answers, _) = retry.call(connection.address(), api, encode, decode)?;
        let local_start = answers
            .into_iter()
            .find(|(partition, error_code, _)| (*partition, *error_code) == (self.partition, 0));
        Ok(local_start.is_some_and(|(.., offset)| offset <= self.next_offset))
    }

    fn damaged(&self, offset: i64, what: &str) -> KafkaError {
        KafkaError::refused(
            codes::CORRUPT_MESSAGE,
            format!(
                "the batch of {}-{} at offset {offset} cannot be read: {what}; verify the log on its node",
                self.topic, self.partition
            ),
        )
    }

    /// Of a batch whose bytes are as they were sent.
    fn unreadable(&self, batch: &Header, reason: &str) -> KafkaError {
        let (topic, partition) = (&self.topic, self.partition);
        KafkaError::refused(
            codes::CORRUPT_MESSAGE,
            format!(
                "the batch of {topic}-{partition} at offset {} cannot be read: {reason}. To go on \
                 without it start at offset {}, or delete the records before that",
                batch.base_offset(),
                batch.last_offset().saturating_add(1)
            ),
        )
    }

    fn answered(&self, retry: &Retry<'_>, error_code: i16, node: &str) -> KafkaError {
        let subject = format!(
            "partition {}-{} at offset {}",
            self.topic, self.partition, self.next_offset
        );
        if error_code == codes::OFFSET_OUT_OF_RANGE {
            let detail = "records before the log's start were deleted, or the topic was made anew";
            return KafkaError::answered(error_code, node, "Fetch", &subject, Some(detail));
        }
        retry.topic_error(error_code, node, "Fetch", &self.topic, &subject)
    }

    fn no_answer_error(&self) -> KafkaError {
        let waited_ms = self.cluster.timeout().as_millis();
        KafkaError {
            message: format!(
                "every answer to Fetch for partition {}-{} at offset {} told nothing for {waited_ms} ms; if \
                 quotas throttle this client (consumer_byte_rate), raise them",
                self.topic, self.partition, self.next_offset
            ),
            code: codes::REQUEST_TIMED_OUT,
            is_retriable: true,
            is_other_protocol: false,
        }
    }

    fn out_of_range_error(&self, limit: i64) -> KafkaError {
        let waited_ms = self.cluster.timeout().as_millis();
        let (name, advice) = if self.selection.read_committed {
            (
                "last stable offset",
                "an open transaction holds it: end it, or find it with ListTransactions",
            )
        } else {
            ("high watermark", "its replicas are behind: bring them back")
        };
        KafkaError {
            message: format!(
                "{}-{} was to be read up to offset {}, but its {name} stayed at {limit} for {waited_ms} ms; {advice}",
                self.topic, self.partition, self.selection.end
            ),
            code: codes::REQUEST_TIMED_OUT,
            is_retriable: true,
            is_other_protocol: false,
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// The whole batches at the front of an answer.
struct Whole {
    bytes: usize,
    next_offset: i64,
    /// Bytes that the first batch after them needs.
    needed: i32,
}

/// The aborted transactions of one answer, followed batch by batch.
#[derive(Debug, Default)]
pub(crate) struct Aborted {
    /// (first offset, producer id) still ahead, by first offset.
    ahead: VecDeque<(i64, i64)>,
    /// Producers between the first offset of an aborted transaction and its marker.
    open: HashSet<i64>,
}

impl Aborted {
    /// From (producer id, first offset) as the node lists them.
    #[must_use]
    pub(crate) fn new(listed: Vec<(i64, i64)>) -> Self {
        let mut ahead: Vec<_> = listed
            .into_iter()
            .map(|(producer_id, first)| (first, producer_id))
            .collect();
        ahead.sort_unstable();
        Self {
            ahead: ahead.into(),
            open: HashSet::new(),
        }
    }

    /// True if the records of the next batch belong to an aborted transaction. Batches come by
    /// offset.
    pub(crate) fn covers(&mut self, batch: &BatchView<'_>) -> bool {
        while let Some(&(first, producer_id)) = self.ahead.front() {
            if first > batch.last_offset() {
                break;
            }
            self.open.insert(producer_id);
            self.ahead.pop_front();
        }
        if batch.is_control() {
            // Compaction may empty a marker's batch, keeping it for its producer's sake; then it marks nothing.
            if let Some((false, _)) = decode_marker(batch.records()) {
                self.open.remove(&batch.producer_id());
            }
            return false;
        }
        batch.is_transactional() && self.open.contains(&batch.producer_id())
    }
}
