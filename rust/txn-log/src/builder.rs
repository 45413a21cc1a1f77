//! Making record batches: data, and the markers that end transactions.

use txn_protocol::batch::{self, Codec, HEADER_BYTES, Header};
use txn_protocol::records::{varlong_size, write_varlong};

use crate::compression::{self, CompressionError};
use crate::producer_state::Marker;

/// Collects records and seals them into one batch with base offset 0.
///
/// The buffer starts with room for the header, so an uncompressed batch is never copied.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    /// Compression of the records when sealed.
    pub codec: Codec,
    /// -1: none.
    pub producer_id: i64,
    /// -1: none.
    pub producer_epoch: i16,
    /// Sequence of the first record; -1: none.
    pub base_sequence: i32,
    /// True if the batch belongs to a transaction.
    pub is_transactional: bool,
    is_control: bool,
    buffer: Vec<u8>,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl BatchBuilder {
    /// An empty batch without a producer.
    #[must_use]
    pub fn new(codec: Codec) -> Self {
        Self {
            codec,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            is_transactional: false,
            is_control: false,
            buffer: vec![0; HEADER_BYTES],
            count: 0,
            base_timestamp: -1,
            max_timestamp: -1,
        }
    }

    /// Adds a record. `headers` are (key, value) pairs.
    pub fn push(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) {
        if self.count == 0 {
            self.base_timestamp = timestamp_ms;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp_ms);
        let timestamp_delta = timestamp_ms.wrapping_sub(self.base_timestamp);
        let header_bytes: usize = headers
            .iter()
            .map(|(key, value)| nullable_size(Some(key)) + nullable_size(*value))
            .sum();
        let body_bytes = 1
            + varlong_size(timestamp_delta)
            + varlong_size(i64::from(self.count))
            + nullable_size(key)
            + nullable_size(value)
            + varlong_size(headers.len() as i64)
            + header_bytes;
        let buffer = &mut self.buffer;
        buffer.reserve(body_bytes + 5);
        write_varlong(body_bytes as i64, buffer);
        buffer.push(0); // attributes: none are defined
        write_varlong(timestamp_delta, buffer);
        write_varlong(i64::from(self.count), buffer);
        write_nullable(key, buffer);
        write_nullable(value, buffer);
        write_varlong(headers.len() as i64, buffer);
        for (key, value) in headers {
            write_nullable(Some(key), buffer);
            write_nullable(*value, buffer);
        }
        self.count += 1;
    }

    /// Number of records in it.
    #[must_use]
    pub fn record_count(&self) -> i32 {
        self.count
    }

    /// Bytes of the batch so far, before compression.
    #[must_use]
    pub fn size(&self) -> usize {
        self.buffer.len()
    }

    /// Ends the batch, appends it to `output`, and starts an empty one for the same producer.
    ///
    /// The caller moves `base_sequence` on.
    ///
    /// # Errors
    /// The codec's error; the records are kept then.
    pub fn seal_into(&mut self, output: &mut Vec<u8>) -> Result<(), CompressionError> {
        let start = output.len();
        output.resize(start + HEADER_BYTES, 0);
        let sealed = compression::compress(self.codec, &self.buffer[HEADER_BYTES..], output);
        if let Err(error) = sealed {
            output.truncate(start);
            return Err(error);
        }
        self.write_header(&mut output[start..]);
        self.restart();
        Ok(())
    }

    /// Ends the batch and returns it; starts an empty one for the same producer.
    ///
    /// # Errors
    /// The codec's error; the records are kept then.
    pub fn seal(&mut self) -> Result<Vec<u8>, CompressionError> {
        if self.codec != Codec::None {
            let mut output = Vec::with_capacity(self.buffer.len() / 2 + HEADER_BYTES);
            return self.seal_into(&mut output).map(|()| output);
        }
        let mut batch = std::mem::take(&mut self.buffer);
        self.write_header(&mut batch);
        self.restart();
        Ok(batch)
    }

    fn write_header(&self, batch: &mut [u8]) {
        let mut header = Header {
            base_offset: 0,
            length: (batch.len() - 12) as i32,
            leader_epoch: -1,
            crc: 0,
            attributes: batch::attributes(self.codec, self.is_transactional, self.is_control),
            last_offset_delta: self.count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            record_count: self.count,
        };
        header.write(batch);
        header.crc = batch::checksum(batch);
        header.write(batch);
    }

    fn restart(&mut self) {
        self.buffer.clear();
        self.buffer.resize(HEADER_BYTES, 0);
        (self.count, self.base_timestamp, self.max_timestamp) = (0, -1, -1);
    }
}

fn nullable_size(field: Option<&[u8]>) -> usize {
    field.map_or(1, |bytes| varlong_size(bytes.len() as i64) + bytes.len())
}

fn write_nullable(field: Option<&[u8]>, output: &mut Vec<u8>) {
    match field {
        None => write_varlong(-1, output),
        Some(bytes) => {
            write_varlong(bytes.len() as i64, output);
            output.extend_from_slice(bytes);
        }
    }
}

/// Encodes a transaction marker as the control batch Kafka writes, with base offset 0.
///
/// One record; key: version `i16` 0, type `i16` (0 abort, 1 commit); value: version `i16` 0,
/// coordinator epoch `i32`. Source: KIP-98, "Control Messages".
#[must_use]
pub fn encode_marker(marker: &Marker) -> Vec<u8> {
    let key = [0, 0, 0, u8::from(marker.is_commit)];
    let mut value = [0; 6];
    value[2..].copy_from_slice(&marker.coordinator_epoch.to_be_bytes());
    let mut builder = BatchBuilder::new(Codec::None);
    builder.producer_id = marker.producer_id;
    builder.producer_epoch = marker.producer_epoch;
    builder.is_transactional = true;
    builder.is_control = true;
    builder.push(marker.timestamp_ms, Some(&key), Some(&value), &[]);
    builder
        .seal()
        .expect("an uncompressed batch needs no codec")
}

/// Reads the record of a marker's batch: whether it commits, and the coordinator epoch.
///
/// `None` for control records that end no transaction, and for damaged ones.
#[must_use]
pub fn decode_marker(records: &[u8]) -> Option<(bool, i32)> {
    let record = txn_protocol::records::Records::new(records, 1)
        .next()?
        .ok()?;
    let is_commit = match record.key? {
        [_, _, 0, 0, ..] => false,
        [_, _, 0, 1, ..] => true,
        _ => return None,
    };
    let epoch = record.value?.get(2..)?.first_chunk::<4>()?;
    Some((is_commit, i32::from_be_bytes(*epoch)))
}
