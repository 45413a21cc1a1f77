//! The ends of connections and of a server.

use std::net::TcpStream;
use std::time::Duration;

use txn_net::Options;

use crate::client::Client;
use crate::rules::BREAKER;
use crate::running::{TOPIC, bind, listener, options, start};
use crate::wire::{Wanted, batch, batch_of, control, fetch, produce, produce_to, produced};

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
