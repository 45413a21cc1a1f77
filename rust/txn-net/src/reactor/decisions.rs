//! Decisions of Python that are made on this thread while the control loop sleeps.
//!
//! Requests are collected during a round and decided together, see `control_lock`. If the loop is
//! at work, they go to its queue. The same holds for waits for the disk that have ended, see
//! `settler`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use txn_protocol::frame::RequestHeader;

use crate::mailbox::Message;
use crate::panics::panic_text;
use crate::produce::ProduceRequest;
use crate::reactor::Reactor;
use crate::shared::DECIDING;

/// Produce requests with more bytes are answered where they come: they are more to store than to
/// decide.
const MOVED_BYTES: usize = 64 << 10;
/// Requests with more bytes are decided by the control loop: a thousand partitions take a while,
/// and this reactor's other connections would wait.
const QUICK_BYTES: usize = 4 << 10;

impl Reactor {
    pub(super) fn is_decided_by_reactors(&self, header: &RequestHeader, frame: &[u8]) -> bool {
        let decider = self.shared.decider.get();
        frame.len() <= QUICK_BYTES
            && decider.is_some_and(|decider| decider.api_keys.contains(&header.api_key))
    }

    /// True if a Produce, of so many bytes, is better answered by the reactor that decides.
    pub(super) fn is_for_the_deciding(&self, request: &ProduceRequest, bytes: usize) -> bool {
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
        if !self.shared.control_lock.try_acquire() {
            return (settler.leave)();
        }
        let settled = catch_unwind(AssertUnwindSafe(|| (settler.settle)()));
        self.shared.control_lock.release(); // in any case: the loop waits for it
        if let Err(panic) = settled {
            self.shared.control.push_failure(panic_text(&*panic));
        }
    }

    /// Decides the collected requests here, or passes them to the control loop if that is running.
    pub(super) fn decide(&mut self) {
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
            Some(decider) if self.shared.control_lock.try_acquire() => {
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
}
