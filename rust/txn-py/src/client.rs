//! `KafkaClient`, `Fetch` and `Writer`: rows as columns, for any Kafka.
//!
//! Every call releases the interpreter before it takes a lock or a socket. Between attempts it
//! looks for signals, so Ctrl-C ends a wait instead of sitting it out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};
use txn_client::columns::{BinaryColumn, Columns, Parts};
use txn_client::fetch::Selection;
use txn_client::security::Security;
use txn_client::writer::WriterSettings;
use txn_client::{Address, Client, ClientApi, Interrupt, ProducerIdAndEpoch};
use txn_protocol::batch::Codec;

use crate::errors::KafkaError;
use crate::rows::{BinaryBuffers, HeaderColumn, RowBuffers};
use crate::security::{ClientSecurity, TokenFailure, is_reported};

/// (transactional id, error code, state, producer id, producer epoch, start time, timeout).
type DescriptionTuple = (String, i16, String, i64, i16, i64, i32);

/// (host, port).
type NodeTuple = (String, u16);

/// (partition count, topic id).
type TopicTuple<'py> = (usize, Option<Bound<'py, PyBytes>>);

/// The exceptions of Python code that a waiting call ran: a signal's handler, a token's callable.
#[derive(Clone, Default)]
pub(crate) struct Signal {
    raised: Arc<Mutex<Option<PyErr>>>,
    pub(crate) token_failure: TokenFailure,
}

impl Signal {
    /// Runs the signal handlers that are due; true if one raised.
    pub(crate) fn is_raised(&self) -> bool {
        let raised = Python::try_attach(|py| py.check_signals().err());
        match raised {
            Some(Some(error)) => {
                *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                true
            }
            _ => false,
        }
    }

    /// The exception of a handler that ended a wait.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.raised
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// The exception to raise for a failed call: the handler's, if one ended it.
    fn raise(&self, error: txn_client::KafkaError) -> PyErr {
        let raised = self.take();
        let token_failure = self.token_failure.take();
        if let Some(raised) = raised {
            return raised;
        }
        let told = KafkaError::new_err((error.message, error.code, error.is_retriable));
        match token_failure {
            None => told,
            Some(cause) => Python::attach(|py| {
                if !is_reported(py, &cause) {
                    return cause;
                }
                told.set_cause(py, Some(cause));
                told
            }),
        }
    }
}

/// A small blocking client for rows as columns, for any Kafka >= 3.0.
#[pyclass(frozen, module = "txn._core")]
struct KafkaClient {
    client: Client,
    signal: Signal,
}

impl KafkaClient {
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Client) -> Result<T, txn_client::KafkaError> + Send,
    ) -> PyResult<T> {
        py.detach(|| call(&self.client))
            .map_err(|error| self.signal.raise(error))
    }
}

#[pymethods]
impl KafkaClient {
    #[new]
    #[pyo3(signature = (bootstrap_servers, *, client_id = "txn", timeout_ms = 60_000, security = None))]
    fn new(
        py: Python<'_>,
        bootstrap_servers: &str,
        client_id: &str,
        timeout_ms: u64,
        security: Option<PyRef<'_, ClientSecurity>>,
    ) -> PyResult<Self> {
        let signal = Signal::default();
        let raised = signal.clone();
        let interrupt = Interrupt::new(move || raised.is_raised());
        let timeout = Duration::from_millis(timeout_ms);
        let security = security.map_or_else(Security::default, |security| {
            security.of_client(py, &signal.token_failure)
        });
        let client = Client::new(
            bootstrap_servers,
            client_id,
            security,
            timeout,
            Some(interrupt),
        )
        .map_err(|error| PyValueError::new_err(error.message))?;
        Ok(Self { client, signal })
    }

    #[getter]
    fn transaction_version(&self, py: Python<'_>) -> PyResult<i16> {
        self.run(py, Client::transaction_version)
    }

