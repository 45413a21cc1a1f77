//! The batches that are sent: the same bytes again and again, with a sequence that moves on.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use txn_client::messages::transactions::ProducerIdAndEpoch;
use txn_client::messages::{PRODUCE, produce};
use txn_log::builder::BatchBuilder;
use txn_protocol::batch::{self, Codec, Header};

use crate::arguments::Failure;
use crate::connection::{BenchConnection, head};

/// The bytes after the batch in a Produce of one: no tags of the partition, the topic, the request.
const TAIL: [u8; 3] = [0; 3];

/// One Produce request with one batch.
pub struct Load {
    head: Vec<u8>,
    batch: Vec<u8>,
    records: i32,
    sequence: i32,
    /// Where in an answer the partition's error code stands.
    error_at: usize,
}

impl Load {
    /// Prepares a batch of at most `batch_bytes`, at least one record.
    pub fn new(
        topic: &str,
        partition: i32,
        transactional_id: Option<&str>,
        record_bytes: usize,
        batch_bytes: usize,
        records_max: i32,
    ) -> Self {
        let batch = batch(
            record_bytes,
            batch_bytes,
            records_max,
            transactional_id.is_some(),
        );
        let header = Header::parse(&batch).expect("a whole header");
        let part = produce::PartitionBatch {
            topic,
            partition,
            batch: &batch,
        };
        let mut pieces = produce::encode(head(PRODUCE), transactional_id, 30_000, &[part]);
        let head = pieces.swap_remove(0);
        Self {
            head,
            batch,
            records: header.record_count(),
            sequence: 0,
            // correlation id, tags; array of topics; name; array of partitions; index
            error_at: 4 + 1 + 1 + 1 + topic.len() + 1 + 4,
        }
    }

    /// Makes the batch one of this producer, from its first sequence on.
    pub fn begin(&mut self, (producer_id, producer_epoch): ProducerIdAndEpoch) {
        batch::stamp_producer(&mut self.batch, producer_id, producer_epoch);
        self.sequence = 0;
    }

    /// Sends the batch as the producer's next.
    pub fn send(&mut self, connection: &mut BenchConnection) -> io::Result<()> {
        batch::stamp_sequence(&mut self.batch, self.sequence);
        batch::seal(&mut self.batch);
        connection.send(&mut self.head, &self.batch, &TAIL)?;
        let next = i64::from(self.sequence) + i64::from(self.records);
        self.sequence = (next % (1 << 31)) as i32;
        Ok(())
    }

    /// Takes the last `send` back: the next sends the same batch again.
    pub fn unsend(&mut self) {
        self.sequence -= self.records;
    }

    /// Receives the answer to the oldest `send` and returns its error code.
    pub fn answer(&self, connection: &mut BenchConnection) -> io::Result<i16> {
        let answer = connection.receive()?;
        let code = answer.get(self.error_at..).and_then(<[u8]>::first_chunk);
        code.map(|code| i16::from_be_bytes(*code))
            .ok_or_else(|| io::Error::other("the answer to Produce is too short"))
    }

    /// Like `answer`, for callers to whom only 0 will do.
    pub fn confirm(&self, connection: &mut BenchConnection) -> Result<(), Failure> {
        match self.answer(connection)? {
            0 => Ok(()),
            code => Err(format!("Produce was answered with error {code}").into()),
        }
    }

    /// Bytes of the batch.
    pub fn bytes(&self) -> usize {
        self.batch.len()
    }

    /// Records of the batch.
    pub fn records(&self) -> i32 {
        self.records
    }
}

/// A batch of records whose values have `record_bytes` bytes that do not compress.
pub fn batch(
    record_bytes: usize,
    batch_bytes: usize,
    records_max: i32,
    is_transactional: bool,
) -> Vec<u8> {
    let now_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64);
    let mut builder = BatchBuilder::new(Codec::None);
    builder.is_transactional = is_transactional;
    let mut noise = 1_u64;
    let mut value = vec![0; record_bytes];
    loop {
        for byte in &mut value {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = (noise >> 56) as u8;
        }
        builder.push(now_ms, None, Some(&value), &[]);
        // The bytes of a record beyond its value: lengths, attributes, deltas, counts.
        let next_bytes = builder.size() + record_bytes + 16;
        if next_bytes > batch_bytes || builder.record_count() >= records_max {
            return builder.seal().expect("nothing is compressed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn_protocol::batch::BatchView;

    #[test]
    fn a_batch_is_as_full_as_it_may_be_and_sound() {
        let bytes = batch(100, 64 << 10, i32::MAX, false);
        assert!((65_000..=64 << 10).contains(&bytes.len()));
        let view = BatchView::parse(&bytes).unwrap();
        assert_eq!(view.validate(), Ok(()));
        assert_eq!(view.record_count() - 1, view.last_offset_delta());
    }

    #[test]
    fn a_batch_holds_at_least_one_record_and_no_more_than_allowed() {
        let count = |bytes: &[u8]| BatchView::parse(bytes).unwrap().record_count();
        assert_eq!(count(&batch(100, 0, i32::MAX, false)), 1);
        assert_eq!(count(&batch(100, 64 << 10, 10, false)), 10);
    }
}
