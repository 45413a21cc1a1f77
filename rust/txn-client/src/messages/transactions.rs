//! Producer identities and the life of a transaction.

use txn_protocol::{Malformed, Put, Reader};

use super::read_partitions;

/// (producer id, producer epoch).
pub type ProducerIdAndEpoch = (i64, i16);

/// Writes `InitProducerId` v3–6; 6 asks for a two-phase commit.
pub fn encode_init_producer_id(
    e: &mut Vec<u8>,
    version: i16,
    transactional_id: Option<&str>,
    timeout_ms: i32,
    current: ProducerIdAndEpoch,
) {
    e.put_compact_nullable_string(transactional_id);
    e.put_i32(timeout_ms);
    e.put_i64(current.0);
    e.put_i16(current.1);
    if version >= 6 {
        e.put_bool(true); // enable2Pc
        e.put_bool(false); // keepPreparedTxn
    }
    e.put_no_tags(true);
}

/// Reads `InitProducerId` v3–6: (error code, identity).
pub fn decode_init_producer_id(
    r: &mut Reader<'_>,
    version: i16,
) -> Result<(i16, ProducerIdAndEpoch), Malformed> {
    r.i32()?; // throttle time
    let answer = (r.i16()?, (r.i64()?, r.i16()?));
    if version >= 6 {
        r.i64()?; // of a transaction that was kept, which nobody asked for
        r.i16()?;
    }
    r.skip_tags(true)?;
    Ok(answer)
}

fn encode_who(
    e: &mut Vec<u8>,
    transactional_id: &str,
    (producer_id, producer_epoch): ProducerIdAndEpoch,
) {
    e.put_compact_string(transactional_id);
    e.put_i64(producer_id);
    e.put_i16(producer_epoch);
}

/// Writes `AddPartitionsToTxn` v3.
pub fn encode_add_partitions(
    e: &mut Vec<u8>,
    transactional_id: &str,
    who: ProducerIdAndEpoch,
    partitions: &[(&str, i32)],
) {
    encode_who(e, transactional_id, who);
    let topics = by_topic(
        partitions
            .iter()
            .map(|&(topic, partition)| (topic, partition)),
    );
    e.put_compact_array(topics.iter(), |e, (topic, partitions)| {
        e.put_compact_string(topic);
        e.put_compact_array(partitions.iter(), |e, partition| e.put_i32(*partition));
        e.put_no_tags(true);
    });
    e.put_no_tags(true);
}

/// Groups pairs by their topic, keeping the order in which topics and members first came.
pub(super) fn by_topic<'a, T>(pairs: impl Iterator<Item = (&'a str, T)>) -> Vec<(&'a str, Vec<T>)> {
    let mut topics: Vec<(&str, Vec<T>)> = Vec::new();
    for (topic, member) in pairs {
        match topics.iter_mut().find(|(known, _)| *known == topic) {
            Some((_, members)) => members.push(member),
            None => topics.push((topic, vec![member])),
        }
    }
    topics
}

/// Reads `AddPartitionsToTxn` v3 or `TxnOffsetCommit` v3–5, whose answers look alike: (topic, partition, error code).
pub fn decode_partition_errors(r: &mut Reader<'_>) -> Result<Vec<(String, i32, i16)>, Malformed> {
    r.i32()?; // throttle time
    let partitions = read_partitions(r, |r, topic| {
        let (partition, error_code) = (r.i32()?, r.i16()?);
        r.skip_tags(true)?;
        Ok((topic.to_owned(), partition, error_code))
    })?;
    r.skip_tags(true)?;
    Ok(partitions)
}

/// Writes `AddOffsetsToTxn` v3–4.
pub fn encode_add_offsets(
    e: &mut Vec<u8>,
    transactional_id: &str,
    who: ProducerIdAndEpoch,
    group: &str,
) {
    encode_who(e, transactional_id, who);
    e.put_compact_string(group);
    e.put_no_tags(true);
}

/// Reads `AddOffsetsToTxn` v3–4: the error code.
pub fn decode_add_offsets(r: &mut Reader<'_>) -> Result<i16, Malformed> {
    r.i32()?; // throttle time
    let error_code = r.i16()?;
    r.skip_tags(true)?;
    Ok(error_code)
}

/// A consumer's place in its group, which the group's coordinator checks (KIP-447).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// Generation of the classic protocol, or member epoch; -1: no member.
    pub generation: i32,
    /// Its id; empty: no member.
    pub member_id: String,
    /// Its `group.instance.id`.
    pub instance_id: Option<String>,
}

impl GroupMember {
    /// The place of an application that assigns its partitions itself.
    #[must_use]
    pub fn none() -> Self {
        Self {
            generation: -1,
            member_id: String::new(),
            instance_id: None,
        }
    }
}

/// The next offset that a group reads in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOffset {
    /// Topic name.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
    /// Leader epoch of the record before it; -1: unknown.
    pub leader_epoch: i32,
    /// The program's own text.
    pub metadata: Option<String>,
}

impl GroupOffset {
    /// An offset without leader epoch and metadata.
    #[must_use]
    pub fn new(topic: &str, partition: i32, offset: i64) -> Self {
        Self {
            topic: topic.to_owned(),
            partition,
            offset,
            leader_epoch: -1,
            metadata: None,
        }
    }
}

