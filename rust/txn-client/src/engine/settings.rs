//! The settings of a producer, by Kafka's names and defaults.

use txn_protocol::batch::Codec;
use txn_protocol::codes;

use super::Millis;

/// The settings of a producer.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `transactional.id`.
    pub transactional_id: Option<String>,
    /// `transaction.timeout.ms`.
    pub transaction_timeout_ms: i32,
    /// `transaction.two.phase.commit.enable` (KIP-939).
    pub is_two_phase: bool,
    /// `linger.ms`.
    pub linger_ms: Millis,
    /// `batch.size`: bytes before compression.
    pub batch_bytes: usize,
    /// `buffer.memory`: bytes of records that are not acknowledged.
    pub buffer_bytes: usize,
    /// `max.request.size`: of a request, and of one record.
    pub request_bytes: usize,
    /// `delivery.timeout.ms`.
    pub delivery_timeout_ms: Millis,
    /// `request.timeout.ms`.
    pub request_timeout_ms: Millis,
    /// `max.in.flight.requests.per.connection`, 1 to 5.
    pub in_flight_max: usize,
    /// `compression.type`.
    pub codec: Codec,
    /// `retry.backoff.ms`: the first pause, which doubles up to `RETRY_MAX_MS`.
    pub retry_backoff_ms: Millis,
    /// `metadata.max.age.ms`.
    pub metadata_age_max_ms: Millis,
    /// `topic.metadata.propagation.max.ms`: time that a topic may be unknown.
    pub unknown_topic_max_ms: Millis,
    /// `allow.auto.create.topics`.
    pub makes_topics: bool,
}

/// Longest pause between two attempts.
pub(crate) const RETRY_MAX_MS: Millis = 1_000;

impl Default for Settings {
    fn default() -> Self {
        Self {
            transactional_id: None,
            transaction_timeout_ms: 60_000,
            is_two_phase: false,
            linger_ms: 5,
            batch_bytes: 1_000_000,
            buffer_bytes: 32 << 20,
            request_bytes: 1 << 20,
            delivery_timeout_ms: 120_000,
            request_timeout_ms: 30_000,
            in_flight_max: 5,
            codec: Codec::None,
            retry_backoff_ms: 20,
            metadata_age_max_ms: 300_000,
            unknown_topic_max_ms: 10_000,
            makes_topics: true,
        }
    }
}

/// First and longest pause of a request that waits for the markers of the transaction before it.
const MARKERS_MS: (Millis, Millis) = (1, 100);

/// The pause after a refusal with `code`, the number `failures` in a row.
///
/// Markers take about 1 ms on a healthy cluster, so the first pauses are short. Their sum is at most
/// twice the time that the markers take, and a coordinator that cannot write them is asked ten times
/// a second.
pub(crate) fn pause_after(code: i16, retry_ms: Millis, failures: u32) -> Millis {
    if code == codes::CONCURRENT_TRANSACTIONS {
        return backoff(MARKERS_MS.0, failures).min(MARKERS_MS.1);
    }
    backoff(retry_ms, failures)
}

/// The pause before attempt `failures` + 1.
pub(crate) fn backoff(first_ms: Millis, failures: u32) -> Millis {
    (first_ms << failures.saturating_sub(1).min(10)).min(RETRY_MAX_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_waits_for_markers_is_repeated_soon_and_then_ten_times_a_second() {
        let pauses = (1..=10).map(|n| pause_after(codes::CONCURRENT_TRANSACTIONS, 20, n));
        let pauses: Vec<Millis> = pauses.collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 100, 100, 100]);
    }

    #[test]
    fn any_other_refusal_waits_for_the_retry_backoff() {
        let pauses = (1..=8).map(|n| pause_after(codes::COORDINATOR_LOAD_IN_PROGRESS, 20, n));
        let pauses: Vec<Millis> = pauses.collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1_000, 1_000]);
    }
}
