//! A log's directory that holds any bytes: recovery, reads, `txn log verify`.
//!
//! ```text
//!  0       1 …
//!  flags · six files, each with a length of two bytes before it; the last has the rest
//! ```
//!
//! A log that opens is read to its end, takes a batch, is closed, and opens again with the same offsets.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use txn_log::builder::BatchBuilder;
use txn_log::inspect::{Check, Walk, WalkItem};
use txn_log::{OpenError, Origin, PartitionLog, Past, Settings};
use txn_protocol::batch::{self, BatchView, Codec};

use crate::memory;
use crate::rules::FuzzRules;
use crate::seeds;

/// The files, in their order in an input; the segment's own comes last.
const FILES: [&str; 6] = [
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "leader-epoch-checkpoint",
    "00000000000000000004.snapshot",
    "00000000000000000000.log",
];
const CLIENT: Origin = Origin::Client {
    transaction_version: 2,
    transactional_id_hash: None,
};
/// Steps of a look at a small file.
const STEPS_MAX: usize = 10_000;

pub fn run(data: &[u8]) {
    let [flags, rest @ ..] = data else {
        return;
    };
    let place = memory::directory();
    let directory = place.path().join("t-0");
    fs::create_dir(&directory).expect("a directory in memory");
    write_files(&directory, rest, flags & 1 > 0);
    look(&directory);
    let settings = Settings {
        is_compacted: flags & 16 > 0,
        segment_bytes: 1 << 12,
        ..Settings::default()
    };
    let past = Past {
        was_clean: flags & 2 > 0,
        power_failed: flags & 2 == 0 && flags & 4 > 0,
        was_left_by_kafka: flags & 8 > 0,
        cleaned_end: (flags & 16 > 0).then_some(0),
        ..Past::default()
    };
    let Ok(log) = open(&directory, settings, past) else {
        return; // refused by name
    };
    let state = log.state();
    assert!(state.log_start_offset <= state.log_end_offset);
    read_all(&log, past.was_clean);
    let mut builder = BatchBuilder::new(Codec::None);
    builder.push(seeds::TIME_MS, Some(b"key"), Some(b"value"), &[]); // compacted logs want keys
    builder.push(seeds::TIME_MS, Some(b"key"), None, &[]);
    let mut next = builder.seal().expect("nothing is compressed");
    let appended = match log.append(CLIENT, &mut next) {
        Ok(appended) => appended,
        Err(error) => {
            assert!(past.was_clean, "a recovered log takes no batch: {error:?}");
            return; // files that were trusted, and are found out
        }
    };
    assert_eq!(appended.base_offset, state.log_end_offset);
    let end = log.state().log_end_offset;
    assert_eq!(end, state.log_end_offset + 2);
    log.close().expect("memory is not full");
    drop(log);
    let closed = Past {
        was_clean: true,
        ..past
    };
    if !past.was_clean {
        let again =
            open(&directory, settings, closed).expect("what was recovered and closed opens");
        assert_eq!(again.state().log_end_offset, end);
        assert_eq!(again.state().log_start_offset, state.log_start_offset);
        read_all(&again, false);
    }
}

fn open(directory: &Path, settings: Settings, past: Past) -> Result<PartitionLog, OpenError> {
    let rules = Arc::new(FuzzRules::default());
    PartitionLog::open(directory.to_owned(), rules, settings, None, past)
}

fn write_files(directory: &Path, mut bytes: &[u8], is_sealed: bool) {
    for name in FILES {
        let size = match bytes {
            [high, low, ..] if name != FILES[5] => {
                usize::from(u16::from_be_bytes([*high, *low])) % 512 + 2
            }
            _ => bytes.len(),
        };
        let (content, rest) = bytes.split_at(size.min(bytes.len()));
        let mut content = content.to_vec();
        if name == FILES[5] {
            if is_sealed {
                seal_all(&mut content);
            }
        } else {
            content.drain(..content.len().min(2));
        }
        if !content.is_empty() || name == FILES[5] {
            fs::write(directory.join(name), content).expect("memory is not full");
        }
        bytes = rest;
    }
}

fn seal_all(bytes: &mut [u8]) {
    let mut at = 0;
    while let Ok(size) = BatchView::parse(&bytes[at..]).map(|view| view.bytes().len()) {
        batch::seal(&mut bytes[at..at + size]);
        at += size;
    }
}

/// Looks at the files as `txn log verify` and `txn log dump` do.
fn look(directory: &Path) {
    let path = |at: usize| -> PathBuf { directory.join(FILES[at]) };
    let content = |at: usize| fs::read(path(at)).unwrap_or_default();
    let mut walk = Walk::open(&path(5), 0, Some(0)).expect("it is there");
    for step in 0.. {
        assert!(step < STEPS_MAX, "the walk does not end");
        if walk.position() == walk.end() {
            break;
        }
        let mut seen = 0;
        let walked = walk.advance(1, |item| {
            seen += match item {
                WalkItem::Batch { batch, .. } => batch.bytes().len() as u64,
                WalkItem::Damage(damage) => damage.end - damage.position,
            };
        });
        walked.expect("memory can be read");
        assert!(seen > 0);
    }
    let mut check = Check::open(&path(5), 0, &content(0), &content(1), true).expect("it is there");
    for step in 0.. {
        assert!(step < STEPS_MAX, "the check does not end");
        if check.position() == check.end() {
            break;
        }
        check.advance(1 << 10).expect("memory can be read");
    }
}

/// Reads batch after batch; only files that were trusted may turn out damaged.
fn read_all(log: &PartitionLog, may_be_damaged: bool) {
    let state = log.state();
    let mut next = state.log_start_offset;
    while next < state.log_end_offset {
        let read = match log.read(next, 1 << 20) {
            Ok(read) => read,
            Err(error) => {
                assert!(may_be_damaged, "a recovered log cannot be read: {error}");
                return;
            }
        };
        let _ = log.aborted_in(next, state.log_end_offset);
        let Some(last) = batch::Batches::new(&read).last() else {
            return; // a compacted tail
        };
        assert!(last.last_offset() >= next, "a read goes back");
        next = last.last_offset() + 1;
    }
    let _ = log.offset_for_timestamp(seeds::TIME_MS, state.log_end_offset);
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut batches = Vec::new();
    let mut offset = 0;
    for (at, codec) in seeds::CODECS.into_iter().enumerate() {
        let mut one = seeds::batch(codec, at + 1, false);
        batch::stamp_offset(&mut one, offset, 0);
        offset += at as i64 + 1;
        batches.push(one);
    }
    let log = batches.concat();
    let first = batches[0].len() as u32;
    let file = |content: &[u8]| {
        let size = (content.len() as u16).to_be_bytes();
        [&size, content].concat()
    };
    let index = [&2_u32.to_be_bytes()[..], &first.to_be_bytes()].concat();
    let times = [
        &(seeds::TIME_MS + 1).to_be_bytes()[..],
        &2_u32.to_be_bytes(),
    ]
    .concat();
    let epochs = b"0\n1\n0 0\n";
    let mut seeds = Vec::new();
    for flags in 0..32 {
        let mut seed = vec![flags];
        for content in [&index[..], &times, &[0; 34], epochs, b"snapshot"] {
            seed.extend(file(content));
        }
        seed.extend(&log);
        seeds.push(seed);
        let bare = [&[flags][..], &[0; 10], &log[..log.len() - 1]].concat();
        seeds.push(bare);
    }
    seeds
}
