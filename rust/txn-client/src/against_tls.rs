//! The client against nodes with TLS and SASL that are wrong, slow, cut short or hostile, on real sockets.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use txn_protocol::apis;
use txn_protocol::frame::{LENGTH_BYTES, RequestHeader, begin_response, set_length};
use txn_protocol::{Put, Reader};

use crate::connection::{Address, BrokerConnection};
use crate::interrupt::Interrupt;
use crate::messages::{self, METADATA};
use crate::security::{Secret, Security, SecuritySettings};
use crate::{Client, KafkaError};

const MINUTE: Duration = Duration::from_secs(60);
/// An error that is retried comes later.
const AT_ONCE: Duration = Duration::from_secs(20);

/// An authority and a node's certificate by it.
pub(crate) struct Certificates {
    pub(crate) ca_pem: String,
    pub(crate) server: Arc<ServerConfig>,
}

pub(crate) fn certificates(
    host: &str,
    change: impl FnOnce(&mut CertificateParams),
) -> Certificates {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let ca_pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    Certificates {
        ca_pem,
        server: server_of(certificate.der(), &key),
    }
}

fn server_of(certificate: &CertificateDer<'static>, key: &KeyPair) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key);
    Arc::new(config.unwrap())
}

/// A listener whose connections are each served by `serve`; (port, connections so far).
pub(crate) fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (serve, count) = (Arc::new(serve), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    (port, count)
}

/// A node under TLS that answers `ApiVersions`, and `Metadata` with as many bytes as it is asked for.
fn node(server: &Arc<ServerConfig>) -> u16 {
    let server = Arc::clone(server);
    let (port, _) = listen(move |socket| {
        let session = ServerConnection::new(Arc::clone(&server)).unwrap();
        answer_requests(StreamOwned::new(session, socket), &|_| None);
    });
    port
}

/// The next request: its header and its whole frame; `None` at the end of the stream.
pub(crate) fn next_request(stream: &mut impl Read) -> Option<(RequestHeader, Vec<u8>)> {
    let mut size = [0; LENGTH_BYTES];
    stream.read_exact(&mut size).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(size) as usize];
    stream.read_exact(&mut frame).ok()?;
    let header = RequestHeader::parse(&frame).ok()?;
    Some((header, frame))
}

/// Answers by `answer`, and the requests that it leaves as `node` says.
pub(crate) fn answer_requests(
    mut stream: impl Read + Write,
    answer: &dyn Fn(&RequestHeader) -> Option<Vec<u8>>,
) {
    while let Some((header, frame)) = next_request(&mut stream) {
        let body = answer(&header).unwrap_or_else(|| {
            if header.api_key == 18 {
                return offers();
            }
            let mut wanted = [0; 4];
            wanted.copy_from_slice(&frame[header.body..header.body + 4]);
            let bytes = 0..u32::from_be_bytes(wanted);
            bytes.map(|at| (at % 251) as u8).collect()
        });
        let mut response = Vec::new();
        let is_flexible =
            header.api_key != 18 && apis::is_flexible(header.api_key, header.api_version);
        begin_response(&mut response, header.correlation_id, is_flexible);
        response.put(&body);
        let size = response.len() - LENGTH_BYTES;
        set_length(&mut response, size);
        if stream.write_all(&response).is_err() || stream.flush().is_err() {
            return;
        }
    }
}

pub(crate) fn offers() -> Vec<u8> {
    let mut e = Vec::new();
    e.put_i16(0);
    let ranges = [(3, 9, 12), (17, 1, 1), (18, 0, 3), (36, 0, 2)];
    e.put_compact_array(ranges.iter(), |e, &(key, low, high)| {
        e.put_i16(key);
        e.put_i16(low);
        e.put_i16(high);
        e.put_no_tags(true);
    });
    e.put_i32(0);
    e.put_no_tags(true);
    e
}

