//! The way of records from fetched answers to the program.

use txn_protocol::codes;

use super::fetching::REFUSED_PAUSE_MS;
use super::records::Message;
use super::{Consumer, Place};
use crate::error::KafkaError;

/// What the answer at one place in the order of arrival has to give.
enum Next {
    Record(Message),
    /// The answer was read to its end, or a batch of it is damaged: it is gone.
    Gone,
    /// Its partition is paused.
    Paused,
}

impl Consumer {
    /// Adds up to `max` records, and about `bytes_max` bytes of them, to `taken`. True if something
    /// can be fetched now that could not before.
    pub fn take(&mut self, max: usize, bytes_max: usize, taken: &mut Vec<Message>) -> bool {
        let mut bytes = 0;
        let mut has_room = false;
        let mut turn = 0;
        while taken.len() < max && bytes < bytes_max && turn < self.arrivals.len() {
            match self.next_of(turn) {
                Next::Record(message) => {
                    bytes += message.bytes();
                    taken.push(message);
                }
                Next::Gone => has_room = true,
                Next::Paused => turn += 1,
            }
        }
        has_room
    }

    /// The next record, if its partition has handed out one since it was assigned or sought; and
    /// true as `take` says. Without such a record `take` may still give one.
    pub fn take_further(&mut self) -> (Option<Message>, bool) {
        let mut has_room = false;
        while let Some(place) = self.arrivals.front() {
            if self.handed_out(place).is_none() {
                break;
            }
            match self.next_of(0) {
                Next::Record(message) => return (Some(message), has_room),
                Next::Gone => has_room = true,
                Next::Paused => break,
            }
        }
        (None, has_room)
    }

    fn next_of(&mut self, turn: usize) -> Next {
        let place = &self.arrivals[turn];
        let partition = self.partitions.get_mut(place);
        let Some(partition) = partition.filter(|partition| !partition.is_paused) else {
            return Next::Paused;
        };
        let chunk = partition.chunks.front_mut().expect("it has arrived");
        let from = partition.next_offset;
        match chunk.next(from, self.settings.content_bytes_max) {
            Ok(Some(message)) => {
                let next = message.offset() + 1;
                partition.next_offset = next;
                partition.position = Some((next, message.leader_epoch()));
                partition.handed_out = Some(next);
                Next::Record(message)
            }
            Ok(None) => {
                let (freed, behind) = (chunk.bytes(), chunk.behind());
                partition.pass(behind);
                partition.chunks.pop_front();
                partition.queued_bytes -= freed;
                self.queued_bytes -= freed;
                let place = self.arrivals.remove(turn);
                self.note_end(&place.expect("it was looked at"));
                Next::Gone
            }
            Err((behind, what)) => {
                let place = place.clone();
                self.damaged(&place, behind, &what);
                Next::Gone
            }
        }
    }

    /// The next partition that was read to its end, and the offset there; with
    /// `enable.partition.eof`.
    pub fn take_end(&mut self) -> Option<(Place, i64)> {
        self.ends.pop_front()
    }

    pub(super) fn note_end(&mut self, place: &Place) {
        if !self.settings.reports_ends {
            return;
        }
        if let Some(partition) = self.partitions.get_mut(place)
            && let Some(offset) = partition.reached_end()
        {
            self.ends.push_back((place.clone(), offset));
        }
    }

    /// A batch cannot be read: the partition stays where it is, and is fetched again.
    pub(super) fn damaged(&mut self, place: &Place, behind: i64, what: &str) {
        self.drop_queued(place);
        let Some(partition) = self.partitions.get_mut(place) else {
            return;
        };
        self.versions += 1;
        partition.fetch_anew(self.versions, self.now + REFUSED_PAUSE_MS);
        let message = format!(
            "the batch of {}-{} at offset {} cannot be read: {what}. To go on without it seek to \
             offset {behind}",
            place.0, place.1, partition.next_offset
        );
        let error = KafkaError::refused(codes::CORRUPT_MESSAGE, message);
        self.report(Some(place), error);
    }
}
