//! Content opened piece by piece: accepted content, refused content, and the memory it takes.

use std::fs;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;

use proptest::prelude::*;
use txn_log::builder::BatchBuilder;
use txn_log::compression::{CompressionError, compress, decompress};
use txn_log::content::{self, Content, ContentError, RecordHead};
use txn_log::opening::{Opening, Reading};
use txn_log::record_rules::RecordRules;
use txn_protocol::batch::{BatchView, Codec, HEADER_BYTES};
use txn_protocol::records::Records;

const COMPRESSED: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

/// A batch of one codec around bytes of the caller's; its checksum is right.
fn around(codec: Codec, count: i32, records: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec);
    builder.push(1, None, None, &[]);
    let mut bytes = builder.seal().unwrap();
    bytes.truncate(HEADER_BYTES);
    bytes.extend_from_slice(records);
    let length = (bytes.len() - 12) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn inspect(batch: &[u8]) -> Result<Content, ContentError> {
    let batch = BatchView::parse(batch).unwrap();
    content::inspect(&batch, &RecordRules::NONE, usize::MAX, &mut 0, &mut 0)
}

/// Uncompressed records with keys, values and headers of these sizes.
fn records(sizes: &[(usize, usize)]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None);
    for (nth, &(key, value)) in sizes.iter().enumerate() {
        let (key, value) = (vec![nth as u8; key], vec![7; value]);
        builder.push(
            nth as i64,
            Some(&key),
            Some(&value),
            &[(b"h", Some(&value))],
        );
    }
    builder.seal().unwrap()[HEADER_BYTES..].to_vec()
}

fn packed(codec: Codec, content: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    compress(codec, content, &mut packed).unwrap();
    packed
}

fn linked_lz4(content: &[u8]) -> Vec<u8> {
    let info = lz4_flex::frame::FrameInfo::new()
        .block_size(lz4_flex::frame::BlockSize::Max64KB)
        .block_mode(lz4_flex::frame::BlockMode::Linked);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Content that no codec makes small, and whose parts refer to each other.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let mut content: Vec<u8> = (0..bytes / 2).map(|_| next()).collect();
    content.extend_from_within(..);
    content
}

#[test]
fn a_stream_cut_anywhere_is_refused() {
    for codec in COMPRESSED {
        let whole = packed(codec, &records(&[(3, 40), (5, 300)]));
        assert!(inspect(&around(codec, 2, &whole)).is_ok(), "{codec:?}");
        for end in 0..whole.len() {
            let cut = inspect(&around(codec, 2, &whole[..end]));
            assert!(cut.is_err(), "{codec:?} cut after {end} of {}", whole.len());
        }
    }
}

#[test]
fn bytes_that_are_no_stream_are_refused() {
    for codec in COMPRESSED {
        let plain = records(&[(3, 40)]);
        let refused = inspect(&around(codec, 1, &plain)).unwrap_err();
        let is_damage = matches!(
            refused,
            ContentError::Compression(CompressionError::Damaged { .. })
        );
        assert!(is_damage, "{codec:?}: {refused}");
    }
}

/// A frame of zstd's format that readers pass over.
fn skippable(bytes: u32) -> Vec<u8> {
    let mut frame = 0x184d_2a53_u32.to_le_bytes().to_vec();
    frame.extend_from_slice(&bytes.to_le_bytes());
    frame.resize(8 + bytes as usize, b's');
    frame
}

/// Whether Apache Kafka 4.2 takes these is known from asking it, and whether librdkafka 2 reads them.
#[test]
fn several_streams_are_taken_where_kafka_takes_them() {
    let content = records(&[(3, 40), (5, 300)]);
    let (first, second) = content.split_at(30);
    for (codec, is_joined) in [
        (Codec::Gzip, true),
        (Codec::Snappy, true),
        (Codec::Zstd, false),
    ] {
        let joined = [packed(codec, first), packed(codec, second)].concat();
        let told = inspect(&around(codec, 2, &joined)).unwrap();
        assert_eq!(
            (told.is_joined, told.bytes),
            (is_joined, content.len()),
            "{codec:?}"
        );
        let mut opened = Vec::new();
        decompress(codec, &joined, &mut opened, usize::MAX).unwrap();
        assert_eq!(opened, content, "{codec:?}");
    }
    let two_lz4 = [packed(Codec::Lz4, first), packed(Codec::Lz4, second)].concat();
    assert!(inspect(&around(Codec::Lz4, 2, &two_lz4)).is_err());
    for (codec, is_taken) in COMPRESSED.into_iter().zip([true, false, true, false]) {
        let followed = [packed(codec, &content), vec![0]].concat();
        let told = inspect(&around(codec, 2, &followed));
        assert_eq!(told.is_ok_and(|told| told.is_joined), is_taken, "{codec:?}");
    }
}

