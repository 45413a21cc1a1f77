//! One TCP connection to one node: frames out, frames in, in the same order.
//!
//! A frame is its size as `i32` and then that many bytes. A node answers a connection's requests in
//! the order they were sent. So the oldest correlation id in flight is the only one that may come
//! next.
//!
//! # Invariants
//! After any error the connection is unusable (`is_broken`). The fate of requests in flight is
//! unknown, and the stream may stand in the middle of a frame. The owner drops it and decides what
//! to repeat.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use txn_protocol::codes;
use txn_protocol::frame::{begin_request, read_response_header, set_length};
use txn_protocol::{Malformed, Reader};

use crate::error::KafkaError;
use crate::interrupt::Interrupt;
use crate::messages::{self, API_VERSIONS, ClientApi, cluster::Versions};

/// Largest answer accepted, in bytes; a larger size field means the stream is not Kafka's.
const ANSWER_BYTES_MAX: usize = 1 << 30;
/// The same for the first answer, `ApiVersions`. The first bytes of a TLS alert or of an HTTP
/// answer, read as a size, are larger.
const VERSIONS_BYTES_MAX: usize = 1 << 20;
/// Bytes set aside for an answer before its bytes arrive.
const RESERVE_BYTES_MAX: usize = 16 << 20;
/// Time between two looks at the interrupt while an answer is awaited.
const INTERRUPT_LOOK: Duration = Duration::from_millis(100);

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Address {
    /// Reads `host:port`, `[v6]:port`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.trim().rsplit_once(':')?;
        let host = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        let host = host.rsplit_once("//").map_or(host, |(_, host)| host); // PLAINTEXT://host:port
        (!host.is_empty()).then_some(Self {
            host: host.to_owned(),
            port: port.parse().ok()?,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// An open connection and its node's API versions.
#[derive(Debug)]
pub struct BrokerConnection {
    stream: TcpStream,
    address: Address,
    name: String,
    client_id: String,
    versions: Versions,
    next_correlation: i32,
    in_flight: VecDeque<(i32, ClientApi, i16)>,
    /// True once a request other than `ApiVersions` was answered.
    is_admitted: bool,
    broken: bool,
    interrupt: Option<Interrupt>,
}

impl BrokerConnection {
    /// Connects and asks for the node's API versions.
    ///
    /// `timeout` bounds the connect, and then every answer that is waited for; an interrupt ends the
    /// wait for an answer.
    ///
    /// # Errors
    /// Network errors (retriable); 35 if the node has no usable `ApiVersions`.
    pub fn open(
        address: &Address,
        client_id: &str,
        timeout: Duration,
        interrupt: Option<Interrupt>,
    ) -> Result<Self, KafkaError> {
        let name = format!("node {address}");
        let unreachable =
            |cause: &dyn fmt::Display| KafkaError::unreachable(&name, "cannot be reached", cause);
        let candidates = (address.host.as_str(), address.port)
            .to_socket_addrs()
            .map_err(|e| unreachable(&e))?;
        let mut failure = io::Error::other("its name has no address");
        let mut connected = None;
        for candidate in candidates {
            match TcpStream::connect_timeout(&candidate, timeout) {
                Ok(stream) => {
                    connected = Some(stream);
                    break;
                }
                Err(error) => failure = error,
            }
        }
        let Some(stream) = connected else {
            return Err(unreachable(&failure));
        };
        stream.set_nodelay(true).map_err(|e| unreachable(&e))?;
        stream
            .set_write_timeout(Some(timeout))
            .map_err(|e| unreachable(&e))?;
        let mut connection = Self {
            stream,
            address: address.clone(),
            name,
            client_id: client_id.to_owned(),
            versions: Versions::default(),
            next_correlation: 0,
            in_flight: VecDeque::new(),
            is_admitted: false,
            broken: false,
            interrupt,
        };
        let name = &connection.name.clone();
        let negotiated = connection.negotiate(timeout);
        negotiated.map_err(|error| KafkaError::no_broker(name, &error))?;
        Ok(connection)
    }

    fn negotiate(&mut self, timeout: Duration) -> Result<(), KafkaError> {
        let ask = |this: &mut Self, version| {
            this.call(
                API_VERSIONS,
                version,
                timeout,
                |e| messages::cluster::encode_api_versions(e, version),
                |r| messages::cluster::decode_api_versions(r, version),
            )
        };
        let mut versions = ask(self, API_VERSIONS.highest)?;
        if versions.error_code == codes::UNSUPPORTED_VERSION {
            versions = ask(self, 0)?;
        }
        if versions.error_code != 0 {
            return Err(KafkaError::answered(
                versions.error_code,
                &self.name,
                "ApiVersions",
                "this client",
                None,
            ));
        }
        self.versions = versions;
        Ok(())
    }

    /// The node, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the node listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// (epoch, level of `transaction.version`) of the finalized features.
    #[must_use]
    pub fn transaction_version(&self) -> (i64, i16) {
        (
            self.versions.features_epoch,
            self.versions.transaction_version,
        )
    }

    /// Number of answers still to come.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// True if an error made this connection unusable.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// The highest version of `api` that both sides know.
    ///
    /// # Errors
    /// 35, naming the API and both ranges.
    pub fn version(&self, api: ClientApi) -> Result<i16, KafkaError> {
        let offered = self
            .versions
            .ranges
            .iter()
            .find(|(key, ..)| *key == api.key);
        let common = offered.map(|&(_, low, high)| (low.max(api.lowest), high.min(api.highest)));
        match common {
            Some((low, high)) if low <= high => Ok(high),
            _ => {
                let offer = offered.map_or("does not offer it".to_owned(), |(_, l, h)| {
                    format!("offers {l} to {h}")
                });
                Err(KafkaError::refused(
                    codes::UNSUPPORTED_VERSION,
                    format!(
                        "{} {offer}, but this client needs {} in version {} to {}; use a broker of Kafka 3.0 or newer",
                        self.name, api.name, api.lowest, api.highest
                    ),
                ))
            }
        }
    }

    /// A frame with room for its size, the request's header, and the correlation id it will have.
    pub fn head(&mut self, api: ClientApi, version: i16) -> Vec<u8> {
        let mut e = Vec::new();
        begin_request(
            &mut e,
            api.key,
            version,
            self.next_correlation,
            &self.client_id,
        );
        e
    }

    /// Sends one frame: `pieces`, the first of which began with `head`, with `bodies` between them. Does not
    /// wait for the answer.
    ///
    /// # Errors
    /// Network errors (retriable); the connection is then broken.
    pub fn send(
        &mut self,
        api: ClientApi,
        version: i16,
        pieces: &mut [Vec<u8>],
        bodies: &[&[u8]],
    ) -> Result<(), KafkaError> {
        let size = pieces.iter().map(Vec::len).sum::<usize>()
            + bodies.iter().map(|b| b.len()).sum::<usize>()
            - 4;
        assert!(i32::try_from(size).is_ok(), "requests stay below 2 GiB");
        set_length(&mut pieces[0], size);
        let mut slices = Vec::with_capacity(pieces.len() + bodies.len());
        for (i, piece) in pieces.iter().enumerate() {
            slices.push(IoSlice::new(piece));
            slices.extend(bodies.get(i).map(|body| IoSlice::new(body)));
        }
        let result = write_all(&mut self.stream, &mut slices);
        self.in_flight
            .push_back((self.next_correlation, api, version));
        self.next_correlation = self.next_correlation.wrapping_add(1);
        result.map_err(|error| self.breaks(api.name, &error))
    }

    /// Encodes and sends one request. Does not wait for the answer.
    ///
    /// # Errors
    /// As `send`.
    pub fn request(
        &mut self,
        api: ClientApi,
        version: i16,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), KafkaError> {
        let mut e = self.head(api, version);
        encode(&mut e);
        self.send(api, version, std::slice::from_mut(&mut e), &[])
    }

    /// Waits for the oldest answer in flight, puts it into `frame` and returns where its body starts.
    ///
    /// # Errors
    /// Network errors and a late answer (retriable), an interrupt and an answer that makes no sense
    /// (final); the connection is then broken.
    pub fn receive(&mut self, frame: &mut Vec<u8>, timeout: Duration) -> Result<usize, KafkaError> {
        let &(correlation, api, version) = self.in_flight.front().expect("a request is in flight");
        let began = Instant::now();
        if let Err(error) = self.read_frame(frame, timeout) {
            return Err(match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    self.broken = true;
                    KafkaError::silent(&self.name, api.name, began.elapsed().as_millis())
                }
                io::ErrorKind::Interrupted => {
                    self.broken = true;
                    KafkaError::interrupted(&self.name, api.name)
                }
                io::ErrorKind::InvalidData => self.malformed(api.name, &error),
                _ => self.breaks(api.name, &error),
            });
        }
        let mut r = Reader::new(frame);
        match read_response_header(&mut r, api.key, version) {
            Ok(id) if id == correlation => {
                self.in_flight.pop_front();
                self.is_admitted |= api.key != API_VERSIONS.key;
                Ok(frame.len() - r.left())
            }
            Ok(id) => {
                let what = format!("correlation id {id} came where {correlation} was due");
                Err(self.malformed(api.name, &what))
            }
            Err(error) => Err(self.malformed(api.name, &error)),
        }
    }

    fn read_frame(&mut self, frame: &mut Vec<u8>, timeout: Duration) -> io::Result<()> {
        self.await_answer(timeout)?;
        self.stream
            .set_read_timeout(Some(timeout.max(Duration::from_millis(1))))?;
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let size = usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX);
        let is_first = self.versions.ranges.is_empty();
        let bytes_max = if is_first {
            VERSIONS_BYTES_MAX
        } else {
            ANSWER_BYTES_MAX
        };
        if !(4..=bytes_max).contains(&size) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a frame of {size} bytes"),
            ));
        }
        frame.clear();
        frame.reserve(size.min(RESERVE_BYTES_MAX));
        let read = (&self.stream).take(size as u64).read_to_end(frame)?;
        if read < size {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok(())
        }
    }

    /// Waits for the first byte of an answer, or for the end of the stream.
    ///
    /// # Errors
    /// `TimedOut` or `WouldBlock` after `timeout`; `Interrupted` once the user asked to stop.
    fn await_answer(&self, timeout: Duration) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let left = timeout.saturating_sub(began.elapsed());
            let wait = left.clamp(Duration::from_millis(1), INTERRUPT_LOOK);
            self.stream.set_read_timeout(Some(wait))?;
            match self.stream.peek(&mut [0]) {
                Ok(_) => return Ok(()),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        if left.is_zero() {
                            return Err(error);
                        }
                    }
                    _ => return Err(error),
                },
            }
            if self.interrupt.as_ref().is_some_and(Interrupt::is_raised) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
    }

    /// Sends a request and reads its answer. Nothing else may be in flight.
    ///
    /// # Errors
    /// As `send` and `receive`.
    pub fn call<T>(
        &mut self,
        api: ClientApi,
        version: i16,
        timeout: Duration,
        encode: impl FnOnce(&mut Vec<u8>),
        decode: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
    ) -> Result<T, KafkaError> {
        let (frame, body) = self.exchange(api, version, timeout, encode)?;
        decode(&mut Reader::new(&frame[body..])).map_err(|error| self.malformed(api.name, &error))
    }

    /// Sends a request and waits for its answer; returns the frame and where the body starts in it.
    /// Nothing else may be in flight.
    ///
    /// # Errors
    /// As `send` and `receive`.
    pub fn exchange(
        &mut self,
        api: ClientApi,
        version: i16,
        timeout: Duration,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(Vec<u8>, usize), KafkaError> {
        debug_assert!(self.in_flight.is_empty());
        self.request(api, version, encode)?;
        let mut frame = Vec::new();
        let body = self.receive(&mut frame, timeout)?;
        Ok((frame, body))
    }

    /// Marks the connection broken because of an answer that makes no sense.
    pub fn malformed(&mut self, request: &str, what: &dyn fmt::Display) -> KafkaError {
        self.broken = true;
        KafkaError::malformed(&self.name, request, what)
    }

    fn breaks(&mut self, request: &str, cause: &io::Error) -> KafkaError {
        self.broken = true;
        let closed = io::Error::other("it closed the connection");
        let cause = if cause.kind() == io::ErrorKind::UnexpectedEof {
            &closed
        } else {
            cause
        };
        let lost = format!("was lost during {request}");
        // A listener with SASL answers ApiVersions to everybody, and hangs up on the next request.
        let may_want_sasl = !self.is_admitted && !self.versions.ranges.is_empty();
        if may_want_sasl {
            KafkaError::unauthenticated(&self.name, &lost, cause)
        } else {
            KafkaError::unreachable(&self.name, &lost, cause)
        }
    }
}

/// Writes all slices; `write_all_vectored` is not stable yet.
fn write_all(stream: &mut TcpStream, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0); // drops leading empty slices
    while !slices.is_empty() {
        match stream.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_interrupt_ends_the_wait_for_an_answer_for_good() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address {
            host: "127.0.0.1".to_owned(),
            port: silent.local_addr().unwrap().port(),
        };
        let raised = Interrupt::new(|| true);
        let began = Instant::now();
        let minute = Duration::from_secs(60);
        let error = BrokerConnection::open(&address, "test", minute, Some(raised)).unwrap_err();
        assert!(!error.is_retriable, "{error:?}");
        assert!(error.message.contains("interrupted"), "{error:?}");
        assert!(began.elapsed() < minute / 2);
    }
}
