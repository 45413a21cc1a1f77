//! Produce, versions 3 to 13: record batches from a frame into partitions.
//!
//! A request goes through three steps, each over the frame's own bytes:
//!
//! 1. [`ProduceRequest::parse`] reads the whole request before any byte of it is appended, so a
//!    frame that ends too soon changes nothing.
//! 2. [`ProduceRequest::append`] appends the pending batches, in the request's order. The log
//!    stamps offsets into the frame in place. A partition that has first to join the
//!    transaction stays pending; the reactor then parks the request and calls again. So do a
//!    compressed batch that is large inside, one that its topic's `compression.type` repacks, and
//!    all after it: the opener inspects them first. When its turn is over it stops between two
//!    batches, and the next call goes on there.
//! 3. [`ProduceRequest::encode`] writes the answer. If batches have to reach the disk first, or
//!    with `acks=all` the high watermark has to reach their end, it waits as a `DelayedProduce`, for
//!    at most the request's timeout.
//!
//! A partition's records are exactly one batch of format 2, as Kafka asks of these versions.
//!
//! # Deviations from Apache Kafka
//! - Bytes that follow the only batch of a partition are `INVALID_RECORD`; Kafka cuts them off.
//! - Compressed records that cannot be opened are `INVALID_RECORD` too, where Kafka fails with
//!   `UNKNOWN_SERVER_ERROR`, and `MESSAGE_TOO_LARGE` if they come to more than
//!   `CONTENT_BYTES_MAX` of the log, or those of a request to `REQUEST_CONTENT_BYTES_MAX`.
//!
//! Sources: `ProduceRequest.json`, `ProduceResponse.json`; KIP-98 (transactions), KIP-467 (error
//! messages), KIP-516 (topic ids), KIP-890 (joining by Produce 12, `TRANSACTION_ABORTABLE`).

mod answer;
mod append;
mod authorize;
mod request;
mod version;
mod write;

pub use append::{AppendProgress, Join, REPACKED_BYTES_MAX, Unopened};
pub use request::{ProduceRequest, Refused};

#[cfg(test)]
mod tests;
