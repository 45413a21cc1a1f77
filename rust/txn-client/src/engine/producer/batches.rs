//! Batches find their leaders, are sent, and are settled by the answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use txn_protocol::codes;

use super::{Producer, Purpose};
use crate::cluster::no_such_partition;
use crate::engine::accumulator::{Settled, may_be_stored};
use crate::engine::request::Part;
use crate::engine::topics::Place as Found;
use crate::engine::transaction::{Place, State};
use crate::engine::{Effect, Millis, NodeId, Outcome, Request};
use crate::error::KafkaError;
use crate::messages::cluster::Metadata;
use crate::messages::produce::PartitionResponse;

impl Producer {
    pub(super) fn linger(&self) -> Millis {
        if self.is_flushing || !self.has_room() {
            return 0;
        }
        self.settings.linger_ms
    }

    pub(super) fn ask_metadata(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        let topics = self.topics.wanted(now, self.settings.metadata_age_max_ms);
        if topics.is_empty() {
            return;
        }
        let Some(node) = self.nodes.any(now, effects) else {
            return;
        };
        let makes_missing = self.settings.makes_topics;
        let request = Request::Metadata {
            topics,
            makes_missing,
        };
        self.topics.is_asking = true;
        self.nodes
            .send(node, request, Purpose::Metadata, now, effects);
    }

    pub(super) fn learn(&mut self, metadata: &Metadata, now: Millis) {
        for broker in &metadata.brokers {
            self.move_node(broker, now);
        }
        let retry_ms = self.settings.retry_backoff_ms;
        for (index, code) in self.topics.learn(&metadata.topics, now, retry_ms) {
            let subject = format!("topic '{}'", self.topics.all[index].name);
            let error = KafkaError::answered(code, "a node", "Metadata", &subject, None);
            self.give_up_topic(index, &error);
        }
        for index in 0..self.topics.all.len() {
            self.place_waiting(index);
        }
    }

    /// Puts the records that waited for a topic into its partitions.
    pub(super) fn place_waiting(&mut self, index: usize) {
        let topic = &mut self.topics.all[index];
        let count = topic.count();
        if count == 0 || topic.unplaced.is_empty() {
            return;
        }
        for unplaced in std::mem::take(&mut topic.unplaced) {
            let topic = &mut self.topics.all[index];
            let found = unplaced.with(|record| topic.place(record, unplaced.partition));
            match found {
                Found::At(partition) => {
                    let created = unplaced.created;
                    unplaced.with(|record| self.push((index, partition), record, created));
                }
                Found::Later => {
                    let partition = unplaced.partition.unwrap_or(-1);
                    let error = no_such_partition(&topic.name, partition, count);
                    self.give_up_unplaced(index, &unplaced, &error);
                }
            }
        }
    }

    /// True if the leaders would keep the first records: see `MarkerPause`.
    pub(super) fn waits_for_markers(&self, now: Millis) -> bool {
        let is_first = self.transaction.is_v2 && !self.transaction.has_started;
        is_first && self.transaction.id.is_some() && now < self.markers.until()
    }

    pub(super) fn send_batches(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        let Some(identity) = self.transaction.identity else {
            return;
        };
        if !self.transaction.is_writable() || self.waits_for_markers(now) {
            return;
        }
        loop {
            let mut by_node: BTreeMap<NodeId, Vec<Place>> = BTreeMap::new();
            for &place in &self.active {
                if !self.transaction.joins(place) {
                    continue;
                }
                let linger_ms = self.linger();
                let topic = &mut self.topics.all[place.0];
                let leader = topic.leader(place.1);
                let partition = &mut topic.partitions[place.1];
                partition.adopt(identity);
                if partition.ready_at(linger_ms).is_none_or(|at| at > now) {
                    continue;
                }
                let Some(leader) = leader else {
                    self.topics.mark_stale(place.0);
                    continue;
                };
                let is_ready = self.nodes.ready(leader, now, effects);
                if is_ready && self.nodes.produces(leader) < self.settings.in_flight_max {
                    by_node.entry(leader).or_default().push(place);
                }
            }
            let mut has_sent = false;
            for (node, places) in by_node {
                has_sent |= self.send_to(node, places, now, effects);
            }
            if !has_sent {
                return;
            }
        }
    }

