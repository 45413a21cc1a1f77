//! Requests of consumers: `Fetch` of many partitions, `ListOffsets`, `OffsetFetch`, `OffsetCommit`,
//! `ConsumerGroupHeartbeat`.

use std::sync::Arc;

use txn_protocol::{Malformed, Put, Reader};

pub use super::fetch::Bounds as FetchBounds;
use super::fetch::{decode_partition, encode_topics};
use super::read_partitions;
use super::transactions::by_topic;

/// A topic's id.
pub type TopicId = [u8; 16];
/// A topic's name and a partition.
pub type Place = (Arc<str>, i32);

/// A partition in a `Fetch`.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The partition.
    pub place: Place,
    /// First offset wanted.
    pub offset: i64,
    /// Largest answer for it.
    pub bytes_max: i32,
}

/// The answer for a partition.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The partition.
    pub place: Place,
    /// 0, or why there are no records.
    pub error_code: i16,
    /// (producer id, first offset) of aborted transactions in the range.
    pub aborted: Vec<(i64, i64)>,
    /// Record batches back to back; the last may be cut.
    pub records: Arc<Vec<u8>>,
    /// First offset of the log.
    pub log_start_offset: i64,
    /// Exclusive end of the log, as far as it is replicated.
    pub high_watermark: i64,
    /// Exclusive end of the records that a `read_committed` reader may have.
    pub end_offset: i64,
}

/// Writes `Fetch` v12 without a session.
pub fn encode_fetch(e: &mut Vec<u8>, bounds: FetchBounds, wanted: &[Wanted]) {
    let topics = by_topic(wanted.iter().map(|each| (each.place.0.as_ref(), each)));
    let topics = topics.iter().map(|(topic, wanted)| {
        let asked = |each: &&Wanted| (each.place.1, each.offset, each.bytes_max);
        (*topic, wanted.iter().map(asked))
    });
    encode_topics(e, bounds, topics);
}

/// Reads `Fetch` v12: the error code of the whole, and the partitions.
pub fn decode_fetch(r: &mut Reader<'_>) -> Result<(i16, Vec<Fetched>), Malformed> {
    r.i32()?; // throttle time
    let error_code = r.i16()?;
    r.i32()?; // session id
    let mut found = Vec::new();
    r.compact_array(|r| {
        let topic: Arc<str> = r.compact_string()?.into();
        r.compact_array(|r| {
            let (partition, response) = decode_partition(r)?;
            found.push(Fetched {
                place: (Arc::clone(&topic), partition),
                error_code: response.error_code,
                aborted: response.aborted,
                records: Arc::new(response.records.to_vec()),
                log_start_offset: response.log_start_offset,
                high_watermark: response.high_watermark,
                end_offset: match response.last_stable_offset {
                    ..0 => response.high_watermark,
                    stable => stable,
                },
            });
            Ok(())
        })?;
        r.skip_tags(true)
    })?;
    r.skip_tags(true)?;
    Ok((error_code, found))
}

/// What a node tells of one partition: an offset, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetAnswer {
    /// The partition.
    pub place: Place,
    /// 0, or why there is no offset.
    pub error_code: i16,
    /// The offset; -1: none.
    pub offset: i64,
    /// Leader epoch of the record before it; -1: unknown.
    pub leader_epoch: i32,
    /// Text that was committed with it.
    pub metadata: String,
}

/// Writes `ListOffsets` v6–7 of many partitions, each with its timestamp.
pub fn encode_list_offsets(e: &mut Vec<u8>, wanted: &[(Place, i64)], read_committed: bool) {
    e.put_i32(-1); // replica id: a consumer
    e.put_bool(read_committed);
    let topics = by_topic(wanted.iter().map(|(p, at)| (p.0.as_ref(), (p.1, *at))));
    e.put_compact_array(topics.iter(), |e, (topic, partitions)| {
        e.put_compact_string(topic);
        e.put_compact_array(partitions.iter(), |e, &(partition, timestamp_ms)| {
            e.put_i32(partition);
            e.put_i32(-1); // current leader epoch: unknown
            e.put_i64(timestamp_ms);
            e.put_no_tags(true);
        });
        e.put_no_tags(true);
    });
    e.put_no_tags(true);
}

