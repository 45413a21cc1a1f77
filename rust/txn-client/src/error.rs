//! Errors of nodes and connections, and the advice that goes with them.

use std::fmt;

use txn_protocol::codes::{self, error_code};

/// A node answered with an error, or could not be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaError {
    /// The event, the values, and what to do.
    pub message: String,
    /// Kafka's error code; 13 for a broken connection, 7 for an answer that did not come.
    pub code: i16,
    /// True if sending the same again later may succeed.
    pub is_retriable: bool,
    /// True if the listener speaks another protocol than `security.protocol` says.
    pub is_other_protocol: bool,
}

/// The advice in messages about codes that the table does not have.
const REPORT: &str = "see the node's log";

/// Kafka's name of an error code.
#[must_use]
pub fn name(code: i16) -> &'static str {
    error_code(code).map_or("an error this client does not know", |row| row.name)
}

/// True if the same request may succeed later, unchanged.
///
/// As in the table, except for two codes: damaged bytes stay damaged, and a broker that is not
/// available may come back. Unknown codes are final: a wrong guess doubles records.
#[must_use]
pub fn is_retriable(code: i16) -> bool {
    match code {
        codes::CORRUPT_MESSAGE => false,
        codes::BROKER_NOT_AVAILABLE => true,
        _ => error_code(code).is_some_and(|row| row.is_retriable),
    }
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
        let advice = error_code(code).map_or(REPORT, |row| row.advice);
        let detail = detail.map_or_else(String::new, |text| format!(" ({text})"));
        Self {
            message: format!(
                "{node} answered {request} for {subject} with {} ({code}){detail}: {advice}",
                name(code)
            ),
            code,
            is_retriable: is_retriable(code),
            is_other_protocol: false,
        }
    }

    /// The connection to `node` could not be made or broke.
    #[must_use]
    pub fn unreachable(node: &str, what: &str, cause: &dyn fmt::Display) -> Self {
        Self {
            message: format!("{node} {what}: {cause}; check that it runs and can be reached"),
            code: codes::NETWORK_EXCEPTION,
            is_retriable: true,
            is_other_protocol: false,
        }
    }

    /// The connection to `node` broke before its first request was answered.
    #[must_use]
    pub fn unauthenticated(node: &str, what: &str, cause: &dyn fmt::Display) -> Self {
        Self {
            message: format!(
                "{node} {what}: {cause}; check that it runs. If its listener wants SASL, set \
                 security.protocol to SASL_PLAINTEXT or SASL_SSL"
            ),
            code: codes::NETWORK_EXCEPTION,
            is_retriable: true,
            is_other_protocol: false,
        }
    }

    /// `error` ended the exchange of `ApiVersions`, with which every connection begins.
    ///
    /// Code and kind stay: a broker that stops hangs up too, and is worth a repetition.
    #[must_use]
    pub fn no_broker(node: &str, error: &Self) -> Self {
        Self {
            message: format!(
                "{node} does not answer like a Kafka broker ({}). If its listener wants TLS or \
                 SASL, set security.protocol",
                error.message
            ),
            code: error.code,
            is_retriable: error.is_retriable,
            is_other_protocol: error.is_other_protocol,
        }
    }

    /// TLS with `node` cannot work; `why` is the rest of the sentence.
    #[must_use]
    pub fn insecure(node: &str, why: &str) -> Self {
        Self::refused(codes::NETWORK_EXCEPTION, format!("{node} {why}"))
    }

    /// The listener speaks another protocol than the client; `message` says which one to set.
    #[must_use]
    pub fn other_protocol(code: i16, message: String) -> Self {
        Self {
            is_other_protocol: true,
            ..Self::refused(code, message)
        }
    }

    /// No answer came in time.
    #[must_use]
    pub fn silent(node: &str, request: &str, waited_ms: u128) -> Self {
        Self {
            message: format!(
                "{node} did not answer {request} within {waited_ms} ms; check that it runs"
            ),
            code: codes::REQUEST_TIMED_OUT,
            is_retriable: true,
            is_other_protocol: false,
        }
    }

    /// A part of a request or an answer passed in time, but not the whole; `what` the node did not do.
    #[must_use]
    pub fn slow(node: &str, what: &str, waited_ms: u128) -> Self {
        Self {
            message: format!(
                "{node} did not {what} within {waited_ms} ms; check the network between, and its load"
            ),
            code: codes::REQUEST_TIMED_OUT,
            is_retriable: true,
            is_other_protocol: false,
        }
    }

    /// An answer that does not follow the protocol. The connection is dropped; nothing is known of the request.
    #[must_use]
    pub fn malformed(node: &str, request: &str, what: &dyn fmt::Display) -> Self {
        Self {
            message: format!(
                "{node} sent an answer to {request} that does not follow the protocol: {what}; {REPORT}"
            ),
            code: codes::UNKNOWN_SERVER_ERROR,
            is_retriable: false,
            is_other_protocol: false,
        }
    }

    /// Something that repeating cannot change.
    #[must_use]
    pub fn refused(code: i16, message: String) -> Self {
        Self {
            message,
            code,
            is_retriable: false,
            is_other_protocol: false,
        }
    }

    /// An answer that nobody waits for any more: the user asked to stop.
    #[must_use]
    pub fn interrupted(node: &str, api: &str) -> Self {
        let message = format!("interrupted before {node} answered {api}");
        Self::refused(codes::REQUEST_TIMED_OUT, message)
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
