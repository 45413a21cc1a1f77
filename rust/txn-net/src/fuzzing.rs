//! Parts of the server that fuzz targets enter one by one, without a reactor around them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use txn_protocol::apis::{FETCH, PRODUCE};

use crate::catalog::Catalog;
use crate::chunk::Chunk;
use crate::fetch::FetchRequest;
use crate::options::{FETCH_VERSIONS, PRODUCE_VERSIONS};
use crate::produce::{AppendProgress, ProduceRequest};
use crate::tls::{HandshakeError, TlsListener, TlsSocket};
use crate::transport_step::Handshake;
use crate::turn::Turn;

/// Reads a body as reactors do, and answers it as a broker without topics.
///
/// Returns the answer's bytes; `None` for a body that is none of that version.
#[must_use]
pub fn answer(api_key: i16, version: i16, body: &mut [u8]) -> Option<usize> {
    let catalog = Catalog::default();
    match api_key {
        PRODUCE if PRODUCE_VERSIONS.contains(&version) => {
            let mut request = ProduceRequest::default();
            request.parse(body, version).ok()?;
            let mut turn = Turn::of(Duration::ZERO);
            while let AppendProgress::TurnOver = request.append(body, &catalog, true, &mut turn) {}
            request.fail_pending();
            let mut out = Vec::new();
            request.encode(body, 1, 0, &mut out);
            Some(out.len())
        }
        FETCH if FETCH_VERSIONS.contains(&version) => {
            let request = FetchRequest::parse(body, version, 1, &catalog).ok()?;
            request.readiness();
            let answer = request.answer(true, None);
            Some(answer.chunks.iter().map(Chunk::left).sum())
        }
        _ => None,
    }
}

/// A TLS session over a socket of the caller's.
pub struct Session(TlsSocket);

impl Session {
    /// Begins one.
    ///
    /// # Errors
    /// The socket cannot be made non-blocking.
    pub fn new(socket: OwnedFd, listener: &Arc<TlsListener>) -> io::Result<Self> {
        let socket = std::net::TcpStream::from(socket);
        socket.set_nonblocking(true)?;
        let socket = mio::net::TcpStream::from_std(socket);
        Ok(Self(TlsSocket::new(socket, listener)?))
    }

    /// Continues the handshake; true at its end.
    ///
    /// # Errors
    /// The client cannot be spoken with, or has no principal.
    pub fn handshake(&mut self) -> Result<bool, HandshakeError> {
        let is_done = self.0.handshake()? == Handshake::Done;
        if is_done {
            self.0.principal()?;
        }
        Ok(is_done)
    }

    /// Appends received bytes; true at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock`, or the connection is broken.
    pub fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<bool> {
        buffer.reserve(64 << 10);
        Ok(self.0.read(buffer)?.is_end)
    }

    /// Encrypts and sends bytes.
    ///
    /// # Errors
    /// `WouldBlock`, or the connection is broken.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes, false)
    }
}
