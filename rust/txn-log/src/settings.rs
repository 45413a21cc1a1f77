//! Settings that may be changed while a log is open: Kafka's topic settings.

use txn_protocol::batch::Header;

use crate::compression::Compression;

/// The settings of one log; fields are named after Kafka's topic settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `segment.bytes`: a segment that would pass this size is sealed first.
    pub segment_bytes: u64,
    /// `segment.ms`: a segment whose first batch is this much older than the next is sealed.
    pub segment_ms: i64,
    /// `segment.jitter.ms`: up to this much is taken off `segment.ms`, at random per segment.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`: a segment whose offset or time index has this size is sealed.
    pub segment_index_bytes: u64,
    /// `index.interval.bytes`: log bytes between index entries.
    pub index_interval_bytes: u64,
    /// `max.message.bytes`: the largest batch a client may send.
    pub max_message_bytes: usize,
    /// `max.decompressed.message.bytes`: the largest record of a client's compressed batch.
    pub max_decompressed_message_bytes: usize,
    /// `compression.type` with its level; `None`: the producer's.
    pub compression: Option<Compression>,
    /// `message.timestamp.type` is `LogAppendTime`.
    pub log_append_time: bool,
    /// `message.timestamp.before.max.ms`: how old a client's record may be.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far a client's record may be ahead.
    pub timestamp_after_max_ms: i64,
    /// `cleanup.policy` names `delete`: `retention.ms` and `retention.bytes` apply.
    pub is_deleted_by_retention: bool,
    /// `cleanup.policy` names `compact`.
    pub is_compacted: bool,
    /// `retention.ms`; negative: for ever.
    pub retention_ms: i64,
    /// `retention.bytes`; negative: any number.
    pub retention_bytes: i64,
    /// `file.delete.delay.ms`: how long a removed segment's files stay, as `.deleted`.
    pub file_delete_delay_ms: u64,
    /// `flush.messages`: sync once this many records are not on the disk.
    pub flush_messages: i64,
    /// `flush.ms`: sync bytes that have waited this long.
    pub flush_ms: i64,
}

impl Settings {
    /// Apache Kafka's defaults.
    pub const KAFKA: Self = Self {
        segment_bytes: 1 << 30,
        segment_ms: 604_800_000,
        segment_jitter_ms: 0,
        segment_index_bytes: 10 << 20,
        index_interval_bytes: 4096,
        max_message_bytes: 1_048_588,
        max_decompressed_message_bytes: 2_147_483_639,
        compression: None,
        log_append_time: false,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: 3_600_000,
        is_deleted_by_retention: true,
        is_compacted: false,
        retention_ms: 604_800_000,
        retention_bytes: -1,
        file_delete_delay_ms: 60_000,
        flush_messages: i64::MAX,
        flush_ms: i64::MAX,
    };

    /// The compression that a client's batch has to be given before it is stored, by its header
    /// alone; `None` if it has it.
    #[inline]
    pub(crate) fn compression_for(&self, header: &Header) -> Option<Compression> {
        let wanted = self.compression?;
        (header.codec() != Ok(wanted.codec)).then_some(wanted)
    }

    /// Like `compression_for`, by the batch's content too: `is_joined` bytes, which some clients
    /// would not read, are packed again by their own codec.
    pub(crate) fn compression_of(&self, header: &Header, is_joined: bool) -> Option<Compression> {
        let again = || {
            let codec = header.codec().ok().filter(|_| is_joined);
            codec.map(Compression::of)
        };
        self.compression_for(header).or_else(again)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::KAFKA
    }
}