#[test]
fn skippable_frames_of_zstd_are_passed_over_wherever_they_are() {
    let content = records(&[(3, 40), (5, 300)]);
    let [first, second] = [&content[..30], &content[30..]].map(|part| packed(Codec::Zstd, part));
    let (empty, skipped) = (packed(Codec::Zstd, &[]), skippable(70_000));
    for frames in [
        [skipped.clone(), first.clone(), second.clone()],
        [first.clone(), skippable(0), second.clone()],
        [[first, second].concat(), empty, skipped],
    ] {
        let told = inspect(&around(Codec::Zstd, 2, &frames.concat())).unwrap();
        assert!(!told.is_joined && told.bytes == content.len());
    }
    assert!(inspect(&around(Codec::Zstd, 2, &skippable(5))).is_err());
}

#[test]
fn many_frames_are_held_against_the_cap_as_one_stream_is() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Zstd] {
        let many = packed(codec, &vec![0; 10_000]).repeat(100);
        let mut opened = Vec::new();
        let refused = decompress(codec, &many, &mut opened, 500_000).unwrap_err();
        assert!(
            matches!(refused, CompressionError::TooLarge { cap: 500_000 }),
            "{codec:?}"
        );
    }
}

#[test]
fn linked_lz4_blocks_are_read_and_not_stored() {
    let content = records(&[(3, 40), (70_000, 150_000)]);
    let linked = linked_lz4(&content);
    let refused = inspect(&around(Codec::Lz4, 2, &linked)).unwrap_err();
    assert!(refused.to_string().contains("depend on each other"));
    let mut opened = Vec::new();
    decompress(Codec::Lz4, &linked, &mut opened, usize::MAX).unwrap();
    assert_eq!(opened, content);
    let noise = noise(300_000);
    opened.clear();
    decompress(Codec::Lz4, &linked_lz4(&noise), &mut opened, usize::MAX).unwrap();
    assert_eq!(opened, noise);
}

#[test]
fn every_kind_of_lz4_frame_is_read() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let content = noise(300_000);
    for size in [
        BlockSize::Max64KB,
        BlockSize::Max256KB,
        BlockSize::Max1MB,
        BlockSize::Max4MB,
    ] {
        for has_sums in [false, true] {
            let info = FrameInfo::new()
                .block_size(size)
                .block_mode(BlockMode::Independent)
                .block_checksums(has_sums)
                .content_checksum(has_sums)
                .content_size(has_sums.then_some(content.len() as u64));
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(&content).unwrap();
            let mut frame = encoder.finish().unwrap();
            let opened = |frame: &[u8]| {
                let mut opened = Vec::new();
                decompress(Codec::Lz4, frame, &mut opened, usize::MAX).map(|()| opened)
            };
            assert_eq!(opened(&frame).unwrap(), content);
            let last = frame.len() - 1;
            frame[last] ^= 1; // of the content's checksum, or of the end mark
            assert!(opened(&frame).is_err());
        }
    }
}

#[test]
fn gzip_headers_with_names_and_comments_are_read() {
    let content = records(&[(3, 40)]);
    let builder = flate2::GzBuilder::new()
        .filename("f")
        .comment("c")
        .extra(vec![1, 2, 3]);
    let mut encoder = builder.write(Vec::new(), flate2::Compression::best());
    encoder.write_all(&content).unwrap();
    let packed = encoder.finish().unwrap();
    assert!(inspect(&around(Codec::Gzip, 1, &packed)).is_ok());
}

