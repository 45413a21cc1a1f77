//! Record batches v2, read from borrowed bytes and stamped in place.
//!
//! All numbers are big endian. `crc` covers everything from `attributes` to the end, so the
//! base offset and the leader epoch can be stamped without touching it.
//!
//! ```text
//!  0 base offset      i64     21 attributes        i16     43 producer id     i64
//!  8 length           i32     23 last offset delta i32     51 producer epoch  i16
//! 12 leader epoch     i32     27 base timestamp    i64     53 base sequence   i32
//! 16 magic             i8     35 max timestamp     i64     57 record count    i32
//! 17 crc (CRC-32C)    u32                                  61 records
//! ```
//!
//! `length` counts the bytes after itself. Attributes: bits 0–2 codec, 3 log append time,
//! 4 transactional, 5 control, 6 the base timestamp is a delete horizon.
//!
//! Source: Kafka's protocol guide, "Record Batch"; KIP-98.

use std::fmt;
use std::ops::Deref;

/// Bytes of a batch before its records: from base offset through record count.
pub const HEADER_BYTES: usize = 61;

/// Bytes of a batch that `length` does not count: base offset and `length` itself.
const UNCOUNTED_BYTES: usize = 12;

/// Where the bytes begin that the checksum covers.
pub const CRC_START: usize = 21;

const CODEC_MASK: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;
const DELETE_HORIZON: i16 = 1 << 6;

/// Compression of a batch's records; the number is bits 0–2 of its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// The records are not compressed.
    None = 0,
    /// RFC 1952.
    Gzip = 1,
    /// Snappy blocks in xerial's framing.
    Snappy = 2,
    /// The LZ4 frame format.
    Lz4 = 3,
    /// RFC 8878.
    Zstd = 4,
}

impl Codec {
    /// The codec of an attributes field's low three bits; `None` for the numbers 5–7.
    #[inline]
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The codec by Kafka's name for it: none, gzip, snappy, lz4, zstd.
    #[inline]
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "gzip" => Some(Self::Gzip),
            "snappy" => Some(Self::Snappy),
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// A batch that is not whole or not sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchError {
    /// The bytes end inside the batch.
    Truncated {
        /// Bytes that the batch needs; at least the header.
        needed: usize,
        /// Bytes that there are.
        available: usize,
    },
    /// The length field is smaller than a header.
    Length {
        /// The stored value.
        length: i32,
    },
    /// The batch has another version than 2.
    Magic {
        /// The stored value.
        magic: i8,
    },
    /// The checksum does not match the bytes.
    Crc {
        /// The stored value.
        stored: u32,
        /// The computed value.
        computed: u32,
    },
    /// A codec number Kafka does not have.
    Codec {
        /// The stored value, 5–7.
        id: u8,
    },
    /// Counts or offsets that contradict each other.
    Inconsistent {
        /// The fault.
        reason: &'static str,
        /// The offending value.
        value: i64,
    },
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, available } => {
                write!(f, "the batch ends early: {available} bytes of {needed}")
            }
            Self::Length { length } => {
                write!(f, "the batch's length is {length}, less than a header")
            }
            Self::Magic { magic } => write!(f, "the batch's format is version {magic}, not 2"),
            Self::Crc { stored, computed } => write!(
                f,
                "the batch's CRC-32C is {stored:#010x}, its bytes give {computed:#010x}"
            ),
            Self::Codec { id } => write!(f, "the batch's codec is {id}, which does not exist"),
            Self::Inconsistent { reason, value } => write!(f, "{reason}: {value}"),
        }
    }
}

impl std::error::Error for BatchError {}

/// A batch without records that stands for the offsets `[start, end)`, as compaction leaves them.
#[must_use]
pub fn empty(start: i64, end: i64, leader_epoch: i32) -> Vec<u8> {
    let header = Header {
        base_offset: start,
        length: Header::length_of(HEADER_BYTES),
        leader_epoch,
        crc: 0,
        attributes: 0,
        last_offset_delta: (end - start - 1) as i32,
        base_timestamp: -1,
        max_timestamp: -1,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        record_count: 0,
    };
    let mut bytes = vec![0; HEADER_BYTES];
    header.write(&mut bytes);
    seal(&mut bytes);
    bytes
}

