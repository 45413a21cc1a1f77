//! A walk over the batches of a `.log` file that is not stopped by damage.
//!
//! # After damage
//! A batch whose checksum is wrong is stepped over by its length if a batch or the end of the
//! file follows there, for then the length can be believed. Otherwise the bytes from its
//! start to the next batch that is whole, has the right checksum and a plausible offset are
//! reported as one stretch of damage. (A damaged batch may contain batches: someone else's
//! log, stored as values. The offset tells most of them apart.)

use std::fs::File;
use std::io;
use std::path::Path;

use txn_protocol::batch::{BatchError, BatchView, HEADER_BYTES, Header};

use crate::scan::Scanner;

/// Distance ahead of the last offset seen at which a batch behind damage may be.
const PLAUSIBLE_GAP: i64 = 1 << 31;
/// Bytes searched at once for a batch behind damage.
const SEARCH_CHUNK: u64 = 1 << 20;
/// Bytes of large batches that one search checks: each byte of made-up damage may claim one.
const CANDIDATES_BYTES_MAX: u64 = 1 << 30;
/// Largest batch that is read. No request that a broker takes is larger, by far.
const BATCH_BYTES_MAX: usize = 512 << 20;

/// Bytes that are no sound batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins.
    pub position: u64,
    /// Where the walk goes on: at a batch, or the end of the file.
    pub end: u64,
    /// The fault of the batch at `position`.
    pub error: BatchError,
}

/// The content of one position of a segment.
#[derive(Debug)]
pub enum WalkItem<'a> {
    /// A whole batch.
    Batch {
        /// Of its first byte.
        position: u64,
        /// Its bytes. Unless `fault` says so, its checksum is right.
        batch: BatchView<'a>,
        /// A wrong checksum, though the batch's length can be believed.
        fault: Option<BatchError>,
    },
    /// No batch that could be read.
    Damage(Damage),
}

/// A walk over one `.log` file, as long as it was when it was opened.
#[derive(Debug)]
pub struct Walk {
    file: File,
    position: u64,
    end: u64,
    /// The offset after the last batch seen, or where the log begins; `None`: not known.
    next_offset: Option<i64>,
}

impl Walk {
    /// Opens a file for reading and starts at a position, which has to be a batch's;
    /// `next_offset` is at or below that batch's base offset, if it is known.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(path: &Path, position: u64, next_offset: Option<i64>) -> io::Result<Self> {
        let file = txn_sys::open_plain(path)?;
        let end = file.metadata()?.len();
        Ok(Self {
            file,
            position: position.min(end),
            end,
            next_offset,
        })
    }

    /// Where the next step begins.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The size of the file.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Walks over about `bytes` bytes: to the end of the step that passes them.
    ///
    /// # Errors
    /// The disk's; the walk then stands before the step that failed.
    pub fn advance(&mut self, bytes: u64, mut see: impl FnMut(WalkItem<'_>)) -> io::Result<()> {
        let until = self.position.saturating_add(bytes).min(self.end);
        let mut scanner = Scanner::whole(&self.file, self.position, self.end);
        while self.position < until {
            match judge(&mut scanner, self.position, self.end, self.next_offset)? {
                Judged::Batch { size, fault } => {
                    let bytes = scanner.bytes(self.position, size)?;
                    let batch = BatchView::parse(bytes).expect("it was judged whole");
                    self.next_offset = Some(batch.last_offset().saturating_add(1));
                    see(WalkItem::Batch {
                        position: self.position,
                        batch,
                        fault,
                    });
                    self.position += size as u64;
                }
                Judged::Damage(damage) => {
                    self.position = damage.end;
                    see(WalkItem::Damage(damage));
                }
            }
        }
        Ok(())
    }
}

/// The result of a step of the walk.
enum Judged {
    Batch {
        size: usize,
        fault: Option<BatchError>,
    },
    Damage(Damage),
}

