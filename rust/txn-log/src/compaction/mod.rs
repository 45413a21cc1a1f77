//! Compaction: it removes older records of a key and keeps all offsets.
//!
//! A cleaning reads the log in two passes. The first, over the dirty part only, notes the last
//! offset of every key in memory of bounded size; if that is full, the cleaning ends there.
//! The second reads the log from its start, segment by segment, and writes the kept part of a group
//! of segments into one. That then takes their place (see `swap`).
//!
//! ```text
//!   log start                  first dirty offset             end            log end
//!      | cleaned before            | dirty                     | not cleanable  |
//!      [==== rewritten by the second pass ====================)|
//!                                  [== noted by the first ====)|
//! ```
//!
//! # What stays (below `end`; nothing from there on is touched)
//! 1. The last record of every key, with its offset; of transactions, if it was committed.
//! 2. A tombstone for `delete.retention.ms` after the first cleaning that met it as the last.
//! 3. A marker while a batch of its transaction is there, even an empty one, and then as long
//!    as a tombstone. Its entry in the transaction index goes with the last batch: a reader
//!    who is told of a transaction skips its producer's records until the marker.
//! 4. The batches by which a live producer's retries are known, and the newest marker of one
//!    that has no batch, so that a replay arrives at the state of the producer state (P6, P7, P8). Only
//!    the time and the coordinator epoch of a marker that ended nothing may go with it.
//! 5. The last batch of every cleaned segment: it tells how far the segment reaches, so that
//!    a start after a crash knows whose place it takes.
//!
//! All of it is synced before: a record is removed because of a later one of its key, perhaps in a
//! later segment, and a power failure could otherwise leave neither.
//!
//! Every batch that is read is checked; damage ends the cleaning and changes nothing. A batch
//! whose checksum is right and whose records cannot be read is no damage. Its client sent it so,
//! to an earlier version or another broker. It stays as it is, its keys count for nothing, and
//! [`Cleaned::unreadable`] tells of it, once.
//!
//! # Where Kafka differs
//! It keeps an empty batch for a producer's newest sequence only, and empties markers that
//! have to stay; a replay then knows less than the broker did. It keeps the last batch of a
//! cleaning, not of each segment. It goes on over damaged batches.
//!
//! Source: Kafka, `Cleaner`; KIP-534, KIP-354.

mod filter;
mod offset_map;
mod throttle;
mod transactions;

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Instant;

use crate::aborted;
use crate::builder::decode_marker;
use crate::content::{RecordHead, Visitor};
use crate::disk;
use crate::error::{CorruptLog, ReadError};
use crate::log::PartitionLog;
use crate::open_files::OpenFile;
use crate::producer_state::{AbortedTxn, LastBatch};
use crate::scan::{ScanError, Scanner};
use crate::swap::Sealed;
use filter::{BatchContent, FilteredBatch, RecordFilter, filter_data, filter_marker};
use offset_map::{KeyHasher, OffsetMap};
use throttle::Throttle;
use transactions::{EndedTransaction, Transactions};
use txn_protocol::batch::{BatchError, BatchView, HEADER_BYTES, Header};

/// The largest position that Kafka's indexes can name.
const POSITION_MAX: u64 = i32::MAX as u64;
/// A time index entry, the larger one.
const INDEX_ENTRY_BYTES: u64 = 12;
/// Bytes collected before they are written.
const WRITE_CHUNK: usize = 1 << 20;

/// The task of one cleaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleaning {
    /// Up to here, exclusively, earlier cleanings came.
    pub first_dirty_offset: i64,
    /// No segment that reaches beyond is touched.
    pub end: i64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// The time, in ms.
    pub now_ms: i64,
}

/// Batches that stay as they are because their records cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Number of them in the part that was dirty.
    pub batches: u64,
    /// The file of the first one.
    pub path: PathBuf,
    /// The position of that batch in the file after the cleaning.
    pub position: u64,
    /// Its base offset.
    pub offset: i64,
    /// The fault.
    pub reason: String,
}

