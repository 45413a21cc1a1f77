//! Mutated requests to a broker, pipelined over many connections.
//!
//! ```text
//! txn-mutate --bootstrap HOST:PORT --corpus FILE --requests 1000000 [--seed 7] [--connections 48]
//! ```
//!
//! The corpus has frames, sound and wild ones of every API and version. Behind each stand, as numbers of two bytes, how
//! many bytes of its body are values alone, and where. Each request is a frame with at least one change in its body:
//! nine in ten have other values, one in ten is changed anywhere. One in a hundred has a change in its header. A train of requests
//! ends with a sound `ApiVersions`: its answer says that all before it were decided on. A line of JSON at the
//! end counts, by API key, the requests that were. Those behind a closed connection or a long wait do not count.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use txn_fuzz::mutate::{Chance, mutate};
use txn_fuzz::seeds;
use txn_protocol::apis;
use txn_protocol::frame::{LENGTH_BYTES, RequestHeader, set_length, set_request_correlation_id};

/// Requests of a train.
const TRAIN: usize = 24;
/// Time for the answers to a train; some requests wait for seconds.
const ANSWERS: Duration = Duration::from_millis(250);
/// The largest request that a mutation makes.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// A train with more bytes leaves early: its sender has to read answers, too.
const TRAIN_BYTES_MAX: usize = 128 << 10;
/// The correlation id of a train's last request; the others have lower ones.
const FENCE: i32 = i32::MAX;
/// Values at their limits.
const LIGHT: [u8; 8] = [0, 1, 2, 3, 0x7f, 0x80, 0xfe, 0xff];

/// A frame, and where its body begins.
struct Sound {
    frame: Vec<u8>,
    body: usize,
    /// Positions in the body whose bytes are values.
    values: Vec<u16>,
    api_key: i16,
}

#[derive(Default)]
struct MutationCounts {
    decided: BTreeMap<i16, u64>,
    closed: u64,
    given_up: u64,
    connections: u64,
}

struct MutationRun {
    address: String,
    corpus: Vec<Sound>,
    requests: u64,
    sent: AtomicU64,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("txn-mutate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let mut given = BTreeMap::new();
    let mut words = std::env::args().skip(1);
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        given.insert(name.trim_start_matches("--").to_owned(), value);
    }
    let text = |name: &str| {
        let missing = || io::Error::other(format!("--{name} is not given"));
        given.get(name).cloned().ok_or_else(missing)
    };
    let number = |name: &str, otherwise: u64| {
        given.get(name).map_or(Ok(otherwise), |value| {
            value.parse().map_err(io::Error::other)
        })
    };
    let settings = Arc::new(MutationRun {
        address: text("bootstrap")?,
        corpus: corpus(&std::fs::read(text("corpus")?)?)?,
        requests: number("requests", 1_000_000)?,
        sent: AtomicU64::new(0),
    });
    let (seed, connections) = (number("seed", 7)?, number("connections", 48)?);
    let began = Instant::now();
    let senders: Vec<_> = (0..connections)
        .map(|index| {
            let settings = Arc::clone(&settings);
            std::thread::spawn(move || send(&settings, seed.wrapping_mul(1009) + index))
        })
        .collect();
    let mut all = MutationCounts::default();
    for sender in senders {
        let counts = sender.join().expect("a sender has no bug")?;
        for (key, count) in counts.decided {
            *all.decided.entry(key).or_default() += count;
        }
        all.closed += counts.closed;
        all.given_up += counts.given_up;
        all.connections += counts.connections;
    }
    println!("{}", told(&all, began.elapsed()));
    Ok(())
}

fn told(all: &MutationCounts, time: Duration) -> String {
    let mut by_api = String::new();
    for (key, count) in &all.decided {
        let name = apis::api(*key).map_or("none", |api| api.name);
        let _ = write!(
            by_api,
            "{}\"{name}\": {count}",
            if by_api.is_empty() { "" } else { ", " }
        );
    }
    format!(
        "{{\"decided\": {}, \"closed\": {}, \"given_up\": {}, \"connections\": {}, \"seconds\": {:.3}, \
         \"by_api\": {{{by_api}}}}}",
        all.decided.values().sum::<u64>(),
        all.closed,
        all.given_up,
        all.connections,
        time.as_secs_f64()
    )
}

