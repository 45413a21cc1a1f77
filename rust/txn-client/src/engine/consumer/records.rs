//! From the bytes of a `Fetch` to records: whole batches, committed ones, one record after another.
//!
//! A record is a place in bytes that all records of its batch share, so none is copied. Bytes are
//! decompressed when the first record of their batch is due, and not before.

use std::sync::Arc;

use txn_log::compression::{self, CompressionError};
use txn_protocol::batch::{BatchError, BatchView, Codec};
use txn_protocol::records::{Records, read_nullable};

use super::Place;
use crate::columns::BATCH_BYTES_MAX;
use crate::fetch::Aborted;

/// The number for "null" in a `Span`.
const NULL: u32 = u32::MAX;

/// Where a record's parts are in the bytes of its batch.
#[derive(Clone, Copy, Debug)]
struct Span {
    offset_delta: i32,
    timestamp_delta: i64,
    key: (u32, u32),
    value: (u32, u32),
    headers: (u32, u32),
    header_count: u32,
}

/// What the records of a batch have in common.
#[derive(Debug)]
struct Batch {
    topic: Arc<str>,
    partition: i32,
    bytes: Arc<Vec<u8>>,
    base_offset: i64,
    base_timestamp: i64,
    append_time: Option<i64>,
    leader_epoch: i32,
}

/// One record that was read. It keeps the bytes of its batch alive.
#[derive(Clone, Debug)]
pub struct Message {
    batch: Arc<Batch>,
    span: Span,
}

impl Message {
    /// Topic.
    #[must_use]
    pub fn topic(&self) -> &Arc<str> {
        &self.batch.topic
    }

    /// Partition.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.batch.partition
    }

    /// Offset.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.batch.base_offset + i64::from(self.span.offset_delta)
    }

    /// Leader epoch of its batch.
    #[must_use]
    pub fn leader_epoch(&self) -> i32 {
        self.batch.leader_epoch
    }

    /// (true if the log has set it, milliseconds since 1970).
    #[must_use]
    pub fn timestamp(&self) -> (bool, i64) {
        let sent = self.batch.base_timestamp;
        let sent = sent.wrapping_add(self.span.timestamp_delta);
        (
            self.batch.append_time.is_some(),
            self.batch.append_time.unwrap_or(sent),
        )
    }

    /// Key.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.part(self.span.key)
    }

    /// Value.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.part(self.span.value)
    }

    /// Number of headers.
    #[must_use]
    pub fn header_count(&self) -> usize {
        self.span.header_count as usize
    }

    /// Headers: name and content.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut rest = self.part(self.span.headers).unwrap_or_default();
        (0..self.span.header_count).map_while(move |_| {
            let name = read_nullable(&mut rest).ok()??;
            Some((name, read_nullable(&mut rest).ok()?))
        })
    }

    /// Bytes of key, value and headers.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of = |(start, end): (u32, u32)| (end - start) as usize;
        of(self.span.key) + of(self.span.value) + of(self.span.headers)
    }

    fn part(&self, (start, end): (u32, u32)) -> Option<&[u8]> {
        (start != NULL).then(|| &self.batch.bytes[start as usize..end as usize])
    }
}

/// An answer for one partition, and how far it was read.
#[derive(Debug)]
pub(super) struct Chunk {
    place: Place,
    bytes: Arc<Vec<u8>>,
    /// Where the next batch starts, and where the last whole one ends.
    at: usize,
    end: usize,
    aborted: Aborted,
    /// (offset behind the last batch that was opened, its leader epoch).
    behind: Option<(i64, i32)>,
    batch: Option<Arc<Batch>>,
    spans: Vec<Span>,
    next_span: usize,
}

/// The whole batches of an answer.
pub(super) struct Whole {
    /// Their bytes.
    pub(super) bytes: usize,
    /// The offset behind them.
    pub(super) next_offset: i64,
    /// Bytes that the batch after them has, if it is cut.
    pub(super) needed: usize,
}

