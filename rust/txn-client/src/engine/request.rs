//! Requests and answers as values, and their form on the wire.

use std::sync::Arc;

use txn_protocol::{Malformed, Reader};

use crate::messages::classic::{self, Join, Joined};
use crate::messages::cluster::{self, BrokerAddress, CoordinatorOf, Metadata};
use crate::messages::consumer::{
    self, Commit, FetchBounds, Fetched, HeartbeatAnswer, HeartbeatNews, Membership, OffsetAnswer,
    Place, TopicId, Wanted,
};
use crate::messages::produce::{self, PartitionBatch, PartitionResponse};
use crate::messages::transactions::{self, GroupMember, GroupOffset, ProducerIdAndEpoch};
use crate::messages::two_phase;
use crate::messages::{self, ClientApi};

/// One sealed batch and where it goes.
#[derive(Clone, Debug)]
pub struct Part {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// The batch.
    pub batch: Arc<Vec<u8>>,
}

/// Offsets to commit in a transaction.
pub type Offsets = Arc<Vec<GroupOffset>>;

/// A request to one node. `is_v2`: under transaction version 2.
#[derive(Clone, Debug)]
pub enum Request {
    /// Leaders of topics.
    Metadata {
        /// Their names.
        topics: Vec<Arc<str>>,
        /// Whether a missing one is to be made.
        makes_missing: bool,
    },
    /// Where a coordinator is.
    FindCoordinator {
        /// Of what.
        of: CoordinatorOf,
        /// Its name.
        key: String,
    },
    /// An identity.
    InitProducerId {
        /// None: an idempotent producer's.
        transactional_id: Option<String>,
        /// `transaction.timeout.ms`.
        timeout_ms: i32,
        /// The identity to go on from; (-1, -1): none.
        current: ProducerIdAndEpoch,
    },
    /// An identity for two-phase commit.
    InitTwoPhase {
        /// Whose.
        transactional_id: String,
        /// `transaction.timeout.ms`.
        timeout_ms: i32,
        /// The identity to go on from; (-1, -1): none.
        current: ProducerIdAndEpoch,
        /// Whether an open transaction stays open, for this producer to end it.
        keeps_prepared: bool,
    },
    /// Version 1: partitions join the transaction.
    AddPartitions {
        /// Whose.
        transactional_id: String,
        /// Its identity.
        who: ProducerIdAndEpoch,
        /// The partitions.
        partitions: Vec<(Arc<str>, i32)>,
    },
    /// Version 1: a group joins the transaction.
    AddOffsets {
        /// Whose.
        transactional_id: String,
        /// Its identity.
        who: ProducerIdAndEpoch,
        /// The group.
        group: String,
    },
    /// Offsets become part of the transaction.
    CommitOffsets {
        /// Version 2.
        is_v2: bool,
        /// Whose.
        transactional_id: String,
        /// Its identity.
        who: ProducerIdAndEpoch,
        /// The group.
        group: String,
        /// The consumer's place in it.
        member: GroupMember,
        /// The offsets.
        offsets: Offsets,
    },
    /// The end of the transaction.
    EndTxn {
        /// Version 2.
        is_v2: bool,
        /// Whose.
        transactional_id: String,
        /// Its identity.
        who: ProducerIdAndEpoch,
        /// Commit, or abort.
        commit: bool,
    },
    /// Batches, at most one per partition; those of one topic follow each other.
    Produce {
        /// Version 2.
        is_v2: bool,
        /// Of a transaction.
        transactional_id: Option<String>,
        /// Time the node may take.
        timeout_ms: i32,
        /// The batches.
        parts: Vec<Part>,
    },
    /// All topics.
    AllTopics,
    /// Names of topics.
    TopicsById(Vec<TopicId>),
    /// Records of partitions.
    Fetch {
        /// Its bounds.
        bounds: FetchBounds,
        /// The partitions.
        wanted: Vec<Wanted>,
    },
    /// Offsets by timestamps; -1: the end, -2: the first.
    ListOffsets {
        /// Whether the end is that of committed records.
        read_committed: bool,
        /// (partition, timestamp).
        wanted: Vec<(Place, i64)>,
    },
    /// Committed offsets.
    FetchOffsets {
        /// Group.
        group: String,
        /// The partitions.
        places: Vec<Place>,
    },
    /// Offsets to commit outside transactions.
    Commit {
        /// The consumer's place in its group.
        member: Membership,
        /// The offsets.
        offsets: Vec<Commit>,
    },
    /// A sign of life of a group's member (KIP-848).
    Heartbeat {
        /// The member.
        member: Membership,
        /// What the coordinator does not know yet.
        news: Option<HeartbeatNews>,
        /// Partitions by topic that the member has, if the coordinator does not know.
        owned: Option<Vec<(TopicId, Vec<i32>)>>,
    },
    /// A member of a classic group joins a rebalance.
    Join(Join),
    /// It asks for its partitions in the new generation.
    Sync {
        /// The member.
        member: Membership,
        /// The chosen assignor.
        assignor: String,
        /// The partitions per member id, from the leader alone.
        assignments: Vec<(String, Vec<Place>)>,
    },
    /// A sign of life of a classic group's member.
    ClassicHeartbeat(Membership),
    /// A member leaves a classic group.
    Leave(Membership),
}

