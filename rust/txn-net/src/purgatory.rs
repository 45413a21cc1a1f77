//! The purgatory: requests that wait, each for its own condition or for its deadline.
//!
//! A waiting request holds no thread. A [`DelayedResponse`] lies in its connection, and its
//! deadline in the reactor's [`Deadlines`]. There are three operations:
//!
//! | operation | is ready when | at its deadline |
//! |---|---|---|
//! | [`Fetch`](DelayedOperation::Fetch) | its logs have enough bytes | it is answered with the bytes there are |
//! | [`Produce`](DelayedOperation::Produce) | its batches are on the disk, and below the high watermark | the others are `REQUEST_TIMED_OUT` |
//! | [`Join`](DelayedOperation::Join) | the coordinator has answered | the partitions that wait are refused |
//!
//! Readiness is read from published state alone: offsets of logs, states of syncs. A [`Watch`]
//! posts to the reactor when that state changes, and the reactor reads it again. The answer of a
//! coordinator comes as a message of its own.
//!
//! State may change between the first reading and the watch, so the reactor reads again after
//! watching. A watch that has fired stays silent until it is armed again, *before* the next
//! reading. So no change after a reading is missed, and a log that takes ten batches while the
//! reactor is busy posts once.
//!
//! A reading looks at every partition of the request, or at those of its session that may have
//! changed. A Fetch of very many partitions that was woken and still has too few bytes is not read
//! again for some time ([`REST_PER_PARTITION`]). Otherwise each batch of one partition would make
//! the reactor read the state of all of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use txn_log::{PartitionLog, Watcher};

use crate::delayed_produce::{DelayedProduce, DiskWait};
use crate::fetch::{FetchRequest, FetchWatch, Readiness};
use crate::kept_produce::KeptProduce;
use crate::metrics::{Gauge, ReactorMetrics};
use crate::signal::{Notify, Signal};
use crate::token::RequestToken;

/// A Fetch with more partitions rests after it was woken in vain.
const PARTITIONS_WITHOUT_REST: usize = 1_000;
/// Rest for each of them: some twenty times as long as a reading takes.
const REST_PER_PARTITION: Duration = Duration::from_micros(1);

/// A request that waits.
pub struct DelayedResponse {
    pub operation: DelayedOperation,
    /// The time at which it is completed in any case.
    pub deadline: Instant,
    rests_until: Option<Instant>,
    watch: Arc<Watch>,
    _watched: Watched,
}

/// A request that may wait.
pub enum DelayedOperation {
    /// A Fetch that found too little.
    Fetch(FetchRequest),
    /// A Produce whose batches are appended.
    Produce(DelayedProduce),
    /// A Produce whose partitions have to join a transaction before they are appended to.
    Join(KeptProduce),
}

impl DelayedOperation {
    /// Counts the requests that wait for the same operation.
    pub fn gauge<'a>(&self, metrics: &'a ReactorMetrics) -> &'a Gauge {
        match self {
            Self::Fetch(_) => &metrics.delayed_fetches,
            Self::Produce(_) => &metrics.delayed_produces,
            Self::Join(_) => &metrics.delayed_joins,
        }
    }
}

/// The watches of an operation; dropping it takes them back.
enum Watched {
    None,
    Fetch { _watch: FetchWatch },
    Logs(Vec<(Arc<PartitionLog>, u64)>),
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Self::Logs(watched) = self {
            for (log, id) in watched {
                log.unwatch(*id);
            }
        }
    }
}

struct Watch {
    token: RequestToken,
    reactor: Arc<dyn Notify>,
    has_fired: AtomicBool,
}

impl Watcher for Watch {
    fn log_advanced(&self) {
        if !self.has_fired.swap(true, Ordering::AcqRel) {
            self.reactor.notify(Signal::Recheck(self.token));
        }
    }
}

impl DelayedResponse {
    /// Watches the logs that the operation depends on.
    pub fn new(
        operation: DelayedOperation,
        deadline: Instant,
        token: RequestToken,
        reactor: Arc<dyn Notify>,
    ) -> Self {
        let watch = Arc::new(Watch {
            token,
            reactor,
            has_fired: AtomicBool::new(false),
        });
        let caller = Arc::clone(&watch) as Arc<dyn Watcher>;
        let watched = match &operation {
            DelayedOperation::Fetch(request) => Watched::Fetch {
                _watch: request.watch(&caller),
            },
            DelayedOperation::Produce(produce) => {
                let watch =
                    |log: &Arc<PartitionLog>| (Arc::clone(log), log.watch(Arc::clone(&caller)));
                Watched::Logs(produce.logs().map(watch).collect())
            }
            DelayedOperation::Join(_) => Watched::None,
        };
        Self {
            operation,
            deadline,
            rests_until: None,
            watch,
            _watched: watched,
        }
    }

    /// The logs that the operation awaits on the disk; each wakes it.
    pub fn disk_waits(&self) -> Vec<DiskWait> {
        match &self.operation {
            DelayedOperation::Produce(produce) => {
                let watcher = Arc::clone(&self.watch) as Arc<dyn Watcher>;
                produce.disk_waits(&watcher)
            }
            DelayedOperation::Fetch(_) | DelayedOperation::Join(_) => Vec::new(),
        }
    }

    /// End of its rest. It is not woken meanwhile.
    pub fn rests_until(&self, now: Instant) -> Option<Instant> {
        self.rests_until.filter(|&until| now < until)
    }

    /// Returns true if it is ready; any later change wakes it.
    pub fn is_ready(&self) -> bool {
        // A swap, not a store: it has to see the state that the log published before it fired.
        self.watch.has_fired.swap(false, Ordering::AcqRel);
        match &self.operation {
            DelayedOperation::Fetch(request) => request.readiness() == Readiness::Ready,
            DelayedOperation::Produce(produce) => produce.is_ready(),
            DelayedOperation::Join(_) => false,
        }
    }

    /// Like `is_ready`, for a response that was woken; it may rest then.
    pub fn is_ready_now(&mut self, now: Instant) -> bool {
        if let DelayedOperation::Fetch(request) = &self.operation
            && request.partition_count() > PARTITIONS_WITHOUT_REST
        {
            let partitions = request.partition_count() as u32;
            self.rests_until = Some(now + REST_PER_PARTITION * partitions);
        }
        self.is_ready()
    }
}

/// The deadlines of a reactor's delayed responses.
///
/// A request that was answered earlier stays in here until its time: its token then names
/// nothing any more.
#[derive(Default)]
pub struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, RequestToken)>>,
    /// Number that were left when it was last tidied.
    tidied: usize,
}

impl Deadlines {
    pub fn push(&mut self, deadline: Instant, token: RequestToken) {
        self.heap.push(Reverse((deadline, token)));
    }

    /// The earliest.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// Takes a deadline that has passed.
    pub fn pop_passed(&mut self, now: Instant) -> Option<RequestToken> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, token))| token)
    }

    /// Forgets the tokens that name nothing any more, once they may be many. Cost: a few looks for
    /// each deadline that was pushed.
    pub fn tidy(&mut self, mut is_awaited: impl FnMut(RequestToken) -> bool) {
        if self.heap.len() > 4 * self.tidied + 1024 {
            self.heap.retain(|Reverse((_, token))| is_awaited(*token));
            self.tidied = self.heap.len();
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
        deadlines.tidy(|token| token.stamp() == 7);
        assert_eq!(deadlines.heap.len(), 1);
    }
}
