//! The server as its clients meet it: real sockets, real logs, a producer state of our own.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;
use txn_log::builder::BatchBuilder;
use txn_log::producer_state::{
    AbortedTxn, AdmitResult, IncomingBatch, LastBatch, Marker, ProducerStateError,
    ProducerStateManager, ReplayedBatch,
};
use txn_log::{Durability, PartitionLog, Past, Role, Settings};
use txn_net::{
    Attachment, Bell, ConnectionLimits, ControlRequest, CreationRates, ListenerLimits,
    ListenerOptions, Options, ParkedProduce, PartitionRole, SecurityProtocol, Server, Settler,
    Topic,
};
use txn_protocol::apis::{SASL_AUTHENTICATE, SASL_HANDSHAKE};
use txn_protocol::batch::Codec;

// ---------------------------------------------------------------- a producer state

/// Transactions join by producer id; sequences are not looked at, but one.
#[derive(Default)]
struct Rules(Mutex<Known>);

#[derive(Default)]
struct Known {
    joined: BTreeSet<i64>,
    open: BTreeMap<i64, i64>,
    aborted: Vec<(i64, i64, i64)>,
    /// Called once, when the next batch of a producer comes.
    on_admit: Option<Box<dyn FnOnce() + Send>>,
}

/// A producer whose every batch is a duplicate of offset 99.
const REPEATER: i64 = 999;
/// A producer whose every batch is out of order.
const JUMPER: i64 = 998;
/// A producer whose every batch meets a bug.
const BREAKER: i64 = 997;

impl ProducerStateManager for Rules {
    fn admit(&self, candidate: &IncomingBatch) -> AdmitResult {
        let mut known = self.0.lock().unwrap();
        if let Some(called) = known.on_admit.take() {
            called();
        }
        match candidate.producer_id {
            REPEATER => return AdmitResult::Duplicate { base_offset: 99 },
            BREAKER => panic!("a bug of the producer_state"),
            JUMPER => return AdmitResult::Refuse { code: 45 },
            id if candidate.is_transactional && !known.joined.contains(&id) => {
                return AdmitResult::Join;
            }
            id if candidate.is_transactional => {
                known.open.entry(id).or_insert(candidate.next_offset);
            }
            _ => {}
        }
        AdmitResult::Admit {
            first_unstable_offset: known.open.values().min().copied(),
            aborted: None,
        }
    }

    fn admit_marker(&self, next_offset: i64, marker: &Marker) -> AdmitResult {
        let mut known = self.0.lock().unwrap();
        let first_offset = known.open.remove(&marker.producer_id).unwrap();
        let first_unstable_offset = known.open.values().min().copied();
        let aborted = (!marker.is_commit).then(|| {
            known
                .aborted
                .push((marker.producer_id, first_offset, next_offset));
            AbortedTxn {
                producer_id: marker.producer_id,
                first_offset,
                last_offset: next_offset,
                last_stable_offset: first_unstable_offset.unwrap_or(next_offset + 1),
            }
        });
        AdmitResult::Admit {
            first_unstable_offset,
            aborted,
        }
    }

    fn forget_below(&self, _: i64) {}

    fn forget_aborted(&self, _: &[i64]) -> Result<(), ProducerStateError> {
        Ok(())
    }

    fn last_batches(&self) -> Result<Vec<LastBatch>, ProducerStateError> {
        Ok(Vec::new())
    }

    fn snapshot(&self) -> Result<Vec<u8>, ProducerStateError> {
        Ok(Vec::new())
    }

    fn restore(&self, _: Option<&[u8]>, _: &[AbortedTxn]) -> Result<(), ProducerStateError> {
        Ok(())
    }

    fn replay(&self, _: &[ReplayedBatch]) -> Result<Vec<AbortedTxn>, ProducerStateError> {
        Ok(Vec::new())
    }

    fn backfill(&self, _: &[ReplayedBatch]) -> Result<(), ProducerStateError> {
        Ok(())
    }

    fn first_unstable_offset(&self) -> Result<Option<i64>, ProducerStateError> {
        Ok(None)
    }
}

// ---------------------------------------------------------------- a server

const TOPIC: &str = "pay";
const TOPIC_ID: [u8; 16] = [7; 16];
const INTERNAL: &str = "__internal";

struct Running {
    server: Arc<Server>,
    reactors: Vec<JoinHandle<()>>,
    rules: Arc<Rules>,
    log: Arc<PartitionLog>,
    _directory: TempDir,
}

fn bind(listeners: &[ListenerOptions], options: Options) -> std::io::Result<Server> {
    Server::bind(listeners, options, Arc::new(Durability::new(2))).map_err(|failed| failed.error)
}

fn options() -> Options {
    Options {
        reactors: 2,
        max_request_bytes: 1 << 20,
        max_sasl_bytes: 1 << 10,
        max_queued_bytes: None,
        max_connections: 100,
        max_idle: None,
        turn: Duration::ZERO, // each request gives way wherever it may
        sync_acks_all: false,
        coordinator_timeout: Duration::from_secs(30),
        handshake_timeout: Duration::from_secs(10),
        login_timeout: Duration::from_secs(60),
        memory_patience: Duration::from_secs(10),
        answer_patience: Duration::from_secs(2),
    }
}

fn listener(name: &str) -> ListenerOptions {
    ListenerOptions {
        name: name.to_owned(),
        host: "127.0.0.1".to_owned(),
        port: 0,
        security: SecurityProtocol::Plaintext,
        is_sasl: false,
    }
}

fn start(options: &Options) -> Running {
    start_on(listener("PLAINTEXT"), options)
}

/// A server whose clients authenticate.
fn start_sasl() -> Running {
    start_on(sasl_listener(), &options())
}

fn sasl_listener() -> ListenerOptions {
    ListenerOptions {
        is_sasl: true,
        ..listener("SASL_PLAINTEXT")
    }
}

fn start_on(listener: ListenerOptions, options: &Options) -> Running {
    let directory = TempDir::new().unwrap();
    let rules = Arc::new(Rules::default());
    let open = |name: &str| {
        let producer_state = Arc::clone(&rules) as Arc<dyn ProducerStateManager>;
        let path = directory.path().join(name);
        Arc::new(
            PartitionLog::open(
                path,
                producer_state,
                Settings::default(),
                None,
                Past::default(),
            )
            .unwrap(),
        )
    };
    let log = open("pay-0");
    let server = Arc::new(bind(&[listener], options.clone()).unwrap());
    let logs = [Arc::clone(&log), open("pay-1")];
    let log_of = Box::new(move |index: usize| Ok(Arc::clone(&logs[index])));
    server.add_topic(Topic::new(TOPIC.to_owned(), TOPIC_ID, 2, log_of, false));
    let internal = open("internal-0");
    server.add_topic(Topic::new(
        INTERNAL.to_owned(),
        [8; 16],
        1,
        Box::new(move |_| Ok(Arc::clone(&internal))),
        true,
    ));
    let reactors = (0..options.reactors)
        .map(|index| {
            let server = Arc::clone(&server);
            std::thread::spawn(move || server.run_reactor(index).expect("it runs"))
        })
        .collect();
    Running {
        server,
        reactors,
        rules,
        log,
        _directory: directory,
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.stop();
        for reactor in self.reactors.drain(..) {
            let ended = reactor.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

impl Running {
    fn connect(&self) -> Client {
        let socket = TcpStream::connect(self.server.listeners()[0].address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Client { socket }
    }

    /// Clients whose turns with the server are over: their next requests are met in that order.
    fn accepted<const COUNT: usize>(&self) -> [Client; COUNT] {
        let ask = |()| {
            let mut client = self.connect();
            client.ask(&produce_to("unknown", None, 1, &[]));
            client
        };
        let clients = [(); COUNT].map(ask);
        ask(()); // its turn comes after the last of theirs
        clients
    }

    fn wait_for_control(&self) {
        let wakeup = PollFd::from_borrowed_fd(self.server.wakeup_fd(), PollFlags::IN);
        let timeout = Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        assert_eq!(
            poll(&mut [wakeup], Some(&timeout)),
            Ok(1),
            "nothing came for Python"
        );
    }

    fn take_request(&self) -> ControlRequest {
        self.wait_for_control();
        self.server.take().pop().unwrap()
    }

    fn take_join(&self) -> ParkedProduce {
        self.wait_for_control();
        self.server.take_joins().pop().unwrap()
    }
}

// ---------------------------------------------------------------- a client

struct Client {
    socket: TcpStream,
}

impl Client {
    fn send(&mut self, frame: &[u8]) {
        self.socket.write_all(frame).unwrap();
    }

    /// The content of the next answer.
    fn receive(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length).unwrap();
        let mut content = vec![0; i32::from_be_bytes(length) as usize];
        self.socket.read_exact(&mut content).unwrap();
        content
    }

    fn ask(&mut self, frame: &[u8]) -> Vec<u8> {
        self.send(frame);
        self.receive()
    }

    /// The same connection, for another thread.
    fn again(&self) -> Self {
        let socket = self.socket.try_clone().unwrap();
        Self { socket }
    }

    /// True if no byte of an answer has come yet.
    fn has_nothing(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let peeked = self.socket.peek(&mut [0]);
        self.socket.set_nonblocking(false).unwrap();
        peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// True if the server closed the connection without another byte.
    fn is_closed(&mut self) -> bool {
        match self.socket.read(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Bytes in Kafka's fixed-size encodings.
#[derive(Clone, Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn i8(mut self, value: i8) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn i16(mut self, value: i16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn i64(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn text(self, text: &str) -> Self {
        self.i16(text.len() as i16).raw(text.as_bytes())
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn frame(self) -> Vec<u8> {
        [&(self.0.len() as i32).to_be_bytes()[..], &self.0].concat()
    }
}

fn header(api_key: i16, api_version: i16, correlation_id: i32) -> Bytes {
    Bytes::default()
        .i16(api_key)
        .i16(api_version)
        .i32(correlation_id)
        .text("me")
}

/// Metadata 0, which is for Python to answer.
fn control(correlation_id: i32) -> Vec<u8> {
    header(3, 0, correlation_id).i32(0).frame()
}

fn produce_to(
    topic: &str,
    transactional_id: Option<&str>,
    acks: i16,
    parts: &[(i32, &[u8])],
) -> Vec<u8> {
    let start = header(0, 8, 1);
    let start = match transactional_id {
        Some(id) => start.text(id),
        None => start.i16(-1),
    };
    let start = start
        .i16(acks)
        .i32(1000)
        .i32(1)
        .text(topic)
        .i32(parts.len() as i32);
    let append =
        |bytes: Bytes, part: &(i32, &[u8])| bytes.i32(part.0).i32(part.1.len() as i32).raw(part.1);
    parts.iter().fold(start, append).frame()
}

fn produce(acks: i16, records: &[u8]) -> Vec<u8> {
    produce_to(TOPIC, None, acks, &[(0, records)])
}

/// Error code and base offset of each partition of a Produce 8 answer of one topic without messages.
fn produced(answer: &[u8]) -> Vec<(i16, i64)> {
    let mut rest = &answer[8..];
    let name = rest.i16();
    rest = &rest[name as usize..];
    let partitions = rest.i32();
    (0..partitions)
        .map(|_| {
            rest.i32();
            let outcome = (rest.i16(), rest.i64());
            assert_eq!((rest.i64(), rest.i64() >= -1, rest.i32()), (-1, true, 0));
            let message = rest.i16().max(0);
            rest = &rest[message as usize..];
            outcome
        })
        .collect()
}

trait Take {
    fn i16(&mut self) -> i16;
    fn i32(&mut self) -> i32;
    fn i64(&mut self) -> i64;
}

impl Take for &[u8] {
    fn i16(&mut self) -> i16 {
        i16::from_be_bytes(fixed(self))
    }

    fn i32(&mut self) -> i32 {
        i32::from_be_bytes(fixed(self))
    }

    fn i64(&mut self) -> i64 {
        i64::from_be_bytes(fixed(self))
    }
}

fn fixed<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (front, rest) = bytes.split_first_chunk().unwrap();
    *bytes = rest;
    *front
}

struct Wanted {
    start: i64,
    max_wait_ms: i32,
    min_bytes: i32,
    max_bytes: i32,
    isolation: i8,
    leader_epoch: i32,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            start: 0,
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: 10 << 20,
            isolation: 0,
            leader_epoch: -1,
        }
    }
}

/// Fetch 9 of partition 0.
fn fetch(wanted: &Wanted) -> Vec<u8> {
    let start = header(1, 9, 2)
        .i32(-1)
        .i32(wanted.max_wait_ms)
        .i32(wanted.min_bytes);
    let start = start
        .i32(wanted.max_bytes)
        .i8(wanted.isolation)
        .i32(0)
        .i32(-1);
    let start = start
        .i32(1)
        .text(TOPIC)
        .i32(1)
        .i32(0)
        .i32(wanted.leader_epoch);
    start
        .i64(wanted.start)
        .i64(-1)
        .i32(wanted.max_bytes)
        .i32(0)
        .frame()
}

/// The answer of Fetch 9 for one partition.
#[derive(Debug, PartialEq, Eq)]
struct Fetched {
    code: i16,
    high_watermark: i64,
    last_stable_offset: i64,
    aborted: Option<Vec<(i64, i64)>>,
    records: Vec<u8>,
}

fn fetched(answer: &[u8]) -> Fetched {
    let mut rest = &answer[4..];
    assert_eq!(
        (rest.i32(), rest.i16(), rest.i32(), rest.i32()),
        (0, 0, 0, 1)
    );
    let name = rest.i16();
    rest = &rest[name as usize..];
    assert_eq!((rest.i32(), rest.i32()), (1, 0));
    let (code, high_watermark, last_stable_offset) = (rest.i16(), rest.i64(), rest.i64());
    rest.i64();
    let aborted = match rest.i32() {
        -1 => None,
        count => Some((0..count).map(|_| (rest.i64(), rest.i64())).collect()),
    };
    let length = rest.i32();
    assert_eq!(rest.len(), length as usize);
    Fetched {
        code,
        high_watermark,
        last_stable_offset,
        aborted,
        records: rest.to_vec(),
    }
}

fn batch_of(producer_id: i64, is_transactional: bool, value: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None);
    if producer_id >= 0 {
        (
            builder.producer_id,
            builder.producer_epoch,
            builder.base_sequence,
        ) = (producer_id, 0, 0);
    }
    builder.is_transactional = is_transactional;
    builder.push(1_700_000_000_000, None, Some(value), &[]);
    builder.seal().unwrap()
}

fn batch(value: &[u8]) -> Vec<u8> {
    batch_of(-1, false, value)
}

/// The batch as it is stored: offset and leader epoch stamped.
fn stored(batch: &[u8], base_offset: i64) -> Vec<u8> {
    let mut bytes = batch.to_vec();
    bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
    bytes[12..16].copy_from_slice(&0_i32.to_be_bytes());
    bytes
}

fn end(running: &Running, producer_id: i64, is_commit: bool) {
    let marker = Marker {
        producer_id,
        producer_epoch: 0,
        coordinator_epoch: 0,
        is_commit,
        timestamp_ms: 1_700_000_000_000,
    };
    running.log.append_marker(&marker).unwrap();
}

// ---------------------------------------------------------------- produce and fetch

#[test]
fn what_is_produced_is_fetched_byte_for_byte_under_its_offsets() {
    let running = start(&options());
    let mut client = running.connect();
    let (one, two) = (batch(b"one"), batch(b"two"));
    assert_eq!(produced(&client.ask(&produce(-1, &one))), [(0, 0)]);
    assert_eq!(produced(&client.ask(&produce(1, &two))), [(0, 1)]);
    let answer = fetched(&client.ask(&fetch(&Wanted::default())));
    assert_eq!(
        (
            answer.code,
            answer.high_watermark,
            answer.last_stable_offset
        ),
        (0, 2, 2)
    );
    assert_eq!(answer.records, [stored(&one, 0), stored(&two, 1)].concat());
    assert_eq!(answer.aborted, None);
}

#[test]
fn a_large_answer_goes_from_the_segment_to_the_socket_whole() {
    let running = start(&options());
    let mut client = running.connect();
    let value: Vec<u8> = (0..700_000_u32).map(|n| (n % 251) as u8).collect();
    let large = batch(&value);
    for _ in 0..20 {
        client.ask(&produce(1, &large));
    }
    let answer = fetched(&client.ask(&fetch(&Wanted {
        max_bytes: 40 << 20,
        ..Wanted::default()
    })));
    let expected: Vec<u8> = (0..20).flat_map(|offset| stored(&large, offset)).collect();
    assert!(
        answer.records == expected,
        "{} bytes came",
        answer.records.len()
    );
}

#[test]
fn max_bytes_cuts_between_batches_and_lets_one_batch_through_whatever_its_size() {
    let running = start(&options());
    let mut client = running.connect();
    let (one, two) = (batch(b"one"), batch(b"two"));
    client.ask(&produce(1, &one));
    client.ask(&produce(1, &two));
    let wanted = Wanted {
        max_bytes: 1,
        ..Wanted::default()
    };
    assert_eq!(
        fetched(&client.ask(&fetch(&wanted))).records,
        stored(&one, 0)
    );
    let wanted = Wanted {
        start: 1,
        max_bytes: 1,
        ..Wanted::default()
    };
    assert_eq!(
        fetched(&client.ask(&fetch(&wanted))).records,
        stored(&two, 1)
    );
}

#[test]
fn acks_0_is_stored_and_not_answered() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&produce(0, &batch(b"one")));
    assert_eq!(produced(&client.ask(&produce(1, &batch(b"two")))), [(0, 1)]);
}

