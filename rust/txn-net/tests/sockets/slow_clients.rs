//! Clients that send or read too slowly.

use std::io::Write;
use std::time::{Duration, Instant};

use txn_net::Options;
use txn_protocol::apis::SASL_HANDSHAKE;

use crate::client::Client;
use crate::limits::{closed, counted};
use crate::memory::{large_halves, small_halves};
use crate::running::{options, sasl_listener, start, start_on};
use crate::wire::{Wanted, batch, control, fetch, header, produce, produced};

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
        max_idle: Some(Duration::from_secs(1)),
        ..options()
    });
    let large = batch(&vec![7; 900_000]);
    for _ in 0..10 {
        running.connect().ask(&produce(1, &large));
    }
    let wanted = Wanted {
        max_bytes: 40 << 20,
        ..Wanted::default()
    };
    // It connects last: a connection that waits for slow producers would be closed as idle.
    let mut greedy = running.connect();
    greedy.send(&fetch(&wanted).repeat(5));
    let deadline = Instant::now() + Duration::from_secs(60);
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
