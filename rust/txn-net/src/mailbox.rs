//! Messages of other threads to a reactor.
//!
//! Everything that is not a socket event reaches a reactor as a [`Message`]: connections,
//! Python's replies, logs that advanced, syncs that are done. Posting wakes the reactor only if it
//! sleeps or is about to: a message posted by the reactor itself costs no system call.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mio::Waker;
use mio::net::TcpStream;

use crate::authentication::Attachment;
use crate::connection::Connection;
use crate::connection_quotas::ConnectionPlace;
use crate::memory::Claim;
use crate::opener::Large;
use crate::produce::Refused;
use crate::signal::{Notify, Signal};
use crate::token::RequestToken;

/// A message to a reactor.
pub enum Message {
    /// A connection that is its own from now on.
    Accepted(Accepted),
    /// A connection that another reactor served until now; its next frame is whole.
    Moved(Box<Connection>),
    /// A whole frame for the request, when it was ready, and the claim for its memory; the reactor
    /// fills in the correlation id.
    Reply(RequestToken, Vec<u8>, Instant, Claim),
    /// A reply, and the connection is closed once it is sent.
    Refuse(RequestToken, Vec<u8>, Instant),
    /// A whole frame for a bare token of SASL, which has no correlation id.
    ReplyRaw(RequestToken, Vec<u8>, Instant),
    /// Let Python's state of the connection stay with it.
    Attach(RequestToken, Attachment),
    /// The client has to authenticate from here on; the flag is true if it sends bare tokens.
    RequireAuthentication(RequestToken, bool),
    /// The client has authenticated, as a principal and for a time.
    Authenticated(RequestToken, Arc<str>, Option<Duration>),
    /// Mute the request's connection for so long.
    Mute(RequestToken, Duration),
    /// The coordinator has decided on a parked Produce.
    Resume(RequestToken, Vec<Refused>),
    /// The batches of a Produce were opened.
    Opened(RequestToken, Box<Large>),
    /// Close the request's connection once its output is sent.
    Disconnect(RequestToken),
    /// Something that the reactor watches has changed.
    Signal(Signal),
    /// A topic was removed or replaced.
    TopicsChanged,
    /// A partition has another role.
    RoleChanged,
    /// There are more connections than `max.connections`.
    TooManyConnections,
    /// Waits of the control loop for the disk have ended.
    WaitsEnded,
    /// Stop.
    Stop,
    /// Meet a bug.
    #[cfg(test)]
    Panic,
}

impl Message {
    /// The connection it is for, if it is for one that exists already.
    pub fn slot(&self) -> Option<usize> {
        match self {
            Self::Reply(token, ..)
            | Self::Refuse(token, ..)
            | Self::ReplyRaw(token, ..)
            | Self::Attach(token, _)
            | Self::RequireAuthentication(token, _)
            | Self::Authenticated(token, ..)
            | Self::Mute(token, _)
            | Self::Resume(token, _)
            | Self::Opened(token, _)
            | Self::Disconnect(token)
            | Self::Signal(Signal::Recheck(token)) => Some(token.slot()),
            Self::Accepted(..)
            | Self::Moved(_)
            | Self::TopicsChanged
            | Self::RoleChanged
            | Self::Signal(Signal::MemoryFreed | Signal::MemoryShort | Signal::PlaceFreed)
            | Self::TooManyConnections
            | Self::WaitsEnded
            | Self::Stop => None,
            #[cfg(test)]
            Self::Panic => None,
        }
    }
}

/// A connection that reactor 0 has accepted.
pub struct Accepted {
    pub socket: TcpStream,
    pub address: SocketAddr,
    /// Index of the listener.
    pub listener: usize,
    /// One more than that of the connection accepted before it.
    pub number: u64,
    /// Its part of the limits on connections.
    pub place: ConnectionPlace,
}

/// A reactor's inbox.
pub struct Mailbox {
    /// `None` once the reactor is gone.
    messages: Mutex<Option<VecDeque<Message>>>,
    /// True if the reactor will look into it before it sleeps.
    is_awake: AtomicBool,
    waker: Waker,
}

impl Mailbox {
    pub fn new(waker: Waker) -> Self {
        Self {
            messages: Mutex::new(Some(VecDeque::new())),
            is_awake: AtomicBool::new(false),
            waker,
        }
    }

    /// Leaves a message and wakes the reactor if it sleeps. False, and the message is dropped, if
    /// there is none any more.
    pub fn post(&self, message: Message) -> bool {
        match self.lock().as_mut() {
            Some(messages) => messages.push_back(message),
            None => return false,
        }
        if !self.is_awake.swap(true, Ordering::AcqRel) {
            // It fails only when the reactor is gone, with every connection it had.
            let _ = self.waker.wake();
        }
        true
    }

    /// Takes the oldest message.
    pub fn pop(&self) -> Option<Message> {
        self.lock().as_mut()?.pop_front()
    }

    /// True if no message waits.
    pub fn is_empty(&self) -> bool {
        self.lock().as_ref().is_none_or(VecDeque::is_empty)
    }

    /// The reactor is gone: drops its messages, now and from now on. A connection that was handed
    /// to it would otherwise stay open with nobody to serve it.
    pub fn close(&self) {
        let left = self.lock().take();
        drop(left);
    }

    /// Returns true if the reactor may sleep: from now on `post` wakes it, and there is no message.
    pub fn may_sleep(&self) -> bool {
        self.is_awake.store(false, Ordering::SeqCst);
        // A message posted before the store is seen here; one posted after it wakes.
        self.is_empty()
    }

    /// The reactor is awake and will look into the mailbox before it sleeps.
    pub fn woke_up(&self) {
        self.is_awake.store(true, Ordering::SeqCst);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<VecDeque<Message>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notify for Mailbox {
    fn notify(&self, signal: Signal) {
        self.post(Message::Signal(signal));
    }
}

/// A mailbox whose reactor is being made.
pub fn open(poll: &mio::Poll, token: mio::Token) -> io::Result<Mailbox> {
    Ok(Mailbox::new(Waker::new(poll.registry(), token)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_posted_to_a_sleeper_wakes_it_and_one_posted_to_a_waker_is_found() {
        let mut poll = mio::Poll::new().unwrap();
        let mut events = mio::Events::with_capacity(4);
        let mailbox = open(&poll, mio::Token(1)).unwrap();
        assert!(mailbox.may_sleep());
        mailbox.post(Message::Stop);
        poll.poll(&mut events, None).unwrap();
        assert_eq!(events.iter().count(), 1);
        mailbox.woke_up();
        mailbox.post(Message::Stop);
        poll.poll(&mut events, Some(std::time::Duration::ZERO))
            .unwrap();
        assert_eq!(events.iter().count(), 0);
        assert!(!mailbox.may_sleep());
        assert!(mailbox.pop().is_some());
        assert!(mailbox.pop().is_some());
        assert!(mailbox.pop().is_none());
    }
}
