//! Roles of a partition: leaders, followers, and the high watermark.

use txn_log::Role;
use txn_net::{Options, ReplicaState};

use crate::rules::REPEATER;
use crate::running::{Running, TOPIC, options, start};
use crate::waiting::{settle, start_waiting};
use crate::wire::{
    Wanted, batch, batch_of, control, fetch, fetched, produce, produce_to, produced, stored,
};

const FOLLOWER: ReplicaState = ReplicaState::Online {
    role: Role::Follower,
    leader_epoch: 1,
};

impl Running {
    pub fn set_state(&self, state: ReplicaState) {
        self.server.set_replica_state(TOPIC, 0, state).unwrap();
    }
}

#[test]
fn a_follower_and_an_offline_partition_take_no_batch_and_answer_no_fetch() {
    let running = start(&options());
    let mut client = running.connect();
    let mut codes = |role| {
        running.set_state(role);
        let parts: [(i32, &[u8]); 2] = [(0, &batch(b"x")), (1, &batch(b"y"))];
        let stored = produced(&client.ask(&produce_to(TOPIC, None, -1, &parts)));
        assert_eq!(stored[1].0, 0, "the other partition");
        (
            stored[0].0,
            fetched(&client.ask(&fetch(&Wanted::default()))).code,
        )
    };
    assert_eq!(
        codes(ReplicaState::Online {
            role: Role::Leader,
            leader_epoch: 0
        }),
        (0, 0)
    );
    assert_eq!(codes(FOLLOWER), (6, 6));
    assert_eq!(codes(ReplicaState::Offline), (56, 56));
    assert_eq!(
        codes(ReplicaState::Online {
            role: Role::Leader,
            leader_epoch: 2
        }),
        (0, 0)
    );
    assert_eq!(running.log.state().log_end_offset, 2);
}

#[test]
fn a_fetch_is_fenced_by_the_leader_epoch_of_the_role() {
    let running = start(&options());
    let mut client = running.connect();
    let mut code = |role, leader_epoch| {
        running.set_state(role);
        let wanted = Wanted {
            leader_epoch,
            ..Wanted::default()
        };
        fetched(&client.ask(&fetch(&wanted))).code
    };
    let leader = ReplicaState::Online {
        role: Role::Leader,
        leader_epoch: 3,
    };
    assert_eq!([2, 3, 4].map(|epoch| code(leader, epoch)), [74, 0, 75]);
    assert_eq!([0, 1, 2].map(|epoch| code(FOLLOWER, epoch)), [74, 6, 75]);
}

#[test]
fn a_fetch_that_waits_is_answered_when_its_partition_has_another_leader() {
    for (role, code) in [(FOLLOWER, 6), (ReplicaState::Offline, 56)] {
        let (running, mut reader, _other) = start_waiting(&Wanted::default());
        running.set_state(role);
        assert_eq!(fetched(&reader.receive()).code, code);
    }
}

#[test]
fn a_parked_produce_whose_partition_has_another_leader_meanwhile_is_told_so() {
    let running = start(&options());
    let mut client = running.connect();
    let mine = batch_of(5, true, b"mine");
    client.send(&produce_to(TOPIC, Some("t5"), -1, &[(0, &mine)]));
    let parked = running.take_join();
    running.rules.0.lock().unwrap().joined.insert(5);
    running.set_state(FOLLOWER);
    running.server.resume(parked.token, vec![]);
    assert_eq!(produced(&client.receive()), [(6, -1)]);
    assert_eq!(running.log.state().log_end_offset, 0);
}

/// A server whose partition 0 has other replicas: its high watermark is set by hand.
fn start_replicated() -> Running {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    running.log.set_role(Role::Leader, 0);
    running
}

/// Produce 8 with another timeout.
fn produce_within(timeout_ms: i32, acks: i16, parts: &[(i32, &[u8])]) -> Vec<u8> {
    let mut frame = produce_to(TOPIC, None, acks, parts);
    let at = 4 + 12 + 2 + 2; // length, header with its client id, transactional id, acks
    frame[at..at + 4].copy_from_slice(&timeout_ms.to_be_bytes());
    frame
}