/// The result of a cleaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Begin of the dirty part now; below the requested end if the memory was full.
    pub end: i64,
    /// Bytes of the segments before.
    pub bytes_before: u64,
    /// Bytes of the segments after.
    pub bytes_after: u64,
    /// Keys noted.
    pub keys: u64,
    /// Batches that it met for the first time and could not read.
    pub unreadable: Option<Unreadable>,
}

/// Why a log was not cleaned. It is whole, and some of it may be clean.
#[derive(Debug)]
pub enum CleanError {
    /// The cleaner was stopped, or segments were removed meanwhile; nothing is wrong.
    Interrupted,
    /// The disk said no.
    Io(io::Error),
    /// A stored batch is damaged.
    Corrupt(CorruptLog),
    /// The producer state could not tell which batches it needs.
    ProducerStateManager(String),
}

impl fmt::Display for CleanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("the cleaning was interrupted"),
            Self::Io(error) => error.fmt(f),
            Self::Corrupt(error) => error.fmt(f),
            Self::ProducerStateManager(reason) => {
                write!(f, "the partition's rules failed: {reason}")
            }
        }
    }
}

impl std::error::Error for CleanError {}

impl From<io::Error> for CleanError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ReadError> for CleanError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => Self::Io(error),
            ReadError::Corrupt(corrupt) => Self::Corrupt(corrupt),
            ReadError::Closed | ReadError::OutOfRange { .. } => Self::Interrupted,
        }
    }
}

/// Resources that all cleanings of a broker share: their speed and their memory.
#[derive(Debug)]
pub struct Cleaner {
    map_bytes: usize,
    load_factor: f64,
    throttle: Throttle,
}

impl Cleaner {
    /// `map_bytes`: memory that each of the cleanings at one time may use to note keys, filled
    /// to `load_factor`. `bytes_per_second`: read and written by all together.
    #[must_use]
    pub fn new(map_bytes: usize, load_factor: f64, bytes_per_second: f64) -> Self {
        Self {
            map_bytes,
            load_factor,
            throttle: Throttle::new(bytes_per_second, Instant::now()),
        }
    }

    /// Ends the cleanings under way, soon, and every later one at once.
    pub fn stop(&self) {
        self.throttle.stop();
    }

    /// Cleans a log; not to be called twice at once for the same one.
    ///
    /// # Errors
    /// See [`CleanError`].
    pub fn clean(&self, log: &PartitionLog, cleaning: &Cleaning) -> Result<Cleaned, CleanError> {
        match self.clean_open(log, cleaning) {
            Err(CleanError::Io(_)) if log.is_closed() => Err(CleanError::Interrupted),
            Err(CleanError::Corrupt(_)) if log.is_deleted() => Err(CleanError::Interrupted),
            cleaned => cleaned,
        }
    }

    fn clean_open(&self, log: &PartitionLog, cleaning: &Cleaning) -> Result<Cleaned, CleanError> {
        let truncations = log.truncations();
        // A transaction that began below the last stable offset has ended, and the log knows how.
        let end = cleaning.end.min(log.state().last_stable_offset);
        let segments: Vec<Sealed> = log
            .sealed_segments()?
            .into_iter()
            .take_while(|segment| segment.end_offset <= end)
            .collect();
        // A record goes because of a later one, which a power failure must not take then.
        log.sync_up_to(segments.last().map_or(0, |segment| segment.end_offset))?;
        let needed = Needed {
            last_batches: by_producer(log.last_batches()?),
            aborted: log.aborted_transactions(),
        };
        let start = cleaning.first_dirty_offset;
        let (last_offsets, end) = self.note_keys(&segments, start, &needed.aborted)?;
        let rules = RecordFilter {
            last_offsets: &last_offsets,
            now_ms: cleaning.now_ms,
            delete_retention_ms: cleaning.delete_retention_ms,
        };
        let mut pass = Pass {
            cleaner: self,
            rules,
            needed: &needed,
            transactions: Transactions::new(needed.aborted.clone()),
            idle_aborts: Vec::new(),
            held: Vec::new(),
            truncations,
            start,
            end,
            cleaned: Cleaned {
                end,
                keys: last_offsets.len() as u64,
                ..Cleaned::default()
            },
        };
        let settings = log.settings();
        let index_reach = settings.index_interval_bytes.max(HEADER_BYTES as u64)
            * (settings.segment_index_bytes / INDEX_ENTRY_BYTES);
        let bytes_max = settings.segment_bytes.min(POSITION_MAX).min(index_reach);
        let below_end = segments.partition_point(|segment| segment.base_offset < end);
        for group in groups(&segments[..below_end], bytes_max) {
            pass.clean_group(log, group)?;
        }
        Ok(pass.cleaned)
    }

