//! The control loop's waits for the disk that have ended, and the reactor that goes on with them.
//!
//! An `EndTxn` that waits for the disk goes on in Python. If the loop's thread did it, that thread
//! would be woken for the end of the wait and the reactor for the answer, and both would want the
//! interpreter. So the durability service rings a [`Bell`], and the reactor that decides goes on
//! with all waits that have ended by then. While the loop is at work, they are left to it.

/// Goes on with the waits that have ended.
pub struct Settler {
    /// On the calling thread, which holds the control lock.
    pub settle: Box<dyn Fn() + Send + Sync>,
    /// Leaves the ended waits to the control loop and wakes it. May be called when none has ended.
    pub leave: Box<dyn Fn() + Send + Sync>,
}

/// Tells the reactor that waits have ended; false: it is gone, and the loop has to be woken.
pub type Bell = Box<dyn Fn() -> bool + Send + Sync>;
