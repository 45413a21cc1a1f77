//! Fetch sessions over sockets: from several connections, while they wait, when topics go.

use txn_net::Options;

use crate::client::Client;
use crate::running::{Running, TOPIC, options, start};
use crate::wire::{Bytes, Take, batch, header, produce_to, produced};

const WAITS: i32 = 60_000;

/// Fetch 9 in a session, of partitions and their offsets.
fn fetch(session: (i32, i32), max_wait_ms: i32, partitions: &[(i32, i64)]) -> Vec<u8> {
    let start = header(1, 9, 2).i32(-1).i32(max_wait_ms).i32(1);
    let start = start.i32(1 << 20).i8(0).i32(session.0).i32(session.1);
    let topics = i32::from(!partitions.is_empty());
    let mut bytes = start.i32(topics);
    if topics > 0 {
        bytes = bytes.text(TOPIC).i32(partitions.len() as i32);
    }
    let name = |bytes: Bytes, &(index, start): &(i32, i64)| {
        let bytes = bytes.i32(index).i32(-1).i64(start);
        bytes.i64(-1).i32(1 << 20)
    };
    partitions.iter().fold(bytes, name).i32(0).frame()
}

/// Error code and session id of an answer, and index, error code and record bytes of its partitions.
fn told(answer: &[u8]) -> (i16, i32, Vec<(i32, i16, usize)>) {
    let mut rest = &answer[8..];
    let (code, session) = (rest.i16(), rest.i32());
    let mut partitions = Vec::new();
    for _ in 0..rest.i32() {
        let name = rest.i16();
        rest = &rest[name as usize..];
        for _ in 0..rest.i32() {
            let (index, code) = (rest.i32(), rest.i16());
            rest = &rest[24..];
            assert!(rest.i32() <= 0, "nothing is aborted here");
            let length = rest.i32().max(0) as usize;
            rest = &rest[length..];
            partitions.push((index, code, length));
        }
    }
    (code, session, partitions)
}

fn open(client: &mut Client) -> i32 {
    let (code, session, partitions) = told(&client.ask(&fetch((0, 0), 0, &[(0, 0), (1, 0)])));
    assert_eq!((code, partitions.len()), (0, 2));
    assert!(session > 0);
    session
}

fn append(running: &Running, partition: i32) {
    let frame = produce_to(TOPIC, None, 1, &[(partition, &batch(b"a"))]);
    assert_eq!(produced(&running.connect().ask(&frame))[0].0, 0);
}

fn until_it_waits(running: &Running) {
    while running.server.metrics().delayed_fetches == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_session_goes_on_over_another_connection_of_its_client() {
    let running = start(&options());
    let session = open(&mut running.connect());
    append(&running, 1);
    let (code, id, partitions) = told(&running.connect().ask(&fetch((session, 1), WAITS, &[])));
    assert_eq!((code, id, partitions.len()), (0, session, 1));
    assert_eq!(partitions[0].0, 1);
    let counted = running.server.metrics().fetch_sessions;
    assert_eq!((counted.sessions, counted.partitions), (1, 2));
}

#[test]
fn a_fetch_that_waits_in_a_session_is_woken_by_the_partition_that_changed() {
    let running = start(&options());
    let mut client = running.connect();
    let session = open(&mut client);
    let mut ends = [0, 0];
    let mut moved = Vec::new();
    for epoch in 1..20 {
        client.send(&fetch((session, epoch), WAITS, &moved));
        until_it_waits(&running);
        append(&running, epoch % 2);
        let (code, id, partitions) = told(&client.receive());
        assert_eq!((code, id, partitions.len()), (0, session, 1));
        assert_eq!(partitions[0].0, epoch % 2);
        let end = &mut ends[epoch as usize % 2];
        *end += 1;
        moved = vec![(epoch % 2, *end)];
    }
}

#[test]
fn a_fetch_that_waits_in_a_session_is_answered_when_its_topic_goes() {
    let running = start(&options());
    let mut client = running.connect();
    let session = open(&mut client);
    client.send(&fetch((session, 1), WAITS, &[]));
    until_it_waits(&running);
    running.server.remove_topic(TOPIC);
    let (code, id, partitions) = told(&client.receive());
    assert_eq!((code, id), (0, session));
    assert_eq!(partitions, [(0, 3, 0), (1, 3, 0)]);
}

#[test]
fn a_server_without_slots_answers_each_full_request_without_a_session() {
    let running = start(&Options {
        max_fetch_sessions: 0,
        ..options()
    });
    let mut client = running.connect();
    let (code, session, partitions) = told(&client.ask(&fetch((0, 0), 0, &[(0, 0)])));
    assert_eq!((code, session, partitions.len()), (0, 0, 1));
    assert_eq!(told(&client.ask(&fetch((1, 1), 0, &[]))).0, 70);
}
