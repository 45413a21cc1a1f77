//! The options of a server, and the versions of the requests that its reactors answer.

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::token::MAX_REACTORS;

/// The options of a new server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of threads that will call [`Server::run_reactor`](crate::Server::run_reactor), 1 to 32.
    pub reactors: usize,
    /// `socket.request.max.bytes`: a longer frame closes its connection.
    pub max_request_bytes: usize,
    /// `sasl.server.max.receive.size`: a longer frame before authentication closes its connection.
    pub max_sasl_bytes: usize,
    /// `queued.max.request.bytes`: while requests and answers hold as much, no request is begun;
    /// `None`: no limit.
    pub max_queued_bytes: Option<usize>,
    /// Connections for which there are descriptors: further ones are closed as they come.
    pub max_connections: usize,
    /// `connections.max.idle.ms`: one without a request for so long is closed; `None`: never.
    pub max_idle: Option<Duration>,
    /// `max.incremental.fetch.session.cache.slots`: fetch sessions at a time.
    pub max_fetch_sessions: usize,
    /// The time of one connection's requests before others have their turn.
    pub turn: Duration,
    /// True if `acks=all` and transactional Produce requests are answered only once their batches
    /// are on the disk.
    pub sync_acks_all: bool,
    /// The most time a Produce waits for the transaction coordinator.
    pub coordinator_timeout: Duration,
    /// The most time that a TLS handshake takes.
    pub handshake_timeout: Duration,
    /// The most time that a client of a SASL listener has to authenticate.
    pub login_timeout: Duration,
    /// The time that a request has in any case while others wait for its memory.
    pub memory_patience: Duration,
    /// The time in which a client has to take some of its answer while others wait for its memory.
    pub answer_patience: Duration,
}

/// The versions of Produce that reactors answer.
pub const PRODUCE_VERSIONS: RangeInclusive<i16> = 3..=13;
/// The versions of Fetch that reactors answer.
pub const FETCH_VERSIONS: RangeInclusive<i16> = 4..=18;

impl Options {
    /// Refuses options that are out of range.
    pub(crate) fn check(&self) -> io::Result<()> {
        let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if !(1..=MAX_REACTORS).contains(&self.reactors) {
            return wrong(format!(
                "{} reactors: give 1 to {MAX_REACTORS}",
                self.reactors
            ));
        }
        Ok(())
    }
}
