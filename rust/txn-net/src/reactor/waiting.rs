//! Requests that wait: in the purgatory for a condition, or in line for another turn.
//!
//! One request that takes longer than a turn gives way between two of its names or batches. Its
//! frame stays in the connection's buffer. All such requests together have one turn
//! ([`Reactor::finish_some`]), and then everybody else has theirs.

use std::time::Instant;

use txn_protocol::frame::{Front, RequestHeader};

use crate::chunk::Chunk;
use crate::connection::{Connection, ConnectionState};
use crate::fetch::FetchRequest;
use crate::memory::Claim;
use crate::produce::{ProduceRequest, Refused};
use crate::purgatory::{DelayedOperation, DelayedResponse};
use crate::reactor::Reactor;
use crate::reactor::produce::Body;
use crate::reactor::requests::Answered;
use crate::token::RequestToken;

/// A request that took its turn and is not answered.
pub(super) struct Unfinished {
    token: RequestToken,
    correlation_id: i32,
    request: UnfinishedRequest,
}

pub(super) enum UnfinishedRequest {
    /// A Fetch that was not looked at: its connection's next frame.
    LargeFetch,
    Fetch(FetchRequest),
    /// A Produce; its body, unless that is its connection's next frame.
    Produce(ProduceRequest, Option<(Vec<u8>, Claim)>),
}

impl Reactor {
    /// Lets a request wait; it is rechecked when its watcher is called, and at its deadline.
    pub(super) fn delay(
        &mut self,
        connection: &mut Connection,
        token: RequestToken,
        response: Box<DelayedResponse>,
    ) {
        if !matches!(response.operation, DelayedOperation::Join(_)) {
            connection.note_decision(self.now);
        }
        if let Some(meter) = &mut connection.meter {
            meter.pause();
        }
        response.operation.gauge(self.metrics()).rise();
        let deadline = response.deadline;
        connection.state = ConnectionState::Delayed { token, response };
        self.push_deadline(deadline, token);
    }

    pub(super) fn push_deadline(&mut self, deadline: Instant, token: RequestToken) {
        self.deadlines.push(deadline, token);
        let slots = &self.slots;
        self.deadlines.tidy(|old| {
            old.slot() == token.slot() // its connection may be out of its slot, for its turn
                || slots[old.slot()]
                    .as_ref()
                    .is_some_and(|one| one.awaits(old))
        });
    }

    /// Counts a request that left the purgatory.
    pub(super) fn note_left(&mut self, operation: &DelayedOperation) {
        operation.gauge(self.metrics()).fall();
    }

    /// Takes a connection's request out of the purgatory, if it lies there.
    fn leave_purgatory(&mut self, slot: usize) -> Option<DelayedOperation> {
        let connection = self.slots[slot].as_deref_mut()?;
        match std::mem::take(&mut connection.state) {
            ConnectionState::Delayed { response, .. } => {
                self.note_left(&response.operation);
                Some(response.operation)
            }
            other => {
                connection.state = other;
                None
            }
        }
    }

    /// Answers a delayed request with its outcome so far.
    pub(super) fn complete(&mut self, slot: usize) {
        let Some(operation) = self.leave_purgatory(slot) else {
            return;
        };
        match operation {
            DelayedOperation::Fetch(mut request) => {
                if request.is_outdated() {
                    request.refresh(&self.shared.catalog);
                }
                if let Some(mut connection) = self.slots[slot].take() {
                    if let Some(meter) = &mut connection.meter {
                        meter.go_on();
                    }
                    self.push_fetched(slot, &mut connection, &request);
                    self.slots[slot] = Some(connection);
                }
            }
            DelayedOperation::Produce(produce) => {
                self.push(slot, Chunk::bytes(produce.complete()));
            }
            DelayedOperation::Join(mut parked) => {
                parked.request.fail_pending();
                self.resume(slot, parked, &[]);
            }
        }
        self.drive(slot);
    }

    fn push(&mut self, slot: usize, chunk: Chunk) {
        let metrics = &self.shared.metrics[self.index];
        if let Some(connection) = self.slots[slot].as_deref_mut() {
            connection.push(chunk);
            connection.note_answer(metrics, self.now);
        }
    }

