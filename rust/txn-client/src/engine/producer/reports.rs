//! Reports about records that were sent with a delivery number.
//!
//! A reader looks at the reports and forgets them afterwards. So a reader that is interrupted between
//! the two loses none: the next one sees them again.

use std::sync::Arc;

use super::Producer;
use crate::engine::accumulator::{Batch, Tracked};
use crate::engine::topics::Unplaced;
use crate::engine::transaction::Place;
use crate::engine::{Outcome, Report};

impl Producer {
    /// Reports the end of a batch's records.
    pub(super) fn report(&mut self, place: Place, batch: &mut Batch, outcome: Outcome) {
        let records = std::mem::take(&mut batch.tracked);
        let topic = Arc::clone(&self.topics.all[place.0].name);
        self.add_report(topic, place.1 as i32, records, outcome);
    }

    /// Reports the end of a record that has no partition yet.
    pub(super) fn report_unplaced(&mut self, index: usize, unplaced: &Unplaced, outcome: Outcome) {
        let tracked = |number| Tracked {
            number,
            index: 0,
            timestamp_ms: unplaced.timestamp_ms,
        };
        let records = unplaced.delivery.map(tracked).into_iter().collect();
        let topic = Arc::clone(&self.topics.all[index].name);
        self.add_report(topic, unplaced.partition.unwrap_or(-1), records, outcome);
    }

    fn add_report(
        &mut self,
        topic: Arc<str>,
        partition: i32,
        records: Vec<Tracked>,
        outcome: Outcome,
    ) {
        if records.is_empty() {
            return;
        }
        self.reports.push_back(Report {
            topic,
            partition,
            records,
            outcome,
        });
    }

    /// The reports that are not forgotten, and the number of the first one.
    pub fn reports(&self) -> (u64, impl Iterator<Item = &Report>) {
        (self.first_report, self.reports.iter())
    }

    /// True if there are reports to read.
    #[must_use]
    pub fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Forgets the reports before number `end`.
    pub fn forget_reports(&mut self, end: u64) {
        while self.first_report < end && self.reports.pop_front().is_some() {
            self.first_report += 1;
        }
    }
}
