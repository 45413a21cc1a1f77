//! Parts of the client that fuzz targets enter one by one, without a node.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::columns::Parts;
use crate::fetch::{Fetch, Selection};
use crate::security::sasl::Sasl;
use crate::security::scram::Hash;
use crate::security::{Secret, Security, TokenSource};

const NODE: &str = "node 127.0.0.1:9093";

/// Reads the body of a node's answer to a Fetch; returns its rows, `None` if it is refused.
///
/// # Panics
/// Never: the address is one.
#[must_use]
pub fn fetched_rows(body: &[u8], read_committed: bool) -> Option<usize> {
    let (name, security) = ("fuzz", Security::default());
    let cluster = Cluster::new("127.0.0.1:1", name, security, Duration::ZERO, None);
    let selection = Selection {
        start: 0,
        end: i64::MAX,
        read_committed,
        bytes_max: 1 << 20,
        content_bytes_max: 1 << 20,
        parts: Parts {
            keys: true,
            values: true,
            headers: true,
        },
    };
    let cluster = Arc::new(cluster.expect("an address"));
    Fetch::new(cluster, "t", 0, selection).read(body).ok()
}

/// Logs in by a mechanism, of 0 to 3, with a node that sends these messages; `%` stands for the
/// client's nonce. Returns the number of messages that the client answered, and whether it is
/// logged in.
///
/// # Panics
/// Never: its secrets can be sent.
#[must_use]
pub fn log_in(mechanism: u8, messages: &[&[u8]]) -> (usize, bool) {
    let (username, password) = ("user".to_owned(), Secret::new("pencil"));
    let scram = |hash| Sasl::Scram {
        hash,
        username: username.clone(),
        password: password.clone(),
    };
    let sasl = match mechanism {
        0 => Sasl::Plain { username, password },
        1 => scram(Hash::Sha256),
        2 => scram(Hash::Sha512),
        _ => Sasl::OauthBearer {
            token: TokenSource::new(|| Ok(Secret::new("abc.def."))),
            extensions: Vec::new(),
        },
    };
    let (mut log_in, first) = sasl.begin(NODE).expect("its secrets can be sent");
    let nonce = first
        .rsplit(|&byte| byte == b'=')
        .next()
        .unwrap_or_default();
    for (answered, message) in messages.iter().enumerate() {
        let message = message.split(|&byte| byte == b'%').collect::<Vec<_>>();
        match log_in.answer(NODE, &message.join(nonce)) {
            Ok(Some(_)) => {}
            Ok(None) => return (answered, true),
            Err(error) => {
                assert!(!error.message.contains("pencil"), "a secret is told");
                return (answered, false);
            }
        }
    }
    (messages.len(), false)
}
