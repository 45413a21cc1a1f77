//! Tests of Fetch without a session.

use proptest::prelude::*;
use txn_log::builder::BatchBuilder;
use txn_log::{Origin, Past, Settings};
use txn_protocol::batch::Codec;
use txn_protocol::frame::{begin_response, set_length};
use txn_protocol::{Malformed, Put};

use super::answer::FetchResponse;
use super::wanted::is_flexible;
use super::*;
use crate::access::Ada;
use crate::catalog::{Topic, TopicId};
use crate::chunk::Chunk;

const NAME: &[u8] = b"pay";
const ID: TopicId = [7; 16];

fn put_topic(out: &mut Vec<u8>, version: i16) {
    if has_topic_ids(version) {
        out.put(&ID);
    } else {
        out.put_nullable_string(Some(NAME), is_flexible(version));
    }
}

/// A request for partition 0 of one topic that forgets another.
fn request(version: i16, isolation: i8, session_epoch: i32) -> Vec<u8> {
    let is_flexible = is_flexible(version);
    let mut out = Vec::new();
    if version < 15 {
        out.put_i32(-1);
    }
    out.put_i32(500);
    out.put_i32(1);
    out.put_i32(1 << 20);
    out.put(&isolation.to_be_bytes());
    if version >= 7 {
        out.put_i32(0);
        out.put_i32(session_epoch);
    }
    out.put_length(1, is_flexible);
    put_topic(&mut out, version);
    out.put_length(1, is_flexible);
    out.put_i32(0);
    if version >= 9 {
        out.put_i32(-1);
    }
    out.put_i64(5);
    if version >= 12 {
        out.put_i32(-1);
    }
    if version >= 5 {
        out.put_i64(-1);
    }
    out.put_i32(1 << 20);
    if version >= 17 {
        out.put(&[1, 0, 16]); // one tagged field: replica_directory_id
        out.put(&[0; 16]);
    } else {
        out.put_no_tags(is_flexible);
    }
    out.put_no_tags(is_flexible);
    if version >= 7 {
        out.put_length(1, is_flexible);
        put_topic(&mut out, version);
        out.put_length(1, is_flexible);
        out.put_i32(9);
        out.put_no_tags(is_flexible);
    }
    if version >= 11 {
        out.put_nullable_string(Some(b""), is_flexible);
    }
    out.put_no_tags(is_flexible);
    out
}

fn parse(body: &[u8], version: i16) -> Result<FetchRequest, Malformed> {
    FetchRequest::parse(body, version, 42, &Catalog::default())
}

fn answer(request: &FetchRequest) -> Vec<u8> {
    match request.answer(true, None).chunks.remove(0) {
        Chunk::Bytes { data, .. } => data,
        Chunk::File { .. } => panic!("an answer begins with bytes"),
    }
}

#[test]
fn every_version_is_read_and_its_topic_is_sent_back() {
    for version in 4..=18 {
        let request = parse(&request(version, 1, 0), version).unwrap();
        assert!(request.reading.is_read_committed);
        assert_eq!(request.partitions[0].start, 5, "version {version}");
        assert_eq!(request.readiness(), Readiness::Ready);
        let out = answer(&request);
        let topic: &[u8] = if version >= 13 { &ID } else { NAME };
        assert!(out.windows(topic.len()).any(|window| window == topic));
        let length = i32::from_be_bytes(*out.first_chunk().unwrap());
        assert_eq!(length as usize, out.len() - 4);
        assert_eq!(out[4..8], 42_i32.to_be_bytes());
    }
}

#[test]
fn a_request_cut_anywhere_is_malformed_and_what_follows_it_is_ignored() {
    for version in 4..=18 {
        let body = request(version, 0, -1);
        for end in 0..body.len() {
            assert!(
                parse(&body[..end], version).is_err(),
                "version {version} cut at {end}"
            );
        }
        assert!(parse(&[&body[..], &[0]].concat(), version).is_ok());
    }
}

/// A topic's name, and partitions of it with the offset to read from.
type Named<'a> = (&'a [u8], &'a [(i32, i64)]);

