//! Scripts: one node that answers what a test says, lost and late answers, a member that is fenced.

use std::sync::Arc;

use txn_log::builder::BatchBuilder;
use txn_protocol::batch::Codec;

use super::*;
use crate::messages::cluster::TopicMetadata;
use crate::messages::consumer::{Fetched, HeartbeatAnswer};

const ID: [u8; 16] = [7; 16];

pub(super) fn settings() -> ConsumerSettings {
    ConsumerSettings {
        group: "g".to_owned(),
        classic: None,
        member_id: "m".to_owned(),
        instance_id: None,
        assignor: None,
        max_poll_interval_ms: 10_000,
        request_timeout_ms: 1_000,
        retry_backoff_ms: 10,
        metadata_age_max_ms: 300_000,
        fetch_wait_ms: 500,
        fetch_min_bytes: 1,
        fetch_max_bytes: 1 << 20,
        partition_fetch_bytes: 1 << 20,
        queued_bytes_max: 1 << 20,
        content_bytes_max: 1 << 20,
        reports_ends: true,
        reset: Reset::Earliest,
        unknown_topic_max_ms: 0,
        api_timeout_ms: 5_000,
    }
}

/// A consumer, and a cluster of one node that connects at once.
/// Topic ids with their partitions; None: not said.
type Owned = Option<Vec<([u8; 16], Vec<i32>)>>;

struct Script {
    consumer: Consumer,
    now: Millis,
    sent: Vec<(NodeId, u64, Request)>,
}

impl Script {
    fn new(settings: ConsumerSettings) -> Self {
        let address = Address {
            host: "a".to_owned(),
            port: 1,
        };
        Self {
            consumer: Consumer::new(&[address], settings),
            now: 1,
            sent: Vec::new(),
        }
    }

    /// Carries effects out until nothing follows, and answers the questions about the cluster.
    fn settle(&mut self) {
        loop {
            let mut effects = Vec::new();
            self.consumer.poll(self.now, &mut effects);
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Connect { node, .. } => self.consumer.connected(node, (0, 0)),
                    Effect::Close { .. } => {}
                    Effect::Send { node, id, request } => self.note(node, id, request),
                }
            }
        }
    }

    fn note(&mut self, node: NodeId, id: u64, request: Request) {
        let broker = BrokerAddress {
            id: 0,
            host: "a".to_owned(),
            port: 1,
        };
        let response = match request {
            Request::Metadata { .. } | Request::TopicsById(_) => Response::Metadata(Metadata {
                brokers: vec![broker],
                controller: 0,
                topics: vec![TopicMetadata {
                    error_code: 0,
                    name: "t".to_owned(),
                    id: Some(ID),
                    is_internal: false,
                    partitions: vec![(0, 0, 0), (0, 1, 0)],
                }],
            }),
            Request::FindCoordinator { .. } => Response::Coordinator(Ok(broker)),
            other => return self.sent.push((node, id, other)),
        };
        self.consumer.answered(id, Ok(response), self.now);
    }

    /// The one request of a kind that waits for its answer.
    fn due(&mut self, is_it: impl Fn(&Request) -> bool) -> (NodeId, u64, Request) {
        let index = self.sent.iter().position(|(.., request)| is_it(request));
        self.sent
            .remove(index.unwrap_or_else(|| panic!("not in {:?}", self.sent)))
    }

    fn fetch(&mut self) -> (NodeId, u64, i64) {
        let (node, id, request) = self.due(|request| matches!(request, Request::Fetch { .. }));
        let Request::Fetch { wanted, .. } = request else {
            unreachable!()
        };
        (node, id, wanted[0].offset)
    }

    fn answer(&mut self, id: u64, response: Response) {
        self.consumer.answered(id, Ok(response), self.now);
        self.settle();
    }

    fn heartbeat(&mut self) -> (u64, Membership, Owned) {
        let (_, id, request) = self.due(|request| matches!(request, Request::Heartbeat { .. }));
        let Request::Heartbeat { member, owned, .. } = request else {
            unreachable!()
        };
        (id, member, owned)
    }

    fn take(&mut self) -> Vec<i64> {
        let mut taken = Vec::new();
        self.consumer.take(100, usize::MAX, &mut taken);
        self.settle();
        taken.iter().map(Message::offset).collect()
    }
}

