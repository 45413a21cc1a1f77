//! The I/O thread: sockets and time on one side, effects and events on the other.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::{Command, Engine, Machine, Shared, WAKE};
use crate::connection::{Address, BrokerConnection};
use crate::engine::link::{Link, READ_BYTES};
use crate::engine::{Effect, Millis, NodeId, Request};
use crate::error::KafkaError;
use crate::interrupt::Interrupt;

const EVENTS_MAX: usize = 256;
/// Time for a connect, and then for each exchange until the log-in is done.
const SETUP_MAX: Duration = Duration::from_secs(10);

/// A node of a client as the thread sees it.
struct Peer {
    address: Address,
    link: Option<Link>,
    /// Requests that wait for the connection.
    queued: Vec<(u64, Request)>,
    token: usize,
}

struct Client {
    shared: Arc<Shared<dyn Machine>>,
    peers: HashMap<NodeId, Peer>,
    due: Option<Millis>,
}

/// The thread's own state.
pub(super) struct Loop {
    engine: Arc<Engine>,
    poll: Poll,
    clients: BTreeMap<u64, Client>,
    /// The owner of each socket, and of each connect in progress, by their numbers.
    owners: HashMap<usize, (u64, NodeId)>,
    next_token: usize,
    /// Room for bytes from any socket.
    buffer: Vec<u8>,
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.engine.is_over.store(true, Ordering::Release);
    }
}

impl Loop {
    pub(super) fn new(engine: Arc<Engine>, poll: Poll) -> Self {
        Self {
            engine,
            poll,
            clients: BTreeMap::new(),
            owners: HashMap::new(),
            next_token: 0,
            buffer: vec![0; READ_BYTES],
        }
    }

