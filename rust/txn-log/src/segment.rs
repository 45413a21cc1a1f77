//! One segment of a partition's log: `<base>.log` with its sparse indexes.
//!
//! `.log` holds record batches byte for byte as the wire carried them, back to back. The base
//! offset, twenty digits, is that of the first batch the segment may hold.
//!
//! # Invariants
//! 1. A batch's base offset is at or after `next_offset`; offsets never go back (compaction
//!    may leave gaps), and stay within `i32::MAX` of the base offset.
//! 2. An index entry points at the first byte of a batch that lies wholly inside `.log`.
//! 3. `size` and `next_offset` move together, only after the whole batch is written, so a
//!    reader sees whole batches only.
//! 4. Bytes before `size` are never rewritten.
//!
//! # After a crash
//! `.log` is cut where a batch was being written; `.index` and `.timeindex` are caches and are
//! rebuilt. See `recovery`.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use txn_protocol::batch::{BatchError, BatchView, Header};

use crate::disk;
use crate::error::{CorruptLog, ReadError};
use crate::index::{Indexes, OffsetIndex, OffsetIndexEntry, TimestampOffset};
use crate::open_files::{OpenFile, SegmentFile};
use crate::scan::{ScanError, Scanner};
use crate::settings::Settings;
use crate::sound_run::WantedRun;
use crate::verified_ranges::VerifiedRanges;

/// The largest position and relative offset that Kafka's indexes can name.
const INDEXED_MAX: u64 = i32::MAX as u64;

/// A run of whole batches of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub position: u64,
    pub len: u64,
    /// Exclusive upper bound of the offsets in it.
    pub end_offset: i64,
}

/// One segment. One writer at a time (the partition's lock); any number of readers.
#[derive(Debug)]
pub(crate) struct Segment {
    pub base_offset: i64,
    pub file: Arc<SegmentFile>,
    index_interval_bytes: u64,
    /// A random number, which chooses the part of `segment.jitter.ms` that this segment gets.
    random: u64,
    opened_ms: i64,
    /// Nothing of it needs a check any more.
    is_verified: AtomicBool,
    /// The largest timestamp was held against its batch.
    is_largest_sound: AtomicBool,
    verified: Mutex<VerifiedRanges>,
    tail: RwLock<Tail>,
}

#[derive(Debug)]
struct Tail {
    size: u64,
    next_offset: i64,
    /// The largest timestamp of its first batch, once that is known.
    first_timestamp: Option<i64>,
    /// `None` until a sealed segment of an earlier run is first read.
    indexes: Option<Indexes>,
}

/// A batch that is about to be appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    pub bytes: u64,
    pub last_offset: i64,
    pub max_timestamp: i64,
}

