//! Members of classic groups: `JoinGroup`, `SyncGroup`, `Heartbeat`, `LeaveGroup`, and the
//! subscriptions and assignments that members hand each other through the coordinator.
//!
//! The latter have Kafka's format `ConsumerProtocol`, which Java's consumer and librdkafka share:
//! a version, then fields without tags. A reader skips what a later version appends.
//!
//! Sources: `ConsumerProtocolSubscription` v0–3, `ConsumerProtocolAssignment` v0–3, KIP-345 (static
//! members), KIP-394 (`MEMBER_ID_REQUIRED`), KIP-429 (owned partitions), KIP-814 (skipped assignment).

use std::collections::BTreeMap;
use std::sync::Arc;

use txn_protocol::{Malformed, Put, Reader};

use super::consumer::{Membership, Place};

/// The type of the group in `JoinGroup` and `SyncGroup`.
const PROTOCOL_TYPE: &str = "consumer";
/// The version of subscriptions and assignments that are written.
const SUBSCRIPTION_VERSION: i16 = 3;

/// A member's subscription as the other members see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberSubscription {
    /// Names of topics.
    pub topics: Vec<String>,
    /// The partitions that the member has while it joins (KIP-429).
    pub owned: Vec<Place>,
    /// The generation in which it got them; -1: unknown.
    pub generation: i32,
}

/// Writes a subscription, v3.
#[must_use]
pub fn encode_subscription(subscription: &MemberSubscription) -> Vec<u8> {
    let mut e = Vec::new();
    e.put_i16(SUBSCRIPTION_VERSION);
    e.put_length(subscription.topics.len(), false);
    for topic in &subscription.topics {
        e.put_nullable_string(Some(topic.as_bytes()), false);
    }
    e.put_i32(-1); // user data
    put_places(&mut e, &subscription.owned);
    e.put_i32(subscription.generation);
    e.put_nullable_string(None, false); // rack
    e
}

/// Reads a subscription of any version.
pub fn decode_subscription(bytes: &[u8]) -> Result<MemberSubscription, Malformed> {
    let mut r = Reader::new(bytes);
    let version = r.i16()?;
    let topics = r.array_of(false, |r| string(r, bytes))?;
    r.nullable_bytes(false)?; // user data
    let owned = if version >= 1 {
        places(&mut r, bytes)?
    } else {
        Vec::new()
    };
    let generation = if version >= 2 { r.i32()? } else { -1 };
    Ok(MemberSubscription {
        topics,
        owned,
        generation,
    })
}

/// Writes an assignment, v3.
#[must_use]
pub fn encode_assignment(assigned: &[Place]) -> Vec<u8> {
    let mut e = Vec::new();
    e.put_i16(SUBSCRIPTION_VERSION);
    put_places(&mut e, assigned);
    e.put_i32(-1); // user data
    e
}

/// Reads an assignment of any version; no bytes at all are no partitions.
pub fn decode_assignment(bytes: &[u8]) -> Result<Vec<Place>, Malformed> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let mut r = Reader::new(bytes);
    r.i16()?; // version
    places(&mut r, bytes)
}

fn string(r: &mut Reader<'_>, bytes: &[u8]) -> Result<String, Malformed> {
    let range = r.string(false)?;
    Ok(String::from_utf8_lossy(&bytes[range]).into_owned())
}

fn places(r: &mut Reader<'_>, bytes: &[u8]) -> Result<Vec<Place>, Malformed> {
    let topics = r.array_of(false, |r| {
        let topic: Arc<str> = string(r, bytes)?.into();
        r.array_of(false, |r| Ok((Arc::clone(&topic), r.i32()?)))
    })?;
    Ok(topics.into_iter().flatten().collect())
}

fn put_places(e: &mut Vec<u8>, places: &[Place]) {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in places {
        topics.entry(topic.as_ref()).or_default().push(*partition);
    }
    e.put_length(topics.len(), false);
    for (topic, partitions) in topics {
        e.put_nullable_string(Some(topic.as_bytes()), false);
        e.put_length(partitions.len(), false);
        for partition in partitions {
            e.put_i32(partition);
        }
    }
}

