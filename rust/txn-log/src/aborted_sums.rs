//! Proof that the transaction indexes of a log are whole: `txnindex-checkpoint`.
//!
//! Entries of a `.txnindex` are under no checksum, and one that lost some looks like that of a
//! segment with fewer aborted transactions. A `read_committed` reader would be shown aborted
//! records. So a line stands for each segment that nothing is appended to any more, and whose index
//! has entries. It has their number and their CRC-32C. Without a line there are none.
//!
//! A text file: version 0, the number of lines, then base offset, entries and checksum, by base
//! offset. Lines of segments that are gone mean nothing. A line that is missing or wrong costs
//! time alone: the index is made anew from the batches. Apache Kafka passes over the file and
//! keeps none like it, so in a log that Kafka wrote last a lost entry is not seen.
//!
//! # After a crash
//! A segment's line is written before the next segment is there; a clean stop writes that of the
//! active one. A swap by the cleaner writes it last, so a crash may leave a wrong one.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

use crate::aborted;
use crate::disk;
use crate::producer_state::AbortedTxn;

pub(crate) const NAME: &str = "txnindex-checkpoint";
const VERSION: &str = "0";

/// The entries of one index: how many, and their CRC-32C.
type Sum = (usize, u32);

/// Lines by base offset of the segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AbortedSums(BTreeMap<i64, Sum>);

impl AbortedSums {
    /// Reads the file of a log; there are no lines if it is missing or does not follow the format.
    pub fn load(directory: &Path) -> io::Result<Self> {
        let stored = disk::read_derived(&directory.join(NAME))?;
        let parsed = stored.and_then(|bytes| Self::parse(&String::from_utf8_lossy(&bytes)));
        Ok(parsed.unwrap_or_default())
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != VERSION {
            return None;
        }
        let count: usize = lines.next()?.parse().ok()?;
        let mut sums = BTreeMap::new();
        for line in lines {
            let mut fields = line.split(' ');
            let base_offset = fields.next()?.parse().ok()?;
            let sum = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            if fields.next().is_some() || sums.insert(base_offset, sum).is_some() {
                return None;
            }
        }
        (sums.len() == count).then_some(Self(sums))
    }

    /// True if these can be all entries of a segment's index.
    pub fn agree(&self, base_offset: i64, entries: &[AbortedTxn]) -> bool {
        self.0.get(&base_offset).copied() == sum_of(entries)
    }

    /// Returns the lines for these indexes, by base offset, and no others.
    pub fn of<'a>(indexes: impl IntoIterator<Item = (i64, &'a [AbortedTxn])>) -> Self {
        let sums = indexes
            .into_iter()
            .filter_map(|(base_offset, entries)| Some((base_offset, sum_of(entries)?)));
        Self(sums.collect())
    }

    /// Notes the entries of a segment's index that is not appended to any more.
    pub fn note(&mut self, base_offset: i64, entries: &[AbortedTxn]) {
        match sum_of(entries) {
            Some(sum) => self.0.insert(base_offset, sum),
            None => self.0.remove(&base_offset),
        };
    }

    /// Leaves the lines of the segments from the first of these base offsets on out, but for one.
    pub fn replace(&mut self, base_offsets: &[i64], entries: &[AbortedTxn]) {
        for base_offset in base_offsets {
            self.0.remove(base_offset);
        }
        if let Some(&first) = base_offsets.first() {
            self.note(first, entries);
        }
    }

    /// Writes the file whole or not at all, unless it says the same; `sync` has it on the disk. A
    /// log without lines has no file.
    pub fn store(&self, directory: &Path) -> io::Result<()> {
        let path = directory.join(NAME);
        if self.0.is_empty() && !path.exists() {
            return Ok(());
        }
        let mut text = format!("{VERSION}\n{}\n", self.0.len());
        for (base_offset, (entries, checksum)) in &self.0 {
            let _ = writeln!(text, "{base_offset} {entries} {checksum}"); // a String takes all
        }
        if disk::read_derived(&path).is_ok_and(|stored| stored.as_deref() == Some(text.as_bytes()))
        {
            return Ok(());
        }
        let unfinished = path.with_extension("tmp");
        disk::replace(&path, &unfinished, text.as_bytes())
    }

    /// Forces the file to the disk; the directory is the caller's to sync.
    pub fn sync(directory: &Path) -> io::Result<()> {
        disk::sync_if_there(&directory.join(NAME))
    }
}

fn sum_of(entries: &[AbortedTxn]) -> Option<Sum> {
    let bytes = aborted::encode_all(entries);
    (!entries.is_empty()).then(|| (entries.len(), crc32c::crc32c(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(last_offset: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id: 7,
            first_offset: 1,
            last_offset,
            last_stable_offset: 1,
        }
    }

    #[test]
    fn an_index_that_lost_or_gained_or_changed_an_entry_does_not_agree() {
        let directory = tempfile::tempdir().unwrap();
        let whole = [entry(5), entry(9)];
        let mut sums = AbortedSums::default();
        sums.note(0, &whole);
        sums.note(20, &[]);
        sums.store(directory.path()).unwrap();
        let sums = AbortedSums::load(directory.path()).unwrap();
        assert!(sums.agree(0, &whole));
        assert!(sums.agree(20, &[]));
        for wrong in [&whole[..1], &[][..], &[entry(5), entry(8)]] {
            assert!(!sums.agree(0, wrong));
        }
        assert!(!sums.agree(20, &whole));
    }

    #[test]
    fn a_file_that_does_not_follow_the_format_has_no_lines() {
        for text in [
            "",
            "1\n0\n",
            "0\n1\n",
            "0\n1\n0 1\n",
            "0\n2\n0 1 2\n0 1 2\n",
            "0\n1\n0 1 2 3\n",
        ] {
            assert_eq!(AbortedSums::parse(text), None, "{text:?}");
        }
        let expected = AbortedSums([(3, (1, 2))].into());
        assert_eq!(AbortedSums::parse("0\n1\n3 1 2\n"), Some(expected));
    }

    #[test]
    fn a_segment_that_takes_the_place_of_others_has_the_one_line() {
        let mut sums =
            AbortedSums::of([(0, &[entry(1)][..]), (10, &[entry(11)]), (20, &[entry(21)])]);
        sums.replace(&[0, 10], &[entry(11)]);
        let expected = AbortedSums::of([(0, &[entry(11)][..]), (20, &[entry(21)])]);
        assert_eq!(sums, expected);
    }
}
