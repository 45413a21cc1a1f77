//! The I/O of the machines: one thread for all clients of a process.
//!
//! An application's thread calls a machine under its lock and wakes the I/O thread. The I/O thread
//! carries effects out and reports events. After each step it notifies the calls that wait.
//!
//! # Locks
//! A client's lock is held only for a step of its machines: no I/O, no wait. The I/O thread holds
//! one at a time, and never the queue's lock with it.

mod io_loop;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use mio::{Poll, Token, Waker};

use super::accumulator::Record;
use super::consumer::{Consumer, ConsumerSettings};
use super::producer::{Producer, SendError};
use super::{Effect, Millis, NodeId, Response, Settings};
use crate::cluster::parse_bootstrap;
use crate::connection::BrokerConnection;
use crate::error::KafkaError;
use crate::interrupt::Interrupt;
use crate::patience::INTERRUPT_LOOK;
use crate::rows::Rows;
use crate::security::Security;
use io_loop::Loop;

const WAKE: Token = Token(usize::MAX);
/// Time after an action at which a consumer's machine is looked at again.
const CONSUMER_LOOK_MS: Millis = 1_000;
/// Rows that are added before the I/O thread may have the producer's lock.
const ROWS_PER_LOCK: usize = 1_024;

enum Command {
    Add(Arc<Shared<dyn Machine>>),
    Poke(u64),
    Remove(u64),
    Opened {
        client: u64,
        attempt: u64,
        result: Box<Result<BrokerConnection, KafkaError>>,
    },
}

/// The I/O thread, for as long as somebody holds it.
pub struct Engine {
    waker: Waker,
    queue: Mutex<Vec<Command>>,
    began: Instant,
    clients: AtomicU64,
    is_over: AtomicBool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Engine")
    }
}

impl Engine {
    /// Starts the thread.
    ///
    /// # Errors
    /// Those of the system: no descriptors, no threads.
    pub fn start() -> io::Result<Arc<Self>> {
        let poll = Poll::new()?;
        let engine = Arc::new(Self {
            waker: Waker::new(poll.registry(), WAKE)?,
            queue: Mutex::new(Vec::new()),
            began: Instant::now(),
            clients: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&engine);
        thread::Builder::new()
            .name("txn-client".to_owned())
            .spawn(move || Loop::new(of_thread, poll).run())?;
        Ok(engine)
    }

    fn now(&self) -> Millis {
        1 + self.began.elapsed().as_millis() as Millis
    }

    fn push(&self, command: Command) {
        let mut queue = self.queue.lock().expect("no code panics under this lock");
        queue.push(command);
        let is_first = queue.len() == 1;
        drop(queue);
        if is_first {
            // An error would mean that the thread's own descriptor is gone.
            let _ = self.waker.wake();
        }
    }

    /// True once the thread has ended, by a bug: nobody would answer any more.
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// A client without I/O, as the I/O thread sees it.
pub trait Machine: Send {
    /// A connection is ready; `features` are the node's (epoch, level of `transaction.version`).
    fn connected(&mut self, node: NodeId, features: (i64, i16));
    /// A connection could not be made, or is lost with all requests in flight on it.
    fn disconnected(&mut self, node: NodeId, error: &KafkaError, now: Millis);
    /// An answer has come, or one that makes no sense (an error).
    fn answered(&mut self, id: u64, result: Result<Response, KafkaError>, now: Millis);
    /// Adds the effects that are due.
    fn poll(&mut self, now: Millis, effects: &mut Vec<Effect>);
    /// When `poll` is to be called next, if nothing happens before.
    fn deadline(&self, now: Millis) -> Option<Millis>;
    /// Outcomes that calls wait for, one bit each: calls are woken when a bit has changed. None: they
    /// are woken after every step.
    fn reached(&self) -> Option<u64> {
        None
    }
}

/// A machine, and those who wait for it.
struct Shared<M: ?Sized> {
    number: u64,
    changed: Condvar,
    client_id: String,
    security: Security,
    linger_ms: Millis,
    is_closed: Arc<AtomicBool>,
    /// When the I/O thread calls the machines next by itself; `Millis::MAX`: never.
    due: AtomicU64,
    /// `Machine::reached` as each waiting call has seen it; read and written under the lock.
    seen: AtomicU64,
    machine: Mutex<M>,
}

impl<M: ?Sized> Shared<M> {
    fn lock(&self) -> MutexGuard<'_, M> {
        self.machine
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes the outcomes of a machine that is locked; true if waiting calls have not seen them.
    fn is_news(&self, reached: Option<u64>) -> bool {
        reached.is_none_or(|bits| self.seen.swap(bits, Ordering::Relaxed) != bits)
    }
}

/// A machine, driven by the I/O thread. Closed when it is dropped.
pub struct Client<M: Machine + 'static> {
    engine: Arc<Engine>,
    shared: Arc<Shared<M>>,
}

/// A producer, driven by the I/O thread.
pub type ProducerClient = Client<Producer>;
/// A consumer, driven by the I/O thread.
pub type ConsumerClient = Client<Consumer>;

impl<M: Machine> std::fmt::Debug for Client<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// Why a wait ended without its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// Its time is over.
    TimedOut,
    /// The user asked to stop.
    Interrupted,
    /// The client is closed.
    Closed,
}

