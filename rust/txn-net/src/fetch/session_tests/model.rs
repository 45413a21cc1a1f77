//! A model: readers with and without a session are told the same.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    DeleteRecords(usize),
    /// Follow the session: read on in these partitions, with room for one batch or for all.
    Fetch {
        is_narrow: bool,
        isolation: i8,
    },
    /// An answer that its client never gets: it was throttled.
    Throttled,
    Forget(usize),
    Want(usize),
    /// Move a position, as a client that seeks does.
    Seek(usize, u8),
    TopicAgain,
    SessionLost,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let partition = || 0..PARTITIONS;
    let step = prop_oneof![
        6 => partition().prop_map(Step::Append),
        1 => partition().prop_map(Step::DeleteRecords),
        8 => (any::<bool>(), 0..2_i8)
            .prop_map(|(is_narrow, isolation)| Step::Fetch { is_narrow, isolation }),
        1 => Just(Step::Throttled),
        2 => partition().prop_map(Step::Forget),
        3 => partition().prop_map(Step::Want),
        2 => (partition(), any::<u8>()).prop_map(|(partition, to)| Step::Seek(partition, to)),
        1 => Just(Step::TopicAgain),
        1 => Just(Step::SessionLost),
    ];
    prop::collection::vec(step, 1..60)
}

const PARTITIONS: usize = 4;

/// A client as KIP-227 has it: the partitions it wants, and what it has been told of them.
#[derive(Default)]
struct Client {
    session: (i32, i32),
    /// Positions.
    wanted: BTreeMap<i32, i64>,
    /// Offsets that were told last of the partitions in the session.
    told: BTreeMap<i32, [i64; 3]>,
    /// What the session knows: the position of each of its partitions.
    known: BTreeMap<i32, i64>,
}

impl Client {
    /// Makes the next request: what changed since the last.
    fn next(&self) -> (Vec<(i32, i64)>, Vec<i32>) {
        let is_full = self.session.1 == 0;
        let changed = |(index, start): (&i32, &i64)| {
            (is_full || self.known.get(index) != Some(start)).then_some((*index, *start))
        };
        let partitions = self.wanted.iter().filter_map(changed).collect();
        let is_forgotten = |index: &&i32| !is_full && !self.wanted.contains_key(index);
        let forgotten = self.known.keys().filter(is_forgotten).copied().collect();
        (partitions, forgotten)
    }

    fn was_sent(&mut self) {
        self.known = self.wanted.clone();
        self.told.retain(|index, _| self.wanted.contains_key(index));
    }
}

proptest! {
    #[test]
    fn a_reader_that_follows_a_session_is_told_what_one_without_is(steps in steps()) {
        let bench = Bench::new(PARTITIONS);
        let mut client = Client::default();
        for step in steps {
            match step {
                Step::Append(partition) => bench.append(partition, &[7; 20]),
                Step::DeleteRecords(partition) => {
                    let end = bench.logs[partition].state().log_end_offset;
                    bench.logs[partition].delete_records(end, &mut |_| Ok(())).unwrap();
                }
                Step::Forget(partition) => {
                    client.wanted.remove(&(partition as i32));
                }
                Step::Want(partition) => {
                    client.wanted.entry(partition as i32).or_insert(0);
                }
                Step::Seek(partition, to) => {
                    if let Some(one) = client.wanted.get_mut(&(partition as i32)) {
                        *one = i64::from(to % 6);
                    }
                }
                Step::TopicAgain => bench.serve(ID),
                Step::SessionLost => client.session = (client.session.0, 0),
                Step::Throttled => {
                    if client.session.1 == 0 { continue }
                    let (partitions, forgotten) = client.next();
                    let asked = Asked {
                        session: client.session,
                        partitions: &partitions,
                        forgotten: &forgotten,
                        ..Asked::default()
                    };
                    let request = bench.come(&Ada::connected(), &asked);
                    request.answer(true, None);
                    let told = Told::parse(11, &[request.throttled(1)]);
                    prop_assert_eq!(told.code, 0);
                    client.was_sent();
                    client.session = (told.session_id, client.session.1 + 1);
                    if told.session_id == 0 { client.session = (0, 0); }
                }
                Step::Fetch { is_narrow, isolation } => {
                    let (partitions, forgotten) = client.next();
                    let told = bench.ask(&Asked {
                        session: client.session,
                        partitions: &partitions,
                        forgotten: &forgotten,
                        max_bytes: if is_narrow { 1 } else { 1 << 20 },
                        isolation,
                        ..Asked::default()
                    });
                    prop_assert_eq!(told.code, 0);
                    let all: Vec<_> = client.wanted.clone().into_iter().collect();
                    let plain = bench.ask(&Asked {
                        session: (0, -1),
                        partitions: &all,
                        isolation,
                        ..Asked::default()
                    });
                    client.was_sent();
                    let is_full = client.session.1 == 0;
                    client.session = (told.session_id, client.session.1 + 1);
                    if told.session_id == 0 { client.session = (0, 0); }
                    for one in &told.partitions {
                        prop_assert!(client.wanted.contains_key(&one.index), "it was forgotten");
                        let before = client.told.insert(one.index, one.offsets);
                        let is_news = !one.records.is_empty() || one.code != 0;
                        let is_other = before != Some(one.offsets);
                        prop_assert!(is_full || is_news || is_other, "it is no news");
                    }
                    let mut is_any_told = false;
                    for expected in &plain.partitions {
                        prop_assert_eq!(client.told[&expected.index], expected.offsets);
                        let told = told.partitions.iter().find(|one| one.index == expected.index);
                        let records = told.map_or(&[][..], |one| &one.records);
                        is_any_told |= !records.is_empty();
                        if !is_narrow {
                            prop_assert_eq!(told.map_or(0, |one| one.code), expected.code);
                            prop_assert_eq!(records, &expected.records[..]);
                        }
                    }
                    let is_any = plain.partitions.iter().any(|one| !one.records.is_empty());
                    prop_assert_eq!(is_any_told, is_any, "one batch at least");
                    for one in told.partitions.iter().filter(|one| !one.records.is_empty()) {
                        let end = i64::from_be_bytes(*one.records.first_chunk().unwrap());
                        client.wanted.insert(one.index, end + 1);
                    }
                }
            }
        }
    }
}
