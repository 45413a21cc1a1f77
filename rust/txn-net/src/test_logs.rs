//! Logs for the unit tests of this crate.

use std::sync::Arc;

use txn_log::producer_state::{
    AbortedTxn, AdmitResult, IncomingBatch, LastBatch, Marker, ProducerStateError,
    ProducerStateManager, ReplayedBatch,
};
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

    fn forget_below(&self, _: i64) {}

    fn forget_aborted(&self, _: &[i64]) -> Result<(), ProducerStateError> {
        Ok(())
    }

    fn last_batches(&self) -> Result<Vec<LastBatch>, ProducerStateError> {
        Ok(Vec::new())
    }

    fn snapshot(&self) -> Result<Vec<u8>, ProducerStateError> {
        Ok(Vec::new())
    }

    fn restore(&self, _: Option<&[u8]>, _: &[AbortedTxn]) -> Result<(), ProducerStateError> {
        Ok(())
    }

    fn replay(&self, _: &[ReplayedBatch]) -> Result<Vec<AbortedTxn>, ProducerStateError> {
        Ok(Vec::new())
    }

    fn backfill(&self, _: &[ReplayedBatch]) -> Result<(), ProducerStateError> {
        Ok(())
    }

    fn first_unstable_offset(&self) -> Result<Option<i64>, ProducerStateError> {
        Ok(None)
    }
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