/// A request of version 11 for these.
fn naming(topics: &[Named<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for value in [-1, 500, 1, 1 << 20] {
        out.put_i32(value); // replica_id, max_wait_ms, min_bytes, max_bytes
    }
    out.put(&[0]); // isolation_level
    out.put_i32(0); // session_id
    out.put_i32(-1); // session_epoch
    out.put_i32(topics.len() as i32);
    for (name, partitions) in topics {
        out.put_nullable_string(Some(name), false);
        out.put_i32(partitions.len() as i32);
        for &(index, start) in *partitions {
            out.put_i32(index);
            out.put_i32(-1); // current_leader_epoch
            out.put_i64(start);
            out.put_i64(-1); // log_start_offset
            out.put_i32(1 << 20); // partition_max_bytes
        }
    }
    out.put_i32(0); // forgotten_topics_data
    out.put_nullable_string(Some(b""), false);
    out
}

/// Lists (place of the topic, partition, offset) of a request.
fn wanted(request: &FetchRequest) -> Vec<(usize, i32, i64)> {
    let of = |one: &WantedPartition| (one.topic, one.index, one.start);
    request.partitions.iter().map(of).collect()
}

#[test]
fn a_partition_named_again_keeps_its_first_place_and_gets_what_was_said_last() {
    let body = naming(&[
        (b"a", &[(0, 1), (1, 2), (0, 3)]),
        (b"b", &[(0, 4)]),
        (b"a", &[(1, 5), (2, 6)]),
        (b"b", &[(0, 7)]),
    ]);
    let request = parse(&body, 11).unwrap();
    let expected = [(0, 0, 3), (0, 1, 5), (1, 0, 7), (2, 2, 6)];
    assert_eq!(wanted(&request), expected);
    let mut out = Vec::new();
    begin_response(&mut out, 42, false);
    out.put_i32(0);
    out.put_i16(0);
    out.put_i32(0);
    out.put_i32(3);
    for (name, indexes) in [(b"a", &[0, 1][..]), (b"b", &[0]), (b"a", &[2])] {
        out.put_nullable_string(Some(name), false);
        out.put_i32(indexes.len() as i32);
        for index in indexes {
            out.put_i32(*index);
            let mut error = FetchResponse::default();
            request.put_error(&mut error, codes::UNKNOWN_TOPIC_OR_PARTITION);
            out.put(&error.out);
        }
    }
    let length = out.len() - 4;
    set_length(&mut out, length);
    assert_eq!(answer(&request), out);
}

#[test]
fn a_partition_named_60_000_times_is_read_and_answered_once() {
    // The story: each was watched and woken for itself, and a watcher came and went in time
    // linear in those there were. One such request held a reactor for 39 s.
    let partitions = vec![(0, 0); 60_000];
    let request = parse(&naming(&[(b"a", &partitions)]), 11).unwrap();
    assert_eq!(request.partition_count(), 1);
    let topics: Vec<Named<'_>> = vec![(b"a", &[(0, 0)]); 60_000];
    let request = parse(&naming(&topics), 11).unwrap();
    assert_eq!(request.partition_count(), 1);
    assert!(answer(&request).len() < 200);
}

#[test]
fn each_name_is_asked_for_once_in_turns_of_any_length() {
    // The story: a name that is refused was asked for as often as a request had it, and one
    // request had it 199,000 times.
    let named = [b"b", b"a", b"b", b"c", b"b", b"a"].map(|name| (&name[..], &[][..]));
    for (time, turns) in [(Duration::ZERO, 4), (Duration::from_secs(3600), 1)] {
        let (access, asked) = Access::of_letter('a');
        let ada = Ada::connected();
        let mut request = parse(&naming(&named), 11).unwrap();
        let mut authorize = || request.authorize(&access, ada.sender(), &mut Turn::of(time));
        let taken = 1 + std::iter::from_fn(|| (!authorize()).then_some(())).count();
        assert!(authorize());
        assert_eq!(taken, turns);
        assert_eq!(*asked.lock().unwrap(), ["b", "a", "c"]);
        let refused: Vec<bool> = request.topics.iter().map(|one| one.is_refused).collect();
        assert_eq!(refused, [true, false, true, true, true, false]);
    }
}

#[test]
fn an_isolation_level_that_does_not_exist_is_malformed() {
    assert!(parse(&request(11, 2, 0), 11).is_err());
}

#[test]
fn versions_that_know_no_storage_error_hear_of_another_leader() {
    let catalog = Catalog::default();
    let name = std::str::from_utf8(NAME).unwrap().to_owned();
    let log_of = Box::new(|_| Err(codes::KAFKA_STORAGE_ERROR));
    catalog.add(Topic::new(name, ID, 1, log_of, false));
    for (version, expected) in [
        (4, codes::NOT_LEADER_OR_FOLLOWER),
        (5, codes::NOT_LEADER_OR_FOLLOWER),
        (6, codes::KAFKA_STORAGE_ERROR),
    ] {
        let request = FetchRequest::parse(&request(version, 0, 0), version, 42, &catalog);
        let out = answer(&request.unwrap());
        let at = 4 + 4 + 4 + 4 + 2 + NAME.len() + 4 + 4; // up to the partition's error code
        assert_eq!(out[at..at + 2], expected.to_be_bytes(), "version {version}");
    }
}

#[test]
fn a_reader_in_a_complete_segment_waits_for_no_more_bytes() {
    // The story: a reader that was behind waited `fetch.max.wait.ms` wherever less than
    // `fetch.min.bytes` was left up to the log end.
    let directory = tempfile::TempDir::new().unwrap();
    let settings = Settings {
        segment_bytes: 1000,
        ..Settings::default()
    };
    let path = directory.path().join("pay-0");
    let shut = Arc::new(crate::test_logs::Shut);
    let log = PartitionLog::open(path, shut, settings, None, Past::default());
    let log = Arc::new(log.unwrap());
    let origin = Origin::Client {
        transaction_version: 2,
        transactional_id_hash: None,
    };
    for _ in 0..3 {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.push(5, None, Some(&[7; 400]), &[]);
        log.append(origin, &mut builder.seal().unwrap()).unwrap();
    }
    let catalog = Catalog::default();
    let name = std::str::from_utf8(NAME).unwrap().to_owned();
    let log_of = Box::new(move |_| Ok(Arc::clone(&log)));
    catalog.add(Topic::new(name, ID, 1, log_of, false));
    let readiness = |start| {
        let body = naming(&[(NAME, &[(0, start)])]);
        let mut request = FetchRequest::parse(&body, 11, 42, &catalog).unwrap();
        request.min_bytes = 1 << 20;
        request.readiness()
    };
    assert_eq!(
        [0, 1, 2, 3].map(readiness),
        [
            Readiness::Ready, // the segment of the first two batches is complete
            Readiness::Ready,
            Readiness::TooLittle,
            Readiness::TooLittle,
        ]
    );
}

#[test]
fn once_its_time_to_open_partitions_is_over_a_request_is_told_to_ask_again() {
    // The story: ten thousand partitions that nobody had named were opened for one request,
    // which held the reactor for 0.7 s.
    let directory = tempfile::TempDir::new().unwrap();
    let opened = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    let path = directory.path().join("pay-0");
    let log_of = Box::new(move |_| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let log = PartitionLog::open(
            path.clone(),
            Arc::new(crate::test_logs::Shut),
            Settings::default(),
            None,
            Past::default(),
        );
        Ok(Arc::new(log.unwrap()))
    });
    let catalog = Catalog::default();
    let name = std::str::from_utf8(NAME).unwrap().to_owned();
    catalog.add(Topic::new(name, ID, 3, log_of, false));
    let parse = || {
        let body = naming(&[(NAME, &[(0, 0), (1, 0), (2, 0)])]);
        FetchRequest::parse(&body, 11, 42, &catalog).unwrap()
    };
    let is_readable = |request: &FetchRequest| {
        request
            .each()
            .map(|(topic, wanted)| request.readable(topic, wanted).err())
            .collect::<Vec<_>>()
    };
    let request = parse();
    request
        .reading
        .log(request.topics[0].topic.as_ref().unwrap(), 1)
        .unwrap();
    request.reading.opening.set(Duration::ZERO);
    let told = Some(codes::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(is_readable(&request), [told, None, told]);
    assert_eq!(request.readiness(), Readiness::Ready);
    assert_eq!(opened.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(is_readable(&parse()), [None, None, None], "it asked again");
}

#[test]
fn an_answer_of_many_small_parts_holds_a_mebibyte_of_them_and_names_the_rest() {
    // The story: parts of up to 32 KiB were copied, however many. A client that fetched two
    // thousand partitions and took nothing had the broker keep 55 MB for each connection.
    let directory = tempfile::TempDir::new().unwrap();
    let log = PartitionLog::open(
        directory.path().join("pay-0"),
        Arc::new(crate::test_logs::Shut),
        Settings::default(),
        None,
        Past::default(),
    );
    let log = Arc::new(log.unwrap());
    let mut builder = BatchBuilder::new(Codec::None);
    builder.push(0, None, Some(&vec![7; 30_000]), &[]);
    let mut batch = builder.seal().unwrap();
    let origin = Origin::Client {
        transaction_version: 2,
        transactional_id_hash: None,
    };
    log.append(origin, &mut batch).unwrap();
    let catalog = Catalog::default();
    let name = std::str::from_utf8(NAME).unwrap().to_owned();
    let log_of = Box::new(move |_| Ok(Arc::clone(&log)));
    catalog.add(Topic::new(name, ID, 1, log_of, false));
    let mut request = FetchRequest::parse(&request(11, 0, -1), 11, 42, &catalog).unwrap();
    let wanted = WantedPartition {
        start: 0,
        ..request.partitions[0]
    };
    request.partitions = vec![wanted; 500];
    request.topics[0].partitions = 500;
    request.max_bytes = MAX_ANSWER_BYTES;

    let chunks = request.answer(true, None).chunks;

    let sent: usize = chunks.iter().map(Chunk::left).sum();
    assert!(sent > 500 * batch.len());
    let held = |chunk: &Chunk| match chunk {
        Chunk::Bytes { data, .. } => data.capacity(),
        Chunk::File { .. } => 0,
    };
    let held: usize = chunks.iter().map(held).sum();
    assert!(held < 3 << 20, "{held} bytes are held");
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic_or_keep_more_than_they_pay_for(
        body in prop::collection::vec(any::<u8>(), 0..300),
        version in 4_i16..=18,
    ) {
        if let Ok(parsed) = parse(&body, version) {
            prop_assert!(parsed.partitions.capacity() <= body.len());
            answer(&parsed);
        }
    }

    #[test]
    fn a_damaged_request_is_answered_or_malformed_and_never_a_panic(
        version in 4_i16..=18,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut body = request(version, 1, 0);
        for (index, byte) in damage {
            let at = index.index(body.len());
            body[at] = byte;
        }
        if let Ok(parsed) = parse(&body, version) {
            parsed.readiness();
            answer(&parsed);
        }
    }
}
