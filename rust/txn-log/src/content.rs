//! The records of a batch, read as its content is opened; no record is held as a whole.
//!
//! [`walk`] reads every record of a batch to its last header, and tells a [`Visitor`] of each. It
//! tells offset, time and key, and whether there is a value. Memory is that of an [`Opening`].
//! It reads the same as [`Records`](txn_protocol::records::Records), by the same rules.
//!
//! [`inspect`] gives the facts about a batch's content that an append needs.

use std::fmt;
use std::ops::ControlFlow;

use txn_protocol::batch::{BatchError, BatchView, Codec};
use txn_protocol::records::{RecordError, read_nullable, read_varint, read_varlong};

use crate::compression::CompressionError;
use crate::opening::{Opening, Reading};
use crate::record_rules::{BadRecord, RecordRules};

/// Content that cannot be read.
#[derive(Debug)]
pub enum ContentError {
    /// The codec does not exist.
    Codec(BatchError),
    /// The compressed bytes are damaged, or hold more than the reader allows.
    Compression(CompressionError),
    /// They can be opened, and are not the records that the batch's header tells of.
    Record(RecordError),
}

impl fmt::Display for ContentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Codec(error) => error.fmt(f),
            Self::Compression(error) => error.fmt(f),
            Self::Record(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ContentError {}

impl From<CompressionError> for ContentError {
    fn from(error: CompressionError) -> Self {
        Self::Compression(error)
    }
}

/// The facts about a record, without holding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// Offset minus the batch's base offset.
    pub offset_delta: i32,
    /// Timestamp minus the batch's base timestamp, in ms.
    pub timestamp_delta: i64,
    /// True if its key is not null.
    pub has_key: bool,
    /// True if its value is not null.
    pub has_value: bool,
    /// Its bytes without a codec, behind its length.
    pub bytes: usize,
}

/// Is told of a batch's records, in order.
pub trait Visitor {
    /// Some bytes of the key of the record that comes next; its other bytes follow.
    fn key(&mut self, _piece: &[u8]) {}

    /// A record, read to its end. `Break` ends the walk.
    fn record(&mut self, record: &RecordHead) -> ControlFlow<()>;
}

impl<F: FnMut(&RecordHead) -> ControlFlow<()>> Visitor for F {
    fn record(&mut self, record: &RecordHead) -> ControlFlow<()> {
        self(record)
    }
}

/// Begins to open the content of a batch.
///
/// # Errors
/// `Codec`.
pub fn open<'a>(
    batch: &BatchView<'a>,
    reading: Reading,
    cap: usize,
) -> Result<Opening<'a>, ContentError> {
    let codec = batch.codec().map_err(ContentError::Codec)?;
    Ok(Opening::new(codec, batch.records(), reading, cap))
}

/// Reads `count` records, and that nothing follows them; fewer if the visitor breaks off.
///
/// # Errors
/// `Compression`, `Record`; earlier records have been visited.
pub fn walk(
    opening: &mut Opening<'_>,
    count: i32,
    visitor: &mut impl Visitor,
) -> Result<(), ContentError> {
    let mut index = 0;
    while index < count {
        let piece = opening.piece()?;
        let mut rest = piece;
        let mut is_broken_off = false;
        // The records that lie wholly in this piece.
        while index < count && !is_broken_off {
            let Some((body, after)) = split_record(rest) else {
                break;
            };
            let head = read_head(body, visitor).map_err(|reason| at(index, reason))?;
            is_broken_off = visitor.record(&head).is_break();
            rest = after;
            index += 1;
        }
        let taken = piece.len() - rest.len();
        opening.take(taken);
        if index < count && !is_broken_off && taken == 0 {
            let head = RecordReader::new(opening, index)?.read(visitor)?;
            is_broken_off = visitor.record(&head).is_break();
            index += 1;
        }
        if is_broken_off {
            return Ok(());
        }
    }
    if opening.piece()?.is_empty() {
        Ok(())
    } else {
        Err(at(count, "bytes are left over after the last record"))
    }
}

/// Splits off a record, without its length, if all of it is here.
#[inline]
fn split_record(mut bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = read_varint(&mut bytes)?;
    bytes.split_at_checked(usize::try_from(length).ok()?)
}

