//! TLS 1.2 and 1.3 below a listener's connections, by rustls.
//!
//! ```text
//!  accepted ─► shaking hands ─┬─► established ─► closed
//!                             └─► failed: an alert, then closed
//! ```
//!
//! A [`TlsListener`] has the certificate, the key and the trusted issuers of one listener, and
//! counts its handshakes. `replace` exchanges them for new connections; established ones keep
//! theirs. A [`TlsSocket`] is one connection.
//!
//! # Deviations from Apache Kafka
//! - A client certificate has to be issued by a trusted certificate; Java also takes one that is
//!   itself in the truststore.
//! - Listeners that ask for client certificates resume no sessions: each connection is checked
//!   against the trusted issuers of its time.

mod failure;
mod keys;
mod names;
mod stream;

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};
use txn_log::histogram::Counter;

pub use failure::{FailureReason, HandshakeError};
pub use names::CertificateIdentity;
pub use stream::TlsSocket;

/// The certificates and rules of a listener, as PEM.
#[derive(Clone, Default)]
pub struct TlsOptions {
    /// The listener's certificate, then those that lead to its issuer.
    pub certificate_chain: Vec<u8>,
    /// Its private key: PKCS#8, PKCS#1 or SEC1, or encrypted PKCS#8.
    pub key: Vec<u8>,
    /// The password of an encrypted key.
    pub key_password: Option<String>,
    /// The certificates that issue clients' certificates.
    pub trusted: Vec<u8>,
    /// The rule for clients' certificates.
    pub client_auth: ClientAuth,
    /// True if TLS 1.2 is spoken.
    pub has_tls12: bool,
    /// True if TLS 1.3 is spoken.
    pub has_tls13: bool,
    /// The names of cipher suites, as IANA and Java have them; none: all.
    pub cipher_suites: Vec<String>,
}

/// Kafka's `ssl.client.auth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// Clients are not asked for a certificate.
    #[default]
    None,
    /// Clients may show a certificate.
    Requested,
    /// Clients without a certificate are refused.
    Required,
}

/// The reason why [`TlsOptions`] cannot be used: a sentence without any part of a key.
#[derive(Debug, PartialEq, Eq)]
pub struct TlsOptionsError(pub String);

impl fmt::Display for TlsOptionsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for TlsOptionsError {}

fn refuse<T>(reason: impl Into<String>) -> Result<T, TlsOptionsError> {
    Err(TlsOptionsError(reason.into()))
}

/// Gives the principal of a certificate's subject, in the form of RFC 2253; `None`: the client is
/// refused.
pub type PrincipalOf = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The TLS of one listener.
pub struct TlsListener {
    config: Mutex<Arc<ServerConfig>>,
    /// When the certificate expires, in seconds since the epoch.
    expires_at: AtomicI64,
    identity: Mutex<CertificateIdentity>,
    principal_of: PrincipalOf,
    handshakes: Counter,
    failures: [Counter; FailureReason::ALL.len()],
}

impl fmt::Debug for TlsListener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expires_at = self.expires_at();
        let mut shown = formatter.debug_struct("TlsListener");
        shown
            .field("expires_at", &expires_at)
            .finish_non_exhaustive()
    }
}

impl TlsListener {
    /// Stores the certificates of a listener.
    ///
    /// # Errors
    /// They cannot be used.
    pub fn new(options: &TlsOptions, principal_of: PrincipalOf) -> Result<Self, TlsOptionsError> {
        let Configured {
            config,
            expires_at,
            identity,
        } = configure(options)?;
        Ok(Self {
            config: Mutex::new(Arc::new(config)),
            expires_at: AtomicI64::new(expires_at),
            identity: Mutex::new(identity),
            principal_of,
            handshakes: Counter::default(),
            failures: [const { Counter::new() }; FailureReason::ALL.len()],
        })
    }

    /// Exchanges the certificates, for connections that come from now on.
    ///
    /// # Errors
    /// They cannot be used; the earlier ones stay.
    pub fn replace(&self, options: &TlsOptions) -> Result<(), TlsOptionsError> {
        let made = configure(options)?;
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(made.config);
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = made.identity;
        self.expires_at.store(made.expires_at, Ordering::Relaxed);
        Ok(())
    }

