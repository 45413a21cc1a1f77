//! One batch of a request to its partition's log.
//!
//! # Invariant
//! A batch is checked as Kafka does before any log is asked, and the partition leads while its log
//! appends.

use std::sync::Arc;

use txn_log::{AppendError, Appended, Isolation, Origin, PartitionLog};
use txn_protocol::batch::{BatchError, BatchView, Codec};
use txn_protocol::codes;

use super::append::REPACKED_BYTES_MAX;
use super::request::{AppendPass, AppendResult, Opened, PartitionData, ProduceFailure, Refusals};
use super::version::{code_for, has_topic_ids};
use crate::catalog::Topic;
use crate::delayed_produce::AppendedBatch;

/// The end of an attempt at a partition's batch.
pub(super) enum Attempt {
    Ended(AppendResult),
    /// The partition of this topic has first to join the transaction.
    Join(String),
    /// The opener has first to inspect it for this log.
    Uninspected(Arc<PartitionLog>),
}

/// The part of an append that is the same for every partition of a request.
#[derive(Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four facts that hold independently"
)]
pub(super) struct Writing<'a> {
    pub(super) version: i16,
    pub(super) origin: Origin,
    /// The partitions that the coordinator refused, after parking.
    pub(super) refused: Option<&'a Refusals>,
    pub(super) may_park: bool,
    pub(super) is_transactional: bool,
    pub(super) may_sync: bool,
    pub(super) wants_replicas: bool,
}

