//! Members of one classic group against a model coordinator, over a network that delays and cuts.
//!
//! One seed is one history. A cut loses requests or answers, and those that are on their way over a
//! lost connection arrive late or never; the coordinator moves between two nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::engine::nodes::LANE;
use crate::messages::classic::{Joined, JoinedMember, encode_subscription};
use crate::messages::cluster::TopicMetadata;

const PARTITIONS: i32 = 6;
const MEMBERS: usize = 3;
const SESSION_MS: Millis = 6_000;
const REBALANCE_MS: Millis = 5_000;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// The address of an answer: the client, its connection, the request.
type Route = (usize, NodeId, u64, u64);

#[derive(Default)]
struct Known {
    subscription: Vec<u8>,
    parked: Option<Route>,
    assigned: Vec<Place>,
    seen: Millis,
}

#[derive(Clone, Copy, Default, PartialEq, Debug)]
enum State {
    #[default]
    Stable,
    Preparing(Millis),
    Completing,
}

#[derive(Default)]
struct Group {
    node: NodeId,
    generation: i32,
    named: u64,
    members: BTreeMap<String, Known>,
    state: State,
    answers: Vec<(Route, Response)>,
}

impl Group {
    fn prepare(&mut self, now: Millis) {
        if !matches!(self.state, State::Preparing(_)) {
            for member in self.members.values_mut() {
                if let Some(route) = member.parked.take() {
                    let code = codes::REBALANCE_IN_PROGRESS;
                    self.answers
                        .push((route, Response::Synced(code, Vec::new())));
                }
            }
            self.state = State::Preparing(now + REBALANCE_MS);
        }
    }

    fn refusal(&self, node: NodeId, member: &str, generation: Option<i32>) -> i16 {
        if node != self.node {
            codes::NOT_COORDINATOR
        } else if !self.members.contains_key(member) {
            codes::UNKNOWN_MEMBER_ID
        } else if generation.is_some_and(|generation| generation != self.generation) {
            codes::ILLEGAL_GENERATION
        } else {
            0
        }
    }

    fn carry_out(&mut self, node: NodeId, route: Route, request: Request, now: Millis) {
        let response = match request {
            Request::Join(join) => {
                let id = join.member.member_id.clone();
                if node == self.node && id.is_empty() {
                    self.named += 1;
                    let member_id = format!("m{}", self.named);
                    let known = Known {
                        seen: now,
                        ..Known::default()
                    };
                    self.members.insert(member_id.clone(), known);
                    Response::Joined(Joined {
                        error_code: codes::MEMBER_ID_REQUIRED,
                        member_id,
                        ..Joined::default()
                    })
                } else {
                    let error_code = self.refusal(node, &id, None);
                    if error_code == 0 {
                        self.prepare(now);
                        let member = self.members.get_mut(&id).unwrap();
                        member.parked = Some(route);
                        member.seen = now;
                        member.subscription = encode_subscription(&join.subscription);
                        return self.advance(now);
                    }
                    Response::Joined(Joined {
                        error_code,
                        ..Joined::default()
                    })
                }
            }
            Request::Sync {
                member,
                assignments,
                ..
            } => {
                let code = self.refusal(node, &member.member_id, Some(member.epoch));
                match self.state {
                    _ if code != 0 => Response::Synced(code, Vec::new()),
                    State::Preparing(_) => {
                        Response::Synced(codes::REBALANCE_IN_PROGRESS, Vec::new())
                    }
                    State::Stable => {
                        Response::Synced(0, self.members[&member.member_id].assigned.clone())
                    }
                    State::Completing => {
                        self.members.get_mut(&member.member_id).unwrap().parked = Some(route);
                        return self.assign(assignments, now);
                    }
                }
            }
            Request::ClassicHeartbeat(member) => {
                let code = self.refusal(node, &member.member_id, Some(member.epoch));
                if let Some(known) = self.members.get_mut(&member.member_id) {
                    known.seen = now;
                }
                let is_preparing = code == 0 && matches!(self.state, State::Preparing(_));
                Response::Code(if is_preparing {
                    codes::REBALANCE_IN_PROGRESS
                } else {
                    code
                })
            }
            Request::Leave(member) => {
                if node == self.node && self.members.remove(&member.member_id).is_some() {
                    self.prepare(now);
                }
                Response::Code(0)
            }
            other => panic!("{other:?}"),
        };
        self.answers.push((route, response));
    }

