//! Tracks a log's write health and reports transitions.
//!
//! A client whose batch is refused gets an error at once. An operator gets one log line when the
//! refusals begin and one when they end, however many batches are refused meanwhile.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

/// A change of whether a log takes batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// The disk refuses them; the text says why.
    Began(String),
    /// A batch was stored again.
    Ended,
}

const NONE: u8 = 0;
const PASSING: u8 = 1;
const FINAL: u8 = 2;

/// The changes that nobody was told of yet.
#[derive(Debug, Default)]
pub(crate) struct WriteHealth {
    state: AtomicU8,
    untold: Mutex<Vec<HealthChange>>,
}

impl WriteHealth {
    /// The disk refused something.
    pub fn began(&self, reason: &impl fmt::Display) {
        if self.transition(NONE, PASSING) {
            self.report(HealthChange::Began(reason.to_string()));
        }
    }

    /// Nothing is taken any more.
    pub fn fail(&self, reason: &impl fmt::Display) {
        self.state.store(FINAL, Ordering::Release);
        self.report(HealthChange::Began(reason.to_string()));
    }

    /// A batch was stored; an atomic load if there was no write health.
    pub fn ended(&self) {
        if self.state.load(Ordering::Acquire) == PASSING && self.transition(PASSING, NONE) {
            self.report(HealthChange::Ended);
        }
    }

    /// Takes the changes since the last call, oldest first.
    pub fn take(&self) -> Vec<HealthChange> {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut untold)
    }

    fn transition(&self, from: u8, to: u8) -> bool {
        let moved = self
            .state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        moved.is_ok()
    }

    fn report(&self, change: HealthChange) {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        if untold.len() == 2 {
            untold.clear(); // it came and went: the latest time is enough
        }
        untold.push(change);
    }
}
