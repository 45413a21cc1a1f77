//! What can go wrong between this client and a node, and what to do about it.
//!
//! `CODES` names the error codes of the protocol that these few APIs answer with. Codes the table
//! does not know are final: guessing that something is safe to repeat is how records are doubled.
//!
//! Source: Apache Kafka's protocol documentation, "Error codes".

use std::fmt;

/// A node answered with an error, or could not be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaError {
    /// What happened, the values, and what to do.
    pub message: String,
    /// Kafka's error code; 13 for a broken connection, 7 for an answer that did not come.
    pub code: i16,
    /// Whether sending the same again later may succeed.
    pub is_retriable: bool,
}

/// Kafka's error codes that this crate decides on.
pub mod code {
    /// No fitting code.
    pub const UNKNOWN_SERVER_ERROR: i16 = -1;
    /// The call succeeded.
    pub const NONE: i16 = 0;
    /// The offset is not in the log.
    pub const OFFSET_OUT_OF_RANGE: i16 = 1;
    /// A batch whose checksum does not match.
    pub const CORRUPT_MESSAGE: i16 = 2;
    /// No such topic or partition, or not yet.
    pub const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
    /// An election is under way.
    pub const LEADER_NOT_AVAILABLE: i16 = 5;
    /// Another node leads the partition.
    pub const NOT_LEADER_OR_FOLLOWER: i16 = 6;
    /// The node did not finish in time.
    pub const REQUEST_TIMED_OUT: i16 = 7;
    /// The batch is larger than the topic allows.
    pub const MESSAGE_TOO_LARGE: i16 = 10;
    /// The connection broke.
    pub const NETWORK_EXCEPTION: i16 = 13;
    /// The coordinator still reads its log.
    pub const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
    /// The coordinator is not there.
    pub const COORDINATOR_NOT_AVAILABLE: i16 = 15;
    /// Another node is the coordinator.
    pub const NOT_COORDINATOR: i16 = 16;
    /// A topic name that Kafka does not allow.
    pub const INVALID_TOPIC_EXCEPTION: i16 = 17;
    /// The node does not offer a version both sides know.
    pub const UNSUPPORTED_VERSION: i16 = 35;
    /// The topic exists.
    pub const TOPIC_ALREADY_EXISTS: i16 = 36;
    /// A partition that the topic does not have.
    pub const INVALID_PARTITIONS: i16 = 37;
    /// The request contradicts itself.
    pub const INVALID_REQUEST: i16 = 42;
    /// A stored format this client does not read.
    pub const UNSUPPORTED_FOR_MESSAGE_FORMAT: i16 = 43;
    /// A gap before this batch.
    pub const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
    /// The batch is already stored.
    pub const DUPLICATE_SEQUENCE_NUMBER: i16 = 46;
    /// The transaction before this one is still being completed.
    pub const CONCURRENT_TRANSACTIONS: i16 = 51;
    /// No transaction has this id.
    pub const TRANSACTIONAL_ID_NOT_FOUND: i16 = 105;
}

/// (code, name, whether it may pass, what to do about it).
type Row = (i16, &'static str, bool, &'static str);

const FENCED: &str = "another instance started with this transactional id; stop this one";
const REPEAT: &str = "abort the transaction and do its work again";
const WAIT: &str = "the node is busy with it; try again";
const ACCESS: &str = "ask an administrator for the missing right";
const REPORT: &str = "see the node's log";

