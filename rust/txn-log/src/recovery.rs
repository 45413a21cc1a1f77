//! Opening a log: what is stored, where it ends, and what the gate has to know of it.
//!
//! A directory that was closed is trusted: sizes are believed, indexes loaded, the newest
//! snapshot restored, and only headers after it are read. In any other directory the segments
//! that lie wholly below the recovery point are trusted likewise, and the others are read from
//! end to end with every checksum; the gate goes on from a snapshot at or below the first of
//! them. A recovery point the log does not reach is none: then everything is read.
//!
//! # What a crash may leave, and what is done
//! * A torn tail: the last batch is cut, or its bytes never arrived, and behind it is nothing
//!   but garbage. It was never acknowledged as durable; the log is cut there.
//! * Damage with a valid batch behind it, or below the recovery point. The damaged records were
//!   acknowledged, so nothing is cut and opening fails, naming file and position.
//! * After a power failure, damage with valid batches behind it, if it begins beyond the recovery
//!   point: pages reach the disk in any order. What is behind the damage was not synced, for a
//!   sync covers everything before it; the log is cut at the damage.
//! * Snapshots or `.txnindex` entries that do not fit the batches. Both can be made from the
//!   batches, so the gate replays from an older snapshot or from the start.
//!
//! # Telling a torn tail from damage
//! If the damaged batch's header is sound, its successor has to begin at `last offset + 1`;
//! a valid batch anywhere behind it with that base offset, or one after its end with a higher
//! one, proves damage. If the header itself is damaged, any valid batch with a plausible base
//! offset does. (A torn batch may well contain batches: someone else's log, stored as values.)
//! A batch whose checksum is right but whose offset goes back is damage in any case.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::aborted::{self, AbortedTxns};
use crate::batch::{BatchView, HEADER_BYTES, Header};
use crate::builder::decode_marker;
use crate::disk;
use crate::epochs::Epochs;
use crate::error::{CorruptLog, OpenError};
use crate::gate::{AbortedTxn, Gate, GateError, ReplayedBatch};
use crate::index::Indexes;
use crate::indexed;
use crate::log::Past;
use crate::removal::remove_segment;
use crate::scan::{ScanError, Scanner};
use crate::segment::{Segment, file_path};
use crate::settings::Settings;
use crate::snapshot;
use crate::swap::finish_swaps;

/// Batches handed to the gate at once.
const REPLAY_CHUNK: usize = 4096;
/// How far before a snapshot batches are recalled, in bytes of log.
const BACKFILL_BYTES: u64 = 4 << 20;
/// How far ahead of the expected offset a batch behind damage may be.
const PLAUSIBLE_GAP: i64 = 1 << 31;
/// No log gets this far; what is named so is no segment of one.
const BASE_OFFSET_MAX: i64 = i64::MAX / 2;
/// Bytes searched at once for a batch behind damage.
const SEARCH_CHUNK: u64 = 1 << 20;

/// A log as it was found.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub segments: Vec<Arc<Segment>>,
    /// Its files were taken as a clean close left them.
    pub was_trusted: bool,
    /// Where the scan began; what lies below was believed.
    pub recovery_point: i64,
    /// The sealed segments that were scanned; their indexes were made anew.
    pub unsynced_seals: Vec<Arc<Segment>>,
    pub first_unstable_offset: Option<i64>,
    pub aborted: AbortedTxns,
    pub epochs: Epochs,
}

/// Opens what is in a directory, which need not exist, and brings the gate to its state.
///
/// # Errors
/// See the module. Nothing is cut or removed when it fails for damage.
pub(crate) fn recover(
    directory: &Path,
    gate: &dyn Gate,
    settings: &Settings,
    past: Past,
) -> Result<Recovered, OpenError> {
    finish_swaps(directory)?;
    let base_offsets = list_segments(directory)?;
    if base_offsets.is_empty() {
        restore(gate, None, &[])?;
        return Ok(Recovered::default());
    }
    let opening = Opening {
        directory,
        index_interval_bytes: settings.index_interval_bytes,
        base_offsets: &base_offsets,
        power_failed: past.power_failed,
        may_have_gaps: settings.is_compacted,
    };
    let trusted = if past.was_clean {
        opening.trust()?
    } else {
        None
    };
    let (segments, evidence) = match trusted {
        Some(segments) => (segments, None),
        None => opening
            .scan_from(past.recovery_point)
            .map(|(segments, evidence)| (segments, Some(evidence)))?,
    };
    let segments: Vec<Arc<Segment>> = segments.into_iter().map(Arc::new).collect();
    let log_end_offset = segments.last().map_or(0, |last| last.next_offset());
    snapshot::prune(directory, log_end_offset, &base_offsets)?;
    if past.power_failed {
        remove_torn_snapshots(directory, gate, &segments, evidence.as_ref())?;
    }
    let was_trusted = evidence.is_none();
    let seen = evidence.as_ref().map(|evidence| &evidence.epochs[..]);
    let epochs = recover_epochs(directory, &segments, seen)?;
    let was_closed = evidence.is_none();
    let entries = recover_gate(directory, gate, &segments, evidence.as_ref(), was_closed)?;
    let first_unstable_offset = gate.first_unstable_offset().map_err(gate_failed)?;
    for segment in &segments {
        segment.file.close_if_synced(); // many logs are opened that nobody uses soon
    }
    let scanned_from = evidence.map_or(segments.len(), |evidence| evidence.first_segment);
    let sealed = &segments[..segments.len().saturating_sub(1)];
    Ok(Recovered {
        recovery_point: segments
            .get(scanned_from)
            .map_or(log_end_offset, |first| first.base_offset),
        unsynced_seals: sealed.get(scanned_from..).unwrap_or_default().to_vec(),
        segments,
        was_trusted,
        first_unstable_offset,
        aborted: AbortedTxns::new(entries),
        epochs,
    })
}

