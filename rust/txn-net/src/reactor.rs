//! A reactor: one thread's share of the connections.
//!
//! It sleeps in epoll. It wakes for sockets, for its [`Mailbox`], for the deadlines of delayed
//! responses, and to close connections that were idle for too long. Before it sleeps it may stay
//! awake for a moment ([`AdaptiveSpin`]). Reactor 0 also accepts, a few connections between two
//! turns of everybody else, and hands them to all reactors in turn ([`Acceptor`]).
//!
//! Everything a connection does happens in [`Reactor::drive`]: send queued answers, then, if no
//! request is under way, look at the next frame, then read. It runs after every event that may let
//! the connection go on, and gives up its turn after [`TURN_FRAMES`] frames or [`Options::turn`].
//! Small answers to frames that came together leave together. The answer to a connection's last
//! frame is sent once the other sockets that have something were read. A client that an answer
//! wakes takes the processor away, and does so less often when answers go out together.
//!
//! One request that takes longer than a turn gives way between two of its names or batches
//! ([`Reactor::give_way`]). Its frame stays in the connection's buffer. All such requests together
//! have one turn ([`Reactor::finish_some`]), and then everybody else has theirs.
//!
//! A decision of Python's goes to the control loop, or is taken here and now while that sleeps
//! (`control_lock`). So is the rest of a decision that waited for the disk (`settler`). A
//! connection with such requests, or small batches of transactions, is moved to the reactor that
//! decides: two reactors that both want the interpreter would wait for each other most of the time.
//!
//! Connections that shake hands wait in a list of their own ([`Reactor::shake_hands`]). Signing
//! and checking certificates takes a millisecond, so a few of them have their turn between two
//! turns of everybody else.
//!
//! Nothing one client sends can harm another. A frame that cannot be read, a length that is too
//! large, a half frame and silence each cost their own connection only, and so does a panic in its
//! turn. A panic in a decision costs the connections that were decided on together. A panic
//! anywhere else ends the reactor, and with it the server.
//!
//! # Deviations from Apache Kafka
//! - A connection whose request is under way is not idle, however long it takes; Kafka closes
//!   it after `connections.max.idle.ms` too.
//! - A connection that drips a request or sips an answer is idle; in Kafka any byte keeps it open.
//! - A log-in has to end in time, and so has a request while others wait for its memory.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_congestion};
use txn_log::Durability;
use txn_log::histogram::Counter;
use txn_protocol::apis::{FETCH, PRODUCE, SASL_AUTHENTICATE};
use txn_protocol::frame::{Front, RequestHeader, set_correlation_id};

use crate::acceptor::Acceptor;
use crate::access::Access;
use crate::adaptive_spin::AdaptiveSpin;
use crate::authentication::{Admission, Authentication};
use crate::catalog::Catalog;
use crate::connection::{Buffers, Chunk, Connection, ConnectionState, Fill, Flush};
use crate::connection_quotas::{ConnectionQuotas, Refusal};
use crate::control::{
    ControlQueue, ControlRequest, Decider, FailedHandshake, ParkedProduce, RAW_TOKEN,
    RefusedConnection, Undecided,
};
use crate::control_lock::ControlLock;
use crate::delayed_produce::{AppendedBatch, DelayedProduce, Promise};
use crate::fetch::{FetchRequest, Readiness};
use crate::forced_producers::ForcedProducers;
use crate::listener::Listener;
use crate::mailbox::{Accepted, MAX_SLOTS, Mailbox, Message, RequestToken};
use crate::memory::{Claim, RequestMemory};
use crate::metrics::{CloseReason, ListenerMetrics, Marks, ReactorMetrics};
use crate::opener::{Large, Opener};
use crate::produce::{AppendProgress, Join, ProduceRequest, Refused, Unopened};
use crate::purgatory::{Deadlines, DelayedOperation, DelayedResponse, Parked};
use crate::quotas::{Meter, QuotaClient, Quotas};
use crate::server::{FETCH_VERSIONS, Options, PRODUCE_VERSIONS};
use crate::settler::Settler;
use crate::tls::{FailureReason, HandshakeError};
use crate::transport::{Handshake, Transport};
use crate::turn::Turn;

/// The events of the first listener; others follow. Those of connections are their slots.
const FIRST_LISTENER: usize = MAX_SLOTS;
/// The mailbox's events.
pub const MAILBOX: Token = Token(usize::MAX);

/// Frames of one connection answered before others have their turn.
const TURN_FRAMES: usize = 32;
/// Messages read before sockets have their turn.
const TURN_MESSAGES: usize = 256;
/// Answers that wait until other sockets were read.
const TURN_ANSWERS: usize = 64;
/// Idle connections are looked for at most this many times in the time they may be idle.
const REAPS: u32 = 64;
/// Connections of one listener accepted before others have their turn.
const TURN_ACCEPTS: usize = 32;
/// At most one refused connection is told to Python in this time, and all are counted.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// Time between two looks for slow requests while others wait for their memory.
const PACE_CHECK: Duration = Duration::from_secs(1);
/// Bytes of a request that have to come in a second meanwhile.
const PACE_BYTES: usize = 64 << 10;
/// Time that surplus connections have for the request under way.
const SURPLUS_GRACE: Duration = Duration::from_millis(500);
/// Time for another look whether a client has authenticated, if it waits for this server.
const LOGIN_CHECK: Duration = Duration::from_secs(1);
/// Time for handshakes before others have their turn; one is always begun.
const HANDSHAKES_TURN: Duration = Duration::from_micros(500);
/// At most one failed handshake is told to Python in this time, and all are counted.
const FAILED_HANDSHAKES_PAUSE: Duration = Duration::from_millis(100);
/// Reads of one connection before others have their turn.
const TURN_READS: usize = 64;
/// A connection whose client has left is closed if it is muted for longer. Shorter ones are read
/// again: a producer without acknowledgements writes and leaves.
const LEFT_MUTE_MAX: Duration = Duration::from_secs(30);
/// Time that a stopping reactor waits for answers that are on their way.
const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// The reactor that serves connections for which Python has to decide.
pub const DECIDING: usize = 0;
/// Produce requests with more bytes are answered where they come: they are more to store than to
/// decide.
const MOVED_BYTES: usize = 64 << 10;
/// A Fetch with more bytes names some two thousand partitions, and is read when others have had
/// their turn.
const LARGE_FETCH_BYTES: usize = 64 << 10;
/// Requests with more bytes are decided by the control loop: a thousand partitions take a while,
/// and this reactor's other connections would wait.
const QUICK_BYTES: usize = 4 << 10;

