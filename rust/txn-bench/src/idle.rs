//! `connections`: opens many, lets each say one `ApiVersions`, and holds them until its input ends.

use std::io::Read;
use std::time::Instant;

use txn_client::messages::API_VERSIONS;
use txn_client::messages::cluster::{decode_api_versions, encode_api_versions};

use crate::arguments::{Arguments, Failure};
use crate::connection::{BenchConnection, BenchNode};
use crate::samples::print;

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let node = BenchNode::of(arguments)?;
    let count: usize = arguments.number("count", 5000)?;
    let began = Instant::now();
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        let mut connection = BenchConnection::open(&node)?;
        greet(&mut connection)?;
        held.push(connection.into_idle());
    }
    print(&[
        ("connections", held.len() as f64),
        ("seconds", began.elapsed().as_secs_f64()),
    ]);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    // Every one of them is still served.
    for connection in &mut held {
        greet(connection)?;
    }
    Ok(())
}

/// Asks over a connection for the versions of requests.
pub fn greet(connection: &mut BenchConnection) -> Result<(), Failure> {
    let version = API_VERSIONS.highest;
    let versions = connection.call(
        API_VERSIONS,
        |e| encode_api_versions(e, version),
        |r| decode_api_versions(r, version),
    )?;
    match versions.error_code {
        0 => Ok(()),
        code => Err(format!("ApiVersions was answered with error {code}").into()),
    }
}
