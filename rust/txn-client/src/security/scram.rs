//! The client's side of SCRAM-SHA-256 and SCRAM-SHA-512. Pure: the nonce is an argument.
//!
//! ```text
//!   client-first   n,,n=<user>,r=<nonce>
//!   server-first   r=<nonce><more>,s=<salt>,i=<iterations>
//!   client-final   c=biws,r=<nonce><more>,p=<proof>
//!   server-final   v=<signature>   or   e=<error>
//! ```
//!
//! User and password go as the UTF-8 bytes that they are, without `SASLprep`. Kafka's own server and
//! clients do the same, and a password that only one side prepares does not match.
//!
//! Sources: RFC 5802, RFC 7677; KIP-84.

use std::num::NonZeroU32;

use base64ct::{Base64, Encoding};
use ring::{digest, hmac, pbkdf2};
use zeroize::Zeroizing;

/// Fewest iterations accepted, as Kafka's: fewer would make a stolen exchange cheap to guess from.
const ITERATIONS_MIN: u32 = 4096;
/// Most iterations accepted. A Kafka stores at most 16,384; a hostile node could ask for hours of work.
const ITERATIONS_MAX: u32 = 200_000;
/// Longest message of a node that is looked at, in bytes.
const MESSAGE_BYTES_MAX: usize = 8192;
/// The header of a client without channel binding, `n,,`, in base64.
const NO_BINDING: &str = "biws";

/// The hash of a SCRAM mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

impl Hash {
    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }
}

/// A log-in before the node's first message.
pub struct ClientFirst {
    hash: Hash,
    nonce: String,
    /// The message without `n,,`.
    bare: String,
}

impl ClientFirst {
    /// Begins a log-in; `nonce` is printable, random and never used twice.
    #[must_use]
    pub fn new(hash: Hash, username: &str, nonce: String) -> Self {
        let user = username.replace('=', "=3D").replace(',', "=2C");
        let bare = format!("n={user},r={nonce}");
        Self { hash, nonce, bare }
    }

    /// The first message.
    #[must_use]
    pub fn message(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// Answers the node's first message.
    ///
    /// # Errors
    /// A message that does not follow the RFC, repeats another nonce, or asks for too little or too
    /// much work; the text has no secret.
    pub fn answer(&self, server_first: &[u8], password: &str) -> Result<ClientFinal, String> {
        let text = printable(server_first)?;
        let mut fields = text.split(',');
        let nonce = field(&mut fields, 'r')?;
        let salt = field(&mut fields, 's')?;
        let iterations = field(&mut fields, 'i')?;
        if !(nonce.starts_with(&self.nonce) && nonce.len() > self.nonce.len()) {
            return Err("it answered with a nonce that is not this client's".to_owned());
        }
        let salt = Base64::decode_vec(salt)
            .ok()
            .filter(|salt| !salt.is_empty())
            .ok_or("its salt is not base64")?;
        let iterations: u32 = iterations
            .parse()
            .map_err(|_| "its number of iterations is none".to_owned())?;
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
            return Err(format!(
                "it asks for {iterations} iterations; this client does {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            ));
        }
        let mut salted = Zeroizing::new(vec![0; self.hash.digest().output_len()]);
        pbkdf2::derive(
            self.hash.pbkdf2(),
            NonZeroU32::new(iterations).expect("at least ITERATIONS_MIN"),
            &salt,
            password.as_bytes(),
            &mut salted,
        );
        let salted = hmac::Key::new(self.hash.hmac(), &salted);
        let client_key = hmac::sign(&salted, b"Client Key");
        let stored_key = digest::digest(self.hash.digest(), client_key.as_ref());
        let without_proof = format!("c={NO_BINDING},r={nonce}");
        let signed = format!("{},{text},{without_proof}", self.bare);
        let signature = hmac::sign(
            &hmac::Key::new(self.hash.hmac(), stored_key.as_ref()),
            signed.as_bytes(),
        );
        let proof: Vec<u8> = client_key
            .as_ref()
            .iter()
            .zip(signature.as_ref())
            .map(|(key, signature)| key ^ signature)
            .collect();
        let server_key = hmac::sign(&salted, b"Server Key");
        Ok(ClientFinal {
            message: format!("{without_proof},p={}", Base64::encode_string(&proof)),
            server_key: hmac::Key::new(self.hash.hmac(), server_key.as_ref()),
            signed,
        })
    }
}

/// A log-in before the node's last message.
pub struct ClientFinal {
    message: String,
    server_key: hmac::Key,
    /// The three messages that both sides sign.
    signed: String,
}

impl ClientFinal {
    /// The last message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Verifies that the node knows the password's key too.
    ///
    /// # Errors
    /// The node's own error, or a signature that is not made with the password's key.
    pub fn verify(&self, server_final: &[u8]) -> Result<(), String> {
        let text = printable(server_final)?;
        if let Some(error) = text.strip_prefix("e=") {
            let error = error.split(',').next().unwrap_or_default();
            return Err(format!("it answered '{error}'"));
        }
        let signature = field(&mut text.split(','), 'v')?;
        let signature =
            Base64::decode_vec(signature).map_err(|_| "its signature is not base64".to_owned())?;
        hmac::verify(&self.server_key, self.signed.as_bytes(), &signature)
            .map_err(|_| "its signature is wrong: it does not know this user's password".to_owned())
    }
}

/// A message of a node as text.
fn printable(message: &[u8]) -> Result<&str, String> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(format!("it sent a message of {} bytes", message.len()));
    }
    let text = std::str::from_utf8(message).ok();
    text.filter(|text| !text.chars().any(char::is_control))
        .ok_or_else(|| "it sent a message that is no text".to_owned())
}

