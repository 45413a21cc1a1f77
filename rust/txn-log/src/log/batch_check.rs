//! Checks of a batch that need neither the partition's lock nor the producer state.

use txn_protocol::batch;
use txn_protocol::batch::{BatchError, BatchView, Codec, Header};
use txn_protocol::codes;
use txn_protocol::records::RecordError;

use crate::compression::CompressionError;
use crate::content;
use crate::content::{AppendBudget, Content, ContentError};
use crate::error::{AppendError, RefusedRecord};
use crate::producer_state::Origin;
use crate::record_rules::RecordRules;
use crate::repacking::Inspected;
use crate::segment::now_ms;
use crate::settings::Settings;

/// The most bytes that compressed records of one batch may come to, unless `max.message.bytes`
/// is more: the limit of librdkafka for a zstd batch (`receive.message.max.bytes`).
pub const CONTENT_BYTES_MAX: usize = 100_000_000;

/// Size to which the compressed records of a batch to be stored may open.
pub(super) fn content_bytes_max(settings: &Settings) -> usize {
    CONTENT_BYTES_MAX.max(settings.max_message_bytes)
}

/// Checks everything about a batch that needs neither lock nor producer state. Returns its header
/// with the largest timestamp of its records, and the facts about them.
pub(super) fn check_batch<'i>(
    origin: Origin,
    bytes: &[u8],
    settings: &Settings,
    inspected: &'i mut Option<Inspected>,
    budget: &mut AppendBudget,
) -> Result<&'i mut Inspected, AppendError> {
    let refuse = |code: i16, message: String| Err(AppendError::Refused { code, message });
    let invalid = |message: &str| refuse(codes::INVALID_RECORD, message.to_owned());
    let is_client = matches!(origin, Origin::Client { .. });
    if is_client && bytes.len() > settings.max_message_bytes {
        return Err(refuse_size(bytes.len(), settings.max_message_bytes));
    }
    let batch = BatchView::parse(bytes).map_err(refuse_batch)?;
    if batch.size() != bytes.len() {
        return invalid("there are bytes behind the batch; send exactly one batch per partition");
    }
    batch.validate().map_err(refuse_batch)?;
    if batch.record_count() < 1 || batch.record_count() - 1 != batch.last_offset_delta() {
        return invalid("the batch's record count does not fit its last offset delta");
    }
    if batch.producer_id() < 0 && batch.is_transactional() {
        return invalid("the batch belongs to a transaction but has no producer id");
    }
    if is_client && batch.is_control() {
        return invalid("clients may not write control records");
    }
    if is_client && batch.base_offset() != 0 {
        return invalid("the batch's base offset is not 0");
    }
    let rules = RecordRules::of(origin, &batch, settings, now_ms());
    let known = match inspected.take() {
        Some(known) => known,
        None if is_client && settings.compression_for(&batch).is_some() => {
            return Err(AppendError::Uninspected);
        }
        None => {
            let content = open_within(&batch, &rules, settings, budget)?;
            if is_client && content.is_joined {
                return Err(AppendError::Uninspected);
            }
            let repacked = None;
            Inspected { content, repacked }
        }
    };
    let known = inspected.insert(known);
    rules.refuse(&known.content.bad)?;
    Ok(known)
}

/// The header of the bytes to store, which tells the largest timestamp of the records.
pub(super) fn header_of(bytes: &mut [u8], latest_ms: i64) -> Header {
    let header = Header::parse(bytes).expect("it was parsed before");
    if header.max_timestamp() == latest_ms {
        return header;
    }
    batch::stamp_max_timestamp(bytes, latest_ms);
    Header::parse(bytes).expect("it was parsed before")
}

/// Reads a batch's records, compressed ones within the budget.
fn open_within(
    batch: &BatchView<'_>,
    rules: &RecordRules,
    settings: &Settings,
    budget: &mut AppendBudget,
) -> Result<Content, AppendError> {
    let cap = content_bytes_max(settings);
    let is_short = budget.bytes < cap;
    if is_short && batch.codec() != Ok(Codec::None) && batch.records().len() > budget.bytes {
        return Err(AppendError::Uninspected); // it hardly has less inside
    }
    let mut opened = 0;
    let cap = cap.min(budget.bytes);
    let found = content::inspect(batch, rules, cap, &mut opened, &mut budget.names);
    budget.bytes = budget.bytes.saturating_sub(opened);
    found.map_err(|error| match error {
        ContentError::Compression(CompressionError::TooLarge { .. }) if is_short => {
            AppendError::Uninspected
        }
        error => refuse_content(batch, &error),
    })
}

/// The message to a client about a batch that is too large.
pub(crate) fn refuse_size(bytes: usize, bytes_max: usize) -> AppendError {
    AppendError::Refused {
        code: codes::MESSAGE_TOO_LARGE,
        message: format!("the batch has {bytes} bytes, more than max.message.bytes={bytes_max}"),
    }
}

/// The message to a client about a batch whose content nobody could read.
pub(crate) fn refuse_content(batch: &BatchView<'_>, error: &ContentError) -> AppendError {
    if let ContentError::Record(RecordError { index, reason }) = error
        && *index < batch.record_count()
    {
        return AppendError::InvalidRecords {
            code: codes::INVALID_RECORD,
            message: format!("the batch's records cannot be read: {error}"),
            records: vec![RefusedRecord {
                index: *index,
                message: format!("it cannot be read: {reason}"),
            }],
        };
    }
    let (code, message) = match error {
        ContentError::Compression(CompressionError::TooLarge { cap }) => (
            codes::MESSAGE_TOO_LARGE,
            format!(
                "the batch's records come to more than {cap} bytes after decompression; send \
                 fewer in a batch"
            ),
        ),
        ContentError::Codec(_) => (codes::UNSUPPORTED_COMPRESSION_TYPE, error.to_string()),
        ContentError::Compression(_) | ContentError::Record(_) => (
            codes::INVALID_RECORD,
            format!("the batch's records cannot be read: {error}"),
        ),
    };
    AppendError::Refused { code, message }
}

/// The message to a client about a batch whose bytes do not add up.
pub(crate) fn refuse_batch(error: BatchError) -> AppendError {
    let code = match error {
        BatchError::Truncated { .. } | BatchError::Length { .. } | BatchError::Crc { .. } => {
            return AppendError::Corrupt { error };
        }
        BatchError::Codec { .. } => codes::UNSUPPORTED_COMPRESSION_TYPE,
        BatchError::Magic { .. } | BatchError::Inconsistent { .. } => codes::INVALID_RECORD,
    };
    AppendError::Refused {
        code,
        message: error.to_string(),
    }
}