pub(crate) fn tls(ca_pem: &str) -> Security {
    Security::new(&SecuritySettings {
        protocol: "SSL".to_owned(),
        ca_pem: Some(ca_pem.as_bytes().to_vec()),
        ..SecuritySettings::default()
    })
    .unwrap()
}

fn scram() -> Security {
    Security::new(&SecuritySettings {
        protocol: "SASL_PLAINTEXT".to_owned(),
        mechanism: Some("SCRAM-SHA-256".to_owned()),
        username: Some("ada".to_owned()),
        password: Some(Secret::new("s3cret-of-ada")),
        ..SecuritySettings::default()
    })
    .unwrap()
}

fn open(port: u16, security: &Security, timeout: Duration) -> Result<BrokerConnection, KafkaError> {
    let address = Address {
        host: "localhost".to_owned(),
        port,
    };
    BrokerConnection::open(&address, "test", security, timeout, None)
}

/// The error that ends a call with a minute's time at once.
fn final_error(port: u16, security: &Security) -> KafkaError {
    let servers = format!("localhost:{port}");
    let client = Client::new(&servers, "test", security.clone(), MINUTE, None).unwrap();
    let began = Instant::now();
    let error = client.topics().unwrap_err();
    assert!(began.elapsed() < AT_ONCE, "{error}");
    assert!(!error.is_retriable, "{error}");
    assert!(
        error.message.contains(&format!("localhost:{port}")),
        "{error}"
    );
    assert!(!error.message.contains("s3cret"), "{error}");
    error
}

/// Asks for `size` bytes in a request with `padding` bytes, and checks each.
fn exchange(connection: &mut BrokerConnection, size: u32, padding: usize) {
    let got = connection.call(
        METADATA,
        12,
        MINUTE,
        |e| {
            e.put_i32(size as i32);
            e.put(&vec![7; padding]);
        },
        |r: &mut Reader<'_>| {
            let at = *r;
            r.skip(size as usize)?;
            Ok(at.until(*r).to_vec())
        },
    );
    let is_right = |(at, &byte): (usize, &u8)| byte == (at % 251) as u8;
    assert!(got.unwrap().iter().enumerate().all(is_right));
}

#[test]
fn large_requests_and_answers_pass_whole() {
    let certificates = certificates("localhost", |_| {});
    let port = node(&certificates.server);
    let mut connection = open(port, &tls(&certificates.ca_pem), MINUTE).unwrap();
    for (size, padding) in [
        (1, 0),
        (16_384, 16_384),
        (20_000_000, 3),
        (5, 9_000_000),
        (0, 0),
    ] {
        exchange(&mut connection, size, padding);
    }
}

/// A stream that holds back the answers after the first until there are `IN_FLIGHT`.
struct Together<S> {
    stream: S,
    held: Vec<u8>,
    answers: usize,
}

const IN_FLIGHT: usize = 5;

impl<S: Read> Read for Together<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl<S: Write> Write for Together<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.answers += 1;
        if self.answers == 1 || self.answers == 1 + IN_FLIGHT {
            self.stream.write_all(&self.held)?;
            self.held.clear();
        }
        self.stream.flush()
    }
}

#[test]
fn answers_that_share_tls_records_are_told_apart() {
    let certificates = certificates("localhost", |_| {});
    let server = Arc::clone(&certificates.server);
    let (port, _) = listen(move |socket| {
        let session = ServerConnection::new(Arc::clone(&server)).unwrap();
        let together = Together {
            stream: StreamOwned::new(session, socket),
            held: Vec::new(),
            answers: 0,
        };
        answer_requests(together, &|_| None);
    });
    let mut connection = open(port, &tls(&certificates.ca_pem), MINUTE).unwrap();
    for size in 0..IN_FLIGHT {
        let encode = |e: &mut Vec<u8>| e.put_i32(size as i32 * 1000);
        connection.request(METADATA, 12, MINUTE, encode).unwrap();
    }
    for size in 0..IN_FLIGHT {
        let mut frame = Vec::new();
        let body = connection.receive(&mut frame, MINUTE).unwrap();
        assert_eq!(frame.len() - body, size * 1000);
    }
}

