//! Opening a log: its stored batches, its end, and the facts that the producer state has to know of
//! it.
//!
//! A directory that was closed is trusted: sizes are believed, indexes loaded, the newest
//! snapshot restored, and only headers after it are read. In any other directory the segments
//! that lie wholly below the recovery point are trusted likewise, and the others are read from
//! end to end with every checksum; the producer state goes on from a snapshot at or below the first of
//! them.
//!
//! # What a killed process may leave, and what is done
//! * A torn write. The page cache survived, so it is the beginning of one batch at the end of the
//!   last segment, shorter than its header announces. It was never acknowledged; the log is cut
//!   there, and the cut is told of ([`Cut`]).
//! * Nothing else. A batch whose full length is there with a wrong checksum, a header that makes
//!   no sense, an end below a checkpoint, a segment that does not reach the next: all of that is
//!   damage. Nothing is cut and opening fails, naming file and position.
//!
//! After a clean stop nothing at all may be torn or missing.
//!
//! First segments that are gone were removed only if `log-start-offset-checkpoint` says so: a
//! removal notes the new log start first (see `removal`). Apache Kafka notes it afterwards, so this
//! proves nothing of a directory that one has left without a clean stop.
//!
//! # After a power failure
//! Pages reach the disk in any order. Bytes beyond the recovery point may be anything: the log is
//! cut at the first batch that is not whole, for a sync covers everything before it. The cut is on
//! the disk before a batch is appended (`PartitionLog::force_cut`). A segment that
//! ends just at the recovery point is read too: perhaps no more than its batches is on the disk.
//! Damage below the recovery point is damage; a recovery point that the log does not reach is none.
//!
//! A segment that ends at a batch's end before the next one begins has lost its end too, even in a
//! compacted log. The cleaner keeps the last batch of each segment that it writes, and syncs the
//! segment before the swap (see `compaction` and `swap`). A follower begins a segment where its log
//! ends. So their gaps lie within segments, where a power failure leaves none. Apache Kafka leaves
//! gaps between segments. They lie below the offset that `cleaner-offset-checkpoint` names, or below
//! the recovery point: a start that takes over a directory of Kafka's syncs it first.
//!
//! # In any case
//! Snapshots or `.txnindex` entries that do not fit the batches can be made from the batches, so
//! the producer state replays from an older snapshot or from the start. Batches that it replays are
//! read with their checksums, in a trusted segment too: a marker that is damaged ends nothing.
//!
//! # Telling a torn tail from damage below a recovery point
//! If the damaged batch's header is sound, its successor has to begin at `last offset + 1`;
//! a valid batch anywhere behind it with that base offset, or one after its end with a higher
//! one, proves damage. If the header itself is damaged, any valid batch with a plausible base
//! offset does. (A torn batch may well contain batches: someone else's log, stored as values.)
//! A batch whose checksum is right but whose offset goes back is damage in any case.

mod damage;
mod evidence;
mod extent;
mod listing;
mod producers;
mod segments;
mod torn;

use std::path::Path;
use std::sync::Arc;

use crate::aborted::AbortedTxns;
use crate::disk;
use crate::epochs::Epochs;
use crate::error::OpenError;
use crate::past::Past;
use crate::producer_state::ProducerStateManager;
use crate::segment::Segment;
use crate::settings::Settings;
use crate::snapshot;
use crate::unfinished_swaps::finish_swaps;

use listing::{Listed, list_segments};
use producers::{
    producer_state_failed, recover_producer_state, remove_torn_snapshots, restore, store_aborted,
};
use segments::{Look, UnopenedSegments};

pub(crate) use damage::end_behind;
pub(crate) use listing::{has_known_name, require_files};
pub(crate) use producers::{derive_producer_state, entries_of};
pub use segments::Cut;

/// A log as it was found.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub segments: Vec<Arc<Segment>>,
    /// Its files were taken as a clean close left them.
    pub was_trusted: bool,
    /// Begin of the scan; everything below was believed.
    pub scanned_from: i64,
    /// The sealed segments whose indexes may not be on the disk: made anew by the scan, or by the
    /// run before after its last sync.
    pub unsynced_seals: Vec<Arc<Segment>>,
    pub first_unstable_offset: Option<i64>,
    pub aborted: AbortedTxns,
    pub epochs: Epochs,
    /// In the order of the offsets.
    pub cuts: Vec<Cut>,
    /// Batches, or a snapshot behind the last one, were removed; that is not synced yet.
    pub was_shortened: bool,
}

