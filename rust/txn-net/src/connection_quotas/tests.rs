//! Tests of the limits on connections.

use super::*;

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const THERE: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);
const MS: Duration = Duration::from_millis(1);

/// Reactor 0: it keeps its signals.
#[derive(Default)]
struct Acceptor(Mutex<Vec<Signal>>);

impl Notify for Acceptor {
    fn notify(&self, signal: Signal) {
        self.0.lock().unwrap().push(signal);
    }
}

fn quotas(descriptors: usize, limits: ConnectionLimits) -> (Arc<ConnectionQuotas>, Arc<Acceptor>) {
    let acceptor = Arc::new(Acceptor::default());
    let notified = Arc::clone(&acceptor) as Arc<dyn Notify>;
    let quotas = ConnectionQuotas::new(descriptors, 2, notified);
    quotas.set_limits(limits);
    (Arc::new(quotas), acceptor)
}

fn of_listener(max_connections: usize, is_protected: bool) -> ListenerLimits {
    ListenerLimits {
        max_connections,
        is_protected,
        ..ListenerLimits::default()
    }
}

#[test]
fn a_place_is_free_again_when_its_connection_is_gone_and_reactor_0_is_told() {
    let limits = ConnectionLimits {
        max_connections: 1,
        ..ConnectionLimits::default()
    };
    let (quotas, acceptor) = quotas(9, limits);
    let place = quotas.admit(0, HERE, Instant::now()).unwrap();
    assert!(!quotas.has_place(0) && !quotas.has_place(1));
    drop(place);
    assert!(quotas.has_place(0));
    assert_eq!(*acceptor.0.lock().unwrap(), [Signal::PlaceFreed]);
    assert!(quotas.held().of_addresses.is_empty());
}

#[test]
fn a_listener_has_a_limit_of_its_own_and_a_protected_one_passes_over_that_of_the_broker() {
    let limits = ConnectionLimits {
        max_connections: 2,
        listeners: vec![of_listener(1, false), of_listener(2, true)],
        ..ConnectionLimits::default()
    };
    let (quotas, _) = quotas(9, limits);
    let mut places = vec![quotas.admit(0, HERE, Instant::now()).unwrap()];
    assert!(!quotas.has_place(0) && quotas.has_place(1));
    places.push(quotas.admit(1, HERE, Instant::now()).unwrap());
    assert!(quotas.has_place(1));
    assert_eq!(quotas.surplus(), 0);
    places.push(quotas.admit(1, HERE, Instant::now()).unwrap());
    assert!(!quotas.has_place(1));
    assert_eq!(quotas.surplus(), 1);
}

#[test]
fn an_address_has_the_common_limit_or_its_own() {
    let limits = ConnectionLimits {
        max_per_ip: 1,
        overrides: HashMap::from([(THERE, 2)]),
        ..ConnectionLimits::default()
    };
    let (quotas, _) = quotas(9, limits);
    let admit = |address| quotas.admit(0, address, Instant::now());
    let _here = admit(HERE).unwrap();
    assert_eq!(admit(HERE).err(), Some(Refusal::PerIp));
    let there = admit(THERE).unwrap();
    let _there = admit(THERE).unwrap();
    assert_eq!(admit(THERE).err(), Some(Refusal::PerIp));
    drop(there);
    assert!(admit(THERE).is_ok());
}

#[test]
fn descriptors_are_a_limit_of_their_own() {
    let (quotas, _) = quotas(1, ConnectionLimits::default());
    let _place = quotas.admit(0, HERE, Instant::now()).unwrap();
    let refused = quotas.admit(0, THERE, Instant::now()).err();
    assert_eq!(refused, Some(Refusal::Descriptors));
    assert_eq!(quotas.spare_descriptors(), 0);
}

#[test]
fn ten_times_the_rate_may_come_at_once_and_then_each_waits_for_its_turn() {
    let limits = ConnectionLimits {
        creation_rate: 5,
        ..ConnectionLimits::default()
    };
    let (quotas, _) = quotas(9, limits);
    let start = Instant::now();
    for _ in 0..50 {
        assert_eq!(quotas.arrive(0, start), Duration::ZERO);
    }
    // Kafka: (5.1 - 5) / 5 of 10 s.
    let wait = quotas.arrive(0, start);
    assert!((199 * MS..=201 * MS).contains(&wait), "{wait:?}");
    let later = start + SAMPLE * SAMPLES;
    assert_eq!(quotas.arrive(0, later), Duration::ZERO);
}

#[test]
fn no_wait_is_longer_than_a_sample_whatever_the_rate() {
    let mut rate = Rate::default();
    let now = Instant::now();
    assert_eq!(rate.record(0.0, now), THROTTLE_MAX);
    assert_eq!(rate.record(0.01, now), THROTTLE_MAX);
    assert_eq!(rate.record(f64::from(u32::MAX), now), Duration::ZERO);
}

#[test]
fn a_protected_listener_has_its_own_rate_alone() {
    let limits = ConnectionLimits {
        creation_rate: 1,
        listeners: vec![of_listener(9, false), of_listener(9, true)],
        ..ConnectionLimits::default()
    };
    let (quotas, _) = quotas(9, limits);
    let now = Instant::now();
    for _ in 0..20 {
        assert_eq!(quotas.arrive(1, now), Duration::ZERO);
    }
    let waits = (0..11).map(|_| quotas.arrive(0, now));
    assert_eq!(waits.max(), Some(THROTTLE_MAX));
}

#[test]
fn an_address_that_comes_too_often_is_refused_and_not_counted_anywhere() {
    let limits = ConnectionLimits {
        creation_rate: 2,
        ..ConnectionLimits::default()
    };
    let (quotas, _) = quotas(100, limits);
    quotas.set_creation_rates(CreationRates {
        default: None,
        of_addresses: HashMap::from([(HERE, 1.0)]),
    });
    let now = Instant::now();
    let come = |address| {
        let wait = quotas.arrive(0, now);
        (wait, quotas.admit(0, address, now).map(std::mem::forget))
    };
    for _ in 0..10 {
        assert_eq!(come(HERE), (Duration::ZERO, Ok(())));
    }
    for _ in 0..30 {
        assert_eq!(
            come(HERE),
            (Duration::ZERO, Err(Refusal::IpRate(THROTTLE_MAX)))
        );
    }
    for _ in 0..10 {
        assert_eq!(come(THERE), (Duration::ZERO, Ok(())));
    }
}

#[test]
fn a_limit_below_zero_holds_nobody_back() {
    let mut rate = Rate::default();
    assert_eq!(rate.record(-5.0, Instant::now()), Duration::ZERO);
}

#[test]
fn rates_of_addresses_that_come_no_more_are_forgotten() {
    let (quotas, _) = quotas(usize::MAX, ConnectionLimits::default());
    quotas.set_creation_rates(CreationRates {
        default: Some(100.0),
        of_addresses: HashMap::new(),
    });
    let mut now = Instant::now();
    for round in 0..3_u32 {
        for number in 0..1_000_u32 {
            let address = IpAddr::from((round * 1_000 + number).to_be_bytes());
            drop(quotas.admit(0, address, now).unwrap());
        }
        now += SAMPLE * SAMPLES;
    }
    assert!(quotas.held().address_rates.len() <= 1_000 + RATES_KEPT);
}
