//! The client's cached knowledge of the cluster, and the reaction when it turns out to be wrong.
//!
//! `Cluster` is shared by a client, its fetches and its writers: addresses, leaders, coordinators and
//! idle connections. All of it is a cache. A caller with a retriable error hands it to
//! `Retry::after`, which forgets the knowledge that the error disproves, pauses, and says when to
//! give up.
//!
//! # Invariants
//! 1. A connection that is put back has nothing in flight and is not broken.
//! 2. The lock is never held while a socket is used.
//! 3. Code 3 (unknown topic) is retried only for a topic that was seen before: right after its
//!    creation, or when a node restarts, a node may not know it yet.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use txn_protocol::codes;
use txn_protocol::{Malformed, Reader};

use crate::connection::{Address, BrokerConnection};
use crate::error::KafkaError;
use crate::interrupt::Interrupt;
use crate::messages::cluster::{CoordinatorOf, Metadata, TopicMetadata};
use crate::messages::{self, ClientApi, FIND_COORDINATOR, METADATA};
use crate::security::Security;

/// Longest wait for one answer; then the node counts as hung and the request is sent again.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Time that a topic that was seen before may be unknown.
const UNKNOWN_TOPIC_MAX: Duration = Duration::from_secs(5);

/// The cluster as far as it is known.
pub struct Cluster {
    bootstrap: Vec<Address>,
    client_id: String,
    security: Security,
    timeout: Duration,
    interrupt: Option<Interrupt>,
    known: Mutex<KnownCluster>,
}

#[derive(Debug, Default)]
struct KnownCluster {
    is_closed: bool,
    idle: HashMap<Address, Vec<BrokerConnection>>,
    nodes: BTreeMap<i32, Address>,
    /// Leaders of the partitions, by topic.
    leaders: HashMap<String, TopicLeaders>,
    seen_topics: HashSet<String>,
    coordinators: HashMap<(CoordinatorOf, String), Address>,
    /// (features epoch, level of `transaction.version`), the newest seen.
    features: Option<(i64, i16)>,
    /// (producer id, producer epoch) under which a writer has sent batches.
    written: HashSet<(i64, i16)>,
    /// Where the next search for any node starts.
    turn: usize,
}

#[derive(Debug)]
struct TopicLeaders {
    /// The leader of each partition, -1 if it has none now.
    by_partition: Vec<i32>,
    learned: Instant,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("bootstrap", &self.bootstrap)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// A cluster of which nothing is known yet; connects to nothing.
    ///
    /// # Errors
    /// 42 for an address that is none or a client id that is too long.
    pub fn new(
        bootstrap_servers: &str,
        client_id: &str,
        security: Security,
        timeout: Duration,
        interrupt: Option<Interrupt>,
    ) -> Result<Self, KafkaError> {
        let refused = |message| KafkaError::refused(codes::INVALID_REQUEST, message);
        if client_id.len() > 255 {
            return Err(refused(format!(
                "the client id has {} bytes; use at most 255",
                client_id.len()
            )));
        }
        let bootstrap = parse_bootstrap(bootstrap_servers)?;
        let known = Mutex::new(KnownCluster::default());
        Ok(Self {
            bootstrap,
            client_id: client_id.to_owned(),
            security,
            timeout,
            interrupt,
            known,
        })
    }