/// Opens a directory, which need not exist, and brings the producer state to its state.
///
/// # Errors
/// See the module. Nothing is cut or removed when it fails for damage, but for files that a
/// compaction has replaced.
pub(crate) fn recover(
    directory: &Path,
    producer_state: &dyn ProducerStateManager,
    settings: &Settings,
    past: Past,
) -> Result<Recovered, OpenError> {
    require_files(directory)?;
    finish_swaps(directory, past.was_left_by_kafka)?;
    let (listed, look) = look(directory, settings, past)?;
    let base_offsets = &listed.base_offsets[..];
    for (_, path) in &listed.orphans {
        disk::remove_if_there(path)?; // of a segment whose removal was cut short
    }
    look.carry_out(directory, base_offsets)?;
    let Look {
        segments,
        evidence,
        cuts,
    } = look;
    if segments.is_empty() {
        restore(producer_state, None, &[])?;
        return Ok(Recovered::default());
    }
    let segments: Vec<Arc<Segment>> = segments.into_iter().map(Arc::new).collect();
    let log_end_offset = segments.last().map_or(0, |last| last.next_offset());
    if past.power_failed {
        remove_torn_snapshots(directory, producer_state, &segments, evidence.as_ref())?;
    }
    let was_trusted = evidence.is_none();
    let first_scanned = evidence
        .as_ref()
        .map_or(segments.len(), |evidence| evidence.first_segment);
    let scanned_from = segments
        .get(first_scanned)
        .map_or(log_end_offset, |first| first.base_offset);
    // A segment that ends at the recovery point may have been sealed since.
    let durable_end = if was_trusted {
        i64::MAX
    } else {
        scanned_from.min(past.recovery_point - 1)
    };
    let was_shortened = snapshot::prune(directory, log_end_offset, base_offsets, durable_end)?;
    let seen = evidence.as_ref().map(|evidence| &evidence.epochs[..]);
    let epochs = recover_epochs(directory, &segments, seen)?;
    let entries = recover_producer_state(
        directory,
        producer_state,
        &segments,
        evidence.as_ref(),
        was_trusted,
    )?;
    store_aborted(directory, &segments, &entries)?;
    let first_unstable_offset = producer_state
        .first_unstable_offset()
        .map_err(producer_state_failed)?;
    for segment in &segments {
        segment.file.close_if_synced(); // many logs are opened that nobody uses soon
    }
    let is_synced =
        |segment: &Arc<Segment>| was_trusted || segment.next_offset() < past.recovery_point;
    let first_unsynced = first_scanned.min(segments.partition_point(is_synced));
    let sealed = &segments[..segments.len().saturating_sub(1)];
    Ok(Recovered {
        scanned_from,
        unsynced_seals: sealed.get(first_unsynced..).unwrap_or_default().to_vec(),
        segments,
        was_trusted,
        first_unstable_offset,
        aborted: AbortedTxns::new(entries),
        epochs,
        was_shortened: was_shortened || !cuts.is_empty(),
        cuts,
    })
}

/// Looks at a directory, which need not exist, and changes nothing. A swap that was cut short has
/// to be finished.
///
/// # Errors
/// The errors of `recover`.
pub(crate) fn look(
    directory: &Path,
    settings: &Settings,
    past: Past,
) -> Result<(Listed, Look), OpenError> {
    require_files(directory)?;
    let listed = list_segments(directory)?;
    let unopened = UnopenedSegments {
        directory,
        index_interval_bytes: settings.index_interval_bytes,
        base_offsets: &listed.base_offsets,
        past,
        may_have_gaps: past.may_have_gaps(settings),
    };
    unopened.require_no_lost_segment(&listed.orphans)?;
    let look = if past.was_clean {
        unopened.open_clean()?
    } else {
        unopened.scan_from(past.recovery_point)?
    };
    unopened.require_end(&look.segments)?;
    Ok((listed, look))
}

/// Reads which epoch began where; `seen` are the (epoch, base offset) of the batches that a
/// scan went through. Without a sound file every header is read.
fn recover_epochs(
    directory: &Path,
    segments: &[Arc<Segment>],
    seen: Option<&[(i32, i64)]>,
) -> Result<Epochs, OpenError> {
    let log_end_offset = segments.last().map_or(0, |last| last.next_offset());
    let mut stored = Epochs::load(directory)?;
    if let Some(found) = &stored
        && !found.fit(segments)?
    {
        stored = None;
    }
    let mut epochs = stored.clone().unwrap_or_default();
    epochs.truncate(log_end_offset);
    if stored.is_some() {
        for &(epoch, base_offset) in seen.unwrap_or_default() {
            epochs.begin(epoch, base_offset);
        }
    } else {
        for segment in segments {
            let mut scanner = segment.scan_from(0)?;
            while let Some((_, header)) = scanner.next().map_err(|error| segment.damaged(error))? {
                epochs.begin(header.leader_epoch(), header.base_offset());
            }
        }
    }
    if stored.as_ref() != Some(&epochs) {
        epochs.store(directory)?;
    }
    Ok(epochs)
}