    pub(super) fn send_to(
        &mut self,
        node: NodeId,
        places: Vec<Place>,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(identity) = self.transaction.identity else {
            return false;
        };
        let is_transactional = self.transaction.id.is_some();
        let linger_ms = self.linger();
        let (mut parts, mut batches, mut bytes) = (Vec::new(), Vec::new(), 0);
        for place in places {
            let topic = &mut self.topics.all[place.0];
            let partition = &mut topic.partitions[place.1];
            let next_bytes = partition.next_bytes();
            if !batches.is_empty() && bytes + next_bytes > self.settings.request_bytes {
                continue;
            }
            match partition.take(node, identity, is_transactional, now, linger_ms) {
                None => {}
                Some(Ok((number, batch))) => {
                    bytes += next_bytes;
                    parts.push(Part {
                        topic: Arc::clone(&topic.name),
                        partition: place.1 as i32,
                        batch,
                    });
                    batches.push((place, number));
                }
                Some(Err((batch, error))) => self.give_up(place, batch, &error),
            }
        }
        if batches.is_empty() {
            return false;
        }
        let request = Request::Produce {
            is_v2: self.transaction.is_v2,
            transactional_id: self.transaction.id.clone(),
            timeout_ms: i32::try_from(self.settings.request_timeout_ms).unwrap_or(i32::MAX),
            parts,
        };
        if self.transaction.id.is_some() && !self.transaction.has_started {
            self.transaction.has_started = true;
            self.markers.sent(now);
        }
        let purpose = Purpose::Produce(batches);
        self.nodes.send(node, request, purpose, now, effects);
        true
    }

    pub(super) fn produced(
        &mut self,
        place: Place,
        number: u64,
        responses: &[PartitionResponse],
        node: NodeId,
        now: Millis,
    ) {
        let name = &self.topics.all[place.0].name;
        let of_batch = |r: &&PartitionResponse| r.partition == place.1 as i32 && *r.topic == **name;
        let node = self.nodes.name(node);
        let Some(response) = responses.iter().find(of_batch) else {
            let what = format!("it does not name {name}-{}", place.1);
            let error = KafkaError {
                is_retriable: true,
                ..KafkaError::malformed(&node, "Produce", &what)
            };
            return self.settle(place, number, Err(error), true, now);
        };
        let code = response.error_code;
        if matches!(code, codes::NONE | codes::DUPLICATE_SEQUENCE_NUMBER) {
            let stored = (response.base_offset, response.append_time_ms);
            return self.settle(place, number, Ok(stored), false, now);
        }
        let subject = format!("partition {name}-{}", place.1);
        let detail = response.message.as_deref();
        let error = KafkaError::answered(code, &node, "Produce", &subject, detail);
        if error.is_retriable && code != codes::CONCURRENT_TRANSACTIONS {
            self.topics.mark_stale(place.0);
        }
        self.settle(place, number, Err(error), may_be_stored(code), now);
    }

    /// `result`: the batch's base offset and append time, or why it was not stored.
    pub(super) fn settle(
        &mut self,
        place: Place,
        number: u64,
        result: Result<(i64, i64), KafkaError>,
        may_be_stored: bool,
        now: Millis,
    ) {
        let code = result.as_ref().err().map(|error| error.code);
        if code == Some(codes::MESSAGE_TOO_LARGE) {
            let partition = &mut self.topics.all[place.0].partitions[place.1];
            if partition.split(number, &mut self.batches) {
                self.last_error = result.err();
                if matches!(self.transaction.state, State::Ending { commit: false }) {
                    self.drop_waiting();
                }
                return;
            }
        }
        let (base_offset, append_time_ms) = *result.as_ref().unwrap_or(&(-1, -1));
        let retry_ms = self.settings.retry_backoff_ms;
        let partition = &mut self.topics.all[place.0].partitions[place.1];
        match partition.settle(number, result.err(), may_be_stored, now, retry_ms) {
            Settled::Stored(mut batch) => {
                self.stored += u64::from(batch.records);
                self.release(u64::from(batch.records), batch.bytes);
                self.last_error = None;
                let outcome = Outcome::Stored {
                    base_offset,
                    append_time_ms,
                };
                self.report(place, &mut batch, outcome);
            }
            Settled::Again(error) => {
                if let Some(error) = error {
                    if !error.is_retriable {
                        self.transaction.fail(error.clone());
                    }
                    self.last_error = Some(error);
                }
                if matches!(self.transaction.state, State::Ending { commit: false }) {
                    self.drop_waiting();
                }
            }
            Settled::GivenUp(batch, error) => self.give_up(place, batch, &error),
            Settled::Unknown => {}
        }
        self.forget_if_empty(place);
    }

    pub(super) fn forget_if_empty(&mut self, place: Place) {
        if self.topics.all[place.0].partitions[place.1].is_empty() {
            self.active.remove(&place);
        }
    }

    pub(super) fn release(&mut self, records: u64, bytes: usize) {
        self.pending -= records;
        self.pending_bytes -= bytes;
    }
}