/// Reads `ListOffsets` v6–7.
pub fn decode_list_offsets(r: &mut Reader<'_>) -> Result<Vec<OffsetAnswer>, Malformed> {
    r.i32()?; // throttle time
    let answers = read_partitions(r, |r, topic| {
        let (partition, error_code) = (r.i32()?, r.i16()?);
        r.i64()?; // timestamp
        let (offset, leader_epoch) = (r.i64()?, r.i32()?);
        r.skip_tags(true)?;
        Ok(OffsetAnswer {
            place: (topic.into(), partition),
            error_code,
            offset,
            leader_epoch,
            metadata: String::new(),
        })
    })?;
    r.skip_tags(true)?;
    Ok(answers)
}

/// Writes `OffsetFetch` v7, which waits for no open transaction: it answers 88 for their offsets.
pub fn encode_offset_fetch(e: &mut Vec<u8>, group: &str, places: &[Place]) {
    e.put_compact_string(group);
    let topics = by_topic(places.iter().map(|p| (p.0.as_ref(), p.1)));
    e.put_compact_array(topics.iter(), |e, (topic, partitions)| {
        e.put_compact_string(topic);
        e.put_compact_array(partitions.iter(), |e, &partition| e.put_i32(partition));
        e.put_no_tags(true);
    });
    e.put_bool(true); // require stable (KIP-447)
    e.put_no_tags(true);
}

/// Reads `OffsetFetch` v7: the error code of the whole, and the partitions.
pub fn decode_offset_fetch(r: &mut Reader<'_>) -> Result<(i16, Vec<OffsetAnswer>), Malformed> {
    r.i32()?; // throttle time
    let answers = read_partitions(r, |r, topic| {
        let (partition, offset, leader_epoch) = (r.i32()?, r.i64()?, r.i32()?);
        let metadata = r.compact_nullable_string()?.unwrap_or_default().to_owned();
        let error_code = r.i16()?;
        r.skip_tags(true)?;
        Ok(OffsetAnswer {
            place: (topic.into(), partition),
            error_code,
            offset,
            leader_epoch,
            metadata,
        })
    })?;
    let error_code = r.i16()?;
    r.skip_tags(true)?;
    Ok((error_code, answers))
}

/// An offset to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The partition.
    pub place: Place,
    /// The next offset to read.
    pub offset: i64,
    /// Leader epoch of the record before it; -1: unknown.
    pub leader_epoch: i32,
    /// Text to keep with it.
    pub metadata: String,
}

/// A consumer's place in its group; epoch -1 and no id: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Group.
    pub group: String,
    /// Member epoch, or generation.
    pub epoch: i32,
    /// Member id.
    pub member_id: String,
    /// `group.instance.id`.
    pub instance_id: Option<String>,
}

/// Writes `OffsetCommit` v8–9.
pub fn encode_offset_commit(e: &mut Vec<u8>, member: &Membership, offsets: &[Commit]) {
    e.put_compact_string(&member.group);
    e.put_i32(member.epoch);
    e.put_compact_string(&member.member_id);
    e.put_compact_nullable_string(member.instance_id.as_deref());
    let topics = by_topic(offsets.iter().map(|each| (each.place.0.as_ref(), each)));
    e.put_compact_array(topics.iter(), |e, (topic, offsets)| {
        e.put_compact_string(topic);
        e.put_compact_array(offsets.iter(), |e, each| {
            e.put_i32(each.place.1);
            e.put_i64(each.offset);
            e.put_i32(each.leader_epoch);
            e.put_compact_nullable_string(Some(&each.metadata));
            e.put_no_tags(true);
        });
        e.put_no_tags(true);
    });
    e.put_no_tags(true);
}

