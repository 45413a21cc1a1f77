//! The few messages this client speaks, each at the versions that Kafka 3.0 to 4.2 all offer.
//!
//! One `encode_*` writes a request's body, one `decode_*` reads an answer's body. Fields this
//! client has no use for are written as their defaults and skipped when read. All versions but
//! those of the log-in are flexible.
//!
//! Source: the message schemas of Apache Kafka 4.2 (field order, types, versions).
#![allow(
    clippy::missing_errors_doc,
    reason = "what reads bytes fails with `Malformed` and with nothing else"
)]

pub mod classic;
pub mod cluster;
pub mod consumer;
pub mod fetch;
pub mod produce;
pub mod sasl;
pub mod transactions;
pub mod two_phase;

#[cfg(test)]
mod golden;

use txn_protocol::{Malformed, Reader, apis};

/// Reads the partitions of each topic of an answer into one list.
fn read_partitions<'a, T>(
    r: &mut Reader<'a>,
    mut partition: impl FnMut(&mut Reader<'a>, &str) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let topics = r.compact_array(|r| {
        let topic = r.compact_string()?;
        let partitions = r.compact_array(|r| partition(r, topic))?;
        r.skip_tags(true)?;
        Ok(partitions)
    })?;
    Ok(topics.into_iter().flatten().collect())
}

/// One API, and the versions of it that this crate can write and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientApi {
    /// Its number on the wire.
    pub key: i16,
    /// Kafka's name for it.
    pub name: &'static str,
    /// Lowest version, inclusive.
    pub lowest: i16,
    /// Highest version, inclusive.
    pub highest: i16,
}

/// 12 joins a partition to the transaction by itself (KIP-890); 13 would need topic ids.
pub const PRODUCE: ClientApi = ClientApi::of(apis::PRODUCE, 9, 12);
/// 12 is the last one that names topics, and every broker since 2.7 has it.
pub const FETCH: ClientApi = ClientApi::of(apis::FETCH, 12, 12);
/// See `cluster`.
pub const LIST_OFFSETS: ClientApi = ClientApi::of(apis::LIST_OFFSETS, 6, 7);
/// See `cluster`.
pub const METADATA: ClientApi = ClientApi::of(apis::METADATA, 9, 12);
/// 4 and later are batched, which nothing here needs.
pub const FIND_COORDINATOR: ClientApi = ClientApi::of(apis::FIND_COORDINATOR, 3, 3);
/// See `cluster`.
pub const API_VERSIONS: ClientApi = ClientApi::of(apis::API_VERSIONS, 0, 3);
/// See `cluster`.
pub const CREATE_TOPICS: ClientApi = ClientApi::of(apis::CREATE_TOPICS, 5, 7);
/// 0 would leave the mechanism's messages without a frame's header.
pub const SASL_HANDSHAKE: ClientApi = ClientApi::of(apis::SASL_HANDSHAKE, 1, 1);
/// From 1 on the answer tells the lifetime of the session (KIP-368).
pub const SASL_AUTHENTICATE: ClientApi = ClientApi::of(apis::SASL_AUTHENTICATE, 0, 2);
/// See `transactions`.
pub const INIT_PRODUCER_ID: ClientApi = ClientApi::of(apis::INIT_PRODUCER_ID, 3, 5);
/// 6 may ask for a two-phase commit (KIP-939). Nodes that leave it unstable do not offer it.
pub const INIT_TWO_PHASE_PRODUCER_ID: ClientApi = ClientApi::of(apis::INIT_PRODUCER_ID, 6, 6);
/// 4 and later are between brokers.
pub const ADD_PARTITIONS_TO_TXN: ClientApi = ClientApi::of(apis::ADD_PARTITIONS_TO_TXN, 3, 3);
/// See `transactions`.
pub const ADD_OFFSETS_TO_TXN: ClientApi = ClientApi::of(apis::ADD_OFFSETS_TO_TXN, 3, 4);
/// 5 answers with the producer id and epoch to use next (KIP-890).
pub const END_TXN: ClientApi = ClientApi::of(apis::END_TXN, 3, 5);
/// 5 joins the group to the transaction by itself (KIP-890).
pub const TXN_OFFSET_COMMIT: ClientApi = ClientApi::of(apis::TXN_OFFSET_COMMIT, 3, 5);
/// 8 and later name several groups.
pub const OFFSET_FETCH: ClientApi = ClientApi::of(apis::OFFSET_FETCH, 7, 7);
/// 9 is the first that members of KIP-848 may send; 10 would need topic ids.
pub const OFFSET_COMMIT: ClientApi = ClientApi::of(apis::OFFSET_COMMIT, 8, 9);
/// See `classic`. 7 tells the chosen assignor with the type of the group.
pub const JOIN_GROUP: ClientApi = ClientApi::of(apis::JOIN_GROUP, 7, 9);
/// See `classic`.
pub const SYNC_GROUP: ClientApi = ClientApi::of(apis::SYNC_GROUP, 5, 5);
/// See `classic`.
pub const HEARTBEAT: ClientApi = ClientApi::of(apis::HEARTBEAT, 4, 4);
/// See `classic`.
pub const LEAVE_GROUP: ClientApi = ClientApi::of(apis::LEAVE_GROUP, 4, 5);
/// See `consumer`. 1 has patterns.
pub const CONSUMER_GROUP_HEARTBEAT: ClientApi = ClientApi::of(apis::CONSUMER_GROUP_HEARTBEAT, 0, 1);
/// See `transactions`.
pub const DESCRIBE_TRANSACTIONS: ClientApi = ClientApi::of(apis::DESCRIBE_TRANSACTIONS, 0, 0);
/// See `transactions`.
pub const LIST_TRANSACTIONS: ClientApi = ClientApi::of(apis::LIST_TRANSACTIONS, 0, 0);

impl ClientApi {
    /// The API with `key`, in these versions.
    const fn of(key: i16, lowest: i16, highest: i16) -> Self {
        let Some(api) = apis::api(key) else {
            panic!("the key is one of the table");
        };
        Self {
            key,
            name: api.name,
            lowest,
            highest,
        }
    }

    /// The API with `key`, in versions that a caller can write and read; None if there is no such API.
    #[must_use]
    pub fn known(key: i16, lowest: i16, highest: i16) -> Option<Self> {
        let name = apis::api(key)?.name;
        Some(Self {
            key,
            name,
            lowest,
            highest,
        })
    }

    /// This API from version `lowest` on.
    #[must_use]
    pub const fn at_least(self, lowest: i16) -> Self {
        Self { lowest, ..self }
    }

    /// This API up to version `highest`.
    #[must_use]
    pub const fn at_most(self, highest: i16) -> Self {
        Self { highest, ..self }
    }
}