/// The answer to a request of the same kind.
#[derive(Clone, Debug)]
pub enum Response {
    /// To `Metadata`.
    Metadata(Metadata),
    /// To `FindCoordinator`: the node, or (error code, the node's message).
    Coordinator(Result<BrokerAddress, (i16, Option<String>)>),
    /// To `InitProducerId`.
    Identity(i16, ProducerIdAndEpoch),
    /// To `InitTwoPhase`: (error code, identity, identity of the transaction that was kept).
    TwoPhaseIdentity(i16, ProducerIdAndEpoch, ProducerIdAndEpoch),
    /// To `AddPartitions` and `CommitOffsets`.
    Partitions(Vec<(String, i32, i16)>),
    /// To `AddOffsets`, `ClassicHeartbeat` and `Leave`.
    Code(i16),
    /// To `EndTxn`: version 2 tells the next identity.
    End(i16, Option<ProducerIdAndEpoch>),
    /// To `Produce`.
    Produce(Vec<PartitionResponse>),
    /// To `Fetch`: the error code of the whole, and the partitions.
    Fetch(i16, Vec<Fetched>),
    /// To `ListOffsets` and `FetchOffsets`: the error code of the whole, and the partitions.
    Offsets(i16, Vec<OffsetAnswer>),
    /// To `Heartbeat`.
    Heartbeat(HeartbeatAnswer),
    /// To `Join`.
    Joined(Joined),
    /// To `Sync`: the error code, and the member's partitions.
    Synced(i16, Vec<Place>),
}

impl Request {
    /// The API, in the versions that fit.
    #[must_use]
    pub fn api(&self) -> ClientApi {
        match self {
            Self::Metadata { .. } | Self::AllTopics => messages::METADATA,
            Self::TopicsById(_) => messages::METADATA.at_least(12),
            Self::Fetch { .. } => messages::FETCH,
            Self::ListOffsets { .. } => messages::LIST_OFFSETS,
            Self::FetchOffsets { .. } => messages::OFFSET_FETCH,
            Self::Commit { .. } => messages::OFFSET_COMMIT,
            Self::Heartbeat { news, .. } => {
                let has_pattern = |news: &HeartbeatNews| news.subscription.pattern.is_some();
                let needs_pattern = news.as_ref().is_some_and(has_pattern);
                messages::CONSUMER_GROUP_HEARTBEAT.at_least(i16::from(needs_pattern))
            }
            Self::Join(_) => messages::JOIN_GROUP,
            Self::Sync { .. } => messages::SYNC_GROUP,
            Self::ClassicHeartbeat(_) => messages::HEARTBEAT,
            Self::Leave(_) => messages::LEAVE_GROUP,
            Self::FindCoordinator { .. } => messages::FIND_COORDINATOR,
            Self::InitProducerId { .. } => messages::INIT_PRODUCER_ID,
            Self::InitTwoPhase { .. } => messages::INIT_TWO_PHASE_PRODUCER_ID,
            Self::AddPartitions { .. } => messages::ADD_PARTITIONS_TO_TXN,
            Self::AddOffsets { .. } => messages::ADD_OFFSETS_TO_TXN,
            Self::CommitOffsets { is_v2: true, .. } => messages::TXN_OFFSET_COMMIT.at_least(5),
            Self::CommitOffsets { .. } => messages::TXN_OFFSET_COMMIT.at_most(4),
            Self::EndTxn { is_v2: true, .. } => messages::END_TXN.at_least(5),
            Self::EndTxn { .. } => messages::END_TXN.at_most(4),
            Self::Produce {
                transactional_id: None,
                ..
            } => messages::PRODUCE,
            Self::Produce { is_v2: true, .. } => messages::PRODUCE.at_least(12),
            Self::Produce { .. } => messages::PRODUCE.at_most(11),
        }
    }