/// Like `records::read_record`, for callers that need no more of it than this.
#[inline]
fn read_head(body: &[u8], visitor: &mut impl Visitor) -> Result<RecordHead, &'static str> {
    let bytes = body.len();
    let mut body = body.get(1..).ok_or("it has no attributes")?;
    let timestamp_delta = read_varlong(&mut body).ok_or("its timestamp delta is cut")?;
    let offset_delta = read_varint(&mut body).ok_or("its offset delta is cut")?;
    let key = read_nullable(&mut body)?;
    let has_value = read_nullable(&mut body)?.is_some();
    let headers = read_varint(&mut body).ok_or("its header count is cut")?;
    if headers < 0 {
        return Err("its header count is negative");
    }
    for _ in 0..headers {
        read_nullable(&mut body)?.ok_or("a header has no key")?;
        read_nullable(&mut body)?;
    }
    if !body.is_empty() {
        return Err("its length does not fit its fields");
    }
    if let Some(key) = key {
        visitor.key(key);
    }
    Ok(RecordHead {
        offset_delta,
        timestamp_delta,
        has_key: key.is_some(),
        has_value,
        bytes,
    })
}

fn at(index: i32, reason: &'static str) -> ContentError {
    ContentError::Record(RecordError { index, reason })
}

/// One record, field by field, wherever the pieces of its batch's content end.
pub(crate) struct RecordReader<'o, 'a> {
    opening: &'o mut Opening<'a>,
    index: i32,
    /// Bytes of the record that are not read.
    left: usize,
}

impl<'o, 'a> RecordReader<'o, 'a> {
    /// Reads a record's length.
    ///
    /// # Errors
    /// The errors of [`walk`].
    pub fn new(opening: &'o mut Opening<'a>, index: i32) -> Result<Self, ContentError> {
        let mut reader = Self {
            opening,
            index,
            left: 5, // of a varint
        };
        let length = reader.varint("its length is cut")?;
        reader.left = usize::try_from(length).map_err(|_| at(index, "its length is negative"))?;
        Ok(reader)
    }

    /// Number of its bytes that are not read.
    pub fn left(&self) -> usize {
        self.left
    }

    fn read(mut self, visitor: &mut impl Visitor) -> Result<RecordHead, ContentError> {
        let bytes = self.left;
        self.byte("it has no attributes")?;
        let timestamp_delta = self.varlong("its timestamp delta is cut")?;
        let offset_delta = self.varint("its offset delta is cut")?;
        let key = self.field_length()?;
        self.pass(key.unwrap_or(0), |piece| visitor.key(piece))?;
        let value = self.field_length()?;
        self.pass(value.unwrap_or(0), |_| {})?;
        let headers = self.varint("its header count is cut")?;
        if headers < 0 {
            return Err(at(self.index, "its header count is negative"));
        }
        for _ in 0..headers {
            let key = self.field_length()?;
            let key = key.ok_or(at(self.index, "a header has no key"))?;
            self.pass(key, |_| {})?;
            let value = self.field_length()?;
            self.pass(value.unwrap_or(0), |_| {})?;
        }
        if self.left > 0 {
            return Err(at(self.index, "its length does not fit its fields"));
        }
        Ok(RecordHead {
            offset_delta,
            timestamp_delta,
            has_key: key.is_some(),
            has_value: value.is_some(),
            bytes,
        })
    }

    /// Reads a byte; `cut` is the error if there is none.
    ///
    /// # Errors
    /// The errors of [`walk`].
    pub fn byte(&mut self, cut: &'static str) -> Result<u8, ContentError> {
        let next = self.opening.piece()?.first().copied();
        match (next, self.left.checked_sub(1)) {
            (Some(byte), Some(left)) => {
                self.opening.take(1);
                self.left = left;
                Ok(byte)
            }
            _ => Err(at(self.index, cut)),
        }
    }

    fn varint(&mut self, cut: &'static str) -> Result<i32, ContentError> {
        let raw = u32::try_from(self.unsigned(5, cut)?).map_err(|_| at(self.index, cut))?;
        Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
    }

