//! The client against nodes that send, or take, a few bytes now and then, on real sockets.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ServerConnection, StreamOwned};
use txn_protocol::{Put, codes};

use crate::KafkaError;
use crate::against_tls::{answer_requests, certificates, listen, next_request, offers, tls};
use crate::connection::{Address, BrokerConnection};
use crate::interrupt::Interrupt;
use crate::messages::{ClientApi, FETCH, METADATA};
use crate::security::Security;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// A call that goes on for longer has no end.
const ENDLESS: Duration = Duration::from_secs(15);
/// Between two bytes of an answer, and two pieces of a request.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes of a request between two pauses: the sender's window opens each time.
const SIP_BYTES: usize = 32 << 10;

/// A stream that is slow in one direction after its first answer, which is that to `ApiVersions`.
struct Slow<S> {
    stream: S,
    has_begun: bool,
    drips: bool,
    /// Bytes read since the last pause.
    taken: usize,
}

impl<S> Slow<S> {
    fn new(stream: S, drips: bool) -> Self {
        Self {
            stream,
            has_begun: false,
            drips,
            taken: 0,
        }
    }
}

impl<S: Read> Read for Slow<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.has_begun || self.drips {
            return self.stream.read(buffer);
        }
        if self.taken >= SIP_BYTES {
            thread::sleep(PAUSE);
            self.taken = 0;
        }
        let bytes = buffer.len().min(SIP_BYTES);
        let taken = self.stream.read(&mut buffer[..bytes])?;
        self.taken += taken;
        Ok(taken)
    }
}

impl<S: Write> Write for Slow<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.has_begun || !self.drips {
            return self.stream.write(bytes);
        }
        let (size, rest) = bytes.split_at(4);
        self.stream.write_all(size)?;
        for byte in rest.chunks(1) {
            self.stream.write_all(byte)?;
            self.stream.flush()?;
            thread::sleep(PAUSE);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.has_begun = true;
        self.stream.flush()
    }
}

/// Two nodes, of which the second has TLS: they drip their answers, or sip the requests.
fn slow_nodes(drips: bool) -> [(u16, Security); 2] {
    let (plain, _) = listen(move |socket| answer_requests(Slow::new(socket, drips), &|_| None));
    let certificates = certificates("localhost", |_| {});
    let server = Arc::clone(&certificates.server);
    let (secured, _) = listen(move |socket| {
        let session = ServerConnection::new(Arc::clone(&server)).unwrap();
        let stream = StreamOwned::new(session, socket);
        answer_requests(Slow::new(stream, drips), &|_| None);
    });
    let security = tls(&certificates.ca_pem);
    [(plain, Security::default()), (secured, security)]
}

fn open(port: u16, security: &Security, interrupt: Option<Interrupt>) -> BrokerConnection {
    let host = "localhost".to_owned();
    BrokerConnection::open(&Address { host, port }, "test", security, MINUTE, interrupt).unwrap()
}

/// An interrupt that the user raises after some time.
fn raised_after(time: Duration) -> Interrupt {
    let is_raised = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&is_raised);
    thread::spawn(move || {
        thread::sleep(time);
        shared.store(true, Ordering::SeqCst);
    });
    Interrupt::new(move || is_raised.load(Ordering::SeqCst))
}

/// The error that ends a request of `request_bytes` and its answer of `answer_bytes`, in time.
fn error_of(
    mut connection: BrokerConnection,
    timeout: Duration,
    request_bytes: usize,
    answer_bytes: i32,
) -> KafkaError {
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        let encode = |e: &mut Vec<u8>| {
            e.put_i32(answer_bytes);
            e.put(&vec![7; request_bytes]);
        };
        let result = connection.call(METADATA, 12, timeout, encode, |_| Ok(()));
        let _ = ended.send(result.unwrap_err());
        assert!(connection.is_broken());
    });
    end.recv_timeout(ENDLESS).expect("the call has no end")
}

/// The timeout was that of each read: a byte in each made a call last for as long as the node liked.
#[test]
fn an_answer_that_drips_ends_at_the_timeout() {
    for (port, security) in slow_nodes(true) {
        let error = error_of(open(port, &security, None), SECOND, 0, 1 << 20);
        assert_eq!(error.code, codes::REQUEST_TIMED_OUT, "{error}");
        assert!(error.is_retriable, "{error}");
        let part = "did not send its whole answer to Metadata within ";
        assert!(error.message.contains(part), "{error}");
    }
}

