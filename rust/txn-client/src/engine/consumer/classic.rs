//! A member of a classic group: `JoinGroup`, `SyncGroup`, `Heartbeat`, `LeaveGroup`.
//!
//! ```text
//!   Joining ─ JoinGroup ─► Leading (the leader alone: until it knows the topics) ─► Syncing
//!      ▲                                                                              │ SyncGroup
//!      └──── a rebalance, once what has to be given back is given back ──── Stable ◄──┘
//! ```
//!
//! With an eager assignor the member gives back everything before it joins. With cooperative ones it
//! joins with its partitions, gives back those that the new assignment lacks, and joins once more, so
//! that the next generation can assign them.
//!
//! # Invariants
//! 1. One request of the member is in flight at a time. An answer to a request that was abandoned
//!    (a member that left, or lost its place) changes nothing.
//! 2. A member joins without an open event: the program has given back what it had to.
//! 3. A member that lost its place gives up everything before it joins again.
//!
//! Sources: KIP-62 (sessions), KIP-345 (static members), KIP-394, KIP-429 (cooperative), KIP-814.

use std::collections::{BTreeMap, BTreeSet};

use txn_protocol::codes;

use super::assignors::{Assignments, Assignor, Candidate};
use super::group::{Change, Life, REFUSED_PAUSE_MS};
use super::leaders::Leaders;
use super::queries::is_of_coordinator;
use super::{Consumer, Place, Purpose};
use crate::engine::nodes::JOINER;
use crate::engine::settings::backoff;
use crate::engine::{Effect, Millis, NodeId, Request, Response};
use crate::error::{KafkaError, is_retriable};
use crate::messages::classic::{Join, Joined, MemberSubscription, decode_subscription};
use crate::messages::consumer::Membership;

/// The settings of a member of a classic group.
#[derive(Clone, Debug)]
pub struct ClassicSettings {
    /// `partition.assignment.strategy`, the preferred one first.
    pub assignors: Vec<Assignor>,
    /// `session.timeout.ms`.
    pub session_timeout_ms: i32,
    /// `heartbeat.interval.ms`.
    pub heartbeat_interval_ms: Millis,
}

/// The member's next request.
#[derive(Debug)]
enum Phase {
    Joining,
    Leading {
        members: Vec<Candidate>,
        skips_assignment: bool,
    },
    Syncing(Assignments),
    Stable,
}

/// The kind of a request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Join,
    Sync,
    Heartbeat,
    Leave,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Join => "JoinGroup",
            Self::Sync => "SyncGroup",
            Self::Heartbeat => "Heartbeat",
            Self::Leave => "LeaveGroup",
        }
    }
}

/// The part of a membership that only classic groups have; see the module.
#[derive(Debug)]
pub(super) struct Classic {
    settings: ClassicSettings,
    pub(super) member_id: String,
    phase: Phase,
    pub(super) needs_join: bool,
    /// Counts abandoned requests: only answers to this attempt count.
    attempt: u64,
    assignor: String,
    /// The partitions that the group has assigned to the member.
    pub(super) target: Option<BTreeSet<Place>>,
    /// For the leader: the partitions per topic that it assigned.
    counts: Option<BTreeMap<String, i32>>,
}

impl Classic {
    pub(super) fn new(settings: ClassicSettings) -> Self {
        Self {
            settings,
            member_id: String::new(),
            phase: Phase::Joining,
            needs_join: false,
            attempt: 0,
            assignor: String::new(),
            target: None,
            counts: None,
        }
    }

    /// True if the member keeps its partitions while it joins.
    fn is_cooperative(&self) -> bool {
        let mut assignors = self.settings.assignors.iter();
        assignors.all(|&assignor| assignor == Assignor::CooperativeSticky)
    }

    /// Starts anew: what is in flight does not count any more.
    pub(super) fn abandon(&mut self) {
        self.attempt += 1;
        self.phase = Phase::Joining;
        self.needs_join = false;
        self.target = None;
        self.counts = None;
    }

    /// The topics whose partitions the leader has to know.
    pub(super) fn topics(&self) -> Vec<String> {
        match &self.phase {
            Phase::Leading { members, .. } => {
                let topics = members.iter().flat_map(|m| m.subscription.topics.iter());
                topics.cloned().collect()
            }
            _ => self
                .counts
                .iter()
                .flatten()
                .map(|(t, _)| t.clone())
                .collect(),
        }
    }

    /// Notes a leader's topics with another number of partitions than it has assigned.
    pub(super) fn compare(&mut self, leaders: &Leaders) {
        let mut counts = self.counts.iter().flatten();
        let is_changed = counts.any(|(topic, &count)| leaders.partitions(topic) != Some(count));
        self.needs_join |= is_changed;
    }
}

