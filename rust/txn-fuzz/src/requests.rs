//! A server with real sockets, reactors and logs, and a control loop that answers anything.
//!
//! ```text
//!  0          1       2 …
//!  listener · split · the connection's bytes
//! ```
//!
//! Whatever a connection sends, the next client is served, and no reactor has met a panic. The bytes of requests
//! for Python tell the control loop what to do: to answer, to refuse, to mute or close the connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tempfile::TempDir;
use txn_log::{Durability, PartitionLog, Past, Settings};
use txn_net::{ControlRequest, ListenerOptions, Options, SecurityProtocol, Server, Topic};
use txn_protocol::apis::{self, SASL_AUTHENTICATE, SASL_HANDSHAKE};

use crate::memory;
use crate::pieces::pieces;
use crate::rules::FuzzRules;
use crate::seeds::{self, CODECS, TOPIC, TOPIC_ID};

/// Time for the answers to one input: some requests wait for hours.
const ANSWERS: Duration = Duration::from_millis(40);
/// Time in which any client is served.
const SERVED: Duration = Duration::from_secs(10);
/// A sound client asks after so many inputs, and after each that got no end.
const PROBE_EVERY: usize = 64;
/// Pieces of an input that are sent one by one.
const PIECES_MAX: usize = 24;
/// The size at which a log is thrown away.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// The version of a `SaslAuthenticate` that is a bare token.
const RAW_TOKEN: i16 = -1;

struct FuzzServer {
    server: Arc<Server>,
    addresses: [SocketAddr; 2],
    inputs: AtomicUsize,
    log: Mutex<(Arc<PartitionLog>, TempDir)>,
}

static RUNNING: LazyLock<FuzzServer> = LazyLock::new(start);

fn start() -> FuzzServer {
    let options = Options {
        reactors: 2,
        max_request_bytes: 1 << 20,
        max_sasl_bytes: 1 << 10,
        max_queued_bytes: Some(4 << 20),
        max_connections: 10_000,
        max_idle: Some(SERVED),
        max_fetch_sessions: 20, // so that they are evicted
        turn: Duration::ZERO,
        sync_acks_all: false,
        coordinator_timeout: Duration::from_secs(1),
        handshake_timeout: SERVED,
        login_timeout: SERVED,
        memory_patience: SERVED,
        answer_patience: SERVED,
    };
    let listener = |name: &str, is_sasl| ListenerOptions {
        name: name.to_owned(),
        host: "127.0.0.1".to_owned(),
        port: 0,
        security: SecurityProtocol::Plaintext,
        is_sasl,
    };
    let listeners = [listener("PLAINTEXT", false), listener("SASL", true)];
    let server = Server::bind(&listeners, options, Arc::new(Durability::new(1)));
    let server = Arc::new(server.unwrap_or_else(|failed| panic!("{}", failed.error)));
    for index in 0..2 {
        let server = Arc::clone(&server);
        thread::spawn(move || server.run_reactor(index).expect("a reactor never ends"));
    }
    thread::spawn({
        let server = Arc::clone(&server);
        move || control(&server)
    });
    let log = serve_topic(&server);
    let addresses = [0, 1].map(|at| server.listeners()[at].address);
    FuzzServer {
        server,
        addresses,
        inputs: AtomicUsize::new(0),
        log: Mutex::new(log),
    }
}

/// Gives the topic an empty log.
fn serve_topic(server: &Server) -> (Arc<PartitionLog>, TempDir) {
    let directory = memory::directory();
    let rules = Arc::new(FuzzRules::default());
    let path = directory.path().join("pay-0");
    let log = PartitionLog::open(path, rules, Settings::default(), None, Past::default());
    let log = Arc::new(log.expect("an empty log"));
    let shared = Arc::clone(&log);
    let log_of = Box::new(move |_| Ok(Arc::clone(&shared)));
    server.add_topic(Topic::new(TOPIC.to_owned(), TOPIC_ID, 1, log_of, false));
    (log, directory)
}