#[test]
fn acks_all_is_answered_when_the_high_watermark_has_passed_its_batch_and_acks_1_at_once() {
    let running = start_replicated();
    let (mut all, mut one) = (running.connect(), running.connect());
    all.send(&produce_within(60_000, -1, &[(0, &batch(b"all"))]));
    settle(&running, &mut one);
    assert_eq!(produced(&one.ask(&produce(1, &batch(b"one")))), [(0, 1)]);
    assert_eq!(fetched(&one.ask(&fetch(&Wanted::default()))).records, b"");
    assert!(all.has_nothing());
    running.log.raise_high_watermark(1);
    assert_eq!(produced(&all.receive()), [(0, 0)]);
    let shown = fetched(&one.ask(&fetch(&Wanted::default())));
    assert_eq!(shown.records, stored(&batch(b"all"), 0));
    assert_eq!(running.log.watcher_count(), 0);
}

#[test]
fn acks_all_that_is_not_replicated_in_time_is_timed_out_and_stays_stored() {
    let running = start_replicated();
    let mut client = running.connect();
    let parts: [(i32, &[u8]); 2] = [(0, &batch(b"x")), (1, &batch(b"y"))];
    for (timeout_ms, offset) in [(30, 0), (0, 1), (-1, 2)] {
        let answer = client.ask(&produce_within(timeout_ms, -1, &parts));
        assert_eq!(produced(&answer), [(7, offset), (0, offset)]);
    }
    assert_eq!(running.log.state().log_end_offset, 3);
    assert_eq!(running.log.watcher_count(), 0);
    running.log.raise_high_watermark(3);
    assert_eq!(produced(&client.ask(&produce(1, &batch(b"z")))), [(0, 3)]);
}

#[test]
fn a_repeated_batch_waits_for_the_high_watermark_as_the_first_did() {
    let running = start_replicated();
    let mut client = running.connect();
    let repeated = batch_of(REPEATER, false, b"x");
    let answer = client.ask(&produce_within(30, -1, &[(0, &repeated)]));
    assert_eq!(produced(&answer), [(7, 99)]);
}

#[test]
fn acks_all_is_told_when_its_leader_is_another_before_the_high_watermark_comes() {
    for (role, code) in [(FOLLOWER, 6), (ReplicaState::Offline, 56)] {
        let running = start_replicated();
        let (mut client, mut other) = (running.connect(), running.connect());
        client.send(&produce_within(60_000, -1, &[(0, &batch(b"x"))]));
        settle(&running, &mut other);
        running.set_state(role);
        assert_eq!(produced(&client.receive())[0].0, code);
        assert_eq!(running.log.watcher_count(), 0);
    }
}

#[test]
fn a_client_that_leaves_while_it_waits_for_the_high_watermark_is_forgotten() {
    let running = start_replicated();
    let (mut client, mut other) = (running.connect(), running.connect());
    client.send(&produce_within(60_000, -1, &[(0, &batch(b"x"))]));
    settle(&running, &mut other);
    assert_eq!(running.log.watcher_count(), 1);
    // With unread bytes in it the socket is reset when it is closed.
    client.send(&produce(1, &batch(b"never read")));
    other.send(&control(1));
    let token = running.take_request().token;
    running.server.reply(token, false, b"");
    drop(client);
    running.log.raise_high_watermark(1);
    while running.log.watcher_count() > 0 {
        settle(&running, &mut other);
    }
}

#[test]
fn with_sync_acks_all_a_batch_waits_for_the_disk_and_for_its_replicas() {
    let running = start(&Options {
        reactors: 1,
        sync_acks_all: true,
        ..options()
    });
    running.log.set_role(Role::Leader, 0);
    let mut client = running.connect();
    let answer = client.ask(&produce_within(100, -1, &[(0, &batch(b"x"))]));
    assert_eq!(produced(&answer), [(7, 0)]);
    running.log.raise_high_watermark(1);
    client.send(&produce_within(60_000, -1, &[(0, &batch(b"y"))]));
    while running.log.state().log_end_offset < 2 {
        std::thread::yield_now();
    }
    running.log.raise_high_watermark(2);
    assert_eq!(produced(&client.receive()), [(0, 1)]);
    assert_eq!(running.log.recovery_point(), 2);
}

#[test]
fn a_role_of_a_partition_that_does_not_exist_is_refused() {
    let running = start(&options());
    for (topic, partition) in [(TOPIC, 2), (TOPIC, -1), ("unknown", 0)] {
        let refused = running.server.set_replica_state(topic, partition, FOLLOWER);
        assert_eq!(refused, Err(3));
    }
}
