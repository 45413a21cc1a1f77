//! Private keys in PEM, encrypted ones too.

use std::ops::Deref;

use pkcs8::der::pem::LineEnding;
use pkcs8::pkcs5::EncryptionScheme;
use pkcs8::pkcs5::pbes2::Kdf;
use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};

use super::{TlsOptionsError, refuse};

const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";

/// The PEM text of a plain private key; wiped where it was decrypted.
pub fn private_key(
    pem: &[u8],
    password: Option<&str>,
) -> Result<impl Deref<Target = String> + use<>, TlsOptionsError> {
    let Ok(text) = std::str::from_utf8(pem) else {
        return refuse("the private key is no PEM text");
    };
    let Some(encrypted) = section(text, ENCRYPTED) else {
        return if text.contains("Proc-Type: 4,ENCRYPTED") {
            refuse(
                "the private key is encrypted in OpenSSL's old form: \
                 'openssl pkcs8 -topk8 -in KEY -out NEW' converts it",
            )
        } else if text.contains("PRIVATE KEY-----") {
            Ok(zeroizing(text.to_owned()))
        } else {
            refuse("there is no private key in PEM")
        };
    };
    let Some(password) = password else {
        return refuse("the private key is encrypted, and no password is given");
    };
    let damaged = || TlsOptionsError("the private key is damaged".to_owned());
    let (_, document) = SecretDocument::from_pem(encrypted).map_err(|_| damaged())?;
    let encrypted =
        EncryptedPrivateKeyInfoRef::try_from(document.as_bytes()).map_err(|_| damaged())?;
    if !is_affordable(&encrypted.encryption_algorithm) {
        return refuse(
            "the private key's password is stretched too often: at most 1,000,000 rounds of PBKDF2, \
             or 64 MiB of scrypt",
        );
    }
    let decrypted = encrypted.decrypt(password).map_err(|_| {
        TlsOptionsError(
            "the private key cannot be decrypted: the password is another, or the cipher is not \
             one of PBES2"
                .to_owned(),
        )
    })?;
    let text = decrypted
        .to_pem("PRIVATE KEY", LineEnding::LF)
        .map_err(|_| damaged())?;
    Ok(text)
}

/// Says whether a key is opened within seconds and some memory. An administrator far away may send
/// it, and the numbers in it are not believed before.
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

fn zeroizing(text: String) -> pkcs8::der::zeroize::Zeroizing<String> {
    pkcs8::der::zeroize::Zeroizing::new(text)
}

/// The first section of a PEM text with a label, its lines included.
fn section<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let begin = text.find(&format!("-----BEGIN {label}-----"))?;
    let last = format!("-----END {label}-----");
    let end = begin + text[begin..].find(&last)? + last.len();
    Some(&text[begin..end])
}

#[cfg(test)]
mod tests {
    use pkcs8::pkcs5::pbes2::Parameters;

    use super::*;

    #[test]
    fn a_key_whose_password_is_stretched_beyond_measure_is_refused_before_that() {
        let mut parameters =
            Parameters::generate_pbkdf2_sha256_aes256cbc(1_000_000, &[0; 8], [0; 16]).unwrap();
        assert!(is_affordable(&parameters.clone().into()));
        let Kdf::Pbkdf2(rounds) = &mut parameters.kdf else {
            panic!("it is PBKDF2");
        };
        rounds.iteration_count = u32::MAX;
        assert!(!is_affordable(&parameters.into()));
    }
}