impl Writing<'_> {
    pub(super) fn write(
        self,
        topic: Option<&Topic>,
        partition: &mut PartitionData,
        body: &mut [u8],
        pass: &mut AppendPass,
    ) -> Attempt {
        match self.try_write(topic, partition, body, pass) {
            Ok(attempt) => attempt,
            Err(failure) => Attempt::Ended(AppendResult::Failed(ProduceFailure {
                code: code_for(self.version, failure.code),
                ..failure
            })),
        }
    }

    fn try_write(
        self,
        topic: Option<&Topic>,
        partition: &mut PartitionData,
        body: &mut [u8],
        pass: &mut AppendPass,
    ) -> Result<Attempt, ProduceFailure> {
        let Some(topic) = topic else {
            let code = if has_topic_ids(self.version) {
                codes::UNKNOWN_TOPIC_ID
            } else {
                codes::UNKNOWN_TOPIC_OR_PARTITION
            };
            return Err(ProduceFailure::new(code, None));
        };
        let failed = |code| ProduceFailure::new(code, None);
        let handle = topic.partition(partition.index).map_err(failed)?;
        let log = topic.log(partition.index).map_err(failed)?;
        if topic.is_internal {
            let message = format!(
                "Topic {} is internal; clients cannot write to it.",
                topic.name
            );
            return Err(ProduceFailure::new(
                codes::INVALID_TOPIC_EXCEPTION,
                Some(message),
            ));
        }
        self.check_refused(&topic.name, partition.index)?;
        let Some(range) = partition.records.clone() else {
            let message = "The partition's records are null; send exactly one batch.".to_owned();
            return Err(ProduceFailure::new(codes::INVALID_RECORD, Some(message)));
        };
        let batch = &mut body[range];
        let offsets = check_batch(self.version, batch)?;
        let mut inspected = match std::mem::replace(&mut partition.content, Opened::Not) {
            Opened::Not => None,
            Opened::Read(inspected) => Some(inspected),
            Opened::Unreadable(error) => return Err(self.refused(log, error)),
        };
        let leadership = handle.lead().map_err(failed)?;
        let leader_epoch = leadership.leader_epoch;
        let appended = log.append_within(self.origin, batch, &mut inspected, &mut pass.budget);
        drop(leadership);
        if appended.is_ok() {
            partition.appended_records = offsets as u32;
        }
        let appended = match appended {
            Err(AppendError::Duplicate { base_offset }) => Ok(Appended {
                base_offset,
                log_append_time: -1,
                log_start_offset: log.state().log_start_offset,
            }),
            appended => appended,
        };
        let appended = match appended {
            Ok(appended) => appended,
            Err(AppendError::Uninspected) => return Ok(Attempt::Uninspected(Arc::clone(log))),
            Err(AppendError::Join) if self.may_park => {
                let content = inspected.map_or(Opened::Not, Opened::Read);
                pass.kept += content.repacked_bytes();
                if pass.kept <= REPACKED_BYTES_MAX {
                    partition.content = content; // else it is opened once more
                }
                return Ok(Attempt::Join(topic.name.clone()));
            }
            Err(error) => return Err(self.refused(log, error)),
        };
        let end = appended.base_offset + offsets;
        let is_behind = || self.wants_replicas && log.readable_end(Isolation::HighWatermark) < end;
        let batch = (self.may_sync || is_behind()).then(|| AppendedBatch {
            partition: Arc::clone(handle),
            log: Arc::clone(log),
            end,
            leader_epoch,
            code_at: 0,
        });
        Ok(Attempt::Ended(AppendResult::Stored { appended, batch }))
    }

    fn check_refused(self, topic: &str, index: i32) -> Result<(), ProduceFailure> {
        match self.refused.and_then(|refused| refused.code(topic, index)) {
            None => Ok(()),
            Some(code) => Err(ProduceFailure::new(code, refusal_message(code))),
        }
    }

    /// The answer to a batch that was not appended.
    fn refused(self, log: &PartitionLog, error: AppendError) -> ProduceFailure {
        let mut bad_records = Vec::new();
        let (code, message) = match error {
            AppendError::Duplicate { .. } => unreachable!("its answer is that of the first"),
            AppendError::Uninspected => unreachable!("it is inspected and tried again"),
            AppendError::Join => (
                codes::INVALID_TXN_STATE,
                refusal_message(codes::INVALID_TXN_STATE),
            ),
            AppendError::Refused { code, message } => (code, Some(message)),
            AppendError::InvalidRecords {
                code,
                message,
                records,
            } => {
                bad_records = records;
                (code, Some(message))
            }
            AppendError::Corrupt { error } => (codes::CORRUPT_MESSAGE, Some(error.to_string())),
            AppendError::Io(error) => (codes::KAFKA_STORAGE_ERROR, Some(error.to_string())),
            AppendError::Closed => (codes::NOT_LEADER_OR_FOLLOWER, None),
        };
        // Kafka names the log start only where the log's producer state or records refuse.
        let is_alone = match code {
            codes::MESSAGE_TOO_LARGE | codes::CORRUPT_MESSAGE => true,
            codes::INVALID_PRODUCER_EPOCH => self.is_transactional,
            _ => false,
        };
        ProduceFailure {
            code,
            message,
            records: bad_records,
            log_start_offset: if is_alone {
                -1
            } else {
                log.state().log_start_offset
            },
        }
    }
}

/// Checks records as Kafka does before it looks at any log; returns the number of offsets they
/// take.
pub(super) fn check_batch(version: i16, records: &[u8]) -> Result<i64, ProduceFailure> {
    let invalid = |message: String| Err(ProduceFailure::new(codes::INVALID_RECORD, Some(message)));
    let batch = match BatchView::parse(records) {
        Ok(batch) => batch,
        Err(error @ BatchError::Length { .. }) => {
            return Err(ProduceFailure::new(
                codes::CORRUPT_MESSAGE,
                Some(error.to_string()),
            ));
        }
        Err(error) => return invalid(format!("{error}; send exactly one batch of format 2.")),
    };
    if batch.size() != records.len() {
        return invalid(format!(
            "The partition's records are {} bytes, its first batch {}; send exactly one batch.",
            records.len(),
            batch.size()
        ));
    }
    if version < 7 && batch.codec() == Ok(Codec::Zstd) {
        let message = format!("Produce version {version} knows no Zstandard; version 7 does.");
        return Err(ProduceFailure::new(
            codes::UNSUPPORTED_COMPRESSION_TYPE,
            Some(message),
        ));
    }
    Ok(i64::from(batch.last_offset_delta()) + 1)
}

fn refusal_message(code: i16) -> Option<String> {
    (code == codes::INVALID_TXN_STATE)
        .then(|| "The partition was not added to the transaction.".to_owned())
}