/// Reads which epoch began where; `seen` are the (epoch, base offset) of the batches that a
/// scan went through. Without a sound file every header is read.
fn recover_epochs(
    directory: &Path,
    segments: &[Arc<Segment>],
    seen: Option<&[(i32, i64)]>,
) -> Result<Epochs, OpenError> {
    let log_end_offset = segments.last().map_or(0, |last| last.next_offset());
    let stored = Epochs::load(directory)?;
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

fn gate_failed(error: GateError) -> OpenError {
    OpenError::Gate(error.0)
}

fn restore(gate: &dyn Gate, bytes: Option<&[u8]>, aborted: &[AbortedTxn]) -> Result<(), OpenError> {
    gate.restore(bytes, aborted).map_err(gate_failed)
}

/// The base offsets of the segments in a directory, in order.
fn list_segments(directory: &Path) -> Result<Vec<i64>, OpenError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut base_offsets = Vec::new();
    let mut indexes = Vec::new();
    for entry in entries {
        let path = entry?.path();
        for extension in ["index", "timeindex", "txnindex"] {
            indexes.extend(snapshot::parse_name(&path, extension).map(|base| (base, path.clone())));
        }
        let base_offset = snapshot::parse_name(&path, "log");
        if base_offset.is_some_and(|offset| offset > BASE_OFFSET_MAX) {
            return Err(OpenError::Corrupt(CorruptLog {
                path,
                position: 0,
                reason: format!("its base offset is above {BASE_OFFSET_MAX}"),
            }));
        }
        base_offsets.extend(base_offset);
    }
    base_offsets.sort_unstable();
    for (base_offset, path) in indexes {
        if base_offsets.binary_search(&base_offset).is_err() {
            disk::remove_if_there(&path)?; // of a segment whose removal was cut short
        }
    }
    Ok(base_offsets)
}

/// The segments of a directory, before they are opened.
struct Opening<'a> {
    directory: &'a Path,
    index_interval_bytes: u64,
    base_offsets: &'a [i64],
    power_failed: bool,
    may_have_gaps: bool,
}

