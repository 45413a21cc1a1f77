//! The log-in of a connection: `SaslHandshake`, `SaslAuthenticate`.
//!
//! Sources: KIP-43 (the handshake), KIP-152 (`SaslAuthenticate`), KIP-368 (the session's lifetime).

use txn_protocol::{Malformed, Put, Reader};

/// A node's answer to the name of a mechanism.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// 0, 33 for a mechanism that the listener does not offer, 34 from a listener without SASL.
    pub error_code: i16,
    /// The mechanisms that the listener offers.
    pub mechanisms: Vec<String>,
}

/// A node's answer to one message of the log-in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authenticated {
    /// 0, or 58: the log-in failed.
    pub error_code: i16,
    /// The node's reason for the error.
    pub detail: Option<String>,
    /// The mechanism's next message.
    pub message: Vec<u8>,
    /// Time until the session ends, in milliseconds; 0: never.
    pub lifetime_ms: i64,
}

/// Writes `SaslHandshake` v1.
pub fn encode_handshake(e: &mut Vec<u8>, mechanism: &str) {
    e.put_nullable_string(Some(mechanism.as_bytes()), false);
}

/// Reads `SaslHandshake` v1.
pub fn decode_handshake(body: &[u8]) -> Result<Handshake, Malformed> {
    let mut r = Reader::new(body);
    let error_code = r.i16()?;
    let mechanisms = r.array_of(false, |r| {
        let name = r.string(false)?;
        Ok(String::from_utf8_lossy(&body[name]).into_owned())
    })?;
    Ok(Handshake {
        error_code,
        mechanisms,
    })
}

/// Writes `SaslAuthenticate` v0–2.
pub fn encode_authenticate(e: &mut Vec<u8>, version: i16, message: &[u8]) {
    let is_flexible = version >= 2;
    e.put_length(message.len(), is_flexible);
    e.put(message);
    e.put_no_tags(is_flexible);
}

/// Reads `SaslAuthenticate` v0–2.
pub fn decode_authenticate(body: &[u8], version: i16) -> Result<Authenticated, Malformed> {
    let mut r = Reader::new(body);
    let is_flexible = version >= 2;
    let error_code = r.i16()?;
    let detail = r.nullable_string(is_flexible)?;
    let message = r.nullable_bytes(is_flexible)?;
    let lifetime_ms = if version >= 1 { r.i64()? } else { 0 };
    r.skip_tags(is_flexible)?;
    Ok(Authenticated {
        error_code,
        detail: detail.map(|range| String::from_utf8_lossy(&body[range]).into_owned()),
        message: message.map_or_else(Vec::new, |range| body[range].to_vec()),
        lifetime_ms,
    })
}
