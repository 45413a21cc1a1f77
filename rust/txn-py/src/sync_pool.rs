//! `txn._core.SyncPool`: logs forced to the disk while Python goes on.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use txn_log::sync_pool::{Pass, SyncPool};

use crate::log::PyPartitionLog;

/// Threads that force logs, and a file descriptor that is readable when they are done.
#[pyclass(frozen, name = "SyncPool", module = "txn._core")]
pub struct PySyncPool {
    pool: SyncPool,
    ended: Arc<Ended>,
}

struct Ended {
    passes: Mutex<Vec<Pass>>,
    wakeup: OwnedFd,
}

impl Ended {
    fn note(&self, pass: Pass) {
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        passes.push(pass);
        // Adding 1 to an eventfd fails only when it is readable anyhow.
        let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
    }

    fn take(&self) -> Vec<Pass> {
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = rustix::io::read(&self.wakeup, &mut [0_u8; 8]);
        std::mem::take(&mut *passes)
    }
}

#[pymethods]
impl PySyncPool {
    #[new]
    fn new(threads: usize) -> PyResult<Self> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(std::io::Error::from)?;
        let ended = Arc::new(Ended {
            passes: Mutex::default(),
            wakeup,
        });
        let told = Arc::clone(&ended);
        let pool = SyncPool::new(threads, Box::new(move |pass| told.note(pass)));
        Ok(Self { pool, ended })
    }

    #[getter]
    fn wakeup_fd(&self) -> i32 {
        self.ended.wakeup.as_raw_fd()
    }

    fn submit(&self, number: u64, logs: Vec<PyRef<'_, PyPartitionLog>>) -> PyResult<()> {
        let logs = logs.into_iter().map(|log| Arc::clone(&log.log)).collect();
        Ok(self.pool.submit(number, logs)?)
    }

    fn take(&self) -> Vec<(u64, Vec<(usize, String)>)> {
        let passes = self.ended.take().into_iter();
        passes.map(|pass| (pass.number, pass.failures)).collect()
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.pool.stop());
    }
}

/// Adds this file's class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySyncPool>()
}
