//! API versions, leaders, offsets: `ApiVersions`, `Metadata`, `FindCoordinator`, `ListOffsets`,
//! `CreateTopics`.

use txn_protocol::codes;
use txn_protocol::{Malformed, Put, Reader};

use super::read_partitions;

/// A node's API versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// 0, or 35: the node does not know the version asked with and answered in version 0.
    pub error_code: i16,
    /// (API key, lowest version, highest version), both inclusive.
    pub ranges: Vec<(i16, i16, i16)>,
    /// Epoch of the finalized features; -1: none.
    pub features_epoch: i64,
    /// Finalized level of `transaction.version`; 0 if it has none.
    pub transaction_version: i16,
}

/// Writes `ApiVersions` v3; v0 has no body.
pub fn encode_api_versions(e: &mut Vec<u8>, version: i16) {
    if version >= 3 {
        e.put_compact_string("txn");
        e.put_compact_string(env!("CARGO_PKG_VERSION"));
        e.put_no_tags(true);
    }
}

/// Reads `ApiVersions` v3, or the version 0 that answers a version too new.
pub fn decode_api_versions(r: &mut Reader<'_>, version: i16) -> Result<Versions, Malformed> {
    let error_code = r.i16()?;
    let mut versions = Versions {
        error_code,
        features_epoch: -1,
        ..Versions::default()
    };
    if version == 0 || error_code == codes::UNSUPPORTED_VERSION {
        versions.ranges = r.array_of(false, |r| Ok((r.i16()?, r.i16()?, r.i16()?)))?;
        return Ok(versions);
    }
    versions.ranges = r.compact_array(|r| {
        let range = (r.i16()?, r.i16()?, r.i16()?);
        r.skip_tags(true)?;
        Ok(range)
    })?;
    r.i32()?; // throttle time
    r.tags(|tag, mut field| {
        match tag {
            1 => versions.features_epoch = field.i64()?,
            2 => {
                let levels = field.compact_array(|r| {
                    let (name, highest, _lowest) = (r.compact_string()?, r.i16()?, r.i16()?);
                    r.skip_tags(true)?;
                    Ok((name, highest))
                })?;
                let level = levels
                    .iter()
                    .find(|(name, _)| *name == "transaction.version");
                versions.transaction_version = level.map_or(0, |(_, highest)| *highest);
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(versions)
}

/// A node's address as the cluster tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAddress {
    /// Node id.
    pub id: i32,
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// One topic as the cluster tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMetadata {
    /// Why the topic cannot be told, or 0.
    pub error_code: i16,
    /// Its name.
    pub name: String,
    /// Its id, which a topic made anew under the same name does not have; None before version 10
    /// and from nodes that give topics none.
    pub id: Option<[u8; 16]>,
    /// True if it is Kafka's own.
    pub is_internal: bool,
    /// (error code, partition, node id of the leader or -1), as sent: any order.
    pub partitions: Vec<(i16, i32, i32)>,
}

/// The nodes, and the topics asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The nodes that are up.
    pub brokers: Vec<BrokerAddress>,
    /// Where topics are made; -1: unknown.
    pub controller: i32,
    /// The topics asked for.
    pub topics: Vec<TopicMetadata>,
}

/// Writes `Metadata` v9–12 for the topics, or for all (`None`); `makes_missing` asks a cluster with
/// `auto.create.topics.enable` to make those that are not there.
pub fn encode_metadata(
    e: &mut Vec<u8>,
    version: i16,
    topics: Option<&[&str]>,
    makes_missing: bool,
) {
    match topics {
        None => e.put_uvarint(0),
        Some(names) => e.put_compact_array(names.iter(), |e, name| {
            if version >= 10 {
                e.put(&[0; 16]);
            }
            e.put_compact_string(name);
            e.put_no_tags(true);
        }),
    }
    e.put_bool(makes_missing); // allow auto topic creation
    if version <= 10 {
        e.put_bool(false); // include cluster authorized operations
    }
    e.put_bool(false); // include topic authorized operations
    e.put_no_tags(true);
}

/// Reads `Metadata` v9–12.
pub fn decode_metadata(r: &mut Reader<'_>, version: i16) -> Result<Metadata, Malformed> {
    r.i32()?; // throttle time
    let brokers = r.compact_array(|r| {
        let id = r.i32()?;
        let (host, port) = (r.compact_string()?.to_owned(), port(r)?);
        r.compact_nullable_string()?; // rack
        r.skip_tags(true)?;
        Ok(BrokerAddress { id, host, port })
    })?;
    r.compact_nullable_string()?; // cluster id
    let controller = r.i32()?;
    let topics = r.compact_array(|r| {
        let error_code = r.i16()?;
        let name = r.compact_nullable_string()?.unwrap_or_default().to_owned();
        let id = if version >= 10 {
            r.uuid_bytes()?
        } else {
            [0; 16]
        };
        let is_internal = r.bool()?;
        let partitions = r.compact_array(|r| {
            let (error_code, partition, leader) = (r.i16()?, r.i32()?, r.i32()?);
            r.i32()?; // leader epoch
            r.skip_compact_array(4)?; // replicas
            r.skip_compact_array(4)?; // in-sync replicas
            r.skip_compact_array(4)?; // offline replicas
            r.skip_tags(true)?;
            Ok((error_code, partition, leader))
        })?;
        r.i32()?; // authorized operations
        r.skip_tags(true)?;
        Ok(TopicMetadata {
            error_code,
            name,
            id: (id != [0; 16]).then_some(id),
            is_internal,
            partitions,
        })
    })?;
    if version <= 10 {
        r.i32()?; // authorized operations
    }
    r.skip_tags(true)?;
    Ok(Metadata {
        brokers,
        controller,
        topics,
    })
}

fn port(r: &mut Reader<'_>) -> Result<u16, Malformed> {
    u16::try_from(r.i32()?).map_err(|_| r.malformed("a port is out of range"))
}

/// Which coordinator is looked for; the number is the key type on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CoordinatorOf {
    /// A consumer group.
    Group = 0,
    /// A transactional id.
    Transaction = 1,
}

/// Writes `FindCoordinator` v3.
pub fn encode_find_coordinator(e: &mut Vec<u8>, of: CoordinatorOf, key: &str) {
    e.put_compact_string(key);
    e.put_i8(of as i8);
    e.put_no_tags(true);
}

/// Reads `FindCoordinator` v3: the node, or (error code, the node's message).
pub fn decode_find_coordinator(
    r: &mut Reader<'_>,
) -> Result<Result<BrokerAddress, (i16, Option<String>)>, Malformed> {
    r.i32()?; // throttle time
    let error_code = r.i16()?;
    let message = r.compact_nullable_string()?.map(ToOwned::to_owned);
    if error_code != 0 {
        return Ok(Err((error_code, message)));
    }
    let (id, host) = (r.i32()?, r.compact_string()?.to_owned());
    let port = port(r)?;
    r.skip_tags(true)?;
    Ok(Ok(BrokerAddress { id, host, port }))
}

/// Writes `ListOffsets` v6–7 of one topic.
pub fn encode_list_offsets(
    e: &mut Vec<u8>,
    topic: &str,
    partitions: &[i32],
    timestamp_ms: i64,
    read_committed: bool,
) {
    e.put_i32(-1); // replica id: a consumer
    e.put_bool(read_committed);
    e.put_compact_array([topic].iter(), |e, topic| {
        e.put_compact_string(topic);
        e.put_compact_array(partitions.iter(), |e, partition| {
            e.put_i32(*partition);
            e.put_i32(-1); // current leader epoch: unknown
            e.put_i64(timestamp_ms);
            e.put_no_tags(true);
        });
        e.put_no_tags(true);
    });
    e.put_no_tags(true);
}

/// Reads `ListOffsets` v6–7 of one topic: (partition, error code, offset).
pub fn decode_list_offsets(r: &mut Reader<'_>) -> Result<Vec<(i32, i16, i64)>, Malformed> {
    r.i32()?; // throttle time
    let partitions = read_partitions(r, |r, _| {
        let (partition, error_code) = (r.i32()?, r.i16()?);
        r.i64()?; // timestamp
        let offset = r.i64()?;
        r.i32()?; // leader epoch
        r.skip_tags(true)?;
        Ok((partition, error_code, offset))
    })?;
    r.skip_tags(true)?;
    Ok(partitions)
}

/// Writes `CreateTopics` v5–7 of one topic with the cluster's default replication.
pub fn encode_create_topics(
    e: &mut Vec<u8>,
    topic: &str,
    partitions: i32,
    configs: &[(String, String)],
    timeout_ms: i32,
) {
    e.put_compact_array([topic].iter(), |e, topic| {
        e.put_compact_string(topic);
        e.put_i32(partitions);
        e.put_i16(-1); // replication factor: the cluster's default (KIP-464)
        e.put_compact_length(0); // assignments
        e.put_compact_array(configs.iter(), |e, (name, value)| {
            e.put_compact_string(name);
            e.put_compact_string(value);
            e.put_no_tags(true);
        });
        e.put_no_tags(true);
    });
    e.put_i32(timeout_ms);
    e.put_bool(false); // validate only
    e.put_no_tags(true);
}

/// Reads `CreateTopics` v5–7: per topic (error code, the node's message).
pub fn decode_create_topics(
    r: &mut Reader<'_>,
    version: i16,
) -> Result<Vec<(i16, Option<String>)>, Malformed> {
    r.i32()?; // throttle time
    let topics = r.compact_array(|r| {
        r.compact_string()?;
        if version >= 7 {
            r.uuid_bytes()?;
        }
        let error_code = r.i16()?;
        let message = r.compact_nullable_string()?.map(ToOwned::to_owned);
        r.i32()?; // partitions
        r.i16()?; // replication factor
        r.compact_array(|r| {
            r.compact_string()?;
            r.compact_nullable_string()?;
            r.bool()?; // read only
            r.i8()?; // source
            r.bool()?; // sensitive
            r.skip_tags(true)
        })?;
        r.skip_tags(true)?;
        Ok((error_code, message))
    })?;
    r.skip_tags(true)?;
    Ok(topics)
}