/// Returns why the bytes are not the beginning of the batch that a log would write next; `None` if
/// they may be.
///
/// `head` is the present part of the header, `available` counts the bytes that there are in all.
#[must_use]
pub fn fault_of_prefix(head: &[u8], available: u64, next_offset: i64) -> Option<&'static str> {
    let begins = |at: usize, wanted: &[u8]| {
        let found = head.get(at..).unwrap_or_default();
        found
            .iter()
            .zip(wanted)
            .all(|(found, wanted)| found == wanted)
    };
    let number = |at: usize| Some(i32::from_be_bytes(*head.get(at..)?.first_chunk()?));
    if !begins(0, &next_offset.to_be_bytes()) {
        return Some("it does not begin with the offset that comes next");
    }
    if let Some(length) = number(8) {
        if length < (HEADER_BYTES - UNCOUNTED_BYTES) as i32 {
            return Some("it is shorter than a header, by its length");
        }
        if UNCOUNTED_BYTES as u64 + length as u64 <= available {
            return Some("its full length is there");
        }
    }
    if !begins(16, &[2]) {
        return Some("it is of no known format");
    }
    let last_offset_delta = number(23);
    if last_offset_delta.is_some_and(|delta| delta < 0) {
        return Some("its last offset is below its first");
    }
    let counted = number(57).zip(last_offset_delta);
    if counted.is_some_and(|(count, delta)| count.checked_sub(1) != Some(delta)) {
        return Some("its record count does not fit its offsets");
    }
    None
}

/// The fields of a batch's header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Bytes of the batch after this field.
    pub length: i32,
    /// Epoch of the leader that stored the batch.
    pub leader_epoch: i32,
    /// The checksum as stored.
    pub crc: u32,
    /// The attribute bits.
    pub attributes: i16,
    /// Last offset minus base offset.
    pub last_offset_delta: i32,
    /// Base of the timestamp deltas, in ms.
    pub base_timestamp: i64,
    /// The largest timestamp, in ms.
    pub max_timestamp: i64,
    /// Producer id; -1 without one.
    pub producer_id: i64,
    /// Producer epoch; -1 without one.
    pub producer_epoch: i16,
    /// Sequence of the first record; -1 without one.
    pub base_sequence: i32,
    /// Announced number of records.
    pub record_count: i32,
}

