//! Fuzz targets: functions that take any bytes, and panic at a fault.
//!
//! ```text
//!  TARGETS ─┬─► rust/fuzz          libFuzzer, for minutes or days: `make fuzz`
//!           ├─► regressions.rs     seeds, their mutations and old faults, on stable Rust: `make quick`
//!           └─► bin/txn-seeds      the seeds as files
//!  mutate   ───► bin/txn-mutate    mutated requests to a broker, hundreds of thousands a second
//! ```
//!
//! A target checks more than the absence of panics. Two readers of the same bytes have to agree, an answer has
//! to be shorter than a bound, and a server has to answer a sound client afterwards.
#![forbid(unsafe_code)]

mod answers;
mod batches;
mod bodies;
mod files;
mod memory;
pub mod mutate;
mod pieces;
#[cfg(test)]
mod regressions;
mod requests;
mod rules;
pub mod seeds;
mod tls;

/// A function under test, and inputs to begin with.
pub struct Target {
    /// Its name, and that of its program in `rust/fuzz`.
    pub name: &'static str,
    /// Runs it once; panics at a fault.
    pub run: fn(&[u8]),
    /// Inputs that reach far, made by code.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words that random bytes seldom have.
    pub words: &'static [&'static [u8]],
    /// The largest input that is of use.
    pub bytes_max: usize,
}

/// Every target.
pub const TARGETS: [Target; 6] = [
    Target {
        name: "tls_framing",
        run: tls::run,
        seeds: tls::seeds,
        words: &[
            b"\x16\x03\x01",
            b"\x17\x03\x03",
            b"\x14\x03\x03\0\x01\x01",
            b"\x15\x03\x03\0\x02",
        ],
        bytes_max: 16 << 10,
    },
    Target {
        name: "request_bodies",
        run: bodies::run,
        seeds: bodies::seeds,
        words: &[
            b"\xff\xff\xff\xff",
            b"\x7f\xff\xff\xff",
            b"\xff\xff\xff\xff\x0f",
        ],
        bytes_max: 4 << 10,
    },
    Target {
        name: "record_batches",
        run: batches::run,
        seeds: batches::seeds,
        words: &[
            b"\x1f\x8b",
            b"\x04\x22\x4d\x18",
            b"\x28\xb5\x2f\xfd",
            b"\x82SNAPPY\0",
        ],
        bytes_max: 8 << 10,
    },
    Target {
        name: "log_files",
        run: files::run,
        seeds: files::seeds,
        words: &[b"\0\0\0\0\0\0\0\0", b"\xff\xff\xff\xff"],
        bytes_max: 8 << 10,
    },
    Target {
        name: "client_answers",
        run: answers::run,
        seeds: answers::seeds,
        words: &[b"r=%", b",s=", b",i=4096", b"v=", b"\xff\xff\xff\xff\x0f"],
        bytes_max: 4 << 10,
    },
    Target {
        name: "request_path",
        run: requests::run,
        seeds: requests::seeds,
        words: &[
            b"\0\0\0\x10",
            b"\xff\xff\xff\xff",
            b"\x7f\xff\xff\xff",
            b"SCRAM-SHA-256",
        ],
        bytes_max: 16 << 10,
    },
];

/// The target with a name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
