//! The boundary between Python and Rust: `txn._core`.
//!
//! It translates and decides nothing. Every call that may block releases the interpreter;
//! every Rust error becomes one of the exceptions in `errors`.
#![forbid(unsafe_code)]

mod apis;
mod checksum;
mod client;
mod compaction;
mod consumer;
mod disk;
mod durability;
mod error_codes;
mod errors;
mod fast_path;
mod inspect;
mod log;
mod losses;
mod message;
mod native;
mod producer;
mod rows;
mod security;
mod server;
mod shape;
mod tls;

use pyo3::prelude::*;

/// The Rust extension of txn; typed in `python/txn/_core.pyi`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::register(module)?;
    apis::register(module)?;
    checksum::register(module)?;
    error_codes::register(module)?;
    log::register(module)?;
    losses::register(module)?;
    compaction::register(module)?;
    disk::register(module)?;
    server::register(module)?;
    tls::register(module)?;
    shape::register(module)?;
    durability::register(module)?;
    client::register(module)?;
    producer::register(module)?;
    message::register(module)?;
    consumer::register(module)?;
    security::register(module)?;
    inspect::register(module)
}
