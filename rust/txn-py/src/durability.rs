//! `txn._core.Durability`: logs forced to the disk while Python goes on.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use txn_log::Durability;

use crate::log::PyPartitionLog;

/// The durability service of a broker, and a file descriptor that is readable when Python's waits
/// have ended.
#[pyclass(frozen, name = "Durability", module = "txn._core")]
pub struct PyDurability {
    pub(crate) service: Arc<Durability>,
    ended: Arc<Ended>,
}

/// The number of a wait, and the logs that failed: their place in it, and the disk's error.
type SyncResult = (u64, Vec<(usize, String)>);

struct Ended {
    results: Mutex<Vec<SyncResult>>,
    wakeup: OwnedFd,
}

impl Ended {
    fn note(&self, result: SyncResult) {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.push(result);
        // Adding 1 to an eventfd fails only when it is readable anyhow.
        let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
    }

    fn take(&self) -> Vec<SyncResult> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = rustix::io::read(&self.wakeup, &mut [0_u8; 8]);
        std::mem::take(&mut *results)
    }
}

/// A wait for several logs. The last one that lets go of it notes the result.
struct Wait {
    number: u64,
    failures: Mutex<Vec<(usize, String)>>,
    ended: Arc<Ended>,
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
        let ended = Arc::new(Ended {
            results: Mutex::default(),
            wakeup,
        });
        let service = Arc::new(Durability::new(threads));
        Ok(Self { service, ended })
    }

    #[getter]
    fn wakeup_fd(&self) -> i32 {
        self.ended.wakeup.as_raw_fd()
    }

    #[allow(clippy::needless_pass_by_value)] // extracted from Python
    fn when_durable(&self, py: Python<'_>, number: u64, logs: Vec<(Py<PyPartitionLog>, i64)>) {
        let logs: Vec<_> = logs
            .iter()
            .map(|(log, end)| (Arc::clone(&log.get().log), *end))
            .collect();
        let wait = Arc::new(Wait {
            number,
            failures: Mutex::default(),
            ended: Arc::clone(&self.ended),
        });
        py.detach(|| {
            for (place, (log, end)) in logs.iter().enumerate() {
                let wait = Arc::clone(&wait);
                let on_durable = move |durable: Result<(), &std::io::Error>| {
                    if let Err(error) = durable {
                        let mut failures =
                            wait.failures.lock().unwrap_or_else(PoisonError::into_inner);
                        failures.push((place, error.to_string()));
                    }
                };
                self.service.when_durable(log, *end, Box::new(on_durable));
            }
            drop(wait);
        });
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
