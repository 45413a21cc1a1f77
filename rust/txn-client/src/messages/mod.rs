//! The few messages this client speaks, each at the versions that Kafka 3.0 to 4.2 all offer.
//!
//! One `encode_*` writes a request's body, one `decode_*` reads an answer's body; fields this client
//! has no use for are written as their defaults and skipped when read. All versions are flexible.
//!
//! Source: the message schemas of Apache Kafka 4.2 (field order, types, versions).
#![allow(
    clippy::missing_errors_doc,
    reason = "what reads bytes fails with `Malformed` and with nothing else"
)]

pub mod cluster;
pub mod fetch;
pub mod produce;
pub mod transactions;

#[cfg(test)]
mod golden;

use crate::wire::{Encoder, Malformed, Reader};

/// One API, and the versions of it that this crate can write and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    /// Its number on the wire.
    pub key: i16,
    /// Kafka's name for it.
    pub name: &'static str,
    /// Lowest version, inclusive.
    pub lowest: i16,
    /// Highest version, inclusive.
    pub highest: i16,
}

/// 12 joins a partition to the transaction by itself (KIP-890); 13 would need topic ids.
pub const PRODUCE: Api = Api {
    key: 0,
    name: "Produce",
    lowest: 9,
    highest: 12,
};
/// 12 is the last one that names topics, and every broker since 2.7 has it.
pub const FETCH: Api = Api {
    key: 1,
    name: "Fetch",
    lowest: 12,
    highest: 12,
};
/// See `cluster`.
pub const LIST_OFFSETS: Api = Api {
    key: 2,
    name: "ListOffsets",
    lowest: 6,
    highest: 7,
};
/// See `cluster`.
pub const METADATA: Api = Api {
    key: 3,
    name: "Metadata",
    lowest: 9,
    highest: 12,
};
/// 4 and later are batched, which nothing here needs.
pub const FIND_COORDINATOR: Api = Api {
    key: 10,
    name: "FindCoordinator",
    lowest: 3,
    highest: 3,
};
/// See `cluster`.
pub const API_VERSIONS: Api = Api {
    key: 18,
    name: "ApiVersions",
    lowest: 0,
    highest: 3,
};
/// See `cluster`.
pub const CREATE_TOPICS: Api = Api {
    key: 19,
    name: "CreateTopics",
    lowest: 5,
    highest: 7,
};
/// See `transactions`.
pub const INIT_PRODUCER_ID: Api = Api {
    key: 22,
    name: "InitProducerId",
    lowest: 3,
    highest: 5,
};
/// 4 and later are between brokers.
pub const ADD_PARTITIONS_TO_TXN: Api = Api {
    key: 24,
    name: "AddPartitionsToTxn",
    lowest: 3,
    highest: 3,
};
/// See `transactions`.
pub const ADD_OFFSETS_TO_TXN: Api = Api {
    key: 25,
    name: "AddOffsetsToTxn",
    lowest: 3,
    highest: 4,
};
/// 5 answers with the producer id and epoch to use next (KIP-890).
pub const END_TXN: Api = Api {
    key: 26,
    name: "EndTxn",
    lowest: 3,
    highest: 5,
};
/// 5 joins the group to the transaction by itself (KIP-890).
pub const TXN_OFFSET_COMMIT: Api = Api {
    key: 28,
    name: "TxnOffsetCommit",
    lowest: 3,
    highest: 5,
};
/// See `transactions`.
pub const DESCRIBE_TRANSACTIONS: Api = Api {
    key: 65,
    name: "DescribeTransactions",
    lowest: 0,
    highest: 0,
};
/// See `transactions`.
pub const LIST_TRANSACTIONS: Api = Api {
    key: 66,
    name: "ListTransactions",
    lowest: 0,
    highest: 0,
};

impl Api {
    /// This API from version `lowest` on.
    #[must_use]
    pub const fn at_least(self, lowest: i16) -> Self {
        Self { lowest, ..self }
    }

    /// This API up to version `highest`.
    #[must_use]
    pub const fn at_most(self, highest: i16) -> Self {
        Self { highest, ..self }
    }
}

/// Writes the header of a request. The client id stays an old-style string in every version.
pub fn encode_header(e: &mut Encoder, api: Api, version: i16, correlation: i32, client_id: &str) {
    e.i16(api.key);
    e.i16(version);
    e.i32(correlation);
    e.i16(
        i16::try_from(client_id.len())
            .expect("client ids are short, checked when the client is made"),
    );
    e.bytes.extend_from_slice(client_id.as_bytes());
    if (api, version) != (API_VERSIONS, 0) {
        e.no_tags();
    }
}

/// Reads what follows the correlation id in an answer's header; `ApiVersions` has nothing there,
/// so that any client can read it.
pub fn decode_header(r: &mut Reader<'_>, api: Api) -> Result<(), Malformed> {
    if api.key == API_VERSIONS.key {
        Ok(())
    } else {
        r.tags()
    }
}
