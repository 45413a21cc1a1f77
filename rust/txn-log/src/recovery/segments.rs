//! The segments of a directory, opened unread or scanned from end to end.
//!
//! # Invariant
//! Until `Look::carry_out` no file is changed, so a directory that is refused stays as it was.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use txn_protocol::batch::BatchView;

use super::damage::{InvalidBatch, Scanned, require_unsynced, sound_header};
use super::evidence::Evidence;
use super::listing::corrupt;
use crate::error::OpenError;
use crate::index::Indexes;
use crate::log_files::remove_segment;
use crate::past::Past;
use crate::scan::{ScanError, Scanner};
use crate::segment::{Segment, file_path};

/// Bytes that recovery cut off a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment; one that was cut as a whole is removed.
    pub path: PathBuf,
    /// Where it ends now.
    pub position: u64,
    /// Their number.
    pub bytes: u64,
    /// The first offset that is given out again.
    pub first_offset: i64,
    /// Why that was right.
    pub reason: String,
}

/// The segments of a directory, before they are opened.
pub(super) struct UnopenedSegments<'a> {
    pub(super) directory: &'a Path,
    pub(super) index_interval_bytes: u64,
    pub(super) base_offsets: &'a [i64],
    pub(super) past: Past,
    pub(super) may_have_gaps: bool,
}

/// Findings in the segments; nothing was changed yet.
#[derive(Default)]
pub(crate) struct Look {
    pub(super) segments: Vec<Segment>,
    /// Of a scan; `None` if the files were trusted.
    pub(super) evidence: Option<Evidence>,
    pub cuts: Vec<Cut>,
}

impl Look {
    /// Brings the files to the findings: cuts the parts that have to go, and writes the indexes of
    /// the segments that were scanned.
    pub(super) fn carry_out(&self, directory: &Path, base_offsets: &[i64]) -> io::Result<()> {
        let Some(evidence) = &self.evidence else {
            return Ok(());
        };
        if let (Some(cut), Some(last)) = (self.cuts.first(), self.segments.last()) {
            last.file.truncate(cut.position)?;
            for &later in &base_offsets[self.segments.len()..] {
                remove_segment(directory, later)?;
            }
        }
        for scanned in &self.segments[evidence.first_segment..] {
            scanned.store_indexes()?;
        }
        Ok(())
    }
}

