//! Turns: a long request gives way to other clients.

use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use txn_net::Options;

use crate::running::{Running, TOPIC, options, start};
use crate::waiting::settle;
use crate::wire::{Bytes, batch, batch_of, header, produce, produce_to, produced};

/// Fetch 4 of partition 0 with at least 2 GB, which names it so many times.
pub fn fetch_many(count: usize) -> Vec<u8> {
    let mut bytes = header(1, 4, 1).i32(-1).i32(20_000).i32(i32::MAX);
    bytes = bytes.i32(i32::MAX).i8(0).i32(1).text(TOPIC);
    bytes = bytes.i32(count as i32);
    let one = Bytes::default().i32(0).i64(0).i32(i32::MAX);
    bytes.raw(&one.0.repeat(count)).frame()
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
