//! Produce and Fetch: records, offsets, acknowledgements, error codes.

use txn_net::Options;

use crate::client::Client;
use crate::rules::{JUMPER, REPEATER};
use crate::running::{INTERNAL, TOPIC, options, start};
use crate::wire::{Wanted, batch, batch_of, fetch, fetched, produce, produce_to, produced, stored};

#[test]
fn what_is_produced_is_fetched_byte_for_byte_under_its_offsets() {
    let running = start(&options());
    let mut client = running.connect();
    let (one, two) = (batch(b"one"), batch(b"two"));
    assert_eq!(produced(&client.ask(&produce(-1, &one))), [(0, 0)]);
    assert_eq!(produced(&client.ask(&produce(1, &two))), [(0, 1)]);
    let answer = fetched(&client.ask(&fetch(&Wanted::default())));
    assert_eq!(
        (
            answer.code,
            answer.high_watermark,
            answer.last_stable_offset
        ),
        (0, 2, 2)
    );
    assert_eq!(answer.records, [stored(&one, 0), stored(&two, 1)].concat());
    assert_eq!(answer.aborted, None);
}

#[test]
fn a_large_answer_goes_from_the_segment_to_the_socket_whole() {
    let running = start(&options());
    let mut client = running.connect();
    let value: Vec<u8> = (0..700_000_u32).map(|n| (n % 251) as u8).collect();
    let large = batch(&value);
    for _ in 0..20 {
        client.ask(&produce(1, &large));
    }
    let answer = fetched(&client.ask(&fetch(&Wanted {
        max_bytes: 40 << 20,
        ..Wanted::default()
    })));
    let expected: Vec<u8> = (0..20).flat_map(|offset| stored(&large, offset)).collect();
    assert!(
        answer.records == expected,
        "{} bytes came",
        answer.records.len()
    );
}

#[test]
fn max_bytes_cuts_between_batches_and_lets_one_batch_through_whatever_its_size() {
    let running = start(&options());
    let mut client = running.connect();
    let (one, two) = (batch(b"one"), batch(b"two"));
    client.ask(&produce(1, &one));
    client.ask(&produce(1, &two));
    let wanted = Wanted {
        max_bytes: 1,
        ..Wanted::default()
    };
    assert_eq!(
        fetched(&client.ask(&fetch(&wanted))).records,
        stored(&one, 0)
    );
    let wanted = Wanted {
        start: 1,
        max_bytes: 1,
        ..Wanted::default()
    };
    assert_eq!(
        fetched(&client.ask(&fetch(&wanted))).records,
        stored(&two, 1)
    );
}

#[test]
fn acks_0_is_stored_and_not_answered() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&produce(0, &batch(b"one")));
    assert_eq!(produced(&client.ask(&produce(1, &batch(b"two")))), [(0, 1)]);
}

#[test]
fn acks_0_that_fails_costs_the_connection() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&produce(0, b"no batch"));
    assert!(client.is_closed());
}

#[test]
fn everything_an_acks_0_producer_sent_before_it_left_is_stored() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let mut client = running.connect();
    let frames: Vec<u8> = (0..100).flat_map(|_| produce(0, &batch(b"bye"))).collect();
    client.send(&frames);
    drop(client);
    let mut other = running.connect();
    let expected: Vec<u8> = (0..100)
        .flat_map(|offset| stored(&batch(b"bye"), offset))
        .collect();
    let answer = other.ask(&fetch(&Wanted {
        max_wait_ms: 60_000,
        min_bytes: expected.len() as i32,
        ..Wanted::default()
    }));
    assert_eq!(fetched(&answer).records, expected);
}

#[test]
fn a_duplicate_is_answered_with_the_offset_it_has() {
    let running = start(&options());
    let mut client = running.connect();
    assert_eq!(
        produced(&client.ask(&produce(1, &batch_of(REPEATER, false, b"x")))),
        [(0, 99)]
    );
}

