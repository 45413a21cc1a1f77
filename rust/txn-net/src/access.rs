//! Authorization of Produce and Fetch: the verdicts of Python's rules, remembered.
//!
//! Python decides, by its access control lists. A reactor asks once for a principal, a host and a
//! topic, and remembers a permission until the lists change. So a request costs a look-up per
//! topic. A refusal is asked for again each time, because each is a line of the audit log.
//!
//! Without an authorizer nothing is asked and nothing is looked up.
//!
//! # Invariant
//! A verdict that was asked for before a change is not remembered after it: `forget` raises the
//! generation, and a verdict of an earlier one is dropped. So a change counts for the next request
//! of every connection.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock, RwLock};

/// Permissions that are remembered; then all are asked for anew.
const REMEMBERED_MAX: usize = 100_000;
/// Longest name of a permission that is remembered, in bytes. A client that may write to every
/// transactional id chooses the names, of 32 KiB each.
const NAME_BYTES_MAX: usize = 256;

/// The operation of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Fetch from a topic.
    ReadTopic,
    /// Produce to a topic.
    WriteTopic,
    /// Produce by a transactional id.
    WriteTransactionalId,
}

/// Asks whether a principal from a host may do something on the named resource; true: it may.
pub type Ask = Box<dyn Fn(&str, &str, Action, &str) -> bool + Send + Sync>;

/// The sender of a request.
#[derive(Clone, Copy)]
pub struct Sender<'a> {
    pub principal: &'a Arc<str>,
    pub host: &'a Arc<str>,
}

/// The permissions of the senders so far.
#[derive(Default)]
pub struct Access {
    ask: OnceLock<Ask>,
    remembered: RwLock<Remembered>,
}

#[derive(Default)]
struct Remembered {
    generation: u64,
    count: usize,
    allowed: HashMap<Arc<str>, HashMap<Arc<str>, Permissions>>,
}

/// The permissions of one principal from one host.
#[derive(Default)]
struct Permissions([HashSet<Box<[u8]>>; 3]);

impl Access {
    /// Has every Produce and Fetch authorized from now on. Only the first call counts.
    pub fn authorize_by(&self, ask: Ask) {
        let _ = self.ask.set(ask);
    }

    /// Forgets every verdict.
    pub fn forget(&self) {
        let mut remembered = self.remembered.write().expect("no look-up panics");
        *remembered = Remembered {
            generation: remembered.generation + 1,
            ..Remembered::default()
        };
    }

    /// True if requests are authorized at all.
    pub fn is_checked(&self) -> bool {
        self.ask.get().is_some()
    }

    /// True if a sender may do something on the named resource.
    ///
    /// Cost: three hash look-ups under a shared lock, once it was asked for.
    pub fn allows(&self, sender: Sender<'_>, action: Action, name: &[u8]) -> bool {
        let Some(ask) = self.ask.get() else {
            return true;
        };
        let generation = {
            let remembered = self.remembered.read().expect("no look-up panics");
            if remembered.allows(sender, action, name) {
                return true;
            }
            remembered.generation
        };
        let text = String::from_utf8_lossy(name);
        let is_allowed = ask(sender.principal, sender.host, action, &text);
        if is_allowed && name.len() <= NAME_BYTES_MAX {
            let mut remembered = self.remembered.write().expect("no look-up panics");
            if remembered.generation == generation {
                remembered.add(sender, action, name);
            }
        }
        is_allowed
    }
}

impl Remembered {
    fn allows(&self, sender: Sender<'_>, action: Action, name: &[u8]) -> bool {
        let from_hosts = self.allowed.get(&**sender.principal);
        let permissions = from_hosts.and_then(|hosts| hosts.get(&**sender.host));
        permissions.is_some_and(|known| known.0[action as usize].contains(name))
    }

    fn add(&mut self, sender: Sender<'_>, action: Action, name: &[u8]) {
        if self.count >= REMEMBERED_MAX {
            self.allowed.clear();
            self.count = 0;
        }
        let from_hosts = self
            .allowed
            .entry(Arc::clone(sender.principal))
            .or_default();
        let permissions = from_hosts.entry(Arc::clone(sender.host)).or_default();
        if permissions.0[action as usize].insert(name.into()) {
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn sender<'a>(principal: &'a Arc<str>, host: &'a Arc<str>) -> Sender<'a> {
        Sender { principal, host }
    }

    /// Counts its questions, and allows everything on names that begin with `a`.
    fn counting() -> (Access, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let access = Access::default();
        let count = Arc::clone(&asked);
        access.authorize_by(Box::new(move |_, _, _, name| {
            count.fetch_add(1, Ordering::Relaxed);
            name.starts_with('a')
        }));
        (access, asked)
    }

    #[test]
    fn without_an_authorizer_everything_is_allowed() {
        let (ada, here) = ("User:ada".into(), "10.0.0.1".into());
        let access = Access::default();
        assert!(!access.is_checked());
        assert!(access.allows(sender(&ada, &here), Action::WriteTopic, b"b"));
    }

    #[test]
    fn a_permission_is_asked_for_once_for_each_sender_and_operation() {
        let (access, asked) = counting();
        let (ada, bob): (Arc<str>, Arc<str>) = ("User:ada".into(), "User:bob".into());
        let (here, there): (Arc<str>, Arc<str>) = ("10.0.0.1".into(), "10.0.0.2".into());
        for _ in 0..3 {
            assert!(access.allows(sender(&ada, &here), Action::ReadTopic, b"a"));
            assert!(access.allows(sender(&ada, &here), Action::WriteTopic, b"a"));
            assert!(access.allows(sender(&ada, &there), Action::ReadTopic, b"a"));
            assert!(access.allows(sender(&bob, &here), Action::ReadTopic, b"a"));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_refusal_is_asked_for_each_time() {
        let (access, asked) = counting();
        let (ada, here) = ("User:ada".into(), "10.0.0.1".into());
        assert!(!access.allows(sender(&ada, &here), Action::ReadTopic, b"b"));
        assert!(!access.allows(sender(&ada, &here), Action::ReadTopic, b"b"));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_verdict_of_before_a_change_is_not_remembered_after_it() {
        let access = Arc::new(Access::default());
        let held = Arc::downgrade(&access);
        let verdicts = Mutex::new(vec![false, true]);
        access.authorize_by(Box::new(move |_, _, _, _| {
            held.upgrade().expect("it asks").forget(); // the lists change meanwhile
            verdicts.lock().unwrap().pop().expect("two questions")
        }));
        let (ada, here) = ("User:ada".into(), "10.0.0.1".into());
        assert!(access.allows(sender(&ada, &here), Action::ReadTopic, b"a"));
        assert!(!access.allows(sender(&ada, &here), Action::ReadTopic, b"a"));
    }

    #[test]
    fn a_permission_for_a_very_long_name_is_not_kept() {
        let (access, asked) = counting();
        let (ada, here) = ("User:ada".into(), "10.0.0.1".into());
        for size in [NAME_BYTES_MAX, NAME_BYTES_MAX + 1] {
            let name = vec![b'a'; size];
            for _ in 0..2 {
                assert!(access.allows(sender(&ada, &here), Action::WriteTransactionalId, &name));
            }
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1 + 2);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (access, _) = counting();
        let (ada, here) = ("User:ada".into(), "10.0.0.1".into());
        for n in 0..=REMEMBERED_MAX {
            let name = format!("a{n}");
            assert!(access.allows(sender(&ada, &here), Action::ReadTopic, name.as_bytes()));
        }
        assert_eq!(access.remembered.read().unwrap().count, 1);
    }
}
