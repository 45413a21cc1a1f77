//! The listening sockets of reactor 0, and the connections that wait beside them.
//!
//! A listener accepts nothing while its limits allow no connection: until a moment, or until a
//! connection is closed. The first connection that has to wait is accepted and held; the others
//! wait in the queue of the kernel. Without a file descriptor the listener accepts nothing either.
//!
//! A connection of an address that exceeds its rate is closed later. As many of these are held as
//! there are descriptors to spare.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};

use crate::connection_quotas::ConnectionQuotas;
use crate::metrics::ListenerMetrics;

/// Time to leave a listener alone when the system has no file descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection that has just come.
pub type NewConnection = (TcpStream, SocketAddr);

/// The listening sockets, none but in reactor 0.
pub struct Acceptor {
    gates: Vec<Gate>,
    /// Connections to be closed, by their time.
    doomed: BTreeMap<(Instant, u64), TcpStream>,
    doomed_count: u64,
}

struct Gate {
    socket: TcpListener,
    /// It said that connections have come, and has not been emptied since.
    is_ready: bool,
    held: Option<NewConnection>,
    rest: Option<(Rest, Instant)>,
}

/// The end of a rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Until(Instant),
    UntilPlaceIsFree,
}

impl Acceptor {
    pub fn new(sockets: Vec<TcpListener>) -> Self {
        let gates = sockets.into_iter().map(|socket| Gate {
            socket,
            is_ready: false,
            held: None,
            rest: None,
        });
        Self {
            gates: gates.collect(),
            doomed: BTreeMap::new(),
            doomed_count: 0,
        }
    }

    pub fn sockets_mut(&mut self) -> impl Iterator<Item = &mut TcpListener> {
        self.gates.iter_mut().map(|gate| &mut gate.socket)
    }

    pub fn listeners(&self) -> usize {
        self.gates.len()
    }

    /// Connections have come to a listener.
    pub fn on_ready(&mut self, listener: usize) {
        if let Some(gate) = self.gates.get_mut(listener) {
            gate.is_ready = true;
        }
    }

    /// True if a listener can go on at once.
    pub fn is_busy(&self) -> bool {
        self.gates.iter().any(Gate::may_accept)
    }

    /// When `on_time` has something to do.
    pub fn next_time(&self) -> Option<Instant> {
        let rests = self.gates.iter().filter_map(|gate| match gate.rest {
            Some((Rest::Until(at), _)) => Some(at),
            _ => None,
        });
        let doomed = self.doomed.keys().next().map(|&(at, _)| at);
        rests.chain(doomed).min()
    }

    /// Ends the rests and closes the connections whose time has come.
    pub fn on_time(&mut self, now: Instant, metrics: &[ListenerMetrics]) {
        self.end_rests(
            now,
            metrics,
            |rest| matches!(rest, Rest::Until(at) if at <= now),
        );
        while let Some(first) = self.doomed.first_entry()
            && first.key().0 <= now
        {
            first.remove();
        }
    }

    /// A connection has left, or the limits have changed.
    pub fn on_place(&mut self, now: Instant, metrics: &[ListenerMetrics]) {
        self.end_rests(now, metrics, |rest| rest == Rest::UntilPlaceIsFree);
    }

    fn end_rests(
        &mut self,
        now: Instant,
        metrics: &[ListenerMetrics],
        is_over: impl Fn(Rest) -> bool,
    ) {
        for (gate, metrics) in self.gates.iter_mut().zip(metrics) {
            if let Some((rest, since)) = gate.rest
                && is_over(rest)
            {
                gate.rest = None;
                metrics.note_blocked(now.saturating_duration_since(since));
            }
        }
    }

    /// The next connection of a listener that its limits let in, as far as they count connections of
    /// all addresses.
    pub fn next(
        &mut self,
        listener: usize,
        quotas: &ConnectionQuotas,
        now: Instant,
    ) -> Option<NewConnection> {
        let gate = &mut self.gates[listener];
        if !gate.may_accept() {
            return None;
        }
        let incoming = if let Some(held) = gate.held.take() {
            held
        } else {
            let incoming = gate.accept(now)?;
            let throttle = quotas.arrive(listener, now);
            if !throttle.is_zero() {
                gate.held = Some(incoming);
                gate.rest = Some((Rest::Until(now + throttle), now));
                return None;
            }
            incoming
        };
        if quotas.has_place(listener) {
            return Some(incoming);
        }
        gate.held = Some(incoming);
        gate.rest = Some((Rest::UntilPlaceIsFree, now));
        None
    }

    /// Closes a connection at a later time, or others before theirs where descriptors are few.
    pub fn close_later(&mut self, socket: TcpStream, at: Instant, spare: usize) {
        self.doomed_count += 1;
        self.doomed.insert((at, self.doomed_count), socket);
        self.leave(spare);
    }

    /// Holds so many doomed connections at most.
    pub fn leave(&mut self, spare: usize) {
        while self.doomed.len() > spare {
            self.doomed.pop_first();
        }
    }

    /// Stops listening.
    pub fn close(&mut self) {
        self.gates.clear();
        self.doomed.clear();
    }
}

impl Gate {
    /// True if it may have a connection now. Asking the system costs a call in every turn.
    fn may_accept(&self) -> bool {
        self.rest.is_none() && (self.is_ready || self.held.is_some())
    }

    fn accept(&mut self, now: Instant) -> Option<NewConnection> {
        loop {
            match self.socket.accept() {
                Ok(incoming) => return Some(incoming),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_ready = false;
                    return None;
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                Err(_) => {
                    // No file descriptor is left. The socket stays readable without saying so
                    // again, so time has to bring us back.
                    self.rest = Some((Rest::Until(now + PAUSE), now));
                    return None;
                }
            }
        }
    }
}
