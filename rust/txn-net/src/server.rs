//! The server: its listeners, its reactors, and the interface between them and Python.

use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use mio::Poll;
use txn_log::Durability;
use txn_log::histogram::Counter;
use txn_protocol::Put;
use txn_protocol::codes;
use txn_protocol::frame::{LENGTH_BYTES, begin_response, set_length};

use crate::access::{Access, Ask};
use crate::authentication::{ANONYMOUS, Attachment};
use crate::catalog::{Catalog, Topic, TopicKey};
use crate::connection_quotas::{ConnectionLimits, ConnectionQuotas, CreationRates};
use crate::control::{
    ControlQueue, ControlRequest, Decide, Decider, FailedHandshake, FatalRequest, ParkedProduce,
    RefusedConnection,
};
use crate::control_lock::ControlLock;
use crate::fetch::FetchSessions;
use crate::forced_producers::ForcedProducers;
use crate::listener::{BindError, Listener, ListenerOptions, SecurityProtocol};
use crate::mailbox::{self, Message};
use crate::memory::{Claim, RequestMemory};
use crate::metrics::{ListenerMetrics, ReactorMetrics, Snapshot, TlsSnapshot};
use crate::node::NodeEndpoint;
use crate::opener::Opener;
use crate::options::Options;
use crate::panics::panic_text;
use crate::partition::ReplicaState;
use crate::produce::Refused;
use crate::quotas::{ClientQuota, QuotaClient, Quotas, Window};
use crate::reactor::{MAILBOX, Reactor};
use crate::settler::{Bell, Settler};
use crate::shared::{DECIDING, Shared};
use crate::signal::{Notify, Signal};
use crate::token::RequestToken;

/// Listening sockets, and the reactors that serve their connections. Every method may be called from any thread.
pub struct Server {
    shared: Arc<Shared>,
    /// The reactors that no thread runs yet.
    reactors: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    reactors: Vec<Option<Reactor>>,
    is_stopped: bool,
}

impl Server {
    /// Binds and listens; connections are accepted once reactor 0 runs. Answers that wait for the
    /// disk wait at `durability`.
    ///
    /// # Errors
    /// An address cannot be resolved or is taken, or an option is out of range.
    pub fn bind(
        listeners: &[ListenerOptions],
        options: Options,
        durability: Arc<Durability>,
    ) -> Result<Self, BindError> {
        options.check()?;
        let bound: Vec<_> = listeners
            .iter()
            .map(Listener::bind)
            .collect::<Result<_, _>>()?;
        let (listeners, mut sockets): (Vec<_>, Vec<_>) = bound.into_iter().unzip();
        let polls: Vec<_> = (0..options.reactors)
            .map(|_| Poll::new())
            .collect::<io::Result<_>>()?;
        let mailboxes: Vec<_> = polls
            .iter()
            .map(|poll| mailbox::open(poll, MAILBOX).map(Arc::new))
            .collect::<io::Result<_>>()?;
        let metrics = polls
            .iter()
            .map(|_| ReactorMetrics::new(listeners.len()))
            .collect();
        let control = Arc::new(ControlQueue::new()?);
        let reactors = mailboxes
            .iter()
            .map(|one| Arc::clone(one) as Arc<dyn Notify>);
        let reactors = reactors.collect();
        let memory = RequestMemory::new(options.max_queued_bytes, reactors, &control);
        let acceptor = Arc::clone(&mailboxes[0]);
        let quotas = ConnectionQuotas::new(options.max_connections, listeners.len(), acceptor);
        let listener_metrics = listeners
            .iter()
            .map(|_| ListenerMetrics::default())
            .collect();
        let catalog = Arc::<Catalog>::default();
        let fetch_sessions = FetchSessions::new(Arc::clone(&catalog), options.max_fetch_sessions);
        let shared = Arc::new(Shared {
            durability,
            opener: Opener::new(options.reactors),
            forced: ForcedProducers::default(),
            options,
            listeners,
            catalog,
            fetch_sessions: Arc::new(fetch_sessions),
            access: Access::default(),
            client_quotas: Quotas::default(),
            control,
            control_lock: ControlLock::default(),
            decider: OnceLock::new(),
            settler: OnceLock::new(),
            mailboxes,
            memory: Arc::new(memory),
            quotas: Arc::new(quotas),
            listener_metrics,
            unauthenticated_connections: Counter::default(),
            expired_connections: Counter::default(),
            endpoints: OnceLock::new(),
            anonymous: ANONYMOUS.into(),
            metrics,
        });
        let reactors = polls
            .into_iter()
            .enumerate()
            .map(|(index, poll)| {
                Some(Reactor::new(
                    index,
                    poll,
                    Arc::clone(&shared),
                    std::mem::take(&mut sockets),
                ))
            })
            .collect();
        Ok(Self {
            shared,
            reactors: Mutex::new(Idle {
                reactors,
                is_stopped: false,
            }),
        })
    }