    fn topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.run(py, Client::topics)
    }

    /// Ids as bytes: a caller may show them as it likes.
    #[pyo3(signature = (topics, *, is_patient = false))]
    #[allow(clippy::needless_pass_by_value)]
    fn describe_topics<'py>(
        &self,
        py: Python<'py>,
        topics: Vec<String>,
        is_patient: bool,
    ) -> PyResult<Vec<Option<TopicTuple<'py>>>> {
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        let described = self.run(py, |client| client.describe_topics(&names, is_patient))?;
        let tuple = |info: txn_client::TopicInfo| {
            let id = info.id.map(|id| PyBytes::new(py, &id));
            (info.partitions, id)
        };
        Ok(described.into_iter().map(|info| info.map(tuple)).collect())
    }

    fn partition_count(&self, py: Python<'_>, topic: &str) -> PyResult<usize> {
        self.run(py, |client| client.partition_count(topic))
    }

    #[allow(clippy::needless_pass_by_value)] // pyo3 hands arguments over by value
    fn create_topic(
        &self,
        py: Python<'_>,
        topic: &str,
        partitions: i32,
        configs: HashMap<String, String>,
    ) -> PyResult<bool> {
        let configs: Vec<_> = configs.into_iter().collect();
        self.run(py, |client| {
            client.create_topic(topic, partitions, &configs)
        })
    }

    #[pyo3(signature = (topic, partitions, timestamp_ms, *, read_committed = true))]
    #[allow(clippy::needless_pass_by_value)]
    fn list_offsets(
        &self,
        py: Python<'_>,
        topic: &str,
        partitions: Vec<i32>,
        timestamp_ms: i64,
        read_committed: bool,
    ) -> PyResult<Vec<i64>> {
        self.run(py, |client| {
            client.list_offsets(topic, &partitions, timestamp_ms, read_committed)
        })
    }

    #[pyo3(signature = (topic, partition, start, end, *, read_committed = true, max_bytes = 4 << 20,
                        max_batch_bytes = 256 << 20, include_keys = true, include_values = true, include_headers = false))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)] // as the stub says
    fn fetch(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        start: i64,
        end: i64,
        read_committed: bool,
        max_bytes: i32,
        max_batch_bytes: usize,
        include_keys: bool,
        include_values: bool,
        include_headers: bool,
    ) -> PyResult<Fetch> {
        if max_bytes <= 0 {
            return Err(PyValueError::new_err(format!(
                "max_bytes is {max_bytes}; it must be positive"
            )));
        }
        let parts = Parts {
            keys: include_keys,
            values: include_values,
            headers: include_headers,
        };
        let selection = Selection {
            start,
            end,
            read_committed,
            bytes_max: max_bytes,
            content_bytes_max: max_batch_bytes,
            parts,
        };
        let fetch = self.run(py, |client| client.fetch(topic, partition, selection))?;
        Ok(Fetch {
            fetch: Mutex::new(fetch),
            signal: self.signal.clone(),
        })
    }

    #[pyo3(
        signature = (
            transactional_id, timeout_ms, producer_id = -1, producer_epoch = -1, *,
            is_two_phase = false
        ),
        text_signature = "($self, transactional_id, timeout_ms, producer_id=-1, producer_epoch=-1, \
            *, is_two_phase=False)"
    )]
    fn init_producer_id(
        &self,
        py: Python<'_>,
        transactional_id: &str,
        timeout_ms: i32,
        producer_id: i64,
        producer_epoch: i16,
        is_two_phase: bool,
    ) -> PyResult<ProducerIdAndEpoch> {
        let current = (producer_id, producer_epoch);
        self.run(py, |client| {
            client.init_producer_id(Some(transactional_id), timeout_ms, current, is_two_phase)
        })
    }

    fn end_txn(
        &self,
        py: Python<'_>,
        transactional_id: &str,
        producer_id: i64,
        producer_epoch: i16,
        commit: bool,
    ) -> PyResult<ProducerIdAndEpoch> {
        self.run(py, |client| {
            client.end_txn(transactional_id, (producer_id, producer_epoch), commit)
        })
    }

    #[allow(clippy::needless_pass_by_value)]
    fn describe_transactions(
        &self,
        py: Python<'_>,
        transactional_ids: Vec<String>,
    ) -> PyResult<Vec<DescriptionTuple>> {
        let described = self.run(py, |client| {
            client.describe_transactions(&transactional_ids)
        })?;
        let tuple = |d: txn_client::Description| {
            let who = (d.producer_id, d.producer_epoch);
            (
                d.transactional_id,
                d.error_code,
                d.state,
                who.0,
                who.1,
                d.start_time_ms,
                d.timeout_ms,
            )
        };
        Ok(described.into_iter().map(tuple).collect())
    }

    #[allow(clippy::needless_pass_by_value)]
    fn list_transactions(
        &self,
        py: Python<'_>,
        states: Vec<String>,
        prefix: &str,
    ) -> PyResult<Vec<(String, i64, String)>> {
        self.run(py, |client| client.list_transactions(&states, prefix))
    }

    #[allow(clippy::needless_pass_by_value)]
    fn add_offsets(
        &self,
        py: Python<'_>,
        transactional_id: &str,
        producer_id: i64,
        producer_epoch: i16,
        group: &str,
        offsets: Vec<(String, i32, i64)>,
    ) -> PyResult<()> {
        let who = (producer_id, producer_epoch);
        self.run(py, |client| {
            client.add_offsets(transactional_id, who, group, &offsets)
        })
    }

    #[pyo3(
        signature = (transactional_id, producer_id, producer_epoch, *, batch_bytes = 1 << 20,
                     compression = "none", acks = -1, metadata_max_age_ms = 300_000),
        text_signature = "($self, transactional_id, producer_id, producer_epoch, *, \
                          batch_bytes=..., compression='none', acks=-1, metadata_max_age_ms=300000)"
    )]
    #[allow(clippy::too_many_arguments)]
    fn writer(
        &self,
        py: Python<'_>,
        transactional_id: Option<&str>,
        producer_id: i64,
        producer_epoch: i16,
        batch_bytes: usize,
        compression: &str,
        acks: i32,
        metadata_max_age_ms: u64,
    ) -> PyResult<Writer> {
        let codec = Codec::from_name(compression).ok_or_else(|| {
            let known = "none, gzip, snappy, lz4 or zstd";
            PyValueError::new_err(format!(
                "compression is '{compression}'; it must be {known}"
            ))
        })?;
        if acks != -1 {
            let message = format!("acks is {acks}; a producer id needs acks=-1 (all)");
            return Err(PyValueError::new_err(message));
        }
        if batch_bytes == 0 {
            return Err(PyValueError::new_err(
                "batch_bytes is 0; it must be positive",
            ));
        }
        let settings = WriterSettings {
            batch_bytes,
            codec,
            metadata_age_max: Duration::from_millis(metadata_max_age_ms),
        };
        let who = (producer_id, producer_epoch);
        let writer = self.run(py, |client| client.writer(transactional_id, who, settings))?;
        Ok(Writer {
            writer: Mutex::new(writer),
            signal: self.signal.clone(),
        })
    }

    fn any_node(&self, py: Python<'_>) -> PyResult<NodeTuple> {
        let address = self.run(py, Client::any_node)?;
        Ok((address.host, address.port))
    }

    fn version(
        &self,
        py: Python<'_>,
        node: NodeTuple,
        api_key: i16,
        versions: (i16, i16),
    ) -> PyResult<i16> {
        let (node, api) = (address(node), known_api(api_key, versions)?);
        self.run(py, |client| client.version(&node, api))
    }

    fn send<'py>(
        &self,
        py: Python<'py>,
        node: NodeTuple,
        api_key: i16,
        version: i16,
        body: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (node, api) = (address(node), known_api(api_key, (version, version))?);
        let answer = self.run(py, |client| client.send(&node, api, version, body))?;
        Ok(PyBytes::new(py, &answer))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.client.close());
    }
}

