//! The write health of a log: each append notes whether the disk took it.

use crate::error::AppendError;
use crate::log::PartitionLog;
use crate::write_health::HealthChange;

impl PartitionLog {
    /// The changes since the last call, oldest first: at most one write health and its end.
    #[must_use]
    pub fn take_write_health(&self) -> Vec<HealthChange> {
        self.write_health.take()
    }

    /// Notes the outcome of an append for the disk.
    pub(crate) fn note_outcome<T>(&self, outcome: &Result<T, AppendError>) {
        match outcome {
            Ok(_) => self.write_health.ended(),
            Err(AppendError::Io(error)) => self.write_health.began(error),
            Err(_) => {}
        }
    }
}
