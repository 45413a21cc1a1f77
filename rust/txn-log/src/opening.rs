//! Compressed bytes opened piece by piece, in memory that does not grow with their content.
//!
//! [`Opening`] gives the content of a batch in pieces and keeps one piece at a time. Its memory
//! is the thread's own and is used again for the next batch:
//!
//! | codec | a piece is at most | beside it |
//! |---|---|---|
//! | none | the bytes themselves | nothing |
//! | gzip | 64 KiB | the inflater, 45 KiB |
//! | snappy | one block: 22 times its compressed bytes | nothing |
//! | lz4 | one block: 4 MiB, and 255 times its compressed bytes | 64 KiB if blocks are linked |
//! | zstd | 64 KiB | the frame's window: 128 MiB, and as much as its content |
//!
//! # What counts as readable
//! A [`Reading::Strict`] opening takes content that Apache Kafka takes and Java's client reads, its
//! checksums right. Both refuse lz4 blocks that depend on each other, and zstd windows of more than
//! 128 MiB. [`Reading::Lenient`] takes content that any client reads, for bytes that are stored
//! already.
//!
//! Frames of zstd may follow each other, and skippable ones stand among them: every client reads
//! that. Bytes behind the first stream of another codec are different. Java's client goes on with
//! further gzip members and snappy streams, and passes over bytes behind an lz4 frame. librdkafka
//! reads the first gzip member alone, and refuses the others. [`Opening::is_joined`] tells of them.
//!
//! Sources: RFC 1951, RFC 1952; the LZ4 frame format 1.6; RFC 8878; snappy's `format_description`;
//! Kafka, `Lz4BlockInputStream`; xerial's `SnappyInputStream`; librdkafka, `rdkafka_lz4.c`, `rdgz.c`.

use std::cell::Cell;

use flate2::{Crc, Decompress, FlushDecompress, Status};
use twox_hash::XxHash32;
use txn_protocol::batch::Codec;
use zstd::zstd_safe::{self, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use crate::compression::CompressionError;

/// Bytes of a piece of gzip and zstd.
const PIECE_BYTES: usize = 64 << 10;
/// Larger pieces are freed, not kept for the next batch.
const KEPT_PIECE_BYTES: usize = 256 << 10;
/// Larger zstd contexts are freed: level 3, which clients use, takes a window of 2 MiB.
const KEPT_CONTEXT_BYTES: usize = 4 << 20;
/// The largest zstd window: the limit of Java's client, and the one that level 22 asks for.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

pub(crate) const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_BYTES: usize = 16;

const LZ4_MAGIC: u32 = 0x184d_2204;
/// Distance to which a linked lz4 block may refer back.
const LZ4_WINDOW_BYTES: usize = 64 << 10;
/// An lz4 sequence yields at most this many bytes for each of its own.
const LZ4_RATIO_MAX: usize = 255;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const GZIP_HEADER_BYTES: usize = 10;
const GZIP_TRAILER_BYTES: usize = 8;

/// Strictness about readable content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Content that Apache Kafka takes; for bytes that are to be stored.
    Strict,
    /// Content that some client reads; for stored bytes.
    Lenient,
}

/// Buffers that a thread keeps from one batch to the next.
#[derive(Default)]
struct Memory {
    piece: Vec<u8>,
    inflater: Option<Decompress>,
    context: Option<DCtx<'static>>,
}

thread_local! {
    static SPARE: Cell<Option<Box<Memory>>> = const { Cell::new(None) };
}

/// The content of compressed bytes, in pieces.
pub struct Opening<'a> {
    codec: Codec,
    reading: Reading,
    /// The unopened rest.
    input: &'a [u8],
    cap: usize,
    opened: usize,
    is_joined: bool,
    /// The rest of the piece in memory; of `input`, without a codec.
    unread: std::ops::Range<usize>,
    stage: Stage,
    memory: Box<Memory>,
}