fn address((host, port): NodeTuple) -> Address {
    Address { host, port }
}

fn known_api(api_key: i16, (lowest, highest): (i16, i16)) -> PyResult<ClientApi> {
    ClientApi::known(api_key, lowest, highest)
        .ok_or_else(|| PyValueError::new_err(format!("Kafka has no API with key {api_key}")))
}

/// An iterator of `Columns`.
#[pyclass(frozen, module = "txn._core")]
struct Fetch {
    fetch: Mutex<txn_client::fetch::Fetch>,
    signal: Signal,
}

#[pymethods]
impl Fetch {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let chunk = py.detach(|| {
            let mut fetch = self.fetch.lock().unwrap_or_else(PoisonError::into_inner);
            let chunk = fetch.next_chunk();
            chunk.map(|columns| columns.map(|c| (c, fetch.topic().to_owned(), fetch.partition())))
        });
        match chunk.map_err(|error| self.signal.raise(error))? {
            Some((columns, topic, partition)) => {
                columns_dict(py, &columns, &topic, partition).map(Some)
            }
            None => Ok(None),
        }
    }
}

/// `Columns` of the stub.
fn columns_dict<'py>(
    py: Python<'py>,
    columns: &Columns,
    topic: &str,
    partition: i32,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("rows", columns.rows)?;
    dict.set_item("topic", topic)?;
    dict.set_item("partition", partition)?;
    dict.set_item("next_offset", columns.next_offset)?;
    dict.set_item("offsets", PyBytes::new(py, &columns.offsets))?;
    dict.set_item("timestamps_ms", PyBytes::new(py, &columns.timestamps_ms))?;
    dict.set_item(
        "timestamp_types",
        PyBytes::new(py, &columns.timestamp_types),
    )?;
    if let Some(column) = &columns.key {
        set_column(&dict, "key", column)?;
    }
    if let Some(column) = &columns.value {
        set_column(&dict, "value", column)?;
    }
    if let Some(headers) = &columns.headers {
        dict.set_item(
            "header_list_offsets",
            PyBytes::new(py, &headers.list_offsets),
        )?;
        dict.set_item(
            "header_list_validity",
            optional_bytes(py, headers.list_validity.as_ref()),
        )?;
        dict.set_item(
            "header_key_offsets",
            PyBytes::new(py, &headers.keys.offsets),
        )?;
        dict.set_item("header_key_data", PyBytes::new(py, &headers.keys.data))?;
        set_column(&dict, "header_value", &headers.values)?;
    }
    Ok(dict)
}

