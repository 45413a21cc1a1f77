//! Requests that wait: in the purgatory for a condition, or in line for another turn.
//!
//! One request that takes longer than a turn gives way between two of its names or batches. Its
//! frame stays in the connection's buffer. All such requests together have one turn
//! ([`Reactor::finish_some`]), and then everybody else has theirs.

use std::time::Instant;

use txn_protocol::frame::{Front, RequestHeader};

use crate::chunk::Chunk;
use crate::connection::Connection;
use crate::kept_produce::Body;
use crate::produce::{ProduceRequest, Refused};
use crate::purgatory::{DelayedOperation, DelayedResponse};
use crate::reactor::Reactor;
use crate::reactor::requests::Answered;
use crate::token::RequestToken;
use crate::waiting::{Reason, Unfinished, Waiting};

impl Reactor {
    /// Lets a request wait; it is rechecked when its watcher is called, and at its deadline.
    pub(super) fn delay(
        &mut self,
        connection: &mut Connection,
        token: RequestToken,
        correlation_id: i32,
        response: Box<DelayedResponse>,
    ) {
        if !matches!(response.operation, DelayedOperation::Join(_)) {
            connection.note_decision(self.clock.now);
        }
        if let Some(meter) = &mut connection.meter {
            meter.pause();
        }
        response.operation.gauge(self.metrics()).rise();
        let deadline = response.deadline;
        connection.waiting = Some(Waiting {
            token,
            correlation_id,
            reason: Reason::Condition(response),
        });
        self.push_deadline(deadline, token);
    }

    pub(super) fn push_deadline(&mut self, deadline: Instant, token: RequestToken) {
        self.clock.deadlines.push(deadline, token);
        let slots = &self.slots.connections;
        self.clock.deadlines.tidy(|old| {
            old.slot() == token.slot() // its connection may be out of its slot, for its turn
                || slots[old.slot()]
                    .as_ref()
                    .is_some_and(|one| one.awaits(old))
        });
    }

    /// Counts a request that left the purgatory.
    fn note_left(&self, operation: &DelayedOperation) {
        operation.gauge(self.metrics()).fall();
    }

    /// Counts a request whose connection does not wait for its answer any more.
    pub(super) fn abandon(&self, waiting: &Waiting) {
        if let Some(response) = waiting.delayed() {
            self.note_left(&response.operation);
        }
    }

    /// Takes a connection's request out of the purgatory, if it lies there; with its correlation id.
    fn leave_purgatory(&mut self, slot: usize) -> Option<(i32, DelayedOperation)> {
        let connection = self.slots.connections[slot].as_deref_mut()?;
        let Waiting {
            reason,
            correlation_id,
            ..
        } = connection
            .waiting
            .take_if(|waiting| waiting.delayed().is_some())?;
        let Reason::Condition(response) = reason else {
            return None;
        };
        self.note_left(&response.operation);
        Some((correlation_id, response.operation))
    }

    /// Answers a delayed request with its outcome so far.
    pub(super) fn complete(&mut self, slot: usize) {
        let Some((correlation_id, operation)) = self.leave_purgatory(slot) else {
            return;
        };
        match operation {
            DelayedOperation::Fetch(mut request) => {
                if request.is_outdated() {
                    request.refresh(&self.shared.catalog);
                }
                if let Some(mut connection) = self.slots.connections[slot].take() {
                    if let Some(meter) = &mut connection.meter {
                        meter.resume();
                    }
                    self.push_fetched(slot, &mut connection, &request);
                    self.slots.connections[slot] = Some(connection);
                }
            }
            DelayedOperation::Produce(produce) => {
                self.push(slot, Chunk::bytes(produce.complete()));
            }
            DelayedOperation::Join(mut kept) => {
                kept.request.fail_pending();
                self.resume(slot, correlation_id, kept, &[]);
            }
        }
        self.drive(slot);
    }

    fn push(&mut self, slot: usize, chunk: Chunk) {
        let metrics = &self.shared.metrics[self.index];
        if let Some(connection) = self.slots.connections[slot].as_deref_mut() {
            connection.push(chunk);
            connection.note_answer(metrics, self.clock.now);
        }
    }

    /// Completes a delayed response that is ready, or whose deadline has passed.
    pub(super) fn on_recheck(&mut self, token: RequestToken) {
        let now = self.clock.now;
        let Some(connection) = self.answering(token) else {
            return;
        };
        let Some(response) = connection.waiting.as_mut().and_then(Waiting::delayed_mut) else {
            return;
        };
        if now >= response.deadline {
            self.complete(token.slot());
        } else if let Some(until) = response.rests_until(now) {
            let until = until.min(response.deadline);
            self.clock.deadlines.push(until, token);
        } else if response.is_ready_now(now) {
            self.complete(token.slot());
        }
    }

