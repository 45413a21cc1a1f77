//! Requests: a frame is parsed, its client is admitted, and the request goes to its handler.
//!
//! Produce and Fetch are answered by the reactor. Every other request goes to Python, and the reply
//! comes back as a message with the request's token.

use std::sync::Arc;
use std::time::{Duration, Instant};

use txn_protocol::apis::{FETCH, PRODUCE, SASL_AUTHENTICATE};
use txn_protocol::frame::{Front, RequestHeader, set_correlation_id};

use crate::authentication::{Admission, Authentication};
use crate::chunk::Chunk;
use crate::connection::Connection;
use crate::control::{ControlRequest, RAW_TOKEN};
use crate::memory::Claim;
use crate::metrics::Marks;
use crate::options::{FETCH_VERSIONS, PRODUCE_VERSIONS};
use crate::quotas::{Meter, QuotaClient};
use crate::reactor::Reactor;
use crate::shared::DECIDING;
use crate::token::RequestToken;
use crate::waiting::{Reason, Waiting};

/// The result of a frame.
pub(super) enum Answered {
    /// It is answered, or on its way elsewhere.
    Yes,
    /// Others have their turn first, and then it needs its frame.
    Unfinished,
    /// It cannot be read, or may not be answered: close the connection.
    Never,
    /// Not here: the reactor that decides is to read the frame.
    InFlight,
}

impl Reactor {
    pub(super) fn answer_front(&mut self, slot: usize, connection: &mut Connection) -> Answered {
        let Front::Whole(frame) = connection.front(self.max_request_bytes(connection)) else {
            unreachable!("`next_frame` says it is whole")
        };
        let (mut input, start) = connection.lend();
        let end = start + frame.end;
        let frame = &mut input[start + frame.start..end];
        let answered = match RequestHeader::parse(frame) {
            _ if connection.authentication == Authentication::NeededRaw => {
                self.on_raw_token(slot, connection, frame);
                Answered::Yes
            }
            Ok(header) if !self.may_answer(connection, &header) => Answered::Never,
            Ok(header) => {
                let (body, bytes) = (header.body, end - start);
                connection.note_progress(self.clock.now);
                connection.marks = Some(Marks::new(
                    header.api_key,
                    self.clock.woke_up,
                    self.clock.now,
                ));
                if self.shared.client_quotas.is_any() || connection.meter.is_some() {
                    // A stranger may give the client id of others.
                    let is_stranger = connection.authentication.is_needed();
                    let meter = (!is_stranger).then(|| self.meter(connection, &header, frame));
                    connection.meter = meter.flatten();
                }
                let answered = self.answer(slot, connection, &header, frame, body);
                if !matches!(answered, Answered::InFlight) {
                    let metrics = self.metrics();
                    metrics.received(header.api_key, connection.listener, bytes);
                }
                answered
            }
            Err(malformed) => self.refuse_header(connection, frame, malformed),
        };
        let is_left = matches!(answered, Answered::InFlight | Answered::Unfinished);
        connection.put_back(input, if is_left { start } else { end });
        answered
    }

    fn answer(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        header: &RequestHeader,
        frame: &mut [u8],
        body: usize,
    ) -> Answered {
        match header.api_key {
            PRODUCE if PRODUCE_VERSIONS.contains(&header.api_version) => {
                self.on_produce(slot, connection, header, &mut frame[body..])
            }
            FETCH if FETCH_VERSIONS.contains(&header.api_version) => {
                self.on_fetch(slot, connection, header, &frame[body..])
            }
            PRODUCE | FETCH => self.refuse_version(connection, header.api_key, header.api_version),
            _ if self.index != DECIDING && self.is_decided_by_reactors(header, frame) => {
                Answered::InFlight
            }
            _ => {
                self.on_control(slot, connection, header, frame);
                Answered::Yes
            }
        }
    }

    /// The quotas that bind a request.
    fn meter(
        &self,
        connection: &Connection,
        header: &RequestHeader,
        frame: &[u8],
    ) -> Option<Box<Meter>> {
        let client_id = header.client_id.clone();
        let client = QuotaClient {
            principal: connection.sender().principal,
            host: &connection.host,
            client_id: client_id.map_or(&[], |id| &frame[id]),
        };
        self.shared.client_quotas.meter(client, frame.len())
    }

    /// Reads no request of a connection for some time; returns the milliseconds to tell its client.
    pub(super) fn throttle(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        throttle: Duration,
    ) -> i32 {
        if !throttle.is_zero() {
            let (until, token) = (self.clock.now + throttle, self.token(slot));
            if connection.mute(until, token) {
                self.push_deadline(until, token);
            }
        }
        i32::try_from(throttle.as_millis()).unwrap_or(i32::MAX)
    }

