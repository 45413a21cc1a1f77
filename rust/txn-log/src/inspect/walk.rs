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

use crate::batch::{BatchError, BatchView, HEADER_BYTES, Header};
use crate::scan::Scanner;

/// How far ahead of the last offset seen a batch behind damage may be.
const PLAUSIBLE_GAP: i64 = 1 << 31;
/// Bytes searched at once for a batch behind damage.
const SEARCH_CHUNK: u64 = 1 << 20;

/// Bytes that are no sound batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins.
    pub position: u64,
    /// Where the walk goes on: at a batch, or the end of the file.
    pub end: u64,
    /// What is wrong with the batch at `position`.
    pub error: BatchError,
}

/// What lies at one position of a segment.
#[derive(Debug)]
pub enum Found<'a> {
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
        let file = File::open(path)?;
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
    pub fn advance(&mut self, bytes: u64, mut see: impl FnMut(Found<'_>)) -> io::Result<()> {
        let until = self.position.saturating_add(bytes).min(self.end);
        let mut scanner = Scanner::whole(&self.file, self.position, self.end);
        while self.position < until {
            match judge(&mut scanner, self.position, self.end, self.next_offset)? {
                Judged::Batch { size, fault } => {
                    let bytes = scanner.bytes(self.position, size)?;
                    let batch = BatchView::parse(bytes).expect("it was judged whole");
                    self.next_offset = Some(batch.last_offset().saturating_add(1));
                    see(Found::Batch {
                        position: self.position,
                        batch,
                        fault,
                    });
                    self.position += size as u64;
                }
                Judged::Damage(damage) => {
                    self.position = damage.end;
                    see(Found::Damage(damage));
                }
            }
        }
        Ok(())
    }
}

/// What a step of the walk came to.
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
    if size > left {
        return Ok(Err(BatchError::Truncated {
            needed: size,
            available: left,
        }));
    }
    Ok(BatchView::parse(scanner.bytes(position, size)?))
}

/// Whether the file ends here, or what begins here could be a batch.
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
    while position + HEADER_BYTES as u64 <= end {
        let window_bytes = SEARCH_CHUNK.min(end - position) as usize;
        let window = scanner.bytes(position, window_bytes)?.to_vec();
        for (at, bytes) in window.windows(HEADER_BYTES).enumerate() {
            let candidate = position + at as u64;
            if !Header::parse(bytes).is_ok_and(|header| is_plausible(&header)) {
                continue;
            }
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

    use super::*;
    use crate::builder::BatchBuilder;
    use crate::compression::Codec;

    fn batch(base_offset: i64, value: &[u8]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.push(1_000, None, Some(value), &[]);
        let mut bytes = builder.seal().unwrap();
        crate::batch::stamp_offset(&mut bytes, base_offset, 0);
        bytes
    }

    /// What a walk over these bytes finds: (position, base offset or -1 for damage, end, sound).
    fn walk(bytes: &[u8]) -> Vec<(u64, i64, u64, bool)> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut found = Vec::new();
        let mut walk = Walk::open(file.path(), 0, None).unwrap();
        walk.advance(u64::MAX, |step| {
            found.push(match step {
                Found::Batch {
                    position,
                    batch,
                    fault,
                } => {
                    let end = position + batch.bytes().len() as u64;
                    (position, batch.base_offset(), end, fault.is_none())
                }
                Found::Damage(damage) => (damage.position, -1, damage.end, false),
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