impl Header {
    /// Decodes the first [`HEADER_BYTES`] of `bytes`, checking version and length only.
    ///
    /// # Errors
    /// `Magic`, `Length`, and `Truncated` if the header is not all there.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        // Older formats have shorter headers: name them before missing bytes.
        if let Some(&magic) = bytes.get(16)
            && magic != 2
        {
            return Err(BatchError::Magic { magic: magic as i8 });
        }
        let Some(fixed) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(BatchError::Truncated {
                needed: HEADER_BYTES,
                available: bytes.len(),
            });
        };
        let header = Self {
            base_offset: i64::from_be_bytes(field(fixed, 0)),
            length: i32::from_be_bytes(field(fixed, 8)),
            leader_epoch: i32::from_be_bytes(field(fixed, 12)),
            crc: u32::from_be_bytes(field(fixed, 17)),
            attributes: i16::from_be_bytes(field(fixed, CRC_START)),
            last_offset_delta: i32::from_be_bytes(field(fixed, 23)),
            base_timestamp: i64::from_be_bytes(field(fixed, 27)),
            max_timestamp: i64::from_be_bytes(field(fixed, 35)),
            producer_id: i64::from_be_bytes(field(fixed, 43)),
            producer_epoch: i16::from_be_bytes(field(fixed, 51)),
            base_sequence: i32::from_be_bytes(field(fixed, 53)),
            record_count: i32::from_be_bytes(field(fixed, 57)),
        };
        if header.length < (HEADER_BYTES - UNCOUNTED_BYTES) as i32 {
            return Err(BatchError::Length {
                length: header.length,
            });
        }
        Ok(header)
    }

    /// Writes the header over the first [`HEADER_BYTES`] of `bytes`.
    #[inline]
    pub fn write(&self, bytes: &mut [u8]) {
        bytes[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.leader_epoch.to_be_bytes());
        bytes[16] = 2;
        bytes[17..21].copy_from_slice(&self.crc.to_be_bytes());
        bytes[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        bytes[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        bytes[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        bytes[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        bytes[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        bytes[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        bytes[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        bytes[57..61].copy_from_slice(&self.record_count.to_be_bytes());
    }

    /// Size of the whole batch in bytes, header included; at least [`HEADER_BYTES`].
    #[inline]
    #[must_use]
    pub fn size(&self) -> usize {
        UNCOUNTED_BYTES + self.length as usize // `parse` refuses lengths below a header
    }

    /// The length field of a batch of `size` bytes.
    #[inline]
    #[must_use]
    pub fn length_of(size: usize) -> i32 {
        (size - UNCOUNTED_BYTES) as i32
    }

    /// Offset of its first record.
    #[inline]
    #[must_use]
    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    /// Offset of its last record, inclusive; nonsense if the batch is not valid.
    #[inline]
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .wrapping_add(i64::from(self.last_offset_delta))
    }

    /// Last offset minus base offset.
    #[inline]
    #[must_use]
    pub fn last_offset_delta(&self) -> i32 {
        self.last_offset_delta
    }

    /// Epoch of the leader that stored it.
    #[inline]
    #[must_use]
    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    /// Format version, always 2.
    #[inline]
    #[must_use]
    pub fn magic(&self) -> i8 {
        2
    }

    /// The checksum as stored.
    #[inline]
    #[must_use]
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// The attribute bits.
    #[inline]
    #[must_use]
    pub fn attributes(&self) -> i16 {
        self.attributes
    }

    /// Compression of the records.
    ///
    /// # Errors
    /// `Codec` for a number that does not exist.
    #[inline]
    pub fn codec(&self) -> Result<Codec, BatchError> {
        let id = (self.attributes & CODEC_MASK) as u8;
        Codec::from_id(id).ok_or(BatchError::Codec { id })
    }

    /// Base of the records' timestamp deltas, in ms.
    #[inline]
    #[must_use]
    pub fn base_timestamp(&self) -> i64 {
        self.base_timestamp
    }

    /// When compaction may drop its tombstones, or the marker it is, in ms; it then takes the
    /// place of the base timestamp.
    #[inline]
    #[must_use]
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        (self.attributes & DELETE_HORIZON != 0).then_some(self.base_timestamp)
    }

    /// The largest timestamp, in ms.
    #[inline]
    #[must_use]
    pub fn max_timestamp(&self) -> i64 {
        self.max_timestamp
    }

    /// -1 if it has none.
    #[inline]
    #[must_use]
    pub fn producer_id(&self) -> i64 {
        self.producer_id
    }

    /// -1 if it has none.
    #[inline]
    #[must_use]
    pub fn producer_epoch(&self) -> i16 {
        self.producer_epoch
    }

    /// Sequence of the first record; -1 if it has none.
    #[inline]
    #[must_use]
    pub fn base_sequence(&self) -> i32 {
        self.base_sequence
    }

    /// Number of records that it claims to hold.
    #[inline]
    #[must_use]
    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// True if it belongs to a transaction.
    #[inline]
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// True if it is a marker or another record of the broker's own.
    #[inline]
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// True if its records' timestamps are the append time, `max_timestamp`.
    #[inline]
    #[must_use]
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }
}

/// The attribute bits of a batch.
#[inline]
#[must_use]
pub fn attributes(codec: Codec, is_transactional: bool, is_control: bool) -> i16 {
    let flag = |is_set: bool, bit: i16| if is_set { bit } else { 0 };
    codec as i16 | flag(is_transactional, TRANSACTIONAL) | flag(is_control, CONTROL)
}

/// The attributes of a batch whose base timestamp is a delete horizon.
#[inline]
#[must_use]
pub fn with_delete_horizon(attributes: i16) -> i16 {
    attributes | DELETE_HORIZON
}

/// The attributes of a batch that has lost its records.
#[inline]
#[must_use]
pub fn without_content(attributes: i16) -> i16 {
    attributes & !(CODEC_MASK | DELETE_HORIZON)
}

#[inline]
fn field<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut taken = [0; N];
    taken.copy_from_slice(&bytes[at..at + N]);
    taken
}

/// The bytes of one whole batch; the fields of its [`Header`] are its methods too.
#[derive(Clone, Copy, Debug)]
pub struct BatchView<'a> {
    header: Header,
    bytes: &'a [u8],
}

impl Deref for BatchView<'_> {
    type Target = Header;

    #[inline]
    fn deref(&self) -> &Header {
        &self.header
    }
}

