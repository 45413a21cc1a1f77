//! Bytes that must not drift: every message against the bytes that another implementation of the
//! protocol made of the same fields (kio 0.6.5, generated from Apache Kafka's schemas).

use proptest::prelude::*;
use txn_protocol::{Malformed, Reader};

use super::cluster::{self, BrokerAddress, CoordinatorOf, Metadata, TopicMetadata};
use super::produce::{PartitionBatch, PartitionResponse};
use super::transactions::{self, Description, Listing};
use super::{fetch, produce};

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut e = Vec::new();
    encode(&mut e);
    hex(&e)
}

/// Decodes a whole answer and checks that no byte is left.
fn decoded<T>(text: &str, decode: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>) -> T {
    let bytes = bytes(text);
    let mut r = Reader::new(&bytes);
    let value = decode(&mut r).unwrap();
    assert_eq!(r.left(), 0);
    value
}

#[test]
fn api_versions_tell_ranges_and_the_finalized_transaction_version() {
    assert_eq!(
        encoded(|e| cluster::encode_api_versions(e, 3)),
        "0474786e06302e312e3000"
    );
    let versions = decoded(
        "00000300000003000d00000100040012000000000003001a02147472616e73616374696f6e2e76657273696f6e\
        000000020001080000000000000007022d030e67726f75702e76657273696f6e0001000100147472616e736163\
        74696f6e2e76657273696f6e0002000200",
        |r| cluster::decode_api_versions(r, 3),
    );
    assert_eq!(versions.ranges, [(0, 3, 13), (1, 4, 18)]);
    assert_eq!(
        (versions.features_epoch, versions.transaction_version),
        (7, 2)
    );
}

#[test]
fn api_versions_in_version_0_answer_a_version_too_new() {
    let versions = decoded("002300000001001200000004", |r| {
        cluster::decode_api_versions(r, 3)
    });
    assert_eq!(
        (versions.error_code, versions.ranges),
        (35, vec![(18, 0, 4)])
    );
    assert_eq!(versions.features_epoch, -1);
}

fn known_metadata() -> Metadata {
    let broker = |id, host: &str, port| BrokerAddress {
        id,
        host: host.to_owned(),
        port,
    };
    let topic = |error_code, name: &str, partitions| TopicMetadata {
        error_code,
        name: name.to_owned(),
        id: None,
        is_internal: false,
        partitions,
    };
    Metadata {
        brokers: vec![broker(1, "h", 9092), broker(2, "i", 9093)],
        controller: 2,
        topics: vec![
            topic(0, "out", vec![(0, 0, 1), (5, 1, -1)]),
            topic(3, "no", vec![]),
        ],
    }
}

