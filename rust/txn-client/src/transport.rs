//! The bytes of a connection: a socket, or TLS on one.
//!
//! A read or a write waits for the socket's timeout, as on the socket itself, and loses nothing if it
//! runs out. TLS reads the socket in large pieces: rustls takes 4 KiB at a time.

use std::fmt;
use std::io::{self, BufReader, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::interrupt::Interrupt;
use crate::patience::{INTERRUPT_LOOK, Patience};

/// Bytes read from the socket at once under TLS.
const TLS_READ_BYTES: usize = 128 << 10;
/// Reads for the alert of a node that hung up.
const ALERT_READS_MAX: usize = 16;

/// A connected socket, with or without TLS.
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// A TLS session and its socket.
pub(crate) struct TlsStream {
    session: ClientConnection,
    socket: BufReader<TcpStream>,
    /// True once a byte of the node has come.
    has_heard: bool,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Tls(_) => "Tls",
        })
    }
}

/// A handshake that did not come to its end.
#[derive(Debug)]
pub(crate) struct HandshakeFailure {
    pub(crate) error: io::Error,
    /// True if the node hung up without a word.
    pub(crate) is_mute: bool,
}

impl Transport {
    /// Does the TLS handshake on a connected socket, within `timeout`.
    ///
    /// # Errors
    /// `TimedOut`, `Interrupted`, those of the socket, and those of TLS inside `InvalidData`.
    pub(crate) fn secure(
        socket: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        timeout: Duration,
        interrupt: Option<&Interrupt>,
    ) -> Result<Self, HandshakeFailure> {
        let failed = |error| HandshakeFailure {
            error,
            is_mute: false,
        };
        let session = ClientConnection::new(config, name)
            .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        let socket = BufReader::with_capacity(TLS_READ_BYTES, socket);
        let mut stream = Box::new(TlsStream {
            session,
            socket,
            has_heard: false,
        });
        match stream.shake_hands(timeout, interrupt) {
            Ok(()) => Ok(Self::Tls(stream)),
            Err(error) => {
                let is_end = matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof
                        | io::ErrorKind::ConnectionReset
                        | io::ErrorKind::BrokenPipe
                );
                Err(HandshakeFailure {
                    error,
                    is_mute: is_end && !stream.has_heard,
                })
            }
        }
    }

    /// True without TLS: a read that is not full has emptied the socket.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Reads a socket that does not block: `WouldBlock` only once the socket is empty.
    pub(crate) fn read_ready(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => loop {
                match stream.session.reader().read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        if stream.fill()? == 0 {
                            return Ok(0);
                        }
                    }
                    other => return other,
                }
            },
        }
    }

    /// The socket below.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket.get_ref(),
        }
    }
}

impl Read for Transport {
    /// Reads the socket once at most: `WouldBlock` also if only a part of a TLS record came, or one
    /// without data.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write_vectored(slices),
            Self::Tls(stream) => stream.write_vectored(slices),
        }
    }

    /// Sends the bytes that a write under TLS has accepted and not sent.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => stream.send(),
        }
    }
}

impl TlsStream {
    fn shake_hands(&mut self, timeout: Duration, interrupt: Option<&Interrupt>) -> io::Result<()> {
        let mut looked = Instant::now();
        let mut patience = Patience::new(timeout, interrupt, &mut looked);
        loop {
            let sent = self.send();
            if !self.session.is_handshaking() {
                return sent.or_else(|error| patience.tolerate(error)); // the rest goes with the first request
            }
            let wait = patience.wait();
            self.socket.get_ref().set_read_timeout(Some(wait))?;
            match sent.and_then(|()| self.fill()) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) => patience.tolerate(error)?,
            }
            if self.session.is_handshaking() {
                patience.check()?;
            }
        }
    }

    /// Reads the socket once, and decrypts. 0: the node hung up. Nothing that came is lost by an error
    /// that a repetition may mend.
    fn fill(&mut self) -> io::Result<usize> {
        let read = self.session.read_tls(&mut self.socket)?;
        self.has_heard |= read > 0;
        if let Err(error) = self.session.process_new_packets() {
            // The node is told why, if it still listens.
            let _ = self.send();
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        self.send()?; // the next step of a handshake, the answer to a change of keys
        Ok(read)
    }

    /// Sends the encrypted bytes that wait.
    fn send(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(self.socket.get_mut()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.session.reader().read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.fill()?;
                self.session.reader().read(buffer)
            }
            other => other,
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let result = self.send().and_then(|()| {
            let written = self.session.writer().write_vectored(slices)?;
            match self.send() {
                Err(error) if is_slow(&error) => Ok(written), // they are taken; `flush` sends them
                sent => sent.map(|()| written),
            }
        });
        result.map_err(|error| {
            let received_alert = (!is_slow(&error)).then(|| self.received_alert()).flatten();
            received_alert.unwrap_or(error)
        })
    }

    /// The alert with which the node hung up, if one came: it tells more than the broken pipe.
    fn received_alert(&mut self) -> Option<io::Error> {
        let socket = self.socket.get_ref();
        socket.set_read_timeout(Some(INTERRUPT_LOOK)).ok()?;
        for _ in 0..ALERT_READS_MAX {
            match self.fill() {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => {
                    return Some(error).filter(|e| e.kind() == io::ErrorKind::InvalidData);
                }
            }
        }
        None
    }
}

/// True if the node did not take everything in a socket's timeout.
fn is_slow(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

impl Drop for TlsStream {
    /// Sends the node a `close_notify`, if that does not have to wait.
    fn drop(&mut self) {
        if self.socket.get_ref().set_nonblocking(true).is_ok() {
            self.session.send_close_notify();
            let _ = self.send();
        }
    }
}
