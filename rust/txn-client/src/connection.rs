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
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use txn_protocol::codes;
use txn_protocol::frame::{begin_request, read_response_header, set_length};
use txn_protocol::{Malformed, Reader};
use zeroize::Zeroizing;

use crate::connect::connect_to_any;
use crate::error::KafkaError;
use crate::interrupt::Interrupt;
use crate::messages::{
    self, API_VERSIONS, ClientApi, FETCH, SASL_AUTHENTICATE, SASL_HANDSHAKE, cluster::Versions,
};
use crate::patience::{INTERRUPT_LOOK, Patience, read_all, write_all};
use crate::protocol_probe;
use crate::security::Security;
use crate::security::sasl::{Sasl, printable_text};
use crate::security::tls;
use crate::transport::Transport;

/// Largest answer to a Fetch accepted, in bytes; a larger size field means the stream is not Kafka's.
const FETCH_BYTES_MAX: usize = 1 << 30;
/// The same for every other answer, as librdkafka's `receive.message.max.bytes`: each of its fields
/// becomes an object of its own.
const ANSWER_BYTES_MAX: usize = 100 << 20;
/// The same for the answers before the first request, from a node that has not proved itself. The first
/// bytes of a TLS alert or of an HTTP answer, read as a size, are larger.
const EARLY_BYTES_MAX: usize = 1 << 20;
/// Bytes set aside for an answer before its bytes arrive.
const RESERVE_BYTES_MAX: usize = 16 << 20;
/// Of these, bytes made ready at first; then as many again as have come.
const READY_BYTES: usize = 1 << 20;
/// The part of a session's lifetime after which it is renewed, in percent. One is taken at random, as by
/// Kafka's clients: connections made together are not renewed together.
const RENEWAL_PERCENT: std::ops::Range<u64> = 85..95;
/// Most mechanisms of a node that a message names.
const MECHANISMS_LISTED_MAX: usize = 10;

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
    stream: Transport,
    security: Security,
    /// When the node has to be logged in to again; None: never.
    renewal: Option<Instant>,
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
    /// When the interrupt was looked at last.
    looked: Instant,
}

impl BrokerConnection {
    /// Connects, secures the connection, asks for the node's API versions and logs in.
    ///
    /// `timeout` bounds the connect, and then the handshake and every request with its whole answer; an
    /// interrupt ends the wait.
    ///
    /// # Errors
    /// Network errors (retriable); 35 if the node has no usable `ApiVersions`. Final: 33, 34 and 58 for a
    /// log-in that fails, 13 for TLS that cannot work.
    pub fn open(
        address: &Address,
        client_id: &str,
        security: &Security,
        timeout: Duration,
        interrupt: Option<Interrupt>,
    ) -> Result<Self, KafkaError> {
        let name = format!("node {address}");
        let unreachable =
            |cause: &dyn fmt::Display| KafkaError::unreachable(&name, "cannot be reached", cause);
        let candidates: Vec<_> = (address.host.as_str(), address.port)
            .to_socket_addrs()
            .map_err(|e| unreachable(&e))?
            .collect();
        let (socket, peer) = connect_to_any(&candidates, timeout, interrupt.as_ref()).map_err(
            |error| match error.kind() {
                io::ErrorKind::Interrupted => KafkaError::interrupted(&name, "the connect"),
                _ => unreachable(&error),
            },
        )?;
        socket.set_nodelay(true).map_err(|e| unreachable(&e))?;
        socket
            .set_write_timeout(Some(INTERRUPT_LOOK))
            .map_err(|e| unreachable(&e))?;
        let stream = Self::secured(socket, peer, address, security, timeout, interrupt.as_ref())?;
        let mut connection = Self {
            stream,
            security: security.clone(),
            renewal: None,
            address: address.clone(),
            name,
            client_id: client_id.to_owned(),
            versions: Versions::default(),
            next_correlation: 0,
            in_flight: VecDeque::new(),
            is_admitted: false,
            broken: false,
            interrupt,
            looked: Instant::now(),
        };
        if let Err(error) = connection.negotiate(timeout) {
            return Err(connection.no_broker(peer, error));
        }
        if security.sasl().is_some() {
            connection.log_in(timeout)?;
        }
        Ok(connection)
    }

