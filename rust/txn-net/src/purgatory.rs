//! Fetches that wait for bytes or for time.
//!
//! A waiting Fetch holds no thread. It lies in its connection; a [`Watch`] on each of its logs
//! posts to its reactor when the log advances, and its deadline is in the reactor's
//! [`Deadlines`]. What comes first makes the reactor look again.
//!
//! A log may advance between the look that found too little and the watch, so the reactor looks
//! again after watching. A watch that has fired stays silent until it is armed again, *before*
//! the next look: nothing that happens after a look is missed, and a log that takes ten batches
//! while the reactor is busy posts once.
//!
//! A look passes over every partition of the request. A request with very many that was woken and
//! still has too little rests for some time ([`REST_PER_PARTITION`]): otherwise each batch of one
//! partition would have the reactor look at all of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use txn_log::{PartitionLog, Watcher};

use crate::fetch::{FetchRequest, Readiness};
use crate::mailbox::{Mailbox, Message, RequestToken};

/// A Fetch with more partitions rests after it was woken in vain.
const PARTITIONS_WITHOUT_REST: usize = 1_000;
/// How long, for each of them: some twenty times as long as the look takes.
const REST_PER_PARTITION: Duration = Duration::from_micros(1);

/// A Fetch that waits. Dropping it takes its watches back.
pub struct WaitingFetch {
    pub request: FetchRequest,
    /// When it is answered with what there is.
    pub deadline: Instant,
    rests_until: Option<Instant>,
    watch: Arc<Watch>,
    watched: Vec<(Arc<PartitionLog>, u64)>,
}

struct Watch {
    token: RequestToken,
    mailbox: Arc<Mailbox>,
    has_fired: AtomicBool,
}

impl Watcher for Watch {
    fn log_advanced(&self) {
        if !self.has_fired.swap(true, Ordering::AcqRel) {
            self.mailbox.post(Message::LogAdvanced(self.token));
        }
    }
}

impl WaitingFetch {
    /// Watches the request's logs.
    pub fn new(
        request: FetchRequest,
        deadline: Instant,
        token: RequestToken,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        let watch = Arc::new(Watch {
            token,
            mailbox,
            has_fired: AtomicBool::new(false),
        });
        let watched = request
            .logs()
            .map(|log| {
                let watcher = Arc::clone(&watch) as Arc<dyn Watcher>;
                (Arc::clone(log), log.watch(watcher))
            })
            .collect();
        Self {
            request,
            deadline,
            rests_until: None,
            watch,
            watched,
        }
    }

    /// Until when it is not to be looked at, if it rests. What advances meanwhile is not heard of.
    pub fn rests_until(&self, now: Instant) -> Option<Instant> {
        self.rests_until.filter(|&until| now < until)
    }

    /// Says whether it can be answered now; what advances from here on is heard of.
    pub fn readiness(&self) -> Readiness {
        // A swap, not a store: it has to see what the log published before it fired.
        self.watch.has_fired.swap(false, Ordering::AcqRel);
        self.request.readiness()
    }

    /// As `look`, for one that was woken; it may rest then.
    pub fn look_again(&mut self, now: Instant) -> Readiness {
        let partitions = self.request.partition_count();
        if partitions > PARTITIONS_WITHOUT_REST {
            self.rests_until = Some(now + REST_PER_PARTITION * partitions as u32);
        }
        self.readiness()
    }
}

impl Drop for WaitingFetch {
    fn drop(&mut self) {
        for (log, id) in self.watched.drain(..) {
            log.unwatch(id);
        }
    }
}

/// When which requests give up waiting.
///
/// A request that was answered earlier stays in here until its time; who pops it finds that its
/// token names nothing any more.
#[derive(Default)]
pub struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, RequestToken)>>,
}

impl Deadlines {
    pub fn push(&mut self, deadline: Instant, token: RequestToken) {
        self.heap.push(Reverse((deadline, token)));
    }

    /// The earliest.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// Takes one that has passed.
    pub fn pop_passed(&mut self, now: Instant) -> Option<RequestToken> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, token))| token)
    }

    /// Forgets those that name nothing any more, when they have become many.
    pub fn tidy(&mut self, waiting: usize, mut is_waiting: impl FnMut(RequestToken) -> bool) {
        if self.heap.len() > 4 * waiting + 1024 {
            self.heap.retain(|Reverse((_, token))| is_waiting(*token));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn deadlines_pass_in_their_order_and_not_before_their_time() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let token = |stamp| RequestToken::new(0, 0, stamp);
        let mut deadlines = Deadlines::default();
        deadlines.push(at(20), token(2));
        deadlines.push(at(10), token(1));
        assert_eq!(deadlines.next(), Some(at(10)));
        assert_eq!(deadlines.pop_passed(at(9)), None);
        assert_eq!(deadlines.pop_passed(at(20)), Some(token(1)));
        assert_eq!(deadlines.pop_passed(at(20)), Some(token(2)));
        assert_eq!(deadlines.pop_passed(at(20)), None);
    }

    #[test]
    fn deadlines_of_answered_requests_are_forgotten_once_they_are_many() {
        let mut deadlines = Deadlines::default();
        for stamp in 0..2000 {
            deadlines.push(Instant::now(), RequestToken::new(0, 0, stamp));
        }
        deadlines.tidy(1, |token| token.stamp() == 7);
        assert_eq!(deadlines.heap.len(), 1);
    }
}
