//! Finds the batches of aborted transactions, and the markers that no reader needs any more.
//!
//! A cleaning reads the log from its start, so it sees every batch of a transaction before its
//! marker. Which transactions were aborted is known beforehand from the transaction indexes:
//! their data can go at once. A marker tells the end of a transaction to the readers of its data.
//! One that ends a transaction of which no batch is left, not even an empty one, is *idle*.
//!
//! Source: Kafka, `CleanedTransactionMetadata`.

use std::collections::{HashMap, HashSet};

use txn_protocol::batch::Header;

use crate::producer_state::AbortedTxn;

/// The transaction that a marker ended, as far as the log still tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedTransaction {
    /// A transaction with batches in the log.
    Committed,
    /// The same, aborted; its entry has to stay in the index.
    Aborted(AbortedTxn),
    /// Nothing that is left.
    Nothing,
}

/// The transactions open at one point of a walk over the log.
#[derive(Debug)]
pub(crate) struct Transactions {
    /// Aborted ones not yet reached, the nearest last.
    ahead: Vec<AbortedTxn>,
    aborted: HashMap<i64, Aborting>,
    committed: HashSet<i64>,
}

#[derive(Debug)]
struct Aborting {
    entry: AbortedTxn,
    has_batches: bool,
}

impl Transactions {
    /// Begins a walk between batches. `aborted`: at least those that overlap the walked range.
    pub fn new(mut aborted: Vec<AbortedTxn>) -> Self {
        aborted.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.first_offset));
        Self {
            ahead: aborted,
            aborted: HashMap::new(),
            committed: HashSet::new(),
        }
    }

    /// Passes a data batch; says whether it belongs to an aborted transaction.
    pub fn pass_data(&mut self, header: &Header) -> bool {
        if !header.is_transactional() {
            return false;
        }
        self.reach(header);
        let producer_id = header.producer_id();
        if let Some(aborting) = self.aborted.get_mut(&producer_id) {
            aborting.has_batches = true;
            return true;
        }
        self.committed.insert(producer_id);
        false
    }

    /// Passes a marker; returns the transaction that it ended.
    pub fn pass_marker(&mut self, header: &Header, is_commit: bool) -> EndedTransaction {
        self.reach(header);
        let producer_id = header.producer_id();
        if is_commit {
            let had_batches = self.committed.remove(&producer_id);
            return if had_batches {
                EndedTransaction::Committed
            } else {
                EndedTransaction::Nothing
            };
        }
        match self.aborted.remove(&producer_id) {
            Some(aborting) if aborting.has_batches => EndedTransaction::Aborted(aborting.entry),
            _ => EndedTransaction::Nothing,
        }
    }

    fn reach(&mut self, header: &Header) {
        let is_reached = |entry: &mut AbortedTxn| entry.first_offset <= header.last_offset();
        while let Some(entry) = self.ahead.pop_if(is_reached) {
            if entry.last_offset < header.base_offset() {
                continue; // it ended before the walk began
            }
            let aborting = Aborting {
                entry,
                has_batches: false,
            };
            self.aborted.insert(entry.producer_id, aborting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn_protocol::batch::Codec;
    use txn_protocol::batch::attributes;

    fn header(base_offset: i64, producer_id: i64, is_control: bool) -> Header {
        Header {
            base_offset,
            length: 49,
            leader_epoch: 0,
            crc: 0,
            attributes: attributes(Codec::None, true, is_control),
            last_offset_delta: 0,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            record_count: 1,
        }
    }

    fn data(base_offset: i64, producer_id: i64) -> Header {
        header(base_offset, producer_id, false)
    }

    fn marker(base_offset: i64, producer_id: i64) -> Header {
        header(base_offset, producer_id, true)
    }

    fn aborted(producer_id: i64, first_offset: i64, last_offset: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id,
            first_offset,
            last_offset,
            last_stable_offset: last_offset + 1,
        }
    }

    #[test]
    fn interleaved_transactions_are_told_apart() {
        let mut walk = Transactions::new(vec![aborted(1, 0, 4)]);
        assert!(walk.pass_data(&data(0, 1)));
        assert!(!walk.pass_data(&data(1, 2)));
        assert!(walk.pass_data(&data(2, 1)));
        assert_eq!(
            walk.pass_marker(&marker(3, 2), true),
            EndedTransaction::Committed
        );
        let ended = walk.pass_marker(&marker(4, 1), false);
        assert_eq!(ended, EndedTransaction::Aborted(aborted(1, 0, 4)));
    }

    #[test]
    fn a_producer_may_commit_between_two_aborts() {
        let mut walk = Transactions::new(vec![aborted(1, 4, 5), aborted(1, 0, 1)]);
        assert!(walk.pass_data(&data(0, 1)));
        assert!(matches!(
            walk.pass_marker(&marker(1, 1), false),
            EndedTransaction::Aborted(_)
        ));
        assert!(!walk.pass_data(&data(2, 1)));
        assert_eq!(
            walk.pass_marker(&marker(3, 1), true),
            EndedTransaction::Committed
        );
        assert!(walk.pass_data(&data(4, 1)));
        let ended = walk.pass_marker(&marker(5, 1), false);
        assert_eq!(ended, EndedTransaction::Aborted(aborted(1, 4, 5)));
    }

    #[test]
    fn a_marker_whose_transaction_left_no_batch_ends_nothing() {
        let mut walk = Transactions::new(vec![aborted(1, 0, 4)]);
        assert_eq!(
            walk.pass_marker(&marker(4, 1), false),
            EndedTransaction::Nothing
        );
        assert_eq!(
            walk.pass_marker(&marker(5, 2), true),
            EndedTransaction::Nothing
        );
    }

    #[test]
    fn transactions_that_ended_before_the_walk_began_are_passed_over() {
        let mut walk = Transactions::new(vec![aborted(1, 0, 4)]);
        assert!(!walk.pass_data(&data(10, 1)));
        assert_eq!(
            walk.pass_marker(&marker(11, 1), true),
            EndedTransaction::Committed
        );
    }

    #[test]
    fn plain_batches_of_the_same_producer_belong_to_no_transaction() {
        let mut walk = Transactions::new(vec![aborted(1, 0, 4)]);
        let mut plain = data(1, 1);
        plain.attributes = attributes(Codec::None, false, false);
        assert!(!walk.pass_data(&plain));
    }
}
