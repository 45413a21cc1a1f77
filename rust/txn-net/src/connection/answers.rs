//! The answers of a connection that are not sent yet.
//!
//! # Invariant
//! Answers leave in the order in which they are queued. Small ones that are ready together leave
//! together.

use std::io;
use std::time::Instant;

use txn_protocol::frame::Front;

use super::{Connection, Flush};
use crate::chunk::Chunk;
use crate::metrics::{Marks, ReactorMetrics};

/// Answers with fewer bytes wait for those of the frames that came with theirs.
pub(super) const HELD_ANSWER_BYTES: usize = 4 << 10;
/// Frames that may hold an answer up: those that are handled in a moment.
pub(super) const HOLDING_FRAME_BYTES: usize = 16 << 10;

impl Connection {
    /// True if an answer is queued.
    pub fn has_answer(&self) -> bool {
        !self.output.is_empty()
    }

    /// Queues a part of an answer; small ones are sent as one.
    pub fn push(&mut self, chunk: Chunk) {
        self.output_bytes += chunk.held();
        if let Some(Chunk::Bytes { data: queued, .. }) = self.output.back_mut()
            && let Chunk::Bytes { data, at: 0 } = &chunk
            && queued.len() + data.len() <= HELD_ANSWER_BYTES
        {
            queued.extend_from_slice(data);
        } else {
            if self.output.is_empty() {
                self.output.reserve_exact(1); // of its own accord it takes four, and keeps them
            }
            self.output.push_back(chunk);
        }
    }

    /// The request under way is decided; its answer has to wait.
    pub fn note_decision(&mut self, now: Instant) {
        if let Some(marks) = &mut self.marks {
            marks.decide(now);
        }
    }

    /// The answer to the request under way is queued, ready since `ready`.
    pub fn note_answer(&mut self, metrics: &ReactorMetrics, ready: Instant) {
        self.note_progress(ready);
        if let Some(marks) = self.end(metrics, ready) {
            if self.unsent.is_empty() {
                self.unsent.reserve_exact(1); // as `output` does
            }
            self.unsent.push(marks);
        }
    }

    /// The request under way is done, and has no answer.
    pub fn note_end(&mut self, metrics: &ReactorMetrics, ready: Instant) {
        self.note_progress(ready);
        self.end(metrics, ready);
    }

    fn end(&mut self, metrics: &ReactorMetrics, ready: Instant) -> Option<Marks> {
        let mut marks = self.marks.take()?;
        marks.note_ready(ready);
        metrics.answered(&marks);
        Some(marks)
    }

    /// True if the queued answer is better sent with the answer to the next frame: that is here,
    /// and neither is large.
    pub fn holds_answer(&self, max_request_bytes: usize) -> bool {
        self.output.len() == 1
            && self.output[0].left() < HELD_ANSWER_BYTES
            && matches!(
                self.front(max_request_bytes),
                Front::Whole(frame) if frame.len() <= HOLDING_FRAME_BYTES
            )
    }

    /// Sends queued answers, as far as the socket takes them.
    ///
    /// # Errors
    /// The connection is broken, or a segment is shorter than it was; close it.
    pub fn flush(&mut self) -> io::Result<Flush> {
        let mut sent = 0;
        let sent_max = self.transport.flush_bytes_max();
        while !self.output.is_empty() {
            if sent >= sent_max {
                return Ok(Flush::TurnOver);
            }
            let more = self.output.len() > 1;
            let chunk = self.output.front_mut().expect("it is not empty");
            match chunk.send(&mut self.transport, more) {
                Ok(bytes) => {
                    sent += bytes;
                    self.sent_bytes += bytes;
                    self.moved_bytes += bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Flush::Blocked);
                }
                Err(error) => return Err(error),
            }
            if chunk.left() > 0 {
                continue;
            }
            self.output_bytes -= chunk.held();
            self.output.pop_front();
        }
        match self.transport.flush() {
            Ok(()) => Ok(Flush::Done),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Flush::Blocked),
            Err(error) => Err(error),
        }
    }
}