impl Segment {
    /// Makes an empty segment and its files.
    ///
    /// # Errors
    /// `AlreadyExists` if there are bytes in its place.
    pub fn create(directory: &Path, base_offset: i64, interval: u64) -> io::Result<Self> {
        let log_path = file_path(directory, base_offset, "log");
        if fs::metadata(&log_path).is_ok_and(|found| found.len() > 0) {
            let name = log_path.display();
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{name} exists and is not empty, but the log ends at {base_offset}"),
            ));
        }
        let file = SegmentFile::create(log_path.clone())?;
        for extension in ["index", "timeindex", "txnindex"] {
            disk::write(&log_path.with_extension(extension), b"")?;
        }
        let indexes = Some(Indexes::new(base_offset));
        Ok(Self::new(
            file,
            base_offset,
            interval,
            0,
            base_offset,
            indexes,
        ))
    }

    /// Opens a segment whose bytes are trusted; its indexes are loaded when first needed.
    pub fn open(
        directory: &Path,
        base_offset: i64,
        next_offset: i64,
        interval: u64,
    ) -> io::Result<Self> {
        let (file, size) = SegmentFile::find(file_path(directory, base_offset, "log"))?;
        Ok(Self::new(
            file,
            base_offset,
            interval,
            size,
            next_offset,
            None,
        ))
    }

    fn new(
        file: Arc<SegmentFile>,
        base_offset: i64,
        index_interval_bytes: u64,
        size: u64,
        next_offset: i64,
        indexes: Option<Indexes>,
    ) -> Self {
        let tail = RwLock::new(Tail {
            size,
            next_offset,
            first_timestamp: None,
            indexes,
        });
        Self {
            base_offset,
            file,
            index_interval_bytes,
            random: RandomState::new().build_hasher().finish(),
            opened_ms: now_ms(),
            is_verified: AtomicBool::new(size == 0),
            is_largest_sound: AtomicBool::new(false),
            verified: Mutex::new(VerifiedRanges::from(size)),
            tail,
        }
    }

    /// The same segment, its file still to be cut at `position`, with the batches below it.
    pub fn cut(&self, position: u64, next_offset: i64) -> Result<Self, ReadError> {
        let indexes = self.rebuild_indexes(position)?;
        let file = Arc::clone(&self.file);
        let interval = self.index_interval_bytes;
        let is_verified = self.is_verified.load(Ordering::Acquire);
        let cut = Self::new(
            file,
            self.base_offset,
            interval,
            position,
            next_offset,
            Some(indexes),
        );
        cut.is_verified.fetch_or(is_verified, Ordering::AcqRel);
        Ok(cut)
    }

    /// Path of the segment's file with this extension.
    pub fn path(&self, extension: &str) -> PathBuf {
        self.file.path().with_extension(extension)
    }

    /// Bytes of whole batches.
    pub fn size(&self) -> u64 {
        self.tail().size
    }

    /// The offset after the last batch.
    pub fn next_offset(&self) -> i64 {
        self.tail().next_offset
    }

    /// Notes that every batch was read with its checksum.
    pub fn note_verified(&self) {
        self.is_verified.store(true, Ordering::Release);
    }

    /// Bytes of `[position, position + len)` that can be shown when at most `bytes_max` bytes of it
    /// may be read to check them.
    pub fn showable(&self, position: u64, len: u64, bytes_max: u64) -> u64 {
        if self.is_verified.load(Ordering::Acquire) {
            return len;
        }
        let mut room = bytes_max;
        for (start, end) in self.lock_verified().missing(position, position + len) {
            if end - start > room {
                return start - position + room;
            }
            room -= end - start;
        }
        len
    }

    /// Makes sure that the batches `[position, position + len)` are sound before they are shown,
    /// unless that is known; returns how many bytes were read for it.
    pub fn verify(&self, position: u64, len: u64) -> Result<u64, ReadError> {
        if self.is_verified.load(Ordering::Acquire) {
            return Ok(0);
        }
        let gaps = self.lock_verified().missing(position, position + len);
        let read = gaps.iter().map(|(start, end)| end - start).sum();
        for (start, end) in gaps {
            let mut next_offset = self.base_offset;
            let mut last = (start, self.base_offset);
            let mut scanner = Scanner::whole(self.file.get()?, start, end);
            while let Some((at, header)) = scanner.next().map_err(|error| self.damaged(error))? {
                let batch = BatchView::parse(scanner.bytes(at, header.size())?);
                let sound = batch.and_then(|batch| batch.validate_crc());
                sound.map_err(|error| self.corrupt(at, &error))?;
                self.check_offsets(at, &header, next_offset)?;
                last = (at, header.base_offset());
                next_offset = header.last_offset() + 1;
            }
            // The offset is under no checksum; the batch behind tells if it was raised. One that
            // follows the batch before without a gap was not: then the batch behind is damaged.
            let (at, offset) = last;
            if next_offset > self.bound_behind(end)? && self.end_before(at)? != offset {
                let reason = "the batch's base offset is too far on";
                let error = BatchError::Inconsistent {
                    reason,
                    value: next_offset,
                };
                return Err(self.corrupt(at, &error).into());
            }
            self.lock_verified().add(start, end);
        }
        if self.lock_verified().missing(0, u64::MAX).is_empty() {
            self.note_verified();
        }
        Ok(read)
    }

    /// The offset that no batch before a position reaches: that of the batch there, or the end of
    /// the segment if there is none that can be read.
    fn bound_behind(&self, position: u64) -> Result<i64, ReadError> {
        let (size, segment_end) = {
            let tail = self.tail();
            (tail.size, tail.next_offset)
        };
        match self.scan_between(position, size)?.next() {
            Ok(Some((_, behind))) => Ok(behind.base_offset()),
            Err(ScanError::Io(error)) => Err(error.into()),
            Ok(None) | Err(ScanError::Bad { .. }) => Ok(segment_end),
        }
    }

    /// The offset after the batch that ends at a position.
    fn end_before(&self, position: u64) -> Result<i64, ReadError> {
        let mut end = self.base_offset;
        let from = self.batch_at_or_before(position.saturating_sub(1))?;
        let mut scanner = self.scan_between(from, position)?;
        while let Some((_, header)) = scanner.next().map_err(|error| self.damaged(error))? {
            end = header.last_offset() + 1;
        }
        Ok(end)
    }

    fn lock_verified(&self) -> MutexGuard<'_, VerifiedRanges> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The offset after the last batch of a sealed segment, by the last entry of its index and
    /// the headers from there on, up to the end of the file.
    ///
    /// # Errors
    /// `Corrupt` if no whole batch ends there.
    pub fn end_by_index(&self) -> Result<i64, ReadError> {
        let size = self.size();
        let from = match self
            .last_stored_entry()?
            .filter(|&last| self.is_sound(last, size))
        {
            Some(last) => u64::from(last.position),
            None => self.load_indexes(size)?.offsets.last_position(),
        };
        let mut next_offset = self.base_offset;
        let mut scanner = self.scan_between(from, size)?;
        while let Some((position, header)) = scanner.next().map_err(|error| self.damaged(error))? {
            self.check_offsets(position, &header, next_offset)?;
            next_offset = header.last_offset() + 1;
        }
        Ok(next_offset)
    }

    /// The last entry of the index file; `None` if there is none.
    fn last_stored_entry(&self) -> io::Result<Option<OffsetIndexEntry>> {
        let file = match disk::open(&self.path("index")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = [0; OffsetIndex::ENTRY_BYTES];
        match file.metadata()?.len().checked_sub(bytes.len() as u64) {
            None => Ok(None),
            Some(position) => {
                file.read_exact_at(&mut bytes, position)?;
                Ok(Some(OffsetIndex::decode_entry(bytes)))
            }
        }
    }

    /// Sets the end of the segment and the content of its indexes, as recovery found them.
    pub fn restore(&self, size: u64, next_offset: i64, indexes: Indexes) {
        let mut tail = self.tail_mut();
        tail.size = size;
        tail.next_offset = next_offset;
        tail.indexes = Some(indexes);
    }

    /// True if a batch belongs here rather than into a new segment: by size, offset, age and
    /// indexes.
    ///
    /// Age is, as in Kafka, how much later the batch is than the segment's first one; without
    /// timestamps, how long ago the segment was opened.
    pub fn has_room(&self, batch: &Incoming, settings: &Settings) -> Result<bool, ReadError> {
        let size = self.size();
        if batch.last_offset - self.base_offset > i64::from(i32::MAX) {
            return Ok(false);
        }
        if size == 0 {
            return Ok(true);
        }
        if size + batch.bytes > settings.segment_bytes.min(INDEXED_MAX) {
            return Ok(false);
        }
        let age_ms = match self.first_timestamp()? {
            Some(first) if first >= 0 && batch.max_timestamp >= 0 => batch.max_timestamp - first,
            _ => now_ms() - self.opened_ms,
        };
        let jitter_max = settings.segment_jitter_ms.clamp(0, settings.segment_ms) as u64;
        let jitter_ms = self.random.checked_rem(jitter_max).unwrap_or(0) as i64;
        if age_ms > settings.segment_ms - jitter_ms {
            return Ok(false);
        }
        self.with_indexes(|_, indexes| !indexes.are_full(settings.segment_index_bytes))
    }

    fn first_timestamp(&self) -> Result<Option<i64>, ReadError> {
        if let Some(known) = self.tail().first_timestamp {
            return Ok(Some(known));
        }
        let first = self
            .scan_from(0)?
            .next()
            .map_err(|error| self.damaged(error))?;
        let first_timestamp = first.map(|(_, header)| header.max_timestamp());
        self.tail_mut().first_timestamp = first_timestamp;
        Ok(first_timestamp)
    }

    /// Appends one batch, its base offset stamped already, and shows it to readers.
    ///
    /// On an error nothing changes for readers; bytes beyond `size` may be in the file.
    pub fn append(&self, header: &Header, bytes: &[u8]) -> io::Result<()> {
        let position = self.size();
        let next_offset = self.next_offset();
        let base_offset = header.base_offset();
        assert!(
            base_offset >= next_offset,
            "offset {base_offset} goes back from {next_offset}"
        );
        self.with_indexes(|_, _| ()).map_err(io::Error::other)?;
        self.file.write_at(position, bytes)?;
        let mut tail = self.tail_mut();
        let indexes = tail
            .indexes
            .as_mut()
            .expect("loaded above, and never unloaded");
        indexes.note(header, position, self.index_interval_bytes);
        if position == 0 {
            tail.first_timestamp = Some(header.max_timestamp());
        }
        tail.size = position + bytes.len() as u64;
        tail.next_offset = header.last_offset() + 1;
        Ok(())
    }

    /// Removes bytes that a failed append may have left behind `size`.
    pub fn discard_unpublished(&self) -> io::Result<()> {
        self.file.truncate(self.size())
    }

    /// True if its index files, missing or damaged, were made anew in memory.
    pub fn has_rebuilt_indexes(&self) -> bool {
        let tail = self.tail();
        tail.indexes.as_ref().is_some_and(|found| !found.is_loaded)
    }

    /// Writes the index files, if they were touched.
    pub fn store_indexes(&self) -> io::Result<()> {
        let (index, time_index) = (self.path("index"), self.path("timeindex"));
        match &mut self.tail_mut().indexes {
            Some(indexes) => indexes.store(&index, &time_index),
            None => Ok(()),
        }
    }

    /// Forces the batches to the disk.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// Forces the batches and the indexes of a sealed segment to the disk.
    pub fn sync_sealed(&self) -> io::Result<()> {
        self.sync()?;
        for extension in ["index", "timeindex", "txnindex"] {
            disk::sync_if_there(&self.path(extension))?;
        }
        Ok(())
    }

    /// When its newest record was written: its largest timestamp, or else that of the file.
    pub fn newest_ms(&self) -> Result<i64, ReadError> {
        if let Some(largest) = self.largest_timestamp()? {
            return Ok(largest.timestamp);
        }
        let modified = self.file.modified()?;
        let since = modified.duration_since(UNIX_EPOCH);
        Ok(since.map_or(0, |since| since.as_millis() as i64))
    }

    /// The largest timestamp of its batches, markers included.
    pub fn largest_timestamp(&self) -> Result<Option<TimestampOffset>, ReadError> {
        // Asked of every segment now and then: one that nobody uses is not opened each time.
        if self.is_largest_sound.load(Ordering::Acquire) {
            return self.with_indexes(|_, indexes| indexes.largest);
        }
        let largest = self.sound_time(|indexes| indexes.largest)?;
        self.is_largest_sound.store(true, Ordering::Release);
        Ok(largest)
    }

    /// Finds the first batch whose last offset is `offset` or more; `None` if there is none.
    pub fn find(&self, offset: i64) -> Result<Option<(u64, Header)>, ReadError> {
        let from = if offset <= self.base_offset {
            0 // without the indexes, which a start loads of few segments
        } else {
            self.position_before(offset)?
        };
        self.find_between(from, self.size(), |_, header| {
            header.last_offset() >= offset
        })
    }

    /// Finds the last batch that begins below an offset; `None` if there is none.
    pub fn last_below(&self, offset: i64) -> Result<Option<Header>, ReadError> {
        let from = self.position_before(offset - 1)?;
        let mut scanner = self.scan_from(from)?;
        let mut last = None;
        while let Some((_, header)) = scanner.next().map_err(|error| self.damaged(error))? {
            if header.base_offset() >= offset {
                break;
            }
            last = Some(header);
        }
        Ok(last)
    }

    /// Finds the whole batches that are wanted, from the one that holds the start; `None` if there
    /// are none. Nothing is believed of a batch but its header.
    pub fn run(&self, wanted: WantedRun) -> Result<Option<Run>, ReadError> {
        let WantedRun {
            start,
            end,
            bytes_max,
            at_least_one,
        } = wanted;
        let from = self.position_before(start)?;
        let (size, next_offset) = {
            let tail = self.tail();
            (tail.size, tail.next_offset)
        };
        let until = if end < next_offset {
            Some(self.position_before(end)?)
        } else {
            None
        };
        let first = self.find_between(from, size, |_, header| header.last_offset() >= start)?;
        let Some((position, first)) = first else {
            return Ok(None);
        };
        // Where the wanted batches end: at the segment's end, or at the first one that
        // reaches `end` (it is left out: a reader must not see past its bound).
        let (limit, end_offset) = match until {
            None => (size, next_offset),
            Some(until) => {
                let reaches = |_: u64, header: &Header| header.last_offset() >= end;
                let beyond = self.find_between(until.max(position), size, reaches)?;
                beyond.map_or((size, next_offset), |(at, header)| {
                    (at, header.base_offset().min(end))
                })
            }
        };
        if limit <= position {
            return Ok(None);
        }
        if limit - position <= bytes_max {
            let len = limit - position;
            return Ok(Some(Run {
                position,
                len,
                end_offset,
            }));
        }
        let cut = position + bytes_max;
        let resume = self.batch_at_or_before(cut)?;
        let passes = |at: u64, header: &Header| at + header.size() as u64 > cut;
        let cut_at = self.find_between(resume.max(position), limit, passes)?;
        let (cut_at, cut_header) = cut_at.unwrap_or((limit, first)); // `limit` is beyond `cut`
        if cut_at > position {
            let len = cut_at - position;
            return Ok(Some(Run {
                position,
                len,
                end_offset: cut_header.base_offset(),
            }));
        }
        let (len, end_offset) = (first.size() as u64, first.last_offset() + 1);
        Ok(at_least_one.then_some(Run {
            position,
            len,
            end_offset,
        }))
    }

    /// Estimates the bytes stored in `[start, end)`, never too few, from the index alone.
    pub fn estimate(&self, start: i64, end: i64) -> u64 {
        let estimate = self.with_indexes(|tail, indexes| {
            if start >= tail.next_offset || end <= self.base_offset {
                return 0;
            }
            let until = if end < tail.next_offset {
                indexes.position_after(end)
            } else {
                None
            };
            let from = indexes.entry_before(start);
            let from = from.map_or(0, |entry| u64::from(entry.position));
            until.unwrap_or(tail.size).saturating_sub(from)
        });
        estimate.unwrap_or_else(|_| self.size()) // the read that follows will tell the error
    }

    /// A scanner over the headers of the batches that may hold a record at or after a time.
    pub fn scan_since(&self, timestamp: i64) -> Result<Scanner<OpenFile>, ReadError> {
        let older = self.sound_time(|indexes| indexes.largest_before_time(timestamp))?;
        let from = match older {
            Some(older) => self.position_before(older.offset)?,
            None => 0,
        };
        Ok(self.scan_from(from)?)
    }

    /// A scanner over the headers of the batches from `position`, which must be a batch's.
    pub fn scan_from(&self, position: u64) -> io::Result<Scanner<OpenFile>> {
        self.scan_between(position, self.size())
    }

    /// A scanner over the headers of the batches of `[position, end)`.
    pub fn scan_between(&self, position: u64, end: u64) -> io::Result<Scanner<OpenFile>> {
        Ok(Scanner::headers(self.file.get()?, position, end))
    }

    /// The last batch start that the index knows before an offset.
    pub fn position_before(&self, offset: i64) -> Result<u64, ReadError> {
        self.sound_position(|indexes| indexes.entry_before(offset))
    }

    /// The last batch start that the index knows at or before a position.
    pub fn batch_at_or_before(&self, position: u64) -> Result<u64, ReadError> {
        self.sound_position(|indexes| indexes.offsets.entry_at_or_before(position))
    }

    /// The position of an index entry; 0 without one.
    ///
    /// An entry that was read from a file is held against the batch it points at. One that lies
    /// has the indexes made anew from the batches: they are caches, and their damage is none.
    fn sound_position(
        &self,
        look: impl Fn(&Indexes) -> Option<OffsetIndexEntry>,
    ) -> Result<u64, ReadError> {
        let (entry, is_loaded) =
            self.with_indexes(|_, indexes| (look(indexes), indexes.is_loaded))?;
        let Some(entry) = entry else { return Ok(0) };
        if !is_loaded || self.is_sound(entry, self.size()) {
            return Ok(u64::from(entry.position));
        }
        let entry = self.search_rebuilt(look)?;
        Ok(entry.map_or(0, |entry| u64::from(entry.position)))
    }

    /// A timestamp of the time index, held against its batch in the same way.
    fn sound_time(
        &self,
        look: impl Fn(&Indexes) -> Option<TimestampOffset>,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        let (found, is_loaded) =
            self.with_indexes(|_, indexes| (look(indexes), indexes.is_loaded))?;
        let Some(time) = found else { return Ok(None) };
        let is_sound = |time: TimestampOffset| {
            let batch = self.find(time.offset);
            matches!(batch, Ok(Some((_, header))) if header.max_timestamp() == time.timestamp)
        };
        if !is_loaded || is_sound(time) {
            return Ok(found);
        }
        self.search_rebuilt(look)
    }

    /// Makes the indexes anew from the batches, and looks there.
    fn search_rebuilt<T>(&self, look: impl Fn(&Indexes) -> T) -> Result<T, ReadError> {
        let mut tail = self.tail_mut();
        let indexes = self.rebuild_indexes(tail.size)?;
        let found = look(&indexes);
        tail.indexes = Some(indexes);
        Ok(found)
    }

    fn is_sound(&self, entry: OffsetIndexEntry, size: u64) -> bool {
        let Ok(mut scanner) = self.scan_between(u64::from(entry.position), size) else {
            return false;
        };
        let last_offset = self.base_offset + i64::from(entry.relative_offset);
        matches!(scanner.next(), Ok(Some((_, header))) if header.last_offset() == last_offset)
    }

    /// True if a batch has the largest timestamp that was loaded. Held against it before later
    /// batches are noted, one of which would take the place of a wrong one.
    fn is_largest_sound(&self, indexes: &Indexes, size: u64) -> bool {
        let Some(largest) = indexes.largest else {
            return true;
        };
        let entry = indexes.entry_before(largest.offset);
        let entry = entry.filter(|&entry| self.is_sound(entry, size));
        let from = entry.map_or(0, |entry| u64::from(entry.position));
        let found = self.find_between(from, size, |_, header| {
            header.last_offset() >= largest.offset
        });
        matches!(found, Ok(Some((_, header))) if header.max_timestamp() == largest.timestamp)
    }

    /// The meaning of damage found while reading.
    pub fn damaged(&self, error: ScanError) -> ReadError {
        match error {
            ScanError::Io(error) => ReadError::Io(error),
            ScanError::Bad { position, error } => {
                ReadError::Corrupt(self.corrupt(position, &error))
            }
        }
    }

    /// Names damage in this segment.
    pub fn corrupt(&self, position: u64, error: &BatchError) -> CorruptLog {
        CorruptLog {
            path: self.file.path().to_owned(),
            position,
            reason: error.to_string(),
        }
    }

    fn find_between(
        &self,
        from: u64,
        end: u64,
        is_wanted: impl Fn(u64, &Header) -> bool,
    ) -> Result<Option<(u64, Header)>, ReadError> {
        let mut scanner = self.scan_between(from, end)?;
        let mut next_offset = self.base_offset;
        while let Some((position, header)) = scanner.next().map_err(|error| self.damaged(error))? {
            self.check_offsets(position, &header, next_offset)?;
            next_offset = header.last_offset() + 1;
            if is_wanted(position, &header) {
                return Ok(Some((position, header)));
            }
        }
        Ok(None)
    }

    fn with_indexes<T>(&self, read: impl FnOnce(&Tail, &Indexes) -> T) -> Result<T, ReadError> {
        {
            let tail = self.tail();
            if let Some(indexes) = &tail.indexes {
                return Ok(read(&tail, indexes));
            }
        }
        let mut tail = self.tail_mut();
        if tail.indexes.is_none() {
            tail.indexes = Some(self.load_indexes(tail.size)?);
        }
        let indexes = tail.indexes.as_ref().expect("loaded above");
        Ok(read(&tail, indexes))
    }

    /// Loads the index files, or rebuilds their content from the batches' headers.
    pub fn load_indexes(&self, size: u64) -> Result<Indexes, ReadError> {
        let (index, time_index) = (self.path("index"), self.path("timeindex"));
        let loaded = Indexes::load(self.base_offset, size, &index, &time_index)?;
        if let Some(indexes) = loaded
            && indexes
                .offsets
                .last()
                .is_none_or(|last| self.is_sound(last, size))
            && self.is_largest_sound(&indexes, size)
        {
            return Ok(indexes);
        }
        self.rebuild_indexes(size)
    }

    /// Makes the content of the index files from the batches' headers, up to the first that is
    /// damaged: a reader from there on meets it.
    fn rebuild_indexes(&self, size: u64) -> Result<Indexes, ReadError> {
        let mut indexes = Indexes::new(self.base_offset);
        let mut next_offset = self.base_offset;
        let mut scanner = self.scan_between(0, size)?;
        loop {
            match scanner.next() {
                Ok(Some((position, header)))
                    if self.check_offsets(position, &header, next_offset).is_ok() =>
                {
                    indexes.note(&header, position, self.index_interval_bytes);
                    next_offset = header.last_offset() + 1;
                }
                Err(ScanError::Io(error)) => return Err(error.into()),
                Ok(_) | Err(ScanError::Bad { .. }) => return Ok(indexes),
            }
        }
    }

    /// Checks the fields that the batch's checksum does not cover and the indexes rely on.
    pub fn check_offsets(
        &self,
        position: u64,
        header: &Header,
        next_offset: i64,
    ) -> Result<(), CorruptLog> {
        let inconsistent = |reason, value| {
            Err(self.corrupt(position, &BatchError::Inconsistent { reason, value }))
        };
        if header.base_offset() < next_offset {
            return inconsistent("the batch's base offset goes back", header.base_offset());
        }
        let last_offset = header
            .base_offset()
            .checked_add(i64::from(header.last_offset_delta()));
        let furthest = self.base_offset + i64::from(i32::MAX);
        match last_offset {
            Some(last) if (header.base_offset()..=furthest).contains(&last) => Ok(()),
            _ => inconsistent(
                "the batch's base offset is too far on",
                header.base_offset(),
            ),
        }
    }

    fn tail(&self) -> RwLockReadGuard<'_, Tail> {
        // A panic cannot leave a tail half changed: its fields are set after all that can fail.
        self.tail.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn tail_mut(&self) -> RwLockWriteGuard<'_, Tail> {
        self.tail.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Milliseconds since the epoch.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

/// `<directory>/<20 digits>.<extension>`.
pub(crate) fn file_path(directory: &Path, offset: i64, extension: &str) -> PathBuf {
    directory.join(format!("{offset:020}.{extension}"))
}
