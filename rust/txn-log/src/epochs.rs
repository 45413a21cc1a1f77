//! The first offset of each leader epoch: `leader-epoch-checkpoint`.
//!
//! The file is text: version 0, the number of entries, then an epoch and its first offset per line;
//! both rise. An epoch gets its entry with its first batch, or in memory when its leader begins. A
//! start forgets an epoch without a batch.
//!
//! Batches carry their epoch, so a file that is missing or damaged is rebuilt from them. The file
//! has no checksum, and a wrong offset would tell a consumer that its log was truncated. So each
//! entry is compared with the batches at its offset.

use std::fmt::Write;
use std::io;
use std::path::Path;
use std::sync::Arc;

use txn_protocol::batch::Header;

use crate::disk;
use crate::error::ReadError;
use crate::segment::Segment;

pub(crate) const NAME: &str = "leader-epoch-checkpoint";
const VERSION: &str = "0";

/// (epoch, first offset), both rising.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epochs(Vec<(i32, i64)>);

impl Epochs {
    /// Reads the file of a log; `None` if it is missing or does not follow the format.
    pub fn load(directory: &Path) -> io::Result<Option<Self>> {
        let stored = disk::read_derived(&directory.join(NAME))?;
        Ok(stored.and_then(|bytes| Self::parse(str::from_utf8(&bytes).ok()?)))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != VERSION {
            return None;
        }
        let count: usize = lines.next()?.parse().ok()?;
        let mut epochs = Self::default();
        for line in lines {
            let (epoch, start_offset) = line.split_once(' ')?;
            if !epochs.begin(epoch.parse().ok()?, start_offset.parse().ok()?) {
                return None;
            }
        }
        (epochs.0.len() == count).then_some(epochs)
    }

