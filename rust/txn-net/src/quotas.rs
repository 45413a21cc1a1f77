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
//! id. So one principal at one address has [`INVENTED_MAX`] counts of a kind for ids that no quota
//! names. Its further ids share one. So do all of them while there are [`RATES_MAX`] counts.
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

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use txn_log::histogram::Counter;

/// Counts of one kind for the client ids that one principal at one address has invented.
const INVENTED_MAX: usize = 1_000;
/// Counts of all clients; beyond it no invented client id gets one of its own.
const RATES_MAX: usize = 100_000;
/// Clients are told a time of 32 bits.
const MAX_THROTTLE_MS: f64 = i32::MAX as f64;

/// The kinds of quotas that are counted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuotaKind {
    /// Bytes of Produce requests.
    Produce,
    /// Bytes of answers to Fetch.
    Fetch,
    /// Time of a thread, in per cent.
    Request,
}

impl QuotaKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Produce, Self::Fetch, Self::Request];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The name of a user or a client id in a quota; `None`: the default.
pub type EntityName = Option<Box<str>>;

/// One quota: at least one of user and client id is there.
#[derive(Clone, Debug)]
pub struct ClientQuota {
    /// The kind of its count.
    pub kind: QuotaKind,
    /// `None`: it is for a client id of all users.
    pub user: Option<EntityName>,
    /// `None`: it is for all client ids of a user together.
    pub client_id: Option<EntityName>,
    /// Bytes a second, or per cent.
    pub limit: f64,
}

/// The samples of a rate.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// `quota.window.num`, at least 1.
    pub samples: u32,
    /// `quota.window.size.seconds`.
    pub sample: Duration,
}

impl Window {
    fn sample_ms(self) -> u64 {
        self.sample.as_millis() as u64
    }

    fn total_ms(self) -> u64 {
        u64::from(self.samples) * self.sample_ms()
    }
}

/// Quotas of one kind, by the name of the user.
#[derive(Default)]
struct Levels {
    users: HashMap<Box<str>, UserLevels>,
    default_user: UserLevels,
    /// Quotas of client ids of all users.
    clients: ClientLevels,
}

#[derive(Default)]
struct UserLevels {
    clients: ClientLevels,
    /// The quota of all its client ids together.
    own: Option<f64>,
}

#[derive(Default)]
struct ClientLevels {
    named: HashMap<Box<str>, f64>,
    default: Option<f64>,
}

/// The clients that share a count.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Scope {
    UserAndClientId,
    User,
    ClientId,
}

/// A quota that binds a client.
struct Found {
    limit: f64,
    scope: Scope,
    /// No quota names the client id.
    is_invented: bool,
}

impl ClientLevels {
    fn find(&self, client_id: &str, scope: Scope) -> Option<Found> {
        let named = self.named.get(client_id);
        let limit = *named.or(self.default.as_ref())?;
        Some(Found {
            limit,
            scope,
            is_invented: named.is_none(),
        })
    }
}

impl Levels {
    fn add(&mut self, quota: ClientQuota) {
        let clients = match quota.user {
            None => &mut self.clients,
            Some(user) => {
                let levels = match user {
                    None => &mut self.default_user,
                    Some(name) => self.users.entry(name).or_default(),
                };
                if quota.client_id.is_none() {
                    levels.own = Some(quota.limit);
                }
                &mut levels.clients
            }
        };
        match quota.client_id {
            None => {}
            Some(None) => clients.default = Some(quota.limit),
            Some(Some(name)) => {
                clients.named.insert(name, quota.limit);
            }
        }
    }

    /// The most specific quota of a client.
    fn find(&self, user: &str, client_id: &str) -> Option<Found> {
        let of_user = self.users.get(user).into_iter();
        for levels in of_user.chain([&self.default_user]) {
            let found = levels.clients.find(client_id, Scope::UserAndClientId);
            let own = levels.own.map(|limit| Found {
                limit,
                scope: Scope::User,
                is_invented: false,
            });
            if found.is_some() || own.is_some() {
                return found.or(own);
            }
        }
        self.clients.find(client_id, Scope::ClientId)
    }
}

#[derive(Default)]
struct Published {
    of_kind: [Levels; 3],
    window: Option<Window>,
}

/// The place of a count: a hash that nobody outside can aim at.
type RatePlace = (u64, u64);

