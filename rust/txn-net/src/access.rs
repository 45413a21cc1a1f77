//! Authorization of Produce and Fetch: the verdicts of Python's rules, remembered.
//!
//! Python decides, by its access control lists. A reactor asks once for a principal, a host and a
//! topic, and remembers a permission until the lists change. A connection keeps its latest
//! permissions beside that, so the next request for the same topics compares names and hashes none.
//! A refusal is asked for again by each request, because each is a line of the audit log. A request
//! that names a topic many times asks once ([`first_of`]): it has one refusal, as in Python's rules.
//!
//! Without an authorizer nothing is asked and nothing is looked up.
//!
//! # Invariant
//! A verdict that was asked for before a change is not remembered after it: `forget` raises the
//! generation, and a verdict of an earlier one is dropped. So a change counts for the next request
//! of every connection.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

/// Permissions that are remembered; then all are asked for anew.
const REMEMBERED_MAX: usize = 100_000;
/// Longest name of a permission that is remembered, in bytes. A client that may write to every
/// transactional id chooses the names, of 32 KiB each.
const NAME_BYTES_MAX: usize = 256;
/// Permissions that a connection keeps.
const LATEST_MAX: usize = 8;

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

/// Returns true if a principal from a host may do something on the named resource.
pub type Ask = Box<dyn Fn(&str, &str, Action, &str) -> bool + Send + Sync>;

/// The sender of a request.
#[derive(Clone, Copy)]
pub struct Sender<'a> {
    pub principal: &'a Arc<str>,
    pub host: &'a Arc<str>,
    /// The permissions of its connection; they are those of this principal and host alone.
    pub latest: &'a RefCell<Latest>,
}

/// The latest permissions of a connection, in the order in which its requests ask.
#[derive(Default)]
pub struct Latest {
    generation: u64,
    allowed: Vec<(Action, Box<[u8]>)>,
    /// Index of the permission after the one that was found last.
    next: usize,
}

impl Latest {
    /// Notes a permission of a generation, in place of the oldest if there are too many.
    fn add(&mut self, generation: u64, action: Action, name: &[u8]) {
        if self.generation != generation {
            self.generation = generation;
            self.allowed.clear();
            self.next = 0;
        }
        if self.allowed.len() < LATEST_MAX {
            self.allowed.push((action, name.into()));
            self.next = 0;
        } else {
            self.next %= LATEST_MAX;
            self.allowed[self.next] = (action, name.into());
            self.next += 1;
        }
    }

    fn allows(&mut self, generation: u64, action: Action, name: &[u8]) -> bool {
        if self.generation != generation {
            return false;
        }
        let is_it = |(known, allowed): &(Action, Box<[u8]>)| *known == action && **allowed == *name;
        let found = if self.allowed.get(self.next).is_some_and(is_it) {
            Some(self.next)
        } else {
            self.allowed.iter().position(is_it)
        };
        if let Some(index) = found {
            self.next = index + 1;
        }
        found.is_some()
    }
}

/// The permissions of the senders so far.
#[derive(Default)]
pub struct Access {
    ask: OnceLock<Ask>,
    /// Number of the changes so far; it changes only while `remembered` is locked for writing.
    generation: AtomicU64,
    remembered: RwLock<Remembered>,
}

#[derive(Default)]
struct Remembered {
    count: usize,
    allowed: HashMap<Arc<str>, HashMap<Arc<str>, Permissions>>,
}

/// The permissions of one principal from one host.
#[derive(Default)]
struct Permissions([HashSet<Box<[u8]>>; 3]);

impl Access {
    /// Authorizes every Produce and Fetch from now on. Only the first call counts.
    pub fn authorize_by(&self, ask: Ask) {
        let _ = self.ask.set(ask);
    }

    /// Forgets every verdict.
    pub fn forget(&self) {
        let mut remembered = self.remembered.write().expect("no look-up panics");
        self.generation.fetch_add(1, Ordering::Release);
        *remembered = Remembered::default();
    }

    /// Number of changes of the lists so far. To be read before the question whose verdict is kept.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// True if requests are authorized at all.
    pub fn is_checked(&self) -> bool {
        self.ask.get().is_some()
    }

    /// True if a sender may do something on the named resource.
    pub fn allows(&self, sender: Sender<'_>, action: Action, name: &[u8]) -> bool {
        self.remembers(sender, action, name) || self.ask(sender, action, name)
    }

    /// True if a permission was asked for already, or none is needed.
    ///
    /// Cost: a comparison of names for the latest permissions of a connection; three hash look-ups
    /// under a shared lock for another.
    pub fn remembers(&self, sender: Sender<'_>, action: Action, name: &[u8]) -> bool {
        if self.ask.get().is_none() {
            return true;
        }
        let generation = self.generation.load(Ordering::Acquire);
        if (sender.latest.borrow_mut()).allows(generation, action, name) {
            return true;
        }
        let (generation, is_known) = {
            let remembered = self.remembered.read().expect("no look-up panics");
            let is_known = remembered.allows(sender, action, name);
            (self.generation.load(Ordering::Acquire), is_known)
        };
        if is_known {
            (sender.latest.borrow_mut()).add(generation, action, name);
        }
        is_known
    }

