//! Shows other threads than its reactor whether the client of a connection is still there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The presence of a connection's client; copies tell the same.
#[derive(Clone, Debug, Default)]
pub struct Presence(Arc<AtomicBool>);

impl Presence {
    /// Notes that the client sends no more, or that its connection is closed.
    pub(crate) fn end(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// True once the client sends no more. A request of before may still be unread.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl PartialEq for Presence {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Presence {}
