//! A torn tail, or damage: the module `recovery` states the rules.
//!
//! # Invariant
//! A tail is cut only if no valid batch lies behind it.

use std::os::unix::fs::FileExt;

use txn_protocol::batch::{self, HEADER_BYTES, Header};

use super::damage::{InvalidBatch, PLAUSIBLE_GAP, Scanned, find_batch, is_whole};
use super::listing::corrupt;
use super::segments::UnopenedSegments;
use crate::disk;
use crate::error::{CorruptLog, OpenError};
use crate::segment::{Segment, file_path};

impl UnopenedSegments<'_> {
    /// Fails unless the rest of the log is the beginning of the batch that comes next. A killed
    /// process leaves only that, for its writes are in the page cache, in the order in which they
    /// were made.
    pub(super) fn require_prefix(
        &self,
        segment: &Segment,
        damage: &InvalidBatch,
        scanned: &Scanned,
        file_bytes: u64,
        nth: usize,
    ) -> Result<(), OpenError> {
        let fault = if nth + 1 < self.base_offsets.len() {
            Some("another segment is behind it")
        } else {
            let head_bytes = (file_bytes - scanned.size).min(HEADER_BYTES as u64);
            let mut head = vec![0; head_bytes as usize];
            segment.file.get()?.read_exact_at(&mut head, scanned.size)?;
            match batch::fault_of_prefix(&head, file_bytes - scanned.size, scanned.next_offset) {
                None if is_whole(segment, &head, scanned.size, file_bytes)? => {
                    Some("by its checksum the batch is whole, and its length is wrong")
                }
                fault => fault,
            }
        };
        let Some(fault) = fault else { return Ok(()) };
        let reason = format!(
            "{}; no process that was killed left it so: {fault}. Stored records were damaged after \
             they were written. Nothing was cut",
            damage.error
        );
        Err(corrupt(segment.path("log"), scanned.size, reason))
    }

    /// Fails if a valid batch lies behind the damage.
    pub(super) fn require_torn(
        &self,
        segment: &Segment,
        damage: &InvalidBatch,
        scanned: &Scanned,
        file_bytes: u64,
        nth: usize,
    ) -> Result<(), OpenError> {
        let expected = scanned.next_offset;
        let here = |position: u64, candidate: &Header| {
            let base_offset = candidate.base_offset();
            match &damage.sound_header {
                Some(sound) => {
                    let end = scanned.size + sound.size() as u64;
                    base_offset == sound.last_offset() + 1
                        || (position >= end && base_offset > sound.last_offset())
                }
                None => base_offset >= expected && base_offset - expected <= PLAUSIBLE_GAP,
            }
        };
        let path = segment.path("log");
        let mut found = find_batch(&*segment.file.get()?, scanned.size + 1, file_bytes, here)?
            .map(|position| (path.clone(), position));
        for &later in &self.base_offsets[nth + 1..] {
            if found.is_some() {
                break;
            }
            let later_path = file_path(self.directory, later, "log");
            let file = disk::open(&later_path)?;
            let belongs = |_: u64, candidate: &Header| {
                let base_offset = candidate.base_offset();
                base_offset >= later && base_offset - later <= PLAUSIBLE_GAP
            };
            found = find_batch(&file, 0, file.metadata()?.len(), belongs)?
                .map(|position| (later_path, position));
        }
        let Some((follows_in, follows_at)) = found else {
            return Ok(());
        };
        Err(OpenError::Corrupt(CorruptLog {
            path,
            position: scanned.size,
            reason: format!(
                "{}; a valid batch follows at byte {follows_at} of {}, so stored records were \
                 damaged after they were written. Nothing was cut",
                damage.error,
                follows_in.display()
            ),
        }))
    }
}