    /// Its listeners; connections and requests name them by index.
    #[must_use]
    pub fn listeners(&self) -> &[Listener] {
        &self.shared.listeners
    }

    /// Readable while `take`, `take_joins`, `take_failures`, `take_failed_handshakes`,
    /// `take_refused` or `take_fatal_requests` has something, or there is room for answers again.
    #[must_use]
    pub fn wakeup_fd(&self) -> BorrowedFd<'_> {
        self.shared.control.wakeup_fd()
    }

    /// Runs a reactor on the calling thread until `stop`.
    ///
    /// # Errors
    /// There is no such reactor, or a thread runs or ran it already. Or epoll failed, or a bug
    /// broke the reactor off: its connections are closed, and the server is stopped.
    pub fn run_reactor(&self, index: usize) -> io::Result<()> {
        txn_sys::block_sigpipe();
        let mut idle = self.idle();
        let reactor = idle.reactors.get_mut(index).and_then(Option::take);
        let is_stopped = idle.is_stopped;
        drop(idle);
        match reactor {
            Some(reactor) => {
                let ran = catch_unwind(AssertUnwindSafe(|| reactor.run()));
                let ended = ran.unwrap_or_else(|panic| Err(io::Error::other(panic_text(&*panic))));
                self.retire(index);
                ended.map_err(|error| {
                    self.stop();
                    io::Error::new(error.kind(), format!("reactor {index} broke off: {error}"))
                })
            }
            None if is_stopped => Ok(()), // `stop` was faster than the thread
            None => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "reactor {index} cannot be run: there are {}, and each runs once",
                    self.shared.mailboxes.len()
                ),
            )),
        }
    }

    /// Nobody runs a reactor any more.
    fn retire(&self, index: usize) {
        self.shared.mailboxes[index].close();
        if index == DECIDING
            && let Some(settler) = self.shared.settler.get()
        {
            (settler.leave)(); // a bell may have rung unheard
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.reactors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the address that clients of each listener know this node by. Only the first call
    /// counts; without it no answer names a leader.
    pub fn advertise(&self, endpoints: Vec<NodeEndpoint>) {
        let _ = self.shared.endpoints.set(endpoints);
    }

    /// Serves a topic, in place of one of the same name.
    pub fn add_topic(&self, topic: Topic) {
        self.shared.catalog.add(topic);
        self.post_to_all(|| Message::TopicsChanged);
    }

    /// Serves a topic no longer; waiting fetches of it are answered.
    pub fn remove_topic(&self, name: &str) {
        self.shared.catalog.remove(name);
        self.post_to_all(|| Message::TopicsChanged);
    }

    /// Authorizes every Produce and Fetch: `ask` is called, on any thread, if no verdict is cached.
    /// Only the first call counts; before it every client is permitted.
    pub fn authorize_by(&self, ask: Ask) {
        self.shared.access.authorize_by(ask);
    }

    /// Drops the cached verdicts: `ask` is called for the next request of every connection.
    pub fn forget_verdicts(&self) {
        self.shared.access.forget();
    }

    /// Replaces the quotas of clients. They bind the next request of every connection.
    pub fn publish_quotas(&self, quotas: Vec<ClientQuota>, window: Window) {
        self.shared.client_quotas.publish(quotas, window);
    }

    /// Counts the time that Python took for a request; the time to mute its client for.
    #[must_use]
    pub fn throttle_of(&self, client: QuotaClient<'_>, spent: Duration) -> Duration {
        self.shared.client_quotas.decided(client, spent)
    }

    /// Sets the state of a partition's replica, once no append to it is under way. Waiting requests
    /// that can no longer be served are answered.
    ///
    /// The caller also sets the role of the log: a leader's before this call, a follower's after it.
    ///
    /// # Errors
    /// Kafka's error code: there is no such partition.
    pub fn set_replica_state(
        &self,
        topic: &str,
        partition: i32,
        state: ReplicaState,
    ) -> Result<(), i16> {
        let found = self.shared.catalog.find(TopicKey::Name(topic.as_bytes()));
        let found = found.ok_or(codes::UNKNOWN_TOPIC_OR_PARTITION)?;
        found.partition(partition)?.set_state(state);
        self.shared.catalog.note_change();
        self.post_to_all(|| Message::RoleChanged);
        Ok(())
    }

    /// Sets whether every transactional batch of a producer is synced before it is acknowledged,
    /// also without `sync_acks_all`.
    ///
    /// Its earlier acknowledged batches are not synced by this.
    pub fn sync_before_ack(&self, producer_id: i64, is_forced: bool) {
        self.shared.forced.set(producer_id, is_forced);
    }

    /// Lets reactors decide on requests of some APIs, and on parked Produce requests, whenever the
    /// control lock is free. A connection with such requests is served by reactor 0 from then on.
    /// Only the first call counts.
    pub fn let_reactors_decide(&self, api_keys: Vec<i16>, decide: Decide) {
        let _ = self.shared.decider.set(Decider { api_keys, decide });
    }

    /// Lets reactor 0 continue the control loop's waits for the disk, whenever the control lock is
    /// free. Only the first call counts.
    ///
    /// Returns the bell to ring when waits have ended. It returns false if that reactor is gone;
    /// then the loop has to be woken.
    pub fn let_reactors_settle(&self, settler: Settler) -> Bell {
        let _ = self.shared.settler.set(settler);
        let mailbox = Arc::clone(&self.shared.mailboxes[DECIDING]);
        Box::new(move || mailbox.post(Message::WaitsEnded))
    }

    /// Waits until no thread decides, and keeps others from it until `release_control_lock`.
    pub fn take_control_lock(&self) {
        self.shared.control_lock.acquire();
    }

    /// Releases the control lock.
    pub fn release_control_lock(&self) {
        self.shared.control_lock.release();
    }

    /// Takes the requests that wait for Python, oldest first.
    #[must_use]
    pub fn take(&self) -> Vec<ControlRequest> {
        self.shared.control.take_requests()
    }

    /// Takes the parked Produce requests, oldest first.
    #[must_use]
    pub fn take_joins(&self) -> Vec<ParkedProduce> {
        self.shared.control.take_joins()
    }

    /// True if a large answer may be made; if not, the wakeup will tell when.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.shared.memory.has_room()
    }

    /// True if there is room for answers again since the last call.
    #[must_use]
    pub fn take_room(&self) -> bool {
        self.shared.control.take_room()
    }

    /// Takes the panics of bugs that have closed single connections.
    #[must_use]
    pub fn take_failures(&self) -> Vec<String> {
        self.shared.control.take_failures()
    }

    /// Takes handshakes that failed: of many at once only some.
    #[must_use]
    pub fn take_failed_handshakes(&self) -> Vec<FailedHandshake> {
        self.shared.control.take_failed_handshakes()
    }

    /// Takes connections that were refused: of many at once only some.
    #[must_use]
    pub fn take_refused(&self) -> Vec<RefusedConnection> {
        self.shared.control.take_refused()
    }

    /// Takes requests that cost their connections: of many at once only some.
    #[must_use]
    pub fn take_fatal_requests(&self) -> Vec<FatalRequest> {
        self.shared.control.take_fatal_requests()
    }

    /// Replaces the limits on connections. Connections beyond a new
    /// `max_connections` are closed, the least recently used first.
    pub fn limit_connections(&self, limits: ConnectionLimits) {
        self.shared.quotas.set_limits(limits);
        self.shared.mailboxes[0].notify(Signal::PlaceFreed); // one may have become free
        self.post_to_all(|| Message::TooManyConnections);
    }

    /// Replaces the rates at which addresses may connect.
    pub fn limit_creation_rates(&self, rates: CreationRates) {
        self.shared.quotas.set_creation_rates(rates);
    }

    /// The counts so far, and the requests that wait now. Any thread may ask; none waits for it.
    #[must_use]
    pub fn metrics(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            queued_requests: self.shared.control.len(),
            unauthenticated_connections: self.shared.unauthenticated_connections.get(),
            expired_connections: self.shared.expired_connections.get(),
            throttled: self.shared.client_quotas.throttled(),
            quota_counts: self.shared.client_quotas.count(),
            fetch_sessions: self.shared.fetch_sessions.snapshot(),
            ..Snapshot::default()
        };
        snapshot.add_reactors(&self.shared.metrics);
        snapshot.add_listeners(&self.shared.listener_metrics);
        for (listener, one) in self.shared.listeners.iter().enumerate() {
            if let SecurityProtocol::Tls(tls) = &one.security {
                snapshot.tls.push(TlsSnapshot {
                    listener,
                    handshakes: tls.handshakes(),
                    failures: tls.failures(),
                    expires_at: tls.expires_at(),
                });
            }
        }
        snapshot
    }

    /// Answers a request; dropped if its connection is gone.
    pub fn reply(&self, token: RequestToken, has_flexible_header: bool, body: &[u8]) {
        let frame = response_frame(has_flexible_header, body);
        let claim = Claim::of_answer(&self.shared.memory, frame.len());
        self.post(token, Message::Reply(token, frame, Instant::now(), claim));
    }

    /// Answers a request, and closes its connection: no further request is read.
    pub fn refuse(&self, token: RequestToken, has_flexible_header: bool, body: &[u8]) {
        let frame = response_frame(has_flexible_header, body);
        self.post(token, Message::Refuse(token, frame, Instant::now()));
    }

    /// Answers a bare token of SASL by another.
    pub fn reply_raw(&self, token: RequestToken, answer: &[u8]) {
        let mut frame = vec![0; LENGTH_BYTES];
        frame.put(answer);
        set_length(&mut frame, answer.len());
        self.post(token, Message::ReplyRaw(token, frame, Instant::now()));
    }

    /// Keeps Python's state of a connection beside it. Later requests bring it.
    pub fn attach(&self, token: RequestToken, attachment: Attachment) {
        self.post(token, Message::Attach(token, attachment));
    }

    /// Requires a request's connection to authenticate first: the next answer is to its handshake.
    /// `is_raw`: frames contain bare tokens.
    pub fn require_authentication(&self, token: RequestToken, is_raw: bool) {
        self.post(token, Message::RequireAuthentication(token, is_raw));
    }

    /// Admits the connection of a request under a principal.
    ///
    /// After `lifetime` it is closed with its next request, unless that is a handshake.
    pub fn authenticated(&self, token: RequestToken, principal: &str, lifetime: Option<Duration>) {
        let message = Message::Authenticated(token, principal.into(), lifetime);
        self.post(token, message);
    }

    /// Mutes a request's connection: for that long no further request is read from it. The answer
    /// to the request leaves as always. Of several mutes the longest counts.
    pub fn mute(&self, token: RequestToken, duration: Duration) {
        self.post(token, Message::Mute(token, duration));
    }

    /// Continues a parked Produce, except where joining was refused.
    pub fn resume(&self, token: RequestToken, refused: Vec<Refused>) {
        self.post(token, Message::Resume(token, refused));
    }

    /// Closes a request's connection, after the answers that were given.
    pub fn disconnect(&self, token: RequestToken) {
        self.post(token, Message::Disconnect(token));
    }

    /// Stops accepting, answers requests under way, closes; the reactors return.
    pub fn stop(&self) {
        self.post_to_all(|| Message::Stop);
        // A reactor that no thread took yet is dropped here, and the listener with it.
        let never_run = {
            let mut idle = self.idle();
            idle.is_stopped = true;
            std::mem::take(&mut idle.reactors)
        };
        for (index, reactor) in never_run.into_iter().enumerate() {
            if reactor.is_some() {
                self.retire(index);
            }
        }
    }

    fn post(&self, token: RequestToken, message: Message) {
        if let Some(mailbox) = self.shared.mailboxes.get(token.reactor()) {
            mailbox.post(message);
        }
    }

    fn post_to_all(&self, message: impl Fn() -> Message) {
        for mailbox in &self.shared.mailboxes {
            mailbox.post(message());
        }
    }
}

/// A response without its correlation id.
fn response_frame(has_flexible_header: bool, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(body.len() + 9);
    begin_response(&mut frame, 0, has_flexible_header);
    frame.put(body);
    let length = frame.len() - LENGTH_BYTES;
    set_length(&mut frame, length);
    frame
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests;
