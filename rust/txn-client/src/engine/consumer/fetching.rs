//! Partitions: where each begins, what was fetched of it, and what comes next.

use std::collections::VecDeque;
use std::sync::Arc;

use txn_protocol::codes;

use super::queries::Ask;
use super::records::{self, Chunk};
use super::{Consumer, FetchOf, Place, Purpose, Reset};
use crate::engine::nodes::{FETCHER, SEEKER};
use crate::engine::{Effect, Millis, NodeId, Request};
use crate::error::{KafkaError, is_retriable};
use crate::messages::consumer::{FetchBounds, Fetched, OffsetAnswer, Wanted};

/// Wait of a node for the first byte while other partitions of it have records here: those that
/// are read empty must not wait for the rest.
const WAIT_BESIDE_MS: i32 = 10;
/// Pause after an error that does not pass by asking another node.
pub(super) const REFUSED_PAUSE_MS: Millis = 1_000;
/// Largest answer ever asked for.
const ANSWER_BYTES_MAX: i32 = 64 << 20;

/// Where a partition begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At an offset.
    At(i64),
    /// At the committed offset; without any as `Reset` says.
    Committed,
    /// At the first offset.
    Earliest,
    /// At the end.
    Latest,
    /// This many records before the end.
    Tail(i64),
}

#[derive(Debug)]
enum Start {
    /// To be asked for.
    Unknown(Begin),
    /// Asked for, by a question with this number.
    Asked(u64, Begin),
    Known,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchState {
    /// Its first `Fetch` is to be sent, and does not wait for another one in flight.
    New,
    InFlight,
    Answered,
}

/// One assigned partition.
#[derive(Debug)]
pub(super) struct Partition {
    start: Start,
    /// The next offset to fetch, and to hand out.
    next_fetch: i64,
    pub(super) next_offset: i64,
    /// (offset, leader epoch) behind the last record handed out, and behind the markers and aborted
    /// records that follow it.
    pub(super) position: Option<(i64, i32)>,
    /// The offset behind the last record handed out.
    pub(super) handed_out: Option<i64>,
    /// Changes when what was fetched is of no use any more.
    version: u64,
    pub(super) is_paused: bool,
    fetch: FetchState,
    /// True if `next_fetch` is not in the log. It is fetched again once its records are read.
    is_out_of_range: bool,
    pub(super) chunks: VecDeque<Chunk>,
    pub(super) queued_bytes: usize,
    bytes_max: i32,
    fetch_at: Millis,
    watermarks: Option<(i64, i64)>,
    /// The end as the last answer told it, and the end that the program knows of.
    end: Option<i64>,
    told_end: Option<i64>,
}

impl Partition {
    pub(super) fn new(begin: Begin, version: u64, bytes_max: i32) -> Self {
        Self {
            start: Start::Unknown(begin),
            next_fetch: 0,
            next_offset: 0,
            position: None,
            handed_out: None,
            version,
            is_paused: false,
            fetch: FetchState::New,
            is_out_of_range: false,
            chunks: VecDeque::new(),
            queued_bytes: 0,
            bytes_max,
            fetch_at: 0,
            watermarks: None,
            end: None,
            told_end: None,
        }
    }

    fn start_at(&mut self, offset: i64) {
        self.start = Start::Known;
        (self.next_fetch, self.next_offset) = (offset, offset);
    }

    /// Moves behind batches without a record to hand out: the position of a group that has read a
    /// log to its end is the end, whatever stands there.
    pub(super) fn pass(&mut self, behind: Option<(i64, i32)>) {
        if let Some((offset, _)) = behind.filter(|&(offset, _)| offset > self.next_offset) {
            self.next_offset = offset;
            self.position = behind;
        }
    }

    /// Fetches again, from the next offset to hand out, after a pause.
    pub(super) fn fetch_anew(&mut self, version: u64, at: Millis) {
        self.version = version;
        self.fetch = FetchState::Answered;
        self.next_fetch = self.next_offset;
        self.fetch_at = at;
    }

    /// The offset of the end, if nothing is left before it; each one once.
    pub(super) fn reached_end(&mut self) -> Option<i64> {
        let at = self.next_fetch;
        let is_at_end = self.chunks.is_empty() && self.end.is_some_and(|end| at >= end);
        let is_new = is_at_end && self.told_end != Some(at);
        is_new.then(|| *self.told_end.insert(at))
    }

