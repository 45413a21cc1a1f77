//! The counts of all clients, and the rate of each.
//!
//! # Invariant
//! A count without a sample in the window holds nothing, and the next sweep drops it.

use std::collections::HashMap;
use std::time::Duration;

/// Counts of one kind for the client ids that one principal at one address has invented.
pub(super) const INVENTED_MAX: usize = 1_000;
/// Counts of all clients; beyond it no invented client id gets one of its own.
pub(super) const RATES_MAX: usize = 100_000;
/// Clients are told a time of 32 bits.
pub(super) const MAX_THROTTLE_MS: f64 = i32::MAX as f64;

/// The samples of a rate.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// `quota.window.num`, at least 1.
    pub samples: u32,
    /// `quota.window.size.seconds`.
    pub sample: Duration,
}

impl Window {
    pub(super) fn sample_ms(self) -> u64 {
        self.sample.as_millis() as u64
    }

    pub(super) fn total_ms(self) -> u64 {
        u64::from(self.samples) * self.sample_ms()
    }
}

/// The place of a count: a hash that nobody outside can aim at.
pub(super) type RatePlace = (u64, u64);

/// A quota that binds a client, and the place of its count.
#[derive(Clone, Copy)]
pub(super) struct Binding {
    pub(super) limit: f64,
    pub(super) place: RatePlace,
    /// The place that further invented client ids of the sender share.
    pub(super) shared: Option<RatePlace>,
    pub(super) window: Window,
}

/// The counts of all clients.
#[derive(Default)]
pub(super) struct RateTable {
    pub(super) rates: HashMap<RatePlace, KeptRate>,
    /// Number of counts for invented client ids, by their inventor.
    pub(super) invented: HashMap<RatePlace, usize>,
    pub(super) swept_ms: u64,
}

pub(super) struct KeptRate {
    pub(super) rate: WindowRate,
    /// The sender of a client id that no quota names.
    pub(super) inventor: Option<RatePlace>,
}

impl RateTable {
    /// The count of a binding.
    pub(super) fn rate(&mut self, binding: &Binding, now: u64) -> &mut WindowRate {
        let mut place = binding.place;
        let mut inventor = binding.shared;
        if !self.rates.contains_key(&place) {
            self.sweep(now, binding.window);
            let is_full = self.rates.len() >= RATES_MAX;
            if let Some(shared) = binding.shared {
                let invented = self.invented.entry(shared).or_default();
                if is_full || *invented >= INVENTED_MAX {
                    (place, inventor) = (shared, None);
                } else {
                    *invented += 1;
                }
            }
        }
        let counted = self.rates.entry(place).or_insert_with(|| KeptRate {
            rate: WindowRate::default(),
            inventor,
        });
        &mut counted.rate
    }

    /// Drops the counts that hold nothing any more, once in the time of a window.
    fn sweep(&mut self, now: u64, window: Window) {
        if now < self.swept_ms + window.total_ms() {
            return;
        }
        self.swept_ms = now;
        self.rates
            .retain(|_, counted| !counted.rate.is_over(now, window));
        self.invented.clear();
        for inventor in self.rates.values().filter_map(|one| one.inventor) {
            *self.invented.entry(inventor).or_default() += 1;
        }
    }
}

/// Sums of samples, as Kafka's `Rate` of `WindowedSum` keeps them.
#[derive(Default)]
pub(super) struct WindowRate {
    pub(super) samples: Vec<RateSample>,
    pub(super) current: usize,
}

#[derive(Clone, Copy)]
pub(super) struct RateSample {
    pub(super) start: u64,
    pub(super) last: u64,
    pub(super) sum: f64,
}

impl RateSample {
    fn new(now: u64) -> Self {
        Self {
            start: now,
            last: now,
            sum: 0.0,
        }
    }
}

impl WindowRate {
    pub(super) fn record(&mut self, value: f64, now: u64, window: Window) {
        if self.samples.is_empty() {
            self.samples.push(RateSample::new(now));
        } else if now.saturating_sub(self.samples[self.current].start) >= window.sample_ms() {
            // One more than the window has: the oldest may be in it with a part.
            self.current = (self.current + 1) % (window.samples as usize + 1);
            if self.current < self.samples.len() {
                self.samples[self.current] = RateSample::new(now);
            } else {
                self.current = self.samples.len();
                self.samples.push(RateSample::new(now));
            }
        }
        let sample = &mut self.samples[self.current];
        sample.sum += value;
        sample.last = now;
    }

    /// The rate a second, and the milliseconds it is measured over.
    pub(super) fn measure(&mut self, now: u64, window: Window) -> (f64, u64) {
        let mut sum = 0.0;
        let mut oldest = now;
        for sample in &mut self.samples {
            if now.saturating_sub(sample.last) >= window.total_ms() {
                *sample = RateSample::new(now);
            }
            sum += sample.sum;
            oldest = oldest.min(sample.start);
        }
        let elapsed = now.saturating_sub(oldest);
        let wanted = u64::from(window.samples - 1);
        let missing = wanted.saturating_sub(elapsed / window.sample_ms());
        let elapsed = (elapsed + missing * window.sample_ms()).max(1);
        (sum * 1000.0 / elapsed as f64, elapsed)
    }

    /// Milliseconds that bring the rate down to a limit, if nothing comes meanwhile.
    pub(super) fn throttle_ms(&mut self, limit: f64, now: u64, window: Window) -> u64 {
        let (rate, elapsed) = self.measure(now, window);
        if rate <= limit {
            return 0;
        }
        let throttle = (rate - limit) / limit * elapsed as f64;
        throttle.round().min(MAX_THROTTLE_MS) as u64
    }

    /// True if no sample is in the window.
    pub(super) fn is_over(&self, now: u64, window: Window) -> bool {
        self.samples
            .iter()
            .all(|sample| now.saturating_sub(sample.last) >= window.total_ms())
    }
}
