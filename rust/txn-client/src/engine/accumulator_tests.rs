//! Scripts for the batches of one partition.

use super::accumulator::*;
use super::*;
use txn_protocol::batch::Codec;
use txn_protocol::codes;

const FIRST: Identity = Identity {
    who: (7, 0),
    generation: 1,
};
const SECOND: Identity = Identity {
    who: (7, 1),
    generation: 2,
};
const NODE: NodeId = 1;

/// A partition with `batches` batches of one record each, made at times 0, 1, 2, …
fn partition(batches: u64) -> Partition {
    let mut partition = Partition::default();
    let (value, mut number) = ([b'x'; 100], 0);
    for now in 0..batches {
        let record = Record {
            key: None,
            value: Some(&value),
            headers: &[],
            timestamp_ms: 1,
            delivery: None,
        };
        partition.push(&record, 150, Codec::None, now, &mut number);
    }
    partition.adopt(FIRST);
    partition
}

/// Takes a batch: (its number, its producer epoch, its sequence).
fn take(partition: &mut Partition, identity: Identity) -> Option<(u64, i16, i32)> {
    partition.adopt(identity);
    let (number, bytes) = partition.take(NODE, identity, false, 100, 5)?.unwrap();
    let header = txn_protocol::batch::Header::parse(&bytes).unwrap();
    Some((number, header.producer_epoch, header.base_sequence))
}

fn refused(code: i16) -> KafkaError {
    KafkaError::answered(code, "a node", "Produce", "a-0", None)
}

#[test]
fn batches_are_numbered_as_they_are_sent_and_five_are_in_flight() {
    let mut partition = partition(7);
    let sent: Vec<_> = (0..7).map_while(|_| take(&mut partition, FIRST)).collect();
    assert_eq!(
        sent,
        [(1, 0, 0), (2, 0, 1), (3, 0, 2), (4, 0, 3), (5, 0, 4)]
    );
}

#[test]
fn a_refused_batch_and_those_behind_it_are_sent_again_in_order_with_their_sequences() {
    let mut partition = partition(3);
    while take(&mut partition, FIRST).is_some() {}
    let moved = refused(codes::NOT_LEADER_OR_FOLLOWER);
    assert!(matches!(
        partition.settle(1, Some(moved), false, 0, 20),
        Settled::Again(Some(_))
    ));
    assert_eq!(take(&mut partition, FIRST), None); // two are in flight
    for number in [2, 3] {
        let echo = refused(codes::OUT_OF_ORDER_SEQUENCE_NUMBER);
        assert!(matches!(
            partition.settle(number, Some(echo), false, 0, 20),
            Settled::Again(None)
        ));
    }
    let again: Vec<_> = (0..3).map_while(|_| take(&mut partition, FIRST)).collect();
    assert_eq!(again, [(1, 0, 0), (2, 0, 1), (3, 0, 2)]);
}

#[test]
fn a_gap_in_front_is_final_and_the_rest_goes_on_under_a_new_identity() {
    let mut partition = partition(3);
    take(&mut partition, FIRST);
    take(&mut partition, FIRST);
    let gap = || refused(codes::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert!(matches!(
        partition.settle(1, Some(gap()), false, 0, 20),
        Settled::GivenUp(..)
    ));
    assert!(matches!(
        partition.settle(2, Some(gap()), false, 0, 20),
        Settled::Again(None)
    ));
    assert_eq!(partition.needs_later_than(), Some(1));
    assert_eq!(take(&mut partition, FIRST), None);
    let again: Vec<_> = (0..2).map_while(|_| take(&mut partition, SECOND)).collect();
    assert_eq!(again, [(2, 1, 0), (3, 1, 1)]);
}

#[test]
fn a_batch_that_may_be_stored_never_gets_another_sequence() {
    let mut partition = partition(2);
    take(&mut partition, FIRST);
    take(&mut partition, FIRST);
    for number in [1, 2] {
        let lost = refused(codes::NETWORK_EXCEPTION);
        partition.settle(number, Some(lost), true, 0, 20);
    }
    assert_eq!(partition.expire(0).len(), 1); // the first; the second was made later
    assert_eq!(take(&mut partition, SECOND), Some((2, 0, 1)));
    let gap = refused(codes::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert!(matches!(
        partition.settle(2, Some(gap), false, 0, 20),
        Settled::GivenUp(..)
    ));
}

#[test]
fn a_refused_batch_whose_sequence_nobody_has_seen_leaves_no_gap() {
    let mut partition = partition(2);
    take(&mut partition, FIRST);
    let large = refused(codes::MESSAGE_TOO_LARGE);
    assert!(matches!(
        partition.settle(1, Some(large), false, 0, 20),
        Settled::GivenUp(..)
    ));
    assert_eq!(take(&mut partition, FIRST), Some((2, 0, 0)));
}

#[test]
fn a_batch_that_was_never_sent_is_given_up_without_a_gap() {
    let mut partition = partition(2);
    assert_eq!(partition.expire(0).len(), 1);
    assert_eq!(take(&mut partition, FIRST), Some((2, 0, 0)));
}

#[test]
fn an_answer_for_a_batch_that_was_given_up_changes_nothing() {
    let mut partition = partition(1);
    take(&mut partition, FIRST);
    assert_eq!(partition.expire(0).len(), 1);
    assert!(matches!(
        partition.settle(1, None, false, 0, 20),
        Settled::Unknown
    ));
    assert!(partition.is_empty());
}

#[test]
fn batches_in_flight_hold_their_partition_to_their_node() {
    let mut partition = partition(2);
    take(&mut partition, FIRST);
    assert!(partition.take(NODE + 1, FIRST, false, 100, 5).is_none());
}
