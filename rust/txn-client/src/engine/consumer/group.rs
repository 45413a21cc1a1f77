//! A member of a group of the consumer protocol (KIP-848); `classic` has the other protocol, with
//! the same life and the same events.
//!
//! The coordinator decides who has which partitions, and tells each member its target. The member
//! first gives back what it loses, tells the coordinator, and takes what is new. Program and member
//! meet in one event at a time: the program's callbacks run for it, then it calls `event_done`.
//!
//! # Invariants
//! 1. No partition is assigned while one that is to be revoked is not given back.
//! 2. Every heartbeat after a change names the partitions that the member has.
//! 3. A member that was fenced gives up everything before it joins again.

use std::collections::BTreeMap;

use txn_protocol::codes;

use super::classic::{Classic, ClassicSettings};
use super::leaders::Leaders;
use super::queries::is_of_coordinator;
use super::{Consumer, Place, Purpose};
use crate::engine::settings::backoff;
use crate::engine::{Effect, Millis, NodeId, Request};
use crate::error::{KafkaError, is_retriable};
use crate::messages::consumer::{
    HeartbeatAnswer, HeartbeatNews, Membership, Subscription, TopicId,
};

/// Time between two heartbeats before the coordinator has told it.
const INTERVAL_FIRST_MS: Millis = 3_000;
/// Time after which a member joins again that was refused for a reason which may pass.
pub(super) const REFUSED_PAUSE_MS: Millis = 1_000;

/// The id of each topic in a classic group.
const NO_ID: TopicId = [0; 16];

/// A change of the member's partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// These are new.
    Assign(Vec<Place>),
    /// These are to be given back.
    Revoke(Vec<Place>),
    /// These belong to others already.
    Lost(Vec<Place>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Not subscribed.
    Out,
    /// To send heartbeats.
    In,
    /// To leave once its partitions are given back.
    Leaving,
    /// It has left, because the program does not poll.
    Idle,
    /// Refused for good, until it subscribes again.
    Refused,
}

/// What the coordinator does not know yet.
#[derive(Debug)]
pub(super) struct Unsaid {
    /// The subscription.
    subscription: bool,
    /// The partitions that are owned.
    partitions: bool,
    /// That the member leaves; it goes before anything else.
    pub(super) departure: bool,
}

/// The membership; see the module.
#[derive(Debug)]
pub(super) struct Group {
    /// None: the group is one of KIP-848.
    pub(super) classic: Option<Classic>,
    pub(super) life: Life,
    pub(super) subscription: Subscription,
    /// Member epoch, or generation; 0: none.
    pub(super) epoch: i32,
    target: Option<Vec<(TopicId, i32)>>,
    /// In classic groups without ids of topics.
    pub(super) owned: BTreeMap<Place, TopicId>,
    pub(super) event: Option<(u64, Change)>,
    is_told: bool,
    events: u64,
    pub(super) is_asking: bool,
    pub(super) heartbeat_at: Millis,
    interval_ms: Millis,
    pub(super) failures: u32,
    pub(super) unsaid: Unsaid,
}

impl Group {
    /// A member that has not subscribed.
    pub(super) fn new(classic: Option<ClassicSettings>) -> Self {
        Self {
            classic: classic.map(Classic::new),
            life: Life::Out,
            subscription: Subscription::default(),
            epoch: 0,
            target: None,
            owned: BTreeMap::new(),
            event: None,
            is_told: false,
            events: 0,
            is_asking: false,
            heartbeat_at: 0,
            interval_ms: INTERVAL_FIRST_MS,
            failures: 0,
            unsaid: Unsaid {
                subscription: true,
                partitions: false,
                departure: false,
            },
        }
    }

    /// True if the coordinator is needed.
    pub(super) fn needs_coordinator(&self) -> bool {
        self.life == Life::In || self.unsaid.departure
    }

    /// When it next has something to do.
    pub(super) fn due(&self) -> Option<Millis> {
        let waits = !self.is_asking && self.needs_coordinator();
        waits.then_some(if self.unsaid.departure {
            0
        } else {
            self.heartbeat_at
        })
    }

