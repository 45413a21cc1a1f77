//! Walking over the batches of a file without holding the file in memory.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt;

use txn_protocol::batch::{BatchError, HEADER_BYTES, Header};

/// Bytes read at once when only headers are wanted.
const HEADERS_CHUNK: usize = 16 * 1024;
/// Bytes read at once when every byte is wanted.
const WHOLE_CHUNK: usize = 1024 * 1024;

/// Where a scan had to stop.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// The disk said no.
    Io(io::Error),
    /// No whole batch begins here.
    Bad { position: u64, error: BatchError },
}

impl From<io::Error> for ScanError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads the headers of back-to-back batches in `[position, end)` of a file, lent or shared.
///
/// Nothing is believed about a batch but its length, and that only up to `end`.
pub(crate) struct Scanner<F> {
    file: F,
    position: u64,
    end: u64,
    chunk: usize,
    buffer: Vec<u8>,
    buffer_start: u64,
    skips: bool,
}

impl<F: Deref<Target = File>> Scanner<F> {
    /// For headers: reads little where batches are large.
    pub fn headers(file: F, position: u64, end: u64) -> Self {
        Self::new(file, position, end, HEADERS_CHUNK)
    }

    /// For whole batches: reads everything once, in large pieces.
    pub fn whole(file: F, position: u64, end: u64) -> Self {
        Self::new(file, position, end, WHOLE_CHUNK)
    }

    fn new(file: F, position: u64, end: u64, chunk: usize) -> Self {
        Self {
            file,
            position,
            end: end.max(position),
            chunk,
            buffer: Vec::new(),
            buffer_start: position,
            skips: false,
        }
    }

    /// Takes the next batch's position and header; `None` at the end.
    pub fn next(&mut self) -> Result<Option<(u64, Header)>, ScanError> {
        let position = self.position;
        let left = self.end - position;
        if left == 0 {
            return Ok(None);
        }
        let wanted = HEADER_BYTES.min(usize::try_from(left).unwrap_or(HEADER_BYTES));
        let bad = |error| ScanError::Bad { position, error };
        let header = Header::parse(self.bytes(position, wanted)?).map_err(bad)?;
        let size = header.size();
        if size as u64 > left {
            return Err(bad(BatchError::Truncated {
                needed: size,
                available: left as usize,
            }));
        }
        self.position += size as u64;
        self.skips = self.chunk < WHOLE_CHUNK && size > self.chunk / 4;
        Ok(Some((position, header)))
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The bytes `[position, position + len)`, which must lie below the end.
    pub fn bytes(&mut self, position: u64, len: usize) -> io::Result<&[u8]> {
        let buffer_end = self.buffer_start + self.buffer.len() as u64;
        if position < self.buffer_start || position + len as u64 > buffer_end {
            let chunk = if self.skips { 0 } else { self.chunk };
            let left = usize::try_from(self.end - position).unwrap_or(usize::MAX);
            self.buffer.resize(chunk.min(left).max(len), 0);
            self.buffer_start = position;
            if let Err(error) = self.file.read_exact_at(&mut self.buffer, position) {
                self.buffer.clear();
                return Err(error);
            }
        }
        let from = (position - self.buffer_start) as usize;
        Ok(&self.buffer[from..from + len])
    }
}
