//! The driver with a machine that counts.

use std::cell::Cell;

use super::*;

/// The number of steps after which the outcome is there; one is made every millisecond.
const STEPS: u64 = 40;

struct Counting {
    steps: u64,
    tells: bool,
}

impl Machine for Counting {
    fn connected(&mut self, _: NodeId, _: (i64, i16)) {}
    fn disconnected(&mut self, _: NodeId, _: &KafkaError, _: Millis) {}
    fn answered(&mut self, _: u64, _: Result<Response, KafkaError>, _: Millis) {}

    fn poll(&mut self, _: Millis, _: &mut Vec<Effect>) {
        self.steps += 1;
    }

    fn deadline(&self, now: Millis) -> Option<Millis> {
        Some(now + 1)
    }

    fn reached(&self) -> Option<u64> {
        self.tells.then_some(u64::from(self.steps >= STEPS))
    }
}

/// Waits for the outcome; returns how often the waiting call has looked.
fn looks(tells: bool) -> u64 {
    let engine = Engine::start().unwrap();
    let machine = Counting { steps: 0, tells };
    let client = Client::drive(&engine, "test", Security::default(), 1, machine);
    let looks = Cell::new(0);
    let outcome = |machine: &mut Counting| {
        looks.set(looks.get() + 1);
        (machine.steps >= STEPS).then_some(())
    };
    let interrupt = Interrupt::new(|| false);
    let waited = client.wait(Duration::from_secs(60), &interrupt, outcome);
    assert_eq!(waited, Ok(()));
    looks.get()
}

#[test]
fn a_call_that_waits_is_woken_by_its_outcome_and_not_by_every_step() {
    assert!(looks(true) <= STEPS / 4, "each step has woken it");
}

#[test]
fn a_call_that_waits_is_woken_by_each_step_of_a_machine_that_cannot_tell_its_outcomes() {
    assert!(looks(false) > STEPS / 4);
}
