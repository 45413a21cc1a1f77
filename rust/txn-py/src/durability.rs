//! `txn._core.Durability`: logs synced while Python goes on.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use txn_log::{Durability, OnDurable};
use txn_net::Bell;

use crate::log::PyPartitionLog;

/// The durability service of a broker, and the waits of Python that have ended. Either a reactor is
/// told of them, or a file descriptor is readable.
#[pyclass(frozen, name = "Durability", module = "txn._core")]
pub struct PyDurability {
    pub(crate) service: Arc<Durability>,
    pub(crate) ended: Arc<SyncResults>,
}

/// The number of a wait, and its logs, each with the offset below which it has to be on the disk.
type Asked = (u64, Vec<(Py<PyPartitionLog>, i64)>);

/// The number of a wait, and the logs that failed: their place in it, and the disk's error.
type SyncResult = (u64, Vec<(usize, String)>);

/// Waits that have ended and were not taken.
pub struct SyncResults {
    waits: Mutex<EndedWaits>,
    wakeup: OwnedFd,
    /// Notifies the reactor that continues them.
    pub(crate) bell: OnceLock<Bell>,
}

#[derive(Default)]
struct EndedWaits {
    results: Vec<SyncResult>,
    /// A reactor or the loop was told, and has not taken them yet.
    is_told: bool,
    /// The file descriptor is readable.
    is_signalled: bool,
}

impl SyncResults {
    fn note(&self, result: SyncResult) {
        let mut waits = self.lock();
        waits.results.push(result);
        if std::mem::replace(&mut waits.is_told, true) {
            return;
        }
        drop(waits);
        if !self.bell.get().is_some_and(|ring| ring()) {
            self.signal();
        }
    }

    /// Makes the file descriptor readable: the control loop takes them.
    pub(crate) fn signal(&self) {
        let mut waits = self.lock();
        if !std::mem::replace(&mut waits.is_signalled, true) {
            // Adding 1 to an eventfd fails only when it is readable anyhow.
            let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
        }
    }

    fn take(&self) -> Vec<SyncResult> {
        let mut waits = self.lock();
        waits.is_told = false;
        if std::mem::take(&mut waits.is_signalled) {
            let _ = rustix::io::read(&self.wakeup, &mut [0_u8; 8]);
        }
        std::mem::take(&mut waits.results)
    }

    fn lock(&self) -> MutexGuard<'_, EndedWaits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait for several logs. The last one that lets go of it notes the result.
struct Wait {
    number: u64,
    failures: Mutex<Vec<(usize, String)>>,
    ended: Arc<SyncResults>,
}

impl Wait {
    fn on_durable(self: &Arc<Self>, place: usize) -> OnDurable {
        let wait = Arc::clone(self);
        Box::new(move |durable| {
            if let Err(error) = durable {
                let mut failures = wait.failures.lock().unwrap_or_else(PoisonError::into_inner);
                failures.push((place, error.to_string()));
            }
        })
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let failures = self.failures.get_mut();
        let failures = std::mem::take(failures.unwrap_or_else(PoisonError::into_inner));
        self.ended.note((self.number, failures));
    }
}

#[pymethods]
impl PyDurability {
    #[new]
    fn new(threads: usize) -> PyResult<Self> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(std::io::Error::from)?;
        let ended = Arc::new(SyncResults {
            waits: Mutex::default(),
            wakeup,
            bell: OnceLock::new(),
        });
        let service = Arc::new(Durability::new(threads));
        Ok(Self { service, ended })
    }

    #[getter]
    fn wakeup_fd(&self) -> i32 {
        self.ended.wakeup.as_raw_fd()
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python
    fn when_durable(&self, py: Python<'_>, waits: Vec<Asked>) {
        let mut of_logs = Vec::with_capacity(4 * waits.len());
        for (number, logs) in &waits {
            let wait = Arc::new(Wait {
                number: *number,
                failures: Mutex::default(),
                ended: Arc::clone(&self.ended),
            });
            for (place, (log, end)) in logs.iter().enumerate() {
                of_logs.push((&log.get().log, *end, wait.on_durable(place)));
            }
        }
        // Without a thread of its own the service syncs here.
        py.detach(|| self.service.when_each_durable(of_logs));
    }

    fn take(&self) -> Vec<SyncResult> {
        self.ended.take()
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.service.stop());
    }
}

/// Adds this file's class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyDurability>()
}