    fn assign(&mut self, assignments: Vec<(String, Vec<Place>)>, now: Millis) {
        if assignments.is_empty() {
            return;
        }
        let mut all = BTreeSet::new();
        for (id, places) in assignments {
            assert!(places.iter().all(|place| all.insert(place.clone())));
            if let Some(member) = self.members.get_mut(&id) {
                member.assigned = places;
            }
        }
        self.state = State::Stable;
        for member in self.members.values_mut() {
            member.seen = now;
            if let Some(route) = member.parked.take() {
                let response = Response::Synced(0, member.assigned.clone());
                self.answers.push((route, response));
            }
        }
    }

    /// Ends sessions, and a rebalance that has all members or no time left.
    fn advance(&mut self, now: Millis) {
        let before = self.members.len();
        let is_alive = |member: &Known| member.parked.is_some() || now < member.seen + SESSION_MS;
        self.members.retain(|_, member| is_alive(member));
        if self.members.len() < before {
            self.prepare(now);
        }
        let State::Preparing(deadline) = self.state else {
            return;
        };
        if now >= deadline {
            self.members.retain(|_, member| member.parked.is_some());
        }
        if self.members.is_empty() || self.members.values().any(|m| m.parked.is_none()) {
            return;
        }
        self.generation += 1;
        self.state = State::Completing;
        let members: Vec<JoinedMember> = self
            .members
            .iter()
            .map(|(id, member)| JoinedMember {
                id: id.clone(),
                instance_id: None,
                subscription: member.subscription.clone(),
            })
            .collect();
        let leader = members[0].id.clone();
        for (id, member) in &mut self.members {
            member.assigned.clear();
            member.seen = now;
            let is_leader = *id == leader;
            let joined = Joined {
                generation: self.generation,
                assignor: String::new(), // set by the world
                leader: leader.clone(),
                member_id: id.clone(),
                members: if is_leader {
                    members.clone()
                } else {
                    Vec::new()
                },
                ..Joined::default()
            };
            let route = member.parked.take().unwrap();
            self.answers.push((route, Response::Joined(joined)));
        }
    }
}

enum Happening {
    Arrive(NodeId, Route, Request),
    Answer(Route, Response),
    Connected(usize, NodeId, u64),
    Done(usize, u64, Change),
}

struct World {
    random: Random,
    now: Millis,
    assignor: Assignor,
    group: Group,
    consumers: Vec<Consumer>,
    /// What each program has.
    held: Vec<BTreeSet<Place>>,
    links: BTreeMap<(usize, NodeId), u64>,
    made: u64,
    happenings: BTreeMap<(Millis, u64), Happening>,
    /// The member that had a partition in a generation.
    owners: BTreeMap<(i32, Place), String>,
}

impl World {
    fn new(seed: u64, assignor: Assignor) -> Self {
        let address = Address {
            host: "a".to_owned(),
            port: 1,
        };
        let settings = ConsumerSettings {
            classic: Some(ClassicSettings {
                assignors: vec![assignor],
                session_timeout_ms: SESSION_MS as i32,
                heartbeat_interval_ms: 1_000,
            }),
            ..super::tests::settings()
        };
        let make = |_| {
            let mut consumer = Consumer::new(std::slice::from_ref(&address), settings.clone());
            let subscription = Subscription {
                topics: vec!["t".to_owned()],
                pattern: None,
            };
            consumer.subscribe(subscription, 1);
            consumer
        };
        Self {
            random: Random(seed * 2 + 1),
            now: 1,
            assignor,
            group: Group::default(),
            consumers: (0..MEMBERS).map(make).collect(),
            held: vec![BTreeSet::new(); MEMBERS],
            links: BTreeMap::new(),
            made: 0,
            happenings: BTreeMap::new(),
            owners: BTreeMap::new(),
        }
    }

    fn later(&mut self, what: Happening) {
        self.made += 1;
        let delay = 1 + self.random.below(40);
        self.happenings.insert((self.now + delay, self.made), what);
    }