#[test]
fn acks_0_that_fails_costs_the_connection() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&produce(0, b"no batch"));
    assert!(client.is_closed());
}

#[test]
fn everything_an_acks_0_producer_sent_before_it_left_is_stored() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let mut client = running.connect();
    let frames: Vec<u8> = (0..100).flat_map(|_| produce(0, &batch(b"bye"))).collect();
    client.send(&frames);
    drop(client);
    let mut other = running.connect();
    let expected: Vec<u8> = (0..100)
        .flat_map(|offset| stored(&batch(b"bye"), offset))
        .collect();
    let answer = other.ask(&fetch(&Wanted {
        max_wait_ms: 60_000,
        min_bytes: expected.len() as i32,
        ..Wanted::default()
    }));
    assert_eq!(fetched(&answer).records, expected);
}

#[test]
fn a_duplicate_is_answered_with_the_offset_it_has() {
    let running = start(&options());
    let mut client = running.connect();
    assert_eq!(
        produced(&client.ask(&produce(1, &batch_of(REPEATER, false, b"x")))),
        [(0, 99)]
    );
}

#[test]
fn one_partition_that_fails_leaves_the_others_their_success() {
    let running = start(&options());
    let mut client = running.connect();
    let (good, jump) = (batch(b"good"), batch_of(JUMPER, false, b"x"));
    let parts: [(i32, &[u8]); 4] = [(0, &jump), (1, &good), (2, &good), (0, b"rubbish")];
    let answer = produced(&client.ask(&produce_to(TOPIC, None, -1, &parts)));
    assert_eq!(answer, [(45, -1), (0, 0), (3, -1), (87, -1)]);
}

#[test]
fn a_damaged_batch_and_an_internal_topic_are_refused() {
    let running = start(&options());
    let mut client = running.connect();
    let mut damaged = batch(b"good");
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(produced(&client.ask(&produce(-1, &damaged))), [(2, -1)]);
    let refused = client.ask(&produce_to(INTERNAL, None, -1, &[(0, &batch(b"x"))]));
    assert_eq!(produced(&refused), [(17, -1)]);
    assert_eq!(running.log.state().log_end_offset, 0);
}

#[test]
fn synced_answers_arrive_for_every_client_that_waits() {
    let running = start(&Options {
        sync_acks_all: true,
        ..options()
    });
    let mut clients: Vec<Client> = (0..4).map(|_| running.connect()).collect();
    for client in &mut clients {
        client.send(&produce(-1, &batch(b"x")));
    }
    let mut offsets: Vec<_> = clients
        .iter_mut()
        .map(|client| produced(&client.receive()))
        .collect();
    offsets.sort_unstable();
    assert_eq!(offsets, [[(0, 0)], [(0, 1)], [(0, 2)], [(0, 3)]]);
}

#[test]
fn batches_of_a_forced_producer_are_on_the_disk_before_they_are_acknowledged() {
    let running = start(&options());
    running.rules.0.lock().unwrap().joined.extend([1, 2]);
    let mut client = running.connect();
    let mut on_disk_after = |id, producer_id| {
        let batch = batch_of(producer_id, true, b"mine");
        let answer = client.ask(&produce_to(TOPIC, Some(id), -1, &[(0, &batch)]));
        assert_eq!(produced(&answer)[0].0, 0);
        running.log.recovery_point()
    };

    assert_eq!(on_disk_after("t1", 1), 0);
    running.server.sync_before_ack(1, true);
    assert_eq!(on_disk_after("t1", 1), 2);
    assert_eq!(on_disk_after("t2", 2), 2);
    running.server.sync_before_ack(1, false);
    assert_eq!(on_disk_after("t1", 1), 2);
}

#[test]
fn a_parked_batch_of_a_producer_that_is_forced_meanwhile_is_forced() {
    let running = start(&options());
    let mut client = running.connect();
    let batch = batch_of(5, true, b"mine");
    client.send(&produce_to(TOPIC, Some("t5"), -1, &[(0, &batch)]));
    let parked = running.take_join();
    running.rules.0.lock().unwrap().joined.insert(5);
    running.server.sync_before_ack(5, true);
    running.server.resume(parked.token, vec![]);
    assert_eq!(produced(&client.receive()), [(0, 0)]);
    assert_eq!(running.log.recovery_point(), 1);
}

#[test]
fn an_offset_outside_the_log_and_a_wrong_leader_epoch_are_refused() {
    let running = start(&options());
    let mut client = running.connect();
    let mut code = |wanted| fetched(&client.ask(&fetch(&wanted))).code;
    assert_eq!(
        code(Wanted {
            start: 1,
            max_wait_ms: 60_000,
            ..Wanted::default()
        }),
        1
    );
    assert_eq!(
        code(Wanted {
            start: -1,
            max_wait_ms: 60_000,
            ..Wanted::default()
        }),
        1
    );
    assert_eq!(
        code(Wanted {
            leader_epoch: 1,
            max_wait_ms: 60_000,
            ..Wanted::default()
        }),
        75
    );
    assert_eq!(
        code(Wanted {
            leader_epoch: -2, // any negative one is none
            ..Wanted::default()
        }),
        0
    );
    assert_eq!(
        code(Wanted {
            leader_epoch: 0,
            ..Wanted::default()
        }),
        0
    );
}

// ---------------------------------------------------------------- transactions

