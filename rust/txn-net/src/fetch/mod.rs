//! Fetch, versions 4 to 18: runs of stored batches, from segment to socket.
//!
//! [`FetchRequest::parse`] makes a plan of the request. [`FetchRequest::readiness`] says, from the
//! logs' published offsets alone, whether it can be answered now; if not it waits in the
//! purgatory. [`FetchRequest::answer`] locates the bytes and writes everything around them; the
//! records themselves are [`Chunk::File`](crate::chunk::Chunk::File)s that never enter this process.
//!
//! | file | holds |
//! |---|---|
//! | [`request`], [`wanted`] | the bytes of a request; the topics and partitions in it |
//! | [`tally`] | whether it has to wait |
//! | [`records`] | the offsets that a reader may see of a partition, and where their bytes lie |
//! | [`answer`], [`sent`] | the bytes around the records; the offsets in them |
//! | [`session`] | a fetch session: its requests, and what they look at |
//! | [`session_state`] | its partitions, and those of them that may have changed |
//! | [`session_watch`] | the watchers on their logs |
//! | [`session_cache`] | the sessions of the broker, their limits and their owners |
//!
//! # Isolation
//! `read_uncommitted` reads up to the high watermark, which on one node is the log end.
//! `read_committed` reads up to the last stable offset; the answer names every aborted transaction
//! that overlaps its bytes. The bound is read once per partition and answer: batches beyond
//! it are not even located.
//!
//! # Sessions
//! A full request (epoch 0) opens a session if there is room for one, and its answer names it. Later
//! requests of the session name only partitions that change, and so do their answers (KIP-227). A
//! request without a session does nothing of this.
//!
//! # Deviations from Apache Kafka
//! - A session belongs to its owner, a principal at a host. To others it is unknown.
//! - A session's answer also has a partition of which only the last stable offset changed.
//!
//! A partition that is named more than once counts once, as in Kafka. It keeps its first place,
//! and the offset and sizes that come last.
//!
//! Sources: `FetchRequest.json`, `FetchResponse.json`; KIP-74 (`max_bytes`), KIP-98 (isolation),
//! KIP-227 (sessions), KIP-320 (leader epochs), KIP-516 (topic ids), KIP-595 (diverging epochs).

mod answer;
mod records;
mod request;
mod sent;
mod session;
mod session_cache;
mod session_state;
mod session_watch;
mod tally;
mod wanted;

use std::sync::Arc;
use std::time::{Duration, Instant};

use txn_log::{PartitionLog, Watcher};
use txn_protocol::codes;

use crate::access::{Access, Action, Sender};
use crate::catalog::Catalog;
use crate::turn::Turn;
use records::{Readable, Reading};
use session::{FetchSession, SessionOwner};
use tally::Tally;
use wanted::{
    FINAL_EPOCH, INITIAL_EPOCH, OwnedKey, WantedPartition, WantedParts, WantedTopic, has_topic_ids,
};

pub use session_cache::{FetchSessions, SessionSnapshot};
pub use wanted::Readiness;

/// The most record bytes in one answer, but for a first batch that is larger: the default of
/// Kafka's `fetch.max.bytes`.
const MAX_ANSWER_BYTES: u64 = 55 << 20;

/// A Fetch, parsed. It borrows nothing, because it may wait.
pub struct FetchRequest {
    version: i16,
    correlation_id: i32,
    max_wait: Duration,
    min_bytes: u64,
    max_bytes: u64,
    reading: Reading,
    /// Session id and epoch, as the request has them.
    named_session: (i32, i32),
    session: SessionUse,
    topics: Vec<WantedTopic>,
    partitions: Vec<WantedPartition>,
    /// Partitions that its session is to forget.
    forgotten: Vec<(OwnedKey, Vec<i32>)>,
    /// For each topic the place of the first of its name or id; empty until that matters.
    first_of: Vec<usize>,
    /// Number of topics that have their verdict.
    authorized: usize,
}

/// The part that a session has in a request.
enum SessionUse {
    /// The request has no session, so it names each partition and its answer does too.
    None,
    /// The answer opens one, for this owner.
    Opens(Arc<FetchSessions>, SessionOwner),
    /// The request goes on with one, which has come to this epoch by it.
    Follows(Arc<FetchSession>, i32),
    /// There is no such session, or it cannot go on like this.
    Refused(i16),
}

