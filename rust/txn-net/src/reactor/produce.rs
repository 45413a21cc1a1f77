//! Produce: append the batches, wait where an answer has to, answer.
//!
//! A request stops where it has to join a transaction, where large batches have to be opened, and
//! where its turn is over. It goes on here each time, in [`Reactor::go_on_produce`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use txn_protocol::frame::RequestHeader;

use crate::chunk::Chunk;
use crate::connection::{Connection, ConnectionState};
use crate::control::ParkedProduce;
use crate::delayed_produce::{AppendedBatch, DelayedProduce, Promise};
use crate::memory::{Claim, RequestMemory};
use crate::opener::Large;
use crate::produce::{AppendProgress, Join, ProduceRequest, Refused, Unopened};
use crate::purgatory::{DelayedOperation, DelayedResponse, Parked};
use crate::reactor::Reactor;
use crate::reactor::requests::Answered;
use crate::reactor::waiting::UnfinishedRequest;
use crate::token::RequestToken;
use crate::turn::Turn;

/// The body of a Produce.
pub(super) enum Body<'a> {
    /// Bytes of its connection's next frame.
    Lent(&'a mut [u8]),
    Own(Vec<u8>, Claim),
}

impl Body<'_> {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Own(bytes, _) => bytes,
        }
    }

    /// The bytes, to be kept while the connection is without them.
    fn keep(self, memory: &Arc<RequestMemory>) -> (Vec<u8>, Claim) {
        match self {
            Self::Lent(bytes) => (bytes.to_vec(), Claim::of(memory, bytes.len())),
            Self::Own(bytes, claim) => (bytes, claim),
        }
    }
}

impl Reactor {
    pub(super) fn on_produce(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        header: &RequestHeader,
        body: &mut [u8],
    ) -> Answered {
        let mut request = std::mem::take(&mut self.produce);
        if request.parse(body, header.api_version).is_err() {
            return Answered::Never;
        }
        if self.is_for_the_deciding(&request, body.len()) {
            self.produce = request;
            return Answered::InFlight;
        }
        let (correlation_id, body) = (header.correlation_id, Body::Lent(body));
        let answered = self.go_on_produce(slot, connection, correlation_id, &mut request, body);
        self.produce = request;
        answered
    }

    /// Goes on with a Produce until it is answered or has to wait, or its turn is over. It is taken
    /// where it is needed later.
    pub(super) fn go_on_produce(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        correlation_id: i32,
        request: &mut ProduceRequest,
        mut body: Body<'_>,
    ) -> Answered {
        let mut turn = Turn::of(self.shared.options.turn);
        let (access, catalog) = (&self.shared.access, &self.shared.catalog);
        let bytes = body.bytes();
        let is_authorized = !access.is_checked()
            || request.authorize(bytes, catalog, access, connection.sender(), &mut turn);
        let progress = if is_authorized {
            let may_sync = self.may_force(request);
            request.append(bytes, catalog, may_sync, &mut turn)
        } else {
            AppendProgress::TurnOver
        };
        match progress {
            AppendProgress::Done => self.finish(slot, connection, request, bytes, correlation_id),
            AppendProgress::TurnOver => {
                let (body, answered) = match body {
                    Body::Lent(_) => (None, Answered::Unfinished),
                    Body::Own(bytes, claim) => (Some((bytes, claim)), Answered::Yes),
                };
                let request = UnfinishedRequest::Produce(std::mem::take(request), body);
                self.give_way(slot, connection, correlation_id, request);
                answered
            }
            AppendProgress::Parked(join) => {
                let (body, claim) = body.keep(&self.shared.memory);
                let kept = (std::mem::take(request), body, claim);
                self.park(slot, connection, correlation_id, kept, join);
                Answered::Yes
            }
            AppendProgress::Unopened(batches) => {
                let (body, claim) = body.keep(&self.shared.memory);
                let kept = (std::mem::take(request), body, claim);
                self.have_opened(slot, connection, correlation_id, kept, batches);
                Answered::Yes
            }
        }
    }

    /// Has the coordinator decide whether a request's partitions may join.
    fn park(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        correlation_id: i32,
        (request, body, claim): (ProduceRequest, Vec<u8>, Claim),
        join: Join,
    ) {
        let token = self.token(slot);
        let parked = DelayedOperation::Join(Parked {
            correlation_id,
            request,
            body,
            claim,
        });
        let deadline = self.now + self.shared.options.coordinator_timeout;
        let mailbox = Arc::clone(&self.mailbox);
        let response = Box::new(DelayedResponse::new(parked, deadline, token, mailbox));
        self.delay(connection, token, response);
        self.undecided.push_join(ParkedProduce { token, join });
    }

