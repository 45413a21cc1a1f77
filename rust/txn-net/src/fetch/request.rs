//! The bytes of a Fetch.

use std::time::Duration;

use txn_protocol::{Malformed, Reader};

use super::wanted::{
    FINAL_EPOCH, OwnedKey, WantedPartition, WantedTopic, has_topic_ids, is_flexible,
};
use super::{FetchRequest, MAX_ANSWER_BYTES, SessionUse};
use crate::access::first_of;
use crate::catalog::{Catalog, TopicKey};
use crate::fetch::records::Reading;
use crate::partition_limit::require_few;

impl FetchRequest {
    /// Reads a request's body and looks its topics up.
    ///
    /// # Errors
    /// It is not a Fetch request of that version.
    pub fn parse(
        body: &[u8],
        version: i16,
        correlation_id: i32,
        catalog: &Catalog,
    ) -> Result<Self, Malformed> {
        let is_flexible = is_flexible(version);
        let mut reader = Reader::new(body);
        if version < 15 {
            reader.i32()?; // replica_id; from version 15 on in a tagged field
        }
        let max_wait_ms = reader.i32()?;
        let min_bytes = reader.i32()?;
        let max_bytes = reader.i32()?;
        let is_read_committed = match reader.i8()? {
            0 => false,
            1 => true,
            _ => {
                let at = reader.at() - 1;
                return Err(Malformed {
                    at,
                    reason: "there is no such isolation level",
                });
            }
        };
        let named_session = if version >= 7 {
            (reader.i32()?, reader.i32()?)
        } else {
            (0, FINAL_EPOCH)
        };
        let mut request = Self {
            version,
            correlation_id,
            max_wait: Duration::from_millis(max_wait_ms.max(0) as u64),
            min_bytes: min_bytes.max(0) as u64,
            max_bytes: (max_bytes.max(0) as u64).min(MAX_ANSWER_BYTES),
            reading: Reading::new(is_read_committed),
            named_session,
            session: SessionUse::None,
            topics: Vec::new(),
            partitions: Vec::new(),
            forgotten: Vec::new(),
            first_of: Vec::new(),
            authorized: 0,
        };
        for _ in 0..reader.array(is_flexible, 2)? {
            request.parse_topic(&mut reader, body, catalog)?;
        }
        if version >= 7 {
            request.parse_forgotten_topics(&mut reader, body)?;
        }
        if version >= 11 {
            reader.string(is_flexible)?; // rack_id
        }
        reader.skip_tags(is_flexible)?;
        request.keep_each_once();
        Ok(request)
    }

    /// Leaves one of the partitions that are named more than once.
    ///
    /// Cost: a sort of the partitions; none for a request of one.
    fn keep_each_once(&mut self) {
        if self.partitions.len() < 2 {
            return;
        }
        self.find_first();
        let of_partition = |(place, one): (usize, &WantedPartition)| {
            let topic = self.first_of.get(one.topic).copied().unwrap_or_default();
            (topic, one.index, place)
        };
        let mut named: Vec<_> = (self.partitions.iter().enumerate())
            .map(of_partition)
            .collect();
        named.sort_unstable();
        let mut is_left_out = Vec::new();
        for of_one in named.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            let [(_, _, first), .., (_, _, last)] = *of_one else {
                continue; // it is named once
            };
            is_left_out.resize(self.partitions.len(), false);
            for &(_, _, place) in &of_one[1..] {
                is_left_out[place] = true;
                self.topics[self.partitions[place].topic].partitions -= 1;
            }
            let topic = self.partitions[first].topic;
            self.partitions[first] = WantedPartition {
                topic,
                ..self.partitions[last]
            };
        }
        if !is_left_out.is_empty() {
            let mut is_left_out = is_left_out.into_iter();
            self.partitions
                .retain(|_| is_left_out.next() == Some(false));
        }
    }

    /// Finds the topics that are named more than once.
    pub(super) fn find_first(&mut self) {
        if self.first_of.is_empty() && self.topics.len() > 1 {
            self.first_of = first_of(self.topics.len(), |at| self.topics[at].key.borrow());
        }
    }

    fn parse_topic(
        &mut self,
        reader: &mut Reader<'_>,
        body: &[u8],
        catalog: &Catalog,
    ) -> Result<(), Malformed> {
        let is_flexible = is_flexible(self.version);
        let key = parse_key(reader, body, self.version)?;
        let partitions = reader.array(is_flexible, 16)?;
        let named = self.partitions.len() + partitions;
        require_few(reader, named, self.topics.len())?;
        for _ in 0..partitions {
            let index = reader.i32()?;
            let leader_epoch = if self.version >= 9 { reader.i32()? } else { -1 };
            let start = reader.i64()?;
            let last_fetched_epoch = if self.version >= 12 {
                reader.i32()?
            } else {
                -1
            };
            if self.version >= 5 {
                reader.i64()?; // log_start_offset, of followers
            }
            let max_bytes = reader.i32()?.max(0) as u64;
            reader.skip_tags(is_flexible)?;
            let topic = self.topics.len();
            self.partitions.push(WantedPartition {
                topic,
                index,
                leader_epoch,
                last_fetched_epoch,
                start,
                max_bytes,
            });
        }
        reader.skip_tags(is_flexible)?;
        let topic = catalog.find(key);
        self.topics.push(WantedTopic {
            key: owned(key),
            topic,
            is_refused: false,
            partitions,
        });
        Ok(())
    }

    fn parse_forgotten_topics(
        &mut self,
        reader: &mut Reader<'_>,
        body: &[u8],
    ) -> Result<(), Malformed> {
        let is_flexible = is_flexible(self.version);
        let mut named = 0;
        for _ in 0..reader.array(is_flexible, 2)? {
            let key = parse_key(reader, body, self.version)?;
            let partitions = reader.array(is_flexible, 4)?;
            named += partitions;
            require_few(reader, named, self.forgotten.len())?;
            let partitions = (0..partitions).map(|_| reader.i32());
            let partitions = partitions.collect::<Result<_, _>>()?;
            reader.skip_tags(is_flexible)?;
            self.forgotten.push((owned(key), partitions));
        }
        Ok(())
    }
}

fn owned(key: TopicKey<'_>) -> OwnedKey {
    match key {
        TopicKey::Name(name) => OwnedKey::Name(name.into()),
        TopicKey::Id(id) => OwnedKey::Id(id.try_into().expect("the parser takes 16 bytes")),
    }
}

fn parse_key<'a>(
    reader: &mut Reader<'_>,
    body: &'a [u8],
    version: i16,
) -> Result<TopicKey<'a>, Malformed> {
    if has_topic_ids(version) {
        Ok(TopicKey::Id(&body[reader.uuid()?]))
    } else {
        Ok(TopicKey::Name(&body[reader.string(is_flexible(version))?]))
    }
}
