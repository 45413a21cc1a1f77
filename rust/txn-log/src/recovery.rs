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

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use txn_protocol::batch::{self, BatchView, HEADER_BYTES, Header};

use crate::aborted::{self, AbortedTxns};
use crate::aborted_sums::{self, AbortedSums};
use crate::builder::decode_marker;
use crate::disk;
use crate::epochs::{self, Epochs};
use crate::error::{CorruptLog, OpenError};
use crate::index::Indexes;
use crate::log_files::{METADATA_NAME, remove_segment};
use crate::past::Past;
use crate::producer_state::{AbortedTxn, ProducerStateError, ProducerStateManager, ReplayedBatch};
use crate::scan::{ScanError, Scanner};
use crate::segment::{Segment, file_path};
use crate::settings::Settings;
use crate::snapshot;
use crate::txn_index_check;
use crate::unfinished_swaps::finish_swaps;

/// Batches handed to the producer state at once.
const REPLAY_CHUNK: usize = 4096;
/// Distance before a snapshot from which batches are recalled, in bytes of log.
const BACKFILL_BYTES: u64 = 4 << 20;
/// Distance ahead of the expected offset at which a batch behind damage may be.
const PLAUSIBLE_GAP: i64 = 1 << 31;
/// No log gets this far; a file with such a name is no segment of one.
const BASE_OFFSET_MAX: i64 = i64::MAX / 2;
/// Bytes searched at once for a batch behind damage.
const SEARCH_CHUNK: u64 = 1 << 20;

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

/// Bytes that recovery cut off a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment; one that was cut as a whole is removed.
    pub path: PathBuf,
    /// Where it ends now.
    pub position: u64,
    /// Their number.
    pub bytes: u64,
    /// The first offset that is given out again.
    pub first_offset: i64,
    /// Why that was right.
    pub reason: String,
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

fn producer_state_failed(error: ProducerStateError) -> OpenError {
    OpenError::ProducerStateManager(error.0)
}

fn restore(
    producer_state: &dyn ProducerStateManager,
    bytes: Option<&[u8]>,
    aborted: &[AbortedTxn],
) -> Result<(), OpenError> {
    producer_state
        .restore(bytes, aborted)
        .map_err(producer_state_failed)
}

/// The segments of a directory, and the index files that belong to none.
#[derive(Default)]
pub(crate) struct Listed {
    /// In order.
    base_offsets: Vec<i64>,
    /// By base offset.
    orphans: Vec<(i64, PathBuf)>,
}

fn list_segments(directory: &Path) -> Result<Listed, OpenError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listed::default()),
        other => other?,
    };
    let mut base_offsets = Vec::new();
    let mut orphans = Vec::new();
    for entry in entries {
        let path = entry?.path();
        for extension in ["index", "timeindex", "txnindex"] {
            orphans.extend(snapshot::parse_name(&path, extension).map(|base| (base, path.clone())));
        }
        let base_offset = snapshot::parse_name(&path, "log");
        if base_offset.is_some_and(|offset| offset > BASE_OFFSET_MAX) {
            let reason = format!("its base offset is above {BASE_OFFSET_MAX}");
            return Err(corrupt(path, 0, reason));
        }
        base_offsets.extend(base_offset);
    }
    base_offsets.sort_unstable();
    orphans.retain(|(base_offset, _)| base_offsets.binary_search(base_offset).is_err());
    orphans.sort_unstable();
    Ok(Listed {
        base_offsets,
        orphans,
    })
}

/// Fails if something else stands in the place of the directory or of one of its files: to open
/// a FIFO would wait for ever. Files without a name of Kafka's are not looked at.
pub(crate) fn require_files(directory: &Path) -> Result<(), OpenError> {
    match fs::symlink_metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    require_kind(directory, "a directory", fs::Metadata::is_dir)?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if has_known_name(&entry.path()) && !entry.file_type()?.is_file() {
            require_kind(&entry.path(), "a file", fs::Metadata::is_file)?;
        }
    }
    Ok(())
}