/// The content of a `JoinGroup`.
#[derive(Clone, Debug)]
pub struct Join {
    /// The member; its id is empty until the coordinator has given one.
    pub member: Membership,
    /// `session.timeout.ms`.
    pub session_timeout_ms: i32,
    /// Time for giving partitions back: `max.poll.interval.ms`.
    pub rebalance_timeout_ms: i32,
    /// The names of the member's assignors, the preferred one first.
    pub assignors: Vec<&'static str>,
    /// The subscription, the same one for each assignor.
    pub subscription: MemberSubscription,
}

/// A member as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    /// Member id.
    pub id: String,
    /// `group.instance.id`.
    pub instance_id: Option<String>,
    /// Its subscription, in Kafka's format.
    pub subscription: Vec<u8>,
}

/// The answer to `JoinGroup`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// 0, or why the member is refused.
    pub error_code: i16,
    /// The group's generation.
    pub generation: i32,
    /// The name of the chosen assignor.
    pub assignor: String,
    /// The id of the leader, which makes the assignment.
    pub leader: String,
    /// True if the leader keeps the assignment that the group has (KIP-814).
    pub skips_assignment: bool,
    /// The id of this member.
    pub member_id: String,
    /// All members, for the leader alone.
    pub members: Vec<JoinedMember>,
}

/// Writes `JoinGroup` v7–9.
pub fn encode_join(e: &mut Vec<u8>, version: i16, join: &Join) {
    let bytes = encode_subscription(&join.subscription);
    e.put_compact_string(&join.member.group);
    e.put_i32(join.session_timeout_ms);
    e.put_i32(join.rebalance_timeout_ms);
    e.put_compact_string(&join.member.member_id);
    e.put_compact_nullable_string(join.member.instance_id.as_deref());
    e.put_compact_string(PROTOCOL_TYPE);
    e.put_compact_array(join.assignors.iter(), |e, name| {
        e.put_compact_string(name);
        put_bytes(e, &bytes);
        e.put_no_tags(true);
    });
    if version >= 8 {
        e.put_compact_nullable_string(None); // reason
    }
    e.put_no_tags(true);
}

/// Reads `JoinGroup` v7–9.
pub fn decode_join(r: &mut Reader<'_>, version: i16) -> Result<Joined, Malformed> {
    r.i32()?; // throttle time
    let (error_code, generation) = (r.i16()?, r.i32()?);
    r.compact_nullable_string()?; // protocol type
    let assignor = r.compact_nullable_string()?.unwrap_or_default().to_owned();
    let leader = r.compact_string()?.to_owned();
    let skips_assignment = version >= 9 && r.bool()?;
    let member_id = r.compact_string()?.to_owned();
    let members = r.compact_array(|r| {
        let id = r.compact_string()?.to_owned();
        let instance_id = r.compact_nullable_string()?.map(ToOwned::to_owned);
        let subscription = r.compact_nullable_bytes()?.unwrap_or_default().to_vec();
        r.skip_tags(true)?;
        Ok(JoinedMember {
            id,
            instance_id,
            subscription,
        })
    })?;
    r.skip_tags(true)?;
    Ok(Joined {
        error_code,
        generation,
        assignor,
        leader,
        skips_assignment,
        member_id,
        members,
    })
}

/// Writes `SyncGroup` v5; the assignments come from the leader alone.
pub fn encode_sync(
    e: &mut Vec<u8>,
    member: &Membership,
    assignor: &str,
    assignments: &[(String, Vec<Place>)],
) {
    put_member(e, member);
    e.put_compact_nullable_string(Some(PROTOCOL_TYPE));
    e.put_compact_nullable_string(Some(assignor));
    e.put_compact_array(assignments.iter(), |e, (id, places)| {
        e.put_compact_string(id);
        put_bytes(e, &encode_assignment(places));
        e.put_no_tags(true);
    });
    e.put_no_tags(true);
}

