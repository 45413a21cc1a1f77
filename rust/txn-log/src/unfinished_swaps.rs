//! Swaps that a stop cut short: they are finished, dropped, or given up with the damage in them.
//!
//! A `.log.swap` is a decision (see `swap`), and so it is in Apache Kafka. There the rest differs:
//!
//! * It renames a segment's log before its other files, both to `.swap` and to the final name. So a
//!   `.txnindex.swap` without a log beside it still gets its name.
//! * The split of a segment makes several, and renames the last one first. While a `.cleaned` file is
//!   there, a swap at its offset or behind it is undecided.
//! * A transaction index is made with its first entry. Without a `.txnindex.swap` the cleaned
//!   segment has none, and an index of its name is an old one.
//! * A cleaned segment may be empty. Here one is not: the cleaner leaves the last batch of each run.
//!
//! Source: Apache Kafka, `LogLoader`, `LocalLog.replaceSegments` and `LocalLog.splitOverflowedSegment`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk;
use crate::error::{CorruptLog, OpenError};
use crate::log_files::{DELETED_SUFFIX, SEGMENT_FILES, remove_segment};
use crate::scan::{ScanError, Scanner};
use crate::segment::file_path;
use crate::snapshot;

/// The files that unfinished swaps and removals have left in a log's directory.
#[derive(Default)]
struct Leftovers {
    /// Base offsets of the decided swaps, in order.
    decided: Vec<i64>,
    /// Transaction indexes whose logs have their names already.
    late_indexes: Vec<PathBuf>,
    /// Logs and transaction indexes of undecided swaps.
    undecided: Vec<PathBuf>,
    /// Files that no start needs.
    needless: Vec<PathBuf>,
}

impl Leftovers {
    fn find(directory: &Path, was_left_by_kafka: bool) -> io::Result<Self> {
        let mut paths = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            entries => entries?
                .map(|entry| Ok(entry?.path()))
                .collect::<io::Result<Vec<_>>>()?,
        };
        let has_suffix =
            |path: &Path, suffix: &str| path.extension().is_some_and(|is| is == suffix);
        paths.retain(|path| {
            ["swap", "cleaned", DELETED_SUFFIX]
                .iter()
                .any(|suffix| has_suffix(path, suffix))
        });
        paths.sort_unstable();
        let first_cleaned = paths
            .iter()
            .filter(|path| was_left_by_kafka && has_suffix(path, "cleaned"))
            .find_map(|path| base_offset_of(path));
        let mut left = Self::default();
        for path in paths {
            let swapped = path.with_extension("");
            let name = |extension| snapshot::parse_name(&swapped, extension);
            if !has_suffix(&path, "swap") {
                left.needless.push(path);
                continue;
            }
            let is_decided = |base_offset| first_cleaned.is_none_or(|first| base_offset < first);
            match (name("log"), name("txnindex")) {
                (Some(base_offset), _) if is_decided(base_offset) => {
                    left.decided.push(base_offset);
                }
                (_, Some(base_offset)) if is_decided(base_offset) => {
                    if file_path(directory, base_offset, "log.swap").exists() {
                        continue; // it goes with its log
                    }
                    let is_late = was_left_by_kafka;
                    let kind = if is_late {
                        &mut left.late_indexes
                    } else {
                        &mut left.undecided
                    };
                    kind.push(path);
                }
                (None, None) => left.needless.push(path), // an index, which is made anew
                _ => left.undecided.push(path),
            }
        }
        Ok(left)
    }
}

/// The offset in a name that begins with one, as `<20 digits>.log.cleaned` does.
fn base_offset_of(path: &Path) -> Option<i64> {
    let stem = Path::new(path.file_stem()?);
    let extension = stem.extension()?.to_str()?;
    snapshot::parse_name(stem, extension)
}

/// Finishes decided swaps and removals, and removes undecided files.
///
/// # Errors
/// `Corrupt` if a `.log.swap` is damaged; nothing was changed then.
pub(crate) fn finish_swaps(directory: &Path, was_left_by_kafka: bool) -> Result<(), OpenError> {
    let left = Leftovers::find(directory, was_left_by_kafka)?;
    let mut ends = Vec::with_capacity(left.decided.len());
    for &base_offset in &left.decided {
        ends.push(sound_end(directory, base_offset, was_left_by_kafka)?);
    }
    if !left.decided.is_empty() || !left.late_indexes.is_empty() {
        // A kill may have come before the decision was on the disk; then a power failure could take
        // the new name and the old segments.
        disk::sync_directory(directory)?;
    }
    for (&base_offset, end) in left.decided.iter().zip(ends) {
        finish(directory, base_offset, end, was_left_by_kafka)?;
    }
    for index in &left.late_indexes {
        disk::rename(index, &index.with_extension(""))?;
    }
    for path in left.undecided.iter().chain(&left.needless) {
        disk::remove_if_there(path)?;
    }
    Ok(())
}

