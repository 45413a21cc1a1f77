//! A producer state that joins each transaction at its second batch, and knows no fault.

use std::collections::BTreeSet;
use std::sync::Mutex;

use txn_log::producer_state::{AdmitResult, IncomingBatch, Marker, ProducerStateManager};

/// Producers' ids that have asked once.
#[derive(Default)]
pub struct FuzzRules(Mutex<BTreeSet<i64>>);

/// More ids than these are forgotten.
const IDS_MAX: usize = 1000;

impl ProducerStateManager for FuzzRules {
    fn admit(&self, candidate: &IncomingBatch) -> AdmitResult {
        let mut known = self.0.lock().expect("nobody panics with it");
        if candidate.is_transactional && known.insert(candidate.producer_id) {
            if known.len() > IDS_MAX {
                known.pop_first();
            }
            return AdmitResult::Join;
        }
        match candidate.base_sequence {
            1 => AdmitResult::Duplicate { base_offset: 0 },
            2 => AdmitResult::Refuse { code: 45 },
            _ => AdmitResult::Admit {
                first_unstable_offset: None,
                aborted: None,
            },
        }
    }

    fn admit_marker(&self, _: i64, _: &Marker) -> AdmitResult {
        AdmitResult::Refuse { code: -1 }
    }

    txn_log::stateless_producer_methods!();
}
