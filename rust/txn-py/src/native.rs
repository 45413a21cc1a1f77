//! The parts that the native producer and the native consumer have in common.

use std::time::Duration;

use pyo3::prelude::*;
use txn_client::engine::driver::Client;
use txn_client::engine::{Machine, Unfinished};
use txn_client::{Address, Interrupt, KafkaError};

use crate::client::Signal;

/// (address, code, is retriable, is other protocol, message).
pub(crate) type ConnectTuple = (String, i16, bool, bool, String);

/// Addresses that cannot be reached, and why.
pub(crate) fn connect_tuples(errors: Vec<(Address, KafkaError)>) -> Vec<ConnectTuple> {
    let tuple = |(address, e): (Address, KafkaError)| {
        let (is_retriable, is_other_protocol) = (e.is_retriable, e.is_other_protocol);
        let address = address.to_string();
        (address, e.code, is_retriable, is_other_protocol, e.message)
    };
    errors.into_iter().map(tuple).collect()
}

/// Waits without the interpreter until `outcome` gives something. None: the time is over, or the
/// client is closed.
///
/// # Errors
/// The exception of a signal's handler.
pub(crate) fn wait<M: Machine, T: Send>(
    py: Python<'_>,
    client: &Client<M>,
    signal: &Signal,
    timeout_ms: u64,
    outcome: impl Fn(&mut M) -> Option<T> + Send,
) -> PyResult<Option<T>> {
    let raised = signal.clone();
    let interrupt = Interrupt::new(move || raised.is_raised());
    let timeout = Duration::from_millis(timeout_ms);
    match py.detach(|| client.wait(timeout, &interrupt, outcome)) {
        Ok(result) => Ok(Some(result)),
        Err(Unfinished::Interrupted) => Err(signal.take().expect("a handler raised it")),
        Err(Unfinished::TimedOut | Unfinished::Closed) => Ok(None),
    }
}
