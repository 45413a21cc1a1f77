//! Accepting a loss: the part of a log that can be kept, and the removal of the rest.
//!
//! [`examine`] returns the result that a start would have, and changes nothing. [`plan`] finds the
//! longest sound beginning of a log. [`carry_out`] removes everything behind it. An empty batch, as
//! compaction leaves them, takes the place of the lost offsets, so that no offset is assigned
//! again. Readers skip the empty batch, and the log continues behind its proven end.
//!
//! A plan can be carried out twice, or again after an interruption, with the same result.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use txn_protocol::batch::{self, BatchView};

use crate::disk;
use crate::epochs::{self, Epochs};
use crate::error::OpenError;
use crate::log_files::{SEGMENT_FILES, remove_segment};
use crate::past::Past;
use crate::recovery::{self, Cut};
use crate::scan::Scanner;
use crate::segment::file_path;
use crate::settings::Settings;
use crate::snapshot;
use crate::unfinished_swaps::{finish_placed_swaps, has_decided_swap, place_swaps};

/// The plan that makes a log sound: the kept part, and the offset where it goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossPlan {
    /// Base offset of the last segment that is kept; `None`: nothing is.
    pub last_kept: Option<i64>,
    /// Where that segment ends.
    pub position: u64,
    /// The offset after the last batch that is kept.
    pub kept_end: i64,
    /// The offset the next record gets.
    pub next_offset: i64,
    /// Leader epoch of the last batch that is kept.
    pub leader_epoch: i32,
    /// Paths that are no files and stand in the place of one, and files of swaps that cannot be
    /// finished.
    pub in_the_way: Vec<PathBuf>,
    /// Lost parts: of each file the position from which on, and the bytes.
    pub given_up: Vec<(PathBuf, u64, u64)>,
}

/// Returns a start's answer for a log: the parts it would cut, or the reason of its refusal. `None`:
/// the start finishes a swap first, and only that was examined.
///
/// # Errors
/// The errors of [`crate::PartitionLog::open`].
pub fn examine(
    directory: &Path,
    settings: &Settings,
    past: Past,
) -> Result<Option<Vec<Cut>>, OpenError> {
    recovery::require_files(directory)?;
    if has_decided_swap(directory, past.was_left_by_kafka)? {
        return Ok(None);
    }
    recovery::look(directory, settings, past).map(|(_, look)| Some(look.cuts))
}

/// A batch that is not to be kept: the base offset of its segment, and a position in it.
pub type FirstLost = (i64, u64);

/// Finds the longest sound beginning of a log, and where the log has to go on behind it.
///
/// `first_lost` is a batch that is sound by itself and cannot stay, if there is one.
///
/// # Errors
/// The disk's.
pub fn plan(
    directory: &Path,
    settings: &Settings,
    past: Past,
    first_lost: Option<FirstLost>,
) -> io::Result<LossPlan> {
    let mut plan = LossPlan::default();
    match fs::metadata(directory) {
        Ok(found) if found.is_dir() => {}
        _ => {
            if fs::symlink_metadata(directory).is_ok() {
                plan.in_the_way.push(directory.to_owned());
            }
            plan.next_offset = proven_end(past);
            plan.kept_end = plan.next_offset;
            return Ok(plan);
        }
    }
    let may_have_gaps = past.may_have_gaps(settings);
    let mut logs = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if !recovery::has_known_name(&path) {
            continue;
        }
        if fs::metadata(&path).is_ok_and(|found| found.is_file()) {
            logs.extend(snapshot::parse_name(&path, "log").map(|base| (base, path)));
        } else {
            plan.in_the_way.push(path);
        }
    }
    plan.in_the_way
        .extend(place_swaps(directory, past.was_left_by_kafka, &mut logs)?);
    plan.in_the_way.sort();
    plan.in_the_way.dedup();
    let mut furthest = proven_end(past).max(newest_trace(directory)?);
    let mut is_sound = true;
    for (base_offset, path) in logs {
        let file = disk::open(&path)?;
        let size = file.metadata()?.len();
        let is_next = match plan.last_kept {
            None => true,
            Some(_) if may_have_gaps => {
                base_offset >= plan.kept_end && !past.has_lost(plan.kept_end, base_offset)
            }
            Some(_) => base_offset == plan.kept_end,
        };
        is_sound &= is_next
            && (plan.last_kept.is_none() || first_lost.is_none_or(|lost| lost > (base_offset, 0)))
            && plan
                .in_the_way
                .iter()
                .all(|other| !is_before(other, base_offset));
        let mut position = 0;
        if is_sound {
            plan.last_kept = Some(base_offset);
            plan.kept_end = base_offset;
            let mut scanner = Scanner::whole(&file, 0, size);
            while let Ok(Some((at, header))) = scanner.next() {
                let begins = header.base_offset();
                let follows = begins == plan.kept_end || (may_have_gaps && begins > plan.kept_end);
                let batch = BatchView::parse(scanner.bytes(at, header.size())?);
                let is_whole = batch.is_ok_and(|batch| batch.validate_crc().is_ok());
                let is_near = header.last_offset() - base_offset <= i64::from(i32::MAX);
                let behind = at + header.size() as u64;
                if first_lost.is_some_and(|lost| lost < (base_offset, behind)) {
                    break;
                }
                if !follows || !is_whole || !is_near || header.last_offset_delta() < 0 {
                    break;
                }
                plan.kept_end = header.last_offset() + 1;
                plan.leader_epoch = header.leader_epoch().max(0);
                position = behind;
            }
            plan.position = position;
            is_sound = position == size;
        }
        if position < size || !is_sound {
            plan.given_up.push((path, position, size - position));
            furthest = furthest.max(recovery::end_behind(&file, position, size, plan.kept_end)?);
        }
    }
    // An end that no 31 bits lead to is no end of this log's; the leader epoch keeps offsets apart.
    let is_near = furthest - plan.kept_end <= i64::from(i32::MAX);
    plan.next_offset = match plan.last_kept {
        Some(_) if is_near => plan.kept_end.max(furthest),
        Some(_) => plan.kept_end,
        None => furthest,
    };
    if plan.last_kept.is_none() {
        plan.kept_end = plan.next_offset;
    }
    Ok(plan)
}

