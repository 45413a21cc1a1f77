//! The limit on the bytes per second that all cleaners together read and write.
//!
//! After `n` bytes a cleaner waits until the rate would have allowed them. A cleaner that was idle
//! may use at most the bytes of one second at once.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time whose unused rate may be saved up.
const BURST: Duration = Duration::from_secs(1);

/// Highest cost of any bytes, so that a rate of 0 is a time too.
const COST_S_MAX: f64 = 3600.0;

/// `log.cleaner.io.max.bytes.per.second`, and the way to stop a waiting cleaner.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_per_second: f64,
    state: Mutex<ThrottleState>,
    stopped: Condvar,
}

#[derive(Debug)]
struct ThrottleState {
    /// When everything charged so far is paid for.
    paid_at: Instant,
    is_stopped: bool,
}

impl Throttle {
    /// The rate; at `f64::INFINITY` nobody ever waits.
    pub fn new(bytes_per_second: f64, now: Instant) -> Self {
        Self {
            bytes_per_second,
            state: Mutex::new(ThrottleState {
                paid_at: now,
                is_stopped: false,
            }),
            stopped: Condvar::new(),
        }
    }

    /// Charges bytes and waits until they are paid for; false if it was stopped.
    pub fn spend(&self, bytes: u64) -> bool {
        let due = self.charge(bytes, Instant::now());
        let state = self.state();
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return !state.is_stopped;
        }
        let waited = self
            .stopped
            .wait_timeout_while(state, left, |state| !state.is_stopped);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_stopped
    }

    /// Charges bytes; returns when they are paid for.
    fn charge(&self, bytes: u64, now: Instant) -> Instant {
        let mut state = self.state();
        let saved_since = now.checked_sub(BURST).unwrap_or(now);
        #[allow(clippy::cast_precision_loss)] // a time, not a count
        let cost_s = (bytes as f64 / self.bytes_per_second).min(COST_S_MAX);
        let cost = Duration::from_secs_f64(cost_s);
        state.paid_at = state.paid_at.max(saved_since) + cost;
        state.paid_at
    }

    /// Wakes all waiting cleaners; no cleaner waits or works after this.
    pub fn stop(&self) {
        self.state().is_stopped = true;
        self.stopped.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, ThrottleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_paid_for_at_the_rate() {
        let now = Instant::now();
        let throttle = Throttle::new(1000.0, now);
        assert_eq!(throttle.charge(500, now), now + Duration::from_millis(500));
        assert_eq!(throttle.charge(1500, now), now + Duration::from_secs(2));
    }

    #[test]
    fn a_second_is_saved_up_and_no_more() {
        let start = Instant::now();
        let throttle = Throttle::new(1000.0, start);
        let later = start + Duration::from_secs(60);
        assert_eq!(throttle.charge(1000, later), later);
        assert_eq!(
            throttle.charge(10, later),
            later + Duration::from_millis(10)
        );
    }

    #[test]
    fn without_a_limit_nothing_costs_time() {
        let now = Instant::now();
        let throttle = Throttle::new(f64::INFINITY, now);
        assert_eq!(throttle.charge(u64::MAX, now), now);
        assert!(throttle.spend(u64::MAX));
    }

    #[test]
    fn at_a_rate_of_nothing_everybody_waits() {
        let now = Instant::now();
        let throttle = Throttle::new(0.0, now);
        assert!(throttle.charge(1, now) > now + Duration::from_secs(1000));
    }

    #[test]
    fn whoever_waits_is_let_go_by_a_stop() {
        let throttle = Throttle::new(1.0, Instant::now());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| throttle.spend(1 << 30));
            throttle.stop();
            assert!(!waiting.join().unwrap());
        });
        assert!(!throttle.spend(0));
    }
}