/// Writes `TxnOffsetCommit` v3–5.
pub fn encode_txn_offset_commit(
    e: &mut Vec<u8>,
    transactional_id: &str,
    who: ProducerIdAndEpoch,
    group: &str,
    member: &GroupMember,
    offsets: &[GroupOffset],
) {
    e.put_compact_string(transactional_id);
    e.put_compact_string(group);
    e.put_i64(who.0);
    e.put_i16(who.1);
    e.put_i32(member.generation);
    e.put_compact_string(&member.member_id);
    e.put_compact_nullable_string(member.instance_id.as_deref());
    let topics = by_topic(offsets.iter().map(|each| (each.topic.as_str(), each)));
    e.put_compact_array(topics.iter(), |e, (topic, partitions)| {
        e.put_compact_string(topic);
        e.put_compact_array(partitions.iter(), |e, each| {
            e.put_i32(each.partition);
            e.put_i64(each.offset);
            e.put_i32(each.leader_epoch);
            e.put_compact_nullable_string(each.metadata.as_deref());
            e.put_no_tags(true);
        });
        e.put_no_tags(true);
    });
    e.put_no_tags(true);
}

/// Writes `EndTxn` v3–5.
pub fn encode_end_txn(
    e: &mut Vec<u8>,
    transactional_id: &str,
    who: ProducerIdAndEpoch,
    commit: bool,
) {
    encode_who(e, transactional_id, who);
    e.put_bool(commit);
    e.put_no_tags(true);
}

/// Reads `EndTxn` v3–5: the error code, and in version 5 the identity to use next.
pub fn decode_end_txn(
    r: &mut Reader<'_>,
    version: i16,
) -> Result<(i16, Option<ProducerIdAndEpoch>), Malformed> {
    r.i32()?; // throttle time
    let error_code = r.i16()?;
    let next = if version >= 5 {
        Some((r.i64()?, r.i16()?))
    } else {
        None
    };
    r.skip_tags(true)?;
    Ok((error_code, next))
}

/// A transaction as its coordinator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its id.
    pub transactional_id: String,
    /// 0, or why nothing is known.
    pub error_code: i16,
    /// Kafka's name of the state: Empty, Ongoing, `PrepareCommit` …
    pub state: String,
    /// Producer id.
    pub producer_id: i64,
    /// Producer epoch.
    pub producer_epoch: i16,
    /// When it began; -1: it did not.
    pub start_time_ms: i64,
    /// Time after which it is aborted.
    pub timeout_ms: i32,
}

/// Writes `DescribeTransactions` v0.
pub fn encode_describe(e: &mut Vec<u8>, transactional_ids: &[&str]) {
    e.put_compact_array(transactional_ids.iter(), |e, id| e.put_compact_string(id));
    e.put_no_tags(true);
}

/// Reads `DescribeTransactions` v0.
pub fn decode_describe(r: &mut Reader<'_>) -> Result<Vec<Description>, Malformed> {
    r.i32()?; // throttle time
    let descriptions = r.compact_array(|r| {
        let error_code = r.i16()?;
        let (transactional_id, state) = (
            r.compact_string()?.to_owned(),
            r.compact_string()?.to_owned(),
        );
        let (timeout_ms, start_time_ms) = (r.i32()?, r.i64()?);
        let (producer_id, producer_epoch) = (r.i64()?, r.i16()?);
        r.compact_array(|r| {
            r.compact_string()?;
            r.skip_compact_array(4)?;
            r.skip_tags(true)
        })?;
        r.skip_tags(true)?;
        Ok(Description {
            transactional_id,
            error_code,
            state,
            producer_id,
            producer_epoch,
            start_time_ms,
            timeout_ms,
        })
    })?;
    r.skip_tags(true)?;
    Ok(descriptions)
}

/// The list of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// 0, or why the list is not there.
    pub error_code: i16,
    /// States asked for that the node does not know.
    pub unknown_states: Vec<String>,
    /// (transactional id, producer id, state).
    pub transactions: Vec<(String, i64, String)>,
}

/// Writes `ListTransactions` v0; no states: all.
pub fn encode_list(e: &mut Vec<u8>, states: &[String]) {
    e.put_compact_array(states.iter(), |e, state| e.put_compact_string(state));
    e.put_compact_length(0); // producer ids: all
    e.put_no_tags(true);
}

/// Reads `ListTransactions` v0.
pub fn decode_list(r: &mut Reader<'_>) -> Result<Listing, Malformed> {
    r.i32()?; // throttle time
    let error_code = r.i16()?;
    let unknown_states = r.compact_array(|r| r.compact_string().map(ToOwned::to_owned))?;
    let transactions = r.compact_array(|r| {
        let entry = (
            r.compact_string()?.to_owned(),
            r.i64()?,
            r.compact_string()?.to_owned(),
        );
        r.skip_tags(true)?;
        Ok(entry)
    })?;
    r.skip_tags(true)?;
    Ok(Listing {
        error_code,
        unknown_states,
        transactions,
    })
}
