//! The room for sessions, and who gives way.

use std::sync::{Mutex, mpsc};
use std::thread;

use super::*;

/// A little more, and a little less, than the age at which sessions go.
const AGE: Duration = Duration::from_secs(121);
const ALMOST: Duration = Duration::from_secs(119);

fn open_from(bench: &Bench, host: &str, partitions: &[(i32, i64)]) -> i32 {
    let asked = Asked {
        partitions,
        ..Asked::default()
    };
    bench.ask_as(&Ada::at(host), &asked).session_id
}

fn is_open(bench: &Bench, host: &str, id: i32) -> bool {
    let owner = SessionOwner::of(Ada::at(host).sender());
    id != 0 && bench.sessions.find(id, &owner).is_some()
}

#[test]
fn a_client_that_opens_sessions_without_end_pushes_out_nobody_and_gives_way_to_others() {
    let bench = Bench::with_limits(9, 10, 64 << 20);
    let mut bench = bench;
    let friends = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
    let kept = friends.map(|host| (host, open_from(&bench, host, &[(0, 0)])));
    let wide: Vec<_> = (0..9).map(|index| (index, 0)).collect();
    for round in 0..50 {
        let id = open_from(&bench, "10.6.6.6", &wide);
        assert_eq!(id != 0, round < 7, "there is room for seven");
    }
    assert!(kept.iter().all(|&(host, id)| is_open(&bench, host, id)));
    let late = open_from(&bench, "10.0.0.4", &[(0, 0)]);
    assert!(is_open(&bench, "10.0.0.4", late), "one of the many went");
    // Kafka's age does not help it: its sessions are larger, but the others' are not its own.
    bench.now += AGE;
    for (host, id) in kept {
        bench.ask_as(
            &Ada::at(host),
            &Asked {
                session: (id, 1),
                ..Asked::default()
            },
        );
    }
    for _ in 0..50 {
        open_from(&bench, "10.6.6.6", &wide);
    }
    assert!(kept.iter().all(|&(host, id)| is_open(&bench, host, id)));
}

#[test]
fn owners_who_want_all_the_room_end_with_equal_shares_and_stay_there() {
    let bench = Bench::with_limits(1, 8, 64 << 20);
    for _ in 0..8 {
        assert!(open_from(&bench, "10.0.0.1", &[(0, 0)]) > 0);
    }
    let opened = (0..20).filter(|_| open_from(&bench, "10.0.0.2", &[(0, 0)]) > 0);
    assert_eq!(opened.count(), 4);
    let evictions = bench.sessions.snapshot().evictions;
    assert_eq!(evictions, 4);
    for _ in 0..20 {
        assert_eq!(open_from(&bench, "10.0.0.1", &[(0, 0)]), 0);
    }
    assert_eq!(bench.sessions.snapshot().evictions, evictions);
}

#[test]
fn a_session_of_the_same_owner_goes_when_it_is_old_and_smaller_or_unused() {
    let mut bench = Bench::with_limits(3, 2, 64 << 20);
    let host = "10.0.0.1";
    let small = open_from(&bench, host, &[(0, 0)]);
    let large = open_from(&bench, host, &[(0, 0), (1, 0)]);
    assert_eq!(
        open_from(&bench, host, &[(0, 0), (1, 0), (2, 0)]),
        0,
        "both are young"
    );
    bench.now += ALMOST;
    for id in [small, large] {
        let asked = Asked {
            session: (id, 1),
            ..Asked::default()
        };
        bench.ask_as(&Ada::at(host), &asked);
    }
    bench.now += Duration::from_secs(2);
    assert_eq!(open_from(&bench, host, &[(0, 0)]), 0, "none is smaller");
    let largest = open_from(&bench, host, &[(0, 0), (1, 0), (2, 0)]);
    assert!(largest > 0 && !is_open(&bench, host, small) && is_open(&bench, host, large));
    bench.now += AGE;
    assert!(open_from(&bench, host, &[(0, 0)]) > 0, "both are unused");
    assert!(!is_open(&bench, host, large) && is_open(&bench, host, largest));
}

