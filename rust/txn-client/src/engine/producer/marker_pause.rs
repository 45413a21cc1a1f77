//! The pause between the end of a transaction and the first records of the next one.
//!
//! Kafka answers `EndTxn` before the markers of the transaction are written. Under version 2 a
//! partition joins a transaction with its first `Produce`. While the coordinator still writes
//! markers, the leader keeps that request for 20 ms (`add.partitions.to.txn.retry.backoff.ms`) and
//! asks the coordinator again. The markers take about 1 ms, so a pause of 1 ms saves 20 ms.
//!
//! txn answers `EndTxn` after the markers and needs no pause. So the pause is learned: it doubles
//! when requests that are kept cost more time than the longer pause would, and it is halved, as a
//! trial, after many that are not kept. Each trial that fails doubles the number of transactions
//! before the next one.
//!
//! Sources: KIP-890; measured with Apache Kafka 4.4.0.

use crate::engine::Millis;

/// An answer that takes this long was kept by the leader.
const KEPT_MS: Millis = 20;
/// A node whose answers to `EndTxn` take longer is slow in general, so its `Produce` proves nothing.
const QUICK_END_MS: Millis = KEPT_MS / 2;
/// A transaction that begins later after the last one finds its markers written.
const NEAR_MS: Millis = 20;
/// Longest pause.
const PAUSE_MAX_MS: Millis = 8;
/// The number of last first requests that are looked at.
const RECENT: Millis = 64;
/// Transactions before the first trial of a shorter pause, and the most before any.
const TRIAL_AFTER: (u32, u32) = (64, 4_096);

/// The pause, as far as it is learned; see the module.
#[derive(Debug)]
pub(super) struct MarkerPause {
    pause_ms: Millis,
    end_asked_at: Millis,
    ended_at: Option<Millis>,
    first_sent_at: Option<Millis>,
    /// One bit for each of the last `RECENT`: it was kept.
    recent: u64,
    /// Requests since the last one that was kept.
    calm: u32,
    trial_after: u32,
}

impl MarkerPause {
    pub(super) fn new() -> Self {
        Self {
            pause_ms: 0,
            end_asked_at: 0,
            ended_at: None,
            first_sent_at: None,
            recent: 0,
            calm: 0,
            trial_after: TRIAL_AFTER.0,
        }
    }

    /// Notes an `EndTxn` that is sent.
    pub(super) fn asked_end(&mut self, now: Millis) {
        (self.end_asked_at, self.ended_at, self.first_sent_at) = (now, None, None);
    }

    /// Notes that the coordinator has accepted it.
    pub(super) fn ended(&mut self, now: Millis) {
        self.ended_at = Some(now);
    }

    /// The time before which the first records of the next transaction are not sent.
    pub(super) fn until(&self) -> Millis {
        self.ended_at.map_or(0, |at| at + self.pause_ms)
    }

    /// Notes the first `Produce` of a transaction.
    pub(super) fn sent(&mut self, now: Millis) {
        let Some(ended_at) = self.ended_at.take() else {
            return;
        };
        let is_near = now < ended_at + NEAR_MS;
        let was_quick = ended_at - self.end_asked_at <= QUICK_END_MS;
        self.first_sent_at = (is_near && was_quick).then_some(now);
    }

