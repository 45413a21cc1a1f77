//! A producer against a model cluster, over a network that loses, delays and cuts.
//!
//! One seed is one history. Requests of a cut connection may still arrive, later than those of the
//! next connection. Answers of one connection keep their order, as TCP does; of several, nothing.

mod cluster;
mod marker_tests;
mod markers;
mod tests;

use std::collections::BTreeMap;

use super::accumulator::Record;
use super::{Effect, Millis, NodeId, Producer, Request, Response, SendError, Settings, Status};
use crate::connection::Address;
use crate::error::KafkaError;
use cluster::Cluster;
use markers::Markers;

/// A generator of numbers that depend on the seed alone (splitmix64).
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn happens(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
}

#[derive(Debug)]
enum Event {
    Connect {
        node: NodeId,
        link: u64,
    },
    /// A request arrives at its node, whether the connection is still there or not.
    Arrive {
        link: u64,
        node: NodeId,
        id: u64,
        request: Request,
    },
    Answer {
        link: u64,
        id: u64,
        response: Response,
    },
    /// The producer hears that its connection is gone.
    Cut {
        link: u64,
    },
    Restart {
        node: NodeId,
    },
}

#[derive(Debug)]
struct Link {
    node: NodeId,
    /// When the last request arrives, and the last answer: both keep their order.
    arrives: Millis,
    answers: Millis,
}

/// How bad the network and the nodes are, in 1,000 requests.
#[derive(Clone, Copy, Debug)]
struct Faults {
    /// A connection is cut, before a request or after it was carried out.
    cuts: u64,
    /// Leaders and coordinators move.
    moves: u64,
    /// A node stops, and restarts.
    stops: u64,
    refusals: u64,
}

#[derive(Debug)]
struct World {
    random: Random,
    now: Millis,
    producer: Producer,
    cluster: Cluster,
    faults: Faults,
    /// By time, and then by the order in which they were made.
    events: BTreeMap<(Millis, u64), Event>,
    made: u64,
    links: BTreeMap<u64, Link>,
    /// Longest way of a request, and of an answer, in ms.
    way_max: Millis,
    markers: Markers,
}

impl World {
    fn new(seed: u64, is_v2: bool, settings: Settings, faults: Faults) -> Self {
        let bootstrap: Vec<Address> = (1..=3)
            .map(|node| Address {
                host: format!("n{node}"),
                port: 9092,
            })
            .collect();
        let mut cluster = Cluster::new(is_v2, &[("a", 3), ("b", 2)]);
        cluster.refusals = faults.refusals;
        Self {
            random: Random(seed),
            now: 1_000,
            producer: Producer::new(&bootstrap, settings),
            cluster,
            faults,
            events: BTreeMap::new(),
            made: 0,
            links: BTreeMap::new(),
            way_max: 15,
            markers: Markers::default(),
        }
    }

    fn at(&mut self, time: Millis, event: Event) {
        self.made += 1;
        self.events.insert((time, self.made), event);
    }

    /// The real node: a bootstrap address counts down from -1.
    fn real(node: NodeId) -> NodeId {
        if node < 0 { -node } else { node }
    }

