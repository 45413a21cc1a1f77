//! A reactor: one thread's share of the connections.
//!
//! It sleeps in epoll. It wakes for sockets, for its [`Mailbox`], for the deadlines of delayed
//! responses, and to close connections that were idle for too long. Before it sleeps it may stay
//! awake for a moment ([`AdaptiveSpin`]). Here is the loop; its parts follow a connection:
//!
//! | file | holds |
//! |---|---|
//! | [`accepting`] | new connections, and the reactor each goes to |
//! | [`handshakes`] | connections whose handshake is not over |
//! | [`turns`] | a connection's turn: send, look at the next frame, read |
//! | [`requests`] | the kind of a request, its permission, its reply |
//! | [`produce`], [`fetch`] | the two requests that a reactor answers itself |
//! | [`decisions`] | the requests on which Python decides on this thread |
//! | [`waiting`] | requests that wait for a condition, or for another turn |
//! | [`closing`] | idle, slow and surplus connections |
//!
//! Everything a connection does happens in [`Reactor::drive`]. Small answers to frames that came
//! together leave together. The answer to a connection's last frame is sent once the other sockets
//! that have something were read. A client that an answer wakes takes the processor away, and does
//! so less often when answers go out together.
//!
//! A decision of Python's goes to the control loop, or is taken here and now while that sleeps
//! (`control_lock`). So is the rest of a decision that waited for the disk (`settler`). A
//! connection with such requests, or small batches of transactions, is moved to the reactor that
//! decides: two reactors that both want the interpreter would wait for each other most of the time.
//!
//! Nothing one client sends can harm another. A frame that cannot be read, a length that is too
//! large, a half frame and silence each cost their own connection only. So does a panic in its
//! turn. A panic in a decision costs the connections that were decided on together. A panic
//! anywhere else ends the reactor, and with it the server.
//!
//! # Deviations from Apache Kafka
//! - A connection whose request is under way is not idle, however long it takes; Kafka closes
//!   it after `connections.max.idle.ms` too.
//! - A connection that drips a request or sips an answer is idle; in Kafka any byte keeps it open.
//! - A log-in has to end in time, and so has a request while others wait for its memory.

mod accepting;
mod closing;
mod decisions;
mod fatal_requests;
mod fetch;
mod handshakes;
mod produce;
mod requests;
mod turns;
mod waiting;

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

use crate::acceptor::Acceptor;
use crate::adaptive_spin::AdaptiveSpin;
use crate::authentication::Authentication;
use crate::connection::{Buffers, Connection};
use crate::control::{FAULTS, Undecided};
use crate::mailbox::{Mailbox, Message};
use crate::metrics::ReactorMetrics;
use crate::panics::panic_text;
use crate::produce::ProduceRequest;
use crate::purgatory::Deadlines;
use crate::shared::Shared;
use crate::signal::Signal;
use crate::tls::{FailureReason, HandshakeError};
use crate::token::{MAX_SLOTS, RequestToken};

/// The events of the first listener; others follow. Those of connections are their slots.
const FIRST_LISTENER: usize = MAX_SLOTS;
/// The mailbox's events.
pub const MAILBOX: Token = Token(usize::MAX);

/// Messages read before sockets have their turn.
const TURN_MESSAGES: usize = 256;
/// Answers that wait until other sockets were read.
const TURN_ANSWERS: usize = 64;
/// Time that a stopping reactor waits for answers that are on their way.
const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// One thread's connections.
pub struct Reactor {
    index: usize,
    poll: Poll,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    accepting: Accepting,
    slots: Slots,
    /// The stamp of the newest token.
    last_stamp: u64,
    queues: Queues,
    clock: Clock,
    spin: AdaptiveSpin,
    /// When a failed handshake was last logged.
    handshake_failure_logged_at: Option<Instant>,
    /// When a request with a fault of each kind was last logged.
    fault_logged_at: [Option<Instant>; FAULTS],
    buffers: Buffers,
    /// Requests to be decided on before the next sleep.
    undecided: Undecided,
    /// Waits of the control loop have ended, and no thread has resumed them yet.
    has_ended_waits: bool,
    /// The request that is being parsed. It stays for its memory.
    produce: ProduceRequest,
}

