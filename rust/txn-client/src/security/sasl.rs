//! A log-in by SASL: the messages of each mechanism, without a connection.
//!
//! Sources: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM), RFC 7628 (OAUTHBEARER), KIP-342 (extensions).

use std::fmt;

use base64ct::{Base64, Encoding};
use ring::rand::{SecureRandom, SystemRandom};
use txn_protocol::codes;
use zeroize::Zeroizing;

use super::scram::{ClientFinal, ClientFirst, Hash};
use super::{Secret, TokenSource};
use crate::error::KafkaError;

/// Random bytes of a SCRAM nonce.
const NONCE_BYTES: usize = 24;
/// Longest text of a node that a message repeats, in characters.
const TEXT_MAX: usize = 300;

/// The mechanism and its credentials.
#[derive(Clone)]
pub(crate) enum Sasl {
    Plain {
        username: String,
        password: Secret,
    },
    Scram {
        hash: Hash,
        username: String,
        password: Secret,
    },
    OauthBearer {
        token: TokenSource,
        extensions: Vec<(String, String)>,
    },
}

impl fmt::Debug for Sasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mechanism())
    }
}

/// One log-in in progress.
pub(crate) struct LogIn<'s> {
    sasl: &'s Sasl,
    token: Option<Secret>,
    state: State,
}

enum State {
    /// The node's next message ends the log-in.
    Last,
    ScramFirst(ClientFirst),
    ScramFinal(ClientFinal),
    /// The node has to accept the token, or to say why not.
    Token,
    /// The node said why it refuses the token.
    Refused(String),
}

impl Sasl {
    /// The mechanism's name on the wire.
    pub(crate) fn mechanism(&self) -> &'static str {
        match self {
            Self::Plain { .. } => "PLAIN",
            Self::Scram {
                hash: Hash::Sha256, ..
            } => "SCRAM-SHA-256",
            Self::Scram {
                hash: Hash::Sha512, ..
            } => "SCRAM-SHA-512",
            Self::OauthBearer { .. } => "OAUTHBEARER",
        }
    }

    /// Begins a log-in at `node`: its state, and its first message.
    ///
    /// # Errors
    /// 58 if there is no token, or none that can be sent.
    pub(crate) fn begin(&self, node: &str) -> Result<(LogIn<'_>, Zeroizing<Vec<u8>>), KafkaError> {
        let (token, state, message) = match self {
            Self::Plain { username, password } => {
                let message = Zeroizing::new(format!("\0{username}\0{}", password.reveal()));
                (
                    None,
                    State::Last,
                    Zeroizing::new(message.as_bytes().to_vec()),
                )
            }
            Self::Scram { hash, username, .. } => {
                let first = ClientFirst::new(*hash, username, nonce());
                let message = first.message().into_bytes();
                (None, State::ScramFirst(first), Zeroizing::new(message))
            }
            Self::OauthBearer { token, extensions } => {
                let unusable = |why: &str| {
                    KafkaError::refused(
                        codes::SASL_AUTHENTICATION_FAILED,
                        format!("the token for {node} {why}"),
                    )
                };
                let token = token
                    .ask()
                    .map_err(|why| unusable(&format!("could not be had: {why}")))?;
                if token.reveal().is_empty() || !token.reveal().bytes().all(is_of_token) {
                    return Err(unusable(
                        "is no bearer token: it is empty or has characters that none may have",
                    ));
                }
                let mut message = Zeroizing::new(Vec::new());
                message.extend_from_slice(b"n,,\x01auth=Bearer ");
                message.extend_from_slice(token.reveal().as_bytes());
                message.push(1);
                for (key, value) in extensions {
                    message.extend_from_slice(format!("{key}={value}\x01").as_bytes());
                }
                message.push(1);
                (Some(token), State::Token, message)
            }
        };
        let log_in = LogIn {
            sasl: self,
            token,
            state,
        };
        Ok((log_in, message))
    }
}

impl LogIn<'_> {
    /// Answers the node's message; `None` once the node has accepted the log-in.
    ///
    /// # Errors
    /// 58 for a message that does not follow the mechanism, and for a node that does not prove itself.
    pub(crate) fn answer(
        &mut self,
        node: &str,
        message: &[u8],
    ) -> Result<Option<Zeroizing<Vec<u8>>>, KafkaError> {
        let state = std::mem::replace(&mut self.state, State::Last);
        let step = match (state, self.sasl) {
            (State::ScramFirst(first), Sasl::Scram { password, .. }) => {
                first.answer(message, password.reveal()).map(|last| {
                    let message = Zeroizing::new(last.message().as_bytes().to_vec());
                    self.state = State::ScramFinal(last);
                    Some(message)
                })
            }
            (State::ScramFinal(last), _) => last.verify(message).map(|()| None),
            (State::Token, _) if !message.is_empty() => {
                self.state = State::Refused(String::from_utf8_lossy(message).into_owned());
                Ok(Some(Zeroizing::new(vec![1])))
            }
            (State::Refused(why), _) => Err(format!("it refused the token: {why}")),
            _ => Ok(None),
        };
        step.map_err(|why| {
            let why = self.printable_text(&why);
            let mechanism = self.sasl.mechanism();
            KafkaError::refused(
                codes::SASL_AUTHENTICATION_FAILED,
                format!(
                    "{node} could not be trusted with {mechanism}: {why}; check that it is the right node"
                ),
            )
        })
    }

    /// The error for a log-in that `node` refused with `code`.
    pub(crate) fn refused(&self, node: &str, code: i16, detail: Option<&str>) -> KafkaError {
        let mechanism = self.sasl.mechanism();
        let said = match (&self.state, detail) {
            (State::Refused(why), _) => format!(" ({})", self.printable_text(why)),
            (_, Some(detail)) => format!(" ({})", self.printable_text(detail)),
            _ => String::new(),
        };
        let (subject, remedy) = match self.sasl {
            Sasl::Plain { username, .. } | Sasl::Scram { username, .. } => (
                format!("the log-in of user '{username}'"),
                "check user name, password and mechanism",
            ),
            Sasl::OauthBearer { .. } => (
                "the token".to_owned(),
                "check its issuer, audience and expiry",
            ),
        };
        let message = format!("{node} refused {subject} by {mechanism}{said}: {remedy}");
        KafkaError::refused(code, message)
    }

    /// A node's text for a message: short, printable, and without the secret that was sent to it.
    fn printable_text(&self, text: &str) -> String {
        let secret = match self.sasl {
            Sasl::Plain { password, .. } | Sasl::Scram { password, .. } => Some(password),
            Sasl::OauthBearer { .. } => self.token.as_ref(),
        };
        // Both: the signs between the letters of a secret are left out, and a secret may have some.
        let shown = printable(text);
        let repeats = |s: &Secret| text.contains(s.reveal()) || shown.contains(s.reveal());
        if secret.is_some_and(|s| !s.reveal().is_empty() && repeats(s)) {
            return "its text is left out, for it repeats a secret".to_owned();
        }
        printable_text(text)
    }
}