    /// Reads a zigzag varint of 64 bits.
    ///
    /// # Errors
    /// The errors of [`walk`].
    pub fn varlong(&mut self, cut: &'static str) -> Result<i64, ContentError> {
        let raw = self.unsigned(10, cut)?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    fn unsigned(&mut self, bytes_max: u32, cut: &'static str) -> Result<u64, ContentError> {
        let mut value = 0u64;
        for nth in 0..bytes_max {
            let byte = self.byte(cut)?;
            let group = u64::from(byte & 0x7f);
            if nth == 9 && group > 1 {
                break; // more than 64 bits
            }
            value |= group << (7 * nth);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(at(self.index, cut))
    }

    /// A field's length; `None` for null.
    fn field_length(&mut self) -> Result<Option<usize>, ContentError> {
        let length = self.varint("a field's length is cut")?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length);
        let length = length.map_err(|_| at(self.index, "a field's length is negative"))?;
        if length > self.left {
            let reason = "a field's length reaches over the end of the record";
            return Err(at(self.index, reason));
        }
        Ok(Some(length))
    }

    /// Reads a number of bytes, and shows them piece by piece.
    ///
    /// # Errors
    /// The errors of [`walk`].
    pub fn pass(&mut self, bytes: usize, mut see: impl FnMut(&[u8])) -> Result<(), ContentError> {
        let mut missing = bytes;
        while missing > 0 {
            let piece = self.opening.piece()?;
            if piece.is_empty() {
                let reason = "its length reaches over the end of the batch";
                return Err(at(self.index, reason));
            }
            let seen = &piece[..piece.len().min(missing)];
            see(seen);
            let passed = seen.len();
            self.opening.take(passed);
            missing -= passed;
        }
        self.left -= bytes;
        Ok(())
    }
}

/// The facts about a batch's content that an append needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The largest timestamp of its records, in ms. It is -1 if none has one, and if all are of
    /// before 1970: so Kafka writes it.
    pub latest_ms: i64,
    /// The records that break a rule, in order.
    pub bad: Vec<BadRecord>,
    /// Size of the records without a codec.
    pub bytes: usize,
    /// As [`Opening::is_joined`]: some clients would not read it as it is.
    pub is_joined: bool,
}

/// The work that the batches of a request may still make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendBudget {
    /// Bytes of compressed content that may be opened.
    pub bytes: usize,
    /// Bad records that may be named beyond the first of each batch.
    pub names: usize,
}

impl AppendBudget {
    /// No limit.
    pub const MAX: Self = Self {
        bytes: usize::MAX,
        names: usize::MAX,
    };
}

/// Reads a whole batch that is to be stored, and names the records that break a rule: the first,
/// and as many more as `names` allows, which is lowered by as many.
///
/// `opened` is raised by the work of opening it, in bytes: 0 if it is not compressed, the bytes
/// found until then if it is refused.
///
/// # Errors
/// The first thing for which a client could not read it, its offset deltas not being 0, 1, 2 …,
/// or `TooLarge` with `cap`, which compressed bytes alone are held against.
pub fn inspect(
    batch: &BatchView<'_>,
    rules: &RecordRules,
    cap: usize,
    opened: &mut usize,
    names: &mut usize,
) -> Result<Content, ContentError> {
    let is_plain = batch.codec() == Ok(Codec::None);
    let cap = if is_plain { usize::MAX } else { cap };
    let mut opening = open(batch, Reading::Strict, cap)?;
    let surveyed = survey(batch, rules, &mut opening, *names);
    if !is_plain {
        *opened = opened.saturating_add(OPENING_COST_BYTES + opening.opened());
    }
    if let Ok(content) = &surveyed {
        *names -= content.bad.len().saturating_sub(1);
    }
    surveyed
}

/// Cost of beginning to open a batch, as if so many bytes were opened.
const OPENING_COST_BYTES: usize = 4 << 10;

fn survey(
    batch: &BatchView<'_>,
    rules: &RecordRules,
    opening: &mut Opening<'_>,
    names: usize,
) -> Result<Content, ContentError> {
    let mut survey = Survey {
        base_timestamp: batch.base_timestamp(),
        rules,
        bad_max: names.saturating_add(1),
        index: 0,
        is_in_order: true,
        content: Content {
            latest_ms: -1,
            bad: Vec::new(),
            bytes: 0,
            is_joined: false,
        },
    };
    walk(opening, batch.record_count(), &mut survey)?;
    if !survey.is_in_order {
        let reason = "its offset delta is not its place in the batch";
        return Err(at(survey.index, reason));
    }
    survey.content.bytes = opening.opened();
    survey.content.is_joined = opening.is_joined();
    Ok(survey.content)
}

struct Survey<'a> {
    base_timestamp: i64,
    rules: &'a RecordRules,
    bad_max: usize,
    index: i32,
    is_in_order: bool,
    content: Content,
}

impl Visitor for Survey<'_> {
    #[inline]
    fn record(&mut self, record: &RecordHead) -> ControlFlow<()> {
        if record.offset_delta != self.index {
            self.is_in_order = false;
            return ControlFlow::Break(());
        }
        let timestamp = self.base_timestamp.wrapping_add(record.timestamp_delta);
        let content = &mut self.content;
        content.latest_ms = content.latest_ms.max(timestamp);
        if let Some(fault) = self.rules.fault(record, timestamp)
            && content.bad.len() < self.bad_max
        {
            let index = self.index;
            content.bad.push(BadRecord { index, fault });
        }
        self.index += 1;
        ControlFlow::Continue(())
    }
}
