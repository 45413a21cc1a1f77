//! Kafka's error codes: the one table from which every part of txn takes them.
//!
//! A row gives the number on the wire, Kafka's name, whether the same request may succeed later
//! unchanged, and a short advice for messages. Python's `ErrorCode` is held against this table.
//! A number is on the wire and never changes its meaning.
//!
//! Source: Kafka's protocol guide, "Error Codes".

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode {
    /// The number on the wire.
    pub code: i16,
    /// Kafka's name for it.
    pub name: &'static str,
    /// True if Kafka calls it retriable: the same request may succeed later.
    pub is_retriable: bool,
    /// Advice for the reader of a message.
    pub advice: &'static str,
}

macro_rules! error_codes {
    ($($name:ident = $code:literal, $kind:ident, $advice:literal;)*) => {
        $(
            #[doc = $advice]
            pub const $name: i16 = $code;
        )*

        /// All codes, by number.
        pub const ERROR_CODES: &[ErrorCode] = &[$(ErrorCode {
            code: $code,
            name: stringify!($name),
            is_retriable: error_codes!(@$kind),
            advice: $advice,
        }),*];
    };
    (@retriable) => { true };
    (@final) => { false };
}

error_codes! {
    UNKNOWN_SERVER_ERROR = -1, final, "see the node's log";
    NONE = 0, final, "nothing is wrong";
    OFFSET_OUT_OF_RANGE = 1, final, "start at an offset the partition still has";
    CORRUPT_MESSAGE = 2, retriable, "bytes were damaged on the way or on the node's disk; verify its log";
    UNKNOWN_TOPIC_OR_PARTITION = 3, retriable, "create the topic, or check its name";
    INVALID_FETCH_SIZE = 4, final, "ask for at least one byte";
    LEADER_NOT_AVAILABLE = 5, retriable, "the node is busy with it; try again";
    NOT_LEADER_OR_FOLLOWER = 6, retriable, "the node is busy with it; try again";
    REQUEST_TIMED_OUT = 7, retriable, "the node is busy with it; try again";
    BROKER_NOT_AVAILABLE = 8, final, "the node is busy with it; try again";
    REPLICA_NOT_AVAILABLE = 9, retriable, "the node is busy with it; try again";
    MESSAGE_TOO_LARGE = 10, final, "raise the topic's max.message.bytes, or write smaller batches";
    STALE_CONTROLLER_EPOCH = 11, final, "the node is busy with it; try again";
    OFFSET_METADATA_TOO_LARGE = 12, final, "shorten the metadata of the offset; offset.metadata.max.bytes is the limit";
    NETWORK_EXCEPTION = 13, retriable, "check that the node runs and can be reached";
    COORDINATOR_LOAD_IN_PROGRESS = 14, retriable, "the node is busy with it; try again";
    COORDINATOR_NOT_AVAILABLE = 15, retriable, "the node is busy with it; try again";
    NOT_COORDINATOR = 16, retriable, "the node is busy with it; try again";
    INVALID_TOPIC_EXCEPTION = 17, final, "use another topic name";
    RECORD_LIST_TOO_LARGE = 18, final, "raise the topic's segment.bytes, or write smaller batches";
    NOT_ENOUGH_REPLICAS = 19, retriable, "bring replicas back in sync";
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, retriable, "bring replicas back in sync";
    INVALID_REQUIRED_ACKS = 21, final, "use acks of -1, 0 or 1";
    ILLEGAL_GENERATION = 22, final, "the group has live members; use a group of this job's own";
    INCONSISTENT_GROUP_PROTOCOL = 23, final, "use a protocol that the group's members share";
    INVALID_GROUP_ID = 24, final, "use another group name";
    UNKNOWN_MEMBER_ID = 25, final, "the group has live members; use a group of this job's own";
    INVALID_SESSION_TIMEOUT = 26, final, "keep the session timeout within the broker's limits";
    REBALANCE_IN_PROGRESS = 27, final, "join the group again";
    INVALID_COMMIT_OFFSET_SIZE = 28, final, "commit fewer offsets at once";
    TOPIC_AUTHORIZATION_FAILED = 29, final, "ask an administrator for the missing right";
    GROUP_AUTHORIZATION_FAILED = 30, final, "ask an administrator for the missing right";
    CLUSTER_AUTHORIZATION_FAILED = 31, final, "ask an administrator for the missing right";
    INVALID_TIMESTAMP = 32, final, "give timestamps the topic accepts (message.timestamp.before.max.ms, message.timestamp.after.max.ms)";
    UNSUPPORTED_SASL_MECHANISM = 33, final, "use a mechanism that the listener allows";
    ILLEGAL_SASL_STATE = 34, final, "authenticate before anything else";
    UNSUPPORTED_VERSION = 35, final, "use a broker of Kafka 3.0 or newer";
    TOPIC_ALREADY_EXISTS = 36, final, "use the topic that is there";
    INVALID_PARTITIONS = 37, final, "ask for at least one partition";
    INVALID_REPLICATION_FACTOR = 38, final, "start more nodes or lower default.replication.factor";
    INVALID_REPLICA_ASSIGNMENT = 39, final, "assign each partition to nodes that exist";
    INVALID_CONFIG = 40, final, "correct the setting that is named";
    NOT_CONTROLLER = 41, retriable, "the node is busy with it; try again";
    INVALID_REQUEST = 42, final, "see the node's log";
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, final, "rewrite the topic in message format 2";
    POLICY_VIOLATION = 44, final, "ask an administrator for the missing right";
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, final, "abort the transaction and do its work again";
    DUPLICATE_SEQUENCE_NUMBER = 46, final, "abort the transaction and do its work again";
    INVALID_PRODUCER_EPOCH = 47, final, "another instance started with this transactional id; stop this one";
    INVALID_TXN_STATE = 48, final, "the transaction is not open any more or ended the other way; begin a new one";
    INVALID_PRODUCER_ID_MAPPING = 49, final, "the coordinator forgot this producer; initialize it again";
    INVALID_TRANSACTION_TIMEOUT = 50, final, "ask for at most the broker's transaction.max.timeout.ms";
    CONCURRENT_TRANSACTIONS = 51, retriable, "the node is busy with it; try again";
    TRANSACTION_COORDINATOR_FENCED = 52, final, "abort the transaction and do its work again";
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, final, "ask an administrator for the missing right";
    SECURITY_DISABLED = 54, final, "ask an administrator for the missing right";
    OPERATION_NOT_ATTEMPTED = 55, final, "abort the transaction and do its work again";
    KAFKA_STORAGE_ERROR = 56, retriable, "check the node's disk";
    LOG_DIR_NOT_FOUND = 57, final, "check the node's log.dirs";
    SASL_AUTHENTICATION_FAILED = 58, final, "check the credentials";
    UNKNOWN_PRODUCER_ID = 59, final, "abort the transaction and do its work again";
    REASSIGNMENT_IN_PROGRESS = 60, final, "the node is busy with it; try again";
    DELEGATION_TOKEN_AUTH_DISABLED = 61, final, "use a listener that allows delegation tokens";
    DELEGATION_TOKEN_NOT_FOUND = 62, final, "check the delegation token";
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, final, "ask an administrator for the missing right";
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, final, "use an authenticated listener";
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, final, "ask an administrator for the missing right";
    DELEGATION_TOKEN_EXPIRED = 66, final, "renew the delegation token";
    INVALID_PRINCIPAL_TYPE = 67, final, "use a principal type that the node knows";
    NON_EMPTY_GROUP = 68, final, "stop the group's members first";
    GROUP_ID_NOT_FOUND = 69, final, "check the group's name";
    FETCH_SESSION_ID_NOT_FOUND = 70, retriable, "open a new fetch session";
    INVALID_FETCH_SESSION_EPOCH = 71, retriable, "open a new fetch session";
    LISTENER_NOT_FOUND = 72, retriable, "the node is busy with it; try again";
    TOPIC_DELETION_DISABLED = 73, final, "set delete.topic.enable";
    FENCED_LEADER_EPOCH = 74, retriable, "the node is busy with it; try again";
    UNKNOWN_LEADER_EPOCH = 75, retriable, "the node is busy with it; try again";
    UNSUPPORTED_COMPRESSION_TYPE = 76, final, "choose another compression";
    STALE_BROKER_EPOCH = 77, final, "see the node's log";
    OFFSET_NOT_AVAILABLE = 78, retriable, "the node is busy with it; try again";
    MEMBER_ID_REQUIRED = 79, final, "join again with the member id that was answered";
    PREFERRED_LEADER_NOT_AVAILABLE = 80, retriable, "the node is busy with it; try again";
    GROUP_MAX_SIZE_REACHED = 81, final, "raise group.max.size, or use fewer members";
    FENCED_INSTANCE_ID = 82, final, "another member started with this group instance id; stop this one";
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, retriable, "the node is busy with it; try again";
    ELECTION_NOT_NEEDED = 84, retriable, "nothing has to be done";
    NO_REASSIGNMENT_IN_PROGRESS = 85, final, "nothing has to be done";
    GROUP_SUBSCRIBED_TO_TOPIC = 86, final, "unsubscribe the group's members first";
    INVALID_RECORD = 87, final, "a compacted topic needs keys; correct the rows";
    UNSTABLE_OFFSET_COMMIT = 88, retriable, "the node is busy with it; try again";
    THROTTLING_QUOTA_EXCEEDED = 89, retriable, "the node is busy with it; try again";
    PRODUCER_FENCED = 90, final, "another instance started with this transactional id; stop this one";
    RESOURCE_NOT_FOUND = 91, final, "check the name";
    DUPLICATE_RESOURCE = 92, final, "use what is there";
    UNACCEPTABLE_CREDENTIAL = 93, final, "give credentials that the node accepts";
    INCONSISTENT_VOTER_SET = 94, final, "give every controller the same voters";
    INVALID_UPDATE_VERSION = 95, final, "ask for a feature level that the cluster supports";
    FEATURE_UPDATE_FAILED = 96, final, "see the node's log";
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, final, "see the node's log";
    SNAPSHOT_NOT_FOUND = 98, final, "fetch the log instead";
    POSITION_OUT_OF_RANGE = 99, final, "ask for a position within the snapshot";
    UNKNOWN_TOPIC_ID = 100, retriable, "the node is busy with it; try again";
    DUPLICATE_BROKER_REGISTRATION = 101, final, "give every broker a node id of its own";
    BROKER_ID_NOT_REGISTERED = 102, final, "register the broker first";
    INCONSISTENT_TOPIC_ID = 103, retriable, "the node is busy with it; try again";
    INCONSISTENT_CLUSTER_ID = 104, final, "check that both belong to the same cluster";
    TRANSACTIONAL_ID_NOT_FOUND = 105, final, "check the transactional id";
    FETCH_SESSION_TOPIC_ID_ERROR = 106, retriable, "open a new fetch session";
    INELIGIBLE_REPLICA = 107, final, "wait until the replica has caught up";
    NEW_LEADER_ELECTED = 108, final, "ask the new leader";
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, final, "fetch from tiered storage";
    FENCED_MEMBER_EPOCH = 110, final, "join the group again";
    UNRELEASED_INSTANCE_ID = 111, final, "wait until the old member has left";
    UNSUPPORTED_ASSIGNOR = 112, final, "use an assignor that the group knows";
    STALE_MEMBER_EPOCH = 113, final, "send the heartbeat again with the newest member epoch";
    MISMATCHED_ENDPOINT_TYPE = 114, final, "ask the other kind of node";
    UNSUPPORTED_ENDPOINT_TYPE = 115, final, "ask for brokers or controllers";
    UNKNOWN_CONTROLLER_ID = 116, final, "check the controller's id";
    UNKNOWN_SUBSCRIPTION_ID = 117, final, "ask for the telemetry subscriptions again";
    TELEMETRY_TOO_LARGE = 118, final, "send less telemetry at once";
    INVALID_REGISTRATION = 119, final, "see the node's log";
    TRANSACTION_ABORTABLE = 120, final, "abort the transaction and do its work again";
    INVALID_RECORD_STATE = 121, final, "acquire the records again";
    SHARE_SESSION_NOT_FOUND = 122, retriable, "open a new share session";
    INVALID_SHARE_SESSION_EPOCH = 123, retriable, "open a new share session";
    FENCED_STATE_EPOCH = 124, final, "another coordinator has taken over";
    INVALID_VOTER_KEY = 125, final, "check the voter's id and directory";
    DUPLICATE_VOTER = 126, final, "use the voter that is there";
    VOTER_NOT_FOUND = 127, final, "check the voter's id and directory";
    INVALID_REGULAR_EXPRESSION = 128, final, "correct the regular expression";
    REBOOTSTRAP_REQUIRED = 129, final, "resolve bootstrap.servers again";
    STREAMS_INVALID_TOPOLOGY = 130, final, "correct the topology";
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, final, "join the group again";
    STREAMS_TOPOLOGY_FENCED = 132, final, "join the group again";
    SHARE_SESSION_LIMIT_REACHED = 133, retriable, "the node is busy with it; try again";
    GROUP_DELETION_FAILED = 134, final, "read the reason of each group in the answer";
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, final, "see the node's log";
    CONTROLLER_ID_NOT_REGISTERED = 136, final, "check the controller's id";
}

/// The row of a code; `None` for a code that Kafka 4.4 does not have.
#[must_use]
pub fn error_code(code: i16) -> Option<&'static ErrorCode> {
    let index = ERROR_CODES.binary_search_by_key(&code, |row| row.code);
    index.ok().map(|index| &ERROR_CODES[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_from_minus_one_on_has_one_row() {
        let codes: Vec<i16> = ERROR_CODES.iter().map(|row| row.code).collect();
        assert_eq!(codes, (-1..=136).collect::<Vec<i16>>());
    }

    #[test]
    fn a_row_is_found_by_its_number() {
        let row = error_code(PRODUCER_FENCED).unwrap();
        assert_eq!((row.code, row.name), (90, "PRODUCER_FENCED"));
        assert!(!row.is_retriable);
        assert!(error_code(NOT_LEADER_OR_FOLLOWER).unwrap().is_retriable);
        assert_eq!(error_code(137), None);
        assert_eq!(error_code(i16::MIN), None);
    }
}
