//! True if the times of a client's records are near enough to the broker's own.
//!
//! Every record is held against `message.timestamp.after.max.ms` and, where it has a limit,
//! `message.timestamp.before.max.ms`; so is the largest timestamp that the batch's header tells.
//! Records without a timestamp (-1) pass, and with `LogAppendTime` there is nothing to check.
//!
//! Source: KIP-937.

use txn_protocol::batch::BatchView;
use txn_protocol::codes;

use crate::content::Content;
use crate::error::AppendError;
use crate::settings::Settings;

const NO_TIMESTAMP: i64 = -1;

/// Checks a client's batch.
///
/// # Errors
/// `Refused`: `INVALID_TIMESTAMP`.
pub(crate) fn check(
    batch: &BatchView<'_>,
    content: &Content,
    settings: &Settings,
    now_ms: i64,
) -> Result<(), AppendError> {
    if settings.log_append_time {
        return Ok(());
    }
    let latest = now_ms.saturating_add(settings.timestamp_after_max_ms);
    let told = batch.max_timestamp().max(content.latest_ms);
    if told > latest {
        return Err(refuse_timestamp(format!(
            "a record's timestamp {told} is ahead of the broker's time {now_ms} by more than \
             message.timestamp.after.max.ms={}",
            settings.timestamp_after_max_ms
        )));
    }
    let earliest = now_ms.saturating_sub(settings.timestamp_before_max_ms);
    if earliest <= 0 {
        return Ok(());
    }
    if content.earliest_ms == NO_TIMESTAMP || content.earliest_ms >= earliest {
        return Ok(());
    }
    Err(refuse_timestamp(format!(
        "a record's timestamp {} is behind the broker's time {now_ms} by more than \
         message.timestamp.before.max.ms={}",
        content.earliest_ms, settings.timestamp_before_max_ms
    )))
}

fn refuse_timestamp(message: String) -> AppendError {
    AppendError::Refused {
        code: codes::INVALID_TIMESTAMP,
        message,
    }
}
