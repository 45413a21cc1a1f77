//! Limits on connections: how many there are at a time, and how fast they come.
//!
//! | limit | fate of a connection beyond it |
//! |---|---|
//! | `max.connections`, of the broker or a listener | its listener accepts nothing until one is closed |
//! | `max.connection.creation.rate`, of the broker or a listener | its listener accepts nothing for a moment |
//! | `max.connections.per.ip`, and its overrides | closed at once |
//! | creation rate of its address, a client quota | closed after a moment |
//! | file descriptors | closed at once |
//!
//! A protected listener, the one of other brokers beside others, passes over `max.connections` of
//! the broker and over its rate. The least recently used connection of another listener is closed
//! for it, and so are surplus ones when the limit is lowered.
//!
//! A rate is Kafka's: the connections of the last 11 seconds, in samples of one second, over the
//! time they span, which counts as 10 seconds at least. So after a pause ten times the rate may come at
//! once.
//!
//! Reactor 0 accepts. Every connection holds its [`ConnectionPlace`] and gives it back when it is dropped, on
//! any thread.
//!
//! Source: Apache Kafka's `ConnectionQuotas`, `SampledStat`, `Rate`; KIP-308, KIP-402, KIP-612.
//!
//! # Deviations from Apache Kafka
//! - File descriptors are a limit. Kafka fails to accept when there is none, over and over.
//! - A connection that waits for its end holds a descriptor only while there are some to spare.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::signal::{Notify, Signal};

/// Samples of a rate, and the time of each.
const SAMPLES: u32 = 11;
const SAMPLE: Duration = Duration::from_secs(1);
/// The longest that a rate holds a connection back.
const THROTTLE_MAX: Duration = SAMPLE;
/// Rates of addresses that are kept without a look for those that are over.
const RATES_KEPT: usize = 1024;

/// Limits on connections, each by its Kafka name.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// `max.connections`
    pub max_connections: usize,
    /// `max.connections.per.ip`
    pub max_per_ip: usize,
    /// `max.connections.per.ip.overrides`
    pub overrides: HashMap<IpAddr, usize>,
    /// `max.connection.creation.rate`, per second.
    pub creation_rate: u32,
    /// The limits of each listener, in the order of the listeners; further ones have none.
    pub listeners: Vec<ListenerLimits>,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            max_connections: usize::MAX,
            max_per_ip: usize::MAX,
            overrides: HashMap::new(),
            creation_rate: u32::MAX,
            listeners: Vec::new(),
        }
    }
}

/// Limits of one listener's connections.
#[derive(Clone, Copy, Debug)]
pub struct ListenerLimits {
    /// `listener.name.….max.connections`
    pub max_connections: usize,
    /// `listener.name.….max.connection.creation.rate`, per second.
    pub creation_rate: u32,
    /// True if limits of the broker do not hold for it.
    pub is_protected: bool,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            max_connections: usize::MAX,
            creation_rate: u32::MAX,
            is_protected: false,
        }
    }
}

/// `connection_creation_rate` of client quotas for addresses.
#[derive(Clone, Debug, Default)]
pub struct CreationRates {
    /// The limit of addresses without their own; `None` allows any rate.
    pub default: Option<f64>,
    /// The limits of single addresses.
    pub of_addresses: HashMap<IpAddr, f64>,
}

impl CreationRates {
    fn of(&self, address: IpAddr) -> Option<f64> {
        self.of_addresses.get(&address).copied().or(self.default)
    }
}

/// The reason for which a new connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No descriptor is left to it.
    Descriptors,
    /// Its address has `max.connections.per.ip`.
    PerIp,
    /// Its address comes too often; it is closed after so long.
    IpRate(Duration),
}

impl Refusal {
    /// The names that metrics have, in the order of `row`.
    pub const NAMES: [&'static str; 3] = [
        "descriptors",
        "max_connections_per_ip",
        "ip_connection_creation_rate",
    ];

    pub fn row(self) -> usize {
        match self {
            Self::Descriptors => 0,
            Self::PerIp => 1,
            Self::IpRate(_) => 2,
        }
    }
}