/// The subscription of a group's member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// Names of topics.
    pub topics: Vec<String>,
    /// A pattern of RE2 that whole names of topics match.
    pub pattern: Option<String>,
}

/// The parts of a `ConsumerGroupHeartbeat` that a member tells when they change.
#[derive(Clone, Debug)]
pub struct HeartbeatNews {
    /// Time for giving partitions back.
    pub rebalance_timeout_ms: i32,
    /// The subscription.
    pub subscription: Subscription,
    /// `group.remote.assignor`.
    pub assignor: Option<String>,
}

/// Writes `ConsumerGroupHeartbeat` v0–1 (KIP-848).
pub fn encode_heartbeat(
    e: &mut Vec<u8>,
    version: i16,
    member: &Membership,
    news: Option<&HeartbeatNews>,
    owned: Option<&[(TopicId, Vec<i32>)]>,
) {
    e.put_compact_string(&member.group);
    e.put_compact_string(&member.member_id);
    e.put_i32(member.epoch);
    e.put_compact_nullable_string(member.instance_id.as_deref());
    e.put_compact_nullable_string(None); // rack
    e.put_i32(news.map_or(-1, |news| news.rebalance_timeout_ms));
    match news {
        None => e.put_uvarint(0),
        Some(news) => e.put_compact_array(news.subscription.topics.iter(), |e, topic| {
            e.put_compact_string(topic);
        }),
    }
    if version >= 1 {
        let pattern = news.map(|news| news.subscription.pattern.as_deref().unwrap_or_default());
        e.put_compact_nullable_string(pattern);
    }
    e.put_compact_nullable_string(news.and_then(|news| news.assignor.as_deref()));
    match owned {
        None => e.put_uvarint(0),
        Some(owned) => e.put_compact_array(owned.iter(), |e, (id, partitions)| {
            e.put(id);
            e.put_compact_array(partitions.iter(), |e, &partition| e.put_i32(partition));
            e.put_no_tags(true);
        }),
    }
    e.put_no_tags(true);
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatAnswer {
    /// 0, or why the member is refused.
    pub error_code: i16,
    /// The node's message.
    pub message: Option<String>,
    /// The member's epoch.
    pub epoch: i32,
    /// Time until the next heartbeat.
    pub interval_ms: i32,
    /// The partitions that the member is to have; None: as before.
    pub assignment: Option<Vec<(TopicId, i32)>>,
}

/// Reads `ConsumerGroupHeartbeat` v0–1.
pub fn decode_heartbeat(r: &mut Reader<'_>) -> Result<HeartbeatAnswer, Malformed> {
    r.i32()?; // throttle time
    let error_code = r.i16()?;
    let message = r.compact_nullable_string()?.map(ToOwned::to_owned);
    r.compact_nullable_string()?; // member id: the one that was sent
    let (epoch, interval_ms) = (r.i32()?, r.i32()?);
    let assignment = if r.i8()? < 0 {
        None
    } else {
        let topics = r.compact_array(|r| {
            let id = r.uuid_bytes()?;
            let partitions = r.compact_array(|r| Ok((id, r.i32()?)))?;
            r.skip_tags(true)?;
            Ok(partitions)
        })?;
        r.skip_tags(true)?;
        Some(topics.into_iter().flatten().collect())
    };
    r.skip_tags(true)?;
    Ok(HeartbeatAnswer {
        error_code,
        message,
        epoch,
        interval_ms,
        assignment,
    })
}

/// Writes `Metadata` v12 for topics by their ids.
pub fn encode_metadata_by_id(e: &mut Vec<u8>, ids: &[TopicId]) {
    e.put_compact_array(ids.iter(), |e, id| {
        e.put(id);
        e.put_compact_nullable_string(None);
        e.put_no_tags(true);
    });
    e.put_bool(false); // allow auto topic creation
    e.put_bool(false); // include topic authorized operations
    e.put_no_tags(true);
}
