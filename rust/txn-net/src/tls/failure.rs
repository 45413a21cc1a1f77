//! Reasons for which a handshake fails.

use std::fmt;
use std::io;

use rustls::{CertificateError, Error, InvalidMessage};

/// The kind of a failure, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// The first bytes are not TLS.
    NotTls,
    /// There is no version or cipher in common.
    Incompatible,
    /// The client shows no certificate.
    NoCertificate,
    /// The client's certificate has expired.
    Expired,
    /// No trusted certificate has issued the client's.
    UnknownIssuer,
    /// The client's certificate is refused for another reason.
    BadCertificate,
    /// No principal mapping rule applies to the client's certificate.
    NoPrincipal,
    /// The client refuses: often it does not trust this listener's certificate.
    ClientRefused,
    /// The client leaves before the end.
    ClientLeft,
    /// The handshake takes too long.
    Timeout,
    /// The handshake has too many bytes.
    TooLarge,
    /// Anything else that breaks the protocol.
    Other,
}

impl FailureReason {
    /// Every reason, in the order of its number.
    pub const ALL: [Self; 12] = [
        Self::NotTls,
        Self::Incompatible,
        Self::NoCertificate,
        Self::Expired,
        Self::UnknownIssuer,
        Self::BadCertificate,
        Self::NoPrincipal,
        Self::ClientRefused,
        Self::ClientLeft,
        Self::Timeout,
        Self::TooLarge,
        Self::Other,
    ];

    /// The name that metrics have.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotTls => "not_tls",
            Self::Incompatible => "incompatible",
            Self::NoCertificate => "no_certificate",
            Self::Expired => "expired",
            Self::UnknownIssuer => "unknown_issuer",
            Self::BadCertificate => "bad_certificate",
            Self::NoPrincipal => "no_principal",
            Self::ClientRefused => "client_refused",
            Self::ClientLeft => "client_left",
            Self::Timeout => "timeout",
            Self::TooLarge => "too_large",
            Self::Other => "other",
        }
    }
}

/// A handshake that failed.
#[derive(Debug)]
pub struct HandshakeError {
    /// The kind.
    pub reason: FailureReason,
    /// A sentence for the log.
    pub text: String,
}

impl HandshakeError {
    pub(crate) fn new(reason: FailureReason, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { reason, text }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::InvalidData => FailureReason::TooLarge, // rustls buffers no more
            _ => FailureReason::ClientLeft,
        };
        Self::new(reason, error.to_string())
    }
}

impl From<Error> for HandshakeError {
    fn from(error: Error) -> Self {
        let reason = match &error {
            Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge) => {
                FailureReason::TooLarge
            }
            Error::InvalidMessage(_) => FailureReason::NotTls,
            Error::PeerIncompatible(_) => FailureReason::Incompatible,
            Error::NoCertificatesPresented => FailureReason::NoCertificate,
            Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ) => FailureReason::Expired,
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                FailureReason::UnknownIssuer
            }
            Error::InvalidCertificate(_) => FailureReason::BadCertificate,
            Error::AlertReceived(_) => FailureReason::ClientRefused,
            _ => FailureReason::Other,
        };
        Self::new(reason, error.to_string())
    }
}
