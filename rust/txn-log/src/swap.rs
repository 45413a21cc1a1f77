//! A cleaned segment takes the place of the segments it was made from.
//!
//! The cleaner reads a run of adjacent sealed segments and writes the kept batches to
//! `<base>.log.cleaned`, where `<base>` is the base offset of the first. The aborted transactions
//! that are still needed go to `<base>.txnindex.cleaned`, which may be empty but must be there. The
//! swap then is, each step durable before the next:
//!
//! 1. `.cleaned` is synced and renamed to `.swap`: first the transaction index, then the log.
//!    A `.log.swap` is the decision; from here on the swap is finished in any case.
//! 2. The files of the old segments are renamed to `*.deleted`.
//! 3. `.swap` is renamed to its final name: first the transaction index, then the log. The
//!    offset and time index are made anew.
//!
//! `unfinished_swaps` does the same after a crash, and removes undecided files.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::aborted;
use crate::aborted_sums::AbortedSums;
use crate::disk;
use crate::error::ReadError;
use crate::log::PartitionLog;
use crate::open_files::SegmentFile;
use crate::segment::{Segment, file_path};

/// A sealed segment, as the cleaner sees it.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// Offset of the first batch it may hold.
    pub base_offset: i64,
    /// Exclusive upper bound of its offsets: the base offset of the segment after it.
    pub end_offset: i64,
    /// Bytes of whole batches.
    pub size: u64,
    /// Largest timestamp of its batches; `None` if no batch has one.
    pub largest_timestamp: Option<i64>,
    /// Its `.log`; beside it are `.index`, `.timeindex` and perhaps `.txnindex`.
    pub path: PathBuf,
    /// Its `.log`, which can be read for a while after a removal.
    pub(crate) file: Arc<SegmentFile>,
}

fn sealed_as(segment: &Segment) -> Result<Sealed, ReadError> {
    Ok(Sealed {
        base_offset: segment.base_offset,
        end_offset: segment.next_offset(),
        size: segment.size(),
        largest_timestamp: segment.largest_timestamp()?.map(|it| it.timestamp),
        path: segment.path("log"),
        file: Arc::clone(&segment.file),
    })
}

impl PartitionLog {
    /// The segments nothing is appended to any more, oldest first: all but the active one.
    ///
    /// # Errors
    /// `Io`, `Corrupt`: a time index had to be rebuilt, and could not. `Closed`, instead of these.
    pub fn sealed_segments(&self) -> Result<Vec<Sealed>, ReadError> {
        self.reading(|| {
            let segments = self.segments();
            let sealed = &segments[..segments.len().saturating_sub(1)];
            sealed.iter().map(|it| sealed_as(it)).collect()
        })
    }

    /// Puts `<first>.log.cleaned` and `<first>.txnindex.cleaned` in the place of the sealed
    /// segments with these base offsets; the module lists their required contents. Readers go on
    /// meanwhile. False, and the `.cleaned` files are removed, if one of the segments is no longer
    /// there, or if the log was truncated since `truncations` were counted. Then retention was
    /// faster, the cleaned batches are no longer the stored ones, or the log was closed.
    ///
    /// # Errors
    /// The disk's. Nothing is lost: the next start finishes it.
    pub fn swap_segments(&self, base_offsets: &[i64], truncations: u64) -> io::Result<bool> {
        let _maintenance = self.maintenance();
        let segments = self.segments();
        let sealed = &segments[..segments.len().saturating_sub(1)];
        let first = base_offsets.first().copied().unwrap_or(-1);
        let at = sealed.partition_point(|segment| segment.base_offset < first);
        let olds = &sealed[at..(at + base_offsets.len()).min(sealed.len())];
        let cleaned =
            |extension: &str| file_path(&self.directory, first, &format!("{extension}.cleaned"));
        let found = olds.iter().map(|segment| segment.base_offset);
        let is_same = found.eq(base_offsets.iter().copied()) && self.truncations() == truncations;
        if base_offsets.is_empty() || !is_same || self.is_closed() {
            disk::remove_if_there(&cleaned("log"))?;
            disk::remove_if_there(&cleaned("txnindex"))?;
            return Ok(false);
        }
        self.require_in_place()?;
        for extension in ["txnindex", "log"] {
            let path = cleaned(extension);
            disk::sync(&disk::open(&path)?, &path)?;
            disk::rename(&path, &path.with_extension("swap"))?;
        }
        disk::sync_directory(&self.directory)?;
        self.rename_deleted_segments(olds)?;
        for extension in ["txnindex", "log"] {
            let swap = file_path(&self.directory, first, &format!("{extension}.swap"));
            disk::rename(&swap, &swap.with_extension(""))?;
        }
        let end_offset = olds[olds.len() - 1].next_offset();
        let interval = self.settings().index_interval_bytes;
        let fresh = Segment::open(&self.directory, first, end_offset, interval)?;
        fresh.store_indexes()?;
        fresh.sync_sealed()?;
        self.store_aborted_sum_of_swap(base_offsets)?;
        disk::sync_directory(&self.directory)?;
        {
            let _writer = self.writer_even_if_failed();
            let mut swapped = self.segments().as_ref().clone();
            let at = swapped.partition_point(|segment| segment.base_offset < first);
            // A log that was closed or deleted meanwhile has let go of its segments.
            if at + olds.len() <= swapped.len() {
                swapped.splice(at..at + olds.len(), [Arc::new(fresh)]);
                self.replace_segments(swapped);
            }
        }
        self.prune_snapshots()?;
        Ok(true)
    }

    /// Replaces the lines of the swapped segments by one for the index that replaced theirs.
    fn store_aborted_sum_of_swap(&self, base_offsets: &[i64]) -> io::Result<()> {
        let _writer = self.writer_even_if_failed(); // a roll writes the file too
        let path = file_path(&self.directory, base_offsets[0], "txnindex");
        let entries = aborted::load(&path)?.unwrap_or_default();
        let mut sums = AbortedSums::load(&self.directory)?;
        sums.replace(base_offsets, &entries);
        sums.store(&self.directory)?;
        AbortedSums::sync(&self.directory)
    }
}
