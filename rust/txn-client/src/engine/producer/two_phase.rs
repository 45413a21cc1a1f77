//! Two-phase commit (KIP-939): a transaction is prepared, and another system decides how it ends.
//!
//! A prepared transaction takes no more records and offsets. Its coordinator holds it open without
//! a time-out, over crashes of this client: the next one asks to keep it, and ends it.

use txn_protocol::codes;

use super::{Producer, Status};
use crate::engine::transaction::State;
use crate::error::KafkaError;
use crate::messages::transactions::ProducerIdAndEpoch;

impl Producer {
    /// Prepares the open transaction, every record and offset of which is stored. Returns its
    /// identity, or None if the coordinator knows of nothing in it. Can be repeated.
    ///
    /// # Errors
    /// The status, if it is not `Open`, records or offsets are still on their way, or the
    /// transaction is of version 1: its identity could be that of an earlier one.
    pub fn prepare(&mut self) -> Result<Option<ProducerIdAndEpoch>, Status> {
        let is_stored = self.pending == 0 && !self.is_sending_offsets();
        match self.transaction.state {
            State::Open if is_stored && self.settings.is_two_phase && self.transaction.is_v2 => {
                self.transaction.state = State::Prepared;
            }
            State::Prepared if self.transaction.kept.is_none() => {}
            _ => return Err(self.status()),
        }
        let identity = self.transaction.identity.map(|identity| identity.who);
        Ok(identity.filter(|_| self.transaction.has_started))
    }

    /// The identity of the transaction that the coordinator kept for this producer, until it ends.
    #[must_use]
    pub fn kept(&self) -> Option<ProducerIdAndEpoch> {
        self.transaction.kept
    }

    /// Takes the identity of a producer with two-phase commit, and the transaction kept for it.
    pub(super) fn identify_two_phase(&mut self, who: ProducerIdAndEpoch, kept: ProducerIdAndEpoch) {
        let is_v2 = self.nodes.is_v2();
        self.transaction.identify(who);
        if !is_v2 {
            let message = "the cluster runs transactions of version 1, where two transactions can \
                           have one identity: two-phase commit needs transaction.version=2";
            let error = KafkaError::refused(codes::UNSUPPORTED_VERSION, message.to_owned());
            self.transaction.fail_for_good(error);
        } else if kept.0 >= 0 {
            self.transaction.keep(kept);
        }
    }
}