#[test]
fn a_zstd_window_of_the_highest_level_is_read_and_a_larger_one_refused() {
    for (window_log, is_read) in [(27, true), (28, false)] {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder
            .set_parameter(zstd::zstd_safe::CParameter::WindowLog(window_log))
            .unwrap();
        encoder.write_all(&records(&[(3, 40)])).unwrap();
        let packed = encoder.finish().unwrap();
        assert_eq!(
            inspect(&around(Codec::Zstd, 1, &packed)).is_ok(),
            is_read,
            "{window_log}"
        );
    }
}

#[test]
fn records_that_do_not_match_the_count_are_refused_compressed_or_not() {
    let content = records(&[(1, 1), (1, 1)]);
    for codec in [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ] {
        for (count, is_right) in [(1, false), (2, true), (3, false), (i32::MAX, false)] {
            let batch = around(codec, count, &packed(codec, &content));
            assert_eq!(
                inspect(&batch).is_ok(),
                is_right,
                "{codec:?} with count {count}"
            );
        }
    }
}

#[test]
fn a_record_whose_last_byte_does_not_fit_is_refused_wherever_it_lies() {
    // A key and a header reach over the bytes that are read at once.
    let content = records(&[(3, 40), (100_000, 100_000), (2, 2)]);
    for codec in [Codec::None, Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        assert!(inspect(&around(codec, 3, &packed(codec, &content))).is_ok());
        let mut longer = content.clone();
        let last = longer.len() - 5;
        longer[last] += 2; // the last header's value, one byte beyond its record
        let refused = inspect(&around(codec, 3, &packed(codec, &longer)));
        assert!(refused.is_err(), "{codec:?}");
    }
}

#[test]
fn a_walk_that_is_broken_off_opens_no_more() {
    let content = records(&[(1, 10_000); 100]);
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let packed = packed(codec, &content);
        let mut opening = Opening::new(codec, &packed, Reading::Lenient, usize::MAX);
        let mut seen = 0;
        let mut first = |_: &RecordHead| {
            seen += 1;
            ControlFlow::Break(())
        };
        content::walk(&mut opening, 100, &mut first).unwrap();
        assert_eq!(seen, 1);
        assert!(
            opening.opened() <= 128 << 10,
            "{codec:?}: {}",
            opening.opened()
        );
    }
}

#[test]
fn the_largest_time_is_found() {
    let mut builder = BatchBuilder::new(Codec::Lz4);
    builder.push(50, Some(b"k"), Some(b"v"), &[]);
    builder.push(20, None, Some(b"v"), &[]);
    builder.push(-1, None, None, &[]);
    builder.push(90, Some(b""), None, &[]);
    let told = inspect(&builder.seal().unwrap()).unwrap();
    assert_eq!(told.latest_ms, 90);
}

/// Bytes of zeros, compressed without being held.
fn bomb(codec: Codec, bytes: u64) -> Vec<u8> {
    let mut zeros = io::repeat(0).take(bytes);
    match codec {
        Codec::Gzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            io::copy(&mut zeros, &mut encoder).unwrap();
            encoder.finish().unwrap()
        }
        Codec::Zstd => zstd::stream::encode_all(zeros, 1).unwrap(),
        Codec::Lz4 => {
            let info = lz4_flex::frame::FrameInfo::new()
                .block_mode(lz4_flex::frame::BlockMode::Independent)
                .block_size(lz4_flex::frame::BlockSize::Max64KB);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            io::copy(&mut zeros, &mut encoder).unwrap();
            encoder.finish().unwrap()
        }
        Codec::Snappy => packed(codec, &vec![0; bytes as usize]),
        Codec::None => unreachable!(),
    }
}

/// The most memory this process has had, in bytes; Linux tells it.
fn memory_peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn a_bomb_is_opened_in_little_memory_and_refused_at_the_cap() {
    const CONTENT: u64 = 64 << 20;
    let bombs = COMPRESSED.map(|codec| (codec, bomb(codec, CONTENT)));
    let _ = fs::write("/proc/self/clear_refs", "5"); // forget the peak so far
    let before = memory_peak();
    for (codec, bomb) in &bombs {
        let mut opening = Opening::new(*codec, bomb, Reading::Strict, usize::MAX);
        loop {
            let bytes = opening.piece().unwrap().len();
            if bytes == 0 {
                break;
            }
            opening.take(bytes);
        }
        assert_eq!(opening.opened() as u64, CONTENT);
        let mut opening = Opening::new(*codec, bomb, Reading::Strict, 1 << 20);
        let refused = loop {
            match opening.piece().map(<[u8]>::len) {
                Ok(bytes) => opening.take(bytes),
                Err(error) => break error,
            }
        };
        assert!(matches!(
            refused,
            CompressionError::TooLarge { cap: 0x10_0000 }
        ));
        assert!(opening.opened() <= 2 << 20);
    }
    let grown = memory_peak() - before;
    assert!(
        grown < CONTENT / 4,
        "{grown} bytes for {CONTENT} bytes of content"
    );
}

