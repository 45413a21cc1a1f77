//! Chooses the partition of a row: by the hash of its key, as Java's producer does.
//!
//! Rows of one key must meet in one partition from any writer, so the hash is Kafka's murmur2 to
//! the bit. Rows without a key go to one partition until it has a batch's worth, then to the next.
//! Spreading row by row would only make many small batches.
//!
//! Sources: Apache Kafka `Utils.murmur2` and `BuiltInPartitioner` (behaviour; KIP-480, KIP-794).

use std::hash::{BuildHasher, RandomState};

const SEED: u32 = 0x9747_b28c;
const MULTIPLIER: u32 = 0x5bd1_e995;

/// Kafka's murmur2: 32 bits, its own seed, signed.
#[must_use]
pub fn murmur2(bytes: &[u8]) -> i32 {
    let mut hash = SEED ^ bytes.len() as u32;
    let words = bytes.chunks_exact(4);
    let tail = words.remainder();
    for word in words {
        let word = u32::from_le_bytes(word.try_into().expect("a chunk of four"));
        let mut mixed = word.wrapping_mul(MULTIPLIER);
        mixed = (mixed ^ (mixed >> 24)).wrapping_mul(MULTIPLIER);
        hash = hash.wrapping_mul(MULTIPLIER) ^ mixed;
    }
    if !tail.is_empty() {
        let last = tail
            .iter()
            .rev()
            .fold(0, |word, &byte| (word << 8) | u32::from(byte));
        hash = (hash ^ last).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(MULTIPLIER);
    (hash ^ (hash >> 15)) as i32
}

/// The partition of a key among `count`: the hash without its sign bit, modulo `count`.
#[must_use]
pub fn partition_of(key: &[u8], count: i32) -> i32 {
    (murmur2(key) & i32::MAX) % count
}

/// Where rows without a key go.
#[derive(Clone, Copy, Debug)]
pub struct InTurn {
    partition: i32,
    bytes: usize,
}

/// Bytes that one partition gets before it is the next one's turn: Java's default `batch.size`.
const TURN_BYTES: usize = 16 << 10;

impl InTurn {
    /// Starts at any of `count` partitions, so that many short-lived writers do not all choose the first.
    #[must_use]
    pub fn new(count: i32) -> Self {
        let partition = (RandomState::new().hash_one(count) % count as u64) as i32;
        Self {
            partition,
            bytes: 0,
        }
    }

    /// The partition of the next row, which has `bytes`, among `count`.
    pub fn next(&mut self, bytes: usize, count: i32) -> i32 {
        if self.bytes >= TURN_BYTES {
            *self = Self {
                partition: (self.partition + 1) % count,
                bytes: 0,
            };
        }
        self.bytes += bytes;
        self.partition
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur2_gives_the_values_of_kafkas_own_tests() {
        // UtilsTest.testMurmur2 of Apache Kafka.
        let known: [(&[u8], i32); 7] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (
                b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            (b"abc", 479_470_107),
            (b"", 275_646_681),
        ];
        assert_eq!(
            known.map(|(key, _)| murmur2(key)),
            known.map(|(_, hash)| hash)
        );
    }

    #[test]
    fn the_sign_is_dropped_before_the_remainder() {
        assert_eq!(
            partition_of(b"21", 7),
            (-973_932_308_i64).rem_euclid(1 << 31) as i32 % 7
        );
    }

    #[test]
    fn rows_without_a_key_visit_every_partition() {
        let mut in_turn = InTurn::new(3);
        let mut seen: Vec<i32> = (0..6).map(|_| in_turn.next(TURN_BYTES, 3)).collect();
        let first = seen[0];
        assert_eq!(
            seen.iter()
                .map(|p| (p - first).rem_euclid(3))
                .collect::<Vec<_>>(),
            [0, 1, 2, 0, 1, 2]
        );
        seen.dedup();
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn small_rows_stay_together() {
        let mut in_turn = InTurn::new(8);
        let first = in_turn.next(100, 8);
        assert!((0..100).all(|_| in_turn.next(100, 8) == first));
    }
}