    /// Writes the whole frame behind `head`, but for its size.
    #[must_use]
    pub fn encode(&self, head: Vec<u8>, version: i16) -> Vec<u8> {
        let mut e = head;
        match self {
            Self::Metadata {
                topics,
                makes_missing,
            } => {
                let names: Vec<&str> = topics.iter().map(AsRef::as_ref).collect();
                cluster::encode_metadata(&mut e, version, Some(&names), *makes_missing);
            }
            Self::AllTopics => cluster::encode_metadata(&mut e, version, None, false),
            Self::TopicsById(ids) => consumer::encode_metadata_by_id(&mut e, ids),
            Self::Fetch { bounds, wanted } => consumer::encode_fetch(&mut e, *bounds, wanted),
            Self::ListOffsets {
                read_committed,
                wanted,
            } => consumer::encode_list_offsets(&mut e, wanted, *read_committed),
            Self::FetchOffsets { group, places } => {
                consumer::encode_offset_fetch(&mut e, group, places);
            }
            Self::Commit { member, offsets } => {
                consumer::encode_offset_commit(&mut e, member, offsets);
            }
            Self::Heartbeat {
                member,
                news,
                owned,
            } => {
                let (news, owned) = (news.as_ref(), owned.as_deref());
                consumer::encode_heartbeat(&mut e, version, member, news, owned);
            }
            Self::Join(join) => classic::encode_join(&mut e, version, join),
            Self::Sync {
                member,
                assignor,
                assignments,
            } => classic::encode_sync(&mut e, member, assignor, assignments),
            Self::ClassicHeartbeat(member) => classic::encode_heartbeat(&mut e, member),
            Self::Leave(member) => classic::encode_leave(&mut e, version, member),
            Self::FindCoordinator { of, key } => cluster::encode_find_coordinator(&mut e, *of, key),
            Self::InitProducerId {
                transactional_id,
                timeout_ms,
                current,
            } => {
                let id = transactional_id.as_deref();
                transactions::encode_init_producer_id(&mut e, version, id, *timeout_ms, *current);
            }
            Self::InitTwoPhase {
                transactional_id,
                timeout_ms,
                current,
                keeps_prepared,
            } => {
                let (id, keeps) = (transactional_id, *keeps_prepared);
                two_phase::encode_init(&mut e, id, *timeout_ms, *current, keeps);
            }
            Self::AddPartitions {
                transactional_id,
                who,
                partitions,
            } => {
                let named: Vec<_> = partitions.iter().map(|(t, p)| (t.as_ref(), *p)).collect();
                transactions::encode_add_partitions(&mut e, transactional_id, *who, &named);
            }
            Self::AddOffsets {
                transactional_id,
                who,
                group,
            } => transactions::encode_add_offsets(&mut e, transactional_id, *who, group),
            Self::CommitOffsets {
                transactional_id,
                who,
                group,
                member,
                offsets,
                ..
            } => {
                let (id, who) = (transactional_id, *who);
                transactions::encode_txn_offset_commit(&mut e, id, who, group, member, offsets);
            }
            Self::EndTxn {
                transactional_id,
                who,
                commit,
                ..
            } => transactions::encode_end_txn(&mut e, transactional_id, *who, *commit),
            Self::Produce {
                transactional_id,
                timeout_ms,
                parts,
                ..
            } => return encode_produce(e, transactional_id.as_deref(), *timeout_ms, parts),
        }
        e
    }