    /// Time that a call goes on trying.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    fn known(&self) -> MutexGuard<'_, KnownCluster> {
        self.known
            .lock()
            .expect("no code panics while it holds the cluster's lock")
    }

    /// Drops the idle connections; every later call fails.
    pub fn close(&self) {
        let mut known = self.known();
        known.is_closed = true;
        let idle = std::mem::take(&mut known.idle);
        drop(known);
        drop(idle); // which may write to sockets
    }

    /// Begins a call: its timeout runs from now.
    #[must_use]
    pub fn begin(&self) -> Retry<'_> {
        Retry {
            cluster: self,
            began: Instant::now(),
            pause: PAUSE_MIN,
            previous: None,
        }
    }

    /// Runs `attempt` until it succeeds, fails for good, or the timeout has passed.
    ///
    /// # Errors
    /// The first final error, or the last retriable one.
    pub fn retry<T>(
        &self,
        mut attempt: impl FnMut(&Retry<'_>) -> Result<T, KafkaError>,
    ) -> Result<T, KafkaError> {
        let mut retry = self.begin();
        loop {
            match attempt(&retry) {
                Ok(value) => return Ok(value),
                Err(error) => retry.after(error)?,
            }
        }
    }

    /// Returns a connection to the pool for the next call; a broken or busy one is closed.
    pub fn put_back(&self, connection: BrokerConnection) {
        if connection.is_broken() {
            // Its node probably restarted: the other idle connections to it are dead too.
            let dead = self.known().idle.remove(connection.address());
            drop(dead); // after the lock: it may write to sockets
        } else if connection.in_flight() == 0 {
            let mut known = self.known();
            if !known.is_closed {
                known
                    .idle
                    .entry(connection.address().clone())
                    .or_default()
                    .push(connection);
            }
        }
    }

    /// Remembers that a topic exists, so that nodes that do not know it yet are asked again.
    pub fn mark_topic_seen(&self, topic: &str) {
        self.known().seen_topics.insert(topic.to_owned());
    }

    /// Forgets that a topic exists: it is gone for good, and the next call need not wait for it.
    pub fn mark_topic_deleted(&self, topic: &str) {
        let mut known = self.known();
        known.seen_topics.remove(topic);
        known.leaders.remove(topic);
    }

    /// Takes a producer identity for one writer; false if another writer of this client had it.
    #[must_use]
    pub fn claim(&self, who: (i64, i16)) -> bool {
        self.known().written.insert(who)
    }

    /// Drops the knowledge of a topic's partitions.
    pub fn forget_topic(&self, topic: &str) {
        self.known().leaders.remove(topic);
    }

    /// Drops the knowledge of a topic's partitions if it is older: some may have been added since.
    pub fn forget_old_topic(&self, topic: &str, age_max: Duration) {
        let mut known = self.known();
        let leaders = known.leaders.get(topic);
        if leaders.is_some_and(|leaders| leaders.learned.elapsed() >= age_max) {
            known.leaders.remove(topic);
        }
    }

    fn forget(&self, error: &KafkaError) {
        let mut known = self.known();
        match error.code {
            codes::COORDINATOR_NOT_AVAILABLE | codes::NOT_COORDINATOR => known.coordinators.clear(),
            codes::COORDINATOR_LOAD_IN_PROGRESS | codes::CONCURRENT_TRANSACTIONS => {}
            codes::NETWORK_EXCEPTION | codes::REQUEST_TIMED_OUT => {
                known.coordinators.clear();
                known.leaders.clear();
            }
            _ => known.leaders.clear(),
        }
    }

    fn is_unready_topic(&self, topic: &str, error_code: i16) -> bool {
        error_code == codes::UNKNOWN_TOPIC_OR_PARTITION && self.known().seen_topics.contains(topic)
    }

    fn learn(&self, metadata: &Metadata) {
        let mut known = self.known();
        if !metadata.brokers.is_empty() {
            let address = |b: &messages::cluster::BrokerAddress| Address {
                host: b.host.clone(),
                port: b.port,
            };
            known.nodes = metadata
                .brokers
                .iter()
                .map(|b| (b.id, address(b)))
                .collect();
        }
        for topic in metadata.topics.iter().filter(|topic| topic.error_code == 0) {
            let mut by_partition = vec![-1; topic.partitions.len()];
            for &(error_code, partition, leader) in &topic.partitions {
                // 9: a replica is missing, but there is a leader.
                if let (0 | 9, Some(slot)) = (error_code, by_partition.get_mut(partition as usize))
                {
                    *slot = leader;
                }
            }
            let learned = Instant::now();
            known.seen_topics.insert(topic.name.clone());
            known.leaders.insert(
                topic.name.clone(),
                TopicLeaders {
                    by_partition,
                    learned,
                },
            );
        }
    }
}

/// One call in progress: its deadline, and the actions it may take.
#[derive(Debug)]
pub struct Retry<'c> {
    cluster: &'c Cluster,
    began: Instant,
    pause: Duration,
    /// The error of the attempt before.
    previous: Option<KafkaError>,
}

