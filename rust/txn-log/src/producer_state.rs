//! The port through which a log asks the rules of its partition.
//!
//! The log knows bytes and offsets. The producer state knows the permitted producers, duplicates
//! and open transactions (`txn.partition` in Python). The log calls a producer state under the
//! partition's lock, so a producer state is never entered twice at once. A producer state never
//! calls a log.
//!
//! `admit` and `admit_marker` change the producer state at once. If the write that follows
//! fails, producer state and file disagree, and the log restores the producer state before it takes another batch.

use std::fmt;

use txn_protocol::batch::Header;

/// Where a batch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A coordinator of this broker; its batches are trusted.
    Coordinator,
    /// A client's Produce request.
    Client {
        /// 1: partitions join a transaction beforehand; 2: by their first batch (KIP-890).
        transaction_version: u8,
        /// Java's `hashCode` of the request's transactional id, where it has transactional
        /// batches.
        transactional_id_hash: Option<i32>,
    },
}

impl Origin {
    /// The number by which Python knows it: 0 coordinator, else the transaction version.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Coordinator => 0,
            Self::Client {
                transaction_version,
                ..
            } => transaction_version,
        }
    }

    /// Whose transaction a client's batch says it belongs to.
    #[must_use]
    pub fn transactional_id_hash(self) -> Option<i32> {
        match self {
            Self::Coordinator => None,
            Self::Client {
                transactional_id_hash,
                ..
            } => transactional_id_hash,
        }
    }
}

/// The facts about a data batch with a producer id that a producer state gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncomingBatch {
    /// The sender.
    pub origin: Origin,
    /// The base offset the batch will get.
    pub next_offset: i64,
    /// Not negative.
    pub producer_id: i64,
    /// As sent.
    pub producer_epoch: i16,
    /// As sent; -1 from coordinators.
    pub base_sequence: i32,
    /// At least 1.
    pub record_count: i32,
    /// The batch's largest timestamp, or the append time where the topic says so.
    pub max_timestamp_ms: i64,
    /// True if it belongs to a transaction.
    pub is_transactional: bool,
}

/// The end of a transaction, to be written as a control batch of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Not negative.
    pub producer_id: i64,
    /// The epoch that ends the transaction.
    pub producer_epoch: i16,
    /// Epoch of the coordinator that decided.
    pub coordinator_epoch: i32,
    /// Commit or abort.
    pub is_commit: bool,
    /// When it was decided.
    pub timestamp_ms: i64,
}

/// An aborted transaction: an entry of `.txnindex`. Offsets are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AbortedTxn {
    /// Whose it was.
    pub producer_id: i64,
    /// Offset of its first record.
    pub first_offset: i64,
    /// Offset of its abort marker.
    pub last_offset: i64,
    /// The last stable offset once the marker was written.
    pub last_stable_offset: i64,
}

/// The meaning of a stored batch for producers and transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// Data with a producer id, outside transactions.
    Idempotent,
    /// Data of a transaction.
    Transactional,
    /// The end of an aborted transaction.
    AbortMarker,
    /// The end of a committed transaction.
    CommitMarker,
}

impl BatchKind {
    /// The number by which Python knows it.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Idempotent => 0,
            Self::Transactional => 1,
            Self::AbortMarker => 2,
            Self::CommitMarker => 3,
        }
    }
}

/// A stored batch with a producer id, as recovery tells a producer state of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedBatch {
    /// Offset of its first record.
    pub base_offset: i64,
    /// Offset of its last record, inclusive.
    pub last_offset: i64,
    /// Not negative.
    pub producer_id: i64,
    /// As stored.
    pub producer_epoch: i16,
    /// As stored.
    pub base_sequence: i32,
    /// As stored.
    pub max_timestamp_ms: i64,
    /// Its kind.
    pub kind: BatchKind,
    /// Of markers; -1 for data.
    pub coordinator_epoch: i32,
}

impl ReplayedBatch {
    /// A batch with a producer id; a control batch comes with its marker: whether it commits,
    /// and the coordinator epoch.
    #[must_use]
    pub fn of(header: &Header, marker: Option<(bool, i32)>) -> Self {
        let kind = match marker {
            Some((true, _)) => BatchKind::CommitMarker,
            Some((false, _)) => BatchKind::AbortMarker,
            None if header.is_transactional() => BatchKind::Transactional,
            None => BatchKind::Idempotent,
        };
        Self {
            base_offset: header.base_offset(),
            last_offset: header.last_offset(),
            producer_id: header.producer_id(),
            producer_epoch: header.producer_epoch(),
            base_sequence: header.base_sequence(),
            max_timestamp_ms: header.max_timestamp(),
            kind,
            coordinator_epoch: marker.map_or(-1, |(_, epoch)| epoch),
        }
    }
}

/// A stored batch that a replay needs to know a producer as well as the producer state does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastBatch {
    /// Whose.
    pub producer_id: i64,
    /// The producer's newest epoch.
    pub producer_epoch: i16,
    /// The last offset of a data batch; `None`: the newest marker of that epoch.
    pub last_offset: Option<i64>,
}

