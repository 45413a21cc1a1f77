//! Facts of a certificate: its expiry, and its subject as Kafka's principals have it.
//!
//! A subject has the form of RFC 2253 that Java's `X500Principal.getName` gives: the last part
//! first, `CN=a,OU=b,C=DE`. Attributes outside of RFC 2253 have their object identifier, and their
//! bytes in hexadecimal.

use std::fmt::Write;

use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{Any, ObjectIdentifier};
use x509_cert::der::{Decode, Encode, Tag, Tagged};

/// The extension of a subject's alternative names.
const ALTERNATIVE_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");

/// Object identifiers and keywords of RFC 2253.
const KEYWORDS: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

/// When a certificate expires, in seconds since the epoch; `None` if it is damaged.
pub fn expires_at(der: &[u8]) -> Option<i64> {
    let certificate = Certificate::from_der(der).ok()?;
    let not_after = certificate.tbs_certificate().validity().not_after;
    i64::try_from(not_after.to_unix_duration().as_secs()).ok()
}

/// The subject of a certificate, and its alternative names; `None` if it is damaged.
pub fn identity(der: &[u8]) -> Option<CertificateIdentity> {
    let certificate = Certificate::from_der(der).ok()?;
    let extensions = certificate.tbs_certificate().extensions();
    let of_names = extensions
        .into_iter()
        .flatten()
        .filter(|extension| extension.extn_id == ALTERNATIVE_NAMES);
    Some(CertificateIdentity {
        subject: subject(der)?,
        alternative_names: of_names
            .flat_map(|extension| names_in(extension.extn_value.as_bytes()))
            .collect(),
    })
}

/// The names of an extension as they are encoded. An extension that is no list of names is one.
///
/// The names are compared alone, so none is decoded. Certificates have names that break the rules of
/// their kind, as a DNS name beyond ASCII, and serve clients all the same.
fn names_in(extension: &[u8]) -> Vec<Vec<u8>> {
    let names = Vec::<Any>::from_der(extension)
        .and_then(|names| names.iter().map(Encode::to_der).collect());
    names.unwrap_or_else(|_| vec![extension.to_vec()])
}

/// The owner of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateIdentity {
    /// The subject, in the form of RFC 2253.
    pub subject: String,
    /// The alternative names of the subject, as the certificate encodes them.
    pub alternative_names: Vec<Vec<u8>>,
}

/// The subject of a certificate; `None` if it is damaged.
pub fn subject(der: &[u8]) -> Option<String> {
    let certificate = Certificate::from_der(der).ok()?;
    let parts: Vec<_> = certificate.tbs_certificate().subject().iter_rdn().collect();
    let mut subject = String::new();
    for (place, part) in parts.into_iter().rev().enumerate() {
        if place > 0 {
            subject.push(',');
        }
        for (place, attribute) in part.iter().enumerate() {
            if place > 0 {
                subject.push('+');
            }
            write_attribute(&mut subject, attribute)?;
        }
    }
    Some(subject)
}

fn write_attribute(subject: &mut String, attribute: &AttributeTypeAndValue) -> Option<()> {
    let keyword = KEYWORDS
        .iter()
        .find(|(oid, _)| ObjectIdentifier::new_unwrap(oid) == attribute.oid);
    if let (Some((_, keyword)), Some(value)) = (keyword, text(attribute)) {
        subject.push_str(keyword);
        subject.push('=');
        write_escaped(subject, &value);
    } else {
        write!(subject, "{}=#", attribute.oid).ok()?;
        for byte in attribute.value.to_der().ok()? {
            write!(subject, "{byte:02x}").ok()?;
        }
    }
    Some(())
}

/// The value of an attribute, if it is a text.
fn text(attribute: &AttributeTypeAndValue) -> Option<String> {
    let bytes = attribute.value.value();
    match attribute.value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => {
            String::from_utf8(bytes.to_vec()).ok()
        }
        Tag::TeletexString => Some(bytes.iter().copied().map(char::from).collect()),
        Tag::BmpString => {
            let units = bytes.chunks_exact(2);
            let units: Vec<_> = units
                .map(|two| u16::from_be_bytes([two[0], two[1]]))
                .collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    }
}

fn write_escaped(subject: &mut String, value: &str) {
    let inner = value.trim_matches(' ');
    let leading = value.len() - value.trim_start_matches(' ').len();
    let trailing = if inner.is_empty() {
        0
    } else {
        value.len() - leading - inner.len()
    };
    subject.push_str(&"\\ ".repeat(leading));
    for character in inner.chars() {
        match character {
            ',' | '=' | '+' | '<' | '>' | '#' | ';' | '"' | '\\' => {
                subject.push('\\');
                subject.push(character);
            }
            '\0' => subject.push_str("\\00"),
            other => subject.push(other),
        }
    }
    subject.push_str(&"\\ ".repeat(trailing));
}
