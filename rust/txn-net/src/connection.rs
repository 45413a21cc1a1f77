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
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use txn_protocol::frame::{Front, LENGTH_BYTES, front};

use crate::access::{Latest, Sender};
use crate::authentication::{Attachment, Authentication};
use crate::chunk::Chunk;
use crate::connection_quotas::ConnectionPlace;
use crate::memory::Claim;
use crate::metrics::{CloseReason, Marks, ReactorMetrics};
use crate::presence::Presence;
use crate::quotas::Meter;
use crate::tls::{HandshakeError, TlsListener};
use crate::token::RequestToken;
use crate::transport::Transport;
use crate::transport_step::Handshake;
use crate::waiting::Waiting;

/// First size of a buffer's growth, and the least a read asks for when more is to come.
const STEP_BYTES: usize = 64 << 10;
/// Larger buffers are freed, not kept for the next turn.
const KEPT_BUFFER_BYTES: usize = 2 << 20;
/// Number of buffers that a reactor keeps.
const KEPT_BUFFERS: usize = 4;
/// Answers with fewer bytes wait for those of the frames that came with theirs.
const HELD_ANSWER_BYTES: usize = 4 << 10;
/// Frames that may hold an answer up: those that are handled in a moment.
const HOLDING_FRAME_BYTES: usize = 16 << 10;

/// Bytes of a request or an answer that count as progress before it is whole.
const PROGRESS_BYTES: usize = 64 << 10;

/// A reactor's spare buffers.
#[derive(Default)]
pub struct Buffers {
    spare: Vec<Vec<u8>>,
}

impl Buffers {
    /// An empty buffer; of some size, if there is one.
    pub fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        if (STEP_BYTES..=KEPT_BUFFER_BYTES).contains(&buffer.capacity())
            && self.spare.len() < KEPT_BUFFERS
        {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

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

    /// True if an answer is queued.
    pub fn has_answer(&self) -> bool {
        !self.output.is_empty()
    }

    /// True if there may be more to read, here or in the socket.
    pub fn has_more(&self) -> bool {
        self.is_readable || self.start < self.input.len()
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

    /// The kind of the next bytes; ranges count from the first byte not done with.
    pub fn front(&self, max_request_bytes: usize) -> Front {
        front(&self.input[self.start..], max_request_bytes)
    }

    /// Lends the bytes not done with, to be put back by `put_back`.
    pub fn lend(&mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.input), self.start)
    }

    /// Takes lent bytes back, of which the first `done` are done with.
    pub fn put_back(&mut self, input: Vec<u8>, done: usize) {
        self.input = input;
        self.start = done;
        self.claim.end();
    }