/// Answers the requests that reactors leave to Python.
fn control(server: &Server) {
    loop {
        let wakeup = PollFd::from_borrowed_fd(server.wakeup_fd(), PollFlags::IN);
        let _ = poll(&mut [wakeup], None);
        for request in server.take() {
            decide(server, &request);
        }
        for parked in server.take_joins() {
            let is_refused = parked.join.producer_id % 2 == 1;
            let refused = parked.join.partitions.into_iter();
            let refused = refused.map(|(topic, index)| (topic, index, 48));
            let refused = if is_refused {
                refused.collect()
            } else {
                Vec::new()
            };
            server.resume(parked.token, refused);
        }
    }
}

fn decide(server: &Server, request: &ControlRequest) {
    let token = request.token;
    let is_flexible = apis::is_flexible(request.api_key, request.api_version);
    let echo = &request.body[..request.body.len().min(100)];
    match (request.api_key, request.body.last().unwrap_or(&0)) {
        (SASL_HANDSHAKE, _) => {
            server.require_authentication(token, request.api_version == 0);
            server.reply(token, is_flexible, echo);
        }
        (SASL_AUTHENTICATE, b'!') => server.refuse(token, is_flexible, echo),
        (SASL_AUTHENTICATE, last) => {
            if *last != b'+' {
                let lifetime = (*last == b'.').then_some(Duration::from_millis(5));
                server.authenticated(token, "User:alice", lifetime);
            }
            if request.api_version == RAW_TOKEN {
                server.reply_raw(token, echo);
            } else {
                server.reply(token, is_flexible, echo);
            }
        }
        (_, 0xf0) => {
            server.mute(token, Duration::from_millis(1));
            server.reply(token, is_flexible, echo);
        }
        (_, 0xf1) => server.disconnect(token),
        (_, 0xf2) => server.refuse(token, is_flexible, echo),
        (_, 0xf3) => {
            server.reply(token, is_flexible, echo);
            server.reply(token, is_flexible, echo); // of no effect
        }
        _ => server.reply(token, is_flexible, echo),
    }
}

pub fn run(data: &[u8]) {
    let [listener, split, stream @ ..] = data else {
        return;
    };
    let running = &*RUNNING;
    let address = running.addresses[usize::from(listener & 1)];
    let number = running.inputs.fetch_add(1, Ordering::Relaxed);
    let stream = with_session(running.addresses[0], stream);
    let has_ended = talk(address, &stream, *split);
    if !has_ended || number.is_multiple_of(PROBE_EVERY) {
        probe(running);
    }
    let failures = running.server.take_failures();
    assert!(failures.is_empty(), "a turn has panicked: {failures:?}");
    renew(running);
}

/// Opens a fetch session and puts its id into an input, wherever that has [`seeds::SESSION`].
fn with_session(address: SocketAddr, stream: &[u8]) -> Vec<u8> {
    let mut stream = stream.to_vec();
    let marker = seeds::SESSION.to_be_bytes();
    let places: Vec<usize> = (stream.windows(4).enumerate())
        .filter_map(|(place, window)| (window == marker).then_some(place))
        .collect();
    if places.is_empty() {
        return stream;
    }
    let opens = seeds::request(
        apis::FETCH,
        12,
        &seeds::fetch_in((0, 0), 12, Some(0), false),
    );
    let mut socket = TcpStream::connect(address).expect("the server accepts");
    socket.set_read_timeout(Some(SERVED)).expect("a socket");
    socket.write_all(&opens).expect("the server reads");
    // Length, correlation id, tags, throttle time, error code, session id.
    let mut front = [0; 4 + 4 + 1 + 4 + 2 + 4];
    socket.read_exact(&mut front).expect("the server answers");
    for place in places {
        stream[place..place + 4].copy_from_slice(&front[15..]);
    }
    stream
}

