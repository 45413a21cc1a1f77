//! `.snapshot` files: a gate's producer state at an offset, so that recovery need not replay
//! the whole log.
//!
//! `<20 digits>.snapshot` holds the state before the batch at that offset. The bytes are the
//! gate's; they carry a checksum of their own. Two are kept, the newest and the one before.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::segment::file_path;

const KEPT: usize = 2;

/// Writes a snapshot whole or not at all, and removes those no longer needed.
pub(crate) fn write(directory: &Path, offset: i64, bytes: &[u8]) -> io::Result<()> {
    let path = file_path(directory, offset, "snapshot");
    let unfinished = path.with_extension("snapshot.tmp");
    let mut file = File::create(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, &path)?;
    keep_newest(directory, i64::MAX)
}

/// The offsets of the snapshots that are there, newest first.
pub(crate) fn offsets(directory: &Path) -> io::Result<Vec<i64>> {
    let mut offsets = Vec::new();
    for entry in fs::read_dir(directory)? {
        offsets.extend(parse_name(&entry?.path(), "snapshot"));
    }
    offsets.sort_unstable_by(|a, b| b.cmp(a));
    Ok(offsets)
}

/// Removes snapshots beyond the log end, and all but the newest two of the others.
pub(crate) fn keep_newest(directory: &Path, log_end_offset: i64) -> io::Result<()> {
    let (beyond, others): (Vec<i64>, Vec<i64>) = offsets(directory)?
        .into_iter()
        .partition(|&offset| offset > log_end_offset);
    for offset in beyond.iter().chain(others.iter().skip(KEPT)) {
        fs::remove_file(file_path(directory, *offset, "snapshot"))?;
    }
    Ok(())
}

/// The offset in a file's name, if it is `<20 digits>.<extension>`.
pub(crate) fn parse_name(path: &Path, extension: &str) -> Option<i64> {
    if path.extension()? != extension {
        return None;
    }
    let digits = path.file_stem()?.to_str()?;
    let is_offset = digits.len() == 20 && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_offset.then(|| digits.parse().ok()).flatten()
}