    /// The socket, under TLS if the security has it.
    fn secured(
        socket: TcpStream,
        peer: SocketAddr,
        address: &Address,
        security: &Security,
        timeout: Duration,
        interrupt: Option<&Interrupt>,
    ) -> Result<Transport, KafkaError> {
        let Some(config) = security.tls() else {
            return Ok(Transport::Plain(socket));
        };
        let node = format!("node {address}");
        let server_name =
            tls::server_name(&address.host).map_err(|why| KafkaError::insecure(&node, &why))?;
        let config = std::sync::Arc::clone(config);
        Transport::secure(socket, config, server_name, timeout, interrupt).map_err(|failure| {
            if failure.is_mute && protocol_probe::speaks_plain(peer, timeout, interrupt) {
                return protocol_probe::plain_error(&node);
            }
            match failure.error.kind() {
                io::ErrorKind::TimedOut => {
                    KafkaError::silent(&node, "the TLS handshake", timeout.as_millis())
                }
                io::ErrorKind::Interrupted => KafkaError::interrupted(&node, "the TLS handshake"),
                _ => Self::tls_error(&node, &address.host, &failure.error).unwrap_or_else(|| {
                    KafkaError::unreachable(
                        &node,
                        "was lost during the TLS handshake",
                        &failure.error,
                    )
                }),
            }
        })
    }

    /// The error for a failure of TLS that a repetition does not mend.
    fn tls_error(node: &str, host: &str, error: &io::Error) -> Option<KafkaError> {
        let failure = tls::failure(error)?;
        if matches!(failure, rustls::Error::InvalidMessage(_)) {
            return Some(protocol_probe::plain_error(node));
        }
        let why = tls::explained(failure, host)?;
        Some(KafkaError::insecure(node, &why))
    }

    /// `error` ended the exchange of `ApiVersions`, with which every connection begins.
    fn no_broker(&self, peer: SocketAddr, error: KafkaError) -> KafkaError {
        let is_plain = self.security.tls().is_none();
        // An interrupt, or a failure of TLS.
        let told = [codes::REQUEST_TIMED_OUT, codes::NETWORK_EXCEPTION];
        if told.contains(&error.code) && !error.is_retriable {
            return error;
        }
        if is_plain
            && protocol_probe::speaks_tls(peer, INTERRUPT_LOOK * 20, self.interrupt.as_ref())
        {
            return protocol_probe::tls_error(&self.name);
        }
        KafkaError::no_broker(&self.name, &error)
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

    /// Logs in within `timeout`, for the first time or again. Nothing may be in flight.
    fn log_in(&mut self, timeout: Duration) -> Result<(), KafkaError> {
        let began = Instant::now();
        let left = || timeout.saturating_sub(began.elapsed());
        let security = self.security.clone();
        let Some(sasl) = security.sasl() else {
            return Ok(());
        };
        self.shake_hands(sasl, timeout)?;
        let version = self.version(SASL_AUTHENTICATE)?;
        let (mut log_in, mut message) = sasl.begin(&self.name)?;
        loop {
            let mut e = Zeroizing::new(Vec::new());
            let head = self.head(SASL_AUTHENTICATE, version);
            e.reserve(head.len() + message.len() + 8); // a move would leave the secret behind
            e.extend_from_slice(&head);
            messages::sasl::encode_authenticate(&mut e, version, &message);
            self.send(
                SASL_AUTHENTICATE,
                version,
                std::slice::from_mut(&mut *e),
                &[],
                left(),
            )?;
            let mut frame = Vec::new();
            let body = self.receive(&mut frame, left())?;
            let answer = messages::sasl::decode_authenticate(&frame[body..], version)
                .map_err(|error| self.malformed(SASL_AUTHENTICATE.name, &error))?;
            if answer.error_code != 0 {
                self.broken = true;
                return Err(log_in.refused(
                    &self.name,
                    answer.error_code,
                    answer.detail.as_deref(),
                ));
            }
            match log_in.answer(&self.name, &answer.message) {
                Ok(Some(next)) => message = next,
                Ok(None) => {
                    self.is_admitted = true;
                    self.renewal = renewal(answer.lifetime_ms);
                    return Ok(());
                }
                Err(error) => {
                    self.broken = true;
                    return Err(error);
                }
            }
        }
    }

    /// Names the mechanism.
    fn shake_hands(&mut self, sasl: &Sasl, timeout: Duration) -> Result<(), KafkaError> {
        let answer = self.handshake(sasl.mechanism(), timeout)?;
        if answer.error_code == 0 {
            return Ok(());
        }
        self.broken = true;
        let (node, mechanism) = (&self.name, sasl.mechanism());
        let message = match answer.error_code {
            codes::UNSUPPORTED_SASL_MECHANISM => format!(
                "{node} does not offer the SASL mechanism {mechanism}; set sasl.mechanism to one that it \
                 offers: {}",
                offered(&answer.mechanisms)
            ),
            code @ codes::ILLEGAL_SASL_STATE if self.renewal.is_none() => {
                let message = format!(
                    "{node} asks for no log-in on this port; set security.protocol to PLAINTEXT or SSL"
                );
                return Err(KafkaError::refused(code, message));
            }
            code => {
                let request = SASL_HANDSHAKE.name;
                let error = KafkaError::answered(code, node, request, mechanism, None);
                // Kafka lets nobody log in twice within a second. A new connection may.
                let is_retriable = error.is_retriable || code == codes::ILLEGAL_SASL_STATE;
                return Err(KafkaError {
                    is_retriable,
                    ..error
                });
            }
        };
        Err(KafkaError::refused(answer.error_code, message))
    }

    fn handshake(
        &mut self,
        mechanism: &str,
        timeout: Duration,
    ) -> Result<messages::sasl::Handshake, KafkaError> {
        let version = self.version(SASL_HANDSHAKE)?;
        let encode = |e: &mut Vec<u8>| messages::sasl::encode_handshake(e, mechanism);
        let (frame, body) = self.ask(SASL_HANDSHAKE, version, timeout, encode)?;
        messages::sasl::decode_handshake(&frame[body..])
            .map_err(|error| self.malformed(SASL_HANDSHAKE.name, &error))
    }

    /// True if the node wants another log-in soon: `refresh` does it once nothing is in flight.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.renewal
            .is_some_and(|renewal| Instant::now() >= renewal)
    }

