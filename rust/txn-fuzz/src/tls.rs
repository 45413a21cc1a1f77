//! The server's end of TLS, fed any bytes in any pieces.
//!
//! ```text
//!  0      1       2 …
//!  mode · split · stream
//! ```
//!
//! The stream is the client's first bytes (mode 0), its bytes behind a good handshake (1), requests that it
//! encrypts (2), or changes to its handshake: position of two bytes, and a byte to change it by (3).
//! Other bits of the mode: 4 TLS 1.2, 8 a client certificate, 16 new keys between two pieces, 32 a changed byte.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};

use rcgen::{CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use txn_net::fuzzing::Session;
use txn_net::{ClientAuth, TlsListener, TlsOptions};

use crate::pieces::pieces;
use crate::seeds;

/// The most turns of a session for one piece.
const TURNS_MAX: usize = 1000;

/// Listeners and clients; each handshake has keys of its own.
struct FuzzPki {
    /// Without and with client certificates.
    listeners: [Arc<TlsListener>; 2],
    /// By [TLS 1.3, 1.2] and [without, with a certificate].
    clients: [[Arc<ClientConfig>; 2]; 2],
}

static PKI: LazyLock<FuzzPki> = LazyLock::new(FuzzPki::new);

impl FuzzPki {
    fn new() -> Self {
        let mut root = CertificateParams::default();
        root.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let root_key = KeyPair::generate().expect("random bytes");
        let trusted = root.self_signed(&root_key).expect("a name").pem();
        let root = Issuer::new(root, root_key);
        let issue = |host: &str| {
            let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a host");
            params.distinguished_name.push(DnType::CommonName, host);
            let key = KeyPair::generate().expect("random bytes");
            let certificate = params.signed_by(&key, &root).expect("a name").pem();
            (certificate, key.serialize_pem())
        };
        let (server, client) = (issue("localhost"), issue("client"));
        let listener = |client_auth| {
            let options = TlsOptions {
                certificate_chain: server.0.clone().into_bytes(),
                key: server.1.clone().into_bytes(),
                trusted: trusted.clone().into_bytes(),
                client_auth,
                has_tls12: true,
                has_tls13: true,
                ..TlsOptions::default()
            };
            let principal_of = Box::new(|subject: &str| Some(format!("User:{subject}")));
            Arc::new(TlsListener::new(&options, principal_of).expect("its own certificates"))
        };
        let mut roots = RootCertStore::empty();
        let der = CertificateDer::from_pem_slice(trusted.as_bytes()).expect("its own PEM");
        roots.add(der).expect("its own certificate");
        let config = |version, has_certificate: bool| {
            let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
                .with_protocol_versions(&[version])
                .expect("a version of the provider")
                .with_root_certificates(roots.clone());
            Arc::new(if has_certificate {
                let chain = CertificateDer::from_pem_slice(client.0.as_bytes()).expect("its PEM");
                let key = PrivateKeyDer::from_pem_slice(client.1.as_bytes()).expect("its PEM");
                let made = builder.with_client_auth_cert(vec![chain], key);
                made.expect("its own key")
            } else {
                builder.with_no_client_auth()
            })
        };
        let both = |version| [config(version, false), config(version, true)];
        Self {
            listeners: [ClientAuth::None, ClientAuth::Required].map(listener),
            clients: [both(&rustls::version::TLS13), both(&rustls::version::TLS12)],
        }
    }
}

/// Both ends of a connection.
struct Wire {
    peer: UnixStream,
    session: Session,
    is_established: bool,
    has_ended: bool,
    /// Bytes that the server decrypted.
    plain: Vec<u8>,
}

impl Wire {
    fn new(has_certificate: bool) -> Self {
        let (peer, served) = UnixStream::pair().expect("descriptors are left");
        peer.set_nonblocking(true).expect("a socket");
        let listener = &PKI.listeners[usize::from(has_certificate)];
        Self {
            peer,
            session: Session::new(OwnedFd::from(served), listener).expect("its certificates"),
            is_established: false,
            has_ended: false,
            plain: Vec::new(),
        }
    }

    /// Sends bytes to the server and has it work them off; returns its answer.
    fn exchange(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut answer = Vec::new();
        let mut rest = bytes;
        while !self.has_ended {
            match self.peer.write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.has_ended = true,
            }
            self.serve();
            self.drain(&mut answer);
            if rest.is_empty() {
                break;
            }
        }
        answer
    }

    fn serve(&mut self) {
        if !self.is_established && !self.has_ended {
            match self.session.handshake() {
                Ok(is_done) => self.is_established = is_done,
                Err(_) => self.has_ended = true,
            }
        }
        for turn in 0.. {
            if !self.is_established || self.has_ended {
                return;
            }
            assert!(turn < TURNS_MAX, "the session reads and reads");
            match self.session.read(&mut self.plain) {
                Ok(is_end) => self.has_ended = is_end,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.has_ended = true,
            }
        }
    }

    fn drain(&mut self, answer: &mut Vec<u8>) {
        let mut buffer = [0; 4096];
        while let Ok(count) = self.peer.read(&mut buffer) {
            if count == 0 {
                return;
            }
            answer.extend_from_slice(&buffer[..count]);
        }
    }
}