fn place(partition: i32) -> Place {
    ("t".into(), partition)
}

fn fetched(base_offset: i64, count: usize) -> Response {
    let mut builder = BatchBuilder::new(Codec::None);
    for _ in 0..count {
        builder.push(0, None, Some(b"v"), &[]);
    }
    let mut batch = Vec::new();
    if count > 0 {
        batch = builder.seal().unwrap();
        txn_protocol::batch::stamp_offset(&mut batch, base_offset, 0);
    }
    Response::Fetch(
        0,
        vec![Fetched {
            place: place(0),
            error_code: 0,
            aborted: Vec::new(),
            records: Arc::new(batch),
            log_start_offset: 0,
            high_watermark: base_offset + count as i64,
            end_offset: base_offset + count as i64,
        }],
    )
}

fn assigned(partitions: &[i32], epoch: i32) -> Response {
    Response::Heartbeat(HeartbeatAnswer {
        error_code: 0,
        message: None,
        epoch,
        interval_ms: 5_000,
        assignment: Some(partitions.iter().map(|&p| (ID, p)).collect()),
    })
}

fn refused(error_code: i16) -> Response {
    Response::Heartbeat(HeartbeatAnswer {
        error_code,
        message: None,
        epoch: 0,
        interval_ms: 5_000,
        assignment: None,
    })
}

#[test]
fn records_are_fetched_on_from_where_the_last_answer_ended() {
    let mut script = Script::new(settings());
    script.consumer.assign(vec![(place(0), Begin::At(5))]);
    script.settle();
    let (_, id, offset) = script.fetch();
    assert_eq!(offset, 5);
    script.answer(id, fetched(3, 5)); // a batch may begin before the offset
    assert_eq!(script.take(), [5, 6, 7]);
    assert_eq!(script.fetch().2, 8);
}

#[test]
fn an_answer_that_comes_after_a_seek_is_dropped() {
    let mut script = Script::new(settings());
    script.consumer.assign(vec![(place(0), Begin::At(0))]);
    script.settle();
    let (_, late, _) = script.fetch();
    assert!(script.consumer.seek(&place(0), Begin::At(50)));
    script.settle();
    script.answer(late, fetched(0, 3));
    assert_eq!(script.take(), []);
    let (_, id, offset) = script.fetch();
    assert_eq!(offset, 50);
    script.answer(id, fetched(50, 1));
    assert_eq!(script.take(), [50]);
}

#[test]
fn a_fetch_whose_answer_is_lost_is_sent_again() {
    let mut script = Script::new(settings());
    script.consumer.assign(vec![(place(0), Begin::At(0))]);
    script.settle();
    let (node, ..) = script.fetch();
    let error = KafkaError::unreachable("a", "was lost", &"cut");
    script.consumer.disconnected(node, &error, script.now);
    script.now += 1_000;
    script.settle();
    let (_, id, offset) = script.fetch();
    assert_eq!(offset, 0);
    script.answer(id, fetched(0, 2));
    assert_eq!(script.take(), [0, 1]);
}

#[test]
fn a_node_that_owes_an_answer_for_too_long_is_asked_again() {
    let mut script = Script::new(settings());
    script.consumer.assign(vec![(place(0), Begin::At(0))]);
    script.settle();
    script.fetch();
    script.now += 1_000;
    script.settle();
    script.now += 1_000;
    script.settle();
    assert_eq!(script.fetch().2, 0);
}

#[test]
fn a_member_gives_partitions_back_before_it_has_new_ones() {
    let mut script = Script::new(settings());
    let subscription = Subscription {
        topics: vec!["t".to_owned()],
        pattern: None,
    };
    script.consumer.subscribe(subscription, script.now);
    script.settle();
    let (id, member, owned) = script.heartbeat();
    assert_eq!((member.epoch, owned), (0, Some(Vec::new())));
    script.answer(id, assigned(&[0], 1));
    let (number, change) = script.consumer.take_event().unwrap();
    assert_eq!(change, Change::Assign(vec![place(0)]));
    script.consumer.event_done(number);
    script.settle();
    let (id, _, owned) = script.heartbeat();
    assert_eq!(owned, Some(vec![(ID, vec![0])]));
    script.answer(id, assigned(&[1], 2));
    let (number, change) = script.consumer.take_event().unwrap();
    assert_eq!(change, Change::Revoke(vec![place(0)]));
    assert!(script.consumer.take_event().is_none());
    script.consumer.event_done(number);
    script.settle();
    let (_, change) = script.consumer.take_event().unwrap();
    assert_eq!(change, Change::Assign(vec![place(1)]));
}

