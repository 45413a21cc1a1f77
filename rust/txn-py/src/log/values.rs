//! Roles and settings that Python names, and segments and cuts that it is given.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use txn_log::compression::Compression;
use txn_log::{Cut, ReadError, Role, Sealed, Settings};
use txn_protocol::batch::Codec;

/// `Cut` of the stub.
pub(crate) type CutTuple = (String, u64, u64, i64, String);
/// `SealedSegment` of the stub.
pub(super) type SealedTuple = (i64, i64, u64, i64, i64);
/// `Expired` of the stub.
pub(super) type ExpiredTuple = (i64, u64);

pub(super) fn read_role(name: &str) -> PyResult<Role> {
    match name {
        "sole_replica" => Ok(Role::SoleReplica),
        "leader" => Ok(Role::Leader),
        "follower" => Ok(Role::Follower),
        _ => Err(PyValueError::new_err(format!("there is no role '{name}'"))),
    }
}

/// A log's settings from Kafka's names of topic settings; the others are passed over.
pub(crate) fn read_settings(given: &Bound<'_, PyDict>) -> PyResult<Settings> {
    fn set<'py, T: FromPyObjectOwned<'py>>(
        given: &Bound<'py, PyDict>,
        name: &str,
        field: &mut T,
    ) -> PyResult<()> {
        if let Some(value) = given.get_item(name)? {
            *field = value.extract().map_err(Into::into)?;
        }
        Ok(())
    }
    let mut settings = Settings::KAFKA;
    set(given, "segment.bytes", &mut settings.segment_bytes)?;
    set(given, "segment.ms", &mut settings.segment_ms)?;
    set(given, "segment.jitter.ms", &mut settings.segment_jitter_ms)?;
    set(
        given,
        "segment.index.bytes",
        &mut settings.segment_index_bytes,
    )?;
    set(
        given,
        "index.interval.bytes",
        &mut settings.index_interval_bytes,
    )?;
    set(given, "max.message.bytes", &mut settings.max_message_bytes)?;
    set(
        given,
        "max.decompressed.message.bytes",
        &mut settings.max_decompressed_message_bytes,
    )?;
    set(
        given,
        "message.timestamp.before.max.ms",
        &mut settings.timestamp_before_max_ms,
    )?;
    set(
        given,
        "message.timestamp.after.max.ms",
        &mut settings.timestamp_after_max_ms,
    )?;
    set(given, "retention.ms", &mut settings.retention_ms)?;
    set(given, "retention.bytes", &mut settings.retention_bytes)?;
    set(
        given,
        "file.delete.delay.ms",
        &mut settings.file_delete_delay_ms,
    )?;
    set(given, "flush.messages", &mut settings.flush_messages)?;
    set(given, "flush.ms", &mut settings.flush_ms)?;
    let (mut timestamps, mut policy) = ("CreateTime".to_owned(), "delete".to_owned());
    set(given, "message.timestamp.type", &mut timestamps)?;
    set(given, "cleanup.policy", &mut policy)?;
    settings.log_append_time = timestamps == "LogAppendTime";
    settings.compression = read_compression(given)?;
    settings.is_deleted_by_retention = policy.split(',').any(|word| word.trim() == "delete");
    settings.is_compacted = policy.split(',').any(|word| word.trim() == "compact");
    Ok(settings)
}

/// The compression that batches are stored under; `None` for the producer's.
pub(super) fn read_compression(given: &Bound<'_, PyDict>) -> PyResult<Option<Compression>> {
    let name: String = match given.get_item("compression.type")? {
        Some(name) => name.extract()?,
        None => return Ok(None),
    };
    let codec = match name.as_str() {
        "producer" => return Ok(None),
        "uncompressed" => Codec::None,
        name => Codec::from_name(name).ok_or_else(|| {
            PyValueError::new_err(format!("there is no compression.type '{name}'"))
        })?,
    };
    let mut compression = Compression::of(codec);
    if let Some(level) = given.get_item(format!("compression.{name}.level"))? {
        compression.level = level.extract()?;
    }
    Ok(Some(compression))
}

pub(super) fn describe_sealed(segment: &Sealed) -> Result<SealedTuple, ReadError> {
    Ok((
        segment.base_offset,
        segment.end_offset,
        segment.size,
        segment.first_timestamp()?.unwrap_or(-1),
        segment.largest_timestamp.unwrap_or(-1),
    ))
}

pub(crate) fn cut_tuples(cuts: &[Cut]) -> Vec<CutTuple> {
    cuts.iter()
        .map(|cut| {
            let path = cut.path.display().to_string();
            let reason = cut.reason.clone();
            (path, cut.position, cut.bytes, cut.first_offset, reason)
        })
        .collect()
}