fn judge(
    scanner: &mut Scanner<&File>,
    position: u64,
    end: u64,
    next_offset: Option<i64>,
) -> io::Result<Judged> {
    let error = match read(scanner, position, end)? {
        Ok(batch) => {
            let size = batch.bytes().len();
            let Err(fault) = batch.validate_crc() else {
                return Ok(Judged::Batch { size, fault: None });
            };
            if is_boundary(scanner, position + size as u64, end)? {
                let fault = Some(fault);
                return Ok(Judged::Batch { size, fault });
            }
            fault
        }
        Err(error) => error,
    };
    let end = find(scanner, position + 1, end, next_offset)?;
    Ok(Judged::Damage(Damage {
        position,
        end,
        error,
    }))
}

/// The batch at a position, its checksum not looked at.
fn read<'s>(
    scanner: &'s mut Scanner<&File>,
    position: u64,
    end: u64,
) -> io::Result<Result<BatchView<'s>, BatchError>> {
    let left = usize::try_from(end - position).unwrap_or(usize::MAX);
    let size = match Header::parse(scanner.bytes(position, left.min(HEADER_BYTES))?) {
        Ok(header) => header.size(),
        Err(error) => return Ok(Err(error)),
    };
    if size > BATCH_BYTES_MAX {
        return Ok(Err(BatchError::Inconsistent {
            reason: "no batch is as large as",
            value: size as i64,
        }));
    }
    if size > left {
        return Ok(Err(BatchError::Truncated {
            needed: size,
            available: left,
        }));
    }
    Ok(BatchView::parse(scanner.bytes(position, size)?))
}

/// True if the file ends here, or if a batch could begin here.
fn is_boundary(scanner: &mut Scanner<&File>, position: u64, end: u64) -> io::Result<bool> {
    Ok(position == end || read(scanner, position, end)?.is_ok())
}

