//! The outcomes that calls of a producer wait for.

use super::{Producer, Status};

/// An outcome that a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// No identity and no end of a transaction is on its way.
    Settled,
    /// No offsets are on their way, or nothing more is accepted.
    Offsets,
    /// No record is pending, or nothing more is accepted.
    Stored,
    /// There are reports to read.
    Reports,
    /// A good part of `buffer.memory` is free, or nothing more is accepted.
    Room,
}

impl Awaited {
    const ALL: [Self; 5] = [
        Self::Settled,
        Self::Offsets,
        Self::Stored,
        Self::Reports,
        Self::Room,
    ];
}

impl Producer {
    /// True if the outcome is there.
    #[must_use]
    pub fn has_reached(&self, outcome: Awaited) -> bool {
        let status = self.status();
        let is_over = matches!(status, Status::Failed(_) | Status::Fatal(_));
        match outcome {
            Awaited::Settled => !matches!(status, Status::Working),
            Awaited::Offsets => is_over || !self.is_sending_offsets(),
            Awaited::Stored => is_over || self.pending() == 0,
            Awaited::Reports => self.has_reports(),
            Awaited::Room => is_over || self.has_room(),
        }
    }

    /// All outcomes that are there, one bit each.
    pub(super) fn reached(&self) -> u64 {
        let all = Awaited::ALL.iter().enumerate();
        all.map(|(bit, &outcome)| u64::from(self.has_reached(outcome)) << bit)
            .sum()
    }
}
