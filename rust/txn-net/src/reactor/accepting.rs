//! New connections: reactor 0 accepts them and hands them to all reactors in turn.
//!
//! A few connections of each listener are accepted between two turns of everybody else. The limits
//! on connections are asked before a connection belongs to a reactor.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Interest, Token};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_congestion};

use crate::authentication::Authentication;
use crate::connection::Connection;
use crate::connection_quotas::Refusal;
use crate::control::RefusedConnection;
use crate::mailbox::{Accepted, Message};
use crate::memory::Claim;
use crate::reactor::Reactor;
use crate::token::MAX_SLOTS;
use crate::transport::Transport;

/// Connections of one listener accepted before others have their turn.
const TURN_ACCEPTS: usize = 32;
/// Python hears of at most one refused connection in this time. All are counted.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

impl Reactor {
    /// Accepts connections, a few of each listener.
    pub(super) fn accept(&mut self) {
        for listener in 0..self.accepting.acceptor.listeners() {
            for _ in 0..TURN_ACCEPTS {
                let next =
                    self.accepting
                        .acceptor
                        .next(listener, &self.shared.quotas, self.clock.now);
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
        let place = match quotas.admit(listener, ip, self.clock.now) {
            Ok(place) => place,
            Err(refusal) => return self.refuse(socket, address, listener, refusal),
        };
        self.accepting.acceptor.leave(quotas.spare_descriptors());
        if quotas.surplus() > 0 {
            for mailbox in &self.shared.mailboxes {
                mailbox.post(Message::TooManyConnections);
            }
        }
        self.accepting.count += 1;
        let reactor = self.accepting.next_reactor;
        self.accepting.next_reactor = (reactor + 1) % self.shared.mailboxes.len();
        let accepted = Accepted {
            socket,
            address,
            listener,
            number: self.accepting.count,
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
            self.accepting
                .acceptor
                .close_later(socket, self.clock.now + wait, spare);
        }
        let logged_at = self.accepting.refusal_logged_at;
        if logged_at.is_none_or(|at| self.clock.now >= at + REFUSED_PAUSE) {
            self.accepting.refusal_logged_at = Some(self.clock.now);
            self.shared.control.push_refused(RefusedConnection {
                listener,
                client_host: from.ip().to_canonical().to_string(),
                reason: Refusal::NAMES[refusal.row()],
            });
        }
    }

    pub(super) fn open(&mut self, accepted: Accepted) {
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
            self.clock.now,
            claim,
        );
        connection.place = Some(place);
        self.metrics().sockets[listener].accepted.add_alone(1);
        self.register(Box::new(connection));
    }

    /// Serves a connection from now on.
    pub(super) fn register(&mut self, mut connection: Box<Connection>) {
        let slot = self
            .slots
            .free
            .pop()
            .unwrap_or(self.slots.connections.len());
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        let is_ready = self.clock.stop_at.is_none()
            && slot < MAX_SLOTS
            && registry
                .register(connection.socket_mut(), Token(slot), interest)
                .is_ok();
        if !is_ready {
            if slot < self.slots.connections.len() {
                self.slots.free.push(slot);
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
        self.clock.close_idle_at = self
            .clock
            .close_idle_at
            .or_else(|| Some(self.clock.now + max_idle?));
        if slot == self.slots.connections.len() {
            self.slots.listeners.push(connection.listener);
            self.slots.connections.push(Some(connection));
        } else {
            self.slots.listeners[slot] = connection.listener;
            self.slots.connections[slot] = Some(connection);
        }
        for (token, timeout) in [handshake, login].into_iter().flatten() {
            self.push_deadline(self.clock.now + timeout, token);
        }
        self.drive(slot);
    }
}
