//! Finds out whether a node hung up because one side speaks TLS and the other does not.
//!
//! A node that gets the wrong protocol hangs up, and so does a node that stops. One more connection
//! in the other protocol tells the two cases apart: the first is final, the second is worth a
//! retry. That connection sends a first message without credentials, and nothing more.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, crypto::ring};
use txn_protocol::codes;
use txn_protocol::frame::{LENGTH_BYTES, begin_request, set_length};

use crate::error::KafkaError;
use crate::interrupt::Interrupt;
use crate::messages::API_VERSIONS;
use crate::patience::INTERRUPT_LOOK;

/// Longest wait for the answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// Longest wait for the connection itself, in which nobody is asked whether to stop.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// The rest of the sentence about a node that does not speak TLS.
const PLAIN: &str = "does not speak TLS on this port; check the port, or set \
                                security.protocol to PLAINTEXT or SASL_PLAINTEXT";
/// The rest of the sentence about a node that speaks nothing but TLS.
const TLS: &str = "speaks TLS on this port; set security.protocol to SSL or SASL_SSL";

/// A correlation id that no other protocol sends by chance.
const CORRELATION: i32 = 0x7478_6e3f;
/// The first byte of a TLS record: an alert, or a part of the handshake.
const TLS_RECORDS: [u8; 2] = [0x15, 0x16];
/// The second byte of a TLS record, in every version.
const TLS_MAJOR: u8 = 3;

/// The error for a node that does not speak TLS.
pub(crate) fn plain_error(node: &str) -> KafkaError {
    KafkaError::other_protocol(codes::NETWORK_EXCEPTION, format!("{node} {PLAIN}"))
}

/// The error for a node that speaks nothing but TLS.
pub(crate) fn tls_error(node: &str) -> KafkaError {
    KafkaError::other_protocol(codes::NETWORK_EXCEPTION, format!("{node} {TLS}"))
}

/// True if a node answers a request of Kafka's without TLS; false too once the user wants to stop.
pub(crate) fn speaks_plain(
    peer: SocketAddr,
    timeout: Duration,
    interrupt: Option<&Interrupt>,
) -> bool {
    let mut request = Vec::new();
    begin_request(&mut request, API_VERSIONS.key, 0, CORRELATION, "txn");
    let size = request.len() - LENGTH_BYTES;
    set_length(&mut request, size);
    let mut answer = [0; 8];
    ask(peer, &request, &mut answer, timeout, interrupt) && answer[4..] == CORRELATION.to_be_bytes()
}

/// True if a node answers the first message of a TLS handshake in TLS; false too once the user wants
/// to stop.
pub(crate) fn speaks_tls(
    peer: SocketAddr,
    timeout: Duration,
    interrupt: Option<&Interrupt>,
) -> bool {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has ciphers of both")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::IpAddress(peer.ip().into());
    let mut hello = Vec::new();
    let written = ClientConnection::new(Arc::new(config), name)
        .map(|mut session| session.write_tls(&mut hello).is_ok());
    let mut answer = [0; 2];
    written.unwrap_or(false) && ask(peer, &hello, &mut answer, timeout, interrupt) && is_tls(answer)
}

/// True for the first two bytes of a TLS record.
pub(crate) fn is_tls(bytes: [u8; 2]) -> bool {
    TLS_RECORDS.contains(&bytes[0]) && bytes[1] == TLS_MAJOR
}

/// A TLS record where a frame was due.
#[derive(Debug)]
pub(crate) struct TlsRecord;

impl fmt::Display for TlsRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TLS)
    }
}

impl std::error::Error for TlsRecord {}

/// True for the error that is a `TlsRecord`.
pub(crate) fn is_tls_record(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner
        .and_then(|inner| inner.downcast_ref::<TlsRecord>())
        .is_some()
}

/// Sends bytes on a new connection and fills `answer`; false if that cannot be, or the user wants to
/// stop.
fn ask(
    peer: SocketAddr,
    bytes: &[u8],
    answer: &mut [u8],
    timeout: Duration,
    interrupt: Option<&Interrupt>,
) -> bool {
    let timeout = timeout.clamp(Duration::from_millis(1), PATIENCE);
    let deadline = Instant::now() + timeout;
    let mut exchange = || {
        let mut socket = TcpStream::connect_timeout(&peer, timeout.min(CONNECT_MAX))?;
        socket.set_read_timeout(Some(timeout.min(INTERRUPT_LOOK)))?;
        socket.set_write_timeout(Some(timeout.min(CONNECT_MAX)))?;
        socket.write_all(bytes)?;
        let mut received = 0;
        while received < answer.len() {
            if Instant::now() >= deadline || interrupt.is_some_and(Interrupt::is_raised) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match socket.read(&mut answer[received..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => received += count,
                Err(error) if is_patience(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    exchange().is_ok()
}

/// True if a read has waited for no byte, and another may have one.
fn is_patience(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_second_connection_ends_when_the_user_wants_to_stop() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = silent.local_addr().unwrap();
        let raised = Interrupt::new(|| true);
        let began = Instant::now();
        assert!(!speaks_plain(peer, PATIENCE, Some(&raised)));
        assert!(!speaks_tls(peer, PATIENCE, Some(&raised)));
        assert!(began.elapsed() < PATIENCE / 2);
    }

    #[test]
    fn the_second_connection_waits_for_a_node_that_is_slow() {
        let slow = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = slow.local_addr().unwrap();
        let node = std::thread::spawn(move || {
            let (mut client, _) = slow.accept().unwrap();
            for part in [&[0, 0, 0, 9][..], &CORRELATION.to_be_bytes()] {
                std::thread::sleep(INTERRUPT_LOOK * 2);
                client.write_all(part).unwrap();
            }
        });
        assert!(speaks_plain(peer, PATIENCE, None));
        node.join().unwrap();
    }
}
