//! A running server with its reactors, its topics and its log.

use std::net::TcpStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;
use txn_log::producer_state::{Marker, ProducerStateManager};
use txn_log::{Durability, PartitionLog, Past, Settings};
use txn_net::{
    ControlRequest, ListenerOptions, Options, ParkedProduce, SecurityProtocol, Server, Topic,
};

use crate::client::Client;
use crate::rules::Rules;
use crate::wire::produce_to;

pub const TOPIC: &str = "pay";

const TOPIC_ID: [u8; 16] = [7; 16];

pub const INTERNAL: &str = "__internal";

pub struct Running {
    pub server: Arc<Server>,
    pub reactors: Vec<JoinHandle<()>>,
    pub rules: Arc<Rules>,
    pub log: Arc<PartitionLog>,
    pub _directory: TempDir,
}

pub fn bind(listeners: &[ListenerOptions], options: Options) -> std::io::Result<Server> {
    Server::bind(listeners, options, Arc::new(Durability::new(2))).map_err(|failed| failed.error)
}

pub fn options() -> Options {
    Options {
        reactors: 2,
        max_request_bytes: 1 << 20,
        max_sasl_bytes: 1 << 10,
        max_queued_bytes: None,
        max_connections: 100,
        max_idle: None,
        max_fetch_sessions: 1_000,
        turn: Duration::ZERO, // each request gives way wherever it may
        sync_acks_all: false,
        coordinator_timeout: Duration::from_secs(30),
        handshake_timeout: Duration::from_secs(10),
        login_timeout: Duration::from_secs(60),
        memory_patience: Duration::from_secs(10),
        answer_patience: Duration::from_secs(2),
    }
}

pub fn listener(name: &str) -> ListenerOptions {
    ListenerOptions {
        name: name.to_owned(),
        host: "127.0.0.1".to_owned(),
        port: 0,
        security: SecurityProtocol::Plaintext,
        is_sasl: false,
    }
}

pub fn start(options: &Options) -> Running {
    start_on(listener("PLAINTEXT"), options)
}

/// A server whose clients authenticate.
pub fn start_sasl() -> Running {
    start_on(sasl_listener(), &options())
}

pub fn sasl_listener() -> ListenerOptions {
    ListenerOptions {
        is_sasl: true,
        ..listener("SASL_PLAINTEXT")
    }
}

pub fn start_on(listener: ListenerOptions, options: &Options) -> Running {
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
    pub fn connect(&self) -> Client {
        let socket = TcpStream::connect(self.server.listeners()[0].address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Client { socket }
    }

    /// Clients whose turns with the server are over: their next requests are met in that order.
    pub fn accepted<const COUNT: usize>(&self) -> [Client; COUNT] {
        let ask = |()| {
            let mut client = self.connect();
            client.ask(&produce_to("unknown", None, 1, &[]));
            client
        };
        let clients = [(); COUNT].map(ask);
        ask(()); // its turn comes after the last of theirs
        clients
    }

    pub fn wait_for_control(&self) {
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

    pub fn take_request(&self) -> ControlRequest {
        self.wait_for_control();
        self.server.take().pop().unwrap()
    }

    pub fn take_join(&self) -> ParkedProduce {
        self.wait_for_control();
        self.server.take_joins().pop().unwrap()
    }
}

pub fn end(running: &Running, producer_id: i64, is_commit: bool) {
    let marker = Marker {
        producer_id,
        producer_epoch: 0,
        coordinator_epoch: 0,
        is_commit,
        timestamp_ms: 1_700_000_000_000,
    };
    running.log.append_marker(&marker).unwrap();
}
