//! The byte ranges of a segment that this run has verified.
//!
//! Bytes that this process wrote, or verified when it started, need no check. All other bytes are
//! verified when they are first read, range by range. So no reader gets damaged bytes (P9), and a
//! start need not read everything.

/// Disjoint ranges of bytes `[start, end)`, in order, that begin and end between batches.
#[derive(Debug, Default)]
pub(crate) struct VerifiedRanges(Vec<(u64, u64)>);

impl VerifiedRanges {
    /// Everything from a position on: this process writes there.
    pub fn from(position: u64) -> Self {
        Self(vec![(position, u64::MAX)])
    }

    /// The parts of a range that are not verified yet, in order.
    pub fn missing(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut from = start;
        for &(known_start, known_end) in &self.0[self.0.partition_point(|range| range.1 <= start)..]
        {
            if known_start >= end {
                break;
            }
            if known_start > from {
                gaps.push((from, known_start));
            }
            from = known_end;
        }
        if from < end {
            gaps.push((from, end));
        }
        gaps
    }

    /// Adds a range.
    pub fn add(&mut self, start: u64, end: u64) {
        let from = self.0.partition_point(|range| range.1 < start);
        let to = self.0.partition_point(|range| range.0 <= end);
        let joined = self.0[from..to].iter().fold((start, end), |whole, range| {
            (whole.0.min(range.0), whole.1.max(range.1))
        });
        self.0.splice(from..to, [joined]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_missing_is_what_was_never_added(
            added in prop::collection::vec((0u64..60, 1u64..20), 0..12),
            start in 0u64..70,
            length in 1u64..30,
        ) {
            let mut verified = VerifiedRanges::default();
            for &(from, length) in &added {
                verified.add(from, from + length);
            }
            let is_known = |at: u64| added.iter().any(|&(from, length)| (from..from + length).contains(&at));
            let gaps = verified.missing(start, start + length);
            for at in start..start + length {
                let is_missing = gaps.iter().any(|&(from, to)| (from..to).contains(&at));
                prop_assert_eq!(is_missing, !is_known(at));
            }
            prop_assert!(verified.0.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
