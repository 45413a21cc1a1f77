//! The files of a log's directory, before any of them is opened.
//!
//! # Invariant
//! Nothing is opened here: a FIFO in the place of a file would block a start for ever.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::aborted_sums;
use crate::disk;
use crate::epochs;
use crate::error::{CorruptLog, OpenError};
use crate::log_files::METADATA_NAME;
use crate::snapshot;

/// No log gets this far; a file with such a name is no segment of one.
const BASE_OFFSET_MAX: i64 = i64::MAX / 2;

/// The segments of a directory, and the index files that belong to none.
#[derive(Default)]
pub(crate) struct Listed {
    /// In order.
    pub(super) base_offsets: Vec<i64>,
    /// By base offset.
    pub(super) orphans: Vec<(i64, PathBuf)>,
}

pub(super) fn list_segments(directory: &Path) -> Result<Listed, OpenError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listed::default()),
        other => other?,
    };
    let mut base_offsets = Vec::new();
    let mut orphans = Vec::new();
    for entry in entries {
        let path = entry?.path();
        for extension in ["index", "timeindex", "txnindex"] {
            orphans.extend(snapshot::parse_name(&path, extension).map(|base| (base, path.clone())));
        }
        let base_offset = snapshot::parse_name(&path, "log");
        if base_offset.is_some_and(|offset| offset > BASE_OFFSET_MAX) {
            let reason = format!("its base offset is above {BASE_OFFSET_MAX}");
            return Err(corrupt(path, 0, reason));
        }
        base_offsets.extend(base_offset);
    }
    base_offsets.sort_unstable();
    orphans.retain(|(base_offset, _)| base_offsets.binary_search(base_offset).is_err());
    orphans.sort_unstable();
    Ok(Listed {
        base_offsets,
        orphans,
    })
}

/// Fails if something else stands in the place of the directory or of one of its files: to open
/// a FIFO would wait for ever. Files without a name of Kafka's are not looked at.
pub(crate) fn require_files(directory: &Path) -> Result<(), OpenError> {
    match fs::symlink_metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    require_kind(directory, "a directory", fs::Metadata::is_dir)?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if has_known_name(&entry.path()) && !entry.file_type()?.is_file() {
            require_kind(&entry.path(), "a file", fs::Metadata::is_file)?;
        }
    }
    Ok(())
}

/// True if a path in a log's directory has the name of one of its files.
pub(crate) fn has_known_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_offset = name.len() > 20 && name.bytes().take(20).all(|digit| digit.is_ascii_digit());
    let is_passed_over = name.ends_with(disk::ASIDE_SUFFIX) || name.ends_with(".tmp");
    (is_offset && !is_passed_over)
        || [METADATA_NAME, epochs::NAME, aborted_sums::NAME].contains(&&*name)
}

/// Fails if a path, or the one a symbolic link names, is of another kind.
fn require_kind(
    path: &Path,
    wanted: &str,
    is_wanted: impl Fn(&fs::Metadata) -> bool,
) -> Result<(), OpenError> {
    let kind = match fs::metadata(path) {
        Ok(found) if is_wanted(&found) => return Ok(()),
        Ok(found) => name_of(found.file_type()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => "a symbolic link to nothing",
        Err(error) => return Err(error.into()),
    };
    Err(corrupt(
        path.to_owned(),
        0,
        format!("it is {kind}, not {wanted}. Nothing was changed"),
    ))
}

fn name_of(kind: fs::FileType) -> &'static str {
    match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_file() => "a file",
        () => "a device",
    }
}

pub(super) fn corrupt(path: PathBuf, position: u64, reason: String) -> OpenError {
    OpenError::Corrupt(CorruptLog {
        path,
        position,
        reason,
    })
}
