//! `transactions`: small ones of transaction version 2, one after the other; every so many aborted.

use std::time::{Duration, Instant};

use txn_client::messages::cluster::{
    CoordinatorOf, decode_find_coordinator, encode_find_coordinator,
};
use txn_client::messages::transactions::{Identity, decode_end_txn, encode_end_txn};
use txn_client::messages::{END_TXN, FIND_COORDINATOR};

use crate::arguments::{Arguments, Failure};
use crate::connection::Connection;
use crate::load::Load;
use crate::produce::identity;
use crate::samples::{Samples, micros, print};

const CONCURRENT_TRANSACTIONS: i16 = 51;
/// How long to leave a coordinator alone that is still busy with the transaction before.
const PAUSE: Duration = Duration::from_micros(500);

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut connection = Connection::open(arguments.text("bootstrap")?)?;
    let topic = arguments.text("topic")?;
    let transactional_id = arguments.text("id")?;
    let partitions: i32 = arguments.number("partitions", 1)?;
    let count: u32 = arguments.number("count", 1000)?;
    let records = arguments.number("records", 10)?;
    let record_bytes = arguments.number("record-bytes", 100)?;
    let abort_every: u32 = arguments.number("abort-every", 0)?;
    connection
        .call(
            FIND_COORDINATOR,
            |e| encode_find_coordinator(e, CoordinatorOf::Transaction, transactional_id),
            decode_find_coordinator,
        )?
        .map_or_else(|_| (), |_| ()); // not there yet: InitProducerId will wait for it
    let mut who = identity(&mut connection, Some(transactional_id))?;
    let mut loads: Vec<_> = (0..partitions)
        .map(|partition| {
            let id = Some(transactional_id);
            Load::new(topic, partition, id, record_bytes, usize::MAX, records)
        })
        .collect();
    let mut latencies = Samples::default();
    let mut aborted = 0;
    let began = Instant::now();
    for number in 0..count {
        let is_commit = abort_every == 0 || number % abort_every != 0;
        aborted += u32::from(!is_commit);
        let started = Instant::now();
        for load in &mut loads {
            load.begin(who);
            store(&mut connection, load)?;
        }
        who = end(&mut connection, transactional_id, who, is_commit)?;
        latencies.push(micros(started.elapsed()));
    }
    let elapsed = began.elapsed();
    print(&[
        ("transactions", f64::from(count)),
        ("aborted", f64::from(aborted)),
        ("seconds", elapsed.as_secs_f64()),
        ("p50_us", latencies.percentile(0.5)),
        ("p99_us", latencies.percentile(0.99)),
    ]);
    Ok(())
}

fn store(connection: &mut Connection, load: &mut Load) -> Result<(), Failure> {
    loop {
        load.send(connection)?;
        match load.answer(connection)? {
            0 => return Ok(()),
            CONCURRENT_TRANSACTIONS => {
                load.unsend();
                std::thread::sleep(PAUSE);
            }
            code => return Err(format!("Produce was answered with error {code}").into()),
        }
    }
}

fn end(
    connection: &mut Connection,
    transactional_id: &str,
    who: Identity,
    is_commit: bool,
) -> Result<Identity, Failure> {
    loop {
        let (code, next) = connection.call(
            END_TXN,
            |e| encode_end_txn(e, transactional_id, who, is_commit),
            |r| decode_end_txn(r, END_TXN.highest),
        )?;
        match (code, next) {
            (0, Some(next)) => return Ok(next),
            (CONCURRENT_TRANSACTIONS, _) => std::thread::sleep(PAUSE),
            (code, _) => return Err(format!("EndTxn was answered with error {code}").into()),
        }
    }
}
