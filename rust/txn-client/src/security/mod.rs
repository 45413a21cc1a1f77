//! The security of a client's connections: TLS below the frames, SASL before the first request.
//!
//! `Security` is made once from a user's settings and holds for every connection of a cluster. It is
//! refused as a whole, before any connection, if one of the settings cannot be used.
//!
//! # Invariants
//! 1. A secret is in no `Debug`, no `Display` and no error.
//! 2. A protocol with TLS never sends a byte of Kafka's before the handshake is done, and one with SASL
//!    no request but `ApiVersions` before the log-in is done.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use zeroize::Zeroizing;

mod keys;
pub(crate) mod sasl;
pub(crate) mod scram;
pub(crate) mod tls;

pub use keys::{Keystore, read_keystore};
use sasl::Sasl;
use scram::Hash;

/// A text that is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
    }

    /// The text itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

type AskToken = dyn Fn() -> Result<Secret, String> + Send + Sync;

/// Gives a bearer token for each log-in.
#[derive(Clone)]
pub struct TokenSource(Arc<AskToken>);

impl TokenSource {
    /// A source that a function is; its error is a reason without secrets.
    pub fn new(ask: impl Fn() -> Result<Secret, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    pub(crate) fn ask(&self) -> Result<Secret, String> {
        (self.0)()
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSource")
    }
}

/// A user's settings, as they come.
#[derive(Clone, Debug, Default)]
pub struct SecuritySettings {
    /// `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.
    pub protocol: String,
    /// Certificates of the authorities to trust, as PEM; None: the system's.
    pub ca_pem: Option<Vec<u8>>,
    /// This client's certificate and its chain, as PEM; the key may stand beside it.
    pub certificate_pem: Option<Secret>,
    /// The certificate's key, as PEM; None: it stands beside the certificate.
    pub key_pem: Option<Secret>,
    /// The password of an encrypted key.
    pub key_password: Option<Secret>,
    /// False: a node's certificate may be for another host.
    pub skips_hostname: bool,
    /// False: a node's certificate may come from anybody.
    pub skips_certificate: bool,
    /// `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`.
    pub mechanism: Option<String>,
    /// The user of `PLAIN` and SCRAM.
    pub username: Option<String>,
    /// The password of `PLAIN` and SCRAM.
    pub password: Option<Secret>,
    /// The tokens of `OAUTHBEARER`.
    pub token: Option<TokenSource>,
    /// The SASL extensions of `OAUTHBEARER`.
    pub extensions: Vec<(String, String)>,
}

/// The security of every connection to a cluster.
#[derive(Clone, Default)]
pub struct Security {
    tls: Option<Arc<ClientConfig>>,
    sasl: Option<Sasl>,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.protocol())?;
        match &self.sasl {
            Some(sasl) => write!(f, " {}", sasl.mechanism()),
            None => Ok(()),
        }
    }
}

impl Security {
    /// Reads settings; everything that can be known without a connection is checked here.
    ///
    /// # Errors
    /// One sentence: the setting that cannot be used, and what to do.
    pub fn new(settings: &SecuritySettings) -> Result<Self, String> {
        let (has_tls, has_sasl) = match settings.protocol.as_str() {
            "PLAINTEXT" => (false, false),
            "SSL" => (true, false),
            "SASL_PLAINTEXT" => (false, true),
            "SASL_SSL" => (true, true),
            other => {
                return Err(format!(
                    "security.protocol is '{other}'; use PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"
                ));
            }
        };
        let tls = has_tls.then(|| tls::config(settings)).transpose()?;
        let sasl = has_sasl.then(|| sasl_of(settings)).transpose()?;
        Ok(Self { tls, sasl })
    }

    /// The name of the protocol.
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        match (&self.tls, &self.sasl) {
            (None, None) => "PLAINTEXT",
            (Some(_), None) => "SSL",
            (None, Some(_)) => "SASL_PLAINTEXT",
            (Some(_), Some(_)) => "SASL_SSL",
        }
    }

    /// The name of the SASL mechanism.
    #[must_use]
    pub fn mechanism(&self) -> Option<&'static str> {
        self.sasl.as_ref().map(Sasl::mechanism)
    }

    /// The same, with another source of tokens if it has one.
    #[must_use]
    pub fn with_token(mut self, source: TokenSource) -> Self {
        if let Some(Sasl::OauthBearer { token, .. }) = &mut self.sasl {
            *token = source;
        }
        self
    }

    pub(crate) fn tls(&self) -> Option<&Arc<ClientConfig>> {
        self.tls.as_ref()
    }

    pub(crate) fn sasl(&self) -> Option<&Sasl> {
        self.sasl.as_ref()
    }
}