    /// The names it subscribes to.
    pub(super) fn topics(&self) -> &[String] {
        &self.subscription.topics
    }

    pub(super) fn is_member(&self) -> bool {
        self.life == Life::In
    }

    /// True if the coordinator may know the member.
    fn is_known(&self) -> bool {
        match &self.classic {
            Some(classic) => !classic.member_id.is_empty(),
            None => self.epoch > 0,
        }
    }

    pub(super) fn raise(&mut self, change: Change) {
        self.events += 1;
        self.event = Some((self.events, change));
        self.is_told = false;
    }

    /// The member's place is lost, and everything that it has.
    pub(super) fn lose(&mut self) {
        let told = self.event.take().filter(|_| !self.is_told);
        let earlier = told.filter(|(_, change)| matches!(change, Change::Lost(_)));
        let mut lost: Vec<Place> = std::mem::take(&mut self.owned).into_keys().collect();
        if let Some((_, Change::Lost(more))) = earlier {
            lost.extend(more);
        }
        if !lost.is_empty() {
            self.raise(Change::Lost(lost));
        }
        self.epoch = 0;
        self.target = None;
        self.abandon();
        self.unsaid.subscription = true;
        self.unsaid.partitions = true;
        self.heartbeat_at = 0;
    }

    /// In a classic group: nothing waits for what is in flight, which may take long.
    fn abandon(&mut self) {
        if let Some(classic) = &mut self.classic {
            classic.abandon();
            self.is_asking = false;
        }
    }

    /// The partitions that the member is to have, as far as their topics' names are known.
    fn wanted(&self, leaders: &Leaders) -> Option<BTreeMap<Place, TopicId>> {
        if let Some(classic) = &self.classic {
            let target = classic.target.as_ref()?.iter();
            return Some(target.map(|place| (place.clone(), NO_ID)).collect());
        }
        let target = self.target.as_ref()?.iter();
        let named = |&(id, partition)| Some(((leaders.name(&id)?.clone(), partition), id));
        Some(target.filter_map(named).collect())
    }
}

impl Consumer {
    /// Subscribes, or changes the subscription.
    pub fn subscribe(&mut self, subscription: Subscription, now: Millis) {
        let group = &mut self.group;
        let is_changed = group.life != Life::In || group.subscription != subscription;
        if let Some(classic) = &mut group.classic {
            classic.needs_join |= is_changed;
        }
        group.subscription = subscription;
        group.unsaid.subscription = true;
        group.life = Life::In;
        group.heartbeat_at = now;
        self.polled_at = now;
    }

    /// Leaves the group. Done once `is_member` is false; an event revokes the partitions before.
    pub fn unsubscribe(&mut self) {
        let group = &mut self.group;
        match group.life {
            Life::In => group.life = Life::Leaving,
            Life::Idle | Life::Refused => group.life = Life::Out,
            Life::Leaving | Life::Out => {}
        }
        if group.life == Life::Leaving && group.event.is_none() {
            self.revoke_all();
        }
    }

    fn revoke_all(&mut self) {
        let group = &mut self.group;
        let owned: Vec<Place> = group.owned.keys().cloned().collect();
        if owned.is_empty() {
            group.life = Life::Out;
            group.unsaid.departure = group.is_known() || group.is_asking;
            group.target = None;
            group.abandon();
        } else {
            group.raise(Change::Revoke(owned));
        }
    }