impl Consumer {
    /// Sends the member's next request, if it is due.
    pub(super) fn drive_classic(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        if self.group.unsaid.departure {
            return self.send_leave(now, effects);
        }
        let is_in = self.group.life == Life::In;
        if self.group.is_asking || !(is_in || self.group.life == Life::Leaving) {
            return;
        }
        if is_in {
            self.prepare_join(now);
        }
        if now < self.group.heartbeat_at {
            return;
        }
        self.lead();
        let Some(classic) = &self.group.classic else {
            return;
        };
        match &classic.phase {
            Phase::Joining if is_in && self.group.event.is_none() => {
                let request = Request::Join(self.join());
                self.send_step(Step::Join, request, now, effects);
            }
            Phase::Joining | Phase::Leading { .. } => {}
            Phase::Syncing(assignments) => {
                let request = Request::Sync {
                    member: self.member(),
                    assignor: classic.assignor.clone(),
                    assignments: assignments.clone(),
                };
                self.send_step(Step::Sync, request, now, effects);
            }
            Phase::Stable => {
                let request = Request::ClassicHeartbeat(self.member());
                self.send_step(Step::Heartbeat, request, now, effects);
            }
        }
    }

    /// A rebalance: an eager member gives everything back, then the member joins.
    fn prepare_join(&mut self, now: Millis) {
        let group = &mut self.group;
        let Some(classic) = group.classic.as_mut() else {
            return;
        };
        let is_due = classic.needs_join && matches!(classic.phase, Phase::Stable);
        if !is_due || group.event.is_some() {
            return;
        }
        if classic.is_cooperative() || group.owned.is_empty() {
            classic.phase = Phase::Joining;
            group.heartbeat_at = now;
        } else {
            classic.target = None;
            let owned = group.owned.keys().cloned().collect();
            group.raise(Change::Revoke(owned));
        }
    }

    /// The leader assigns, once it knows the topics of all members.
    fn lead(&mut self) {
        let Some(classic) = self.group.classic.as_mut() else {
            return;
        };
        let topics = classic.topics();
        let Phase::Leading {
            members,
            skips_assignment,
        } = &mut classic.phase
        else {
            return;
        };
        let mut counts = BTreeMap::new();
        for topic in topics {
            let Some(count) = self.leaders.partitions(&topic) else {
                return; // it is asked for
            };
            counts.insert(topic, count);
        }
        let assignments = match Assignor::from_name(&classic.assignor) {
            Some(assignor) if !*skips_assignment => {
                assignor.assign(std::mem::take(members), &counts)
            }
            _ => Vec::new(),
        };
        classic.counts = Some(counts);
        classic.phase = Phase::Syncing(assignments);
    }

    fn join(&self) -> Join {
        let settings = &self.settings;
        let group = &self.group;
        let classic = group.classic.as_ref().expect("the group is classic");
        let rebalance_timeout_ms = i32::try_from(settings.max_poll_interval_ms);
        Join {
            member: self.member(),
            session_timeout_ms: classic.settings.session_timeout_ms,
            rebalance_timeout_ms: rebalance_timeout_ms.unwrap_or(i32::MAX),
            assignors: classic
                .settings
                .assignors
                .iter()
                .map(|a| a.name())
                .collect(),
            subscription: MemberSubscription {
                topics: group.subscription.topics.clone(),
                owned: group.owned.keys().cloned().collect(),
                generation: if group.epoch > 0 { group.epoch } else { -1 },
            },
        }
    }

    fn member(&self) -> Membership {
        let classic = self.group.classic.as_ref();
        Membership {
            group: self.settings.group.clone(),
            epoch: self.group.epoch,
            member_id: classic.map_or_else(String::new, |classic| classic.member_id.clone()),
            instance_id: self.settings.instance_id.clone(),
        }
    }

    fn send_leave(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        let member = self.member();
        if member.member_id.is_empty() || member.instance_id.is_some() {
            // It is not known, or keeps its place until its session ends (KIP-345).
            return self.left();
        }
        if !self.group.is_asking {
            self.send_step(Step::Leave, Request::Leave(member), now, effects);
        }
    }

    fn left(&mut self) {
        let group = &mut self.group;
        group.unsaid.departure = false;
        group.epoch = 0;
        if let Some(classic) = &mut group.classic {
            classic.member_id.clear();
        }
    }

    fn send_step(&mut self, step: Step, request: Request, now: Millis, effects: &mut Vec<Effect>) {
        let Some(mut node) = self.coordinator.node else {
            return;
        };
        let mut deadline = now + self.settings.request_timeout_ms;
        if matches!(step, Step::Join | Step::Sync) {
            node += JOINER;
            deadline += self.settings.max_poll_interval_ms; // the others have so much time
        }
        if !self.nodes.ready(node, now, effects) {
            return;
        }
        let Some(classic) = self.group.classic.as_mut() else {
            return;
        };
        if step == Step::Join {
            classic.needs_join = false;
        }
        let purpose = Purpose::Classic(step, classic.attempt);
        self.group.is_asking = true;
        self.nodes
            .send_until(node, request, purpose, deadline, effects);
    }

    /// True if the answer counts; nothing is in flight any more.
    fn counts(&mut self, attempt: u64) -> bool {
        let classic = self.group.classic.as_ref();
        let is_current = classic.is_some_and(|classic| classic.attempt == attempt);
        if is_current {
            self.group.is_asking = false;
        }
        is_current
    }

