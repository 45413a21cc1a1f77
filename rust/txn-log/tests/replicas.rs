//! Two and three replicas of one partition against lists of (offset, leader epoch, bytes).
//!
//! The test moves batches and offsets by the rules of Kafka's replication: a follower fetches with
//! its latest epoch, a leader that knows the epoch to have ended earlier answers where, the
//! follower truncates; the high watermark is the least log end of the in-sync replicas. Elections
//! are clean, or unclean: then records below the high watermark may go.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{
    SMALL, TestProducerState, append, build, essence, files, marker, no_checkpoints, plain,
    replay_of, transactional, try_open_from,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use txn_log::{Isolation, PartitionLog, Past, Role, Settings};
use txn_protocol::batch::{BatchView, Batches};

#[derive(Clone, Copy, Debug)]
enum ReplicaStep {
    /// The leader takes a batch of a kind from a producer.
    Append(u8, i64),
    /// A follower fetches and stores at most so many bytes.
    Fetch(usize, u64),
    /// A replica is killed, or closed, and opened again.
    Restart(usize, bool),
    /// A replica becomes the leader, whether it has all that was committed or not.
    Elect(usize, bool),
}

fn steps(replicas: usize) -> impl Strategy<Value = Vec<ReplicaStep>> {
    let step = prop_oneof![
        6 => (0u8..=8, 0i64..3).prop_map(|(kind, id)| ReplicaStep::Append(kind, id)),
        8 => (0..replicas, 1u64..1500).prop_map(|(nth, bytes)| ReplicaStep::Fetch(nth, bytes)),
        1 => (0..replicas, any::<bool>()).prop_map(|(nth, clean)| ReplicaStep::Restart(nth, clean)),
        1 => (0..replicas, prop::bool::weighted(0.2)).prop_map(|(nth, any)| ReplicaStep::Elect(nth, any)),
    ];
    prop::collection::vec(step, 10..120)
}

/// (base offset, leader epoch, bytes)
type StoredBatch = (i64, i32, Vec<u8>);

struct Replica {
    root: tempfile::TempDir,
    log: PartitionLog,
    producer_state: Arc<TestProducerState>,
    /// The oracle: its stored batches.
    expected: Vec<StoredBatch>,
    /// Up to here another replica fetched from it as the leader.
    fetched: BTreeMap<usize, i64>,
    /// Opened with a high watermark below its end: committed records wait until it gets there.
    opened_end: i64,
}

impl Replica {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let (log, producer_state) = open(root.path(), Past::default(), Role::Follower);
        Self {
            root,
            log,
            producer_state,
            expected: Vec::new(),
            fetched: BTreeMap::new(),
            opened_end: 0,
        }
    }

    fn end(&self) -> i64 {
        self.expected
            .last()
            .map_or(0, |(_, _, bytes)| view(bytes).last_offset() + 1)
    }

    fn bytes_below(&self, end: i64) -> Vec<u8> {
        let below = self.expected.iter().filter(|(base, _, _)| *base < end);
        below.flat_map(|(_, _, bytes)| bytes.clone()).collect()
    }

    fn expect(&mut self, bytes: &[u8]) {
        for batch in Batches::new(bytes) {
            let stored = (
                batch.base_offset(),
                batch.leader_epoch(),
                batch.bytes().to_vec(),
            );
            self.expected.push(stored);
        }
    }

    /// Log, epochs, producer state, aborted transactions and last stable offset are the oracle's.
    fn check(&self) -> Result<(), TestCaseError> {
        let state = self.log.state();
        prop_assert_eq!(state.log_end_offset, self.end());
        let bytes = match state.log_end_offset {
            0 => Vec::new(),
            _ => self.read(0, u64::MAX),
        };
        prop_assert!(
            bytes == self.bytes_below(i64::MAX),
            "other bytes than the oracle's"
        );
        let replayed = replay_of(&bytes);
        prop_assert_eq!(essence(&self.producer_state.state()), essence(&replayed));
        let mut aborted: Vec<_> = replayed.aborted.iter().collect();
        aborted.sort_unstable_by_key(|entry| (entry.first_offset, entry.producer_id));
        let named: Vec<_> = aborted
            .iter()
            .map(|entry| (entry.producer_id, entry.first_offset))
            .collect();
        prop_assert_eq!(self.log.aborted_in(0, i64::MAX), named);
        let replicated = replay_of(&self.bytes_below(state.high_watermark));
        let first = replicated.open.values().min().copied().unwrap_or(i64::MAX);
        let stable = first.min(state.high_watermark);
        prop_assert!(state.last_stable_offset <= stable, "{state:?} {stable}");
        if state.high_watermark >= self.opened_end {
            prop_assert_eq!(state.last_stable_offset, stable);
        }
        for (nth, (base, epoch, _)) in self.expected.iter().enumerate() {
            prop_assert_eq!(self.log.epoch_of(*base), *epoch);
            let later = self.expected[nth..]
                .iter()
                .find(|(_, other, _)| other > epoch);
            if let Some((start, _, _)) = later {
                prop_assert_eq!(self.log.end_of_epoch(*epoch), Some((*epoch, *start)));
            }
        }
        Ok(())
    }

    /// All whole batches from `start` on, about so many bytes.
    fn read(&self, start: i64, bytes_max: u64) -> Vec<u8> {
        let (mut next, mut bytes) = (start, Vec::new());
        while next < self.log.state().log_end_offset && (bytes.len() as u64) < bytes_max {
            let run = self.log.read(next, bytes_max).unwrap();
            next = Batches::new(&run).last().unwrap().last_offset() + 1;
            bytes.extend_from_slice(&run);
        }
        bytes
    }
}