    /// Logs in again if that is due and nothing is in flight. To be called before `head`.
    ///
    /// # Errors
    /// As `open`; the connection is then broken.
    pub fn refresh(&mut self, timeout: Duration) -> Result<(), KafkaError> {
        // The log-in's answers would come behind those in flight. The session holds a while yet.
        if !self.is_stale() || !self.in_flight.is_empty() {
            return Ok(());
        }
        let result = self.log_in(timeout);
        self.broken |= result.is_err();
        result
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
        common_version(&self.name, &self.versions, api)
    }

    /// Hands the connection over to a caller that does not wait. Nothing may be in flight.
    pub(crate) fn into_open(self) -> OpenConnection {
        debug_assert!(self.in_flight.is_empty());
        OpenConnection {
            stream: self.stream,
            name: self.name,
            client_id: self.client_id,
            versions: self.versions,
            next_correlation: self.next_correlation,
            renewal: self.renewal,
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
    /// `timeout` is for the whole frame: a node that takes a few bytes now and then does not prolong it.
    ///
    /// # Errors
    /// As `receive`.
    pub fn send(
        &mut self,
        api: ClientApi,
        version: i16,
        pieces: &mut [Vec<u8>],
        bodies: &[&[u8]],
        timeout: Duration,
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
        let began = Instant::now();
        let mut patience = Patience::new(timeout, self.interrupt.as_ref(), &mut self.looked);
        let result = write_all(&mut self.stream, &mut slices, &mut patience)
            .map_err(|error| explain_timeout(error, "take the whole of"));
        self.in_flight
            .push_back((self.next_correlation, api, version));
        self.next_correlation = self.next_correlation.wrapping_add(1);
        result.map_err(|error| self.request_error(api, &error, began))
    }

    /// Encodes and sends one request. Does not wait for the answer.
    ///
    /// # Errors
    /// As `send`.
    pub fn request(
        &mut self,
        api: ClientApi,
        version: i16,
        timeout: Duration,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), KafkaError> {
        let mut e = self.head(api, version);
        encode(&mut e);
        self.send(api, version, std::slice::from_mut(&mut e), &[], timeout)
    }

    /// Waits for the oldest answer in flight, puts it into `frame` and returns where its body starts.
    ///
    /// `timeout` is for the whole answer, as Java's `request.timeout.ms`: bytes that come now and then
    /// do not prolong it.
    ///
    /// # Errors
    /// Network errors and a late answer (retriable), an interrupt and an answer that makes no sense
    /// (final); the connection is then broken.
    pub fn receive(&mut self, frame: &mut Vec<u8>, timeout: Duration) -> Result<usize, KafkaError> {
        self.receive_large(frame, timeout, timeout)
    }

    /// As `receive`, for an answer that may be large: it begins within `timeout`, and is here within
    /// `whole`.
    ///
    /// # Errors
    /// As `receive`.
    pub fn receive_large(
        &mut self,
        frame: &mut Vec<u8>,
        timeout: Duration,
        whole: Duration,
    ) -> Result<usize, KafkaError> {
        let &(correlation, api, version) = self.in_flight.front().expect("a request is in flight");
        let began = Instant::now();
        if let Err(error) = self.read_frame(frame, api, timeout, whole) {
            return Err(self.request_error(api, &error, began));
        }
        let mut r = Reader::new(frame);
        match read_response_header(&mut r, api.key, version) {
            Ok(id) if id == correlation => {
                self.in_flight.pop_front();
                self.is_admitted |= !is_of_log_in(api);
                Ok(frame.len() - r.left())
            }
            Ok(id) => {
                let what = format!("correlation id {id} came where {correlation} was due");
                Err(self.malformed(api.name, &what))
            }
            Err(error) => Err(self.malformed(api.name, &error)),
        }
    }

    fn read_frame(
        &mut self,
        frame: &mut Vec<u8>,
        api: ClientApi,
        timeout: Duration,
        whole: Duration,
    ) -> io::Result<()> {
        let mut patience = Patience::new(timeout, self.interrupt.as_ref(), &mut self.looked);
        patience.check_interrupt()?; // a node whose answers are here already would never be waited for
        let mut size = [0; 4];
        read_all(&mut self.stream, &mut size, &mut patience)?;
        let is_early = is_of_log_in(api);
        if is_early && protocol_probe::is_tls([size[0], size[1]]) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                protocol_probe::TlsRecord,
            ));
        }
        let size = usize::try_from(i32::from_be_bytes(size)).unwrap_or(usize::MAX);
        let bytes_max = if is_early {
            EARLY_BYTES_MAX
        } else if api.key == FETCH.key {
            FETCH_BYTES_MAX
        } else {
            ANSWER_BYTES_MAX
        };
        if !(4..=bytes_max).contains(&size) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a frame of {size} bytes"),
            ));
        }
        patience.extend(whole);
        // The bytes of an earlier answer are overwritten, which is cheaper than zeros.
        frame.reserve(size.min(RESERVE_BYTES_MAX).saturating_sub(frame.len()));
        let mut filled = 0;
        while filled < size {
            let end = size.min(frame.len().max(READY_BYTES).max(filled * 2));
            if frame.len() < end {
                frame.resize(end, 0);
            }
            read_all(&mut self.stream, &mut frame[filled..end], &mut patience)
                .map_err(|error| explain_timeout(error, "send its whole answer to"))?;
            filled = end;
        }
        frame.truncate(size);
        Ok(())
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
        self.refresh(timeout)?;
        self.ask(api, version, timeout, encode)
    }

    /// `exchange` without a look at the session.
    fn ask(
        &mut self,
        api: ClientApi,
        version: i16,
        timeout: Duration,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(Vec<u8>, usize), KafkaError> {
        let began = Instant::now();
        self.request(api, version, timeout, encode)?;
        let mut frame = Vec::new();
        let body = self.receive(&mut frame, timeout.saturating_sub(began.elapsed()))?;
        Ok((frame, body))
    }

    /// Marks the connection broken because of an answer that makes no sense.
    pub fn malformed(&mut self, request: &str, what: &dyn fmt::Display) -> KafkaError {
        self.broken = true;
        KafkaError::malformed(&self.name, request, what)
    }

    /// The error of a request that was not sent whole, or of an answer that did not come whole.
    fn request_error(&mut self, api: ClientApi, error: &io::Error, began: Instant) -> KafkaError {
        self.broken = true;
        let waited_ms = began.elapsed().as_millis();
        match error.kind() {
            io::ErrorKind::TimedOut => match error.get_ref() {
                Some(what) => {
                    KafkaError::slow(&self.name, &format!("{what} {}", api.name), waited_ms)
                }
                None => KafkaError::silent(&self.name, api.name, waited_ms),
            },
            io::ErrorKind::Interrupted => KafkaError::interrupted(&self.name, api.name),
            _ if protocol_probe::is_tls_record(error) => protocol_probe::tls_error(&self.name),
            io::ErrorKind::InvalidData if tls::failure(error).is_none() => {
                self.malformed(api.name, error)
            }
            _ => self.break_off(api.name, error),
        }
    }

    fn break_off(&mut self, request: &str, cause: &io::Error) -> KafkaError {
        self.broken = true;
        let closed = io::Error::other("it closed the connection");
        let cause = if cause.kind() == io::ErrorKind::UnexpectedEof {
            &closed
        } else {
            cause
        };
        if let Some(error) = Self::tls_error(&self.name, &self.address.host, cause)
            && !self.is_admitted
        {
            return error;
        }
        let lost = format!("was lost during {request}");
        // A listener with SASL answers ApiVersions to everybody, and hangs up on the next request.
        let may_want_sasl = !self.is_admitted && !self.versions.ranges.is_empty();
        if may_want_sasl && self.security.sasl().is_none() {
            return self
                .missing_sasl_error()
                .unwrap_or_else(|| KafkaError::unauthenticated(&self.name, &lost, cause));
        }
        KafkaError::unreachable(&self.name, &lost, cause)
    }

    /// The error if the node offers SASL, asked on a connection of its own.
    fn missing_sasl_error(&self) -> Option<KafkaError> {
        let (security, interrupt) = (&self.security, self.interrupt.clone());
        let timeout = protocol_probe::PATIENCE;
        let mut other =
            Self::open(&self.address, &self.client_id, security, timeout, interrupt).ok()?;
        other.is_admitted = true; // or its end would be looked into by a third connection
        let answer = other.handshake("", timeout).ok()?;
        if answer.error_code != codes::UNSUPPORTED_SASL_MECHANISM {
            return None;
        }
        let protocol = security.tls().map_or("SASL_PLAINTEXT", |_| "SASL_SSL");
        let message = format!(
            "{} wants a log-in on this port; set security.protocol to {protocol} and sasl.mechanism to one \
             that it offers: {}",
            self.name,
            offered(&answer.mechanisms)
        );
        let code = codes::SASL_AUTHENTICATION_FAILED;
        Some(KafkaError::other_protocol(code, message))
    }
}

