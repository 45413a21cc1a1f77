//! Splits a batch that a node refused for its size.
//!
//! The halves have the sequences of the whole, so the batches behind it keep theirs. A half that is
//! too large is split again; a single record is given up.
//!
//! Source: Java's producer, `RecordAccumulator.splitAndReenqueue`.

use std::sync::Arc;

use txn_log::builder::BatchBuilder;
use txn_log::compression::decompress;
use txn_protocol::batch::{BatchView, Codec};
use txn_protocol::records::Records;

use super::accumulator::{Batch, Content, Partition, Record, Tracked, sequence_after};

/// One half of a batch.
struct Half {
    bytes: Arc<Vec<u8>>,
    records: u32,
    /// As `Batch::bytes` counts them.
    weight: usize,
    record_bytes_max: usize,
}

impl Partition {
    /// Splits a batch in flight in two; `number` numbers the second. False for a single record.
    ///
    /// If an earlier attempt was stored after all, the halves are refused as a gap, and given up.
    pub(crate) fn split(&mut self, batch: u64, number: &mut u64) -> bool {
        let Some(index) = self.queue.iter().position(|each| each.number == batch) else {
            return false;
        };
        let whole = &self.queue[index];
        let (Some((sequence, place)), Content::Sealed(bytes)) = (whole.sequence, &whole.content)
        else {
            return false;
        };
        if whole.records < 2 {
            return false;
        }
        let count = whole.records / 2;
        let Some((first, second)) = halves(bytes, count as usize, sequence) else {
            return false;
        };
        // Every batch sent after it is one place further from the oldest.
        for later in self.queue.iter_mut().skip(index + 1) {
            if let Some((_, place)) = &mut later.sequence {
                *place += 1;
            }
        }
        self.next_place += 1;
        self.in_flight -= 1;
        *number += 1;
        let whole = self.queue.remove(index).expect("it was found");
        let (before, after): (Vec<Tracked>, Vec<Tracked>) = whole
            .tracked
            .iter()
            .partition(|record| record.index < count);
        let after = after.into_iter().map(|record| Tracked {
            index: record.index - count,
            ..record
        });
        let rest = Batch {
            number: *number,
            content: Content::Sealed(second.bytes),
            records: second.records,
            bytes: whole.bytes - first.weight.min(whole.bytes),
            record_bytes_max: second.record_bytes_max,
            tracked: after.collect(),
            created: whole.created,
            sequence: Some((sequence_after(sequence, count), place + 1)),
            is_in_flight: false,
            may_be_stored: whole.may_be_stored,
            is_closed: true,
        };
        let head = Batch {
            content: Content::Sealed(first.bytes),
            records: first.records,
            bytes: whole.bytes - rest.bytes,
            record_bytes_max: first.record_bytes_max,
            tracked: before,
            is_in_flight: false,
            ..whole
        };
        self.queue.insert(index, rest);
        self.queue.insert(index, head);
        true
    }
}

/// The first `count` records of a batch, and the others, under its identity.
fn halves(bytes: &[u8], count: usize, sequence: i32) -> Option<(Half, Half)> {
    let batch = BatchView::parse(bytes).ok()?;
    let header = *batch.header();
    let codec = header.codec().ok()?;
    let mut opened = Vec::new();
    let records = if codec == Codec::None {
        batch.records()
    } else {
        decompress(codec, batch.records(), &mut opened, usize::MAX).ok()?;
        &opened
    };
    let builder = |sequence| {
        let mut builder = BatchBuilder::new(codec);
        (builder.producer_id, builder.producer_epoch) = (header.producer_id, header.producer_epoch);
        builder.base_sequence = sequence;
        builder.is_transactional = header.is_transactional();
        (builder, 0_u32, 0_usize, 0_usize)
    };
    let mut first = builder(sequence);
    let mut second = builder(sequence_after(sequence, count as u32));
    for (index, record) in Records::new(records, header.record_count).enumerate() {
        let record = record.ok()?;
        let headers: Vec<_> = record.headers.collect();
        let record = Record {
            key: record.key,
            value: record.value,
            headers: &headers,
            timestamp_ms: header.base_timestamp.wrapping_add(record.timestamp_delta),
            delivery: None,
        };
        let (builder, records, weight, max) = if index < count {
            &mut first
        } else {
            &mut second
        };
        builder.push(
            record.timestamp_ms,
            record.key,
            record.value,
            record.headers,
        );
        *records += 1;
        *weight += record.bytes();
        let content = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
        *max = (*max).max(content);
    }
    let half =
        |(mut builder, records, weight, record_bytes_max): (BatchBuilder, u32, usize, usize)| {
            let bytes = builder.seal().ok().map(Arc::new)?;
            Some(Half {
                bytes,
                records,
                weight,
                record_bytes_max,
            })
        };
    Some((half(first)?, half(second)?))
}
