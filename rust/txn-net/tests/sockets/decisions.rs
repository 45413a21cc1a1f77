//! Decisions on a reactor's own thread, while the control lock is free.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::ThreadId;
use std::time::Duration;

use txn_net::{Bell, ControlRequest, ParkedProduce, Settler};

use crate::client::Client;
use crate::running::{Running, TOPIC, options, start};
use crate::wire::{batch, batch_of, control, header, produce, produce_to, produced};

/// `EndTxn` 0, which reactors decide on if they may.
const DECIDED: i16 = 26;

fn decided(correlation_id: i32) -> Vec<u8> {
    header(DECIDED, 0, correlation_id).i32(0).frame()
}

/// The threads that decided, one entry for each request.
type Deciders = Arc<Mutex<Vec<ThreadId>>>;

/// Lets reactors decide: requests are answered with "here", parked ones may join.
fn let_reactors_decide(running: &Running) -> Deciders {
    let deciders = Deciders::default();
    let noted = Arc::clone(&deciders);
    let server = Arc::downgrade(&running.server);
    let rules = Arc::clone(&running.rules);
    let decide = move |requests: Vec<ControlRequest>, joins: Vec<ParkedProduce>| {
        let me = std::thread::current().id();
        let server = server.upgrade().expect("it runs");
        for request in requests {
            noted.lock().unwrap().push(me);
            server.reply(request.token, false, b"here");
        }
        for parked in joins {
            noted.lock().unwrap().push(me);
            rules
                .0
                .lock()
                .unwrap()
                .joined
                .insert(parked.join.producer_id);
            server.resume(parked.token, vec![]);
        }
        true
    };
    running
        .server
        .let_reactors_decide(vec![DECIDED], Box::new(decide));
    deciders
}

fn threads_of(deciders: &Deciders) -> (usize, HashSet<ThreadId>) {
    let deciders = deciders.lock().unwrap();
    (deciders.len(), deciders.iter().copied().collect())
}

#[test]
fn while_the_control_lock_is_free_reactors_decide_and_other_requests_go_to_python() {
    let running = start(&options());
    let deciders = let_reactors_decide(&running);
    let mut client = running.connect();
    client.send(&[decided(1), control(2), decided(3)].concat());
    assert_eq!(
        client.receive(),
        [&1_i32.to_be_bytes()[..], b"here"].concat()
    );
    let request = running.take_request();
    assert_eq!(request.correlation_id, 2);
    running.server.reply(request.token, false, b"there");
    assert_eq!(
        client.receive(),
        [&2_i32.to_be_bytes()[..], b"there"].concat()
    );
    assert_eq!(
        client.receive(),
        [&3_i32.to_be_bytes()[..], b"here"].concat()
    );
    assert_eq!(threads_of(&deciders).0, 2);
    assert!(running.server.take().is_empty());
}

#[test]
fn while_the_control_lock_is_held_requests_of_reactors_wait_for_python() {
    let running = start(&options());
    let deciders = let_reactors_decide(&running);
    let [mut asking, mut joining] = running.accepted();
    running.server.take_control_lock();
    asking.send(&decided(1));
    let request = running.take_request();
    joining.send(&produce_to(
        TOPIC,
        Some("t5"),
        -1,
        &[(0, &batch_of(5, true, b"mine"))],
    ));
    let parked = running.take_join();
    assert_eq!(threads_of(&deciders).0, 0);
    running.rules.0.lock().unwrap().joined.insert(5);
    running.server.resume(parked.token, vec![]);
    running.server.reply(request.token, false, b"there");
    assert_eq!(asking.receive()[4..], *b"there");
    assert_eq!(produced(&joining.receive()), [(0, 0)]);
    running.server.release_control_lock();
    assert_eq!(asking.ask(&decided(2))[4..], *b"here");
}

#[test]
fn a_client_that_is_decided_for_is_served_by_one_reactor_from_then_on() {
    let running = start(&options());
    let deciders = let_reactors_decide(&running);
    let mut clients: [Client; 6] = running.accepted();
    for (id, client) in (0_i64..).zip(&mut clients) {
        let mine = batch_of(id, true, b"mine");
        if id % 3 == 0 {
            assert_eq!(client.ask(&decided(7))[4..], *b"here");
        }
        let write = produce_to(TOPIC, Some("t"), -1, &[(0, &mine)]);
        assert_eq!(produced(&client.ask(&write)), [(0, id)]);
    }
    let (count, threads) = threads_of(&deciders);
    assert_eq!((count, threads.len()), (8, 1));
    // Frames sent together with the frame that moved it are answered, in order.
    let mut mover = running.accepted::<2>();
    for client in &mut mover {
        client.send(&[decided(1), produce(1, &batch(b"x")), decided(2)].concat());
        assert_eq!(client.receive()[4..], *b"here");
        assert_eq!(produced(&client.receive()).len(), 1);
        assert_eq!(client.receive()[4..], *b"here");
    }
    assert_eq!(threads_of(&deciders).1.len(), 1);
}

