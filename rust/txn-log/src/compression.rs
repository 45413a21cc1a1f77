//! The four codecs of record batches.
//!
//! gzip is RFC 1952 and zstd RFC 8878, as they come. lz4 is the frame format with independent
//! blocks, the only kind Java's client reads. snappy has no stream format of its own: Java
//! wraps its blocks as the xerial library does, other clients may send one bare block; both
//! are read, xerial's is written.
//!
//! ```text
//! xerial: 82 'S' 'N' 'A' 'P' 'P' 'Y' 00 · version i32 · compatible version i32
//!         then blocks: length i32 · that many bytes of snappy
//! ```
//!
//! Sizes found in the data are not believed: output grows only as bytes are really there,
//! up to the caller's cap. [`Opening`] reads without holding the content.
//! Source: KIP-110 (zstd), KIP-57 (lz4 frames).

use std::fmt;
use std::io::{self, Write};

use txn_protocol::batch::Codec;

use crate::opening::{Opening, Reading, XERIAL_MAGIC};

/// Compressed bytes that cannot be opened, or are larger inside than allowed.
#[derive(Debug)]
pub enum CompressionError {
    /// The codec did not write these bytes.
    Damaged {
        /// The codec whose format was expected.
        codec: Codec,
        /// The codec's error.
        reason: String,
    },
    /// The content is larger than the caller allows.
    TooLarge {
        /// The limit in bytes.
        cap: usize,
    },
}

impl fmt::Display for CompressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { codec, reason } => write!(f, "damaged {codec:?} data: {reason}"),
            Self::TooLarge { cap } => write!(f, "more than {cap} bytes after decompression"),
        }
    }
}

impl std::error::Error for CompressionError {}

const XERIAL_BLOCK_BYTES: usize = 32 * 1024;

/// A codec and how hard it tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The codec.
    pub codec: Codec,
    /// gzip: 1 to 9, or -1 for its own default. zstd: -131072 to 22. The others have none here:
    /// the encoder of lz4 is the fast one, which is Kafka's at its default level.
    pub level: i32,
}

impl Compression {
    /// A codec at Kafka's default level.
    #[must_use]
    pub fn of(codec: Codec) -> Self {
        let level = match codec {
            Codec::Zstd => zstd::DEFAULT_COMPRESSION_LEVEL,
            Codec::None | Codec::Gzip | Codec::Snappy | Codec::Lz4 => -1,
        };
        Self { codec, level }
    }
}

/// Appends the content of `input` to `output`, at most `cap` bytes of it.
///
/// # Errors
/// `Damaged`, or `TooLarge` as soon as the cap is passed; `output` then holds a part.
pub fn decompress(
    codec: Codec,
    input: &[u8],
    output: &mut Vec<u8>,
    cap: usize,
) -> Result<(), CompressionError> {
    let mut opening = Opening::new(codec, input, Reading::Lenient, cap);
    loop {
        let piece = opening.piece()?;
        let bytes = piece.len();
        if bytes == 0 {
            return Ok(());
        }
        output.extend_from_slice(piece);
        opening.take(bytes);
    }
}

/// Appends `input`, compressed, to `output`.
///
/// # Errors
/// `Damaged` with the codec's reason; only memory can run out.
pub fn compress(codec: Codec, input: &[u8], output: &mut Vec<u8>) -> Result<(), CompressionError> {
    let (compression, room) = (Compression::of(codec), std::mem::take(output));
    let packed = Packer::new(compression, None, room).and_then(|mut packer| {
        packer.write(input)?;
        packer.finish()
    });
    *output = packed.map_err(|error| CompressionError::Damaged {
        codec,
        reason: error.to_string(),
    })?;
    Ok(())
}

/// Compresses its input, piece by piece.
pub(crate) enum Packer {
    None(Vec<u8>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Snappy {
        output: Vec<u8>,
        /// Less than a block.
        pending: Vec<u8>,
    },
    Lz4(Box<lz4_flex::frame::FrameEncoder<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Packer {
    /// Appends to `output`. A known size of the input spares zstd's readers and writer memory.
    ///
    /// # Errors
    /// The codec has no memory.
    pub fn new(
        compression: Compression,
        input_bytes: Option<usize>,
        mut output: Vec<u8>,
    ) -> io::Result<Self> {
        Ok(match compression.codec {
            Codec::None => Self::None(output),
            Codec::Gzip => {
                let level = u32::try_from(compression.level).map(flate2::Compression::new);
                Self::Gzip(flate2::write::GzEncoder::new(
                    output,
                    level.unwrap_or_default(),
                ))
            }
            Codec::Snappy => {
                output.extend_from_slice(&XERIAL_MAGIC);
                output.extend_from_slice(&1i32.to_be_bytes());
                output.extend_from_slice(&1i32.to_be_bytes());
                let pending = Vec::new();
                Self::Snappy { output, pending }
            }
            Codec::Lz4 => {
                let info = lz4_flex::frame::FrameInfo::new()
                    .block_size(lz4_flex::frame::BlockSize::Max64KB)
                    .block_mode(lz4_flex::frame::BlockMode::Independent);
                Self::Lz4(Box::new(lz4_flex::frame::FrameEncoder::with_frame_info(
                    info, output,
                )))
            }
            Codec::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(output, compression.level)?;
                encoder.set_pledged_src_size(input_bytes.map(|bytes| bytes as u64))?;
                Self::Zstd(encoder)
            }
        })
    }

    /// Bytes of output so far, those before its own included.
    pub fn output_bytes(&self) -> usize {
        match self {
            Self::None(output) | Self::Snappy { output, .. } => output.len(),
            Self::Gzip(encoder) => encoder.get_ref().len(),
            Self::Lz4(encoder) => encoder.get_ref().len(),
            Self::Zstd(encoder) => encoder.get_ref().len(),
        }
    }

    /// Takes some bytes.
    ///
    /// # Errors
    /// The codec's.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::None(output) => {
                output.extend_from_slice(bytes);
                Ok(())
            }
            Self::Gzip(encoder) => encoder.write_all(bytes),
            Self::Snappy { output, pending } => {
                pending.extend_from_slice(bytes);
                let whole = pending.len() / XERIAL_BLOCK_BYTES * XERIAL_BLOCK_BYTES;
                append_snappy(&pending[..whole], output)?;
                pending.drain(..whole);
                Ok(())
            }
            Self::Lz4(encoder) => encoder.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    /// Ends the stream and gives the output back.
    ///
    /// # Errors
    /// The codec's.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::None(output) => Ok(output),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Snappy {
                mut output,
                pending,
            } => {
                append_snappy(&pending, &mut output)?;
                Ok(output)
            }
            Self::Lz4(encoder) => encoder.finish().map_err(io::Error::other),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

fn append_snappy(content: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
    let mut encoder = snap::raw::Encoder::new();
    for block in content.chunks(XERIAL_BLOCK_BYTES) {
        let compressed = encoder.compress_vec(block).map_err(io::Error::other)?;
        output.extend_from_slice(&(compressed.len() as i32).to_be_bytes());
        output.extend_from_slice(&compressed);
    }
    Ok(())
}
