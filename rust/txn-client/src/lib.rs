//! A small blocking Kafka client for rows as columns: the needs of Spark's source and sink, with
//! any Kafka ≥ 3.0.
//!
//! ```text
//!   Fetch   answer ─ batches ─ records ─► Columns (Arrow buffers) ─► Python
//!   Writer  Rows (Arrow buffers) ─ open batch ─ sealed batch ─► request, up to five in flight
//!   Client  topics, offsets, producer identities, the end of transactions ─ one request, one answer;
//!           requests that the caller encodes, sent to a node that the caller names
//!              └── all three: Cluster (leaders, coordinators, idle connections, retries) ─ Connection
//!                  Connection: frames ─ Transport: a socket, or TLS on one; Security: TLS and SASL
//! ```
//!
//! Errors that may pass are retried inside, everything else is a `KafkaError` with Kafka's code.
//! The reason that each repetition is safe stands where it happens: `client`, `writer`. Bytes from
//! the network are read by `txn_protocol` and by `txn_log`, which check every length; no row
//! becomes an object of its own.
#![forbid(unsafe_code)]

#[cfg(test)]
mod against_a_node;
#[cfg(test)]
mod against_slow_nodes;
#[cfg(test)]
mod against_tls;
pub mod client;
mod cluster;
pub mod columns;
mod connect;
mod connection;
pub mod engine;
pub mod error;
pub mod fetch;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod interrupt;
pub mod messages;
pub mod partitioner;
mod patience;
mod protocol_probe;
pub mod rows;
pub mod security;
mod transport;
pub mod writer;

pub use client::{Client, TopicInfo};
pub use connection::Address;
pub use error::KafkaError;
pub use interrupt::Interrupt;
pub use messages::ClientApi;
pub use messages::transactions::{Description, ProducerIdAndEpoch};
