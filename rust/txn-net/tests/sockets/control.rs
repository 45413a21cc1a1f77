//! Requests that Python answers, and the order of their answers.

use std::net::TcpStream;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use txn_net::Options;

use crate::client::Client;
use crate::running::{bind, listener, options, start};
use crate::wire::{batch, control, header, produce, produced};

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