impl Retry<'_> {
    /// The rest of the timeout.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.cluster.timeout.saturating_sub(self.began.elapsed())
    }

    /// Time to wait for one answer.
    #[must_use]
    pub fn answer_timeout(&self) -> Duration {
        self.left().min(ANSWER_MAX).max(Duration::from_millis(1))
    }

    /// Time for the whole of an answer that has begun to come: a large one over a slow link takes
    /// longer than a hung node may. By default a minute, as librdkafka's `socket.timeout.ms`.
    #[must_use]
    pub fn large_answer_timeout(&self) -> Duration {
        self.left().max(Duration::from_millis(1))
    }

    /// Starts the timeout anew, after progress.
    pub fn restart(&mut self) {
        self.began = Instant::now();
        self.pause = PAUSE_MIN;
    }

    /// Gets ready for another attempt: forgets the knowledge that the error disproves, and pauses.
    ///
    /// # Errors
    /// The error itself if it is final or the timeout has passed.
    pub fn after(&mut self, error: KafkaError) -> Result<(), KafkaError> {
        if !error.is_retriable {
            return Err(error);
        }
        let elapsed = self.began.elapsed();
        let is_patient =
            error.code != codes::UNKNOWN_TOPIC_OR_PARTITION || elapsed < UNKNOWN_TOPIC_MAX;
        if !is_patient || self.left() <= self.pause {
            // The last attempt may have had no time for its answer: the one before tells why.
            let is_cut_short = error.code == codes::REQUEST_TIMED_OUT;
            let told = self.previous.take().filter(|_| is_cut_short);
            return Err(told.unwrap_or(error).given_up(elapsed.as_millis()));
        }
        if self.is_interrupted() {
            return Err(KafkaError {
                is_retriable: false,
                ..error
            });
        }
        self.cluster.forget(&error);
        self.previous = Some(error);
        self.pause();
        Ok(())
    }

    /// Waits before another attempt, longer each time.
    pub fn pause(&mut self) {
        thread::sleep(self.pause.min(self.left()));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// True if the user asked to stop.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.cluster
            .interrupt
            .as_ref()
            .is_some_and(Interrupt::is_raised)
    }

    /// An idle connection to the node, or a new one.
    ///
    /// # Errors
    /// Network errors (retriable); a final one once the client is closed.
    pub fn connect(&self, address: &Address) -> Result<BrokerConnection, KafkaError> {
        {
            let mut known = self.cluster.known();
            if known.is_closed {
                let message = "the client is closed; make a new one".to_owned();
                return Err(KafkaError::refused(codes::INVALID_REQUEST, message));
            }
            if let Some(connection) = known.idle.get_mut(address).and_then(Vec::pop) {
                return Ok(connection);
            }
        }
        let connection = BrokerConnection::open(
            address,
            &self.cluster.client_id,
            &self.cluster.security,
            self.answer_timeout(),
            self.cluster.interrupt.clone(),
        )?;
        let mut known = self.cluster.known();
        let told = connection.transaction_version();
        known.features = known.features.max(Some(told)); // by epoch first: the newest wins
        Ok(connection)
    }

    /// Sends a request to a node and reads its answer; `encode` and `decode` are told the version.
    ///
    /// # Errors
    /// Network errors (retriable), an API the node does not offer, an answer that makes no sense.
    pub fn call<T>(
        &self,
        address: &Address,
        api: ClientApi,
        encode: impl FnOnce(&mut Vec<u8>, i16),
        decode: impl FnOnce(&mut Reader<'_>, i16) -> Result<T, Malformed>,
    ) -> Result<(T, String), KafkaError> {
        let mut connection = self.connect(address)?;
        let version = connection.version(api);
        let result = version.and_then(|v| {
            let answer = connection.call(
                api,
                v,
                self.answer_timeout(),
                |e| encode(e, v),
                |r| decode(r, v),
            )?;
            Ok((answer, connection.name().to_owned()))
        });
        self.cluster.put_back(connection);
        result
    }

    /// The address of any node that can be reached, known ones before bootstrap servers, in turn.
    ///
    /// # Errors
    /// The last network error, if no node can be reached.
    pub fn any_node(&self) -> Result<Address, KafkaError> {
        let mut candidates: Vec<Address> = Vec::new();
        {
            let mut known = self.cluster.known();
            let nodes: Vec<_> = known.nodes.values().cloned().collect();
            let (first, second) = (nodes.len(), self.cluster.bootstrap.len());
            known.turn = known.turn.wrapping_add(1);
            candidates.extend((0..first).map(|i| nodes[(known.turn + i) % first].clone()));
            candidates.extend(
                (0..second).map(|i| self.cluster.bootstrap[(known.turn + i) % second].clone()),
            );
            candidates.sort_by_key(|address| known.idle.get(address).is_none_or(Vec::is_empty));
        }
        let mut tried = HashSet::new();
        let mut failure = None;
        for address in candidates {
            if tried.insert(address.clone()) {
                match self.connect(&address) {
                    Ok(connection) => {
                        self.cluster.put_back(connection);
                        return Ok(address);
                    }
                    Err(error) if error.is_retriable => failure = Some(error),
                    Err(error) => return Err(error),
                }
            }
        }
        Err(failure.expect("there is at least one bootstrap server"))
    }

    /// Asks any node for the cluster's nodes and for topics (`None`: all), and remembers the answer.
    ///
    /// # Errors
    /// As `call`.
    pub fn metadata(&self, topics: Option<&[&str]>) -> Result<(Metadata, String), KafkaError> {
        self.ask_metadata(topics, false)
    }

    fn ask_metadata(
        &self,
        topics: Option<&[&str]>,
        makes_missing: bool,
    ) -> Result<(Metadata, String), KafkaError> {
        let node = self.any_node()?;
        let encode = |e: &mut Vec<u8>, version| {
            messages::cluster::encode_metadata(e, version, topics, makes_missing);
        };
        let answer = self.call(&node, METADATA, encode, messages::cluster::decode_metadata)?;
        self.cluster.learn(&answer.0);
        Ok(answer)
    }

    /// One topic's metadata, asked for now.
    ///
    /// # Errors
    /// As `call`; 3 for an unknown topic, retriable only if it was seen before.
    pub fn topic(&self, topic: &str) -> Result<TopicMetadata, KafkaError> {
        self.one_topic(topic, false)
    }

    /// Like `topic`, but asks a cluster with `auto.create.topics.enable` to make it if it is
    /// missing.
    ///
    /// # Errors
    /// As `topic`.
    pub fn topic_made_if_missing(&self, topic: &str) -> Result<TopicMetadata, KafkaError> {
        self.one_topic(topic, true)
    }

    fn one_topic(&self, topic: &str, makes_missing: bool) -> Result<TopicMetadata, KafkaError> {
        let (metadata, node) = self.ask_metadata(Some(&[topic]), makes_missing)?;
        let found = metadata.topics.into_iter().find(|t| t.name == topic);
        let error_code = found
            .as_ref()
            .map_or(codes::UNKNOWN_TOPIC_OR_PARTITION, |t| t.error_code);
        match found {
            Some(topic) if error_code == 0 => Ok(topic),
            _ => Err(self.topic_error(
                error_code,
                &node,
                "Metadata",
                topic,
                &format!("topic '{topic}'"),
            )),
        }
    }

    /// The error a node answered about a topic.
    #[must_use]
    pub fn topic_error(
        &self,
        error_code: i16,
        node: &str,
        request: &str,
        topic: &str,
        subject: &str,
    ) -> KafkaError {
        let error = KafkaError::answered(error_code, node, request, subject, None);
        let is_unknown = error_code == codes::UNKNOWN_TOPIC_OR_PARTITION;
        let is_retriable =
            error.is_retriable && (!is_unknown || self.cluster.is_unready_topic(topic, error_code));
        KafkaError {
            is_retriable,
            ..error
        }
    }

    /// The leaders of a topic's partitions by partition, -1 where there is none now.
    ///
    /// # Errors
    /// As `topic`.
    pub fn leaders(&self, topic: &str) -> Result<Vec<i32>, KafkaError> {
        if let Some(leaders) = self.cluster.known().leaders.get(topic) {
            return Ok(leaders.by_partition.clone());
        }
        self.topic(topic)?;
        let known = self.cluster.known();
        let leaders = known.leaders.get(topic);
        Ok(leaders.map_or_else(Vec::new, |leaders| leaders.by_partition.clone()))
    }

    /// Where a partition's leader listens.
    ///
    /// # Errors
    /// As `topic`; 3 for a partition the topic does not have, 5 (retriable) if it has no leader now.
    pub fn leader(&self, topic: &str, partition: i32) -> Result<Address, KafkaError> {
        let leaders = self.leaders(topic)?;
        let Some(leader) = usize::try_from(partition).ok().and_then(|i| leaders.get(i)) else {
            return Err(no_such_partition(topic, partition, leaders.len()));
        };
        if let Some(address) = self.cluster.known().nodes.get(leader) {
            return Ok(address.clone());
        }
        Err(KafkaError {
            message: format!(
                "partition {topic}-{partition} has no leader now (metadata names node {leader}); start its nodes"
            ),
            code: codes::LEADER_NOT_AVAILABLE,
            is_retriable: true,
            is_other_protocol: false,
        })
    }

    /// Where a transactional id's or a group's coordinator listens.
    ///
    /// # Errors
    /// Those of `call`; the node's answers (14, 15 retriable).
    pub fn coordinator(&self, of: CoordinatorOf, key: &str) -> Result<Address, KafkaError> {
        let id = (of, key.to_owned());
        if let Some(address) = self.cluster.known().coordinators.get(&id) {
            return Ok(address.clone());
        }
        let node = self.any_node()?;
        let encode = |e: &mut Vec<u8>, _| messages::cluster::encode_find_coordinator(e, of, key);
        let decode = |r: &mut Reader<'_>, _| messages::cluster::decode_find_coordinator(r);
        let (answer, name) = self.call(&node, FIND_COORDINATOR, encode, decode)?;
        let broker = answer.map_err(|(error_code, detail)| {
            KafkaError::answered(
                error_code,
                &name,
                FIND_COORDINATOR.name,
                &subject(of, key),
                detail.as_deref(),
            )
        })?;
        let address = Address {
            host: broker.host,
            port: broker.port,
        };
        self.cluster
            .known()
            .coordinators
            .insert(id, address.clone());
        Ok(address)
    }

    /// 2 if the cluster has finalized `transaction.version` 2 or higher, else 1.
    ///
    /// # Errors
    /// As `any_node`, if no node was asked yet.
    pub fn transaction_version(&self) -> Result<i16, KafkaError> {
        if self.cluster.known().features.is_none() {
            self.any_node()?;
        }
        let (epoch, level) = self.cluster.known().features.unwrap_or((-1, 0));
        Ok(if epoch >= 0 && level >= 2 { 2 } else { 1 })
    }
}