/// The listeners, and the connections that they gave so far.
struct Accepting {
    /// Reactor 0 has the sockets of `Shared::listeners`; the others have none.
    acceptor: Acceptor,
    /// When a refused connection was last logged.
    refusal_logged_at: Option<Instant>,
    /// The reactor that the next connection goes to.
    next_reactor: usize,
    /// Number of connections so far; it is the number of the newest.
    count: u64,
}

/// The connections, each in a slot of its own.
#[derive(Default)]
struct Slots {
    /// A connection that has its turn is not in its slot.
    connections: Vec<Option<Box<Connection>>>,
    /// The listener of each slot's connection.
    listeners: Vec<usize>,
    free: Vec<usize>,
}

/// Connections and requests that have more to do, each queue in the order of arrival.
#[derive(Default)]
struct Queues {
    /// Connections that gave up their turn, or that may resume.
    again: Vec<usize>,
    /// Connections that may resume their handshake.
    handshakes: VecDeque<usize>,
    /// Requests that gave way to others.
    unfinished: VecDeque<RequestToken>,
    /// Connections that wait for memory to read a request.
    starved: VecDeque<usize>,
}

/// The time, and the times at which something has to be done.
struct Clock {
    /// When the reactor last read the clock.
    now: Instant,
    /// When the reactor woke up: a frame that it reads now may have waited since.
    woke_up: Instant,
    deadlines: Deadlines,
    /// When to look for idle connections.
    close_idle_at: Option<Instant>,
    /// Since when connections wait for memory, and when to look for slow requests.
    memory_short: Option<(Instant, Instant)>,
    /// When to close surplus connections, also those with a request under way.
    close_surplus_at: Option<Instant>,
    /// When a stopping reactor waits no longer.
    stop_at: Option<Instant>,
}

impl Clock {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            now,
            woke_up: now,
            deadlines: Deadlines::default(),
            close_idle_at: None,
            memory_short: None,
            close_surplus_at: None,
            stop_at: None,
        }
    }

    /// The first time at which something has to be done.
    fn next(&self) -> Option<Instant> {
        let times = [
            self.deadlines.next(),
            self.close_idle_at,
            self.memory_short.map(|(_, look_at)| look_at),
            self.close_surplus_at,
            self.stop_at,
        ];
        times.into_iter().flatten().min()
    }
}

impl Reactor {
    pub fn new(index: usize, poll: Poll, shared: Arc<Shared>, listeners: Vec<TcpListener>) -> Self {
        let mailbox = Arc::clone(&shared.mailboxes[index]);
        let accepting = Accepting {
            acceptor: Acceptor::new(listeners),
            refusal_logged_at: None,
            next_reactor: 0,
            count: 0,
        };
        Self {
            index,
            poll,
            shared,
            mailbox,
            accepting,
            slots: Slots::default(),
            last_stamp: 0,
            queues: Queues::default(),
            clock: Clock::new(),
            spin: AdaptiveSpin::default(),
            handshake_failure_logged_at: None,
            fault_logged_at: [None; FAULTS],
            buffers: Buffers::default(),
            undecided: Undecided::default(),
            has_ended_waits: false,
            produce: ProduceRequest::default(),
        }
    }

