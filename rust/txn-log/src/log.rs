//! One partition's log: the one door through which batches are appended and read.
//!
//! # An append
//! Checked without the lock: bytes, checksum, counts, and the content, which is opened and read to
//! the last header, so that acknowledged records can be read. Then, under the partition's lock:
//! make room (first segment, or roll), ask the producer state, stamp offset and time in place,
//! write, note an aborted transaction, publish. After the lock: wake waiting readers. A plain
//! batch, one without a producer id, does not ask the producer state.
//!
//! # What readers see
//! The offsets of [`crate::offsets`], published as one state: readers ask `readable_end`, and read
//! on up to it. A segment shows size and next offset together. So a reader needs no lock of the
//! writer: it takes the segment list, looks up positions, and lets the kernel send the bytes.
//!
//! # When the disk fails
//! The written part of a batch that failed is cut off; reads go on. If the producer state had
//! admitted it, producer state and file disagree. The next append first brings the producer state
//! to the content of the file, as a start does, and then goes on. So a disk that has space again
//! needs nobody's help. After a failed sync, whose bytes the kernel may have dropped, the log takes
//! nothing more until it is opened again.
//!
//! # Deviations from Kafka
//! A batch larger than a segment is stored in a segment of its own rather than refused. Records
//! with other offsets than 0, 1, 2 … are refused, where Kafka renumbers them. Kafka opens batches
//! that Java's client can read; here another client has to be able to read them too, see `opening`.
//! Kafka has no limit for the size of opened records; see [`CONTENT_BYTES_MAX`].

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use txn_protocol::batch::{self, BatchError, BatchView, Codec, Header};
use txn_protocol::codes;

use crate::aborted::{self, AbortedTxns};
use crate::aborted_sums::AbortedSums;
use crate::builder::encode_marker;
use crate::compression::CompressionError;
use crate::content::{self, Content, ContentError};
use crate::disk;
use crate::epochs::Epochs;
pub use crate::error::{AppendError, CorruptLog, OpenError, ReadError};
use crate::index::TimestampOffset;
pub use crate::offsets::LogState;
use crate::offsets::{Isolation, Offsets, Role};
use crate::open_files::{LentFile, OpenFile};
use crate::producer_state::{
    AbortedTxn, AdmitResult, Candidate, Marker, Origin, ProducerStateManager,
};
use crate::recovery::{self, Cut};
use crate::removal::PendingDeletes;
use crate::search::{self, Budget, Searched};
use crate::segment::{Incoming, Segment, file_path, now_ms};
use crate::settings::Settings;
use crate::snapshot;
use crate::syncing::Synced;
use crate::timestamps;
use crate::write_health::WriteHealth;

/// Names the topic that a partition's directory is of.
pub(crate) const METADATA_NAME: &str = "partition.metadata";
/// Suffix of the name of a directory that is being removed.
const DOOMED_SUFFIX: &str = "-delete";
/// The longest name that file systems take.
const NAME_BYTES_MAX: usize = 255;
/// Pause between two attempts to bring producer state and file together.
const HEAL_PAUSE: Duration = Duration::from_secs(1);
/// The most bytes that compressed records of one batch may come to, unless `max.message.bytes`
/// is more: the limit of librdkafka for a zstd batch (`receive.message.max.bytes`).
pub const CONTENT_BYTES_MAX: usize = 100_000_000;

/// A batch that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: i64,
    /// The time it was stamped with; -1 unless the topic uses `LogAppendTime`.
    pub log_append_time: i64,
    /// First offset that is stored.
    pub log_start_offset: i64,
}

/// The known past of a log when it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// It was closed, so its files may be trusted.
    pub was_clean: bool,
    /// It was not, and the machine went down: unsynced bytes may be torn anywhere.
    pub power_failed: bool,
    /// Its entry in `recovery-point-offset-checkpoint`, or 0: everything below was on the disk.
    pub recovery_point: i64,
    /// Its entry in `replication-offset-checkpoint`, or 0: the log has got that far once.
    pub high_watermark: i64,
    /// Its entry in `log-start-offset-checkpoint`.
    pub log_start_offset: Option<i64>,
    /// It was compacted once: between its batches offsets may be missing.
    pub may_have_gaps: bool,
    /// Its role in its partition from the start. Unless it is the sole replica, `high_watermark` is
    /// also its high watermark, as far as the log reaches.
    pub role: Role,
}

/// A run of whole batches in one file.
#[derive(Clone, Debug)]
pub struct Slice {
    /// `None` if there is nothing to read.
    file: Option<OpenFile>,
    /// Of the first batch.
    pub position: u64,
    /// Bytes; 0 if there is nothing.
    pub len: u64,
    /// Exclusive upper bound of the offsets in it.
    pub end_offset: i64,
    /// Bytes of it that had to be read now, to see whether they are sound.
    pub checked: u64,
}

impl Slice {
    /// Lends its file to an answer, as [`OpenFile::lend`]; `None` also if there is none.
    #[must_use]
    pub fn lend(&self) -> Option<LentFile> {
        self.file.as_ref().and_then(OpenFile::lend)
    }

    /// Reads its bytes.
    ///
    /// # Errors
    /// The disk's error.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len as usize];
        if let Some(file) = &self.file {
            file.read_exact_at(&mut bytes, self.position)?;
        }
        Ok(bytes)
    }
}

/// Someone who waits for a log to grow.
pub trait Watcher: Send + Sync {
    /// One of the log's offsets moved, or the log was closed. Called without the
    /// partition's lock, on the thread that appended; must not block.
    fn log_advanced(&self);
}

