//! Requests on their way to Python's control loop.
//!
//! A file descriptor is readable exactly while a request or a parked Produce waits, so an event
//! loop can watch it beside its other work. Requests of some APIs need not go that way while the
//! loop sleeps: a [`Decider`] answers them on the reactor's own thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use crate::authentication::Attachment;
use crate::memory::Claim;
use crate::metrics::Dequeued;
use crate::presence::Presence;
use crate::produce::Join;
use crate::token::RequestToken;

/// The version of a `SaslAuthenticate` that is the bare token of a mechanism.
pub const RAW_TOKEN: i16 = -1;

/// A request that is not for Rust to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlRequest {
    /// Token for the answer.
    pub token: RequestToken,
    /// Which API.
    pub api_key: i16,
    /// Which version of it; may be an unknown one. [`RAW_TOKEN`]: no request at all.
    pub api_version: i16,
    /// Field of the request header.
    pub correlation_id: i32,
    /// Field of the request header; bytes that are no UTF-8 are replaced.
    pub client_id: Option<String>,
    /// The bytes after the request header.
    pub body: Vec<u8>,
    /// The client's address.
    pub client_host: Arc<str>,
    /// Index of the listener that accepted the connection.
    pub listener: usize,
    /// The principal of the connection.
    pub principal: Arc<str>,
    /// Number of the connection: one that was accepted later has a higher number.
    pub connection: u64,
    /// The attachment of its connection.
    pub attachment: Option<Attachment>,
    /// Shows whether the client is there.
    pub presence: Presence,
    /// Set when it is taken.
    pub(crate) dequeued: Dequeued,
}

/// A parked Produce, and its question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedProduce {
    /// Token for the resumption.
    pub token: RequestToken,
    /// The question for the coordinator.
    pub join: Join,
}

/// Decides on requests and parked Produce requests, oldest first, on the calling thread, which
/// holds the control lock; false if they will never be answered.
pub type Decide = Box<dyn Fn(Vec<ControlRequest>, Vec<ParkedProduce>) -> bool + Send + Sync>;

/// Requests that reactors decide themselves instead of waking the control loop.
pub struct Decider {
    /// API keys of these requests.
    pub api_keys: Vec<i16>,
    /// The function that decides.
    pub decide: Decide,
}

/// Requests that a reactor met and wants decided before it sleeps.
#[derive(Default)]
pub struct Undecided {
    requests: Vec<(ControlRequest, Claim)>,
    joins: Vec<ParkedProduce>,
}

impl Undecided {
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.joins.is_empty()
    }

    pub fn push_request(&mut self, request: ControlRequest, claim: Claim) {
        self.requests.push((request, claim));
    }

    pub fn push_join(&mut self, join: ParkedProduce) {
        self.joins.push(join);
    }

    /// Tokens of the requests that wait for a decision.
    pub fn tokens(&self) -> Vec<RequestToken> {
        let requests = self.requests.iter().map(|(request, _)| request.token);
        let joins = self.joins.iter().map(|join| join.token);
        requests.chain(joins).collect()
    }

    /// Passes everything to `decide`; false if the requests will never be answered.
    pub fn decide(self, decide: &Decide) -> bool {
        // The memory of the requests is given back when they are decided.
        let (requests, _claims): (Vec<_>, Vec<_>) = self.requests.into_iter().unzip();
        note_dequeued(&requests);
        decide(requests, self.joins)
    }
}

fn note_dequeued(requests: &[ControlRequest]) {
    let now = Instant::now();
    for request in requests {
        let _ = request.dequeued.set(now); // it is taken once
    }
}

/// A handshake that failed, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedHandshake {
    /// Index of the listener.
    pub listener: usize,
    /// The client's address.
    pub client_host: Arc<str>,
    /// A sentence.
    pub reason: String,
}

/// A connection that was closed as it came, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedConnection {
    /// Index of the listener.
    pub listener: usize,
    /// The client's address.
    pub client_host: String,
    /// The limit, by its name in metrics.
    pub reason: &'static str,
}

/// A request for which a reactor closed the connection, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FatalRequest {
    /// The client's address.
    pub client_host: Arc<str>,
    /// API key of the header, or as it stands where the header ends too early.
    pub api_key: Option<i16>,
    /// Its version, likewise.
    pub api_version: Option<i16>,
    /// The fault for which it lost its connection.
    pub fault: Fault,
}

