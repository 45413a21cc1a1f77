//! Connections of a SASL listener, before and after they authenticate.

use std::time::Duration;

use txn_net::{Fault, Options};
use txn_protocol::apis::{SASL_AUTHENTICATE, SASL_HANDSHAKE};

use crate::client::Client;
use crate::memory::large_halves;
use crate::running::{Running, options, sasl_listener, start_on, start_sasl};
use crate::wire::{Wanted, batch, fetch, header, produce, produced};

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
    running.wait_for_control();
    let reported = running.server.take_fatal_requests();
    assert_eq!(reported.len(), 1);
    let Fault::Malformed(reason) = &reported[0].fault else {
        panic!("{:?}", reported[0].fault)
    };
    assert!(reason.contains("1024 bytes"));

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
    let [told] = &running.server.take_fatal_requests()[..] else {
        panic!("one request was refused")
    };
    assert_eq!(told.fault, Fault::Unauthenticated { has_expired: true });

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