/// One partition's log: segment files and indexes in one directory.
///
/// The directory and its files are made by the first append. Thread-safe.
pub struct PartitionLog {
    pub(crate) directory: PathBuf,
    pub(crate) producer_state: Arc<dyn ProducerStateManager>,
    partition_metadata: Option<String>,
    settings: RwLock<Settings>,
    /// Held while segments are removed or swapped; taken before the partition's lock.
    maintenance: Mutex<()>,
    writer: Mutex<Writer>,
    segments: RwLock<Arc<Vec<Arc<Segment>>>>,
    pub(crate) offsets: Offsets,
    pub(crate) aborted: RwLock<AbortedTxns>,
    cuts: Vec<Cut>,
    pub(crate) pending_deletes: PendingDeletes,
    leader_epoch: AtomicI32,
    epochs: RwLock<Epochs>,
    /// An epoch began without a batch; its file is written with the first.
    pub(crate) has_unstored_epoch: AtomicBool,
    pub(crate) watchers: Watchers,
    damage: Mutex<Damage>,
    pub(crate) write_health: WriteHealth,
    pub(crate) synced: Mutex<Synced>,
    /// Lock-free mirror of `synced.end`.
    pub(crate) recovery_point: AtomicI64,
    /// Sealed segments whose indexes and snapshots may not be on the disk, oldest first.
    pub(crate) unsynced_seals: Mutex<Vec<Arc<Segment>>>,
    pub(crate) has_new_files: AtomicBool,
    pub(crate) has_failed_sync: AtomicBool,
    /// True if bytes are forced to the disk before an idle file is closed.
    syncs_before_close: AtomicBool,
    is_closed: AtomicBool,
    is_deleted: AtomicBool,
}

/// The state that only the holder of the partition's lock may see.
pub(crate) struct Writer {
    pub condition: Condition,
    /// The role of the log in its partition; a follower takes batches from its leader alone.
    pub role: Role,
    pub first_unstable_offset: Option<i64>,
    healed_at: Option<Instant>,
    /// No append was tried since the log was opened, and its files were trusted.
    pub is_as_closed: bool,
}

/// Damage that readers met.
#[derive(Debug, Default)]
struct Damage {
    met: Vec<CorruptLog>,
    /// Number of them that an operator was told of.
    told: usize,
}

pub(crate) enum Condition {
    Open,
    /// Producer state and file disagree since a write failed; the text says which. The next append
    /// brings them together again.
    Diverged(String),
    /// The content of the disk is unknown; the text has the reason. Only opening the log again
    /// helps.
    Failed(String),
    Closed,
}

impl Writer {
    pub fn is_open(&self) -> bool {
        matches!(self.condition, Condition::Open)
    }
}

impl PartitionLog {
    /// Opens and recovers a log, by its known past.
    ///
    /// `partition_metadata` is the text of the `partition.metadata` file, written with the
    /// directory.
    ///
    /// # Errors
    /// `Corrupt` for damage, and for missing parts; nothing was changed then.
    pub fn open(
        directory: PathBuf,
        producer_state: Arc<dyn ProducerStateManager>,
        settings: Settings,
        partition_metadata: Option<String>,
        past: Past,
    ) -> Result<Self, OpenError> {
        let found = recovery::recover(&directory, producer_state.as_ref(), &settings, past)?;
        let was_clean = past.was_clean;
        let first = found.segments.first().map_or(0, |first| first.base_offset);
        let end = found.segments.last().map_or(0, |last| last.next_offset());
        // After a power failure one may lie beyond the end; else recovery has refused that.
        let checked = past.log_start_offset.filter(|&start| start <= end);
        let start = first.max(checked.unwrap_or(0));
        let offsets = Offsets::new(
            past.role,
            start,
            past.high_watermark,
            end,
            found.first_unstable_offset,
        );
        // Bytes that a dead process had written may still be in memory only: the first sync after
        // it forces everything behind the recovery point.
        let synced_end = if was_clean { end } else { found.recovery_point };
        let log = Self {
            directory,
            producer_state,
            partition_metadata,
            settings: RwLock::new(settings),
            maintenance: Mutex::new(()),
            writer: Mutex::new(Writer {
                condition: Condition::Open,
                role: past.role,
                first_unstable_offset: found.first_unstable_offset,
                healed_at: None,
                is_as_closed: found.was_trusted,
            }),
            segments: RwLock::new(Arc::new(found.segments)),
            offsets,
            aborted: RwLock::new(found.aborted),
            leader_epoch: AtomicI32::new(found.epochs.latest().unwrap_or(0)),
            epochs: RwLock::new(found.epochs),
            has_unstored_epoch: AtomicBool::new(false),
            cuts: found.cuts,
            pending_deletes: PendingDeletes::default(),
            watchers: Watchers::default(),
            damage: Mutex::default(),
            write_health: WriteHealth::default(),
            synced: Mutex::new(Synced::new(synced_end)),
            recovery_point: AtomicI64::new(synced_end),
            unsynced_seals: Mutex::new(found.unsynced_seals),
            has_new_files: AtomicBool::new(!was_clean && end > 0),
            has_failed_sync: AtomicBool::new(false),
            syncs_before_close: AtomicBool::new(true),
            is_closed: AtomicBool::new(false),
            is_deleted: AtomicBool::new(false),
        };
        if !was_clean && log.directory.is_dir() {
            // No batch depends on it: a disk that is full does not keep the log from its readers.
            let _ = log.store_metadata();
        }
        Ok(log)
    }