    fn may_fetch(&self, now: Millis) -> bool {
        let has_room = self.queued_bytes < self.bytes_max as usize;
        let is_started = matches!(self.start, Start::Known);
        let is_in_range = !self.is_out_of_range || self.chunks.is_empty();
        has_room
            && is_started
            && is_in_range
            && !self.is_paused
            && self.fetch != FetchState::InFlight
            && self.fetch_at <= now
    }

    pub(super) fn due(&self) -> Option<Millis> {
        (self.fetch_at > 0 && self.fetch != FetchState::InFlight && !self.is_paused)
            .then_some(self.fetch_at)
    }
}

impl Consumer {
    /// Reads partitions, in addition to those that it reads. One that it reads already begins anew.
    pub fn assign(&mut self, partitions: Vec<(Place, Begin)>) {
        for (place, begin) in partitions {
            self.unassign(std::slice::from_ref(&place));
            self.versions += 1;
            let bytes_max = self.settings.partition_fetch_bytes;
            let partition = Partition::new(begin, self.versions, bytes_max);
            self.partitions.insert(place, partition);
        }
    }

    /// Reads partitions no longer.
    pub fn unassign(&mut self, places: &[Place]) {
        for place in places {
            self.drop_queued(place);
            self.partitions.remove(place);
            self.ends.retain(|(ended, _)| ended != place);
        }
    }

    /// The partitions that it reads.
    pub fn assignment(&self) -> impl Iterator<Item = &Place> {
        self.partitions.keys()
    }

    /// Goes on at another place. False if the partition is not assigned.
    pub fn seek(&mut self, place: &Place, begin: Begin) -> bool {
        let Some(partition) = self.partitions.get(place) else {
            return false;
        };
        let is_paused = partition.is_paused;
        self.assign(vec![(place.clone(), begin)]);
        self.pause(place, is_paused)
    }

    /// Hands out nothing of a partition, or goes on. False if it is not assigned.
    pub fn pause(&mut self, place: &Place, is_paused: bool) -> bool {
        let partition = self.partitions.get_mut(place);
        partition.map(|it| it.is_paused = is_paused).is_some()
    }

    /// The offset behind the last record that a partition has handed out since it was assigned or
    /// sought.
    #[must_use]
    pub fn handed_out(&self, place: &Place) -> Option<i64> {
        self.partitions.get(place)?.handed_out
    }

    /// (offset, leader epoch) behind the last record handed out, and behind the markers and aborted
    /// records that follow it once a record behind them is asked for.
    #[must_use]
    pub fn position(&self, place: &Place) -> Option<(i64, i32)> {
        self.partitions.get(place)?.position
    }

    /// (first offset, end) as the last answer told them.
    #[must_use]
    pub fn watermarks(&self, place: &Place) -> Option<(i64, i64)> {
        self.partitions.get(place)?.watermarks
    }

    pub(super) fn drop_queued(&mut self, place: &Place) {
        if let Some(partition) = self.partitions.get_mut(place) {
            self.queued_bytes -= partition.queued_bytes;
            partition.queued_bytes = 0;
            partition.chunks.clear();
            self.arrivals.retain(|arrived| arrived != place);
        }
    }

    /// Asks where partitions begin.
    pub(super) fn ask_begins(&mut self) {
        let mut committed = Vec::new();
        let mut by_time = Vec::new();
        let number = self.next_query + 1;
        for (place, partition) in &mut self.partitions {
            let Start::Unknown(begin) = partition.start else {
                continue;
            };
            let asked = match begin {
                Begin::At(offset) => {
                    partition.start_at(offset);
                    continue;
                }
                Begin::Committed => {
                    committed.push(place.clone());
                    number
                }
                Begin::Earliest => {
                    by_time.push((place.clone(), -2));
                    number + 1
                }
                Begin::Latest | Begin::Tail(_) => {
                    by_time.push((place.clone(), -1));
                    number + 1
                }
            };
            partition.start = Start::Asked(asked, begin);
        }
        self.next_query += 2;
        if !committed.is_empty() {
            self.next_query = number - 1;
            self.query(Ask::Committed(committed), true);
        }
        if !by_time.is_empty() {
            self.next_query = number;
            self.query(Ask::ByTime(by_time), true);
        }
        self.next_query = number + 1;
    }