    /// Learns from the answer to it.
    pub(super) fn answered(&mut self, now: Millis) {
        let Some(sent_at) = self.first_sent_at.take() else {
            return;
        };
        let was_kept = now - sent_at >= KEPT_MS;
        self.recent = self.recent << 1 | u64::from(was_kept);
        if !was_kept {
            self.calm += 1;
            if self.pause_ms > 0 && self.calm >= self.trial_after {
                (self.pause_ms, self.calm, self.recent) = (self.pause_ms / 2, 0, 0);
            }
            return;
        }
        self.calm = 0;
        let longer_ms = (self.pause_ms * 2).clamp(1, PAUSE_MAX_MS);
        let lost_ms = KEPT_MS * Millis::from(self.recent.count_ones());
        if lost_ms > RECENT * (longer_ms - self.pause_ms) && longer_ms > self.pause_ms {
            (self.pause_ms, self.recent) = (longer_ms, 0);
            self.trial_after = (self.trial_after * 2).min(TRIAL_AFTER.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster whose markers are written `markers_ms` after the answer to `EndTxn`.
    struct Node {
        now: Millis,
        markers_ms: Millis,
        end_ms: Millis,
        produce_ms: Millis,
    }

    impl Node {
        /// Runs so many transactions; returns how many first requests the leader kept.
        fn run(&mut self, pause: &mut MarkerPause, transactions: u32) -> u32 {
            let mut kept = 0;
            for _ in 0..transactions {
                pause.asked_end(self.now);
                self.now += self.end_ms;
                let written_at = self.now + self.markers_ms;
                pause.ended(self.now);
                self.now = self.now.max(pause.until());
                pause.sent(self.now);
                if self.now < written_at {
                    kept += 1;
                    self.now += KEPT_MS;
                }
                self.now += self.produce_ms;
                pause.answered(self.now);
            }
            kept
        }
    }

    fn node(markers_ms: Millis) -> Node {
        Node {
            now: 1_000,
            markers_ms,
            end_ms: 0,
            produce_ms: 1,
        }
    }

    #[test]
    fn a_cluster_that_needs_no_pause_gets_none() {
        let mut pause = MarkerPause::new();
        assert_eq!(node(0).run(&mut pause, 10_000), 0);
        assert_eq!(pause.pause_ms, 0);
    }

    #[test]
    fn the_pause_becomes_as_long_as_the_markers_take() {
        for (markers_ms, learned_ms) in [(1, 1), (2, 2), (3, 4), (7, 8)] {
            let mut pause = MarkerPause::new();
            assert!(node(markers_ms).run(&mut pause, 100) <= 4 + 4 + 7 + 13);
            assert_eq!(pause.pause_ms, learned_ms);
        }
    }

    #[test]
    fn trials_of_a_shorter_pause_become_rare() {
        let (mut pause, mut kafka) = (MarkerPause::new(), node(1));
        assert!(kafka.run(&mut pause, 20_000) <= 9 * 4);
        assert!(kafka.run(&mut pause, 20_000) <= 5 * 4);
    }

    #[test]
    fn a_pause_that_is_no_longer_needed_goes_away() {
        let mut pause = MarkerPause::new();
        node(4).run(&mut pause, 100);
        assert_eq!(pause.pause_ms, 4);
        node(0).run(&mut pause, 4 * TRIAL_AFTER.1);
        assert_eq!(pause.pause_ms, 0);
    }

    #[test]
    fn markers_that_take_very_long_do_not_make_the_pause_longer_than_its_bound() {
        let mut pause = MarkerPause::new();
        node(500).run(&mut pause, 1_000);
        assert_eq!(pause.pause_ms, PAUSE_MAX_MS);
    }

    #[test]
    fn a_node_that_is_slow_with_everything_is_not_taken_for_one_that_keeps_requests() {
        let mut pause = MarkerPause::new();
        let mut slow = Node {
            end_ms: 30,
            produce_ms: 30,
            ..node(0)
        };
        slow.run(&mut pause, 1_000);
        assert_eq!(pause.pause_ms, 0);
    }

    #[test]
    fn answers_that_are_slow_now_and_then_change_nothing() {
        let (mut pause, mut txn) = (MarkerPause::new(), node(0));
        for _ in 0..20 {
            txn.produce_ms = 25;
            txn.run(&mut pause, 1);
            txn.produce_ms = 0;
            txn.run(&mut pause, 24);
        }
        assert_eq!(pause.pause_ms, 0);
    }

    #[test]
    fn a_transaction_that_begins_later_is_sent_at_once_and_teaches_nothing() {
        let mut pause = MarkerPause::new();
        node(4).run(&mut pause, 100);
        pause.asked_end(10_000);
        pause.ended(10_001);
        assert!(pause.until() < 10_100);
        pause.sent(10_100);
        assert_eq!(pause.first_sent_at, None);
    }
}
