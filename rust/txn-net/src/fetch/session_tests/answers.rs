//! The partitions that a session's answers tell of, and its errors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[test]
fn a_session_tells_only_of_partitions_that_changed() {
    let bench = Bench::new(4);
    let id = bench.open();
    assert_eq!(bench.go_on(id, 1, &[]).indexes(), []);
    bench.append(2, b"a");
    let told = bench.go_on(id, 2, &[]);
    assert_eq!((told.code, told.session_id), (0, id));
    assert_eq!(told.indexes(), [2]);
    assert!(!told.partitions[0].records.is_empty());
    assert_eq!(
        bench.go_on(id, 3, &[]).indexes(),
        [2],
        "it has not moved on"
    );
    assert_eq!(bench.go_on(id, 4, &[(2, 1)]).indexes(), []);
}

#[test]
fn a_changed_log_start_is_told_without_records() {
    let bench = Bench::new(2);
    bench.append(1, b"a");
    let id = bench.open();
    assert_eq!(bench.go_on(id, 1, &[(1, 1)]).indexes(), []);
    assert_eq!(bench.go_on(id, 2, &[]).indexes(), []);
    bench.logs[1].delete_records(1, &mut |_| Ok(())).unwrap();
    let told = bench.go_on(id, 3, &[]);
    assert_eq!(told.indexes(), [1]);
    assert_eq!(told.partitions[0].offsets, [1, 1, 1]);
    assert_eq!(told.partitions[0].records, b"");
    assert_eq!(bench.go_on(id, 4, &[]).indexes(), []);
}

#[test]
fn epochs_count_on_and_wrap_to_1() {
    let bench = Bench::new(1);
    let id = bench.open();
    let session = bench
        .sessions
        .find(id, &SessionOwner::of(Ada::connected().sender()));
    session.unwrap().set_epoch(i32::MAX);
    assert_eq!(bench.go_on(id, i32::MAX, &[]).code, 0);
    assert_eq!(bench.go_on(id, 1, &[]).code, 0);
    assert_eq!(bench.go_on(id, 2, &[]).code, 0);
}