    /// The answer to where a partition begins.
    pub(super) fn begin_at(&mut self, number: u64, answer: &OffsetAnswer, is_committed: bool) {
        let place = answer.place.clone();
        let Some(partition) = self.partitions.get_mut(&place) else {
            return;
        };
        let Start::Asked(of, begin) = partition.start else {
            return;
        };
        if of != number {
            return; // it was sought meanwhile
        }
        if answer.error_code != 0 {
            let request = if is_committed {
                "OffsetFetch"
            } else {
                "ListOffsets"
            };
            let subject = format!("partition {}-{}", place.0, place.1);
            let code = answer.error_code;
            let error = KafkaError::answered(code, "the node", request, &subject, None);
            partition.start = Start::Unknown(begin);
            self.report(Some(&place), error);
            return;
        }
        match begin {
            _ if answer.offset < 0 => self.reset(&place, "the group has no committed offset"),
            Begin::Tail(count) => partition.start_at((answer.offset - count).max(0)),
            _ => partition.start_at(answer.offset),
        }
    }

    /// No answer to where partitions begin: they are asked for again.
    pub(super) fn begin_failed(&mut self, number: u64, error: &KafkaError, _now: Millis) {
        for partition in self.partitions.values_mut() {
            if let Start::Asked(of, begin) = partition.start
                && of == number
            {
                partition.start = Start::Unknown(begin);
            }
        }
        self.report(None, error.clone());
    }

    /// Begins where `auto.offset.reset` says.
    fn reset(&mut self, place: &Place, why: &str) {
        let begin = match self.settings.reset {
            Reset::Earliest => Begin::Earliest,
            Reset::Latest => Begin::Latest,
            Reset::Error => {
                let message = format!(
                    "{}-{} has no place to begin at: {why}, and auto.offset.reset=error; seek, or \
                     assign it at an offset",
                    place.0, place.1
                );
                let error = KafkaError::refused(codes::OFFSET_OUT_OF_RANGE, message);
                if let Some(partition) = self.partitions.get_mut(place) {
                    partition.start = Start::Asked(0, Begin::Committed);
                }
                return self.report_as(Some(place), error, true);
            }
        };
        self.drop_queued(place);
        if let Some(partition) = self.partitions.get_mut(place) {
            partition.start = Start::Unknown(begin);
        }
    }

    /// Sends a `Fetch` to each node that leads a partition to fetch.
    pub(super) fn send_fetches(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        if self.queued_bytes >= self.settings.queued_bytes_max {
            return;
        }
        let mut nodes: Vec<(NodeId, Vec<Place>, bool)> = Vec::new();
        for (place, partition) in &self.partitions {
            let is_read = !partition.is_paused && matches!(partition.start, Start::Known);
            let Some(node) = self.leaders.leader(place).filter(|_| is_read) else {
                continue;
            };
            let index = nodes.iter().position(|(id, ..)| *id == node);
            let index = index.unwrap_or_else(|| {
                nodes.push((node, Vec::new(), false));
                nodes.len() - 1
            });
            if partition.may_fetch(now) {
                nodes[index].1.push(place.clone());
            } else {
                nodes[index].2 = true;
            }
        }
        for (node, mut places, has_others) in nodes {
            let mut fetcher = node + FETCHER;
            if self.fetching.contains(&fetcher) {
                // What is in flight may wait for records of other partitions, or other offsets.
                fetcher = node + SEEKER;
                places.retain(|place| self.partitions[place].fetch == FetchState::New);
            }
            let is_idle = !self.fetching.contains(&fetcher) && !places.is_empty();
            if !is_idle || !self.nodes.ready(fetcher, now, effects) {
                continue;
            }
            self.turn += 1;
            let turn = self.turn % places.len();
            places.rotate_left(turn); // the first partition's batch comes whole at any size
            let mut asked = Vec::with_capacity(places.len());
            let mut wanted = Vec::with_capacity(places.len());
            for place in places {
                let partition = self.partitions.get_mut(&place).expect("it was listed");
                partition.fetch = FetchState::InFlight;
                partition.is_out_of_range = false;
                wanted.push(Wanted {
                    place: place.clone(),
                    offset: partition.next_fetch,
                    bytes_max: partition.bytes_max,
                });
                asked.push(FetchOf {
                    place,
                    version: partition.version,
                });
            }
            let settings = &self.settings;
            let room = settings.queued_bytes_max - self.queued_bytes;
            let room = i32::try_from(room).unwrap_or(i32::MAX);
            let wait_ms = settings.fetch_wait_ms;
            let bounds = FetchBounds {
                wait_ms: if has_others {
                    wait_ms.min(WAIT_BESIDE_MS)
                } else {
                    wait_ms
                },
                bytes_min: settings.fetch_min_bytes,
                bytes_max: settings.fetch_max_bytes.min(room),
                read_committed: true,
            };
            let request = Request::Fetch { bounds, wanted };
            self.fetching.insert(fetcher);
            let purpose = Purpose::Fetch(fetcher, asked);
            self.nodes.send(fetcher, request, purpose, now, effects);
        }
    }

