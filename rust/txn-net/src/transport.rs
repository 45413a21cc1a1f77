//! The path of bytes across a client's socket: plain today.
//!
//! A connection reads, sends and hands files to the kernel through its [`Transport`] alone. The
//! kind of transport is that of the [`Listener`](crate::listener::Listener) which accepted the
//! socket. A transport that encrypts has to copy a file's bytes, and to shake hands before the
//! first request. The connection's turn asks for both, so nothing above this module knows the
//! difference.

use std::io;
use std::os::fd::AsFd;

use mio::net::TcpStream;
use rustix::buffer::spare_capacity;
use rustix::net::SendFlags;
use txn_log::LentFile;

use crate::listener::SecurityProtocol;

/// A non-blocking socket and its encoding.
///
/// Reads and sends take as many bytes as they can, and fail with `WouldBlock` if that is none.
pub enum Transport {
    /// Bytes as they are.
    Plain(TcpStream),
    #[cfg(test)]
    Masked(tests::Masked),
}

/// True if requests may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    Done,
    /// The socket gives or takes no more bytes now.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "plain sockets do not shake hands")
    )]
    Blocked,
}

impl Transport {
    /// The transport of a security protocol over a socket.
    pub fn new(socket: TcpStream, security: SecurityProtocol) -> Self {
        match security {
            SecurityProtocol::Plaintext => Self::Plain(socket),
            #[cfg(test)]
            SecurityProtocol::Masked => Self::Masked(tests::Masked::new(socket)),
        }
    }

    /// The socket, for the poll.
    pub fn socket_mut(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(socket) => socket,
            #[cfg(test)]
            Self::Masked(masked) => &mut masked.socket,
        }
    }

    /// Goes on with the handshake as far as the socket lets it.
    ///
    /// # Errors
    /// The client cannot be spoken with.
    #[cfg_attr(
        not(test),
        expect(clippy::unnecessary_wraps, reason = "plain sockets do not fail")
    )]
    pub fn handshake(&mut self) -> io::Result<Handshake> {
        match self {
            Self::Plain(_) => Ok(Handshake::Done),
            #[cfg(test)]
            Self::Masked(masked) => masked.handshake(),
        }
    }

    /// Appends received bytes to a buffer, at most as many as it has capacity for; 0 at the end of
    /// the stream.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => {
                let read = || rustix::io::read(&*socket, spare_capacity(buffer));
                Ok(rustix::io::retry_on_intr(read)?)
            }
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
            #[cfg(test)]
            Self::Masked(masked) => masked.send_file(file, position, len),
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

        pub fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
            let mut received = vec![0; buffer.capacity() - buffer.len()];
            let count = self.socket.read(&mut received)?;
            buffer.extend(received[..count].iter().map(|byte| byte ^ MASK));
            Ok(count)
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