    /// Completes a delayed response that is ready, or whose deadline has passed.
    pub(super) fn on_recheck(&mut self, token: RequestToken) {
        let now = self.now;
        let Some(connection) = self.answering(token) else {
            return;
        };
        let ConnectionState::Delayed { response, .. } = &mut connection.state else {
            return;
        };
        if now >= response.deadline {
            self.complete(token.slot());
        } else if let Some(until) = response.rests_until(now) {
            let until = until.min(response.deadline);
            self.deadlines.push(until, token);
        } else if response.is_ready_now(now) {
            self.complete(token.slot());
        }
    }

    pub(super) fn on_topics_changed(&mut self) {
        for slot in 0..self.slots.len() {
            let Some(connection) = self.connection(slot) else {
                continue;
            };
            let ConnectionState::Delayed { response, .. } = &connection.state else {
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
        for slot in 0..self.slots.len() {
            let Some(connection) = self.connection(slot) else {
                continue;
            };
            if let ConnectionState::Delayed { token, .. } = connection.state {
                self.guarded(slot, |reactor| reactor.on_recheck(token));
            }
        }
    }

    pub(super) fn on_resume(&mut self, token: RequestToken, refused: &[Refused]) {
        let Some(connection) = self.answering(token) else {
            return;
        };
        let is_parked = matches!(
            &connection.state,
            ConnectionState::Delayed { response, .. }
                if matches!(response.operation, DelayedOperation::Join(_))
        );
        if is_parked
            && let Some(DelayedOperation::Join(parked)) = self.leave_purgatory(token.slot())
        {
            self.resume(token.slot(), parked, refused);
            self.drive(token.slot());
        }
    }

    /// Has a request go on after others have had their turn.
    pub(super) fn give_way(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        correlation_id: i32,
        request: UnfinishedRequest,
    ) {
        if let Some(meter) = &mut connection.meter {
            meter.pause();
        }
        let token = self.token(slot);
        connection.state = ConnectionState::InFlight {
            token,
            correlation_id,
        };
        self.unfinished.push_back(Unfinished {
            token,
            correlation_id,
            request,
        });
    }

    /// Goes on with requests that gave way, for as long as others may wait for them.
    pub(super) fn finish_some(&mut self) {
        let began = self.now;
        while let Some(unfinished) = self.unfinished.pop_front() {
            let slot = unfinished.token.slot();
            self.guarded(slot, |reactor| reactor.go_on_with(unfinished));
            if self.read_clock().duration_since(began) >= self.shared.options.turn {
                return;
            }
        }
    }

    fn go_on_with(&mut self, unfinished: Unfinished) {
        let Unfinished {
            token,
            correlation_id,
            request,
        } = unfinished;
        if self.answering(token).is_none() {
            return; // its connection was closed
        }
        let slot = token.slot();
        let Some(mut connection) = self.slots[slot].take() else {
            return;
        };
        connection.state = ConnectionState::Idle;
        if let Some(meter) = &mut connection.meter {
            meter.go_on();
        }
        let answered = match request {
            UnfinishedRequest::Fetch(request) => {
                self.go_on_fetch(slot, &mut connection, request);
                Answered::Yes
            }
            UnfinishedRequest::Produce(mut request, Some((body, claim))) => {
                let body = Body::Own(body, claim);
                self.go_on_produce(slot, &mut connection, correlation_id, &mut request, body)
            }
            UnfinishedRequest::Produce(request, None) => {
                self.go_on_with_front(slot, &mut connection, Some(request))
            }
            UnfinishedRequest::LargeFetch => self.go_on_with_front(slot, &mut connection, None),
        };
        connection.is_closing |= matches!(answered, Answered::Never);
        self.slots[slot] = Some(connection);
        self.drive(slot);
    }

    /// Goes on with a Produce, or begins with a Fetch, whose frame is its connection's next.
    fn go_on_with_front(
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
                self.go_on_produce(slot, connection, id, &mut request, body)
            }
            None => self.begin_fetch(slot, connection, &header, body),
        };
        let is_left = matches!(answered, Answered::Unfinished);
        connection.put_back(input, if is_left { start } else { end });
        answered
    }
}
