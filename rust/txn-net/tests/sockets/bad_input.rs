//! Input that costs its connection, and no other.

use txn_net::Options;

use crate::client::Client;
use crate::running::{TOPIC, options, start};
use crate::wire::{Bytes, batch, header, produce, produce_to, produced};

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