    /// The first pass: notes the last offsets from `start` on, and says up to where. Where one
    /// batch has more keys than the memory takes, it takes more.
    fn note_keys(
        &self,
        segments: &[Sealed],
        start: i64,
        aborted: &[AbortedTxn],
    ) -> Result<(OffsetMap, i64), CleanError> {
        let dirty = &segments[segments.partition_point(|segment| segment.end_offset <= start)..];
        let end = dirty.last().map_or(start, |segment| segment.end_offset);
        let mut bytes_max = self.map_bytes;
        loop {
            let mut last_offsets =
                OffsetMap::new(bytes_max, self.load_factor, (end - start) as u64);
            let noted_end = self.fill(&mut last_offsets, dirty, start, aborted.to_vec())?;
            if noted_end > start || start == end {
                return Ok((last_offsets, noted_end));
            }
            bytes_max = bytes_max.max(1024) * 2;
        }
    }

    fn fill(
        &self,
        last_offsets: &mut OffsetMap,
        dirty: &[Sealed],
        start: i64,
        aborted: Vec<AbortedTxn>,
    ) -> Result<i64, CleanError> {
        let mut transactions = Transactions::new(aborted);
        let mut noted_end = start;
        let mut held = Vec::new();
        for segment in dirty {
            let mut batches = CheckedBatches::new(self, segment)?;
            while let Some((_, batch)) = batches.next()? {
                if batch.is_control() {
                    if let Some((is_commit, _)) = decode_marker(batch.records()) {
                        transactions.pass_marker(&batch, is_commit);
                    }
                } else if !transactions.pass_data(&batch) && batch.last_offset() >= start {
                    // Read to its end first: keys of a batch that cannot be read do not supersede.
                    if let Ok(source) = BatchContent::of(&batch, &mut held)
                        && source.check().is_ok()
                    {
                        let mut notes = KeyNotes {
                            key: last_offsets.hasher(),
                            last_offsets: &mut *last_offsets,
                            base_offset: batch.base_offset(),
                            start,
                            is_full: false,
                        };
                        let read = source.read(&mut notes);
                        debug_assert!(read.is_ok(), "it was read before");
                        if notes.is_full {
                            return Ok(noted_end);
                        }
                    }
                }
                noted_end = noted_end.max(batch.last_offset() + 1);
            }
            noted_end = segment.end_offset;
        }
        Ok(noted_end)
    }
}

/// Notes the keys of one batch.
struct KeyNotes<'a> {
    last_offsets: &'a mut OffsetMap,
    key: KeyHasher,
    base_offset: i64,
    start: i64,
    is_full: bool,
}