/// Sends an input and takes its answers; false if the server did not end the connection.
fn talk(address: SocketAddr, stream: &[u8], split: u8) -> bool {
    let mut socket = TcpStream::connect(address).expect("the server accepts");
    let _ = socket.set_nodelay(true);
    let _ = socket.set_read_timeout(Some(ANSWERS));
    let _ = socket.set_write_timeout(Some(SERVED));
    let mut at = 0;
    for piece in pieces(stream, split).take(PIECES_MAX) {
        at += piece.len();
        if socket.write_all(piece).is_err() {
            return true;
        }
    }
    if socket.write_all(&stream[at..]).is_err() {
        return true;
    }
    let _ = socket.shutdown(Shutdown::Write);
    let mut answers = Vec::new();
    let ended = socket.read_to_end(&mut answers);
    let mut rest = &answers[..];
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = i32::from_be_bytes(*length);
        let length = usize::try_from(length).expect("a frame of negative length");
        let Some(next) = behind.get(length..) else {
            break;
        };
        rest = next;
    }
    !matches!(ended, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// A sound client is served.
fn probe(running: &FuzzServer) {
    let mut socket = TcpStream::connect(running.addresses[0]).expect("the server accepts");
    socket.set_read_timeout(Some(SERVED)).expect("a socket");
    let batch = seeds::batch(CODECS[0], 1, false);
    for frame in [
        seeds::request(apis::API_VERSIONS, 0, &[]),
        seeds::request(apis::PRODUCE, 9, &seeds::produce(9, None, &batch)),
        seeds::request(apis::FETCH, 12, &seeds::fetch(12, 0)),
    ] {
        socket.write_all(&frame).expect("the server reads");
        let mut length = [0; 4];
        socket.read_exact(&mut length).expect("the server answers");
        let mut content = vec![0; i32::from_be_bytes(length) as usize];
        socket
            .read_exact(&mut content)
            .expect("the server answers to the end");
        assert_eq!(content[..4], [0, 0, 0, 9], "another's answer");
    }
}

/// Begins another log once this one is large.
fn renew(running: &FuzzServer) {
    let mut log = running.log.lock().unwrap_or_else(PoisonError::into_inner);
    if log.0.size_bytes() > LOG_BYTES_MAX {
        let _ = log.0.delete();
        *log = serve_topic(&running.server);
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut add = |listener: u8, split: u8, frames: &[Vec<u8>]| {
        seeds.push([&[listener, split][..], &frames.concat()].concat());
    };
    for version in 3..=13 {
        for codec in CODECS {
            let body = seeds::produce(version, None, &seeds::batch(codec, 3, false));
            add(0, 0, &[seeds::request(apis::PRODUCE, version, &body)]);
        }
        let batch = seeds::batch(CODECS[0], 3, true);
        let frame = seeds::request(
            apis::PRODUCE,
            version,
            &seeds::produce(version, Some("t"), &batch),
        );
        add(0, 7, &[frame.clone(), frame]);
    }
    for version in 4..=18 {
        let frame = seeds::request(apis::FETCH, version, &seeds::fetch(version, 0));
        add(0, 1, std::slice::from_ref(&frame));
        add(0, 0, &vec![frame; 40]);
    }
    for version in 7..=18 {
        let of_session = |epoch, offset, forgets| {
            let body = seeds::fetch_in((seeds::SESSION, epoch), version, offset, forgets);
            seeds::request(apis::FETCH, version, &body)
        };
        let opens = seeds::request(
            apis::FETCH,
            version,
            &seeds::fetch_in((0, 0), version, Some(0), false),
        );
        add(0, 0, &vec![opens.clone(); 30]);
        add(
            0,
            5,
            &[
                of_session(1, None, false),
                of_session(2, Some(1), false),
                of_session(3, None, false),
                of_session(4, None, true),
                of_session(5, None, false),
            ],
        );
        add(0, 0, &[of_session(-1, None, false), opens]);
    }
    for api in apis::apis() {
        let frame = seeds::request(api.key, api.first_flexible.min(3), &[api.key as u8; 20]);
        add(0, 3, &[frame]);
    }
    for last in [0, 0xf0, 0xf1, 0xf2, 0xf3] {
        let one = seeds::request(apis::METADATA, 9, &[last]);
        add(0, 0, &[one.clone(), one]);
    }
    for (version, last) in [(1, b'.'), (1, b'!'), (1, b'+'), (0, b'.'), (0, b'+')] {
        let handshake = seeds::request(SASL_HANDSHAKE, version, b"\0\x05PLAIN");
        let token = [&[0, 0, 0, 4], &b"abc"[..], &[last]].concat();
        let token = if version == 0 {
            token
        } else {
            seeds::request(SASL_AUTHENTICATE, 1, &token)
        };
        let fetch = seeds::request(apis::FETCH, 12, &seeds::fetch(12, 0));
        add(1, 0, &[handshake, token, fetch.clone(), fetch]);
    }
    seeds
}