fn sasl_of(settings: &SecuritySettings) -> Result<Sasl, String> {
    let mechanism = settings.mechanism.as_deref().unwrap_or_default();
    let hash = match mechanism {
        "PLAIN" => None,
        "SCRAM-SHA-256" => Some(Hash::Sha256),
        "SCRAM-SHA-512" => Some(Hash::Sha512),
        "OAUTHBEARER" => {
            let token = settings.token.clone().ok_or(
                "sasl.mechanism OAUTHBEARER needs a token; give a callable that returns one",
            )?;
            let extensions = checked_extensions(&settings.extensions)?;
            return Ok(Sasl::OauthBearer { token, extensions });
        }
        "" => {
            return Err(format!(
                "security.protocol {} needs a sasl.mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or \
                 OAUTHBEARER",
                settings.protocol
            ));
        }
        other => {
            return Err(format!(
                "sasl.mechanism is '{other}'; this client has PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and \
                 OAUTHBEARER"
            ));
        }
    };
    let (Some(username), Some(password)) = (&settings.username, &settings.password) else {
        return Err(format!(
            "sasl.mechanism {mechanism} needs a user name and a password; give both"
        ));
    };
    if username.is_empty() || username.contains('\0') || password.reveal().contains('\0') {
        return Err("the SASL user name is empty, or user name or password has a NUL".to_owned());
    }
    let (username, password) = (username.clone(), password.clone());
    Ok(match hash {
        None => Sasl::Plain { username, password },
        Some(hash) => Sasl::Scram {
            hash,
            username,
            password,
        },
    })
}

/// Extensions as RFC 7628 allows them: letters, then printable ASCII.
fn checked_extensions(extensions: &[(String, String)]) -> Result<Vec<(String, String)>, String> {
    for (key, value) in extensions {
        let is_key = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphabetic());
        let is_value = value
            .bytes()
            .all(|b| matches!(b, b' '..=b'~' | b'\t' | b'\r' | b'\n'));
        if !is_key || key == "auth" || !is_value {
            return Err(format!(
                "the SASL extension '{key}' cannot be sent; its name is letters but not 'auth', its value \
                 printable ASCII"
            ));
        }
    }
    Ok(extensions.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sasl(mechanism: &str) -> SecuritySettings {
        SecuritySettings {
            protocol: "SASL_PLAINTEXT".to_owned(),
            mechanism: Some(mechanism.to_owned()),
            username: Some("ada".to_owned()),
            password: Some(Secret::new("s3cret")),
            ..SecuritySettings::default()
        }
    }

    #[test]
    fn debug_names_protocol_and_mechanism_alone() {
        let settings = sasl("SCRAM-SHA-256");
        let security = Security::new(&settings).unwrap();
        assert_eq!(format!("{security:?}"), "SASL_PLAINTEXT SCRAM-SHA-256");
        assert!(!format!("{settings:?}").contains("s3cret"));
    }

    #[test]
    fn settings_that_cannot_be_used_are_refused_by_one_sentence() {
        let plain = sasl("PLAIN");
        let cases = [
            (SecuritySettings::default(), "security.protocol is ''"),
            (sasl("GSSAPI"), "sasl.mechanism is 'GSSAPI'"),
            (sasl(""), "needs a sasl.mechanism"),
            (sasl("OAUTHBEARER"), "needs a token"),
            (
                SecuritySettings {
                    password: None,
                    ..plain.clone()
                },
                "needs a user name and a password",
            ),
            (
                SecuritySettings {
                    username: Some("a\0b".to_owned()),
                    ..plain
                },
                "NUL",
            ),
        ];
        for (settings, part) in cases {
            let error = Security::new(&settings).unwrap_err();
            assert!(error.contains(part) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn an_extension_cannot_smuggle_another_token() {
        for (key, value) in [
            ("auth", "Bearer x"),
            ("a", "b\x01auth=Bearer x"),
            ("", "x"),
            ("a=b", "x"),
        ] {
            let extension = (key.to_owned(), value.to_owned());
            assert!(checked_extensions(&[extension]).is_err(), "{key}");
        }
    }
}