impl Visitor for KeyNotes<'_> {
    fn key(&mut self, piece: &[u8]) {
        self.key.write(piece);
    }

    fn record(&mut self, record: &RecordHead) -> ControlFlow<()> {
        let key = std::mem::replace(&mut self.key, self.last_offsets.hasher());
        let offset = self.base_offset + i64::from(record.offset_delta);
        if record.has_key && offset >= self.start && !self.last_offsets.put(&key, offset) {
            self.is_full = true;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// Batches that may not be lost, for any keys.
struct Needed {
    last_batches: HashMap<i64, Vec<LastBatch>>,
    aborted: Vec<AbortedTxn>,
}

impl Needed {
    /// True if the producer state would know less without this batch.
    fn holds(&self, header: &Header) -> bool {
        let batches = self.last_batches.get(&header.producer_id());
        batches.is_some_and(|batches| {
            batches.iter().any(|last| match last.last_offset {
                Some(offset) => !header.is_control() && header.last_offset() == offset,
                None => header.is_control() && header.producer_epoch() == last.producer_epoch,
            })
        })
    }
}

fn by_producer(batches: Vec<LastBatch>) -> HashMap<i64, Vec<LastBatch>> {
    let mut producers: HashMap<i64, Vec<LastBatch>> = HashMap::new();
    for batch in batches {
        producers.entry(batch.producer_id).or_default().push(batch);
    }
    producers
}

/// Splits adjacent segments into runs that fit into one segment each.
fn groups(segments: &[Sealed], bytes_max: u64) -> Vec<&[Sealed]> {
    let mut groups = Vec::new();
    let (mut first, mut bytes) = (0, 0);
    for (nth, segment) in segments.iter().enumerate() {
        let is_near = segment.end_offset - 1 - segments[first].base_offset <= i64::from(i32::MAX);
        if nth > first && (bytes + segment.size > bytes_max || !is_near) {
            groups.push(&segments[first..nth]);
            (first, bytes) = (nth, 0);
        }
        bytes += segment.size;
    }
    if first < segments.len() {
        groups.push(&segments[first..]);
    }
    groups
}

/// The second pass, over all groups.
struct Pass<'a> {
    cleaner: &'a Cleaner,
    rules: RecordFilter<'a>,
    needed: &'a Needed,
    transactions: Transactions,
    /// Markers of aborted transactions of which nothing is left.
    idle_aborts: Vec<i64>,
    /// Buffers for the content of the batch that is looked at.
    held: Vec<u8>,
    /// Truncations of the log, before its segments were listed.
    truncations: u64,
    start: i64,
    end: i64,
    cleaned: Cleaned,
}

impl Pass<'_> {
    /// Writes the kept part of a group's segments into one, and puts it in their place.
    fn clean_group(&mut self, log: &PartitionLog, group: &[Sealed]) -> Result<(), CleanError> {
        if group.iter().all(|segment| segment.size == 0) {
            return Ok(()); // Apache Kafka's cleaner has left them so
        }
        let first = &group[0];
        let path = first.path.with_extension("log.cleaned");
        let index_path = first.path.with_extension("txnindex.cleaned");
        let written = self.write_group(group, &path).and_then(|(size, entries)| {
            aborted::store(&index_path, &entries)?;
            Ok(size)
        });
        let size = match written {
            Ok(size) => size,
            Err(error) => {
                remove_unfinished(&path);
                remove_unfinished(&index_path);
                return Err(error);
            }
        };
        // First: a reader who is told of a transaction has to find its marker.
        log.forget_aborted(&std::mem::take(&mut self.idle_aborts))?;
        let base_offsets: Vec<i64> = group.iter().map(|segment| segment.base_offset).collect();
        if !log.swap_segments(&base_offsets, self.truncations)? {
            return Err(CleanError::Interrupted);
        }
        self.cleaned.bytes_before += group.iter().map(|segment| segment.size).sum::<u64>();
        self.cleaned.bytes_after += size;
        Ok(())
    }

    fn write_group(
        &mut self,
        group: &[Sealed],
        path: &Path,
    ) -> Result<(u64, Vec<AbortedTxn>), CleanError> {
        let mut output = Output::create(path)?;
        let mut entries = Vec::new();
        let last = group.last().expect("a group has a segment");
        let last_filled = group.iter().rfind(|segment| segment.size > 0);
        for segment in group {
            let is_last_segment =
                last_filled.is_some_and(|last| last.base_offset == segment.base_offset);
            let mut batches = CheckedBatches::new(self.cleaner, segment)?;
            while let Some((position, batch)) = batches.next()? {
                let is_last = is_last_segment && position + batch.size() as u64 == segment.size;
                let left = match self.filter(&batch, is_last, &mut entries) {
                    Ok(left) => left,
                    Err(reason) => {
                        self.note_unreadable(&batch, &group[0].path, output.position(), reason);
                        FilteredBatch::Whole
                    }
                };
                let bytes = match &left {
                    FilteredBatch::Whole => batch.bytes(),
                    FilteredBatch::Rewritten(bytes) => bytes,
                    FilteredBatch::Nothing => &[],
                };
                output.write(bytes)?;
                self.cleaner.spend(bytes.len() as u64)?;
            }
        }
        let size = output.finish()?;
        if size > POSITION_MAX {
            let reason = format!("{} would have {size} bytes after cleaning", path.display());
            return Err(CleanError::Io(io::Error::other(reason)));
        }
        // Markers from `end` on were not looked at; their entries stay.
        let untouched = self.end..last.end_offset;
        let of_untouched = |entry: &&AbortedTxn| untouched.contains(&entry.last_offset);
        entries.extend(self.needed.aborted.iter().filter(of_untouched));
        Ok((size, entries))
    }

    /// Keeps in mind, for the report of this cleaning, a batch that earlier ones have not met.
    fn note_unreadable(&mut self, header: &Header, path: &Path, position: u64, reason: String) {
        if header.base_offset() < self.start {
            return;
        }
        let first = self.cleaned.unreadable.get_or_insert_with(|| Unreadable {
            batches: 0,
            path: path.to_owned(),
            position,
            offset: header.base_offset(),
            reason,
        });
        first.batches += 1;
    }

    /// The rest of one batch; an entry that its marker needs is added to `entries`.
    ///
    /// # Errors
    /// Why its records cannot be read.
    fn filter(
        &mut self,
        batch: &BatchView<'_>,
        is_last: bool,
        entries: &mut Vec<AbortedTxn>,
    ) -> Result<FilteredBatch, String> {
        if batch.base_offset() >= self.end {
            return Ok(FilteredBatch::Whole);
        }
        let has_to_stay = is_last || self.needed.holds(batch);
        if !batch.is_control() {
            let is_aborted = self.transactions.pass_data(batch);
            return filter_data(batch, is_aborted, has_to_stay, &self.rules, &mut self.held);
        }
        let ended = match decode_marker(batch.records()) {
            Some((is_commit, _)) => {
                let ended = self.transactions.pass_marker(batch, is_commit);
                if !is_commit && ended == EndedTransaction::Nothing {
                    self.idle_aborts.push(batch.base_offset());
                }
                ended
            }
            // Emptied by another broker.
            None if batch.record_count() == 0 => EndedTransaction::Nothing,
            None => return Ok(FilteredBatch::Whole), // it ends no transaction
        };
        if let EndedTransaction::Aborted(entry) = ended {
            entries.push(entry);
        }
        let is_idle = ended == EndedTransaction::Nothing;
        filter_marker(batch, is_idle, has_to_stay, &self.rules, &mut self.held)
    }
}

