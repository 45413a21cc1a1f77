//! Every change a log made to its files, and the files that a crash between two of them leaves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use txn_log::disk::{Change, DiskFault, Witness};

/// A change, as it was written down.
#[derive(Clone, Debug)]
pub enum Noted {
    Create(PathBuf),
    Write(PathBuf, u64, Vec<u8>),
    Truncate(PathBuf, u64),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    Sync(PathBuf),
    SyncDirectory,
}

#[derive(Default)]
pub struct Journal(pub Mutex<Vec<Noted>>);

impl Journal {
    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Witness for Journal {
    fn before(&self, change: &Change<'_>) -> Result<(), DiskFault> {
        let name = |path: &Path| PathBuf::from(path.file_name().unwrap());
        let noted = match *change {
            Change::Create(path) => Noted::Create(name(path)),
            Change::Write(path, at, bytes) => Noted::Write(name(path), at, bytes.to_vec()),
            Change::Truncate(path, len) => Noted::Truncate(name(path), len),
            Change::Rename(from, to) => Noted::Rename(name(from), name(to)),
            Change::Remove(path) => Noted::Remove(name(path)),
            Change::Sync(path) => Noted::Sync(name(path)),
            Change::SyncDirectory(_) => Noted::SyncDirectory,
        };
        self.0.lock().unwrap().push(noted);
        Ok(())
    }
}

/// One file: its part on the disk for sure, and the changes since.
#[derive(Clone, Debug, Default)]
struct File {
    durable: Vec<u8>,
    since: Vec<Noted>,
}

fn apply(bytes: &mut Vec<u8>, change: &Noted, part: usize) {
    match change {
        Noted::Write(_, at, written) => {
            let (at, written) = (*at as usize, &written[..part.min(written.len())]);
            let end = at + written.len();
            if bytes.len() < end {
                bytes.resize(end, 0); // a hole reads as zeros
            }
            bytes[at..end].copy_from_slice(written);
        }
        Noted::Truncate(_, len) => bytes.resize(*len as usize, 0),
        Noted::Create(_) => bytes.clear(),
        _ => {}
    }
}

/// Content that the disk may hold when everything stops at `crash`: `dice` says for each unsynced
/// change whether it arrived. Entries of the directory arrive in order.
pub fn after_power_failure(
    journal: &[Noted],
    crash: usize,
    dice: &mut impl FnMut(usize) -> usize,
) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files: Vec<File> = Vec::new();
    // In order, so that the same dice leave the same files.
    let mut live: BTreeMap<PathBuf, usize> = BTreeMap::new();
    let mut history = vec![live.clone()]; // of the directory, since it was synced
    for change in &journal[..crash] {
        match change {
            Noted::Create(path) => {
                if let Some(&file) = live.get(path) {
                    files[file].since.push(change.clone());
                } else {
                    files.push(File::default());
                    live.insert(path.clone(), files.len() - 1);
                    history.push(live.clone());
                }
            }
            Noted::Write(path, ..) | Noted::Truncate(path, _) => {
                // The transaction index is opened, not created, when an entry is added.
                let file = *live.entry(path.clone()).or_insert_with(|| {
                    files.push(File::default());
                    files.len() - 1
                });
                history.push(live.clone());
                files[file].since.push(change.clone());
            }
            Noted::Rename(from, to) => {
                if let Some(file) = live.remove(from) {
                    live.insert(to.clone(), file);
                    history.push(live.clone());
                }
            }
            Noted::Remove(path) => {
                live.remove(path);
                history.push(live.clone());
            }
            Noted::Sync(path) => {
                if let Some(&file) = live.get(path) {
                    let file = &mut files[file];
                    for change in std::mem::take(&mut file.since) {
                        apply(&mut file.durable, &change, usize::MAX);
                    }
                }
            }
            Noted::SyncDirectory => history = vec![live.clone()],
        }
    }
    let entries = &history[dice(history.len())];
    let mut found = BTreeMap::new();
    for (path, &file) in entries {
        let mut bytes = files[file].durable.clone();
        for change in &files[file].since {
            match (dice(3), change) {
                (0, _) => {}
                (1, Noted::Write(_, _, written)) => {
                    apply(&mut bytes, change, dice(written.len() + 1));
                }
                _ => apply(&mut bytes, change, usize::MAX),
            }
        }
        found.insert(path.clone(), bytes);
    }
    found
}

/// The same when only the process stops: everything arrived, the last write perhaps in part.
pub fn after_kill(
    journal: &[Noted],
    crash: usize,
    dice: &mut impl FnMut(usize) -> usize,
) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    for (nth, change) in journal.iter().take(crash + 1).enumerate() {
        match change {
            _ if nth == crash && !matches!(change, Noted::Write(..)) => {}
            Noted::Create(path) | Noted::Truncate(path, _) => {
                apply(files.entry(path.clone()).or_default(), change, usize::MAX);
            }
            Noted::Write(path, _, written) => {
                let part = if nth == crash {
                    dice(written.len() + 1)
                } else {
                    usize::MAX
                };
                apply(files.entry(path.clone()).or_default(), change, part);
            }
            Noted::Rename(from, to) => {
                if let Some(bytes) = files.remove(from) {
                    files.insert(to.clone(), bytes);
                }
            }
            Noted::Remove(path) => {
                files.remove(path);
            }
            Noted::Sync(_) | Noted::SyncDirectory => {}
        }
    }
    files
}
