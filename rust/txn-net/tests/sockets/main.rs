//! The server as its clients meet it: real sockets, real logs, a producer state of our own.
//!
//! The tests have a file for each subject. They share
//! `rules`, `running`, `client` and `wire`.

mod authentication;
mod bad_input;
mod client;
mod control;
mod decisions;
mod ends;
mod limits;
mod memory;
mod mutes;
mod presence;
mod produce_and_fetch;
mod roles;
mod rules;
mod running;
mod sessions;
mod slow_clients;
mod transactions;
mod turns;
mod waiting;
mod wire;
