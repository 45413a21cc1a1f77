//! The ends of connections: idle, slow and surplus ones are closed here.
//!
//! Every connection that leaves a reactor passes [`Reactor::leave`], so that its slot is used again
//! and the metrics count it once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::metrics::CloseReason;
use crate::reactor::Reactor;
use crate::token::RequestToken;

/// Idle connections are looked for at most this many times in the time they may be idle.
const REAPS: u32 = 64;
/// Time between two looks for slow requests while others wait for their memory.
const PACE_CHECK: Duration = Duration::from_secs(1);
/// Bytes of a request that have to come in a second meanwhile.
const PACE_BYTES: usize = 64 << 10;
/// Time that surplus connections have for the request under way.
const SURPLUS_GRACE: Duration = Duration::from_millis(500);
/// Time for another look whether a client has authenticated, if it waits for this server.
const LOGIN_CHECK: Duration = Duration::from_secs(1);

impl Reactor {
    pub(super) fn close_slot(&mut self, slot: usize) {
        if let Some(mut connection) = self.slots.connections[slot].take() {
            self.forget(slot, &mut connection);
        }
    }

    /// Closes a connection that is idle, slow or one too many.
    fn close_for(&mut self, slot: usize, reason: CloseReason) {
        self.shared.listener_metrics[self.slots.listeners[slot]].note_closed(reason);
        self.close_slot(slot);
    }

    /// Lets go of a connection that is about to be dropped, which closes it.
    pub(super) fn forget(&mut self, slot: usize, connection: &mut Connection) {
        // It fails only for a socket that was never registered.
        let _ = self.poll.registry().deregister(connection.socket_mut());
        if let Some(waiting) = connection.waiting.take() {
            self.abandon(&waiting);
        }
        if connection.is_starved {
            self.queues.starved.retain(|&other| other != slot);
        }
        // Before the client can see the end: it may connect anew at once.
        connection.place = None;
        connection.presence.end();
        connection.close_notify();
        self.leave(slot);
    }

    /// Notes that a slot has no connection any more.
    pub(super) fn leave(&mut self, slot: usize) {
        self.slots.free.push(slot);
        let sockets = &self.metrics().sockets[self.slots.listeners[slot]];
        sockets.connections.fall();
    }

    /// Closes the connections that were idle for too long.
    pub(super) fn close_idle(&mut self) {
        let Some(max_idle) = self.shared.options.max_idle else {
            return;
        };
        let mut idlest = None;
        for slot in 0..self.slots.connections.len() {
            let Some(connection) = &self.slots.connections[slot] else {
                continue;
            };
            // One that is muted for very long would outlast everything else.
            let is_muted =
                connection.is_muted() && !connection.is_muted_beyond(self.clock.now + max_idle);
            let waits = !connection.is_idle() || connection.is_starved || is_muted;
            let idleness = connection.idleness();
            let active_at = if waits {
                self.clock.now // a client that waits for an answer, or to be read, is not idle
            } else {
                connection.active_at
            };
            if active_at + max_idle <= self.clock.now {
                self.close_for(slot, idleness);
            } else {
                idlest = Some(idlest.map_or(active_at, |other: Instant| other.min(active_at)));
            }
        }
        let soonest = self.clock.now + (max_idle / REAPS).max(Duration::from_millis(1));
        self.clock.close_idle_at = idlest.map(|active_at| (active_at + max_idle).max(soonest));
    }

    /// Looks for slow clients from now on, since others wait for memory.
    pub(super) fn on_memory_short(&mut self) {
        self.clock.memory_short = self
            .clock
            .memory_short
            .or(Some((self.clock.now, self.clock.now + PACE_CHECK)));
    }

    /// Closes the connections whose requests come so slowly, or whose answers are not taken, so
    /// that others wait for their memory.
    pub(super) fn close_slow(&mut self) {
        let Some((since, _)) = self.clock.memory_short else {
            return;
        };
        if !self.shared.memory.is_short() {
            self.clock.memory_short = None;
            return;
        }
        self.clock.memory_short = Some((since, self.clock.now + PACE_CHECK));
        let grace = self.shared.options.memory_patience;
        let patience = self.shared.options.answer_patience;
        let now = self.clock.now;
        for slot in 0..self.slots.connections.len() {
            let reason = self.connection(slot).and_then(|one| {
                if one.is_stalled(since, patience, now) {
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
    pub(super) fn close_surplus(&mut self, is_over: bool) {
        self.clock.close_surplus_at = None;
        let quotas = Arc::clone(&self.shared.quotas);
        if quotas.surplus() == 0 {
            return;
        }
        let slots = self.slots.connections.iter().enumerate();
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
            self.clock.close_surplus_at = Some(self.clock.now + SURPLUS_GRACE); // others close theirs meanwhile
        }
    }

    /// Closes a connection whose client has not authenticated, unless it waits for this server.
    pub(super) fn end_login(&mut self, slot: usize, token: RequestToken) {
        let Some(connection) = self.connection(slot) else {
            return;
        };
        if connection.is_idle() && !connection.is_muted() {
            self.close_for(slot, CloseReason::SlowLogin);
        } else {
            self.push_deadline(self.clock.now + LOGIN_CHECK, token);
        }
    }
}