fn view(bytes: &[u8]) -> BatchView<'_> {
    BatchView::parse(bytes).unwrap()
}

fn open(root: &std::path::Path, past: Past, role: Role) -> (PartitionLog, Arc<TestProducerState>) {
    try_open_from(root, SMALL, Past { role, ..past }).unwrap()
}

struct Partition {
    replicas: Vec<Replica>,
    leader: usize,
    epoch: i32,
    /// Everything below is on every in-sync replica.
    committed: i64,
}

impl Partition {
    fn new(replicas: usize) -> Self {
        let replicas = (0..replicas).map(|_| Replica::new()).collect();
        let mut partition = Self {
            replicas,
            leader: 0,
            epoch: 0,
            committed: 0,
        };
        partition.elect(0);
        partition
    }

    fn take(&mut self, step: ReplicaStep) {
        match step {
            ReplicaStep::Append(kind, producer_id) => self.append(kind, producer_id),
            ReplicaStep::Fetch(nth, _) if nth == self.leader => {}
            ReplicaStep::Fetch(nth, bytes_max) => self.fetch(nth, bytes_max),
            ReplicaStep::Restart(nth, is_clean) => self.restart(nth, is_clean),
            ReplicaStep::Elect(nth, is_unclean) => {
                if is_unclean || self.replicas[nth].end() >= self.committed {
                    self.elect(nth);
                }
            }
        }
    }

    fn append(&mut self, kind: u8, producer_id: i64) {
        let leader = &mut self.replicas[self.leader];
        let end = leader.end();
        match kind {
            0..=2 => drop(append(&leader.log, plain(1 + kind as usize, 60))),
            3..=5 => drop(append(&leader.log, transactional(producer_id, 2))),
            6 => drop(append(&leader.log, build(10 + producer_id, false, 1, 60))),
            7 => drop(
                leader
                    .log
                    .append_marker(&marker(producer_id, true))
                    .unwrap(),
            ),
            _ => drop(
                leader
                    .log
                    .append_marker(&marker(producer_id, false))
                    .unwrap(),
            ),
        }
        let bytes = leader.log.read(end, 1).unwrap();
        leader.expect(&bytes);
    }

    /// One round of the follower's Fetch.
    fn fetch(&mut self, nth: usize, bytes_max: u64) {
        let (leader, follower) = two(&mut self.replicas, self.leader, nth);
        let end = follower.end();
        let latest = follower.log.latest_epoch();
        let theirs = latest.and_then(|epoch| leader.log.end_of_epoch(epoch));
        if let (Some(latest), Some((epoch, epoch_end))) = (latest, theirs)
            && (epoch < latest || epoch_end < end)
        {
            let (own, own_end) = follower.log.end_of_epoch(epoch).unwrap();
            let target = if own == epoch {
                own_end.min(epoch_end)
            } else {
                own_end.min(end)
            };
            let cut = follower
                .log
                .truncate_to(target, &mut no_checkpoints)
                .unwrap();
            follower.expected.retain(|(base, _, _)| *base < cut);
            follower.opened_end = follower.opened_end.min(cut);
            return;
        }
        if end > leader.end() {
            let cut = follower
                .log
                .truncate_to(leader.end(), &mut no_checkpoints)
                .unwrap();
            follower.expected.retain(|(base, _, _)| *base < cut);
            return;
        }
        // To fetch an offset is to have everything below it.
        leader.fetched.insert(nth, end);
        let bytes = leader.read(end, bytes_max);
        let stored = follower
            .log
            .append_as_follower(&bytes, self.epoch, &mut no_checkpoints)
            .unwrap();
        follower.expect(&bytes);
        assert_eq!(stored, follower.end());
        follower
            .log
            .raise_high_watermark(leader.log.state().high_watermark);
        let followers = self.replicas.len() - 1;
        let leader = &self.replicas[self.leader];
        if leader.fetched.len() == followers {
            let least = leader
                .fetched
                .values()
                .copied()
                .min()
                .unwrap_or(0)
                .min(leader.end());
            leader.log.raise_high_watermark(least);
            self.committed = leader.log.state().high_watermark;
        }
    }