/// The value of the next field, which must have this name.
fn field<'a>(fields: &mut impl Iterator<Item = &'a str>, name: char) -> Result<&'a str, String> {
    fields
        .next()
        .and_then(|field| field.strip_prefix(name)?.strip_prefix('='))
        .ok_or_else(|| format!("it sent a message without '{name}='"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn begun() -> ClientFirst {
        ClientFirst::new(Hash::Sha256, "user", NONCE.to_owned())
    }

    #[test]
    fn the_exchange_of_rfc_7677_comes_out_byte_for_byte() {
        let first = begun();
        assert_eq!(first.message(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let last = first.answer(SERVER_FIRST.as_bytes(), "pencil").unwrap();
        assert_eq!(
            last.message(),
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        last.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
            .unwrap();
    }

    #[test]
    fn another_signature_is_refused() {
        let last = begun().answer(SERVER_FIRST.as_bytes(), "pencil").unwrap();
        let error = last
            .verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=")
            .unwrap_err();
        assert!(error.contains("signature"), "{error}");
        assert!(last.verify(b"e=invalid-proof").is_err());
        assert!(last.verify(b"").is_err());
    }

    #[test]
    fn a_comma_and_an_equals_sign_in_the_user_name_are_escaped() {
        let first = ClientFirst::new(Hash::Sha512, "a=b,c", "x".to_owned());
        assert_eq!(first.message(), "n,,n=a=3Db=2Cc,r=x");
    }

    #[test]
    fn a_nonce_that_is_replayed_or_cut_is_refused() {
        for nonce in ["", "rOprNGfwEbeRWgbNEkq", NONCE, "another-nonce-entirely"] {
            let message = format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
            let error = begun().answer(message.as_bytes(), "pencil").err().unwrap();
            assert!(error.contains("nonce"), "{nonce}: {error}");
        }
    }

    #[test]
    fn too_little_and_too_much_work_is_refused() {
        for iterations in ["0", "1", "4095", "200001", "4294967295"] {
            let message = format!("r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i={iterations}");
            let error = begun().answer(message.as_bytes(), "pencil").err().unwrap();
            assert!(error.contains("iterations"), "{iterations}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_message_of_a_node_panics(message in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = begun().answer(&message, "pencil");
        }

        #[test]
        fn no_cut_or_changed_message_of_a_node_panics_or_passes(
            cut in 0..SERVER_FIRST.len(), at in 0..46_usize, change in 1..=255_u8,
        ) {
            let _ = begun().answer(&SERVER_FIRST.as_bytes()[..cut], "pencil");
            let last = begun().answer(SERVER_FIRST.as_bytes(), "pencil").unwrap();
            let mut signature = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".to_vec();
            prop_assert!(last.verify(&signature[..at]).is_err());
            signature[at] ^= change;
            prop_assert!(last.verify(&signature).is_err());
        }
    }
}