/// Finds the first sound batch at or after a position; the end if there is none.
fn find(
    scanner: &mut Scanner<&File>,
    from: u64,
    end: u64,
    next_offset: Option<i64>,
) -> io::Result<u64> {
    let is_plausible = |header: &Header| {
        let ahead = header.base_offset().checked_sub(next_offset.unwrap_or(0));
        let is_near = ahead.is_some_and(|ahead| next_offset.is_none() || ahead <= PLAUSIBLE_GAP);
        is_near && ahead >= Some(0) && header.last_offset_delta() >= 0
    };
    let mut position = from;
    let mut candidates_left = CANDIDATES_BYTES_MAX;
    while position + HEADER_BYTES as u64 <= end {
        // No batch begins in a hole, but for one that reaches the bytes behind it.
        let Some(stored) = txn_sys::next_stored(scanner.file(), position)? else {
            return Ok(end);
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
            let size = header.size() as u64;
            if !is_plausible(&header) || size > candidates_left.max(SEARCH_CHUNK) {
                continue;
            }
            candidates_left = candidates_left.saturating_sub(size);
            if let Ok(batch) = read(scanner, candidate, end)?
                && batch.validate_crc().is_ok()
            {
                return Ok(candidate);
            }
        }
        position += (window_bytes - HEADER_BYTES + 1) as u64;
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::builder::BatchBuilder;
    use txn_protocol::batch::Codec;

    fn batch(base_offset: i64, value: &[u8]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.push(1_000, None, Some(value), &[]);
        let mut bytes = builder.seal().unwrap();
        txn_protocol::batch::stamp_offset(&mut bytes, base_offset, 0);
        bytes
    }

    /// The findings of a walk over these bytes: (position, base offset or -1 for damage, end,
    /// sound).
    fn walk(bytes: &[u8]) -> Vec<(u64, i64, u64, bool)> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut found = Vec::new();
        let mut walk = Walk::open(file.path(), 0, None).unwrap();
        walk.advance(u64::MAX, |step| {
            found.push(match step {
                WalkItem::Batch {
                    position,
                    batch,
                    fault,
                } => {
                    let end = position + batch.bytes().len() as u64;
                    (position, batch.base_offset(), end, fault.is_none())
                }
                WalkItem::Damage(damage) => (damage.position, -1, damage.end, false),
            });
        })
        .unwrap();
        assert_eq!(walk.position(), bytes.len() as u64);
        found
    }

    #[test]
    fn a_wrong_byte_in_the_records_costs_only_its_batch() {
        let mut bytes = [batch(0, b"one"), batch(1, b"two"), batch(2, b"six")].concat();
        let size = bytes.len() as u64 / 3;
        bytes[size as usize + 65] ^= 1;
        let expected = [
            (0, 0, size, true),
            (size, 1, 2 * size, false),
            (2 * size, 2, 3 * size, true),
        ];
        assert_eq!(walk(&bytes), expected);
    }

    #[test]
    fn a_wrong_length_is_stepped_over_to_the_next_batch() {
        let mut bytes = [batch(0, b"one"), batch(1, b"two"), batch(2, b"six")].concat();
        let size = bytes.len() as u64 / 3;
        for flipped in [8, 10, 11, 16] {
            bytes[size as usize + flipped] ^= 4;
            let expected = [
                (0, 0, size, true),
                (size, -1, 2 * size, false),
                (2 * size, 2, 3 * size, true),
            ];
            assert_eq!(walk(&bytes), expected, "byte {flipped} of the header");
            bytes[size as usize + flipped] ^= 4;
        }
    }

    #[test]
    fn the_first_batch_may_be_the_damaged_one_however_far_the_log_is() {
        let far = 1 << 40;
        let mut bytes = [batch(far, b"one"), batch(far + 1, b"two")].concat();
        let size = bytes.len() as u64 / 2;
        bytes[8] ^= 4;
        assert_eq!(
            walk(&bytes),
            [(0, -1, size, false), (size, far + 1, 2 * size, true)]
        );
    }

    #[test]
    fn zeros_and_a_cut_batch_are_damage_to_the_end() {
        let whole = batch(0, b"one");
        let size = whole.len() as u64;
        let torn = [whole.as_slice(), &batch(1, b"two")[..20]].concat();
        assert_eq!(
            walk(&torn),
            [(0, 0, size, true), (size, -1, size + 20, false)]
        );
        let zeros = [whole.as_slice(), &[0; 5000]].concat();
        assert_eq!(
            walk(&zeros),
            [(0, 0, size, true), (size, -1, size + 5000, false)]
        );
    }

    #[test]
    fn a_tebibyte_of_nothing_is_stepped_over() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&batch(0, b"one")).unwrap();
        let size = file.as_file().metadata().unwrap().len();
        let far = 1 << 40;
        let position = far - 100; // not where a block begins
        file.as_file()
            .write_all_at(&batch(1, b"two"), position)
            .unwrap();
        let mut found = Vec::new();
        let mut walk = Walk::open(file.path(), 0, None).unwrap();
        walk.advance(u64::MAX, |step| {
            found.push(match step {
                WalkItem::Batch { position, .. } => (position, None),
                WalkItem::Damage(damage) => (damage.position, Some(damage.end)),
            });
        })
        .unwrap();
        let expected = [(0, None), (size, Some(position)), (position, None)];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_hole_to_the_end_is_damage_at_once_and_no_batch_is_as_large_as_it_may_claim() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut claim = batch(0, b"one");
        claim[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
        file.write_all(&claim).unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let mut found = Vec::new();
        let mut walk = Walk::open(file.path(), 0, None).unwrap();
        walk.advance(u64::MAX, |step| match step {
            WalkItem::Batch { .. } => panic!("there is no sound batch"),
            WalkItem::Damage(damage) => found.push((damage.position, damage.end)),
        })
        .unwrap();
        assert_eq!(found, [(0, 1 << 40)]);
    }

    #[test]
    fn what_is_no_file_is_refused_and_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let error = Walk::open(directory.path(), 0, None).unwrap_err();
        assert_eq!(error.to_string(), "it is a directory, not a file");
        let error = Walk::open(Path::new("/dev/null"), 0, None).unwrap_err();
        assert_eq!(error.to_string(), "it is a device, not a file");
    }

    #[test]
    fn a_walk_goes_on_where_it_stopped() {
        let bytes = [batch(0, b"one"), batch(1, b"two")].concat();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let mut walk = Walk::open(file.path(), 0, None).unwrap();
        let mut seen = 0;
        walk.advance(1, |_| seen += 1).unwrap();
        assert_eq!((seen, walk.position()), (1, bytes.len() as u64 / 2));
        walk.advance(u64::MAX, |_| seen += 1).unwrap();
        assert_eq!((seen, walk.position()), (2, bytes.len() as u64));
    }
}
