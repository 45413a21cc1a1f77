//! The transaction index: which transactions of a segment were aborted.
//!
//! Entries stand in the order of their markers, 34 bytes each, big endian. The fields are version
//! `i16` 0, producer id `i64`, first offset `i64`, last offset `i64` (the marker's), last stable
//! offset `i64`. `<base>.txnindex` is made with its segment, so that one that is missing cannot be
//! taken for one without entries. (Kafka makes it with the first entry.)
//!
//! # After a crash
//! An entry may stand there without its marker, which is written after it, or be missing
//! though its marker is there. Recovery replays the markers and writes the index anew, so the
//! file is synced only when the log is closed.
//!
//! Source: KIP-98, "Transaction Index".

use std::io;
use std::path::Path;

use crate::disk;
use crate::producer_state::AbortedTxn;

const ENTRY_BYTES: usize = 34;

/// Appends an entry to a transaction index, making the file if it is the first.
pub(crate) fn append(path: &Path, entry: AbortedTxn) -> io::Result<()> {
    let file = disk::open_or_create(path)?;
    disk::write_at(&file, path, file.metadata()?.len(), &encode(entry))
}

/// Reads a transaction index; `None` if it is missing, or was not written by [`append`].
pub(crate) fn load(path: &Path) -> io::Result<Option<Vec<AbortedTxn>>> {
    Ok(disk::read_derived(path)?.and_then(|bytes| decode(&bytes)))
}

/// Brings a transaction index to these entries. A file that is right already is not touched.
pub(crate) fn store(path: &Path, entries: &[AbortedTxn]) -> io::Result<()> {
    let bytes = encode_all(entries);
    if disk::read_derived(path).is_ok_and(|stored| stored.as_ref() == Some(&bytes)) {
        return Ok(());
    }
    disk::write(path, &bytes)
}

/// The bytes of a transaction index with these entries.
pub(crate) fn encode_all(entries: &[AbortedTxn]) -> Vec<u8> {
    entries.iter().flat_map(|&entry| encode(entry)).collect()
}

fn encode(entry: AbortedTxn) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[2..10].copy_from_slice(&entry.producer_id.to_be_bytes());
    bytes[10..18].copy_from_slice(&entry.first_offset.to_be_bytes());
    bytes[18..26].copy_from_slice(&entry.last_offset.to_be_bytes());
    bytes[26..34].copy_from_slice(&entry.last_stable_offset.to_be_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Vec<AbortedTxn>> {
    let number = |entry: &[u8], at: usize| {
        let field = entry[at..at + 8].first_chunk::<8>().expect("eight bytes");
        i64::from_be_bytes(*field)
    };
    let chunks = bytes.chunks_exact(ENTRY_BYTES);
    if !chunks.remainder().is_empty() {
        return None;
    }
    let mut entries: Vec<AbortedTxn> = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        let entry = AbortedTxn {
            producer_id: number(chunk, 2),
            first_offset: number(chunk, 10),
            last_offset: number(chunk, 18),
            last_stable_offset: number(chunk, 26),
        };
        let is_in_order = entries
            .last()
            .is_none_or(|last| last.last_offset < entry.last_offset);
        let is_sane = entry.producer_id >= 0 && 0 <= entry.first_offset;
        if chunk[..2] != [0, 0]
            || !is_sane
            || entry.first_offset > entry.last_offset
            || !is_in_order
        {
            return None;
        }
        entries.push(entry);
    }
    Some(entries)
}

/// Every aborted transaction of a log, as the producer state told of them. A `read_committed` fetch
/// finds here the transactions that it has to name.
///
/// In the order of their markers, so by `last_offset`; 32 bytes each. The same rule in Python,
/// `txn.partition.aborted_index`, is the reference for this one.
#[derive(Debug, Default)]
pub(crate) struct AbortedTxns(Vec<AbortedTxn>);

impl AbortedTxns {
    /// The entries that recovery found.
    pub fn new(mut entries: Vec<AbortedTxn>) -> Self {
        entries.sort_unstable_by_key(|entry| entry.last_offset);
        Self(entries)
    }

    /// Adds the transaction that the newest marker ended.
    pub fn push(&mut self, entry: AbortedTxn) {
        self.0.push(entry);
    }

    /// Drops those that lie wholly below an offset.
    pub fn forget_below(&mut self, offset: i64) {
        let below = self.0.partition_point(|entry| entry.last_offset < offset);
        self.0.drain(..below);
    }

    /// Drops those with these markers, given in order.
    pub fn forget(&mut self, last_offsets: &[i64]) {
        self.0
            .retain(|entry| last_offsets.binary_search(&entry.last_offset).is_err());
    }

    /// All of them.
    pub fn entries(&self) -> &[AbortedTxn] {
        &self.0
    }

