//! Muted connections.

use std::time::{Duration, Instant};

use txn_net::Options;

use crate::running::{options, start};
use crate::waiting::settle;
use crate::wire::{batch, control, produce, produced};

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