#[test]
fn sessions_are_bounded_in_bytes_also_when_they_grow() {
    let small = session_state::session_bytes(1, 1, 3);
    let bench = Bench::with_limits(60, 100, 20 * small);
    let many: Vec<_> = (0..60).map(|index| (index, 0)).collect();
    assert_eq!(open_from(&bench, "10.0.0.1", &many), 0);
    let id = open_from(&bench, "10.0.0.1", &many[..1]);
    let grow = |id, epoch, partitions| {
        bench.ask_as(
            &Ada::at("10.0.0.1"),
            &Asked {
                session: (id, epoch),
                partitions,
                ..Asked::default()
            },
        )
    };
    assert_eq!(grow(id, 1, &many[..5]).code, 0);
    assert_eq!(bench.sessions.snapshot().partitions, 5);
    assert_eq!(grow(id, 2, &many).code, codes::FETCH_SESSION_ID_NOT_FOUND);
    let expected = SessionSnapshot {
        evictions: 1,
        ..SessionSnapshot::default()
    };
    assert_eq!(bench.sessions.snapshot(), expected);
    let ids: Vec<_> = (0..30)
        .map(|_| open_from(&bench, "10.6.6.6", &many[..1]))
        .collect();
    assert_eq!(ids.iter().filter(|&&id| id > 0).count(), 20);
    assert!(open_from(&bench, "10.0.0.1", &many[..3]) > 0);
    assert_eq!(bench.sessions.snapshot().evictions, 4);
}

#[test]
fn without_slots_there_are_no_sessions() {
    let bench = Bench::with_limits(1, 0, 64 << 20);
    assert_eq!(open_from(&bench, "10.0.0.1", &[(0, 0)]), 0);
}

/// Adds partitions to a session, as a request does before its session is kept.
fn add(bench: &Bench, session: &FetchSession, epoch: i32, partitions: &[(i32, i64)]) {
    let asked = Asked {
        session: (session.id, epoch),
        partitions,
        ..Asked::default()
    };
    let request = FetchRequest::parse(&asked.body(), asked.version, 1, &bench.catalog);
    session.update(epoch, &request.unwrap().parts()).unwrap();
}

/// A request measured its session and waited for the cache. Another one grew the session meanwhile,
/// and its measure was replaced by the older one. So the sum of all bytes fell too low.
#[test]
fn a_session_that_grows_while_its_measure_waits_counts_with_all_its_memory() {
    let bench = Bench::new(3);
    let host = "10.0.0.1";
    let id = open_from(&bench, host, &[(0, 0)]);
    let owner = SessionOwner::of(Ada::at(host).sender());
    let session = bench.sessions.find(id, &owner).unwrap();
    let (sessions, now) = (&bench.sessions, bench.now);
    add(&bench, &session, 1, &[(1, 0)]);
    thread::scope(|scope| {
        let held = sessions.hold();
        scope.spawn(|| sessions.keep(&session, now));
        while !sessions.is_awaited() {
            thread::yield_now();
        }
        add(&bench, &session, 2, &[(2, 0)]);
        drop(held);
    });
    assert_eq!(
        sessions.counted_bytes(),
        session_state::session_bytes(3, 1, NAME.len())
    );
}

/// The cache's lock waited for the lock of a session that asked Python. So every Fetch that looked
/// for its session waited for that answer.
#[test]
fn a_session_that_waits_for_its_permissions_holds_up_no_other_session() {
    let bench = Bench::new(2);
    let host = "10.0.0.1";
    let ada = Ada::at(host);
    let id = open_from(&bench, host, &[(0, 0)]);
    let session = bench
        .sessions
        .find(id, &SessionOwner::of(ada.sender()))
        .unwrap();
    let (sessions, now) = (&bench.sessions, bench.now);
    let (ask, asked) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(told);
    let access = Access::default();
    access.authorize_by(Box::new(move |_, _, _, _| {
        ask.send(()).unwrap();
        let wait = Duration::from_secs(60); // it ends only if the lock waits for this answer
        told.lock().unwrap().recv_timeout(wait).is_ok()
    }));
    add(&bench, &session, 1, &[(1, 0)]);
    thread::scope(|scope| {
        let held = sessions.hold();
        scope.spawn(|| {
            assert!(sessions.keep(&session, now));
            let _ = tell.send(());
        });
        while !sessions.is_awaited() {
            thread::yield_now();
        }
        scope.spawn(|| {
            let turn = &mut Turn::of(Duration::from_secs(3600));
            session.authorize(&access, Ada::at(host).sender(), turn)
        });
        asked.recv().unwrap();
        drop(held);
    });
    assert!(access.remembers(ada.sender(), Action::ReadTopic, NAME.as_bytes()));
}
