//! A connection to one node: frames out without a copy, frames in from one buffer.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use txn_client::messages::ClientApi;
use txn_protocol::frame::{
    LENGTH_BYTES, begin_request, read_response_header, set_length, set_request_correlation_id,
};
use txn_protocol::{Malformed, Reader};

use crate::arguments::{Arguments, Failure};
use crate::secure;

const CLIENT_ID: &str = "txn-bench";
/// Large enough to ask the kernel rarely, small enough to stay in a core's cache.
const BUFFER_BYTES: usize = 256 << 10;

/// A node, and how to speak with it.
#[derive(Clone)]
pub struct BenchNode<'a> {
    address: &'a str,
    tls: Option<Arc<ClientConfig>>,
}

impl<'a> BenchNode<'a> {
    /// The node of a command line: `--bootstrap`, and with `--ca` over TLS.
    pub fn of(arguments: &'a Arguments) -> Result<Self, Failure> {
        Ok(Self {
            address: arguments.text("bootstrap")?,
            tls: secure::config(arguments)?,
        })
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write_vectored(parts),
            Self::Tls(stream) => stream.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// An open connection.
pub struct BenchConnection {
    stream: Stream,
    correlation: i32,
    /// Allocated when something is first received: an idle connection is only its socket.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl BenchConnection {
    /// Connects; with TLS, up to the end of the client's part of the handshake.
    pub fn open(node: &BenchNode<'_>) -> io::Result<Self> {
        let mut socket = TcpStream::connect(node.address)?;
        socket.set_nodelay(true)?;
        unpaced(&socket);
        let stream = match &node.tls {
            None => Stream::Plain(socket),
            Some(config) => {
                let host = socket.peer_addr()?.ip().into();
                let session = ClientConnection::new(Arc::clone(config), host);
                let mut session = session.map_err(io::Error::other)?;
                session.complete_io(&mut socket)?;
                Stream::Tls(Box::new(StreamOwned::new(session, socket)))
            }
        };
        Ok(Self {
            stream,
            correlation: 0,
            buffer: Vec::new(),
            start: 0,
            end: 0,
        })
    }

    /// Gives its buffer back.
    pub fn into_idle(mut self) -> Self {
        debug_assert!(self.start == self.end);
        self.buffer = Vec::new();
        self
    }

    /// Sends a frame of three pieces; size and correlation id are written into the first.
    pub fn send(&mut self, head: &mut [u8], body: &[u8], tail: &[u8]) -> io::Result<()> {
        let size = head.len() + body.len() + tail.len() - LENGTH_BYTES;
        set_length(head, size);
        set_request_correlation_id(head, self.correlation);
        self.correlation = self.correlation.wrapping_add(1);
        let mut slices = [IoSlice::new(head), IoSlice::new(body), IoSlice::new(tail)];
        let mut slices = slices.as_mut_slice();
        while !slices.is_empty() {
            match self.stream.write_vectored(slices)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => IoSlice::advance_slices(&mut slices, sent),
            }
        }
        Ok(())
    }

    /// Takes the next `len` bytes of the stream, which must fit the buffer.
    pub fn take(&mut self, len: usize) -> io::Result<&[u8]> {
        while self.end - self.start < len {
            if self.buffer.is_empty() {
                self.buffer = vec![0; BUFFER_BYTES];
            }
            if self.start + len > self.buffer.len() {
                if len > self.buffer.len() {
                    return Err(io::Error::other(format!("{len} bytes at once")));
                }
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            match self.stream.read(&mut self.buffer[self.end..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                received => self.end += received,
            }
        }
        let taken = self.start..self.start + len;
        self.start += len;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        Ok(&self.buffer[taken])
    }

    /// Passes over `len` bytes of the stream; they are received all the same.
    pub fn skip(&mut self, mut len: usize) -> io::Result<()> {
        while len > 0 {
            let piece = len.min(match self.end - self.start {
                0 => BUFFER_BYTES,
                buffered => buffered,
            });
            if self.end > self.start {
                self.take(piece)?;
                len -= piece;
                continue;
            }
            if self.buffer.is_empty() {
                self.buffer = vec![0; BUFFER_BYTES];
            }
            match self.stream.read(&mut self.buffer[..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                received => {
                    let passed = received.min(len);
                    (self.start, self.end) = (passed, received);
                    len -= passed;
                }
            }
        }
        Ok(())
    }

    /// Receives a whole frame, without its size; it must fit the buffer.
    pub fn receive(&mut self) -> io::Result<&[u8]> {
        let size = self.take(4)?;
        let size = u32::from_be_bytes(*size.first_chunk().expect("four bytes were taken"));
        self.take(size as usize)
    }

    /// Sends a request in its highest version and reads the answer.
    pub fn call<T>(
        &mut self,
        api: ClientApi,
        encode: impl FnOnce(&mut Vec<u8>),
        decode: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
    ) -> Result<T, Failure> {
        let mut request = head(api);
        encode(&mut request);
        self.send(&mut request, &[], &[])?;
        let mut reader = Reader::new(self.receive()?);
        let answer = read_response_header(&mut reader, api.key, api.highest)
            .and_then(|_| decode(&mut reader));
        answer.map_err(|error| format!("{}: {error}", api.name).into())
    }
}

/// Lets data over loopback go as fast as it can, where the machine's default paces it.
pub fn unpaced(stream: &TcpStream) {
    // Not allowed everywhere, and then the default stays.
    let _ = rustix::net::sockopt::set_tcp_congestion(stream, "reno");
}

/// The beginning of a request's frame, in the highest version this client knows.
pub fn head(api: ClientApi) -> Vec<u8> {
    let mut frame = Vec::new();
    begin_request(&mut frame, api.key, api.highest, 0, CLIENT_ID);
    frame
}
