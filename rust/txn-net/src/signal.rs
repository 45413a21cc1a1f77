//! Signals to a reactor: something that it watches has changed, and it looks again.
//!
//! The shared parts of a server signal reactors through [`Notify`]. So they need not know the
//! messages that other parts send.

use crate::token::RequestToken;

/// A change that a reactor looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A delayed response may have become ready.
    Recheck(RequestToken),
    /// A connection that waits for memory may read on.
    MemoryFreed,
    /// Connections wait for memory.
    MemoryShort,
    /// A connection that waits to be let in may ask again.
    PlaceFreed,
}

/// A reactor, as the shared parts see it.
pub trait Notify: Send + Sync {
    /// Wakes the reactor if it sleeps. A reactor that is gone gets nothing.
    fn notify(&self, signal: Signal);
}