/// True if a start has a swap to finish. Then the segments of the log are not those that the start
/// will examine.
///
/// # Errors
/// The errors of [`finish_swaps`].
pub(crate) fn has_decided_swap(
    directory: &Path,
    was_left_by_kafka: bool,
) -> Result<bool, OpenError> {
    let left = Leftovers::find(directory, was_left_by_kafka)?;
    for &base_offset in &left.decided {
        sound_end(directory, base_offset, was_left_by_kafka)?;
    }
    Ok(!left.decided.is_empty())
}

/// Puts the swaps of a log that is given up in the place of the segments they replace, among its
/// `logs` by base offset. Returns the files that are in the way: those of swaps that are undecided,
/// and of damaged ones whose old segments are all there.
pub(crate) fn place_swaps(
    directory: &Path,
    was_left_by_kafka: bool,
    logs: &mut BTreeMap<i64, PathBuf>,
) -> io::Result<Vec<PathBuf>> {
    let left = Leftovers::find(directory, was_left_by_kafka)?;
    let mut in_the_way = left.undecided;
    for base_offset in left.decided {
        let log = file_path(directory, base_offset, "log.swap");
        let index = file_path(directory, base_offset, "txnindex.swap");
        if !log.is_file() {
            continue; // it is in the way itself
        }
        let (end, damage) = read_end(&log, base_offset, was_left_by_kafka)?;
        // The log of the first one is the first file that gets another name.
        if damage.is_some() && logs.contains_key(&base_offset) {
            in_the_way.push(log);
            in_the_way.extend(Some(index).filter(|index| index.exists()));
            continue;
        }
        if was_left_by_kafka && !index.exists() {
            let old = file_path(directory, base_offset, "txnindex");
            in_the_way.extend(Some(old).filter(|old| old.exists()));
        }
        logs.retain(|&other, _| other < base_offset || other >= end);
        logs.insert(base_offset, log);
    }
    Ok(in_the_way)
}

/// Finishes the swaps that [`place_swaps`] has put in place, after the files in the way are moved.
pub(crate) fn finish_placed_swaps(directory: &Path) -> io::Result<()> {
    for swap in snapshot::offsets_of_names(directory, "log.swap")? {
        let (end, _) = read_end(&file_path(directory, swap, "log.swap"), swap, true)?;
        finish(directory, swap, end, false)?;
    }
    for index in snapshot::offsets_of_names(directory, "txnindex.swap")? {
        let index = file_path(directory, index, "txnindex.swap");
        disk::rename(&index, &index.with_extension(""))?;
    }
    Ok(())
}

/// Puts a cleaned segment in place of those up to `end`.
fn finish(directory: &Path, base_offset: i64, end: i64, is_kafkas: bool) -> io::Result<()> {
    let log = file_path(directory, base_offset, "log.swap");
    let index = file_path(directory, base_offset, "txnindex.swap");
    let has_index = index.exists();
    for old in snapshot::offsets_of(directory, "log")? {
        if old > base_offset && old < end {
            remove_segment(directory, old)?;
        }
    }
    for extension in SEGMENT_FILES {
        // Without a `.swap` it has its name already, but for Kafka's.
        if extension != "txnindex" || has_index || is_kafkas {
            disk::remove_if_there(&file_path(directory, base_offset, extension))?;
        }
    }
    let renamed = if is_kafkas {
        [&log, &index]
    } else {
        [&index, &log]
    };
    for swap in renamed {
        disk::rename_if_there(swap, &swap.with_extension(""))?;
    }
    disk::sync_directory(directory)
}

/// The offset after the last batch of a cleaned segment, which has to be whole.
fn sound_end(directory: &Path, base_offset: i64, may_be_empty: bool) -> Result<i64, OpenError> {
    let path = file_path(directory, base_offset, "log.swap");
    match read_end(&path, base_offset, may_be_empty)? {
        (end, None) => Ok(end),
        (_, Some(damage)) => Err(OpenError::Corrupt(damage)),
    }
}

/// The offset after the last batch of a cleaned segment, or after the last one before its damage.
fn read_end(
    path: &Path,
    base_offset: i64,
    may_be_empty: bool,
) -> io::Result<(i64, Option<CorruptLog>)> {
    let file = disk::open(path)?;
    let file_bytes = file.metadata()?.len();
    let damaged = |position: u64, fault: String| {
        Some(CorruptLog {
            path: path.to_owned(),
            position,
            reason: format!("{fault}. It was to replace other segments; nothing was changed"),
        })
    };
    if file_bytes == 0 && !may_be_empty {
        return Ok((base_offset, damaged(0, "it is empty".to_owned())));
    }
    let mut scanner = Scanner::headers(&file, 0, file_bytes);
    let mut end = base_offset;
    loop {
        match scanner.next() {
            Ok(None) => return Ok((end, None)),
            Ok(Some((_, header))) => end = header.last_offset() + 1,
            Err(ScanError::Io(error)) => return Err(error),
            Err(ScanError::Bad { position, error }) => {
                return Ok((end, damaged(position, error.to_string())));
            }
        }
    }
}