/// Reads `SyncGroup` v5: the error code, and the member's partitions.
pub fn decode_sync(r: &mut Reader<'_>) -> Result<(i16, Vec<Place>), Malformed> {
    r.i32()?; // throttle time
    let error_code = r.i16()?;
    r.compact_nullable_string()?; // protocol type
    r.compact_nullable_string()?; // assignor
    let assigned = r.compact_nullable_bytes()?.unwrap_or_default();
    r.skip_tags(true)?;
    Ok((error_code, decode_assignment(assigned)?))
}

/// Writes `Heartbeat` v4.
pub fn encode_heartbeat(e: &mut Vec<u8>, member: &Membership) {
    put_member(e, member);
    e.put_no_tags(true);
}

/// Reads `Heartbeat` v4: the error code.
pub fn decode_heartbeat(r: &mut Reader<'_>) -> Result<i16, Malformed> {
    r.i32()?; // throttle time
    let error_code = r.i16()?;
    r.skip_tags(true)?;
    Ok(error_code)
}

/// Writes `LeaveGroup` v4–5 of one member.
pub fn encode_leave(e: &mut Vec<u8>, version: i16, member: &Membership) {
    e.put_compact_string(&member.group);
    e.put_compact_array([member].into_iter(), |e, member| {
        e.put_compact_string(&member.member_id);
        e.put_compact_nullable_string(member.instance_id.as_deref());
        if version >= 5 {
            e.put_compact_nullable_string(None); // reason
        }
        e.put_no_tags(true);
    });
    e.put_no_tags(true);
}

/// Reads `LeaveGroup` v4–5: the error code of the whole.
pub fn decode_leave(r: &mut Reader<'_>) -> Result<i16, Malformed> {
    r.i32()?; // throttle time
    let error_code = r.i16()?;
    r.compact_array(|r| {
        r.compact_string()?;
        r.compact_nullable_string()?;
        r.i16()?;
        r.skip_tags(true)
    })?;
    r.skip_tags(true)?;
    Ok(error_code)
}

fn put_member(e: &mut Vec<u8>, member: &Membership) {
    e.put_compact_string(&member.group);
    e.put_i32(member.epoch);
    e.put_compact_string(&member.member_id);
    e.put_compact_nullable_string(member.instance_id.as_deref());
}

fn put_bytes(e: &mut Vec<u8>, bytes: &[u8]) {
    e.put_compact_length(bytes.len());
    e.put(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(topic: &str, partition: i32) -> Place {
        (topic.into(), partition)
    }

    #[test]
    fn a_subscription_is_written_as_kafkas_schema_says() {
        let subscription = MemberSubscription {
            topics: vec!["t".to_owned()],
            owned: vec![place("t", 2)],
            generation: 7,
        };
        let bytes = encode_subscription(&subscription);
        let expected: &[u8] = &[
            0, 3, // version
            0, 0, 0, 1, 0, 1, b't', // topics
            0xff, 0xff, 0xff, 0xff, // user data
            0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 2, // owned partitions
            0, 0, 0, 7, // generation
            0xff, 0xff, // rack
        ];
        assert_eq!(bytes, expected);
        assert_eq!(decode_subscription(&bytes).unwrap(), subscription);
    }

    #[test]
    fn subscriptions_of_earlier_and_later_versions_are_read() {
        let first = [0, 0, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 9];
        let read = decode_subscription(&first).unwrap();
        assert_eq!(read.topics, ["t"]);
        assert_eq!((read.owned, read.generation), (Vec::new(), -1));
        let mut later = encode_subscription(&MemberSubscription::default());
        later[1] = 9;
        later.extend([1, 2, 3]);
        assert!(decode_subscription(&later).is_ok());
    }

    #[test]
    fn an_assignment_is_read_as_it_was_written() {
        let assigned = vec![place("a", 1), place("a", 2), place("b", 0)];
        assert_eq!(
            decode_assignment(&encode_assignment(&assigned)).unwrap(),
            assigned
        );
        assert_eq!(decode_assignment(&[]).unwrap(), Vec::<Place>::new());
        assert!(decode_assignment(&[0, 0, 0, 0, 0, 9]).is_err());
    }
}
