//! Connections as the machines see them, and the requests in flight on each.

use std::collections::BTreeMap;

use super::settings::backoff;
use super::{Effect, Millis, NodeId, Request};
use crate::connection::Address;
use crate::error::KafkaError;
use crate::messages::cluster::BrokerAddress;

const RECONNECT_FIRST_MS: Millis = 50;

/// Ids of nodes are below this number. Multiples of it are added to a node's id for more connections
/// to the same node, because a node answers the requests of a connection one after the other.
pub(crate) const LANE: NodeId = 1 << 29;
/// The connection for `JoinGroup` and `SyncGroup`, whose answers wait for other members.
pub(crate) const JOINER: NodeId = LANE;
/// The connection for `Fetch`, whose answers wait for records.
pub(crate) const FETCHER: NodeId = 2 * LANE;
/// The connection for a `Fetch` that must not wait for the one in flight: after a seek.
pub(crate) const SEEKER: NodeId = LANE + FETCHER;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Idle,
    Connecting,
    Ready,
}

#[derive(Debug)]
struct Node {
    address: Address,
    link: Link,
    failures: u32,
    connect_at: Millis,
    in_flight: usize,
    produces: usize,
    error: Option<KafkaError>,
}

/// A request that waits for its answer, and its purpose.
#[derive(Debug)]
pub(crate) struct InFlight<P> {
    pub(crate) node: NodeId,
    pub(crate) purpose: P,
    deadline: Millis,
    is_produce: bool,
}

impl<P> InFlight<P> {
    /// A request whose answer was of no use.
    pub(crate) fn again(node: NodeId, purpose: P) -> Self {
        Self {
            node,
            purpose,
            deadline: 0,
            is_produce: false,
        }
    }
}

/// The nodes, and the requests in flight with a purpose each.
#[derive(Debug)]
pub(crate) struct Nodes<P> {
    by_id: BTreeMap<NodeId, Node>,
    in_flight: BTreeMap<u64, InFlight<P>>,
    next_id: u64,
    turn: usize,
    /// (epoch, level of `transaction.version`) of the finalized features, the newest seen.
    features: (i64, i16),
    has_connected: bool,
    request_timeout_ms: Millis,
}

impl<P> Nodes<P> {
    pub(crate) fn new(bootstrap: &[Address], request_timeout_ms: Millis) -> Self {
        let numbered = bootstrap.iter().zip((NodeId::MIN..0).rev());
        Self {
            by_id: numbered
                .map(|(address, id)| (id, Node::new(address.clone())))
                .collect(),
            in_flight: BTreeMap::new(),
            next_id: 0,
            turn: 0,
            features: (-1, 0),
            has_connected: false,
            request_timeout_ms,
        }
    }

    /// True if the cluster has finalized transaction version 2.
    pub(crate) fn is_v2(&self) -> bool {
        self.features.0 >= 0 && self.features.1 >= 2
    }

    /// True once a node was reached.
    pub(crate) fn has_connected(&self) -> bool {
        self.has_connected
    }

    /// Addresses, and why each could not be reached.
    pub(crate) fn errors(&self) -> Vec<(Address, KafkaError)> {
        let failed = |node: &Node| Some((node.address.clone(), node.error.clone()?));
        self.by_id.values().filter_map(failed).collect()
    }

    /// The form of a node in messages.
    pub(crate) fn name(&self, id: NodeId) -> String {
        self.by_id
            .get(&id)
            .map_or_else(|| format!("node {id}"), |n| format!("node {}", n.address))
    }

    /// Learns where a node listens; one that has moved is connected to anew.
    pub(crate) fn learn(&mut self, broker: &BrokerAddress, effects: &mut Vec<Effect>) -> bool {
        let address = Address {
            host: broker.host.clone(),
            port: broker.port,
        };
        match self.by_id.get_mut(&broker.id) {
            Some(node) if node.address == address => false,
            Some(node) => {
                let was_used = node.link != Link::Idle;
                if was_used {
                    effects.push(Effect::Close { node: broker.id });
                }
                node.address = address;
                was_used
            }
            None => {
                self.by_id.insert(broker.id, Node::new(address));
                false
            }
        }
    }

    /// True if requests can be sent to the node; else has it connected once its back-off is over.
    pub(crate) fn ready(&mut self, id: NodeId, now: Millis, effects: &mut Vec<Effect>) -> bool {
        let Some(node) = self.by_id.get_mut(&id) else {
            return false;
        };
        if node.link == Link::Idle && node.connect_at <= now {
            node.link = Link::Connecting;
            effects.push(Effect::Connect {
                node: id,
                address: node.address.clone(),
            });
        }
        node.link == Link::Ready
    }

    pub(crate) fn produces(&self, id: NodeId) -> usize {
        self.by_id.get(&id).map_or(0, |node| node.produces)
    }

