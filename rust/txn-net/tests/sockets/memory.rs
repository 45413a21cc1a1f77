//! The limit on the memory of requests and answers.

use std::time::Duration;

use txn_net::Options;

use crate::client::Client;
use crate::running::{Running, TOPIC, options, start};
use crate::wire::{Wanted, batch, batch_of, fetch, fetched, header, produce, produce_to, produced};

/// A server with one reactor, whose requests may hold 100,000 bytes.
fn start_with_little_memory() -> Running {
    start(&Options {
        reactors: 1,
        max_queued_bytes: Some(100_000),
        ..options()
    })
}

/// The halves of a Produce whose frame is larger than all that requests may hold.
pub fn large_halves() -> (Vec<u8>, Vec<u8>) {
    let mut frame = produce(1, &batch(&vec![7; 900_000]));
    let rest = frame.split_off(frame.len() / 2);
    (frame, rest)
}

pub fn small_halves() -> (Vec<u8>, Vec<u8>) {
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
