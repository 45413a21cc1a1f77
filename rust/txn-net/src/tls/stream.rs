//! One TLS connection over a non-blocking socket.
//!
//! # Invariants
//! 1. No request is read before the handshake has ended well.
//! 2. Received bytes are decrypted at once, into the connection's own buffer: rustls holds a part
//!    of a record at most.
//! 3. At most [`UNSENT_BYTES`] of answers are encrypted and not sent. More waits in the
//!    connection's queue, as bytes or as parts of files.
//! 4. A step reads or sends a bounded number of bytes.

use std::cell::RefCell;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::Arc;

use mio::net::TcpStream;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use rustls::ServerConnection;
use txn_log::LentFile;

use super::failure::{FailureReason, HandshakeError};
use super::{TlsListener, names};
use crate::transport_step::{Handshake, Received};

/// Bytes of answers that are encrypted before the socket has taken them.
const UNSENT_BYTES: usize = 64 << 10;
/// The most bytes that one read takes from the socket.
const READ_BYTES: usize = 64 << 10;
/// The most bytes of a client's handshake; a certificate chain has a few thousand.
const HANDSHAKE_BYTES_MAX: usize = 128 << 10;

thread_local! {
    /// Bytes on their way from a socket or a file; each thread has the one buffer.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// A socket, and the TLS session over it.
pub struct TlsSocket {
    socket: TcpStream,
    session: Box<ServerConnection>,
    listener: Arc<TlsListener>,
    /// Bytes received before the end of the handshake.
    greeting_bytes: usize,
    has_ended: bool,
}

impl TlsSocket {
    /// Begins a session.
    ///
    /// # Errors
    /// The listener's certificates cannot be used.
    pub fn new(socket: TcpStream, listener: &Arc<TlsListener>) -> io::Result<Self> {
        let session = ServerConnection::new(listener.config()).map_err(io::Error::other)?;
        let mut session = Box::new(session);
        session.set_buffer_limit(Some(UNSENT_BYTES));
        Ok(Self {
            socket,
            session,
            listener: Arc::clone(listener),
            greeting_bytes: 0,
            has_ended: false,
        })
    }

    pub fn socket_mut(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    pub fn listener(&self) -> &TlsListener {
        &self.listener
    }

    /// Continues the handshake as far as the socket allows.
    ///
    /// # Errors
    /// The client cannot be spoken with; it has been told so if it speaks TLS.
    pub fn handshake(&mut self) -> Result<Handshake, HandshakeError> {
        while self.session.is_handshaking() {
            if would_block(self.write_out())? {
                return Ok(Handshake::Blocked);
            }
            if !self.session.is_handshaking() {
                break;
            }
            let received = match self.session.read_tls(&mut Socket(&self.socket)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Handshake::Blocked);
                }
                received => received?,
            };
            if received == 0 {
                let text = "the client left in the middle of the handshake";
                return Err(HandshakeError::new(FailureReason::ClientLeft, text));
            }
            self.greeting_bytes += received;
            if self.greeting_bytes > HANDSHAKE_BYTES_MAX {
                let text = "the client's handshake has too many bytes";
                return Err(HandshakeError::new(FailureReason::TooLarge, text));
            }
            if let Err(error) = self.session.process_new_packets() {
                self.send_alert_and_drain();
                return Err(error.into());
            }
        }
        would_block(self.write_out())?;
        Ok(Handshake::Done)
    }

    /// The principal of the client's certificate; `None`: it showed none.
    ///
    /// # Errors
    /// The certificate's subject has no principal.
    pub fn principal(&self) -> Result<Option<String>, HandshakeError> {
        let Some([certificate, ..]) = self.session.peer_certificates() else {
            return Ok(None);
        };
        let Some(subject) = names::subject(certificate) else {
            let text = "the subject of the client's certificate cannot be read";
            return Err(HandshakeError::new(FailureReason::BadCertificate, text));
        };
        match (self.listener.principal_of)(&subject) {
            Some(principal) => Ok(Some(principal)),
            None => Err(HandshakeError::new(
                FailureReason::NoPrincipal,
                format!("no rule of ssl.principal.mapping.rules applies to {subject}"),
            )),
        }
    }

    /// Sends the alert that a failure made, and takes the client's last bytes. Unread ones would have
    /// the kernel reset the connection, and lose the alert.
    fn send_alert_and_drain(&mut self) {
        let _ = self.write_out();
        let _ = self.socket.shutdown(Shutdown::Write);
        let _ = with_scratch(|scratch| Socket(&self.socket).read(scratch));
    }

    /// Reads once and decrypts all of it, see `Transport::read`. The buffer grows by a record beyond
    /// its capacity where that completes one.
    pub fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<Received> {
        let before = buffer.len();
        let room = (buffer.capacity() - before).clamp(1, READ_BYTES);
        self.take_plaintext(buffer)?; // the first request may have come with the handshake's end
        if buffer.len() > before || self.has_ended {
            return Ok(self.received(buffer.len() - before, true));
        }
        let wire_bytes = with_scratch(|scratch| {
            let count = Socket(&self.socket).read(&mut scratch[..room])?;
            self.has_ended |= count == 0;
            let mut encrypted = &scratch[..count];
            while !encrypted.is_empty() && !self.has_ended {
                self.session.read_tls(&mut encrypted)?;
                let state = self.session.process_new_packets();
                let state = state.inspect_err(|_| {
                    let _ = would_block(self.write_out()); // the alert
                });
                self.has_ended |= state.map_err(io::Error::other)?.peer_has_closed();
                self.take_plaintext(buffer)?;
            }
            Ok::<_, io::Error>(count)
        })?;
        would_block(self.write_out())?; // a key update wants an answer
        Ok(self.received(buffer.len() - before, wire_bytes == room))
    }

    fn received(&self, bytes: usize, may_have_more: bool) -> Received {
        Received {
            bytes,
            may_have_more: may_have_more || self.has_ended,
            is_end: self.has_ended && bytes == 0,
        }
    }

    fn take_plaintext(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        let mut reader = self.session.reader();
        loop {
            let count = match reader.fill_buf() {
                Ok(plaintext) => {
                    buffer.extend_from_slice(plaintext);
                    plaintext.len()
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
            if count == 0 {
                return Ok(());
            }
            reader.consume(count);
        }
    }

    /// Encrypts bytes, and sends them if none follow, see `Transport::send`.
    pub fn send(&mut self, bytes: &[u8], more: bool) -> io::Result<usize> {
        let mut taken = self.session.writer().write(bytes)?;
        if taken == 0 {
            self.write_out()?;
            taken = self.session.writer().write(bytes)?;
        }
        if !more || taken < bytes.len() {
            would_block(self.write_out())?; // `flush` tells
        }
        Ok(taken)
    }

    /// Reads, encrypts and sends a part of a file, see `Transport::send_file`.
    pub fn send_file(&mut self, file: &LentFile, position: u64, len: usize) -> io::Result<usize> {
        self.write_out()?;
        with_scratch(|scratch| {
            let part = &mut scratch[..len.min(UNSENT_BYTES)];
            let read = || rustix::io::pread(file.as_fd(), &mut *part, position);
            let count = rustix::io::retry_on_intr(read)?;
            self.send(&part[..count], false)
        })
    }

    /// Sends the bytes that are encrypted.
    ///
    /// # Errors
    /// `WouldBlock`: the socket takes no more now. Else the connection is broken.
    pub fn write_out(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut Socket(&self.socket))?;
        }
        Ok(())
    }

    /// Sends the client a `close_notify`, if the socket accepts it now.
    pub fn close_notify(&mut self) {
        self.session.send_close_notify();
        let _ = self.write_out();
    }
}

/// True if an operation would block.
fn would_block(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

fn with_scratch<T>(call: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with(|scratch| call(&mut scratch.borrow_mut()))
}

/// A socket whose signals stay away: a client that has left is an error alone.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = || rustix::io::read(self.0, &mut *buffer);
        Ok(rustix::io::retry_on_intr(&mut read)?)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let send = || rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL);
        Ok(rustix::io::retry_on_intr(send)?)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let send = || {
            let mut nothing = SendAncillaryBuffer::default();
            rustix::net::sendmsg(self.0, parts, &mut nothing, SendFlags::NOSIGNAL)
        };
        Ok(rustix::io::retry_on_intr(send)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
