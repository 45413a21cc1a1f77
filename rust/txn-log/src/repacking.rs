//! Recompresses a client's batch: with its topic's codec, or with its own in a form that every
//! client can read.
//!
//! Invariant: records, offsets, timestamps, producer, sequence and transaction stay the same.
//! Length, codec and checksum change, and the largest timestamp is computed from the records.
//! Content is processed in pieces, so memory holds the result and the state of the two codecs.
//!
//! Source: Apache Kafka, `LogValidator`.

use txn_protocol::batch::{self, BatchView, HEADER_BYTES, Header};

use crate::compression::{Compression, Packer};
use crate::content::{self, Content};
use crate::error::AppendError;
use crate::log::batch_check::{refuse_content, refuse_size};
use crate::opening::Reading;

/// A batch that was looked at before its append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// The facts about its content.
    pub content: Content,
    /// The bytes to store in place of its own, if its codec may not stay.
    pub repacked: Option<Vec<u8>>,
}

/// Packs a batch that was inspected.
///
/// # Errors
/// `Refused`: it is larger than `batch_bytes_max` then. `Io`: the codec has no memory.
pub(crate) fn repack(
    batch: &BatchView<'_>,
    content: &Content,
    compression: Compression,
    batch_bytes_max: usize,
) -> Result<Vec<u8>, AppendError> {
    let opening = content::open(batch, Reading::Strict, content.bytes);
    let mut opening = opening.map_err(|error| refuse_content(batch, &error))?;
    let room = vec![0; HEADER_BYTES];
    let mut packer =
        Packer::new(compression, Some(content.bytes), room).map_err(AppendError::Io)?;
    loop {
        let piece = opening.piece();
        let piece = piece.map_err(|error| refuse_content(batch, &error.into()))?;
        if piece.is_empty() {
            break;
        }
        packer.write(piece).map_err(AppendError::Io)?;
        let taken = piece.len();
        opening.take(taken);
        if packer.output_bytes() > batch_bytes_max {
            break; // it only grows
        }
    }
    if packer.output_bytes() > batch_bytes_max {
        return Err(refuse_size(packer.output_bytes(), batch_bytes_max));
    }
    let mut bytes = packer.finish().map_err(AppendError::Io)?;
    if bytes.len() > batch_bytes_max {
        return Err(refuse_size(bytes.len(), batch_bytes_max));
    }
    let header = Header {
        length: Header::length_of(bytes.len()),
        attributes: batch::attributes(
            compression.codec,
            batch.is_transactional(),
            batch.is_control(),
        ),
        max_timestamp: content.latest_ms,
        ..*batch.header()
    };
    header.write(&mut bytes);
    batch::seal(&mut bytes);
    Ok(bytes)
}