#[test]
fn read_committed_stops_at_the_open_transaction_and_names_the_aborted_one() {
    let running = start(&options());
    running.rules.0.lock().unwrap().joined.extend([1, 2]);
    let mut client = running.connect();
    let (plain, mine) = (batch(b"plain"), batch_of(1, true, b"mine"));
    let other = batch_of(2, true, b"other");
    for (id, records) in [(None, &plain), (Some("t1"), &mine), (Some("t2"), &other)] {
        let answer = client.ask(&produce_to(TOPIC, id, -1, &[(0, records)]));
        assert_eq!(produced(&answer)[0].0, 0);
    }
    let committed = Wanted {
        isolation: 1,
        ..Wanted::default()
    };
    let before = fetched(&client.ask(&fetch(&committed)));
    assert_eq!((before.high_watermark, before.last_stable_offset), (3, 1));
    assert_eq!(
        (before.records, before.aborted),
        (stored(&plain, 0), Some(vec![]))
    );

    end(&running, 1, false);
    let after = fetched(&client.ask(&fetch(&committed)));
    assert_eq!((after.high_watermark, after.last_stable_offset), (4, 2));
    assert_eq!(
        after.records,
        [stored(&plain, 0), stored(&mine, 1)].concat()
    );
    assert_eq!(after.aborted, Some(vec![(1, 1)]));

    let uncommitted = fetched(&client.ask(&fetch(&Wanted::default())));
    assert_eq!(uncommitted.aborted, None);
    assert!(
        uncommitted
            .records
            .starts_with(&[stored(&plain, 0), stored(&mine, 1)].concat())
    );
}

#[test]
fn a_produce_waits_for_its_partitions_to_join_and_then_goes_on() {
    let running = start(&options());
    let mut client = running.connect();
    let batch = batch_of(5, true, b"mine");
    client.send(&produce_to(
        TOPIC,
        Some("t5"),
        -1,
        &[(0, &batch), (1, &batch), (9, &batch)],
    ));
    let parked = running.take_join();
    assert_eq!(parked.join.transactional_id, "t5");
    assert_eq!(
        (parked.join.producer_id, parked.join.producer_epoch),
        (5, 0)
    );
    assert_eq!(parked.join.transaction_version, 1);
    assert_eq!(
        parked.join.partitions,
        [(TOPIC.to_owned(), 0), (TOPIC.to_owned(), 1)]
    );

    running.rules.0.lock().unwrap().joined.insert(5);
    running
        .server
        .resume(parked.token, vec![(TOPIC.to_owned(), 1, 120)]);
    // 120, TRANSACTION_ABORTABLE, is unknown to Produce 8.
    assert_eq!(produced(&client.receive()), [(0, 0), (48, -1), (3, -1)]);
}

#[test]
fn a_partition_that_still_has_to_join_after_the_coordinator_agreed_is_refused() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&produce_to(
        TOPIC,
        Some("t5"),
        -1,
        &[(0, &batch_of(5, true, b"mine"))],
    ));
    let parked = running.take_join();
    running.server.resume(parked.token, vec![]);
    assert_eq!(produced(&client.receive()), [(48, -1)]);
    assert_eq!(running.log.state().log_end_offset, 0);
}

#[test]
fn a_produce_whose_coordinator_does_not_answer_in_time_is_refused_and_the_connection_goes_on() {
    let running = start(&Options {
        coordinator_timeout: Duration::from_millis(30),
        ..options()
    });
    let mut client = running.connect();
    let (plain, mine) = (batch(b"plain"), batch_of(5, true, b"mine"));
    let parts: [(i32, &[u8]); 2] = [(0, &plain), (1, &mine)];
    client.send(&produce_to(TOPIC, Some("t5"), -1, &parts));
    let parked = running.take_join();
    assert_eq!(produced(&client.receive()), [(0, 0), (19, -1)]); // NOT_ENOUGH_REPLICAS

    running.rules.0.lock().unwrap().joined.insert(5);
    running.server.resume(parked.token, vec![]); // too late

    let next = produce_to(TOPIC, Some("t5"), -1, &[(1, &mine)]);
    assert_eq!(produced(&client.ask(&next)), [(0, 0)]);
}

#[test]
fn a_produce_whose_client_left_while_it_was_parked_changes_nothing() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let mut client = running.connect();
    client.send(&produce_to(
        TOPIC,
        Some("t5"),
        -1,
        &[(0, &batch_of(5, true, b"mine"))],
    ));
    let parked = running.take_join();
    running.server.disconnect(parked.token);
    assert!(client.is_closed());
    running.rules.0.lock().unwrap().joined.insert(5);
    running.server.resume(parked.token, vec![]);
    assert_eq!(
        produced(&running.connect().ask(&produce(-1, &batch(b"next")))),
        [(0, 0)]
    );
}

// ---------------------------------------------------------------- the purgatory

#[test]
fn a_fetch_that_found_nothing_is_answered_when_its_time_is_over() {
    let running = start(&options());
    let answer = running.connect().ask(&fetch(&Wanted {
        max_wait_ms: 30,
        ..Wanted::default()
    }));
    assert_eq!(fetched(&answer).records, b"");
}

/// Returns once the only reactor has dealt with everything sent before.
///
/// The first round may overtake requests sent before it, within one wait of the reactor; the second
/// cannot.
fn settle(running: &Running, other: &mut Client) {
    for _ in 0..2 {
        other.send(&control(77));
        let request = running.take_request();
        running.server.reply(request.token, false, b"");
        other.receive();
    }
}

/// A server with one reactor, a client whose fetch waits there for up to a minute, and another.
fn start_waiting(wanted: &Wanted) -> (Running, Client, Client) {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let (mut reader, mut other) = (running.connect(), running.connect());
    wait_with(&running, wanted, &mut reader, &mut other);
    (running, reader, other)
}

/// Has a reader's fetch wait for up to a minute; another client shows when it does.
fn wait_with(running: &Running, wanted: &Wanted, reader: &mut Client, other: &mut Client) {
    reader.send(&fetch(&Wanted {
        max_wait_ms: 60_000,
        ..*wanted
    }));
    settle(running, other);
}

#[test]
fn an_append_wakes_the_fetch_that_waits_for_it() {
    let (_running, mut reader, mut other) = start_waiting(&Wanted::default());
    other.ask(&produce(1, &batch(b"one")));
    assert_eq!(
        fetched(&reader.receive()).records,
        stored(&batch(b"one"), 0)
    );
}

#[test]
fn a_marker_wakes_the_read_committed_fetch_that_waits_for_it() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    running.rules.0.lock().unwrap().joined.insert(1);
    let (mut reader, mut other) = (running.connect(), running.connect());
    let mine = batch_of(1, true, b"mine");
    other.ask(&produce_to(TOPIC, Some("t1"), -1, &[(0, &mine)]));
    let committed = Wanted {
        isolation: 1,
        ..Wanted::default()
    };
    wait_with(&running, &committed, &mut reader, &mut other);
    end(&running, 1, true);
    assert!(
        fetched(&reader.receive())
            .records
            .starts_with(&stored(&mine, 0))
    );
}

#[test]
fn a_fetch_waits_on_while_there_are_fewer_bytes_than_it_asks_for() {
    let (_running, mut reader, mut other) = start_waiting(&Wanted {
        min_bytes: 50_000,
        ..Wanted::default()
    });
    let value = vec![7; 20_000];
    for _ in 0..3 {
        other.ask(&produce(1, &batch(&value)));
    }
    let expected: Vec<u8> = (0..3)
        .flat_map(|offset| stored(&batch(&value), offset))
        .collect();
    assert!(fetched(&reader.receive()).records == expected);
}

/// Fetch 4 of partition 0 with at least 2 GB, which names it so many times.
fn fetch_many(count: usize) -> Vec<u8> {
    let mut bytes = header(1, 4, 1).i32(-1).i32(20_000).i32(i32::MAX);
    bytes = bytes.i32(i32::MAX).i8(0).i32(1).text(TOPIC);
    bytes = bytes.i32(count as i32);
    let one = Bytes::default().i32(0).i64(0).i32(i32::MAX);
    bytes.raw(&one.0.repeat(count)).frame()
}

#[test]
fn a_waiting_fetch_that_names_a_partition_60_000_times_watches_it_once() {
    let running = start(&options());
    let [mut greedy, mut other] = running.accepted();
    greedy.send(&fetch_many(60_000));
    while running.log.watcher_count() == 0 {
        settle(&running, &mut other);
    }
    assert_eq!(running.log.watcher_count(), 1);
    assert_eq!(produced(&other.ask(&produce(1, &batch(b"one")))), [(0, 0)]);
    assert!(greedy.has_nothing());
    drop(greedy);
    while running.log.watcher_count() > 0 {
        settle(&running, &mut other);
    }
}

/// Fetch 4 of these topics, and of none of their partitions.
fn naming(topics: &[&str]) -> Vec<u8> {
    let bytes = header(1, 4, 1).i32(-1).i32(0).i32(0).i32(1 << 20).i8(0);
    let bytes = bytes.i32(topics.len() as i32);
    let named = |bytes: Bytes, topic: &&str| bytes.text(topic).i32(0);
    topics.iter().fold(bytes, named).frame()
}

/// Names that the authorizer was asked for.
type AskedNames = Arc<Mutex<Vec<String>>>;

/// Refuses everything from now on. `first` is called by the first question.
fn refuse_all(running: &Running, first: impl FnOnce() + Send + 'static) -> AskedNames {
    let asked = AskedNames::default();
    let noted = Arc::clone(&asked);
    let first = Mutex::new(Some(first));
    running.server.authorize_by(Box::new(move |_, _, _, name| {
        if let Some(first) = first.lock().unwrap().take() {
            first();
        }
        noted.lock().unwrap().push(name.to_owned());
        false
    }));
    asked
}

/// The turn of `other` among the questions of a client that sends this, and all questions.
fn turn_among(frames: &[u8], answers: usize) -> (usize, Vec<String>) {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let [mut greedy, mut other] = running.accepted();
    let mut same = other.again();
    let asked = refuse_all(&running, move || same.send(&naming(&["other"])));
    greedy.send(frames);
    for _ in 0..answers {
        greedy.receive();
    }
    other.receive();
    let asked = asked.lock().unwrap().clone();
    (
        asked.iter().position(|name| name == "other").unwrap(),
        asked,
    )
}

#[test]
fn another_client_has_its_turn_between_requests_that_came_together() {
    // The story: a turn was 32 requests, whatever they cost. A client without any permission sent
    // requests that took 0.8 s each, and all others of its reactor waited for 15 s.
    let frames = [&["1"], &["2"], &["3"], &["4"]].map(|name| naming(name));
    let (turn, asked) = turn_among(&frames.concat(), frames.len());
    assert!(turn < 4, "{asked:?}");
}

#[test]
fn another_client_has_its_turn_between_the_names_of_one_fetch() {
    let (turn, asked) = turn_among(&naming(&["1", "2", "3", "4"]), 1);
    assert!(turn < 4, "{asked:?}");
}

#[test]
fn a_large_fetch_is_read_after_the_turns_of_all_others() {
    let running = start(&Options {
        reactors: 1,
        turn: Duration::from_secs(3600),
        ..options()
    });
    let [mut first, mut greedy, mut other] = running.accepted();
    let (mut large, mut small) = (greedy.again(), other.again());
    let asked = refuse_all(&running, move || {
        large.send(&naming(&vec!["large"; 10_000]));
        small.send(&naming(&["small"]));
    });
    first.ask(&naming(&["first"]));
    other.receive();
    greedy.receive();
    assert_eq!(*asked.lock().unwrap(), ["first", "small", "large"]);
}

#[test]
fn another_client_has_its_turn_between_the_topics_of_one_produce() {
    let bytes = header(0, 8, 1).i16(-1).i16(1).i32(1000).i32(4);
    let named = |bytes: Bytes, topic: &str| bytes.text(topic).i32(1).i32(0).i32(-1);
    let frame = ["1", "2", "3", "4"].into_iter().fold(bytes, named).frame();
    let (turn, asked) = turn_among(&frame, 1);
    assert!(turn < 4, "{asked:?}");
}