impl Client<Producer> {
    /// A producer that connects with its first record or call.
    ///
    /// # Errors
    /// 42 for addresses that are none.
    pub fn new(
        engine: &Arc<Engine>,
        bootstrap_servers: &str,
        client_id: &str,
        security: Security,
        settings: Settings,
    ) -> Result<Self, KafkaError> {
        let bootstrap = parse_bootstrap(bootstrap_servers)?;
        let linger_ms = settings.linger_ms;
        let producer = Producer::new(&bootstrap, settings);
        Ok(Self::drive(
            engine, client_id, security, linger_ms, producer,
        ))
    }

    /// Adds a record. The I/O thread is woken only if it would come too late by itself.
    ///
    /// # Errors
    /// Those of `Producer::send`, and `Closed`.
    pub fn send(
        &self,
        topic: &str,
        partition: Option<i32>,
        record: &Record<'_>,
    ) -> Result<(), SendError> {
        let now = self.engine.now();
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        let sent = self.shared.lock().send(topic, partition, record, now);
        let is_urgent = matches!(sent, Ok(true) | Err(SendError::Full));
        let is_late = now + self.shared.linger_ms < self.shared.due.load(Ordering::Acquire);
        if is_urgent || is_late {
            self.engine.push(Command::Poke(self.shared.number));
        }
        sent.map(|_| ())
    }

    /// Adds rows from `first` on. Returns the first row that was not taken, and why; the number of
    /// rows if all were. A row without a timestamp has `timestamp_ms`.
    ///
    /// The lock is given back after some rows, so that what is full is sent meanwhile.
    #[must_use]
    pub fn send_rows(
        &self,
        topic: &str,
        rows: &Rows<'_>,
        first: usize,
        timestamp_ms: i64,
    ) -> (usize, Option<SendError>) {
        let mut headers = Vec::new();
        let mut row = first;
        while row < rows.count {
            let end = rows.count.min(row + ROWS_PER_LOCK);
            let now = self.engine.now();
            if self.is_closed() {
                return (row, Some(SendError::Closed));
            }
            let mut producer = self.shared.lock();
            while row < end {
                if let Some(lists) = &rows.headers {
                    lists.get(row, &mut headers);
                }
                let record = Record {
                    key: rows.keys.as_ref().and_then(|keys| keys.get(row)),
                    value: rows.values.get(row),
                    headers: &headers,
                    timestamp_ms: rows.timestamps_ms.map_or(timestamp_ms, |ms| ms.get(row)),
                    delivery: None,
                };
                let partition = rows.partitions.map(|chosen| chosen.get(row));
                let partition = partition.filter(|partition| *partition >= 0);
                if let Err(error) = producer.send(topic, partition, &record, now) {
                    drop(producer);
                    self.poke();
                    return (row, Some(error));
                }
                row += 1;
            }
            drop(producer);
            self.poke();
        }
        (row, None)
    }
}