/// Every record's key and head.
struct ContentSeen(Vec<u8>, Vec<(Vec<u8>, RecordHead)>);

impl content::Visitor for ContentSeen {
    fn key(&mut self, piece: &[u8]) {
        self.0.extend_from_slice(piece);
    }

    fn record(&mut self, record: &RecordHead) -> ControlFlow<()> {
        self.1.push((std::mem::take(&mut self.0), *record));
        ControlFlow::Continue(())
    }
}

fn sizes() -> impl Strategy<Value = Vec<(usize, usize)>> {
    let size = || prop_oneof![8 => 0usize..200, 1 => 60_000usize..140_000];
    prop::collection::vec((size(), size()), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_walk_sees_what_the_records_are(sizes in sizes(), codec in 0u8..5) {
        let codec = Codec::from_id(codec).unwrap();
        let content = records(&sizes);
        let batch = around(codec, sizes.len() as i32, &packed(codec, &content));
        let view = BatchView::parse(&batch).unwrap();
        let mut seen = ContentSeen(Vec::new(), Vec::new());
        let mut opening = content::open(&view, Reading::Strict, usize::MAX).unwrap();
        content::walk(&mut opening, view.record_count(), &mut seen).unwrap();
        let expected: Vec<_> = Records::new(&content, view.record_count())
            .map(|record| {
                let record = record.unwrap();
                let head = RecordHead {
                    offset_delta: record.offset_delta,
                    timestamp_delta: record.timestamp_delta,
                    has_key: record.key.is_some(),
                    has_value: record.value.is_some(),
                    bytes: seen.1[record.offset_delta as usize].1.bytes,
                };
                (record.key.unwrap().to_vec(), head)
            })
            .collect();
        prop_assert_eq!(seen.1, expected);
    }

    #[test]
    fn what_passes_is_read_by_the_plain_reader(
        sizes in prop::collection::vec((0usize..20, 0usize..20), 1..6),
        codec in 0u8..5,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        is_inside in any::<bool>(),
    ) {
        let codec = Codec::from_id(codec).unwrap();
        let mut content = records(&sizes);
        let mut packed_bytes = packed(codec, &content);
        let changed = if is_inside { &mut content } else { &mut packed_bytes };
        for (at, value) in changes {
            let at = at.index(changed.len());
            changed[at] = value;
        }
        if is_inside {
            packed_bytes = packed(codec, &content);
        }
        let batch = around(codec, sizes.len() as i32, &packed_bytes);
        let mut opened = Vec::new();
        let is_opened = decompress(codec, &packed_bytes, &mut opened, 1 << 20).is_ok();
        let is_read = is_opened
            && Records::new(&opened, sizes.len() as i32)
                .zip(0..)
                .all(|(record, nth)| record.is_ok_and(|record| record.offset_delta == nth));
        prop_assert!(is_read || inspect(&batch).is_err());
        prop_assert!(!is_read || inspect(&batch).is_ok() || !is_inside);
    }

    #[test]
    fn random_bytes_are_refused_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        codec in 1u8..5,
        count in 1i32..1000,
        has_magic in any::<bool>(),
    ) {
        let codec = Codec::from_id(codec).unwrap();
        let magic: &[u8] = match codec {
            Codec::Gzip => &[0x1f, 0x8b, 8],
            Codec::Snappy => &[0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1],
            Codec::Lz4 => &[0x04, 0x22, 0x4d, 0x18],
            _ => &[0x28, 0xb5, 0x2f, 0xfd],
        };
        let bytes = if has_magic { [magic, &bytes].concat() } else { bytes };
        let _ = inspect(&around(codec, count, &bytes));
        let mut opened = Vec::new();
        let _ = decompress(codec, &bytes, &mut opened, 1 << 16);
        prop_assert!(opened.len() <= 1 << 16);
    }
}
