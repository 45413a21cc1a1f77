//! Whole histories, each by its seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::engine::{Outcome, Tracked};
use crate::messages::transactions::{GroupMember, GroupOffset};

/// No call takes longer, in simulated time, whatever the faults.
const PATIENCE_MS: Millis = 600_000;

const CALM: Faults = Faults {
    cuts: 0,
    moves: 0,
    stops: 0,
    refusals: 0,
};
const ROUGH: Faults = Faults {
    cuts: 60,
    moves: 30,
    stops: 8,
    refusals: 40,
};

type Place = (String, i32);

fn places() -> Vec<Place> {
    [("a", 3), ("b", 2)]
        .iter()
        .flat_map(|(topic, count)| (0..*count).map(move |p| ((*topic).to_owned(), p)))
        .collect()
}

fn settings(id: Option<&str>) -> Settings {
    Settings {
        transactional_id: id.map(ToOwned::to_owned),
        batch_bytes: 300, // a few records
        request_timeout_ms: 2_000,
        ..Settings::default()
    }
}

/// Runs transactions; returns how many were committed and how many could not be, or what went wrong.
fn transactions(
    seed: u64,
    is_v2: bool,
    faults: Faults,
    forgets: bool,
) -> Result<(u64, u64), String> {
    transactions_with(seed, is_v2, faults, |cluster| cluster.forgets = forgets)
}

/// Runs transactions against a cluster that `prepare` has changed.
fn transactions_with(
    seed: u64,
    is_v2: bool,
    faults: Faults,
    prepare: impl FnOnce(&mut Cluster),
) -> Result<(u64, u64), String> {
    let mut world = World::new(seed, is_v2, settings(Some("pay")), faults);
    prepare(&mut world.cluster);
    world.producer.init();
    world.run_until(PATIENCE_MS, "init", |p| matches!(p.status(), Status::Ready));
    let mut expected: BTreeMap<Place, Vec<String>> = BTreeMap::new();
    let mut offset = None;
    let (mut committed, mut failed) = (0, 0);
    for number in 0..30 {
        world
            .producer
            .begin()
            .map_err(|status| format!("begin: {status:?}"))?;
        let mut written: BTreeMap<Place, Vec<String>> = BTreeMap::new();
        for record in 0..world.random.below(40) {
            let place = places()[world.random.below(5) as usize].clone();
            let value = format!("{number}.{record}");
            if world.write(&place.0, place.1, &value).is_err() {
                break; // the transaction has failed
            }
            written.entry(place).or_default().push(value);
            if world.random.happens(300) {
                world.advance();
            }
        }
        let sends_offsets = world.random.happens(400);
        if sends_offsets {
            let offsets = Arc::new(vec![GroupOffset::new("in", 0, number)]);
            if world
                .producer
                .send_offsets("g", GroupMember::none(), offsets)
                .is_ok()
            {
                world.run_until(PATIENCE_MS, "offsets", |p| {
                    !p.is_sending_offsets() || !matches!(p.status(), Status::Open)
                });
            }
        }
        let commit = world.random.happens(800);
        if commit && world.producer.end(true).is_ok() {
            world.run_until(PATIENCE_MS, "commit", |p| {
                !matches!(p.status(), Status::Working)
            });
        }
        match world.producer.status() {
            Status::Ready => {
                committed += 1;
                for (place, values) in written {
                    expected.entry(place).or_default().extend(values);
                }
                offset = if sends_offsets { Some(number) } else { offset };
            }
            Status::Fatal(error) => return Err(format!("fatal: {error}")),
            status => {
                failed += u64::from(matches!(status, Status::Failed(_)));
                world
                    .producer
                    .end(false)
                    .map_err(|status| format!("abort: {status:?}"))?;
                world.run_until(PATIENCE_MS, "abort", |p| {
                    !matches!(p.status(), Status::Working)
                });
                if let Status::Fatal(error) = world.producer.status() {
                    return Err(format!("fatal: {error}"));
                }
            }
        }
        if world.producer.pending() != 0 {
            return Err(format!(
                "{} records are left over",
                world.producer.pending()
            ));
        }
    }
    // Requests that are late still arrive, and change nothing.
    while !world.events.is_empty() {
        world.advance();
    }
    for place in places() {
        let (visible, wanted) = (
            world.cluster.visible(&place),
            expected.remove(&place).unwrap_or_default(),
        );
        if visible != wanted {
            return Err(format!("{place:?}: seen {visible:?}, committed {wanted:?}"));
        }
    }
    let stored = world.cluster.offsets.get(&("in".to_owned(), 0)).copied();
    if stored != offset {
        return Err(format!("offset {stored:?}, committed {offset:?}"));
    }
    Ok((committed, failed))
}