impl FetchRequest {
    /// Finds the session that the request names, and changes it as the request says; or takes note
    /// that its answer opens one.
    pub fn enter_session(
        &mut self,
        sessions: &Arc<FetchSessions>,
        sender: Sender<'_>,
        now: Instant,
    ) {
        let (id, epoch) = self.named_session;
        if (id, epoch) == (0, FINAL_EPOCH) {
            return; // most requests of clients without sessions
        }
        let owner = SessionOwner::of(sender);
        if epoch == INITIAL_EPOCH || epoch == FINAL_EPOCH {
            sessions.close(id, &owner);
            if epoch == INITIAL_EPOCH {
                self.session = SessionUse::Opens(Arc::clone(sessions), owner);
            }
            return;
        }
        let Some(session) = sessions.find(id, &owner) else {
            self.session = SessionUse::Refused(codes::FETCH_SESSION_ID_NOT_FOUND);
            return;
        };
        let updated = session.update(epoch, &self.parts());
        self.session = match updated {
            Err(code) => SessionUse::Refused(code),
            Ok(None) => {
                sessions.close(id, &owner);
                SessionUse::None // its last partition is forgotten
            }
            Ok(Some(next_epoch)) => {
                (self.topics, self.partitions, self.forgotten) = Default::default();
                if sessions.keep(&session, now) {
                    SessionUse::Follows(session, next_epoch)
                } else {
                    SessionUse::Refused(codes::FETCH_SESSION_ID_NOT_FOUND)
                }
            }
        };
    }

    /// Number of the partitions of its session that it looks at.
    pub fn open_count(&self) -> usize {
        match &self.session {
            SessionUse::Follows(session, _) => session.open_count(),
            _ => 0,
        }
    }

