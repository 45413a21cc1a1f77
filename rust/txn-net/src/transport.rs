//! The path of bytes across a client's socket: plain, or TLS.
//!
//! A connection reads, sends and hands files to the kernel through its [`Transport`] alone. The
//! kind of transport is that of the [`Listener`](crate::listener::Listener) which accepted the
//! socket. TLS copies a file's bytes, and shakes hands before the first request. The reactor asks
//! for the handshake, so nothing else above this module knows the difference.

use std::io;
use std::os::fd::AsFd;

use mio::net::TcpStream;
use rustix::buffer::spare_capacity;
use rustix::net::SendFlags;
use txn_log::LentFile;

use crate::listener::SecurityProtocol;
use crate::tls::{HandshakeError, TlsListener, TlsSocket};
use crate::transport_step::{Handshake, Received};

/// The most bytes of answers sent before other connections have their turn.
const FLUSH_BYTES: usize = 4 << 20;
/// The same limit for answers that are encrypted here, which takes longer.
const ENCRYPTED_FLUSH_BYTES: usize = 1 << 20;

/// A non-blocking socket and its encoding.
///
/// Reads and sends take as many bytes as they can, and fail with `WouldBlock` if that is none.
pub enum Transport {
    /// Bytes as they are.
    Plain(TcpStream),
    /// Encrypted bytes.
    Tls(TlsSocket),
    #[cfg(test)]
    Masked(tests::Masked),
}

impl Transport {
    /// The transport of a security protocol over a socket.
    ///
    /// # Errors
    /// TLS cannot be begun.
    pub fn new(socket: TcpStream, security: &SecurityProtocol) -> io::Result<Self> {
        match security {
            SecurityProtocol::Plaintext => Ok(Self::Plain(socket)),
            SecurityProtocol::Tls(listener) => Ok(Self::Tls(TlsSocket::new(socket, listener)?)),
            #[cfg(test)]
            SecurityProtocol::Masked => Ok(Self::Masked(tests::Masked::new(socket))),
        }
    }

    /// True if a handshake comes before the first request.
    pub fn shakes_hands(&self) -> bool {
        !matches!(self, Self::Plain(_))
    }

    /// The TLS of the listener, if it has TLS.
    pub fn tls(&self) -> Option<&TlsListener> {
        if let Self::Tls(stream) = self {
            Some(stream.listener())
        } else {
            None
        }
    }

    /// The most bytes sent before other connections have their turn.
    pub fn flush_bytes_max(&self) -> usize {
        if matches!(self, Self::Tls(_)) {
            ENCRYPTED_FLUSH_BYTES
        } else {
            FLUSH_BYTES
        }
    }

    /// The socket, for the poll.
    pub fn socket_mut(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket_mut(),
            #[cfg(test)]
            Self::Masked(masked) => &mut masked.socket,
        }
    }

    /// Continues the handshake as far as the socket allows.
    ///
    /// # Errors
    /// The client cannot be spoken with.
    pub fn handshake(&mut self) -> Result<Handshake, HandshakeError> {
        match self {
            Self::Plain(_) => Ok(Handshake::Done),
            Self::Tls(stream) => stream.handshake(),
            #[cfg(test)]
            Self::Masked(masked) => Ok(masked.handshake()?),
        }
    }

    /// The principal that the handshake has authenticated; `None`: nobody.
    ///
    /// # Errors
    /// The client has a certificate and no principal.
    pub fn principal(&self) -> Result<Option<String>, HandshakeError> {
        if let Self::Tls(stream) = self {
            stream.principal()
        } else {
            Ok(None)
        }
    }

    /// Appends received bytes to a buffer: about as many as it has capacity for.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<Received> {
        match self {
            Self::Plain(socket) => {
                let room = buffer.capacity() - buffer.len();
                let read = || rustix::io::read(&*socket, spare_capacity(buffer));
                let bytes = rustix::io::retry_on_intr(read)?;
                Ok(Received {
                    bytes,
                    // A short read has emptied the socket; the end of the stream is read apart.
                    may_have_more: bytes == room,
                    is_end: bytes == 0,
                })
            }
            Self::Tls(stream) => stream.read(buffer),
            #[cfg(test)]
            Self::Masked(masked) => masked.read(buffer),
        }
    }

    /// Sends bytes; `more` says that others follow at once.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send(&mut self, bytes: &[u8], more: bool) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => {
                let flags = if more {
                    SendFlags::NOSIGNAL | SendFlags::MORE
                } else {
                    SendFlags::NOSIGNAL
                };
                let send = || rustix::net::send(&*socket, bytes, flags);
                Ok(rustix::io::retry_on_intr(send)?)
            }
            Self::Tls(stream) => stream.send(bytes, more),
            #[cfg(test)]
            Self::Masked(masked) => masked.send(bytes),
        }
    }

    /// Sends `len` bytes of a file, from `position` on; 0 at its end. The kernel copies them where
    /// they go as they are.
    ///
    /// # Errors
    /// The connection is broken, or the file cannot be read.
    pub fn send_file(&mut self, file: &LentFile, position: u64, len: usize) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => txn_sys::send_file(socket.as_fd(), file.as_fd(), position, len),
            Self::Tls(stream) => stream.send_file(file, position, len),
            #[cfg(test)]
            Self::Masked(masked) => masked.send_file(file, position, len),
        }
    }

    /// Sends the bytes that it took and the socket has not.
    ///
    /// # Errors
    /// `WouldBlock`: the socket takes no more now. Else the connection is broken.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Self::Tls(stream) = self {
            stream.write_out()
        } else {
            Ok(())
        }
    }

    /// Sends the client a `close_notify` before the socket is closed.
    pub fn close_notify(&mut self) {
        if let Self::Tls(stream) = self {
            stream.close_notify();
        }
    }
}

#[cfg(test)]
pub mod tests {
    use std::io::{Read, Write};
    use std::os::fd::BorrowedFd;

    use super::*;

    /// The byte with which a client begins.
    pub const HELLO: u8 = 0x16;
    /// Every byte after it is sent with these bits changed.
    pub const MASK: u8 = 0x5a;

    /// A transport that has to be shaken hands with, changes every byte, and copies files.
    pub struct Masked {
        pub socket: TcpStream,
        is_greeted: bool,
    }

    impl Masked {
        pub fn new(socket: TcpStream) -> Self {
            let is_greeted = false;
            Self { socket, is_greeted }
        }

        pub fn handshake(&mut self) -> io::Result<Handshake> {
            let mut hello = [0];
            while !self.is_greeted {
                match self.socket.read(&mut hello) {
                    Ok(1) if hello == [HELLO] => self.is_greeted = true,
                    Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Ok(Handshake::Blocked);
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(Handshake::Done)
        }

        pub fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<Received> {
            let mut received = vec![0; buffer.capacity() - buffer.len()];
            let bytes = self.socket.read(&mut received)?;
            buffer.extend(received[..bytes].iter().map(|byte| byte ^ MASK));
            Ok(Received {
                bytes,
                may_have_more: bytes == received.len(),
                is_end: bytes == 0,
            })
        }

        pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let masked: Vec<u8> = bytes.iter().map(|byte| byte ^ MASK).collect();
            self.socket.write(&masked)
        }

        pub fn send_file(&mut self, file: &LentFile, at: u64, len: usize) -> io::Result<usize> {
            let file: BorrowedFd<'_> = file.as_fd();
            let mut copied = vec![0; len.min(10_000)];
            let count = rustix::io::pread(file, &mut copied[..], at)?;
            self.send(&copied[..count])
        }
    }
}
