//! Transactional batches: joining, parking, and what `read_committed` shows.

use std::time::Duration;

use txn_net::Options;

use crate::running::{TOPIC, end, options, start};
use crate::wire::{Wanted, batch, batch_of, fetch, fetched, produce, produce_to, produced, stored};

#[test]
fn read_committed_stops_at_the_open_transaction_and_names_the_aborted_one() {
    let running = start(&options());
    running.rules.0.lock().unwrap().joined.extend([1, 2]);
    let mut client = running.connect();
    let (plain, mine) = (batch(b"plain"), batch_of(1, true, b"mine"));
    let other = batch_of(2, true, b"other");
    for (id, records) in [(None, &plain), (Some("t1"), &mine), (Some("t2"), &other)] {
        let answer = client.ask(&produce_to(TOPIC, id, -1, &[(0, records)]));
        assert_eq!(produced(&answer)[0].0, 0);
    }
    let committed = Wanted {
        isolation: 1,
        ..Wanted::default()
    };
    let before = fetched(&client.ask(&fetch(&committed)));
    assert_eq!((before.high_watermark, before.last_stable_offset), (3, 1));
    assert_eq!(
        (before.records, before.aborted),
        (stored(&plain, 0), Some(vec![]))
    );

    end(&running, 1, false);
    let after = fetched(&client.ask(&fetch(&committed)));
    assert_eq!((after.high_watermark, after.last_stable_offset), (4, 2));
    assert_eq!(
        after.records,
        [stored(&plain, 0), stored(&mine, 1)].concat()
    );
    assert_eq!(after.aborted, Some(vec![(1, 1)]));

    let uncommitted = fetched(&client.ask(&fetch(&Wanted::default())));
    assert_eq!(uncommitted.aborted, None);
    assert!(
        uncommitted
            .records
            .starts_with(&[stored(&plain, 0), stored(&mine, 1)].concat())
    );
}

#[test]
fn a_produce_waits_for_its_partitions_to_join_and_then_goes_on() {
    let running = start(&options());
    let mut client = running.connect();
    let batch = batch_of(5, true, b"mine");
    client.send(&produce_to(
        TOPIC,
        Some("t5"),
        -1,
        &[(0, &batch), (1, &batch), (9, &batch)],
    ));
    let parked = running.take_join();
    assert_eq!(parked.join.transactional_id, "t5");
    assert_eq!(
        (parked.join.producer_id, parked.join.producer_epoch),
        (5, 0)
    );
    assert_eq!(parked.join.transaction_version, 1);
    assert_eq!(
        parked.join.partitions,
        [(TOPIC.to_owned(), 0), (TOPIC.to_owned(), 1)]
    );

    running.rules.0.lock().unwrap().joined.insert(5);
    running
        .server
        .resume(parked.token, vec![(TOPIC.to_owned(), 1, 120)]);
    // 120, TRANSACTION_ABORTABLE, is unknown to Produce 8.
    assert_eq!(produced(&client.receive()), [(0, 0), (48, -1), (3, -1)]);
}

#[test]
fn a_partition_that_still_has_to_join_after_the_coordinator_agreed_is_refused() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&produce_to(
        TOPIC,
        Some("t5"),
        -1,
        &[(0, &batch_of(5, true, b"mine"))],
    ));
    let parked = running.take_join();
    running.server.resume(parked.token, vec![]);
    assert_eq!(produced(&client.receive()), [(48, -1)]);
    assert_eq!(running.log.state().log_end_offset, 0);
}

#[test]
fn a_produce_whose_coordinator_does_not_answer_in_time_is_refused_and_the_connection_goes_on() {
    let running = start(&Options {
        coordinator_timeout: Duration::from_millis(30),
        ..options()
    });
    let mut client = running.connect();
    let (plain, mine) = (batch(b"plain"), batch_of(5, true, b"mine"));
    let parts: [(i32, &[u8]); 2] = [(0, &plain), (1, &mine)];
    client.send(&produce_to(TOPIC, Some("t5"), -1, &parts));
    let parked = running.take_join();
    assert_eq!(produced(&client.receive()), [(0, 0), (19, -1)]); // NOT_ENOUGH_REPLICAS

    running.rules.0.lock().unwrap().joined.insert(5);
    running.server.resume(parked.token, vec![]); // too late

    let next = produce_to(TOPIC, Some("t5"), -1, &[(1, &mine)]);
    assert_eq!(produced(&client.ask(&next)), [(0, 0)]);
}

#[test]
fn a_produce_whose_client_left_while_it_was_parked_changes_nothing() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let mut client = running.connect();
    client.send(&produce_to(
        TOPIC,
        Some("t5"),
        -1,
        &[(0, &batch_of(5, true, b"mine"))],
    ));
    let parked = running.take_join();
    running.server.disconnect(parked.token);
    assert!(client.is_closed());
    running.rules.0.lock().unwrap().joined.insert(5);
    running.server.resume(parked.token, vec![]);
    assert_eq!(
        produced(&running.connect().ask(&produce(-1, &batch(b"next")))),
        [(0, 0)]
    );
}
