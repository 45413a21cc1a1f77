//! The producer state of a log: a snapshot that fits, and the batches behind it.
//!
//! # Invariant
//! What snapshots and `.txnindex` files say is believed only if it fits the batches; everything
//! can be made from the batches alone.

use std::io;
use std::path::Path;
use std::sync::Arc;

use txn_protocol::batch::HEADER_BYTES;

use super::evidence::Evidence;
use crate::aborted;
use crate::aborted_sums::AbortedSums;
use crate::builder::decode_marker;
use crate::disk;
use crate::error::OpenError;
use crate::producer_state::{AbortedTxn, ProducerStateError, ProducerStateManager, ReplayedBatch};
use crate::segment::{Segment, file_path};
use crate::snapshot;
use crate::txn_index_check;

/// Batches handed to the producer state at once.
const REPLAY_CHUNK: usize = 4096;
/// Distance before a snapshot from which batches are recalled, in bytes of log.
const BACKFILL_BYTES: u64 = 4 << 20;

pub(super) fn producer_state_failed(error: ProducerStateError) -> OpenError {
    OpenError::ProducerStateManager(error.0)
}

pub(super) fn restore(
    producer_state: &dyn ProducerStateManager,
    bytes: Option<&[u8]>,
    aborted: &[AbortedTxn],
) -> Result<(), OpenError> {
    producer_state
        .restore(bytes, aborted)
        .map_err(producer_state_failed)
}

/// Brings a producer state to the batches of an open log, as a start does; returns the aborted
/// transactions and the first unstable offset.
///
/// # Errors
/// The errors of `recover`; the producer state is of no use until this succeeds.
pub(crate) fn derive_producer_state(
    directory: &Path,
    producer_state: &dyn ProducerStateManager,
    segments: &[Arc<Segment>],
) -> Result<(Vec<AbortedTxn>, Option<i64>), OpenError> {
    if segments.is_empty() {
        restore(producer_state, None, &[])?;
        return Ok((Vec::new(), None));
    }
    let entries = recover_producer_state(directory, producer_state, segments, None, false)?;
    if let Some(active) = segments.last() {
        // The others are as they were; one of them may just be replaced by a cleaned one.
        aborted::store(&active.path("txnindex"), &entries_of(active, &entries))?;
    }
    let first_unstable_offset = producer_state
        .first_unstable_offset()
        .map_err(producer_state_failed)?;
    Ok((entries, first_unstable_offset))
}

/// Removes the snapshots that a power failure has torn: those that were not synced may be anything.
pub(super) fn remove_torn_snapshots(
    directory: &Path,
    producer_state: &dyn ProducerStateManager,
    segments: &[Arc<Segment>],
    evidence: Option<&Evidence>,
) -> io::Result<()> {
    let scanned = evidence.and_then(|evidence| segments.get(evidence.first_segment));
    let synced_end = scanned.map_or(0, |first| first.base_offset);
    for offset in snapshot::offsets(directory)? {
        let path = file_path(directory, offset, "snapshot");
        if offset > synced_end && !fits(producer_state, &path, &[])? {
            disk::remove_if_there(&path)?;
        }
    }
    Ok(())
}

/// Restores a snapshot; false if its file cannot be one.
fn fits(
    producer_state: &dyn ProducerStateManager,
    path: &Path,
    aborted: &[AbortedTxn],
) -> io::Result<bool> {
    let stored = disk::read_derived(path)?;
    Ok(stored.is_some_and(|bytes| producer_state.restore(Some(&bytes), aborted).is_ok()))
}

/// Restores the newest snapshot that fits, replays the batches after it, and returns every aborted
/// transaction of the log, in the order of the markers.
pub(super) fn recover_producer_state(
    directory: &Path,
    producer_state: &dyn ProducerStateManager,
    segments: &[Arc<Segment>],
    evidence: Option<&Evidence>,
    was_closed: bool,
) -> Result<Vec<AbortedTxn>, OpenError> {
    let log_start_offset = segments[0].base_offset;
    let (indexed, indexed_end) = txn_index_check::load(directory, segments, was_closed)?;
    let mut snapshots = snapshot::offsets(directory)?;
    // Entries below the recovery point that fit the batches are all there are; behind it some may
    // be missing, and to know that takes a scan of all batches.
    let newest = evidence
        .filter(|evidence| evidence.first_segment > 0)
        .map_or(i64::MAX, |evidence| {
            segments[evidence.first_segment].base_offset
        });
    let evidence = evidence.filter(|evidence| evidence.first_segment == 0);
    let newest = newest.min(indexed_end);
    snapshots.retain(|&offset| (log_start_offset..=newest).contains(&offset));
    let mut replay_start = log_start_offset;
    let mut entries = Vec::new();
    let mut is_restored = false;
    for offset in snapshots {
        let known: Vec<AbortedTxn> = indexed
            .iter()
            .filter(|entry| entry.last_offset < offset)
            .copied()
            .collect();
        if evidence.is_some_and(|evidence| !evidence.agrees_with(&known, offset)) {
            continue;
        }
        if fits(
            producer_state,
            &file_path(directory, offset, "snapshot"),
            &known,
        )? {
            (replay_start, entries, is_restored) = (offset, known, true);
            break;
        }
    }
    if !is_restored {
        restore(producer_state, None, &[])?;
    }
    entries.extend(replay_from(producer_state, segments, replay_start)?);
    if is_restored {
        backfill(producer_state, segments, replay_start)?;
    }
    Ok(entries)
}