    fn run(&mut self, until: Millis, cuts_permille: u64) {
        while self.now < until {
            self.now += 5;
            while let Some(entry) = self.happenings.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let what = entry.remove();
                self.happen(what);
            }
            if self.random.below(20_000) < cuts_permille {
                self.group.node = 1 - self.group.node;
            }
            self.group.advance(self.now);
            for (route, response) in std::mem::take(&mut self.group.answers) {
                self.later(Happening::Answer(route, response));
            }
            for index in 0..MEMBERS {
                self.step(index, cuts_permille);
            }
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Arrive(node, route, request) => {
                self.group.carry_out(node, route, request, self.now);
            }
            Happening::Answer((index, node, link, id), mut response) => {
                if self.links.get(&(index, node)) == Some(&link) {
                    if let Response::Joined(joined) = &mut response {
                        joined.assignor = self.assignor.name().to_owned();
                    }
                    self.consumers[index].answered(id, Ok(response), self.now);
                }
            }
            Happening::Connected(index, node, link) => {
                if self.links.get(&(index, node)) == Some(&link) {
                    self.consumers[index].connected(node, (0, 0));
                }
            }
            Happening::Done(index, number, change) => {
                match change {
                    Change::Assign(places) => self.held[index].extend(places),
                    Change::Revoke(places) | Change::Lost(places) => {
                        self.held[index].retain(|place| !places.contains(place));
                    }
                }
                self.consumers[index].event_done(number);
            }
        }
    }

    fn step(&mut self, index: usize, cuts_permille: u64) {
        let mut effects = Vec::new();
        self.consumers[index].note_poll(true, self.now);
        self.consumers[index].poll(self.now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Connect { node, .. } => {
                    self.made += 1;
                    self.links.insert((index, node), self.made);
                    self.later(Happening::Connected(index, node, self.made));
                }
                Effect::Close { node } => _ = self.links.remove(&(index, node)),
                Effect::Send { node, id, request } => {
                    self.send(index, node, id, request, cuts_permille);
                }
            }
        }
        if let Some((number, change)) = self.consumers[index].take_event() {
            self.later(Happening::Done(index, number, change));
        }
        assert!(self.consumers[index].take_report().is_none());
        let member = self.consumers[index].membership();
        for place in self.held[index].iter().filter(|_| member.epoch > 0) {
            let owner = self.owners.entry((member.epoch, place.clone()));
            let owner = owner.or_insert_with(|| member.member_id.clone());
            assert_eq!(*owner, member.member_id, "{place:?} in {}", member.epoch);
        }
    }

    fn send(&mut self, index: usize, node: NodeId, id: u64, request: Request, cuts: u64) {
        let Some(&link) = self.links.get(&(index, node)) else {
            return; // it was cut by the request before
        };
        let route = (index, node, link, id);
        let broker = |id| BrokerAddress {
            id,
            host: "a".to_owned(),
            port: 1,
        };
        let is_cut = self.random.below(1_000) < cuts;
        let arrives = !is_cut || self.random.below(2) == 0;
        match request {
            Request::Metadata { .. } => {
                let metadata = Metadata {
                    brokers: vec![broker(0), broker(1)],
                    controller: 0,
                    topics: vec![TopicMetadata {
                        error_code: 0,
                        name: "t".to_owned(),
                        id: None,
                        is_internal: false,
                        partitions: (0..PARTITIONS).map(|p| (0, p, 0)).collect(),
                    }],
                };
                self.later(Happening::Answer(route, Response::Metadata(metadata)));
            }
            Request::FindCoordinator { .. } => {
                let found = Response::Coordinator(Ok(broker(self.group.node)));
                self.later(Happening::Answer(route, found));
            }
            _ if arrives => self.later(Happening::Arrive(node % LANE, route, request)),
            _ => {}
        }
        if is_cut {
            self.links.remove(&(index, node));
            let error = KafkaError::unreachable("a", "was lost", &"cut");
            self.consumers[index].disconnected(node, &error, self.now);
        }
    }
}

fn play(seed: u64, assignor: Assignor) {
    let mut world = World::new(seed, assignor);
    world.run(40_000, 60);
    world.run(80_000, 0);
    let generation = world.group.generation;
    let mut all = BTreeSet::new();
    for (consumer, held) in world.consumers.iter().zip(&world.held) {
        assert_eq!(consumer.membership().epoch, generation, "seed {seed}");
        assert_eq!(held.len(), PARTITIONS as usize / MEMBERS, "seed {seed}");
        all.extend(held.iter().cloned());
    }
    assert_eq!(all.len(), PARTITIONS as usize, "seed {seed}");
    assert_eq!(world.group.state, State::Stable, "seed {seed}");
}

#[test]
fn eager_members_settle_and_share_no_partition_in_a_generation() {
    (0..12).for_each(|seed| play(seed, Assignor::Range));
}

#[test]
fn cooperative_members_settle_and_share_no_partition_in_a_generation() {
    (0..12).for_each(|seed| play(seed, Assignor::CooperativeSticky));
}