/// Finds the whole batches of an answer by their headers.
pub(super) fn scan(records: &[u8], mut next_offset: i64) -> Result<Whole, String> {
    let mut bytes = 0;
    loop {
        match BatchView::parse(&records[bytes..]) {
            Ok(batch) => {
                bytes += batch.size();
                next_offset = next_offset.max(batch.last_offset().saturating_add(1));
            }
            Err(BatchError::Truncated { needed, .. }) => {
                let is_cut = bytes < records.len();
                return Ok(Whole {
                    bytes,
                    next_offset,
                    needed: if is_cut { needed } else { 0 },
                });
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

impl Chunk {
    pub(super) fn new(
        place: Place,
        bytes: Arc<Vec<u8>>,
        end: usize,
        aborted: Vec<(i64, i64)>,
    ) -> Self {
        Self {
            place,
            bytes,
            at: 0,
            end,
            aborted: Aborted::new(aborted),
            behind: None,
            batch: None,
            spans: Vec::new(),
            next_span: 0,
        }
    }

    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// (offset behind the batches that were read, leader epoch of the last one); `None` if there was
    /// none. A marker and an aborted batch count: no reader is shown what is in them.
    pub(super) fn behind(&self) -> Option<(i64, i32)> {
        self.behind
    }

    /// The next record at or after an offset; None: there is none left.
    ///
    /// # Errors
    /// The offset behind a batch that cannot be read, and why.
    pub(super) fn next(
        &mut self,
        from: i64,
        bytes_max: usize,
    ) -> Result<Option<Message>, (i64, String)> {
        loop {
            if let Some(batch) = &self.batch {
                while let Some(&span) = self.spans.get(self.next_span) {
                    self.next_span += 1;
                    if batch.base_offset + i64::from(span.offset_delta) >= from {
                        let batch = Arc::clone(batch);
                        return Ok(Some(Message { batch, span }));
                    }
                }
                self.batch = None;
            }
            if self.at >= self.end {
                return Ok(None);
            }
            self.open_batch(from, bytes_max)?;
        }
    }

    /// Opens the next batch, if it has something to show.
    fn open_batch(&mut self, from: i64, bytes_max: usize) -> Result<(), (i64, String)> {
        let bytes = Arc::clone(&self.bytes);
        let batch = BatchView::parse(&bytes[self.at..self.end]).expect("`scan` found it whole");
        self.at += batch.size();
        let behind = batch.last_offset().saturating_add(1);
        batch.validate_crc().map_err(|e| (behind, e.to_string()))?;
        self.behind = Some((behind, batch.leader_epoch()));
        if self.aborted.covers(&batch) || batch.is_control() || behind <= from {
            return Ok(());
        }
        let content = content(&batch, &bytes, bytes_max).map_err(|e| (behind, e))?;
        let (shared, start, end) = content;
        self.spans.clear();
        self.next_span = 0;
        read_spans(&batch, &shared, start, end, &mut self.spans).map_err(|e| (behind, e))?;
        self.batch = Some(Arc::new(Batch {
            topic: Arc::clone(&self.place.0),
            partition: self.place.1,
            bytes: shared,
            base_offset: batch.base_offset(),
            base_timestamp: batch.base_timestamp(),
            append_time: batch.is_log_append_time().then(|| batch.max_timestamp()),
            leader_epoch: batch.leader_epoch(),
        }));
        Ok(())
    }
}

/// The uncompressed records of a batch: in the answer itself, or in bytes of their own.
fn content(
    batch: &BatchView<'_>,
    answer: &Arc<Vec<u8>>,
    bytes_max: usize,
) -> Result<(Arc<Vec<u8>>, usize, usize), String> {
    let codec = batch.codec().map_err(|e| e.to_string())?;
    if codec == Codec::None {
        let start = place_in(answer, batch.records());
        let start = start.ok_or("its records are not in the answer")? as usize;
        return Ok((Arc::clone(answer), start, start + batch.records().len()));
    }
    let mut opened = Vec::new();
    let bytes_max = bytes_max.min(BATCH_BYTES_MAX);
    let done = compression::decompress(codec, batch.records(), &mut opened, bytes_max);
    done.map_err(|error| match error {
        CompressionError::TooLarge { .. } => {
            format!("{error}, which fetch.batch.bytes allows")
        }
        CompressionError::Damaged { .. } => error.to_string(),
    })?;
    let end = opened.len();
    Ok((Arc::new(opened), 0, end))
}

fn read_spans(
    batch: &BatchView<'_>,
    bytes: &[u8],
    start: usize,
    end: usize,
    spans: &mut Vec<Span>,
) -> Result<(), String> {
    let span_of = |part: Option<&[u8]>| {
        let start = part.and_then(|part| place_in(bytes, part)).unwrap_or(NULL);
        let length = part.map_or(0, <[u8]>::len) as u32;
        (start, start.saturating_add(length))
    };
    for record in Records::new(&bytes[start..end], batch.record_count()) {
        let record = record.map_err(|e| e.to_string())?;
        if !(0..=batch.last_offset_delta()).contains(&record.offset_delta) {
            let delta = record.offset_delta;
            return Err(format!(
                "a record's offset delta is {delta}, outside the batch"
            ));
        }
        spans.push(Span {
            offset_delta: record.offset_delta,
            timestamp_delta: record.timestamp_delta,
            key: span_of(record.key),
            value: span_of(record.value),
            headers: span_of(Some(record.headers.bytes())),
            header_count: record.headers.len() as u32,
        });
    }
    Ok(())
}

/// Where a part of `bytes` begins in them.
fn place_in(bytes: &[u8], part: &[u8]) -> Option<u32> {
    let start = (part.as_ptr() as usize).checked_sub(bytes.as_ptr() as usize)?;
    (start + part.len() <= bytes.len()).then_some(start as u32)
}
