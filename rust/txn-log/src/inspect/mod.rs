//! Reading a segment to list its contents and check them. Nothing is ever written.
//!
//! A log that serves readers stops at the first damaged byte. A reader that inspects a damaged
//! batch wants the batches behind it as well, so [`Walk`] goes on at the next batch it can find.
//! [`Check`] is the walk that compares the batches with each other and with the indexes.

mod check;
mod walk;

pub use check::{Check, CheckFindings, EpochRun, Fault, Gap, Suspect};
pub use walk::{Damage, Walk, WalkItem};