    /// The reader of this request's answer, which needs no more of it.
    #[must_use]
    pub fn decoder(&self) -> fn(&mut Reader<'_>, i16) -> Result<Response, Malformed> {
        match self {
            Self::Metadata { .. } | Self::AllTopics | Self::TopicsById(_) => {
                |r, v| cluster::decode_metadata(r, v).map(Response::Metadata)
            }
            Self::Fetch { .. } => {
                |r, _| consumer::decode_fetch(r).map(|(code, all)| Response::Fetch(code, all))
            }
            Self::ListOffsets { .. } => {
                |r, _| consumer::decode_list_offsets(r).map(|all| Response::Offsets(0, all))
            }
            Self::FetchOffsets { .. } => |r, _| {
                consumer::decode_offset_fetch(r).map(|(code, all)| Response::Offsets(code, all))
            },
            Self::Commit { .. } => {
                |r, _| transactions::decode_partition_errors(r).map(Response::Partitions)
            }
            Self::Heartbeat { .. } => |r, _| consumer::decode_heartbeat(r).map(Response::Heartbeat),
            Self::Join(_) => |r, v| classic::decode_join(r, v).map(Response::Joined),
            Self::Sync { .. } => {
                |r, _| classic::decode_sync(r).map(|(code, all)| Response::Synced(code, all))
            }
            Self::ClassicHeartbeat(_) => |r, _| classic::decode_heartbeat(r).map(Response::Code),
            Self::Leave(_) => |r, _| classic::decode_leave(r).map(Response::Code),
            Self::FindCoordinator { .. } => {
                |r, _| cluster::decode_find_coordinator(r).map(Response::Coordinator)
            }
            Self::InitProducerId { .. } => |r, v| {
                transactions::decode_init_producer_id(r, v)
                    .map(|(code, who)| Response::Identity(code, who))
            },
            Self::InitTwoPhase { .. } => |r, _| {
                two_phase::decode_init(r)
                    .map(|(code, who, kept)| Response::TwoPhaseIdentity(code, who, kept))
            },
            Self::AddPartitions { .. } | Self::CommitOffsets { .. } => {
                |r, _| transactions::decode_partition_errors(r).map(Response::Partitions)
            }
            Self::AddOffsets { .. } => {
                |r, _| transactions::decode_add_offsets(r).map(Response::Code)
            }
            Self::EndTxn { .. } => |r, v| {
                transactions::decode_end_txn(r, v).map(|(code, next)| Response::End(code, next))
            },
            Self::Produce { .. } => |r, _| produce::decode(r).map(Response::Produce),
        }
    }
}

fn encode_produce(head: Vec<u8>, id: Option<&str>, timeout_ms: i32, parts: &[Part]) -> Vec<u8> {
    let parts: Vec<_> = parts
        .iter()
        .map(|part| PartitionBatch {
            topic: &part.topic,
            partition: part.partition,
            batch: &part.batch,
        })
        .collect();
    let pieces = produce::encode(head, id, timeout_ms, &parts);
    let bodies = parts.iter().map(|part| part.batch.len()).sum::<usize>();
    let mut frame = Vec::with_capacity(pieces.iter().map(Vec::len).sum::<usize>() + bodies);
    for (i, piece) in pieces.iter().enumerate() {
        frame.extend_from_slice(piece);
        frame.extend_from_slice(parts.get(i).map_or(b"", |part| part.batch));
    }
    frame
}
