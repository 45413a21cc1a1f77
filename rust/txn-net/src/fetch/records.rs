//! The records of one partition for an answer: the offsets a reader may see, and where their bytes
//! lie.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use txn_log::{Isolation, LentFile, LogState, PartitionLog, ReadError, Role, can_lend_files};
use txn_protocol::codes;

use super::wanted::WantedPartition;
use crate::catalog::Topic;
use crate::partition::ReplicaState;

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

/// How one request reads each of its partitions.
pub struct Reading {
    pub is_read_committed: bool,
    /// The rest of [`OPENING_MAX`].
    pub opening: Cell<Duration>,
}

impl Reading {
    pub fn new(is_read_committed: bool) -> Self {
        Self {
            is_read_committed,
            opening: Cell::new(OPENING_MAX),
        }
    }

    /// The log of a partition, opened if there is time for it.
    pub fn log<'a>(&self, topic: &'a Topic, index: i32) -> Result<&'a Arc<PartitionLog>, i16> {
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

    /// The offsets that the reader of a partition may see.
    ///
    /// # Errors
    /// Kafka's error code of the partition.
    pub fn readable<'a>(
        &self,
        topic: &'a Topic,
        wanted: &WantedPartition,
    ) -> Result<Readable<'a>, i16> {
        let log = self.log(topic, wanted.index)?;
        topic
            .partition(wanted.index)?
            .check_leader(wanted.leader_epoch)?;
        let truncations = log.truncations(); // before the state that they may take back
        let state = log.state();
        let diverging = diverging_epoch(log, &state, wanted)?;
        let is_within = state.log_start_offset..=state.log_end_offset;
        if diverging.is_none() && !is_within.contains(&wanted.start) {
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
            diverging,
            lists_aborted: self.is_read_committed,
        })
    }
}

/// Where the epoch that a reader fetched last has ended here, if its own log went on beyond that.
///
/// # Errors
/// The epoch is unknown, or the reader is before the log start.
fn diverging_epoch(
    log: &PartitionLog,
    state: &LogState,
    wanted: &WantedPartition,
) -> Result<Option<(i32, i64)>, i16> {
    if wanted.last_fetched_epoch < 0 {
        return Ok(None);
    }
    let ended = log.end_of_epoch(wanted.last_fetched_epoch);
    let (epoch, end) = ended.ok_or(codes::OFFSET_OUT_OF_RANGE)?;
    if wanted.start < state.log_start_offset {
        return Err(codes::OFFSET_OUT_OF_RANGE);
    }
    let has_diverged = epoch < wanted.last_fetched_epoch || end < wanted.start;
    Ok(has_diverged.then_some((epoch, end)))
}

/// The record bytes that an answer may still take.
pub struct FetchBudget {
    bytes: u64,
    /// Bytes that may still be copied.
    copied: u64,
    /// Bytes that may still be verified for it.
    unchecked: u64,
    /// No partition has had records yet, so the next may exceed every limit by one batch.
    is_untouched: bool,
}

impl FetchBudget {
    pub fn new(max_bytes: u64, may_copy: bool) -> Self {
        Self {
            bytes: max_bytes,
            copied: if may_copy { COPIED_BYTES } else { 0 },
            unchecked: CHECKED_BYTES,
            is_untouched: true,
        }
    }
}

/// The offsets `[start, end)` of one partition that a request may see.
pub struct Readable<'a> {
    pub log: &'a Arc<PartitionLog>,
    truncations: u64,
    pub state: LogState,
    pub start: i64,
    pub end: i64,
    /// The reader's log is another's from this epoch and offset on: it gets no records.
    pub diverging: Option<(i32, i64)>,
    lists_aborted: bool,
}

/// One partition's part of an answer.
pub struct FetchedPartition {
    pub state: LogState,
    /// `(producer_id, first_offset)` of the aborted transactions in the records; `None` for a reader that
    /// wants none.
    pub aborted: Option<Vec<(i64, i64)>>,
    pub diverging: Option<(i32, i64)>,
    pub records: FetchRecords,
}

pub enum FetchRecords {
    None,
    Copied(Vec<u8>),
    InFile {
        file: LentFile,
        position: u64,
        len: usize,
    },
}

impl FetchRecords {
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Copied(bytes) => bytes.len(),
            Self::InFile { len, .. } => *len,
        }
    }
}

impl Readable<'_> {
    /// Estimates its bytes, at most `cap`; exact as to whether there are any.
    pub fn bytes(&self, cap: u64) -> u64 {
        if self.start >= self.end {
            0
        } else if cap <= 1 {
            1
        } else {
            self.log.available(self.start, self.end, cap).max(1)
        }
    }

    /// Locates its records.
    ///
    /// # Errors
    /// Kafka's error code of the partition.
    pub fn found(self, max_bytes: u64, room: &mut FetchBudget) -> Result<FetchedPartition, i16> {
        let Self {
            log,
            truncations,
            state,
            start,
            end,
            diverging,
            lists_aborted,
        } = self;
        let max_bytes = max_bytes.min(room.bytes);
        let found = |records, aborted: Vec<(i64, i64)>| FetchedPartition {
            state,
            aborted: (lists_aborted && diverging.is_none()).then_some(aborted),
            diverging,
            records,
        };
        if diverging.is_some() || start >= end || (max_bytes == 0 && !room.is_untouched) {
            return Ok(found(FetchRecords::None, Vec::new()));
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
            return Ok(found(FetchRecords::None, Vec::new()));
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
            None if !is_copied && !room.is_untouched => {
                return Ok(found(FetchRecords::None, Vec::new()));
            }
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
        let aborted = if lists_aborted {
            log.aborted_in(start, end)
        } else {
            Vec::new()
        };
        // A truncation may have taken the marker of a transaction in the records, and its entry.
        if log.truncations() != truncations {
            return Err(codes::NOT_LEADER_OR_FOLLOWER);
        }
        Ok(found(records, aborted))
    }
}

/// True for an error after which a client looks for another leader.
pub fn names_leader(code: i16) -> bool {
    matches!(
        code,
        codes::NOT_LEADER_OR_FOLLOWER | codes::FENCED_LEADER_EPOCH
    )
}

/// The epoch in which this node leads a partition.
pub fn led_epoch(topic: &Topic, index: i32) -> Option<i32> {
    match topic.partition(index).ok()?.state()? {
        ReplicaState::Online {
            role: Role::SoleReplica | Role::Leader,
            leader_epoch,
        } => Some(leader_epoch),
        ReplicaState::Online { .. } | ReplicaState::Offline => None,
    }
}
