//! Fetches that wait for bytes.

use std::io::Read;
use std::net::Shutdown;
use std::sync::Arc;

use txn_net::Options;

use crate::client::Client;
use crate::running::{Running, TOPIC, end, options, start};
use crate::turns::fetch_many;
use crate::wire::{
    Wanted, batch, batch_of, control, fetch, fetched, produce, produce_to, produced, stored,
};

#[test]
fn a_fetch_that_found_nothing_is_answered_when_its_time_is_over() {
    let running = start(&options());
    let answer = running.connect().ask(&fetch(&Wanted {
        max_wait_ms: 30,
        ..Wanted::default()
    }));
    assert_eq!(fetched(&answer).records, b"");
}

/// Returns once the only reactor has dealt with everything sent before.
///
/// The first round may overtake requests sent before it, within one wait of the reactor; the second
/// cannot.
pub fn settle(running: &Running, other: &mut Client) {
    for _ in 0..2 {
        other.send(&control(77));
        let request = running.take_request();
        running.server.reply(request.token, false, b"");
        other.receive();
    }
}

/// A server with one reactor, a client whose fetch waits there for up to a minute, and another.
pub fn start_waiting(wanted: &Wanted) -> (Running, Client, Client) {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let (mut reader, mut other) = (running.connect(), running.connect());
    wait_with(&running, wanted, &mut reader, &mut other);
    (running, reader, other)
}

/// Has a reader's fetch wait for up to a minute; another client shows when it does.
fn wait_with(running: &Running, wanted: &Wanted, reader: &mut Client, other: &mut Client) {
    reader.send(&fetch(&Wanted {
        max_wait_ms: 60_000,
        ..*wanted
    }));
    settle(running, other);
}

#[test]
fn an_append_wakes_the_fetch_that_waits_for_it() {
    let (_running, mut reader, mut other) = start_waiting(&Wanted::default());
    other.ask(&produce(1, &batch(b"one")));
    assert_eq!(
        fetched(&reader.receive()).records,
        stored(&batch(b"one"), 0)
    );
}

#[test]
fn a_marker_wakes_the_read_committed_fetch_that_waits_for_it() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    running.rules.0.lock().unwrap().joined.insert(1);
    let (mut reader, mut other) = (running.connect(), running.connect());
    let mine = batch_of(1, true, b"mine");
    other.ask(&produce_to(TOPIC, Some("t1"), -1, &[(0, &mine)]));
    let committed = Wanted {
        isolation: 1,
        ..Wanted::default()
    };
    wait_with(&running, &committed, &mut reader, &mut other);
    end(&running, 1, true);
    assert!(
        fetched(&reader.receive())
            .records
            .starts_with(&stored(&mine, 0))
    );
}

#[test]
fn a_fetch_waits_on_while_there_are_fewer_bytes_than_it_asks_for() {
    let (_running, mut reader, mut other) = start_waiting(&Wanted {
        min_bytes: 50_000,
        ..Wanted::default()
    });
    let value = vec![7; 20_000];
    for _ in 0..3 {
        other.ask(&produce(1, &batch(&value)));
    }
    let expected: Vec<u8> = (0..3)
        .flat_map(|offset| stored(&batch(&value), offset))
        .collect();
    assert!(fetched(&reader.receive()).records == expected);
}

#[test]
fn a_waiting_fetch_that_names_a_partition_60_000_times_watches_it_once() {
    let running = start(&options());
    let [mut greedy, mut other] = running.accepted();
    greedy.send(&fetch_many(60_000));
    while running.log.watcher_count() == 0 {
        settle(&running, &mut other);
    }
    assert_eq!(running.log.watcher_count(), 1);
    assert_eq!(produced(&other.ask(&produce(1, &batch(b"one")))), [(0, 0)]);
    assert!(greedy.has_nothing());
    drop(greedy);
    while running.log.watcher_count() > 0 {
        settle(&running, &mut other);
    }
}

#[test]
fn a_waiting_fetch_is_forgotten_when_its_client_leaves() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let (mut reader, mut other) = (running.connect(), running.connect());
    reader.send(&fetch(&Wanted::default()));
    reader.receive(); // the topic has the log from now on
    let owners = Arc::strong_count(&running.log);
    wait_with(&running, &Wanted::default(), &mut reader, &mut other);
    assert!(Arc::strong_count(&running.log) > owners);
    drop(reader);
    settle(&running, &mut other);
    assert_eq!(Arc::strong_count(&running.log), owners);
}

#[test]
fn a_client_that_sends_no_more_is_not_kept_waiting() {
    let running = start(&options());
    let mut reader = running.connect();
    reader.send(&fetch(&Wanted {
        max_wait_ms: 60_000,
        ..Wanted::default()
    }));
    reader.socket.shutdown(Shutdown::Write).unwrap();
    assert!(reader.socket.read_to_end(&mut Vec::new()).is_ok());
}

#[test]
fn a_waiting_fetch_of_a_removed_topic_is_answered_at_once() {
    let (running, mut reader, _other) = start_waiting(&Wanted::default());
    running.server.remove_topic(TOPIC);
    assert_eq!(fetched(&reader.receive()).code, 3);
}
