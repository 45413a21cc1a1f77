//! Aborted transactions and leader epochs, as the batches of a scan show them.

use std::collections::{HashMap, HashSet};

use txn_protocol::batch::BatchView;

use crate::builder::decode_marker;
use crate::producer_state::AbortedTxn;

/// Aborted transactions and leader epochs that a scan saw, to compare their files with.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// The first segment that was scanned.
    pub(super) first_segment: usize,
    pub(super) open: HashSet<i64>,
    /// Abort markers by offset: whose, and whether data of the transaction was seen before it.
    pub(super) markers: HashMap<i64, (i64, bool)>,
    /// The first batches of leader epochs: (epoch, base offset).
    pub(super) epochs: Vec<(i32, i64)>,
}

impl Evidence {
    pub(super) fn note(&mut self, batch: &BatchView<'_>) {
        let leader_epoch = batch.leader_epoch();
        if self
            .epochs
            .last()
            .is_none_or(|&(last, _)| leader_epoch > last)
        {
            self.epochs.push((leader_epoch, batch.base_offset()));
        }
        let producer_id = batch.producer_id();
        if producer_id < 0 || !batch.is_transactional() {
            return;
        }
        if !batch.is_control() {
            self.open.insert(producer_id);
        } else if let Some((is_commit, _)) = decode_marker(batch.records()) {
            let had_data = self.open.remove(&producer_id);
            if !is_commit {
                self.markers
                    .insert(batch.base_offset(), (producer_id, had_data));
            }
        }
    }

    /// True if the entries are those of the markers below `end`, no fewer and no others.
    pub(super) fn agrees_with(&self, entries: &[AbortedTxn], end: i64) -> bool {
        let is_marked = |entry: &AbortedTxn| {
            let marker = self.markers.get(&entry.last_offset);
            marker.is_some_and(|marker| marker.0 == entry.producer_id)
        };
        let indexed: HashSet<i64> = entries.iter().map(|entry| entry.last_offset).collect();
        let is_indexed = |(&offset, &(_, had_data)): (&i64, &(i64, bool))| {
            offset >= end || !had_data || indexed.contains(&offset)
        };
        entries.iter().all(is_marked) && self.markers.iter().all(is_indexed)
    }
}