/// Where in its stream an opening is.
enum Stage {
    /// Before a stream.
    Start,
    /// In a gzip member: the checksum so far.
    Gzip(Crc),
    /// Between the blocks of a xerial stream.
    Xerial,
    Lz4(Box<Lz4Frame>),
    Zstd,
    /// Behind the last stream.
    End,
}

struct Lz4Frame {
    block_bytes_max: usize,
    has_block_checksums: bool,
    content_size: Option<u64>,
    content_hasher: Option<XxHash32>,
    content_bytes: u64,
    /// The last bytes of the blocks before, if blocks are linked.
    window: Option<Vec<u8>>,
}

impl<'a> Opening<'a> {
    /// Begins to open `input`, of which at most `cap` bytes of content are given out.
    #[must_use]
    pub fn new(codec: Codec, input: &'a [u8], reading: Reading, cap: usize) -> Self {
        Self {
            codec,
            reading,
            input,
            cap,
            opened: 0,
            is_joined: false,
            unread: 0..0,
            stage: Stage::Start,
            memory: SPARE.take().unwrap_or_default(),
        }
    }

    /// The rest of the current piece, or else the next piece; empty at the end.
    ///
    /// # Errors
    /// `Damaged`, or `TooLarge` as soon as more than the cap was found.
    pub fn piece(&mut self) -> Result<&[u8], CompressionError> {
        if self.codec == Codec::None {
            if matches!(self.stage, Stage::Start) {
                self.stage = Stage::End;
                self.count(self.input.len())?;
                self.unread = 0..self.input.len();
            }
            return Ok(&self.input[self.unread.clone()]);
        }
        while self.unread.is_empty() && !matches!(self.stage, Stage::End) {
            let bytes = self.step()?;
            self.count(bytes)?;
            self.unread = 0..bytes;
        }
        Ok(&self.memory.piece[self.unread.clone()])
    }

