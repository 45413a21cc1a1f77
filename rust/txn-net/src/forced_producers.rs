//! The producers whose transactional batches reach the disk before they are acknowledged.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

/// A set of producer ids.
///
/// Reactors ask it after an append. A batch that was appended before its producer came in is
/// covered by the sync that follows the producer's entry.
#[derive(Default)]
pub struct ForcedProducers(RwLock<HashSet<i64>>);

impl ForcedProducers {
    /// Adds a producer, or removes it.
    pub fn set(&self, producer_id: i64, is_forced: bool) {
        let mut ids = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if is_forced {
            ids.insert(producer_id);
        } else {
            ids.remove(&producer_id);
        }
    }

    pub fn contains(&self, producer_id: i64) -> bool {
        let ids = self.0.read().unwrap_or_else(PoisonError::into_inner);
        ids.contains(&producer_id)
    }
}