pub fn run(data: &[u8]) {
    let [mode, split, stream @ ..] = data else {
        return;
    };
    let has_certificate = mode & 8 > 0;
    let mut wire = Wire::new(has_certificate);
    let config = &PKI.clients[usize::from(mode & 4 > 0)][usize::from(has_certificate)];
    let name = "localhost".try_into().expect("a host");
    let mut client = ClientConnection::new(Arc::clone(config), name).expect("a sound client");
    match mode % 4 {
        0 => any(&mut wire, stream, *split),
        1 => {
            shake_hands(&mut wire, &mut client, &[]);
            assert!(wire.is_established, "a sound client is refused");
            any(&mut wire, stream, *split);
        }
        2 => {
            shake_hands(&mut wire, &mut client, &[]);
            requests(&mut wire, &mut client, stream, *mode, *split);
        }
        _ => {
            shake_hands(&mut wire, &mut client, stream);
            if stream.is_empty() {
                assert!(wire.is_established, "a sound client is refused");
            }
        }
    }
}

fn any(wire: &mut Wire, stream: &[u8], split: u8) {
    let before = wire.plain.len();
    for piece in pieces(stream, split) {
        wire.exchange(piece);
    }
    assert!(
        wire.plain.len() - before <= stream.len(),
        "more is decrypted than came"
    );
}

/// Shakes hands as a client does, but for changes to its bytes.
fn shake_hands(wire: &mut Wire, client: &mut ClientConnection, changes: &[u8]) {
    let mut sent = 0;
    for turn in 0.. {
        assert!(turn < TURNS_MAX, "they shake hands and shake hands");
        let mut flight = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut flight).expect("a vector");
        }
        for change in changes.chunks_exact(3) {
            let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % 2048;
            if let Some(byte) = at.checked_sub(sent).and_then(|at| flight.get_mut(at)) {
                *byte ^= change[2];
            }
        }
        sent += flight.len();
        let answer = wire.exchange(&flight);
        let mut rest = &answer[..];
        while !rest.is_empty() && client.read_tls(&mut rest).is_ok() {
            if client.process_new_packets().is_err() {
                return;
            }
        }
        if wire.has_ended || !client.wants_write() {
            return;
        }
    }
}

/// Requests of a client whose bytes may be changed on their way.
fn requests(wire: &mut Wire, client: &mut ClientConnection, stream: &[u8], mode: u8, split: u8) {
    let (position, stream) = stream.split_at(stream.len().min(2));
    let mut sent = Vec::new();
    let mut wire_bytes = 0;
    for piece in pieces(stream, split) {
        sent.extend_from_slice(piece);
        client.writer().write_all(piece).expect("room");
        let mut records = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut records).expect("a vector");
        }
        if mode & 32 > 0 && position.len() == 2 {
            let at = usize::from(position[0]).wrapping_sub(wire_bytes);
            if let Some(byte) = records.get_mut(at) {
                *byte ^= position[1];
            }
        }
        wire_bytes += records.len();
        let answer = wire.exchange(&records);
        let mut rest = &answer[..];
        let mut is_told = false; // that a byte was changed
        while !rest.is_empty() && client.read_tls(&mut rest).is_ok() {
            is_told |= client.process_new_packets().is_err();
        }
        if is_told {
            assert!(mode & 32 > 0 && wire.has_ended, "a sound client is refused");
            return;
        }
        if mode & 16 > 0 && mode & 4 == 0 {
            client.refresh_traffic_keys().expect("TLS 1.3 is spoken");
        }
        assert!(sent.starts_with(&wire.plain), "other bytes are decrypted");
        if mode & 32 == 0 {
            assert!(
                !wire.has_ended && wire.plain.len() == sent.len(),
                "bytes are missing"
            );
        }
    }
    if mode & 32 == 0 {
        answer(wire, client);
    }
}

/// The server's answer comes as it was given.
fn answer(wire: &mut Wire, client: &mut ClientConnection) {
    let given = vec![7; 40_000];
    let taken = wire.session.send(&given).expect("the client reads");
    let mut encrypted = Vec::new();
    wire.drain(&mut encrypted);
    let mut rest = &encrypted[..];
    let mut got = Vec::new();
    while !rest.is_empty() {
        client.read_tls(&mut rest).expect("a slice");
        client.process_new_packets().expect("sound records");
        let _ = client.reader().read_to_end(&mut got);
    }
    assert_eq!(got, given[..taken]);
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let request = seeds::request(18, 0, &[]);
    for variant in [0, 4, 8, 12] {
        let config = &PKI.clients[usize::from(variant & 4 > 0)][0];
        let name = "localhost".try_into().expect("a host");
        let mut client = ClientConnection::new(Arc::clone(config), name).expect("a sound client");
        let mut hello = Vec::new();
        client.write_tls(&mut hello).expect("a vector");
        for split in [0, 1, 9] {
            seeds.push([&[variant, split], &hello[..]].concat());
        }
        let alert = [0x15, 3, 3, 0, 2, 2, 0];
        seeds.push([&[variant + 1, 0], &alert[..]].concat());
        seeds.push([&[variant + 1, 0], &hello[..]].concat());
        for bits in [0, 16, 32] {
            let two = [&[90, 1], &request[..], &request[..]].concat();
            seeds.push([&[variant + 2 + bits, 3], &two[..]].concat());
            seeds.push([&[variant + 2 + bits, 0], &[0; 12_000][..]].concat());
        }
        seeds.push(vec![variant + 3, 0]);
        seeds.push(vec![variant + 3, 0, 0, 5, 1, 2, 0, 255]);
    }
    seeds.push([&[0, 0], &request[..]].concat());
    seeds
}
