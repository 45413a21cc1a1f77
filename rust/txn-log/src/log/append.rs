//! Appends: validate, admit, stamp, write, publish; and the way back after a write that failed.
//!
//! All but the validation runs under the partition's lock ([`LogWriter`]).

use std::fmt;
use std::io;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use txn_protocol::batch;
use txn_protocol::batch::{BatchView, Header};
use txn_protocol::codes;

use crate::aborted;
use crate::aborted::AbortedTxns;
use crate::builder::encode_marker;
use crate::content;
use crate::content::AppendBudget;
use crate::error::AppendError;
use crate::log::batch_check::{check_batch, content_bytes_max, header_of, refuse_content};
use crate::log::{Condition, LogWriter, PartitionLog};
use crate::offsets::Role;
use crate::producer_state::{AbortedTxn, AdmitResult, IncomingBatch, Marker, Origin};
use crate::record_rules::RecordRules;
use crate::recovery;
use crate::repacking::{self, Inspected};
use crate::segment::{Incoming, Segment, now_ms};
use crate::settings::Settings;

/// Pause between two attempts to bring producer state and file together.
const HEAL_PAUSE: Duration = Duration::from_secs(1);

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

impl PartitionLog {
    /// Validates, admits, stamps in place, writes, publishes and wakes: one whole batch.
    ///
    /// On success `batch` holds the stored bytes, unless those are repacked. On `Join` it may be
    /// appended again as it is.
    ///
    /// # Errors
    /// See [`AppendError`]; nothing is readable of a batch that failed.
    pub fn append(&self, origin: Origin, batch: &mut [u8]) -> Result<Appended, AppendError> {
        let mut budget = AppendBudget::MAX;
        let appended = self.append_within(origin, batch, &mut None, &mut budget);
        let (Err(AppendError::Uninspected), Ok(view)) = (&appended, BatchView::parse(batch)) else {
            return appended;
        };
        let mut inspected = Some(self.inspect(origin, &view, &mut 0, &mut { usize::MAX })?);
        self.append_within(origin, batch, &mut inspected, &mut budget)
    }

    /// Like `append`, but opens and names no more than `budget` allows if the batch was not
    /// inspected, lowers `budget` by as much, and repacks nothing. It counts as inspected
    /// afterwards if all was opened. A result of [`Self::inspect`] is taken as it is, whatever the
    /// settings have become since.
    ///
    /// # Errors
    /// The errors of `append`, and `Uninspected`.
    pub fn append_within(
        &self,
        origin: Origin,
        batch: &mut [u8],
        inspected: &mut Option<Inspected>,
        budget: &mut AppendBudget,
    ) -> Result<Appended, AppendError> {
        let settings = self.settings();
        let inspected = check_batch(origin, batch, &settings, inspected, budget)?;
        let latest_ms = inspected.content.latest_ms;
        let batch = inspected.repacked.as_deref_mut().unwrap_or(batch);
        let header = header_of(batch, latest_ms);
        let has_producer = header.producer_id() >= 0;
        let appended =
            self.append_checked(&settings, header, batch, |next_offset, max_timestamp_ms| {
                has_producer.then(|| {
                    self.producer_state.admit(&IncomingBatch {
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
            - self.synced_end.load(Ordering::Acquire)
            >= settings.flush_messages
        {
            self.sync().map_err(AppendError::Io)?;
        }
        Ok(appended)
    }

    /// True if a client's batch is stored under another codec than its own.
    #[must_use]
    pub fn repacks(&self, header: &Header) -> bool {
        self.settings().compression_for(header).is_some()
    }

    /// Opens a batch that is to be appended, reads its records by the topic's rules, and repacks
    /// them where their codec may not stay. It raises `opened` by the bytes opened, and lowers
    /// `names` by the bad records found beyond one.
    ///
    /// # Errors
    /// `Refused` if a client could not read them, if they come to too much, or if the batch is too
    /// large once it is repacked.
    pub fn inspect(
        &self,
        origin: Origin,
        batch: &BatchView<'_>,
        opened: &mut usize,
        names: &mut usize,
    ) -> Result<Inspected, AppendError> {
        let settings = self.settings();
        let rules = RecordRules::of(origin, batch, &settings, now_ms());
        let cap = content_bytes_max(&settings);
        let content = content::inspect(batch, &rules, cap, opened, names)
            .map_err(|error| refuse_content(batch, &error))?;
        let is_good = content.bad.is_empty();
        let compression = settings
            .compression_of(batch, content.is_joined)
            .filter(|_| is_good);
        let repack = |compression| {
            repacking::repack(batch, &content, compression, settings.max_message_bytes)
        };
        let repacked = compression.map(repack).transpose()?;
        Ok(Inspected { content, repacked })
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
        writer: &mut LogWriter,
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
    fn heal_in_turn(&self, writer: &mut LogWriter) -> io::Result<()> {
        if let Condition::Diverged(reason) = &writer.condition
            && writer.healed_at.is_some_and(|at| at.elapsed() < HEAL_PAUSE)
        {
            let text = format!("{reason}; it is tried again in a moment");
            return Err(io::Error::other(text));
        }
        self.heal(writer)
    }

    /// Brings file and producer state to the last batch that was published. Under the lock.
    pub(super) fn heal(&self, writer: &mut LogWriter) -> io::Result<()> {
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
    pub(crate) fn writer(&self) -> Result<MutexGuard<'_, LogWriter>, AppendError> {
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
}
