//! Logs for the unit tests of this crate.

use std::sync::Arc;

use txn_log::producer_state::{AdmitResult, IncomingBatch, Marker, ProducerStateManager};
use txn_log::{PartitionLog, Past, Settings};

/// The producer state of a log that takes nothing of producers.
pub struct Shut;

impl ProducerStateManager for Shut {
    fn admit(&self, _: &IncomingBatch) -> AdmitResult {
        AdmitResult::Refuse { code: -1 }
    }

    fn admit_marker(&self, _: i64, _: &Marker) -> AdmitResult {
        AdmitResult::Refuse { code: -1 }
    }

    txn_log::stateless_producer_methods!();
}

/// Empty logs in a directory that goes with this.
pub struct Logs(tempfile::TempDir);

impl Logs {
    pub fn new() -> Self {
        Self(tempfile::TempDir::new().unwrap())
    }

    pub fn open(&self, name: &str) -> Arc<PartitionLog> {
        let path = self.0.path().join(name);
        let log = PartitionLog::open(
            path,
            Arc::new(Shut),
            Settings::default(),
            None,
            Past::default(),
        );
        Arc::new(log.unwrap())
    }
}
