//! The time that markers take after the answer to `EndTxn`, and requests that meet it.
//!
//! As Apache Kafka does it: `AddPartitionsToTxn` is refused at once, and `Produce` of version 2 is kept
//! by the leader for 20 ms (`add.partitions.to.txn.retry.backoff.ms`).

use txn_protocol::codes;

use super::{Millis, Request, Response};

const KEPT_MS: Millis = 20;

#[derive(Debug, Default)]
pub(super) struct Markers {
    /// The time that the markers of a transaction take.
    pub(super) take_ms: Millis,
    written_at: Millis,
    /// Number of `Produce` requests that were kept.
    pub(super) kept: u32,
    /// Number of `AddPartitionsToTxn` requests that were refused.
    pub(super) refused: u32,
}

impl Markers {
    /// What a request meets: a refusal, and the time for which the node keeps it.
    pub(super) fn meet(&mut self, request: &Request, now: Millis) -> (Option<Response>, Millis) {
        let are_written = now >= self.written_at;
        match request {
            Request::EndTxn { .. } => self.written_at = now + self.take_ms,
            Request::Produce { is_v2: true, .. } if !are_written => {
                self.kept += 1;
                return (None, KEPT_MS.max(self.written_at - now));
            }
            Request::AddPartitions { partitions, .. } if !are_written => {
                self.refused += 1;
                let code = codes::CONCURRENT_TRANSACTIONS;
                let refused = partitions.iter().map(|(t, p)| (t.to_string(), *p, code));
                return (Some(Response::Partitions(refused.collect())), 0);
            }
            _ => {}
        }
        (None, 0)
    }
}