impl Opening<'_> {
    fn open(&self, base_offset: i64, next_offset: i64) -> io::Result<Segment> {
        Segment::open(
            self.directory,
            base_offset,
            next_offset,
            self.index_interval_bytes,
        )
    }

    /// Opens the segments of a closed log; `None` if the last one does not end as one.
    fn trust(&self) -> Result<Option<Vec<Segment>>, OpenError> {
        let (last, sealed) = self.base_offsets.split_last().expect("there are segments");
        let mut segments = Vec::with_capacity(self.base_offsets.len());
        for (&base_offset, &next_offset) in sealed.iter().zip(&self.base_offsets[1..]) {
            segments.push(self.open(base_offset, next_offset)?);
        }
        let active = self.open(*last, *last)?;
        let size = active.size();
        let Ok(mut indexes) = active.load_indexes(size) else {
            return Ok(None);
        };
        let mut next_offset = *last;
        let mut scanner = active.scan_between(indexes.offsets.last_position(), size)?;
        loop {
            match scanner.next() {
                Ok(Some((position, header))) => {
                    if active
                        .check_offsets(position, &header, next_offset)
                        .is_err()
                    {
                        return Ok(None);
                    }
                    indexes.note_timestamp(&header);
                    next_offset = header.last_offset() + 1;
                }
                Ok(None) => break,
                Err(ScanError::Bad { .. }) => return Ok(None),
                Err(ScanError::Io(error)) => return Err(error.into()),
            }
        }
        active.restore(size, next_offset, indexes);
        segments.push(active);
        Ok(Some(segments))
    }

    /// Reads what lies behind the recovery point; everything, if the log does not get that far:
    /// then the recovery point is none of this log's.
    fn scan_from(&self, recovery_point: i64) -> Result<(Vec<Segment>, Evidence), OpenError> {
        let ends = &self.base_offsets[1..];
        let believed = ends.partition_point(|&end| end <= recovery_point);
        let (segments, evidence) = self.scan(believed, recovery_point)?;
        let end = segments.last().map_or(0, Segment::next_offset);
        if believed > 0 && end < recovery_point {
            return self.scan(0, 0);
        }
        Ok((segments, evidence))
    }

    /// Reads every batch of the segments from the `first` on, cuts a torn tail and rebuilds
    /// their indexes.
    fn scan(
        &self,
        first: usize,
        recovery_point: i64,
    ) -> Result<(Vec<Segment>, Evidence), OpenError> {
        let mut segments: Vec<Segment> = Vec::with_capacity(self.base_offsets.len());
        for (&base_offset, &next_offset) in self.base_offsets[..first]
            .iter()
            .zip(&self.base_offsets[1..])
        {
            segments.push(self.open(base_offset, next_offset)?);
        }
        let mut evidence = Evidence {
            first_segment: first,
            ..Evidence::default()
        };
        for (nth, &base_offset) in self.base_offsets.iter().enumerate().skip(first) {
            let segment = self.open(base_offset, base_offset)?;
            let file_bytes = segment.size();
            let mut scanned = scan_segment(
                &segment,
                self.index_interval_bytes,
                self.power_failed,
                &mut evidence,
            )?;
            let next_base_offset = self.base_offsets.get(nth + 1).copied();
            if self.has_lost_its_end(&scanned, next_base_offset, recovery_point) {
                scanned.damage = Some(Damage {
                    error: "its end is missing".to_owned(),
                    sound_header: None,
                });
            }
            if let Some(damage) = &scanned.damage {
                require_unsynced(&segment, damage, &scanned, file_bytes, recovery_point)?;
                if !self.power_failed || scanned.next_offset < recovery_point {
                    self.require_torn(&segment, damage, &scanned, file_bytes, nth)?;
                }
                segment.file.truncate(scanned.size)?;
                for &later in &self.base_offsets[nth + 1..] {
                    remove_segment(self.directory, later)?;
                }
            } else if let Some(next) = next_base_offset.filter(|&next| next < scanned.next_offset) {
                return Err(OpenError::Corrupt(CorruptLog {
                    path: file_path(self.directory, next, "log"),
                    position: 0,
                    reason: format!(
                        "it begins at offset {next}, but the segment before it ends at {}",
                        scanned.next_offset
                    ),
                }));
            }
            segment.note_verified();
            let was_cut = scanned.damage.is_some();
            segment.restore(scanned.size, scanned.next_offset, scanned.indexes);
            segment.store_indexes()?;
            segments.push(segment);
            if was_cut {
                break;
            }
        }
        Ok((segments, evidence))
    }

    /// Whether the power failed before the end of a sealed segment reached the disk, though that
    /// of a later one did. Only compaction leaves gaps otherwise.
    fn has_lost_its_end(
        &self,
        scanned: &Scanned,
        next_base_offset: Option<i64>,
        recovery_point: i64,
    ) -> bool {
        let is_gap = next_base_offset
            .is_some_and(|next| next > scanned.next_offset && next > recovery_point);
        is_gap && self.power_failed && !self.may_have_gaps
    }

    /// Fails if a valid batch lies behind the damage.
    fn require_torn(
        &self,
        segment: &Segment,
        damage: &Damage,
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
                 damaged after they were written. Nothing was cut: restore the partition from a copy",
                damage.error,
                follows_in.display()
            ),
        }))
    }
}

/// Fails if the damage lies below the recovery point, where everything was on the disk.
///
/// A recovery point beyond what the damaged bytes can ever have held is not believed.
fn require_unsynced(
    segment: &Segment,
    damage: &Damage,
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
             damaged after they were written. Nothing was cut: restore the partition from a copy",
            damage.error
        ),
    }))
}

/// One segment, read from end to end.
struct Scanned {
    size: u64,
    next_offset: i64,
    indexes: Indexes,
    damage: Option<Damage>,
}

/// The first batch of a segment that is not valid.
struct Damage {
    error: String,
    /// Its header, if that much of it can be believed.
    sound_header: Option<Header>,
}

