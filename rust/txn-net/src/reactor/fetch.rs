//! Fetch: answer with the bytes there are, or wait for enough of them.

use std::sync::Arc;
use std::time::Duration;

use txn_protocol::frame::RequestHeader;

use crate::chunk::Chunk;
use crate::connection::Connection;
use crate::fetch::{FetchRequest, Readiness};
use crate::purgatory::{DelayedOperation, DelayedResponse};
use crate::reactor::Reactor;
use crate::reactor::requests::Answered;
use crate::turn::Turn;
use crate::waiting::Unfinished;

/// A Fetch with more bytes names some two thousand partitions, and is read when others have had
/// their turn.
const LARGE_FETCH_BYTES: usize = 64 << 10;

/// A request of a session that looks at more partitions waits for its turn too, however short it is.
const LARGE_FETCH_PARTITIONS: usize = 2_000;

impl Reactor {
    pub(super) fn on_fetch(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        header: &RequestHeader,
        body: &[u8],
    ) -> Answered {
        if body.len() > LARGE_FETCH_BYTES {
            let request = Unfinished::LargeFetch;
            self.give_way(slot, connection, header.correlation_id, request);
            return Answered::Unfinished;
        }
        self.begin_fetch(slot, connection, header, body)
    }

    pub(super) fn begin_fetch(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        header: &RequestHeader,
        body: &[u8],
    ) -> Answered {
        let catalog = &self.shared.catalog;
        let parsed = FetchRequest::parse(body, header.api_version, header.correlation_id, catalog);
        let mut request = match parsed {
            Ok(request) => request,
            Err(malformed) => {
                let (api_key, api_version) = (header.api_key, header.api_version);
                return self.refuse_body(connection, api_key, api_version, malformed);
            }
        };
        let sessions = &self.shared.fetch_sessions;
        request.enter_session(sessions, connection.sender(), self.clock.now);
        if request.open_count() > LARGE_FETCH_PARTITIONS {
            let request = Unfinished::Fetch(request);
            self.give_way(slot, connection, header.correlation_id, request);
            return Answered::Yes;
        }
        self.continue_fetch(slot, connection, request);
        Answered::Yes
    }

    /// Goes on with a Fetch until it is answered or waits, or its turn is over.
    #[inline]
    pub(super) fn continue_fetch(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        mut request: FetchRequest,
    ) {
        let correlation_id = request.correlation_id();
        let access = &self.shared.access;
        if access.is_checked() || request.follows_session() {
            let mut turn = Turn::of(self.shared.options.turn);
            if !request.authorize(access, connection.sender(), &mut turn) {
                let request = Unfinished::Fetch(request);
                return self.give_way(slot, connection, correlation_id, request);
            }
        }
        if let Some(bytes) = connection.meter.as_ref().and_then(|one| one.fetch_max()) {
            request.limit_bytes(bytes);
        }
        // A client that sends no more does not wait for bytes either. A topic that went while the
        // request gave way wakes nobody.
        if request.readiness() == Readiness::Ready
            || connection.is_half_closed
            || request.is_outdated()
        {
            return self.push_fetched(slot, connection, &request);
        }
        let token = self.token(slot);
        let deadline = self.clock.now + request.max_wait();
        let mailbox = Arc::clone(&self.mailbox);
        let operation = DelayedOperation::Fetch(request);
        let response = Box::new(DelayedResponse::new(operation, deadline, token, mailbox));
        if !response.is_ready() {
            self.delay(connection, token, correlation_id, response);
        } else if let DelayedOperation::Fetch(request) = response.operation {
            self.push_fetched(slot, connection, &request);
        }
    }

    /// Answers a Fetch; with nothing if its client is over its quota.
    pub(super) fn push_fetched(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        request: &FetchRequest,
    ) {
        let endpoints = self.shared.endpoints.get();
        let node = endpoints.and_then(|of| of.get(connection.listener));
        let mut answer = request.answer(!self.shared.memory.is_tight(), node);
        let throttle = connection.meter.as_ref().map_or(Duration::ZERO, |meter| {
            let bytes = answer.chunks.iter().map(Chunk::left).sum();
            self.shared.client_quotas.fetched(meter, bytes)
        });
        if throttle.is_zero() {
            request.settle(&mut answer, self.clock.now);
            self.metrics().fetched_bytes.add_alone(answer.record_bytes);
            for chunk in answer.chunks {
                connection.push(chunk);
            }
        } else {
            let throttle_ms = self.throttle(slot, connection, throttle);
            connection.push(request.throttled(throttle_ms));
        }
        let now = self.read_clock();
        connection.note_answer(self.metrics(), now);
    }
}