/// Writes without transactions; returns (records taken, records stored).
fn idempotent(
    seed: u64,
    faults: Faults,
    settings: Settings,
    outage_ms: Millis,
) -> (World, BTreeMap<Place, Vec<String>>) {
    let mut world = World::new(seed, true, settings, faults);
    let mut taken: BTreeMap<Place, Vec<String>> = BTreeMap::new();
    for record in 0..400_u32 {
        let place = places()[world.random.below(5) as usize].clone();
        let value = format!("{record:05}");
        while let Err(error) = world.write(&place.0, place.1, &value) {
            assert!(matches!(error, SendError::Full), "{error:?}");
            world.advance();
        }
        taken.entry(place).or_default().push(value);
        if world.random.happens(400) {
            world.advance();
        }
        if outage_ms > 0 && record % 100 == 50 {
            for node in 1..=3 {
                world.stop(node, outage_ms);
            }
        }
    }
    world.producer.flush();
    world.run_until(PATIENCE_MS, "flush", |p| p.pending() == 0);
    while !world.events.is_empty() {
        world.advance();
    }
    (world, taken)
}

#[test]
fn transactions_are_atomic_and_complete_in_order_on_a_calm_network() {
    for (seed, is_v2) in [(1, false), (2, true)] {
        let (committed, failed) = transactions(seed, is_v2, CALM, false).unwrap();
        assert!(committed > 15 && failed == 0, "{committed} {failed}");
    }
}

#[test]
fn transactions_of_version_2_survive_lost_late_and_reordered_answers() {
    for seed in 0..100 {
        let result = transactions(seed, true, ROUGH, false);
        assert!(result.is_ok(), "seed {seed}: {result:?}");
    }
}

#[test]
fn transactions_of_version_1_survive_lost_late_and_reordered_answers() {
    for seed in 0..100 {
        let result = transactions(seed, false, ROUGH, false);
        assert!(result.is_ok(), "seed {seed}: {result:?}");
    }
}

/// The answer for offsets that later ones have replaced settles nothing of the later ones.
#[test]
fn the_last_offsets_that_were_sent_are_committed() {
    for (seed, is_v2) in (0..40).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut world = World::new(seed, is_v2, settings(Some("pay")), CALM);
        world.producer.init();
        world.run_until(PATIENCE_MS, "init", |p| matches!(p.status(), Status::Ready));
        world.producer.begin().unwrap();
        for (group, offset) in [("g", 3), ("other", 5), ("g", 10)] {
            let offsets = Arc::new(vec![GroupOffset::new("in", 0, offset)]);
            let sent = world
                .producer
                .send_offsets(group, GroupMember::none(), offsets);
            sent.unwrap();
            for _ in 0..world.random.below(8) {
                if world.producer.is_sending_offsets() {
                    world.advance();
                }
            }
        }
        world.run_until(PATIENCE_MS, "offsets", |p| !p.is_sending_offsets());
        world.producer.end(true).unwrap();
        world.run_until(PATIENCE_MS, "commit", |p| {
            !matches!(p.status(), Status::Working)
        });
        let stored = world.cluster.offsets.get(&("in".to_owned(), 0)).copied();
        assert_eq!(stored, Some(10), "seed {seed}, version 2: {is_v2}");
    }
}

/// A cluster that forgets sequences stores a batch twice: the check has to see that.
#[test]
fn a_cluster_that_forgets_sequences_is_found_out() {
    let lies = (0..50).filter(|&seed| transactions(seed, true, ROUGH, true).is_err());
    assert!(lies.count() > 10);
}

#[test]
fn an_idempotent_producer_stores_each_record_once_and_in_order() {
    for seed in 0..80 {
        let (mut world, taken) = idempotent(seed, ROUGH, settings(None), 0);
        assert!(world.producer.take_failures().is_empty(), "seed {seed}");
        for (place, values) in taken {
            assert_eq!(
                world.cluster.visible(&place),
                values,
                "seed {seed}, {place:?}"
            );
        }
    }
}

/// All nodes are away for longer than records may take: some are given up, and none comes twice.
#[test]
fn records_that_outlive_their_timeout_are_given_up_and_later_ones_go_on_in_order() {
    let mut given_up = 0;
    for seed in 0..80 {
        let settings = Settings {
            delivery_timeout_ms: 1_500,
            ..settings(None)
        };
        let (mut world, taken) = idempotent(seed, ROUGH, settings, 4_000);
        let failed: u64 = world
            .producer
            .take_failures()
            .iter()
            .map(|f| u64::from(f.records))
            .sum();
        let all: u64 = taken.values().map(|values| values.len() as u64).sum();
        assert_eq!(world.producer.stored() + failed, all, "seed {seed}");
        let mut seen = 0;
        for place in taken.keys() {
            let visible = world.cluster.visible(place);
            assert!(
                visible.is_sorted_by(|a, b| a < b),
                "seed {seed}, {place:?}: {visible:?}"
            );
            seen += visible.len() as u64;
        }
        assert!(seen >= world.producer.stored(), "seed {seed}");
        given_up += failed;
    }
    assert!(given_up > 0);
}