    /// Lists `(producer_id, first_offset)` of those that overlap `[start, end)`, by first offset.
    /// The cost is that of [`Self::between`].
    pub fn overlapping(&self, start: i64, end: i64) -> Vec<(i64, i64)> {
        let mut found: Vec<_> = self
            .between(start, end)
            .map(|entry| (entry.producer_id, entry.first_offset))
            .collect();
        found.sort_unstable_by_key(|&(producer_id, first_offset)| (first_offset, producer_id));
        found
    }

    /// Those that overlap `[start, end)`, by last offset.
    ///
    /// Cost: one bisection, then entries until one whose last stable offset reaches `end`: a
    /// transaction that ended later begins there or above.
    pub fn between(&self, start: i64, end: i64) -> impl Iterator<Item = &AbortedTxn> {
        let from = self.0.partition_point(|entry| entry.last_offset < start);
        let mut is_behind = false;
        self.0[from..]
            .iter()
            .take_while(move |entry| {
                let is_wanted = !is_behind;
                is_behind = entry.last_stable_offset >= end;
                is_wanted
            })
            .filter(move |entry| entry.first_offset < end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(producer_id: i64, first_offset: i64, last_offset: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id,
            first_offset,
            last_offset,
            last_stable_offset: last_offset + 1,
        }
    }

    #[test]
    fn an_entry_is_34_big_endian_bytes() {
        let bytes = encode(AbortedTxn {
            producer_id: 0x0102,
            first_offset: 3,
            last_offset: 0x0405,
            last_stable_offset: 6,
        });
        let mut expected = [0u8; 34];
        (expected[8], expected[9]) = (1, 2);
        expected[17] = 3;
        (expected[24], expected[25]) = (4, 5);
        expected[33] = 6;
        assert_eq!(bytes, expected);
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.txnindex");
        store(&path, &[entry(1, 0, 4)]).unwrap();
        append(&path, entry(2, 3, 9)).unwrap();
        assert_eq!(
            load(&path).unwrap(),
            Some(vec![entry(1, 0, 4), entry(2, 3, 9)])
        );
        store(&path, &[]).unwrap();
        assert_eq!(load(&path).unwrap(), Some(vec![]));
    }

    #[test]
    fn a_missing_index_is_not_one_without_entries() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(load(&directory.path().join("0.txnindex")).unwrap(), None);
    }

    #[test]
    fn a_damaged_index_is_not_believed() {
        let mut cut = encode(entry(1, 0, 4)).to_vec();
        cut.pop();
        assert_eq!(decode(&cut), None);
        let backwards: Vec<u8> = [entry(1, 0, 4), entry(2, 3, 4)]
            .into_iter()
            .flat_map(encode)
            .collect();
        assert_eq!(decode(&backwards), None);
        assert_eq!(decode(&[0xff; 34]), None);
    }

    #[test]
    fn what_overlaps_is_named_by_first_offset_and_nothing_else() {
        let beside_an_open_one = AbortedTxn {
            last_stable_offset: 20,
            ..entry(8, 30, 39)
        };
        let mut aborted = AbortedTxns::new(vec![beside_an_open_one, entry(7, 0, 9)]);
        aborted.push(entry(9, 20, 49));
        assert_eq!(aborted.overlapping(10, 20), []);
        assert_eq!(aborted.overlapping(9, 21), [(7, 0), (9, 20)]);
        assert_eq!(aborted.overlapping(35, 36), [(9, 20), (8, 30)]);
        aborted.forget_below(10);
        assert_eq!(aborted.overlapping(0, 100), [(9, 20), (8, 30)]);
    }

    proptest! {
        /// Any history of transactions that overlap: the named ones are those that a search through
        /// all of them finds.
        #[test]
        fn a_search_through_all_finds_the_same(
            steps in prop::collection::vec((0i64..6, 0i64..4, any::<bool>()), 1..120),
            start in 0i64..150,
            length in 1i64..60,
        ) {
            let mut open = std::collections::BTreeMap::new();
            let mut aborted = AbortedTxns::default();
            for (offset, (producer_id, kind, is_commit)) in (0..).zip(steps) {
                if kind > 0 {
                    open.entry(producer_id).or_insert(offset);
                } else if let Some(first_offset) = open.remove(&producer_id)
                    && !is_commit
                {
                    aborted.push(AbortedTxn {
                        producer_id,
                        first_offset,
                        last_offset: offset,
                        last_stable_offset: open.values().min().copied().unwrap_or(offset + 1),
                    });
                }
            }
            // A fetch ends at the last stable offset at most.
            let end = (start + length).min(open.values().min().copied().unwrap_or(i64::MAX));
            let overlaps = |entry: &&AbortedTxn| entry.first_offset < end && entry.last_offset >= start;
            let mut all: Vec<_> = aborted.0.iter().filter(overlaps).map(|one| (one.producer_id, one.first_offset)).collect();
            all.sort_unstable_by_key(|&(producer_id, first_offset)| (first_offset, producer_id));
            if start < end {
                prop_assert_eq!(aborted.overlapping(start, end), all);
            }
        }
    }
}
