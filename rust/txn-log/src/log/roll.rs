//! Room for a batch: the active segment, another one, and the files that come with it.
//!
//! Under the partition's lock.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::aborted_sums::AbortedSums;
use crate::disk;
use crate::log::PartitionLog;
use crate::log_files::METADATA_NAME;
use crate::recovery;
use crate::segment::{Incoming, Segment};
use crate::settings::Settings;
use crate::snapshot;

impl PartitionLog {
    /// The segment a batch goes to: the last one, or a new one. Called under the lock.
    pub(crate) fn segment_for(
        &self,
        settings: &Settings,
        base_offset: i64,
        batch: &Incoming,
    ) -> io::Result<Arc<Segment>> {
        if let Some(active) = self.segments().last()
            && active.has_room(batch, settings).map_err(io::Error::other)?
        {
            return Ok(Arc::clone(active));
        }
        self.roll(settings, base_offset)
    }

    /// Seals the active segment, if there is one, and begins another. Under the lock.
    pub(crate) fn roll(&self, settings: &Settings, base_offset: i64) -> io::Result<Arc<Segment>> {
        self.require_in_place()?;
        let segments = self.segments();
        match segments.last() {
            Some(active) => {
                active.store_indexes()?;
                self.store_aborted_sum(active)?;
                self.write_snapshot(base_offset)?;
            }
            None => self.make_directory()?,
        }
        let interval = settings.index_interval_bytes;
        let created = Arc::new(Segment::create(&self.directory, base_offset, interval)?);
        let syncs = self.syncs_before_close.load(Ordering::Relaxed);
        created.file.set_syncs_before_close(syncs);
        if let Some(sealed) = segments.last() {
            self.note_seal(Arc::clone(sealed));
        }
        // After the files are there: a sync under way must not take the flag for itself.
        self.has_new_files.store(true, Ordering::Release);
        let mut grown = Vec::with_capacity(segments.len() + 1);
        grown.extend(segments.iter().cloned());
        grown.push(Arc::clone(&created));
        self.replace_segments(grown);
        Ok(created)
    }

    /// Returns how many entries the transaction index of a segment has that is appended to no more.
    pub(super) fn store_aborted_sum(&self, segment: &Segment) -> io::Result<()> {
        let known = self.aborted.read().unwrap_or_else(PoisonError::into_inner);
        let entries = recovery::entries_of(segment, known.entries());
        drop(known);
        let mut sums = AbortedSums::load(&self.directory)?;
        sums.note(segment.base_offset, &entries);
        sums.store(&self.directory)
    }

    fn make_directory(&self) -> io::Result<()> {
        disk::create_directory(&self.directory)?;
        self.store_metadata()
    }

    /// Writes the required content of `partition.metadata`. A crash may have come before it was
    /// there, a power failure may have left it empty; Kafka takes no directory with such a file.
    pub(super) fn store_metadata(&self) -> io::Result<()> {
        let path = self.directory.join(METADATA_NAME);
        if let Some(text) = &self.partition_metadata
            && disk::read_derived(&path).ok().flatten().as_deref() != Some(text.as_bytes())
        {
            let unfinished = path.with_extension("metadata.tmp");
            disk::replace(&path, &unfinished, text.as_bytes())?;
        }
        Ok(())
    }

    /// Notes where the leader's epoch begins, before its first batch. Called under the lock.
    pub(crate) fn begin_epoch(&self, leader_epoch: i32, base_offset: i64) -> io::Result<()> {
        let mut epochs = self.epochs_mut();
        let is_stored = !self.has_unstored_epoch.load(Ordering::Relaxed);
        if epochs.latest() >= Some(leader_epoch) && is_stored {
            return Ok(());
        }
        let mut grown = epochs.clone();
        grown.begin(leader_epoch, base_offset);
        grown.store(&self.directory)?;
        *epochs = grown;
        self.has_unstored_epoch.store(false, Ordering::Relaxed);
        self.has_new_files.store(true, Ordering::Release);
        Ok(())
    }

    /// Writes the producer state as it is before the batch at `offset`. A producer state that has none to
    /// give costs only time at the next start.
    pub(crate) fn write_snapshot(&self, offset: i64) -> io::Result<()> {
        match self.producer_state.snapshot() {
            Ok(bytes) => snapshot::write(&self.directory, offset, &bytes),
            Err(_) => Ok(()),
        }
    }
}
