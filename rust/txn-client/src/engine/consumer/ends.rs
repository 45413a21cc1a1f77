//! Ends of partitions: told once for each offset, after the records before it.
//!
//! A partition is at its end if a node that was asked for the records at the next offset has none
//! before its last stable offset. Every record before has been handed out then.
//!
//! Source: `enable.partition.eof` of librdkafka.

use std::collections::{BTreeMap, VecDeque};

use super::{Consumer, Place};

/// The ends that the program wants to know.
#[derive(Debug, Default)]
pub(super) struct Ends {
    is_wanted: bool,
    /// The last end of each partition that was told, or waits.
    last: BTreeMap<Place, i64>,
    waiting: VecDeque<(Place, i64)>,
}

impl Ends {
    /// True if `take_end` would give something.
    pub(super) fn are_due(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Nothing comes at `offset` of a partition for now.
    pub(super) fn reached(&mut self, place: &Place, offset: i64) {
        if self.is_wanted && self.last.insert(place.clone(), offset) != Some(offset) {
            self.waiting.push_back((place.clone(), offset));
        }
    }

    /// The partition is read no longer, or begins anew.
    pub(super) fn forget(&mut self, place: &Place) {
        if self.last.remove(place).is_some() {
            self.waiting.retain(|(of, _)| of != place);
        }
    }
}

impl Consumer {
    /// Lets `take_end` tell the ends of partitions from now on.
    pub fn report_ends(&mut self) {
        self.ends.is_wanted = true;
    }

    /// A partition that has been read to its end, and the offset of the end.
    pub fn take_end(&mut self) -> Option<(Place, i64)> {
        self.ends.waiting.pop_front()
    }
}
