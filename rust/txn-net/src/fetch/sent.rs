//! The offsets that answers tell, as sessions remember them.

use txn_log::LogState;

use super::records::FetchedPartition;

/// The offsets of a partition in an answer, by which a session knows whether they change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentOffsets {
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
}

impl SentOffsets {
    /// The offsets of a partition with an error. They equal no others, so an answer has the
    /// partition again when the error is over.
    pub const NONE: Self = Self {
        high_watermark: -1,
        last_stable_offset: -1,
        log_start_offset: -1,
    };
}

impl From<&LogState> for SentOffsets {
    fn from(state: &LogState) -> Self {
        Self {
            high_watermark: state.high_watermark,
            last_stable_offset: state.last_stable_offset,
            log_start_offset: state.log_start_offset,
        }
    }
}

/// A partition of a session in an answer.
pub struct SentPartition {
    /// Its place in the session.
    pub slot: u32,
    pub offsets: SentOffsets,
    pub has_records: bool,
}

impl SentPartition {
    pub fn new(slot: u32, result: &Result<FetchedPartition, i16>) -> Self {
        match result {
            Ok(found) => Self {
                slot,
                offsets: SentOffsets::from(&found.state),
                has_records: found.records.len() > 0,
            },
            Err(_) => Self {
                slot,
                offsets: SentOffsets::NONE,
                has_records: false,
            },
        }
    }
}
