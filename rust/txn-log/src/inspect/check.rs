//! Checks a segment: its batches against each other, and both indexes against the batches.
//!
//! An offset index entry has to point at the first byte of a batch and name its last offset.
//! A time index entry has to name the last offset of a batch and its largest timestamp, which
//! has to be larger than that of every batch before it in the segment.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use txn_protocol::batch::BatchView;

use crate::builder::decode_marker;
use crate::content::{self, ContentError, RecordHead};
use crate::inspect::walk::{Walk, WalkItem};
use crate::opening::Reading;
use crate::producer_state::ReplayedBatch;

const OFFSET_ENTRY_BYTES: usize = 8;
const TIME_ENTRY_BYTES: usize = 12;
/// Faults kept of one segment; further ones are only counted.
const FAULTS_MAX: usize = 50;
/// Gaps kept of one segment, the first ones; a compacted segment is full of them.
const GAPS_MAX: usize = 50;

/// The file a fault is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspect {
    /// `.log`
    Log,
    /// `.index`
    OffsetIndex,
    /// `.timeindex`
    TimeIndex,
}

/// Something that should not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// In which file.
    pub suspect: Suspect,
    /// Where in it.
    pub position: u64,
    /// Where it ends; for bytes that are no batch, where the next batch begins.
    pub end: u64,
    /// True if a write that was cut short may look like this, if it is the last one.
    pub may_be_torn: bool,
    /// The fault.
    pub reason: String,
}

/// Offsets that are missing before a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Of the batch.
    pub position: u64,
    /// The offset after the batch before, or the segment's base offset.
    pub expected: i64,
    /// The batch's base offset.
    pub found: i64,
}

/// Batches in a row with the same leader epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochRun {
    /// Of all of them.
    pub leader_epoch: i32,
    /// Of the first.
    pub position: u64,
    /// The first one's base offset.
    pub first_offset: i64,
    /// The last one's last offset.
    pub last_offset: i64,
}

/// The findings of a check so far.
#[derive(Clone, Debug, Default)]
pub struct CheckFindings {
    /// Sound batches.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// The first sound batch's base offset.
    pub first_offset: Option<i64>,
    /// The offset after the last sound batch; before the first, the segment's base offset.
    pub next_offset: i64,
    /// The leader epochs in order.
    pub leader_epochs: Vec<EpochRun>,
    /// Where offsets are missing, and not because of damage.
    pub gaps: Vec<Gap>,
    /// The last gap, which may not be among them.
    pub last_gap: Option<Gap>,
    /// The fault.
    pub faults: Vec<Fault>,
    /// Faults that are not among them.
    pub faults_left_out: u64,
    /// True if a fault is in the log, so that nothing can be said of producers behind it.
    pub is_damaged: bool,
    largest_timestamp: i64,
    is_after_damage: bool,
}

/// A segment's check, made in pieces so that somebody can watch it.
pub struct Check {
    walk: Walk,
    bench: CheckState,
}

/// The state that batches are compared with.
struct CheckState {
    is_deep: bool,
    offset_index: Entries,
    time_index: Entries,
    seen: CheckFindings,
}

impl Check {
    /// Opens a segment.
    ///
    /// `index` and `time_index` are the bytes of its index files, without room reserved at
    /// their ends. A deep check opens every batch and reads its records.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(
        log: &Path,
        base_offset: i64,
        index: &[u8],
        time_index: &[u8],
        is_deep: bool,
    ) -> io::Result<Self> {
        let mut seen = CheckFindings {
            next_offset: base_offset,
            largest_timestamp: -1,
            ..CheckFindings::default()
        };
        let number = |bytes: &[u8]| i64::from(u32::from_be_bytes(field(bytes)));
        let offset_index = Entries::read::<OFFSET_ENTRY_BYTES>(
            Suspect::OffsetIndex,
            index,
            |entry| (number(&entry[4..]), base_offset + number(entry)),
            &mut seen,
        );
        let time_index = Entries::read::<TIME_ENTRY_BYTES>(
            Suspect::TimeIndex,
            time_index,
            |entry| {
                let timestamp = i64::from_be_bytes(field(entry));
                (base_offset + number(&entry[8..]), timestamp)
            },
            &mut seen,
        );
        Ok(Self {
            walk: Walk::open(log, 0, Some(base_offset))?,
            bench: CheckState {
                is_deep,
                offset_index,
                time_index,
                seen,
            },
        })
    }

    /// How far it is.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.walk.position()
    }

    /// The size of the `.log` file.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.walk.end()
    }

    /// The findings so far.
    #[must_use]
    pub fn seen(&self) -> &CheckFindings {
        &self.bench.seen
    }

    /// Checks about `bytes` bytes more and returns the batches with a producer id among them,
    /// up to the first that is damaged.
    ///
    /// # Errors
    /// The disk's.
    pub fn advance(&mut self, bytes: u64) -> io::Result<Vec<ReplayedBatch>> {
        let mut replayed = Vec::new();
        let bench = &mut self.bench;
        self.walk.advance(bytes, |found| match found {
            WalkItem::Batch {
                position,
                batch,
                fault,
            } => {
                let end = position + batch.bytes().len() as u64;
                if let Some(error) = fault {
                    bench.pass_over(position, end, true, error.to_string());
                } else if let Some(reason) = problem(&batch, bench.is_deep) {
                    bench.pass_over(position, end, false, reason);
                } else {
                    replayed.extend(bench.take(position, &batch));
                }
            }
            WalkItem::Damage(damage) => {
                bench.pass_over(damage.position, damage.end, true, damage.error.to_string());
            }
        })?;
        if self.walk.position() == self.walk.end() {
            bench.offset_index.judge_until(i64::MAX, 0, &mut bench.seen);
            bench.time_index.judge_until(i64::MAX, 0, &mut bench.seen);
        }
        Ok(replayed)
    }
}

