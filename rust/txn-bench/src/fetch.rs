//! `fetch`: partitions from their start to their end, one request after the other.
//!
//! Answers are read as a stream, and only the header of each batch is looked at. Its records are
//! received into a small buffer and forgotten, as a consumer's kernel would hand them over.

use std::io;
use std::time::Instant;

use txn_client::messages::FETCH;
use txn_protocol::batch::{HEADER_BYTES, Header};
use txn_protocol::frame::read_response_header;
use txn_protocol::{Malformed, Put, Reader};

use crate::arguments::{Arguments, Failure};
use crate::connection::{BenchConnection, BenchNode, head};
use crate::samples::{Samples, print};

const MIB: f64 = 1_048_576.0;

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut connection = BenchConnection::open(&BenchNode::of(arguments)?)?;
    let topic = arguments.text("topic")?;
    let partitions = arguments.number("partitions", 1)?;
    let is_read_committed = match arguments.text("isolation")? {
        "read_committed" => true,
        "read_uncommitted" => false,
        other => return Err(format!("there is no isolation level {other:?}").into()),
    };
    let request = BenchFetch {
        topic,
        is_read_committed,
        partition_bytes: arguments.number("partition-bytes", 1 << 20)?,
    };
    let rounds = arguments.number("rounds", 1)?;
    let mut seen = FetchCounters::default();
    let began = Instant::now();
    for _ in 0..rounds {
        let mut positions = vec![0; partitions];
        while request.fetch(&mut connection, &mut positions, &mut seen)? > 0 {}
    }
    let elapsed = began.elapsed();
    print(&[
        ("requests", seen.requests),
        ("bytes", seen.bytes),
        ("batches", seen.batches),
        ("aborted", seen.aborted),
        ("seconds", elapsed.as_secs_f64()),
        ("p50_us_per_mib", seen.per_mib.percentile(0.5)),
        ("p99_us_per_mib", seen.per_mib.percentile(0.99)),
    ]);
    Ok(())
}

/// Counters over all requests.
#[derive(Default)]
struct FetchCounters {
    requests: f64,
    bytes: f64,
    batches: f64,
    /// Aborted transactions that were named.
    aborted: f64,
    per_mib: Samples,
}

pub struct BenchFetch<'a> {
    pub topic: &'a str,
    pub is_read_committed: bool,
    pub partition_bytes: i32,
}

impl BenchFetch<'_> {
    /// Fetches once and moves the positions on; returns the record bytes received.
    fn fetch(
        &self,
        connection: &mut BenchConnection,
        positions: &mut [i64],
        seen: &mut FetchCounters,
    ) -> Result<usize, Failure> {
        let began = Instant::now();
        let mut request = self.encode(positions);
        connection.send(&mut request, &[], &[])?;
        let bytes = ResponseReader::new(connection)?.read(positions, seen)?;
        seen.requests += 1.0;
        seen.bytes += bytes as f64;
        if bytes > 0 {
            let mib = bytes as f64 / MIB;
            seen.per_mib.push(began.elapsed().as_secs_f64() * 1e6 / mib);
        }
        Ok(bytes)
    }

    fn encode(&self, positions: &[i64]) -> Vec<u8> {
        self.encode_in((0, -1), positions)
    }

    /// A request of a session, given by its id and epoch. Without positions it names nothing.
    pub fn encode_in(&self, session: (i32, i32), positions: &[i64]) -> Vec<u8> {
        let mut e = head(FETCH);
        e.put_i32(-1); // replica id: a consumer
        e.put_i32(0); // max wait: the end of the log answers at once
        e.put_i32(1); // min bytes
        e.put_i32(50 << 20); // max bytes: the default of consumers
        e.put_i8(i8::from(self.is_read_committed));
        e.put_i32(session.0);
        e.put_i32(session.1);
        e.put_compact_length(usize::from(!positions.is_empty()));
        if !positions.is_empty() {
            self.put_topic(&mut e, positions);
        }
        e.put_compact_length(0); // forgotten topics
        e.put_compact_string(""); // rack
        e.put_no_tags(true);
        e
    }

    fn put_topic(&self, e: &mut Vec<u8>, positions: &[i64]) {
        e.put_compact_string(self.topic);
        e.put_compact_array(positions.iter().enumerate(), |e, (index, position)| {
            e.put_i32(index as i32);
            e.put_i32(-1); // leader epoch: not known
            e.put_i64(*position);
            e.put_i32(-1); // last fetched epoch
            e.put_i64(-1); // log start offset
            e.put_i32(self.partition_bytes);
            e.put_no_tags(true);
        });
        e.put_no_tags(true);
    }
}

/// An answer to Fetch v12 on its way in.
struct ResponseReader<'a> {
    connection: &'a mut BenchConnection,
    left: usize,
}

impl<'a> ResponseReader<'a> {
    fn new(connection: &'a mut BenchConnection) -> io::Result<Self> {
        let size = connection.take(4)?.first_chunk().copied();
        let left = u32::from_be_bytes(size.expect("four bytes were taken")) as usize;
        Ok(Self { connection, left })
    }