/// The connections of a server, counted against its limits.
pub struct ConnectionQuotas {
    /// Connections for which there are descriptors.
    descriptors: usize,
    held: Mutex<Tally>,
    /// Reactor 0's.
    acceptor: Arc<dyn Notify>,
}

struct Tally {
    limits: ConnectionLimits,
    total: usize,
    of_listeners: Vec<usize>,
    of_addresses: HashMap<IpAddr, usize>,
    rate: Rate,
    listener_rates: Vec<Rate>,
    creation_rates: CreationRates,
    address_rates: HashMap<IpAddr, Rate>,
    /// Number of `address_rates` at which those that are over are dropped.
    rates_max: usize,
    /// Reactor 0 has a connection that waits for a place.
    is_awaited: bool,
}

impl ConnectionQuotas {
    /// No connection yet, and no limit but the number of descriptors.
    pub fn new(descriptors: usize, listeners: usize, acceptor: Arc<dyn Notify>) -> Self {
        Self {
            descriptors,
            acceptor,
            held: Mutex::new(Tally {
                limits: ConnectionLimits::default(),
                total: 0,
                of_listeners: vec![0; listeners],
                of_addresses: HashMap::new(),
                rate: Rate::default(),
                listener_rates: (0..listeners).map(|_| Rate::default()).collect(),
                creation_rates: CreationRates::default(),
                address_rates: HashMap::new(),
                rates_max: RATES_KEPT,
                is_awaited: false,
            }),
        }
    }

    /// Counts by other limits from now on.
    pub fn set_limits(&self, limits: ConnectionLimits) {
        self.held().limits = limits;
    }

    /// Counts by other rates of addresses from now on.
    pub fn set_creation_rates(&self, rates: CreationRates) {
        let mut held = self.held();
        held.creation_rates = rates;
        held.address_rates.clear();
    }

    /// Counts a connection that has come to a listener; returns the time for which its rates hold
    /// it back.
    pub fn arrive(&self, listener: usize, now: Instant) -> Duration {
        let mut held = self.held();
        let limits = held.limits_of(listener);
        let broker_rate = f64::from(held.limits.creation_rate);
        let mut throttle = Duration::ZERO;
        if !limits.is_protected {
            throttle = held.rate.record(broker_rate, now);
        }
        let own = held.listener_rates[listener].record(f64::from(limits.creation_rate), now);
        throttle.max(own)
    }

    /// Returns true if a listener may have another connection. If not, `Signal::PlaceFreed` tells
    /// reactor 0 when to ask again.
    pub fn has_place(&self, listener: usize) -> bool {
        let mut held = self.held();
        let limits = held.limits_of(listener);
        let has_place = held.of_listeners[listener] < limits.max_connections
            && (limits.is_protected || held.total < held.limits.max_connections);
        held.is_awaited |= !has_place;
        has_place
    }

    /// Gives a connection its place.
    ///
    /// # Errors
    /// It is to be closed.
    pub fn admit(
        self: &Arc<Self>,
        listener: usize,
        address: IpAddr,
        now: Instant,
    ) -> Result<ConnectionPlace, Refusal> {
        let mut held = self.held();
        if held.total >= self.descriptors {
            return Err(Refusal::Descriptors);
        }
        if let Some(rate) = held.creation_rates.of(address) {
            held.drop_old_rates(now);
            let own = held.address_rates.entry(address).or_default();
            let throttle = own.record(rate, now);
            if !throttle.is_zero() {
                own.uncount();
                if !held.limits_of(listener).is_protected {
                    held.rate.uncount();
                }
                held.listener_rates[listener].uncount();
                return Err(Refusal::IpRate(throttle));
            }
        }
        let max = held.limits.overrides.get(&address).copied();
        let max = max.unwrap_or(held.limits.max_per_ip);
        let count = held.of_addresses.get(&address).copied().unwrap_or_default();
        if count >= max {
            return Err(Refusal::PerIp);
        }
        held.of_addresses.insert(address, count + 1);
        held.of_listeners[listener] += 1;
        held.total += 1;
        Ok(ConnectionPlace {
            quotas: Arc::clone(self),
            listener,
            address,
        })
    }

