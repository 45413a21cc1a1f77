//! The producer state of these tests: transactions join by producer id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use txn_log::producer_state::{
    AbortedTxn, AdmitResult, IncomingBatch, Marker, ProducerStateManager,
};

/// Transactions join by producer id; sequences are not looked at, but one.
#[derive(Default)]
pub struct Rules(pub Mutex<Known>);

#[derive(Default)]
pub struct Known {
    pub joined: BTreeSet<i64>,
    pub open: BTreeMap<i64, i64>,
    pub aborted: Vec<(i64, i64, i64)>,
    /// Called once, when the next batch of a producer comes.
    pub on_admit: Option<Box<dyn FnOnce() + Send>>,
}

/// A producer whose every batch is a duplicate of offset 99.
pub const REPEATER: i64 = 999;

/// A producer whose every batch is out of order.
pub const JUMPER: i64 = 998;

/// A producer whose every batch meets a bug.
pub const BREAKER: i64 = 997;

impl ProducerStateManager for Rules {
    fn admit(&self, candidate: &IncomingBatch) -> AdmitResult {
        let mut known = self.0.lock().unwrap();
        if let Some(called) = known.on_admit.take() {
            called();
        }
        match candidate.producer_id {
            REPEATER => return AdmitResult::Duplicate { base_offset: 99 },
            BREAKER => panic!("a bug of the producer_state"),
            JUMPER => return AdmitResult::Refuse { code: 45 },
            id if candidate.is_transactional && !known.joined.contains(&id) => {
                return AdmitResult::Join;
            }
            id if candidate.is_transactional => {
                known.open.entry(id).or_insert(candidate.next_offset);
            }
            _ => {}
        }
        AdmitResult::Admit {
            first_unstable_offset: known.open.values().min().copied(),
            aborted: None,
        }
    }

    fn admit_marker(&self, next_offset: i64, marker: &Marker) -> AdmitResult {
        let mut known = self.0.lock().unwrap();
        let first_offset = known.open.remove(&marker.producer_id).unwrap();
        let first_unstable_offset = known.open.values().min().copied();
        let aborted = (!marker.is_commit).then(|| {
            known
                .aborted
                .push((marker.producer_id, first_offset, next_offset));
            AbortedTxn {
                producer_id: marker.producer_id,
                first_offset,
                last_offset: next_offset,
                last_stable_offset: first_unstable_offset.unwrap_or(next_offset + 1),
            }
        });
        AdmitResult::Admit {
            first_unstable_offset,
            aborted,
        }
    }

    txn_log::stateless_producer_methods!();
}
