//! One connection under the I/O thread: frames in and out, without waiting.
//!
//! The set-up of a connection (name look-up, TLS, log-in) is `BrokerConnection::open`, which waits,
//! and runs on a thread of its own. The link goes on with its socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

use txn_protocol::frame::{begin_request, read_response_header, set_length};
use txn_protocol::{Malformed, Reader};

use super::{Request, Response};
use crate::connection::{BrokerConnection, OpenConnection};
use crate::error::KafkaError;
use crate::messages::ClientApi;

/// Bytes read from a socket at once.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// Largest answer accepted: none of a producer's is near that.
const ANSWER_BYTES_MAX: usize = 100 << 20;

type Decoder = fn(&mut Reader<'_>, i16) -> Result<Response, Malformed>;

#[derive(Debug)]
struct Awaited {
    id: u64,
    correlation: i32,
    api: ClientApi,
    version: i16,
    decoder: Decoder,
}

/// A connection that is set up; see the module.
#[derive(Debug)]
pub(crate) struct Link {
    open: OpenConnection,
    awaited: VecDeque<Awaited>,
    /// Bytes that have come, from the start of a frame.
    input: Vec<u8>,
    /// Frames that the socket has not taken.
    output: VecDeque<Vec<u8>>,
    /// Bytes of the first of them that it has taken.
    written: usize,
}

impl Link {
    /// Goes on with a connection on which nothing is in flight.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn new(connection: BrokerConnection) -> io::Result<Self> {
        let open = connection.into_open();
        open.stream.socket().set_nonblocking(true)?;
        Ok(Self {
            open,
            awaited: VecDeque::new(),
            input: Vec::new(),
            output: VecDeque::new(),
            written: 0,
        })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.open.stream.socket().as_raw_fd()
    }

    /// (epoch, level of `transaction.version`) of the node's finalized features.
    pub(crate) fn features(&self) -> (i64, i16) {
        let versions = &self.open.versions;
        (versions.features_epoch, versions.transaction_version)
    }

    /// True if its session ends soon and nothing is in flight: a new connection logs in again.
    pub(crate) fn is_over(&self) -> bool {
        let is_stale = self.open.renewal.is_some_and(|at| Instant::now() >= at);
        is_stale && self.awaited.is_empty()
    }

    /// Queues a request.
    ///
    /// # Errors
    /// 35 if the node does not offer it.
    pub(crate) fn push(&mut self, id: u64, request: &Request) -> Result<(), KafkaError> {
        let api = request.api();
        let version = self.open.version(api)?;
        let mut head = Vec::with_capacity(256);
        let correlation = self.open.next_correlation;
        self.open.next_correlation = correlation.wrapping_add(1);
        begin_request(
            &mut head,
            api.key,
            version,
            correlation,
            &self.open.client_id,
        );
        let mut frame = request.encode(head, version);
        let length = frame.len() - 4;
        set_length(&mut frame, length);
        self.output.push_back(frame);
        self.awaited.push_back(Awaited {
            id,
            correlation,
            api,
            version,
            decoder: request.decoder(),
        });
        Ok(())
    }

    /// Writes as many bytes as the socket takes.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn write(&mut self) -> Result<(), KafkaError> {
        while !self.output.is_empty() {
            let slices: Vec<IoSlice<'_>> = self
                .output
                .iter()
                .take(16)
                .enumerate()
                .map(|(i, frame)| IoSlice::new(&frame[if i == 0 { self.written } else { 0 }..]))
                .collect();
            match self.open.stream.write_vectored(&slices) {
                Ok(0) => return Err(self.lost(&io::Error::from(io::ErrorKind::WriteZero))),
                Ok(written) => self.note_written(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
        match self.open.stream.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(self.lost(&error)),
            _ => Ok(()),
        }
    }

    fn note_written(&mut self, mut written: usize) {
        while let Some(first) = self.output.front() {
            let left = first.len() - self.written;
            if written < left {
                self.written += written;
                return;
            }
            written -= left;
            self.written = 0;
            self.output.pop_front();
        }
    }

    /// Reads the socket by way of `buffer` until it is empty, and adds the answers that are whole.
    ///
    /// # Errors
    /// The connection is lost, or the node breaks the protocol. Answers before that are in `answers`.
    pub(crate) fn read(
        &mut self,
        answers: &mut Vec<(u64, Result<Response, KafkaError>)>,
        buffer: &mut [u8],
    ) -> Result<(), KafkaError> {
        loop {
            match self.open.stream.read_ready(buffer) {
                Ok(0) => return Err(self.lost(&io::Error::other("it closed the connection"))),
                Ok(read) => {
                    self.input.extend_from_slice(&buffer[..read]);
                    self.take_answers(answers)?;
                    if read < buffer.len() && self.open.stream.is_plain() {
                        return Ok(()); // more bytes would be another event
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
    }

    fn take_answers(
        &mut self,
        answers: &mut Vec<(u64, Result<Response, KafkaError>)>,
    ) -> Result<(), KafkaError> {
        let mut start = 0;
        while let Some(size) = self.input[start..].first_chunk::<4>() {
            let size = usize::try_from(i32::from_be_bytes(*size)).unwrap_or(usize::MAX);
            if !(4..=ANSWER_BYTES_MAX).contains(&size) {
                return Err(self.malformed("a request", &format!("a frame of {size} bytes")));
            }
            let Some(frame) = self.input.get(start + 4..start + 4 + size) else {
                break;
            };
            let Some(awaited) = self.awaited.pop_front() else {
                return Err(self.malformed("no request", &"nothing was asked"));
            };
            let mut r = Reader::new(frame);
            let correlation = read_response_header(&mut r, awaited.api.key, awaited.version);
            let response = match correlation {
                Ok(id) if id == awaited.correlation => (awaited.decoder)(&mut r, awaited.version),
                Ok(id) => {
                    let due = awaited.correlation;
                    let what = format!("correlation id {id} came where {due} was due");
                    return Err(self.malformed(awaited.api.name, &what));
                }
                Err(error) => Err(error),
            };
            let response = response.map_err(|error| self.malformed(awaited.api.name, &error));
            let is_broken = response.is_err();
            answers.push((awaited.id, response.clone()));
            if is_broken {
                return response.map(|_| ());
            }
            start += 4 + size;
        }
        self.input.drain(..start);
        Ok(())
    }

    fn malformed(&self, request: &str, what: &dyn std::fmt::Display) -> KafkaError {
        // The producer repeats the request on a new connection: it is safe to repeat.
        KafkaError {
            is_retriable: true,
            ..KafkaError::malformed(&self.open.name, request, what)
        }
    }

    fn lost(&self, cause: &io::Error) -> KafkaError {
        let cause = match cause.kind() {
            io::ErrorKind::UnexpectedEof => &io::Error::other("it closed the connection"),
            _ => cause,
        };
        KafkaError::unreachable(&self.open.name, "was lost", cause)
    }
}