impl UnopenedSegments<'_> {
    fn open(&self, base_offset: i64, next_offset: i64) -> io::Result<Segment> {
        Segment::open(
            self.directory,
            base_offset,
            next_offset,
            self.index_interval_bytes,
        )
    }

    /// Opens sealed segments without reading them through, from the first one on.
    fn open_unread(&self, count: usize) -> Result<Vec<Segment>, OpenError> {
        let ends = &self.base_offsets[1.min(self.base_offsets.len())..];
        let sealed = self.base_offsets[..count].iter().zip(ends);
        sealed
            .map(|(&base_offset, &next_offset)| {
                let segment = self.open(base_offset, next_offset)?;
                let end = segment.end_by_index()?;
                self.require_next(&segment, segment.size(), end, next_offset)?;
                Ok(segment)
            })
            .collect()
    }

    /// Fails if a segment does not end where the next one begins. Only compaction leaves gaps.
    fn require_next(
        &self,
        segment: &Segment,
        position: u64,
        end: i64,
        next: i64,
    ) -> Result<(), OpenError> {
        if next < end {
            return Err(corrupt(
                file_path(self.directory, next, "log"),
                0,
                format!("it begins at offset {next}, but the segment before it ends at {end}"),
            ));
        }
        if next > end && !self.may_have_gaps {
            let reason = format!(
                "it ends at offset {end}, but the next segment begins at {next}: what was between \
                 them is missing. Nothing was changed"
            );
            return Err(corrupt(segment.path("log"), position, reason));
        }
        Ok(())
    }

    /// Opens the segments of a closed log.
    pub(super) fn open_clean(&self) -> Result<Look, OpenError> {
        let Some((last, sealed)) = self.base_offsets.split_last() else {
            return Ok(Look::default());
        };
        let mut segments = self.open_unread(sealed.len())?;
        let active = self.open(*last, *last)?;
        let size = active.size();
        let mut indexes = active.load_indexes(size)?;
        let mut next_offset = *last;
        let mut scanner = active.scan_between(indexes.offsets.last_position(), size)?;
        while let Some((position, header)) =
            scanner.next().map_err(|error| active.damaged(error))?
        {
            active.check_offsets(position, &header, next_offset)?;
            indexes.note_timestamp(&header);
            next_offset = header.last_offset() + 1;
        }
        active.restore(size, next_offset, indexes);
        segments.push(active);
        Ok(Look {
            segments,
            ..Look::default()
        })
    }

    /// Reads the part behind the recovery point.
    pub(super) fn scan_from(&self, recovery_point: i64) -> Result<Look, OpenError> {
        let Some(ends) = self.base_offsets.get(1..) else {
            return Ok(Look::default());
        };
        // A segment that was the active one when the log was synced to its end may have been
        // sealed since: its indexes are then not on the disk.
        let is_sealed_on_disk =
            |end: i64| end < recovery_point || (end == recovery_point && !self.past.power_failed);
        let believed = ends.partition_point(|&end| is_sealed_on_disk(end));
        self.scan(believed, recovery_point)
    }

    /// Reads every batch of the segments from the `first` on, and makes their indexes anew, up to
    /// a tail that has to be cut.
    fn scan(&self, first: usize, recovery_point: i64) -> Result<Look, OpenError> {
        let mut segments = self.open_unread(first)?;
        let mut evidence = Evidence {
            first_segment: first,
            ..Evidence::default()
        };
        let mut cuts = Vec::new();
        let power_failed = self.past.power_failed;
        for (nth, &base_offset) in self.base_offsets.iter().enumerate().skip(first) {
            let segment = self.open(base_offset, base_offset)?;
            let file_bytes = segment.size();
            let mut scanned = self.scan_segment(&segment, &mut evidence)?;
            let next_base_offset = self.base_offsets.get(nth + 1).copied();
            if next_base_offset.is_some_and(|next| self.past.has_lost(scanned.next_offset, next)) {
                scanned.damage = Some(InvalidBatch {
                    error: "its end is missing".to_owned(),
                    sound_header: None,
                });
            }
            if let Some(damage) = &scanned.damage {
                if power_failed {
                    require_unsynced(&segment, damage, &scanned, file_bytes, recovery_point)?;
                }
                if !power_failed || scanned.next_offset < recovery_point {
                    self.require_torn(&segment, damage, &scanned, file_bytes, nth)?;
                }
                if !power_failed {
                    self.require_prefix(&segment, damage, &scanned, file_bytes, nth)?;
                }
                self.note_cuts(&mut cuts, &segment, &scanned, file_bytes, nth)?;
            } else if let Some(next) = next_base_offset {
                self.require_next(&segment, scanned.size, scanned.next_offset, next)?;
            }
            segment.note_verified();
            let was_cut = scanned.damage.is_some();
            segment.restore(scanned.size, scanned.next_offset, scanned.indexes);
            segments.push(segment);
            if was_cut {
                break;
            }
        }
        Ok(Look {
            segments,
            evidence: Some(evidence),
            cuts,
        })
    }

    /// Notes the removed parts: the tail of one segment, and all segments behind it.
    fn note_cuts(
        &self,
        cuts: &mut Vec<Cut>,
        segment: &Segment,
        scanned: &Scanned,
        file_bytes: u64,
        nth: usize,
    ) -> io::Result<()> {
        let why = if self.past.power_failed {
            "power failure"
        } else {
            "torn write of a killed process"
        };
        let error = scanned.damage.as_ref().map_or("", |damage| &damage.error);
        cuts.push(Cut {
            path: segment.path("log"),
            position: scanned.size,
            bytes: file_bytes - scanned.size,
            first_offset: scanned.next_offset,
            reason: format!("{why}: {error}"),
        });
        for &later in &self.base_offsets[nth + 1..] {
            let path = file_path(self.directory, later, "log");
            cuts.push(Cut {
                bytes: fs::metadata(&path)?.len(),
                path,
                position: 0,
                first_offset: later,
                reason: format!("{why}: it is behind what was cut"),
            });
        }
        Ok(())
    }

    /// Reads every batch of one segment, up to the first that is not valid.
    fn scan_segment(
        &self,
        segment: &Segment,
        evidence: &mut Evidence,
    ) -> Result<Scanned, OpenError> {
        let mut scanned = Scanned {
            size: 0,
            next_offset: segment.base_offset,
            indexes: Indexes::new(segment.base_offset),
            damage: None,
        };
        let mut batches = Scanner::whole(segment.file.get()?, 0, segment.size());
        loop {
            let step = match batches.next() {
                Ok(None) => return Ok(scanned),
                Ok(Some(step)) => step,
                Err(ScanError::Io(error)) => return Err(error.into()),
                Err(ScanError::Bad { position, error }) => {
                    let sound_header = sound_header(segment, position, scanned.next_offset)?;
                    scanned.damage = Some(InvalidBatch {
                        error: error.to_string(),
                        sound_header,
                    });
                    return Ok(scanned);
                }
            };
            let (position, header) = step;
            let bytes = batches.bytes(position, header.size())?;
            let batch = BatchView::parse(bytes).expect("the scanner found it whole");
            if let Err(error) = batch.validate_crc() {
                let sound_header = sound_header(segment, position, scanned.next_offset)?;
                scanned.damage = Some(InvalidBatch {
                    error: error.to_string(),
                    sound_header,
                });
                return Ok(scanned);
            }
            // Whole, but out of place: the offset is under no checksum. No torn write of a process
            // does that, but a lost page may.
            match segment.check_offsets(position, &header, scanned.next_offset) {
                Ok(()) => {}
                Err(misplaced) if self.past.power_failed => {
                    scanned.damage = Some(InvalidBatch {
                        error: misplaced.reason,
                        sound_header: None,
                    });
                    return Ok(scanned);
                }
                Err(misplaced) => return Err(misplaced.into()),
            }
            if header.base_offset() > scanned.next_offset
                && !self.may_have_gaps
                && !self.past.power_failed
            {
                let reason = format!(
                    "the batch has offset {}, but {} comes next. Nothing was cut",
                    header.base_offset(),
                    scanned.next_offset
                );
                return Err(corrupt(segment.path("log"), position, reason));
            }
            evidence.note(&batch);
            scanned
                .indexes
                .note(&header, position, self.index_interval_bytes);
            scanned.size = position + header.size() as u64;
            scanned.next_offset = header.last_offset() + 1;
        }
    }
}
