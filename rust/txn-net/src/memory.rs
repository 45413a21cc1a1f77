//! Memory of requests before they are answered: `queued.max.request.bytes`.
//!
//! A connection claims its read bytes and, once the length of its request is known, the rest of it.
//! A request that waits for the control loop or the coordinator keeps a claim of its own. While
//! claims reach the limit no connection begins to read a request. It waits, unread, and its reactor
//! is told by [`Message::MemoryFreed`] when to ask again.
//!
//! A request that was begun is read to its end under any claims, and while none is being read one
//! may begin. So somebody can always go on, and the limit is exceeded by no more than one request
//! per reactor. While connections wait, reactors close those that send their request too slowly:
//! [`Message::MemoryShort`] tells them. Source: Kafka's `SimpleMemoryPool`, which lets the last one exceed too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::mailbox::{MAX_REACTORS, Mailbox, Message};

/// The memory of all requests of a server.
pub struct RequestMemory {
    /// `None`: nothing is counted, and no connection waits.
    limit: Option<usize>,
    held: Mutex<Held>,
    mailboxes: Vec<Arc<Mailbox>>,
}

#[derive(Default)]
struct Held {
    bytes: usize,
    /// Number of connections that are reading a request.
    reading: usize,
    /// Reactors to be told when one may begin, a bit for each.
    waiting: u32,
    /// Reactors were told that some wait.
    is_short: bool,
}

const _: () = assert!(MAX_REACTORS <= u32::BITS as usize);

impl RequestMemory {
    pub fn new(limit: Option<usize>, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        Self {
            limit,
            held: Mutex::default(),
            mailboxes,
        }
    }

    /// True if a connection may begin to read a request; if not, the reactor will be told.
    pub fn may_begin(&self, reactor: usize) -> bool {
        self.limit.is_none_or(|limit| {
            let mut held = self.held();
            let may_begin = may_begin(&mut held, limit, 0, reactor);
            self.tell(held);
            may_begin
        })
    }

    /// True if connections wait. If not, reactors are told when one does again.
    pub fn is_short(&self) -> bool {
        let mut held = self.held();
        held.is_short = held.waiting != 0;
        held.is_short
    }

    /// Tells the reactors if connections have begun to wait.
    fn tell(&self, mut held: MutexGuard<'_, Held>) {
        let is_new = held.waiting != 0 && !held.is_short;
        held.is_short |= is_new;
        drop(held);
        if is_new {
            for mailbox in &self.mailboxes {
                mailbox.post(Message::MemoryShort);
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the claimed amount, and tells the reactors that wait if one may begin now.
    fn change(&self, limit: usize, change: impl FnOnce(&mut Held)) {
        let mut held = self.held();
        change(&mut held);
        let is_free = held.bytes < limit || held.reading == 0;
        let told = if is_free {
            std::mem::take(&mut held.waiting)
        } else {
            0
        };
        drop(held);
        for (reactor, mailbox) in self.mailboxes.iter().enumerate() {
            if told & (1 << reactor) != 0 {
                mailbox.post(Message::MemoryFreed);
            }
        }
    }
}

/// True if a holder of `own` bytes may begin.
fn may_begin(held: &mut Held, limit: usize, own: usize, reactor: usize) -> bool {
    let is_free = held.bytes - own < limit || held.reading == 0;
    if !is_free {
        held.waiting |= 1 << reactor;
    }
    is_free
}

/// The claim of a connection or a waiting request; given back when it is dropped.
pub struct Claim {
    memory: Arc<RequestMemory>,
    bytes: usize,
    is_reading: bool,
}

impl Claim {
    /// Holds so many bytes, under any limit.
    pub fn of(memory: &Arc<RequestMemory>, bytes: usize) -> Self {
        let mut claim = Self {
            memory: Arc::clone(memory),
            bytes: 0,
            is_reading: false,
        };
        claim.set(bytes);
        claim
    }

    /// Begins to read a request, unless that was begun. False: it has to wait, and the reactor
    /// will be told.
    pub fn begin(&mut self, reactor: usize) -> bool {
        let Some(limit) = self.memory.limit else {
            return true;
        };
        if !self.is_reading {
            let mut held = self.memory.held();
            self.is_reading = may_begin(&mut held, limit, self.bytes, reactor);
            held.reading += usize::from(self.is_reading);
            self.memory.tell(held);
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

    /// Holds so many bytes from now on.
    pub fn set(&mut self, bytes: usize) {
        if let Some(limit) = self.memory.limit
            && bytes != self.bytes
        {
            let before = std::mem::replace(&mut self.bytes, bytes);
            self.memory
                .change(limit, |held| held.bytes = held.bytes - before + bytes);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.set(0);
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(limit: usize) -> Arc<RequestMemory> {
        Arc::new(RequestMemory::new(Some(limit), Vec::new()))
    }

    #[test]
    fn a_request_begins_below_the_limit_and_waits_at_it() {
        let memory = memory(10);
        let mut first = Claim::of(&memory, 0);
        let mut second = Claim::of(&memory, 0);
        assert!(first.begin(0));
        first.set(9);
        assert!(second.begin(0));
        second.set(100);
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
        other.set(9);
        assert!(Claim::of(&memory, 50).begin(0));
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let memory = Arc::new(RequestMemory::new(None, Vec::new()));
        let mut claim = Claim::of(&memory, 1 << 40);
        assert!(claim.begin(0) && !claim.is_reading());
        assert_eq!(memory.held().bytes, 0);
    }
}