    /// True until the coordinator was told that the member leaves.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.group.life == Life::Leaving || self.group.unsaid.departure
    }

    /// The member's place in its group; epoch -1 and no id while it has none.
    #[must_use]
    pub fn membership(&self) -> Membership {
        let settings = &self.settings;
        let is_member = self.group.epoch > 0;
        let classic = self.group.classic.as_ref();
        let member_id = classic.map_or(&settings.member_id, |classic| &classic.member_id);
        Membership {
            group: settings.group.clone(),
            epoch: if is_member { self.group.epoch } else { -1 },
            member_id: if is_member {
                member_id.clone()
            } else {
                String::new()
            },
            instance_id: settings.instance_id.clone().filter(|_| is_member),
        }
    }

    /// The change that the program has to know of next, with its number. Told once.
    pub fn take_event(&mut self) -> Option<(u64, Change)> {
        if self.group.is_told {
            return None;
        }
        let event = self.group.event.clone()?;
        self.group.is_told = true;
        Some(event)
    }

    /// True if `take_event`, `take_report` or `take_end` would give something.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let has_report = !self.reports.is_empty() || !self.ends.is_empty();
        has_report || (self.group.event.is_some() && !self.group.is_told)
    }

    /// The program has seen a change.
    pub fn event_done(&mut self, number: u64) {
        let group = &mut self.group;
        let Some((_, change)) = group.event.take_if(|(of, _)| *of == number) else {
            return; // the member was fenced meanwhile
        };
        if let Change::Revoke(places) = change {
            group.owned.retain(|place, _| !places.contains(place));
            if let Some(classic) = &mut group.classic {
                classic.needs_join = true; // the others wait for them
            }
        }
        group.is_told = false;
        group.unsaid.partitions = true;
        group.heartbeat_at = 0;
        if group.life == Life::Leaving {
            self.revoke_all();
        }
    }

    /// Compares the target with the partitions of the member.
    pub(super) fn reconcile(&mut self) {
        let group = &mut self.group;
        if group.event.is_some() || group.life != Life::In {
            return;
        }
        let Some(mut wanted) = group.wanted(&self.leaders) else {
            return;
        };
        let owned = &group.owned;
        let is_gone = |(place, id): &(&Place, &TopicId)| wanted.get(*place) != Some(*id);
        let gone: Vec<Place> = owned
            .iter()
            .filter(is_gone)
            .map(|(p, _)| p.clone())
            .collect();
        if !gone.is_empty() {
            return group.raise(Change::Revoke(gone));
        }
        wanted.retain(|place, _| !owned.contains_key(place));
        if !wanted.is_empty() {
            let places = wanted.keys().cloned().collect();
            // They count from now on: a member that is fenced meanwhile loses them.
            group.owned.extend(wanted);
            group.raise(Change::Assign(places));
        }
    }

    /// Ids of the target whose names are not known.
    pub(super) fn nameless(&self) -> Vec<TopicId> {
        let target = self.group.target.iter().flatten();
        let ids = target.map(|&(id, _)| id);
        let mut ids: Vec<TopicId> = ids.filter(|id| self.leaders.name(id).is_none()).collect();
        ids.dedup();
        ids
    }

    /// Leaves the group if the program has not polled for too long.
    pub(super) fn watch_polls(&mut self, now: Millis) {
        let limit = self.polled_at + self.settings.max_poll_interval_ms;
        if self.is_polling || now < limit || self.group.life != Life::In {
            return;
        }
        self.group.unsaid.departure = self.group.is_known();
        self.group.life = Life::Idle;
        self.group.lose();
    }

    /// When `watch_polls` is due.
    pub(super) fn polls_due(&self) -> Option<Millis> {
        let is_watched = !self.is_polling && self.group.life == Life::In;
        is_watched.then_some(self.polled_at + self.settings.max_poll_interval_ms)
    }

    /// The program polls: a member that had left joins again. True if it does.
    pub(super) fn rejoin(&mut self, now: Millis) -> bool {
        let is_idle = self.group.life == Life::Idle;
        if is_idle {
            self.group.life = Life::In;
            self.group.heartbeat_at = now;
        }
        is_idle
    }

    /// Sends the heartbeat that is due.
    pub(super) fn send_heartbeat(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        if self.group.classic.is_some() {
            return self.drive_classic(now, effects);
        }
        if self.group.due().is_none_or(|at| at > now) {
            return;
        }
        let is_leaving = self.group.unsaid.departure;
        if !is_leaving && self.group.epoch == 0 && self.group.event.is_some() {
            return; // it joins with nothing in its hands
        }
        let Some(node) = self.coordinator.node else {
            return;
        };
        if !self.nodes.ready(node, now, effects) {
            return;
        }
        let settings = &self.settings;
        let group = &mut self.group;
        let leaves_as = if settings.instance_id.is_some() {
            -2
        } else {
            -1
        };
        let member = Membership {
            group: settings.group.clone(),
            epoch: if is_leaving { leaves_as } else { group.epoch },
            member_id: settings.member_id.clone(),
            instance_id: settings.instance_id.clone(),
        };
        let is_full = !is_leaving && (group.unsaid.subscription || group.epoch == 0);
        let news = is_full.then(|| HeartbeatNews {
            rebalance_timeout_ms: settings.max_poll_interval_ms as i32,
            subscription: group.subscription.clone(),
            assignor: settings.assignor.clone(),
        });
        let names_owned = !is_leaving && (group.unsaid.partitions || is_full);
        let owned = names_owned.then(|| {
            let mut topics: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
            for (place, id) in &group.owned {
                topics.entry(*id).or_default().push(place.1);
            }
            topics.into_iter().collect()
        });
        group.is_asking = true;
        group.unsaid.subscription = false;
        group.unsaid.partitions = false;
        let request = Request::Heartbeat {
            member,
            news,
            owned,
        };
        let purpose = Purpose::Heartbeat { is_leaving };
        self.nodes.send(node, request, purpose, now, effects);
    }

    /// A heartbeat has no answer.
    pub(super) fn heartbeat_lost(&mut self, is_leaving: bool, error: &KafkaError, now: Millis) {
        let group = &mut self.group;
        group.is_asking = false;
        (group.unsaid.subscription, group.unsaid.partitions) = (true, true);
        if is_leaving {
            group.unsaid.departure = false; // its session ends by itself
            group.epoch = 0;
            return;
        }
        group.failures += 1;
        group.heartbeat_at = now + backoff(self.settings.retry_backoff_ms, group.failures);
        if !error.is_retriable {
            group.life = Life::Refused;
            self.report(None, error.clone());
        }
    }

    /// A heartbeat is answered.
    pub(super) fn heartbeat_answered(
        &mut self,
        is_leaving: bool,
        answer: HeartbeatAnswer,
        node: NodeId,
        now: Millis,
    ) {
        let group = &mut self.group;
        group.is_asking = false;
        if is_leaving {
            group.unsaid.departure = false;
            group.epoch = 0;
            (group.unsaid.subscription, group.unsaid.partitions) = (true, true);
            return;
        }
        if answer.error_code == 0 {
            group.failures = 0;
            group.epoch = answer.epoch;
            group.interval_ms = Millis::try_from(answer.interval_ms).unwrap_or(0).max(1);
            let is_due = group.unsaid.subscription || group.unsaid.partitions;
            group.heartbeat_at = if is_due { now } else { now + group.interval_ms };
            if answer.assignment.is_some() {
                group.target = answer.assignment;
            }
            if group.life != Life::In && group.life != Life::Leaving {
                group.unsaid.departure = true; // it left while this was on its way
            }
            return;
        }
        (group.unsaid.subscription, group.unsaid.partitions) = (true, true);
        group.failures += 1;
        group.heartbeat_at = now + backoff(self.settings.retry_backoff_ms, group.failures);
        let code = answer.error_code;
        match code {
            codes::UNKNOWN_MEMBER_ID | codes::FENCED_MEMBER_EPOCH => {
                if group.life == Life::Leaving {
                    group.life = Life::Out;
                }
                group.lose();
            }
            _ if is_of_coordinator(code) => self.coordinator.forget(),
            _ if is_retriable(code) => {}
            _ => {
                let subject = format!("group '{}'", self.settings.group);
                let (name, request) = (self.nodes.name(node), "ConsumerGroupHeartbeat");
                let message = answer.message.as_deref();
                let error = KafkaError::answered(code, &name, request, &subject, message);
                let may_pass = matches!(
                    code,
                    codes::UNRELEASED_INSTANCE_ID
                        | codes::GROUP_MAX_SIZE_REACHED
                        | codes::GROUP_AUTHORIZATION_FAILED
                        | codes::TOPIC_AUTHORIZATION_FAILED
                );
                if may_pass {
                    group.heartbeat_at = now + REFUSED_PAUSE_MS;
                } else {
                    group.life = Life::Refused;
                    group.lose();
                }
                self.report(None, error);
            }
        }
    }
}