    fn take(&mut self, len: usize) -> Result<&[u8], Failure> {
        self.left = self
            .left
            .checked_sub(len)
            .ok_or("an answer to Fetch ends too soon")?;
        Ok(self.connection.take(len)?)
    }

    fn skip(&mut self, len: usize) -> Result<(), Failure> {
        self.left = self
            .left
            .checked_sub(len)
            .ok_or("an answer to Fetch ends too soon")?;
        Ok(self.connection.skip(len)?)
    }

    fn i16(&mut self) -> Result<i16, Failure> {
        let taken = self.take(2)?.first_chunk().copied();
        Ok(i16::from_be_bytes(taken.expect("two bytes were taken")))
    }

    fn i32(&mut self) -> Result<i32, Failure> {
        let taken = self.take(4)?.first_chunk().copied();
        Ok(i32::from_be_bytes(taken.expect("four bytes were taken")))
    }

    fn uvarint(&mut self) -> Result<usize, Failure> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.take(1)?[0];
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        Ok(value)
    }

    /// An array's count or the length of bytes; null is empty.
    fn length(&mut self) -> Result<usize, Failure> {
        Ok(self.uvarint()?.saturating_sub(1))
    }

    fn tags(&mut self) -> Result<(), Failure> {
        for _ in 0..self.uvarint()? {
            self.uvarint()?;
            let length = self.uvarint()?;
            self.skip(length)?;
        }
        Ok(())
    }

    /// Reads everything; returns the record bytes.
    fn read(mut self, positions: &mut [i64], seen: &mut FetchCounters) -> Result<usize, Failure> {
        self.i32()?; // correlation id
        self.tags()?;
        self.i32()?; // throttle time
        check(self.i16()?)?;
        self.i32()?; // session id
        let mut bytes = 0;
        for _ in 0..self.length()? {
            let name = self.length()?;
            self.skip(name)?;
            for _ in 0..self.length()? {
                let index = self.i32()? as usize;
                check(self.i16()?)?;
                self.skip(24)?; // high watermark, last stable offset, log start
                let aborted = self.length()?;
                self.skip(aborted * 17)?; // producer id, first offset, no tags
                seen.aborted += aborted as f64;
                self.i32()?; // preferred replica
                let records = self.length()?;
                bytes += records;
                let position = positions
                    .get_mut(index)
                    .ok_or("a partition nobody asked for")?;
                self.read_batches(records, position, seen)?;
                self.tags()?;
            }
            self.tags()?;
        }
        self.tags()?;
        match self.left {
            0 => Ok(bytes),
            left => Err(format!("{left} bytes are left over of an answer to Fetch").into()),
        }
    }

    fn read_batches(
        &mut self,
        mut left: usize,
        position: &mut i64,
        seen: &mut FetchCounters,
    ) -> Result<(), Failure> {
        while left >= HEADER_BYTES {
            let header =
                Header::parse(self.take(HEADER_BYTES)?).map_err(|error| error.to_string())?;
            left -= HEADER_BYTES;
            let records = header.size() - HEADER_BYTES;
            if records > left {
                break; // Kafka may cut the last batch
            }
            self.skip(records)?;
            left -= records;
            *position = header.last_offset() + 1;
            seen.batches += 1.0;
        }
        self.skip(left)
    }
}

/// Says whether every partition of a topic has its leader here, so that it can be written.
pub fn is_led(
    connection: &mut BenchConnection,
    topic: &str,
    partitions: usize,
) -> Result<bool, Failure> {
    let request = BenchFetch {
        topic,
        is_read_committed: false,
        partition_bytes: 1,
    };
    connection.send(&mut request.encode(&vec![0; partitions]), &[], &[])?;
    let mut reader = Reader::new(connection.receive()?);
    let codes = leader_codes(&mut reader).map_err(|error| format!("Fetch: {error}"))?;
    match codes.iter().find(|code| ![0, 3, 5, 6].contains(code)) {
        Some(code) => Err(format!("Fetch was answered with error {code}").into()),
        None => Ok(codes.iter().all(|&code| code == 0)),
    }
}

/// The error code of every partition in an answer without records.
fn leader_codes(reader: &mut Reader<'_>) -> Result<Vec<i16>, Malformed> {
    read_response_header(reader, FETCH.key, FETCH.highest)?;
    reader.i32()?; // throttle time
    let code = reader.i16()?;
    reader.i32()?; // session id
    let topics = reader.compact_array(|reader| {
        reader.compact_string()?;
        let codes = reader.compact_array(|reader| {
            reader.i32()?; // index
            let code = reader.i16()?;
            for _ in 0..3 {
                reader.i64()?; // high watermark, last stable offset, log start
            }
            reader.uvarint()?; // aborted transactions: none to this isolation level
            reader.i32()?; // preferred replica
            reader.compact_nullable_bytes()?; // no records
            reader.skip_tags(true)?;
            Ok(code)
        })?;
        reader.skip_tags(true)?;
        Ok(codes)
    })?;
    let codes = topics.into_iter().flatten();
    Ok(codes.chain([code]).collect())
}

fn check(code: i16) -> Result<(), Failure> {
    match code {
        0 => Ok(()),
        code => Err(format!("Fetch was answered with error {code}").into()),
    }
}
