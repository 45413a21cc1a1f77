//! `queued.max.request.bytes`: the memory of requests until their answer, and of answers until they
//! are sent.
//!
//! A connection claims the bytes that it has read and, once the length of its request is known, the
//! rest of it. A request that waits for the control loop or the coordinator keeps a claim of its
//! own. While the claims reach the limit, no connection begins to read a request.
//! [`Signal::MemoryFreed`] tells its reactor when to try again.
//!
//! A request that was begun is read to its end regardless of the claims, and while none is being
//! read one may begin. So some request can always continue, and the limit is exceeded by at most
//! one request per reactor. While connections wait, reactors close those that send their request,
//! or read their answer, too slowly ([`Signal::MemoryShort`]). Source: Kafka's `SimpleMemoryPool`,
//! which lets the last request exceed the limit too, and counts no answers.
//!
//! An answer may be many times larger than its request. So the control loop makes no large answer
//! while answers hold half of the limit; it waits until [`ControlQueue::note_room`] wakes its
//! queue. The other half is left to other requests. While answers hold the whole limit, no request
//! begins.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::control::ControlQueue;
use crate::signal::{Notify, Signal};
use crate::token::MAX_REACTORS;

/// The memory of all requests of a server.
pub struct RequestMemory {
    /// `None`: nothing is counted, and no connection waits.
    limit: Option<usize>,
    held: Mutex<Held>,
    reactors: Vec<Arc<dyn Notify>>,
    /// Its requests have claims, so it is not kept.
    control: Weak<ControlQueue>,
}

#[derive(Default)]
struct Held {
    /// Bytes of requests and answers.
    bytes: usize,
    /// Bytes of answers alone.
    answers: usize,
    /// Number of connections that are reading a request.
    reading: usize,
    /// Reactors to be told when one may begin, a bit for each.
    waiting: u32,
    /// The control loop waits for room for answers.
    is_control_waiting: bool,
    /// Reactors were told that some wait.
    is_short: bool,
}

impl Held {
    fn is_waited_for(&self) -> bool {
        self.waiting != 0 || self.is_control_waiting
    }

    /// True if a holder of `own` may begin to read a request.
    fn may_begin(&self, limit: usize, own: Amount) -> bool {
        let is_one_free = self.reading == 0 && self.answers - own.answers < limit;
        self.bytes - own.bytes() < limit || is_one_free
    }

    fn has_room(&self, limit: usize) -> bool {
        self.answers < limit / 2
    }
}

/// Bytes that a claim holds.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Amount {
    requests: usize,
    answers: usize,
}

impl Amount {
    fn bytes(self) -> usize {
        self.requests + self.answers
    }
}

const _: () = assert!(MAX_REACTORS <= u32::BITS as usize);

impl RequestMemory {
    pub fn new(
        limit: Option<usize>,
        reactors: Vec<Arc<dyn Notify>>,
        control: &Arc<ControlQueue>,
    ) -> Self {
        Self {
            limit,
            held: Mutex::default(),
            reactors,
            control: Arc::downgrade(control),
        }
    }

