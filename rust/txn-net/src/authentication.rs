//! The authentication of a connection: the requests it may send, and on whose behalf.
//!
//! Python runs the exchange of a mechanism. Here stands its result, beside the connection, for
//! Produce and Fetch never see Python. A connection of a SASL listener begins with
//! [`Authentication::Needed`]. Then `ApiVersions`, `SaslHandshake` and `SaslAuthenticate` pass, and
//! any other request costs the connection, as in Apache Kafka. A session may expire: after that
//! only a new handshake passes (KIP-368).

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use txn_protocol::apis::{API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE};

/// The principal of a client that nothing authenticates.
pub const ANONYMOUS: &str = "User:ANONYMOUS";

/// A state of a connection; it decides on requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// The client has to authenticate, or is about to do so again.
    Needed,
    /// The client has to authenticate by bare tokens, for its handshake had version 0: frames are
    /// tokens of the mechanism, without a request around them.
    NeededRaw,
    /// It may be used until then.
    Done {
        /// The authentication lasts as long as the connection if this is `None`.
        expires: Option<Instant>,
    },
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    /// The client has not authenticated.
    Unauthenticated,
    /// It did, and not again in time.
    Expired,
}

impl Authentication {
    /// The state of a new connection.
    pub fn at_first(is_sasl: bool) -> Self {
        if is_sasl {
            Self::Needed
        } else {
            Self::Done { expires: None }
        }
    }

    /// The state from now on, for so long.
    pub fn done(lifetime: Option<Duration>, now: Instant) -> Self {
        // A lifetime that the clock cannot count to never ends.
        let expires = lifetime.and_then(|lifetime| now.checked_add(lifetime));
        Self::Done { expires }
    }

    pub fn is_needed(self) -> bool {
        !matches!(self, Self::Done { .. })
    }

    /// Decides whether a request of this API may be answered now.
    pub fn admit(self, api_key: i16, now: Instant) -> Admission {
        match self {
            Self::Done { expires } if expires.is_none_or(|at| now < at) => Admission::Admitted,
            Self::Done { .. } if api_key == SASL_HANDSHAKE => Admission::Admitted,
            Self::Done { .. } => Admission::Expired,
            Self::Needed | Self::NeededRaw => match api_key {
                API_VERSIONS | SASL_HANDSHAKE | SASL_AUTHENTICATE => Admission::Admitted,
                _ => Admission::Unauthenticated,
            },
        }
    }
}

/// Python's own state of a connection. The connection holds it, and it goes when that closes.
#[derive(Clone)]
pub struct Attachment(pub Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Attachment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Attachment")
    }
}

impl PartialEq for Attachment {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Attachment {}

#[cfg(test)]
mod tests {
    use super::*;
    use txn_protocol::apis::{FETCH, PRODUCE};

    #[test]
    fn before_authentication_three_apis_pass_and_no_other() {
        let now = Instant::now();
        for state in [Authentication::Needed, Authentication::NeededRaw] {
            for key in 0..100 {
                let passes = [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE].contains(&key);
                let expected = if passes {
                    Admission::Admitted
                } else {
                    Admission::Unauthenticated
                };
                assert_eq!(state.admit(key, now), expected, "api key {key}");
            }
        }
    }

    #[test]
    fn an_expired_session_takes_a_handshake_alone() {
        let now = Instant::now();
        let state = Authentication::done(Some(Duration::from_secs(1)), now);
        let later = now + Duration::from_secs(1);
        assert_eq!(state.admit(PRODUCE, now), Admission::Admitted);
        assert_eq!(state.admit(SASL_HANDSHAKE, later), Admission::Admitted);
        for key in [PRODUCE, FETCH, API_VERSIONS, SASL_AUTHENTICATE] {
            assert_eq!(state.admit(key, later), Admission::Expired);
        }
    }

    #[test]
    fn a_lifetime_beyond_the_clock_never_ends() {
        let now = Instant::now();
        let state = Authentication::done(Some(Duration::MAX), now);
        assert_eq!(state, Authentication::Done { expires: None });
    }
}