#[test]
fn another_client_has_its_turn_between_the_batches_of_one_produce() {
    // The story: 190,000 small batches of as many producers held their reactor for 1.2 s.
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let [mut greedy, mut other] = running.accepted();
    let mut same = other.again();
    let frame = produce(1, &batch(b"other"));
    running.rules.0.lock().unwrap().on_admit = Some(Box::new(move || same.send(&frame)));
    let batches = [1, 2, 3, 4].map(|producer_id| batch_of(producer_id, false, b"many"));
    let parts: Vec<(i32, &[u8])> = batches.iter().map(|batch| (0, &batch[..])).collect();
    greedy.send(&produce_to(TOPIC, None, 1, &parts));
    let many: Vec<i64> = produced(&greedy.receive())
        .iter()
        .map(|one| one.1)
        .collect();
    let [(_, turn)] = produced(&other.receive())[..] else {
        panic!("it sent one batch")
    };
    assert!(many.is_sorted() && turn < 4, "{many:?}, {turn}");
}

#[test]
fn a_topic_that_a_request_names_many_times_is_asked_for_once() {
    // The story: each time was a question, and 199,000 of them took 0.8 s.
    let running = start(&options());
    let [mut client] = running.accepted();
    let asked = refuse_all(&running, || ());
    for _ in 0..2 {
        client.ask(&naming(&["b", "a", "b", "b", "a"]));
    }
    assert_eq!(*asked.lock().unwrap(), ["b", "a", "b", "a"]);
}

#[test]
fn a_request_that_gives_way_is_stored_to_its_end_though_its_client_leaves() {
    let running = start(&options());
    let [mut leaver, mut other] = running.accepted();
    let same = leaver.socket.try_clone().unwrap();
    running.rules.0.lock().unwrap().on_admit =
        Some(Box::new(move || same.shutdown(Shutdown::Both).unwrap()));
    let batches = [1, 2, 3, 4].map(|producer_id| batch_of(producer_id, false, b"many"));
    let parts: Vec<(i32, &[u8])> = batches.iter().map(|batch| (0, &batch[..])).collect();
    leaver.send(&produce_to(TOPIC, None, 0, &parts));
    while running.log.state().log_end_offset < 4 {
        settle(&running, &mut other);
    }
}

#[test]
fn a_waiting_fetch_is_forgotten_when_its_client_leaves() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let (mut reader, mut other) = (running.connect(), running.connect());
    reader.send(&fetch(&Wanted::default()));
    reader.receive(); // the topic has the log from now on
    let owners = Arc::strong_count(&running.log);
    wait_with(&running, &Wanted::default(), &mut reader, &mut other);
    assert!(Arc::strong_count(&running.log) > owners);
    drop(reader);
    settle(&running, &mut other);
    assert_eq!(Arc::strong_count(&running.log), owners);
}

#[test]
fn a_client_that_sends_no_more_is_not_kept_waiting() {
    let running = start(&options());
    let mut reader = running.connect();
    reader.send(&fetch(&Wanted {
        max_wait_ms: 60_000,
        ..Wanted::default()
    }));
    reader.socket.shutdown(Shutdown::Write).unwrap();
    assert!(reader.socket.read_to_end(&mut Vec::new()).is_ok());
}

#[test]
fn a_waiting_fetch_of_a_removed_topic_is_answered_at_once() {
    let (running, mut reader, _other) = start_waiting(&Wanted::default());
    running.server.remove_topic(TOPIC);
    assert_eq!(fetched(&reader.receive()).code, 3);
}

// ---------------------------------------------------------------- roles

const FOLLOWER: PartitionRole = PartitionRole::Follower { leader_epoch: 1 };

impl Running {
    fn set_role(&self, role: PartitionRole) {
        self.server.set_role(TOPIC, 0, role).unwrap();
    }
}

#[test]
fn a_follower_and_an_offline_partition_take_no_batch_and_answer_no_fetch() {
    let running = start(&options());
    let mut client = running.connect();
    let mut codes = |role| {
        running.set_role(role);
        let parts: [(i32, &[u8]); 2] = [(0, &batch(b"x")), (1, &batch(b"y"))];
        let stored = produced(&client.ask(&produce_to(TOPIC, None, -1, &parts)));
        assert_eq!(stored[1].0, 0, "the other partition");
        (
            stored[0].0,
            fetched(&client.ask(&fetch(&Wanted::default()))).code,
        )
    };
    assert_eq!(codes(PartitionRole::Leader { leader_epoch: 0 }), (0, 0));
    assert_eq!(codes(FOLLOWER), (6, 6));
    assert_eq!(codes(PartitionRole::Offline), (56, 56));
    assert_eq!(codes(PartitionRole::Leader { leader_epoch: 2 }), (0, 0));
    assert_eq!(running.log.state().log_end_offset, 2);
}

#[test]
fn a_fetch_is_fenced_by_the_leader_epoch_of_the_role() {
    let running = start(&options());
    let mut client = running.connect();
    let mut code = |role, leader_epoch| {
        running.set_role(role);
        let wanted = Wanted {
            leader_epoch,
            ..Wanted::default()
        };
        fetched(&client.ask(&fetch(&wanted))).code
    };
    let leader = PartitionRole::Leader { leader_epoch: 3 };
    assert_eq!([2, 3, 4].map(|epoch| code(leader, epoch)), [74, 0, 75]);
    assert_eq!([0, 1, 2].map(|epoch| code(FOLLOWER, epoch)), [74, 6, 75]);
}

#[test]
fn a_fetch_that_waits_is_answered_when_its_partition_has_another_leader() {
    for (role, code) in [(FOLLOWER, 6), (PartitionRole::Offline, 56)] {
        let (running, mut reader, _other) = start_waiting(&Wanted::default());
        running.set_role(role);
        assert_eq!(fetched(&reader.receive()).code, code);
    }
}

#[test]
fn a_parked_produce_whose_partition_has_another_leader_meanwhile_is_told_so() {
    let running = start(&options());
    let mut client = running.connect();
    let mine = batch_of(5, true, b"mine");
    client.send(&produce_to(TOPIC, Some("t5"), -1, &[(0, &mine)]));
    let parked = running.take_join();
    running.rules.0.lock().unwrap().joined.insert(5);
    running.set_role(FOLLOWER);
    running.server.resume(parked.token, vec![]);
    assert_eq!(produced(&client.receive()), [(6, -1)]);
    assert_eq!(running.log.state().log_end_offset, 0);
}

/// A server whose partition 0 has other replicas: its high watermark is set by hand.
fn start_replicated() -> Running {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    running.log.set_role(Role::Leader, 0);
    running
}

/// Produce 8 with another timeout.
fn produce_within(timeout_ms: i32, acks: i16, parts: &[(i32, &[u8])]) -> Vec<u8> {
    let mut frame = produce_to(TOPIC, None, acks, parts);
    let at = 4 + 12 + 2 + 2; // length, header with its client id, transactional id, acks
    frame[at..at + 4].copy_from_slice(&timeout_ms.to_be_bytes());
    frame
}

#[test]
fn acks_all_is_answered_when_the_high_watermark_has_passed_its_batch_and_acks_1_at_once() {
    let running = start_replicated();
    let (mut all, mut one) = (running.connect(), running.connect());
    all.send(&produce_within(60_000, -1, &[(0, &batch(b"all"))]));
    settle(&running, &mut one);
    assert_eq!(produced(&one.ask(&produce(1, &batch(b"one")))), [(0, 1)]);
    assert_eq!(fetched(&one.ask(&fetch(&Wanted::default()))).records, b"");
    assert!(all.has_nothing());
    running.log.raise_high_watermark(1);
    assert_eq!(produced(&all.receive()), [(0, 0)]);
    let shown = fetched(&one.ask(&fetch(&Wanted::default())));
    assert_eq!(shown.records, stored(&batch(b"all"), 0));
    assert_eq!(running.log.watcher_count(), 0);
}

#[test]
fn acks_all_that_is_not_replicated_in_time_is_timed_out_and_stays_stored() {
    let running = start_replicated();
    let mut client = running.connect();
    let parts: [(i32, &[u8]); 2] = [(0, &batch(b"x")), (1, &batch(b"y"))];
    for (timeout_ms, offset) in [(30, 0), (0, 1), (-1, 2)] {
        let answer = client.ask(&produce_within(timeout_ms, -1, &parts));
        assert_eq!(produced(&answer), [(7, offset), (0, offset)]);
    }
    assert_eq!(running.log.state().log_end_offset, 3);
    assert_eq!(running.log.watcher_count(), 0);
    running.log.raise_high_watermark(3);
    assert_eq!(produced(&client.ask(&produce(1, &batch(b"z")))), [(0, 3)]);
}

#[test]
fn a_repeated_batch_waits_for_the_high_watermark_as_the_first_did() {
    let running = start_replicated();
    let mut client = running.connect();
    let repeated = batch_of(REPEATER, false, b"x");
    let answer = client.ask(&produce_within(30, -1, &[(0, &repeated)]));
    assert_eq!(produced(&answer), [(7, 99)]);
}

#[test]
fn acks_all_is_told_when_its_leader_is_another_before_the_high_watermark_comes() {
    for (role, code) in [(FOLLOWER, 6), (PartitionRole::Offline, 56)] {
        let running = start_replicated();
        let (mut client, mut other) = (running.connect(), running.connect());
        client.send(&produce_within(60_000, -1, &[(0, &batch(b"x"))]));
        settle(&running, &mut other);
        running.set_role(role);
        assert_eq!(produced(&client.receive())[0].0, code);
        assert_eq!(running.log.watcher_count(), 0);
    }
}

#[test]
fn a_client_that_leaves_while_it_waits_for_the_high_watermark_is_forgotten() {
    let running = start_replicated();
    let (mut client, mut other) = (running.connect(), running.connect());
    client.send(&produce_within(60_000, -1, &[(0, &batch(b"x"))]));
    settle(&running, &mut other);
    assert_eq!(running.log.watcher_count(), 1);
    // With unread bytes in it the socket is reset when it is closed.
    client.send(&produce(1, &batch(b"never read")));
    other.send(&control(1));
    let token = running.take_request().token;
    running.server.reply(token, false, b"");
    drop(client);
    running.log.raise_high_watermark(1);
    while running.log.watcher_count() > 0 {
        settle(&running, &mut other);
    }
}

#[test]
fn with_sync_acks_all_a_batch_waits_for_the_disk_and_for_its_replicas() {
    let running = start(&Options {
        reactors: 1,
        sync_acks_all: true,
        ..options()
    });
    running.log.set_role(Role::Leader, 0);
    let mut client = running.connect();
    let answer = client.ask(&produce_within(100, -1, &[(0, &batch(b"x"))]));
    assert_eq!(produced(&answer), [(7, 0)]);
    running.log.raise_high_watermark(1);
    client.send(&produce_within(60_000, -1, &[(0, &batch(b"y"))]));
    while running.log.state().log_end_offset < 2 {
        std::thread::yield_now();
    }
    running.log.raise_high_watermark(2);
    assert_eq!(produced(&client.receive()), [(0, 1)]);
    assert_eq!(running.log.recovery_point(), 2);
}

#[test]
fn a_role_of_a_partition_that_does_not_exist_is_refused() {
    let running = start(&options());
    for (topic, partition) in [(TOPIC, 2), (TOPIC, -1), ("unknown", 0)] {
        let refused = running.server.set_role(topic, partition, FOLLOWER);
        assert_eq!(refused, Err(3));
    }
}

// ---------------------------------------------------------------- Python's requests