    /// A request has no answer.
    pub(super) fn step_lost(&mut self, step: Step, attempt: u64, error: &KafkaError, now: Millis) {
        if !self.counts(attempt) {
            return;
        }
        if step == Step::Leave {
            return self.left(); // its session ends by itself
        }
        self.retry_step(step, now);
        if !error.is_retriable {
            self.group.life = Life::Refused;
            self.group.lose();
            self.report(None, error.clone());
        }
    }

    /// Goes on after a pause; a `SyncGroup` without an assignment joins again.
    fn retry_step(&mut self, step: Step, now: Millis) {
        let group = &mut self.group;
        group.failures += 1;
        group.heartbeat_at = now + backoff(self.settings.retry_backoff_ms, group.failures);
        if let Some(classic) = &mut group.classic
            && matches!(step, Step::Join | Step::Sync)
        {
            classic.phase = Phase::Joining;
        }
    }

    /// A request is answered.
    pub(super) fn step_answered(
        &mut self,
        step: Step,
        attempt: u64,
        response: Response,
        node: NodeId,
        now: Millis,
    ) {
        if !self.counts(attempt) {
            return;
        }
        let code = match response {
            _ if step == Step::Leave => return self.left(),
            Response::Joined(joined) => self.joined(joined, now),
            Response::Synced(0, assigned) => {
                self.synced(assigned, now);
                0
            }
            Response::Synced(code, _) | Response::Code(code) => code,
            _ => codes::UNKNOWN_SERVER_ERROR,
        };
        if code != 0 {
            return self.step_refused(step, code, node, now);
        }
        self.group.failures = 0;
        if step == Step::Heartbeat {
            self.pause_heartbeat(now);
        }
    }

    fn pause_heartbeat(&mut self, now: Millis) {
        if let Some(classic) = &self.group.classic {
            self.group.heartbeat_at = now + classic.settings.heartbeat_interval_ms;
        }
    }

    fn joined(&mut self, joined: Joined, now: Millis) -> i16 {
        let group = &mut self.group;
        let Some(classic) = &mut group.classic else {
            return 0;
        };
        let is_named = matches!(joined.error_code, 0 | codes::MEMBER_ID_REQUIRED);
        if is_named {
            classic.member_id = joined.member_id;
            group.heartbeat_at = now;
        }
        if joined.error_code != 0 {
            return joined.error_code;
        }
        group.epoch = joined.generation;
        classic.assignor = joined.assignor;
        classic.counts = None;
        classic.phase = if joined.leader == classic.member_id {
            let members = joined.members.into_iter().map(|member| Candidate {
                // A member whose subscription cannot be read gets nothing.
                subscription: decode_subscription(&member.subscription).unwrap_or_default(),
                id: member.id,
                instance_id: member.instance_id,
            });
            Phase::Leading {
                members: members.collect(),
                skips_assignment: joined.skips_assignment,
            }
        } else {
            Phase::Syncing(Vec::new())
        };
        0
    }

    fn synced(&mut self, assigned: Vec<Place>, now: Millis) {
        if let Some(classic) = &mut self.group.classic {
            classic.phase = Phase::Stable;
            classic.target = Some(assigned.into_iter().collect());
        }
        self.pause_heartbeat(now);
    }

    fn step_refused(&mut self, step: Step, code: i16, node: NodeId, now: Millis) {
        if code == codes::MEMBER_ID_REQUIRED {
            return; // it has one now
        }
        if code == codes::REBALANCE_IN_PROGRESS && step == Step::Heartbeat {
            if let Some(classic) = &mut self.group.classic {
                classic.needs_join = true;
            }
            return self.pause_heartbeat(now); // until it joins
        }
        self.retry_step(step, now);
        match code {
            codes::REBALANCE_IN_PROGRESS => {}
            codes::UNKNOWN_MEMBER_ID | codes::ILLEGAL_GENERATION => {
                let classic = self.group.classic.as_mut();
                if let Some(classic) = classic.filter(|_| code == codes::UNKNOWN_MEMBER_ID) {
                    classic.member_id.clear();
                }
                if self.group.life == Life::Leaving {
                    self.group.life = Life::Out;
                }
                self.group.lose();
            }
            _ if is_of_coordinator(code) => self.coordinator.forget(),
            _ if is_retriable(code) => {}
            _ => self.refuse(step, code, node, now),
        }
    }

    fn refuse(&mut self, step: Step, code: i16, node: NodeId, now: Millis) {
        let subject = format!("group '{}'", self.settings.group);
        let name = self.nodes.name(node);
        let error = KafkaError::answered(code, &name, step.name(), &subject, None);
        let may_pass = matches!(
            code,
            codes::GROUP_MAX_SIZE_REACHED
                | codes::GROUP_AUTHORIZATION_FAILED
                | codes::INCONSISTENT_GROUP_PROTOCOL
        );
        if !may_pass {
            self.group.life = Life::Refused;
        }
        self.group.lose();
        self.group.heartbeat_at = now + REFUSED_PAUSE_MS;
        self.report(None, error);
    }
}