/// A fault of a request that costs its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It cannot be read; the reason in words.
    Malformed(String),
    /// Its version is not served.
    Unsupported,
    /// Its client has not logged in, or not again before its session expired.
    Unauthenticated {
        /// True if it had logged in.
        has_expired: bool,
    },
    /// It is a Produce with `acks=0`, and failed: its client learns it by the lost connection alone.
    Unacknowledged {
        /// The error code of the first partition that refused its batch.
        code: i16,
        /// The partition, and how many failed beside it, in words.
        reason: String,
    },
}

/// The number of `Fault`'s variants.
pub(crate) const FAULTS: usize = 4;

impl Fault {
    /// The number of its variant, below `FAULTS`.
    pub(crate) fn index(&self) -> usize {
        match self {
            Self::Malformed(_) => 0,
            Self::Unsupported => 1,
            Self::Unauthenticated { .. } => 2,
            Self::Unacknowledged { .. } => 3,
        }
    }
}

/// Failures beyond these are not kept: they say the same.
const FAILURES_MAX: usize = 100;

/// The queue to Python.
pub struct ControlQueue {
    waiting: Mutex<QueuedRequests>,
    wakeup: OwnedFd,
}

#[derive(Default)]
struct QueuedRequests {
    undecided: Undecided,
    failures: Vec<String>,
    failed_handshakes: Vec<FailedHandshake>,
    refused: Vec<RefusedConnection>,
    fatal_requests: Vec<FatalRequest>,
    has_room: bool,
    is_signalled: bool,
}