/// The interrupt was looked at until the first byte of an answer came.
#[test]
fn an_interrupt_ends_an_answer_that_drips() {
    for (port, security) in slow_nodes(true) {
        let connection = open(port, &security, Some(raised_after(SECOND)));
        let error = error_of(connection, MINUTE, 0, 1 << 20);
        assert!(error.message.contains("interrupted"), "{error}");
        assert!(!error.is_retriable, "{error}");
    }
}

#[test]
fn a_request_that_is_sipped_ends_at_the_timeout() {
    for (port, security) in slow_nodes(false) {
        let error = error_of(open(port, &security, None), SECOND, 64 << 20, 0);
        assert_eq!(error.code, codes::REQUEST_TIMED_OUT, "{error}");
        assert!(error.is_retriable, "{error}");
        let part = "did not take the whole of Metadata within ";
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn an_interrupt_ends_a_request_that_is_sipped() {
    for (port, security) in slow_nodes(false) {
        let connection = open(port, &security, Some(raised_after(SECOND)));
        let error = error_of(connection, MINUTE, 64 << 20, 0);
        assert!(error.message.contains("interrupted"), "{error}");
    }
}

/// A large request that the node takes slowly is whole, also where TLS has taken bytes that the socket
/// has not.
#[test]
fn a_slow_request_and_a_slow_answer_come_whole() {
    for drips in [true, false] {
        for (port, security) in slow_nodes(drips) {
            let mut connection = open(port, &security, None);
            let padding = if drips { 10 } else { 8 << 20 };
            let encode = |e: &mut Vec<u8>| {
                e.put_i32(20);
                e.put(&vec![7; padding]);
            };
            let got = connection.call(METADATA, 12, MINUTE, encode, |r| {
                let at = *r;
                r.skip(20)?;
                Ok(at.until(*r).to_vec())
            });
            assert_eq!(got.unwrap(), (0..20).collect::<Vec<_>>());
        }
    }
}

/// A node whose answers are always there already was never waited for, so that the interrupt was never
/// looked at.
#[test]
fn an_interrupt_ends_a_run_of_quick_answers() {
    let (port, _) = listen(|socket| answer_requests(socket, &|_| None));
    let mut connection = open(port, &Security::default(), Some(raised_after(SECOND)));
    let began = Instant::now();
    let error = loop {
        assert!(began.elapsed() < ENDLESS / 3, "the interrupt has no effect");
        let encode = |e: &mut Vec<u8>| e.put_i32(1);
        if let Err(error) = connection.call(METADATA, 12, MINUTE, encode, |_| Ok(())) {
            break error;
        }
    };
    assert!(error.message.contains("interrupted"), "{error}");
}

/// A node that answers `ApiVersions`, and then tells the size of an answer that does not come.
fn boaster(size: i32) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (header, _) = next_request(&mut stream).unwrap();
        let mut answer = (4 + offers().len() as u32).to_be_bytes().to_vec();
        answer.extend(header.correlation_id.to_be_bytes());
        answer.extend(offers());
        stream.write_all(&answer).unwrap();
        next_request(&mut stream).unwrap();
        stream.write_all(&size.to_be_bytes()).unwrap();
    });
    port
}

/// Every answer might have a gibibyte, of which Python made objects.
#[test]
fn an_answer_of_more_than_100_mib_is_refused_unless_it_has_records() {
    let answer_of = |api: ClientApi, size| {
        let mut connection = open(boaster(size), &Security::default(), None);
        let result = connection.call(api, 12, MINUTE, |e| e.put_i32(0), |_| Ok(()));
        result.unwrap_err()
    };
    let error = answer_of(METADATA, (100 << 20) + 1);
    assert!(error.message.contains("104857601 bytes"), "{error}");
    assert!(!error.is_retriable, "{error}");
    for error in [answer_of(METADATA, 100 << 20), answer_of(FETCH, 1 << 30)] {
        assert!(error.message.contains("closed the connection"), "{error}");
        assert!(error.is_retriable, "{error}");
    }
    let error = answer_of(FETCH, (1 << 30) + 1);
    assert!(error.message.contains("1073741825 bytes"), "{error}");
}

/// A Fetch may bring a large batch over a slow link: a node that sends is not hung.
#[test]
fn an_answer_that_has_begun_may_have_more_time_than_a_hung_node() {
    for (port, security) in slow_nodes(true) {
        let mut connection = open(port, &security, None);
        let encode = |e: &mut Vec<u8>| e.put_i32(60);
        connection.request(METADATA, 12, SECOND, encode).unwrap();
        let mut frame = Vec::new();
        let body = connection.receive_large(&mut frame, SECOND, MINUTE);
        assert_eq!(frame.len() - body.unwrap(), 60);
    }
}
