//! Record batches: headers, every codec, records, columns.
//!
//! ```text
//!  0                                  1 …
//!  1: with the right checksum, 2: …  · batches
//! ```
//!
//! Three readers read the same content: [`content::inspect`] before a batch is stored, [`content::walk`] for
//! stored bytes, and [`Records`] in the client. A batch that is stored has to be readable by all of them.

use std::ops::ControlFlow;

use txn_client::columns::{Columns, Parts};
use txn_log::builder::decode_marker;
use txn_log::compression::{self, CompressionError};
use txn_log::content::{self, ContentError, RecordHead};
use txn_log::opening::Reading;
use txn_log::record_rules::RecordRules;
use txn_protocol::batch::{self, BatchView, Batches, HEADER_BYTES};
use txn_protocol::records::Records;

use crate::seeds::{self, CODECS};

/// The most bytes of content.
const CONTENT_BYTES_MAX: usize = 1 << 20;
/// The largest piece of content beyond that: a block of lz4.
const PIECE_BYTES_MAX: usize = 4 << 20;

pub fn run(data: &[u8]) {
    let [flags, bytes @ ..] = data else {
        return;
    };
    let mut bytes = bytes.to_vec();
    if flags & 1 > 0 {
        seal_all(&mut bytes);
    }
    let mut seen = 0;
    for view in Batches::new(&bytes) {
        seen += view.bytes().len();
        one(&view);
    }
    assert!(seen <= bytes.len());
}

/// Gives every batch its right checksum, as anybody can.
fn seal_all(bytes: &mut [u8]) {
    let mut at = 0;
    while let Ok(size) = BatchView::parse(&bytes[at..]).map(|view| view.bytes().len()) {
        batch::seal(&mut bytes[at..at + size]);
        at += size;
    }
}

fn one(view: &BatchView<'_>) {
    let mut written = view.bytes()[..HEADER_BYTES].to_vec();
    view.header().write(&mut written);
    assert_eq!(
        written,
        view.bytes()[..HEADER_BYTES],
        "a header is written as it is read"
    );
    let is_valid = view.validate().is_ok();
    let _ = decode_marker(view.records());

    let mut opened = 0;
    let inspected = content::inspect(
        view,
        &RecordRules::NONE,
        CONTENT_BYTES_MAX,
        &mut opened,
        &mut 0,
    );
    assert!(
        opened <= CONTENT_BYTES_MAX + PIECE_BYTES_MAX,
        "{opened} bytes were opened"
    );

    let walked = walk(view);
    if let Ok(found) = &inspected {
        assert!(found.latest_ms >= -1);
        assert_eq!(
            walked,
            Some(view.record_count().max(0) as usize),
            "stored, and not readable"
        );
    }
    let Ok(codec) = view.codec() else {
        return;
    };
    let mut plain = Vec::new();
    let read = match compression::decompress(codec, view.records(), &mut plain, CONTENT_BYTES_MAX) {
        Ok(()) => {
            let records: Result<Vec<_>, _> = Records::new(&plain, view.record_count()).collect();
            records.ok().map(|records| records.len())
        }
        Err(CompressionError::TooLarge { .. } | CompressionError::Damaged { .. }) => None,
    };
    assert!(plain.len() <= CONTENT_BYTES_MAX);
    assert_eq!(walked, read, "two readers of the same records");
    if is_valid {
        columns(view, read);
    }
}

/// The records of a stored batch, if all of them can be read.
fn walk(view: &BatchView<'_>) -> Option<usize> {
    let mut count = 0;
    let mut opening = content::open(view, Reading::Lenient, CONTENT_BYTES_MAX).ok()?;
    let walked = content::walk(&mut opening, view.record_count(), &mut |_: &RecordHead| {
        count += 1;
        ControlFlow::Continue(())
    });
    match walked {
        Ok(()) => Some(count),
        Err(ContentError::Codec(_) | ContentError::Compression(_) | ContentError::Record(_)) => {
            None
        }
    }
}

/// A client's columns have the rows that its readers found.
fn columns(view: &BatchView<'_>, read: Option<usize>) {
    let parts = Parts {
        keys: true,
        values: true,
        headers: true,
    };
    let mut columns = Columns::new(parts, 0);
    let wanted = i64::MIN..i64::MAX;
    let pushed = columns.push_batch(view, &wanted, &mut Vec::new(), CONTENT_BYTES_MAX);
    match (pushed, read) {
        (Ok(()), read) => assert_eq!(Some(columns.rows), read),
        (Err(reason), Some(_)) => assert!(reason.contains("outside the batch"), "{reason}"),
        (Err(_), None) => {}
    }
    assert_eq!(columns.offsets.len(), 8 * columns.rows);
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for codec in CODECS {
        for records in [0, 1, 3, 40] {
            let batch = seeds::batch(codec, records, records % 2 == 1);
            seeds.push([&[1], &batch[..]].concat());
        }
        let two = [seeds::batch(codec, 2, false), seeds::batch(codec, 1, true)].concat();
        seeds.push([&[0], &two[..]].concat());
        if codec != batch::Codec::Snappy {
            seeds.push([&[1], &bomb(codec)[..]].concat()); // snappy's would be large
        }
    }
    seeds
}

/// A batch of one record whose value is larger than a reader allows.
fn bomb(codec: batch::Codec) -> Vec<u8> {
    let size = if codec == batch::Codec::None {
        1 << 10
    } else {
        CONTENT_BYTES_MAX + 1
    };
    let mut builder = txn_log::builder::BatchBuilder::new(codec);
    builder.push(seeds::TIME_MS, None, Some(&vec![0; size]), &[]);
    builder.seal().expect("the codecs have memory")
}