    pub(super) fn run(&mut self) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            let now = self.engine.now();
            let due = self.clients.values().filter_map(|client| client.due).min();
            let timeout = due.map(|at| Duration::from_millis(at.saturating_sub(now)));
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                return; // waiting calls see `is_over`
            }
            let mut changed: HashSet<u64> = HashSet::new();
            for event in &events {
                if event.token() != WAKE {
                    let is_writable = event.is_writable();
                    changed.extend(self.serve(event.token().0, is_writable));
                }
            }
            let commands = std::mem::take(
                &mut *self
                    .engine
                    .queue
                    .lock()
                    .expect("no code panics under this lock"),
            );
            for command in commands {
                changed.extend(self.carry_out(command));
            }
            let now = self.engine.now();
            let is_due = |client: &Client| client.due.is_some_and(|at| at <= now);
            let due = self
                .clients
                .iter()
                .filter(|(_, c)| is_due(c))
                .map(|(&n, _)| n);
            let due: Vec<u64> = due.filter(|number| !changed.contains(number)).collect();
            for number in changed {
                self.step(number, true);
            }
            for number in due {
                self.step(number, false);
            }
            if self.clients.is_empty() && Arc::strong_count(&self.engine) == 1 {
                return; // nobody can make another client
            }
        }
    }

    fn carry_out(&mut self, command: Command) -> Option<u64> {
        match command {
            Command::Add(shared) => {
                let number = shared.number;
                let client = Client {
                    shared,
                    peers: HashMap::new(),
                    due: None,
                };
                self.clients.insert(number, client);
                Some(number)
            }
            Command::Poke(number) => Some(number),
            Command::Remove(number) => {
                if let Some(mut client) = self.clients.remove(&number) {
                    for (_, peer) in client.peers.drain() {
                        self.forget(peer);
                    }
                }
                None
            }
            Command::Opened {
                client,
                attempt,
                result,
            } => self.opened(client, attempt as usize, *result),
        }
    }

    /// Calls a client's machines, and carries their effects out.
    fn step(&mut self, number: u64, is_active: bool) {
        let mut effects = Vec::new();
        loop {
            let Some(client) = self.clients.get_mut(&number) else {
                return;
            };
            let now = self.engine.now();
            let mut machine = client.shared.lock();
            machine.poll(now, &mut effects);
            // It comes by once more after an action: a busy program need not wake it for each record.
            let again =
                (!effects.is_empty() || is_active).then_some(now + client.shared.linger_ms.max(1));
            client.due = [machine.deadline(now), again].into_iter().flatten().min();
            let due = client.due.unwrap_or(Millis::MAX);
            client.shared.due.store(due, Ordering::Release); // under the lock, as `send` reads it after
            let is_news = client.shared.is_news(machine.reached());
            drop(machine);
            if is_news {
                client.shared.changed.notify_all();
            }
            if effects.is_empty() {
                return;
            }
            let mut used = HashSet::new();
            for effect in effects.drain(..) {
                match effect {
                    Effect::Connect { node, address } => self.connect(number, node, address),
                    Effect::Close { node } => self.close(number, node),
                    Effect::Send { node, id, request } => {
                        self.send(number, node, id, request);
                        used.insert(node);
                    }
                }
            }
            for node in used {
                self.write(number, node);
            }
        }
    }

    fn connect(&mut self, number: u64, node: NodeId, address: Address) {
        self.close(number, node);
        let token = self.next_token;
        self.next_token += 1;
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        self.owners.insert(token, (number, node));
        client.peers.insert(
            node,
            Peer {
                address: address.clone(),
                link: None,
                queued: Vec::new(),
                token,
            },
        );
        let (engine, shared) = (Arc::clone(&self.engine), Arc::clone(&client.shared));
        let connector = move || {
            let is_closed = Arc::clone(&shared.is_closed);
            let interrupt = Interrupt::new(move || is_closed.load(Ordering::Acquire));
            let (id, security) = (&shared.client_id, &shared.security);
            let result = BrokerConnection::open(&address, id, security, SETUP_MAX, Some(interrupt));
            engine.push(Command::Opened {
                client: number,
                attempt: token as u64,
                result: Box::new(result),
            });
        };
        let name = "txn-connect".to_owned();
        if let Err(error) = thread::Builder::new().name(name).spawn(connector) {
            self.fail(
                number,
                node,
                &KafkaError::unreachable("a node", "is not asked", &error),
            );
        }
    }

    fn opened(
        &mut self,
        number: u64,
        token: usize,
        result: Result<BrokerConnection, KafkaError>,
    ) -> Option<u64> {
        let &(_, node) = self.owners.get(&token)?; // else it was closed meanwhile
        let link = result.and_then(|connection| {
            let name = connection.name().to_owned();
            let broken = |error| KafkaError::unreachable(&name, "was lost", &error);
            let link = Link::new(connection).map_err(broken)?;
            self.register(link.descriptor(), token).map_err(broken)?;
            Ok(link)
        });
        match link {
            Ok(link) => {
                let client = self.clients.get_mut(&number)?;
                let features = link.features();
                let peer = client.peers.get_mut(&node)?;
                peer.link = Some(link);
                let queued = std::mem::take(&mut peer.queued);
                client.shared.lock().connected(node, features);
                for (id, request) in queued {
                    self.send(number, node, id, request);
                }
                self.write(number, node);
            }
            Err(error) => self.fail(number, node, &error),
        }
        Some(number)
    }

    fn register(&self, descriptor: RawFd, token: usize) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        registry.register(&mut SourceFd(&descriptor), Token(token), interest)
    }

    fn send(&mut self, number: u64, node: NodeId, id: u64, request: Request) {
        let Some(peer) = self
            .clients
            .get_mut(&number)
            .and_then(|c| c.peers.get_mut(&node))
        else {
            return; // it was lost in this very step, which its machine hears
        };
        if peer.link.as_ref().is_some_and(Link::is_over) {
            let address = peer.address.clone();
            self.connect(number, node, address);
            return self.send(number, node, id, request);
        }
        let Some(link) = &mut peer.link else {
            peer.queued.push((id, request));
            return;
        };
        if let Err(error) = link.push(id, &request) {
            let now = self.engine.now();
            self.clients[&number]
                .shared
                .lock()
                .answered(id, Err(error), now);
        }
    }

    fn write(&mut self, number: u64, node: NodeId) {
        let peer = self
            .clients
            .get_mut(&number)
            .and_then(|c| c.peers.get_mut(&node));
        let written = peer.and_then(|peer| peer.link.as_mut()).map(Link::write);
        if let Some(Err(error)) = written {
            self.fail(number, node, &error);
        }
    }

    /// Reads and writes a socket that is ready; returns its client.
    fn serve(&mut self, token: usize, is_writable: bool) -> Option<u64> {
        let &(number, node) = self.owners.get(&token)?;
        let client = self.clients.get_mut(&number)?;
        let link = client.peers.get_mut(&node)?.link.as_mut()?;
        let mut answers = Vec::new();
        let mut result = link.read(&mut answers, &mut self.buffer);
        if result.is_ok() && is_writable {
            result = link.write();
        }
        if !answers.is_empty() {
            let now = self.engine.now();
            let mut machine = client.shared.lock();
            for (id, response) in answers {
                machine.answered(id, response, now);
            }
        }
        if let Err(error) = result {
            self.fail(number, node, &error);
        }
        Some(number)
    }

    /// Drops a connection that is of no use any more, and tells the machine.
    fn fail(&mut self, number: u64, node: NodeId, error: &KafkaError) {
        self.close(number, node);
        if let Some(client) = self.clients.get(&number) {
            let now = self.engine.now();
            client.shared.lock().disconnected(node, error, now);
        }
    }

    fn close(&mut self, number: u64, node: NodeId) {
        let client = self.clients.get_mut(&number);
        if let Some(peer) = client.and_then(|client| client.peers.remove(&node)) {
            self.forget(peer);
        }
    }

    fn forget(&mut self, peer: Peer) {
        self.owners.remove(&peer.token);
        if let Some(link) = peer.link {
            // The close of the descriptor would do it too; an error says that it is done.
            let _ = self
                .poll
                .registry()
                .deregister(&mut SourceFd(&link.descriptor()));
        }
    }
}