    /// Returns up to a number of bytes of the current piece.
    pub fn take(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.unread.len());
        self.unread.start += bytes;
    }

    /// Bytes of content found so far.
    #[must_use]
    pub fn opened(&self) -> usize {
        self.opened
    }

    /// True once bytes were found behind the first stream that librdkafka does not read as Java's
    /// client does.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        self.is_joined
    }

    fn count(&mut self, bytes: usize) -> Result<(), CompressionError> {
        self.opened += bytes;
        if self.opened > self.cap {
            return Err(CompressionError::TooLarge { cap: self.cap });
        }
        Ok(())
    }

    /// Bytes that may still come.
    fn left(&self) -> usize {
        self.cap - self.opened
    }

    fn damaged(&self, reason: impl Into<String>) -> CompressionError {
        CompressionError::Damaged {
            codec: self.codec,
            reason: reason.into(),
        }
    }

    /// Reads the next piece, if there is one; returns its bytes.
    fn step(&mut self) -> Result<usize, CompressionError> {
        match self.stage {
            Stage::Start => self.begin(),
            Stage::Gzip(_) => self.inflate(),
            Stage::Xerial => self.open_xerial_block(),
            Stage::Lz4(_) => self.open_lz4_block(),
            Stage::Zstd => self.open_zstd(),
            Stage::End => Ok(0),
        }
    }

    fn begin(&mut self) -> Result<usize, CompressionError> {
        match self.codec {
            Codec::None => {}
            Codec::Gzip => self.begin_gzip()?,
            Codec::Snappy => {
                if !self.input.starts_with(&XERIAL_MAGIC) {
                    let block = std::mem::take(&mut self.input);
                    self.stage = Stage::End;
                    return self.open_snappy(block);
                }
                self.begin_xerial()?;
            }
            Codec::Lz4 => self.begin_lz4()?,
            Codec::Zstd => self.begin_zstd()?,
        }
        Ok(0)
    }

    /// Behind a stream: ends there, or goes on with the next one.
    fn end_stream(&mut self) {
        if self.input.is_empty() {
            self.stage = Stage::End;
            return;
        }
        self.is_joined |= self.codec != Codec::Zstd;
        let is_passed_over = self.codec == Codec::Lz4
            || (self.codec == Codec::Gzip && !self.input.starts_with(&GZIP_MAGIC));
        self.stage = if is_passed_over {
            Stage::End // as by Java's client
        } else {
            Stage::Start
        };
    }

    fn read<const N: usize>(&mut self, cut: &'static str) -> Result<[u8; N], CompressionError> {
        let (bytes, rest) = self
            .input
            .split_first_chunk::<N>()
            .ok_or_else(|| self.damaged(cut))?;
        self.input = rest;
        Ok(*bytes)
    }

    fn read_slice(
        &mut self,
        bytes: usize,
        cut: &'static str,
    ) -> Result<&'a [u8], CompressionError> {
        let (taken, rest) = self
            .input
            .split_at_checked(bytes)
            .ok_or_else(|| self.damaged(cut))?;
        self.input = rest;
        Ok(taken)
    }

    /// Makes the piece so large; its old bytes are of no use.
    fn make_room(&mut self, bytes: usize) {
        if self.memory.piece.len() < bytes {
            self.memory.piece.resize(bytes, 0);
        }
    }

    // ------------------------------------------------------------ gzip

    fn begin_gzip(&mut self) -> Result<(), CompressionError> {
        const CUT: &str = "the gzip header is cut";
        let [first, second, method, flags, ..] = self.read::<GZIP_HEADER_BYTES>(CUT)?;
        if [first, second] != GZIP_MAGIC {
            return Err(self.damaged("it does not begin as gzip does"));
        }
        if method != 8 || flags & 0xe0 != 0 {
            return Err(self.damaged("the gzip header asks for more than RFC 1952 has"));
        }
        if flags & 4 != 0 {
            let bytes = u16::from_le_bytes(self.read(CUT)?);
            self.read_slice(bytes.into(), CUT)?;
        }
        for has_text in [flags & 8 != 0, flags & 16 != 0] {
            if has_text {
                let end = self.input.iter().position(|&byte| byte == 0);
                let end = end.ok_or_else(|| self.damaged(CUT))?;
                self.input = &self.input[end + 1..];
            }
        }
        if flags & 2 != 0 {
            self.read::<2>(CUT)?;
        }
        let inflater = self.memory.inflater.get_or_insert_with(new_inflater);
        inflater.reset(false);
        self.make_room(PIECE_BYTES);
        self.stage = Stage::Gzip(Crc::new());
        Ok(())
    }

    fn inflate(&mut self) -> Result<usize, CompressionError> {
        let Memory {
            piece, inflater, ..
        } = &mut *self.memory;
        let inflater = inflater.get_or_insert_with(new_inflater);
        let (read_before, written_before) = (inflater.total_in(), inflater.total_out());
        let room = &mut piece[..PIECE_BYTES];
        let status = inflater.decompress(self.input, room, FlushDecompress::None);
        let read = (inflater.total_in() - read_before) as usize;
        let written = (inflater.total_out() - written_before) as usize;
        let status = status.map_err(|error| self.damaged(error.to_string()))?;
        self.input = &self.input[read..];
        let Stage::Gzip(crc) = &mut self.stage else {
            unreachable!("only a gzip member is inflated")
        };
        crc.update(&self.memory.piece[..written]);
        if status == Status::StreamEnd {
            let (sum, bytes) = (crc.sum(), crc.amount());
            let trailer = self.read::<GZIP_TRAILER_BYTES>("the gzip trailer is cut")?;
            let mut expected = [0; GZIP_TRAILER_BYTES];
            expected[..4].copy_from_slice(&sum.to_le_bytes());
            expected[4..].copy_from_slice(&bytes.to_le_bytes());
            if trailer != expected {
                return Err(self.damaged("the gzip checksum or size does not match its content"));
            }
            self.end_stream();
        } else if read == 0 && written == 0 {
            return Err(self.damaged("the gzip stream is cut"));
        }
        Ok(written)
    }

    // ------------------------------------------------------------ snappy

    fn begin_xerial(&mut self) -> Result<(), CompressionError> {
        let header = self.read::<XERIAL_HEADER_BYTES>("the xerial header is cut")?;
        let version = i32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        if self.reading == Reading::Strict && version < 1 {
            return Err(self.damaged(format!("the xerial header is of version {version}")));
        }
        self.stage = Stage::Xerial;
        Ok(())
    }

    fn open_xerial_block(&mut self) -> Result<usize, CompressionError> {
        if self.input.is_empty() {
            self.stage = Stage::End;
            return Ok(0);
        }
        if self.input.starts_with(&XERIAL_MAGIC) {
            self.is_joined = true;
            self.begin_xerial()?;
            return Ok(0);
        }
        let length = u32::from_be_bytes(self.read("a xerial block's length is cut")?);
        let block = self.read_slice(length as usize, "a xerial block reaches over the end")?;
        self.open_snappy(block)
    }

    fn open_snappy(&mut self, block: &[u8]) -> Result<usize, CompressionError> {
        let length = snap::raw::decompress_len(block);
        let length = length.map_err(|error| self.damaged(error.to_string()))?;
        if length > self.left() {
            return Err(CompressionError::TooLarge { cap: self.cap });
        }
        // A snappy element of 3 bytes yields at most 64: a larger promise is a lie.
        if length / 22 > block.len() {
            let reason = format!("a block of {} bytes promises {length}", block.len());
            return Err(self.damaged(reason));
        }
        self.make_room(length);
        let room = &mut self.memory.piece[..length];
        let done = snap::raw::Decoder::new().decompress(block, room);
        done.map_err(|error| self.damaged(error.to_string()))
    }

    // ------------------------------------------------------------ lz4

    fn begin_lz4(&mut self) -> Result<(), CompressionError> {
        const CUT: &str = "the lz4 header is cut";
        if u32::from_le_bytes(self.read(CUT)?) != LZ4_MAGIC {
            return Err(self.damaged("it does not begin as an lz4 frame does"));
        }
        let described = self.input;
        let [flags, block] = self.read(CUT)?;
        let is = |bit: u8| flags & (1 << bit) != 0;
        if flags >> 6 != 1 || is(1) || block & 0x8f != 0 || block >> 4 < 4 {
            return Err(self.damaged("the lz4 header asks for more than version 1 has"));
        }
        if is(0) {
            return Err(self.damaged("the lz4 frame needs a dictionary"));
        }
        let is_linked = !is(5);
        if is_linked && self.reading == Reading::Strict {
            return Err(self.damaged("its lz4 blocks depend on each other"));
        }
        let content_size = if is(3) {
            Some(u64::from_le_bytes(self.read(CUT)?))
        } else {
            None
        };
        let described = &described[..described.len() - self.input.len()];
        let [checksum] = self.read(CUT)?;
        if checksum != (XxHash32::oneshot(0, described) >> 8) as u8 {
            return Err(self.damaged("the lz4 header's checksum does not match"));
        }
        self.stage = Stage::Lz4(Box::new(Lz4Frame {
            block_bytes_max: 1 << (8 + 2 * (block >> 4)),
            has_block_checksums: is(4),
            content_size,
            content_hasher: is(2).then(|| XxHash32::with_seed(0)),
            content_bytes: 0,
            window: is_linked.then(Vec::new),
        }));
        Ok(())
    }

    fn open_lz4_block(&mut self) -> Result<usize, CompressionError> {
        const STORED: u32 = 1 << 31;
        let announced = u32::from_le_bytes(self.read("the lz4 frame is cut")?);
        if announced == 0 {
            self.end_lz4()?;
            return Ok(0);
        }
        let length = (announced & !STORED) as usize;
        let block = self.read_slice(length, "an lz4 block reaches over the end")?;
        let Stage::Lz4(mut frame) = std::mem::replace(&mut self.stage, Stage::End) else {
            unreachable!("only an lz4 frame has lz4 blocks")
        };
        if length > frame.block_bytes_max {
            return Err(self.damaged("an lz4 block is larger than its header allows"));
        }
        if frame.has_block_checksums {
            let checksum = self.read("an lz4 block's checksum is cut")?;
            if XxHash32::oneshot(0, block) != u32::from_le_bytes(checksum) {
                return Err(self.damaged("an lz4 block's checksum does not match"));
            }
        }
        let bytes = if announced & STORED != 0 {
            self.make_room(length);
            self.memory.piece[..length].copy_from_slice(block);
            length
        } else {
            let room = frame.block_bytes_max.min(length * LZ4_RATIO_MAX);
            self.make_room(room);
            let room = &mut self.memory.piece[..room];
            let done = match &frame.window {
                None => lz4_flex::block::decompress_into(block, room),
                Some(window) => lz4_flex::block::decompress_into_with_dict(block, room, window),
            };
            done.map_err(|error| self.damaged(error.to_string()))?
        };
        let content = &self.memory.piece[..bytes];
        frame.content_bytes += bytes as u64;
        if let Some(hasher) = &mut frame.content_hasher {
            std::hash::Hasher::write(hasher, content);
        }
        if let Some(window) = &mut frame.window {
            window.extend_from_slice(content);
            window.drain(..window.len().saturating_sub(LZ4_WINDOW_BYTES));
        }
        self.stage = Stage::Lz4(frame);
        Ok(bytes)
    }

    fn end_lz4(&mut self) -> Result<(), CompressionError> {
        let Stage::Lz4(frame) = std::mem::replace(&mut self.stage, Stage::End) else {
            unreachable!("only an lz4 frame ends here")
        };
        if let Some(hasher) = &frame.content_hasher {
            let checksum = self.read("the lz4 frame's checksum is cut")?;
            if hasher.finish_32() != u32::from_le_bytes(checksum) {
                return Err(self.damaged("the lz4 frame's checksum does not match its content"));
            }
        }
        if frame
            .content_size
            .is_some_and(|size| size != 0 && size != frame.content_bytes)
        {
            return Err(self.damaged("the lz4 frame's size does not match its content"));
        }
        self.end_stream();
        Ok(())
    }

    // ------------------------------------------------------------ zstd

    fn begin_zstd(&mut self) -> Result<(), CompressionError> {
        if self.memory.context.is_none() {
            let mut context = DCtx::try_create().ok_or_else(|| self.damaged("no memory"))?;
            context
                .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))
                .map_err(|code| self.damaged(zstd_safe::get_error_name(code)))?;
            self.memory.context = Some(context);
        }
        self.make_room(PIECE_BYTES);
        self.stage = Stage::Zstd;
        Ok(())
    }

    fn open_zstd(&mut self) -> Result<usize, CompressionError> {
        let Memory { piece, context, .. } = &mut *self.memory;
        let context = context.as_mut().expect("made at the start of the stream");
        let mut input = InBuffer::around(self.input);
        let mut output = OutBuffer::around(&mut piece[..PIECE_BYTES]);
        let done = context.decompress_stream(&mut output, &mut input);
        let (read, written) = (input.pos(), output.pos());
        let left = done.map_err(|code| self.damaged(zstd_safe::get_error_name(code)))?;
        self.input = &self.input[read..];
        if left == 0 {
            self.end_stream();
        } else if read == 0 && written == 0 {
            return Err(self.damaged("the zstd frame is cut"));
        }
        Ok(written)
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let memory = &mut *self.memory;
        if memory.piece.len() > KEPT_PIECE_BYTES {
            memory.piece = Vec::new();
        }
        memory.context = memory.context.take().and_then(|mut context| {
            let is_clean = context.reset(ResetDirective::SessionOnly).is_ok();
            (is_clean && context.sizeof() <= KEPT_CONTEXT_BYTES).then_some(context)
        });
        SPARE.set(Some(std::mem::take(&mut self.memory)));
    }
}

fn new_inflater() -> Decompress {
    Decompress::new(false)
}