/// The addresses of `bootstrap.servers`, at least one.
///
/// # Errors
/// 42 for an address that is none.
pub fn parse_bootstrap(bootstrap_servers: &str) -> Result<Vec<Address>, KafkaError> {
    let refused = |message| KafkaError::refused(codes::INVALID_REQUEST, message);
    let texts = bootstrap_servers.split(',').map(str::trim);
    let addresses: Vec<Address> = texts
        .filter(|text| !text.is_empty())
        .map(|text| {
            Address::parse(text).ok_or_else(|| {
                refused(format!(
                    "'{text}' in bootstrap.servers '{bootstrap_servers}' is not host:port"
                ))
            })
        })
        .collect::<Result<_, _>>()?;
    if addresses.is_empty() {
        let message = "bootstrap.servers is empty; name at least one host:port";
        return Err(refused(message.to_owned()));
    }
    Ok(addresses)
}

/// The error for a partition that a topic does not have.
#[must_use]
pub fn no_such_partition(topic: &str, partition: i32, count: usize) -> KafkaError {
    KafkaError::refused(
        codes::UNKNOWN_TOPIC_OR_PARTITION,
        format!("topic '{topic}' has no partition {partition}; it has {count}, numbered from 0"),
    )
}

/// The form of a transactional id or a group in messages.
#[must_use]
pub fn subject(of: CoordinatorOf, key: &str) -> String {
    match of {
        CoordinatorOf::Group => format!("group '{key}'"),
        CoordinatorOf::Transaction => format!("transactional id '{key}'"),
    }
}

#[cfg(test)]
mod tests;
