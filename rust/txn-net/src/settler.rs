//! Ends of the control loop's waits for the disk, and the reactor that handles them.
//!
//! An `EndTxn` that waits for the disk is continued in Python. If the thread of the loop did that,
//! both the loop and the reactor would have to be woken, and both would want the interpreter. So
//! the durability service rings a [`Bell`], and the reactor that decides continues all requests
//! whose waits have ended. While the loop is at work, it continues them itself.

/// Continues the waits that have ended.
pub struct Settler {
    /// On the calling thread, which holds the control lock.
    pub settle: Box<dyn Fn() + Send + Sync>,
    /// Leaves the ended waits to the control loop and wakes it. May be called when none has ended.
    pub leave: Box<dyn Fn() + Send + Sync>,
}

/// Notifies the reactor that waits have ended. Returns false if the reactor is gone; then the loop
/// has to be woken.
pub type Bell = Box<dyn Fn() -> bool + Send + Sync>;