impl<'a> BatchView<'a> {
    /// Takes the first batch of `bytes`, checking its length and version only.
    ///
    /// # Errors
    /// `Truncated` if it is not all there, `Length`, `Magic`.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let header = Header::parse(bytes)?;
        let needed = header.size();
        let whole = bytes.get(..needed).ok_or(BatchError::Truncated {
            needed,
            available: bytes.len(),
        })?;
        Ok(Self {
            header,
            bytes: whole,
        })
    }

    /// The header, decoded.
    #[inline]
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The batch's bytes, header included.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes after the header, compressed as `codec` says.
    #[inline]
    #[must_use]
    pub fn records(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// Checks everything that needs no decompression: checksum, codec, counts.
    /// Any timestamp passes: Kafka stores records of before 1970.
    ///
    /// A batch that compaction has thinned out passes: it may hold fewer records than its
    /// offsets span.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn validate(&self) -> Result<(), BatchError> {
        self.validate_crc()?;
        self.codec()?;
        let inconsistent = |reason, value| Err(BatchError::Inconsistent { reason, value });
        let span = i64::from(self.last_offset_delta) + 1;
        let count = i64::from(self.record_count);
        if self.base_offset < 0 {
            return inconsistent("the batch's base offset is negative", self.base_offset);
        }
        if span < 1 || self.base_offset.checked_add(span).is_none() {
            return inconsistent("the batch's last offset delta is out of range", span - 1);
        }
        if count < 0 || count > span {
            return inconsistent("the batch's record count does not fit its offsets", count);
        }
        Ok(())
    }

    /// Checks the checksum alone.
    ///
    /// # Errors
    /// `Crc`.
    #[inline]
    pub fn validate_crc(&self) -> Result<(), BatchError> {
        let computed = checksum(self.bytes);
        if computed == self.crc {
            Ok(())
        } else {
            Err(BatchError::Crc {
                stored: self.crc,
                computed,
            })
        }
    }
}

/// The CRC-32C of a whole batch's bytes.
#[inline]
#[must_use]
pub fn checksum(batch: &[u8]) -> u32 {
    crc32c::crc32c(&batch[CRC_START..])
}

/// Stamps where a batch is stored; its checksum does not cover these fields.
#[inline]
pub fn stamp_offset(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
    batch[0..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
}

/// Stamps the producer of a batch; [`seal`] it afterwards.
#[inline]
pub fn stamp_producer(batch: &mut [u8], producer_id: i64, producer_epoch: i16) {
    batch[43..51].copy_from_slice(&producer_id.to_be_bytes());
    batch[51..53].copy_from_slice(&producer_epoch.to_be_bytes());
}

/// Stamps the sequence of a batch's first record; [`seal`] it afterwards.
#[inline]
pub fn stamp_sequence(batch: &mut [u8], base_sequence: i32) {
    batch[53..57].copy_from_slice(&base_sequence.to_be_bytes());
}

/// Stamps the checksum of a batch's bytes.
#[inline]
pub fn seal(batch: &mut [u8]) {
    let crc = checksum(batch);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// Stamps when a batch was stored, and its new checksum. Stamping twice is fine.
#[inline]
pub fn stamp_append_time(batch: &mut [u8], timestamp_ms: i64) {
    let attributes = i16::from_be_bytes([batch[21], batch[22]]) | LOG_APPEND_TIME;
    batch[21..23].copy_from_slice(&attributes.to_be_bytes());
    stamp_max_timestamp(batch, timestamp_ms);
}

/// Stamps the largest timestamp of a batch's records, and its new checksum.
#[inline]
pub fn stamp_max_timestamp(batch: &mut [u8], timestamp_ms: i64) {
    batch[35..43].copy_from_slice(&timestamp_ms.to_be_bytes());
    seal(batch);
}

/// Back-to-back batches; stops at a partial or unreadable one.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
}

impl<'a> Batches<'a> {
    /// Iterates the batches of `bytes`.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The bytes not yet iterated.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = BatchView<'a>;

    #[inline]
    fn next(&mut self) -> Option<BatchView<'a>> {
        let view = BatchView::parse(self.bytes).ok()?;
        self.bytes = &self.bytes[view.bytes.len()..];
        Some(view)
    }
}

#[cfg(test)]
mod tests;
