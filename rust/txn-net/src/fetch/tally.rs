//! Whether a request has to wait.

use txn_protocol::codes;

use super::records::Readable;
use super::wanted::Readiness;

/// The bytes that a request finds, partition by partition, and whether it has to wait for more.
///
/// A reader in a segment that is complete is behind, so it does not wait for more bytes (Kafka,
/// `DelayedFetch`). Nor does one that learns of an error. Only a partition that its reader may not
/// see, or that does not exist, says nothing while there are others.
pub struct Tally {
    pub min_bytes: u64,
    pub max_bytes: u64,
    pub bytes: u64,
    pub is_ready: bool,
    /// Partitions that may still get records.
    pub is_any_read: bool,
}

impl Tally {
    pub fn add(&mut self, max_bytes: u64, readable: &Result<Readable<'_>, i16>) {
        match readable {
            Ok(readable) => {
                self.is_any_read = true;
                if readable.diverging.is_some()
                    || self.min_bytes > 1 && readable.log.is_behind(readable.start, readable.end)
                {
                    self.is_ready = true;
                } else {
                    let cap = max_bytes.min(self.max_bytes).max(1);
                    self.bytes += readable.bytes(self.min_bytes.min(cap));
                }
            }
            Err(
                codes::UNKNOWN_TOPIC_OR_PARTITION
                | codes::UNKNOWN_TOPIC_ID
                | codes::TOPIC_AUTHORIZATION_FAILED,
            ) => {}
            Err(_) => self.is_ready = true,
        }
    }

    pub fn readiness(&self) -> Readiness {
        let is_enough = self.bytes >= self.min_bytes.min(self.max_bytes.max(1));
        if self.is_ready || is_enough || !self.is_any_read {
            Readiness::Ready
        } else {
            Readiness::TooLittle
        }
    }
}
