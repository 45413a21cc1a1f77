//! The tokens by which messages, queues and Python name a request.

/// Names one request of one connection; Python sees it as an integer.
///
/// From the top: one zero bit, 5 bits reactor, 22 bits slot of the connection in it, 36 bits
/// stamp. A reactor gives out each stamp once, to connections when they are opened and to requests
/// when they leave its hands. So a stamp that is older than a connection is of an earlier one in
/// the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestToken(u64);

const STAMP_BITS: u32 = 36;
const SLOT_BITS: u32 = 22;
const REACTOR_BITS: u32 = 5;

/// The most reactors a token can tell apart.
pub const MAX_REACTORS: usize = 1 << REACTOR_BITS;
/// The most connections of one reactor.
pub const MAX_SLOTS: usize = 1 << SLOT_BITS;

impl RequestToken {
    pub(crate) fn new(reactor: usize, slot: usize, stamp: u64) -> Self {
        debug_assert!(reactor < MAX_REACTORS && slot < MAX_SLOTS && stamp < 1 << STAMP_BITS);
        let place = ((reactor as u64) << SLOT_BITS) | slot as u64;
        Self((place << STAMP_BITS) | stamp)
    }

    /// The token that was given out as this number; any number is harmless.
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The number by which Python knows it; fits `i64`.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    pub(crate) fn reactor(self) -> usize {
        (self.0 >> (STAMP_BITS + SLOT_BITS)) as usize
    }

    pub(crate) fn slot(self) -> usize {
        (self.0 >> STAMP_BITS) as usize & (MAX_SLOTS - 1)
    }

    pub(crate) fn stamp(self) -> u64 {
        self.0 & ((1 << STAMP_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_keeps_its_parts_and_fits_a_signed_integer() {
        let token = RequestToken::new(MAX_REACTORS - 1, MAX_SLOTS - 1, (1 << STAMP_BITS) - 1);
        assert_eq!(token.reactor(), MAX_REACTORS - 1);
        assert_eq!(token.slot(), MAX_SLOTS - 1);
        assert_eq!(token.stamp(), (1 << STAMP_BITS) - 1);
        assert!(i64::try_from(token.number()).is_ok());
        let token = RequestToken::new(1, 2, 3);
        assert_eq!((token.reactor(), token.slot(), token.stamp()), (1, 2, 3));
    }
}
