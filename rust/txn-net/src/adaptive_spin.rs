//! When a reactor stays awake for a moment instead of going to sleep.
//!
//! A client that sends its next request as soon as it has the answer to the last is heard of
//! within some tens of microseconds. Falling asleep and being woken takes longer than that where an
//! idle processor has to be interrupted, above all in a virtual machine. It costs both sides more
//! than looking again. So a reactor looks again for a moment, and as long as that is rewarded does
//! so every time. When it was in vain it goes to sleep at once the next times, twice as many of
//! them each time. So requests that come further apart cost next to nothing more, and without
//! requests nothing is spent at all.

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
