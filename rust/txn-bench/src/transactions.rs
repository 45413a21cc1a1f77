//! `transactions`: small ones of transaction version 2, one after the other for each of some
//! producers; every so many aborted.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use txn_client::messages::cluster::{
    CoordinatorOf, decode_find_coordinator, encode_find_coordinator,
};
use txn_client::messages::transactions::{ProducerIdAndEpoch, decode_end_txn, encode_end_txn};
use txn_client::messages::{END_TXN, FIND_COORDINATOR};
use txn_protocol::codes;

use crate::arguments::{Arguments, Failure};
use crate::connection::{BenchConnection, BenchNode};
use crate::load::Load;
use crate::produce::identity;
use crate::samples::{Samples, micros, print};

/// Pause for a coordinator that is still busy with the transaction before.
const PAUSE: Duration = Duration::from_micros(500);

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let producers = arguments.number("producers", 1)?;
    let start = Barrier::new(producers + 1);
    let (ended, elapsed) = thread::scope(|scope| {
        let workers: Vec<_> = (0..producers)
            .map(|number| {
                let start = &start;
                scope.spawn(move || {
                    let producer = BenchProducer::open(arguments, number);
                    start.wait();
                    producer?.run(arguments)
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        let mut ended = EndCounters::default();
        for worker in workers {
            ended.add(worker.join().expect("no producer panics")?);
        }
        Ok::<_, Failure>((ended, began.elapsed()))
    })?;
    let mut ended = ended;
    print(&[
        ("transactions", f64::from(ended.count)),
        ("aborted", f64::from(ended.aborted)),
        ("seconds", elapsed.as_secs_f64()),
        ("p50_us", ended.latencies.percentile(0.5)),
        ("p99_us", ended.latencies.percentile(0.99)),
    ]);
    Ok(())
}

/// Ends of transactions.
#[derive(Default)]
struct EndCounters {
    count: u32,
    aborted: u32,
    latencies: Samples,
}

impl EndCounters {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.aborted += other.aborted;
        self.latencies.extend(other.latencies);
    }
}

/// A producer of one transactional id, which ends its transactions one after the other.
struct BenchProducer {
    connection: BenchConnection,
    transactional_id: String,
    who: ProducerIdAndEpoch,
    loads: Vec<Load>,
}

impl BenchProducer {
    fn open(arguments: &Arguments, number: usize) -> Result<Self, Failure> {
        let mut connection = BenchConnection::open(&BenchNode::of(arguments)?)?;
        let topic = arguments.text("topic")?;
        let transactional_id = format!("{}-{number}", arguments.text("id")?);
        let partitions: i32 = arguments.number("partitions", 1)?;
        let records = arguments.number("records", 10)?;
        let record_bytes = arguments.number("record-bytes", 100)?;
        connection
            .call(
                FIND_COORDINATOR,
                |e| encode_find_coordinator(e, CoordinatorOf::Transaction, &transactional_id),
                decode_find_coordinator,
            )?
            .map_or_else(|_| (), |_| ()); // not there yet: InitProducerId will wait for it
        let who = identity(&mut connection, Some(&transactional_id))?;
        let loads = (0..partitions)
            .map(|partition| {
                let id = Some(&transactional_id[..]);
                Load::new(topic, partition, id, record_bytes, usize::MAX, records)
            })
            .collect();
        Ok(Self {
            connection,
            transactional_id,
            who,
            loads,
        })
    }

    fn run(mut self, arguments: &Arguments) -> Result<EndCounters, Failure> {
        let count: u32 = arguments.number("count", 1000)?;
        let abort_every: u32 = arguments.number("abort-every", 0)?;
        let mut ended = EndCounters::default();
        for number in 0..count {
            let is_commit = abort_every == 0 || number % abort_every != 0;
            ended.count += 1;
            ended.aborted += u32::from(!is_commit);
            let started = Instant::now();
            for load in &mut self.loads {
                load.begin(self.who);
                store(&mut self.connection, load)?;
            }
            self.who = end(
                &mut self.connection,
                &self.transactional_id,
                self.who,
                is_commit,
            )?;
            ended.latencies.push(micros(started.elapsed()));
        }
        Ok(ended)
    }
}

fn store(connection: &mut BenchConnection, load: &mut Load) -> Result<(), Failure> {
    loop {
        load.send(connection)?;
        match load.answer(connection)? {
            0 => return Ok(()),
            codes::CONCURRENT_TRANSACTIONS => {
                load.unsend();
                std::thread::sleep(PAUSE);
            }
            code => return Err(format!("Produce was answered with error {code}").into()),
        }
    }
}

fn end(
    connection: &mut BenchConnection,
    transactional_id: &str,
    who: ProducerIdAndEpoch,
    is_commit: bool,
) -> Result<ProducerIdAndEpoch, Failure> {
    loop {
        let (code, next) = connection.call(
            END_TXN,
            |e| encode_end_txn(e, transactional_id, who, is_commit),
            |r| decode_end_txn(r, END_TXN.highest),
        )?;
        match (code, next) {
            (0, Some(next)) => return Ok(next),
            (codes::CONCURRENT_TRANSACTIONS, _) => std::thread::sleep(PAUSE),
            (code, _) => return Err(format!("EndTxn was answered with error {code}").into()),
        }
    }
}
