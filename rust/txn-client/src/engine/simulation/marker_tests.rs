//! Waits for the markers of the transaction before, on a network without faults.

use super::*;

const CALM: Faults = Faults {
    cuts: 0,
    moves: 0,
    stops: 0,
    refusals: 0,
};
const PATIENCE_MS: Millis = 60_000;

/// A quick network whose markers take `markers_ms`, and a producer that is ready.
fn world(is_v2: bool, markers_ms: Millis) -> World {
    let settings = Settings {
        transactional_id: Some("pay".to_owned()),
        ..Settings::default()
    };
    let mut world = World::new(1, is_v2, settings, CALM);
    world.way_max = 1;
    world.markers.take_ms = markers_ms;
    world.producer.init();
    world.run_until(PATIENCE_MS, "init", |p| matches!(p.status(), Status::Ready));
    transactions(&mut world, 2); // connections and leaders
    world
}

/// Commits so many transactions of one record; returns the milliseconds that they took.
fn transactions(world: &mut World, count: u32) -> Millis {
    let began = world.now;
    for _ in 0..count {
        world.producer.begin().unwrap();
        world.write("a", 0, "x").unwrap();
        world.producer.end(true).unwrap();
        world.run_until(PATIENCE_MS, "commit", |p| {
            !matches!(p.status(), Status::Working)
        });
        assert!(matches!(world.producer.status(), Status::Ready));
    }
    world.now - began
}

#[test]
fn transactions_of_version_2_wait_for_markers_instead_of_being_kept_for_20_ms() {
    // The answer and the next request take 2 ms together, so markers that take 4 need a pause.
    let (mut kafka, mut quick) = (world(true, 4), world(true, 0));
    transactions(&mut kafka, 60);
    transactions(&mut quick, 60);
    let kept = kafka.markers.kept;
    assert!(kept > 0, "it has to learn");
    let (with_markers, without) = (transactions(&mut kafka, 50), transactions(&mut quick, 50));
    assert_eq!(kafka.markers.kept, kept);
    assert!(
        with_markers <= without + 50 * 5,
        "{with_markers} ms, without markers {without} ms"
    );
    assert_eq!(quick.markers.kept, 0);
    // Produce and EndTxn, there and back, are all that a cluster without markers costs.
    assert_eq!(without, 50 * 4);
}

#[test]
fn transactions_of_version_1_ask_again_after_1_2_and_4_ms() {
    let mut world = world(false, 12);
    let refused = world.markers.refused;
    let took = transactions(&mut world, 10);
    // Each refusal takes 2 ms there and back: asked after 2, 5 (1), 9 (2) and 15 ms (4).
    assert_eq!(world.markers.refused - refused, 3 * 10);
    assert!(took <= 10 * 24, "{took} ms");
}

#[test]
fn a_coordinator_that_cannot_write_markers_is_asked_ten_times_a_second() {
    let mut world = world(false, 10_000);
    let refused = world.markers.refused;
    transactions(&mut world, 1);
    let asked = world.markers.refused - refused;
    assert!((90..=110).contains(&asked), "{asked} times in 10 s");
}

#[test]
fn records_that_wait_for_markers_are_aborted_at_once() {
    let mut world = world(true, 4);
    transactions(&mut world, 60);
    world.producer.begin().unwrap();
    world.write("a", 0, "x").unwrap();
    world.producer.flush();
    world.act();
    world.producer.end(false).unwrap();
    world.act();
    assert!(matches!(world.producer.status(), Status::Ready));
    assert_eq!(world.producer.pending(), 0);
}