    /// Any node that can be sent to; if there is none, has one connected.
    pub(crate) fn any(&mut self, now: Millis, effects: &mut Vec<Effect>) -> Option<NodeId> {
        let mut ready: Vec<NodeId> = self.with(|node| node.link == Link::Ready);
        // Brokers by their ids are newer knowledge than bootstrap servers.
        if ready.iter().any(|&id| id >= 0) {
            ready.retain(|&id| id >= 0);
        }
        self.turn += 1;
        if !ready.is_empty() {
            return Some(ready[self.turn % ready.len()]);
        }
        if self
            .by_id
            .iter()
            .any(|(&id, node)| id < LANE && node.link == Link::Connecting)
        {
            return None;
        }
        let mut due = self.with(|node| node.connect_at <= now);
        if due.iter().any(|&id| id >= 0) && !self.turn.is_multiple_of(4) {
            due.retain(|&id| id >= 0);
        }
        let id = *due.get(self.turn % due.len().max(1))?;
        self.ready(id, now, effects);
        None
    }

    fn with(&self, is_wanted: impl Fn(&Node) -> bool) -> Vec<NodeId> {
        let nodes = self.by_id.iter();
        let nodes = nodes.filter(|&(&id, node)| id < LANE && is_wanted(node));
        nodes.map(|(&id, _)| id).collect()
    }

    /// Sends a request to a node that is ready.
    pub(crate) fn send(
        &mut self,
        id: NodeId,
        request: Request,
        purpose: P,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) {
        self.send_until(id, request, purpose, now + self.request_timeout_ms, effects);
    }

    /// Like `send`, for a request whose answer has time until `deadline`.
    pub(crate) fn send_until(
        &mut self,
        id: NodeId,
        request: Request,
        purpose: P,
        deadline: Millis,
        effects: &mut Vec<Effect>,
    ) {
        self.next_id += 1;
        let node = self.by_id.get_mut(&id).expect("it is ready");
        let is_produce = matches!(request, Request::Produce { .. });
        node.in_flight += 1;
        node.produces += usize::from(is_produce);
        let in_flight = InFlight {
            node: id,
            purpose,
            deadline,
            is_produce,
        };
        self.in_flight.insert(self.next_id, in_flight);
        effects.push(Effect::Send {
            node: id,
            id: self.next_id,
            request,
        });
    }

    pub(crate) fn connected(&mut self, id: NodeId, features: (i64, i16)) {
        self.has_connected = true;
        self.features = self.features.max(features);
        if let Some(node) = self.by_id.get_mut(&id) {
            node.link = Link::Ready;
            node.error = None;
        }
    }

    /// Forgets a connection; returns the requests that will have no answer.
    pub(crate) fn disconnected(
        &mut self,
        id: NodeId,
        error: KafkaError,
        now: Millis,
    ) -> Vec<InFlight<P>> {
        let Some(node) = self.by_id.get_mut(&id) else {
            return Vec::new();
        };
        node.link = Link::Idle;
        (node.in_flight, node.produces) = (0, 0);
        node.failures += 1;
        node.connect_at = now + backoff(RECONNECT_FIRST_MS, node.failures);
        node.error = Some(error);
        let of_node = |(number, of): (&u64, &InFlight<P>)| (of.node == id).then_some(*number);
        let lost: Vec<u64> = self.in_flight.iter().filter_map(of_node).collect();
        lost.iter()
            .filter_map(|number| self.in_flight.remove(number))
            .collect()
    }

    /// Takes a request whose answer has come; None if nobody waits for it any more.
    pub(crate) fn answered(&mut self, number: u64) -> Option<InFlight<P>> {
        let in_flight = self.in_flight.remove(&number)?;
        let node = self.by_id.get_mut(&in_flight.node)?;
        node.in_flight -= 1;
        node.produces -= usize::from(in_flight.is_produce);
        node.failures = 0;
        Some(in_flight)
    }

    /// The nodes that owe an answer for too long.
    pub(crate) fn silent(&self, now: Millis) -> Vec<NodeId> {
        let late = self.in_flight.values().filter(|of| of.deadline <= now);
        let mut nodes: Vec<NodeId> = late.map(|of| of.node).collect();
        nodes.dedup();
        nodes
    }

    /// When something here is next due: an answer, or the end of a back-off.
    pub(crate) fn deadline(&self, now: Millis) -> Option<Millis> {
        let answers = self.in_flight.values().map(|of| of.deadline);
        let idle = self.by_id.values().filter(|n| n.link == Link::Idle);
        let backoffs = idle.map(|n| n.connect_at).filter(|&at| at > now);
        answers.chain(backoffs).min()
    }
}

impl Node {
    fn new(address: Address) -> Self {
        Self {
            address,
            link: Link::Idle,
            failures: 0,
            connect_at: 0,
            in_flight: 0,
            produces: 0,
            error: None,
        }
    }
}
