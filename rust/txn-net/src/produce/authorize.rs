//! The right to write each topic of a request.
//!
//! # Invariant
//! Each name is asked for once, and no batch is appended before every topic has its verdict.

use txn_protocol::codes;

use super::request::ProduceRequest;
use super::version::topic_key;
use crate::access::{Access, Action, Sender, first_of};
use crate::catalog::{Catalog, TopicKey};
use crate::turn::Turn;

impl ProduceRequest {
    /// Refuses the partitions that the sender may not write.
    ///
    /// A transactional request needs its transactional id too; one without an id is refused by
    /// `append`. An unknown topic id is nobody's to refuse, and stays unknown to this request.
    ///
    /// Returns false if the turn was over before each topic had its verdict; then it goes on when
    /// it is called again.
    pub fn authorize(
        &mut self,
        body: &[u8],
        catalog: &Catalog,
        access: &Access,
        sender: Sender<'_>,
        turn: &mut Turn,
    ) -> bool {
        if self.authorized.is_done {
            return true;
        }
        if self.is_transactional() && self.authorized.topics == 0 {
            let Some(id) = self.transactional_id.clone() else {
                return true;
            };
            if !access.allows(sender, Action::WriteTransactionalId, &body[id]) {
                for partition in &mut self.partitions {
                    partition.refuse(codes::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
                }
                self.authorized.is_done = true;
                return true;
            }
        }
        while self.authorized.topics < self.topics.len() {
            let at = self.authorized.topics;
            self.authorized.topics += 1;
            let asked_first = self.authorized.first_of.get(at);
            if let Some(&first) = asked_first.filter(|&&first| first < at) {
                self.topics[at].refusal = self.topics[first].refusal;
                continue;
            }
            let found;
            let name = match topic_key(self.version, &body[self.topics[at].key.clone()]) {
                TopicKey::Name(name) => name,
                id @ TopicKey::Id(_) => {
                    found = catalog.find(id);
                    let Some(topic) = &found else {
                        self.topics[at].refusal = codes::UNKNOWN_TOPIC_ID;
                        continue;
                    };
                    topic.name.as_bytes()
                }
            };
            if access.remembers(sender, Action::WriteTopic, name) {
                continue;
            }
            if self.authorized.first_of.is_empty() {
                let topics = &self.topics;
                self.authorized.first_of =
                    first_of(topics.len(), |at| &body[topics[at].key.clone()]);
                self.authorized.topics = at; // it may have been named before
                continue;
            }
            if !access.ask(sender, Action::WriteTopic, name) {
                self.topics[at].refusal = codes::TOPIC_AUTHORIZATION_FAILED;
            }
            if turn.is_over() && self.authorized.topics < self.topics.len() {
                return false;
            }
        }
        self.authorized.is_done = true;
        let mut rest = self.partitions.as_mut_slice();
        for topic in &self.topics {
            let (partitions, later) = rest.split_at_mut(topic.partitions);
            rest = later;
            if topic.refusal != codes::NONE {
                for partition in partitions {
                    partition.refuse(topic.refusal);
                }
            }
        }
        true
    }
}