/// True if something with an offset in its name is no log, or one that stands before a segment.
fn is_before(path: &Path, base_offset: i64) -> bool {
    snapshot::parse_name(path, "log").is_some_and(|other| other < base_offset)
}

/// The end of a log by the checkpoints.
fn proven_end(past: Past) -> i64 {
    past.recovery_point
        .max(past.high_watermark)
        .max(past.log_start_offset.unwrap_or(0))
        .max(past.cleaned_end.unwrap_or(0))
}

/// The largest offset that snapshots, leader epochs and index files tell of.
fn newest_trace(directory: &Path) -> io::Result<i64> {
    let mut newest = 0;
    for extension in ["snapshot", "index", "timeindex", "txnindex"] {
        newest = snapshot::offsets_of(directory, extension)?
            .into_iter()
            .fold(newest, i64::max);
    }
    let path = directory.join(epochs::NAME);
    let is_file = fs::metadata(path).is_ok_and(|found| found.is_file()); // no FIFO
    let epochs = if is_file {
        Epochs::load(directory)?
    } else {
        None
    };
    Ok(newest.max(epochs.and_then(|epochs| epochs.last_start()).unwrap_or(0)))
}

/// Removes the parts that a plan does not keep, durably; returns the base offset of the first
/// segment of the rest.
///
/// # Errors
/// The disk's; it may be tried again.
pub fn carry_out(directory: &Path, plan: &LossPlan) -> io::Result<i64> {
    for path in &plan.in_the_way {
        disk::move_aside(path)?;
    }
    disk::create_directory(directory)?;
    finish_placed_swaps(directory)?;
    for base_offset in snapshot::offsets_of(directory, "log")?.into_iter().rev() {
        if plan.last_kept.is_none_or(|last| base_offset > last) {
            remove_segment(directory, base_offset)?;
        }
    }
    for extension in SEGMENT_FILES {
        for base_offset in snapshot::offsets_of(directory, extension)? {
            let is_cut = plan.last_kept.is_none_or(|last| base_offset >= last);
            if extension != "log" && is_cut {
                disk::remove_if_there(&file_path(directory, base_offset, extension))?;
            }
        }
    }
    for offset in snapshot::offsets(directory)? {
        if plan.last_kept.is_none() || offset > plan.kept_end {
            disk::remove_if_there(&file_path(directory, offset, "snapshot"))?;
        }
    }
    if let Ok(Some(mut epochs)) = Epochs::load(directory) {
        epochs.truncate(plan.kept_end);
        epochs.store(directory)?;
        Epochs::sync(directory)?;
    }
    let mut segments = Vec::new();
    if let Some(last) = plan.last_kept {
        segments.push((last, plan.position));
    }
    let lost = plan.next_offset - plan.kept_end;
    let is_far = |base: i64| plan.next_offset - base > i64::from(i32::MAX);
    if plan.last_kept.is_none_or(|last| lost > 0 && is_far(last)) {
        segments.push((plan.kept_end, 0));
    }
    for &(base_offset, size) in &segments {
        let path = file_path(directory, base_offset, "log");
        let file = disk::open_or_create(&path)?;
        disk::truncate(&file, &path, size)?;
        if lost > 0 && segments.last() == Some(&(base_offset, size)) {
            let stand_in = batch::empty(plan.kept_end, plan.next_offset, plan.leader_epoch);
            disk::write_at(&file, &path, size, &stand_in)?;
        }
        disk::sync(&file, &path)?;
    }
    disk::sync_directory(directory)?;
    disk::sync_directory_above(directory)?;
    let left = snapshot::offsets_of(directory, "log")?.into_iter().min();
    Ok(left.unwrap_or(plan.kept_end))
}
