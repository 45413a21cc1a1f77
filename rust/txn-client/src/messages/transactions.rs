//! Producer identities and the life of a transaction.

use crate::wire::{Encoder, Malformed, Reader};

/// (producer id, producer epoch).
pub type Identity = (i64, i16);

/// Writes `InitProducerId` v3–5.
pub fn encode_init_producer_id(
    e: &mut Encoder,
    transactional_id: Option<&str>,
    timeout_ms: i32,
    current: Identity,
) {
    e.nullable_string(transactional_id);
    e.i32(timeout_ms);
    e.i64(current.0);
    e.i16(current.1);
    e.no_tags();
}

/// Reads `InitProducerId` v3–5: (error code, identity).
pub fn decode_init_producer_id(r: &mut Reader<'_>) -> Result<(i16, Identity), Malformed> {
    r.i32()?; // throttle time
    let answer = (r.i16()?, (r.i64()?, r.i16()?));
    r.tags()?;
    Ok(answer)
}

fn encode_who(e: &mut Encoder, transactional_id: &str, (producer_id, producer_epoch): Identity) {
    e.string(transactional_id);
    e.i64(producer_id);
    e.i16(producer_epoch);
}

/// Writes `AddPartitionsToTxn` v3.
pub fn encode_add_partitions(
    e: &mut Encoder,
    transactional_id: &str,
    who: Identity,
    partitions: &[(&str, i32)],
) {
    encode_who(e, transactional_id, who);
    let topics = by_topic(
        partitions
            .iter()
            .map(|&(topic, partition)| (topic, partition)),
    );
    e.array_of(topics.iter(), |e, (topic, partitions)| {
        e.string(topic);
        e.array_of(partitions.iter(), |e, partition| e.i32(*partition));
        e.no_tags();
    });
    e.no_tags();
}

/// Groups pairs by their topic, keeping the order in which topics and members first came.
fn by_topic<'a, T>(pairs: impl Iterator<Item = (&'a str, T)>) -> Vec<(&'a str, Vec<T>)> {
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
    let topics = r.array_of(|r| {
        let topic = r.string()?.to_owned();
        let partitions = r.array_of(|r| {
            let (partition, error_code) = (r.i32()?, r.i16()?);
            r.tags()?;
            Ok((topic.clone(), partition, error_code))
        })?;
        r.tags()?;
        Ok(partitions)
    })?;
    r.tags()?;
    Ok(topics.into_iter().flatten().collect())
}

/// Writes `AddOffsetsToTxn` v3–4.
pub fn encode_add_offsets(e: &mut Encoder, transactional_id: &str, who: Identity, group: &str) {
    encode_who(e, transactional_id, who);
    e.string(group);
    e.no_tags();
}

/// Reads `AddOffsetsToTxn` v3–4: the error code.
pub fn decode_add_offsets(r: &mut Reader<'_>) -> Result<i16, Malformed> {
    r.i32()?; // throttle time
    let error_code = r.i16()?;
    r.tags()?;
    Ok(error_code)
}

/// Writes `TxnOffsetCommit` v3–5 for a simple group: no generation, no member.
pub fn encode_txn_offset_commit(
    e: &mut Encoder,
    transactional_id: &str,
    who: Identity,
    group: &str,
    offsets: &[(String, i32, i64)],
) {
    e.string(transactional_id);
    e.string(group);
    e.i64(who.0);
    e.i16(who.1);
    e.i32(-1); // generation
    e.string(""); // member
    e.nullable_string(None); // group instance
    let topics = by_topic(
        offsets
            .iter()
            .map(|(topic, partition, offset)| (topic.as_str(), (*partition, *offset))),
    );
    e.array_of(topics.iter(), |e, (topic, partitions)| {
        e.string(topic);
        e.array_of(partitions.iter(), |e, (partition, offset)| {
            e.i32(*partition);
            e.i64(*offset);
            e.i32(-1); // leader epoch: unknown
            e.nullable_string(None); // metadata
            e.no_tags();
        });
        e.no_tags();
    });
    e.no_tags();
}

/// Writes `EndTxn` v3–5.
pub fn encode_end_txn(e: &mut Encoder, transactional_id: &str, who: Identity, commit: bool) {
    encode_who(e, transactional_id, who);
    e.boolean(commit);
    e.no_tags();
}

/// Reads `EndTxn` v3–5: the error code, and in version 5 the identity to use next.
pub fn decode_end_txn(
    r: &mut Reader<'_>,
    version: i16,
) -> Result<(i16, Option<Identity>), Malformed> {
    r.i32()?; // throttle time
    let error_code = r.i16()?;
    let next = if version >= 5 {
        Some((r.i64()?, r.i16()?))
    } else {
        None
    };
    r.tags()?;
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
    /// After how long it is aborted.
    pub timeout_ms: i32,
}

/// Writes `DescribeTransactions` v0.
pub fn encode_describe(e: &mut Encoder, transactional_ids: &[&str]) {
    e.array_of(transactional_ids.iter(), |e, id| e.string(id));
    e.no_tags();
}

/// Reads `DescribeTransactions` v0.
pub fn decode_describe(r: &mut Reader<'_>) -> Result<Vec<Description>, Malformed> {
    r.i32()?; // throttle time
    let descriptions = r.array_of(|r| {
        let error_code = r.i16()?;
        let (transactional_id, state) = (r.string()?.to_owned(), r.string()?.to_owned());
        let (timeout_ms, start_time_ms) = (r.i32()?, r.i64()?);
        let (producer_id, producer_epoch) = (r.i64()?, r.i16()?);
        r.array_of(|r| {
            r.string()?;
            r.skip_i32s()?;
            r.tags()
        })?;
        r.tags()?;
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
    r.tags()?;
    Ok(descriptions)
}

/// What one node lists.
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
pub fn encode_list(e: &mut Encoder, states: &[String]) {
    e.array_of(states.iter(), |e, state| e.string(state));
    e.length(0); // producer ids: all
    e.no_tags();
}

/// Reads `ListTransactions` v0.
pub fn decode_list(r: &mut Reader<'_>) -> Result<Listing, Malformed> {
    r.i32()?; // throttle time
    let error_code = r.i16()?;
    let unknown_states = r.array_of(|r| r.string().map(ToOwned::to_owned))?;
    let transactions = r.array_of(|r| {
        let entry = (r.string()?.to_owned(), r.i64()?, r.string()?.to_owned());
        r.tags()?;
        Ok(entry)
    })?;
    r.tags()?;
    Ok(Listing {
        error_code,
        unknown_states,
        transactions,
    })
}