impl PartitionLog {
    /// Forgets aborted transactions of which a cleaning leaves nothing.
    fn forget_aborted(&self, last_offsets: &[i64]) -> Result<(), CleanError> {
        if last_offsets.is_empty() {
            return Ok(());
        }
        let _writer = self.writer_even_if_failed();
        let mut known = self.aborted.write().unwrap_or_else(PoisonError::into_inner);
        known.forget(last_offsets);
        let forgotten = self.producer_state.forget_aborted(last_offsets);
        forgotten.map_err(|error| CleanError::ProducerStateManager(error.0))
    }

    fn aborted_transactions(&self) -> Vec<AbortedTxn> {
        let known = self.aborted.read().unwrap_or_else(PoisonError::into_inner);
        known.entries().to_vec()
    }

    fn last_batches(&self) -> Result<Vec<LastBatch>, CleanError> {
        let _writer = self.writer_even_if_failed();
        let batches = self.producer_state.last_batches();
        batches.map_err(|error| CleanError::ProducerStateManager(error.0))
    }
}

impl Sealed {
    /// The timestamp of its first batch; `None` if there is none.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn first_timestamp(&self) -> Result<Option<i64>, ReadError> {
        let mut bytes = [0; HEADER_BYTES];
        if self.size < HEADER_BYTES as u64 {
            return Ok(None);
        }
        self.file.get()?.read_exact_at(&mut bytes, 0)?;
        match Header::parse(&bytes) {
            Ok(header) => Ok(Some(header.max_timestamp()).filter(|&timestamp| timestamp >= 0)),
            Err(error) => Err(ReadError::Corrupt(CorruptLog {
                path: self.path.clone(),
                position: 0,
                reason: error.to_string(),
            })),
        }
    }
}