/// The common state of all reactors.
pub struct Shared {
    pub options: Options,
    pub listeners: Vec<Listener>,
    pub catalog: Catalog,
    pub access: Access,
    pub client_quotas: Quotas,
    pub control: Arc<ControlQueue>,
    pub control_lock: ControlLock,
    pub decider: OnceLock<Decider>,
    pub settler: OnceLock<Settler>,
    pub durability: Arc<Durability>,
    pub opener: Opener,
    pub forced: ForcedProducers,
    pub mailboxes: Vec<Arc<Mailbox>>,
    pub memory: Arc<RequestMemory>,
    pub quotas: Arc<ConnectionQuotas>,
    /// One for each listener.
    pub listener_metrics: Box<[ListenerMetrics]>,
    /// Connections closed for a request before authentication, or after their session.
    pub unauthenticated_connections: Counter,
    pub expired_connections: Counter,
    /// The principal of every connection that has not authenticated.
    pub anonymous: Arc<str>,
    /// One for each reactor.
    pub metrics: Vec<ReactorMetrics>,
}

/// One thread's connections.
pub struct Reactor {
    index: usize,
    poll: Poll,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    /// It has those of `Shared::listeners` in reactor 0, and none in the others.
    acceptor: Acceptor,
    /// When the last refused connection was told.
    refused_told_at: Option<Instant>,
    /// Which reactor the next connection goes to.
    accept_turn: usize,
    /// Connections so far; the number of the last.
    accepted: u64,
    slots: Vec<Option<Box<Connection>>>,
    /// The listener of each slot's connection.
    slot_listeners: Vec<usize>,
    free: Vec<usize>,
    next_stamp: u64,
    /// Connections that gave up their turn, or that may go on.
    again: Vec<usize>,
    /// Connections that may go on with their handshake, the first to wait first.
    shaking: VecDeque<usize>,
    /// When the last failed handshake was told.
    failure_told_at: Option<Instant>,
    /// Requests that gave way to others, the first to go on first.
    unfinished: VecDeque<Unfinished>,
    /// Connections that wait for memory to read a request, the first to wait first.
    starved: VecDeque<usize>,
    deadlines: Deadlines,
    spin: AdaptiveSpin,
    /// When it woke up: a frame that it reads now may have waited since.
    woke_up: Instant,
    /// When it last read the clock.
    now: Instant,
    /// When to look for idle connections.
    reap_at: Option<Instant>,
    /// Since when connections wait for memory, and when to look for slow requests.
    short: Option<(Instant, Instant)>,
    /// When to close surplus connections whatever they do.
    surplus_at: Option<Instant>,
    buffers: Buffers,
    /// Requests to be decided on before the next sleep.
    undecided: Undecided,
    /// Waits of the control loop have ended, and nobody has gone on with them.
    has_ended_waits: bool,
    /// The request being parsed; kept for its memory.
    produce: ProduceRequest,
    /// When a stopping reactor waits no longer.
    stop_at: Option<Instant>,
}

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

/// The result of a frame.
enum Answered {
    /// It is answered, or on its way elsewhere.
    Yes,
    /// Others have their turn first, and then it needs its frame.
    Unfinished,
    /// It cannot be read, or may not be answered: close the connection.
    Never,
    /// Not here: the reactor that decides is to read the frame.
    InFlight,
}

/// A request that took its turn and is not answered.
struct Unfinished {
    token: RequestToken,
    correlation_id: i32,
    request: UnfinishedRequest,
}

enum UnfinishedRequest {
    /// A Fetch that was not looked at: its connection's next frame.
    LargeFetch,
    Fetch(FetchRequest),
    /// A Produce; its body, unless that is its connection's next frame.
    Produce(ProduceRequest, Option<(Vec<u8>, Claim)>),
}

