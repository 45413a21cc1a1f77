//! Finds records by their timestamp.
//!
//! A batch is decompressed only up to the requested record, so a search needs little memory.
//! [`Budget`] bounds the content that all batches of one search yield: the timestamps of a client
//! may be wrong, so that every batch has to be opened and none has the record.

use std::ops::ControlFlow;

use txn_protocol::batch::BatchView;

use crate::compression::CompressionError;
use crate::content::{self, ContentError, RecordHead};
use crate::opening::Reading;

/// The most bytes that the batches of one search may yield: a fraction of a second.
const CONTENT_BYTES_MAX: usize = 32 << 20;

/// The content that one search may still open.
pub(crate) struct Budget {
    bytes: usize,
}

impl Budget {
    pub fn of_one_search() -> Self {
        Self {
            bytes: CONTENT_BYTES_MAX,
        }
    }
}

/// The end of a search of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Searched {
    /// (offset, timestamp) of the first record that is wanted.
    Found((i64, i64)),
    /// No record is wanted.
    Nothing,
    /// The budget is spent; the record at this offset was not looked at.
    GaveUp(i64),
}

/// Looks for the first record of a batch that is wanted by its offset and timestamp.
///
/// Records that cannot be read, though the batch's checksum is right, are passed over: no client
/// can read them either, and earlier versions stored batches as they were sent.
pub(crate) fn first_record(
    batch: &BatchView<'_>,
    budget: &mut Budget,
    mut is_wanted: impl FnMut(i64, i64) -> bool,
) -> Searched {
    let Ok(mut opening) = content::open(batch, Reading::Lenient, budget.bytes) else {
        return Searched::Nothing;
    };
    let mut searched = Searched::Nothing;
    let mut next_offset = batch.base_offset();
    let mut look = |record: &RecordHead| {
        let offset = batch.base_offset() + i64::from(record.offset_delta);
        let timestamp = if batch.is_log_append_time() {
            batch.max_timestamp()
        } else {
            batch.base_timestamp().wrapping_add(record.timestamp_delta)
        };
        next_offset = offset + 1;
        if is_wanted(offset, timestamp) {
            searched = Searched::Found((offset, timestamp));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    };
    let walked = content::walk(&mut opening, batch.record_count(), &mut look);
    budget.bytes = budget.bytes.saturating_sub(opening.opened());
    match walked {
        Ok(()) => searched,
        Err(ContentError::Compression(CompressionError::TooLarge { .. })) => {
            Searched::GaveUp(next_offset)
        }
        Err(_) => Searched::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::BatchBuilder;
    use txn_protocol::batch::Codec;

    const CODECS: [Codec; 5] = [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ];

    fn batch(codec: Codec, records: impl IntoIterator<Item = (i64, usize)>) -> Vec<u8> {
        let mut builder = BatchBuilder::new(codec);
        for (timestamp, bytes) in records {
            builder.push(timestamp, Some(b"key"), Some(&vec![0; bytes]), &[]);
        }
        builder.seal().unwrap()
    }

    fn since(bytes: &[u8], timestamp: i64, budget: &mut Budget) -> Searched {
        let batch = BatchView::parse(bytes).unwrap();
        first_record(&batch, budget, |_, found| found >= timestamp)
    }

    #[test]
    fn the_first_record_at_or_after_a_time_is_found_in_every_codec() {
        for codec in CODECS {
            let bytes = batch(codec, (0..100).map(|n| (n * 10, 1000)));
            for (timestamp, found) in [
                (0, Searched::Found((0, 0))),
                (501, Searched::Found((51, 510))),
                (990, Searched::Found((99, 990))),
                (991, Searched::Nothing),
            ] {
                let mut budget = Budget::of_one_search();
                assert_eq!(since(&bytes, timestamp, &mut budget), found, "{codec:?}");
            }
        }
    }

    #[test]
    fn what_lies_behind_the_record_is_not_opened() {
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let bytes = batch(codec, (0..2000).map(|n| (n, 1000)));
            let mut budget = Budget::of_one_search();
            since(&bytes, 3, &mut budget);
            let spent = CONTENT_BYTES_MAX - budget.bytes;
            assert!(spent <= 64 << 10, "{codec:?}: {spent} bytes");
        }
    }

    #[test]
    fn a_search_gives_up_where_its_budget_ends() {
        for codec in CODECS {
            let bytes = batch(codec, (0..1000).map(|n| (n, 1000)));
            let mut budget = Budget { bytes: 100_000 };
            let Searched::GaveUp(offset) = since(&bytes, 5000, &mut budget) else {
                panic!("{codec:?}: 100 KB of it are no megabyte");
            };
            assert!((0..=100).contains(&offset), "{codec:?}: {offset}");
            assert_eq!(
                since(&bytes, 5000, &mut budget),
                Searched::GaveUp(0),
                "nothing is left for another batch"
            );
        }
    }

    #[test]
    fn a_batch_that_is_cut_is_passed_over() {
        for codec in CODECS {
            let whole = batch(codec, (0..100).map(|n| (n, 1000)));
            let mut bytes = whole[..whole.len() / 2].to_vec();
            let length = i32::try_from(bytes.len() - 12).unwrap();
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
            let batch = BatchView::parse(&bytes).unwrap();
            let mut budget = Budget::of_one_search();
            let found = first_record(&batch, &mut budget, |_, _| false);
            assert_eq!(found, Searched::Nothing, "{codec:?}");
        }
    }
}