    /// Lets the producer act, and carries its effects out.
    fn act(&mut self) {
        let mut effects = Vec::new();
        self.producer.poll(self.now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Connect { node, .. } => {
                    let link = self.made + 1;
                    let at = self.now + 1 + self.random.below(20);
                    self.at(at, Event::Connect { node, link });
                }
                Effect::Close { node } => self.links.retain(|_, link| link.node != node),
                Effect::Send { node, id, request } => self.send(node, id, request),
            }
        }
    }

    fn send(&mut self, node: NodeId, id: u64, request: Request) {
        let Some((&number, link)) = self.links.iter_mut().find(|(_, link)| link.node == node)
        else {
            return; // it was cut: the producer hears of that
        };
        let is_cut = self.random.happens(self.faults.cuts);
        let delay = 1 + self.random.below(self.way_max);
        link.arrives = link.arrives.max(self.now + delay);
        let mut arrives = link.arrives;
        if is_cut {
            let cut = self.now + 1 + self.random.below(30);
            self.at(cut, Event::Cut { link: number });
            match self.random.below(3) {
                0 => return,                                 // lost
                1 => arrives = cut + self.random.below(400), // late: after the connection has gone
                _ => {}
            }
            if arrives > cut && matches!(request, Request::InitProducerId { .. }) {
                return; // a late one fences its own sender, in every version
            }
        }
        self.at(
            arrives,
            Event::Arrive {
                link: number,
                node,
                id,
                request,
            },
        );
    }

    /// Carries out the next event, or lets time pass until the producer's deadline.
    fn advance(&mut self) {
        self.act();
        let due = self.producer.deadline(self.now);
        let next = self.events.first_key_value().map(|(&(time, _), _)| time);
        match (next, due) {
            (Some(time), Some(due)) if due < time => self.now = due.max(self.now + 1),
            (Some(time), _) => {
                self.now = self.now.max(time);
                let (_, event) = self.events.pop_first().expect("there is one");
                self.carry_out(event);
            }
            (None, Some(due)) => self.now = due.max(self.now + 1),
            (None, None) => panic!("nothing will ever happen again: {:?}", self.producer),
        }
        self.act();
    }

    fn carry_out(&mut self, event: Event) {
        match event {
            Event::Connect { node, link } => {
                if self.cluster.down.contains(&Self::real(node)) {
                    let error = unreachable(node);
                    self.producer.disconnected(node, &error, self.now);
                    return;
                }
                let now = self.now;
                self.links.insert(
                    link,
                    Link {
                        node,
                        arrives: now,
                        answers: now,
                    },
                );
                let level = if self.cluster.is_v2 { 2 } else { 1 };
                self.producer.connected(node, (1, level));
            }
            Event::Arrive {
                link,
                node,
                id,
                request,
            } => {
                self.disturb();
                if self.cluster.down.contains(&Self::real(node)) {
                    return;
                }
                let (refusal, kept_ms) = self.markers.meet(&request, self.now);
                let node = Self::real(node);
                let response = refusal
                    .unwrap_or_else(|| self.cluster.handle(node, &request, &mut self.random));
                let delay = 1 + kept_ms + self.random.below(self.way_max);
                if let Some(of) = self.links.get_mut(&link) {
                    of.answers = of.answers.max(self.now + delay);
                    let at = of.answers;
                    self.at(at, Event::Answer { link, id, response });
                }
            }
            Event::Answer { link, id, response } => {
                if self.links.contains_key(&link) {
                    self.producer.answered(id, Ok(response), self.now);
                }
            }
            Event::Cut { link } => self.cut(link),
            Event::Restart { node } => {
                self.cluster.down.remove(&node);
            }
        }
    }

    fn cut(&mut self, link: u64) {
        if let Some(link) = self.links.remove(&link) {
            let error = unreachable(link.node);
            self.producer.disconnected(link.node, &error, self.now);
        }
    }

    fn disturb(&mut self) {
        if self.random.happens(self.faults.moves) {
            let node = 1 + self.random.below(3) as i32;
            self.cluster.move_from(node, &mut self.random);
        }
        if self.random.happens(self.faults.stops) && self.cluster.down.is_empty() {
            let node = 1 + self.random.below(3) as i32;
            self.stop(node, 50 + self.random.0 % 3_000);
        }
    }

    fn stop(&mut self, node: NodeId, for_ms: Millis) {
        self.cluster.down.insert(node);
        self.cluster.move_from(node, &mut self.random);
        let of_node: Vec<u64> = self
            .links
            .iter()
            .filter(|(_, l)| Self::real(l.node) == node)
            .map(|(&n, _)| n)
            .collect();
        for link in of_node {
            self.cut(link);
        }
        self.at(self.now + for_ms, Event::Restart { node });
    }

    /// Runs until the condition holds.
    ///
    /// Panics if that takes longer than `within_ms`.
    fn run_until(&mut self, within_ms: Millis, what: &str, is_done: impl Fn(&Producer) -> bool) {
        let end = self.now + within_ms;
        self.act();
        while !is_done(&self.producer) {
            assert!(self.now < end, "{what} hangs: {:?}", self.producer);
            self.advance();
        }
    }

    fn write(&mut self, topic: &str, partition: i32, value: &str) -> Result<bool, SendError> {
        let record = Record {
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
            timestamp_ms: 1,
            delivery: None,
        };
        self.producer
            .send(topic, Some(partition), &record, self.now)
    }
}

fn unreachable(node: NodeId) -> KafkaError {
    KafkaError::unreachable(
        &format!("node {node}"),
        "was lost",
        &"the simulation cut it",
    )
}
