//! Tests of a request's steps over a catalog without logs.

use std::time::Duration;

use proptest::prelude::*;
use txn_protocol::{Put, codes};

use super::append::java_hash;
use super::request::{AppendResult, PartitionData};
use super::version::{code_for, has_topic_ids, is_flexible};
use super::write::check_batch;
use super::{AppendProgress, ProduceRequest};
use crate::access::{Access, Ada};
use crate::catalog::{Catalog, Topic};
use crate::turn::Turn;

const NAME: &[u8] = b"pay";
const ID: [u8; 16] = [7; 16];

fn long() -> Turn {
    Turn::of(Duration::from_secs(3600))
}

/// A request for partition 3 of one topic, and partition 4 with null records.
fn request(version: i16, transactional_id: Option<&[u8]>, acks: i16, records: &[u8]) -> Vec<u8> {
    let is_flexible = is_flexible(version);
    let mut out = Vec::new();
    out.put_nullable_string(transactional_id, is_flexible);
    out.put_i16(acks);
    out.put_i32(30_000);
    out.put_length(1, is_flexible);
    if has_topic_ids(version) {
        out.put(&ID);
    } else {
        out.put_nullable_string(Some(NAME), is_flexible);
    }
    out.put_length(2, is_flexible);
    out.put_i32(3);
    out.put_length(records.len(), is_flexible);
    out.put(records);
    out.put_no_tags(is_flexible);
    out.put_i32(4);
    if is_flexible {
        out.put_uvarint(0);
    } else {
        out.put_i32(-1);
    }
    out.put_no_tags(is_flexible);
    out.put_no_tags(is_flexible);
    out.put_no_tags(is_flexible);
    out
}

/// The header of a batch without records, as far as Produce looks at it.
fn batch(attributes: i16, producer_id: i64) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_i64(0);
    out.put_i32(61 - 12);
    out.put_i32(-1);
    out.put(&[2]);
    out.put_i32(0); // crc
    out.put_i16(attributes);
    out.put_i32(0);
    out.put_i64(0);
    out.put_i64(0);
    out.put_i64(producer_id);
    out.put_i16(5);
    out.put_i32(0);
    out.put_i32(1);
    assert_eq!(out.len(), 61);
    out
}

const TRANSACTIONAL: i16 = 0x10;

fn answer(version: i16, mut body: Vec<u8>) -> (ProduceRequest, Vec<u8>) {
    let mut request = ProduceRequest::default();
    request.parse(&body, version).unwrap();
    let progress = request.append(&mut body, &Catalog::default(), false, &mut long());
    assert!(matches!(progress, AppendProgress::Done));
    let mut out = Vec::new();
    request.encode(&body, 42, 0, &mut out);
    (request, out)
}

fn codes(request: &ProduceRequest) -> Vec<i16> {
    let code = |one: &PartitionData| match &one.result {
        AppendResult::Failed(failure) => failure.code,
        _ => 0,
    };
    request.partitions.iter().map(code).collect()
}

#[test]
fn every_version_is_read_and_its_topic_is_sent_back() {
    for version in 3..=13 {
        let (request, out) = answer(version, request(version, None, 1, &batch(0, -1)));
        let unknown = if version >= 13 { 100 } else { 3 };
        assert_eq!(codes(&request), [unknown, unknown], "version {version}");
        let topic: &[u8] = if version >= 13 { &ID } else { NAME };
        assert!(out.windows(topic.len()).any(|window| window == topic));
        let length = i32::from_be_bytes(*out.first_chunk().unwrap());
        assert_eq!(length as usize, out.len() - 4);
        assert_eq!(out[4..8], 42_i32.to_be_bytes());
    }
}

#[test]
fn a_request_cut_anywhere_is_malformed_and_what_follows_it_is_ignored() {
    for version in 3..=13 {
        let body = request(version, Some(b"t"), -1, &batch(0, -1));
        let mut parsed = ProduceRequest::default();
        for end in 0..body.len() {
            assert!(
                parsed.parse(&body[..end], version).is_err(),
                "version {version}: {end}"
            );
        }
        let longer = [&body[..], &[0]].concat();
        assert!(parsed.parse(&longer, version).is_ok());
        assert!(parsed.parse(&body, version).is_ok());
    }
}

#[test]
fn transactional_batches_without_a_transactional_id_are_refused_as_a_whole() {
    let body = request(9, None, -1, &batch(TRANSACTIONAL, 7));
    let (request, _) = answer(9, body);
    assert_eq!(
        codes(&request),
        [codes::TRANSACTIONAL_ID_AUTHORIZATION_FAILED; 2]
    );
}

#[test]
fn acks_that_do_not_exist_are_refused_as_a_whole() {
    let (request, _) = answer(9, request(9, None, 2, &batch(0, -1)));
    assert_eq!(codes(&request), [codes::INVALID_REQUIRED_ACKS; 2]);
}

#[test]
fn only_acks_all_and_transactional_requests_wait_for_the_disk() {
    let wants_sync = |transactional_id, acks| {
        let mut parsed = ProduceRequest::default();
        parsed
            .parse(&request(9, transactional_id, acks, &batch(0, -1)), 9)
            .unwrap();
        parsed.wants_sync()
    };
    assert!(wants_sync(None, -1));
    assert!(wants_sync(Some(&b"t"[..]), 1));
    assert!(!wants_sync(None, 1));
    assert!(!wants_sync(Some(&b"t"[..]), 0));
}