/// The body of a Produce.
enum Body<'a> {
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
    pub fn new(index: usize, poll: Poll, shared: Arc<Shared>, listeners: Vec<TcpListener>) -> Self {
        let mailbox = Arc::clone(&shared.mailboxes[index]);
        Self {
            index,
            poll,
            shared,
            mailbox,
            acceptor: Acceptor::new(listeners),
            refused_told_at: None,
            accept_turn: 0,
            accepted: 0,
            slots: Vec::new(),
            slot_listeners: Vec::new(),
            free: Vec::new(),
            next_stamp: 0,
            again: Vec::new(),
            shaking: VecDeque::new(),
            failure_told_at: None,
            unfinished: VecDeque::new(),
            starved: VecDeque::new(),
            deadlines: Deadlines::default(),
            spin: AdaptiveSpin::default(),
            woke_up: Instant::now(),
            now: Instant::now(),
            reap_at: None,
            short: None,
            surplus_at: None,
            buffers: Buffers::default(),
            undecided: Undecided::default(),
            has_ended_waits: false,
            produce: ProduceRequest::default(),
            stop_at: None,
        }
    }

    /// Runs until it is told to stop.
    ///
    /// # Errors
    /// epoll fails, which it does only for want of memory.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        for (index, listener) in self.acceptor.sockets_mut().enumerate() {
            let token = Token(FIRST_LISTENER + index);
            let registry = self.poll.registry();
            registry.register(listener, token, Interest::READABLE)?;
        }
        let mailbox = Arc::clone(&self.mailbox);
        loop {
            self.wait(&mut events)?;
            self.woke_up = self.read_clock();
            for event in &events {
                match event.token() {
                    MAILBOX => {}
                    Token(token) if token >= FIRST_LISTENER => {
                        self.acceptor.on_ready(token - FIRST_LISTENER);
                    }
                    Token(slot) => self.on_socket(slot, event),
                }
                if self.again.len() >= TURN_ANSWERS {
                    self.go_on();
                }
            }
            self.decide();
            for message in std::iter::from_fn(|| mailbox.take()).take(TURN_MESSAGES) {
                match message.slot() {
                    Some(slot) => self.guarded(slot, |reactor| reactor.on_message(message)),
                    None => self.on_message(message),
                }
            }
            self.on_time();
            self.accept();
            self.go_on();
            self.decide();
            self.shake_hands();
            self.finish_some();
            self.decide(); // none waits for the next event
            if self.has_stopped() {
                return Ok(());
            }
        }
    }

    /// Waits for something to do: not at all if there is, a moment awake if requests come
    /// closely, then asleep.
    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let has_more = !self.again.is_empty() || !self.shaking.is_empty();
        if has_more || !self.unfinished.is_empty() || self.acceptor.is_busy() {
            return self.poll(events, Some(Duration::ZERO));
        }
        if let Some(moment) = self.spin.duration() {
            let began = Instant::now();
            loop {
                self.poll(events, Some(Duration::ZERO))?;
                if !events.is_empty() || !self.mailbox.is_empty() {
                    self.spin.was_rewarded();
                    return Ok(());
                }
                if began.elapsed() >= moment {
                    break;
                }
                thread::yield_now(); // other threads that want this processor go first
            }
            self.spin.was_in_vain();
        }
        let timeout = if self.mailbox.may_sleep() {
            self.sleep_time()
        } else {
            Some(Duration::ZERO)
        };
        let polled = self.poll(events, timeout);
        self.mailbox.woke_up();
        polled
    }

    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            polled => polled,
        }
    }

    fn sleep_time(&self) -> Option<Duration> {
        let times = [
            self.deadlines.next(),
            self.acceptor.next_time(),
            self.reap_at,
            self.short.map(|(_, look_at)| look_at),
            self.surplus_at,
            self.stop_at,
        ];
        let next = times.into_iter().flatten().min();
        next.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Goes on with the connections that gave up their turn.
    fn go_on(&mut self) {
        for slot in std::mem::take(&mut self.again) {
            if let Some(connection) = self.connection(slot) {
                connection.is_listed = false;
                self.drive(slot);
            }
        }
    }

    /// Takes a step for one connection. If it panics, the connection is closed.
    fn guarded(&mut self, slot: usize, step: impl FnOnce(&mut Self)) {
        let was_open = self.connection(slot).is_some();
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| step(self))) else {
            return;
        };
        if !was_open || self.free.contains(&slot) {
            resume_unwind(panic); // it has nothing to do with this connection
        }
        self.shared.control.push_failure(panic_text(&*panic));
        if self.connection(slot).is_some() {
            self.close_slot(slot);
        } else {
            // It was closed when it was dropped, in the middle of its turn.
            self.leave(slot);
        }
    }

    fn connection(&mut self, slot: usize) -> Option<&mut Connection> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    fn stamp(&mut self) -> u64 {
        self.next_stamp += 1;
        self.next_stamp
    }

    fn token(&mut self, slot: usize) -> RequestToken {
        let stamp = self.stamp();
        RequestToken::new(self.index, slot, stamp)
    }

    // ------------------------------------------------------------ connections come and go

    /// Accepts connections, a few of each listener.
    fn accept(&mut self) {
        for listener in 0..self.acceptor.listeners() {
            for _ in 0..TURN_ACCEPTS {
                let next = self.acceptor.next(listener, &self.shared.quotas, self.now);
                let Some((socket, address)) = next else {
                    break;
                };
                self.assign(socket, address, listener);
            }
        }
    }

    fn assign(&mut self, socket: TcpStream, address: SocketAddr, listener: usize) {
        let ip = address.ip().to_canonical();
        let quotas = &self.shared.quotas;
        let place = match quotas.admit(listener, ip, self.now) {
            Ok(place) => place,
            Err(refusal) => return self.refuse(socket, address, listener, refusal),
        };
        self.acceptor.leave(quotas.spare_descriptors());
        if quotas.surplus() > 0 {
            for mailbox in &self.shared.mailboxes {
                mailbox.post(Message::TooManyConnections);
            }
        }
        self.accepted += 1;
        let reactor = self.accept_turn;
        self.accept_turn = (reactor + 1) % self.shared.mailboxes.len();
        let accepted = Accepted {
            socket,
            address,
            listener,
            number: self.accepted,
            place,
        };
        if reactor == self.index {
            self.open(accepted);
        } else {
            self.shared.mailboxes[reactor].post(Message::Accepted(accepted));
        }
    }

    /// Closes a connection that a limit keeps out; dropping the socket closes it.
    fn refuse(&mut self, socket: TcpStream, from: SocketAddr, listener: usize, refusal: Refusal) {
        self.shared.listener_metrics[listener].note_refused(refusal);
        if let Refusal::IpRate(wait) = refusal {
            let spare = self.shared.quotas.spare_descriptors();
            self.acceptor.close_later(socket, self.now + wait, spare);
        }
        let is_told = self.refused_told_at;
        if is_told.is_none_or(|at| self.now >= at + REFUSED_PAUSE) {
            self.refused_told_at = Some(self.now);
            self.shared.control.push_refused(RefusedConnection {
                listener,
                client_host: from.ip().to_canonical().to_string(),
                reason: Refusal::NAMES[refusal.row()],
            });
        }
    }

    fn open(&mut self, accepted: Accepted) {
        let Accepted {
            socket,
            address,
            listener,
            number,
            place,
        } = accepted;
        let is_ready = socket.set_nodelay(true).is_ok()
            // A peer that vanished without a word is noticed by the kernel, in its own time.
            && set_socket_keepalive(&socket, true).is_ok();
        if !is_ready {
            return;
        }
        // A socket of IPv6 has clients of IPv4 as ::ffff:10.0.0.1, and access control names 10.0.0.1.
        let ip = address.ip().to_canonical();
        if ip.is_loopback() {
            // Nothing is congested on the way to this machine. Where the default paces the sending
            // (BBR), loopback is half as fast; if it cannot be set, that is all we lose.
            let _ = set_tcp_congestion(&socket, "reno");
        }
        let host = ip.to_string().into();
        let claim = Claim::of(&self.shared.memory, 0);
        let options = &self.shared.listeners[listener];
        let Ok(transport) = Transport::new(socket, &options.security) else {
            return;
        };
        let mut connection = Connection::new(
            transport,
            listener,
            (host, Arc::clone(&self.shared.anonymous)),
            Authentication::at_first(options.is_sasl),
            number,
            self.now,
            claim,
        );
        connection.place = Some(place);
        self.metrics().sockets[listener].accepted.add_alone(1);
        self.register(Box::new(connection));
    }

    /// Serves a connection from now on.
    fn register(&mut self, mut connection: Box<Connection>) {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        let is_ready = self.stop_at.is_none()
            && slot < MAX_SLOTS
            && registry
                .register(connection.socket_mut(), Token(slot), interest)
                .is_ok();
        if !is_ready {
            if slot < self.slots.len() {
                self.free.push(slot);
            }
            return;
        }
        self.metrics().sockets[connection.listener]
            .connections
            .rise();
        connection.opened = self.stamp();
        let timeouts = [
            (!connection.is_established).then_some(self.shared.options.handshake_timeout),
            (connection.authentication.is_needed()).then_some(self.shared.options.login_timeout),
        ];
        let [handshake, login] = timeouts.map(|timeout| Some((self.token(slot), timeout?)));
        connection.handshake_token = handshake.map(|(token, _)| token);
        connection.login_token = login.map(|(token, _)| token);
        let max_idle = self.shared.options.max_idle;
        self.reap_at = self.reap_at.or_else(|| Some(self.now + max_idle?));
        if slot == self.slots.len() {
            self.slot_listeners.push(connection.listener);
            self.slots.push(Some(connection));
        } else {
            self.slot_listeners[slot] = connection.listener;
            self.slots[slot] = Some(connection);
        }
        for (token, timeout) in [handshake, login].into_iter().flatten() {
            self.push_deadline(self.now + timeout, token);
        }
        self.drive(slot);
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

    /// Lets go of a connection that is about to be dropped, which closes it.
    fn forget(&mut self, slot: usize, connection: &mut Connection) {
        // It fails only for a socket that was never registered.
        let _ = self.poll.registry().deregister(connection.socket_mut());
        if let ConnectionState::Delayed { response, .. } = &connection.state {
            self.note_left(&response.operation);
        }
        if connection.is_starved {
            self.starved.retain(|&other| other != slot);
        }
        // Before the client can see the end: it may connect anew at once.
        connection.place = None;
        connection.presence.end();
        connection.say_goodbye();
        self.leave(slot);
    }

    /// Notes that a slot has no connection any more.
    fn leave(&mut self, slot: usize) {
        self.free.push(slot);
        let sockets = &self.metrics().sockets[self.slot_listeners[slot]];
        sockets.connections.fall();
    }

    /// Closes the connections that were idle for too long.
    fn close_idle(&mut self) {
        let Some(max_idle) = self.shared.options.max_idle else {
            return;
        };
        let mut idlest = None;
        for slot in 0..self.slots.len() {
            let Some(connection) = &self.slots[slot] else {
                continue;
            };
            // One that is muted for very long would outlast everything else.
            let is_muted =
                connection.is_muted() && !connection.is_muted_beyond(self.now + max_idle);
            let waits = !connection.is_idle() || connection.is_starved || is_muted;
            let idleness = connection.idleness();
            let active_at = if waits {
                self.now // a client that waits for an answer, or to be read, is not idle
            } else {
                connection.active_at
            };
            if active_at + max_idle <= self.now {
                self.close_for(slot, idleness);
            } else {
                idlest = Some(idlest.map_or(active_at, |other: Instant| other.min(active_at)));
            }
        }
        let soonest = self.now + (max_idle / REAPS).max(Duration::from_millis(1));
        self.reap_at = idlest.map(|active_at| (active_at + max_idle).max(soonest));
    }

    /// Closes a connection that is idle, slow or one too many.
    fn close_for(&mut self, slot: usize, reason: CloseReason) {
        self.shared.listener_metrics[self.slot_listeners[slot]].note_closed(reason);
        self.close_slot(slot);
    }

    /// Closes the connections whose requests come so slowly, or whose answers are not taken, so
    /// that others wait for their memory.
    fn close_slow(&mut self) {
        let Some((since, _)) = self.short else {
            return;
        };
        if !self.shared.memory.is_short() {
            self.short = None;
            return;
        }
        self.short = Some((since, self.now + PACE_CHECK));
        let grace = self.shared.options.memory_patience;
        let patience = self.shared.options.answer_patience;
        let now = self.now;
        for slot in 0..self.slots.len() {
            let reason = self.connection(slot).and_then(|one| {
                if one.takes_nothing(since, patience, now) {
                    Some(CloseReason::SlowReader)
                } else if one.reads_slowly(since, grace, PACE_BYTES, now) {
                    Some(CloseReason::SlowRequest)
                } else {
                    None
                }
            });
            if let Some(reason) = reason {
                self.close_for(slot, reason);
            }
        }
    }

    /// Closes the least recently used connections while there are more than `max.connections`;
    /// those with a request under way only if `is_over`.
    fn close_surplus(&mut self, is_over: bool) {
        self.surplus_at = None;
        let quotas = Arc::clone(&self.shared.quotas);
        if quotas.surplus() == 0 {
            return;
        }
        let slots = self.slots.iter().enumerate();
        let mut least_used: Vec<_> = slots
            .filter_map(|(slot, one)| Some((slot, one.as_ref()?)))
            .filter(|(_, one)| !quotas.is_protected(one.listener))
            .filter(|(_, one)| is_over || one.is_idle())
            .map(|(slot, one)| (!one.is_idle(), one.active_at, slot))
            .collect();
        least_used.sort_unstable();
        for (_, _, slot) in least_used {
            if quotas.surplus() == 0 {
                return;
            }
            self.close_for(slot, CloseReason::Surplus);
        }
        if !is_over && quotas.surplus() > 0 {
            self.surplus_at = Some(self.now + SURPLUS_GRACE); // others close theirs meanwhile
        }
    }

    /// Closes a connection whose client has not authenticated, unless it waits for this server.
    fn end_login(&mut self, slot: usize, token: RequestToken) {
        let Some(connection) = self.connection(slot) else {
            return;
        };
        if connection.is_idle() && !connection.is_muted() {
            self.close_for(slot, CloseReason::SlowLogin);
        } else {
            self.push_deadline(self.now + LOGIN_CHECK, token);
        }
    }

    // ------------------------------------------------------------ handshakes

    /// Goes on with handshakes, for as long as others may wait for them.
    fn shake_hands(&mut self) {
        let began = self.now;
        while let Some(slot) = self.shaking.pop_front() {
            self.guarded(slot, |reactor| reactor.shake_hand(slot));
            if self.read_clock().duration_since(began) >= HANDSHAKES_TURN {
                return;
            }
        }
    }

    fn shake_hand(&mut self, slot: usize) {
        let now = self.now;
        let Some(connection) = self.connection(slot) else {
            return; // it was closed
        };
        connection.is_shaking = false;
        if connection.is_established {
            return; // a later connection in this slot
        }
        match connection.handshake() {
            Ok(Handshake::Done) => {
                if let Some(tls) = connection.tls() {
                    tls.note_handshake();
                }
                connection.note_progress(now);
                self.drive(slot);
            }
            Ok(Handshake::Blocked) if self.stop_at.is_none() => {}
            Ok(Handshake::Blocked) => self.close_slot(slot),
            Err(failure) => self.fail_handshake(slot, failure),
        }
    }

    /// Closes a connection whose handshake has failed.
    fn fail_handshake(&mut self, slot: usize, failure: HandshakeError) {
        let now = self.now;
        let is_told = self
            .failure_told_at
            .is_none_or(|at| now >= at + FAILED_HANDSHAKES_PAUSE);
        if let Some(connection) = self.connection(slot) {
            if let Some(tls) = connection.tls() {
                tls.note_failure(failure.reason);
            }
            let failed = FailedHandshake {
                listener: connection.listener,
                client_host: Arc::clone(&connection.host),
                reason: failure.text,
            };
            if is_told {
                self.failure_told_at = Some(now);
                self.shared.control.push_failed_handshake(failed);
            }
        }
        self.close_slot(slot);
    }

    // ------------------------------------------------------------ events that wake a connection

    fn on_socket(&mut self, slot: usize, event: &mio::event::Event) {
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
        let has_left = connection.is_half_closed && connection.state.is_delayed_fetch();
        let is_read = connection.is_idle() && !connection.is_muted(); // it finds out by itself
        if has_left || (is_broken && !is_read) {
            self.close_slot(slot);
        } else {
            self.drive(slot);
        }
    }

    fn close_slot(&mut self, slot: usize) {
        if let Some(mut connection) = self.slots[slot].take() {
            self.forget(slot, &mut connection);
        }
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Accepted(accepted) => self.open(accepted),
            Message::Moved(connection) => self.register(connection),
            Message::Reply(token, frame, ready, claim) => {
                self.on_reply(token, frame, ready);
                drop(claim); // the connection has its own for it now
            }
            Message::Refuse(token, frame, ready) => self.on_refuse(token, frame, ready),
            Message::ReplyRaw(token, frame, ready) => self.on_reply_raw(token, frame, ready),
            Message::Mute(token, duration) => self.on_mute(token, duration),
            Message::Attach(token, attachment) => {
                if let Some(connection) = self.answering(token) {
                    connection.attachment = Some(attachment);
                }
            }
            Message::RequireAuthentication(token, is_raw) => {
                if let Some(connection) = self.answering(token) {
                    connection.authentication = if is_raw {
                        Authentication::NeededRaw
                    } else {
                        Authentication::Needed
                    };
                }
            }
            Message::Authenticated(token, principal, lifetime) => {
                let now = self.now;
                if let Some(connection) = self.answering(token) {
                    connection.log_in(principal);
                    connection.authentication = Authentication::done(lifetime, now);
                    connection.login_token = None;
                }
            }
            Message::Resume(token, refused) => self.on_resume(token, &refused),
            Message::Opened(token, request) => self.on_opened(token, *request),
            Message::Disconnect(token) => self.on_disconnect(token),
            Message::Recheck(token) => self.on_recheck(token),
            Message::TopicsChanged => self.on_topics_changed(),
            Message::RoleChanged => self.on_role_changed(),
            Message::MemoryFreed => self.on_memory_freed(),
            Message::MemoryShort => {
                self.short = self.short.or(Some((self.now, self.now + PACE_CHECK)));
            }
            Message::PlaceFreed => {
                let metrics = &self.shared.listener_metrics;
                self.acceptor.on_place(self.now, metrics);
            }
            Message::TooManyConnections => self.close_surplus(false),
            Message::WaitsEnded => self.has_ended_waits = true,
            Message::Stop => self.on_stop(),
            #[cfg(test)]
            Message::Panic => panic!("as it was told"),
        }
    }

    /// The connection whose request under way is this one.
    fn answering(&mut self, token: RequestToken) -> Option<&mut Connection> {
        self.connection(token.slot())
            .filter(|one| one.state.token() == Some(token))
    }

    /// Answers a request as its connection's last.
    fn on_refuse(&mut self, token: RequestToken, frame: Vec<u8>, ready: Instant) {
        if let Some(connection) = self.answering(token) {
            connection.is_closing = true;
        }
        self.on_reply(token, frame, ready);
    }

    fn on_reply(&mut self, token: RequestToken, mut frame: Vec<u8>, ready: Instant) {
        let Some(connection) = self.answering(token) else {
            return;
        };
        let ConnectionState::InFlight { correlation_id, .. } = connection.state else {
            return;
        };
        set_correlation_id(&mut frame, correlation_id);
        self.on_reply_raw(token, frame, ready);
    }

    fn on_reply_raw(&mut self, token: RequestToken, frame: Vec<u8>, ready: Instant) {
        let metrics = &self.shared.metrics[self.index];
        let connection = self.slots.get_mut(token.slot());
        let connection = connection.and_then(Option::as_deref_mut);
        let Some(connection) = connection.filter(|one| one.state.token() == Some(token)) else {
            return;
        };
        if !matches!(connection.state, ConnectionState::InFlight { .. }) {
            return;
        }
        connection.state = ConnectionState::Idle;
        connection.push(Chunk::bytes(frame));
        connection.note_answer(metrics, ready);
        self.drive(token.slot());
    }

    fn on_resume(&mut self, token: RequestToken, refused: &[Refused]) {
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

    fn on_mute(&mut self, token: RequestToken, duration: Duration) {
        let until = self.now + duration;
        let mute_token = self.token(token.slot());
        let is_longer = |one: &mut Connection| one.mute(until, mute_token);
        if self.answering(token).is_some_and(is_longer) {
            self.push_deadline(until, mute_token);
        }
    }

    fn on_disconnect(&mut self, token: RequestToken) {
        let Some(connection) = self.connection(token.slot()) else {
            return;
        };
        if connection.opened > token.stamp() {
            return; // an earlier connection in this slot was meant
        }
        connection.is_closing = true;
        let was_under_way = std::mem::take(&mut connection.state);
        if let ConnectionState::Delayed { response, .. } = &was_under_way {
            self.note_left(&response.operation);
        }
        self.drive(token.slot());
    }

    /// Completes a delayed response that is ready, or whose deadline has passed.
    fn on_recheck(&mut self, token: RequestToken) {
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

    fn on_topics_changed(&mut self) {
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
    fn on_role_changed(&mut self) {
        for slot in 0..self.slots.len() {
            let Some(connection) = self.connection(slot) else {
                continue;
            };
            if let ConnectionState::Delayed { token, .. } = connection.state {
                self.guarded(slot, |reactor| reactor.on_recheck(token));
            }
        }
    }

    /// Lets connections read that waited for memory, as long as there is some.
    fn on_memory_freed(&mut self) {
        let now = self.now;
        for _ in 0..self.starved.len() {
            if !self.shared.memory.may_begin(self.index) {
                return;
            }
            let Some(slot) = self.starved.pop_front() else {
                return;
            };
            if let Some(connection) = self.connection(slot) {
                connection.is_starved = false;
                connection.note_progress(now);
                self.drive(slot);
            }
        }
    }

    fn on_time(&mut self) {
        let metrics = &self.shared.listener_metrics;
        self.acceptor.on_time(self.now, metrics);
        let now = self.now;
        while let Some(token) = self.deadlines.pop_passed(self.now) {
            if self.answering(token).is_some() {
                // Its time has come, or its rest is over and a log may have advanced.
                self.guarded(token.slot(), |reactor| reactor.on_recheck(token));
            } else if let Some(connection) = self.connection(token.slot()) {
                if connection.handshake_token == Some(token) {
                    let text = "the client takes too long for its handshake";
                    let failure = HandshakeError::new(FailureReason::Timeout, text);
                    self.fail_handshake(token.slot(), failure);
                } else if connection.login_token == Some(token) {
                    self.end_login(token.slot(), token);
                } else if connection.unmute(token) {
                    connection.note_progress(now);
                    self.drive(token.slot());
                }
            }
        }
        if self.reap_at.is_some_and(|at| at <= self.now) {
            self.close_idle();
        }
        if self.surplus_at.is_some_and(|at| at <= self.now) {
            self.close_surplus(true);
        }
        if self.short.is_some_and(|(_, look_at)| look_at <= self.now) {
            self.close_slow();
        }
    }

    // ------------------------------------------------------------ the purgatory

    /// Lets a request wait; it is rechecked when its watcher is called, and at its deadline.
    fn delay(
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
        self.metrics().delayed(&response.operation).rise();
        let deadline = response.deadline;
        connection.state = ConnectionState::Delayed { token, response };
        self.push_deadline(deadline, token);
    }

    fn push_deadline(&mut self, deadline: Instant, token: RequestToken) {
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
    fn note_left(&mut self, operation: &DelayedOperation) {
        self.metrics().delayed(operation).fall();
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
    fn complete(&mut self, slot: usize) {
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

    fn metrics(&self) -> &ReactorMetrics {
        &self.shared.metrics[self.index]
    }

    fn read_clock(&mut self) -> Instant {
        self.now = Instant::now();
        self.now
    }

    // ------------------------------------------------------------ a connection's turn

    /// Gives a connection its turn.
    fn drive(&mut self, slot: usize) {
        self.guarded(slot, |reactor| reactor.give_turn(slot));
    }

    fn give_turn(&mut self, slot: usize) {
        let Some(mut connection) = self.slots.get_mut(slot).and_then(Option::take) else {
            return;
        };
        match self.take_turn(slot, &mut connection) {
            TurnOutcome::Close => self.forget(slot, &mut connection),
            TurnOutcome::Move => self.hand_over(slot, connection),
            outcome => {
                connection.note_moved(self.now);
                connection.settle(&mut self.buffers);
                if matches!(outcome, TurnOutcome::Again) && !connection.is_listed {
                    connection.is_listed = true;
                    self.again.push(slot);
                }
                self.slots[slot] = Some(connection);
            }
        }
    }

    fn take_turn(&mut self, slot: usize, connection: &mut Connection) -> TurnOutcome {
        if !connection.is_established {
            if self.stop_at.is_some() {
                return TurnOutcome::Close;
            }
            if !connection.is_shaking {
                connection.is_shaking = true;
                self.shaking.push_back(slot);
            }
            return TurnOutcome::Keep;
        }
        let began = self.now;
        for _ in 0..TURN_FRAMES {
            let goes_on = connection.is_idle()
                && !connection.is_closing
                && !connection.is_muted()
                && self.stop_at.is_none();
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
            if self.stop_at.is_some() {
                return TurnOutcome::Close;
            }
            if connection.is_muted() {
                let has_left = connection.is_half_closed
                    && connection.is_muted_beyond(self.now + LEFT_MUTE_MAX);
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
            if self.now.duration_since(began) >= self.shared.options.turn {
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
                connection.note_progress(self.now);
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
        for _ in 0..TURN_READS {
            match connection.front(self.max_request_bytes(connection)) {
                Front::Whole(_) => return Ok(NextFrame::Whole),
                Front::Refused => return Err(io::ErrorKind::InvalidData.into()),
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
    fn max_request_bytes(&self, connection: &Connection) -> usize {
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
        let may_read = is_stranger || connection.begin_reading(self.index, self.now);
        if may_read && connection.is_starved {
            self.starved.retain(|&other| other != slot); // it was faster than its turn
        } else if !may_read && !connection.is_starved {
            self.starved.push_back(slot);
        }
        connection.is_starved = !may_read;
        may_read
    }

    fn answer_front(&mut self, slot: usize, connection: &mut Connection) -> Answered {
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
            Ok(header) if !self.may_answer(connection, header.api_key) => Answered::Never,
            Ok(header) => {
                let (body, bytes) = (header.body, end - start);
                connection.note_progress(self.now);
                connection.marks = Some(Marks::new(header.api_key, self.woke_up, self.now));
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
            Err(_) => Answered::Never,
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
            PRODUCE | FETCH => Answered::Never,
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
    fn throttle(&mut self, slot: usize, connection: &mut Connection, throttle: Duration) -> i32 {
        if !throttle.is_zero() {
            let (until, token) = (self.now + throttle, self.token(slot));
            if connection.mute(until, token) {
                self.push_deadline(until, token);
            }
        }
        i32::try_from(throttle.as_millis()).unwrap_or(i32::MAX)
    }

    /// True if a request may be answered before, or after, its client authenticated.
    fn may_answer(&self, connection: &Connection, api_key: i16) -> bool {
        match connection.authentication.admit(api_key, self.now) {
            Admission::Admitted => true,
            Admission::Unauthenticated => {
                self.shared.unauthenticated_connections.add(1);
                false
            }
            Admission::Expired => {
                self.shared.expired_connections.add(1);
                false
            }
        }
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
        connection.state = ConnectionState::InFlight {
            token,
            correlation_id,
        };
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

    // ------------------------------------------------------------ decisions of Python

    fn is_decided_by_reactors(&self, header: &RequestHeader, frame: &[u8]) -> bool {
        let decider = self.shared.decider.get();
        frame.len() <= QUICK_BYTES
            && decider.is_some_and(|decider| decider.api_keys.contains(&header.api_key))
    }

    /// True if a Produce, of so many bytes, is better answered by the reactor that decides.
    fn is_for_the_deciding(&self, request: &ProduceRequest, bytes: usize) -> bool {
        let is_elsewhere = self.index != DECIDING && self.shared.decider.get().is_some();
        is_elsewhere && bytes <= MOVED_BYTES && request.is_transactional()
    }

    /// Goes on with the control loop's waits that have ended: here, or there if it is at work.
    fn settle(&mut self) {
        if !std::mem::take(&mut self.has_ended_waits) {
            return;
        }
        let Some(settler) = self.shared.settler.get() else {
            return; // nothing is told before there is one
        };
        if !self.shared.control_lock.try_take() {
            return (settler.leave)();
        }
        let settled = catch_unwind(AssertUnwindSafe(|| (settler.settle)()));
        self.shared.control_lock.release(); // in any case: the loop waits for it
        if let Err(panic) = settled {
            self.shared.control.push_failure(panic_text(&*panic));
        }
    }

    /// Decides the collected requests here, or passes them to the control loop if that is running.
    fn decide(&mut self) {
        if !self.has_ended_waits && self.undecided.is_empty() {
            return;
        }
        self.settle();
        self.decide_collected();
        self.read_clock(); // the turns that follow begin now
    }

    fn decide_collected(&mut self) {
        if self.undecided.is_empty() {
            return;
        }
        let undecided = std::mem::take(&mut self.undecided);
        match self.shared.decider.get() {
            Some(decider) if self.shared.control_lock.try_take() => {
                let tokens = undecided.tokens();
                let outcome = catch_unwind(AssertUnwindSafe(|| undecided.decide(&decider.decide)));
                self.shared.control_lock.release(); // in any case: the loop waits for it
                let will_answer = outcome.unwrap_or_else(|panic| {
                    self.shared.control.push_failure(panic_text(&*panic));
                    false
                });
                if !will_answer {
                    for token in tokens {
                        self.mailbox.post(Message::Disconnect(token));
                    }
                }
            }
            _ => self.shared.control.push_all(undecided),
        }
    }

    // ------------------------------------------------------------ produce

    fn on_produce(
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
    fn go_on_produce(
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

    /// Parks a request until the coordinator has decided whether its partitions may join.
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

    /// Parks a request until other threads have decompressed its large batches.
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

    fn on_opened(&mut self, token: RequestToken, opened: Large) {
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

    fn resume(&mut self, slot: usize, parked: Parked, refused: &[Refused]) {
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

    // ------------------------------------------------------------ fetch

    fn on_fetch(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        header: &RequestHeader,
        body: &[u8],
    ) -> Answered {
        if body.len() > LARGE_FETCH_BYTES {
            let request = UnfinishedRequest::LargeFetch;
            self.give_way(slot, connection, header.correlation_id, request);
            return Answered::Unfinished;
        }
        self.begin_fetch(slot, connection, header, body)
    }

    fn begin_fetch(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        header: &RequestHeader,
        body: &[u8],
    ) -> Answered {
        let catalog = &self.shared.catalog;
        let parsed = FetchRequest::parse(body, header.api_version, header.correlation_id, catalog);
        let Ok(request) = parsed else {
            return Answered::Never;
        };
        self.go_on_fetch(slot, connection, request);
        Answered::Yes
    }

    /// Goes on with a Fetch until it is answered or waits, or its turn is over.
    #[inline]
    fn go_on_fetch(&mut self, slot: usize, connection: &mut Connection, mut request: FetchRequest) {
        let access = &self.shared.access;
        if access.is_checked() {
            let mut turn = Turn::of(self.shared.options.turn);
            if !request.authorize(access, connection.sender(), &mut turn) {
                let correlation_id = request.correlation_id();
                let request = UnfinishedRequest::Fetch(request);
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
        let deadline = self.now + request.max_wait();
        let mailbox = Arc::clone(&self.mailbox);
        let operation = DelayedOperation::Fetch(request);
        let response = Box::new(DelayedResponse::new(operation, deadline, token, mailbox));
        if !response.is_ready() {
            self.delay(connection, token, response);
        } else if let DelayedOperation::Fetch(request) = response.operation {
            self.push_fetched(slot, connection, &request);
        }
    }

    /// Answers a Fetch; with nothing if its client is over its quota.
    fn push_fetched(&mut self, slot: usize, connection: &mut Connection, request: &FetchRequest) {
        let (chunks, record_bytes) = request.answer(!self.shared.memory.is_tight());
        let throttle = connection.meter.as_ref().map_or(Duration::ZERO, |meter| {
            let bytes = chunks.iter().map(Chunk::left).sum();
            self.shared.client_quotas.fetched(meter, bytes)
        });
        if throttle.is_zero() {
            self.metrics().fetched_bytes.add_alone(record_bytes);
            for chunk in chunks {
                connection.push(chunk);
            }
        } else {
            let throttle_ms = self.throttle(slot, connection, throttle);
            connection.push(request.throttled(throttle_ms));
        }
        let now = self.read_clock();
        connection.note_answer(self.metrics(), now);
    }

    // ------------------------------------------------------------ long requests

    /// Continues a request after the other connections had their turns.
    fn give_way(
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
    fn finish_some(&mut self) {
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

    // ------------------------------------------------------------ the end

    fn on_stop(&mut self) {
        if self.stop_at.is_some() {
            return;
        }
        self.stop_at = Some(self.now + DRAIN_GRACE);
        self.acceptor.close();
        for slot in 0..self.slots.len() {
            let is_fetch = |one: &mut Connection| one.state.is_delayed_fetch();
            if self.connection(slot).is_some_and(is_fetch) {
                self.complete(slot);
            }
            self.drive(slot); // idle ones are closed
        }
    }

    fn has_stopped(&mut self) -> bool {
        let Some(stop_at) = self.stop_at else {
            return false;
        };
        if self.now >= stop_at {
            for slot in 0..self.slots.len() {
                self.close_slot(slot);
            }
        }
        self.slots.iter().all(Option::is_none)
    }
}

/// The text of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it does not say why").to_owned()
}
