//! Counters, and times by buckets, that any thread may read while others write.
//!
//! Bucket bounds are 2^k and 1.5 · 2^k microseconds, from 16 µs to 12.6 s, inclusive above, as
//! Prometheus has them. Between two bounds lies at most half of the lower one, so a quantile read
//! from buckets is off by less than a half.
//!
//! `add` and `record` are for many writers; `add_alone` and `record_alone` need the caller to be
//! the only one, and cost no locked instruction.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The lowest bound is 2 to the power of this, in microseconds.
const FIRST_POWER: u32 = 4;
/// Bounds for each power of two.
const STEPS: usize = 2;
const POWERS: usize = 20;
/// Number of bounds; the last bucket has none.
const BOUNDS: usize = POWERS * STEPS;

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at 0.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds to it; any thread may.
    pub fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    /// Adds to it on the one thread that does.
    pub fn add_alone(&self, number: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_add(number), Ordering::Relaxed);
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts times by their length.
#[derive(Debug)]
pub struct Histogram {
    buckets: [Counter; BOUNDS + 1],
    sum_ns: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            buckets: [const { Counter::new() }; BOUNDS + 1],
            sum_ns: Counter::new(),
        }
    }

    /// Notes a time; any thread may.
    pub fn record(&self, time: Duration) {
        let ns = nanoseconds(time);
        self.buckets[bucket_of(ns)].add(1);
        self.sum_ns.add(ns);
    }

    /// Notes a time on the one thread that does.
    pub fn record_alone(&self, time: Duration) {
        let ns = nanoseconds(time);
        self.buckets[bucket_of(ns)].add_alone(1);
        self.sum_ns.add_alone(ns);
    }

    /// Its present content.
    #[must_use]
    pub fn times(&self) -> Times {
        Times {
            buckets: self.buckets.iter().map(Counter::get).collect(),
            sum_s: Duration::from_nanos(self.sum_ns.get()).as_secs_f64(),
        }
    }
}

/// The content of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// Counts by bucket, in the order of [`bounds_s`]; the last is beyond every bound.
    pub buckets: Vec<u64>,
    /// All times together, in seconds.
    pub sum_s: f64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            buckets: vec![0; BOUNDS + 1],
            sum_s: 0.0,
        }
    }
}

impl Times {
    /// Adds another histogram's times.
    pub fn add(&mut self, other: &Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += more;
        }
        self.sum_s += other.sum_s;
    }

    /// Number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// The upper bounds of the buckets, inclusive, in seconds.
#[must_use]
pub fn bounds_s() -> [f64; BOUNDS] {
    array::from_fn(|index| f64::from(bound_us(index)) / 1e6)
}

fn bound_us(index: usize) -> u32 {
    let power = 1_u32 << (FIRST_POWER as usize + index / STEPS);
    if index.is_multiple_of(STEPS) {
        power
    } else {
        power + power / 2
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn bucket_of(ns: u64) -> usize {
    // One less, so that a time that is a bound belongs to the bucket below it.
    let us = ns.saturating_sub(1) / 1000;
    if us < 1 << FIRST_POWER {
        return 0;
    }
    let power = us.ilog2();
    let is_upper = (us >> (power - 1)) & 1 == 1;
    let index = 1 + (power - FIRST_POWER) as usize * STEPS + usize::from(is_upper);
    index.min(BOUNDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_first_bucket_whose_bound_is_not_below_it() {
        for (index, bound) in (0..BOUNDS).map(|at| u64::from(bound_us(at))).enumerate() {
            assert_eq!(bucket_of(bound * 1000), index);
            assert_eq!(bucket_of(bound * 1000 + 1), index + 1);
        }
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BOUNDS);
    }

    #[test]
    fn times_of_two_histograms_come_together() {
        let (one, two) = (Histogram::new(), Histogram::new());
        one.record(Duration::from_micros(10));
        two.record_alone(Duration::from_micros(10));
        two.record_alone(Duration::from_secs(100));
        let mut times = one.times();
        times.add(&two.times());
        assert_eq!(times.count(), 3);
        assert_eq!((times.buckets[0], times.buckets[BOUNDS]), (2, 1));
        assert!((times.sum_s - 100.000_02).abs() < 1e-9);
    }
}