impl CheckState {
    /// Compares a sound batch with the one before it and with the indexes; returns the facts about
    /// it for a producer state.
    fn take(&mut self, position: u64, batch: &BatchView<'_>) -> Option<ReplayedBatch> {
        let seen = &mut self.seen;
        seen.note(batch, position);
        self.offset_index
            .judge_until(position as i64, batch.last_offset(), seen);
        if batch.max_timestamp() > seen.largest_timestamp {
            seen.largest_timestamp = batch.max_timestamp();
            self.time_index
                .judge_until(batch.last_offset(), batch.max_timestamp(), seen);
        }
        if seen.is_damaged { None } else { replay(batch) }
    }

    /// Reports damage, and drops the index entries of which it leaves nothing to say.
    fn pass_over(&mut self, position: u64, end: u64, may_be_torn: bool, reason: String) {
        self.seen.damage(position, end, may_be_torn, reason);
        self.offset_index.drop_before(end as i64);
        self.time_index.drop_before(i64::MAX); // the youngest batch may be the damaged one
    }
}

impl CheckFindings {
    /// Notes a batch whose bytes are sound, and the place of its offsets.
    fn note(&mut self, batch: &BatchView<'_>, position: u64) {
        let (expected, found) = (self.next_offset, batch.base_offset());
        let end = position + batch.bytes().len() as u64;
        if found < expected && !self.is_after_damage {
            let reason = format!("the batch begins at offset {found}, {expected} is the next");
            self.damage(position, end, false, reason);
        }
        if found > expected && !self.is_after_damage {
            let gap = Gap {
                position,
                expected,
                found,
            };
            self.last_gap = Some(gap);
            if self.gaps.len() < GAPS_MAX {
                self.gaps.push(gap);
            }
        }
        self.is_after_damage = false;
        self.first_offset.get_or_insert(found);
        self.next_offset = batch.last_offset() + 1;
        self.batches += 1;
        self.records += u64::from(batch.record_count().unsigned_abs());
        let leader_epoch = batch.leader_epoch();
        match self.leader_epochs.last_mut() {
            Some(run) if run.leader_epoch == leader_epoch => run.last_offset = batch.last_offset(),
            _ => self.leader_epochs.push(EpochRun {
                leader_epoch,
                position,
                first_offset: found,
                last_offset: batch.last_offset(),
            }),
        }
    }

    fn damage(&mut self, position: u64, end: u64, may_be_torn: bool, reason: String) {
        self.fault(Fault {
            suspect: Suspect::Log,
            position,
            end,
            may_be_torn,
            reason,
        });
        self.is_damaged = true;
        self.is_after_damage = true;
    }

    fn fault(&mut self, fault: Fault) {
        if self.faults.len() == FAULTS_MAX {
            self.faults_left_out += 1;
        } else {
            self.faults.push(fault);
        }
    }
}

/// The entries of an index, each with the place where it has to be met.
struct Entries {
    suspect: Suspect,
    entry_bytes: usize,
    /// In the order in which the walk meets them, the last first.
    left: Vec<IndexEntry>,
}