#[test]
fn a_request_of_another_epoch_or_session_or_naming_is_refused_and_changes_nothing() {
    let bench = Bench::new(1);
    let id = bench.open();
    let code_of = |session, version| {
        let told = bench.ask(&Asked {
            version,
            session,
            forgotten: &[0],
            ..Asked::default()
        });
        assert_eq!((told.session_id, told.partitions), (0, Vec::new()));
        told.code
    };
    assert_eq!(code_of((id, 2), 11), codes::INVALID_FETCH_SESSION_EPOCH);
    assert_eq!(code_of((id ^ 1, 1), 11), codes::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(code_of((0, 1), 11), codes::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(code_of((id, 1), 13), codes::FETCH_SESSION_TOPIC_ID_ERROR);
    bench.append(0, b"a");
    assert_eq!(bench.go_on(id, 1, &[]).indexes(), [0]);
}

#[test]
fn a_session_is_its_owners_alone() {
    let bench = Bench::new(1);
    let id = bench.open();
    let mallory = Ada::at("10.6.6.6");
    for epoch in [1, 0, -1] {
        let told = bench.ask_as(
            &mallory,
            &Asked {
                session: (id, epoch),
                forgotten: &[0],
                ..Asked::default()
            },
        );
        let expected = match epoch {
            1 => codes::FETCH_SESSION_ID_NOT_FOUND,
            _ => codes::NONE,
        };
        assert_eq!(told.code, expected);
    }
    assert_eq!(
        bench.go_on(id, 1, &[]).code,
        codes::NONE,
        "it is still there"
    );
}

#[test]
fn a_full_request_closes_the_session_it_names() {
    let bench = Bench::new(1);
    let id = bench.open();
    let told = bench.go_on(id, -1, &[(0, 0)]);
    assert_eq!((told.code, told.session_id), (0, 0));
    assert_eq!(
        bench.go_on(id, 1, &[]).code,
        codes::FETCH_SESSION_ID_NOT_FOUND
    );
    let (first, other) = (bench.open(), bench.open());
    assert!(bench.go_on(first, 0, &[(0, 0)]).session_id != first);
    assert_eq!(
        bench.go_on(first, 1, &[]).code,
        codes::FETCH_SESSION_ID_NOT_FOUND
    );
    assert_eq!(bench.go_on(other, 1, &[]).code, 0);
}

#[test]
fn a_session_ends_with_its_last_partition() {
    let bench = Bench::new(2);
    let id = bench.open();
    let forget = |epoch, forgotten: &[i32]| {
        bench.ask(&Asked {
            session: (id, epoch),
            forgotten,
            ..Asked::default()
        })
    };
    assert_eq!(forget(1, &[1, 1, 9]).session_id, id);
    bench.append(1, b"a");
    assert_eq!(forget(2, &[]).indexes(), []);
    let told = forget(3, &[0]);
    assert_eq!((told.code, told.session_id), (0, 0));
    assert_eq!(forget(4, &[]).code, codes::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(bench.sessions.snapshot(), SessionSnapshot::default());
    assert!(bench.logs.iter().all(|log| log.watcher_count() == 0));
}

#[test]
fn a_partition_that_got_records_goes_behind_the_others() {
    let bench = Bench::new(3);
    let id = bench.open();
    for partition in 0..3 {
        bench.append(partition, &[7; 100]);
        bench.append(partition, &[7; 100]);
    }
    let mut served = Vec::new();
    for epoch in 1..=6 {
        let told = bench.ask(&Asked {
            session: (id, epoch),
            max_bytes: 1, // one batch
            ..Asked::default()
        });
        let with_records = told.partitions.iter().filter(|one| !one.records.is_empty());
        served.extend(with_records.map(|one| one.index));
    }
    assert_eq!(served, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn an_idle_session_looks_at_no_partition_and_a_woken_one_at_those_that_changed() {
    let bench = Bench::new(200);
    let id = bench.open();
    let come = |epoch, partitions: &[(i32, i64)]| {
        let asked = Asked {
            session: (id, epoch),
            partitions,
            max_wait_ms: 60_000,
            ..Asked::default()
        };
        bench.come(&Ada::connected(), &asked)
    };
    let idle = come(1, &[]);
    assert_eq!(idle.partition_count(), 0);
    assert_eq!(idle.readiness(), Readiness::TooLittle);
    assert_eq!(bench.answer(&idle).indexes(), []);
    let waiting = come(2, &[]);
    let count = Arc::new(Count::default());
    let watch = waiting.watch(&(Arc::clone(&count) as Arc<dyn Watcher>));
    assert_eq!(waiting.readiness(), Readiness::TooLittle);
    bench.append(17, b"a");
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert_eq!(
        bench.logs[17].watcher_count(),
        0,
        "it was told and is forgotten"
    );
    assert_eq!(waiting.readiness(), Readiness::Ready);
    assert_eq!(waiting.partition_count(), 1);
    assert_eq!(bench.answer(&waiting).indexes(), [17]);
    drop(watch);
    bench.append(18, b"a");
    assert_eq!(count.0.load(Ordering::SeqCst), 1, "nobody waits any more");
    assert_eq!(come(3, &[(17, 1)]).partition_count(), 1);
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Watcher for Count {
    fn log_advanced(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_request_that_waits_is_refused_once_another_of_its_session_came() {
    let bench = Bench::new(1);
    let id = bench.open();
    let waiting = bench.come(
        &Ada::connected(),
        &Asked {
            session: (id, 1),
            max_wait_ms: 60_000,
            ..Asked::default()
        },
    );
    assert_eq!(waiting.readiness(), Readiness::TooLittle);
    assert_eq!(bench.go_on(id, 2, &[]).code, 0);
    assert_eq!(waiting.readiness(), Readiness::Ready);
    let told = bench.answer(&waiting);
    assert_eq!(told.code, codes::INVALID_FETCH_SESSION_EPOCH);
    assert_eq!(told.session_id, id);
}

#[test]
fn an_answer_that_is_throttled_is_given_by_the_next() {
    let bench = Bench::new(2);
    let id = bench.open();
    bench.append(0, b"a");
    let throttled = bench.come(
        &Ada::connected(),
        &Asked {
            session: (id, 1),
            partitions: &[(0, 1)],
            ..Asked::default()
        },
    );
    throttled.answer(true, None);
    let told = Told::parse(11, &[throttled.throttled(9)]);
    assert_eq!((told.code, told.session_id), (0, id));
    assert_eq!(bench.go_on(id, 2, &[]).indexes(), [0]);
    let full = bench.come(
        &Ada::connected(),
        &Asked {
            partitions: &[(0, 0)],
            ..Asked::default()
        },
    );
    full.answer(true, None);
    assert_eq!(Told::parse(11, &[full.throttled(9)]).session_id, 0);
    assert_eq!(bench.sessions.snapshot().sessions, 1);
}

/// It waited on, with the memory of its session, which counted no longer.
#[test]
fn a_request_that_waits_ends_with_its_session() {
    let bench = Bench::new(200);
    let id = bench.open();
    let asked = Asked {
        session: (id, 1),
        max_wait_ms: 60_000,
        ..Asked::default()
    };
    let waiting = bench.come(&Ada::connected(), &asked);
    let count = Arc::new(Count::default());
    let watch = waiting.watch(&(Arc::clone(&count) as Arc<dyn Watcher>));
    assert_eq!(waiting.readiness(), Readiness::TooLittle);
    bench.ask(&Asked {
        session: (id, -1),
        ..Asked::default()
    });
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert_eq!(
        bench.logs[17].watcher_count(),
        0,
        "its memory is given back"
    );
    assert_eq!(waiting.readiness(), Readiness::Ready);
    assert_eq!(
        bench.answer(&waiting).code,
        codes::INVALID_FETCH_SESSION_EPOCH
    );
    drop(watch);
}

/// Another reading saw the new topic first, and the notice of the change found nothing new.
#[test]
fn a_topic_that_is_replaced_ends_a_wait_whoever_sees_it_first() {
    let bench = Bench::new(1);
    let id = bench.open();
    let asked = Asked {
        session: (id, 1),
        max_wait_ms: 60_000,
        ..Asked::default()
    };
    let waiting = bench.come(&Ada::connected(), &asked);
    assert_eq!(waiting.readiness(), Readiness::TooLittle);
    bench.catalog.remove(NAME);
    bench.serve([9; 16]);
    assert_eq!(waiting.readiness(), Readiness::Ready);
    assert_eq!(waiting.readiness(), Readiness::Ready);
    assert_eq!(bench.answer(&waiting).code, codes::NONE);
    let next = bench.come(
        &Ada::connected(),
        &Asked {
            session: (id, 2),
            ..asked
        },
    );
    assert_eq!(next.readiness(), Readiness::TooLittle, "it is known now");
}

#[test]
fn a_topic_that_goes_or_comes_again_is_told_in_a_session_by_id() {
    let bench = Bench::new(1);
    let ask = |session| {
        bench.ask(&Asked {
            version: 16,
            session,
            partitions: if session.1 == 0 { &[(0, 0)] } else { &[] },
            ..Asked::default()
        })
    };
    let id = ask((0, 0)).session_id;
    assert_eq!(ask((id, 1)).indexes(), []);
    bench.catalog.remove(NAME);
    assert_eq!(ask((id, 2)).codes(), [codes::UNKNOWN_TOPIC_OR_PARTITION]);
    assert_eq!(
        ask((id, 3)).codes(),
        [codes::UNKNOWN_TOPIC_OR_PARTITION],
        "each time"
    );
    bench.serve([9; 16]);
    assert_eq!(ask((id, 4)).codes(), [codes::INCONSISTENT_TOPIC_ID]);
    bench.catalog.remove(NAME);
    let unknown = ask((0, 0));
    assert_eq!(unknown.codes(), [codes::UNKNOWN_TOPIC_ID]);
    assert_eq!(
        ask((unknown.session_id, 1)).codes(),
        [codes::UNKNOWN_TOPIC_ID]
    );
    bench.serve(ID);
    assert_eq!(ask((unknown.session_id, 2)).codes(), [0]);
    assert_eq!(ask((unknown.session_id, 3)).codes(), []);
}

#[test]
fn a_partition_that_is_led_no_longer_is_told_while_it_is_quiet() {
    let bench = Bench::new(2);
    let id = bench.open();
    assert_eq!(bench.go_on(id, 1, &[]).indexes(), []);
    let topic = bench.catalog.find(TopicKey::Name(NAME.as_bytes())).unwrap();
    let state = topic.partition(1).unwrap().state().unwrap();
    topic
        .partition(1)
        .unwrap()
        .set_state(crate::ReplicaState::Offline);
    bench.catalog.note_change();
    let told = bench.go_on(id, 2, &[]);
    assert_eq!(told.indexes(), [1]);
    assert_eq!(told.codes(), [codes::KAFKA_STORAGE_ERROR]);
    topic.partition(1).unwrap().set_state(state);
    bench.catalog.note_change();
    assert_eq!(bench.go_on(id, 3, &[]).codes(), [0], "the error is over");
    assert_eq!(bench.go_on(id, 4, &[]).codes(), []);
}

#[test]
fn a_permission_that_is_taken_away_counts_for_the_next_request_of_a_session() {
    let mut bench = Bench::new(2);
    let is_allowed = Arc::new(Mutex::new(true));
    let asked = Arc::new(AtomicUsize::new(0));
    bench.access = Access::default();
    let (rule, count) = (Arc::clone(&is_allowed), Arc::clone(&asked));
    bench.access.authorize_by(Box::new(move |_, _, _, _| {
        count.fetch_add(1, Ordering::SeqCst);
        *rule.lock().unwrap()
    }));
    let id = bench.open();
    assert_eq!(bench.go_on(id, 1, &[]).codes(), []);
    assert_eq!(bench.go_on(id, 2, &[]).codes(), []);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "it is remembered");
    *is_allowed.lock().unwrap() = false;
    bench.access.forget();
    let refused = [codes::TOPIC_AUTHORIZATION_FAILED; 2];
    assert_eq!(bench.go_on(id, 3, &[]).codes(), refused);
    assert_eq!(bench.go_on(id, 4, &[]).codes(), refused);
    assert_eq!(asked.load(Ordering::SeqCst), 3, "each refusal is asked for");
    *is_allowed.lock().unwrap() = true;
    bench.access.forget();
    assert_eq!(bench.go_on(id, 5, &[]).codes(), [0, 0]);
    assert_eq!(bench.go_on(id, 6, &[]).codes(), []);
}

/// Each request asks again for refused topics. One that ended before its questions were answered left
/// them to the next, which added its own.
#[test]
fn questions_of_requests_that_were_given_up_are_asked_once() {
    let mut bench = Bench::new(1);
    let asked;
    (bench.access, asked) = Access::of_letter('x');
    let partitions = &[(0, 0)];
    let opening = bench.ask(&Asked {
        partitions,
        ..Asked::default()
    });
    let id = opening.session_id;
    let refused = [codes::TOPIC_AUTHORIZATION_FAILED];
    assert_eq!(bench.go_on(id, 1, &[]).codes(), refused);
    let ada = Ada::connected();
    for epoch in 2..50 {
        let body = Asked {
            session: (id, epoch),
            ..Asked::default()
        };
        let request = FetchRequest::parse(&body.body(), body.version, 1, &bench.catalog);
        request
            .unwrap()
            .enter_session(&bench.sessions, ada.sender(), bench.now);
    }
    asked.lock().unwrap().clear();
    assert_eq!(bench.go_on(id, 50, &[]).codes(), refused);
    assert_eq!(*asked.lock().unwrap(), [NAME]);
}

#[test]
fn a_reader_whose_log_went_on_after_its_epoch_ended_here_is_told_where() {
    let bench = Bench::new(1);
    bench.append(0, b"a");
    bench.logs[0].lead(5);
    bench.append(0, b"b");
    let ask = |start, last_fetched_epoch| {
        let told = bench.ask(&Asked {
            version: 12,
            session: (0, -1),
            partitions: &[(0, start)],
            last_fetched_epoch,
            ..Asked::default()
        });
        let one = told.partitions.into_iter().next().unwrap();
        (one.code, one.records.is_empty(), one.tags)
    };
    assert_eq!(ask(1, 0), (0, false, vec![0]));
    let end_of_0 = [&[1, 0, 13, 0, 0, 0, 0][..], &1_i64.to_be_bytes(), &[0]].concat();
    assert_eq!(ask(2, 0), (0, true, end_of_0));
    assert_eq!(ask(2, 5), (0, true, vec![0]));
    assert_eq!(ask(2, 6).0, codes::OFFSET_OUT_OF_RANGE);
}

#[test]
fn a_client_with_an_old_leader_is_told_who_leads_from_version_16_on() {
    let bench = Bench::new(2);
    bench.logs[1].lead(5);
    let ask = |version, session, partitions| {
        bench.ask(&Asked {
            version,
            session,
            partitions,
            leader_epoch: 0,
            ..Asked::default()
        })
    };
    let leader = [&[1, 1, 9][..], &[0, 0, 0, 3], &[0, 0, 0, 5], &[0]].concat();
    let node = [
        &[1, 0, 14, 2][..], // one field of 14 bytes, one node
        &[0, 0, 0, 3],
        b"\x03me",
        &[0, 0, 0x23, 0x84],
        &[0, 0], // no rack, no tags
    ]
    .concat();
    for (version, expected) in [(15, [vec![0], vec![0]]), (16, [leader, node])] {
        let told = ask(version, (0, 0), &[(0, 0), (1, 0)]);
        assert_eq!(told.codes(), [0, codes::FENCED_LEADER_EPOCH]);
        assert_eq!(
            [&told.partitions[1].tags, &told.tags],
            [&expected[0], &expected[1]]
        );
        assert_eq!(told.partitions[0].tags, [0]);
        let again = ask(version, (told.session_id, 1), &[]);
        assert_eq!(again.indexes(), [1]);
        assert_eq!(
            [&again.partitions[0].tags, &again.tags],
            [&expected[0], &expected[1]]
        );
    }
}