#[test]
fn a_fenced_member_loses_its_partitions_and_joins_anew() {
    let mut script = Script::new(settings());
    let subscription = Subscription {
        topics: vec!["t".to_owned()],
        pattern: None,
    };
    script.consumer.subscribe(subscription, script.now);
    script.settle();
    let (id, ..) = script.heartbeat();
    script.answer(id, assigned(&[0, 1], 3));
    let (assign, _) = script.consumer.take_event().unwrap();
    assert_eq!(script.consumer.membership().epoch, 3);
    script.now += 5_000;
    script.settle();
    let (id, ..) = script.heartbeat();
    script.answer(id, refused(codes::FENCED_MEMBER_EPOCH)); // while the program takes them
    script.consumer.event_done(assign);
    let (number, change) = script.consumer.take_event().unwrap();
    assert_eq!(change, Change::Lost(vec![place(0), place(1)]));
    assert_eq!(script.consumer.membership().epoch, -1);
    script.consumer.event_done(number);
    script.now += 1_000;
    script.settle();
    let (_, member, owned) = script.heartbeat();
    assert_eq!((member.epoch, owned), (0, Some(Vec::new())));
}

#[test]
fn offsets_of_an_open_transaction_are_waited_for() {
    let mut script = Script::new(settings());
    script.consumer.assign(vec![(place(0), Begin::Committed)]);
    script.settle();
    let is_it = |request: &Request| matches!(request, Request::FetchOffsets { .. });
    let answer = |code, offset| {
        Response::Offsets(
            0,
            vec![OffsetAnswer {
                place: place(0),
                error_code: code,
                offset,
                leader_epoch: -1,
                metadata: String::new(),
            }],
        )
    };
    let (_, id, _) = script.due(is_it);
    script.answer(id, answer(codes::UNSTABLE_OFFSET_COMMIT, -1));
    assert!(script.sent.is_empty());
    script.now += 1_000;
    script.settle();
    let (_, id, _) = script.due(is_it);
    script.answer(id, answer(0, 42));
    assert_eq!(script.fetch().2, 42);
}

#[test]
fn what_is_held_is_bounded() {
    let mut script = Script::new(ConsumerSettings {
        partition_fetch_bytes: 200,
        ..settings()
    });
    script.consumer.assign(vec![(place(0), Begin::At(0))]);
    script.settle();
    let (_, id, _) = script.fetch();
    script.answer(id, fetched(0, 50)); // more than 200 bytes
    assert!(script.sent.is_empty());
    script.take();
    assert_eq!(script.fetch().2, 50);
}

fn out_of_range() -> Response {
    let Response::Fetch(code, mut answers) = fetched(0, 1) else {
        unreachable!()
    };
    answers[0].error_code = codes::OFFSET_OUT_OF_RANGE;
    answers[0].records = Arc::default();
    Response::Fetch(code, answers)
}

#[test]
fn an_offset_out_of_range_is_fetched_again_once_the_records_before_it_are_read() {
    let mut script = Script::new(ConsumerSettings {
        reset: Reset::Error,
        ..settings()
    });
    script.consumer.assign(vec![(place(0), Begin::At(0))]);
    script.settle();
    let (_, id, _) = script.fetch();
    script.answer(id, fetched(0, 2));
    let (_, id, offset) = script.fetch();
    assert_eq!(offset, 2);
    script.answer(id, out_of_range());
    assert!(script.sent.is_empty()); // it was asked for again and again
    assert!(script.consumer.take_report().is_none());
    assert_eq!(script.take(), [0, 1]);
    let (_, id, offset) = script.fetch();
    assert_eq!(offset, 2);
    script.answer(id, out_of_range());
    let report = script.consumer.take_report().unwrap();
    assert!(report.is_without_begin);
    assert!(script.sent.is_empty());
}