fn scan_segment(
    segment: &Segment,
    index_interval_bytes: u64,
    power_failed: bool,
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
                scanned.damage = Some(Damage {
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
            scanned.damage = Some(Damage {
                error: error.to_string(),
                sound_header,
            });
            return Ok(scanned);
        }
        // Whole, but out of place: the offset is under no checksum. No torn write of a process
        // does that, but a lost page may.
        match segment.check_offsets(position, &header, scanned.next_offset) {
            Ok(()) => {}
            Err(misplaced) if power_failed => {
                scanned.damage = Some(Damage {
                    error: misplaced.reason,
                    sound_header: None,
                });
                return Ok(scanned);
            }
            Err(misplaced) => return Err(misplaced.into()),
        }
        evidence.note(&batch);
        scanned
            .indexes
            .note(&header, position, index_interval_bytes);
        scanned.size = position + header.size() as u64;
        scanned.next_offset = header.last_offset() + 1;
    }
}

/// The header at a damaged position, if it is what the log would have written there.
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

/// What a scan saw of aborted transactions and leader epochs, to hold their files against.
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

    /// Whether the entries are those of the markers below `end`, no fewer and no others.
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

/// Brings a gate to what the batches of an open log say, as a start does; returns the aborted
/// transactions and the first unstable offset.
///
/// # Errors
/// As `recover`; the gate is of no use until this succeeds.
pub(crate) fn derive_gate(
    directory: &Path,
    gate: &dyn Gate,
    segments: &[Arc<Segment>],
) -> Result<(Vec<AbortedTxn>, Option<i64>), OpenError> {
    if segments.is_empty() {
        restore(gate, None, &[])?;
        return Ok((Vec::new(), None));
    }
    let entries = recover_gate(directory, gate, segments, None, false)?;
    let first_unstable_offset = gate.first_unstable_offset().map_err(gate_failed)?;
    Ok((entries, first_unstable_offset))
}

/// Removes the snapshots that a power failure has torn: those that were not synced may be anything.
fn remove_torn_snapshots(
    directory: &Path,
    gate: &dyn Gate,
    segments: &[Arc<Segment>],
    evidence: Option<&Evidence>,
) -> io::Result<()> {
    let scanned = evidence.and_then(|evidence| segments.get(evidence.first_segment));
    let synced_end = scanned.map_or(0, |first| first.base_offset);
    for offset in snapshot::offsets(directory)? {
        let path = file_path(directory, offset, "snapshot");
        if offset > synced_end && gate.restore(Some(&disk::read(&path)?), &[]).is_err() {
            disk::remove_if_there(&path)?;
        }
    }
    Ok(())
}

/// Restores the newest snapshot that fits, replays what follows it, and returns every aborted
/// transaction of the log, in the order of the markers.
fn recover_gate(
    directory: &Path,
    gate: &dyn Gate,
    segments: &[Arc<Segment>],
    evidence: Option<&Evidence>,
    was_closed: bool,
) -> Result<Vec<AbortedTxn>, OpenError> {
    let log_start_offset = segments[0].base_offset;
    let (indexed, indexed_end) = indexed::load(segments, was_closed)?;
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
        if gate.restore(Some(&bytes), &known).is_ok() {
            (replay_start, entries, is_restored) = (offset, known, true);
            break;
        }
    }
    if !is_restored {
        restore(gate, None, &[])?;
    }
    entries.extend(replay_from(gate, segments, replay_start)?);
    if is_restored {
        backfill(gate, segments, replay_start)?;
    }
    for segment in segments {
        aborted::store(&segment.path("txnindex"), &entries_of(segment, &entries))?;
    }
    Ok(entries)
}

/// Has the gate replay what is stored from an offset on; returns the aborted transactions that
/// ended there.
fn replay_from(
    gate: &dyn Gate,
    segments: &[Arc<Segment>],
    start: i64,
) -> Result<Vec<AbortedTxn>, OpenError> {
    let mut ended = Vec::new();
    let mut replay = Replay::new(|batches| {
        ended.extend(gate.replay(batches).map_err(gate_failed)?);
        Ok(())
    });
    for segment in segments
        .iter()
        .filter(|segment| segment.next_offset() > start)
    {
        if let Some((position, _)) = segment.find(start)? {
            replay.read(segment, position, segment.size())?;
        }
    }
    replay.finish()?;
    Ok(ended)
}

fn entries_of(segment: &Segment, entries: &[AbortedTxn]) -> Vec<AbortedTxn> {
    let offsets = segment.base_offset..segment.next_offset();
    entries
        .iter()
        .filter(|entry| offsets.contains(&entry.last_offset))
        .copied()
        .collect()
}

/// Recalls the batches of the last few MiB before a snapshot.
fn backfill(gate: &dyn Gate, segments: &[Arc<Segment>], end: i64) -> Result<(), OpenError> {
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
    let mut recall = Replay::new(|batches| gate.backfill(batches).map_err(gate_failed));
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
