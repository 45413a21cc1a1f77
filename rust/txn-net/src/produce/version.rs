//! The differences between the versions of Produce.

use txn_protocol::apis;
use txn_protocol::codes;

use crate::catalog::TopicKey;

/// The code by which a client of that version is told.
///
/// Answers of a coordinator are translated as Kafka's brokers do. Clients of old versions do not
/// retry some of them rightly, and do not know others.
pub(super) fn code_for(version: i16, code: i16) -> i16 {
    match code {
        codes::TRANSACTION_ABORTABLE if version < 11 => codes::INVALID_TXN_STATE,
        codes::PRODUCER_FENCED => codes::INVALID_PRODUCER_EPOCH,
        codes::CONCURRENT_TRANSACTIONS if version < 12 => codes::NOT_ENOUGH_REPLICAS,
        codes::NETWORK_EXCEPTION
        | codes::COORDINATOR_LOAD_IN_PROGRESS
        | codes::COORDINATOR_NOT_AVAILABLE
        | codes::NOT_COORDINATOR => codes::NOT_ENOUGH_REPLICAS,
        code => code,
    }
}

pub(super) fn is_flexible(version: i16) -> bool {
    apis::is_flexible(apis::PRODUCE, version)
}

pub(super) fn has_topic_ids(version: i16) -> bool {
    version >= 13
}

pub(super) fn topic_key(version: i16, bytes: &[u8]) -> TopicKey<'_> {
    if has_topic_ids(version) {
        TopicKey::Id(bytes)
    } else {
        TopicKey::Name(bytes)
    }
}