#[test]
fn a_certificate_that_signed_itself_is_trusted_if_it_was_given_and_fits() {
    let self_signed = |host: &str, change: fn(&mut CertificateParams)| {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        (certificate.pem(), server_of(certificate.der(), &key))
    };
    let (pem, server) = self_signed("localhost", |_| {});
    let port = node(&server);
    exchange(&mut open(port, &tls(&pem), MINUTE).unwrap(), 10, 10);
    let (other_pem, other) = self_signed("elsewhere.test", |_| {});
    let (old_pem, old) = self_signed("localhost", |p| p.not_after = date_time_ymd(2001, 1, 1));
    let cases = [
        (port, &other_pem, "an authority that"),
        (node(&other), &other_pem, "elsewhere.test"),
        (node(&old), &old_pem, "has expired"),
    ];
    for (port, pem, part) in cases {
        let error = final_error(port, &tls(pem));
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn certificates_that_do_not_fit_are_told_at_once() {
    let good = certificates("localhost", |_| {});
    let other_host = certificates("elsewhere.test", |_| {});
    let expired = certificates("localhost", |p| p.not_after = date_time_ymd(2001, 1, 1));
    let early = certificates("localhost", |p| p.not_before = date_time_ymd(4000, 1, 1));
    let cases = [
        (&other_host, &other_host.ca_pem, "elsewhere.test"),
        (&expired, &expired.ca_pem, "has expired"),
        (&early, &early.ca_pem, "not valid yet"),
        (&good, &other_host.ca_pem, "authority"),
    ];
    for (certificates, ca_pem, part) in cases {
        let error = final_error(node(&certificates.server), &tls(ca_pem));
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn a_node_without_tls_and_one_with_nothing_else_are_told_at_once() {
    let certificates = certificates("localhost", |_| {});
    let (plain, _) = listen(|mut socket| {
        // As Kafka: the first bytes of TLS are a frame too large, and the connection is closed.
        let mut first = [0; 1];
        if socket.peek(&mut first).is_ok() && first != [0x16] {
            answer_requests(&mut socket, &|_| None);
        }
    });
    let error = final_error(plain, &tls(&certificates.ca_pem));
    assert!(error.message.contains("does not speak TLS"), "{error}");
    let error = final_error(node(&certificates.server), &Security::default());
    assert!(error.message.contains("speaks TLS"), "{error}");
    let server = Arc::clone(&certificates.server);
    let (curt, _) = listen(move |socket| {
        // Hangs up without an alert.
        let mut first = [0; 1];
        if socket.peek(&mut first).is_ok() && first == [0x16] {
            let session = ServerConnection::new(Arc::clone(&server)).unwrap();
            answer_requests(StreamOwned::new(session, socket), &|_| None);
        }
    });
    let error = final_error(curt, &Security::default());
    assert!(error.message.contains("speaks TLS"), "{error}");
    let (mute, _) = listen(|socket| {
        let _ = socket.peek(&mut [0]); // hangs up on everything: may be a node that stops
    });
    for security in [tls(&certificates.ca_pem), Security::default()] {
        let error = open(mute, &security, MINUTE).unwrap_err();
        assert!(error.is_retriable, "{error}");
    }
}

#[test]
fn bytes_that_are_not_tls_are_told_at_once() {
    let certificates = certificates("localhost", |_| {});
    let (port, _) = listen(|mut socket| {
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = socket.read(&mut [0; 4096]);
    });
    let error = final_error(port, &tls(&certificates.ca_pem));
    assert!(error.message.contains("does not speak TLS"), "{error}");
}

#[test]
fn a_handshake_that_stops_anywhere_ends_in_time() {
    let certificates = certificates("localhost", |_| {});
    let backend = node(&certificates.server);
    for cut in [1, 5, 60, 200, 700] {
        for hangs_up in [true, false] {
            let (port, _) = listen(move |client| relay(&client, backend, cut, hangs_up));
            let wait = Duration::from_millis(if hangs_up { 10_000 } else { 300 });
            let began = Instant::now();
            let error = open(port, &tls(&certificates.ca_pem), wait).unwrap_err();
            assert!(error.is_retriable, "{cut}: {error}");
            assert!(began.elapsed() < Duration::from_secs(8), "{cut}: {error}");
        }
    }
}

/// Passes everything to a node, and its first `cut` bytes back; then hangs up, or says nothing more.
fn relay(client: &TcpStream, backend: u16, cut: usize, hangs_up: bool) {
    let server = TcpStream::connect(("127.0.0.1", backend)).unwrap();
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || io::copy(&mut from, &mut to));
    let mut some = (&server).take(cut as u64);
    let _ = io::copy(&mut some, &mut (&*client));
    if hangs_up {
        let _ = client.shutdown(Shutdown::Both);
    } else {
        thread::sleep(Duration::from_secs(20));
    }
}

#[test]
fn an_answer_that_is_cut_short_breaks_the_connection() {
    let certificates = certificates("localhost", |_| {});
    let backend = node(&certificates.server);
    let (port, _) = listen(move |client| relay(&client, backend, 100_000, true));
    let mut connection = open(port, &tls(&certificates.ca_pem), MINUTE).unwrap();
    let encode = |e: &mut Vec<u8>| e.put_i32(1_000_000);
    connection.request(METADATA, 12, MINUTE, encode).unwrap();
    let error = connection.receive(&mut Vec::new(), MINUTE).unwrap_err();
    assert!(error.is_retriable && connection.is_broken(), "{error}");
}

#[test]
fn an_interrupt_ends_a_handshake_and_the_wait_for_an_answer_under_tls() {
    let certificates = certificates("localhost", |_| {});
    let backend = node(&certificates.server);
    for cut in [0, 5] {
        let (port, _) = listen(move |client| relay(&client, backend, cut, false));
        let address = Address {
            host: "localhost".to_owned(),
            port,
        };
        let raised = Some(Interrupt::new(|| true));
        let began = Instant::now();
        let security = tls(&certificates.ca_pem);
        let error = BrokerConnection::open(&address, "test", &security, MINUTE, raised);
        let error = error.unwrap_err();
        assert!(error.message.contains("interrupted"), "{error}");
        assert!(began.elapsed() < AT_ONCE);
    }
}

/// A node whose sessions are to be renewed at once, and that counts the log-ins; from the `end`th on it
/// answers a handshake with 34, as Kafka within a second of the last.
fn forgetful(end: usize) -> (u16, Arc<AtomicUsize>) {
    let log_ins = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&log_ins);
    let (port, _) = listen(move |socket| {
        let here = AtomicUsize::new(0);
        answer_requests(socket, &|header| {
            let mut e = Vec::new();
            match header.api_key {
                17 => {
                    let refused = here.fetch_add(1, Ordering::SeqCst) >= end;
                    e.put_i16(if refused { 34 } else { 0 });
                    e.put_i32(0);
                }
                36 => {
                    counted.fetch_add(1, Ordering::SeqCst);
                    e.put_i16(0);
                    e.put_uvarint(0);
                    e.put_length(0, true);
                    e.put_i64(1);
                    e.put_no_tags(true);
                }
                _ => return None,
            }
            Some(e)
        });
    });
    (port, log_ins)
}

fn plain() -> Security {
    Security::new(&SecuritySettings {
        protocol: "SASL_PLAINTEXT".to_owned(),
        mechanism: Some("PLAIN".to_owned()),
        username: Some("ada".to_owned()),
        password: Some(Secret::new("s3cret-of-ada")),
        ..SecuritySettings::default()
    })
    .unwrap()
}

#[test]
fn a_session_is_renewed_before_a_request_and_never_behind_one_in_flight() {
    let (port, log_ins) = forgetful(usize::MAX);
    let mut connection = open(port, &plain(), MINUTE).unwrap();
    for size in 0..5 {
        exchange(&mut connection, size, 0);
    }
    assert_eq!(log_ins.load(Ordering::SeqCst), 6);
    for size in [10, 20] {
        connection.refresh(MINUTE).unwrap();
        let encode = |e: &mut Vec<u8>| e.put_i32(size);
        connection.request(METADATA, 12, MINUTE, encode).unwrap();
    }
    assert_eq!(log_ins.load(Ordering::SeqCst), 7); // not before the second
    for size in [10, 20] {
        let mut frame = Vec::new();
        let body = connection.receive(&mut frame, MINUTE).unwrap();
        assert_eq!(frame.len() - body, size);
    }
}

#[test]
fn a_node_that_lets_nobody_log_in_again_yet_is_worth_a_new_connection() {
    let (port, _) = forgetful(1);
    let mut connection = open(port, &plain(), MINUTE).unwrap();
    let error = connection.refresh(MINUTE).unwrap_err();
    assert_eq!(error.code, 34);
    assert!(error.is_retriable && connection.is_broken(), "{error}");
}

/// A node that answers the log-in with these messages, in turn.
fn hostile(script: &[Vec<u8>]) -> u16 {
    let script = script.to_vec();
    let (port, _) = listen(move |socket| {
        let turn = AtomicUsize::new(0);
        answer_requests(socket, &|header| {
            let mut e = Vec::new();
            match header.api_key {
                17 => {
                    e.put_i16(0);
                    e.put_i32(0);
                }
                36 => {
                    let turn = turn.fetch_add(1, Ordering::SeqCst);
                    let message = script.get(turn).or(script.last()).cloned();
                    e.put_i16(0);
                    e.put_uvarint(0);
                    let message = message.unwrap_or_default();
                    e.put_length(message.len(), true);
                    e.put(&message);
                    e.put_i64(0);
                    e.put_no_tags(true);
                }
                _ => return None,
            }
            Some(e)
        });
    });
    port
}

#[test]
fn a_node_that_does_not_prove_itself_is_not_trusted() {
    for script in [
        vec![Vec::new()],
        vec![b"r=replayed-nonce,s=AAAA,i=4096".to_vec()],
        vec![b"e=other-error".to_vec()],
        vec![vec![0xff; 1000]],
    ] {
        let error = final_error(hostile(&script), &scram());
        assert_eq!(error.code, 58, "{error}");
    }
}

#[test]
fn an_answer_of_a_gibibyte_before_the_log_in_is_refused() {
    let (port, _) = listen(|mut socket| {
        let (header, _) = next_request(&mut socket).unwrap();
        let mut response = Vec::new();
        begin_response(&mut response, header.correlation_id, false);
        response.put(&offers());
        let size = response.len() - LENGTH_BYTES;
        set_length(&mut response, size);
        let _ = socket.write_all(&response);
        let _ = next_request(&mut socket);
        let _ = socket.write_all(&(1_i32 << 29).to_be_bytes());
        let _ = socket.read(&mut [0]);
    });
    let error = final_error(port, &scram());
    assert!(error.message.contains("536870912"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_answer_to_a_log_in_panics_or_passes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = messages::sasl::decode_handshake(&bytes);
        for version in 0..=2 {
            let _ = messages::sasl::decode_authenticate(&bytes, version);
        }
        let port = hostile(&[bytes]);
        prop_assert!(open(port, &scram(), MINUTE).is_err());
    }

    #[test]
    fn no_bytes_instead_of_a_handshake_panic_or_hang(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let (port, _) = listen(move |mut socket| {
            let _ = socket.write_all(&bytes);
            let _ = socket.shutdown(Shutdown::Write);
            let _ = socket.read(&mut [0; 4096]);
        });
        let security = tls(&certificates("localhost", |_| {}).ca_pem);
        prop_assert!(open(port, &security, Duration::from_secs(5)).is_err());
    }
}