    /// True if the control loop may make a large answer; if not, its queue will be told.
    pub fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| {
            let mut held = self.held();
            let has_room = held.has_room(limit);
            held.is_control_waiting = !has_room;
            self.notify_reactors(held);
            has_room
        })
    }

    /// True if answers hold so much that the next ones have to be small.
    pub fn is_tight(&self) -> bool {
        self.limit.is_some_and(|limit| !self.held().has_room(limit))
    }

    /// True if a connection may begin to read a request; if not, the reactor will be told.
    pub fn may_begin(&self, reactor: usize) -> bool {
        self.limit.is_none_or(|limit| {
            let mut held = self.held();
            let may_begin = may_begin(&mut held, limit, Amount::default(), reactor);
            self.notify_reactors(held);
            may_begin
        })
    }

    /// True if somebody waits. If not, reactors are told when one does again.
    pub fn is_short(&self) -> bool {
        let mut held = self.held();
        held.is_short = held.is_waited_for();
        held.is_short
    }

    /// Notifies the reactors if connections have begun to wait.
    fn notify_reactors(&self, mut held: MutexGuard<'_, Held>) {
        let is_new = held.is_waited_for() && !held.is_short;
        held.is_short |= is_new;
        drop(held);
        if is_new {
            for reactor in &self.reactors {
                reactor.notify(Signal::MemoryShort);
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the claimed amount, and tells those that wait if one may begin now.
    fn change(&self, limit: usize, change: impl FnOnce(&mut Held)) {
        let mut held = self.held();
        change(&mut held);
        let told = if held.may_begin(limit, Amount::default()) {
            std::mem::take(&mut held.waiting)
        } else {
            0
        };
        let notifies_control = held.has_room(limit) && std::mem::take(&mut held.is_control_waiting);
        drop(held);
        if notifies_control && let Some(control) = self.control.upgrade() {
            control.note_room();
        }
        for (index, reactor) in self.reactors.iter().enumerate() {
            if told & (1 << index) != 0 {
                reactor.notify(Signal::MemoryFreed);
            }
        }
    }
}

/// True if a holder of `own` may begin.
fn may_begin(held: &mut Held, limit: usize, own: Amount, reactor: usize) -> bool {
    let is_free = held.may_begin(limit, own);
    if !is_free {
        held.waiting |= 1 << reactor;
    }
    is_free
}

/// The claim of a connection, a waiting request or an answer; given back when it is dropped.
pub struct Claim {
    memory: Arc<RequestMemory>,
    held: Amount,
    is_reading: bool,
}

impl Claim {
    /// Holds so many bytes of a request, under any limit.
    pub fn of(memory: &Arc<RequestMemory>, bytes: usize) -> Self {
        let mut claim = Self {
            memory: Arc::clone(memory),
            held: Amount::default(),
            is_reading: false,
        };
        claim.set(bytes, 0);
        claim
    }

    /// Holds so many bytes of an answer, under any limit.
    pub fn of_answer(memory: &Arc<RequestMemory>, bytes: usize) -> Self {
        let mut claim = Self::of(memory, 0);
        claim.set(0, bytes);
        claim
    }

    /// True if it holds bytes of an answer.
    pub fn has_answer(&self) -> bool {
        self.held.answers > 0
    }

    /// Begins to read a request, unless that was begun. Returns false if the request has to wait;
    /// the reactor is notified later.
    pub fn begin(&mut self, reactor: usize) -> bool {
        let Some(limit) = self.memory.limit else {
            return true;
        };
        if !self.is_reading {
            let mut held = self.memory.held();
            self.is_reading = may_begin(&mut held, limit, self.held, reactor);
            held.reading += usize::from(self.is_reading);
            self.memory.notify_reactors(held);
        }
        self.is_reading
    }

    /// True while a request is being read.
    pub fn is_reading(&self) -> bool {
        self.is_reading
    }

    /// The request is whole, or none has come.
    pub fn end(&mut self) {
        if let Some(limit) = self.memory.limit
            && std::mem::take(&mut self.is_reading)
        {
            self.memory.change(limit, |held| held.reading -= 1);
        }
    }

    /// Holds so many bytes of requests and answers from now on.
    pub fn set(&mut self, requests: usize, answers: usize) {
        let now = Amount { requests, answers };
        if let Some(limit) = self.memory.limit
            && now != self.held
        {
            let before = std::mem::replace(&mut self.held, now);
            self.memory.change(limit, |held| {
                held.bytes = held.bytes - before.bytes() + now.bytes();
                held.answers = held.answers - before.answers + now.answers;
            });
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.set(0, 0);
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(limit: usize) -> Arc<RequestMemory> {
        with_control(limit).0
    }

    fn with_control(limit: usize) -> (Arc<RequestMemory>, Arc<ControlQueue>) {
        let control = Arc::new(ControlQueue::new().unwrap());
        let memory = RequestMemory::new(Some(limit), Vec::new(), &control);
        (Arc::new(memory), control)
    }

    #[test]
    fn a_request_begins_below_the_limit_and_waits_at_it() {
        let memory = memory(10);
        let mut first = Claim::of(&memory, 0);
        let mut second = Claim::of(&memory, 0);
        assert!(first.begin(0));
        first.set(9, 0);
        assert!(second.begin(0));
        second.set(100, 0);
        assert!(!Claim::of(&memory, 0).begin(0));
        assert!(first.begin(0), "what was begun goes on");
        drop(second);
        assert!(Claim::of(&memory, 0).begin(0));
    }

    #[test]
    fn while_none_is_read_one_may_begin_whatever_is_held() {
        let memory = memory(10);
        let _waiting = Claim::of(&memory, 50);
        let mut first = Claim::of(&memory, 0);
        assert!(first.begin(0));
        let mut second = Claim::of(&memory, 0);
        assert!(!second.begin(0));
        first.end();
        assert!(second.begin(0));
    }

    #[test]
    fn what_one_holds_itself_does_not_keep_it_waiting() {
        let memory = memory(10);
        let mut other = Claim::of(&memory, 0);
        assert!(other.begin(0));
        other.set(9, 0);
        assert!(Claim::of(&memory, 50).begin(0));
    }

    #[test]
    fn while_answers_reach_the_limit_none_may_begin_but_their_holder() {
        let memory = memory(10);
        let mut reader = Claim::of(&memory, 0);
        reader.set(0, 10);
        assert!(!Claim::of(&memory, 0).begin(0));
        assert!(reader.begin(0), "it has taken its answer when it asks");
        reader.end();
        reader.set(0, 9);
        assert!(Claim::of(&memory, 0).begin(0));
    }

    #[test]
    fn the_control_loop_waits_while_answers_hold_half_of_the_limit() {
        let (memory, control) = with_control(10);
        let _request = Claim::of(&memory, 50);
        let first = Claim::of_answer(&memory, 4);
        assert!(memory.has_room());
        let second = Claim::of_answer(&memory, 1);
        assert!(!memory.has_room() && memory.is_short());
        drop(second);
        assert!(control.take_room(), "it is told");
        assert!(memory.has_room() && !memory.is_short());
        drop(first);
        assert!(!control.take_room(), "it did not wait");
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let control = Arc::new(ControlQueue::new().unwrap());
        let memory = Arc::new(RequestMemory::new(None, Vec::new(), &control));
        let mut claim = Claim::of(&memory, 1 << 40);
        assert!(claim.begin(0) && !claim.is_reading());
        assert_eq!(memory.held().bytes, 0);
    }
}
