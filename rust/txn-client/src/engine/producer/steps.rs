//! Steps of the transaction: the requests to its coordinators, and their answers.

use std::sync::Arc;

use txn_protocol::codes;

use super::{Producer, Purpose};
use crate::client::transaction_error;
use crate::cluster::subject;
use crate::engine::transaction::{NOBODY, Place, State, Step};
use crate::engine::{Effect, Millis, NodeId, Request, Response};
use crate::error::KafkaError;
use crate::messages::cluster::{BrokerAddress, CoordinatorOf};

impl Producer {
    pub(super) fn identify_idempotent(&mut self) {
        let state = &self.transaction.state;
        let generation = self.transaction.identity.map_or(0, |i| i.generation);
        let needs_one = match state {
            State::New => self.pending > 0,
            State::Ready => self.active.iter().any(|&(topic, partition)| {
                let needs = self.topics.all[topic].partitions[partition].needs_later_than();
                needs == Some(generation)
            }),
            _ => false,
        };
        if needs_one {
            self.transaction.state = State::Initializing;
        }
    }

    /// Nothing waits for an acknowledgement.
    pub(super) fn is_drained(&self) -> bool {
        self.active.is_empty()
            && self
                .topics
                .all
                .iter()
                .all(|topic| topic.unplaced.is_empty())
    }

    pub(super) fn step(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        if self.transaction.id.is_some() && self.transaction.is_writable() {
            for &place in &self.active {
                self.transaction.joins(place);
            }
        }
        if self.transaction.is_asking || now < self.transaction.ask_at {
            return;
        }
        let is_drained = self.is_drained();
        if self.transaction.ends_by_itself(is_drained) {
            self.note_gaps();
            self.transaction.ended(None);
        }
        let Some(step) = self.transaction.next(is_drained) else {
            return;
        };
        let node = match self.transaction.coordinator_of(&step) {
            None => self.nodes.any(now, effects),
            Some(key) => match self.transaction.coordinator(&key) {
                Some(node) => self.nodes.ready(node, now, effects).then_some(node),
                None => return self.find(key, now, effects),
            },
        };
        let Some(node) = node else { return };
        let request = self.request(&step);
        if matches!(step, Step::End { .. }) {
            self.markers.asked_end(now);
        }
        self.transaction.sent(&step);
        self.nodes
            .send(node, request, Purpose::Step(step), now, effects);
    }

    pub(super) fn find(
        &mut self,
        key: (CoordinatorOf, String),
        now: Millis,
        effects: &mut Vec<Effect>,
    ) {
        let Some(node) = self.nodes.any(now, effects) else {
            return;
        };
        let request = Request::FindCoordinator {
            of: key.0,
            key: key.1.clone(),
        };
        self.transaction.is_asking = true;
        self.nodes
            .send(node, request, Purpose::Find(key), now, effects);
    }

    pub(super) fn request(&self, step: &Step) -> Request {
        let transaction = &self.transaction;
        let transactional_id = transaction.id.clone().unwrap_or_default();
        let who = transaction.identity.map_or(NOBODY, |identity| identity.who);
        let is_v2 = transaction.is_v2;
        match step {
            Step::Init if self.settings.is_two_phase => Request::InitTwoPhase {
                transactional_id,
                timeout_ms: self.settings.transaction_timeout_ms,
                current: transaction.current(),
                keeps_prepared: transaction.identity.is_none(),
            },
            Step::Init => Request::InitProducerId {
                transactional_id: transaction.id.clone(),
                timeout_ms: self.settings.transaction_timeout_ms,
                current: transaction.current(),
            },
            Step::AddPartitions(places) => {
                let named = |&(topic, partition): &Place| {
                    (Arc::clone(&self.topics.all[topic].name), partition as i32)
                };
                Request::AddPartitions {
                    transactional_id,
                    who,
                    partitions: places.iter().map(named).collect(),
                }
            }
            Step::AddOffsets(group) => Request::AddOffsets {
                transactional_id,
                who,
                group: group.clone(),
            },
            Step::CommitOffsets(..) => {
                let sending = transaction.sending.clone().expect("the step is for it");
                Request::CommitOffsets {
                    is_v2,
                    transactional_id,
                    who,
                    group: sending.group,
                    member: sending.member,
                    offsets: sending.offsets,
                }
            }
            Step::End { commit } => Request::EndTxn {
                is_v2,
                transactional_id,
                who,
                commit: *commit,
            },
        }
    }