#[test]
fn no_record_waits_longer_than_its_timeout_for_a_cluster_that_is_away() {
    let settings = Settings {
        delivery_timeout_ms: 3_000,
        ..settings(None)
    };
    let mut world = World::new(1, true, settings, CALM);
    for node in 1..=3 {
        world.stop(node, PATIENCE_MS);
    }
    world.write("a", 0, "x").unwrap();
    world.write("nowhere", 0, "y").unwrap();
    let began = world.now;
    world.run_until(3_001, "giving up", |p| p.pending() == 0);
    assert!(world.now <= began + 3_001);
    assert_eq!(world.producer.take_failures().len(), 2);
}

#[test]
fn records_for_a_topic_that_is_not_there_are_given_up_with_its_name() {
    let mut world = World::new(1, true, settings(None), CALM);
    world.write("nowhere", 0, "x").unwrap();
    world.run_until(20_000, "giving up", |p| p.pending() == 0);
    let failures = world.producer.take_failures();
    assert_eq!(failures[0].error.code, 3);
    assert!(
        failures[0].error.message.contains("'nowhere'"),
        "{:?}",
        failures[0]
    );
}

#[test]
fn a_producer_that_was_fenced_says_so_and_gives_everything_up() {
    let mut world = World::new(1, true, settings(Some("pay")), CALM);
    world.producer.init();
    world.run_until(PATIENCE_MS, "init", |p| matches!(p.status(), Status::Ready));
    world.producer.begin().unwrap();
    world.write("a", 0, "x").unwrap();
    world.run_until(PATIENCE_MS, "storing", |p| p.pending() == 0);
    let taking_over = Request::InitProducerId {
        transactional_id: Some("pay".to_owned()),
        timeout_ms: 1,
        current: (-1, -1),
    };
    let coordinator = world.cluster.coordinator;
    world
        .cluster
        .handle(coordinator, &taking_over, &mut Random(1));
    world.producer.end(true).unwrap();
    world.run_until(PATIENCE_MS, "commit", |p| {
        !matches!(p.status(), Status::Working)
    });
    let Status::Fatal(error) = world.producer.status() else {
        panic!("{:?}", world.producer.status());
    };
    assert_eq!(error.code, 90);
    assert!(matches!(world.write("a", 0, "y"), Err(SendError::Fatal(_))));
}

#[test]
fn a_transaction_without_records_costs_the_cluster_nothing() {
    let mut world = World::new(1, false, settings(Some("pay")), CALM);
    world.producer.init();
    world.run_until(PATIENCE_MS, "init", |p| matches!(p.status(), Status::Ready));
    let handled = world.made;
    for commit in [true, false] {
        world.producer.begin().unwrap();
        world.producer.end(commit).unwrap();
        world.act();
        assert!(matches!(world.producer.status(), Status::Ready));
    }
    assert_eq!(world.made, handled);
}

#[test]
fn a_full_buffer_refuses_records_until_some_are_stored() {
    let settings = Settings {
        buffer_bytes: 200,
        ..settings(None)
    };
    let mut world = World::new(1, true, settings, CALM);
    let mut taken = 0;
    while world.write("a", 0, "x").is_ok() {
        taken += 1;
    }
    assert!(taken > 1);
    world.run_until(PATIENCE_MS, "storing", |p| p.pending() == 0);
    assert!(world.write("a", 0, "x").is_ok());
}