/// One index entry.
#[derive(Clone, Copy)]
struct IndexEntry {
    /// Where it has to be met: a position in the log, or a batch's last offset.
    at: i64,
    /// The required content: a batch's last offset, or its largest timestamp.
    says: i64,
    /// Where it stands in its file.
    position: u64,
}

impl Entries {
    fn read<const BYTES: usize>(
        suspect: Suspect,
        index: &[u8],
        decode: impl Fn(&[u8]) -> (i64, i64),
        seen: &mut CheckFindings,
    ) -> Self {
        let (whole, rest) = index.as_chunks::<BYTES>();
        let mut entries: Vec<IndexEntry> = whole
            .iter()
            .enumerate()
            .map(|(nth, entry)| {
                let (at, says) = decode(entry);
                let position = (nth * BYTES) as u64;
                IndexEntry { at, says, position }
            })
            .collect();
        if !rest.is_empty() {
            let position = (whole.len() * BYTES) as u64;
            let reason = format!("{} bytes are left over after the last entry", rest.len());
            seen.fault(Fault {
                suspect,
                position,
                end: index.len() as u64,
                may_be_torn: false,
                reason,
            });
        }
        entries.sort_by_key(|entry| std::cmp::Reverse((entry.at, entry.position)));
        Self {
            suspect,
            entry_bytes: BYTES,
            left: entries,
        }
    }

    /// Judges the entries up to a place of the log, where `is` is their required content.
    fn judge_until(&mut self, at: i64, is: i64, seen: &mut CheckFindings) {
        while let Some(entry) = self.left.pop_if(|entry| entry.at <= at) {
            let Some(reason) = self.reason(entry, at, is) else {
                continue;
            };
            seen.fault(Fault {
                suspect: self.suspect,
                position: entry.position,
                end: entry.position + self.entry_bytes as u64,
                may_be_torn: false,
                reason,
            });
        }
    }

    /// Drops the entries before a place.
    fn drop_before(&mut self, end: i64) {
        while self.left.pop_if(|entry| entry.at < end).is_some() {}
    }

    fn reason(&self, entry: IndexEntry, at: i64, is: i64) -> Option<String> {
        let IndexEntry {
            at: wanted, says, ..
        } = entry;
        match (self.suspect, wanted == at) {
            (_, true) if says == is => None,
            (Suspect::TimeIndex, true) => Some(format!(
                "the entry says that the largest timestamp up to offset {at} is {says}, it is {is}"
            )),
            (Suspect::TimeIndex, false) => Some(format!(
                "the entry ({says}, offset {wanted}) names no batch that is younger than all before"
            )),
            (_, true) => Some(format!(
                "the entry says that the batch at byte {at} ends with offset {says}, it is {is}"
            )),
            (_, false) => Some(format!(
                "the entry (offset {says}, byte {wanted}) points where no batch begins"
            )),
        }
    }
}

/// The fault of a batch whose checksum is right.
fn problem(batch: &BatchView<'_>, is_deep: bool) -> Option<String> {
    if let Err(error) = batch.validate() {
        return Some(error.to_string());
    }
    if is_deep {
        return read_records(batch).err();
    }
    None
}

/// Opens a batch, piece by piece, and reads every record.
fn read_records(batch: &BatchView<'_>) -> Result<(), String> {
    let told = |error: ContentError| error.to_string();
    let mut opening = content::open(batch, Reading::Lenient, usize::MAX).map_err(told)?;
    let (mut least, most) = (0, batch.last_offset_delta());
    let mut out_of_place = None;
    let mut look = |record: &RecordHead| {
        let delta = record.offset_delta;
        if !(least..=most).contains(&delta) {
            out_of_place = Some((delta, least));
            return ControlFlow::Break(());
        }
        least = delta.saturating_add(1);
        ControlFlow::Continue(())
    };
    content::walk(&mut opening, batch.record_count(), &mut look).map_err(told)?;
    match out_of_place {
        None => Ok(()),
        Some((delta, least)) => Err(format!(
            "a record has offset delta {delta}, expected was {least} to {most}"
        )),
    }
}

/// A batch as a producer state is told of it; `None` if it has no producer, or is a control batch that
/// ends no transaction.
fn replay(batch: &BatchView<'_>) -> Option<ReplayedBatch> {
    if batch.producer_id() < 0 {
        return None;
    }
    if !batch.is_control() {
        return Some(ReplayedBatch::of(batch, None));
    }
    let marker = decode_marker(batch.records())?;
    Some(ReplayedBatch::of(batch, Some(marker)))
}

fn field<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("an entry is longer")
}
