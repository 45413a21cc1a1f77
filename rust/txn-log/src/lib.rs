//! A partition's log on disk: Kafka's record batches in Kafka's segment files.
//!
//! From the inside out: `compression` and `builder` make the batches that `txn_protocol` reads,
//! `index`, `segment` and `recovery` keep them in files, [`PartitionLog`] is the one
//! door through which they are appended. Whether a batch may enter is not decided here:
//! the log asks its [`producer_state::ProducerStateManager`].
#![forbid(unsafe_code)]

mod aborted;
mod aborted_sums;
pub mod builder;
pub mod compaction;
pub mod compression;
pub mod content;
#[doc(hidden)]
pub mod disk;
pub mod durability;
mod epochs;
mod error;
pub mod histogram;
mod in_place;
mod index;
pub mod inspect;
pub mod log;
mod log_files;
pub mod losses;
pub mod offsets;
mod open_files;
pub mod opening;
mod past;
pub mod producer_state;
mod read_damage;
mod record_counter;
pub mod record_rules;
mod recovery;
mod removal;
mod repacking;
mod replication;
mod retention;
mod scan;
mod search;
mod segment;
mod settings;
mod snapshot;
mod sound_run;
mod swap;
mod synced_end;
mod syncing;
mod truncation;
mod txn_index_check;
mod unfinished_swaps;
mod verified_ranges;
mod watchers;
pub mod write_health;

pub use durability::{Durability, OnDurable};
pub use error::{AppendError, CorruptLog, OpenError, ReadError, RefusedRecord};
pub use in_place::LockFile;
pub use log::PartitionLog;
pub use log::append::Appended;
pub use log::read::Slice;
pub use offsets::{Isolation, LogState, Role};
pub use open_files::{
    LentFile, OpenFile, can_lend_files, close_idle_files, hold_open_files_over_forks, open_files,
    set_open_files_max,
};
pub use past::Past;
pub use producer_state::{Origin, ProducerStateManager};
pub use record_counter::{CommittedCounts, RecordCounter};
pub use recovery::Cut;
pub use removal::NoteStart;
pub use repacking::Inspected;
pub use retention::Expired;
pub use settings::Settings;
pub use swap::Sealed;
pub use watchers::Watcher;