    /// A `Fetch` has no answer, or one for all its partitions.
    pub(super) fn fetch_lost(&mut self, node: NodeId, asked: &[FetchOf], pause_until: Millis) {
        self.fetching.remove(&node);
        for of in asked {
            if let Some(partition) = self.partitions.get_mut(&of.place)
                && partition.version == of.version
            {
                partition.fetch = FetchState::Answered;
                partition.fetch_at = pause_until;
            }
        }
    }

    /// A `Fetch` is answered.
    pub(super) fn fetched(
        &mut self,
        node: NodeId,
        asked: &[FetchOf],
        answers: Vec<Fetched>,
        now: Millis,
    ) {
        self.fetch_lost(node, asked, 0);
        for answer in answers {
            let Some(of) = asked.iter().find(|of| of.place == answer.place) else {
                continue;
            };
            let partition = self.partitions.get(&of.place);
            if partition.is_some_and(|partition| partition.version == of.version) {
                self.fetched_of(node, answer, now);
            }
        }
    }

    fn fetched_of(&mut self, node: NodeId, answer: Fetched, now: Millis) {
        let place = answer.place.clone();
        if answer.error_code != 0 {
            return self.fetch_refused(node, &place, answer.error_code, now);
        }
        let partition = self.partitions.get_mut(&place).expect("it is assigned");
        partition.watermarks = Some((answer.log_start_offset, answer.high_watermark));
        partition.end = Some(answer.end_offset);
        let from = partition.next_fetch;
        match records::scan(&answer.records, from) {
            Ok(whole) if whole.bytes > 0 => {
                partition.next_fetch = whole.next_offset;
                let bytes = Arc::clone(&answer.records);
                let chunk = Chunk::new(place.clone(), bytes, whole.bytes, answer.aborted);
                partition.queued_bytes += chunk.bytes();
                self.queued_bytes += chunk.bytes();
                partition.chunks.push_back(chunk);
                self.arrivals.push_back(place);
            }
            Ok(whole) if whole.needed > 0 => {
                let needed = i32::try_from(whole.needed).unwrap_or(ANSWER_BYTES_MAX);
                let grown = partition.bytes_max.saturating_mul(2).max(needed);
                partition.bytes_max = grown.min(ANSWER_BYTES_MAX);
            }
            Ok(_) => self.note_end(&place),
            Err(what) => self.damaged(&place, from + 1, &what),
        }
    }

    fn fetch_refused(&mut self, node: NodeId, place: &Place, code: i16, now: Millis) {
        let retry_ms = self.settings.retry_backoff_ms;
        let name = self.nodes.name(node);
        let partition = self.partitions.get_mut(place).expect("it is assigned");
        let offset = partition.next_fetch;
        if code == codes::OFFSET_OUT_OF_RANGE {
            partition.is_out_of_range = true;
            if partition.chunks.is_empty() {
                self.reset(place, &format!("offset {offset} is not in the log"));
            } // else it is asked for again once its records are handed out
            return;
        }
        partition.fetch_at = now + retry_ms;
        self.leaders.mark_stale(&place.0);
        let subject = format!("partition {}-{} at offset {offset}", place.0, place.1);
        let error = KafkaError::answered(code, &name, "Fetch", &subject, None);
        self.last_error = Some(error.clone());
        if !is_retriable(code) {
            if let Some(partition) = self.partitions.get_mut(place) {
                partition.fetch_at = now + REFUSED_PAUSE_MS;
            }
            self.report(Some(place), error);
        }
    }
}
