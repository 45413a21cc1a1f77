//! Damage that readers of a log found.

use crate::error::CorruptLog;

/// Damage that readers met.
#[derive(Debug, Default)]
pub(crate) struct ReadDamage {
    pub met: Vec<CorruptLog>,
    /// Number of them that an operator was told of.
    pub told: usize,
}
