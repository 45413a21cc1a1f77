//! A producer's identity, and the life of its transactions.
//!
//! ```text
//!   New ─► Initializing ─► Ready ─► Open ─► Ending{commit} ─► Ready
//!                 ▲                  │ ▲         │ may not commit
//!                 │                  ▼ │         ▼
//!                 │                Failed ─► Ending{abort} ─► Ready        any ─► Fatal
//!                 └── a new epoch is needed ◄────┘
//!
//!   Two-phase commit:  Initializing ─► Prepared,  Open ─► Prepared ─► Ending
//! ```
//!
//! `next` is a function of the state: it names the one request that is to be sent now. So a lost
//! answer needs no memory beyond the state: `next` names the same request again.
//!
//! Under version 1 an epoch outlives its transaction, and a request whose answer was lost may still
//! arrive, in a later transaction. So the producer takes a new epoch after the end of a transaction
//! in which an answer was lost. Version 2 does that at every end (KIP-890).

use std::collections::{BTreeSet, HashMap, HashSet};

use txn_protocol::codes;

use super::accumulator::Identity;
use super::request::Offsets;
use super::settings::{backoff, pause_after};
use super::{Millis, NodeId};
use crate::error::{KafkaError, is_retriable};
use crate::messages::cluster::CoordinatorOf;
use crate::messages::transactions::{GroupMember, ProducerIdAndEpoch};

/// How often a coordinator may refuse an abort with `TRANSACTION_ABORTABLE`.
const ABORT_REFUSALS_MAX: u32 = 5;

/// No identity.
pub(crate) const NOBODY: ProducerIdAndEpoch = (-1, -1);

#[derive(Clone, Debug)]
pub(crate) enum State {
    New,
    Initializing,
    Ready,
    Open,
    /// The transaction can only end, as another system decides (KIP-939).
    Prepared,
    Ending {
        commit: bool,
    },
    /// The open transaction can only be aborted.
    Failed(KafkaError),
    /// The producer is finished.
    Fatal(KafkaError),
}

/// A partition by its topic's index.
pub(crate) type Place = (usize, usize);

/// One request to a coordinator, or about one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Init,
    AddPartitions(Vec<Place>),
    AddOffsets(String),
    /// The group, and the number of its offsets' `Sending`.
    CommitOffsets(String, u64),
    End {
        commit: bool,
    },
}

/// Offsets that are on their way into the transaction.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    /// An answer settles the offsets of its own number: later ones may have taken their place.
    pub(crate) number: u64,
    pub(crate) group: String,
    pub(crate) member: GroupMember,
    pub(crate) offsets: Offsets,
}

#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own; the state is `state`"
)]
pub(crate) struct Transaction {
    pub(crate) id: Option<String>,
    pub(crate) state: State,
    pub(crate) identity: Option<Identity>,
    /// Of the open transaction.
    pub(crate) is_v2: bool,
    pub(crate) needs_new_epoch: bool,
    /// The end that was asked for last, until the next begin: commit, or abort.
    pub(crate) asked: Option<bool>,
    joined: HashSet<Place>,
    joining: BTreeSet<Place>,
    groups: HashSet<String>,
    /// True if the coordinator may know of the transaction.
    pub(crate) has_started: bool,
    /// Version 1: a request that may have started it, and whose answer was lost.
    uncertain: Option<Step>,
    pub(crate) sending: Option<Sending>,
    /// Number of the last `Sending`.
    sendings: u64,
    /// The end that the coordinator has accepted, until the next begin: commit, or abort.
    pub(crate) ended_as: Option<bool>,
    /// The coordinator has forgotten the producer id, so the next identity is a new one.
    is_forgotten: bool,
    /// The identity of a transaction that the coordinator kept for this producer, until it ends.
    pub(crate) kept: Option<ProducerIdAndEpoch>,
    coordinators: HashMap<(CoordinatorOf, String), NodeId>,
    pub(crate) is_asking: bool,
    pub(crate) ask_at: Millis,
    failures: u32,
}

impl Transaction {
    pub(crate) fn new(id: Option<String>) -> Self {
        Self {
            id,
            state: State::New,
            identity: None,
            is_v2: false,
            needs_new_epoch: false,
            asked: None,
            joined: HashSet::new(),
            joining: BTreeSet::new(),
            groups: HashSet::new(),
            has_started: false,
            uncertain: None,
            sending: None,
            sendings: 0,
            ended_as: None,
            is_forgotten: false,
            kept: None,
            coordinators: HashMap::new(),
            is_asking: false,
            ask_at: 0,
            failures: 0,
        }
    }

    /// True if records may be sent.
    pub(crate) fn is_writable(&self) -> bool {
        match self.state {
            State::Fatal(_) => false,
            State::Open | State::Ending { commit: true } => true,
            _ => self.id.is_none(),
        }
    }

    pub(crate) fn begin(&mut self, is_v2: bool) {
        self.state = State::Open;
        self.is_v2 = is_v2;
        self.asked = None;
        self.ended_as = None;
        self.joined.clear();
        self.joining.clear();
        self.groups.clear();
        self.has_started = false;
        self.uncertain = None;
    }