#[test]
fn metadata_is_the_same_in_versions_9_and_12_but_for_ids() {
    assert_eq!(
        encoded(|e| cluster::encode_metadata(e, 9, Some(&["out"]), false)),
        "02046f75740000000000"
    );
    assert_eq!(
        encoded(|e| cluster::encode_metadata(e, 9, None, false)),
        "0000000000"
    );
    assert_eq!(
        encoded(|e| cluster::encode_metadata(e, 12, Some(&["out"]), false)),
        "0200000000000000000000000000000000046f757400000000"
    );
    assert_eq!(
        encoded(|e| cluster::encode_metadata(e, 12, None, true)),
        "00010000"
    );
    let nine = decoded(
        "000000000300000001026800002384000000000002026900002385057261636b00026300000002030000046f75\
        74000300000000000000000001000000030300000001000000020200000001020000000200000500000001ffff\
        ffff0000000302000000020102000000020080000000000003036e6f000180000000008000000000",
        |r| cluster::decode_metadata(r, 9),
    );
    let twelve = decoded(
        "000000000300000001026800002384000000000002026900002385057261636b00026300000002030000046f75\
        740000000000000000000000000000000700030000000000000000000100000003030000000100000002020000\
        0001020000000200000500000001ffffffff0000000302000000020102000000020080000000000003036e6f00\
        0000000000000000000000000000000001800000000000",
        |r| cluster::decode_metadata(r, 12),
    );
    let mut with_id = known_metadata();
    with_id.topics[0].id = Some(*b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07");
    assert_eq!((nine, twelve), (known_metadata(), with_id));
}

#[test]
fn find_coordinator() {
    let request =
        encoded(|e| cluster::encode_find_coordinator(e, CoordinatorOf::Transaction, "pay"));
    assert_eq!(request, "047061790100");
    let found = decoded(
        "000000000000000000000102680000238400",
        cluster::decode_find_coordinator,
    );
    assert_eq!(
        found,
        Ok(BrokerAddress {
            id: 1,
            host: "h".to_owned(),
            port: 9092
        })
    );
    // On an error the rest of the answer has no meaning and is not read.
    let refused = cluster::decode_find_coordinator(&mut Reader::new(&bytes(
        "00000000000f066c61746572ffffffff01ffffffff00",
    )));
    assert_eq!(refused, Ok(Err((15, Some("later".to_owned())))));
}

#[test]
fn list_offsets() {
    let request = encoded(|e| cluster::encode_list_offsets(e, "out", &[0, 3], -1, true));
    assert_eq!(
        request,
        "ffffffff0102046f75740300000000ffffffffffffffffffffffff0000000003ffffffffffffffffffffffff00\
        0000"
    );
    let offsets = decoded(
        "0000000002046f757403000000000000ffffffffffffffff000000000000002a0000000500000000030006ffff\
        ffffffffffffffffffffffffffffffffffff000000",
        cluster::decode_list_offsets,
    );
    assert_eq!(offsets, [(0, 0, 42), (3, 6, -1)]);
}

#[test]
fn create_topics() {
    let configs = [("cleanup.policy".to_owned(), "compact".to_owned())];
    let request = encoded(|e| cluster::encode_create_topics(e, "out", 4, &configs, 9000));
    assert_eq!(
        request,
        "02046f757400000004ffff01020f636c65616e75702e706f6c69637908636f6d706163740000000023280000"
    );
    let there = [(36, Some("there".to_owned()))];
    let five = decoded(
        "0000000002046f75740024067468657265ffffffffffff0202610000050100010002001d00",
        |r| cluster::decode_create_topics(r, 5),
    );
    let seven = decoded(
        "0000000002046f7574000000000000000000000000000000000024067468657265ffffffffffff020261000005\
        0100010002001d00",
        |r| cluster::decode_create_topics(r, 7),
    );
    assert_eq!(
        (five.as_slice(), seven.as_slice()),
        (&there[..], &there[..])
    );
}

#[test]
fn fetch_of_one_partition() {
    let request = fetch::Request {
        topic: "out",
        partition: 3,
        offset: 42,
        read_committed: true,
        wait_ms: 500,
        bytes_min: 1,
        bytes_max: 65536,
    };
    let expected = "ffffffff000001f400000001000100000100000000ffffffff02046f75740200000003ffffffff000000000000\
        002affffffffffffffffffffffff000100000000010100";
    assert_eq!(encoded(|e| fetch::encode(e, &request)), expected);
    let answer = bytes(
        "0000000000000000000002046f7574020000000300000000000000000032000000000000002d00000000000000\
        02020000000000000007000000000000002b00ffffffff08626174636865730101090000000100000004000000",
    );
    let response = fetch::decode(&mut Reader::new(&answer), 3)
        .unwrap()
        .unwrap();
    assert_eq!(
        (
            response.high_watermark,
            response.last_stable_offset,
            response.log_start_offset
        ),
        (50, 45, 2)
    );
    assert_eq!((response.error_code, response.aborted), (0, vec![(7, 43)]));
    let end = answer.len() - response.bytes_after;
    assert_eq!(
        (response.records, &answer[end - 7..end]),
        (&b"batches"[..], &b"batches"[..])
    );
    assert_eq!(fetch::decode(&mut Reader::new(&answer), 4), Ok(None));
}

#[test]
fn a_throttled_fetch_says_nothing_of_the_partition() {
    let is_silent = decoded("000000000000000000000100", |r| {
        Ok(fetch::decode(r, 3)?.is_none())
    });
    assert!(is_silent);
}

#[test]
fn produce_groups_partitions_by_topic_and_leaves_batches_where_they_are() {
    let part = |topic, partition, batch| PartitionBatch {
        topic,
        partition,
        batch,
    };
    let parts = [
        part("a", 0, &b"one"[..]),
        part("a", 2, b"two"),
        part("b", 1, b"three"),
    ];
    let pieces = produce::encode(Vec::new(), Some("pay"), 9000, &parts);
    let mut request = Vec::new();
    for (i, piece) in pieces.iter().enumerate() {
        request.extend_from_slice(piece);
        request.extend_from_slice(parts.get(i).map_or(b"", |part| part.batch));
    }
    assert_eq!(
        hex(&request),
        "04706179ffff000023280302610300000000046f6e6500000000020474776f0000026202000000010674687265\
        65000000"
    );
}

#[test]
fn a_refused_batch_names_the_record_that_is_wrong() {
    let response = |partition, error_code, message: Option<&str>| PartitionResponse {
        topic: "a".to_owned(),
        partition,
        error_code,
        base_offset: if error_code == 0 { 5 } else { -1 },
        append_time_ms: -1,
        message: message.map(ToOwned::to_owned),
    };
    let expected = [
        response(0, 0, None),
        response(2, 87, Some("record 4: no key")),
    ];
    let nine = decoded(
        "020261030000000000000000000000000005ffffffffffffffff0000000000000000010000000000020057ffff\
        ffffffffffffffffffffffffffffffffffffffffffff0200000004076e6f206b65790004626164000000000000\
        00",
        produce::decode,
    );
    let twelve = decoded(
        "020261030000000000000000000000000005ffffffffffffffff00000000000000000100010009000000020000\
        000900000000020057ffffffffffffffffffffffffffffffffffffffffffffffff0200000004076e6f206b6579\
        0004626164010009000000020000000900000000000001000d02000000020269000023850000",
        produce::decode,
    );
    assert_eq!(
        (nine.as_slice(), twelve.as_slice()),
        (&expected[..], &expected[..])
    );
}

#[test]
fn init_producer_id() {
    let request = |version, id, current| {
        encoded(|e| transactions::encode_init_producer_id(e, version, id, 60_000, current))
    };
    assert_eq!(
        request(5, Some("pay"), (7, 3)),
        "047061790000ea600000000000000007000300"
    );
    assert_eq!(
        request(6, Some("pay"), (7, 3)),
        "047061790000ea6000000000000000070003010000"
    );
    assert_eq!(
        request(5, None, (-1, -1)),
        "000000ea60ffffffffffffffffffff00"
    );
    let response =
        |text, version| decoded(text, |r| transactions::decode_init_producer_id(r, version));
    assert_eq!(
        response("0000000000000000000000000007000400", 5),
        (0, (7, 4))
    );
    assert_eq!(
        response("00000000000000000000000000070004ffffffffffffffffffff00", 6),
        (0, (7, 4))
    );
}

#[test]
fn add_partitions_to_txn() {
    let partitions = [("a", 0), ("b", 1), ("a", 2)];
    let request = encoded(|e| transactions::encode_add_partitions(e, "pay", (7, 3), &partitions));
    assert_eq!(
        request,
        "047061790000000000000007000303026103000000000000000200026202000000010000"
    );
    let results = decoded("000000000202610300000000000000000000020033000000", |r| {
        transactions::decode_partition_errors(r)
    });
    assert_eq!(results, [("a".to_owned(), 0, 0), ("a".to_owned(), 2, 51)]);
}

#[test]
fn offsets_inside_a_transaction() {
    let group = encoded(|e| transactions::encode_add_offsets(e, "pay", (7, 3), "g"));
    assert_eq!(group, "0470617900000000000000070003026700");
    assert_eq!(
        decoded("00000000005a00", transactions::decode_add_offsets),
        90
    );
    let mut offsets = [
        transactions::GroupOffset::new("a", 0, 11),
        transactions::GroupOffset::new("b", 1, 12),
        transactions::GroupOffset::new("a", 2, 13),
    ];
    offsets[1].leader_epoch = 5;
    offsets[1].metadata = Some("m".to_owned());
    let member = transactions::GroupMember::none();
    let request = encoded(|e| {
        transactions::encode_txn_offset_commit(e, "pay", (7, 3), "g", &member, &offsets);
    });
    let expected = "04706179026700000000000000070003ffffffff01000302610300000000000000000000000bffffffff000000\
        000002000000000000000dffffffff00000002620200000001000000000000000c00000005026d000000";
    assert_eq!(request, expected);
    let results = decoded(
        "0000000002026102000000000000000000",
        transactions::decode_partition_errors,
    );
    assert_eq!(results, [("a".to_owned(), 0, 0)]);
}

#[test]
fn end_txn_tells_the_next_identity_from_version_5_on() {
    let request = encoded(|e| transactions::encode_end_txn(e, "pay", (7, 3), true));
    assert_eq!(request, "04706179000000000000000700030100");
    let five = decoded("0000000000000000000000000007000400", |r| {
        transactions::decode_end_txn(r, 5)
    });
    let four = decoded("00000000003000", |r| transactions::decode_end_txn(r, 4));
    assert_eq!((five, four), ((0, Some((7, 4))), (48, None)));
}

#[test]
fn describe_and_list_transactions() {
    assert_eq!(
        encoded(|e| transactions::encode_describe(e, &["pay", "x"])),
        "0304706179027800"
    );
    let described = decoded(
        "0000000002000004706179084f6e676f696e670000ea6000000000000f42400000000000000007000302026103\
        0000000000000002000000",
        transactions::decode_describe,
    );
    let expected = Description {
        transactional_id: "pay".to_owned(),
        error_code: 0,
        state: "Ongoing".to_owned(),
        producer_id: 7,
        producer_epoch: 3,
        start_time_ms: 1_000_000,
        timeout_ms: 60_000,
    };
    assert_eq!(described, [expected]);
    assert_eq!(
        encoded(|e| transactions::encode_list(e, &["Ongoing".to_owned()])),
        "02084f6e676f696e670100"
    );
    let listing = decoded(
        "0000000000000206426f67757302047061790000000000000007084f6e676f696e670000",
        transactions::decode_list,
    );
    let transactions = vec![("pay".to_owned(), 7, "Ongoing".to_owned())];
    assert_eq!(
        listing,
        Listing {
            error_code: 0,
            unknown_states: vec!["Bogus".to_owned()],
            transactions
        }
    );
}

/// Runs every decoder; the result does not matter, only that there is one.
fn decode_everything(bytes: &[u8]) {
    let r = || Reader::new(bytes);
    let _ = cluster::decode_api_versions(&mut r(), 3);
    let _ = cluster::decode_api_versions(&mut r(), 0);
    let _ = cluster::decode_metadata(&mut r(), 9);
    let _ = cluster::decode_metadata(&mut r(), 12);
    let _ = cluster::decode_find_coordinator(&mut r());
    let _ = cluster::decode_list_offsets(&mut r());
    let _ = cluster::decode_create_topics(&mut r(), 7);
    let _ = fetch::decode(&mut r(), 0);
    let _ = produce::decode(&mut r());
    let _ = transactions::decode_init_producer_id(&mut r(), 6);
    let _ = transactions::decode_partition_errors(&mut r());
    let _ = transactions::decode_add_offsets(&mut r());
    let _ = transactions::decode_end_txn(&mut r(), 5);
    let _ = transactions::decode_describe(&mut r());
    let _ = transactions::decode_list(&mut r());
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes: Vec<u8>) {
        decode_everything(&bytes);
    }

    #[test]
    fn no_damaged_answer_makes_a_decoder_panic(
        answer in prop::sample::select(ANSWERS),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        length in any::<prop::sample::Index>(),
    ) {
        let mut bytes = bytes(answer);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(length.index(bytes.len() + 1));
        decode_everything(&bytes);
    }
}

const ANSWERS: &[&str] = &[
    "000000000300000001026800002384000000000002026900002385057261636b00026300000002030000046f75\
        740000000000000000000000000000000000030000000000000000000100000003030000000100000002020000\
        0001020000000200000500000001ffffffff0000000302000000020102000000020080000000000003036e6f00\
        0000000000000000000000000000000001800000000000",
    "0000000000000000000002046f7574020000000300000000000000000032000000000000002d00000000000000\
        02020000000000000007000000000000002b00ffffffff08626174636865730101090000000100000004000000",
    "020261030000000000000000000000000005ffffffffffffffff00000000000000000100010009000000020000\
        000900000000020057ffffffffffffffffffffffffffffffffffffffffffffffff0200000004076e6f206b6579\
        0004626164010009000000020000000900000000000001000d02000000020269000023850000",
    "00000300000003000d00000100040012000000000003001a02147472616e73616374696f6e2e76657273696f6e\
        000000020001080000000000000007022d030e67726f75702e76657273696f6e0001000100147472616e736163\
        74696f6e2e76657273696f6e0002000200",
    "0000000002000004706179084f6e676f696e670000ea6000000000000f42400000000000000007000302026103\
        0000000000000002000000",
];
