//! `handshakes` and `log-ins`: connections that are opened and closed, one after the other in each thread.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use txn_client::Client;
use txn_client::security::{Secret, Security, SecuritySettings};

use crate::arguments::{Arguments, Failure};
use crate::connection::{BenchConnection, BenchNode};
use crate::idle::greet;
use crate::samples::{Samples, micros, print};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the command `handshakes`: each connection asks for the versions, so that both ends have finished.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let node = BenchNode::of(arguments)?;
    each(arguments, || greet(&mut BenchConnection::open(&node)?))
}

/// Runs the command `log-ins`: each connection logs in and asks for the transaction version.
pub fn log_in(arguments: &Arguments) -> Result<(), Failure> {
    let ca_pem = arguments.maybe("ca").map(fs::read).transpose()?;
    let protocol = if ca_pem.is_some() {
        "SASL_SSL"
    } else {
        "SASL_PLAINTEXT"
    };
    let security = Security::new(&SecuritySettings {
        protocol: protocol.to_owned(),
        ca_pem,
        mechanism: Some(arguments.text("mechanism")?.to_owned()),
        username: Some(arguments.text("user")?.to_owned()),
        password: Some(Secret::new(arguments.text("password")?)),
        ..SecuritySettings::default()
    })?;
    let servers = arguments.text("bootstrap")?;
    each(arguments, || {
        let client = Client::new(servers, "txn-bench", security.clone(), TIMEOUT, None)?;
        client.transaction_version()?;
        Ok(())
    })
}

/// Does a thing `--count` times, on `--connections` threads.
fn each(
    arguments: &Arguments,
    step: impl Fn() -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let count: usize = arguments.number("count", 1000)?;
    let threads: usize = arguments.number("connections", 4)?;
    let began = Instant::now();
    let mut times = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut times = Samples::default();
                    for _ in 0..count / threads {
                        let began = Instant::now();
                        step()?;
                        times.push(micros(began.elapsed()));
                    }
                    Ok::<_, Failure>(times)
                })
            })
            .collect();
        let mut all = Samples::default();
        for worker in workers {
            all.extend(worker.join().expect("no worker panics")?);
        }
        Ok::<_, Failure>(all)
    })?;
    print(&[
        ("count", (count / threads * threads) as f64),
        ("seconds", began.elapsed().as_secs_f64()),
        ("p50_us", times.percentile(0.5)),
        ("p99_us", times.percentile(0.99)),
    ]);
    Ok(())
}
