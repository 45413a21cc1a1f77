//! The last offset of every key, in bounded memory.
//!
//! A flat table of 24-byte entries: 128 bits of hash, and the offset plus one (0: free). Keys
//! themselves are not kept, so two keys with the same hash would be taken for one and a record
//! be lost: the hash is two SipHash-1-3 with random keys of their own, whose collision nobody
//! can provoke and chance will not (2^-69 for a thousand million keys).
//!
//! Open addressing, linear probing. Kafka's `SkimpyOffsetMap` has entries of the same size.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Bytes of memory per entry.
pub(crate) const ENTRY_BYTES: usize = 24;

type Entry = [u64; 3];

/// Key → last offset.
pub(crate) struct OffsetMap {
    entries: Vec<Entry>,
    hashers: [RandomState; 2],
    len: usize,
    len_max: usize,
}

impl OffsetMap {
    /// A map of at most `bytes_max` bytes, filled to at most `load_factor`, that need not take
    /// more than `keys` keys.
    ///
    /// It takes at least one key, however small the memory.
    pub fn new(bytes_max: usize, load_factor: f64, keys: u64) -> Self {
        let ample = usize::try_from(keys.saturating_mul(2)).unwrap_or(usize::MAX);
        let slots = (bytes_max / ENTRY_BYTES).min(ample).max(2);
        #[allow(clippy::cast_precision_loss)] // a share, not a count
        let share = (slots as f64 * load_factor) as usize;
        Self {
            entries: vec![[0; 3]; slots],
            hashers: [RandomState::new(), RandomState::new()],
            len: 0,
            len_max: share.clamp(1, slots - 1),
        }
    }

    /// Notes that the key stands at `offset`; false if the key is new and the map is full.
    pub fn put(&mut self, key: &[u8], offset: i64) -> bool {
        let hash = self.hash(key);
        let slot = self.slot_of(hash);
        if self.entries[slot][2] == 0 {
            if self.len == self.len_max {
                return false;
            }
            self.len += 1;
        }
        self.entries[slot] = [hash[0], hash[1], offset as u64 + 1];
        true
    }

    /// The last offset noted for a key.
    pub fn get(&self, key: &[u8]) -> Option<i64> {
        let slot = self.slot_of(self.hash(key));
        self.entries[slot][2]
            .checked_sub(1)
            .map(|offset| offset as i64)
    }

    /// How many keys are in.
    pub fn len(&self) -> usize {
        self.len
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        [self.hashers[0].hash_one(key), self.hashers[1].hash_one(key)]
    }

    /// The slot that holds a hash, or the free one it belongs to; one is always free.
    fn slot_of(&self, hash: [u64; 2]) -> usize {
        let slots = self.entries.len();
        let mut slot = (hash[0] % slots as u64) as usize;
        while self.entries[slot][2] != 0 && self.entries[slot][..2] != hash {
            slot = if slot + 1 == slots { 0 } else { slot + 1 };
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_entry_has_the_size_kafka_reckons_with() {
        assert_eq!(size_of::<Entry>(), ENTRY_BYTES);
    }

    #[test]
    fn the_last_offset_of_a_key_counts() {
        let mut map = OffsetMap::new(1 << 20, 0.9, 100);
        assert!(map.put(b"a", 0));
        assert!(map.put(b"b", 1));
        assert!(map.put(b"a", 2));
        assert_eq!(map.get(b"a"), Some(2));
        assert_eq!(map.get(b"b"), Some(1));
        assert_eq!(map.get(b"c"), None);
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn a_full_map_takes_known_keys_only() {
        let mut map = OffsetMap::new(10 * ENTRY_BYTES, 0.5, u64::MAX);
        for key in 0..5u8 {
            assert!(map.put(&[key], i64::from(key)));
        }
        assert!(!map.put(&[5], 5));
        assert!(map.put(&[4], 6));
        assert_eq!(map.get(&[4]), Some(6));
        assert_eq!(map.get(&[5]), None);
    }

    #[test]
    fn the_smallest_map_takes_one_key() {
        let mut map = OffsetMap::new(0, 0.9, 0);
        assert!(map.put(b"a", 7));
        assert!(!map.put(b"b", 8));
        assert_eq!(map.get(b"a"), Some(7));
    }

    #[test]
    fn few_keys_take_little_memory() {
        let map = OffsetMap::new(128 << 20, 0.9, 100);
        assert_eq!(map.entries.len(), 200);
    }

    proptest! {
        #[test]
        fn it_answers_as_a_plain_map_does(puts in prop::collection::vec((0..200u16, 0..1000i64), 0..400)) {
            let mut map = OffsetMap::new(1 << 20, 0.9, puts.len() as u64);
            let mut plain: HashMap<u16, i64> = HashMap::new();
            for (key, offset) in puts {
                prop_assert!(map.put(&key.to_be_bytes(), offset));
                plain.insert(key, offset);
            }
            for key in 0..200u16 {
                prop_assert_eq!(map.get(&key.to_be_bytes()), plain.get(&key).copied());
            }
        }
    }
}