    /// Runs until it is told to stop.
    ///
    /// # Errors
    /// epoll fails, which it does only for want of memory.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        for (index, listener) in self.accepting.acceptor.sockets_mut().enumerate() {
            let token = Token(FIRST_LISTENER + index);
            let registry = self.poll.registry();
            registry.register(listener, token, Interest::READABLE)?;
        }
        let mailbox = Arc::clone(&self.mailbox);
        loop {
            self.wait(&mut events)?;
            self.clock.woke_up = self.read_clock();
            for event in &events {
                match event.token() {
                    MAILBOX => {}
                    Token(token) if token >= FIRST_LISTENER => {
                        self.accepting.acceptor.on_ready(token - FIRST_LISTENER);
                    }
                    Token(slot) => self.on_socket(slot, event),
                }
                if self.queues.again.len() >= TURN_ANSWERS {
                    self.resume_ready();
                }
            }
            self.decide();
            for message in std::iter::from_fn(|| mailbox.pop()).take(TURN_MESSAGES) {
                match message.slot() {
                    Some(slot) => self.guarded(slot, |reactor| reactor.on_message(message)),
                    None => self.on_message(message),
                }
            }
            self.on_time();
            self.accept();
            self.resume_ready();
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
        let has_more = !self.queues.again.is_empty() || !self.queues.handshakes.is_empty();
        if has_more || !self.queues.unfinished.is_empty() || self.accepting.acceptor.is_busy() {
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
        let times = [self.clock.next(), self.accepting.acceptor.next_time()];
        let next = times.into_iter().flatten().min();
        next.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Takes a step for one connection. If it panics, the connection is closed.
    fn guarded(&mut self, slot: usize, step: impl FnOnce(&mut Self)) {
        let was_open = self.connection(slot).is_some();
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| step(self))) else {
            return;
        };
        if !was_open || self.slots.free.contains(&slot) {
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
        self.slots.connections.get_mut(slot)?.as_deref_mut()
    }

    fn stamp(&mut self) -> u64 {
        self.last_stamp += 1;
        self.last_stamp
    }

    fn token(&mut self, slot: usize) -> RequestToken {
        let stamp = self.stamp();
        RequestToken::new(self.index, slot, stamp)
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
                let now = self.clock.now;
                if let Some(connection) = self.answering(token) {
                    connection.log_in(principal);
                    connection.authentication = Authentication::done(lifetime, now);
                    connection.login_token = None;
                }
            }
            Message::Resume(token, refused) => self.on_resume(token, &refused),
            Message::Opened(token, request) => self.on_opened(token, *request),
            Message::Disconnect(token) => self.on_disconnect(token),
            Message::Signal(Signal::Recheck(token)) => self.on_recheck(token),
            Message::TopicsChanged => self.on_topics_changed(),
            Message::RoleChanged => self.on_role_changed(),
            Message::Signal(Signal::MemoryFreed) => self.on_memory_freed(),
            Message::Signal(Signal::MemoryShort) => self.on_memory_short(),
            Message::Signal(Signal::PlaceFreed) => {
                let metrics = &self.shared.listener_metrics;
                self.accepting.acceptor.on_place(self.clock.now, metrics);
            }
            Message::TooManyConnections => self.close_surplus(false),
            Message::WaitsEnded => self.has_ended_waits = true,
            Message::Stop => self.on_stop(),
            #[cfg(test)]
            Message::Panic => panic!("as it was told"),
        }
    }

    fn on_time(&mut self) {
        let metrics = &self.shared.listener_metrics;
        self.accepting.acceptor.on_time(self.clock.now, metrics);
        let now = self.clock.now;
        while let Some(token) = self.clock.deadlines.pop_passed(self.clock.now) {
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
        if self
            .clock
            .close_idle_at
            .is_some_and(|at| at <= self.clock.now)
        {
            self.close_idle();
        }
        if self
            .clock
            .close_surplus_at
            .is_some_and(|at| at <= self.clock.now)
        {
            self.close_surplus(true);
        }
        if self
            .clock
            .memory_short
            .is_some_and(|(_, look_at)| look_at <= self.clock.now)
        {
            self.close_slow();
        }
    }

    fn metrics(&self) -> &ReactorMetrics {
        &self.shared.metrics[self.index]
    }

    fn read_clock(&mut self) -> Instant {
        self.clock.now = Instant::now();
        self.clock.now
    }

    fn on_stop(&mut self) {
        if self.clock.stop_at.is_some() {
            return;
        }
        self.clock.stop_at = Some(self.clock.now + DRAIN_GRACE);
        self.accepting.acceptor.close();
        for slot in 0..self.slots.connections.len() {
            let is_fetch = |one: &mut Connection| one.waits_for_bytes();
            if self.connection(slot).is_some_and(is_fetch) {
                self.complete(slot);
            }
            self.drive(slot); // idle ones are closed
        }
    }

    fn has_stopped(&mut self) -> bool {
        let Some(stop_at) = self.clock.stop_at else {
            return false;
        };
        if self.clock.now >= stop_at {
            for slot in 0..self.slots.connections.len() {
                self.close_slot(slot);
            }
        }
        self.slots.connections.iter().all(Option::is_none)
    }
}
