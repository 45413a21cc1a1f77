//! TLS listeners from the socket's side: deadlines, bounds, ends of connections, subjects.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use txn_log::Durability;
use txn_net::{
    ClientAuth, ListenerOptions, Options, SecurityProtocol, Server, TlsListener, TlsOptions,
};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(300);

/// The certificates of a broker, of a client, and of their issuer.
struct Pki {
    issuer: String,
    broker: (String, String),
    client: (String, String),
}

fn name(parts: &[(DnType, &str)]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for (kind, value) in parts {
        name.push(kind.clone(), *value);
    }
    name
}

fn pki(client: DistinguishedName) -> Pki {
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root_key = KeyPair::generate().unwrap();
    let issuer = root.self_signed(&root_key).unwrap().pem();
    let root = Issuer::new(root, root_key);
    let issue = |hosts: Vec<String>, name: DistinguishedName| {
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name = name;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &root).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    Pki {
        broker: issue(vec!["localhost".to_owned()], DistinguishedName::new()),
        client: issue(Vec::new(), client),
        issuer,
    }
}

struct TlsServer {
    server: Arc<Server>,
    tls: Arc<TlsListener>,
    pki: Pki,
    subjects: Arc<Mutex<Vec<String>>>,
    reactor: Option<JoinHandle<()>>,
}

fn start(client_auth: ClientAuth, client: DistinguishedName) -> TlsServer {
    let pki = pki(client);
    let subjects = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&subjects);
    let options = TlsOptions {
        certificate_chain: pki.broker.0.clone().into_bytes(),
        key: pki.broker.1.clone().into_bytes(),
        trusted: pki.issuer.clone().into_bytes(),
        client_auth,
        has_tls12: true,
        has_tls13: true,
        ..TlsOptions::default()
    };
    let principal_of = Box::new(move |subject: &str| {
        seen.lock().unwrap().push(subject.to_owned());
        Some(format!("User:{subject}"))
    });
    let tls = Arc::new(TlsListener::new(&options, principal_of).unwrap());
    let listener = |security| ListenerOptions {
        name: "A".to_owned(),
        host: "127.0.0.1".to_owned(),
        port: 0,
        security,
        is_sasl: false,
    };
    let listeners = [
        listener(SecurityProtocol::Tls(Arc::clone(&tls))),
        listener(SecurityProtocol::Plaintext),
    ];
    let options = Options {
        reactors: 1,
        max_request_bytes: 1 << 20,
        max_queued_bytes: None,
        max_sasl_bytes: 1 << 10,
        max_connections: 100,
        max_idle: None,
        max_fetch_sessions: 1_000,
        turn: Duration::from_millis(2),
        sync_acks_all: false,
        coordinator_timeout: Duration::from_secs(30),
        handshake_timeout: HANDSHAKE_TIMEOUT,
        login_timeout: Duration::from_secs(60),
        memory_patience: Duration::from_secs(10),
        answer_patience: Duration::from_secs(2),
    };
    let server = Server::bind(&listeners, options, Arc::new(Durability::new(1))).unwrap();
    let server = Arc::new(server);
    let reactor = std::thread::spawn({
        let server = Arc::clone(&server);
        move || server.run_reactor(0).unwrap()
    });
    TlsServer {
        server,
        tls,
        pki,
        subjects,
        reactor: Some(reactor),
    }
}

