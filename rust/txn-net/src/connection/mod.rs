//! One client's socket: received bytes that are not parsed yet, and answers that are not sent yet.
//!
//! # Invariants
//! 1. At most one request is under way; the next frame is looked at when its answer has left for
//!    the kernel, or when both are small and the frame is here already: then answers leave
//!    together. So answers keep the order of requests, and a client that does not read its
//!    answers stops being read.
//! 2. Memory follows bytes received, never lengths announced. A connection with nothing
//!    buffered owns no buffer: buffers belong to the reactor and are lent for a turn. Answers
//!    are never written into them: one that is not taken would keep a large buffer for a few bytes.
//! 3. A connection is as old as its last progress: a whole request, an answer that the kernel
//!    took, or [`PROGRESS_BYTES`] of either. So one that drips a request, or sips an answer, is idle.

use std::cell::RefCell;

mod answers;
mod buffers;
mod input;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use crate::access::{Latest, Sender};
use crate::authentication::{Attachment, Authentication};
use crate::chunk::Chunk;
use crate::connection_quotas::ConnectionPlace;
use crate::memory::Claim;
use crate::metrics::{CloseReason, Marks};
use crate::presence::Presence;
use crate::quotas::Meter;
use crate::tls::{HandshakeError, TlsListener};
use crate::token::RequestToken;
use crate::transport::Transport;
use crate::transport_step::Handshake;
use crate::waiting::Waiting;

/// Bytes of a request or an answer that count as progress before it is whole.
const PROGRESS_BYTES: usize = 64 << 10;

pub use buffers::Buffers;

/// The fate of the bytes to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// The kernel has them all.
    Done,
    /// The socket takes no more now.
    Blocked,
    /// It would take more, but others have waited long enough.
    TurnOver,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Some bytes.
    Some,
    /// None now.
    Blocked,
    /// None ever again.
    Closed,
}

/// A client's connection.
#[expect(
    clippy::struct_excessive_bools,
    reason = "five facts that hold independently"
)]
pub struct Connection {
    transport: Transport,
    /// Index of the listener that accepted it.
    pub listener: usize,
    /// The client's address.
    pub host: Arc<str>,
    /// One more than that of the connection accepted before it.
    pub number: u64,
    /// The client, as authorization knows it.
    principal: Arc<str>,
    latest: RefCell<Latest>,
    pub authentication: Authentication,
    /// Python's state of it; none before its first request.
    pub attachment: Option<Attachment>,
    /// Stamp of the moment in which its reactor began to serve it.
    pub opened: u64,
    /// When it last made progress.
    pub active_at: Instant,
    /// Bytes received and sent since.
    moved_bytes: usize,
    /// When its request began to be read, while it is.
    reading_since: Option<Instant>,
    /// Its part of the limits on connections, given back before the socket is closed.
    pub place: Option<ConnectionPlace>,
    /// Its request under way; `None`: the next frame may be looked at.
    pub waiting: Option<Waiting>,
    /// Requests may be read: the handshake has ended well, if there is one.
    pub is_established: bool,
    /// It is in the reactor's list of connections that shake hands.
    pub is_shaking: bool,
    /// The handshake has to end before this token is taken from the reactor's deadlines.
    pub handshake_token: Option<RequestToken>,
    /// The client has to authenticate before this token is taken from the reactor's deadlines.
    pub login_token: Option<RequestToken>,
    /// Close it once the output is sent.
    pub is_closing: bool,
    /// The socket may have bytes: it said so, and no read has come back short since.
    pub is_readable: bool,
    /// The client will send no more; earlier bytes may still be unread.
    pub is_half_closed: bool,
    /// The same for other threads.
    pub presence: Presence,
    /// It is in the reactor's list of connections to go on with.
    pub is_listed: bool,
    /// It is in the reactor's list of connections that wait for memory.
    pub is_starved: bool,
    /// No request is read before this time; the token stands in the reactor's deadlines.
    mute: Option<(Instant, RequestToken)>,
    /// The quotas that bind the request under way, or the last one.
    pub meter: Option<Box<Meter>>,
    /// Claim for `input`, for the rest of a request that was begun, and for `output`.
    pub claim: Claim,
    input: Vec<u8>,
    /// Bytes of `input` that are done with.
    start: usize,
    output: VecDeque<Chunk>,
    /// Bytes of our own in `output`: those of a chunk are held until all of it is sent.
    output_bytes: usize,
    /// Times of the request under way.
    pub marks: Option<Marks>,
    /// Times of the requests whose answers are queued.
    pub unsent: Vec<Marks>,
    /// Bytes of answers that the kernel took and the metrics have not counted.
    pub sent_bytes: usize,
}

impl Connection {
    pub fn new(
        transport: Transport,
        listener: usize,
        (host, principal): (Arc<str>, Arc<str>),
        authentication: Authentication,
        number: u64,
        now: Instant,
        claim: Claim,
    ) -> Self {
        Self {
            is_established: !transport.shakes_hands(),
            is_shaking: false,
            handshake_token: None,
            login_token: None,
            transport,
            listener,
            host,
            principal,
            latest: RefCell::default(),
            authentication,
            attachment: None,
            number,
            opened: 0,
            active_at: now,
            moved_bytes: 0,
            reading_since: None,
            place: None,
            waiting: None,
            is_closing: false,
            is_readable: true,
            is_half_closed: false,
            presence: Presence::default(),
            is_listed: false,
            is_starved: false,
            mute: None,
            meter: None,
            claim,
            input: Vec::new(),
            start: 0,
            output: VecDeque::new(),
            output_bytes: 0,
            marks: None,
            unsent: Vec::new(),
            sent_bytes: 0,
        }
    }

