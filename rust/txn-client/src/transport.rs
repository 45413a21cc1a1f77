//! The bytes of a connection: a socket, or TLS on one.
//!
//! A read waits for the socket's read timeout, as on the socket itself, and loses nothing if it runs
//! out. TLS reads the socket in large pieces: rustls takes 4 KiB at a time.

use std::fmt;
use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::interrupt::Interrupt;

/// Bytes read from the socket at once under TLS.
const TLS_READ_BYTES: usize = 128 << 10;
/// Reads for the alert of a node that hung up.
const LAST_WORDS_MAX: usize = 16;
/// Time between two looks at the interrupt while bytes are awaited.
pub(crate) const INTERRUPT_LOOK: Duration = Duration::from_millis(100);

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

    /// The socket below.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket.get_ref(),
        }
    }

    /// Waits for a byte of an answer, or for the end of the stream.
    ///
    /// # Errors
    /// `TimedOut` or `WouldBlock` after the read timeout, also if only a part of a TLS record came.
    pub(crate) fn await_byte(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.peek(&mut [0]).map(|_| ()),
            Self::Tls(stream) => match stream.buffered() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stream.fill()?;
                    stream.buffered()
                }
                known => known,
            },
        }
    }

    /// Appends the next `size` bytes to `buffer`; returns how many came before the end of the stream.
    ///
    /// # Errors
    /// Those of `Read`.
    pub(crate) fn read_into(&mut self, buffer: &mut Vec<u8>, size: usize) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.take(size as u64).read_to_end(buffer),
            Self::Tls(stream) => stream.read_into(buffer, size),
        }
    }
}

impl Read for Transport {
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

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsStream {
    fn shake_hands(&mut self, timeout: Duration, interrupt: Option<&Interrupt>) -> io::Result<()> {
        let began = Instant::now();
        self.send()?;
        while self.session.is_handshaking() {
            let left = timeout.saturating_sub(began.elapsed());
            let wait = left.clamp(Duration::from_millis(1), INTERRUPT_LOOK);
            self.socket.get_ref().set_read_timeout(Some(wait))?;
            match self.fill() {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted
                    | io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut => {}
                    _ => return Err(error),
                },
            }
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if interrupt.is_some_and(Interrupt::is_raised) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        Ok(())
    }

    /// Reads the socket once, and decrypts. 0: the node hung up.
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

    /// `Ok` if decrypted bytes wait or the stream has ended, else `WouldBlock`.
    fn buffered(&mut self) -> io::Result<()> {
        match self.session.reader().fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            other => other.map(|_| ()),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.fill()?,
                other => return other,
            };
        }
    }

    fn read_into(&mut self, buffer: &mut Vec<u8>, size: usize) -> io::Result<usize> {
        let mut left = size;
        while left > 0 {
            let mut reader = self.session.reader();
            let taken = match reader.fill_buf() {
                Ok([]) => break,
                Ok(bytes) => {
                    let taken = bytes.len().min(left);
                    buffer.extend_from_slice(&bytes[..taken]);
                    taken
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.fill() {
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        other => {
                            other?;
                        }
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            reader.consume(taken);
            left -= taken;
        }
        Ok(size - left)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.session.writer().write_vectored(slices)?;
        match self.send() {
            Ok(()) => Ok(written),
            Err(error) => Err(self.last_words().unwrap_or(error)),
        }
    }

    /// The alert with which the node hung up, if one came: it tells more than the broken pipe.
    fn last_words(&mut self) -> Option<io::Error> {
        let socket = self.socket.get_ref();
        socket.set_read_timeout(Some(INTERRUPT_LOOK)).ok()?;
        for _ in 0..LAST_WORDS_MAX {
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

impl Drop for TlsStream {
    /// Tells the node that nothing more comes, if that does not have to wait.
    fn drop(&mut self) {
        if self.socket.get_ref().set_nonblocking(true).is_ok() {
            self.session.send_close_notify();
            let _ = self.send();
        }
    }
}
