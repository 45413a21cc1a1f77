//! The bytes of a connection that are not parsed yet.
//!
//! # Invariant
//! Memory follows bytes received: a length that a client announces reserves one step at most.

use std::io;

use txn_protocol::frame::{Front, LENGTH_BYTES, front};

use super::buffers::{Buffers, STEP_BYTES};
use super::{Connection, Fill};

impl Connection {
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
