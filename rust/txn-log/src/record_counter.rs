//! Committed records of a log behind an offset, counted by the headers of its batches.
//!
//! The lag of a consumer is the number of records that it has yet to read: markers, records of
//! aborted transactions and offsets that compaction left empty are none. No offset below the last
//! stable one changes its meaning, so a count is kept and goes on from its end at the next call.
//!
//! # A count
//! A segment has one [`Stretch`]: points between two batches, each with the committed records below
//! it. It begins where the lowest wanted offset was and grows to the last stable offset. A lower
//! offset begins a second stretch, which grows up to the first and joins it. The lag of an offset
//! is the difference of two points, and the headers from the nearest point below it.
//!
//! # Bounds
//! A call reads headers until its time is over, and goes on from there at the next; a count that is
//! not done is `None`. A segment keeps [`POINTS_MAX`] points and one for each offset of the last
//! call. A segment that compaction or a truncation replaced is counted anew.
//!
//! A batch has to be opened only where an offset lies within a batch that compaction has thinned.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use txn_protocol::batch::{BatchView, Header};

use crate::error::ReadError;
use crate::log::PartitionLog;
use crate::producer_state::AbortedTxn;
use crate::search;
use crate::search::Budget;
use crate::segment::Segment;

const POINTS_MAX: usize = 128;
/// Batches between two points at first; doubled where there would be too many points.
const STRIDE: usize = 64;
/// Offsets for which the aborted transactions are looked up at once.
const ABORTED_RANGE: i64 = 4096;
/// Headers between two looks at the clock.
const HEADERS_PER_LOOK: usize = 32;

/// The committed records behind some offsets of a log, up to its last stable offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedCounts {
    /// The offset that was counted to.
    pub last_stable_offset: i64,
    /// For each offset; `None` while the count is under way.
    pub records: Vec<Option<i64>>,
}

/// Counts the committed records of one log, and remembers the counts. Thread-safe.
pub struct RecordCounter {
    log: Arc<PartitionLog>,
    segments: Mutex<BTreeMap<i64, CountedSegment>>,
}

/// A place between two batches of a segment, or before its first.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// Batches before `position` end below it, those from there on do not.
    offset: i64,
    position: u64,
    /// Committed records below, from the beginning of the stretch.
    records: i64,
}

/// Adjacent batches whose committed records are known.
#[derive(Debug)]
struct Stretch {
    points: Vec<Point>,
    end: Point,
    stride: usize,
    /// Batches behind the last of `points`.
    batches: usize,
}

/// An offset that was asked for.
#[derive(Clone, Copy, Debug)]
struct AskedOffset {
    offset: i64,
    /// Before the batch with the offset, or on the way there.
    point: Point,
    /// Committed records from `point` up to `offset`; `None` if `point` is on the way.
    records: Option<i64>,
}

#[derive(Debug)]
struct CountedSegment {
    segment: Weak<Segment>,
    known: Stretch,
    /// Begins below `known` and grows up to it.
    lower: Option<Stretch>,
    asked: Vec<AskedOffset>,
}

impl RecordCounter {
    /// A counter that has counted nothing yet.
    #[must_use]
    pub fn new(log: Arc<PartitionLog>) -> Self {
        Self {
            log,
            segments: Mutex::default(),
        }
    }

    /// Counts the committed records from each offset on, as far as that is done by `deadline`.
    ///
    /// # Errors
    /// `Io`, `Corrupt`, `Closed`.
    pub fn count(&self, offsets: &[i64], deadline: Instant) -> Result<CommittedCounts, ReadError> {
        self.log.reading(|| {
            let mut known = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
            let counting = Counting {
                log: &self.log,
                deadline,
            };
            let counted = counting.count(&mut known, offsets)?;
            if self.log.is_closed() {
                return Err(ReadError::Closed); // its segments may be gone
            }
            Ok(counted)
        })
    }
}

/// One call of a counter.
struct Counting<'a> {
    log: &'a PartitionLog,
    deadline: Instant,
}

