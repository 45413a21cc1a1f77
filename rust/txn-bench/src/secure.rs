//! TLS of the load client: one version, one cipher suite, so that two brokers do the same work.

use std::fs;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore, version};

use crate::arguments::{Arguments, Failure};

/// The configuration of a command line; `None` without `--ca`.
pub fn config(arguments: &Arguments) -> Result<Option<Arc<ClientConfig>>, Failure> {
    let Some(path) = arguments.maybe("ca") else {
        return Ok(None);
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&fs::read(path)?) {
        roots.add(certificate?)?;
    }
    // Java's first choice and OpenSSL's, in each version.
    let (suite, version) = match arguments.maybe("tls").unwrap_or("1.3") {
        "1.3" => (cipher_suite::TLS13_AES_256_GCM_SHA384, &version::TLS13),
        "1.2" => (
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            &version::TLS12,
        ),
        other => return Err(format!("there is no TLS {other:?}: give 1.2 or 1.3").into()),
    };
    let provider = CryptoProvider {
        cipher_suites: vec![suite],
        ..default_provider()
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Some(Arc::new(config)))
}
