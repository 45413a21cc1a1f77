//! Certificates and keys from PEM, and from PKCS#12.

use p12_keystore::{KeyStore, KeyStoreEntry, Pkcs12Archive, Pkcs12ImportPolicy};
use pkcs8::der::pem::{LineEnding, encode_string};
use pkcs8::pkcs5::EncryptionScheme;
use pkcs8::pkcs5::pbes2::Kdf;
use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::Secret;

/// The label of an encrypted key.
const ENCRYPTED_LABEL: &str = "ENCRYPTED PRIVATE KEY";

/// The certificates of a PEM text; `subject` names the text in the error.
pub(crate) fn certificates(
    pem: &[u8],
    subject: &str,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(format!(
            "the PEM of {subject} has no certificate; give one between BEGIN CERTIFICATE and END CERTIFICATE"
        )),
        Err(error) => Err(format!("the PEM of {subject} cannot be read: {error}")),
    }
}

/// The first key of a PEM text: PKCS#8 plain or encrypted, PKCS#1 or SEC1.
pub(crate) fn private_key(
    pem: &str,
    password: Option<&Secret>,
) -> Result<PrivateKeyDer<'static>, String> {
    if let Some(encrypted) = section(pem, ENCRYPTED_LABEL) {
        let password = password.ok_or("the client's key is encrypted; give its password")?;
        let cannot =
            |_| "the client's encrypted key cannot be opened; check its password".to_owned();
        let (_, document) = SecretDocument::from_pem(encrypted)
            .map_err(|error| format!("the PEM of the client's key cannot be read: {error}"))?;
        let encrypted =
            EncryptedPrivateKeyInfoRef::try_from(document.as_bytes()).map_err(cannot)?;
        if !is_affordable(&encrypted.encryption_algorithm) {
            return Err(
                "the password of the client's key is stretched too often: a key may have 1,000,000 \
                 rounds of PBKDF2, or 64 MiB of scrypt"
                    .to_owned(),
            );
        }
        let key = encrypted.decrypt(password.reveal()).map_err(cannot)?;
        return Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into());
    }
    if pem.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(
            "the client's key is encrypted in OpenSSL's old form; convert it by \
                    'openssl pkcs8 -topk8 -in key.pem -out key8.pem'"
                .to_owned(),
        );
    }
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| {
        "the PEM of the client's key has no key that can be read; give PKCS#8, PKCS#1 or SEC1"
            .to_owned()
    })
}

/// Says whether a key is opened within seconds and some memory. Another person may have made the
/// file, so the numbers in it are not believed. `txn-net` has the same bounds for the broker's key,
/// and `p12-keystore` has its own for PKCS#12.
fn is_affordable(scheme: &EncryptionScheme) -> bool {
    let EncryptionScheme::Pbes2(parameters) = scheme else {
        return true; // refused by decryption
    };
    match &parameters.kdf {
        Kdf::Pbkdf2(rounds) => rounds.iteration_count <= 1_000_000,
        Kdf::Scrypt(scrypt) => {
            let block = u64::from(scrypt.block_size) * 128;
            scrypt.cost_parameter.is_power_of_two()
                && scrypt.parallelization <= 4
                && (scrypt.cost_parameter.checked_mul(block)).is_some_and(|one| one <= 64 << 20)
        }
        _ => true, // refused by decryption
    }
}

/// The first section of a PEM text with this label.
fn section<'a>(pem: &'a str, label: &str) -> Option<&'a str> {
    let (begin, end) = (
        format!("-----BEGIN {label}-----"),
        format!("-----END {label}-----"),
    );
    let from = pem.find(&begin)?;
    let length = pem[from..].find(&end)? + end.len();
    Some(&pem[from..from + length])
}

/// The content of a keystore, as PEM.
#[derive(Debug, Default)]
pub struct Keystore {
    /// The certificates to trust.
    pub ca_pem: Option<String>,
    /// The certificate of the first key, and its chain.
    pub certificate_pem: Option<String>,
    /// The first key, as PKCS#8 without encryption.
    pub key_pem: Option<Secret>,
}