/// A connection that is set up, for a caller that reads and writes by itself.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    pub(crate) stream: Transport,
    /// The node, for messages.
    pub(crate) name: String,
    pub(crate) client_id: String,
    pub(crate) versions: Versions,
    pub(crate) next_correlation: i32,
    /// When the node has to be logged in to again; None: never.
    pub(crate) renewal: Option<Instant>,
}

impl OpenConnection {
    /// As `BrokerConnection::version`.
    ///
    /// # Errors
    /// 35, naming the API and both ranges.
    pub(crate) fn version(&self, api: ClientApi) -> Result<i16, KafkaError> {
        common_version(&self.name, &self.versions, api)
    }
}

fn common_version(node: &str, versions: &Versions, api: ClientApi) -> Result<i16, KafkaError> {
    let offered = versions.ranges.iter().find(|(key, ..)| *key == api.key);
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
                    "{node} {offer}, but this client needs {} in version {} to {}; use a broker of Kafka 3.0 or newer",
                    api.name, api.lowest, api.highest
                ),
            ))
        }
    }
}

/// True for the exchanges that come before the first request.
fn is_of_log_in(api: ClientApi) -> bool {
    [API_VERSIONS.key, SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key].contains(&api.key)
}

/// A node's mechanisms for a message.
fn offered(mechanisms: &[String]) -> String {
    let names = mechanisms.iter().take(MECHANISMS_LISTED_MAX);
    names
        .map(|name| printable_text(name))
        .collect::<Vec<_>>()
        .join(", ")
}

