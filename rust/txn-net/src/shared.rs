//! The state that all reactors share, and that the server and Python use too.

use std::sync::{Arc, OnceLock};

use txn_log::Durability;
use txn_log::histogram::Counter;

use crate::access::Access;
use crate::catalog::Catalog;
use crate::connection_quotas::ConnectionQuotas;
use crate::control::{ControlQueue, Decider};
use crate::control_lock::ControlLock;
use crate::fetch::FetchSessions;
use crate::forced_producers::ForcedProducers;
use crate::listener::Listener;
use crate::mailbox::Mailbox;
use crate::memory::RequestMemory;
use crate::metrics::{ListenerMetrics, ReactorMetrics};
use crate::node::NodeEndpoint;
use crate::opener::Opener;
use crate::options::Options;
use crate::quotas::Quotas;
use crate::settler::Settler;

/// The reactor that serves connections for which Python has to decide.
pub const DECIDING: usize = 0;

/// The common state of all reactors.
pub struct Shared {
    pub options: Options,
    pub listeners: Vec<Listener>,
    pub catalog: Arc<Catalog>,
    pub fetch_sessions: Arc<FetchSessions>,
    pub access: Access,
    pub client_quotas: Quotas,
    pub control: Arc<ControlQueue>,
    pub control_lock: ControlLock,
    pub decider: OnceLock<Decider>,
    pub settler: OnceLock<Settler>,
    pub durability: Arc<Durability>,
    pub opener: Opener,
    pub forced: ForcedProducers,
    pub mailboxes: Vec<Arc<Mailbox>>,
    pub memory: Arc<RequestMemory>,
    pub quotas: Arc<ConnectionQuotas>,
    /// One for each listener.
    pub listener_metrics: Box<[ListenerMetrics]>,
    /// Connections closed for a request before authentication, or after their session.
    pub unauthenticated_connections: Counter,
    pub expired_connections: Counter,
    /// This node's address on each listener, once it is told.
    pub endpoints: OnceLock<Vec<NodeEndpoint>>,
    /// The principal of every connection that has not authenticated.
    pub anonymous: Arc<str>,
    /// One for each reactor.
    pub metrics: Vec<ReactorMetrics>,
}
