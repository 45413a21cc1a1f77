//! The last offset of every key, in bounded memory.
//!
//! A flat table of 24-byte entries: 128 bits of hash, and the offset plus one (0: free). Keys
//! themselves are not kept, so two keys with the same hash would be taken for one and a record
//! be lost: the hash is two SipHash-1-3 with random keys of their own, whose collision nobody
//! can provoke and chance will not (2^-69 for a thousand million keys).
//!
//! A key may come in pieces ([`KeyHasher`]).
//!
//! Open addressing, linear probing. Kafka's `SkimpyOffsetMap` has entries of the same size.

use std::collections::hash_map::{DefaultHasher, RandomState};
use std::hash::{BuildHasher, Hasher};

/// Bytes of memory per entry.
pub(crate) const ENTRY_BYTES: usize = 24;

type MapEntry = [u64; 3];

/// The hash of a key, as its bytes come.
#[derive(Clone)]
pub(crate) struct KeyHasher([DefaultHasher; 2]);

impl KeyHasher {
    /// Some bytes of the key.
    pub fn write(&mut self, piece: &[u8]) {
        self.0.iter_mut().for_each(|hasher| hasher.write(piece));
    }

    fn finish(&self) -> [u64; 2] {
        [self.0[0].finish(), self.0[1].finish()]
    }
}

/// Key → last offset.
pub(crate) struct OffsetMap {
    entries: Vec<MapEntry>,
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
    pub fn put(&mut self, key: &KeyHasher, offset: i64) -> bool {
        let hash = key.finish();
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
    pub fn get(&self, key: &KeyHasher) -> Option<i64> {
        let slot = self.slot_of(key.finish());
        self.entries[slot][2]
            .checked_sub(1)
            .map(|offset| offset as i64)
    }

    /// Number of keys in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// A hasher for a key of which nothing has come yet.
    pub fn hasher(&self) -> KeyHasher {
        KeyHasher([
            self.hashers[0].build_hasher(),
            self.hashers[1].build_hasher(),
        ])
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

    fn hashed(map: &OffsetMap, key: &[u8]) -> KeyHasher {
        let mut hasher = map.hasher();
        hasher.write(key);
        hasher
    }

    fn put(map: &mut OffsetMap, key: &[u8], offset: i64) -> bool {
        let key = hashed(map, key);
        map.put(&key, offset)
    }

    fn get(map: &OffsetMap, key: &[u8]) -> Option<i64> {
        map.get(&hashed(map, key))
    }

    #[test]
    fn an_entry_has_the_size_kafka_reckons_with() {
        assert_eq!(size_of::<MapEntry>(), ENTRY_BYTES);
    }

    #[test]
    fn the_last_offset_of_a_key_counts() {
        let mut map = OffsetMap::new(1 << 20, 0.9, 100);
        assert!(put(&mut map, b"a", 0));
        assert!(put(&mut map, b"b", 1));
        assert!(put(&mut map, b"a", 2));
        assert_eq!(get(&map, b"a"), Some(2));
        assert_eq!(get(&map, b"b"), Some(1));
        assert_eq!(get(&map, b"c"), None);
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn a_full_map_takes_known_keys_only() {
        let mut map = OffsetMap::new(10 * ENTRY_BYTES, 0.5, u64::MAX);
        for key in 0..5u8 {
            assert!(put(&mut map, &[key], i64::from(key)));
        }
        assert!(!put(&mut map, &[5], 5));
        assert!(put(&mut map, &[4], 6));
        assert_eq!(get(&map, &[4]), Some(6));
        assert_eq!(get(&map, &[5]), None);
    }

    #[test]
    fn the_smallest_map_takes_one_key() {
        let mut map = OffsetMap::new(0, 0.9, 0);
        assert!(put(&mut map, b"a", 7));
        assert!(!put(&mut map, b"b", 8));
        assert_eq!(get(&map, b"a"), Some(7));
    }

    #[test]
    fn few_keys_take_little_memory() {
        let map = OffsetMap::new(128 << 20, 0.9, 100);
        assert_eq!(map.entries.len(), 200);
    }

    proptest! {
        #[test]
        fn a_key_in_pieces_is_the_same_key(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..5),
        ) {
            let mut map = OffsetMap::new(1 << 10, 0.9, 10);
            prop_assert!(put(&mut map, &pieces.concat(), 7));
            let mut hasher = map.hasher();
            for piece in &pieces {
                hasher.write(piece);
            }
            prop_assert_eq!(map.get(&hasher), Some(7));
        }

        #[test]
        fn it_answers_as_a_plain_map_does(puts in prop::collection::vec((0..200u16, 0..1000i64), 0..400)) {
            let mut map = OffsetMap::new(1 << 20, 0.9, puts.len() as u64);
            let mut plain: HashMap<u16, i64> = HashMap::new();
            for (key, offset) in puts {
                prop_assert!(put(&mut map, &key.to_be_bytes(), offset));
                plain.insert(key, offset);
            }
            for key in 0..200u16 {
                prop_assert_eq!(get(&map, &key.to_be_bytes()), plain.get(&key).copied());
            }
        }
    }
}
