//! Tests of levels, rates and bounds, with times that the test gives.

use super::rates::*;
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