#[test]
fn records_are_exactly_one_whole_batch_of_format_2() {
    let code = |version, records: &[u8]| check_batch(version, records).map_err(|f| f.code);
    let one = batch(0, -1);
    assert_eq!(code(9, &one), Ok(1));
    assert_eq!(code(9, &[]), Err(codes::INVALID_RECORD));
    assert_eq!(code(9, &one[..60]), Err(codes::INVALID_RECORD));
    assert_eq!(
        code(9, &[&one[..], &one].concat()),
        Err(codes::INVALID_RECORD)
    );
    let mut old = one.clone();
    old[16] = 1;
    assert_eq!(code(9, &old), Err(codes::INVALID_RECORD));
    let mut short = one.clone();
    short[8..12].copy_from_slice(&3_i32.to_be_bytes());
    assert_eq!(code(9, &short), Err(codes::CORRUPT_MESSAGE));
    assert_eq!(
        code(6, &batch(4, -1)),
        Err(codes::UNSUPPORTED_COMPRESSION_TYPE)
    );
    assert_eq!(code(7, &batch(4, -1)), Ok(1));
}

/// A request of version 9 for partition 0 of each of these topics, without records.
fn naming(topics: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_nullable_string(None, true);
    out.put_i16(1);
    out.put_i32(30_000);
    out.put_length(topics.len(), true);
    for name in topics {
        out.put_nullable_string(Some(name.as_bytes()), true);
        out.put_length(1, true);
        out.put_i32(0);
        out.put_uvarint(0);
        out.put_no_tags(true);
        out.put_no_tags(true);
    }
    out.put_no_tags(true);
    out
}

#[test]
fn each_topic_is_asked_for_and_each_batch_tried_once_in_turns_of_any_length() {
    let mut body = naming(&["b", "a", "b", "c", "b", "a", "a1"]);
    for (time, turns) in [
        (Duration::ZERO, [4, 3]),
        (Duration::from_secs(3600), [1, 1]),
    ] {
        let (access, asked) = Access::of_letter('a');
        let ada = Ada::connected();
        let catalog = Catalog::default();
        let mut request = ProduceRequest::default();
        request.parse(&body, 9).unwrap();
        let mut taken = [1, 1];
        while !request.authorize(&body, &catalog, &access, ada.sender(), &mut Turn::of(time)) {
            taken[0] += 1;
        }
        assert!(request.authorize(&body, &catalog, &access, ada.sender(), &mut long()));
        while let AppendProgress::TurnOver =
            request.append(&mut body, &catalog, false, &mut Turn::of(time))
        {
            taken[1] += 1;
        }
        assert_eq!(taken, turns);
        assert_eq!(*asked.lock().unwrap(), ["b", "a", "c", "a1"]);
        assert_eq!(codes(&request), [29, 3, 29, 29, 29, 3, 3]);
    }
}

#[test]
fn a_topic_id_that_was_unknown_when_it_was_authorized_stays_unknown() {
    let mut body = request(13, None, 1, &batch(0, -1));
    let (access, asked) = Access::of_letter('a');
    let ada = Ada::connected();
    let catalog = Catalog::default();
    let mut request = ProduceRequest::default();
    request.parse(&body, 13).unwrap();
    assert!(request.authorize(&body, &catalog, &access, ada.sender(), &mut long()));
    let log_of = Box::new(|_| panic!("nobody was asked for this topic"));
    catalog.add(Topic::new("pay".to_owned(), ID, 5, log_of, false));
    request.append(&mut body, &catalog, false, &mut long());
    assert_eq!(codes(&request), [codes::UNKNOWN_TOPIC_ID; 2]);
    assert!(asked.lock().unwrap().is_empty());
}

#[test]
fn clients_are_told_codes_of_their_version() {
    assert_eq!(
        code_for(10, codes::TRANSACTION_ABORTABLE),
        codes::INVALID_TXN_STATE
    );
    assert_eq!(
        code_for(11, codes::TRANSACTION_ABORTABLE),
        codes::TRANSACTION_ABORTABLE
    );
    assert_eq!(
        code_for(11, codes::CONCURRENT_TRANSACTIONS),
        codes::NOT_ENOUGH_REPLICAS
    );
    assert_eq!(
        code_for(12, codes::CONCURRENT_TRANSACTIONS),
        codes::CONCURRENT_TRANSACTIONS
    );
    assert_eq!(
        code_for(13, codes::NOT_COORDINATOR),
        codes::NOT_ENOUGH_REPLICAS
    );
    assert_eq!(
        code_for(13, codes::PRODUCER_FENCED),
        codes::INVALID_PRODUCER_EPOCH
    );
}

#[test]
fn a_hash_is_javas() {
    assert_eq!(java_hash(""), 0);
    assert_eq!(java_hash("payments-7"), 1_612_905_879);
    assert_eq!(java_hash("\u{1f600}"), 1_772_899);
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic_or_keep_more_than_they_pay_for(
        body in prop::collection::vec(any::<u8>(), 0..300),
        version in 3_i16..=13,
    ) {
        let mut parsed = ProduceRequest::default();
        let _ = parsed.parse(&body, version);
        prop_assert!(parsed.partitions.capacity() <= body.len());
        prop_assert!(parsed.topics.capacity() <= body.len() + 4);
    }

    #[test]
    fn a_damaged_request_is_answered_or_malformed_and_never_a_panic(
        version in 3_i16..=13,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut body = request(version, Some(b"t"), -1, &batch(TRANSACTIONAL, 7));
        for (index, byte) in damage {
            let at = index.index(body.len());
            body[at] = byte;
        }
        let mut parsed = ProduceRequest::default();
        if parsed.parse(&body, version).is_ok() {
            parsed.append(&mut body, &Catalog::default(), false, &mut long());
            parsed.encode(&body, 1, 0, &mut Vec::new());
        }
    }
}
