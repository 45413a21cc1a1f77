//! Sockets: the Kafka protocol's frames, and Produce and Fetch from socket to segment and back.
//!
//! ```text
//!  socket ─► connection ─► frame ─┬─► produce ─► PartitionLog::append ─► (purgatory) ─┐
//!     ▲                           ├─► fetch ─► (purgatory) ─► segment file            │
//!     │                           └─► control ─► Python ─► mailbox ─┐                 │
//!     └─────────── one answer at a time per connection ◄────────────┴─────────────────┘
//! ```
//!
//! [`Server`] is all of it from outside. Threads enter [`Server::run_reactor`] and stay; a
//! connection belongs to one reactor, or is on its way to another, so its state needs no lock.
//! Other threads reach a reactor through its mailbox alone. A request on its way to Python need not
//! change threads, see `control_lock`.
#![forbid(unsafe_code)]

mod acceptor;
mod access;
mod adaptive_spin;
mod authentication;
mod catalog;
mod chunk;
mod connection;
mod connection_quotas;
mod control;
mod control_lock;
mod delayed_produce;
mod fetch;
mod forced_producers;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod kept_produce;
mod listener;
mod mailbox;
mod memory;
mod metrics;
mod node;
mod opener;
mod options;
mod panics;
mod partition;
mod partition_limit;
mod presence;
mod produce;
mod purgatory;
mod quotas;
mod reactor;
mod server;
mod settler;
mod shared;
mod signal;
#[cfg(test)]
mod test_logs;
mod tls;
mod token;
mod transport;
mod transport_step;
mod turn;
mod waiting;

pub use access::{Action, Ask};
pub use authentication::{ANONYMOUS, Attachment};
pub use catalog::{LogOf, Topic, TopicId};
pub use connection_quotas::{ConnectionLimits, CreationRates, ListenerLimits};
pub use control::{
    ControlRequest, Decide, FailedHandshake, FatalRequest, Fault, ParkedProduce, RefusedConnection,
};
pub use fetch::SessionSnapshot;
pub use listener::{BindError, Listener, ListenerOptions, SecurityProtocol};
pub use metrics::{ApiSnapshot, ListenerSnapshot, Snapshot, SocketSnapshot, TlsSnapshot};
pub use node::NodeEndpoint;
pub use options::{FETCH_VERSIONS, Options, PRODUCE_VERSIONS};
pub use partition::ReplicaState;
pub use presence::Presence;
pub use produce::{Join, Refused};
pub use quotas::{ClientQuota, EntityName, QuotaClient, QuotaKind, ThrottledSnapshot, Window};
pub use server::Server;
pub use settler::{Bell, Settler};
pub use tls::{
    CertificateIdentity, ClientAuth, FailureReason, HandshakeError, PrincipalOf, TlsListener,
    TlsOptions, TlsOptionsError,
};
pub use token::RequestToken;