fn start_plainly() -> TlsServer {
    start(ClientAuth::None, DistinguishedName::new())
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.server.stop();
        let ended = self.reactor.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

impl TlsServer {
    fn connect(&self, listener: usize) -> TcpStream {
        let socket = TcpStream::connect(self.server.listeners()[listener].address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        socket
    }

    fn client(&self) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        let issuer = CertificateDer::from_pem_slice(self.pki.issuer.as_bytes()).unwrap();
        roots.add(issuer).unwrap();
        let (certificate, key) = &self.pki.client;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        let host = "localhost".try_into().unwrap();
        let session = ClientConnection::new(Arc::new(config), host).unwrap();
        StreamOwned::new(session, self.connect(0))
    }

    fn await_failure(&self, reason: &str) {
        let begun = Instant::now();
        while !self.failures().contains(&reason) {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{:?}",
                self.failures()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn failures(&self) -> Vec<&'static str> {
        let counts = self.tls.failures().into_iter();
        counts
            .filter_map(|(reason, count)| (count > 0).then_some(reason))
            .collect()
    }
}

/// A Produce of no topic, which a reactor answers.
fn produce_nothing(correlation_id: u8) -> Vec<u8> {
    [
        &[0, 0, 0, 22][..],
        &[0, 0, 0, 3, 0, 0, 0, correlation_id],
        &[0xff, 0xff, 0xff, 0xff],
        &[0, 1, 0, 0, 0, 9, 0, 0, 0, 0],
    ]
    .concat()
}

fn read_answer(stream: &mut impl Read) -> u8 {
    let mut answer = [0; 16];
    stream.read_exact(&mut answer).unwrap();
    answer[7]
}

fn is_closed(socket: &mut TcpStream) -> bool {
    match socket.read(&mut [0; 100]) {
        Ok(0) => true,
        Ok(_) => is_closed(socket), // an alert comes before the end
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn requests_are_answered_in_order_also_those_that_came_with_the_handshakes_end() {
    let running = start_plainly();
    let mut client = running.client();
    let requests: Vec<u8> = (1..=100).flat_map(produce_nothing).collect();
    client.write_all(&requests).unwrap();
    for number in 1..=100 {
        assert_eq!(read_answer(&mut client), number);
    }
    assert_eq!(running.tls.handshakes(), 1);
}

#[test]
fn a_request_that_comes_byte_by_byte_is_answered() {
    let running = start_plainly();
    let mut client = running.client();
    for byte in produce_nothing(7) {
        client.write_all(&[byte]).unwrap();
        client.flush().unwrap();
    }
    assert_eq!(read_answer(&mut client), 7);
}

#[test]
fn a_client_that_sends_nothing_or_a_byte_now_and_then_is_closed_at_the_deadline() {
    let running = start_plainly();
    let begun = Instant::now();
    let mut silent = running.connect(0);
    let mut slow = running.connect(0);
    let mut hello: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    while begun.elapsed() < 3 * HANDSHAKE_TIMEOUT && !hello.is_empty() {
        let _ = slow.write_all(&hello[..1]); // it is refused once the server has left
        hello = &hello[1..];
        std::thread::sleep(HANDSHAKE_TIMEOUT / 5);
    }
    assert!(is_closed(&mut silent) && is_closed(&mut slow));
    assert!(begun.elapsed() < 10 * HANDSHAKE_TIMEOUT);
    running.await_failure("timeout");
}

#[test]
fn a_handshake_with_too_many_bytes_is_closed_at_once() {
    let running = start_plainly();
    let mut client = running.connect(0);
    // Handshake records of a message that announces 16 MiB.
    let first = [&[0x16, 3, 1, 0, 4][..], &[1, 0xff, 0xff, 0xff]].concat();
    let more = [&[0x16, 3, 1, 0x40, 0][..], &[0; 0x4000]].concat();
    client.write_all(&first).unwrap();
    let mut sent = 0;
    while sent < 64 << 20 && client.write_all(&more).is_ok() {
        sent += more.len();
    }
    assert!(sent < 16 << 20); // the kernel's buffers take some
    assert_eq!(running.tls.handshakes(), 0);
    assert_eq!(running.failures().len(), 1);
}

#[test]
fn other_bytes_get_an_alert_and_the_plain_listener_is_as_before() {
    let running = start_plainly();
    let mut client = running.connect(0);
    client.write_all(&produce_nothing(1)).unwrap();
    let mut alert = [0; 7];
    client.read_exact(&mut alert).unwrap();
    assert_eq!(alert[0], 0x15);
    assert!(is_closed(&mut client));
    running.await_failure("not_tls");
    let [failed] = &running.server.take_failed_handshakes()[..] else {
        panic!("one is told");
    };
    assert_eq!((failed.listener, &*failed.client_host), (0, "127.0.0.1"));
    let mut plain = running.connect(1);
    plain.write_all(&produce_nothing(2)).unwrap();
    assert_eq!(read_answer(&mut plain), 2);
}

#[test]
fn requests_before_a_half_close_are_answered_and_the_end_is_told() {
    let running = start_plainly();
    for says_goodbye in [false, true] {
        let mut client = running.client();
        client.write_all(&produce_nothing(3)).unwrap();
        if says_goodbye {
            client.conn.send_close_notify();
        }
        client.flush().unwrap();
        client.sock.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_answer(&mut client), 3);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap(); // no `UnexpectedEof`: it ends by close_notify
        assert!(rest.is_empty());
    }
}

#[test]
fn a_connection_keeps_its_certificate_when_another_takes_its_place() {
    let mut running = start_plainly();
    let mut earlier = running.client();
    earlier.write_all(&produce_nothing(1)).unwrap();
    assert_eq!(read_answer(&mut earlier), 1);
    let other = pki(DistinguishedName::new());
    let options = TlsOptions {
        certificate_chain: other.broker.0.clone().into_bytes(),
        key: other.broker.1.clone().into_bytes(),
        has_tls13: true,
        ..TlsOptions::default()
    };
    let mixed = TlsOptions {
        key: running.pki.broker.1.clone().into_bytes(),
        ..options.clone()
    };
    let refused = running.tls.replace(&mixed).unwrap_err();
    assert_eq!(refused.0, "the private key is of another certificate");
    running.tls.replace(&options).unwrap();
    assert!(running.client().write_all(&produce_nothing(2)).is_err());
    running.pki = other;
    let mut later = running.client();
    for client in [&mut earlier, &mut later] {
        client.write_all(&produce_nothing(3)).unwrap();
        assert_eq!(read_answer(client), 3);
    }
}

#[test]
fn a_subject_has_the_form_that_java_gives_it() {
    let cases = [
        (
            name(&[
                (DnType::CountryName, "DE"),
                (DnType::OrganizationName, "Acme, Inc"),
                (DnType::CommonName, "alice"),
            ]),
            r"CN=alice,O=Acme\, Inc,C=DE",
        ),
        (
            name(&[
                (DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]), "a"),
                (DnType::CommonName, "ü=#<> +\"\\;"),
            ]),
            r#"CN=ü\=\#\<\> \+\"\\\;,1.2.840.113549.1.9.1=#0c0161"#,
        ),
        (name(&[(DnType::CommonName, "  x ")]), r"CN=\ \ x\ "),
    ];
    for (subject, expected) in cases {
        let running = start(ClientAuth::Required, subject);
        let mut client = running.client();
        client.write_all(&produce_nothing(1)).unwrap();
        assert_eq!(read_answer(&mut client), 1);
        assert_eq!(*running.subjects.lock().unwrap(), [expected]);
    }
}
