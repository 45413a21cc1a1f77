//! Client quotas: the rates of each client, and how long a client over its quota is muted.
//!
//! Python publishes the quotas; a request is counted here, without Python. A client is bound by
//! one value of each kind, that of the most specific of eight levels. By the level a count belongs to
//! a user with a client id, to a user with all its client ids, or to a client id of all users.
//!
//! A rate is Kafka's: the sum of `quota.window.num` samples of `quota.window.size.seconds`, divided by
//! the time since the oldest began. Missing samples count as empty ones. So a silent client may at
//! once send the bytes of a whole window. A client over its quota is muted until the rate is down.
//!
//! # Bounds
//! A count without a sample in the window holds nothing, and is dropped. A client chooses its client
//! id. So one principal at one address has `INVENTED_MAX` counts of a kind for ids that no quota
//! names. Its further ids share one. So do all of them while there are `RATES_MAX` counts.
//!
//! # Deviations from Apache Kafka
//! - A client without a client id is bound by the default of client ids; Kafka lets it go free.
//! - An answer to a Fetch that is larger than the whole window allows is sent if the window is
//!   empty. Kafka holds it back for ever.
//!
//! Sources: KIP-13, KIP-55, KIP-124, KIP-219; Apache Kafka's `Rate`, `SampledStat`, `QuotaUtils`.
#![expect(
    clippy::cast_precision_loss,
    reason = "bytes of a request and milliseconds of a window are far below 2^52"
)]

mod levels;
mod rates;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use txn_log::histogram::Counter;

use levels::{Levels, Scope};
use rates::{Binding, RatePlace, RateTable};

pub use levels::{ClientQuota, EntityName, QuotaKind};
pub use rates::Window;

#[derive(Default)]
struct Published {
    of_kind: [Levels; 3],
    window: Option<Window>,
}

/// The quotas that bind the request under way of a connection.
pub struct Meter {
    bindings: [Option<Binding>; 3],
    /// Bytes of the request.
    bytes: usize,
    /// When this thread took the request up.
    began: Instant,
    /// Time that it took before it had to wait.
    spent: Duration,
}

impl Meter {
    fn binding(&self, kind: QuotaKind) -> Option<Binding> {
        self.bindings[kind as usize]
    }

    /// True if the time of requests is counted.
    pub fn counts_time(&self) -> bool {
        self.binding(QuotaKind::Request).is_some()
    }

    /// The request waits: its time stands still.
    pub fn pause(&mut self) {
        self.spent += self.began.elapsed();
    }

    /// The request is taken up again.
    pub fn resume(&mut self) {
        self.began = Instant::now();
    }

    /// The most bytes that an answer to a Fetch may have without being held back for certain.
    pub fn fetch_max(&self) -> Option<u64> {
        let binding = self.binding(QuotaKind::Fetch)?;
        let samples = f64::from((binding.window.samples - 1).max(1));
        Some((binding.limit * samples * binding.window.sample.as_secs_f64()) as u64)
    }
}

/// Throttled requests so far.
#[derive(Default)]
struct Throttled {
    requests: Counter,
    ms: Counter,
}

/// Throttled requests of one kind.
#[derive(Clone, Copy, Debug)]
pub struct ThrottledSnapshot {
    /// The kind of the quota that throttled longest.
    pub kind: QuotaKind,
    /// Number of requests.
    pub requests: u64,
    /// The time that their clients were muted for.
    pub seconds: f64,
}

/// The quotas and the counts of every client.
pub struct Quotas {
    /// A bit for each kind that has a quota.
    kinds: AtomicU8,
    published: RwLock<Arc<Published>>,
    counts: Mutex<RateTable>,
    hashers: [RandomState; 2],
    start: Instant,
    throttled: [Throttled; 3],
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            kinds: AtomicU8::new(0),
            published: RwLock::default(),
            counts: Mutex::default(),
            hashers: [RandomState::new(), RandomState::new()],
            start: Instant::now(),
            throttled: Default::default(),
        }
    }
}

/// The sender of a request: principal, address, client id.
#[derive(Clone, Copy)]
pub struct QuotaClient<'a> {
    /// Its principal, `User:ada`.
    pub principal: &'a str,
    /// Its address.
    pub host: &'a str,
    /// Empty where it gives none.
    pub client_id: &'a [u8],
}

impl Quotas {
    /// Replaces all quotas. Counts stay.
    pub fn publish(&self, quotas: Vec<ClientQuota>, window: Window) {
        let mut published = Published {
            window: Some(window),
            ..Published::default()
        };
        let mut kinds = 0;
        for quota in quotas {
            kinds |= quota.kind.bit();
            published.of_kind[quota.kind as usize].add(quota);
        }
        *self.published.write().expect("no look-up panics") = Arc::new(published);
        self.kinds.store(kinds, Ordering::Release);
        if kinds == 0 {
            *self.counts() = RateTable::default();
        }
    }

    /// True if there is any quota.
    pub fn is_any(&self) -> bool {
        self.kinds.load(Ordering::Relaxed) != 0
    }

    /// The quotas that bind a request, `None` if none does.
    ///
    /// Cost: up to eight hash look-ups for each kind that has quotas.
    pub fn meter(&self, client: QuotaClient<'_>, bytes: usize) -> Option<Box<Meter>> {
        self.meter_of(client, bytes, self.kinds.load(Ordering::Acquire))
    }

