//! The first batch of a segment that is not valid, and the batches behind it.
//!
//! # Invariant
//! A checksum alone proves a batch, so a length or an offset is believed only with one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use txn_protocol::batch::{self, BatchView, HEADER_BYTES, Header};

use crate::error::{CorruptLog, OpenError};
use crate::index::Indexes;
use crate::scan::Scanner;
use crate::segment::Segment;

/// Distance ahead of the expected offset at which a batch behind damage may be.
pub(super) const PLAUSIBLE_GAP: i64 = 1 << 31;
/// Bytes searched at once for a batch behind damage.
const SEARCH_CHUNK: u64 = 1 << 20;

/// One segment, read from end to end.
pub(super) struct Scanned {
    pub(super) size: u64,
    pub(super) next_offset: i64,
    pub(super) indexes: Indexes,
    pub(super) damage: Option<InvalidBatch>,
}

/// The first batch of a segment that is not valid.
pub(super) struct InvalidBatch {
    pub(super) error: String,
    /// Its header, if that much of it can be believed.
    pub(super) sound_header: Option<Header>,
}

/// The header at a damaged position, if the log would have written it there.
pub(super) fn sound_header(
    segment: &Segment,
    position: u64,
    next_offset: i64,
) -> Result<Option<Header>, OpenError> {
    let file_bytes = segment.file.get()?.metadata()?.len();
    if file_bytes - position < HEADER_BYTES as u64 {
        return Ok(None);
    }
    let mut scanner = segment.scan_between(position, file_bytes)?;
    let header = Header::parse(scanner.bytes(position, HEADER_BYTES)?);
    Ok(header.ok().filter(|header| {
        header.base_offset() == next_offset
            && header.record_count() >= 1
            && header.record_count() - 1 == header.last_offset_delta()
    }))
}

/// The offset behind the last valid batch of `[position, end)`; at least `expected`.
pub(crate) fn end_behind(file: &File, position: u64, end: u64, expected: i64) -> io::Result<i64> {
    let mut furthest = expected;
    let mut from = position;
    let belongs = |_: u64, candidate: &Header| {
        let base_offset = candidate.base_offset();
        base_offset >= expected && base_offset - expected <= PLAUSIBLE_GAP
    };
    while let Some(at) = find_batch(file, from, end, belongs)? {
        let mut scanner = Scanner::headers(file, at, end);
        let Ok(Some((_, header))) = scanner.next() else {
            break;
        };
        furthest = furthest.max(header.last_offset() + 1);
        from = at + header.size() as u64;
    }
    Ok(furthest)
}

/// True if the checksum of a batch covers just its present bytes, though its header announces more.
/// The length is under no checksum.
pub(super) fn is_whole(
    segment: &Segment,
    head: &[u8],
    position: u64,
    end: u64,
) -> io::Result<bool> {
    let Ok(header) = Header::parse(head) else {
        return Ok(false);
    };
    let mut crc = 0;
    let mut chunk = Vec::new();
    let file = segment.file.get()?;
    let mut at = position + batch::CRC_START as u64;
    while at < end {
        chunk.resize((end - at).min(SEARCH_CHUNK) as usize, 0);
        file.read_exact_at(&mut chunk, at)?;
        crc = crc32c::crc32c_append(crc, &chunk);
        at += chunk.len() as u64;
    }
    Ok(crc == header.crc())
}

/// Fails if the damage lies below the recovery point, where everything was on the disk.
///
/// A recovery point beyond the capacity of the damaged bytes is not believed.
pub(super) fn require_unsynced(
    segment: &Segment,
    damage: &InvalidBatch,
    scanned: &Scanned,
    file_bytes: u64,
    recovery_point: i64,
) -> Result<(), OpenError> {
    let furthest = match &damage.sound_header {
        Some(sound) => sound.last_offset() + 1,
        None => scanned.next_offset + (file_bytes - scanned.size) as i64,
    };
    if !(scanned.next_offset + 1..=furthest).contains(&recovery_point) {
        return Ok(());
    }
    Err(OpenError::Corrupt(CorruptLog {
        path: segment.path("log"),
        position: scanned.size,
        reason: format!(
            "{}; everything below offset {recovery_point} was on the disk, so stored records were \
             damaged after they were written. Nothing was cut",
            damage.error
        ),
    }))
}

/// Finds the first valid batch in `[from, end)` of a file that is wanted.
pub(super) fn find_batch(
    file: &File,
    from: u64,
    end: u64,
    is_wanted: impl Fn(u64, &Header) -> bool,
) -> io::Result<Option<u64>> {
    let mut position = from;
    let mut scanner = Scanner::whole(file, from.min(end), end);
    while position + HEADER_BYTES as u64 <= end {
        // No batch begins in a hole, which may be as large as no disk, but for one that reaches
        // the bytes behind it.
        let Some(stored) = txn_sys::next_stored(file, position)? else {
            return Ok(None);
        };
        position = position.max(stored.saturating_sub(HEADER_BYTES as u64 - 1));
        if position + HEADER_BYTES as u64 > end {
            break;
        }
        let window_bytes = SEARCH_CHUNK.min(end - position) as usize;
        let window = scanner.bytes(position, window_bytes)?.to_vec();
        for (at, bytes) in window.windows(HEADER_BYTES).enumerate() {
            let candidate = position + at as u64;
            let Ok(header) = Header::parse(bytes) else {
                continue;
            };
            let fits = header.size() as u64 <= end - candidate;
            if fits && header.last_offset_delta() >= 0 && is_wanted(candidate, &header) {
                let mut reader = Scanner::headers(file, candidate, end);
                let batch = BatchView::parse(reader.bytes(candidate, header.size())?);
                if batch.is_ok_and(|batch| batch.validate_crc().is_ok()) {
                    return Ok(Some(candidate));
                }
            }
        }
        position += (window_bytes - HEADER_BYTES + 1) as u64;
    }
    Ok(None)
}