    /// Asks Python; a permission is remembered.
    ///
    /// Cost: some microseconds, and a wait for the interpreter.
    pub fn ask(&self, sender: Sender<'_>, action: Action, name: &[u8]) -> bool {
        let Some(ask) = self.ask.get() else {
            return true;
        };
        let generation = self.generation.load(Ordering::Acquire); // before the question
        let text = String::from_utf8_lossy(name);
        let is_allowed = ask(sender.principal, sender.host, action, &text);
        if is_allowed && name.len() <= NAME_BYTES_MAX {
            let mut remembered = self.remembered.write().expect("no look-up panics");
            if self.generation.load(Ordering::Acquire) == generation {
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

/// Returns for each of `count` keys the place of the first key that equals it.
///
/// Cost: a sort of their hashes. A hash table of as many keys as a request may have takes five
/// times as long, because each of its look-ups misses the cache.
pub fn first_of<K: Hash + Eq>(count: usize, key: impl Fn(usize) -> K) -> Vec<usize> {
    let state = RandomState::new();
    let places = 0..count;
    let with_hash = |at| (state.hash_one(key(at)), at);
    let mut hashed: Vec<_> = places.clone().map(with_hash).collect();
    hashed.sort_unstable();
    let mut first: Vec<usize> = places.collect();
    for of_one_hash in hashed.chunk_by(|(one, _), (other, _)| one == other) {
        for (n, &(_, at)) in of_one_hash.iter().enumerate().skip(1) {
            let before = of_one_hash[..n].iter().map(|&(_, before)| before);
            first[at] = before
                .filter(|&before| first[before] == before)
                .find(|&before| key(before) == key(at))
                .unwrap_or(at);
        }
    }
    first
}

#[cfg(test)]
impl Access {
    /// Allows everything on names that begin with a letter; returns the names it is asked for.
    pub fn of_letter(letter: char) -> (Self, Arc<std::sync::Mutex<Vec<String>>>) {
        let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
        let access = Self::default();
        let noted = Arc::clone(&asked);
        access.authorize_by(Box::new(move |_, _, _, name| {
            noted.lock().unwrap().push(name.to_owned());
            name.starts_with(letter)
        }));
        (access, asked)
    }
}

/// Ada at her machine, and the permissions of her connection.
#[cfg(test)]
pub struct Ada {
    principal: Arc<str>,
    host: Arc<str>,
    latest: RefCell<Latest>,
}

#[cfg(test)]
impl Ada {
    pub fn connected() -> Self {
        Self::at("10.0.0.1")
    }

    /// At another machine.
    pub fn at(host: &str) -> Self {
        Self {
            principal: "User:ada".into(),
            host: host.into(),
            latest: RefCell::default(),
        }
    }

    pub fn sender(&self) -> Sender<'_> {
        Sender {
            principal: &self.principal,
            host: &self.host,
            latest: &self.latest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hasher;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A request on a connection of its own.
    fn sender<'a>(principal: &'a Arc<str>, host: &'a Arc<str>) -> Sender<'a> {
        let latest = Box::leak(Box::default());
        Sender {
            principal,
            host,
            latest,
        }
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
    fn each_key_is_told_the_first_that_equals_it() {
        let keys = ["b", "a", "b", "c", "a", "b"];
        assert_eq!(first_of(keys.len(), |at| keys[at]), [0, 1, 0, 3, 1, 0]);
        assert!(first_of(0, |at| keys[at]).is_empty());
    }

    #[test]
    fn keys_of_one_hash_are_told_apart() {
        #[derive(PartialEq, Eq)]
        struct Colliding(u8);
        impl Hash for Colliding {
            fn hash<H: Hasher>(&self, _: &mut H) {}
        }
        let keys = [5, 6, 5, 7, 6];
        let first = first_of(keys.len(), |at| Colliding(keys[at]));
        assert_eq!(first, [0, 1, 0, 3, 1]);
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
    fn the_latest_permissions_of_a_connection_end_with_a_change() {
        let may = Arc::new(AtomicUsize::new(1));
        let access = Access::default();
        let verdict = Arc::clone(&may);
        access.authorize_by(Box::new(move |_, _, _, _| {
            verdict.load(Ordering::Relaxed) == 1
        }));
        let (ada, here) = ("User:ada".into(), "10.0.0.1".into());
        let ada = sender(&ada, &here);
        let names: Vec<String> = (0..2 * LATEST_MAX).map(|n| format!("a{n}")).collect();
        for _ in 0..3 {
            for name in &names {
                assert!(access.allows(ada, Action::ReadTopic, name.as_bytes()));
                assert!(
                    !ada.latest
                        .borrow_mut()
                        .allows(0, Action::WriteTopic, name.as_bytes())
                );
            }
        }
        assert_eq!(ada.latest.borrow().allowed.len(), LATEST_MAX);
        may.store(0, Ordering::Relaxed);
        access.forget();
        for name in &names {
            assert!(!access.allows(ada, Action::ReadTopic, name.as_bytes()));
        }
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