impl Cleaner {
    fn spend(&self, bytes: u64) -> Result<(), CleanError> {
        if self.throttle.spend(bytes) {
            Ok(())
        } else {
            Err(CleanError::Interrupted)
        }
    }
}

/// The batches of a sealed segment, each checked, at the cleaner's speed.
struct CheckedBatches<'a> {
    cleaner: &'a Cleaner,
    segment: &'a Sealed,
    scanner: Scanner<OpenFile>,
    next_offset: i64,
}

impl<'a> CheckedBatches<'a> {
    fn new(cleaner: &'a Cleaner, segment: &'a Sealed) -> io::Result<Self> {
        Ok(Self {
            cleaner,
            segment,
            scanner: Scanner::whole(segment.file.get()?, 0, segment.size),
            next_offset: segment.base_offset,
        })
    }

    fn next(&mut self) -> Result<Option<(u64, BatchView<'_>)>, CleanError> {
        let segment = self.segment;
        let corrupt = |position, error: BatchError| damaged(segment, position, error.to_string());
        let (position, header) = match self.scanner.next() {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(ScanError::Io(error)) => return Err(error.into()),
            Err(ScanError::Bad { position, error }) => return Err(corrupt(position, error)),
        };
        self.cleaner.spend(header.size() as u64)?;
        let bytes = self.scanner.bytes(position, header.size())?;
        let batch = BatchView::parse(bytes).map_err(|error| corrupt(position, error))?;
        batch.validate().map_err(|error| corrupt(position, error))?;
        // Offsets are under no checksum.
        let (value, end_offset) = (batch.base_offset(), segment.end_offset);
        if value < self.next_offset || batch.last_offset() >= end_offset {
            let reason = "the batch's base offset is out of place";
            return Err(corrupt(
                position,
                BatchError::Inconsistent { reason, value },
            ));
        }
        self.next_offset = batch.last_offset() + 1;
        Ok(Some((position, batch)))
    }
}

/// A file that is written from its start, in large pieces.
struct Output<'a> {
    file: File,
    path: &'a Path,
    written: u64,
    pending: Vec<u8>,
}

impl<'a> Output<'a> {
    fn create(path: &'a Path) -> io::Result<Self> {
        Ok(Self {
            file: disk::create(path)?,
            path,
            written: 0,
            pending: Vec::new(),
        })
    }

    /// Returns the position of the next bytes.
    fn position(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() < WRITE_CHUNK {
            return Ok(());
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        disk::write_at(&self.file, self.path, self.written, &self.pending)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Writes pending batches and syncs them; returns the file's size. Once the file
    /// is closed, bytes that the disk failed to write may go unnoticed (see `open_files`).
    fn finish(&mut self) -> io::Result<u64> {
        self.flush()?;
        disk::sync(&self.file, self.path)?;
        Ok(self.written)
    }
}

fn damaged(segment: &Sealed, position: u64, reason: String) -> CleanError {
    CleanError::Corrupt(CorruptLog {
        path: segment.path.clone(),
        position,
        reason,
    })
}

/// Removes a file that nobody knows of; the next start removes it if that fails now.
fn remove_unfinished(path: &Path) {
    let _ = disk::remove_if_there(path);
}
