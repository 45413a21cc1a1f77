//! `create-topics`: topics by prefix and number, and one record into each partition if wanted.
//!
//! A topic counts as created once every partition has its leader: Kafka answers before. That is
//! seen by a fetch of each; `--touch false` leaves them alone.

use std::thread;
use std::time::{Duration, Instant};

use txn_client::messages::cluster::{decode_create_topics, encode_create_topics};
use txn_client::messages::{CREATE_TOPICS, PRODUCE, produce};
use txn_protocol::Reader;
use txn_protocol::frame::read_response_header;

use crate::arguments::{Arguments, Failure};
use crate::connection::{BenchConnection, BenchNode, head};
use crate::fetch::is_led;
use crate::load::batch;
use crate::samples::print;

const TIMEOUT_MS: i32 = 120_000;
/// Partitions written by one Produce.
const PARTITIONS_AT_ONCE: usize = 100;
/// Time that a topic may take to get its leaders, and the pause between questions.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(2);

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut connection = BenchConnection::open(&BenchNode::of(arguments)?)?;
    let prefix = arguments.text("prefix")?;
    let topics: i32 = arguments.number("topics", 1)?;
    let partitions: i32 = arguments.number("partitions", 1)?;
    let is_written: bool = arguments.number("write", false)?;
    let is_touched: bool = arguments.number("touch", true)?;
    let names: Vec<_> = (0..topics)
        .map(|number| format!("{prefix}-{number}"))
        .collect();
    let began = Instant::now();
    for name in &names {
        create(&mut connection, name, partitions)?;
        if is_touched {
            wait_for_leaders(&mut connection, name, partitions)?;
        }
    }
    let created = began.elapsed();
    if is_written {
        for name in &names {
            write(&mut connection, name, partitions)?;
        }
    }
    print(&[
        ("partitions", f64::from(topics * partitions)),
        ("seconds_created", created.as_secs_f64()),
        ("seconds_written", began.elapsed().as_secs_f64()),
    ]);
    Ok(())
}

fn create(connection: &mut BenchConnection, name: &str, partitions: i32) -> Result<(), Failure> {
    let answers = connection.call(
        CREATE_TOPICS,
        |e| encode_create_topics(e, name, partitions, &[], TIMEOUT_MS),
        |r| decode_create_topics(r, CREATE_TOPICS.highest),
    )?;
    match answers.first() {
        Some((0, _)) => {}
        other => return Err(format!("CreateTopics of {name} was answered with {other:?}").into()),
    }
    Ok(())
}

fn wait_for_leaders(
    connection: &mut BenchConnection,
    name: &str,
    partitions: i32,
) -> Result<(), Failure> {
    let began = Instant::now();
    while !is_led(connection, name, partitions as usize)? {
        if began.elapsed() > PATIENCE {
            return Err(format!("{name} cannot be written after {PATIENCE:?}").into());
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Writes one record to each partition.
fn write(connection: &mut BenchConnection, topic: &str, partitions: i32) -> Result<(), Failure> {
    let record = batch(100, 0, 1, false);
    let partitions: Vec<i32> = (0..partitions).collect();
    for some in partitions.chunks(PARTITIONS_AT_ONCE) {
        for code in write_once(connection, topic, some, &record)? {
            check(code)?;
        }
    }
    Ok(())
}

fn check(code: i16) -> Result<(), Failure> {
    match code {
        0 => Ok(()),
        code => Err(format!("Produce was answered with error {code}").into()),
    }
}

fn write_once(
    connection: &mut BenchConnection,
    topic: &str,
    partitions: &[i32],
    batch: &[u8],
) -> Result<Vec<i16>, Failure> {
    let parts: Vec<_> = partitions
        .iter()
        .map(|&partition| produce::PartitionBatch {
            topic,
            partition,
            batch,
        })
        .collect();
    let pieces = produce::encode(head(PRODUCE), None, TIMEOUT_MS, &parts);
    let mut frame = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        frame.extend_from_slice(piece);
        frame.extend_from_slice(parts.get(index).map_or(&[], |part| part.batch));
    }
    connection.send(&mut frame, &[], &[])?;
    let mut reader = Reader::new(connection.receive()?);
    let outcomes = read_response_header(&mut reader, PRODUCE.key, PRODUCE.highest)
        .and_then(|_| produce::decode(&mut reader))
        .map_err(|error| error.to_string())?;
    Ok(outcomes
        .into_iter()
        .map(|outcome| outcome.error_code)
        .collect())
}