/// A node's text, short and printable.
pub(crate) fn printable_text(text: &str) -> String {
    printable(text).chars().take(TEXT_MAX).collect()
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// True for the characters of a bearer token (RFC 6750).
pub(crate) fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

fn nonce() -> String {
    let mut bytes = [0; NONCE_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system has random bytes");
    Base64::encode_string(&bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NODE: &str = "node 127.0.0.1:9093";

    fn plain() -> Sasl {
        Sasl::Plain {
            username: "ada".to_owned(),
            password: Secret::new("s3cret-of-ada"),
        }
    }

    fn bearer(token: &'static str) -> Sasl {
        Sasl::OauthBearer {
            token: TokenSource::new(move || Ok(Secret::new(token))),
            extensions: vec![("logicalCluster".to_owned(), "lkc-1".to_owned())],
        }
    }

    fn scram() -> Sasl {
        Sasl::Scram {
            hash: Hash::Sha512,
            username: "ada".to_owned(),
            password: Secret::new("s3cret-of-ada"),
        }
    }

    #[test]
    fn plain_sends_user_and_password_and_wants_no_answer() {
        let sasl = plain();
        let (mut log_in, message) = sasl.begin(NODE).unwrap();
        assert_eq!(message.as_slice(), b"\0ada\0s3cret-of-ada");
        assert!(log_in.answer(NODE, b"").unwrap().is_none());
    }

    #[test]
    fn a_bearer_token_goes_with_its_extensions() {
        let sasl = bearer("abc.def.");
        let (mut log_in, message) = sasl.begin(NODE).unwrap();
        assert_eq!(
            message.as_slice(),
            b"n,,\x01auth=Bearer abc.def.\x01logicalCluster=lkc-1\x01\x01"
        );
        assert!(log_in.answer(NODE, b"").unwrap().is_none());
    }

    #[test]
    fn a_refused_token_is_answered_by_one_byte_and_told_with_its_reason() {
        let sasl = bearer("abc.def.");
        let (mut log_in, _) = sasl.begin(NODE).unwrap();
        let next = log_in.answer(NODE, br#"{"status":"invalid_token"}"#);
        assert_eq!(next.unwrap().unwrap().as_slice(), [1]);
        let error = log_in.refused(NODE, 58, Some("{}"));
        assert!(error.message.contains("invalid_token"), "{error}");
        assert!(log_in.answer(NODE, b"").is_err());
    }

    #[test]
    fn a_token_that_would_end_its_message_early_is_never_sent() {
        for token in ["", "a b", "a\x01auth=x", "a\nb", "ü"] {
            assert_eq!(bearer(token).begin(NODE).err().unwrap().code, 58, "{token}");
        }
    }

    #[test]
    fn a_nonce_is_new_each_time() {
        let sasl = scram();
        assert_ne!(sasl.begin(NODE).unwrap().1, sasl.begin(NODE).unwrap().1);
    }

    #[test]
    fn a_node_cannot_end_scram_without_proof() {
        let sasl = scram();
        let (mut log_in, _) = sasl.begin(NODE).unwrap();
        assert_eq!(log_in.answer(NODE, b"").unwrap_err().code, 58);
    }

    #[test]
    fn a_node_that_repeats_the_secret_does_not_get_it_into_a_message() {
        for sasl in [plain(), bearer("s3cret-of-ada")] {
            let (log_in, _) = sasl.begin(NODE).unwrap();
            for said in ["no user ada with s3cret-of-ada\n", "s\u{7}3cret\n-of-ada"] {
                let error = log_in.refused(NODE, 58, Some(said));
                assert!(!error.message.contains("s3cret"), "{error}");
            }
            assert!(!format!("{sasl:?}").contains("ada"));
        }
    }

    proptest! {
        #[test]
        fn no_message_of_a_node_panics_and_every_exchange_ends(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 3),
        ) {
            for sasl in [plain(), bearer("abc"), scram()] {
                let (mut log_in, _) = sasl.begin(NODE).unwrap();
                let steps = messages.iter().take_while(|m| matches!(log_in.answer(NODE, m), Ok(Some(_))));
                prop_assert!(steps.count() <= 2);
            }
        }
    }
}