/// True if a path in a log's directory has the name of one of its files.
pub(crate) fn has_known_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_offset = name.len() > 20 && name.bytes().take(20).all(|digit| digit.is_ascii_digit());
    let is_passed_over = name.ends_with(disk::ASIDE_SUFFIX) || name.ends_with(".tmp");
    (is_offset && !is_passed_over)
        || [METADATA_NAME, epochs::NAME, aborted_sums::NAME].contains(&&*name)
}

/// The offset behind the last valid batch of `[position, end)`; at least `expected`.
pub(crate) fn end_behind(file: &File, position: u64, end: u64, expected: i64) -> io::Result<i64> {
    let mut furthest = expected;
    let mut from = position;
    let belongs = |_: u64, candidate: &Header| {
        let base_offset = candidate.base_offset();
        base_offset >= expected && base_offset - expected <= PLAUSIBLE_GAP
    };
    while let Some(at) = find_batch(file, from, end, belongs)? {
        let mut scanner = Scanner::headers(file, at, end);
        let Ok(Some((_, header))) = scanner.next() else {
            break;
        };
        furthest = furthest.max(header.last_offset() + 1);
        from = at + header.size() as u64;
    }
    Ok(furthest)
}

/// Fails if a path, or the one a symbolic link names, is of another kind.
fn require_kind(
    path: &Path,
    wanted: &str,
    is_wanted: impl Fn(&fs::Metadata) -> bool,
) -> Result<(), OpenError> {
    let kind = match fs::metadata(path) {
        Ok(found) if is_wanted(&found) => return Ok(()),
        Ok(found) => name_of(found.file_type()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => "a symbolic link to nothing",
        Err(error) => return Err(error.into()),
    };
    Err(corrupt(
        path.to_owned(),
        0,
        format!("it is {kind}, not {wanted}. Nothing was changed"),
    ))
}

fn name_of(kind: fs::FileType) -> &'static str {
    match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_file() => "a file",
        () => "a device",
    }
}

fn corrupt(path: PathBuf, position: u64, reason: String) -> OpenError {
    OpenError::Corrupt(CorruptLog {
        path,
        position,
        reason,
    })
}

/// The segments of a directory, before they are opened.
struct UnopenedSegments<'a> {
    directory: &'a Path,
    index_interval_bytes: u64,
    base_offsets: &'a [i64],
    past: Past,
    may_have_gaps: bool,
}

/// Findings in the segments; nothing was changed yet.
#[derive(Default)]
pub(crate) struct Look {
    segments: Vec<Segment>,
    /// Of a scan; `None` if the files were trusted.
    evidence: Option<Evidence>,
    pub cuts: Vec<Cut>,
}

impl Look {
    /// Brings the files to the findings: cuts the parts that have to go, and writes the indexes of
    /// the segments that were scanned.
    fn carry_out(&self, directory: &Path, base_offsets: &[i64]) -> io::Result<()> {
        let Some(evidence) = &self.evidence else {
            return Ok(());
        };
        if let (Some(cut), Some(last)) = (self.cuts.first(), self.segments.last()) {
            last.file.truncate(cut.position)?;
            for &later in &base_offsets[self.segments.len()..] {
                remove_segment(directory, later)?;
            }
        }
        for scanned in &self.segments[evidence.first_segment..] {
            scanned.store_indexes()?;
        }
        Ok(())
    }
}

