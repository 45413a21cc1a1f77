//! Whether the times of a client's records are near enough to the broker's own.
//!
//! `message.timestamp.after.max.ms` is held against the largest timestamp that the batch's header
//! tells. `message.timestamp.before.max.ms` has no limit by default; where it has one every
//! record is looked at, and a compressed batch is opened for it. Records without a timestamp
//! (-1) pass, and with `LogAppendTime` there is nothing to check.
//!
//! Source: KIP-937.

use crate::batch::BatchView;
use crate::compression::decompress;
use crate::error::{AppendError, code};
use crate::records::Records;
use crate::settings::Settings;

const NO_TIMESTAMP: i64 = -1;

/// Largest content of a compressed batch that is opened to see its timestamps.
const CONTENT_BYTES_MAX: usize = 64 << 20;

/// Checks a client's batch.
///
/// # Errors
/// `Refused`: `INVALID_TIMESTAMP`, or `INVALID_RECORD` if the records cannot be read.
pub(crate) fn check(
    batch: &BatchView<'_>,
    settings: &Settings,
    now_ms: i64,
) -> Result<(), AppendError> {
    if settings.log_append_time {
        return Ok(());
    }
    let latest = now_ms.saturating_add(settings.timestamp_after_max_ms);
    if batch.max_timestamp() > latest {
        return Err(refuse_timestamp(format!(
            "a record's timestamp {} is ahead of the broker's time {now_ms} by more than \
             message.timestamp.after.max.ms={}",
            batch.max_timestamp(),
            settings.timestamp_after_max_ms
        )));
    }
    let earliest = now_ms.saturating_sub(settings.timestamp_before_max_ms);
    if earliest <= 0 {
        return Ok(());
    }
    match smallest(batch)? {
        Some(timestamp) if timestamp < earliest => Err(refuse_timestamp(format!(
            "a record's timestamp {timestamp} is behind the broker's time {now_ms} by more than \
             message.timestamp.before.max.ms={}",
            settings.timestamp_before_max_ms
        ))),
        _ => Ok(()),
    }
}

/// The smallest timestamp of the batch's records; none if no record has one.
fn smallest(batch: &BatchView<'_>) -> Result<Option<i64>, AppendError> {
    let codec = batch.codec().map_err(|error| refuse_record(&error))?;
    let mut content = Vec::new();
    decompress(codec, batch.records(), &mut content, CONTENT_BYTES_MAX)
        .map_err(|error| refuse_record(&error))?;
    let mut found = None;
    for record in Records::new(&content, batch.record_count()) {
        let record = record.map_err(|error| refuse_record(&error))?;
        let timestamp = batch.base_timestamp().wrapping_add(record.timestamp_delta);
        if timestamp != NO_TIMESTAMP {
            found = Some(found.map_or(timestamp, |least: i64| least.min(timestamp)));
        }
    }
    Ok(found)
}

fn refuse_timestamp(message: String) -> AppendError {
    AppendError::Refused {
        code: code::INVALID_TIMESTAMP,
        message,
    }
}

fn refuse_record(error: &dyn std::fmt::Display) -> AppendError {
    AppendError::Refused {
        code: code::INVALID_RECORD,
        message: error.to_string(),
    }
}
