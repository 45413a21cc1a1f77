//! Reading a segment to say what is in it and whether it is sound. Nothing is ever written.
//!
//! A log that serves readers stops at the first damaged byte. Whoever inspects one wants to
//! know what lies behind it as well, so [`Walk`] goes on at the next batch it can find;
//! [`Check`] is the walk that holds the batches against each other and against the indexes.

mod check;
mod walk;

pub use check::{Check, EpochRun, Fault, Gap, Seen, Suspect};
pub use walk::{Damage, Found, Walk};