    /// Reads once, knowing that `missing` bytes make the frame whole.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn fill(&mut self, missing: usize, buffers: &mut Buffers) -> io::Result<Fill> {
        self.make_room(missing, buffers);
        match self.transport.read(&mut self.input) {
            Ok(received) if received.is_end => Ok(Fill::Closed),
            Ok(received) => {
                self.moved_bytes += received.bytes;
                self.is_readable = received.may_have_more || self.is_half_closed;
                Ok(Fill::Some)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_readable = false;
                Ok(Fill::Blocked)
            }
            Err(error) => Err(error),
        }
    }

    fn make_room(&mut self, missing: usize, buffers: &mut Buffers) {
        if self.start > 0 {
            self.input.drain(..self.start);
            self.start = 0;
        }
        let received = self.input.len();
        let room = self.input.capacity() - received;
        if room >= missing.min(STEP_BYTES) && room > 0 {
            return;
        }
        let mut larger = buffers.take();
        if larger.capacity() < received + missing.min(STEP_BYTES) {
            larger.reserve_exact(received + missing.clamp(STEP_BYTES, STEP_BYTES.max(received)));
        }
        larger.extend_from_slice(&self.input);
        buffers.give(std::mem::replace(&mut self.input, larger));
    }

    /// Gives back memory that is not needed between turns, and claims the rest.
    pub fn settle(&mut self, buffers: &mut Buffers) {
        let left = self.input.len() - self.start;
        if self.authentication.is_needed() {
            self.claim.set(0, 0); // a stranger takes nothing from the memory of clients
        } else {
            self.claim.set(left + self.to_come(), self.output_bytes);
        }
        if left == 0 {
            self.claim.end();
            self.start = 0;
            buffers.give(std::mem::take(&mut self.input));
        } else if self.input.capacity() > 16 * left {
            let kept = self.input[self.start..].to_vec();
            self.start = 0;
            buffers.give(std::mem::replace(&mut self.input, kept));
        }
    }

    /// Missing bytes of a request that was begun, once its length is known.
    fn to_come(&self) -> usize {
        let left = self.input.len() - self.start;
        match self.front(usize::MAX) {
            Front::Partial { missing } if left >= LENGTH_BYTES && self.claim.is_reading() => {
                missing
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authentication::ANONYMOUS;
    use crate::control::ControlQueue;
    use crate::memory::RequestMemory;
    use std::io::Write;
    use std::net::TcpListener;

    fn pair() -> (Connection, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let control = Arc::new(ControlQueue::new().unwrap());
        let memory = Arc::new(RequestMemory::new(None, Vec::new(), &control));
        let connection = Connection::new(
            Transport::Plain(TcpStream::from_std(server)),
            0,
            ("127.0.0.1".into(), ANONYMOUS.into()),
            Authentication::at_first(false),
            1,
            Instant::now(),
            Claim::of(&memory, 0),
        );
        (connection, client)
    }

    fn fill_until(connection: &mut Connection, buffers: &mut Buffers, bytes: usize) {
        while connection.input.len() < bytes {
            connection.fill(1 << 30, buffers).unwrap();
        }
    }

    #[test]
    fn an_announced_gigabyte_reserves_no_more_than_was_received() {
        let (mut connection, mut client) = pair();
        let mut buffers = Buffers::default();
        client.write_all(&vec![7; 100_000]).unwrap();
        fill_until(&mut connection, &mut buffers, 100_000);
        assert!(connection.input.capacity() <= 2 * 100_000 + STEP_BYTES);
    }

    #[test]
    fn a_connection_with_nothing_buffered_owns_no_buffer() {
        let (mut connection, mut client) = pair();
        let mut buffers = Buffers::default();
        client.write_all(&[0, 0, 0, 1, 9]).unwrap();
        fill_until(&mut connection, &mut buffers, 5);
        let (input, _) = connection.lend();
        connection.put_back(input, 5);
        connection.settle(&mut buffers);
        assert_eq!(connection.input.capacity(), 0);
        assert_eq!(buffers.spare.len(), 1);
    }

    #[test]
    fn a_half_frame_keeps_only_about_as_much_memory_as_it_has_bytes() {
        let (mut connection, mut client) = pair();
        let mut buffers = Buffers::default();
        client.write_all(&[0, 0, 0, 9, 1]).unwrap();
        fill_until(&mut connection, &mut buffers, 5);
        connection.settle(&mut buffers);
        assert!(connection.input.capacity() <= 16 * 5);
        assert_eq!(connection.front(100), Front::Partial { missing: 8 });
    }

    #[test]
    fn small_answers_wait_for_each_other_while_small_frames_are_here() {
        let (mut connection, mut client) = pair();
        let mut buffers = Buffers::default();
        let small = [0, 0, 0, 1, 9];
        client.write_all(&[small, small].concat()).unwrap();
        fill_until(&mut connection, &mut buffers, 10);
        assert!(!connection.holds_answer(100)); // there is none
        connection.push(Chunk::bytes(vec![1]));
        assert!(connection.holds_answer(100));
        connection.push(Chunk::bytes(vec![2]));
        assert_eq!(connection.output.len(), 1);
        assert_eq!(connection.output[0].left(), 2);
        let (input, _) = connection.lend();
        connection.put_back(input, 10);
        assert!(!connection.holds_answer(100)); // nothing more to answer
    }

    #[test]
    fn nothing_large_holds_an_answer_up_or_is_held_up() {
        let (mut connection, mut client) = pair();
        let mut buffers = Buffers::default();
        let large = HOLDING_FRAME_BYTES + 1;
        client
            .write_all(&u32::try_from(large).unwrap().to_be_bytes())
            .unwrap();
        client.write_all(&vec![7; large]).unwrap();
        fill_until(&mut connection, &mut buffers, LENGTH_BYTES + large);
        connection.push(Chunk::bytes(vec![1]));
        assert!(!connection.holds_answer(1 << 20));

        let (mut connection, mut client) = pair();
        client.write_all(&[0, 0, 0, 1, 9]).unwrap();
        fill_until(&mut connection, &mut buffers, 5);
        connection.push(Chunk::bytes(vec![0; HELD_ANSWER_BYTES]));
        assert!(!connection.holds_answer(100));
    }

    #[test]
    fn of_several_mutes_the_longest_counts() {
        let (mut connection, _client) = pair();
        let now = Instant::now();
        let [short, long] = [1, 2].map(Duration::from_secs);
        let [first, second, third] = [1, 2, 3].map(|stamp| RequestToken::new(0, 0, stamp));
        assert!(connection.mute(now + short, first));
        assert!(connection.mute(now + long, second));
        assert!(!connection.mute(now + short, third));
        assert!(connection.awaits(second) && !connection.awaits(first));
        assert!(!connection.unmute(first) && connection.is_muted());
        assert!(connection.unmute(second) && !connection.is_muted());
    }

    #[test]
    fn what_the_socket_does_not_take_stays_queued_in_order() {
        let (mut connection, mut client) = pair();
        let bytes: Vec<u8> = (0..32_u32 << 20).map(|n| (n / 4096) as u8).collect();
        connection.push(Chunk::bytes(bytes.clone()));
        connection.push(Chunk::bytes(vec![1, 2, 3]));
        let reader = std::thread::spawn(move || {
            let mut received = vec![0; bytes.len() + 3];
            std::io::Read::read_exact(&mut client, &mut received).unwrap();
            received[..bytes.len()] == bytes && received[bytes.len()..] == [1, 2, 3]
        });
        while connection.flush().unwrap() != Flush::Done {}
        assert!(reader.join().unwrap());
    }
}