impl Counting<'_> {
    fn count(
        &self,
        known: &mut BTreeMap<i64, CountedSegment>,
        offsets: &[i64],
    ) -> Result<CommittedCounts, ReadError> {
        let state = self.log.state();
        let end = state.last_stable_offset;
        let segments = self.log.segments();
        let first = segments.first().map_or(end, |first| first.base_offset);
        let start = state.log_start_offset.max(first).min(end);
        let offsets: Vec<i64> = offsets
            .iter()
            .map(|&offset| offset.clamp(start, end))
            .collect();
        let mut records: Vec<Option<i64>> = offsets
            .iter()
            .map(|&offset| (offset == end).then_some(0))
            .collect();
        let lowest = offsets.iter().min().copied().unwrap_or(end);
        let mut behind = 0;
        let mut lowest_base = i64::MAX;
        let mut next_base = i64::MAX;
        for segment in segments.iter().rev() {
            let high = end.min(segment.next_offset());
            let low = lowest.max(segment.base_offset);
            if high <= lowest {
                break;
            }
            if low >= high {
                continue;
            }
            lowest_base = segment.base_offset;
            let counted = counted_segment(known, segment, low)?;
            if !self.cover(segment, counted, low, high)? {
                break;
            }
            let wanted = offsets.iter().zip(&mut records);
            // Not those of newer segments, whose way was too long for the time.
            let range = segment.base_offset..next_base;
            let here =
                wanted.filter(|(offset, records)| records.is_none() && range.contains(*offset));
            let mut asked = Vec::new();
            for (&offset, records) in here {
                let point = self.find(segment, counted, offset)?;
                asked.push(point);
                *records = point
                    .records
                    .map(|below| behind + counted.known.end.records - point.point.records - below);
            }
            counted.asked = asked;
            if counted.asked.is_empty() {
                counted.known.points.truncate(1);
            }
            let whole = counted.known.before(low);
            behind += counted.known.end.records - whole.records;
            next_base = segment.base_offset;
        }
        known.retain(|&base, _| base >= lowest_base);
        Ok(CommittedCounts {
            last_stable_offset: end,
            records,
        })
    }

    /// Counts the committed records of a segment in `[low, high)`; false if time is over before.
    fn cover(
        &self,
        segment: &Segment,
        counted: &mut CountedSegment,
        low: i64,
        high: i64,
    ) -> Result<bool, ReadError> {
        while low < counted.known.start().offset {
            let lower = match &mut counted.lower {
                Some(lower) => lower,
                none => none.insert(Stretch::from(first_point(segment, low)?)),
            };
            let known = counted.known.start();
            if !self.walk(segment, lower, known.position, i64::MAX)? {
                return Ok(false);
            }
            let lower = counted.lower.take().expect("it was walked");
            counted.join(lower);
        }
        self.walk(segment, &mut counted.known, segment.size(), high)
    }

    /// Finds the point before an offset, and the committed records from there up to it.
    fn find(
        &self,
        segment: &Segment,
        counted: &CountedSegment,
        offset: i64,
    ) -> Result<AskedOffset, ReadError> {
        if let Some(&done) = counted
            .asked
            .iter()
            .find(|asked| asked.offset == offset && asked.records.is_some())
        {
            return Ok(done);
        }
        let near = counted.asked.iter().map(|asked| asked.point);
        let start = near
            .chain([counted.known.before(offset)])
            .filter(|point| point.offset <= offset)
            .max_by_key(|point| point.position)
            .expect("the stretch begins at or below every offset that is asked for");
        let mut way = Stretch::from(start);
        way.stride = usize::MAX;
        let is_there = self.walk(segment, &mut way, segment.size(), offset)?;
        let records = if is_there {
            Some(self.records_below(segment, way.end.position, offset)?)
        } else {
            None
        };
        Ok(AskedOffset {
            offset,
            point: way.end,
            records,
        })
    }

    /// Takes batches into a stretch up to one that reaches `end`, or up to a position; false if
    /// time is over before.
    fn walk(
        &self,
        segment: &Segment,
        stretch: &mut Stretch,
        until: u64,
        end: i64,
    ) -> Result<bool, ReadError> {
        if stretch.end.position >= until || stretch.end.offset >= end {
            return Ok(true);
        }
        let mut scanner = segment.scan_between(stretch.end.position, until)?;
        let mut aborted = AbortedHere::default();
        for number in 1.. {
            let Some((position, header)) =
                scanner.next().map_err(|error| segment.damaged(error))?
            else {
                break;
            };
            if header.last_offset() >= end {
                break;
            }
            segment.check_offsets(position, &header, stretch.end.offset)?;
            stretch.push(Point {
                offset: header.last_offset() + 1,
                position: position + header.size() as u64,
                records: stretch.end.records + aborted.committed_records(self.log, &header),
            });
            if number % HEADERS_PER_LOOK == 0 && Instant::now() >= self.deadline {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Committed records below an offset of the batch at a position, which may begin behind it.
    fn records_below(
        &self,
        segment: &Segment,
        position: u64,
        offset: i64,
    ) -> Result<i64, ReadError> {
        let mut scanner = segment.scan_from(position)?;
        let found = scanner.next().map_err(|error| segment.damaged(error))?;
        let Some((_, header)) = found.filter(|(_, header)| header.base_offset() < offset) else {
            return Ok(0);
        };
        let records = AbortedHere::default().committed_records(self.log, &header);
        let offsets = i64::from(header.last_offset_delta()) + 1;
        if records == 0 || records == offsets {
            return Ok(records.min(offset - header.base_offset()));
        }
        let bytes = scanner.bytes(position, header.size())?;
        segment.verify(position, bytes.len() as u64)?;
        let batch = BatchView::parse(bytes).map_err(|error| segment.corrupt(position, &error))?;
        let mut below = 0;
        search::first_record(&batch, &mut Budget::of_one_search(), |at, _| {
            below += i64::from(at < offset);
            at >= offset
        });
        Ok(below)
    }
}

/// The counts of a segment; new ones, from an offset on, unless they are of this very segment.
fn counted_segment<'a>(
    known: &'a mut BTreeMap<i64, CountedSegment>,
    segment: &Arc<Segment>,
    low: i64,
) -> Result<&'a mut CountedSegment, ReadError> {
    let base_offset = segment.base_offset;
    let is_known = known
        .get(&base_offset)
        .is_some_and(|counted| std::ptr::eq(counted.segment.as_ptr(), Arc::as_ptr(segment)));
    if !is_known {
        let fresh = CountedSegment {
            segment: Arc::downgrade(segment),
            known: Stretch::from(first_point(segment, low)?),
            lower: None,
            asked: Vec::new(),
        };
        known.insert(base_offset, fresh);
    }
    Ok(known.get_mut(&base_offset).expect("it was just inserted"))
}