    /// Where its files are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The parts cut off when it was opened, in the order of the offsets.
    #[must_use]
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// Changes the settings for the appends that follow.
    pub fn configure(&self, settings: Settings) {
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Says whether what is written is forced to the disk before an idle file is closed to open
    /// another, so that a later [`PartitionLog::sync`] is told of bytes that were lost. For logs
    /// of which no sync is promised it is a waste. Before the first append.
    pub fn set_syncs_before_close(&self, syncs: bool) {
        self.syncs_before_close.store(syncs, Ordering::Relaxed);
        for segment in self.segments().iter() {
            segment.file.set_syncs_before_close(syncs);
        }
    }

    // ------------------------------------------------------------ writing

    /// Validates, admits, stamps in place, writes, publishes and wakes: one whole batch.
    ///
    /// On success `batch` holds the stored bytes. On `Join` it may be appended again as it is.
    ///
    /// # Errors
    /// See [`AppendError`]; nothing is readable of a batch that failed.
    pub fn append(&self, origin: Origin, batch: &mut [u8]) -> Result<Appended, AppendError> {
        self.append_within(origin, batch, &mut None, &mut { usize::MAX })
    }

    /// Like `append`, but opens at most `budget` bytes of compressed content if `content` is not
    /// known, and lowers `budget` by as much. `content` is known afterwards if all was. A result of
    /// [`Self::inspect`] counts as known.
    ///
    /// # Errors
    /// As `append`, and `TooMuchToOpen`.
    pub fn append_within(
        &self,
        origin: Origin,
        batch: &mut [u8],
        content: &mut Option<Content>,
        budget: &mut usize,
    ) -> Result<Appended, AppendError> {
        let settings = self.settings();
        let header = check_batch(origin, batch, &settings, content, budget)?;
        let has_producer = header.producer_id() >= 0;
        let appended =
            self.append_checked(&settings, header, batch, |next_offset, max_timestamp_ms| {
                has_producer.then(|| {
                    self.producer_state.admit(&Candidate {
                        origin,
                        next_offset,
                        producer_id: header.producer_id(),
                        producer_epoch: header.producer_epoch(),
                        base_sequence: header.base_sequence(),
                        record_count: header.record_count(),
                        max_timestamp_ms,
                        is_transactional: header.is_transactional(),
                    })
                })
            });
        self.note_outcome(&appended);
        let appended = appended?;
        self.watchers.wake();
        if appended.base_offset + i64::from(header.record_count())
            - self.recovery_point.load(Ordering::Acquire)
            >= settings.flush_messages
        {
            self.sync().map_err(AppendError::Io)?;
        }
        Ok(appended)
    }

    /// Opens a batch that is to be appended, and reads its records; raises `opened` by as many
    /// bytes.
    ///
    /// # Errors
    /// `Refused` if a client could not read them, or if they come to too much.
    pub fn inspect(
        &self,
        batch: &BatchView<'_>,
        opened: &mut usize,
    ) -> Result<Content, AppendError> {
        let cap = content_bytes_max(&self.settings());
        content::inspect(batch, cap, opened).map_err(|error| refuse_content(&error))
    }

    /// Writes the end of a transaction; returns the marker's offset.
    ///
    /// # Errors
    /// As `append`; `Duplicate` and `Join` only from a producer state that gives these verdicts.
    pub fn append_marker(&self, marker: &Marker) -> Result<i64, AppendError> {
        let mut batch = encode_marker(marker);
        let header = Header::parse(&batch).expect("just encoded");
        let settings = self.settings();
        let appended = self.append_checked(&settings, header, &mut batch, |next_offset, _| {
            Some(self.producer_state.admit_marker(next_offset, marker))
        });
        self.note_outcome(&appended);
        let appended = appended?;
        self.watchers.wake();
        Ok(appended.base_offset)
    }

    fn append_checked(
        &self,
        settings: &Settings,
        mut header: Header,
        batch: &mut [u8],
        decide: impl FnOnce(i64, i64) -> Option<AdmitResult>,
    ) -> Result<Appended, AppendError> {
        let mut writer = self.writer()?;
        if writer.role == Role::Follower {
            return Err(self.not_leader());
        }
        writer.is_as_closed = false;
        let base_offset = self.offsets.log_end();
        let last_offset = base_offset + i64::from(header.last_offset_delta());
        // Room is made before the producer state is asked: rolling takes a snapshot of its state, and a
        // failure to roll must not leave a batch admitted.
        header.base_offset = base_offset;
        let mut append_time = -1;
        if settings.log_append_time {
            append_time = now_ms();
            header.max_timestamp = append_time;
        }
        let incoming = Incoming {
            bytes: batch.len() as u64,
            last_offset,
            max_timestamp: header.max_timestamp,
        };
        let segment = self
            .segment_for(settings, base_offset, &incoming)
            .map_err(AppendError::Io)?;
        let leader_epoch = self.leader_epoch();
        self.begin_epoch(leader_epoch, base_offset)
            .map_err(AppendError::Io)?;
        let mut aborted = None;
        match decide(base_offset, header.max_timestamp) {
            None => {}
            Some(AdmitResult::Admit {
                first_unstable_offset,
                aborted: ended,
            }) => {
                writer.first_unstable_offset = first_unstable_offset;
                aborted = ended;
            }
            Some(AdmitResult::Duplicate { base_offset }) => {
                return Err(AppendError::Duplicate { base_offset });
            }
            Some(AdmitResult::Join) => return Err(AppendError::Join),
            Some(AdmitResult::Refuse { code }) => {
                return Err(self.refused_by_producer_state(code, &header));
            }
        }
        batch::stamp_offset(batch, base_offset, leader_epoch);
        if settings.log_append_time {
            batch::stamp_append_time(batch, append_time);
        }
        if let Err(error) = self.write(&segment, &header, batch, aborted) {
            let is_admitted = header.producer_id() >= 0;
            return Err(self.fail(&mut writer, &segment, is_admitted, error));
        }
        let end = last_offset + 1;
        self.offsets.append(end, writer.first_unstable_offset);
        Ok(Appended {
            base_offset,
            log_append_time: append_time,
            log_start_offset: self.offsets.log_start(),
        })
    }

    pub(crate) fn write(
        &self,
        segment: &Segment,
        header: &Header,
        batch: &[u8],
        aborted: Option<AbortedTxn>,
    ) -> io::Result<()> {
        if let Some(entry) = aborted {
            // Before the marker: an entry without its marker is removed by recovery.
            aborted::append(&segment.path("txnindex"), entry)?;
            self.aborted_mut().push(entry);
        }
        segment.append(header, batch)
    }

    /// Cuts off the written part of a batch; the log diverges if that fails, or if the producer
    /// state believes the batch stored.
    pub(crate) fn fail(
        &self,
        writer: &mut Writer,
        segment: &Segment,
        is_admitted: bool,
        error: io::Error,
    ) -> AppendError {
        let cut = segment.discard_unpublished();
        if is_admitted || cut.is_err() {
            writer.condition = Condition::Diverged(format!(
                "a batch could not be written at offset {}: {error}",
                self.offsets.log_end()
            ));
        }
        AppendError::Io(error)
    }

    /// Brings the producer state to the stored batches, for a caller that looks at it: an append
    /// that failed may have left it a batch ahead. Not needed before an append.
    ///
    /// # Errors
    /// The disk: the producer state is as it was.
    pub fn settle(&self) -> io::Result<()> {
        self.heal(&mut self.writer_even_if_failed())
    }

    /// Like `heal`, but not more often than once in a while: the whole segment may have to be
    /// replayed, and clients try again at once.
    fn heal_in_turn(&self, writer: &mut Writer) -> io::Result<()> {
        if let Condition::Diverged(reason) = &writer.condition
            && writer.healed_at.is_some_and(|at| at.elapsed() < HEAL_PAUSE)
        {
            let text = format!("{reason}; it is tried again in a moment");
            return Err(io::Error::other(text));
        }
        self.heal(writer)
    }

    /// Brings file and producer state to the last batch that was published. Under the lock.
    fn heal(&self, writer: &mut Writer) -> io::Result<()> {
        let Condition::Diverged(reason) = &writer.condition else {
            return Ok(());
        };
        let told = |error: &dyn fmt::Display| io::Error::other(format!("{reason}; {error}"));
        writer.healed_at = Some(Instant::now());
        let segments = self.segments();
        if let Some(active) = segments.last() {
            active.discard_unpublished().map_err(|error| told(&error))?;
        }
        let (entries, first_unstable_offset) = recovery::derive_producer_state(
            &self.directory,
            self.producer_state.as_ref(),
            &segments,
        )
        .map_err(|error| told(&error))?;
        *self.aborted_mut() = AbortedTxns::new(entries);
        writer.first_unstable_offset = first_unstable_offset;
        writer.condition = Condition::Open;
        Ok(())
    }

    #[cold]
    fn not_leader(&self) -> AppendError {
        AppendError::Refused {
            code: codes::NOT_LEADER_OR_FOLLOWER,
            message: format!("{} is a follower's log", self.directory.display()),
        }
    }

    fn refused_by_producer_state(&self, code: i16, header: &Header) -> AppendError {
        AppendError::Refused {
            code,
            message: format!(
                "{}: a batch of producer {} epoch {} with base sequence {} was refused with error {code}",
                self.directory.display(),
                header.producer_id(),
                header.producer_epoch(),
                header.base_sequence()
            ),
        }
    }

    /// The partition's lock, if the log still takes batches.
    pub(crate) fn writer(&self) -> Result<MutexGuard<'_, Writer>, AppendError> {
        let refuse = |reason: &str| AppendError::Refused {
            code: codes::KAFKA_STORAGE_ERROR,
            message: format!("{} takes no batches: {reason}", self.directory.display()),
        };
        let mut writer = self
            .writer
            .lock()
            .map_err(|_| refuse("a bug broke off an append"))?;
        match &writer.condition {
            Condition::Open => Ok(writer),
            Condition::Diverged(_) => {
                self.heal_in_turn(&mut writer)
                    .map_err(|error| refuse(&error.to_string()))?;
                Ok(writer)
            }
            Condition::Failed(reason) => Err(refuse(&format!(
                "{reason}. Repair the disk, then restart the broker"
            ))),
            Condition::Closed => Err(AppendError::Closed),
        }
    }

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