const CODES: &[Row] = &[
    (-1, "UNKNOWN_SERVER_ERROR", false, REPORT),
    (
        1,
        "OFFSET_OUT_OF_RANGE",
        false,
        "start at an offset the partition still has",
    ),
    (
        2,
        "CORRUPT_MESSAGE",
        false,
        "bytes were damaged on the way or on the node's disk; verify its log",
    ),
    (
        3,
        "UNKNOWN_TOPIC_OR_PARTITION",
        true,
        "create the topic, or check its name",
    ),
    (5, "LEADER_NOT_AVAILABLE", true, WAIT),
    (6, "NOT_LEADER_OR_FOLLOWER", true, WAIT),
    (7, "REQUEST_TIMED_OUT", true, WAIT),
    (8, "BROKER_NOT_AVAILABLE", true, WAIT),
    (9, "REPLICA_NOT_AVAILABLE", true, WAIT),
    (
        10,
        "MESSAGE_TOO_LARGE",
        false,
        "raise the topic's max.message.bytes, or write smaller batches",
    ),
    (
        13,
        "NETWORK_EXCEPTION",
        true,
        "check that the node runs and can be reached",
    ),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", true, WAIT),
    (15, "COORDINATOR_NOT_AVAILABLE", true, WAIT),
    (16, "NOT_COORDINATOR", true, WAIT),
    (
        17,
        "INVALID_TOPIC_EXCEPTION",
        false,
        "use another topic name",
    ),
    (
        18,
        "RECORD_LIST_TOO_LARGE",
        false,
        "raise the topic's segment.bytes, or write smaller batches",
    ),
    (
        19,
        "NOT_ENOUGH_REPLICAS",
        true,
        "bring replicas back in sync",
    ),
    (
        20,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        true,
        "bring replicas back in sync",
    ),
    (
        22,
        "ILLEGAL_GENERATION",
        false,
        "the group has live members; use a group of this job's own",
    ),
    (24, "INVALID_GROUP_ID", false, "use another group name"),
    (
        25,
        "UNKNOWN_MEMBER_ID",
        false,
        "the group has live members; use a group of this job's own",
    ),
    (29, "TOPIC_AUTHORIZATION_FAILED", false, ACCESS),
    (30, "GROUP_AUTHORIZATION_FAILED", false, ACCESS),
    (31, "CLUSTER_AUTHORIZATION_FAILED", false, ACCESS),
    (
        32,
        "INVALID_TIMESTAMP",
        false,
        "give timestamps the topic accepts (message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
    ),
    (
        35,
        "UNSUPPORTED_VERSION",
        false,
        "use a broker of Kafka 3.0 or newer",
    ),
    (
        36,
        "TOPIC_ALREADY_EXISTS",
        false,
        "use the topic that is there",
    ),
    (
        37,
        "INVALID_PARTITIONS",
        false,
        "ask for at least one partition",
    ),
    (
        38,
        "INVALID_REPLICATION_FACTOR",
        false,
        "start more nodes or lower default.replication.factor",
    ),
    (
        40,
        "INVALID_CONFIG",
        false,
        "correct the setting that is named",
    ),
    (41, "NOT_CONTROLLER", true, WAIT),
    (42, "INVALID_REQUEST", false, REPORT),
    (
        43,
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        false,
        "rewrite the topic in message format 2",
    ),
    (44, "POLICY_VIOLATION", false, ACCESS),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", false, REPEAT),
    (46, "DUPLICATE_SEQUENCE_NUMBER", false, REPEAT),
    (47, "INVALID_PRODUCER_EPOCH", false, FENCED),
    (
        48,
        "INVALID_TXN_STATE",
        false,
        "the transaction is not open any more or ended the other way; begin a new one",
    ),
    (
        49,
        "INVALID_PRODUCER_ID_MAPPING",
        false,
        "the coordinator forgot this producer; initialize it again",
    ),
    (
        50,
        "INVALID_TRANSACTION_TIMEOUT",
        false,
        "ask for at most the broker's transaction.max.timeout.ms",
    ),
    (51, "CONCURRENT_TRANSACTIONS", true, WAIT),
    (52, "TRANSACTION_COORDINATOR_FENCED", false, REPEAT),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", false, ACCESS),
    (54, "SECURITY_DISABLED", false, ACCESS),
    (55, "OPERATION_NOT_ATTEMPTED", false, REPEAT),
    (56, "KAFKA_STORAGE_ERROR", true, "check the node's disk"),
    (59, "UNKNOWN_PRODUCER_ID", false, REPEAT),
    (74, "FENCED_LEADER_EPOCH", true, WAIT),
    (75, "UNKNOWN_LEADER_EPOCH", true, WAIT),
    (
        76,
        "UNSUPPORTED_COMPRESSION_TYPE",
        false,
        "choose another compression",
    ),
    (78, "OFFSET_NOT_AVAILABLE", true, WAIT),
    (
        87,
        "INVALID_RECORD",
        false,
        "a compacted topic needs keys; correct the rows",
    ),
    (88, "UNSTABLE_OFFSET_COMMIT", true, WAIT),
    (89, "THROTTLING_QUOTA_EXCEEDED", true, WAIT),
    (90, "PRODUCER_FENCED", false, FENCED),
    (100, "UNKNOWN_TOPIC_ID", true, WAIT),
    (103, "INCONSISTENT_TOPIC_ID", true, WAIT),
    (
        105,
        "TRANSACTIONAL_ID_NOT_FOUND",
        false,
        "check the transactional id",
    ),
    (120, "TRANSACTION_ABORTABLE", false, REPEAT),
];