#[test]
fn a_request_for_python_arrives_with_its_header_and_its_answer_goes_back() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&header(3, 0, 42).i32(7).frame());
    let request = running.take_request();
    assert_eq!(
        (request.api_key, request.api_version, request.correlation_id),
        (3, 0, 42)
    );
    assert_eq!(request.client_id.as_deref(), Some("me"));
    assert_eq!(
        (&request.body[..], &*request.client_host),
        (&[0, 0, 0, 7][..], "127.0.0.1")
    );
    running.server.reply(request.token, false, b"body");
    assert_eq!(
        client.receive(),
        [&42_i32.to_be_bytes()[..], b"body"].concat()
    );

    client.send(&header(3, 9, 43).i8(0).frame());
    let request = running.take_request();
    assert_eq!(request.body, b"");
    running.server.reply(request.token, true, b"body");
    assert_eq!(
        client.receive(),
        [&43_i32.to_be_bytes()[..], b"\0body"].concat()
    );
}

#[test]
fn answers_keep_the_order_of_requests_even_when_python_takes_its_time() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&[control(1), produce(1, &batch(b"x")), control(2)].concat());
    let first = running.take_request();
    assert_eq!(running.log.state().log_end_offset, 0);
    running.server.reply(first.token, false, b"first");
    assert_eq!(client.receive()[..4], 1_i32.to_be_bytes());
    assert_eq!(produced(&client.receive()), [(0, 0)]);
    let second = running.take_request();
    running.server.reply(second.token, false, b"second");
    assert_eq!(client.receive()[..4], 2_i32.to_be_bytes());
}

#[test]
fn frames_that_come_together_are_answered_in_order_whatever_waits_between_them() {
    let running = start(&options());
    let mut client = running.connect();
    let small = |value: &[u8]| produce(1, &batch(value));
    let frames = [
        small(b"a"),
        small(b"b"),
        control(7),
        small(b"c"),
        small(b"d"),
    ];
    client.send(&frames.concat());
    assert_eq!(produced(&client.receive()), [(0, 0)]);
    assert_eq!(produced(&client.receive()), [(0, 1)]); // not held up by one that waits for Python
    let request = running.take_request();
    running.server.reply(request.token, false, b"seven");
    assert_eq!(client.receive()[4..], *b"seven");
    assert_eq!(produced(&client.receive()), [(0, 2)]);
    assert_eq!(produced(&client.receive()), [(0, 3)]);
    assert!(client.has_nothing());
}

#[test]
fn what_came_before_a_frame_that_costs_the_connection_is_answered() {
    let running = start(&options());
    let mut client = running.connect();
    let bad = header(999, 0, 1).frame();
    client.send(&[produce(1, &batch(b"x")), bad, produce(1, &batch(b"y"))].concat());
    assert_eq!(produced(&client.receive()), [(0, 0)]);
    assert!(client.is_closed());
    assert_eq!(running.log.state().log_end_offset, 1);
}

#[test]
fn an_answer_that_comes_twice_or_too_late_is_dropped() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let mut client = running.connect();
    client.send(&control(1));
    let gone = running.take_request().token;
    running.server.disconnect(gone);
    assert!(client.is_closed());
    let mut next = running.connect(); // takes the same slot
    next.send(&control(2));
    let request = running.take_request();
    running.server.reply(gone, false, b"late");
    running.server.resume(gone, vec![]);
    running.server.disconnect(gone);
    running.server.reply(request.token, false, b"mine");
    running.server.reply(request.token, false, b"twice");
    assert_eq!(next.receive()[4..], *b"mine");
    assert_eq!(produced(&next.ask(&produce(1, &batch(b"x")))), [(0, 0)]);
}

#[test]
fn an_answer_before_a_disconnect_is_sent_in_full() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&control(1));
    let request = running.take_request();
    let body = vec![7; 8 << 20];
    running.server.reply(request.token, false, &body);
    running.server.disconnect(request.token);
    assert!(client.receive()[4..] == body);
    assert!(client.is_closed());
}

// ---------------------------------------------------------------- muted connections, listeners

#[test]
fn a_muted_connection_is_answered_and_not_read_until_its_time_is_over() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let (mut muted, mut other) = (running.connect(), running.connect());
    muted.send(&[control(1), produce(1, &batch(b"late"))].concat());
    let request = running.take_request();
    let began = Instant::now();
    running
        .server
        .mute(request.token, Duration::from_millis(300));
    running.server.mute(request.token, Duration::from_millis(1)); // shorter: it does not count
    running.server.reply(request.token, false, b"one");
    assert_eq!(muted.receive()[4..], *b"one");
    settle(&running, &mut other);
    assert_eq!(produced(&other.ask(&produce(1, &batch(b"x")))), [(0, 0)]);

    assert_eq!(produced(&muted.receive()), [(0, 1)]);
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(produced(&muted.ask(&produce(1, &batch(b"y")))), [(0, 2)]);
}

#[test]
fn a_muted_connection_is_idle_only_if_that_lasts_longer_than_it_may_be() {
    let running = start(&Options {
        max_idle: Some(Duration::from_millis(500)),
        ..options()
    });
    let mute = |duration| {
        let mut client = running.connect();
        client.send(&control(1));
        let request = running.take_request();
        running.server.mute(request.token, duration);
        running.server.reply(request.token, false, b"one");
        client.receive();
        client
    };
    let mut for_long = mute(Duration::from_secs(600));
    let mut for_short = mute(Duration::from_millis(900));
    assert!(for_long.is_closed(), "after the time of an idle one");
    assert!(for_short.has_nothing());
    let answer = for_short.ask(&produce(1, &batch(b"x")));
    assert_eq!(produced(&answer), [(0, 0)]);
}

#[test]
fn a_muted_connection_is_closed_at_a_stop() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&control(1));
    let request = running.take_request();
    running.server.mute(request.token, Duration::from_secs(600));
    running.server.reply(request.token, false, b"one");
    client.receive();
    drop(running); // joins the reactors
    assert!(client.is_closed());
}

#[test]
fn a_mute_that_comes_after_the_answer_changes_nothing() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&control(1));
    let request = running.take_request();
    running.server.reply(request.token, false, b"one");
    running.server.mute(request.token, Duration::from_secs(600));
    client.receive();
    assert_eq!(produced(&client.ask(&produce(1, &batch(b"x")))), [(0, 0)]);
}

#[test]
fn a_request_names_the_listener_its_connection_came_to() {
    let listeners = [listener("CLIENTS"), listener("BROKERS")];
    let server = Arc::new(bind(&listeners, options()).unwrap());
    let reactors = [0, 1].map(|index| {
        let server = Arc::clone(&server);
        std::thread::spawn(move || server.run_reactor(index))
    });
    let names: Vec<_> = server.listeners().iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["CLIENTS", "BROKERS"]);
    for index in [0, 1, 0, 1] {
        let socket = TcpStream::connect(server.listeners()[index].address).unwrap();
        let mut client = Client { socket };
        client.send(&control(1));
        let mut wakeup = [PollFd::from_borrowed_fd(server.wakeup_fd(), PollFlags::IN)];
        poll(&mut wakeup, None).unwrap();
        let request = server.take().pop().unwrap();
        assert_eq!(request.listener, index);
        server.reply(request.token, false, b"");
        client.receive();
    }
    server.stop();
    for reactor in reactors {
        assert!(reactor.join().unwrap().is_ok());
    }
}

// ---------------------------------------------------------------- decisions

/// `EndTxn` 0, which reactors decide on if they may.
const DECIDED: i16 = 26;

fn decided(correlation_id: i32) -> Vec<u8> {
    header(DECIDED, 0, correlation_id).i32(0).frame()
}

/// The threads that decided, one entry for each request.
type Deciders = Arc<Mutex<Vec<ThreadId>>>;

/// Lets reactors decide: requests are answered with "here", parked ones may join.
fn let_reactors_decide(running: &Running) -> Deciders {
    let deciders = Deciders::default();
    let noted = Arc::clone(&deciders);
    let server = Arc::downgrade(&running.server);
    let rules = Arc::clone(&running.rules);
    let decide = move |requests: Vec<ControlRequest>, joins: Vec<ParkedProduce>| {
        let me = std::thread::current().id();
        let server = server.upgrade().expect("it runs");
        for request in requests {
            noted.lock().unwrap().push(me);
            server.reply(request.token, false, b"here");
        }
        for parked in joins {
            noted.lock().unwrap().push(me);
            rules
                .0
                .lock()
                .unwrap()
                .joined
                .insert(parked.join.producer_id);
            server.resume(parked.token, vec![]);
        }
        true
    };
    running
        .server
        .let_reactors_decide(vec![DECIDED], Box::new(decide));
    deciders
}

fn threads_of(deciders: &Deciders) -> (usize, HashSet<ThreadId>) {
    let deciders = deciders.lock().unwrap();
    (deciders.len(), deciders.iter().copied().collect())
}

#[test]
fn while_the_control_lock_is_free_reactors_decide_and_other_requests_go_to_python() {
    let running = start(&options());
    let deciders = let_reactors_decide(&running);
    let mut client = running.connect();
    client.send(&[decided(1), control(2), decided(3)].concat());
    assert_eq!(
        client.receive(),
        [&1_i32.to_be_bytes()[..], b"here"].concat()
    );
    let request = running.take_request();
    assert_eq!(request.correlation_id, 2);
    running.server.reply(request.token, false, b"there");
    assert_eq!(
        client.receive(),
        [&2_i32.to_be_bytes()[..], b"there"].concat()
    );
    assert_eq!(
        client.receive(),
        [&3_i32.to_be_bytes()[..], b"here"].concat()
    );
    assert_eq!(threads_of(&deciders).0, 2);
    assert!(running.server.take().is_empty());
}

#[test]
fn while_the_control_lock_is_held_requests_of_reactors_wait_for_python() {
    let running = start(&options());
    let deciders = let_reactors_decide(&running);
    let [mut asking, mut joining] = running.accepted();
    running.server.take_control_lock();
    asking.send(&decided(1));
    let request = running.take_request();
    joining.send(&produce_to(
        TOPIC,
        Some("t5"),
        -1,
        &[(0, &batch_of(5, true, b"mine"))],
    ));
    let parked = running.take_join();
    assert_eq!(threads_of(&deciders).0, 0);
    running.rules.0.lock().unwrap().joined.insert(5);
    running.server.resume(parked.token, vec![]);
    running.server.reply(request.token, false, b"there");
    assert_eq!(asking.receive()[4..], *b"there");
    assert_eq!(produced(&joining.receive()), [(0, 0)]);
    running.server.release_control_lock();
    assert_eq!(asking.ask(&decided(2))[4..], *b"here");
}

#[test]
fn a_client_that_is_decided_for_is_served_by_one_reactor_from_then_on() {
    let running = start(&options());
    let deciders = let_reactors_decide(&running);
    let mut clients: [Client; 6] = running.accepted();
    for (id, client) in (0_i64..).zip(&mut clients) {
        let mine = batch_of(id, true, b"mine");
        if id % 3 == 0 {
            assert_eq!(client.ask(&decided(7))[4..], *b"here");
        }
        let write = produce_to(TOPIC, Some("t"), -1, &[(0, &mine)]);
        assert_eq!(produced(&client.ask(&write)), [(0, id)]);
    }
    let (count, threads) = threads_of(&deciders);
    assert_eq!((count, threads.len()), (8, 1));
    // Frames sent together with the frame that moved it are answered, in order.
    let mut mover = running.accepted::<2>();
    for client in &mut mover {
        client.send(&[decided(1), produce(1, &batch(b"x")), decided(2)].concat());
        assert_eq!(client.receive()[4..], *b"here");
        assert_eq!(produced(&client.receive()).len(), 1);
        assert_eq!(client.receive()[4..], *b"here");
    }
    assert_eq!(threads_of(&deciders).1.len(), 1);
}