/// A quota that binds a client, and the place of its count.
#[derive(Clone, Copy)]
struct Binding {
    limit: f64,
    place: RatePlace,
    /// The place that further invented client ids of the sender share.
    shared: Option<RatePlace>,
    window: Window,
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

/// The counts of all clients.
#[derive(Default)]
struct RateTable {
    rates: HashMap<RatePlace, KeptRate>,
    /// Number of counts for invented client ids, by their inventor.
    invented: HashMap<RatePlace, usize>,
    swept_ms: u64,
}

struct KeptRate {
    rate: WindowRate,
    /// The sender of a client id that no quota names.
    inventor: Option<RatePlace>,
}

impl RateTable {
    /// The count of a binding.
    fn rate(&mut self, binding: &Binding, now: u64) -> &mut WindowRate {
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
struct WindowRate {
    samples: Vec<RateSample>,
    current: usize,
}

#[derive(Clone, Copy)]
struct RateSample {
    start: u64,
    last: u64,
    sum: f64,
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
    fn record(&mut self, value: f64, now: u64, window: Window) {
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
    fn measure(&mut self, now: u64, window: Window) -> (f64, u64) {
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
    fn throttle_ms(&mut self, limit: f64, now: u64, window: Window) -> u64 {
        let (rate, elapsed) = self.measure(now, window);
        if rate <= limit {
            return 0;
        }
        let throttle = (rate - limit) / limit * elapsed as f64;
        throttle.round().min(MAX_THROTTLE_MS) as u64
    }

    /// True if no sample is in the window.
    fn is_over(&self, now: u64, window: Window) -> bool {
        self.samples
            .iter()
            .all(|sample| now.saturating_sub(sample.last) >= window.total_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window {
        samples: 11,
        sample: Duration::from_secs(1),
    };

    /// Stands for the default of users or client ids.
    const DEFAULT: &str = "<default>";

    fn quota(kind: QuotaKind, user: Option<&str>, id: Option<&str>) -> ClientQuota {
        let owned = |part: Option<&str>| part.map(|name| (name != DEFAULT).then(|| name.into()));
        ClientQuota {
            kind,
            user: owned(user),
            client_id: owned(id),
            limit: 1000.0,
        }
    }

    fn client<'a>(principal: &'a str, client_id: &'a str) -> QuotaClient<'a> {
        QuotaClient {
            principal,
            host: "10.0.0.1",
            client_id: client_id.as_bytes(),
        }
    }

    fn produce(quotas: &Quotas, who: QuotaClient<'_>, bytes: usize) -> Duration {
        let meter = quotas.meter(who, bytes);
        meter.map_or(Duration::ZERO, |meter| quotas.produced(&meter, true))
    }

    #[test]
    fn the_most_specific_of_the_eight_levels_binds() {
        let levels = [
            (Some("ada"), Some("shop")),
            (Some("ada"), Some(DEFAULT)),
            (Some("ada"), None),
            (Some(DEFAULT), Some("shop")),
            (Some(DEFAULT), Some(DEFAULT)),
            (Some(DEFAULT), None),
            (None, Some("shop")),
            (None, Some(DEFAULT)),
        ];
        for chosen in 0..1 << levels.len() {
            let mut table = Levels::default();
            let is_chosen = |level: &usize| chosen & (1 << level) != 0;
            for level in (0..levels.len()).filter(is_chosen) {
                let (user, client_id) = levels[level];
                let limit = level as f64;
                table.add(ClientQuota {
                    limit,
                    ..quota(QuotaKind::Produce, user, client_id)
                });
            }
            let expected = (0..levels.len()).find(is_chosen).map(|level| level as f64);
            let found = table.find("ada", "shop").map(|found| found.limit);
            assert_eq!(found, expected, "{chosen:b}");
        }
    }

    #[test]
    fn without_quotas_of_its_kind_nothing_is_metered() {
        let quotas = Quotas::default();
        assert!(!quotas.is_any());
        assert!(quotas.meter(client("User:ada", "shop"), 1).is_none());
        quotas.publish(vec![quota(QuotaKind::Fetch, Some("ada"), None)], WINDOW);
        assert!(quotas.meter(client("User:bob", "shop"), 1).is_none());
        assert_eq!(
            produce(&quotas, client("User:ada", ""), 1 << 30),
            Duration::ZERO
        );
    }

    #[test]
    fn a_client_may_use_its_window_at_once_and_is_muted_for_the_rest() {
        let mut rate = WindowRate::default();
        rate.record(10_000.0, 5, WINDOW);
        assert_eq!(rate.throttle_ms(1000.0, 5, WINDOW), 0);
        rate.record(2_000.0, 5, WINDOW);
        assert_eq!(rate.throttle_ms(1000.0, 5, WINDOW), 2_000);
        assert_eq!(rate.throttle_ms(1000.0, 1_005, WINDOW), 2_000); // as Kafka has it
        assert_eq!(rate.throttle_ms(1000.0, 11_005, WINDOW), 0);
    }

    #[test]
    fn a_steady_rate_is_measured_as_it_is() {
        let mut rate = WindowRate::default();
        for n in 0..400 {
            rate.record(100.0, n * 100, WINDOW);
        }
        let (measured, _) = rate.measure(40_000, WINDOW);
        assert!((measured - 1000.0).abs() < 100.0, "{measured}");
    }

    #[test]
    fn a_user_shares_its_quota_among_its_client_ids_and_a_client_id_among_users() {
        let quotas = Quotas::default();
        let of_user = quota(QuotaKind::Produce, Some("ada"), None);
        let of_id = quota(QuotaKind::Produce, None, Some("shop"));
        quotas.publish(vec![of_user, of_id], WINDOW);
        assert!(produce(&quotas, client("User:ada", "a"), 10_000).is_zero());
        assert!(!produce(&quotas, client("User:ada", "b"), 10_000).is_zero());
        assert!(produce(&quotas, client("User:bob", "shop"), 10_000).is_zero());
        assert!(!produce(&quotas, client("User:eve", "shop"), 10_000).is_zero());
        assert!(produce(&quotas, client("User:eve", "other"), 1 << 30).is_zero());
        assert_eq!(quotas.throttled()[0].requests, 2);
        assert!(quotas.throttled()[0].seconds > 0.0);
    }

    #[test]
    fn each_of_two_client_ids_has_the_default_quota_and_so_has_none() {
        let quotas = Quotas::default();
        quotas.publish(vec![quota(QuotaKind::Produce, None, Some(DEFAULT))], WINDOW);
        for id in ["a", "b", ""] {
            assert!(produce(&quotas, client("User:ada", id), 10_000).is_zero());
            assert!(!produce(&quotas, client("User:ada", id), 1_000).is_zero());
        }
    }

    #[test]
    fn a_throttled_answer_is_not_counted_and_one_that_is_too_large_passes_an_empty_window() {
        let quotas = Quotas::default();
        quotas.publish(vec![quota(QuotaKind::Fetch, Some("ada"), None)], WINDOW);
        let meter = quotas.meter(client("User:ada", ""), 0).unwrap();
        assert_eq!(meter.fetch_max(), Some(10_000));
        assert!(quotas.fetched(&meter, 9_000).is_zero());
        assert!(!quotas.fetched(&meter, 2_000).is_zero());
        assert!(quotas.fetched(&meter, 900).is_zero());
        let quotas = Quotas::default();
        quotas.publish(vec![quota(QuotaKind::Fetch, Some("ada"), None)], WINDOW);
        let meter = quotas.meter(client("User:ada", ""), 0).unwrap();
        assert!(quotas.fetched(&meter, 20_000).is_zero());
        assert!(!quotas.fetched(&meter, 100).is_zero());
    }

    #[test]
    fn time_mutes_for_one_sample_at_most() {
        let quotas = Quotas::default();
        let of_user = quota(QuotaKind::Request, Some(DEFAULT), None);
        let limit = 1.0;
        quotas.publish(vec![ClientQuota { limit, ..of_user }], WINDOW);
        let ada = client("User:ada", "");
        assert!(quotas.decided(ada, Duration::from_millis(99)).is_zero());
        let throttle = quotas.decided(ada, Duration::from_secs(9));
        assert_eq!(throttle, WINDOW.sample);
    }

    #[test]
    fn a_client_that_invents_client_ids_costs_itself() {
        let quotas = Quotas::default();
        quotas.publish(vec![quota(QuotaKind::Produce, None, Some(DEFAULT))], WINDOW);
        let mut throttled = 0;
        for n in 0..10_000 {
            let id = format!("id-{n}");
            let eve = client("User:eve", &id);
            throttled += usize::from(!produce(&quotas, eve, 100).is_zero());
        }
        assert_eq!(quotas.count(), INVENTED_MAX + 1);
        assert!(throttled > 8_000, "{throttled}");
        assert!(produce(&quotas, client("User:ada", "shop"), 10_000).is_zero());
    }

    #[test]
    fn invented_client_ids_from_very_many_addresses_have_a_bounded_number_of_counts() {
        let mut counts = RateTable::default();
        for address in 0..150 {
            for id in 0..INVENTED_MAX as u64 {
                let binding = Binding {
                    limit: 1.0,
                    place: (address, id),
                    shared: Some((address, u64::MAX)),
                    window: WINDOW,
                };
                counts.rate(&binding, 0).record(1.0, 0, WINDOW);
            }
        }
        assert_eq!(counts.rates.len(), RATES_MAX + 50);
    }

    #[test]
    fn a_count_without_a_sample_in_the_window_is_dropped() {
        let mut counts = RateTable::default();
        let binding = |n| Binding {
            limit: 1.0,
            place: (n, n),
            shared: Some((0, 0)),
            window: WINDOW,
        };
        for n in 1..=100 {
            counts.rate(&binding(n), n).record(1.0, n, WINDOW);
        }
        assert_eq!(counts.rates.len(), 100);
        let later = WINDOW.total_ms() + 50;
        counts.rate(&binding(101), later).record(1.0, later, WINDOW);
        assert_eq!(counts.rates.len(), 51); // of 51 to 101
        assert_eq!(counts.invented[&(0, 0)], 51);
    }

    #[test]
    fn without_a_quota_left_no_count_is_kept() {
        let quotas = Quotas::default();
        quotas.publish(vec![quota(QuotaKind::Produce, None, Some(DEFAULT))], WINDOW);
        produce(&quotas, client("User:ada", "shop"), 1);
        assert_eq!(quotas.count(), 1);
        quotas.publish(Vec::new(), WINDOW);
        assert_eq!((quotas.count(), quotas.is_any()), (0, false));
    }
}