/// `error`, with the words for a deadline that came when a part had passed.
fn explain_timeout(error: io::Error, what: &'static str) -> io::Error {
    match error.kind() {
        io::ErrorKind::TimedOut => io::Error::new(io::ErrorKind::TimedOut, what),
        _ => error,
    }
}

/// When a session that lives `lifetime_ms` from now is renewed.
fn renewal(lifetime_ms: i64) -> Option<Instant> {
    let lifetime_ms = u64::try_from(lifetime_ms).ok().filter(|&ms| ms > 0)?;
    let width = RENEWAL_PERCENT.end - RENEWAL_PERCENT.start;
    // A hasher's keys are random enough for a spread, and need no generator.
    let random = RandomState::new().hash_one(lifetime_ms) % (width * 10);
    let permille = RENEWAL_PERCENT.start * 10 + random;
    let wait_ms = lifetime_ms.saturating_mul(permille) / 1000;
    Instant::now().checked_add(Duration::from_millis(wait_ms))
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
        let error =
            BrokerConnection::open(&address, "test", &Security::default(), minute, Some(raised))
                .unwrap_err();
        assert!(!error.is_retriable, "{error:?}");
        assert!(error.message.contains("interrupted"), "{error:?}");
        assert!(began.elapsed() < minute / 2);
    }
}