    /// True if batches of the partition may be sent; else has it join.
    pub(crate) fn joins(&mut self, place: Place) -> bool {
        if self.id.is_none() || self.is_v2 || self.joined.contains(&place) {
            return true;
        }
        self.joining.insert(place);
        false
    }

    /// The transaction cannot commit any more.
    pub(crate) fn fail(&mut self, error: KafkaError) {
        if self.id.is_none() {
            return;
        }
        if matches!(self.state, State::Open | State::Ending { commit: true }) {
            self.state = State::Failed(error);
        }
    }

    pub(crate) fn fail_for_good(&mut self, error: KafkaError) {
        if !matches!(self.state, State::Fatal(_)) {
            self.state = State::Fatal(error);
        }
        self.sending = None;
    }

    pub(crate) fn abort(&mut self) {
        self.state = State::Ending { commit: false };
        self.joining.clear();
        self.sending = None;
    }

    /// The request to send now. `is_drained`: no record waits for its acknowledgement.
    pub(crate) fn next(&self, is_drained: bool) -> Option<Step> {
        match self.state {
            State::Initializing => Some(Step::Init),
            State::Open => self.adding(),
            State::Ending { commit: true } => self.adding().or_else(|| {
                let is_ready = is_drained && self.has_started;
                is_ready.then_some(Step::End { commit: true })
            }),
            State::Ending { commit: false } => self.uncertain.clone().or_else(|| {
                let is_ready = is_drained && self.has_started;
                is_ready.then_some(Step::End { commit: false })
            }),
            _ => None,
        }
    }

    fn adding(&self) -> Option<Step> {
        if !self.is_v2 && !self.joining.is_empty() {
            return Some(Step::AddPartitions(self.joining.iter().copied().collect()));
        }
        let sending = self.sending.as_ref()?;
        if !self.is_v2 && !self.groups.contains(&sending.group) {
            return Some(Step::AddOffsets(sending.group.clone()));
        }
        Some(Step::CommitOffsets(sending.group.clone(), sending.number))
    }

    /// Offsets that take the place of those that are still on their way.
    pub(crate) fn send_offsets(&mut self, group: &str, member: GroupMember, offsets: Offsets) {
        self.sendings += 1;
        self.sending = Some(Sending {
            number: self.sendings,
            group: group.to_owned(),
            member,
            offsets,
        });
    }

    /// True if the end needs no request: the coordinator knows nothing of the transaction.
    pub(crate) fn ends_by_itself(&self, is_drained: bool) -> bool {
        let is_ending = matches!(self.state, State::Ending { .. });
        is_ending && is_drained && !self.has_started && self.next(true).is_none()
    }

    /// Notes that a step is on its way.
    pub(crate) fn sent(&mut self, step: &Step) {
        self.is_asking = true;
        match step {
            Step::AddPartitions(_) | Step::AddOffsets(_) => self.uncertain = Some(step.clone()),
            Step::CommitOffsets(..) => self.has_started = true,
            Step::Init | Step::End { .. } => {}
        }
    }

    /// The coordinator that a step goes to; None: any node.
    pub(crate) fn coordinator_of(&self, step: &Step) -> Option<(CoordinatorOf, String)> {
        if let Step::CommitOffsets(group, _) = step {
            return Some((CoordinatorOf::Group, group.clone()));
        }
        self.id.clone().map(|id| (CoordinatorOf::Transaction, id))
    }

    pub(crate) fn coordinator(&self, key: &(CoordinatorOf, String)) -> Option<NodeId> {
        self.coordinators.get(key).copied()
    }

    pub(crate) fn learn_coordinator(&mut self, key: (CoordinatorOf, String), node: NodeId) {
        self.coordinators.insert(key, node);
        // The failures go on counting: the node found may refuse the same step again.
        (self.is_asking, self.ask_at) = (false, 0);
    }

    pub(crate) fn forget_coordinators_at(&mut self, node: NodeId) {
        self.coordinators.retain(|_, at| *at != node);
    }

    fn forget_coordinator(&mut self, step: &Step) {
        if let Some(key) = self.coordinator_of(step) {
            self.coordinators.remove(&key);
        }
    }

    fn progress(&mut self) {
        (self.is_asking, self.failures, self.ask_at) = (false, 0, 0);
    }

    /// Has the step sent again after a pause.
    pub(crate) fn retry(&mut self, now: Millis, retry_ms: Millis) {
        self.is_asking = false;
        self.failures += 1;
        self.ask_at = now + backoff(retry_ms, self.failures);
    }

    /// Notes that no answer to a step will come.
    pub(crate) fn lost(&mut self, step: &Step, now: Millis, retry_ms: Millis) {
        self.needs_new_epoch |= self.id.is_some() && !self.is_v2 && *step != Step::Init;
        self.forget_coordinator(step);
        self.retry(now, retry_ms);
    }

    /// True if a step was to send offsets that later ones have replaced.
    pub(crate) fn is_replaced(&self, step: &Step) -> bool {
        let Step::CommitOffsets(_, number) = step else {
            return false;
        };
        self.sending
            .as_ref()
            .is_some_and(|sending| sending.number != *number)
    }