impl Client<Consumer> {
    /// A consumer that connects with its first assignment, subscription or call.
    ///
    /// # Errors
    /// 42 for addresses that are none.
    pub fn new(
        engine: &Arc<Engine>,
        bootstrap_servers: &str,
        client_id: &str,
        security: Security,
        settings: ConsumerSettings,
    ) -> Result<Self, KafkaError> {
        let bootstrap = parse_bootstrap(bootstrap_servers)?;
        let consumer = Consumer::new(&bootstrap, settings);
        Ok(Self::drive(
            engine,
            client_id,
            security,
            CONSUMER_LOOK_MS,
            consumer,
        ))
    }
}

impl<M: Machine> Client<M> {
    fn drive(
        engine: &Arc<Engine>,
        client_id: &str,
        security: Security,
        linger_ms: Millis,
        machine: M,
    ) -> Self {
        let shared = Arc::new(Shared {
            linger_ms,
            due: AtomicU64::new(Millis::MAX),
            seen: AtomicU64::new(u64::MAX),
            number: engine.clients.fetch_add(1, Ordering::Relaxed),
            machine: Mutex::new(machine),
            changed: Condvar::new(),
            client_id: client_id.to_owned(),
            security,
            is_closed: Arc::new(AtomicBool::new(false)),
        });
        engine.push(Command::Add(Arc::clone(&shared) as Arc<Shared<dyn Machine>>));
        let engine = Arc::clone(engine);
        Self { engine, shared }
    }

    /// Calls the machine and has its effects carried out.
    pub fn call<T>(&self, step: impl FnOnce(&mut M, Millis) -> T) -> T {
        let result = self.look(step);
        self.engine.push(Command::Poke(self.shared.number));
        result
    }

    /// Has effects carried out that calls of `look` left.
    pub fn poke(&self) {
        self.engine.push(Command::Poke(self.shared.number));
    }

    /// Calls the machine; its effects are carried out with those of a later `call`.
    pub fn look<T>(&self, step: impl FnOnce(&mut M, Millis) -> T) -> T {
        let now = self.engine.now();
        step(&mut self.shared.lock(), now)
    }

    /// Waits until `outcome` gives something, which has to follow from `Machine::reached`.
    ///
    /// # Errors
    /// Why it did not.
    pub fn wait<T>(
        &self,
        timeout: Duration,
        interrupt: &Interrupt,
        outcome: impl Fn(&mut M) -> Option<T>,
    ) -> Result<T, Unfinished> {
        let began = Instant::now();
        let mut looked = Instant::now();
        let mut machine = self.shared.lock();
        loop {
            if let Some(result) = outcome(&mut machine) {
                return Ok(result);
            }
            if self.is_closed() || self.engine.is_over() {
                return Err(Unfinished::Closed);
            }
            let reached = machine.reached();
            if reached.is_some() && self.shared.is_news(reached) {
                // The calls that wait already have seen others.
                self.shared.changed.notify_all();
            }
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(Unfinished::TimedOut);
            }
            let waited = self
                .shared
                .changed
                .wait_timeout(machine, left.min(INTERRUPT_LOOK));
            machine = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            if looked.elapsed() >= INTERRUPT_LOOK {
                drop(machine); // a signal's handler may call this very client
                if interrupt.is_raised() {
                    return Err(Unfinished::Interrupted);
                }
                looked = Instant::now();
                machine = self.shared.lock();
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::Acquire)
    }

    /// Closes the connections. Calls that wait end with `Closed`; records that are not stored are given up.
    pub fn close(&self) {
        if !self.shared.is_closed.swap(true, Ordering::AcqRel) {
            self.engine.push(Command::Remove(self.shared.number));
            self.shared.changed.notify_all();
        }
    }
}

impl<M: Machine> Drop for Client<M> {
    fn drop(&mut self) {
        self.close();
    }
}