    fn meter_of(&self, client: QuotaClient<'_>, bytes: usize, kinds: u8) -> Option<Box<Meter>> {
        if kinds == 0 {
            return None;
        }
        let published = Arc::clone(&self.published.read().expect("no look-up panics"));
        let bindings = QuotaKind::ALL.map(|kind| {
            let is_used = kinds & kind.bit() != 0;
            is_used.then(|| self.bind(&published, kind, client))?
        });
        bindings.iter().any(Option::is_some).then(|| {
            Box::new(Meter {
                bindings,
                bytes,
                began: Instant::now(),
                spent: Duration::ZERO,
            })
        })
    }

    fn bind(
        &self,
        published: &Published,
        kind: QuotaKind,
        client: QuotaClient<'_>,
    ) -> Option<Binding> {
        let (_, user) = client.principal.split_once(':').unwrap_or_default();
        let client_id = String::from_utf8_lossy(client.client_id);
        let found = published.of_kind[kind as usize].find(user, &client_id)?;
        let (user, client_id) = match found.scope {
            Scope::UserAndClientId => (user, &*client_id),
            Scope::User => (user, ""),
            Scope::ClientId => ("", &*client_id),
        };
        let place = self.place((kind, found.scope, user, client_id));
        let inventor = (kind, client.principal, client.host);
        Some(Binding {
            limit: found.limit,
            place,
            shared: found.is_invented.then(|| self.place(inventor)),
            window: published.window?,
        })
    }

    fn place(&self, what: impl Hash) -> RatePlace {
        let [first, second] = &self.hashers;
        (first.hash_one(&what), second.hash_one(&what))
    }

    fn counts(&self) -> MutexGuard<'_, RateTable> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Counts a Produce; the time to mute its client for. Without an answer, no time of requests
    /// is counted.
    pub fn produced(&self, meter: &Meter, has_answer: bool) -> Duration {
        let bytes = self.charge(QuotaKind::Produce, meter, meter.bytes as f64);
        let time = if has_answer {
            self.time_throttle_ms(meter)
        } else {
            0
        };
        self.throttle([(QuotaKind::Produce, bytes), (QuotaKind::Request, time)])
    }

    /// Counts a Fetch whose answer has so many bytes; the time to mute its client for. If that is
    /// not zero, the bytes are not counted, and the answer has to be empty.
    pub fn fetched(&self, meter: &Meter, bytes: usize) -> Duration {
        let time = self.time_throttle_ms(meter);
        let Some(binding) = meter.binding(QuotaKind::Fetch) else {
            return self.throttle([(QuotaKind::Request, time)]);
        };
        let now = self.now_ms();
        let mut counts = self.counts();
        let rate = counts.rate(&binding, now);
        let is_first = rate.measure(now, binding.window).0 <= 0.0;
        rate.record(bytes as f64, now, binding.window);
        let mut throttle = rate.throttle_ms(binding.limit, now, binding.window);
        if is_first {
            throttle = 0; // it would be so for ever
        }
        if throttle > 0 || time > 0 {
            rate.record(-(bytes as f64), now, binding.window);
        }
        drop(counts);
        self.throttle([(QuotaKind::Fetch, throttle), (QuotaKind::Request, time)])
    }

    /// Counts the time of a request that Python has decided; the time to mute its client for.
    pub fn decided(&self, client: QuotaClient<'_>, spent: Duration) -> Duration {
        let kinds = self.kinds.load(Ordering::Acquire) & QuotaKind::Request.bit();
        let Some(mut meter) = self.meter_of(client, 0, kinds) else {
            return Duration::ZERO;
        };
        meter.spent = spent;
        meter.resume();
        let time = self.time_throttle_ms(&meter);
        self.throttle([(QuotaKind::Request, time)])
    }

    /// Counts the time that an answer took to be sent, which counts for the next request.
    pub fn sent(&self, meter: &Meter, spent: Duration) {
        self.charge(QuotaKind::Request, meter, per_cent(spent));
    }

    /// Milliseconds that the time of a request mutes its client for: one sample at most, as in
    /// Kafka.
    fn time_throttle_ms(&self, meter: &Meter) -> u64 {
        let Some(binding) = meter.binding(QuotaKind::Request) else {
            return 0;
        };
        let spent = meter.spent + meter.began.elapsed();
        let throttle = self.charge(QuotaKind::Request, meter, per_cent(spent));
        throttle.min(binding.window.sample_ms())
    }

    fn charge(&self, kind: QuotaKind, meter: &Meter, amount: f64) -> u64 {
        let Some(binding) = meter.binding(kind) else {
            return 0;
        };
        let now = self.now_ms();
        let mut counts = self.counts();
        let rate = counts.rate(&binding, now);
        rate.record(amount, now, binding.window);
        rate.throttle_ms(binding.limit, now, binding.window)
    }

    /// The longest of some throttles, counted for its kind.
    fn throttle<const N: usize>(&self, each: [(QuotaKind, u64); N]) -> Duration {
        let longest = each.into_iter().max_by_key(|&(_, ms)| ms);
        let (kind, ms) = longest.expect("there is one");
        if ms > 0 {
            let of_kind = &self.throttled[kind as usize];
            of_kind.requests.add(1);
            of_kind.ms.add(ms);
        }
        Duration::from_millis(ms)
    }

    /// Throttled requests so far, by kind.
    pub fn throttled(&self) -> Vec<ThrottledSnapshot> {
        let each = QuotaKind::ALL.into_iter().zip(&self.throttled);
        let snapshots = each.map(|(kind, throttled)| ThrottledSnapshot {
            kind,
            requests: throttled.requests.get(),
            seconds: throttled.ms.get() as f64 / 1000.0,
        });
        snapshots.collect()
    }

    /// Number of counts that are kept.
    pub fn count(&self) -> usize {
        self.counts().rates.len()
    }
}

fn per_cent(spent: Duration) -> f64 {
    spent.as_secs_f64() * 100.0
}
