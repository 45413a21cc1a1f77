//! Verifies the transaction indexes of a log against its batches.
//!
//! Entries have no checksum. A wrong or missing entry shows a `read_committed` reader aborted
//! records, or hides committed ones. So every entry is verified. `txnindex-checkpoint`
//! (`aborted_sums`) has the number of entries of sealed segments. The abort marker that an entry
//! names has to be in the log, its transaction has to begin at the named offset, and a transaction
//! that ended later has to begin at or above its last stable offset. If index and log contradict
//! each other, the index is not used from that segment on, and the producer state replays the
//! batches instead.
//!
//! A batch whose checksum is wrong contradicts nothing: its readers get an error. A batch that is
//! missing contradicts nothing either: it is below the log start, was compacted away, or has a
//! damaged base offset, which no checksum covers.
//!
//! Cost: one lookup for each marker and one for each beginning.

use std::path::Path;
use std::sync::Arc;

use txn_protocol::batch::{BatchView, Header};

use crate::aborted;
use crate::aborted_sums::AbortedSums;
use crate::builder::decode_marker;
use crate::error::{OpenError, ReadError};
use crate::producer_state::AbortedTxn;
use crate::segment::Segment;

/// The entries in order, up to the first segment whose index is missing, damaged or wrong, and the
/// offset below which they are all. Unless the log was closed, the last entry may have been
/// written before a marker that never came; it is left out.
pub(crate) fn load(
    directory: &Path,
    segments: &[Arc<Segment>],
    was_closed: bool,
) -> Result<(Vec<AbortedTxn>, i64), OpenError> {
    let sums = AbortedSums::load(directory)?;
    let mut all = Vec::new();
    let mut end = i64::MAX;
    for (number, segment) in segments.iter().enumerate() {
        if segment.size() == 0 {
            continue;
        }
        let may_be_ahead = number + 1 == segments.len() && !was_closed;
        let entries = load_one(segments, segment, may_be_ahead)?;
        let is_whole = |entries: &Vec<_>| may_be_ahead || sums.agree(segment.base_offset, entries);
        let Some(entries) = entries.filter(is_whole) else {
            end = segment.base_offset;
            break;
        };
        all.extend(entries);
    }
    if let Some(offset) = first_beyond_its_successors(&all) {
        let wrong = segments.partition_point(|segment| segment.base_offset <= offset) - 1;
        end = segments[wrong].base_offset;
        all.retain(|entry| entry.last_offset < end);
    }
    Ok((all, end))
}

/// The entries of one segment; `None` if they cannot be believed.
fn load_one(
    segments: &[Arc<Segment>],
    segment: &Segment,
    may_be_ahead: bool,
) -> Result<Option<Vec<AbortedTxn>>, OpenError> {
    let Some(mut entries) = aborted::load(&segment.path("txnindex"))? else {
        return Ok(None);
    };
    let stored = entries.len();
    entries.retain(|entry| entry.last_offset < segment.next_offset());
    if entries.len() < stored && !may_be_ahead {
        return Ok(None);
    }
    for entry in &entries {
        if entry.last_offset < segment.base_offset
            || contradicts_marker(segments, entry)?
            || contradicts_beginning(segments, entry)?
        {
            return Ok(None);
        }
    }
    Ok(Some(entries))
}

/// True if something else stands in the log than the abort marker of an entry.
fn contradicts_marker(segments: &[Arc<Segment>], entry: &AbortedTxn) -> Result<bool, OpenError> {
    let Some((segment, position, header)) = batch_at(segments, entry.last_offset)? else {
        return Ok(false);
    };
    is_sound_and(segment, position, &header, |batch| {
        header.base_offset() != entry.last_offset
            || !header.is_control()
            || header.producer_id() != entry.producer_id
            || decode_marker(batch.records()).is_none_or(|(is_commit, _)| is_commit)
    })
}

/// True if something else stands in the log at the named begin of an entry's transaction.
fn contradicts_beginning(segments: &[Arc<Segment>], entry: &AbortedTxn) -> Result<bool, OpenError> {
    let Some((segment, position, header)) = batch_at(segments, entry.first_offset)? else {
        return Ok(false);
    };
    let is_its = header.base_offset() == entry.first_offset
        && !header.is_control()
        && header.is_transactional()
        && header.producer_id() == entry.producer_id;
    if is_its {
        return Ok(false);
    }
    is_sound_and(segment, position, &header, |_| true)
}

/// The batch that holds an offset, and its position; `None` if there is none.
fn batch_at(
    segments: &[Arc<Segment>],
    offset: i64,
) -> Result<Option<(&Segment, u64, Header)>, OpenError> {
    let after = segments.partition_point(|segment| segment.base_offset <= offset);
    let Some(segment) = after.checked_sub(1).map(|number| &segments[number]) else {
        return Ok(None);
    };
    match segment.find(offset) {
        Ok(found) => Ok(found
            .filter(|(_, header)| header.base_offset() <= offset)
            .map(|(position, header)| (&**segment, position, header))),
        Err(ReadError::Corrupt(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// True if a batch has a property and a checksum that fits.
fn is_sound_and(
    segment: &Segment,
    position: u64,
    header: &Header,
    has: impl Fn(&BatchView<'_>) -> bool,
) -> Result<bool, OpenError> {
    let mut scanner = segment.scan_from(position)?;
    let parsed = BatchView::parse(scanner.bytes(position, header.size())?);
    Ok(parsed.is_ok_and(|batch| has(&batch) && batch.validate_crc().is_ok()))
}

/// The marker of the first entry whose last stable offset is beyond it, or beyond the beginning of
/// one that ended later.
fn first_beyond_its_successors(entries: &[AbortedTxn]) -> Option<i64> {
    let mut first = None;
    let mut least = i64::MAX;
    for entry in entries.iter().rev() {
        if entry.last_stable_offset > least.min(entry.last_offset + 1) {
            first = Some(entry.last_offset);
        }
        least = least.min(entry.first_offset);
    }
    first
}
