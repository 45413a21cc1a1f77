//! Errors of a log, arranged by the failed operation.

use std::fmt;
use std::io;
use std::path::PathBuf;

use txn_protocol::batch::BatchError;
use txn_protocol::codes;

use crate::offsets::LogState;

/// A bad record in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRecord {
    /// Its place in the batch, counted from 0.
    pub index: i32,
    /// The fault and what to do.
    pub message: String,
}

/// Stored bytes that are damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorruptLog {
    /// The damaged file.
    pub path: PathBuf,
    /// The position of the damage in it.
    pub position: u64,
    /// The finding.
    pub reason: String,
}

impl fmt::Display for CorruptLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            position,
            reason,
        } = self;
        write!(
            f,
            "{} is damaged at byte {position}: {reason}",
            path.display()
        )
    }
}

impl std::error::Error for CorruptLog {}

/// Why a log could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Damage before the last batch.
    Corrupt(CorruptLog),
    /// The disk said no.
    Io(io::Error),
    /// The producer state could not take in the stored batches.
    ProducerStateManager(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt(corrupt) => corrupt.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::ProducerStateManager(reason) => {
                write!(f, "the partition's rules could not be recovered: {reason}")
            }
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<CorruptLog> for OpenError {
    fn from(corrupt: CorruptLog) -> Self {
        Self::Corrupt(corrupt)
    }
}

impl From<ReadError> for OpenError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => Self::Io(error),
            ReadError::Corrupt(corrupt) => Self::Corrupt(corrupt),
            other => Self::ProducerStateManager(other.to_string()),
        }
    }
}

/// Why a batch was not written.
#[derive(Debug)]
pub enum AppendError {
    /// It is stored already: answer success with this offset.
    Duplicate {
        /// Base offset of the stored batch.
        base_offset: i64,
    },
    /// The partition has first to join the transaction; append it again then.
    Join,
    /// It has first to be inspected: its records come to more bytes than the caller has the time
    /// to open, or they have to be packed by another codec. See `PartitionLog::append_within`.
    Uninspected,
    /// It may not be written.
    Refused {
        /// Kafka's error code.
        code: i16,
        /// The fault and what to do.
        message: String,
    },
    /// It may not be written for some of its records.
    InvalidRecords {
        /// Kafka's error code.
        code: i16,
        /// The first fault and what to do.
        message: String,
        /// The bad records, in order; some may be left out, never all.
        records: Vec<RefusedRecord>,
    },
    /// Its bytes are damaged.
    Corrupt {
        /// The fault.
        error: BatchError,
    },
    /// The disk failed; nothing was stored. Batches that follow are taken once it works again.
    Io(io::Error),
    /// The log is closed or deleted.
    Closed,
}

impl AppendError {
    /// Kafka's error code for it; 0 for `Duplicate`, and -1 for `Join` and `Uninspected`, which are
    /// no answers.
    #[must_use]
    pub fn code(&self) -> i16 {
        match self {
            Self::Duplicate { .. } => 0,
            Self::Join | Self::Uninspected => codes::UNKNOWN_SERVER_ERROR,
            Self::Refused { code, .. } | Self::InvalidRecords { code, .. } => *code,
            Self::Corrupt { .. } => codes::CORRUPT_MESSAGE,
            Self::Io(_) => codes::KAFKA_STORAGE_ERROR,
            Self::Closed => codes::NOT_LEADER_OR_FOLLOWER,
        }
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate { base_offset } => {
                write!(f, "the batch is stored already, at offset {base_offset}")
            }
            Self::Join => write!(f, "the partition has not joined the batch's transaction"),
            Self::Uninspected => write!(f, "the batch has first to be inspected"),
            Self::Refused { message, .. } | Self::InvalidRecords { message, .. } => {
                f.write_str(message)
            }
            Self::Corrupt { error } => write!(f, "{error}; send it again"),
            Self::Io(error) => write!(f, "the batch could not be written: {error}"),
            Self::Closed => write!(f, "the log is closed"),
        }
    }
}

impl std::error::Error for AppendError {}

/// Why nothing was read.
#[derive(Debug)]
pub enum ReadError {
    /// `start` is below the log start or above the log end.
    OutOfRange {
        /// The requested offset.
        start: i64,
        /// The log's state.
        state: LogState,
    },
    /// The disk said no.
    Io(io::Error),
    /// Stored bytes are damaged.
    Corrupt(CorruptLog),
    /// The log is closed or deleted.
    Closed,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { start, state } => write!(
                f,
                "offset {start} is out of range: the log holds [{}, {})",
                state.log_start_offset, state.log_end_offset
            ),
            Self::Io(error) => error.fmt(f),
            Self::Corrupt(corrupt) => corrupt.fmt(f),
            Self::Closed => write!(f, "the log is closed"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<CorruptLog> for ReadError {
    fn from(corrupt: CorruptLog) -> Self {
        Self::Corrupt(corrupt)
    }
}
