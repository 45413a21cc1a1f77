//! Tests of a server over real sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use super::*;
use crate::transport::tests::{HELLO, MASK};

fn options(reactors: usize) -> Options {
    Options {
        reactors,
        max_request_bytes: 1000,
        max_sasl_bytes: 100,
        max_queued_bytes: None,
        max_connections: 100,
        max_idle: None,
        max_fetch_sessions: 1_000,
        turn: Duration::from_millis(2),
        sync_acks_all: false,
        coordinator_timeout: Duration::from_secs(30),
        handshake_timeout: Duration::from_secs(10),
        login_timeout: Duration::from_secs(60),
        memory_patience: Duration::from_secs(10),
        answer_patience: Duration::from_secs(2),
    }
}

fn listener(security: SecurityProtocol) -> ListenerOptions {
    ListenerOptions {
        name: "A".to_owned(),
        host: "127.0.0.1".to_owned(),
        port: 0,
        security,
        is_sasl: false,
    }
}

#[test]
fn a_transport_that_shakes_hands_and_changes_every_byte_serves_as_a_plain_one() {
    let listener = listener(SecurityProtocol::Masked);
    let server =
        Arc::new(Server::bind(&[listener], options(1), Arc::new(Durability::new(1))).unwrap());
    let reactor = thread::spawn({
        let server = Arc::clone(&server);
        move || server.run_reactor(0)
    });
    let masked = |bytes: &[u8]| bytes.iter().map(|byte| byte ^ MASK).collect::<Vec<_>>();
    let mut client = TcpStream::connect(server.listeners()[0].address).unwrap();
    let produce_to_nothing = [
        &[0, 0, 0, 22][..],              // length
        &[0, 0, 0, 3, 0, 0, 0, 7],       // Produce 3, correlation id 7
        &[0xff, 0xff, 0xff, 0xff],       // neither client id nor transactional id
        &[0, 1, 0, 0, 0, 9, 0, 0, 0, 0], // acks 1, timeout, no topic
    ]
    .concat();
    client.write_all(&[HELLO]).unwrap();
    client.write_all(&masked(&produce_to_nothing)).unwrap();
    let mut answer = [0; 16];
    client.read_exact(&mut answer).unwrap();
    let expected = [0, 0, 0, 12, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(masked(&answer), expected);

    let mut stranger = TcpStream::connect(server.listeners()[0].address).unwrap();
    stranger.write_all(b"no hello").unwrap();
    let closed = stranger.read(&mut [0]);
    assert!(closed.is_err() || matches!(closed, Ok(0)));

    server.stop();
    assert!(reactor.join().unwrap().is_ok());
}

#[test]
fn a_panic_ends_every_reactor_and_leaves_no_connection_open() {
    // The story: connections that reactor 0 went on handing to one that had panicked stayed
    // open, with nobody to serve them.
    let options = options(2);
    let listener = listener(SecurityProtocol::Plaintext);
    let server =
        Arc::new(Server::bind(&[listener], options, Arc::new(Durability::new(1))).unwrap());
    let reactors = [0, 1].map(|index| {
        let server = Arc::clone(&server);
        thread::spawn(move || server.run_reactor(index))
    });
    let connect = |_| TcpStream::connect(server.listeners()[0].address).unwrap();
    let mut clients: Vec<_> = (0..6).map(connect).collect();

    server.shared.mailboxes[1].post(Message::Panic);

    let [first, second] = reactors.map(|thread| thread.join().unwrap());
    assert!(first.is_ok());
    let error = second.unwrap_err().to_string();
    assert_eq!(error, "reactor 1 broke off: as it was told");
    for client in &mut clients {
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let ended = client.read(&mut [0]);
        assert!(
            matches!(ended, Ok(0))
                || ended.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
        );
    }
    assert!(TcpStream::connect(server.listeners()[0].address).is_err());
}