    fn parts(&self) -> WantedParts<'_> {
        WantedParts {
            uses_ids: has_topic_ids(self.version),
            is_read_committed: self.reading.is_read_committed,
            topics: &self.topics,
            partitions: &self.partitions,
            forgotten: &self.forgotten,
        }
    }

    /// Refuses the topics that the reader may not read. An unknown topic id is nobody's to refuse.
    ///
    /// Returns false if the turn was over before each topic had its verdict; then it goes on when
    /// it is called again.
    pub fn authorize(&mut self, access: &Access, sender: Sender<'_>, turn: &mut Turn) -> bool {
        if let SessionUse::Follows(session, _) = &self.session {
            return session.authorize(access, sender, turn);
        }
        while self.authorized < self.topics.len() {
            let at = self.authorized;
            self.authorized += 1;
            if let Some(&first) = self.first_of.get(at).filter(|&&first| first < at) {
                self.topics[at].is_refused = self.topics[first].is_refused;
                if self.topics[first].topic.is_none() {
                    self.topics[at].topic = None; // it was made since, and nobody was asked
                }
                continue;
            }
            let wanted = &self.topics[at];
            let name = match (&wanted.key, &wanted.topic) {
                (OwnedKey::Name(name), _) => name,
                (OwnedKey::Id(_), Some(found)) => found.name.as_bytes(),
                (OwnedKey::Id(_), None) => continue,
            };
            if access.remembers(sender, Action::ReadTopic, name) {
                continue;
            }
            if self.first_of.is_empty() && self.topics.len() > 1 {
                self.find_first();
                self.authorized = at; // it may have been named before
                continue;
            }
            self.topics[at].is_refused = !access.ask(sender, Action::ReadTopic, name);
            if turn.is_over() {
                return self.authorized == self.topics.len();
            }
        }
        true
    }

    /// Cap the response at `bytes` of batches.
    pub fn limit_bytes(&mut self, bytes: u64) {
        self.max_bytes = self.max_bytes.min(bytes);
        self.min_bytes = self.min_bytes.min(self.max_bytes);
    }

    pub fn correlation_id(&self) -> i32 {
        self.correlation_id
    }

    /// The most time it may wait.
    pub fn max_wait(&self) -> Duration {
        self.max_wait
    }

    /// True if its topics are those of its session.
    pub fn follows_session(&self) -> bool {
        matches!(self.session, SessionUse::Follows(..))
    }

    /// Number of partitions that have to be looked at to see whether it can be answered.
    pub fn partition_count(&self) -> usize {
        match &self.session {
            SessionUse::Follows(session, _) => session.open_count(),
            _ => self.partitions.len(),
        }
    }

    /// Calls a watcher when one of its partitions may have changed, until the result is dropped.
    pub fn watch(&self, watcher: &Arc<dyn Watcher>) -> FetchWatch {
        if let SessionUse::Follows(session, _) = &self.session {
            session.set_waiter(Arc::clone(watcher));
            return FetchWatch::Session(Arc::clone(session), Arc::clone(watcher));
        }
        let watch = |log: &Arc<PartitionLog>| (Arc::clone(log), log.watch(Arc::clone(watcher)));
        FetchWatch::Logs(self.logs().map(watch).collect())
    }

    /// The logs it reads, each once.
    fn logs(&self) -> impl Iterator<Item = &Arc<PartitionLog>> {
        self.each().filter_map(|(topic, wanted)| {
            let topic = topic.topic.as_ref()?;
            self.reading.log(topic, wanted.index).ok()
        })
    }

    /// True if one of its topics was removed or replaced since it was parsed.
    pub fn is_outdated(&self) -> bool {
        if let SessionUse::Follows(session, _) = &self.session {
            return session.is_outdated();
        }
        self.topics
            .iter()
            .any(|wanted| wanted.topic.as_ref().is_some_and(|one| !one.is_current()))
    }

    /// Looks its topics up again.
    pub fn refresh(&mut self, catalog: &Catalog) {
        for wanted in &mut self.topics {
            wanted.topic = catalog.find(wanted.key.borrow());
        }
    }

    fn each(&self) -> impl Iterator<Item = (&WantedTopic, &WantedPartition)> {
        self.partitions
            .iter()
            .map(|wanted| (&self.topics[wanted.topic], wanted))
    }

    fn tally(&self) -> Tally {
        Tally {
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            bytes: 0,
            is_ready: self.max_wait.is_zero(),
            is_any_read: false,
        }
    }

    /// Says whether it can be answered now.
    ///
    /// Cost: a few atomic loads per partition, with `min_bytes` above 1 also an index look-up. A
    /// session looks only at partitions that may have changed.
    pub fn readiness(&self) -> Readiness {
        let mut tally = self.tally();
        match &self.session {
            SessionUse::Refused(_) => return Readiness::Ready,
            SessionUse::Follows(session, epoch) => {
                return session.readiness(*epoch, &self.reading, tally);
            }
            SessionUse::None | SessionUse::Opens(..) => {}
        }
        for (topic, wanted) in self.each() {
            if tally.is_ready {
                break;
            }
            tally.add(wanted.max_bytes, &self.readable(topic, wanted));
        }
        tally.readiness()
    }

    fn readable<'a>(
        &self,
        topic: &'a WantedTopic,
        wanted: &WantedPartition,
    ) -> Result<Readable<'a>, i16> {
        if topic.is_refused {
            return Err(codes::TOPIC_AUTHORIZATION_FAILED);
        }
        let Some(found) = &topic.topic else {
            return Err(match topic.key {
                OwnedKey::Name(_) => codes::UNKNOWN_TOPIC_OR_PARTITION,
                OwnedKey::Id(_) => codes::UNKNOWN_TOPIC_ID,
            });
        };
        self.reading.readable(found, wanted)
    }
}

/// A watch on the partitions of a request; dropping it takes it back.
pub enum FetchWatch {
    Logs(Vec<(Arc<PartitionLog>, u64)>),
    Session(Arc<FetchSession>, Arc<dyn Watcher>),
}

impl Drop for FetchWatch {
    fn drop(&mut self) {
        match self {
            Self::Logs(watched) => {
                for (log, id) in watched {
                    log.unwatch(*id);
                }
            }
            Self::Session(session, watcher) => session.take_waiter(watcher),
        }
    }
}

#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod tests;
