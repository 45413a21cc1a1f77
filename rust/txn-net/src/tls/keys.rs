//! Private keys in PEM, encrypted ones too.

use std::ops::Deref;

use pkcs8::der::pem::LineEnding;
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