pub(crate) fn set_column(
    dict: &Bound<'_, PyDict>,
    name: &str,
    column: &BinaryColumn,
) -> PyResult<()> {
    let py = dict.py();
    dict.set_item(format!("{name}_offsets"), PyBytes::new(py, &column.offsets))?;
    dict.set_item(format!("{name}_data"), PyBytes::new(py, &column.data))?;
    dict.set_item(
        format!("{name}_validity"),
        optional_bytes(py, column.validity.as_ref()),
    )
}

fn optional_bytes<'py>(py: Python<'py>, bytes: Option<&Vec<u8>>) -> Option<Bound<'py, PyBytes>> {
    bytes.map(|bytes| PyBytes::new(py, bytes))
}

/// Encodes Arrow columns into record batches and produces them.
#[pyclass(frozen, module = "txn._core")]
struct Writer {
    writer: Mutex<txn_client::writer::Writer>,
    signal: Signal,
}

#[pymethods]
impl Writer {
    #[pyo3(signature = (topic, rows, key, value, headers = None, partition = None, timestamp_ms = None))]
    #[allow(clippy::too_many_arguments)] // as the stub says
    fn write(
        &self,
        py: Python<'_>,
        topic: &str,
        rows: usize,
        key: Option<BinaryBuffers>,
        value: BinaryBuffers,
        headers: Option<HeaderColumn>,
        partition: Option<PyBackedBytes>,
        timestamp_ms: Option<PyBackedBytes>,
    ) -> PyResult<()> {
        let rows = RowBuffers {
            rows,
            key,
            value,
            headers,
            partition,
            timestamp_ms,
        };
        py.detach(|| {
            let rows = rows.rows()?;
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(writer.write(topic, &rows))
        })
        .map_err(|message: String| PyValueError::new_err(message))?
        .map_err(|error| self.signal.raise(error))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| {
            self.writer
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .flush()
        })
        .map_err(|error| self.signal.raise(error))
    }
}

/// Adds this file's classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<KafkaClient>()?;
    module.add_class::<Fetch>()?;
    module.add_class::<Writer>()
}