#[test]
fn large_batches_of_a_transaction_are_stored_by_the_reactor_they_came_to() {
    let running = start(&options());
    let deciders = let_reactors_decide(&running);
    let mut clients: [Client; 4] = running.accepted();
    for (id, client) in (0_i64..).zip(&mut clients) {
        let large = batch_of(id, true, &vec![b'x'; 100 << 10]);
        let write = produce_to(TOPIC, Some("t"), -1, &[(0, &large)]);
        assert_eq!(produced(&client.ask(&write)), [(0, id)]);
    }
    let (count, threads) = threads_of(&deciders);
    assert_eq!((count, threads.len()), (4, 2));
}

const WAIT: Duration = Duration::from_secs(20);

/// Lets the reactor settle; returns the bell, and the threads that settled: `None`, the loop.
fn let_reactors_settle(running: &Running) -> (Bell, mpsc::Receiver<Option<ThreadId>>) {
    let (tell, settled) = mpsc::channel();
    let leave = tell.clone();
    let bell = running.server.let_reactors_settle(Settler {
        settle: Box::new(move || {
            let _ = tell.send(Some(std::thread::current().id()));
        }),
        leave: Box::new(move || {
            let _ = leave.send(None);
        }),
    });
    (bell, settled)
}

#[test]
fn waits_that_ended_are_settled_by_the_reactor_that_decides_while_the_control_lock_is_free() {
    let running = start(&options());
    let deciders = let_reactors_decide(&running);
    let (bell, settled) = let_reactors_settle(&running);
    assert_eq!(running.connect().ask(&decided(1))[4..], *b"here");
    let [decider] = deciders.lock().unwrap()[..] else {
        panic!("it was decided once");
    };
    assert!(bell());
    assert_eq!(settled.recv_timeout(WAIT).unwrap(), Some(decider));

    running.server.take_control_lock();
    assert!(bell());
    assert_eq!(settled.recv_timeout(WAIT).unwrap(), None);
    running.server.release_control_lock();
    assert!(bell());
    assert_eq!(settled.recv_timeout(WAIT).unwrap(), Some(decider));
}

#[test]
fn waits_that_end_after_the_reactors_are_left_to_the_control_loop() {
    let running = start(&options());
    let (bell, settled) = let_reactors_settle(&running);
    running.server.stop();
    // A bell that rang unheard is made up for.
    assert_eq!(settled.recv_timeout(WAIT).unwrap(), None);
    assert!(!bell());
}

#[test]
fn a_bug_in_settling_is_told_and_harms_nobody() {
    let running = start(&options());
    let bell = running.server.let_reactors_settle(Settler {
        settle: Box::new(|| panic!("a bug")),
        leave: Box::new(|| ()),
    });
    assert!(bell());
    let failures = || running.server.take_failures();
    let told = std::iter::repeat_with(failures).find(|failures| !failures.is_empty());
    assert_eq!(told.unwrap(), ["a bug"]);
    running.server.take_control_lock(); // it was released
    running.server.release_control_lock();
}

#[test]
fn what_nobody_will_answer_costs_its_connection() {
    let running = start(&options());
    running
        .server
        .let_reactors_decide(vec![DECIDED], Box::new(|_, _| false));
    let [mut asking, mut joining, mut other] = running.accepted();
    asking.send(&decided(1));
    assert!(asking.is_closed());
    joining.send(&produce_to(
        TOPIC,
        Some("t5"),
        -1,
        &[(0, &batch_of(5, true, b"mine"))],
    ));
    assert!(joining.is_closed());
    assert_eq!(produced(&other.ask(&produce(1, &batch(b"x")))), [(0, 0)]);
}

#[test]
fn a_request_that_takes_long_to_decide_goes_to_python() {
    // The story: for every 3 MB of AddPartitionsToTxn the reactor served nobody for two seconds.
    let running = start(&options());
    let deciders = let_reactors_decide(&running);
    for client in &mut running.accepted::<2>() {
        let long = header(DECIDED, 0, 1).raw(&[0; 5 << 10]).frame();
        client.send(&long);
        let request = running.take_request();
        running.server.reply(request.token, false, b"there");
        assert_eq!(client.receive()[4..], *b"there");
        assert_eq!(client.ask(&decided(2))[4..], *b"here");
    }
    assert_eq!(threads_of(&deciders).0, 2);
}

#[test]
fn a_panic_in_a_decision_costs_the_asking_client_and_leaves_the_control_lock_to_others() {
    // The story: it ended the reactor, and the loop waited for the control lock for good; so did
    // the closing of the broker.
    let running = start(&options());
    let server = Arc::downgrade(&running.server);
    let decide = move |requests: Vec<ControlRequest>, _: Vec<ParkedProduce>| {
        for request in requests {
            assert_ne!(request.correlation_id, 1, "a bug of Python's");
            let server = server.upgrade().expect("it runs");
            server.reply(request.token, false, b"here");
        }
        true
    };
    let api_keys = vec![DECIDED];
    running
        .server
        .let_reactors_decide(api_keys, Box::new(decide));
    let [mut asking, mut other] = running.accepted();
    asking.send(&decided(1));
    assert!(asking.is_closed());
    let failures = running.server.take_failures();
    assert!(failures[0].contains("a bug of Python's"), "{failures:?}");
    assert_eq!(other.ask(&decided(2))[4..], *b"here");
    running.server.take_control_lock();
    running.server.release_control_lock();
}

// ---------------------------------------------------------------- bad input

/// Sends bytes that must cost their connection, and only that.
fn costs_the_connection(bytes: &[u8]) {
    let running = start(&options());
    let (mut good, mut bad) = (running.connect(), running.connect());
    bad.send(bytes);
    assert!(bad.is_closed());
    assert_eq!(produced(&good.ask(&produce(1, &batch(b"x")))), [(0, 0)]);
}

#[test]
fn a_length_of_2_gigabytes_costs_the_connection() {
    costs_the_connection(&[0x7f, 0xff, 0xff, 0xff, 0, 0]);
}

#[test]
fn a_negative_length_costs_the_connection() {
    costs_the_connection(&[0xff, 0xff, 0xff, 0xff]);
}

#[test]
fn a_frame_too_short_for_a_header_costs_the_connection() {
    costs_the_connection(&[0, 0, 0, 0]);
}

#[test]
fn an_api_that_does_not_exist_costs_the_connection() {
    costs_the_connection(&header(999, 0, 1).frame());
}

#[test]
fn a_version_of_produce_that_is_not_served_costs_the_connection() {
    costs_the_connection(&header(0, 2, 1).frame());
    costs_the_connection(&header(1, 19, 1).i8(0).frame());
}

#[test]
fn another_protocol_costs_the_connection() {
    costs_the_connection(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

#[test]
fn a_produce_that_is_cut_costs_the_connection_and_stores_nothing() {
    let running = start(&options());
    let mut client = running.connect();
    let whole = produce_to(TOPIC, None, 1, &[(0, &batch(b"one")), (1, &batch(b"two"))]);
    let cut = Bytes(whole[4..whole.len() - 1].to_vec()).frame();
    client.send(&cut);
    assert!(client.is_closed());
    assert_eq!(running.log.state().log_end_offset, 0);
}

#[test]
fn a_frame_that_comes_byte_by_byte_is_answered() {
    let running = start(&options());
    let mut client = running.connect();
    client.socket.set_nodelay(true).unwrap();
    for byte in produce(1, &batch(b"slow")) {
        client.send(&[byte]);
    }
    assert_eq!(produced(&client.receive()), [(0, 0)]);
}

#[test]
fn half_frames_and_silence_hold_up_nobody() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let mut halves: Vec<Client> = (0..20).map(|_| running.connect()).collect();
    let frame = produce(1, &batch(b"x"));
    for client in &mut halves {
        client.send(&frame[..frame.len() / 2]);
    }
    assert_eq!(produced(&running.connect().ask(&frame)), [(0, 0)]);
    halves[7].send(&frame[frame.len() / 2..]);
    assert_eq!(produced(&halves[7].receive()), [(0, 1)]);
}

/// A server with one reactor, whose requests may hold 100,000 bytes.
fn start_with_little_memory() -> Running {
    start(&Options {
        reactors: 1,
        max_queued_bytes: Some(100_000),
        ..options()
    })
}

/// The halves of a Produce whose frame is larger than all that requests may hold.
fn large_halves() -> (Vec<u8>, Vec<u8>) {
    let mut frame = produce(1, &batch(&vec![7; 900_000]));
    let rest = frame.split_off(frame.len() / 2);
    (frame, rest)
}

fn small_halves() -> (Vec<u8>, Vec<u8>) {
    let mut frame = produce(1, &batch(b"x"));
    let rest = frame.split_off(frame.len() / 2);
    (frame, rest)
}

#[test]
fn while_requests_hold_all_they_may_none_is_begun_and_those_begun_go_on() {
    let running = start_with_little_memory();
    let [mut begun, mut holder, mut waiting] = running.accepted();
    let ((large, large_rest), (small, small_rest)) = (large_halves(), small_halves());
    begun.send(&small);
    holder.send(&large);
    waiting.send(&[&small[..], &small_rest].concat());
    begun.send(&small_rest);
    assert_eq!(produced(&begun.receive()), [(0, 0)]);
    assert!(waiting.has_nothing());

    holder.send(&large_rest);

    assert_eq!(produced(&holder.receive()), [(0, 1)]);
    assert_eq!(produced(&waiting.receive()), [(0, 2)]);
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_request_gives_its_memory_back() {
    let running = start_with_little_memory();
    let [mut begun, mut holder, mut waiting] = running.accepted();
    let ((large, _), (small, small_rest)) = (large_halves(), small_halves());
    begun.send(&small);
    holder.send(&large);
    waiting.send(&[&small[..], &small_rest].concat());
    begun.send(&small_rest);
    assert_eq!(produced(&begun.receive()), [(0, 0)]);
    assert!(waiting.has_nothing());

    drop(holder);

    assert_eq!(produced(&waiting.receive()), [(0, 1)]);
}

/// Two connections in the middle of a small request, and one that found no memory to begin. The
/// requests before hold it all, and are not being read. The first of the two is done with.
fn starved(running: &Running, hold: impl FnOnce(&mut Client)) -> (Client, [Client; 3]) {
    let [mut first, second, mut holder, mut waiting] = running.accepted();
    let mut reading = second;
    let (small, small_rest) = small_halves();
    first.send(&small);
    reading.send(&small);
    hold(&mut holder);
    waiting.send(&[&small[..], &small_rest].concat());
    first.send(&small_rest);
    assert_eq!(produced(&first.receive())[0].0, 0);
    assert!(waiting.has_nothing());
    (waiting, [first, reading, holder])
}

#[test]
fn a_request_holds_memory_until_python_takes_it() {
    let running = start_with_little_memory();
    let padded = header(3, 0, 1).i32(0).raw(&vec![0; 200_000]).frame();
    let (mut waiting, _others) = starved(&running, |holder| {
        holder.send(&padded);
        running.wait_for_control();
    });

    running.take_request();

    assert_eq!(produced(&waiting.receive()), [(0, 1)]);
}

#[test]
fn a_parked_produce_holds_memory_until_it_goes_on() {
    let running = start_with_little_memory();
    let batch = batch_of(5, true, &vec![7; 200_000]);
    let mut parked = None;
    let (mut waiting, _others) = starved(&running, |holder| {
        holder.send(&produce_to(TOPIC, Some("t5"), -1, &[(0, &batch)]));
        parked = Some(running.take_join().token);
    });

    running.rules.0.lock().unwrap().joined.insert(5);
    running.server.resume(parked.unwrap(), Vec::new());

    assert_eq!(produced(&waiting.receive()), [(0, 2)]);
}

#[test]
fn while_no_request_is_being_read_one_is_begun_whatever_others_hold() {
    let running = start_with_little_memory();
    let [mut holder, mut begun, mut waiting] = running.accepted();
    let ((large, large_rest), (small, small_rest)) = (large_halves(), small_halves());
    holder.send(&header(3, 0, 1).i32(0).raw(&vec![0; 200_000]).frame());
    running.wait_for_control();
    begun.send(&large);
    waiting.send(&[&small[..], &small_rest].concat());

    begun.send(&large_rest);

    assert_eq!(produced(&begun.receive()), [(0, 0)]);
    assert_eq!(produced(&waiting.receive()), [(0, 1)]);
}

#[test]
fn many_large_requests_that_come_slowly_and_together_are_all_answered() {
    let running = start(&Options {
        max_queued_bytes: Some(1 << 20),
        ..options()
    });
    let frame = produce(1, &batch(&vec![7; 900_000]));
    let codes = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..30)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = running.connect();
                    for _ in 0..2 {
                        for slice in frame.chunks(50_000) {
                            client.send(slice);
                        }
                    }
                    [(); 2].map(|()| produced(&client.receive())[0].0)
                })
            })
            .collect();
        let answers = clients.into_iter().map(|client| client.join().unwrap());
        answers.collect::<Vec<_>>()
    });
    assert_eq!(codes, [[0, 0]; 30]);
    assert_eq!(running.log.state().log_end_offset, 60);
}