impl UnopenedSegments<'_> {
    fn open(&self, base_offset: i64, next_offset: i64) -> io::Result<Segment> {
        Segment::open(
            self.directory,
            base_offset,
            next_offset,
            self.index_interval_bytes,
        )
    }

    /// Opens sealed segments without reading them through, from the first one on.
    fn open_unread(&self, count: usize) -> Result<Vec<Segment>, OpenError> {
        let ends = &self.base_offsets[1.min(self.base_offsets.len())..];
        let sealed = self.base_offsets[..count].iter().zip(ends);
        sealed
            .map(|(&base_offset, &next_offset)| {
                let segment = self.open(base_offset, next_offset)?;
                let end = segment.end_by_index()?;
                self.require_next(&segment, segment.size(), end, next_offset)?;
                Ok(segment)
            })
            .collect()
    }

    /// Fails if a segment does not end where the next one begins. Only compaction leaves gaps.
    fn require_next(
        &self,
        segment: &Segment,
        position: u64,
        end: i64,
        next: i64,
    ) -> Result<(), OpenError> {
        if next < end {
            return Err(corrupt(
                file_path(self.directory, next, "log"),
                0,
                format!("it begins at offset {next}, but the segment before it ends at {end}"),
            ));
        }
        if next > end && !self.may_have_gaps {
            let reason = format!(
                "it ends at offset {end}, but the next segment begins at {next}: what was between \
                 them is missing. Nothing was changed"
            );
            return Err(corrupt(segment.path("log"), position, reason));
        }
        Ok(())
    }

    /// Opens the segments of a closed log.
    fn open_clean(&self) -> Result<Look, OpenError> {
        let Some((last, sealed)) = self.base_offsets.split_last() else {
            return Ok(Look::default());
        };
        let mut segments = self.open_unread(sealed.len())?;
        let active = self.open(*last, *last)?;
        let size = active.size();
        let mut indexes = active.load_indexes(size)?;
        let mut next_offset = *last;
        let mut scanner = active.scan_between(indexes.offsets.last_position(), size)?;
        while let Some((position, header)) =
            scanner.next().map_err(|error| active.damaged(error))?
        {
            active.check_offsets(position, &header, next_offset)?;
            indexes.note_timestamp(&header);
            next_offset = header.last_offset() + 1;
        }
        active.restore(size, next_offset, indexes);
        segments.push(active);
        Ok(Look {
            segments,
            ..Look::default()
        })
    }

    /// Reads the part behind the recovery point.
    fn scan_from(&self, recovery_point: i64) -> Result<Look, OpenError> {
        let Some(ends) = self.base_offsets.get(1..) else {
            return Ok(Look::default());
        };
        // A segment that was the active one when the log was synced to its end may have been
        // sealed since: its indexes are then not on the disk.
        let is_sealed_on_disk =
            |end: i64| end < recovery_point || (end == recovery_point && !self.past.power_failed);
        let believed = ends.partition_point(|&end| is_sealed_on_disk(end));
        self.scan(believed, recovery_point)
    }

    /// Reads every batch of the segments from the `first` on, and makes their indexes anew, up to
    /// a tail that has to be cut.
    fn scan(&self, first: usize, recovery_point: i64) -> Result<Look, OpenError> {
        let mut segments = self.open_unread(first)?;
        let mut evidence = Evidence {
            first_segment: first,
            ..Evidence::default()
        };
        let mut cuts = Vec::new();
        let power_failed = self.past.power_failed;
        for (nth, &base_offset) in self.base_offsets.iter().enumerate().skip(first) {
            let segment = self.open(base_offset, base_offset)?;
            let file_bytes = segment.size();
            let mut scanned = self.scan_segment(&segment, &mut evidence)?;
            let next_base_offset = self.base_offsets.get(nth + 1).copied();
            if next_base_offset.is_some_and(|next| self.past.has_lost(scanned.next_offset, next)) {
                scanned.damage = Some(InvalidBatch {
                    error: "its end is missing".to_owned(),
                    sound_header: None,
                });
            }
            if let Some(damage) = &scanned.damage {
                if power_failed {
                    require_unsynced(&segment, damage, &scanned, file_bytes, recovery_point)?;
                }
                if !power_failed || scanned.next_offset < recovery_point {
                    self.require_torn(&segment, damage, &scanned, file_bytes, nth)?;
                }
                if !power_failed {
                    self.require_prefix(&segment, damage, &scanned, file_bytes, nth)?;
                }
                self.note_cuts(&mut cuts, &segment, &scanned, file_bytes, nth)?;
            } else if let Some(next) = next_base_offset {
                self.require_next(&segment, scanned.size, scanned.next_offset, next)?;
            }
            segment.note_verified();
            let was_cut = scanned.damage.is_some();
            segment.restore(scanned.size, scanned.next_offset, scanned.indexes);
            segments.push(segment);
            if was_cut {
                break;
            }
        }
        Ok(Look {
            segments,
            evidence: Some(evidence),
            cuts,
        })
    }

    /// Notes the removed parts: the tail of one segment, and all segments behind it.
    fn note_cuts(
        &self,
        cuts: &mut Vec<Cut>,
        segment: &Segment,
        scanned: &Scanned,
        file_bytes: u64,
        nth: usize,
    ) -> io::Result<()> {
        let why = if self.past.power_failed {
            "power failure"
        } else {
            "torn write of a killed process"
        };
        let error = scanned.damage.as_ref().map_or("", |damage| &damage.error);
        cuts.push(Cut {
            path: segment.path("log"),
            position: scanned.size,
            bytes: file_bytes - scanned.size,
            first_offset: scanned.next_offset,
            reason: format!("{why}: {error}"),
        });
        for &later in &self.base_offsets[nth + 1..] {
            let path = file_path(self.directory, later, "log");
            cuts.push(Cut {
                bytes: fs::metadata(&path)?.len(),
                path,
                position: 0,
                first_offset: later,
                reason: format!("{why}: it is behind what was cut"),
            });
        }
        Ok(())
    }

    /// Fails if an index file proves that there was a segment which is gone. A removal that was
    /// cut short leaves some too, but of segments that others were behind.
    fn require_no_lost_segment(&self, orphans: &[(i64, PathBuf)]) -> Result<(), OpenError> {
        let last = self.base_offsets.last().copied().unwrap_or(-1);
        let is_lost = |base_offset: i64| self.past.was_clean || base_offset > last;
        match orphans.iter().rev().find(|(base, _)| is_lost(*base)) {
            Some((_, path)) if !self.past.power_failed => {
                let reason = format!(
                    "it is missing, though {} is there. Nothing was changed",
                    path.display()
                );
                Err(corrupt(path.with_extension("log"), 0, reason))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the log does not begin and end where it has to. After a power failure the log has
    /// to reach its recovery point; anything behind it may be missing.
    fn require_end(&self, segments: &[Segment]) -> Result<(), OpenError> {
        let past = &self.past;
        let end = segments.last().map_or(0, Segment::next_offset);
        let (path, position) = match segments.last() {
            Some(last) => (last.path("log"), last.size()),
            None => (self.directory.to_owned(), 0),
        };
        let lost = |proof: String| {
            let reason = format!("the log ends at offset {end}, but {proof}. Nothing was changed");
            Err(corrupt(path.clone(), position, reason))
        };
        if past.power_failed {
            let point = past.recovery_point;
            return if point > end {
                let name = "recovery-point-offset-checkpoint";
                lost(format!("{name} says it was on the disk up to {point}"))
            } else {
                self.require_start(segments)
            };
        }
        let recorded = [
            (past.recovery_point, "recovery-point-offset-checkpoint"),
            (past.high_watermark, "replication-offset-checkpoint"),
        ];
        let mut said = recorded.into_iter().filter(|(offset, _)| *offset > 0);
        if past.was_clean {
            // Both were written at the stop: one that alone says something else is itself wrong.
            let is_confirmed = said.clone().any(|(offset, _)| offset == end);
            if let (false, Some((offset, name))) = (is_confirmed, said.next()) {
                return lost(format!("{name} says it was closed at {offset}"));
            }
        } else if let Some((offset, name)) = said.find(|(offset, _)| *offset > end) {
            return lost(format!("{name} says it had come to {offset}"));
        }
        if let Some(start) = past.log_start_offset.filter(|&start| start > end) {
            return lost(format!(
                "log-start-offset-checkpoint says it begins at {start}"
            ));
        }
        self.require_start(segments)?;
        if self.directory.is_dir() {
            if let Some(&newest) = snapshot::offsets(self.directory)?.first()
                && newest > end
            {
                let name = file_path(self.directory, newest, "snapshot");
                return lost(format!("{} is of offset {newest}", name.display()));
            }
            if let Some(start) = Epochs::load(self.directory)?.and_then(|found| found.last_start())
                && start > end
            {
                return lost(format!("{} has an epoch from {start} on", epochs::NAME));
            }
        }
        Ok(())
    }

    /// Fails if the first segments are gone, and not by a removal: that notes first, durably, where
    /// the log begins then. After a power failure the file of the segment at the start was on the
    /// disk if the recovery point lies behind the start.
    fn require_start(&self, segments: &[Segment]) -> Result<(), OpenError> {
        let past = &self.past;
        let Some(start) = past.log_start_offset else {
            return Ok(());
        };
        let is_noted_first = past.was_clean || !past.was_left_by_kafka;
        let was_on_disk = !past.power_failed || past.recovery_point > start;
        if !is_noted_first || !was_on_disk {
            return Ok(());
        }
        let says = format!(
            "log-start-offset-checkpoint says that the log begins at offset {start}. Nothing was \
             changed"
        );
        match segments.first() {
            None => {
                let reason = format!("it holds no segment, but {says}");
                Err(corrupt(self.directory.to_owned(), 0, reason))
            }
            Some(first) if first.base_offset > start => {
                let reason = format!("it is the first segment, but {says}");
                Err(corrupt(first.path("log"), 0, reason))
            }
            Some(_) => Ok(()),
        }
    }

    /// Fails unless the rest of the log is the beginning of the batch that comes next. A killed
    /// process leaves only that, for its writes are in the page cache, in the order in which they
    /// were made.
    fn require_prefix(
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

    /// Reads every batch of one segment, up to the first that is not valid.
    fn scan_segment(
        &self,
        segment: &Segment,
        evidence: &mut Evidence,
    ) -> Result<Scanned, OpenError> {
        let mut scanned = Scanned {
            size: 0,
            next_offset: segment.base_offset,
            indexes: Indexes::new(segment.base_offset),
            damage: None,
        };
        let mut batches = Scanner::whole(segment.file.get()?, 0, segment.size());
        loop {
            let step = match batches.next() {
                Ok(None) => return Ok(scanned),
                Ok(Some(step)) => step,
                Err(ScanError::Io(error)) => return Err(error.into()),
                Err(ScanError::Bad { position, error }) => {
                    let sound_header = sound_header(segment, position, scanned.next_offset)?;
                    scanned.damage = Some(InvalidBatch {
                        error: error.to_string(),
                        sound_header,
                    });
                    return Ok(scanned);
                }
            };
            let (position, header) = step;
            let bytes = batches.bytes(position, header.size())?;
            let batch = BatchView::parse(bytes).expect("the scanner found it whole");
            if let Err(error) = batch.validate_crc() {
                let sound_header = sound_header(segment, position, scanned.next_offset)?;
                scanned.damage = Some(InvalidBatch {
                    error: error.to_string(),
                    sound_header,
                });
                return Ok(scanned);
            }
            // Whole, but out of place: the offset is under no checksum. No torn write of a process
            // does that, but a lost page may.
            match segment.check_offsets(position, &header, scanned.next_offset) {
                Ok(()) => {}
                Err(misplaced) if self.past.power_failed => {
                    scanned.damage = Some(InvalidBatch {
                        error: misplaced.reason,
                        sound_header: None,
                    });
                    return Ok(scanned);
                }
                Err(misplaced) => return Err(misplaced.into()),
            }
            if header.base_offset() > scanned.next_offset
                && !self.may_have_gaps
                && !self.past.power_failed
            {
                let reason = format!(
                    "the batch has offset {}, but {} comes next. Nothing was cut",
                    header.base_offset(),
                    scanned.next_offset
                );
                return Err(corrupt(segment.path("log"), position, reason));
            }
            evidence.note(&batch);
            scanned
                .indexes
                .note(&header, position, self.index_interval_bytes);
            scanned.size = position + header.size() as u64;
            scanned.next_offset = header.last_offset() + 1;
        }
    }

    /// Fails if a valid batch lies behind the damage.
    fn require_torn(
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

/// True if the checksum of a batch covers just its present bytes, though its header announces more.
/// The length is under no checksum.
fn is_whole(segment: &Segment, head: &[u8], position: u64, end: u64) -> io::Result<bool> {
    let Ok(header) = Header::parse(head) else {
        return Ok(false);
    };
    let mut crc = 0;
    let mut chunk = Vec::new();
    let file = segment.file.get()?;
    let mut at = position + batch::CRC_START as u64;
    while at < end {
        chunk.resize((end - at).min(SEARCH_CHUNK) as usize, 0);
        file.read_exact_at(&mut chunk, at)?;
        crc = crc32c::crc32c_append(crc, &chunk);
        at += chunk.len() as u64;
    }
    Ok(crc == header.crc())
}

/// Fails if the damage lies below the recovery point, where everything was on the disk.
///
/// A recovery point beyond the capacity of the damaged bytes is not believed.
fn require_unsynced(
    segment: &Segment,
    damage: &InvalidBatch,
    scanned: &Scanned,
    file_bytes: u64,
    recovery_point: i64,
) -> Result<(), OpenError> {
    let furthest = match &damage.sound_header {
        Some(sound) => sound.last_offset() + 1,
        None => scanned.next_offset + (file_bytes - scanned.size) as i64,
    };
    if !(scanned.next_offset + 1..=furthest).contains(&recovery_point) {
        return Ok(());
    }
    Err(OpenError::Corrupt(CorruptLog {
        path: segment.path("log"),
        position: scanned.size,
        reason: format!(
            "{}; everything below offset {recovery_point} was on the disk, so stored records were \
             damaged after they were written. Nothing was cut",
            damage.error
        ),
    }))
}

/// One segment, read from end to end.
struct Scanned {
    size: u64,
    next_offset: i64,
    indexes: Indexes,
    damage: Option<InvalidBatch>,
}

/// The first batch of a segment that is not valid.
struct InvalidBatch {
    error: String,
    /// Its header, if that much of it can be believed.
    sound_header: Option<Header>,
}

/// The header at a damaged position, if the log would have written it there.
fn sound_header(
    segment: &Segment,
    position: u64,
    next_offset: i64,
) -> Result<Option<Header>, OpenError> {
    let file_bytes = segment.file.get()?.metadata()?.len();
    if file_bytes - position < HEADER_BYTES as u64 {
        return Ok(None);
    }
    let mut scanner = segment.scan_between(position, file_bytes)?;
    let header = Header::parse(scanner.bytes(position, HEADER_BYTES)?);
    Ok(header.ok().filter(|header| {
        header.base_offset() == next_offset
            && header.record_count() >= 1
            && header.record_count() - 1 == header.last_offset_delta()
    }))
}

/// Finds the first valid batch in `[from, end)` of a file that is wanted.
fn find_batch(
    file: &File,
    from: u64,
    end: u64,
    is_wanted: impl Fn(u64, &Header) -> bool,
) -> io::Result<Option<u64>> {
    let mut position = from;
    let mut scanner = Scanner::whole(file, from.min(end), end);
    while position + HEADER_BYTES as u64 <= end {
        // No batch begins in a hole, which may be as large as no disk, but for one that reaches
        // the bytes behind it.
        let Some(stored) = txn_sys::next_stored(file, position)? else {
            return Ok(None);
        };
        position = position.max(stored.saturating_sub(HEADER_BYTES as u64 - 1));
        if position + HEADER_BYTES as u64 > end {
            break;
        }
        let window_bytes = SEARCH_CHUNK.min(end - position) as usize;
        let window = scanner.bytes(position, window_bytes)?.to_vec();
        for (at, bytes) in window.windows(HEADER_BYTES).enumerate() {
            let candidate = position + at as u64;
            let Ok(header) = Header::parse(bytes) else {
                continue;
            };
            let fits = header.size() as u64 <= end - candidate;
            if fits && header.last_offset_delta() >= 0 && is_wanted(candidate, &header) {
                let mut reader = Scanner::headers(file, candidate, end);
                let batch = BatchView::parse(reader.bytes(candidate, header.size())?);
                if batch.is_ok_and(|batch| batch.validate_crc().is_ok()) {
                    return Ok(Some(candidate));
                }
            }
        }
        position += (window_bytes - HEADER_BYTES + 1) as u64;
    }
    Ok(None)
}

/// Aborted transactions and leader epochs that a scan saw, to compare their files with.
#[derive(Debug, Default)]
struct Evidence {
    /// The first segment that was scanned.
    first_segment: usize,
    open: HashSet<i64>,
    /// Abort markers by offset: whose, and whether data of the transaction was seen before it.
    markers: HashMap<i64, (i64, bool)>,
    /// The first batches of leader epochs: (epoch, base offset).
    epochs: Vec<(i32, i64)>,
}

impl Evidence {
    fn note(&mut self, batch: &BatchView<'_>) {
        let leader_epoch = batch.leader_epoch();
        if self
            .epochs
            .last()
            .is_none_or(|&(last, _)| leader_epoch > last)
        {
            self.epochs.push((leader_epoch, batch.base_offset()));
        }
        let producer_id = batch.producer_id();
        if producer_id < 0 || !batch.is_transactional() {
            return;
        }
        if !batch.is_control() {
            self.open.insert(producer_id);
        } else if let Some((is_commit, _)) = decode_marker(batch.records()) {
            let had_data = self.open.remove(&producer_id);
            if !is_commit {
                self.markers
                    .insert(batch.base_offset(), (producer_id, had_data));
            }
        }
    }

    /// True if the entries are those of the markers below `end`, no fewer and no others.
    fn agrees_with(&self, entries: &[AbortedTxn], end: i64) -> bool {
        let is_marked = |entry: &AbortedTxn| {
            let marker = self.markers.get(&entry.last_offset);
            marker.is_some_and(|marker| marker.0 == entry.producer_id)
        };
        let indexed: HashSet<i64> = entries.iter().map(|entry| entry.last_offset).collect();
        let is_indexed = |(&offset, &(_, had_data)): (&i64, &(i64, bool))| {
            offset >= end || !had_data || indexed.contains(&offset)
        };
        entries.iter().all(is_marked) && self.markers.iter().all(is_indexed)
    }
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
fn remove_torn_snapshots(
    directory: &Path,
    producer_state: &dyn ProducerStateManager,
    segments: &[Arc<Segment>],
    evidence: Option<&Evidence>,
) -> io::Result<()> {
    let scanned = evidence.and_then(|evidence| segments.get(evidence.first_segment));
    let synced_end = scanned.map_or(0, |first| first.base_offset);
    for offset in snapshot::offsets(directory)? {
        let path = file_path(directory, offset, "snapshot");
        if offset > synced_end
            && producer_state
                .restore(Some(&disk::read(&path)?), &[])
                .is_err()
        {
            disk::remove_if_there(&path)?;
        }
    }
    Ok(())
}

/// Restores the newest snapshot that fits, replays the batches after it, and returns every aborted
/// transaction of the log, in the order of the markers.
fn recover_producer_state(
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
        let bytes = disk::read(&file_path(directory, offset, "snapshot"))?;
        if producer_state.restore(Some(&bytes), &known).is_ok() {
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
fn store_aborted(
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