/// Writes these entries to the transaction indexes, and the lines for them.
pub(super) fn store_aborted(
    directory: &Path,
    segments: &[Arc<Segment>],
    entries: &[AbortedTxn],
) -> io::Result<()> {
    let mut entries_by_segment = Vec::with_capacity(segments.len());
    for segment in segments {
        entries_by_segment.push((segment, entries_of(segment, entries)));
    }
    let sums = entries_by_segment
        .iter()
        .map(|(segment, entries)| (segment.base_offset, &entries[..]));
    // Before the indexes: one that is cut short by a crash is then seen to lack entries.
    AbortedSums::of(sums).store(directory)?;
    for (segment, entries) in &entries_by_segment {
        aborted::store(&segment.path("txnindex"), entries)?;
    }
    Ok(())
}

/// Replays stored batches from an offset on into the producer state; returns the aborted
/// transactions that ended there.
fn replay_from(
    producer_state: &dyn ProducerStateManager,
    segments: &[Arc<Segment>],
    start: i64,
) -> Result<Vec<AbortedTxn>, OpenError> {
    let mut ended = Vec::new();
    let mut replay = Replay::new(|batches| {
        ended.extend(
            producer_state
                .replay(batches)
                .map_err(producer_state_failed)?,
        );
        Ok(())
    });
    for segment in segments
        .iter()
        .filter(|segment| segment.next_offset() > start)
    {
        if let Some((position, _)) = segment.find(start)? {
            segment.verify(position, segment.size() - position)?;
            replay.read(segment, position, segment.size())?;
        }
    }
    replay.finish()?;
    Ok(ended)
}

/// Those of the transactions that ended in a segment.
pub(crate) fn entries_of(segment: &Segment, entries: &[AbortedTxn]) -> Vec<AbortedTxn> {
    let offsets = segment.base_offset..segment.next_offset();
    entries
        .iter()
        .filter(|entry| offsets.contains(&entry.last_offset))
        .copied()
        .collect()
}

/// Recalls the batches of the last few MiB before a snapshot.
fn backfill(
    producer_state: &dyn ProducerStateManager,
    segments: &[Arc<Segment>],
    end: i64,
) -> Result<(), OpenError> {
    let mut pieces = Vec::new();
    let mut budget = BACKFILL_BYTES;
    for segment in segments
        .iter()
        .rev()
        .filter(|segment| segment.base_offset < end)
    {
        let until = segment
            .find(end)?
            .map_or(segment.size(), |(position, _)| position);
        let from = segment.batch_at_or_before(until.saturating_sub(budget))?;
        pieces.push((segment, from, until));
        budget = budget.saturating_sub(until - from);
        if budget == 0 {
            break;
        }
    }
    let mut recall = Replay::new(|batches| {
        producer_state
            .backfill(batches)
            .map_err(producer_state_failed)
    });
    for (segment, from, until) in pieces.into_iter().rev() {
        recall.read(segment, from, until)?;
    }
    recall.finish()
}

/// Collects stored batches with a producer id and hands them on in chunks.
struct Replay<F> {
    batches: Vec<ReplayedBatch>,
    hand_on: F,
}

impl<F: FnMut(&[ReplayedBatch]) -> Result<(), OpenError>> Replay<F> {
    fn new(hand_on: F) -> Self {
        Self {
            batches: Vec::new(),
            hand_on,
        }
    }

    fn read(&mut self, segment: &Segment, from: u64, until: u64) -> Result<(), OpenError> {
        let mut scanner = segment.scan_between(from, until)?;
        while let Some((position, header)) =
            scanner.next().map_err(|error| segment.damaged(error))?
        {
            if header.producer_id() < 0 {
                continue;
            }
            let marker = if header.is_control() {
                let bytes = scanner.bytes(position, header.size())?;
                match decode_marker(&bytes[HEADER_BYTES..]) {
                    Some(marker) => Some(marker),
                    None => continue, // a control record that ends no transaction
                }
            } else {
                None
            };
            self.batches.push(ReplayedBatch::of(&header, marker));
            if self.batches.len() == REPLAY_CHUNK {
                (self.hand_on)(&self.batches)?;
                self.batches.clear();
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), OpenError> {
        if self.batches.is_empty() {
            return Ok(());
        }
        (self.hand_on)(&std::mem::take(&mut self.batches))
    }
}
