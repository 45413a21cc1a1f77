//! A connection's turn: it sends queued answers, then looks at the next frame, then reads.
//!
//! A turn begins after every event that may let the connection go on. It ends after
//! [`TURN_FRAMES`] frames or [`Options::turn`](crate::options::Options::turn). A connection that
//! has more to do gets another turn when the others had theirs.

use std::io;
use std::time::{Duration, Instant};

use txn_protocol::frame::Front;

use crate::connection::{Connection, Fill, Flush};
use crate::mailbox::Message;
use crate::reactor::Reactor;
use crate::reactor::requests::Answered;
use crate::shared::DECIDING;

/// Frames of one connection answered before others have their turn.
const TURN_FRAMES: usize = 32;
/// Reads of one connection before others have their turn.
const TURN_READS: usize = 64;
/// A connection whose client has left is closed if it is muted for longer. Shorter ones are read
/// again: a producer without acknowledgements writes and leaves.
const LEFT_MUTE_MAX: Duration = Duration::from_secs(30);

/// What to do with a connection after its turn.
enum TurnOutcome {
    Keep,
    /// It has more to do at once.
    Again,
    Close,
    /// Another reactor serves it from now on.
    Move,
}

/// The state of a connection's next frame.
enum NextFrame {
    Whole,
    /// It is not all there yet, or has to wait for memory.
    Partial,
    /// More of it may be there, and others have their turn first.
    TurnOver,
}

impl Reactor {
    /// Goes on with the connections that gave up their turn.
    pub(super) fn resume_ready(&mut self) {
        for slot in std::mem::take(&mut self.queues.again) {
            if let Some(connection) = self.connection(slot) {
                connection.is_listed = false;
                self.drive(slot);
            }
        }
    }

    pub(super) fn on_socket(&mut self, slot: usize, event: &mio::event::Event) {
        let Some(connection) = self.connection(slot) else {
            return;
        };
        connection.is_readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        if event.is_read_closed() {
            connection.is_half_closed = true;
            connection.presence.end();
        }
        let is_broken = event.is_error() || (event.is_read_closed() && event.is_write_closed());
        // A client that waits for bytes and sends no more has gone. Other requests are answered
        // first: acks=0 producers write and leave.
        let has_left = connection.is_half_closed && connection.waits_for_bytes();
        let is_read = connection.is_idle() && !connection.is_muted(); // it finds out by itself
        if has_left || (is_broken && !is_read) {
            self.close_slot(slot);
        } else {
            self.drive(slot);
        }
    }

    /// Gives a connection its turn.
    pub(super) fn drive(&mut self, slot: usize) {
        self.guarded(slot, |reactor| reactor.give_turn(slot));
    }

    fn give_turn(&mut self, slot: usize) {
        let Some(mut connection) = self.slots.connections.get_mut(slot).and_then(Option::take)
        else {
            return;
        };
        match self.take_turn(slot, &mut connection) {
            TurnOutcome::Close => self.forget(slot, &mut connection),
            TurnOutcome::Move => self.hand_over(slot, connection),
            outcome => {
                connection.note_moved(self.clock.now);
                connection.settle(&mut self.buffers);
                if matches!(outcome, TurnOutcome::Again) && !connection.is_listed {
                    connection.is_listed = true;
                    self.queues.again.push(slot);
                }
                self.slots.connections[slot] = Some(connection);
            }
        }
    }

    fn take_turn(&mut self, slot: usize, connection: &mut Connection) -> TurnOutcome {
        if !connection.is_established {
            if self.clock.stop_at.is_some() {
                return TurnOutcome::Close;
            }
            if !connection.is_shaking {
                connection.is_shaking = true;
                self.queues.handshakes.push_back(slot);
            }
            return TurnOutcome::Keep;
        }
        let began = self.clock.now;
        for _ in 0..TURN_FRAMES {
            let goes_on = connection.is_idle()
                && !connection.is_closing
                && !connection.is_muted()
                && self.clock.stop_at.is_none();
            let max_bytes = self.max_request_bytes(connection);
            if !(goes_on && connection.holds_answer(max_bytes)) {
                let flushed = self.flush(connection);
                self.note_sent(connection, matches!(flushed, Ok(Flush::Done)));
                match flushed {
                    Ok(Flush::Done) if connection.is_closing => return TurnOutcome::Close,
                    Ok(Flush::Done) => {}
                    Ok(Flush::Blocked) => return TurnOutcome::Keep,
                    Ok(Flush::TurnOver) => return TurnOutcome::Again,
                    Err(_) => return TurnOutcome::Close,
                }
            }
            if !connection.is_idle() {
                return TurnOutcome::Keep;
            }
            if self.clock.stop_at.is_some() {
                return TurnOutcome::Close;
            }
            if connection.is_muted() {
                let has_left = connection.is_half_closed
                    && connection.is_muted_beyond(self.clock.now + LEFT_MUTE_MAX);
                return if has_left {
                    TurnOutcome::Close
                } else {
                    TurnOutcome::Keep
                };
            }
            match self.next_frame(slot, connection) {
                Ok(NextFrame::Whole) => {}
                Ok(NextFrame::Partial) => return TurnOutcome::Keep,
                Ok(NextFrame::TurnOver) => return TurnOutcome::Again,
                Err(_) => return TurnOutcome::Close,
            }
            match self.answer_front(slot, connection) {
                Answered::Yes | Answered::Unfinished => {}
                Answered::Never => {
                    connection.is_closing = true; // once it has the answers to earlier requests
                    continue;
                }
                Answered::InFlight => return TurnOutcome::Move,
            }
            if connection.has_answer() && !connection.has_more() {
                return TurnOutcome::Again; // nothing to read: its answer is sent with those of others
            }
            if self.clock.now.duration_since(began) >= self.shared.options.turn {
                return TurnOutcome::Again; // its request has read the clock
            }
        }
        TurnOutcome::Again
    }