#[test]
fn a_fetch_after_a_seek_does_not_wait_for_the_one_in_flight() {
    let mut script = Script::new(settings());
    script.consumer.assign(vec![(place(0), Begin::At(0))]);
    script.settle();
    let (first, ..) = script.fetch();
    assert!(script.consumer.seek(&place(0), Begin::At(50)));
    script.settle();
    let (second, _, offset) = script.fetch();
    assert_eq!(offset, 50);
    assert_ne!(first, second);
}

#[test]
fn a_commit_is_given_up_after_default_api_timeout_ms() {
    let mut script = Script::new(settings());
    let commit = Commit {
        place: place(0),
        offset: 1,
        leader_epoch: -1,
        metadata: String::new(),
    };
    let ask = Ask::Commit(Membership::default(), vec![commit]);
    let number = script.consumer.ask(ask, script.now);
    for _ in 0..8 {
        script.settle();
        assert!(script.consumer.answer(number).is_none());
        if let Some(index) = script.sent.iter().position(|_| true) {
            let (_, id, _) = script.sent.remove(index);
            let busy = codes::COORDINATOR_LOAD_IN_PROGRESS;
            script.answer(id, Response::Partitions(vec![("t".to_owned(), 0, busy)]));
        }
        script.now += 600;
    }
    let deadline = script.consumer.deadline(script.now).unwrap();
    assert!(deadline <= 5_001);
    script.now = 5_001;
    script.settle();
    let error = script.consumer.answer(number).unwrap().unwrap_err();
    assert_eq!(error.code, codes::REQUEST_TIMED_OUT);
    assert!(error.message.contains("COORDINATOR_LOAD_IN_PROGRESS"));
}

#[test]
fn the_end_of_a_partition_is_told_once_behind_its_records_and_again_after_a_seek() {
    let mut script = Script::new(settings());
    script.consumer.assign(vec![(place(0), Begin::At(0))]);
    script.settle();
    let (_, id, _) = script.fetch();
    script.answer(id, fetched(0, 2));
    assert_eq!(script.consumer.take_end(), None); // its records come first
    assert_eq!(script.take(), [0, 1]);
    assert!(script.consumer.has_news());
    assert_eq!(script.consumer.take_end(), Some((place(0), 2)));
    let (_, id, _) = script.fetch();
    script.answer(id, fetched(2, 0));
    assert!(!script.consumer.has_news());
    script.fetch(); // of before the seek
    assert!(script.consumer.seek(&place(0), Begin::At(2)));
    script.settle();
    let (_, id, _) = script.fetch();
    script.answer(id, fetched(2, 0));
    assert_eq!(script.consumer.take_end(), Some((place(0), 2)));
}

#[test]
fn an_end_before_a_seek_is_not_told_after_it() {
    let mut script = Script::new(settings());
    script.consumer.assign(vec![(place(0), Begin::At(0))]);
    script.settle();
    let (_, id, _) = script.fetch();
    script.answer(id, fetched(0, 2));
    script.take();
    assert!(script.consumer.seek(&place(0), Begin::At(0)));
    assert!(!script.consumer.has_news());
}

#[test]
fn a_first_record_is_not_taken_on_the_fast_path() {
    let mut script = Script::new(settings());
    script.consumer.assign(vec![(place(0), Begin::At(0))]);
    script.settle();
    let (_, id, _) = script.fetch();
    script.answer(id, fetched(0, 3));
    assert!(script.consumer.take_further().0.is_none());
    let mut taken = Vec::new();
    script.consumer.take(1, usize::MAX, &mut taken);
    let (message, _) = script.consumer.take_further();
    assert_eq!(message.map(|it| it.offset()), Some(1));
    script.consumer.pause(&place(0), true);
    assert!(script.consumer.take_further().0.is_none());
    script.consumer.pause(&place(0), false);
    assert!(script.consumer.take_further().0.is_some());
    assert_eq!(script.consumer.position(&place(0)), Some((3, 0)));
}