/// Batches that are larger than the cluster takes are split, also under faults.
#[test]
fn a_batch_that_is_too_large_is_split_and_each_record_is_stored_once_and_in_order() {
    for seed in 0..40 {
        let settings = Settings {
            batch_bytes: 2_000,
            linger_ms: 50,
            ..settings(None)
        };
        let mut world = World::new(seed, true, settings, ROUGH);
        world.cluster.batch_bytes_max = 200;
        let mut numbers = BTreeMap::new();
        let mut taken: BTreeMap<Place, Vec<String>> = BTreeMap::new();
        for number in 0..300_u64 {
            let place = places()[world.random.below(5) as usize].clone();
            let value = format!("{number:05}");
            let record = Record {
                key: None,
                value: Some(value.as_bytes()),
                headers: &[],
                timestamp_ms: number as i64,
                delivery: Some(number),
            };
            let (topic, partition) = (place.0.as_str(), place.1);
            let sent = world
                .producer
                .send(topic, Some(partition), &record, world.now);
            sent.unwrap();
            numbers.insert(number, place.clone());
            taken.entry(place).or_default().push(value);
            if world.random.happens(50) {
                world.advance();
            }
        }
        world.producer.flush();
        world.run_until(PATIENCE_MS, "flush", |p| p.pending() == 0);
        assert!(world.cluster.too_large > 0, "seed {seed}");
        for (place, values) in taken {
            assert_eq!(
                world.cluster.visible(&place),
                values,
                "seed {seed}, {place:?}"
            );
        }
        let (end, reports) = world.producer.reports();
        let mut count = 0;
        for report in reports {
            count += 1;
            assert!(
                matches!(report.outcome, Outcome::Stored { .. }),
                "seed {seed}"
            );
            for (index, record) in report.records.iter().enumerate() {
                let expected = Tracked {
                    number: record.number,
                    index: index as u32,
                    timestamp_ms: record.number as i64,
                };
                assert_eq!(*record, expected, "seed {seed}");
                let place = numbers.remove(&record.number).expect("it is reported once");
                assert_eq!((&*report.topic, report.partition), (&*place.0, place.1));
            }
        }
        assert!(numbers.is_empty(), "seed {seed}: no report of {numbers:?}");
        world.producer.forget_reports(end + count);
        assert!(!world.producer.has_reports());
    }
}

#[test]
fn transactions_with_batches_that_are_too_large_are_atomic_and_complete() {
    for (seed, is_v2) in (0..30).flat_map(|seed| [(seed, false), (seed, true)]) {
        let result = transactions_with(seed, is_v2, ROUGH, |cluster| cluster.batch_bytes_max = 120);
        assert!(
            result.is_ok(),
            "seed {seed}, version 2: {is_v2}: {result:?}"
        );
    }
}

#[test]
fn a_single_record_that_is_too_large_is_given_up_and_the_others_are_stored() {
    let mut world = World::new(1, true, settings(None), CALM);
    world.cluster.batch_bytes_max = 150;
    world.write("a", 0, "first").unwrap();
    world.write("a", 0, &"x".repeat(100)).unwrap();
    world.write("a", 0, "last").unwrap();
    world.run_until(PATIENCE_MS, "flush", |p| p.pending() == 0);
    let failures = world.producer.take_failures();
    assert_eq!((failures.len(), failures[0].records), (1, 1));
    assert_eq!(failures[0].error.code, 10);
    assert_eq!(
        world.cluster.visible(&("a".to_owned(), 0)),
        ["first", "last"]
    );
}

#[test]
fn an_abort_that_is_refused_again_and_again_ends_the_producer_in_bounded_time() {
    for is_v2 in [false, true] {
        let mut world = World::new(1, is_v2, settings(Some("pay")), CALM);
        world.producer.init();
        world.run_until(PATIENCE_MS, "init", |p| matches!(p.status(), Status::Ready));
        world.cluster.refuses_aborts = true;
        world.producer.begin().unwrap();
        world.write("a", 0, "x").unwrap();
        world.run_until(PATIENCE_MS, "storing", |p| p.pending() == 0);
        world.producer.end(false).unwrap();
        world.run_until(20_000, "abort", |p| !matches!(p.status(), Status::Working));
        let Status::Fatal(error) = world.producer.status() else {
            panic!("{:?}", world.producer.status());
        };
        assert_eq!(error.code, 120);
    }
}

/// Else a broker without KIP-890 would store the records in a transaction that nobody ends.
#[test]
fn an_abort_waits_for_the_records_in_flight() {
    for (seed, is_v2) in (0..40).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut world = World::new(seed, is_v2, settings(Some("pay")), CALM);
        world.producer.init();
        world.run_until(PATIENCE_MS, "init", |p| matches!(p.status(), Status::Ready));
        world.producer.begin().unwrap();
        for number in 0..20 {
            let (topic, partition) = &places()[number % 5];
            world.write(topic, *partition, "x").unwrap();
            world.advance();
        }
        world.producer.end(false).unwrap();
        while matches!(world.producer.status(), Status::Working) {
            let is_end = |event: &Event| {
                matches!(
                    event,
                    Event::Arrive {
                        request: Request::EndTxn { .. },
                        ..
                    }
                )
            };
            let is_produce = |event: &Event| {
                matches!(
                    event,
                    Event::Arrive {
                        request: Request::Produce { .. },
                        ..
                    }
                )
            };
            let ends = world.events.values().any(is_end);
            assert!(
                !ends || !world.events.values().any(is_produce),
                "seed {seed}"
            );
            world.advance();
        }
    }
}
