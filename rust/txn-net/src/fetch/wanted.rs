//! The topics and partitions that a request wants to read.

use std::sync::Arc;

use txn_protocol::apis;

use crate::catalog::{Topic, TopicId, TopicKey};

/// The epoch of a full request that opens a session.
pub const INITIAL_EPOCH: i32 = 0;
/// The epoch of a full request that opens none, and closes the one it names.
pub const FINAL_EPOCH: i32 = -1;

pub struct WantedTopic {
    /// Name or id, sent back as the request has it.
    pub key: OwnedKey,
    pub topic: Option<Arc<Topic>>,
    /// Its reader may not see it.
    pub is_refused: bool,
    /// Number of its partitions in the request; they follow those of the topic before.
    pub partitions: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OwnedKey {
    Name(Box<[u8]>),
    Id(TopicId),
}

impl OwnedKey {
    pub fn borrow(&self) -> TopicKey<'_> {
        match self {
            Self::Name(name) => TopicKey::Name(name),
            Self::Id(id) => TopicKey::Id(id),
        }
    }

    pub fn name_bytes(&self) -> usize {
        match self {
            Self::Name(name) => name.len(),
            Self::Id(_) => 0,
        }
    }
}

#[derive(Clone, Copy)]
pub struct WantedPartition {
    /// Position in the request's topics.
    pub topic: usize,
    pub index: i32,
    /// -1: the reader does not say.
    pub leader_epoch: i32,
    /// Epoch of the last record that the reader has; negative: it does not say.
    pub last_fetched_epoch: i32,
    pub start: i64,
    pub max_bytes: u64,
}

/// The readiness of a request to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It can, with enough bytes, with an error, or because it does not want to wait.
    Ready,
    /// There is too little yet.
    TooLittle,
}

/// The parts of a request that a session takes over.
pub struct WantedParts<'a> {
    pub uses_ids: bool,
    pub is_read_committed: bool,
    pub topics: &'a [WantedTopic],
    pub partitions: &'a [WantedPartition],
    /// Partitions that the session is to forget.
    pub forgotten: &'a [(OwnedKey, Vec<i32>)],
}

pub fn is_flexible(version: i16) -> bool {
    apis::is_flexible(apis::FETCH, version)
}

pub fn has_topic_ids(version: i16) -> bool {
    version >= 13
}