    /// Sets the principal that the client authenticated as.
    pub fn log_in(&mut self, principal: Arc<str>) {
        self.principal = principal;
        self.latest = RefCell::default();
    }

    /// The sender of its requests.
    pub fn sender(&self) -> Sender<'_> {
        Sender {
            principal: &self.principal,
            host: &self.host,
            latest: &self.latest,
        }
    }

    pub fn socket_mut(&mut self) -> &mut TcpStream {
        self.transport.socket_mut()
    }

    /// Continues the transport's handshake; at its end the connection has a principal, if its
    /// client has a certificate.
    ///
    /// # Errors
    /// The client cannot be spoken with.
    pub fn handshake(&mut self) -> Result<Handshake, HandshakeError> {
        if self.transport.handshake()? == Handshake::Blocked {
            return Ok(Handshake::Blocked);
        }
        if let Some(principal) = self.transport.principal()? {
            self.log_in(principal.into());
        }
        self.is_established = true;
        self.handshake_token = None;
        Ok(Handshake::Done)
    }

    /// The TLS of its listener, if it has TLS.
    pub fn tls(&self) -> Option<&TlsListener> {
        self.transport.tls()
    }

    /// Sends the client a `close_notify` before the socket is closed.
    pub fn close_notify(&mut self) {
        if self.is_established {
            self.transport.close_notify();
        }
    }

    /// Reads no request before `until`, unless it is muted for longer. True if `token` has to
    /// stand in the reactor's deadlines.
    pub fn mute(&mut self, until: Instant, token: RequestToken) -> bool {
        let is_longer = self.mute.is_none_or(|(muted_until, _)| until > muted_until);
        if is_longer {
            self.mute = Some((until, token));
        }
        is_longer
    }

    /// Ends the mute of this token; false if it has none of that token.
    pub fn unmute(&mut self, token: RequestToken) -> bool {
        let is_over = self.mute.is_some_and(|(_, muted_by)| muted_by == token);
        if is_over {
            self.mute = None;
        }
        is_over
    }

    pub fn is_muted(&self) -> bool {
        self.mute.is_some()
    }

    /// True if it is muted beyond a time.
    pub fn is_muted_beyond(&self, time: Instant) -> bool {
        self.mute.is_some_and(|(until, _)| until > time)
    }

    /// True if its request under way has this token.
    pub fn waits_as(&self, token: RequestToken) -> bool {
        self.waiting.as_ref().is_some_and(|one| one.token == token)
    }

    /// True if its request under way is a Fetch that waits for bytes.
    pub fn waits_for_bytes(&self) -> bool {
        self.waiting.as_ref().is_some_and(Waiting::is_delayed_fetch)
    }

    /// True if a deadline of this token is still to come.
    pub fn awaits(&self, token: RequestToken) -> bool {
        let is_muted_by = |(_, muted_by)| muted_by == token;
        self.waits_as(token)
            || self.mute.is_some_and(is_muted_by)
            || self.handshake_token == Some(token)
            || self.login_token == Some(token)
    }

    /// It has got on, or has waited for this server until now.
    pub fn note_progress(&mut self, now: Instant) {
        self.active_at = self.active_at.max(now);
        self.moved_bytes = 0;
    }

    /// Notes progress if enough bytes have moved.
    pub fn note_moved(&mut self, now: Instant) {
        if self.moved_bytes >= PROGRESS_BYTES {
            self.note_progress(now);
        }
    }

    /// The reason to close it for want of progress.
    pub fn idleness(&self) -> CloseReason {
        if self.has_answer() {
            CloseReason::SlowReader
        } else if self.start < self.input.len() {
            CloseReason::SlowRequest
        } else {
            CloseReason::Idle
        }
    }

    /// True if a request is being read under a claim, and has taken longer than `grace` and
    /// the time that its bytes have at the least pace. Time before `since` does not count.
    pub fn reads_slowly(&self, since: Instant, grace: Duration, pace: usize, now: Instant) -> bool {
        let Some(began) = self.reading_since.filter(|_| self.claim.is_reading()) else {
            return false;
        };
        let received = self.input.len() - self.start;
        let allowed = grace + Duration::from_secs((received / pace) as u64);
        now.saturating_duration_since(began.max(since)) > allowed
    }

    /// True if it holds an answer of which its client has taken nothing for longer than
    /// `patience`. Time before `since` does not count.
    pub fn is_stalled(&self, since: Instant, patience: Duration, now: Instant) -> bool {
        let idle_since = self.active_at.max(since);
        self.claim.has_answer() && now.saturating_duration_since(idle_since) > patience
    }

    /// Begins to read a request under its claim, see `Claim::begin`.
    pub fn begin_reading(&mut self, reactor: usize, now: Instant) -> bool {
        let was_reading = self.claim.is_reading();
        let may_read = self.claim.begin(reactor);
        if !was_reading {
            self.reading_since = Some(now);
        }
        may_read
    }

    pub fn is_idle(&self) -> bool {
        self.waiting.is_none()
    }

    /// True if there may be more to read, here or in the socket.
    pub fn has_more(&self) -> bool {
        self.is_readable || self.start < self.input.len()
    }
}
