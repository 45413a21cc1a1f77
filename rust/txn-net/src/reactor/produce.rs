//! Produce: append the batches, wait where an answer has to, answer.
//!
//! A request stops where it has to join a transaction, where large batches have to be opened, and
//! where its turn is over. It goes on here each time, in [`Reactor::go_on_produce`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use txn_protocol::frame::RequestHeader;

use crate::chunk::Chunk;
use crate::connection::Connection;
use crate::control::ParkedProduce;
use crate::delayed_produce::{AppendedBatch, DelayedProduce, Promise};
use crate::kept_produce::{Body, KeptProduce};
use crate::opener::Large;
use crate::produce::{AppendProgress, Join, ProduceRequest, Refused, Unopened};
use crate::purgatory::{DelayedOperation, DelayedResponse};
use crate::reactor::Reactor;
use crate::reactor::requests::Answered;
use crate::token::RequestToken;
use crate::turn::Turn;
use crate::waiting::{Reason, Unfinished, Waiting};

impl Reactor {
    pub(super) fn on_produce(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        header: &RequestHeader,
        body: &mut [u8],
    ) -> Answered {
        let mut request = std::mem::take(&mut self.produce);
        if let Err(malformed) = request.parse(body, header.api_version) {
            let (api_key, api_version) = (header.api_key, header.api_version);
            return self.refuse_body(connection, api_key, api_version, malformed);
        }
        if self.is_for_the_deciding(&request, body.len()) {
            self.produce = request;
            return Answered::InFlight;
        }
        let (correlation_id, body) = (header.correlation_id, Body::Lent(body));
        let answered = self.continue_produce(slot, connection, correlation_id, &mut request, body);
        self.produce = request;
        answered
    }

    /// Goes on with a Produce until it is answered or has to wait, or its turn is over. It is taken
    /// where it is needed later.
    pub(super) fn continue_produce(
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
            let may_sync = self.may_sync(request);
            request.append(bytes, catalog, may_sync, &mut turn)
        } else {
            AppendProgress::TurnOver
        };
        match progress {
            AppendProgress::Done => self.finish(slot, connection, request, bytes, correlation_id),
            AppendProgress::TurnOver => {
                let request = std::mem::take(request);
                let (unfinished, answered) = match body {
                    Body::Lent(_) => (Unfinished::FrontProduce(request), Answered::Unfinished),
                    Body::Own(..) => {
                        let kept = body.keep(request, &self.shared.memory);
                        (Unfinished::Produce(kept), Answered::Yes)
                    }
                };
                self.give_way(slot, connection, correlation_id, unfinished);
                answered
            }
            AppendProgress::Parked(join) => {
                let kept = body.keep(std::mem::take(request), &self.shared.memory);
                self.park(slot, connection, correlation_id, kept, join);
                Answered::Yes
            }
            AppendProgress::Unopened(batches) => {
                let kept = body.keep(std::mem::take(request), &self.shared.memory);
                self.hand_to_opener(slot, connection, correlation_id, kept, batches);
                Answered::Yes
            }
        }
    }

    /// Parks a request until the coordinator has decided whether its partitions may join.
    fn park(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        correlation_id: i32,
        kept: KeptProduce,
        join: Join,
    ) {
        let token = self.token(slot);
        let parked = DelayedOperation::Join(kept);
        let deadline = self.clock.now + self.shared.options.coordinator_timeout;
        let mailbox = Arc::clone(&self.mailbox);
        let response = Box::new(DelayedResponse::new(parked, deadline, token, mailbox));
        self.delay(connection, token, correlation_id, response);
        self.undecided.push_join(ParkedProduce { token, join });
    }

    /// Parks a request until other threads have decompressed its large batches.
    fn hand_to_opener(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        correlation_id: i32,
        kept: KeptProduce,
        batches: VecDeque<Unopened>,
    ) {
        let token = self.token(slot);
        connection.waiting = Some(Waiting {
            token,
            correlation_id,
            reason: Reason::Opening,
        });
        self.shared.opener.open(Box::new(Large {
            token,
            mailbox: Arc::clone(&self.mailbox),
            produce: kept,
            batches,
            repacked: 0,
        }));
    }

    pub(super) fn on_opened(&mut self, token: RequestToken, opened: Large) {
        let is_opening = |waiting: &mut Waiting| matches!(waiting.reason, Reason::Opening);
        let Some(connection) = self.answering(token) else {
            return;
        };
        let Some(waiting) = connection.waiting.take_if(is_opening) else {
            return;
        };
        self.continue_kept_produce(token.slot(), waiting.correlation_id, opened.produce);
        self.drive(token.slot());
    }

    /// Goes on with a request that joined its transaction, but for the partitions that may not.
    pub(super) fn resume(
        &mut self,
        slot: usize,
        correlation_id: i32,
        mut kept: KeptProduce,
        refused: &[Refused],
    ) {
        if let Some(connection) = self.connection(slot)
            && let Some(meter) = &mut connection.meter
        {
            meter.resume();
        }
        kept.request.continue_without(refused);
        self.continue_kept_produce(slot, correlation_id, kept);
    }

    /// Goes on with a Produce that its connection was without.
    fn continue_kept_produce(&mut self, slot: usize, correlation_id: i32, kept: KeptProduce) {
        let Some(mut connection) = self.slots.connections[slot].take() else {
            return;
        };
        let (mut request, body) = kept.into_parts();
        let answered =
            self.continue_produce(slot, &mut connection, correlation_id, &mut request, body);
        connection.is_closing |= matches!(answered, Answered::Never);
        self.slots.connections[slot] = Some(connection);
    }

    /// True if the answer to a request may have to wait for the disk.
    fn may_sync(&self, request: &ProduceRequest) -> bool {
        if self.shared.options.sync_acks_all {
            request.wants_sync()
        } else {
            request.wants_answer() && request.producer_id().is_some()
        }
    }

    /// True if it has to. Asked when everything is appended; see `ForcedProducers`.
    fn must_sync(&self, request: &ProduceRequest) -> bool {
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
            return match request.first_failure(body) {
                Some((code, reason)) => {
                    self.report_unacknowledged(connection, request.version(), code, reason);
                    Answered::Never
                }
                None => Answered::Yes,
            };
        }
        let mut answer = Vec::new();
        let batches = request.encode(body, correlation_id, throttle_ms, &mut answer);
        let promise = Promise {
            is_synced: !batches.is_empty() && self.must_sync(request),
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
        let deadline = self.clock.now + request.timeout();
        let mailbox = Arc::clone(&self.mailbox);
        let response = Box::new(DelayedResponse::new(operation, deadline, token, mailbox));
        if response.is_ready() {
            if let DelayedOperation::Produce(produce) = response.operation {
                connection.push(Chunk::bytes(produce.complete()));
                connection.note_answer(self.metrics(), now);
            }
            return Answered::Yes;
        }
        let waits = response.disk_waits();
        self.delay(connection, token, correlation_id, response);
        for wait in waits {
            let durability = &self.shared.durability;
            durability.when_durable(&wait.log, wait.end, wait.on_durable);
        }
        Answered::Yes
    }
}