    pub(super) fn on_topics_changed(&mut self) {
        for slot in 0..self.slots.connections.len() {
            let Some(connection) = self.connection(slot) else {
                continue;
            };
            let Some(response) = connection.waiting.as_ref().and_then(Waiting::delayed) else {
                continue;
            };
            if matches!(
                &response.operation,
                DelayedOperation::Fetch(request) if request.is_outdated()
            ) {
                self.complete(slot);
            }
        }
    }

    /// Rechecks every delayed response.
    pub(super) fn on_role_changed(&mut self) {
        for slot in 0..self.slots.connections.len() {
            let Some(connection) = self.connection(slot) else {
                continue;
            };
            if let Some(waiting) = &connection.waiting {
                let token = waiting.token;
                self.guarded(slot, |reactor| reactor.on_recheck(token));
            }
        }
    }

    pub(super) fn on_resume(&mut self, token: RequestToken, refused: &[Refused]) {
        let Some(connection) = self.answering(token) else {
            return;
        };
        let waiting = connection.waiting.as_ref();
        let is_parked = waiting
            .and_then(Waiting::delayed)
            .is_some_and(|one| matches!(one.operation, DelayedOperation::Join(_)));
        if is_parked
            && let Some((correlation_id, DelayedOperation::Join(kept))) =
                self.leave_purgatory(token.slot())
        {
            self.resume(token.slot(), correlation_id, kept, refused);
            self.drive(token.slot());
        }
    }

    /// Continues a request after the other connections had their turns.
    pub(super) fn give_way(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        correlation_id: i32,
        unfinished: Unfinished,
    ) {
        if let Some(meter) = &mut connection.meter {
            meter.pause();
        }
        let token = self.token(slot);
        connection.waiting = Some(Waiting {
            token,
            correlation_id,
            reason: Reason::Turn(Box::new(unfinished)),
        });
        self.queues.unfinished.push_back(token);
    }

    /// Goes on with requests that gave way, for as long as others may wait for them.
    pub(super) fn finish_some(&mut self) {
        let began = self.clock.now;
        while let Some(token) = self.queues.unfinished.pop_front() {
            self.guarded(token.slot(), |reactor| reactor.take_next_turn(token));
            if self.read_clock().duration_since(began) >= self.shared.options.turn {
                return;
            }
        }
    }

    fn take_next_turn(&mut self, token: RequestToken) {
        if self.answering(token).is_none() {
            return; // its connection was closed
        }
        let slot = token.slot();
        let Some(mut connection) = self.slots.connections[slot].take() else {
            return;
        };
        let Some(Waiting {
            correlation_id,
            reason: Reason::Turn(unfinished),
            ..
        }) = connection.waiting.take()
        else {
            unreachable!("a token in this line names a request that waits for its turn")
        };
        if let Some(meter) = &mut connection.meter {
            meter.resume();
        }
        let answered = match *unfinished {
            Unfinished::Fetch(request) => {
                self.continue_fetch(slot, &mut connection, request);
                Answered::Yes
            }
            Unfinished::Produce(kept) => {
                let (mut request, body) = kept.into_parts();
                self.continue_produce(slot, &mut connection, correlation_id, &mut request, body)
            }
            Unfinished::FrontProduce(request) => {
                self.resume_front(slot, &mut connection, Some(request))
            }
            Unfinished::LargeFetch => self.resume_front(slot, &mut connection, None),
        };
        connection.is_closing |= matches!(answered, Answered::Never);
        self.slots.connections[slot] = Some(connection);
        self.drive(slot);
    }

    /// Goes on with a Produce, or begins with a Fetch, whose frame is its connection's next.
    fn resume_front(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        produce: Option<ProduceRequest>,
    ) -> Answered {
        let Front::Whole(frame) = connection.front(self.max_request_bytes(connection)) else {
            unreachable!("it was whole, and nothing was read since")
        };
        let (mut input, start) = connection.lend();
        let end = start + frame.end;
        let frame = &mut input[start + frame.start..end];
        let header = RequestHeader::parse(frame).expect("it was parsed before");
        let body = &mut frame[header.body..];
        let answered = match produce {
            Some(mut request) => {
                let (id, body) = (header.correlation_id, Body::Lent(body));
                self.continue_produce(slot, connection, id, &mut request, body)
            }
            None => self.begin_fetch(slot, connection, &header, body),
        };
        let is_left = matches!(answered, Answered::Unfinished);
        connection.put_back(input, if is_left { start } else { end });
        answered
    }
}
