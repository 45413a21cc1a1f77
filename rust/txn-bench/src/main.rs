//! A load client for brokers that speak the Kafka protocol: as little work per byte as the protocol
//! allows, so that the broker is measured.
//!
//! ```text
//! produce        idempotent batches, so many in flight on so many connections
//! fetch          from the start to the end of some partitions
//! fetch-sessions of many partitions of which few or none have anything to read
//! transactions   small ones of transaction version 2, some of them aborted
//! create-topics  topics, and optionally one record into each of their partitions
//! connections    opens and holds idle connections until its input ends
//! handshakes     opens connections one after the other, with one request each
//! log-ins        logs in by SASL over and over, a connection each
//! limits         what this machine can do: append, checksum, round trip, receive, sendfile
//! ```
//!
//! Each goes over TLS where `--ca FILE` is given: `--tls 1.2` or 1.3, one cipher suite, no session resumed.
//! Blocking sockets, a thread per connection, one node. Prints one line of JSON. The broker's cost
//! is not seen from here: the caller of this program reads it from `/proc`.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    reason = "counts and bytes of a measurement stay far below 2^52"
)]

mod arguments;
mod connection;
mod fetch;
mod handshakes;
mod idle;
mod limits;
mod load;
mod produce;
mod samples;
mod secure;
mod sessions;
mod topics;
mod transactions;

use std::process::ExitCode;

use arguments::Arguments;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let done = Arguments::parse(words).and_then(|arguments| match command.as_str() {
        "produce" => produce::run(&arguments),
        "fetch" => fetch::run(&arguments),
        "fetch-sessions" => sessions::run(&arguments),
        "transactions" => transactions::run(&arguments),
        "create-topics" => topics::run(&arguments),
        "connections" => idle::run(&arguments),
        "handshakes" => handshakes::run(&arguments),
        "log-ins" => handshakes::log_in(&arguments),
        "limits" => limits::run(&arguments),
        _ => Err(format!(
            "no command {command:?}: give produce, fetch, fetch-sessions, transactions, create-topics, connections, \
             handshakes, log-ins or limits"
        )
        .into()),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("txn-bench {command}: {error}");
            ExitCode::FAILURE
        }
    }
}
