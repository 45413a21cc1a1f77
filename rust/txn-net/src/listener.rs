//! Accepting sockets: their names, addresses and security protocols.
//!
//! Reactor 0 accepts from all of them. A connection knows its listener by index, and so does every
//! request that goes to Python.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use mio::net::TcpListener;

use crate::tls::TlsListener;

/// The kind of `Transport` a listener's connections have; Kafka's
/// `security.protocol`.
#[derive(Clone, Debug)]
pub enum SecurityProtocol {
    /// Neither encryption nor authentication.
    Plaintext,
    /// TLS, and client certificates where they are asked for.
    Tls(Arc<TlsListener>),
    /// Every byte is changed, after a handshake: proves that the rest of the crate does not care.
    #[cfg(test)]
    Masked,
}

/// A listener of a server.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Its name, as in Kafka's `listeners`.
    pub name: String,
    /// The address it is bound to, with the port that the system chose for 0.
    pub address: SocketAddr,
    /// The protocol of its connections below Kafka's.
    pub security: SecurityProtocol,
    /// True if clients authenticate by SASL before anything else.
    pub is_sasl: bool,
}

/// The failure of a server to listen.
#[derive(Debug)]
pub struct BindError {
    /// The name of the listener that could not be bound; `None`: it is no listener's fault.
    pub listener: Option<String>,
    /// The system's reason.
    pub error: io::Error,
}

impl From<io::Error> for BindError {
    fn from(error: io::Error) -> Self {
        let listener = None;
        Self { listener, error }
    }
}

/// A listener to be bound.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    /// Its name, as in Kafka's `listeners`.
    pub name: String,
    /// A host name or address; of several addresses the first that can be bound.
    pub host: String,
    /// 0: the system chooses.
    pub port: u16,
    /// The protocol of its connections below Kafka's.
    pub security: SecurityProtocol,
    /// True if clients authenticate by SASL before anything else.
    pub is_sasl: bool,
}

impl Listener {
    /// Binds a listener.
    ///
    /// # Errors
    /// The host has no address, or the system refuses all of them.
    pub(crate) fn bind(options: &ListenerOptions) -> Result<(Self, TcpListener), BindError> {
        let socket = listen(&options.host, options.port).map_err(|error| BindError {
            listener: Some(options.name.clone()),
            error,
        })?;
        let listener = Self {
            name: options.name.clone(),
            address: socket.local_addr()?,
            security: options.security.clone(),
            is_sasl: options.is_sasl,
        };
        Ok((listener, socket))
    }
}

fn listen(host: &str, port: u16) -> io::Result<TcpListener> {
    let mut failure = None;
    for address in (host, port).to_socket_addrs()? {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| {
        io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            format!("{host} has no address"),
        )
    }))
}
