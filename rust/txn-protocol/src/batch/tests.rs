//! Tests of batches and their headers.

use super::*;
use proptest::prelude::*;

fn headers() -> impl Strategy<Value = Header> {
    let places = (
        any::<i64>(),
        49_i32..,
        any::<i32>(),
        any::<u32>(),
        any::<i16>(),
    );
    let times = (any::<i32>(), any::<i64>(), any::<i64>());
    let producers = (any::<i64>(), any::<i16>(), any::<i32>(), any::<i32>());
    (places, times, producers).prop_map(|(places, times, producers)| Header {
        base_offset: places.0,
        length: places.1,
        leader_epoch: places.2,
        crc: places.3,
        attributes: places.4,
        last_offset_delta: times.0,
        base_timestamp: times.1,
        max_timestamp: times.2,
        producer_id: producers.0,
        producer_epoch: producers.1,
        base_sequence: producers.2,
        record_count: producers.3,
    })
}

/// The bytes that Kafka's layout gives these fields.
#[test]
fn a_header_has_every_field_at_its_place() {
    let bytes = empty(5, 8, 2);
    #[rustfmt::skip]
    let golden = [
        0, 0, 0, 0, 0, 0, 0, 5,  0, 0, 0, 49,  0, 0, 0, 2,  2,
        bytes[17], bytes[18], bytes[19], bytes[20],  0, 0,  0, 0, 0, 2,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff,  0xff, 0xff, 0xff, 0xff,  0, 0, 0, 0,
    ];
    assert_eq!(bytes, golden);
    assert_eq!(checksum(&bytes), crc32c::crc32c(&bytes[21..]));
    assert_eq!(BatchView::parse(&bytes).unwrap().validate(), Ok(()));
}

#[test]
fn the_checksum_covers_the_producer_and_not_the_place() {
    let mut bytes = empty(5, 8, 2);
    stamp_offset(&mut bytes, 100, 7);
    assert_eq!(BatchView::parse(&bytes).unwrap().validate_crc(), Ok(()));
    stamp_producer(&mut bytes, 42, 3);
    stamp_sequence(&mut bytes, 9);
    assert!(BatchView::parse(&bytes).unwrap().validate_crc().is_err());
    seal(&mut bytes);
    let view = BatchView::parse(&bytes).unwrap();
    assert_eq!(view.validate_crc(), Ok(()));
    assert_eq!((view.base_offset(), view.leader_epoch()), (100, 7));
    assert_eq!(
        (
            view.producer_id(),
            view.producer_epoch(),
            view.base_sequence()
        ),
        (42, 3, 9)
    );
}

#[test]
fn attributes_are_the_bits_of_the_protocol() {
    assert_eq!(attributes(Codec::Zstd, true, false), 0x14);
    assert_eq!(attributes(Codec::None, true, true), 0x30);
    assert_eq!(with_delete_horizon(0x10), 0x50);
    assert_eq!(without_content(0x54), 0x10);
}

proptest! {
    #[test]
    fn a_header_comes_back_as_it_was_written(header in headers()) {
        let mut bytes = [0; HEADER_BYTES];
        header.write(&mut bytes);
        prop_assert_eq!(Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn hostile_bytes_are_parsed_or_refused_and_never_a_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        is_of_format_2 in any::<bool>(),
        length in -1..150_i32,
    ) {
        if is_of_format_2 && bytes.len() > 16 {
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
            bytes[16] = 2;
        }
        if let Ok(view) = BatchView::parse(&bytes) {
            prop_assert!(view.bytes().len() >= HEADER_BYTES);
            prop_assert!(view.validate().is_err());
        }
        prop_assert!(Batches::new(&bytes).count() <= 3);
    }
}
