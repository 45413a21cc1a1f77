//! The transaction index: which transactions of a segment were aborted.
//!
//! `<base>.txnindex` exists only once a transaction was aborted. Its entries stand in the
//! order of their markers, 34 bytes each, big endian: version `i16` 0, producer id `i64`,
//! first offset `i64`, last offset `i64` (the marker's), last stable offset `i64`.
//!
//! # After a crash
//! An entry may stand there without its marker, which is written after it, or be missing
//! though its marker is there. Recovery replays the markers and writes the index anew, so the
//! file is synced only when the log is closed.
//!
//! Source: KIP-98, "Transaction Index".

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::gate::AbortedTxn;

const ENTRY_BYTES: usize = 34;
/// Ranges kept before neighbours are joined; 64 KiB of memory a partition at most.
const RANGES_MAX: usize = 4096;

/// Appends an entry to a transaction index, making the file if it is the first.
pub(crate) fn append(path: &Path, entry: AbortedTxn) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(&encode(entry))
}

/// Reads a transaction index; `None` if it is not what [`append`] writes.
///
/// A missing file holds no entries.
pub(crate) fn load(path: &Path) -> io::Result<Option<Vec<AbortedTxn>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(decode(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Vec::new())),
        Err(error) => Err(error),
    }
}

/// Brings a transaction index to these entries; without any the file is removed. A file that
/// is right already is not touched.
pub(crate) fn store(path: &Path, entries: &[AbortedTxn]) -> io::Result<()> {
    if entries.is_empty() {
        return match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    let bytes: Vec<u8> = entries.iter().flat_map(|&entry| encode(entry)).collect();
    if fs::read(path).is_ok_and(|stored| stored == bytes) {
        return Ok(());
    }
    let mut file = File::create(path)?;
    file.write_all(&bytes)
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

/// Which offsets aborted transactions cover, roughly: it may say yes for too many, never no
/// for one that is covered.
///
/// Disjoint ranges, inclusive, in order. Keeps fetches of ranges without aborts away from
/// the gate.
#[derive(Debug, Default)]
pub(crate) struct AbortedRanges(Vec<(i64, i64)>);

impl AbortedRanges {
    /// Adds the offsets of a transaction, both ends inclusive.
    pub fn insert(&mut self, first_offset: i64, last_offset: i64) {
        let ranges = &mut self.0;
        let from = ranges.partition_point(|range| range.1 < first_offset);
        let to = ranges.partition_point(|range| range.0 <= last_offset);
        let joined = ranges[from..to]
            .iter()
            .fold((first_offset, last_offset), |whole, range| {
                (whole.0.min(range.0), whole.1.max(range.1))
            });
        ranges.splice(from..to, [joined]);
        if ranges.len() > RANGES_MAX {
            *ranges = ranges
                .chunks(2)
                .map(|pair| (pair[0].0, pair[pair.len() - 1].1))
                .collect();
        }
    }

    /// Drops the ranges that lie wholly below an offset.
    pub fn forget_below(&mut self, offset: i64) {
        let below = self.0.partition_point(|range| range.1 < offset);
        self.0.drain(..below);
    }

    /// Whether an aborted transaction may overlap `[start, end)`.
    pub fn may_overlap(&self, start: i64, end: i64) -> bool {
        let next = self.0.partition_point(|range| range.1 < start);
        self.0.get(next).is_some_and(|range| range.0 < end)
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
        assert!(!path.exists());
        assert_eq!(load(&path).unwrap(), Some(vec![]));
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

    proptest! {
        #[test]
        fn every_covered_offset_may_overlap(
            transactions in prop::collection::vec((0i64..500, 0i64..30), 1..60),
            start in 0i64..600,
            length in 1i64..50,
        ) {
            let mut ranges = AbortedRanges::default();
            for (first, span) in &transactions {
                ranges.insert(*first, first + span);
            }
            let end = start + length;
            let overlaps = transactions.iter().any(|(first, span)| *first < end && first + span >= start);
            prop_assert_eq!(ranges.may_overlap(start, end), overlaps);
            prop_assert!(ranges.0.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }

    #[test]
    fn too_many_ranges_are_joined_and_none_is_forgotten() {
        let mut ranges = AbortedRanges::default();
        let firsts = (0..10_000).map(|n| n * 10);
        firsts
            .clone()
            .for_each(|first| ranges.insert(first, first + 1));
        assert!(ranges.0.len() <= RANGES_MAX);
        assert!(
            firsts
                .clone()
                .all(|first| ranges.may_overlap(first, first + 1))
        );
    }
}