    pub(super) fn found(
        &mut self,
        key: (CoordinatorOf, String),
        found: Result<BrokerAddress, (i16, Option<String>)>,
        node: NodeId,
        now: Millis,
    ) {
        match found {
            Ok(broker) => {
                self.transaction.learn_coordinator(key, broker.id);
                self.move_node(&broker, now);
            }
            Err((code, detail)) => {
                let name = self.nodes.name(node);
                let subject = subject(key.0, &key.1);
                let detail = detail.as_deref();
                let error = KafkaError::answered(code, &name, "FindCoordinator", &subject, detail);
                self.last_error = Some(error.clone());
                if error.is_retriable {
                    return self.transaction.retry(now, self.settings.retry_backoff_ms);
                }
                self.transaction.is_asking = false;
                if key.0 == CoordinatorOf::Group {
                    self.transaction.sending = None;
                    return self.transaction.fail(error);
                }
                self.transaction.fail_for_good(error);
            }
        }
    }

    pub(super) fn move_node(&mut self, broker: &BrokerAddress, now: Millis) {
        if self.nodes.learn(broker, &mut self.outbox) {
            let cause = "it listens at another address now";
            let name = self.nodes.name(broker.id);
            let error = KafkaError::unreachable(&name, "was left", &cause);
            self.disconnected(broker.id, &error, now);
        }
    }

    pub(super) fn stepped(&mut self, step: &Step, response: Response, node: NodeId, now: Millis) {
        let (code, subject) = match (step, &response) {
            (Step::Init, Response::Identity(code, _) | Response::TwoPhaseIdentity(code, ..))
            | (Step::End { .. }, Response::End(code, _)) => (*code, String::new()),
            (Step::AddOffsets(group), Response::Code(code)) => {
                (*code, format!(" of group '{group}'"))
            }
            (Step::AddPartitions(_) | Step::CommitOffsets(..), Response::Partitions(answers)) => {
                // 55 only says that another partition of the request was refused.
                let refused = answers.iter().filter(|(.., code)| *code != 0);
                let first =
                    refused.min_by_key(|(.., code)| *code == codes::OPERATION_NOT_ATTEMPTED);
                first.map_or((0, String::new()), |(topic, partition, code)| {
                    (*code, format!(" of {topic}-{partition}"))
                })
            }
            _ => (
                codes::UNKNOWN_SERVER_ERROR,
                " (an answer of another kind)".to_owned(),
            ),
        };
        if code == 0 {
            if matches!(step, Step::End { .. }) {
                self.markers.ended(now);
            }
            return self.accepted(step, response);
        }
        let who = self
            .transaction
            .identity
            .map_or(NOBODY, |identity| identity.who);
        let id = self.transaction.id.as_deref().unwrap_or("(none)");
        let what = match step {
            Step::Init => "InitProducerId".to_owned(),
            Step::AddPartitions(_) => format!("AddPartitionsToTxn{subject}"),
            Step::AddOffsets(_) => format!("AddOffsetsToTxn{subject}"),
            Step::CommitOffsets(..) => format!("TxnOffsetCommit{subject}"),
            Step::End { commit: true } => "EndTxn(commit)".to_owned(),
            Step::End { commit: false } => "EndTxn(abort)".to_owned(),
        };
        let error = transaction_error(code, &self.nodes.name(node), &what, id, who);
        self.last_error = Some(error.clone());
        let retry_ms = self.settings.retry_backoff_ms;
        self.transaction.refused(step, error, now, retry_ms);
    }

    pub(super) fn accepted(&mut self, step: &Step, response: Response) {
        self.last_error = None;
        match (step, response) {
            (Step::Init, Response::Identity(_, who)) => self.transaction.identify(who),
            (Step::Init, Response::TwoPhaseIdentity(_, who, kept)) => {
                self.identify_two_phase(who, kept);
            }
            (Step::AddPartitions(places), _) => self.transaction.joined(places),
            (Step::AddOffsets(group), _) => self.transaction.joined_group(group),
            (Step::CommitOffsets(_, number), _) => self.transaction.committed_offsets(*number),
            (Step::End { .. }, Response::End(_, next)) => {
                self.note_gaps();
                self.transaction.ended(next);
            }
            _ => {}
        }
    }

    /// A partition whose sequences have a gap needs a new epoch.
    pub(super) fn note_gaps(&mut self) {
        let generation = self
            .transaction
            .identity
            .map(|identity| identity.generation);
        let mut partitions = self.topics.all.iter().flat_map(|topic| &topic.partitions);
        self.transaction.needs_new_epoch |= partitions.any(|p| {
            p.needs_later_than()
                .is_some_and(|of| Some(of) == generation)
        });
    }
}
