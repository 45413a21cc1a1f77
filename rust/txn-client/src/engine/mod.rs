//! The native engine: a producer and a consumer as machines without I/O, and the thread that does
//! their I/O. `consumer` describes its machines itself.
//!
//! ```text
//!   Python ─ send, commit … ─► driver::Engine ── events ──► Producer (machines, below)
//!                                  ▲    │                      │ effects: connect, send, close
//!                       outcomes ──┘    └──── one I/O thread ◄─┘
//!
//!   Producer ─ Accumulator  batches per partition, sequences, deadlines
//!            ├ Transaction  identity, life of a transaction, coordinators
//!            ├ Topics       leaders, and records whose partition is not known yet
//!            └ Nodes        connections, back-off, requests in flight
//! ```
//!
//! A machine knows neither socket nor clock. Time comes in as milliseconds of any origin, and a
//! request goes out as a value (`Request`). So `simulation` can lose, delay and cut at will, with a
//! model of the brokers.
//!
//! # Invariants
//! 1. Per partition and identity, batches are stored in the order of their sequences, without a gap.
//!    After a failure the partition sends nothing until everything in flight of it is answered.
//! 2. A batch with a sequence is never sent under another identity while it may be stored already.
//! 3. A partition's batches in flight are on one connection, and within five of its oldest
//!    unacknowledged one: so many does a node remember.
//! 4. A commit is asked for after every record is acknowledged and every offset is accepted; an abort
//!    after every request that could reopen the transaction is answered or can no longer count.
//! 5. Every record is delivered or given up within `delivery.timeout.ms`.
//!
//! Sources: KIP-98, KIP-360 (new epochs), KIP-447, KIP-480, KIP-890 (transaction version 2).

pub(crate) mod accumulator;
#[cfg(test)]
mod accumulator_tests;
pub mod consumer;
pub mod driver;
mod link;
pub(crate) mod nodes;
pub mod producer;
pub mod request;
pub mod settings;
#[cfg(test)]
mod simulation;
mod splitting;
pub(crate) mod topics;
pub(crate) mod transaction;

pub use accumulator::{Record, Tracked};
pub use consumer::{Consumer, ConsumerSettings};
pub use driver::{ConsumerClient, Engine, Machine, ProducerClient, Unfinished};
pub use producer::{Awaited, Producer, SendError, Status};
pub use request::{Request, Response};
pub use settings::Settings;

use crate::connection::Address;
use crate::error::KafkaError;

/// Milliseconds of the driver's clock; the origin is its own.
pub type Millis = u64;

/// A node by its id; bootstrap addresses, whose ids are not known, count down from -1.
pub type NodeId = i32;

/// A request that a driver has to carry out.
#[derive(Debug)]
pub enum Effect {
    /// Connect to a node, then call `Producer::connected` or `Producer::disconnected`.
    Connect {
        /// The node.
        node: NodeId,
        /// Where it listens.
        address: Address,
    },
    /// Send a request over the node's connection.
    Send {
        /// The node.
        node: NodeId,
        /// Number to hand back with the answer.
        id: u64,
        /// The request.
        request: Request,
    },
    /// Close the node's connection. Answers that still come from it are to be dropped.
    Close {
        /// The node.
        node: NodeId,
    },
}

/// Records that were not stored, as far as is known.
#[derive(Clone, Debug)]
pub struct DeliveryFailure {
    /// Topic name.
    pub topic: std::sync::Arc<str>,
    /// Partition; -1 if none was chosen.
    pub partition: i32,
    /// Number of records whose delivery is not reported one by one.
    pub records: u32,
    /// Bytes of the largest one's key and value.
    pub record_bytes: usize,
    /// The reason.
    pub error: KafkaError,
}

/// The end of records whose deliveries are reported one by one.
#[derive(Clone, Debug)]
pub struct Report {
    /// Topic name.
    pub topic: std::sync::Arc<str>,
    /// Partition; -1 if none was chosen.
    pub partition: i32,
    /// The records of one batch; never empty.
    pub records: Vec<Tracked>,
    /// Their end.
    pub outcome: Outcome,
}

/// The end of a record.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A node has stored its batch.
    Stored {
        /// Offset of the batch's first record; -1 if the node no longer remembers it.
        base_offset: i64,
        /// When the node appended it, in ms; -1 unless the topic has `LogAppendTime`.
        append_time_ms: i64,
    },
    /// It was not stored, as far as is known.
    Failed {
        /// The reason.
        error: KafkaError,
        /// Bytes of the key and value of the batch's largest record.
        record_bytes: usize,
    },
    /// An abort dropped it before it was sent, or the producer was closed.
    Dropped,
}
