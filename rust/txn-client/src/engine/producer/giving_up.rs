//! Records that are given up: refused, too old, without a topic, or dropped by an abort.

use std::sync::Arc;

use txn_protocol::codes;

use super::Producer;
use crate::engine::accumulator::Batch;
use crate::engine::topics::{Unplaced, no_topic};
use crate::engine::transaction::Place;
use crate::engine::{DeliveryFailure, Millis, Outcome};
use crate::error::KafkaError;

impl Producer {
    pub(super) fn give_up(&mut self, place: Place, mut batch: Batch, error: &KafkaError) {
        self.release(u64::from(batch.records), batch.bytes);
        let untold = batch.records - batch.tracked.len() as u32;
        if untold > 0 {
            self.failures.push(DeliveryFailure {
                topic: Arc::clone(&self.topics.all[place.0].name),
                partition: place.1 as i32,
                records: untold,
                record_bytes: batch.record_bytes_max,
                error: error.clone(),
            });
        }
        let outcome = Outcome::Failed {
            error: error.clone(),
            record_bytes: batch.record_bytes_max,
        };
        self.report(place, &mut batch, outcome);
        let is_fatal = error.code == codes::PRODUCER_FENCED
            || error.code == codes::TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
        if is_fatal && self.transaction.id.is_some() {
            self.transaction.fail_for_good(error.clone());
        } else {
            self.transaction.fail(error.clone());
        }
        self.forget_if_empty(place);
    }

    pub(super) fn give_up_unplaced(
        &mut self,
        index: usize,
        unplaced: &Unplaced,
        error: &KafkaError,
    ) {
        self.release(1, unplaced.bytes);
        if unplaced.delivery.is_none() {
            self.failures.push(DeliveryFailure {
                topic: Arc::clone(&self.topics.all[index].name),
                partition: unplaced.partition.unwrap_or(-1),
                records: 1,
                record_bytes: unplaced.record_bytes(),
                error: error.clone(),
            });
        }
        let outcome = Outcome::Failed {
            error: error.clone(),
            record_bytes: unplaced.record_bytes(),
        };
        self.report_unplaced(index, unplaced, outcome);
        self.transaction.fail(error.clone());
    }

    pub(super) fn give_up_topic(&mut self, index: usize, error: &KafkaError) {
        for unplaced in std::mem::take(&mut self.topics.all[index].unplaced) {
            self.give_up_unplaced(index, &unplaced, error);
        }
    }

    /// Gives up records older than `delivery.timeout.ms`, and those of topics that are not there.
    pub(super) fn expire(&mut self, now: Millis) {
        let lives_ms = self.settings.delivery_timeout_ms;
        let Some(created_max) = now.checked_sub(lives_ms) else {
            return self.expire_topics(now, None);
        };
        for place in self.active.clone() {
            let partition = &mut self.topics.all[place.0].partitions[place.1];
            for batch in partition.expire(created_max) {
                let error = self.expiry();
                self.give_up(place, batch, &error);
            }
        }
        self.expire_topics(now, Some(created_max));
    }

    pub(super) fn expire_topics(&mut self, now: Millis, created_max: Option<Millis>) {
        for index in 0..self.topics.all.len() {
            let topic = &mut self.topics.all[index];
            let unknown_ms = topic.unknown_since.map_or(0, |since| now - since);
            if topic.count() == 0 && unknown_ms >= self.settings.unknown_topic_max_ms {
                topic.unknown_since = None;
                let error = no_topic(&topic.name);
                self.give_up_topic(index, &error);
            }
            let is_over = |u: &Unplaced| created_max.is_some_and(|max| u.created <= max);
            while self.topics.all[index].unplaced.front().is_some_and(is_over) {
                let error = self.expiry();
                let unplaced = self.topics.all[index].unplaced.pop_front();
                self.give_up_unplaced(index, &unplaced.expect("it is there"), &error);
            }
        }
    }

    pub(super) fn expiry(&self) -> KafkaError {
        let cause = self.last_error.as_ref();
        let cause = cause.map_or_else(String::new, |error| format!(" ({})", error.message));
        let message = format!(
            "not stored within delivery.timeout.ms={}{cause}",
            self.settings.delivery_timeout_ms
        );
        KafkaError::refused(codes::REQUEST_TIMED_OUT, message)
    }

    pub(super) fn give_up_all(&mut self, error: &KafkaError) {
        for place in self.active.clone() {
            let partition = &mut self.topics.all[place.0].partitions[place.1];
            for batch in partition.expire(Millis::MAX) {
                self.give_up(place, batch, error);
            }
        }
        for index in 0..self.topics.all.len() {
            self.give_up_topic(index, error);
        }
    }

    /// Drops the records of an aborted transaction that are not in flight.
    pub(super) fn drop_waiting(&mut self) {
        for place in self.active.clone() {
            let partition = &mut self.topics.all[place.0].partitions[place.1];
            for mut batch in partition.drop_waiting() {
                self.release(u64::from(batch.records), batch.bytes);
                self.report(place, &mut batch, Outcome::Dropped);
            }
            self.forget_if_empty(place);
        }
        for index in 0..self.topics.all.len() {
            self.topics.all[index].unknown_since = None;
            for unplaced in std::mem::take(&mut self.topics.all[index].unplaced) {
                self.release(1, unplaced.bytes);
                self.report_unplaced(index, &unplaced, Outcome::Dropped);
            }
        }
    }
}