#[test]
fn one_partition_that_fails_leaves_the_others_their_success() {
    let running = start(&options());
    let mut client = running.connect();
    let (good, jump) = (batch(b"good"), batch_of(JUMPER, false, b"x"));
    let parts: [(i32, &[u8]); 4] = [(0, &jump), (1, &good), (2, &good), (0, b"rubbish")];
    let answer = produced(&client.ask(&produce_to(TOPIC, None, -1, &parts)));
    assert_eq!(answer, [(45, -1), (0, 0), (3, -1), (87, -1)]);
}

#[test]
fn a_damaged_batch_and_an_internal_topic_are_refused() {
    let running = start(&options());
    let mut client = running.connect();
    let mut damaged = batch(b"good");
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(produced(&client.ask(&produce(-1, &damaged))), [(2, -1)]);
    let refused = client.ask(&produce_to(INTERNAL, None, -1, &[(0, &batch(b"x"))]));
    assert_eq!(produced(&refused), [(17, -1)]);
    assert_eq!(running.log.state().log_end_offset, 0);
}

#[test]
fn synced_answers_arrive_for_every_client_that_waits() {
    let running = start(&Options {
        sync_acks_all: true,
        ..options()
    });
    let mut clients: Vec<Client> = (0..4).map(|_| running.connect()).collect();
    for client in &mut clients {
        client.send(&produce(-1, &batch(b"x")));
    }
    let mut offsets: Vec<_> = clients
        .iter_mut()
        .map(|client| produced(&client.receive()))
        .collect();
    offsets.sort_unstable();
    assert_eq!(offsets, [[(0, 0)], [(0, 1)], [(0, 2)], [(0, 3)]]);
}

#[test]
fn batches_of_a_forced_producer_are_on_the_disk_before_they_are_acknowledged() {
    let running = start(&options());
    running.rules.0.lock().unwrap().joined.extend([1, 2]);
    let mut client = running.connect();
    let mut on_disk_after = |id, producer_id| {
        let batch = batch_of(producer_id, true, b"mine");
        let answer = client.ask(&produce_to(TOPIC, Some(id), -1, &[(0, &batch)]));
        assert_eq!(produced(&answer)[0].0, 0);
        running.log.recovery_point()
    };

    assert_eq!(on_disk_after("t1", 1), 0);
    running.server.sync_before_ack(1, true);
    assert_eq!(on_disk_after("t1", 1), 2);
    assert_eq!(on_disk_after("t2", 2), 2);
    running.server.sync_before_ack(1, false);
    assert_eq!(on_disk_after("t1", 1), 2);
}

#[test]
fn a_parked_batch_of_a_producer_that_is_forced_meanwhile_is_forced() {
    let running = start(&options());
    let mut client = running.connect();
    let batch = batch_of(5, true, b"mine");
    client.send(&produce_to(TOPIC, Some("t5"), -1, &[(0, &batch)]));
    let parked = running.take_join();
    running.rules.0.lock().unwrap().joined.insert(5);
    running.server.sync_before_ack(5, true);
    running.server.resume(parked.token, vec![]);
    assert_eq!(produced(&client.receive()), [(0, 0)]);
    assert_eq!(running.log.recovery_point(), 1);
}

#[test]
fn an_offset_outside_the_log_and_a_wrong_leader_epoch_are_refused() {
    let running = start(&options());
    let mut client = running.connect();
    let mut code = |wanted| fetched(&client.ask(&fetch(&wanted))).code;
    assert_eq!(
        code(Wanted {
            start: 1,
            max_wait_ms: 60_000,
            ..Wanted::default()
        }),
        1
    );
    assert_eq!(
        code(Wanted {
            start: -1,
            max_wait_ms: 60_000,
            ..Wanted::default()
        }),
        1
    );
    assert_eq!(
        code(Wanted {
            leader_epoch: 1,
            max_wait_ms: 60_000,
            ..Wanted::default()
        }),
        75
    );
    assert_eq!(
        code(Wanted {
            leader_epoch: -2, // any negative one is none
            ..Wanted::default()
        }),
        0
    );
    assert_eq!(
        code(Wanted {
            leader_epoch: 0,
            ..Wanted::default()
        }),
        0
    );
}
