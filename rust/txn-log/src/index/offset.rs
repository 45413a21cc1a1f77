//! The offset index: from an offset to a byte position near it.
//!
//! `<base>.index` holds 8-byte entries, big endian: a batch's last offset minus the base
//! offset, `u32`; the position of the batch's first byte, `u32`. Both only grow.
//!
//! Source: Kafka, `OffsetIndex`.

pub(crate) const ENTRY_BYTES: usize = 8;

/// A batch's relative last offset, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffsetIndexEntry {
    pub relative_offset: u32,
    pub position: u32,
}

/// The entries of one segment's offset index, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OffsetIndex(Vec<OffsetIndexEntry>);

impl OffsetIndex {
    /// Bytes of an entry in the file.
    pub const ENTRY_BYTES: usize = ENTRY_BYTES;

    /// Reads one entry, which may make no sense.
    pub fn decode_entry(bytes: [u8; ENTRY_BYTES]) -> OffsetIndexEntry {
        let fields = u64::from_be_bytes(bytes);
        OffsetIndexEntry {
            relative_offset: (fields >> 32) as u32,
            position: fields as u32,
        }
    }

    /// Adds an entry. Entries that do not grow are bugs of the caller.
    pub fn append(&mut self, relative_offset: u32, position: u32) {
        let grows = self
            .0
            .last()
            .is_none_or(|last| last.relative_offset < relative_offset && last.position < position);
        assert!(
            grows,
            "offset index entry ({relative_offset}, {position}) goes back"
        );
        self.0.push(OffsetIndexEntry {
            relative_offset,
            position,
        });
    }

    /// A position at or before the first batch whose last offset is `relative_offset` or more, and
    /// the index entry of the batch there; `None`: the segment's start.
    pub fn entry_before(&self, relative_offset: i64) -> Option<OffsetIndexEntry> {
        let after = self.count_while(|entry| i64::from(entry.relative_offset) <= relative_offset);
        Some(self.0[after.checked_sub(1)?])
    }

    /// A position at or after that batch; `None` if no entry lies behind it.
    pub fn position_after(&self, relative_offset: i64) -> Option<u64> {
        let first = self.count_while(|entry| i64::from(entry.relative_offset) < relative_offset);
        self.0.get(first).map(|entry| u64::from(entry.position))
    }

    /// The last batch known to begin at or before a position.
    pub fn entry_at_or_before(&self, position: u64) -> Option<OffsetIndexEntry> {
        let after = self.count_while(|entry| u64::from(entry.position) <= position);
        Some(self.0[after.checked_sub(1)?])
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Position of the last entry, 0 if there is none.
    pub fn last_position(&self) -> u64 {
        self.0.last().map_or(0, |last| u64::from(last.position))
    }

    /// The last entry.
    pub fn last(&self) -> Option<OffsetIndexEntry> {
        self.0.last().copied()
    }

    fn count_while(&self, is_before: impl Fn(&OffsetIndexEntry) -> bool) -> usize {
        self.0.partition_point(is_before)
    }

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * ENTRY_BYTES);
        for entry in &self.0 {
            bytes.extend_from_slice(&entry.relative_offset.to_be_bytes());
            bytes.extend_from_slice(&entry.position.to_be_bytes());
        }
        bytes
    }

    /// Reads a file's bytes for a log of `log_bytes`; `None` if they make no sense.
    pub fn decode(bytes: &[u8], log_bytes: u64) -> Option<Self> {
        let chunks = bytes.chunks_exact(ENTRY_BYTES);
        if !chunks.remainder().is_empty() {
            return None;
        }
        let entries: Vec<OffsetIndexEntry> = chunks
            .map(|chunk| Some(Self::decode_entry(*chunk.first_chunk()?)))
            .collect::<Option<_>>()?;
        let grows = entries.windows(2).all(|pair| {
            pair[0].relative_offset < pair[1].relative_offset && pair[0].position < pair[1].position
        });
        let fits = entries.last().is_none_or(|last| {
            u64::from(last.position) < log_bytes && i32::try_from(last.relative_offset).is_ok()
        });
        (grows && fits).then_some(Self(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_eight_big_endian_bytes() {
        let mut index = OffsetIndex::default();
        index.append(5, 0x0102);
        index.append(0x0304, 0x0506);
        let bytes = [0, 0, 0, 5, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0, 5, 6];
        assert_eq!(index.encode(), bytes);
        assert_eq!(OffsetIndex::decode(&bytes, 0x0507), Some(index));
    }

    #[test]
    fn entries_that_make_no_sense_are_refused() {
        let sound = [0, 0, 0, 5, 0, 0, 1, 2];
        assert_eq!(OffsetIndex::decode(&sound[..7], 1000), None); // cut
        assert_eq!(OffsetIndex::decode(&sound, 0x0102), None); // behind the log's end
        let mut preallocated = sound.to_vec();
        preallocated.extend_from_slice(&[0; 8]); // as a broker leaves it that did not close
        assert_eq!(OffsetIndex::decode(&preallocated, 1000), None);
    }

    #[test]
    fn lookups_bracket_the_offset() {
        let mut index = OffsetIndex::default();
        index.append(10, 100);
        index.append(20, 200);
        let position_before = |offset| index.entry_before(offset).map(|entry| entry.position);
        assert_eq!(position_before(9), None);
        assert_eq!(position_before(10), Some(100));
        assert_eq!(position_before(19), Some(100));
        assert_eq!(position_before(99), Some(200));
        assert_eq!(index.position_after(10), Some(100));
        assert_eq!(index.position_after(11), Some(200));
        assert_eq!(index.position_after(21), None);
        assert_eq!(index.entry_at_or_before(99), None);
        assert_eq!(index.entry_at_or_before(150).unwrap().position, 100);
    }
}
