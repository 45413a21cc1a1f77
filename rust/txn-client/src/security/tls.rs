//! TLS 1.2 and 1.3 by rustls: the configuration of a client, and its errors in plain words.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError,
    RootCertStore, SignatureScheme, version,
};

use super::SecuritySettings;
use super::keys::{certificates, private_key};

/// The configuration for settings with TLS.
pub(crate) fn config(settings: &SecuritySettings) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .expect("the provider has ciphers of both");
    let verifier = NodeVerifier {
        trusted: (!settings.skips_certificate)
            .then(|| Trusted::new(settings.ca_pem.as_deref()))
            .transpose()?,
        checks_name: !settings.skips_certificate && !settings.skips_hostname,
        provider,
    };
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match &settings.certificate_pem {
        None if settings.key_pem.is_some() => {
            return Err("there is a client's key without a certificate; give both".to_owned());
        }
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let chain = certificates(pem.reveal().as_bytes(), "the client's certificate")?;
            let key_pem = settings.key_pem.as_ref().unwrap_or(pem);
            let key = private_key(key_pem.reveal(), settings.key_password.as_ref())?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| match error {
                    Error::InconsistentKeys(_) => {
                        "the client's key is not the key of its certificate; give the pair"
                            .to_owned()
                    }
                    error => {
                        format!("the client's certificate and key cannot be used: {error}")
                    }
                })?
        }
    };
    Ok(Arc::new(config))
}

/// The certificates to trust.
#[derive(Debug)]
struct Trusted {
    roots: RootCertStore,
    /// Those that a user gave, as they are.
    given: Vec<CertificateDer<'static>>,
}

impl Trusted {
    fn new(pem: Option<&[u8]>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let mut given = Vec::new();
        if let Some(pem) = pem {
            given = certificates(pem, "the authorities (ssl.ca.location, ssl.truststore)")?;
            for certificate in &given {
                roots.add(certificate.clone()).map_err(|error| {
                    format!("a certificate of the authorities cannot be used: {error}")
                })?;
            }
            return Ok(Self { roots, given });
        }
        let system = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(system.certs);
        if roots.is_empty() {
            return Err(
                "this system has no certificates of authorities; install them (ca-certificates), or \
                 give your own by ssl.ca.location"
                    .to_owned(),
            );
        }
        Ok(Self { roots, given })
    }

    /// Verifies a certificate of a node, but for its name.
    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        parsed: &ParsedCertificate<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        provider: &CryptoProvider,
    ) -> Result<(), Error> {
        let algorithms = provider.signature_verification_algorithms.all;
        let verified = verify_server_cert_signed_by_trust_anchor(
            parsed,
            &self.roots,
            intermediates,
            now,
            algorithms,
        );
        match verified {
            // One that signed itself is its own authority, which a node's certificate must not be. Given
            // as it is, it is trusted, as by Java and OpenSSL. Its dates are checked before.
            Err(error) if is_authority(&error) => {
                let is_given = self.given.iter().any(|given| given == end_entity);
                is_given
                    .then_some(())
                    .ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))
            }
            verified => verified,
        }
    }
}

/// True for the refusal of a node's certificate that is an authority's.
fn is_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(error))) = error else {
        return false;
    };
    matches!(
        error.downcast_ref::<webpki::Error>(),
        Some(webpki::Error::CaUsedAsEndEntity)
    )
}

/// Verifies a node's certificate as far as the settings want it.
#[derive(Debug)]
struct NodeVerifier {
    /// None: a certificate may come from anybody.
    trusted: Option<Trusted>,
    checks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for NodeVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        if let Some(trusted) = &self.trusted {
            trusted.verify(end_entity, &parsed, intermediates, now, &self.provider)?;
        }
        if self.checks_name {
            verify_server_name(&parsed, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// The name to ask a node for, and to find in its certificate.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    // A name with a dot at its end is the same name; no certificate has it.
    let host = host.strip_suffix('.').unwrap_or(host);
    ServerName::try_from(host.to_owned())
        .map_err(|_| format!("'{host}' is no host name that a certificate could have"))
}

/// A failure of TLS in plain words: the event, then what to do. `None` for one that may pass.
pub(crate) fn explained(error: &Error, host: &str) -> Option<String> {
    Some(match error {
        Error::InvalidCertificate(error) => certificate_error(error, host),
        Error::AlertReceived(alert) => alert_error(*alert)?,
        Error::PeerIncompatible(_) => {
            "shares no version or cipher of TLS with this client; allow TLSv1.2 or TLSv1.3 on the node"
                .to_owned()
        }
        error => format!("broke the TLS handshake: {error}; see the node's log"),
    })
}

fn certificate_error(error: &CertificateError, host: &str) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has a certificate that has expired; renew it on the node".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "has a certificate that is not valid yet; check the clocks of both sides".to_owned()
        }
        // A bad signature: an authority of the same name, with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "has a certificate of an authority that this client does not trust; give that authority's \
             certificate by ssl.ca.location or ssl.truststore.location"
                .to_owned()
        }
        CertificateError::NotValidForName => wrong_host(host, &[]),
        CertificateError::NotValidForNameContext { presented, .. } => wrong_host(host, presented),
        error => format!("has a certificate that cannot be used: {error}; replace it on the node"),
    }
}

fn wrong_host(host: &str, presented: &[String]) -> String {
    let names = if presented.is_empty() {
        "no host at all".to_owned()
    } else {
        let names = presented
            .iter()
            .take(5)
            .map(|name| super::sasl::printable_text(name));
        names.collect::<Vec<_>>().join(", ")
    };
    format!(
        "has a certificate that is not for the host '{host}' but for {names}; connect by a name that the \
         certificate has, or renew it with this one as a subject alternative name"
    )
}

fn alert_error(alert: AlertDescription) -> Option<String> {
    use AlertDescription as Alert;
    Some(match alert {
        Alert::CertificateRequired | Alert::NoCertificate => {
            "wants a certificate of the client; give one by ssl.certificate.location or \
             ssl.keystore.location"
                .to_owned()
        }
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied => format!(
            "refuses this client's certificate, or wants one ({alert:?}); give a valid one of an authority \
             that the node trusts by ssl.certificate.location or ssl.keystore.location"
        ),
        Alert::HandshakeFailure | Alert::ProtocolVersion | Alert::InsufficientSecurity => format!(
            "refuses the TLS handshake ({alert:?}); allow TLSv1.2 or TLSv1.3 with a common cipher on the \
             node, and give a client certificate if it wants one"
        ),
        Alert::UnrecognisedName => {
            "does not know the host name that this client asked for; connect by another name"
                .to_owned()
        }
        Alert::InternalError | Alert::UserCanceled | Alert::CloseNotify => return None,
        alert => format!("broke the TLS handshake off ({alert:?}); see the node's log"),
    })
}

/// The failure of TLS inside an error of the transport.
pub(crate) fn failure(error: &std::io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref::<Error>()
}
