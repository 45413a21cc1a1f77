//! One partition's log: the one door through which batches are appended and read.
//!
//! # An append
//! Without the lock, an append checks bytes, checksum, counts and content. It reads the content to
//! the last header, so that acknowledged records can be read. Under the partition's lock it makes
//! room (first segment, or roll), asks the producer state, stamps offset and time in place, writes,
//! notes an aborted transaction, and publishes. After the lock it wakes waiting readers. A batch
//! without a producer id does not ask the producer state.
//!
//! # What readers see
//! The offsets of [`crate::offsets`], published as one state: readers ask `readable_end`, and read
//! on up to it. A segment shows size and next offset together. So a reader needs no lock of the
//! writer: it takes the segment list, looks up positions, and lets the kernel send the bytes.
//!
//! # Parts
//! `append` writes, `roll` makes room for a batch, `read` and `by_time` read. `watchers` wakes waiting
//! readers, `close` closes and deletes, `place` and `health` check the disk. Beside this module,
//! `offsets` publishes the state, `syncing` syncs the files, and `removal`, `retention`, `swap` and
//! `truncation` remove segments.
//!
//! # Locks
//! | lock | guards |
//! |---|---|
//! | `maintenance` | the removal, swap and truncation of segments: one at a time |
//! | `synced` | a sync from its begin to its end, and the durable end |
//! | `writer`, the partition's lock | appends: condition, role, producer state, the active segment |
//! | `segments`, `epochs`, `aborted`, `settings`, `unsynced_seals`, `damage` | their own content |
//!
//! They are taken in this order, those of the last line each alone. The list of `segments` is
//! changed under `writer`, and emptied without it when the log is closed.
//!
//! # When the disk fails
//! The written part of a batch that failed is cut off; reads continue. If the producer state had
//! admitted the batch, producer state and file disagree. The next append first restores the producer
//! state from the file, as a start does. So the log recovers by itself once the disk has space again.
//! After a failed sync, whose bytes the kernel may have dropped, the log accepts no append until it
//! is opened again.
//!
//! # Deviations from Kafka
//! A batch larger than a segment is stored in a segment of its own rather than refused. Records
//! with other offsets than 0, 1, 2 … are refused, where Kafka renumbers them. Kafka opens batches
//! that Java's client can read; here another client has to be able to read them too, see `opening`.
//! Kafka has no limit for the size of opened records; see [`CONTENT_BYTES_MAX`](batch_check::CONTENT_BYTES_MAX).

pub(crate) mod append;
pub(crate) mod batch_check;
mod by_time;
mod close;
mod health;
mod place;
pub(crate) mod read;
mod roll;
mod watchers;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::time::Instant;

use crate::aborted::AbortedTxns;
use crate::disk;
use crate::epochs::Epochs;
use crate::error::OpenError;
use crate::in_place::LockFile;
use crate::log_files::PendingDeletes;
use crate::offsets::{Isolation, LogState, Offsets, Role};
use crate::past::Past;
use crate::producer_state::ProducerStateManager;
use crate::read_damage::ReadDamage;
use crate::recovery::{self, Cut};
use crate::segment::Segment;
use crate::settings::Settings;
use crate::synced_end::SyncedEnd;
use crate::watchers::Watchers;
use crate::write_health::WriteHealth;

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
    writer: Mutex<LogWriter>,
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
    damage: Mutex<ReadDamage>,
    pub(crate) write_health: WriteHealth,
    pub(crate) synced: Mutex<SyncedEnd>,
    /// Lock-free mirror of `synced.end`.
    pub(crate) synced_end: AtomicI64,
    /// It is never below `synced_end`. A start that read a part again believes an earlier run.
    pub(crate) recovery_point: AtomicI64,
    /// Sealed segments whose indexes and snapshots may not be on the disk, oldest first.
    pub(crate) unsynced_seals: Mutex<Vec<Arc<Segment>>>,
    pub(crate) has_new_files: AtomicBool,
    pub(crate) has_failed_sync: AtomicBool,
    /// True if bytes are synced before an idle file is closed.
    syncs_before_close: AtomicBool,
    is_closed: AtomicBool,
    is_deleted: AtomicBool,
    pub(crate) lock_file: OnceLock<LockFile>,
}

/// The state that only the holder of the partition's lock may see.
pub(crate) struct LogWriter {
    pub condition: Condition,
    /// The role of the log in its partition; a follower takes batches from its leader alone.
    pub role: Role,
    pub first_unstable_offset: Option<i64>,
    healed_at: Option<Instant>,
    /// No append was tried since the log was opened, and its files were trusted.
    pub is_as_closed: bool,
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

impl LogWriter {
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
        // it syncs everything behind the recovery point.
        let synced_end = if was_clean { end } else { found.scanned_from };
        let log = Self {
            directory,
            producer_state,
            partition_metadata,
            settings: RwLock::new(settings),
            maintenance: Mutex::new(()),
            writer: Mutex::new(LogWriter {
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
            synced: Mutex::new(SyncedEnd::new(synced_end)),
            synced_end: AtomicI64::new(synced_end),
            recovery_point: AtomicI64::new(synced_end.max(past.recovery_point.min(end))),
            unsynced_seals: Mutex::new(found.unsynced_seals),
            has_new_files: AtomicBool::new(!was_clean && end > 0),
            has_failed_sync: AtomicBool::new(false),
            syncs_before_close: AtomicBool::new(true),
            is_closed: AtomicBool::new(false),
            is_deleted: AtomicBool::new(false),
            lock_file: OnceLock::new(),
        };
        if !was_clean && log.directory.is_dir() {
            // No batch depends on it: a disk that is full does not keep the log from its readers.
            let _ = log.store_metadata();
        }
        if found.was_shortened
            && let Err(error) = log.force_cut()
        {
            log.fail_after_sync(&error); // it can be read
        }
        Ok(log)
    }

    /// Forces a cut, and the removal of the files behind it, to the disk before a batch is appended.
    /// Else a second power failure could keep new batches and take the cut: old batches of the right
    /// offsets, or a snapshot of them, would stand behind the new ones again.
    fn force_cut(&self) -> io::Result<()> {
        if let Some(last) = self.segments().last() {
            last.file.sync()?;
        }
        disk::sync_directory(&self.directory)
    }

    /// Returns the directory of its files.
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

    /// Returns true if what is written is synced before an idle file is closed to open
    /// another, so that a later [`PartitionLog::sync`] is told of bytes that were lost. For logs
    /// of which no sync is promised it is a waste. Before the first append.
    pub fn set_syncs_before_close(&self, syncs: bool) {
        self.syncs_before_close.store(syncs, Ordering::Relaxed);
        for segment in self.segments().iter() {
            segment.file.set_syncs_before_close(syncs);
        }
    }

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
    pub(crate) fn writer_even_if_failed(&self) -> MutexGuard<'_, LogWriter> {
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
