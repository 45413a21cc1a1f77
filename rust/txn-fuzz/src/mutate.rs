//! Changes to bytes: the same ones for the same seed.

/// Random numbers; xorshift64*.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Begins a sequence.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    #[inline]
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, which is not 0.
    #[inline]
    pub fn below(&mut self, end: usize) -> usize {
        ((self.number() >> 32) as usize) % end
    }

    /// One of some values.
    #[inline]
    pub fn of<'v, T>(&mut self, values: &'v [T]) -> &'v T {
        &values[self.below(values.len())]
    }
}

/// Numbers, lengths and counts at their limits.
const EXTREMES: [&[u8]; 13] = [
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\x10\0\0",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\x80\0\0\0\0\0\0\0",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\x7f\xff",
    b"\xff\xff",
    b"\xff",
    b"\0",
];

/// Changes bytes in one way. They grow to no more than `bytes_max`.
pub fn mutate(bytes: &mut Vec<u8>, chance: &mut Chance, words: &[&[u8]], bytes_max: usize) {
    let at = chance.below(bytes.len() + 1);
    match chance.below(10) {
        0..=2 => {
            for _ in 0..=chance.below(3) {
                if !bytes.is_empty() {
                    let at = chance.below(bytes.len());
                    bytes[at] ^= 1 << chance.below(8);
                }
            }
        }
        3 => bytes.truncate(at),
        4 => {
            let count = *chance.of(&[1, 2, 4, 30]);
            let inserted: Vec<u8> = (0..count).map(|_| chance.number() as u8).collect();
            bytes.splice(at..at, inserted);
        }
        5 => {
            let end = bytes.len().min(at + chance.of(&[1, 2, 4, 8]));
            bytes.drain(at..end);
        }
        6 | 7 => {
            let is_extreme = words.is_empty() || chance.below(2) == 0;
            let word = *chance.of(if is_extreme { &EXTREMES } else { words });
            let end = bytes.len().min(at + word.len());
            bytes.splice(at..end, word.iter().copied());
        }
        8 => {
            let end = bytes.len().min(at + chance.of(&[1, 4, 12, 40]));
            let part = bytes[at..end].repeat(*chance.of(&[1, 2, 20]));
            bytes.splice(at..at, part);
        }
        _ => {
            let all = bytes.clone();
            bytes.splice(at..at, all);
        }
    }
    bytes.truncate(bytes_max);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_changes_within_the_bound() {
        let changed = |seed| {
            let mut chance = Chance::new(seed);
            let mut bytes = b"some bytes to begin with".to_vec();
            for _ in 0..1000 {
                mutate(&mut bytes, &mut chance, &[b"word"], 300);
                assert!(bytes.len() <= 300);
            }
            bytes
        };
        assert_eq!(changed(7), changed(7));
        assert_ne!(changed(7), changed(8));
    }

    #[test]
    fn no_bytes_are_changed_without_a_panic() {
        let mut chance = Chance::new(1);
        for _ in 0..1000 {
            let mut nothing = Vec::new();
            mutate(&mut nothing, &mut chance, &[], 10);
        }
    }
}
