//! Handshakes of TLS: connections that shake hands wait in a list of their own.
//!
//! Signing and checking certificates takes a millisecond. So a few handshakes go on between two
//! turns of everybody else.

use std::sync::Arc;
use std::time::Duration;

use crate::control::FailedHandshake;
use crate::reactor::Reactor;
use crate::tls::HandshakeError;
use crate::transport_step::Handshake;

/// Time for handshakes before others have their turn. At least one goes on.
const HANDSHAKES_TURN: Duration = Duration::from_micros(500);
/// Python hears of at most one failed handshake in this time. All are counted.
const FAILED_HANDSHAKES_PAUSE: Duration = Duration::from_millis(100);

impl Reactor {
    /// Goes on with handshakes, for as long as others may wait for them.
    pub(super) fn shake_hands(&mut self) {
        let began = self.clock.now;
        while let Some(slot) = self.queues.handshakes.pop_front() {
            self.guarded(slot, |reactor| reactor.shake_hand(slot));
            if self.read_clock().duration_since(began) >= HANDSHAKES_TURN {
                return;
            }
        }
    }

    fn shake_hand(&mut self, slot: usize) {
        let now = self.clock.now;
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
            Ok(Handshake::Blocked) if self.clock.stop_at.is_none() => {}
            Ok(Handshake::Blocked) => self.close_slot(slot),
            Err(failure) => self.fail_handshake(slot, failure),
        }
    }

    /// Closes a connection whose handshake has failed.
    pub(super) fn fail_handshake(&mut self, slot: usize, failure: HandshakeError) {
        let now = self.clock.now;
        let may_log = self
            .handshake_failure_logged_at
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
            if may_log {
                self.handshake_failure_logged_at = Some(now);
                self.shared.control.push_failed_handshake(failed);
            }
        }
        self.close_slot(slot);
    }
}
