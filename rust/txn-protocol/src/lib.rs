//! The Kafka protocol as bytes: one reader, one encoder, one table of error codes.
//!
//! ```text
//!  reader   primitive types from borrowed bytes         encoder  the same types into a buffer
//!  frame    lengths, request and response headers       apis     keys, names, flexible versions
//!  codes    error codes                                 shape    bodies checked before Python decodes them
//!  batch    header of record batches, format 2          records  the records inside one
//! ```
//!
//! Broker, log, client and load generator read and write the wire through this crate. It does no
//! I/O and reserves no memory for announced lengths: each one is checked against the bytes left.
#![forbid(unsafe_code)]

pub mod apis;
pub mod batch;
pub mod codes;
pub mod encoder;
pub mod frame;
pub mod reader;
pub mod records;
pub mod shape;

pub use encoder::Put;
pub use reader::{Malformed, Reader};