    /// Says how many entries the transaction index of a segment has that is appended to no more.
    fn store_aborted_sum(&self, segment: &Segment) -> io::Result<()> {
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
    fn store_metadata(&self) -> io::Result<()> {
        let path = self.directory.join(METADATA_NAME);
        if let Some(text) = &self.partition_metadata
            && disk::read(&path).ok().as_deref() != Some(text.as_bytes())
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

    /// Writes the producer state's state as it is before the batch at `offset`. A producer state that has none to
    /// give costs only time at the next start.
    fn write_snapshot(&self, offset: i64) -> io::Result<()> {
        match self.producer_state.snapshot() {
            Ok(bytes) => snapshot::write(&self.directory, offset, &bytes),
            Err(_) => Ok(()),
        }
    }

    /// Takes no more batches after a failed sync: the kernel may have dropped bytes.
    pub(crate) fn fail_after_sync(&self, error: &io::Error) {
        self.has_failed_sync.store(true, Ordering::Release);
        let reason = format!("a sync failed: {error}");
        let mut writer = self.writer_even_if_failed();
        // The last moment to do it; nothing is appended any more, so it stays as it is.
        let _ = self.heal(&mut writer);
        if !matches!(writer.condition, Condition::Closed | Condition::Failed(_)) {
            self.write_health.fail(&format!(
                "{reason}. Repair the disk, then restart the broker"
            ));
            writer.condition = Condition::Failed(reason);
        }
    }

    /// Syncs, writes indexes and the producer state's snapshot, and closes. Closing twice is fine.
    ///
    /// # Errors
    /// The disk's error, now or in an append before: the log is closed, but the directory must not
    /// be taken for a clean one.
    pub fn close(&self) -> io::Result<()> {
        let mut was_broken_off = false;
        let mut writer = self.writer.lock().unwrap_or_else(|poisoned| {
            was_broken_off = true;
            poisoned.into_inner()
        });
        let healed = self.heal(&mut writer);
        let finished = match std::mem::replace(&mut writer.condition, Condition::Closed) {
            Condition::Closed => return Ok(()),
            Condition::Failed(reason) => Err(io::Error::other(reason)),
            Condition::Diverged(_) => healed,
            Condition::Open if was_broken_off => Err(io::Error::other("a bug broke off an append")),
            Condition::Open => self.finish_files(writer.is_as_closed),
        };
        drop(writer); // the reporter of a failed sync takes it
        let synced = self.sync_rest();
        self.let_go();
        finished.and(synced)
    }

    /// Brings the files of an open log to the state a clean start trusts; `sync_rest` has them on
    /// the disk. Under the lock.
    fn finish_files(&self, are_as_closed: bool) -> io::Result<()> {
        let segments = self.segments();
        let Some(active) = segments.last() else {
            return Ok(());
        };
        let end = self.offsets.log_end();
        if are_as_closed
            && !active.has_rebuilt_indexes()
            && file_path(&self.directory, end, "snapshot").exists()
        {
            return Ok(());
        }
        // A clean start believes the files of the active segment too.
        active.store_indexes()?;
        self.store_aborted_sum(active)?;
        self.note_seal(Arc::clone(active));
        self.write_snapshot(end)?;
        self.has_new_files.store(true, Ordering::Release);
        Ok(())
    }

    /// Closes and removes the directory with everything in it.
    ///
    /// It is renamed first, see [`doomed_name`]: a crash leaves the name either to a whole log or
    /// free. The owner of a data directory removes directories of this name when it opens its logs.
    ///
    /// # Errors
    /// The disk's error; the log is closed all the same.
    pub fn delete(&self) -> io::Result<()> {
        self.writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .condition = Condition::Closed;
        self.is_deleted.store(true, Ordering::Release);
        self.let_go();
        let name = self.directory.file_name().unwrap_or_default();
        let pending_deletes = doomed_name(&name.to_string_lossy());
        let pending_deletes = self.directory.with_file_name(pending_deletes);
        if disk::rename_if_there(&self.directory, &pending_deletes)? {
            remove_directory(&pending_deletes)?;
        }
        Ok(())
    }

    fn let_go(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.pending_deletes.remove_all();
        self.replace_segments(Vec::new());
        self.watchers.wake();
    }

    // ------------------------------------------------------------ reading

    /// Its offsets at one moment. Takes no lock, unless they change just now.
    #[must_use]
    pub fn state(&self) -> LogState {
        self.offsets.state()
    }

    /// Exclusive upper bound of the offsets that a reader may see.
    #[must_use]
    pub fn readable_end(&self, isolation: Isolation) -> i64 {
        self.offsets.readable_end(isolation)
    }

    /// True if it was closed or deleted.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// True if it was deleted.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.segments().iter().map(|segment| segment.size()).sum()
    }

    /// Finds the whole batches of `[start, end)` up to `max_bytes`, from the one that holds
    /// `start`.
    ///
    /// With `at_least_one` the first batch is returned however large it is. Batches of more
    /// than one segment take more than one call. At the log end, and when not one batch fits,
    /// the slice is empty. A batch that reaches beyond `end` is left out.
    ///
    /// # Errors
    /// `OutOfRange` below the log start or above the log end, `Io`, `Corrupt`, `Closed`.
    pub fn locate(
        &self,
        start: i64,
        end: i64,
        max_bytes: u64,
        at_least_one: bool,
    ) -> Result<Slice, ReadError> {
        self.locate_within(start, end, max_bytes, at_least_one, u64::MAX)
    }

    /// Like `locate`, but reads at most `checked_max` bytes that were believed at the start and not
    /// read since, or one batch if `at_least_one`. The slice then ends there, and the rest takes
    /// another call.
    ///
    /// # Errors
    /// As `locate`.
    pub fn locate_within(
        &self,
        start: i64,
        end: i64,
        max_bytes: u64,
        at_least_one: bool,
        checked_max: u64,
    ) -> Result<Slice, ReadError> {
        self.reading(|| self.locate_sound(start, end, max_bytes, at_least_one, checked_max))
    }

    fn locate_sound(
        &self,
        start: i64,
        end: i64,
        max_bytes: u64,
        at_least_one: bool,
        checked_max: u64,
    ) -> Result<Slice, ReadError> {
        // In this order: records below the log end are in the segments that are there now.
        let state = self.state();
        let segments = self.segments();
        if self.is_closed() {
            return Err(ReadError::Closed);
        }
        // The start is looked at after the segments: it rises before they are removed.
        if start < self.offsets.log_start() || start > state.log_end_offset {
            let state = self.state();
            return Err(ReadError::OutOfRange { start, state });
        }
        // Bytes may be in the file before the log end is published: stay below it.
        let end = end.min(state.log_end_offset);
        let first = segments.partition_point(|segment| segment.base_offset <= start);
        let candidates = segments.iter().skip(first.saturating_sub(1));
        for segment in candidates.take_while(|segment| segment.base_offset < end) {
            if segment.next_offset() <= start {
                continue;
            }
            let Some(mut run) = segment.run(start, end, max_bytes, at_least_one)? else {
                if segment.find(start)?.is_some() {
                    break; // it is here, but it does not fit
                }
                continue; // compaction left nothing from `start` on in this segment
            };
            let showable = segment.showable(run.position, run.len, checked_max);
            if showable < run.len {
                match segment.run(start, end, showable, at_least_one)? {
                    Some(shorter) => run = shorter,
                    None => break,
                }
            }
            let checked = segment.verify(run.position, run.len)?;
            return Ok(Slice {
                file: Some(segment.file.get()?),
                position: run.position,
                len: run.len,
                end_offset: run.end_offset,
                checked,
            });
        }
        Ok(Slice {
            file: None,
            position: 0,
            len: 0,
            end_offset: start,
            checked: 0,
        })
    }

    /// Reads whole stored batches from the one that holds `start`, at least one if there is one.
    ///
    /// # Errors
    /// As `locate`.
    pub fn read(&self, start: i64, max_bytes: u64) -> Result<Vec<u8>, ReadError> {
        Ok(self.locate(start, i64::MAX, max_bytes, true)?.read()?)
    }

    /// Estimates the bytes stored in `[start, end)`, at most `cap`.
    ///
    /// Never too few, and at most an index interval and a batch too many at each end; 0 only
    /// if there is nothing. Reads no batch.
    #[must_use]
    pub fn available(&self, start: i64, end: i64, cap: u64) -> u64 {
        let end = end.min(self.offsets.log_end());
        if start >= end {
            return 0;
        }
        let mut bytes = 0;
        for segment in self.segments().iter() {
            if bytes >= cap || segment.base_offset >= end {
                break;
            }
            bytes += segment.estimate(start, end);
        }
        bytes.min(cap)
    }

    /// Lists `(producer_id, first_offset)` of the aborted transactions overlapping
    /// `[start, end)`, by first offset. Takes no lock of the writer and asks nobody.
    #[must_use]
    pub fn aborted_in(&self, start: i64, end: i64) -> Vec<(i64, i64)> {
        let known = self.aborted.read().unwrap_or_else(PoisonError::into_inner);
        known.overlapping(start, end)
    }

    /// Finds (offset, timestamp) of the first record below `end` at or after a time.
    ///
    /// Exact to the record; markers are no records. Where batches that claim such a record yield
    /// some 32 MiB without it, the search ends, and the next record counts as found.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn offset_for_timestamp(
        &self,
        timestamp_ms: i64,
        end: i64,
    ) -> Result<Option<(i64, i64)>, ReadError> {
        self.reading(|| self.first_since(timestamp_ms, end))
    }

