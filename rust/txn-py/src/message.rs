//! `Message`: a record of the native engine, whose parts become objects of Python when asked for.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use txn_client::engine::consumer::Message;

const TIMESTAMP_CREATE_TIME: i32 = 1;
const TIMESTAMP_LOG_APPEND_TIME: i32 = 2;

/// A record that was read.
#[pyclass(frozen, module = "txn._core", name = "Message")]
pub(crate) struct PyMessage(pub(crate) Message);

#[pymethods]
impl PyMessage {
    fn topic(&self) -> &str {
        self.0.topic()
    }

    fn partition(&self) -> i32 {
        self.0.partition()
    }

    fn offset(&self) -> i64 {
        self.0.offset()
    }

    fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.key().map(|key| PyBytes::new(py, key))
    }

    fn value<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.value().map(|value| PyBytes::new(py, value))
    }

    /// None: it has no headers.
    fn headers<'py>(&self, py: Python<'py>) -> Option<Vec<(String, Option<Bound<'py, PyBytes>>)>> {
        let pair = |(name, content): (&[u8], Option<&[u8]>)| {
            let name = String::from_utf8_lossy(name).into_owned();
            (name, content.map(|content| PyBytes::new(py, content)))
        };
        (self.0.header_count() > 0).then(|| self.0.headers().map(pair).collect())
    }

    fn timestamp(&self) -> (i32, i64) {
        match self.0.timestamp() {
            (_, -1) => (0, -1),
            (true, at) => (TIMESTAMP_LOG_APPEND_TIME, at),
            (false, at) => (TIMESTAMP_CREATE_TIME, at),
        }
    }

    fn leader_epoch(&self) -> Option<i32> {
        Some(self.0.leader_epoch()).filter(|&epoch| epoch >= 0)
    }

    #[expect(clippy::unused_self, reason = "Python calls it as a method")]
    fn error(&self) -> Option<i32> {
        None
    }

    #[expect(clippy::unused_self, reason = "Python calls it as a method")]
    fn latency(&self) -> Option<f64> {
        None
    }

    fn __len__(&self) -> usize {
        self.0.value().map_or(0, <[u8]>::len)
    }

    #[expect(clippy::unused_self, reason = "Python calls it as a method")]
    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let (topic, partition) = (self.0.topic(), self.0.partition());
        format!(
            "<txn Message {topic}-{partition} at offset {}>",
            self.0.offset()
        )
    }
}

/// Adds this file's class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyMessage>()
}
