//! The time index: from a timestamp to an offset near it.
//!
//! `<base>.timeindex` holds 12-byte entries, big endian: a timestamp in ms, `i64`; an offset
//! minus the base offset, `u32`. An entry says that nothing up to that offset is younger than
//! its timestamp. Timestamps only grow, and offsets never go back.
//!
//! Source: Kafka, `TimeIndex`.

pub(crate) const ENTRY_BYTES: usize = 12;

/// The entries of one segment's time index: (timestamp, relative offset), in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeIndex(Vec<(i64, u32)>);

impl TimeIndex {
    /// Adds an entry, unless its timestamp is no larger than the last one's.
    pub fn append(&mut self, timestamp: i64, relative_offset: u32) {
        if self.0.last().is_none_or(|last| last.0 < timestamp) {
            self.0.push((timestamp, relative_offset));
        }
    }

    /// The entry up to whose relative offset everything is older than `timestamp`.
    pub fn last_below(&self, timestamp: i64) -> Option<(i64, u32)> {
        let after = self.0.partition_point(|entry| entry.0 < timestamp);
        after.checked_sub(1).map(|last| self.0[last])
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The last entry.
    pub fn last(&self) -> Option<(i64, u32)> {
        self.0.last().copied()
    }

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * ENTRY_BYTES);
        for (timestamp, relative_offset) in &self.0 {
            bytes.extend_from_slice(&timestamp.to_be_bytes());
            bytes.extend_from_slice(&relative_offset.to_be_bytes());
        }
        bytes
    }

    /// Reads a file's bytes; `None` if they make no sense.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let chunks = bytes.chunks_exact(ENTRY_BYTES);
        if !chunks.remainder().is_empty() {
            return None;
        }
        let entries: Vec<(i64, u32)> = chunks
            .map(|chunk| {
                let timestamp = i64::from_be_bytes(*chunk.first_chunk::<8>()?);
                let relative_offset = u32::from_be_bytes(*chunk.last_chunk::<4>()?);
                i32::try_from(relative_offset)
                    .is_ok()
                    .then_some((timestamp, relative_offset))
            })
            .collect::<Option<_>>()?;
        let grows = entries
            .windows(2)
            .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        grows.then_some(Self(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_twelve_big_endian_bytes() {
        let mut index = TimeIndex::default();
        index.append(0x0102, 7);
        let bytes = [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 7];
        assert_eq!(index.encode(), bytes);
        assert_eq!(TimeIndex::decode(&bytes), Some(index));
    }

    #[test]
    fn only_larger_timestamps_get_an_entry() {
        let mut index = TimeIndex::default();
        index.append(50, 1);
        index.append(50, 2);
        index.append(40, 3);
        index.append(60, 4);
        assert_eq!(index.last_below(50), None);
        assert_eq!(index.last_below(51), Some((50, 1)));
        assert_eq!(index.last_below(99), Some((60, 4)));
    }

    #[test]
    fn entries_that_make_no_sense_are_refused() {
        assert_eq!(TimeIndex::decode(&[0; 11]), None);
        assert_eq!(TimeIndex::decode(&[0; 24]), None);
    }
}