    /// Number of connections beyond `max.connections`.
    pub fn surplus(&self) -> usize {
        let held = self.held();
        held.total.saturating_sub(held.limits.max_connections)
    }

    /// True if the broker's limit does not hold for a listener.
    pub fn is_protected(&self, listener: usize) -> bool {
        self.held().limits_of(listener).is_protected
    }

    /// Descriptors that no connection has.
    pub fn spare_descriptors(&self) -> usize {
        self.descriptors.saturating_sub(self.held().total)
    }

    fn leave(&self, listener: usize, address: IpAddr) {
        let mut held = self.held();
        held.total -= 1;
        held.of_listeners[listener] -= 1;
        if let Some(count) = held.of_addresses.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                held.of_addresses.remove(&address);
            }
        }
        let is_awaited = std::mem::take(&mut held.is_awaited);
        drop(held);
        if is_awaited {
            self.acceptor.notify(Signal::PlaceFreed);
        }
    }

    fn held(&self) -> MutexGuard<'_, Tally> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    fn limits_of(&self, listener: usize) -> ListenerLimits {
        let limits = self.limits.listeners.get(listener);
        limits.copied().unwrap_or_default()
    }

    /// Forgets the rates of addresses that no longer come.
    fn drop_old_rates(&mut self, now: Instant) {
        if self.address_rates.len() >= self.rates_max {
            self.address_rates.retain(|_, rate| rate.is_live(now));
            self.rates_max = RATES_KEPT.max(2 * self.address_rates.len());
        }
    }
}

/// The place of a connection among those that the limits allow; given back when it is dropped.
pub struct ConnectionPlace {
    quotas: Arc<ConnectionQuotas>,
    listener: usize,
    address: IpAddr,
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.quotas.leave(self.listener, self.address);
    }
}

/// A rate of connections.
#[derive(Default)]
struct Rate {
    /// The begin of each sample and its connections, the oldest first.
    samples: VecDeque<(Instant, u32)>,
}

impl Rate {
    /// Counts a connection; returns the time that keeps the rate at its limit, or zero below that.
    fn record(&mut self, limit: f64, now: Instant) -> Duration {
        while self
            .samples
            .front()
            .is_some_and(|&(begin, _)| now.duration_since(begin) >= SAMPLE * SAMPLES)
        {
            self.samples.pop_front();
        }
        match self.samples.back_mut() {
            Some((begin, count)) if now.duration_since(*begin) < SAMPLE => *count += 1,
            _ => self.samples.push_back((now, 1)),
        }
        let count: u32 = self.samples.iter().map(|(_, count)| count).sum();
        let span = self.span(now).as_secs_f64();
        let rate = f64::from(count) / span;
        if rate <= limit {
            return Duration::ZERO;
        }
        // Infinite for a limit of 0, below zero for one below it.
        let throttle = ((rate - limit) / limit * span).max(0.0);
        Duration::from_secs_f64(throttle.min(THROTTLE_MAX.as_secs_f64()))
    }

    /// Counts the last connection no longer.
    fn uncount(&mut self) {
        if let Some((_, count)) = self.samples.back_mut() {
            *count = count.saturating_sub(1);
        }
    }

    /// The time of the samples: all but the last count as whole ones.
    fn span(&self, now: Instant) -> Duration {
        let began = self.samples.front().map_or(now, |&(begin, _)| begin);
        let elapsed = now.duration_since(began);
        let whole = u32::try_from(elapsed.as_secs()).unwrap_or(SAMPLES);
        elapsed + SAMPLE * (SAMPLES - 1).saturating_sub(whole)
    }

    fn is_live(&self, now: Instant) -> bool {
        let last = self.samples.back();
        last.is_some_and(|&(begin, _)| now.duration_since(begin) < SAMPLE * SAMPLES)
    }
}

#[cfg(test)]
mod tests;