/// Reads a PKCS#12 keystore or truststore.
///
/// # Errors
/// One sentence: the fault, and the way to convert the keystore.
pub fn read_keystore(data: &[u8], password: Option<&Secret>) -> Result<Keystore, String> {
    if data.starts_with(&[0xfe, 0xed, 0xfe, 0xed]) || data.starts_with(&[0xce; 4]) {
        return Err(
            "the keystore is in Java's own form (JKS), which this client does not read; convert it by \
             'keytool -importkeystore -srckeystore OLD.jks -destkeystore NEW.p12 -deststoretype PKCS12'"
                .to_owned(),
        );
    }
    if data.starts_with(b"-----BEGIN") {
        return Err("the keystore is PEM; set its type to PEM".to_owned());
    }
    let password = password.map_or("", Secret::reveal);
    let cannot = |_| {
        "the keystore cannot be opened as PKCS#12; check its password, or convert it to PEM by \
         'openssl pkcs12 -in STORE.p12 -nodes -out STORE.pem'"
            .to_owned()
    };
    let store =
        KeyStore::from_pkcs12(data, password, Pkcs12ImportPolicy::Strict).map_err(cannot)?;
    let mut trusted = String::new();
    for (_, entry) in store.entries() {
        if let KeyStoreEntry::Certificate(certificate) = entry {
            trusted += &pem("CERTIFICATE", certificate.as_der());
        }
    }
    let chain = store.private_key_chain().map(|(_, chain)| chain);
    if chain.is_none() && trusted.is_empty() {
        // OpenSSL does not mark the certificates to trust, and a store without a key has no others.
        let archive = Pkcs12Archive::from_pkcs12(data, password).map_err(cannot)?;
        for certificate in &archive.certs {
            trusted += &pem("CERTIFICATE", certificate.cert.as_der());
        }
    }
    if chain.is_none() && trusted.is_empty() {
        return Err(
            "the keystore has neither a certificate nor a key with its certificate".to_owned(),
        );
    }
    Ok(Keystore {
        ca_pem: Some(trusted).filter(|text| !text.is_empty()),
        certificate_pem: chain.map(|chain| {
            let certificates = chain.certs().iter();
            certificates
                .map(|c| pem("CERTIFICATE", c.as_der()))
                .collect()
        }),
        key_pem: chain.map(|chain| Secret::new(&pem("PRIVATE KEY", chain.key().as_der()))),
    })
}

fn pem(label: &'static str, der: &[u8]) -> String {
    encode_string(label, LineEnding::LF, der).expect("the label is one, and memory grows")
}

#[cfg(test)]
mod tests {
    use pkcs8::der::Encode;
    use pkcs8::der::asn1::OctetStringRef;
    use pkcs8::pkcs5::pbes2::Parameters;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_whose_password_is_stretched_beyond_measure_is_refused_before_that() {
        let mut parameters =
            Parameters::generate_pbkdf2_sha256_aes256cbc(1_000, &[0; 8], [0; 16]).unwrap();
        let Kdf::Pbkdf2(rounds) = &mut parameters.kdf else {
            panic!("it is PBKDF2");
        };
        rounds.iteration_count = u32::MAX;
        let encrypted = EncryptedPrivateKeyInfoRef {
            encryption_algorithm: parameters.into(),
            encrypted_data: OctetStringRef::new(&[7; 48]).unwrap(),
        };
        let pem = pem(ENCRYPTED_LABEL, &encrypted.to_der().unwrap());
        let error = private_key(&pem, Some(&Secret::new("x"))).unwrap_err();
        assert!(error.contains("1,000,000 rounds"), "{error}");
    }

    #[test]
    fn a_keystore_of_java_is_refused_with_its_conversion() {
        for magic in [[0xfe, 0xed, 0xfe, 0xed], [0xce; 4]] {
            let error = read_keystore(&magic, None).unwrap_err();
            assert!(error.contains("keytool -importkeystore"), "{error}");
        }
    }

    #[test]
    fn a_text_without_certificate_or_key_is_refused() {
        assert!(certificates(b"", "ssl.ca").unwrap_err().contains("ssl.ca"));
        let broken = b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n";
        assert!(certificates(broken, "ssl.ca").is_err());
        assert!(private_key("", None).unwrap_err().contains("PKCS#8"));
        let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n";
        assert!(
            private_key(old, None)
                .unwrap_err()
                .contains("openssl pkcs8")
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_reader_of_keys_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_keystore(&bytes, Some(&Secret::new("x")));
            let _ = certificates(&bytes, "x");
            let _ = private_key(&String::from_utf8_lossy(&bytes), None);
        }
    }
}