#[test]
fn a_client_that_waits_for_memory_is_not_idle() {
    let running = start(&Options {
        reactors: 1,
        max_queued_bytes: Some(100_000),
        max_idle: Some(Duration::from_millis(300)),
        ..options()
    });
    let [mut holder, mut waiting] = running.accepted();
    let ((large, _), (small, small_rest)) = (large_halves(), small_halves());
    holder.send(&large);
    waiting.send(&[&small[..], &small_rest].concat());

    assert!(holder.is_closed());
    assert_eq!(produced(&waiting.receive()), [(0, 0)]);
}

#[test]
fn a_client_that_reads_nothing_holds_up_nobody() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let (mut greedy, mut good) = (running.connect(), running.connect());
    let large = batch(&vec![7; 900_000]);
    for _ in 0..10 {
        good.ask(&produce(1, &large));
    }
    let wanted = Wanted {
        max_bytes: 40 << 20,
        ..Wanted::default()
    };
    let many: Vec<u8> = (0..50).flat_map(|_| fetch(&wanted)).collect();
    greedy.send(&many);
    assert_eq!(produced(&good.ask(&produce(1, &batch(b"x")))), [(0, 10)]);
    assert!(fetched(&greedy.receive()).records.len() >= 10 * large.len());
}

#[test]
fn connections_without_descriptors_are_closed_and_leave_room_when_others_go() {
    let running = start(&Options {
        reactors: 1,
        max_connections: 1,
        ..options()
    });
    let mut first = running.connect();
    assert_eq!(produced(&first.ask(&produce(1, &batch(b"x")))), [(0, 0)]);
    assert!(running.connect().is_closed());
    first.send(&[0xff; 4]);
    assert!(first.is_closed());
    assert_eq!(
        produced(&running.connect().ask(&produce(1, &batch(b"x")))),
        [(0, 1)]
    );
}

// ---------------------------------------------------------------- limits on connections

const HERE: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Counts of a listener by reason, without zeros.
fn counted(server: &Server, listener: usize, which: fn(ListenerCounts) -> Counts) -> Counts {
    let counts = server.metrics().listeners.swap_remove(listener);
    let counts = which((counts.refused, counts.closed)).into_iter();
    counts.filter(|(_, count)| *count > 0).collect()
}

type Counts = Vec<(&'static str, u64)>;
type ListenerCounts = (Counts, Counts);

fn refused(counts: ListenerCounts) -> Counts {
    counts.0
}

fn closed(counts: ListenerCounts) -> Counts {
    counts.1
}

/// True once a client is answered.
fn serves(client: &mut Client) -> bool {
    !client.ask(&produce_to("unknown", None, 1, &[])).is_empty()
}

#[test]
fn a_connection_beyond_max_connections_is_served_once_another_has_left() {
    let running = start(&options());
    running.server.limit_connections(ConnectionLimits {
        max_connections: 1,
        ..ConnectionLimits::default()
    });
    let mut first = running.connect();
    assert!(serves(&mut first));
    let (mut second, mut third) = (running.connect(), running.connect());
    for client in [&mut second, &mut third] {
        client.send(&produce_to("unknown", None, 1, &[]));
    }
    assert!(serves(&mut first));
    assert!(second.has_nothing() && third.has_nothing());

    drop(first);
    second.receive();
    assert!(third.has_nothing());
    drop(second);
    third.receive();
    assert_eq!(counted(&running.server, 0, refused), []);
    assert!(running.server.metrics().listeners[0].blocked_s > 0.0);
}

#[test]
fn a_raised_limit_lets_in_those_that_wait() {
    let running = start(&options());
    let limited_to = |max_connections| ConnectionLimits {
        max_connections,
        ..ConnectionLimits::default()
    };
    running.server.limit_connections(limited_to(1));
    let mut first = running.connect();
    assert!(serves(&mut first));
    let mut second = running.connect();
    second.send(&produce_to("unknown", None, 1, &[]));
    assert!(serves(&mut first) && second.has_nothing());

    running.server.limit_connections(limited_to(2));

    second.receive();
}

#[test]
fn a_lowered_limit_closes_the_connections_that_were_used_least() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let [mut first, mut second, mut third] = running.accepted();
    assert!(serves(&mut third) && serves(&mut first));

    running.server.limit_connections(ConnectionLimits {
        max_connections: 2,
        ..ConnectionLimits::default()
    });

    assert!(second.is_closed());
    assert!(serves(&mut first) && serves(&mut third));
    assert_eq!(
        counted(&running.server, 0, closed),
        [("max_connections", 1)]
    );
}

#[test]
fn one_address_may_have_so_many_connections_and_its_override() {
    let running = start(&options());
    let limits = ConnectionLimits {
        max_per_ip: 1,
        ..ConnectionLimits::default()
    };
    running.server.limit_connections(limits.clone());
    let mut first = running.connect();
    assert!(serves(&mut first));
    assert!(running.connect().is_closed());
    running.wait_for_control();
    let told = running.server.take_refused().pop().unwrap();
    assert_eq!((told.listener, &*told.client_host), (0, "127.0.0.1"));
    assert_eq!(told.reason, "max_connections_per_ip");

    running.server.limit_connections(ConnectionLimits {
        overrides: [(HERE, 2)].into(),
        ..limits
    });

    let mut second = running.connect();
    assert!(serves(&mut second));
    assert!(running.connect().is_closed());
    let expected = [("max_connections_per_ip", 2)];
    assert_eq!(counted(&running.server, 0, refused), expected);
}

#[test]
fn connections_that_come_faster_than_their_rate_wait_for_their_turn() {
    let running = start(&options());
    running.server.limit_connections(ConnectionLimits {
        creation_rate: 1,
        ..ConnectionLimits::default()
    });
    let began = Instant::now();
    let mut clients: Vec<_> = (0..10).map(|_| running.connect()).collect();
    assert!(clients.iter_mut().all(serves));
    assert!(began.elapsed() < Duration::from_millis(900));
    let mut next = running.connect();
    assert!(serves(&mut next));
    assert!(began.elapsed() >= Duration::from_millis(900));
}

#[test]
fn an_address_that_connects_too_often_is_closed_after_a_while_and_others_are_not_held_up() {
    let running = start(&options());
    running.server.limit_creation_rates(CreationRates {
        default: None,
        of_addresses: [(HERE, 1.0)].into(),
    });
    let mut clients: Vec<_> = (0..10).map(|_| running.connect()).collect();
    assert!(clients.iter_mut().all(serves));
    let began = Instant::now();
    let mut late = running.connect();
    late.send(&produce_to("unknown", None, 1, &[]));
    assert!(serves(&mut clients[0]));
    assert!(late.has_nothing());
    assert!(late.is_closed());
    assert!(began.elapsed() >= Duration::from_millis(500));
    let expected = [("ip_connection_creation_rate", 1)];
    assert_eq!(counted(&running.server, 0, refused), expected);
}

#[test]
fn a_protected_listener_takes_the_place_of_the_least_used_connection_of_another() {
    let listeners = [listener("CLIENTS"), listener("BROKERS")];
    let options = Options {
        reactors: 1,
        ..options()
    };
    let server = Arc::new(bind(&listeners, options).unwrap());
    let reactor = std::thread::spawn({
        let server = Arc::clone(&server);
        move || server.run_reactor(0).expect("it runs")
    });
    let protected = ListenerLimits {
        is_protected: true,
        ..ListenerLimits::default()
    };
    server.limit_connections(ConnectionLimits {
        max_connections: 2,
        listeners: vec![ListenerLimits::default(), protected],
        ..ConnectionLimits::default()
    });
    let connect = |listener: usize| {
        let socket = TcpStream::connect(server.listeners()[listener].address).unwrap();
        let mut client = Client { socket };
        client.ask(&produce_to("unknown", None, 1, &[]));
        client
    };
    let (mut first, mut second) = (connect(0), connect(0));

    let mut broker = connect(1);

    assert!(first.is_closed());
    broker.ask(&produce_to("unknown", None, 1, &[]));
    second.ask(&produce_to("unknown", None, 1, &[]));
    server.stop();
    reactor.join().unwrap();
}

// ---------------------------------------------------------------- slow clients

/// Sends bytes of a request one at a time, until the server has closed the connection.
fn drip(client: &mut Client, request: &[u8]) {
    client.socket.set_nonblocking(true).unwrap();
    for byte in request {
        if client.socket.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        let peeked = client.socket.peek(&mut [0]);
        if !peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock) {
            break;
        }
    }
    client.socket.set_nonblocking(false).unwrap();
}

#[test]
fn a_request_that_comes_a_byte_at_a_time_does_not_keep_its_connection_open() {
    let running = start(&Options {
        max_idle: Some(Duration::from_millis(300)),
        ..options()
    });
    let mut slow = running.connect();
    let began = Instant::now();

    drip(&mut slow, &produce(1, &batch(&vec![7; 1_000])));

    assert!(slow.is_closed());
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(counted(&running.server, 0, closed), [("slow_request", 1)]);
    assert_eq!(running.log.state().log_end_offset, 0);
}