    fn restart(&mut self, nth: usize, is_clean: bool) {
        let is_leader = nth == self.leader;
        let replica = &mut self.replicas[nth];
        let state = replica.log.state();
        if is_clean {
            replica.log.close().unwrap();
        }
        let past = Past {
            was_clean: is_clean,
            recovery_point: if is_clean { state.log_end_offset } else { 0 },
            high_watermark: state.high_watermark,
            ..Past::default()
        };
        let role = if is_leader {
            Role::Leader
        } else {
            Role::Follower
        };
        (replica.log, replica.producer_state) = open(replica.root.path(), past, role);
        replica.log.set_role(role, self.epoch);
        assert_eq!(
            replica.log.readable_end(Isolation::HighWatermark),
            state.high_watermark
        );
        replica.opened_end = state.log_end_offset;
    }

    fn elect(&mut self, nth: usize) {
        self.epoch += 1;
        self.leader = nth;
        for (other, replica) in self.replicas.iter_mut().enumerate() {
            let role = if other == nth {
                Role::Leader
            } else {
                Role::Follower
            };
            assert_eq!(replica.log.set_role(role, self.epoch), replica.end());
            replica.fetched.clear();
        }
        self.committed = self.replicas[nth].log.state().high_watermark;
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for replica in &self.replicas {
            replica.check()?;
        }
        Ok(())
    }
}

fn two(replicas: &mut [Replica], one: usize, other: usize) -> (&mut Replica, &mut Replica) {
    let [one, other] = replicas.get_disjoint_mut([one, other]).unwrap();
    (one, other)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn replicas_hold_what_the_lists_say_and_come_to_be_equal(
        (replicas, steps) in (2usize..=3).prop_flat_map(|count| (Just(count), steps(count))),
    ) {
        let mut partition = Partition::new(replicas);
        for step in steps {
            partition.take(step);
            partition.check()?;
        }
        // Nobody appends any more: after a few rounds all are the leader's equals.
        for _ in 0..40 {
            for nth in 0..replicas {
                partition.take(ReplicaStep::Fetch(nth, u64::MAX));
            }
        }
        partition.check()?;
        let leader = partition.replicas[partition.leader].bytes_below(i64::MAX);
        for replica in &partition.replicas {
            prop_assert!(replica.bytes_below(i64::MAX) == leader);
            let state = replica.log.state();
            prop_assert_eq!(state.high_watermark, state.log_end_offset);
        }
    }
}

/// A start after a power failure takes a gap between two segments for a loss.
#[test]
fn a_follower_of_a_compacted_log_begins_no_segment_behind_a_gap() {
    let compacted = Settings {
        is_compacted: true,
        ..SMALL
    };
    let root = tempfile::tempdir().unwrap();
    let past = Past {
        role: Role::Follower,
        ..Past::default()
    };
    let (log, _) = try_open_from(root.path(), compacted, past).unwrap();
    for round in 0..40 {
        let mut batch = plain(2, 200);
        batch[..8].copy_from_slice(&(100i64 * round).to_be_bytes());
        log.append_as_follower(&batch, 0, &mut no_checkpoints)
            .unwrap();
    }
    let end = log.state().log_end_offset;
    drop(log);
    assert!(files(root.path(), "log").len() > 5);

    let power_failed = Past {
        power_failed: true,
        ..past
    };
    let (log, _) = try_open_from(root.path(), compacted, power_failed).unwrap();

    assert_eq!(log.cuts(), []);
    assert_eq!(log.state().log_end_offset, end);
}