/// Reads frames, and the positions behind each.
fn corpus(mut bytes: &[u8]) -> io::Result<Vec<Sound>> {
    let cut = || io::Error::new(ErrorKind::InvalidData, "the corpus is cut");
    let mut frames = Vec::new();
    while let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() {
        let end = LENGTH_BYTES + u32::from_be_bytes(*length) as usize;
        let (frame, rest) = bytes.split_at_checked(end).ok_or_else(cut)?;
        let (count, rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
        let count = 2 * usize::from(u16::from_be_bytes(*count));
        let (values, rest) = rest.split_at_checked(count).ok_or_else(cut)?;
        let header = RequestHeader::parse(&frame[LENGTH_BYTES..]);
        let header = header.map_err(|error| io::Error::other(error.to_string()))?;
        let value = |pair: &[u8]| u16::from_be_bytes([pair[0], pair[1]]);
        frames.push(Sound {
            frame: frame.to_vec(),
            body: LENGTH_BYTES + header.body,
            values: values.chunks_exact(2).map(value).collect(),
            api_key: header.api_key,
        });
        bytes = rest;
    }
    if frames.is_empty() || !bytes.is_empty() {
        return Err(cut());
    }
    Ok(frames)
}

/// One connection after the other, until enough requests were sent by all.
fn send(settings: &MutationRun, seed: u64) -> io::Result<MutationCounts> {
    let mut chance = Chance::new(seed);
    let mut counts = MutationCounts::default();
    let mut fence = seeds::request(apis::API_VERSIONS, 0, &[]);
    set_request_correlation_id(&mut fence, FENCE);
    let mut buffer = vec![0; 256 << 10];
    while settings.sent.load(Ordering::Relaxed) < settings.requests {
        let mut socket = TcpStream::connect(&settings.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWERS))?;
        socket.set_write_timeout(Some(Duration::from_secs(10)))?;
        counts.connections += 1;
        while settings.sent.load(Ordering::Relaxed) < settings.requests {
            let (mut train, keys) = train(settings, &mut chance);
            train.extend_from_slice(&fence);
            let (answered, is_over) = exchange(&mut socket, &train, &mut buffer);
            let decided = match is_over {
                None => keys.len(),
                Some(ErrorKind::WouldBlock) => {
                    counts.given_up += 1;
                    answered.min(keys.len())
                }
                Some(_) => {
                    counts.closed += 1;
                    (answered + 1).min(keys.len())
                }
            };
            for key in &keys[..decided] {
                *counts.decided.entry(*key).or_default() += 1;
            }
            settings.sent.fetch_add(decided as u64, Ordering::Relaxed);
            if is_over.is_some() {
                break;
            }
        }
    }
    Ok(counts)
}

/// Some requests, and their APIs.
fn train(settings: &MutationRun, chance: &mut Chance) -> (Vec<u8>, Vec<i16>) {
    let (mut bytes, mut keys) = (Vec::with_capacity(8 << 10), Vec::with_capacity(TRAIN));
    for number in 0..TRAIN {
        let sound = chance.of(&settings.corpus);
        let (head, body) = sound.frame.split_at(sound.body);
        let (mut head, mut body) = (head.to_vec(), body.to_vec());
        change(&mut body, &sound.values, chance);
        set_request_correlation_id(&mut head, number as i32);
        if chance.below(100) == 0 {
            let at = LENGTH_BYTES + chance.below(head.len() - LENGTH_BYTES);
            head[at] ^= 1 << chance.below(8);
        }
        let length = head.len() + body.len() - LENGTH_BYTES;
        set_length(&mut head, length);
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&body);
        keys.push(sound.api_key);
        if bytes.len() > TRAIN_BYTES_MAX {
            break;
        }
    }
    (bytes, keys)
}

/// Changes a body: nine in ten keep their form.
fn change(body: &mut Vec<u8>, values: &[u16], chance: &mut Chance) {
    if chance.below(10) > 0 && !values.is_empty() {
        for _ in 0..=chance.below(4) {
            let at = usize::from(*chance.of(values));
            body[at] = match chance.below(8) {
                0..3 => *chance.of(&LIGHT),
                3 => chance.number() as u8,
                _ => chance.below(0x80) as u8,
            };
        }
        return;
    }
    for _ in 0..*chance.of(&[1, 1, 1, 2, 4]) {
        mutate(body, chance, &[], REQUEST_BYTES_MAX);
    }
}

/// Sends a train and reads answers until the fence's; returns their number, and why it ended before.
fn exchange(
    socket: &mut TcpStream,
    train: &[u8],
    buffer: &mut Vec<u8>,
) -> (usize, Option<ErrorKind>) {
    if let Err(error) = socket.write_all(train) {
        return (0, Some(error.kind()));
    }
    let (mut answered, mut end) = (0, 0);
    loop {
        let received = match socket.read(&mut buffer[end..]) {
            Ok(0) => return (answered, Some(ErrorKind::UnexpectedEof)),
            Ok(received) => received,
            Err(error) => return (answered, Some(error.kind())),
        };
        end += received;
        let mut start = 0;
        while let Some(length) = buffer[start..end].first_chunk::<LENGTH_BYTES>() {
            let whole = LENGTH_BYTES + u32::from_be_bytes(*length) as usize;
            if end - start < whole {
                if whole > buffer.len() {
                    buffer.resize(whole, 0);
                }
                break;
            }
            if buffer[start + LENGTH_BYTES..].starts_with(&FENCE.to_be_bytes()) {
                return (answered, None);
            }
            answered += 1;
            start += whole;
        }
        buffer.copy_within(start..end, 0);
        end -= start;
        if end == buffer.len() {
            buffer.resize(2 * end, 0);
        }
    }
}
