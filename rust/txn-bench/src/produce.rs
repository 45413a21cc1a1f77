//! `produce`: idempotent batches from so many connections, so many in flight on each.

use std::collections::VecDeque;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use txn_client::messages::INIT_PRODUCER_ID;
use txn_client::messages::transactions::{
    ProducerIdAndEpoch, decode_init_producer_id, encode_init_producer_id,
};
use txn_protocol::codes;

use crate::arguments::{Arguments, Failure};
use crate::connection::{BenchConnection, BenchNode};
use crate::load::Load;
use crate::samples::{Samples, micros, print};

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let node = BenchNode::of(arguments)?;
    let topic = arguments.text("topic")?;
    let partitions = arguments.number("partitions", 1)?;
    let connections = arguments.number("connections", 1)?;
    let in_flight = arguments.number("in-flight", 5)?;
    let record_bytes = arguments.number("record-bytes", 100)?;
    let batch_bytes = arguments.number("batch-bytes", 64 << 10)?;
    let bytes: u64 = arguments.number("bytes", u64::MAX)?;
    let requests: u64 = arguments.number("requests", u64::MAX)?;
    let seconds = arguments.number("seconds", f64::MAX)?;
    let start = Barrier::new(connections + 1);
    let (sent, elapsed) = thread::scope(|scope| {
        let workers: Vec<_> = (0..connections)
            .map(|number| {
                let (start, node) = (&start, &node);
                let partition = number as i32 % partitions;
                let load = Load::new(topic, partition, None, record_bytes, batch_bytes, i32::MAX);
                let goal = requests.min(bytes.div_ceil(load.bytes() as u64)) / connections as u64;
                scope.spawn(move || {
                    let worker = prepare(node, load);
                    start.wait();
                    let (connection, load) = worker?;
                    produce(connection, load, goal, seconds, in_flight)
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        let mut sent = Sent::default();
        for worker in workers {
            sent.add(worker.join().expect("no worker panics")?);
        }
        Ok::<_, Failure>((sent, began.elapsed()))
    })?;
    let mut sent = sent;
    print(&[
        ("requests", sent.requests as f64),
        ("records", sent.records as f64),
        ("bytes", sent.bytes as f64),
        ("seconds", elapsed.as_secs_f64()),
        ("p50_us", sent.latencies.percentile(0.5)),
        ("p99_us", sent.latencies.percentile(0.99)),
        ("p999_us", sent.latencies.percentile(0.999)),
    ]);
    Ok(())
}

fn prepare(node: &BenchNode<'_>, mut load: Load) -> Result<(BenchConnection, Load), Failure> {
    let mut connection = BenchConnection::open(node)?;
    load.begin(identity(&mut connection, None)?);
    Ok((connection, load))
}

#[derive(Default)]
struct Sent {
    requests: u64,
    records: u64,
    bytes: u64,
    latencies: Samples,
}

impl Sent {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.records += other.records;
        self.bytes += other.bytes;
        self.latencies.extend(other.latencies);
    }
}

fn produce(
    mut connection: BenchConnection,
    mut load: Load,
    goal: u64,
    seconds: f64,
    in_flight: usize,
) -> Result<Sent, Failure> {
    let began = Instant::now();
    let mut under_way = VecDeque::with_capacity(in_flight);
    let mut latencies = Samples::default();
    let mut requests = 0;
    let mut is_over = false;
    while !is_over || !under_way.is_empty() {
        while !is_over && under_way.len() < in_flight {
            let now = Instant::now();
            is_over = requests == goal || (now - began).as_secs_f64() >= seconds;
            if is_over {
                break;
            }
            under_way.push_back(now);
            load.send(&mut connection)?;
            requests += 1;
        }
        if let Some(sent) = under_way.pop_front() {
            load.confirm(&mut connection)?;
            latencies.push(micros(sent.elapsed()));
        }
    }
    Ok(Sent {
        requests,
        records: requests * load.records() as u64,
        bytes: requests * load.bytes() as u64,
        latencies,
    })
}

/// Asks for a producer id until the coordinator has one to give.
pub fn identity(
    connection: &mut BenchConnection,
    transactional_id: Option<&str>,
) -> Result<ProducerIdAndEpoch, Failure> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let began = Instant::now();
    loop {
        let (code, identity) = connection.call(
            INIT_PRODUCER_ID,
            |e| encode_init_producer_id(e, 5, transactional_id, 60_000, (-1, -1)),
            |r| decode_init_producer_id(r, 5),
        )?;
        match code {
            0 => return Ok(identity),
            codes::COORDINATOR_LOAD_IN_PROGRESS
            | codes::COORDINATOR_NOT_AVAILABLE
            | codes::NOT_COORDINATOR
            | codes::CONCURRENT_TRANSACTIONS
                if began.elapsed() < PATIENCE =>
            {
                thread::sleep(Duration::from_millis(20));
            }
            _ => return Err(format!("InitProducerId was answered with error {code}").into()),
        }
    }
}