/// A producer state's decision on one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmitResult {
    /// Write it.
    Admit {
        /// First offset of the oldest transaction that is open once it is written.
        first_unstable_offset: Option<i64>,
        /// The aborted transaction that this marker ends.
        aborted: Option<AbortedTxn>,
    },
    /// It is stored already.
    Duplicate {
        /// Where.
        base_offset: i64,
    },
    /// The partition has first to join the transaction; only for clients' batches.
    Join,
    /// It may not be written.
    Refuse {
        /// Kafka's error code.
        code: i16,
    },
}

/// A producer state that could not carry out a request; the text has the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerStateError(pub String);

impl fmt::Display for ProducerStateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProducerStateError {}

/// One partition's rules. Every method is called under the partition's lock.
pub trait ProducerStateManager: Send + Sync {
    /// Decides on a data batch with a producer id.
    ///
    /// A producer state that fails on the inside refuses with `UNKNOWN_SERVER_ERROR` (-1).
    fn admit(&self, candidate: &IncomingBatch) -> AdmitResult;

    /// Decides on a marker that would be written at `next_offset`.
    fn admit_marker(&self, next_offset: i64, marker: &Marker) -> AdmitResult;

    /// Forgets the aborted transactions that ended below an offset: their records are gone.
    fn forget_below(&self, log_start_offset: i64);

    /// Forgets the aborted transactions with these markers: compaction leaves nothing of them,
    /// and a reader told of one would wait for its marker.
    ///
    /// # Errors
    /// The log is not compacted.
    fn forget_aborted(&self, last_offsets: &[i64]) -> Result<(), ProducerStateError>;

    /// Lists the batches that compaction must not drop, since producers are known by them.
    ///
    /// # Errors
    /// The log is not compacted.
    fn last_batches(&self) -> Result<Vec<LastBatch>, ProducerStateError>;

    /// Encodes the producer state as the bytes of a `.snapshot` file.
    ///
    /// # Errors
    /// The log then goes on without this snapshot.
    fn snapshot(&self) -> Result<Vec<u8>, ProducerStateError>;

    /// Begins recovery: forgets everything, then loads a snapshot (`None`: empty) and the
    /// aborted transactions that ended before it.
    ///
    /// # Errors
    /// The snapshot is damaged; the log tries an older one.
    fn restore(
        &self,
        snapshot: Option<&[u8]>,
        aborted: &[AbortedTxn],
    ) -> Result<(), ProducerStateError>;

    /// Folds stored batches in, in order; returns the aborted transactions they complete.
    ///
    /// # Errors
    /// Opening the log fails.
    fn replay(&self, batches: &[ReplayedBatch]) -> Result<Vec<AbortedTxn>, ProducerStateError>;

    /// Recalls batches older than the snapshot, so that producers get their last five back.
    ///
    /// # Errors
    /// Opening the log fails.
    fn backfill(&self, batches: &[ReplayedBatch]) -> Result<(), ProducerStateError>;

    /// First offset of the oldest open transaction.
    ///
    /// # Errors
    /// Opening the log fails.
    fn first_unstable_offset(&self) -> Result<Option<i64>, ProducerStateError>;
}

/// The methods of a [`ProducerStateManager`] that keeps nothing over a start, for tests: all but
/// `admit` and `admit_marker`.
#[doc(hidden)]
#[macro_export]
macro_rules! stateless_producer_methods {
    () => {
        fn forget_below(&self, _: i64) {}

        fn forget_aborted(
            &self,
            _: &[i64],
        ) -> Result<(), $crate::producer_state::ProducerStateError> {
            Ok(())
        }

        fn last_batches(
            &self,
        ) -> Result<
            Vec<$crate::producer_state::LastBatch>,
            $crate::producer_state::ProducerStateError,
        > {
            Ok(Vec::new())
        }

        fn snapshot(&self) -> Result<Vec<u8>, $crate::producer_state::ProducerStateError> {
            Ok(Vec::new())
        }

        fn restore(
            &self,
            _: Option<&[u8]>,
            _: &[$crate::producer_state::AbortedTxn],
        ) -> Result<(), $crate::producer_state::ProducerStateError> {
            Ok(())
        }

        fn replay(
            &self,
            _: &[$crate::producer_state::ReplayedBatch],
        ) -> Result<
            Vec<$crate::producer_state::AbortedTxn>,
            $crate::producer_state::ProducerStateError,
        > {
            Ok(Vec::new())
        }

        fn backfill(
            &self,
            _: &[$crate::producer_state::ReplayedBatch],
        ) -> Result<(), $crate::producer_state::ProducerStateError> {
            Ok(())
        }

        fn first_unstable_offset(
            &self,
        ) -> Result<Option<i64>, $crate::producer_state::ProducerStateError> {
            Ok(None)
        }
    };
}