    /// Has a request's batches opened that would take this reactor too long.
    fn have_opened(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        correlation_id: i32,
        (request, body, claim): (ProduceRequest, Vec<u8>, Claim),
        batches: VecDeque<Unopened>,
    ) {
        let token = self.token(slot);
        connection.state = ConnectionState::InFlight {
            token,
            correlation_id,
        };
        self.shared.opener.open(Box::new(Large {
            token,
            mailbox: Arc::clone(&self.mailbox),
            request,
            body,
            claim,
            batches,
            repacked: 0,
        }));
    }

    pub(super) fn on_opened(&mut self, token: RequestToken, opened: Large) {
        let Some(connection) = self.answering(token) else {
            return;
        };
        let ConnectionState::InFlight { correlation_id, .. } = connection.state else {
            return;
        };
        let Large {
            mut request,
            body,
            claim,
            ..
        } = opened;
        let slot = token.slot();
        let Some(mut connection) = self.slots[slot].take() else {
            return;
        };
        connection.state = ConnectionState::Idle;
        let body = Body::Own(body, claim);
        let answered =
            self.go_on_produce(slot, &mut connection, correlation_id, &mut request, body);
        connection.is_closing |= matches!(answered, Answered::Never);
        self.slots[slot] = Some(connection);
        self.drive(slot);
    }

    pub(super) fn resume(&mut self, slot: usize, parked: Parked, refused: &[Refused]) {
        let Parked {
            correlation_id,
            mut request,
            body,
            claim,
        } = parked;
        let Some(mut connection) = self.slots[slot].take() else {
            return;
        };
        if let Some(meter) = &mut connection.meter {
            meter.go_on();
        }
        request.go_on_without(refused);
        let body = Body::Own(body, claim);
        let answered =
            self.go_on_produce(slot, &mut connection, correlation_id, &mut request, body);
        connection.is_closing |= matches!(answered, Answered::Never);
        self.slots[slot] = Some(connection);
    }

    /// True if the answer to a request may have to wait for the disk.
    fn may_force(&self, request: &ProduceRequest) -> bool {
        if self.shared.options.sync_acks_all {
            request.wants_sync()
        } else {
            request.wants_answer() && request.producer_id().is_some()
        }
    }

    /// True if it has to. Asked when everything is appended; see `ForcedProducers`.
    fn must_force(&self, request: &ProduceRequest) -> bool {
        let is_forced = |producer_id| self.shared.forced.contains(producer_id);
        self.shared.options.sync_acks_all || request.producer_id().is_some_and(is_forced)
    }

    /// Answers a Produce whose every partition has its outcome.
    fn finish(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        request: &mut ProduceRequest,
        body: &[u8],
        correlation_id: i32,
    ) -> Answered {
        let now = self.read_clock();
        let metrics = self.metrics();
        request.count(&metrics.produced);
        let throttle = connection.meter.as_ref().map_or(Duration::ZERO, |meter| {
            self.shared
                .client_quotas
                .produced(meter, request.wants_answer())
        });
        let throttle_ms = self.throttle(slot, connection, throttle);
        if !request.wants_answer() {
            let metrics = self.metrics();
            connection.note_end(metrics, now);
            // The client hears of a failure only by losing the connection, as from Kafka.
            return if request.has_failures() {
                Answered::Never
            } else {
                Answered::Yes
            };
        }
        let mut answer = Vec::new();
        let batches = request.encode(body, correlation_id, throttle_ms, &mut answer);
        let promise = Promise {
            is_synced: !batches.is_empty() && self.must_force(request),
            is_replicated: request.wants_replicas(),
        };
        let is_done =
            |one: &AppendedBatch| !promise.is_replicated || one.is_replicated() == Ok(true);
        if !promise.is_synced && batches.iter().all(is_done) {
            connection.push(Chunk::bytes(answer));
            connection.note_answer(self.metrics(), now);
            return Answered::Yes;
        }
        let operation = DelayedOperation::Produce(DelayedProduce::new(answer, batches, promise));
        let token = self.token(slot);
        let deadline = self.now + request.timeout();
        let mailbox = Arc::clone(&self.mailbox);
        let response = Box::new(DelayedResponse::new(operation, deadline, token, mailbox));
        if response.is_ready() {
            if let DelayedOperation::Produce(produce) = response.operation {
                connection.push(Chunk::bytes(produce.complete()));
            }
            return Answered::Yes;
        }
        let waits = response.disk_waits();
        self.delay(connection, token, response);
        for wait in waits {
            let durability = &self.shared.durability;
            durability.when_durable(&wait.log, wait.end, wait.on_durable);
        }
        Answered::Yes
    }
}
