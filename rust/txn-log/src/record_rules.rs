//! Rules that a topic sets for every record of a batch, and the records that break them.
//!
//! A compacted topic needs keys. A client's record is held against
//! `message.timestamp.after.max.ms` and `message.timestamp.before.max.ms`; one without a timestamp
//! (-1) passes, and with `LogAppendTime` there is nothing to check. Only the broker may set
//! append times. A compressed record may have `max.decompressed.message.bytes`. A record has one fault:
//! the size comes before the key, and the key before the time.
//!
//! One bad record refuses its batch. The answer names every bad one, so that a client can send the
//! others again (KIP-467).
//!
//! Sources: Kafka, `LogValidator`; KIP-467, KIP-937.

use txn_protocol::batch::{BatchView, Codec};
use txn_protocol::codes;

use crate::content::RecordHead;
use crate::error::{AppendError, RefusedRecord};
use crate::producer_state::Origin;
use crate::settings::Settings;

/// The most bad records that the answer to one request names beyond the first of each batch. The
/// others count as good until they are sent again.
pub const NAMED_RECORDS_MAX: usize = 10_000;

const NO_TIMESTAMP: i64 = -1;

/// The rules for the records of one batch.
#[derive(Clone, Copy, Debug)]
pub struct RecordRules {
    needs_keys: bool,
    /// Every record's time is one that only the broker may set.
    has_append_times: bool,
    earliest_ms: i64,
    latest_ms: i64,
    /// The largest record that is opened.
    bytes_max: usize,
}

/// A record that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Its place in the batch, counted from 0.
    pub index: i32,
    /// The broken rule.
    pub fault: RecordFault,
}

/// The rule that a record breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// It has no key, and the topic is compacted.
    NoKey,
    /// Its timestamp, in ms, is too far before the broker's time.
    TooEarly(i64),
    /// Its timestamp, in ms, is too far after the broker's time.
    TooLate(i64),
    /// Its timestamp says that it is an append time.
    AppendTime,
    /// Its size without the batch's codec, in bytes, is over the limit.
    TooLarge(usize),
}

impl RecordRules {
    /// No rule at all.
    pub const NONE: Self = Self {
        needs_keys: false,
        has_append_times: false,
        earliest_ms: i64::MIN,
        latest_ms: i64::MAX,
        bytes_max: usize::MAX,
    };

    pub(crate) fn of(
        origin: Origin,
        batch: &BatchView<'_>,
        settings: &Settings,
        now_ms: i64,
    ) -> Self {
        let mut rules = Self {
            needs_keys: settings.is_compacted && !batch.is_control(),
            ..Self::NONE
        };
        if matches!(origin, Origin::Client { .. }) {
            if batch.codec() != Ok(Codec::None) {
                rules.bytes_max = settings.max_decompressed_message_bytes;
            }
            rules.has_append_times = batch.is_log_append_time();
            if !settings.log_append_time {
                rules.earliest_ms = now_ms.saturating_sub(settings.timestamp_before_max_ms);
                rules.latest_ms = now_ms.saturating_add(settings.timestamp_after_max_ms);
            }
        }
        rules
    }

    #[inline]
    pub(crate) fn fault(&self, record: &RecordHead, timestamp_ms: i64) -> Option<RecordFault> {
        if record.bytes > self.bytes_max {
            return Some(RecordFault::TooLarge(record.bytes));
        }
        if self.needs_keys && !record.has_key {
            return Some(RecordFault::NoKey);
        }
        if self.has_append_times {
            return Some(RecordFault::AppendTime);
        }
        if timestamp_ms > self.latest_ms {
            return Some(RecordFault::TooLate(timestamp_ms));
        }
        let is_early = timestamp_ms < self.earliest_ms && timestamp_ms != NO_TIMESTAMP;
        is_early.then_some(RecordFault::TooEarly(timestamp_ms))
    }

    /// Refuses a batch that has bad records.
    ///
    /// # Errors
    /// `InvalidRecords`, as `INVALID_TIMESTAMP` if any of them is bad for its time.
    pub(crate) fn refuse(&self, bad: &[BadRecord]) -> Result<(), AppendError> {
        if bad.is_empty() {
            return Ok(());
        }
        let is_for_time = bad
            .iter()
            .any(|one| !matches!(one.fault, RecordFault::NoKey | RecordFault::TooLarge(_)));
        let records: Vec<_> = bad
            .iter()
            .map(|&BadRecord { index, fault }| RefusedRecord {
                index,
                message: self.words(fault),
            })
            .collect();
        let first = &records[0];
        Err(AppendError::InvalidRecords {
            code: if is_for_time {
                codes::INVALID_TIMESTAMP
            } else {
                codes::INVALID_RECORD
            },
            message: format!(
                "the batch is refused for {} of its records; record {}: {}",
                records.len(),
                first.index,
                first.message
            ),
            records,
        })
    }

    fn words(&self, fault: RecordFault) -> String {
        match fault {
            RecordFault::NoKey => "a compacted topic takes no record without a key".to_owned(),
            RecordFault::AppendTime => {
                "clients may not set the timestamp type to LogAppendTime".to_owned()
            }
            RecordFault::TooLarge(bytes) => format!(
                "it has {bytes} bytes after decompression, more than \
                 max.decompressed.message.bytes={}",
                self.bytes_max
            ),
            RecordFault::TooLate(timestamp_ms) => format!(
                "its timestamp {timestamp_ms} is later than {}, the latest by \
                 message.timestamp.after.max.ms",
                self.latest_ms
            ),
            RecordFault::TooEarly(timestamp_ms) => format!(
                "its timestamp {timestamp_ms} is earlier than {}, the earliest by \
                 message.timestamp.before.max.ms",
                self.earliest_ms
            ),
        }
    }
}