    fn first_since(&self, timestamp_ms: i64, end: i64) -> Result<Option<(i64, i64)>, ReadError> {
        let end = end.min(self.offsets.log_end());
        let mut budget = Budget::of_one_search();
        for segment in self
            .segments()
            .iter()
            .take_while(|segment| segment.base_offset < end)
        {
            let largest = segment.largest_timestamp()?;
            if largest.is_none_or(|largest| largest.timestamp < timestamp_ms) {
                continue;
            }
            let mut scanner = segment.scan_since(timestamp_ms)?;
            while let Some((position, header)) =
                scanner.next().map_err(|error| segment.damaged(error))?
            {
                if header.base_offset() >= end {
                    return Ok(None);
                }
                if header.is_control() || header.max_timestamp() < timestamp_ms {
                    continue;
                }
                let bytes = scanner.bytes(position, header.size())?;
                // Behind the end nothing is wanted, so the first there ends the search too.
                let is_wanted = |offset, timestamp| offset >= end || timestamp >= timestamp_ms;
                match search_batch(segment, position, bytes, &mut budget, is_wanted)? {
                    Searched::Found(found) => return Ok(Some(found).filter(|&(at, _)| at < end)),
                    Searched::Nothing => {}
                    Searched::GaveUp(next) => {
                        let next = next.max(header.base_offset());
                        return Ok((next < end).then_some((next, header.max_timestamp())));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Finds (offset, timestamp) of the first record below `end` with the largest timestamp;
    /// `end` lies between batches.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn offset_of_max_timestamp(&self, end: i64) -> Result<Option<(i64, i64)>, ReadError> {
        self.reading(|| self.latest(end))
    }

    fn latest(&self, end: i64) -> Result<Option<(i64, i64)>, ReadError> {
        let end = end.min(self.offsets.log_end());
        let segments = self.segments();
        let mut claims = Vec::new();
        for segment in segments
            .iter()
            .take_while(|segment| segment.base_offset < end)
        {
            if let Some(largest) = segment.largest_timestamp()? {
                claims.push((segment, largest));
            }
        }
        // The largest first: if the segment has the record it claims, few others are read.
        claims.sort_by_key(|(_, largest)| Reverse(largest.timestamp));
        let mut budget = Budget::of_one_search();
        let mut best: Option<(i64, i64)> = None;
        for (segment, largest) in claims {
            let is_better = |offset: i64, timestamp: i64| {
                best.is_none_or(|(best, known)| (timestamp, best) > (known, offset))
            };
            if !is_better(segment.base_offset, largest.timestamp) {
                continue;
            }
            let Some((position, header)) = latest_batch(segment, largest, end)? else {
                continue;
            };
            if !is_better(header.base_offset(), header.max_timestamp()) {
                continue;
            }
            let mut bytes = vec![0; header.size()];
            segment.file.get()?.read_exact_at(&mut bytes, position)?;
            let mut here: Option<(i64, i64)> = None;
            let is_wanted = |offset, timestamp| {
                if here.is_none_or(|(_, known)| timestamp > known) {
                    here = Some((offset, timestamp));
                }
                timestamp >= header.max_timestamp()
            };
            let searched = search_batch(segment, position, &bytes, &mut budget, is_wanted)?;
            if let Searched::GaveUp(next) = searched {
                return Ok(Some((next, header.max_timestamp())));
            }
            best = here.filter(|&(at, time)| is_better(at, time)).or(best);
        }
        Ok(best)
    }

    /// Reads, again where the files of a segment were removed or replaced meanwhile, and notes
    /// the damage met.
    pub(crate) fn reading<T>(
        &self,
        read: impl Fn() -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        loop {
            let before = self.segments();
            match read() {
                Err(ReadError::Io(_)) if self.is_closed() => return Err(ReadError::Closed),
                Err(ReadError::Corrupt(_)) if self.is_deleted() => return Err(ReadError::Closed),
                // A segment that was cut meanwhile may look damaged to a reader of its old end.
                Err(ReadError::Io(_) | ReadError::Corrupt(_))
                    if !Arc::ptr_eq(&before, &self.segments()) => {}
                answer => return self.report(answer),
            }
        }
    }

    /// Remembers damage that a reader met, once each, for `take_damage`.
    fn report<T>(&self, answer: Result<T, ReadError>) -> Result<T, ReadError> {
        if let Err(ReadError::Corrupt(corrupt)) = &answer {
            let mut damage = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
            if !damage.met.contains(corrupt) {
                damage.met.push(corrupt.clone());
            }
        }
        answer
    }

    /// The damage that readers met and nobody has been told of yet.
    #[must_use]
    pub fn take_damage(&self) -> Vec<CorruptLog> {
        let mut damage = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        let untold = damage.met[damage.told..].to_vec();
        damage.told = damage.met.len();
        untold
    }

    /// Calls `watcher` whenever the log advances, until `unwatch` with the returned id.
    ///
    /// Look at `state` after this, not before: appends in between are not announced.
    #[must_use]
    pub fn watch(&self, watcher: Arc<dyn Watcher>) -> u64 {
        self.watchers.add(watcher)
    }

    /// Stops calling a watcher; a call under way on another thread may still end after this.
    pub fn unwatch(&self, id: u64) {
        self.watchers.remove(id);
    }

    /// Number of watchers.
    #[must_use]
    pub fn watcher_count(&self) -> usize {
        self.watchers.lock().len()
    }

    /// Leads in an epoch from now on, if it is a later one than that of the newest batch.
    pub fn lead(&self, leader_epoch: i32) {
        self.leader_epoch.fetch_max(leader_epoch, Ordering::AcqRel);
    }

    /// The epoch that batches are stamped with: the one it leads in, from the start that of the
    /// newest batch, 0 in an empty log.
    #[must_use]
    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch.load(Ordering::Acquire)
    }

    /// The epoch in which an offset was or will be written.
    #[must_use]
    pub fn epoch_of(&self, offset: i64) -> i32 {
        if offset >= self.offsets.log_end() {
            return self.leader_epoch();
        }
        let epochs = self.epochs();
        epochs.at(offset).unwrap_or(self.leader_epoch())
    }

    /// The latest epoch up to the given one, and the offset where it ends; `None` for an epoch
    /// that has yet to come.
    #[must_use]
    pub fn end_of_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        let (leader_epoch, end) = (self.leader_epoch(), self.offsets.log_end());
        let epochs = self.epochs();
        match epoch {
            _ if epoch > leader_epoch || epoch < 0 => None,
            _ if epoch == leader_epoch => Some((epoch, end)),
            _ => Some(epochs.end_of(epoch, end)),
        }
    }

    pub(crate) fn epochs(&self) -> RwLockReadGuard<'_, Epochs> {
        self.epochs.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn epochs_mut(&self) -> RwLockWriteGuard<'_, Epochs> {
        self.epochs.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn aborted_mut(&self) -> RwLockWriteGuard<'_, AbortedTxns> {
        self.aborted.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn settings(&self) -> Settings {
        *self.settings.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn segments(&self) -> Arc<Vec<Arc<Segment>>> {
        Arc::clone(&self.segments.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn maintenance(&self) -> MutexGuard<'_, ()> {
        self.maintenance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The partition's lock, in any condition.
    pub(crate) fn writer_even_if_failed(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows another list of segments to readers. Under the partition's lock.
    pub(crate) fn replace_segments(&self, segments: Vec<Arc<Segment>>) {
        *self
            .segments
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(segments);
    }
}

/// The name of a directory on its way out: `<topic>-<n>.<32 hexadecimal digits>-delete`, and of a
/// long topic as many characters as fit. The digits are random, so that two of the same name, or of
/// the same beginning, can be on their way at once. Source: Kafka's name for them.
fn doomed_name(name: &str) -> String {
    let random = || RandomState::new().build_hasher().finish();
    let (topic, partition) = name.rsplit_once('-').unwrap_or((name, "0"));
    let end = format!(
        "-{partition}.{:016x}{:016x}{DOOMED_SUFFIX}",
        random(),
        random()
    );
    let fits = NAME_BYTES_MAX.saturating_sub(end.len()).min(topic.len());
    format!("{}{end}", topic.get(..fits).unwrap_or_default())
}

/// Removes a directory and everything in it, if it is there.
fn remove_directory(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Size to which the compressed records of a batch to be stored may open.
fn content_bytes_max(settings: &Settings) -> usize {
    CONTENT_BYTES_MAX.max(settings.max_message_bytes)
}

/// Checks everything about a batch that needs neither lock nor producer state, and corrects the largest
/// timestamp that its header tells.
fn check_batch(
    origin: Origin,
    bytes: &mut [u8],
    settings: &Settings,
    content: &mut Option<Content>,
    budget: &mut usize,
) -> Result<Header, AppendError> {
    let refuse = |code: i16, message: String| Err(AppendError::Refused { code, message });
    let invalid = |message: &str| refuse(codes::INVALID_RECORD, message.to_owned());
    let is_client = matches!(origin, Origin::Client { .. });
    if is_client && bytes.len() > settings.max_message_bytes {
        return refuse(
            codes::MESSAGE_TOO_LARGE,
            format!(
                "the batch has {} bytes, more than max.message.bytes={}",
                bytes.len(),
                settings.max_message_bytes
            ),
        );
    }
    let batch = BatchView::parse(bytes).map_err(refuse_batch)?;
    if batch.size() != bytes.len() {
        return invalid("there are bytes behind the batch; send exactly one batch per partition");
    }
    batch.validate().map_err(refuse_batch)?;
    if batch.record_count() < 1 || batch.record_count() - 1 != batch.last_offset_delta() {
        return invalid("the batch's record count does not fit its last offset delta");
    }
    if batch.producer_id() < 0 && batch.is_transactional() {
        return invalid("the batch belongs to a transaction but has no producer id");
    }
    if is_client && batch.is_control() {
        return invalid("clients may not write control records");
    }
    if is_client && batch.base_offset() != 0 {
        return invalid("the batch's base offset is not 0");
    }
    if is_client && batch.is_log_append_time() {
        return refuse(
            codes::INVALID_TIMESTAMP,
            "clients may not set the timestamp type to LogAppendTime".to_owned(),
        );
    }
    let found = match *content {
        Some(known) => known,
        None => *content.insert(open_within(&batch, settings, budget)?),
    };
    if is_client {
        timestamps::check(&batch, &found, settings, now_ms())?;
    }
    if let Some(index) = found.first_without_key
        && settings.is_compacted
        && !batch.is_control()
    {
        return refuse(
            codes::INVALID_RECORD,
            format!("a compacted topic takes no record without a key, as record {index} is"),
        );
    }
    let header = *batch.header();
    if header.max_timestamp() == found.latest_ms {
        return Ok(header);
    }
    batch::stamp_max_timestamp(bytes, found.latest_ms);
    Ok(Header::parse(bytes).expect("it was parsed before"))
}

/// Reads a batch's records, compressed ones within the budget.
fn open_within(
    batch: &BatchView<'_>,
    settings: &Settings,
    budget: &mut usize,
) -> Result<Content, AppendError> {
    let cap = content_bytes_max(settings);
    let is_short = *budget < cap;
    if is_short && batch.codec() != Ok(Codec::None) && batch.records().len() > *budget {
        return Err(AppendError::TooMuchToOpen); // it hardly has less inside
    }
    let mut opened = 0;
    let found = content::inspect(batch, cap.min(*budget), &mut opened);
    *budget = budget.saturating_sub(opened);
    found.map_err(|error| match error {
        ContentError::Compression(CompressionError::TooLarge { .. }) if is_short => {
            AppendError::TooMuchToOpen
        }
        error => refuse_content(&error),
    })
}

/// The message to a client about a batch whose content nobody could read.
fn refuse_content(error: &ContentError) -> AppendError {
    let (code, message) = match error {
        ContentError::Compression(CompressionError::TooLarge { cap }) => (
            codes::MESSAGE_TOO_LARGE,
            format!(
                "the batch's records come to more than {cap} bytes after decompression; send \
                 fewer in a batch"
            ),
        ),
        ContentError::Codec(_) => (codes::UNSUPPORTED_COMPRESSION_TYPE, error.to_string()),
        ContentError::Compression(_) | ContentError::Record(_) => (
            codes::INVALID_RECORD,
            format!("the batch's records cannot be read: {error}"),
        ),
    };
    AppendError::Refused { code, message }
}

/// The message to a client about a batch whose bytes do not add up.
pub(crate) fn refuse_batch(error: BatchError) -> AppendError {
    let code = match error {
        BatchError::Truncated { .. } | BatchError::Length { .. } | BatchError::Crc { .. } => {
            return AppendError::Corrupt { error };
        }
        BatchError::Codec { .. } => codes::UNSUPPORTED_COMPRESSION_TYPE,
        BatchError::Timestamp { .. } => codes::INVALID_TIMESTAMP,
        BatchError::Magic { .. } | BatchError::Inconsistent { .. } => codes::INVALID_RECORD,
    };
    AppendError::Refused {
        code,
        message: error.to_string(),
    }
}

/// The first batch of a segment below `end` with the largest timestamp of records, by its header.
fn latest_batch(
    segment: &Segment,
    largest: TimestampOffset,
    end: i64,
) -> Result<Option<(u64, Header)>, ReadError> {
    let is_wanted = |header: &Header| {
        let has_records = !header.is_control() && header.record_count() > 0;
        has_records && header.max_timestamp() >= 0 && header.last_offset() < end
    };
    let indexed = segment
        .find(largest.offset)?
        .filter(|(_, header)| is_wanted(header) && header.max_timestamp() == largest.timestamp);
    if indexed.is_some() {
        return Ok(indexed);
    }
    // The largest is a marker's or an empty batch's, or lies beyond `end`: look at every batch.
    let mut latest: Option<(u64, Header)> = None;
    let mut scanner = segment.scan_from(0)?;
    while let Some((position, header)) = scanner.next().map_err(|error| segment.damaged(error))? {
        let least = latest.map_or(i64::MIN, |(_, header)| header.max_timestamp());
        if is_wanted(&header) && header.max_timestamp() > least {
            latest = Some((position, header));
        }
    }
    Ok(latest)
}

/// Looks for a record in a stored batch, once its bytes are known to be sound.
fn search_batch(
    segment: &Segment,
    position: u64,
    bytes: &[u8],
    budget: &mut Budget,
    is_wanted: impl FnMut(i64, i64) -> bool,
) -> Result<Searched, ReadError> {
    let damaged = |reason: String| {
        let path = segment.path("log");
        ReadError::Corrupt(CorruptLog {
            path,
            position,
            reason,
        })
    };
    segment.verify(position, bytes.len() as u64)?;
    let batch = BatchView::parse(bytes).map_err(|error| damaged(error.to_string()))?;
    Ok(search::first_record(&batch, budget, is_wanted))
}

/// The watchers that are woken when the log advances. Copied to be woken, so that waking holds no
/// lock and a watcher may leave while it is called.
///
/// Cost: logarithmic in the watchers to come and to leave, linear to wake.
#[derive(Default)]
pub(crate) struct Watchers {
    next_id: AtomicU64,
    by_id: Mutex<BTreeMap<u64, Arc<dyn Watcher>>>,
}

impl Watchers {
    fn add(&self, watcher: Arc<dyn Watcher>) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(id, watcher);
        id
    }

    fn remove(&self, id: u64) {
        self.lock().remove(&id);
    }

    pub fn wake(&self) {
        let watchers: Vec<_> = self.lock().values().cloned().collect();
        for watcher in watchers {
            watcher.log_advanced();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<dyn Watcher>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
