//! TLS 1.2 and 1.3 by rustls: the configuration of a client, and its errors in plain words.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme, version,
};

use super::SecuritySettings;
use super::keys::{certificates, private_key};

/// The configuration for settings with TLS.
pub(crate) fn config(settings: &SecuritySettings) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .expect("the provider has ciphers of both");
    let builder = if settings.skips_certificate {
        let roots = None;
        let verifier = LaxVerifier { roots, provider };
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
    } else {
        let roots = Arc::new(roots(settings.ca_pem.as_deref())?);
        if settings.skips_hostname {
            let roots = Some(roots);
            let verifier = LaxVerifier { roots, provider };
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
        } else {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| format!("the certificates to trust cannot be used: {error}"))?;
            builder.with_webpki_verifier(verifier)
        }
    };
    let config = match &settings.certificate_pem {
        None if settings.key_pem.is_some() => {
            return Err("there is a client's key without a certificate; give both".to_owned());
        }
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let chain = certificates(pem, "the client's certificate")?;
            let beside = String::from_utf8_lossy(pem);
            let key = settings.key_pem.as_ref();
            let key = private_key(
                key.map_or(&beside, |key| key.reveal()),
                settings.key_password.as_ref(),
            )?;
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

/// The authorities to trust.
fn roots(pem: Option<&[u8]>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = pem {
        for certificate in certificates(pem, "the authorities (ssl.ca.location, ssl.truststore)")? {
            roots.add(certificate).map_err(|error| {
                format!("a certificate of the authorities cannot be used: {error}")
            })?;
        }
        return Ok(roots);
    }
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if roots.is_empty() {
        return Err(
            "this system has no certificates of authorities; install them (ca-certificates), or give \
             your own by ssl.ca.location"
                .to_owned(),
        );
    }
    Ok(roots)
}

/// Verifies a node's certificate without its name, and without `roots` only its signature.
#[derive(Debug)]
struct LaxVerifier {
    roots: Option<Arc<RootCertStore>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for LaxVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.roots {
            verify_server_cert_signed_by_trust_anchor(
                &ParsedCertificate::try_from(end_entity)?,
                roots,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?;
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
        Error::InvalidMessage(_) => {
            "does not speak TLS on this port; check the port, or set security.protocol to PLAINTEXT or \
             SASL_PLAINTEXT"
                .to_owned()
        }
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
        let names = presented.iter().take(5).map(|name| super::sasl::told(name));
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
