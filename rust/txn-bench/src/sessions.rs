//! `fetch-sessions`: requests for many partitions of which few or none have anything to read.
//!
//! | `--kind` | each request |
//! |---|---|
//! | `full` | names all partitions, without a session |
//! | `idle` | of a session, names nothing and is told nothing |
//! | `one` | of a session, names partition 0 and is told of its first batch |

use std::time::Instant;

use txn_client::messages::FETCH;
use txn_protocol::Reader;
use txn_protocol::frame::read_response_header;

use crate::arguments::{Arguments, Failure};
use crate::connection::{BenchConnection, BenchNode};
use crate::fetch::BenchFetch;
use crate::samples::print;

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut connection = BenchConnection::open(&BenchNode::of(arguments)?)?;
    let partitions: usize = arguments.number("partitions", 1000)?;
    let requests: i32 = arguments.number("requests", 1000)?;
    let request = BenchFetch {
        topic: arguments.text("topic")?,
        is_read_committed: false,
        partition_bytes: 1 << 20,
    };
    // Partition 0 has a record, and the others are read from their empty end on.
    let mut positions = vec![0; partitions];
    positions[0] = 1;
    let kind = arguments.text("kind")?;
    let is_full = match kind {
        "full" => true,
        "idle" | "one" => false,
        other => return Err(format!("there is no kind {other:?}").into()),
    };
    let named: &[i64] = match kind {
        "full" => &positions,
        "one" => &[0],
        _ => &[],
    };
    let mut session = (0, -1);
    if !is_full {
        let id = ask(&mut connection, &request.encode_in((0, 0), &positions))?;
        if id == 0 {
            return Err("the broker opened no session".into());
        }
        ask(&mut connection, &request.encode_in((id, 1), &[]))?; // each partition is looked at once
        session = (id, 2);
    }
    let began = Instant::now();
    for _ in 0..requests {
        ask(&mut connection, &request.encode_in(session, named))?;
        if !is_full {
            session.1 += 1;
        }
    }
    print(&[
        ("requests", f64::from(requests)),
        ("seconds", began.elapsed().as_secs_f64()),
    ]);
    Ok(())
}

/// Sends a request; returns the session id of its answer.
fn ask(connection: &mut BenchConnection, request: &[u8]) -> Result<i32, Failure> {
    connection.send(&mut request.to_vec(), &[], &[])?;
    let mut reader = Reader::new(connection.receive()?);
    let read = read_response_header(&mut reader, FETCH.key, FETCH.highest)
        .and_then(|_| Ok((reader.i32()?, reader.i16()?, reader.i32()?)));
    match read.map_err(|error| error.to_string())? {
        (_, 0, session) => Ok(session),
        (_, code, _) => Err(format!("Fetch was answered with error {code}").into()),
    }
}