/// The place of the first batch that reaches an offset, which has to be below the segment's end.
fn first_point(segment: &Segment, offset: i64) -> Result<Point, ReadError> {
    let size = segment.size();
    // There is none if compaction has removed the last batches of a sealed segment.
    let (position, offset) = segment
        .find(offset)?
        .map_or((size, offset), |(position, header)| {
            (position, header.base_offset().min(offset))
        });
    Ok(Point {
        offset,
        position,
        records: 0,
    })
}

impl CountedSegment {
    /// Puts a stretch before the known one, which begins at its end.
    fn join(&mut self, lower: Stretch) {
        let shift = lower.end.records;
        let upper = std::mem::replace(&mut self.known, lower);
        self.known.stride = self.known.stride.max(upper.stride);
        for mut point in upper.points.into_iter().chain([upper.end]) {
            point.records += shift;
            self.known.points.push(point);
            self.known.end = point;
        }
        self.known.batches = 0;
        self.known.thin();
        for asked in &mut self.asked {
            asked.point.records += shift;
        }
    }
}

impl From<Point> for Stretch {
    fn from(point: Point) -> Self {
        Self {
            points: vec![point],
            end: point,
            stride: STRIDE,
            batches: 0,
        }
    }
}

impl Stretch {
    fn start(&self) -> Point {
        self.points[0]
    }

    /// The last point at or before an offset, which must not lie before the first.
    fn before(&self, offset: i64) -> Point {
        if self.end.offset <= offset {
            return self.end;
        }
        let behind = self.points.partition_point(|point| point.offset <= offset);
        self.points[behind.max(1) - 1]
    }

    fn push(&mut self, end: Point) {
        self.end = end;
        self.batches += 1;
        if self.batches >= self.stride {
            self.batches = 0;
            self.points.push(end);
            self.thin();
        }
    }

    fn thin(&mut self) {
        while self.points.len() > POINTS_MAX {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.stride = self.stride.saturating_mul(2);
        }
    }
}

/// The aborted transactions of the batches that are walked over now.
#[derive(Default)]
struct AbortedHere {
    /// By producer id and first offset.
    entries: Vec<AbortedTxn>,
    end: i64,
}

impl AbortedHere {
    /// The committed records of a batch below the last stable offset. Batches are asked for in
    /// their order.
    fn committed_records(&mut self, log: &PartitionLog, header: &Header) -> i64 {
        if header.is_control() || (header.is_transactional() && self.is_aborted(log, header)) {
            return 0;
        }
        let offsets = header.last_offset_delta().saturating_add(1);
        i64::from(header.record_count().clamp(0, offsets.max(0)))
    }

    fn is_aborted(&mut self, log: &PartitionLog, header: &Header) -> bool {
        let (producer_id, offset) = (header.producer_id(), header.base_offset());
        if offset >= self.end {
            self.end = offset.saturating_add(ABORTED_RANGE);
            self.entries = log.aborted_between(offset, self.end);
            self.entries
                .sort_unstable_by_key(|entry| (entry.producer_id, entry.first_offset));
        }
        let behind = self.entries.partition_point(|entry| {
            (entry.producer_id, entry.first_offset) <= (producer_id, offset)
        });
        behind.checked_sub(1).is_some_and(|last| {
            let entry = self.entries[last];
            entry.producer_id == producer_id && offset <= entry.last_offset
        })
    }
}
