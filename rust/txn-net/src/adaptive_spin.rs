//! Decides whether a reactor polls for a moment before it goes to sleep.
//!
//! A client that sends its next request right after the answer is heard within some tens of
//! microseconds. Sleep and wake-up take longer if an idle processor has to be interrupted, above
//! all in a virtual machine, and cost both sides more than polling. So a reactor polls for a
//! moment, and does so each time while that finds events. After a poll without an event it sleeps
//! at once the next times, twice as often each time. So infrequent requests cost little more, and
//! without requests the reactor does not poll at all.

use std::thread;
use std::time::Duration;

/// Time that it stays awake: waking a client that slept takes some 40 µs in a virtual machine.
const SPIN: Duration = Duration::from_micros(100);
/// The most sleeps before it is tried again.
const SLEEPS_MAX: u32 = 255;

/// True while it pays to stay awake.
pub struct AdaptiveSpin {
    /// Someone else can run meanwhile.
    is_possible: bool,
    /// Sleeps until the next try.
    sleeps: u32,
    /// Number of sleeps that follow a try in vain.
    penalty: u32,
}

impl Default for AdaptiveSpin {
    fn default() -> Self {
        Self::new(thread::available_parallelism().map_or(1, usize::from))
    }
}

impl AdaptiveSpin {
    fn new(processors: usize) -> Self {
        Self {
            is_possible: processors > 1,
            sleeps: 0,
            penalty: 0,
        }
    }

    /// Time to stay awake now; `None`: go to sleep at once.
    pub fn duration(&mut self) -> Option<Duration> {
        if self.sleeps > 0 {
            self.sleeps -= 1;
            return None;
        }
        self.is_possible.then_some(SPIN)
    }

    /// Something came in that moment.
    pub fn was_rewarded(&mut self) {
        self.penalty = 0;
    }

    /// Nothing came.
    pub fn was_in_vain(&mut self) {
        self.penalty = (2 * self.penalty + 1).min(SLEEPS_MAX);
        self.sleeps = self.penalty;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of 10,000 waits that are tried awake, where nothing ever comes in time.
    fn tries_in_vain(mut spin: AdaptiveSpin) -> usize {
        let mut tries = 0;
        for _ in 0..10_000 {
            if spin.duration().is_some() {
                tries += 1;
                spin.was_in_vain();
            }
        }
        tries
    }

    #[test]
    fn staying_awake_in_vain_is_given_up_and_seldom_tried_again() {
        assert!((8..=50).contains(&tries_in_vain(AdaptiveSpin::new(2))));
    }

    #[test]
    fn while_it_is_rewarded_it_is_done_every_time() {
        let mut spin = AdaptiveSpin::new(2);
        spin.was_in_vain();
        assert_eq!(spin.duration(), None);
        for _ in 0..100 {
            assert_eq!(spin.duration(), Some(SPIN));
            spin.was_rewarded();
        }
    }

    #[test]
    fn on_a_single_processor_it_would_keep_the_client_from_running() {
        assert_eq!(tries_in_vain(AdaptiveSpin::new(1)), 0);
    }
}