    /// True if the batches beside each beginning are of the epochs that the entries give them.
    ///
    /// Cost: two lookups an entry.
    ///
    /// # Errors
    /// The disk's error. A batch that cannot be read contradicts nothing: its readers are told.
    pub fn fit(&self, segments: &[Arc<Segment>]) -> io::Result<bool> {
        let ends = self.0.iter().skip(1).map(|&(_, start)| start);
        for (&(epoch, start), end) in self.0.iter().zip(ends.chain([i64::MAX])) {
            let (before, behind) = match beside(segments, start) {
                Ok(found) => found,
                Err(ReadError::Io(error)) => return Err(error),
                Err(_) => continue,
            };
            let is_later = before.is_none_or(|header| header.leader_epoch() < epoch);
            let is_its = behind.is_none_or(|header| {
                let is_next = header.base_offset() >= end; // compaction left none of this one
                header.base_offset() >= start && (is_next || header.leader_epoch() == epoch)
            });
            if !is_later || !is_its {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the file whole or not at all. `sync` has it on the disk.
    pub fn store(&self, directory: &Path) -> io::Result<()> {
        let path = directory.join(NAME);
        let unfinished = path.with_extension("tmp");
        let mut text = format!("{VERSION}\n{}\n", self.0.len());
        for (epoch, start_offset) in &self.0 {
            let _ = writeln!(text, "{epoch} {start_offset}"); // a String takes everything
        }
        disk::replace(&path, &unfinished, text.as_bytes())
    }

    /// Forces the file to the disk; the directory is the caller's to sync.
    pub fn sync(directory: &Path) -> io::Result<()> {
        disk::sync_if_there(&directory.join(NAME))
    }

    /// Notes a batch at the log's end; says whether an epoch begins with it. One of an earlier
    /// epoch, or of none, changes nothing.
    pub fn begin(&mut self, epoch: i32, offset: i64) -> bool {
        let is_later = epoch > self.latest().unwrap_or(-1);
        if is_later {
            self.truncate(offset);
            self.0.push((epoch, offset));
        }
        is_later
    }

    /// Forgets epochs of which no batch is left below the log end.
    pub fn truncate(&mut self, log_end_offset: i64) {
        self.0
            .retain(|&(_, start_offset)| start_offset < log_end_offset);
    }

    /// The latest epoch in which something was written.
    pub fn latest(&self) -> Option<i32> {
        self.0.last().map(|&(epoch, _)| epoch)
    }

    /// Where the latest epoch began.
    pub fn last_start(&self) -> Option<i64> {
        self.0.last().map(|&(_, start_offset)| start_offset)
    }

    /// The epoch in which an offset was written; `None` below the first entry.
    pub fn at(&self, offset: i64) -> Option<i32> {
        let after = self.0.partition_point(|&(_, start)| start <= offset);
        self.0[..after].last().map(|&(epoch, _)| epoch)
    }

    /// Where an epoch ends that the log has left behind: the latest epoch up to it of which
    /// there are batches, and where the next one begins, which is at `leader_end` if that is
    /// the leader's, not yet begun.
    pub fn end_of(&self, epoch: i32, leader_end: i64) -> (i32, i64) {
        let later = self.0.partition_point(|&(began, _)| began <= epoch);
        let found = self.0[..later].last().map_or(epoch, |&(began, _)| began);
        let end = self.0.get(later).map_or(leader_end, |&(_, start)| start);
        (found, end)
    }
}

/// The last batch that begins below an offset, and the first that ends at or above it.
fn beside(
    segments: &[Arc<Segment>],
    offset: i64,
) -> Result<(Option<Header>, Option<Header>), ReadError> {
    let after = segments.partition_point(|segment| segment.base_offset < offset);
    let mut before = None;
    for segment in segments[..after].iter().rev() {
        before = segment.last_below(offset)?;
        if before.is_some() {
            break;
        }
    }
    let first = after.saturating_sub(1);
    for segment in &segments[first..] {
        if let Some((_, header)) = segment.find(offset)? {
            return Ok((before, Some(header)));
        }
    }
    Ok((before, None))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn epochs(entries: &[(i32, i64)]) -> Epochs {
        Epochs(entries.to_vec())
    }

    #[test]
    fn the_file_reads_back_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let written = epochs(&[(0, 0), (2, 20), (5, 21)]);

        written.store(directory.path()).unwrap();

        let text = fs::read_to_string(directory.path().join(NAME)).unwrap();
        assert_eq!(text, "0\n3\n0 0\n2 20\n5 21\n");
        assert_eq!(Epochs::load(directory.path()).unwrap(), Some(written));
    }

    #[test]
    fn a_file_that_does_not_follow_the_format_counts_as_missing() {
        for text in [
            "",
            "1\n0\n",
            "0\n2\n0 0\n",
            "0\n1\n0\n",
            "0\n2\n1 5\n0 9\n",
            "0\n1\nx 0\n",
        ] {
            assert_eq!(Epochs::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_epoch_begins_once() {
        let mut found = Epochs::default();

        let begun: Vec<bool> = [(0, 0), (0, 4), (3, 9), (1, 12)]
            .map(|(epoch, offset)| found.begin(epoch, offset))
            .to_vec();

        assert_eq!(begun, [true, false, true, false]);
        assert_eq!(found, epochs(&[(0, 0), (3, 9)]));
    }

    #[test]
    fn an_epoch_whose_first_batch_was_refused_gives_way_to_a_later_one() {
        let mut found = epochs(&[(0, 0), (3, 9)]);
        found.begin(5, 9);
        assert_eq!(found, epochs(&[(0, 0), (5, 9)]));
    }

    #[test]
    fn an_epoch_ends_where_the_next_begins() {
        let found = epochs(&[(1, 0), (3, 9)]);
        assert_eq!(found.end_of(1, 20), (1, 9));
        assert_eq!(found.end_of(2, 20), (1, 9));
        assert_eq!(found.end_of(0, 20), (0, 0));
        assert_eq!(found.end_of(3, 20), (3, 20));
    }

    #[test]
    fn an_offset_belongs_to_the_epoch_that_began_before_it() {
        let found = epochs(&[(1, 5), (3, 9)]);
        assert_eq!(
            [4, 5, 8, 9].map(|offset| found.at(offset)),
            [None, Some(1), Some(1), Some(3)]
        );
    }

    #[test]
    fn an_epoch_without_a_batch_is_forgotten() {
        let mut found = epochs(&[(0, 0), (3, 9)]);
        found.truncate(9);
        assert_eq!(found, epochs(&[(0, 0)]));
    }
}