    /// True if a request may be answered before, or after, its client authenticated.
    fn may_answer(&mut self, connection: &Connection, header: &RequestHeader) -> bool {
        let has_expired = match connection
            .authentication
            .admit(header.api_key, self.clock.now)
        {
            Admission::Admitted => return true,
            Admission::Unauthenticated => {
                self.shared.unauthenticated_connections.add(1);
                false
            }
            Admission::Expired => {
                self.shared.expired_connections.add(1);
                true
            }
        };
        self.report_unauthenticated(connection, header, has_expired);
        false
    }

    /// Hands a token of SASL that is no request to Python.
    fn on_raw_token(&mut self, slot: usize, connection: &mut Connection, frame: &[u8]) {
        let header = RequestHeader {
            api_key: SASL_AUTHENTICATE,
            api_version: RAW_TOKEN,
            correlation_id: 0,
            client_id: None,
            body: 0,
        };
        self.on_control(slot, connection, &header, frame);
    }

    fn on_control(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        header: &RequestHeader,
        frame: &[u8],
    ) {
        let token = self.token(slot);
        let correlation_id = header.correlation_id;
        connection.waiting = Some(Waiting {
            token,
            correlation_id,
            reason: Reason::Reply,
        });
        let client_id = header.client_id.clone();
        let dequeued = connection.marks.as_mut().map(Marks::enqueue);
        let request = ControlRequest {
            token,
            api_key: header.api_key,
            api_version: header.api_version,
            correlation_id,
            client_id: client_id.map(|id| String::from_utf8_lossy(&frame[id]).into_owned()),
            body: frame[header.body..].to_vec(),
            client_host: Arc::clone(&connection.host),
            listener: connection.listener,
            principal: Arc::clone(connection.sender().principal),
            connection: connection.number,
            attachment: connection.attachment.clone(),
            presence: connection.presence.clone(),
            dequeued: dequeued.unwrap_or_default(),
        };
        let claim = Claim::of(&self.shared.memory, frame.len());
        if self.is_decided_by_reactors(header, frame) {
            self.undecided.push_request(request, claim);
        } else {
            self.shared.control.push_request(request, claim);
        }
    }

    /// The connection whose request under way is this one.
    pub(super) fn answering(&mut self, token: RequestToken) -> Option<&mut Connection> {
        self.connection(token.slot())
            .filter(|one| one.waits_as(token))
    }

    /// Answers a request as its connection's last.
    pub(super) fn on_refuse(&mut self, token: RequestToken, frame: Vec<u8>, ready: Instant) {
        if let Some(connection) = self.answering(token) {
            connection.is_closing = true;
        }
        self.on_reply(token, frame, ready);
    }

    pub(super) fn on_reply(&mut self, token: RequestToken, mut frame: Vec<u8>, ready: Instant) {
        let Some(connection) = self.answering(token) else {
            return;
        };
        if let Some(waiting) = &connection.waiting {
            set_correlation_id(&mut frame, waiting.correlation_id);
        }
        self.on_reply_raw(token, frame, ready);
    }

    pub(super) fn on_reply_raw(&mut self, token: RequestToken, frame: Vec<u8>, ready: Instant) {
        let metrics = &self.shared.metrics[self.index];
        let connection = self.slots.connections.get_mut(token.slot());
        let connection = connection.and_then(Option::as_deref_mut);
        let is_asked = |one: &&mut Connection| {
            let waiting = one.waiting.as_ref().filter(|one| one.token == token);
            waiting.is_some_and(|one| matches!(one.reason, Reason::Reply))
        };
        let Some(connection) = connection.filter(is_asked) else {
            return;
        };
        connection.waiting = None;
        connection.push(Chunk::bytes(frame));
        connection.note_answer(metrics, ready);
        self.drive(token.slot());
    }

    pub(super) fn on_mute(&mut self, token: RequestToken, duration: Duration) {
        let until = self.clock.now + duration;
        let mute_token = self.token(token.slot());
        let is_longer = |one: &mut Connection| one.mute(until, mute_token);
        if self.answering(token).is_some_and(is_longer) {
            self.push_deadline(until, mute_token);
        }
    }

    pub(super) fn on_disconnect(&mut self, token: RequestToken) {
        let Some(connection) = self.connection(token.slot()) else {
            return;
        };
        if connection.opened > token.stamp() {
            return; // an earlier connection in this slot was meant
        }
        connection.is_closing = true;
        if let Some(waiting) = connection.waiting.take() {
            self.abandon(&waiting);
        }
        self.drive(token.slot());
    }
}