    /// Sends queued answers, which costs the client of a quota its time.
    fn flush(&self, connection: &mut Connection) -> io::Result<Flush> {
        let is_timed = connection
            .meter
            .as_ref()
            .is_some_and(|one| one.counts_time());
        if !is_timed || !connection.has_answer() {
            return connection.flush();
        }
        let began = Instant::now();
        let flushed = connection.flush();
        if let Some(meter) = &connection.meter {
            self.shared.client_quotas.sent(meter, began.elapsed());
        }
        flushed
    }

    /// Counts the bytes that a connection has sent; `is_done`: all of its answers.
    fn note_sent(&mut self, connection: &mut Connection, is_done: bool) {
        let bytes = std::mem::take(&mut connection.sent_bytes);
        if bytes > 0 {
            let sockets = &self.metrics().sockets[connection.listener];
            sockets.bytes_sent.add_alone(bytes as u64);
            if is_done {
                connection.note_progress(self.clock.now);
            }
        }
        if is_done && !connection.unsent.is_empty() {
            let now = self.read_clock();
            let metrics = self.metrics();
            for marks in connection.unsent.drain(..) {
                metrics.sent(&marks, now);
            }
        }
    }

    /// Reads until the next frame is whole, or its turn is over.
    fn next_frame(&mut self, slot: usize, connection: &mut Connection) -> io::Result<NextFrame> {
        let max_bytes = self.max_request_bytes(connection);
        for _ in 0..TURN_READS {
            match connection.front(max_bytes) {
                Front::Whole(_) => return Ok(NextFrame::Whole),
                Front::Refused => {
                    self.report_length(connection, max_bytes);
                    return Err(io::ErrorKind::InvalidData.into());
                }
                Front::Partial { .. } if !connection.is_readable => return Ok(NextFrame::Partial),
                Front::Partial { .. } if !self.has_memory(slot, connection) => {
                    return Ok(NextFrame::Partial);
                }
                Front::Partial { missing } => match connection.fill(missing, &mut self.buffers)? {
                    Fill::Some => {}
                    Fill::Blocked => return Ok(NextFrame::Partial),
                    Fill::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
                },
            }
        }
        Ok(NextFrame::TurnOver)
    }

    /// The largest request of a connection: small while nobody knows the client.
    pub(super) fn max_request_bytes(&self, connection: &Connection) -> usize {
        let options = &self.shared.options;
        if connection.authentication.is_needed() {
            options.max_sasl_bytes.min(options.max_request_bytes)
        } else {
            options.max_request_bytes
        }
    }

    /// True if a connection may read its request; one that may not is driven when it may.
    fn has_memory(&mut self, slot: usize, connection: &mut Connection) -> bool {
        // A stranger's request is small, and would keep the memory for as long as it is silent.
        let is_stranger = connection.authentication.is_needed();
        let may_read = is_stranger || connection.begin_reading(self.index, self.clock.now);
        if may_read && connection.is_starved {
            self.queues.starved.retain(|&other| other != slot); // it was faster than its turn
        } else if !may_read && !connection.is_starved {
            self.queues.starved.push_back(slot);
        }
        connection.is_starved = !may_read;
        may_read
    }

    /// Lets connections read that waited for memory, as long as there is some.
    pub(super) fn on_memory_freed(&mut self) {
        let now = self.clock.now;
        for _ in 0..self.queues.starved.len() {
            if !self.shared.memory.may_begin(self.index) {
                return;
            }
            let Some(slot) = self.queues.starved.pop_front() else {
                return;
            };
            if let Some(connection) = self.connection(slot) {
                connection.is_starved = false;
                connection.note_progress(now);
                self.drive(slot);
            }
        }
    }

    /// Leaves a connection, whose next frame is whole, to the reactor that decides.
    fn hand_over(&mut self, slot: usize, mut connection: Box<Connection>) {
        // It fails only for a socket that was never registered.
        let _ = self.poll.registry().deregister(connection.socket_mut());
        connection.settle(&mut self.buffers);
        connection.is_listed = false;
        self.leave(slot);
        self.shared.mailboxes[DECIDING].post(Message::Moved(connection));
    }
}
