//! The time limit of a step: after it, other connections run.

use std::time::{Duration, Instant};

/// The time that a request has before it gives way.
///
/// It begins with the first look, between the request's first item and its second. So a request
/// with one item reads no clock.
pub struct Turn {
    time: Duration,
    ends: Option<Instant>,
}

impl Turn {
    pub fn of(time: Duration) -> Self {
        Self { time, ends: None }
    }

    /// True if it is over. To be asked after an item, so that each turn gets on.
    pub fn is_over(&mut self) -> bool {
        let now = Instant::now();
        let time = self.time;
        now >= *self.ends.get_or_insert_with(|| now + time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_without_time_is_over_after_one_item_and_another_is_not() {
        assert!(Turn::of(Duration::ZERO).is_over());
        let mut long = Turn::of(Duration::from_secs(3600));
        assert!(!long.is_over());
        assert!(!long.is_over());
    }
}