impl ControlQueue {
    /// Makes an empty queue.
    ///
    /// # Errors
    /// There is no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            waiting: Mutex::default(),
            wakeup,
        })
    }

    /// Readable while something waits.
    pub fn wakeup_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    /// Leaves a request and its claim until it is taken.
    pub fn push_request(&self, request: ControlRequest, claim: Claim) {
        let mut waiting = self.lock();
        waiting.undecided.push_request(request, claim);
        self.signal(&mut waiting);
    }

    /// Leaves the requests that a reactor met and could not decide on.
    pub fn push_all(&self, undecided: Undecided) {
        let mut waiting = self.lock();
        waiting.undecided.requests.extend(undecided.requests);
        waiting.undecided.joins.extend(undecided.joins);
        self.signal(&mut waiting);
    }

    /// Queues the reason of a connection that was closed because of a bug.
    pub fn push_failure(&self, reason: String) {
        let mut waiting = self.lock();
        if waiting.failures.len() < FAILURES_MAX {
            waiting.failures.push(reason);
        }
        self.signal(&mut waiting);
    }

    /// Queues a handshake that failed.
    pub fn push_failed_handshake(&self, failed: FailedHandshake) {
        let mut waiting = self.lock();
        if waiting.failed_handshakes.len() < FAILURES_MAX {
            waiting.failed_handshakes.push(failed);
        }
        self.signal(&mut waiting);
    }

    /// Queues a connection that was refused.
    pub fn push_refused(&self, refused: RefusedConnection) {
        let mut waiting = self.lock();
        if waiting.refused.len() < FAILURES_MAX {
            waiting.refused.push(refused);
        }
        self.signal(&mut waiting);
    }

    /// Queues a request that cost its connection.
    pub fn push_fatal_request(&self, request: FatalRequest) {
        let mut waiting = self.lock();
        if waiting.fatal_requests.len() < FAILURES_MAX {
            waiting.fatal_requests.push(request);
        }
        self.signal(&mut waiting);
    }

    /// Notes that there is room for answers again, and wakes the control loop.
    pub fn note_room(&self) {
        let mut waiting = self.lock();
        waiting.has_room = true;
        self.signal(&mut waiting);
    }

    /// True if there is room for answers since it was last asked.
    pub fn take_room(&self) -> bool {
        let mut waiting = self.lock();
        let has_room = std::mem::take(&mut waiting.has_room);
        self.settle(&mut waiting);
        has_room
    }

    /// Takes the requests, oldest first.
    pub fn take_requests(&self) -> Vec<ControlRequest> {
        let mut waiting = self.lock();
        let requests = std::mem::take(&mut waiting.undecided.requests);
        self.settle(&mut waiting);
        drop(waiting);
        let requests: Vec<_> = requests.into_iter().map(|(request, _)| request).collect();
        note_dequeued(&requests);
        requests
    }

    /// Number of requests and parked Produce requests that wait.
    pub fn len(&self) -> usize {
        let waiting = self.lock();
        waiting.undecided.requests.len() + waiting.undecided.joins.len()
    }

    /// Takes the parked Produce requests, oldest first.
    pub fn take_joins(&self) -> Vec<ParkedProduce> {
        let mut waiting = self.lock();
        let joins = std::mem::take(&mut waiting.undecided.joins);
        self.settle(&mut waiting);
        joins
    }

    /// Takes the reasons of closed connections.
    pub fn take_failures(&self) -> Vec<String> {
        let mut waiting = self.lock();
        let failures = std::mem::take(&mut waiting.failures);
        self.settle(&mut waiting);
        failures
    }

    /// Takes the failed handshakes.
    pub fn take_failed_handshakes(&self) -> Vec<FailedHandshake> {
        let mut waiting = self.lock();
        let failed = std::mem::take(&mut waiting.failed_handshakes);
        self.settle(&mut waiting);
        failed
    }

    /// Takes the refused connections.
    pub fn take_refused(&self) -> Vec<RefusedConnection> {
        let mut waiting = self.lock();
        let refused = std::mem::take(&mut waiting.refused);
        self.settle(&mut waiting);
        refused
    }

    /// Takes the requests that cost their connections.
    pub fn take_fatal_requests(&self) -> Vec<FatalRequest> {
        let mut waiting = self.lock();
        let fatal = std::mem::take(&mut waiting.fatal_requests);
        self.settle(&mut waiting);
        fatal
    }

    fn lock(&self) -> MutexGuard<'_, QueuedRequests> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, waiting: &mut QueuedRequests) {
        if !waiting.is_signalled {
            // Adding 1 to an eventfd that is 0 cannot fail or block.
            waiting.is_signalled = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes()).is_ok();
        }
    }

    fn settle(&self, waiting: &mut QueuedRequests) {
        let is_empty = waiting.undecided.is_empty()
            && waiting.failures.is_empty()
            && waiting.failed_handshakes.is_empty()
            && waiting.refused.is_empty()
            && waiting.fatal_requests.is_empty()
            && !waiting.has_room;
        if waiting.is_signalled && is_empty {
            waiting.is_signalled = rustix::io::read(&self.wakeup, &mut [0_u8; 8]).is_err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::RequestMemory;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_readable(queue: &ControlQueue) -> bool {
        let mut fds = [PollFd::new(&queue.wakeup, PollFlags::IN)];
        poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .unwrap()
            == 1
    }

    fn unlimited() -> Claim {
        let control = Arc::new(ControlQueue::new().unwrap());
        Claim::of(&Arc::new(RequestMemory::new(None, Vec::new(), &control)), 0)
    }

    fn request() -> ControlRequest {
        ControlRequest {
            token: RequestToken::new(0, 0, 1),
            api_key: 3,
            api_version: 0,
            correlation_id: 0,
            client_id: None,
            body: Vec::new(),
            client_host: "127.0.0.1".into(),
            listener: 0,
            principal: "User:ANONYMOUS".into(),
            connection: 0,
            attachment: None,
            presence: Presence::default(),
            dequeued: Dequeued::default(),
        }
    }

    /// The queue of a reactor that met one parked Produce.
    fn undecided() -> Undecided {
        let join = Join {
            transactional_id: "t".to_owned(),
            producer_id: 1,
            producer_epoch: 0,
            transaction_version: 2,
            partitions: Vec::new(),
        };
        let mut undecided = Undecided::default();
        undecided.push_join(ParkedProduce {
            token: RequestToken::new(0, 0, 2),
            join,
        });
        undecided
    }

    #[test]
    fn the_wakeup_is_readable_while_a_request_or_a_join_waits() {
        let queue = ControlQueue::new().unwrap();
        assert!(!is_readable(&queue));
        queue.push_request(request(), unlimited());
        queue.push_request(request(), unlimited());
        queue.push_all(undecided());
        assert!(is_readable(&queue));
        assert_eq!(queue.take_requests().len(), 2);
        assert!(is_readable(&queue));
        assert_eq!(queue.take_joins().len(), 1);
        assert!(!is_readable(&queue));
        assert!(queue.take_requests().is_empty());
        queue.push_all(undecided());
        assert!(is_readable(&queue));
    }
}