#[test]
fn large_batches_of_a_transaction_are_stored_by_the_reactor_they_came_to() {
    let running = start(&options());
    let deciders = let_reactors_decide(&running);
    let mut clients: [Client; 4] = running.accepted();
    for (id, client) in (0_i64..).zip(&mut clients) {
        let large = batch_of(id, true, &vec![b'x'; 100 << 10]);
        let write = produce_to(TOPIC, Some("t"), -1, &[(0, &large)]);
        assert_eq!(produced(&client.ask(&write)), [(0, id)]);
    }
    let (count, threads) = threads_of(&deciders);
    assert_eq!((count, threads.len()), (4, 2));
}

const WAIT: Duration = Duration::from_secs(20);

/// Lets the reactor settle; returns the bell, and the threads that settled: `None`, the loop.
fn let_reactors_settle(running: &Running) -> (Bell, mpsc::Receiver<Option<ThreadId>>) {
    let (tell, settled) = mpsc::channel();
    let leave = tell.clone();
    let bell = running.server.let_reactors_settle(Settler {
        settle: Box::new(move || {
            let _ = tell.send(Some(std::thread::current().id()));
        }),
        leave: Box::new(move || {
            let _ = leave.send(None);
        }),
    });
    (bell, settled)
}

#[test]
fn waits_that_ended_are_settled_by_the_reactor_that_decides_while_the_control_lock_is_free() {
    let running = start(&options());
    let deciders = let_reactors_decide(&running);
    let (bell, settled) = let_reactors_settle(&running);
    assert_eq!(running.connect().ask(&decided(1))[4..], *b"here");
    let [decider] = deciders.lock().unwrap()[..] else {
        panic!("it was decided once");
    };
    assert!(bell());
    assert_eq!(settled.recv_timeout(WAIT).unwrap(), Some(decider));

    running.server.take_control_lock();
    assert!(bell());
    assert_eq!(settled.recv_timeout(WAIT).unwrap(), None);
    running.server.release_control_lock();
    assert!(bell());
    assert_eq!(settled.recv_timeout(WAIT).unwrap(), Some(decider));
}

#[test]
fn waits_that_end_after_the_reactors_are_left_to_the_control_loop() {
    let running = start(&options());
    let (bell, settled) = let_reactors_settle(&running);
    running.server.stop();
    // A bell that rang unheard is made up for.
    assert_eq!(settled.recv_timeout(WAIT).unwrap(), None);
    assert!(!bell());
}

#[test]
fn a_bug_in_settling_is_told_and_harms_nobody() {
    let running = start(&options());
    let bell = running.server.let_reactors_settle(Settler {
        settle: Box::new(|| panic!("a bug")),
        leave: Box::new(|| ()),
    });
    assert!(bell());
    let failures = || running.server.take_failures();
    let told = std::iter::repeat_with(failures).find(|failures| !failures.is_empty());
    assert_eq!(told.unwrap(), ["a bug"]);
    running.server.take_control_lock(); // it was released
    running.server.release_control_lock();
}

#[test]
fn what_nobody_will_answer_costs_its_connection() {
    let running = start(&options());
    running
        .server
        .let_reactors_decide(vec![DECIDED], Box::new(|_, _| false));
    let [mut asking, mut joining, mut other] = running.accepted();
    asking.send(&decided(1));
    assert!(asking.is_closed());
    joining.send(&produce_to(
        TOPIC,
        Some("t5"),
        -1,
        &[(0, &batch_of(5, true, b"mine"))],
    ));
    assert!(joining.is_closed());
    assert_eq!(produced(&other.ask(&produce(1, &batch(b"x")))), [(0, 0)]);
}

#[test]
fn a_request_that_takes_long_to_decide_goes_to_python() {
    // The story: for every 3 MB of AddPartitionsToTxn the reactor served nobody for two seconds.
    let running = start(&options());
    let deciders = let_reactors_decide(&running);
    for client in &mut running.accepted::<2>() {
        let long = header(DECIDED, 0, 1).raw(&[0; 5 << 10]).frame();
        client.send(&long);
        let request = running.take_request();
        running.server.reply(request.token, false, b"there");
        assert_eq!(client.receive()[4..], *b"there");
        assert_eq!(client.ask(&decided(2))[4..], *b"here");
    }
    assert_eq!(threads_of(&deciders).0, 2);
}

#[test]
fn a_panic_in_a_decision_costs_the_asking_client_and_leaves_the_control_lock_to_others() {
    // The story: it ended the reactor, and the loop waited for the control lock for good; so did
    // the closing of the broker.
    let running = start(&options());
    let server = Arc::downgrade(&running.server);
    let decide = move |requests: Vec<ControlRequest>, _: Vec<ParkedProduce>| {
        for request in requests {
            assert_ne!(request.correlation_id, 1, "a bug of Python's");
            let server = server.upgrade().expect("it runs");
            server.reply(request.token, false, b"here");
        }
        true
    };
    let api_keys = vec![DECIDED];
    running
        .server
        .let_reactors_decide(api_keys, Box::new(decide));
    let [mut asking, mut other] = running.accepted();
    asking.send(&decided(1));
    assert!(asking.is_closed());
    let failures = running.server.take_failures();
    assert!(failures[0].contains("a bug of Python's"), "{failures:?}");
    assert_eq!(other.ask(&decided(2))[4..], *b"here");
    running.server.take_control_lock();
    running.server.release_control_lock();
}