    /// When the certificate expires, in seconds since the epoch.
    #[must_use]
    pub fn expires_at(&self) -> i64 {
        self.expires_at.load(Ordering::Relaxed)
    }

    /// The owner of the certificate.
    #[must_use]
    pub fn identity(&self) -> CertificateIdentity {
        let identity = self.identity.lock();
        identity.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of handshakes that ended well.
    #[must_use]
    pub fn handshakes(&self) -> u64 {
        self.handshakes.get()
    }

    /// Number of handshakes that failed, by the name of the reason.
    #[must_use]
    pub fn failures(&self) -> Vec<(&'static str, u64)> {
        let counts = FailureReason::ALL.iter().zip(&self.failures);
        counts
            .map(|(reason, count)| (reason.name(), count.get()))
            .collect()
    }

    pub(crate) fn note_handshake(&self) {
        self.handshakes.add(1);
    }

    pub(crate) fn note_failure(&self, reason: FailureReason) {
        self.failures[reason as usize].add(1);
    }

    fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Options that can be used.
struct Configured {
    config: ServerConfig,
    expires_at: i64,
    identity: CertificateIdentity,
}

fn configure(options: &TlsOptions) -> Result<Configured, TlsOptionsError> {
    let chain = certificates(&options.certificate_chain, "certificate chain")?;
    let facts = (names::expires_at(&chain[0]), names::identity(&chain[0]));
    let (Some(expires_at), Some(identity)) = facts else {
        return refuse("the certificate is damaged");
    };
    let key = keys::private_key(&options.key, options.key_password.as_deref())?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|_| TlsOptionsError("the private key is damaged".to_owned()))?;
    let mut provider = default_provider();
    if !options.cipher_suites.is_empty() {
        let is_given = |suite: &SupportedCipherSuite| {
            options.cipher_suites.contains(&cipher_suite_name(suite))
        };
        provider.cipher_suites.retain(is_given);
    }
    // A version without a cipher suite would be agreed on, and then fail.
    let has_suite = |version| {
        provider
            .cipher_suites
            .iter()
            .any(|one| one.version() == version)
    };
    let versions: Vec<&'static SupportedProtocolVersion> = [
        (options.has_tls13, &rustls::version::TLS13),
        (options.has_tls12, &rustls::version::TLS12),
    ]
    .into_iter()
    .filter_map(|(is_spoken, version)| (is_spoken && has_suite(version)).then_some(version))
    .collect();
    if versions.is_empty() {
        return refuse("none of the cipher suites is of a version of TLS that is spoken");
    }
    let provider = Arc::new(provider);
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(|error| TlsOptionsError(error.to_string()))?;
    let builder = if options.client_auth == ClientAuth::None {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for trusted in certificates(&options.trusted, "truststore")? {
            roots.add(trusted).map_err(|error| {
                TlsOptionsError(format!(
                    "a certificate of the truststore is damaged: {error}"
                ))
            })?;
        }
        let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        if options.client_auth == ClientAuth::Requested {
            verifier = verifier.allow_unauthenticated();
        }
        let verifier = verifier
            .build()
            .map_err(|error| TlsOptionsError(error.to_string()))?;
        builder.with_client_cert_verifier(verifier)
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                TlsOptionsError("the private key is of another certificate".to_owned())
            }
            other => TlsOptionsError(format!("the certificate cannot be used: {other}")),
        })?;
    if options.client_auth != ClientAuth::None {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Configured {
        config,
        expires_at,
        identity,
    })
}

/// The name of a cipher suite, as IANA and Java have it.
fn cipher_suite_name(suite: &SupportedCipherSuite) -> String {
    let name = suite.suite().as_str().unwrap_or_default();
    name.replacen("TLS13_", "TLS_", 1)
}

/// The certificates of a PEM text, at least one.
fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, TlsOptionsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(certificates) if certificates.is_empty() => {
            refuse(format!("the {what} has no certificate in PEM"))
        }
        Ok(certificates) => Ok(certificates),
        Err(_) => refuse(format!("the {what} is damaged PEM")),
    }
}