fn row(code: i16) -> Option<&'static Row> {
    CODES.iter().find(|row| row.0 == code)
}

/// Kafka's name of an error code.
#[must_use]
pub fn name(code: i16) -> &'static str {
    row(code).map_or("an error this client does not know", |row| row.1)
}

/// Whether the same request may succeed later, unchanged.
#[must_use]
pub fn is_retriable(code: i16) -> bool {
    row(code).is_some_and(|row| row.2)
}

impl KafkaError {
    /// A node answered `code` to `request` about `subject` ("topic out-3", "transactional id 'pay'").
    ///
    /// `detail` is the node's own message, if it sent one.
    #[must_use]
    pub fn answered(
        code: i16,
        node: &str,
        request: &str,
        subject: &str,
        detail: Option<&str>,
    ) -> Self {
        let advice = row(code).map_or(REPORT, |row| row.3);
        let detail = detail.map_or_else(String::new, |text| format!(" ({text})"));
        Self {
            message: format!(
                "{node} answered {request} for {subject} with {} ({code}){detail}: {advice}",
                name(code)
            ),
            code,
            is_retriable: is_retriable(code),
        }
    }

    /// The connection to `node` could not be made or broke.
    #[must_use]
    pub fn unreachable(node: &str, what: &str, cause: &dyn fmt::Display) -> Self {
        Self {
            message: format!("{node} {what}: {cause}; check that it runs and can be reached"),
            code: code::NETWORK_EXCEPTION,
            is_retriable: true,
        }
    }

    /// No answer came in time.
    #[must_use]
    pub fn silent(node: &str, request: &str, waited_ms: u128) -> Self {
        Self {
            message: format!(
                "{node} did not answer {request} within {waited_ms} ms; check that it runs"
            ),
            code: code::REQUEST_TIMED_OUT,
            is_retriable: true,
        }
    }

    /// An answer that does not follow the protocol. The connection is dropped; nothing is known of the request.
    #[must_use]
    pub fn malformed(node: &str, request: &str, what: &dyn fmt::Display) -> Self {
        Self {
            message: format!(
                "{node} sent an answer to {request} that does not follow the protocol: {what}; {REPORT}"
            ),
            code: code::UNKNOWN_SERVER_ERROR,
            is_retriable: false,
        }
    }

    /// Something that repeating cannot change.
    #[must_use]
    pub fn refused(code: i16, message: String) -> Self {
        Self {
            message,
            code,
            is_retriable: false,
        }
    }

    /// The last of many attempts.
    #[must_use]
    pub fn given_up(self, after_ms: u128) -> Self {
        Self {
            message: format!("gave up after {after_ms} ms: {}", self.message),
            ..self
        }
    }
}

impl fmt::Display for KafkaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for KafkaError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_listed_once_and_in_order() {
        assert!(CODES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn fenced_producers_are_never_told_to_try_again() {
        assert!(
            [45, 47, 48, 49, 59, 90, 120]
                .iter()
                .all(|&code| !is_retriable(code))
        );
    }

    #[test]
    fn an_unknown_code_is_final() {
        assert!(!is_retriable(9999));
    }

    #[test]
    fn a_message_names_node_request_subject_code_and_remedy() {
        let error = KafkaError::answered(
            90,
            "node 1 at h:9092",
            "EndTxn v5",
            "transactional id 'pay'",
            None,
        );
        assert_eq!(
            error.message,
            "node 1 at h:9092 answered EndTxn v5 for transactional id 'pay' with PRODUCER_FENCED (90): another \
             instance started with this transactional id; stop this one"
        );
    }
}
