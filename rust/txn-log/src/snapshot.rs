//! `.snapshot` files: the producer state at an offset, so that recovery need not replay
//! the whole log.
//!
//! `<20 digits>.snapshot` holds the state before the batch at that offset. The bytes are the
//! producer state's; they carry a checksum of their own. Kept are, as in Kafka, one per segment (its base
//! offset) and the newest; they go with their segments.

use std::fs;
use std::io;
use std::path::Path;

use crate::disk;
use crate::segment::file_path;

/// Writes a snapshot whole or not at all, unless the power fails before it is synced: then
/// its checksum tells.
pub(crate) fn write(directory: &Path, offset: i64, bytes: &[u8]) -> io::Result<()> {
    let path = file_path(directory, offset, "snapshot");
    let unfinished = path.with_extension("snapshot.tmp");
    disk::replace(&path, &unfinished, bytes)
}

/// The offsets of the snapshots that are there, newest first.
pub(crate) fn offsets(directory: &Path) -> io::Result<Vec<i64>> {
    let mut offsets = offsets_of(directory, "snapshot")?;
    offsets.sort_unstable_by(|a, b| b.cmp(a));
    Ok(offsets)
}

/// The offsets of the files with an extension of two parts, as `log.swap`.
pub(crate) fn offsets_of_names(directory: &Path, extension: &str) -> io::Result<Vec<i64>> {
    let mut offsets = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let digits = name
            .to_str()
            .and_then(|name| name.strip_suffix(extension)?.strip_suffix('.'));
        offsets.extend(digits.and_then(parse_offset));
    }
    Ok(offsets)
}

/// The offsets of the files with an extension.
pub(crate) fn offsets_of(directory: &Path, extension: &str) -> io::Result<Vec<i64>> {
    let mut offsets = Vec::new();
    for entry in fs::read_dir(directory)? {
        offsets.extend(parse_name(&entry?.path(), extension));
    }
    Ok(offsets)
}

/// Removes the snapshots beyond the log end. Of the others it removes all but the newest, the newest
/// up to `durable_end`, which no power failure takes, and those at the segments' base offsets, which
/// are in order. Says whether one was beyond.
pub(crate) fn prune(
    directory: &Path,
    log_end_offset: i64,
    base_offsets: &[i64],
    durable_end: i64,
) -> io::Result<bool> {
    let (mut newest, mut newest_durable) = (None, None);
    let mut was_beyond = false;
    for offset in offsets(directory)? {
        let is_within = offset <= log_end_offset;
        let is_newest = is_within && *newest.get_or_insert(offset) == offset;
        let is_durable = is_within && offset <= durable_end;
        let is_newest_durable = is_durable && *newest_durable.get_or_insert(offset) == offset;
        if is_newest || is_newest_durable {
            continue;
        }
        if !is_within || base_offsets.binary_search(&offset).is_err() {
            disk::remove_if_there(&file_path(directory, offset, "snapshot"))?;
        }
        was_beyond |= !is_within;
    }
    Ok(was_beyond)
}

/// The offset in a file's name, if it is `<20 digits>.<extension>`.
pub(crate) fn parse_name(path: &Path, extension: &str) -> Option<i64> {
    if path.extension()? != extension {
        return None;
    }
    parse_offset(path.file_stem()?.to_str()?)
}

/// The offset of 20 digits.
fn parse_offset(digits: &str) -> Option<i64> {
    let is_offset = digits.len() == 20 && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_offset.then(|| digits.parse().ok()).flatten()
}