    /// Takes an identity: the first one, or a new epoch.
    pub(crate) fn identify(&mut self, who: ProducerIdAndEpoch) {
        let generation = self.identity.map_or(1, |identity| identity.generation + 1);
        self.identity = Some(Identity { who, generation });
        self.needs_new_epoch = false;
        self.is_forgotten = false;
        self.state = State::Ready;
        self.progress();
    }

    /// A transaction of the producer before is kept, and only ends. It is of version 2.
    pub(crate) fn keep(&mut self, kept: ProducerIdAndEpoch) {
        self.begin(true);
        self.state = State::Prepared;
        self.kept = Some(kept);
        self.has_started = true;
    }

    /// Partitions have joined.
    pub(crate) fn joined(&mut self, places: &[Place]) {
        for place in places {
            self.joining.remove(place);
            self.joined.insert(*place);
        }
        self.started();
    }

    pub(crate) fn joined_group(&mut self, group: &str) {
        self.groups.insert(group.to_owned());
        self.started();
    }

    fn started(&mut self) {
        self.has_started = true;
        self.uncertain = None;
        self.progress();
    }

    pub(crate) fn committed_offsets(&mut self, number: u64) {
        self.sending.take_if(|sending| sending.number == number);
        self.progress();
    }

    /// The identity that `InitProducerId` begins from.
    pub(crate) fn current(&self) -> ProducerIdAndEpoch {
        match self.identity {
            // Without a transactional id a new id is as good as a new epoch.
            Some(identity) if self.id.is_some() && !self.is_forgotten => identity.who,
            _ => NOBODY,
        }
    }

    /// The transaction has ended; `next` is the identity that the coordinator gives.
    pub(crate) fn ended(&mut self, next: Option<ProducerIdAndEpoch>) {
        if let State::Ending { commit } = self.state {
            self.ended_as = Some(commit);
        }
        self.has_started = false;
        self.kept = None;
        self.progress();
        match next.filter(|who| who.0 >= 0) {
            Some(who) => self.identify(who),
            None if self.needs_new_epoch => self.state = State::Initializing,
            None => self.state = State::Ready,
        }
    }

    /// Acts on a step's error code. `error` is for the user.
    pub(crate) fn refused(
        &mut self,
        step: &Step,
        error: KafkaError,
        now: Millis,
        retry_ms: Millis,
    ) {
        self.is_asking = false;
        let code = error.code;
        if matches!(
            code,
            codes::NOT_COORDINATOR | codes::COORDINATOR_NOT_AVAILABLE
        ) {
            self.forget_coordinator(step);
        }
        if is_retriable(code) {
            self.failures += 1;
            self.ask_at = now + pause_after(code, retry_ms, self.failures);
            return;
        }
        if matches!(step, Step::AddPartitions(_) | Step::AddOffsets(_)) {
            self.uncertain = None;
        }
        if code == codes::INVALID_PRODUCER_ID_MAPPING && *step != Step::Init {
            (self.needs_new_epoch, self.is_forgotten) = (true, true);
            if *step == (Step::End { commit: false }) {
                // Nothing of the transaction is left to abort.
                return self.ended(None);
            }
        }
        let ends_it = matches!(step, Step::Init | Step::End { .. });
        let is_abortable = code == codes::TRANSACTION_ABORTABLE && *step != Step::Init
            || !ends_it && is_of_transaction(code)
            || matches!(step, Step::CommitOffsets(..)) && is_of_group(code);
        if !is_abortable {
            return self.fail_for_good(error);
        }
        self.sending = None;
        match self.state {
            // The abort goes on without the refused part.
            State::Ending { commit: false } if !ends_it || self.failures < ABORT_REFUSALS_MAX => {
                self.retry(now, retry_ms);
            }
            // Asked for ever, it would say so for ever; a new producer's identity ends it.
            State::Ending { commit: false } => self.fail_for_good(error),
            _ => self.fail(error),
        }
    }
}

/// True for refusals that concern one topic or group, and not the producer.
fn is_of_transaction(code: i16) -> bool {
    [
        codes::TOPIC_AUTHORIZATION_FAILED,
        codes::GROUP_AUTHORIZATION_FAILED,
        codes::OPERATION_NOT_ATTEMPTED,
        codes::INVALID_TOPIC_EXCEPTION,
        codes::INVALID_PRODUCER_ID_MAPPING,
        codes::UNKNOWN_PRODUCER_ID,
    ]
    .contains(&code)
}

/// True for refusals of a consumer that lost its place in its group.
fn is_of_group(code: i16) -> bool {
    [
        codes::ILLEGAL_GENERATION,
        codes::UNKNOWN_MEMBER_ID,
        codes::REBALANCE_IN_PROGRESS,
        codes::FENCED_INSTANCE_ID,
        codes::STALE_MEMBER_EPOCH,
        codes::OFFSET_METADATA_TOO_LARGE,
        codes::INVALID_COMMIT_OFFSET_SIZE,
        codes::GROUP_ID_NOT_FOUND,
    ]
    .contains(&code)
}