#[test]
fn a_client_that_takes_no_answer_is_closed_in_time() {
    let running = start(&Options {
        max_idle: Some(Duration::from_millis(300)),
        ..options()
    });
    let mut greedy = running.connect();
    let large = batch(&vec![7; 900_000]);
    for _ in 0..10 {
        running.connect().ask(&produce(1, &large));
    }
    let wanted = Wanted {
        max_bytes: 40 << 20,
        ..Wanted::default()
    };
    greedy.send(&fetch(&wanted).repeat(5));
    let deadline = Instant::now() + Duration::from_secs(10);
    while counted(&running.server, 0, closed) != [("slow_reader", 1)] {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_log_in_that_comes_a_byte_at_a_time_ends_with_its_time() {
    let running = start_on(
        sasl_listener(),
        &Options {
            login_timeout: Duration::from_millis(300),
            ..options()
        },
    );
    let mut slow = running.connect();
    let handshake = header(SASL_HANDSHAKE, 1, 5).text(&"x".repeat(900)).frame();
    let began = Instant::now();

    drip(&mut slow, &handshake);

    assert!(slow.is_closed());
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(counted(&running.server, 0, closed), [("slow_login", 1)]);
}

#[test]
fn a_log_in_that_waits_for_the_server_does_not_end_with_its_time() {
    let running = start_on(
        sasl_listener(),
        &Options {
            login_timeout: Duration::from_millis(100),
            ..options()
        },
    );
    let mut client = running.connect();
    client.send(&header(SASL_HANDSHAKE, 1, 5).text("PLAIN").frame());
    let token = running.take_request().token;
    std::thread::sleep(Duration::from_millis(400));
    running.server.authenticated(token, "User:alice", None);
    running.server.reply(token, false, b"in");
    client.receive();
    std::thread::sleep(Duration::from_millis(1_500)); // beyond the next look
    assert_eq!(produced(&client.ask(&produce(1, &batch(b"x")))), [(0, 0)]);
    assert_eq!(counted(&running.server, 0, closed), []);
}

#[test]
fn a_request_that_comes_slowly_loses_its_memory_to_those_that_wait() {
    let running = start(&Options {
        reactors: 1,
        max_queued_bytes: Some(100_000),
        memory_patience: Duration::from_millis(300),
        ..options()
    });
    let [mut slow, mut waiting] = running.accepted();
    let ((large, _), (small, small_rest)) = (large_halves(), small_halves());
    slow.send(&large[..1_000]);
    waiting.send(&[&small[..], &small_rest].concat());

    drip(&mut slow, &[0; 500]);

    assert!(slow.is_closed());
    assert_eq!(produced(&waiting.receive()), [(0, 0)]);
    assert_eq!(counted(&running.server, 0, closed), [("slow_request", 1)]);
}

#[test]
fn an_answer_that_nobody_takes_loses_its_memory_to_those_that_wait() {
    let running = start(&Options {
        reactors: 1,
        max_queued_bytes: Some(8 << 20),
        answer_patience: Duration::from_millis(300),
        ..options()
    });
    let [mut silent, mut waiting] = running.accepted();
    silent.send(&control(1));
    let request = running.take_request();
    assert!(running.server.has_room());
    running
        .server
        .reply(request.token, false, &vec![7; 32 << 20]);
    assert!(!running.server.has_room());

    assert_eq!(
        produced(&waiting.ask(&produce(1, &batch(b"x")))),
        [(0, 0)],
        "it waits until the other is closed"
    );

    assert_eq!(counted(&running.server, 0, closed), [("slow_reader", 1)]);
    assert!(running.server.take_room(), "the control loop is told");
    assert!(running.server.has_room());
}

#[test]
fn an_answer_that_is_taken_in_time_keeps_its_connection_while_others_wait() {
    let running = start(&Options {
        reactors: 1,
        max_queued_bytes: Some(8 << 20),
        ..options()
    });
    let [mut reader, mut waiting] = running.accepted();
    reader.send(&control(1));
    let request = running.take_request();
    running
        .server
        .reply(request.token, false, &vec![7; 32 << 20]);
    waiting.send(&produce(1, &batch(b"x")));

    assert_eq!(reader.receive().len(), 4 + (32 << 20));
    assert_eq!(produced(&waiting.receive()), [(0, 0)]);
    assert_eq!(counted(&running.server, 0, closed), []);
}

// ---------------------------------------------------------------- the end

#[test]
fn a_connection_that_says_nothing_for_too_long_is_closed_and_one_that_waits_is_not() {
    let running = start(&Options {
        max_idle: Some(Duration::from_millis(300)),
        ..options()
    });
    let mut waiting = running.connect();
    waiting.send(&control(1));
    let request = running.take_request();
    let mut silent = running.connect();
    let mut half = running.connect();
    half.send(&[0, 0]);

    assert!(silent.is_closed());
    assert!(half.is_closed());
    running.server.reply(request.token, false, b"late");
    assert!(waiting.receive().ends_with(b"late"));
    assert!(waiting.is_closed());
}

#[test]
fn a_panic_in_a_connections_turn_closes_it_alone_and_is_told() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let mut other = running.connect();
    let mut unlucky = running.connect();

    unlucky.send(&produce(1, &batch_of(BREAKER, false, b"x")));

    assert!(unlucky.is_closed());
    running.wait_for_control();
    assert_eq!(
        running.server.take_failures(),
        ["a bug of the producer_state"]
    );
    // The partition whose append was broken off takes no more; everything else goes on.
    let both = produce_to(TOPIC, None, 1, &[(0, &batch(b"y")), (1, &batch(b"y"))]);
    let answer = other.ask(&both);
    assert_eq!(produced(&answer), [(56, -1), (0, 0)]);
    let mut next = running.connect();
    let answer = next.ask(&produce_to(TOPIC, None, 1, &[(1, &batch(b"z"))]));
    assert_eq!(produced(&answer), [(0, 1)]);
}

#[test]
fn stopping_closes_every_connection_and_ends_the_reactors() {
    let running = start(&options());
    let mut clients: Vec<Client> = (0..4).map(|_| running.connect()).collect();
    clients[0].ask(&produce(1, &batch(b"x")));
    clients[1].send(&fetch(&Wanted {
        start: 1,
        max_wait_ms: 60_000,
        ..Wanted::default()
    }));
    drop(running); // joins the reactors
    assert!(clients[0].is_closed());
    assert!(clients[2].is_closed());
}

#[test]
fn a_reactor_runs_once() {
    let running = start(&options());
    running.connect().ask(&produce(1, &batch(b"x")));
    assert!(running.server.run_reactor(0).is_err());
    assert!(running.server.run_reactor(2).is_err());
}

#[test]
fn a_reactor_that_is_started_after_the_server_was_stopped_returns_at_once() {
    let server = bind(&[listener("PLAINTEXT")], options()).unwrap();
    server.stop();
    assert!(server.run_reactor(1).is_ok());
    assert!(TcpStream::connect(server.listeners()[0].address).is_err());
}

/// Authenticates a connection as a principal, by a handshake that Python answers at once.
fn authenticate(running: &Running, client: &mut Client, lifetime: Option<Duration>) {
    client.send(&header(SASL_HANDSHAKE, 1, 5).text("PLAIN").frame());
    let token = running.take_request().token;
    running.server.authenticated(token, "User:alice", lifetime);
    running.server.reply(token, false, b"in");
    client.receive();
}

#[test]
fn before_authentication_produce_and_fetch_cost_the_connection_and_store_nothing() {
    let running = start_sasl();
    for request in [produce(1, &batch(b"one")), fetch(&Wanted::default())] {
        let mut client = running.connect();
        client.send(&request);
        assert!(client.is_closed());
    }
    assert_eq!(running.log.state().log_end_offset, 0);
    assert_eq!(running.server.metrics().unauthenticated_connections, 2);
}

#[test]
fn after_authentication_the_same_connection_is_served() {
    let running = start_sasl();
    let mut client = running.connect();
    authenticate(&running, &mut client, None);
    let answer = client.ask(&produce(1, &batch(b"one")));
    assert_eq!(produced(&answer), [(0, 0), (0, -1)][..1]);
}

#[test]
fn requests_sent_behind_a_handshake_pass_only_if_it_succeeds() {
    let running = start_sasl();
    let mut client = running.connect();
    let handshake = header(SASL_HANDSHAKE, 1, 5).text("PLAIN").frame();
    client.send(&[handshake, produce(1, &batch(b"one"))].concat());
    let token = running.take_request().token;
    running.server.refuse(token, false, b"no");
    assert_eq!(client.receive(), [0, 0, 0, 5, b'n', b'o']);
    assert!(client.is_closed());
    assert_eq!(running.log.state().log_end_offset, 0);
}

#[test]
fn a_frame_that_is_large_for_sasl_is_refused_before_it_is_read_and_later_taken() {
    let running = start_sasl();
    let mut client = running.connect();
    client.send(&(1 + (1 << 10) as u32).to_be_bytes());
    assert!(client.is_closed());

    let mut client = running.connect();
    authenticate(&running, &mut client, None);
    let large = produce(1, &batch(&[7; 2 << 10]));
    assert_eq!(produced(&client.ask(&large))[0].0, 0);
}

#[test]
fn clients_that_have_not_authenticated_take_no_memory_from_those_that_have() {
    let options = Options {
        reactors: 1,
        max_sasl_bytes: 150_000,
        max_queued_bytes: Some(100_000),
        ..options()
    };
    let running = start_on(sasl_listener(), &options);
    let mut client = running.connect();
    authenticate(&running, &mut client, None);
    let mut stranger = running.connect();
    stranger.send(&[&150_000_u32.to_be_bytes()[..], &[0; 100]].concat());
    assert!(stranger.has_nothing());
    let answer = client.ask(&produce(1, &batch(b"one")));
    assert_eq!(produced(&answer), [(0, 0)]);

    let mut other = running.connect();
    let (large, large_rest) = large_halves();
    client.send(&large);
    assert!(client.has_nothing());
    authenticate(&running, &mut other, None); // while another client holds all
    client.send(&large_rest);
    assert_eq!(produced(&client.receive()), [(0, 1)]);
}

#[test]
fn a_session_that_expired_takes_a_handshake_and_nothing_else() {
    let running = start_sasl();
    let mut client = running.connect();
    authenticate(&running, &mut client, Some(Duration::ZERO));
    client.send(&produce(1, &batch(b"one")));
    assert!(client.is_closed());
    assert_eq!(running.server.metrics().expired_connections, 1);

    let mut client = running.connect();
    authenticate(&running, &mut client, Some(Duration::ZERO));
    authenticate(&running, &mut client, None);
    let answer = client.ask(&produce(1, &batch(b"one")));
    assert_eq!(produced(&answer)[0].0, 0);
}

#[test]
fn a_connection_that_authenticates_again_is_not_served_meanwhile() {
    let running = start_sasl();
    let mut client = running.connect();
    authenticate(&running, &mut client, None);
    client.send(&header(SASL_HANDSHAKE, 1, 5).text("PLAIN").frame());
    let token = running.take_request().token;
    running.server.require_authentication(token, false);
    running.server.reply(token, false, b"go on");
    client.receive();
    client.send(&produce(1, &batch(b"one")));
    assert!(client.is_closed());
}

#[test]
fn bare_tokens_are_frames_without_a_header_both_ways() {
    let running = start_sasl();
    let mut client = running.connect();
    client.send(&header(SASL_HANDSHAKE, 0, 5).text("PLAIN").frame());
    let token = running.take_request().token;
    running.server.require_authentication(token, true);
    running.server.reply(token, false, b"in");
    client.receive();
    let answer_and_frame = b"\0alice\0secret";
    client.send(&(answer_and_frame.len() as u32).to_be_bytes());
    client.send(answer_and_frame);
    let request = running.take_request();
    assert_eq!(
        (request.api_key, request.api_version),
        (SASL_AUTHENTICATE, -1)
    );
    assert_eq!(request.body, answer_and_frame);
    running
        .server
        .authenticated(request.token, "User:alice", None);
    running.server.reply_raw(request.token, b"");
    assert_eq!(client.receive(), b"");
    let answer = client.ask(&produce(1, &batch(b"one")));
    assert_eq!(produced(&answer)[0].0, 0);
}

#[test]
fn a_request_under_way_is_told_when_its_client_leaves() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&control(1));
    let request = running.take_request();
    assert!(!request.presence.has_ended());
    client.socket.shutdown(Shutdown::Write).unwrap();
    while !request.presence.has_ended() {
        thread::yield_now();
    }
    running.server.reply(request.token, false, b"done");
    client.receive(); // its answer comes all the same
}

#[test]
fn a_client_whose_connection_was_closed_here_has_left() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&control(1));
    let request = running.take_request();
    running.server.disconnect(request.token);
    assert!(client.is_closed());
    assert!(request.presence.has_ended());
}

#[test]
fn an_attachment_comes_with_every_later_request_of_its_connection_alone() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&control(1));
    let request = running.take_request();
    assert!(request.attachment.is_none());
    let attachment = Attachment(Arc::new("mine"));
    running.server.attach(request.token, attachment.clone());
    running.server.reply(request.token, false, b"");
    client.receive();
    client.send(&control(2));
    assert_eq!(running.take_request().attachment, Some(attachment));
    let mut other = running.connect();
    other.send(&control(3));
    assert!(running.take_request().attachment.is_none());
}
