//! `ClientThread` and `NativeProducer`: the native engine of `txn.Producer`.
//!
//! No call but `wait` waits, and `wait` releases the interpreter and looks for signals.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyString};
use txn_client::engine::{
    Awaited, Engine, Outcome, Producer, ProducerClient, Record, Report, SendError, Settings, Status,
};
use txn_client::messages::transactions::{GroupMember, GroupOffset};
use txn_client::security::Security;
use txn_protocol::batch::Codec;

use crate::client::Signal;
use crate::native::{self, ConnectTuple, connect_tuples};
use crate::rows::{BinaryBuffers, HeaderColumn, RowBuffers};
use crate::security::ClientSecurity;

/// (kind, code, message) of a status; the last two are of its error.
type StatusTuple = (&'static str, i16, String);
/// (topic, partition, records, bytes of the largest, code, is retriable, message).
type FailureTuple = (String, i32, u32, usize, i16, bool, String);
/// (record's number, topic, partition, offset, timestamp in ms, bytes, error); the error is (code, is
/// retriable, message), or None if the record is stored. The code of one that was dropped is 0.
type ReportTuple = (
    u64,
    String,
    i32,
    i64,
    i64,
    usize,
    Option<(i16, bool, String)>,
);
/// (topic, partition, next offset, leader epoch, metadata).
type OffsetTuple = (String, i32, i64, i32, Option<String>);

/// (name, content).
type HeaderTuple<'py> = (Bound<'py, PyString>, Option<Bound<'py, PyAny>>);

/// `append` asks for a collection of reports once in so many calls.
const APPENDS_PER_COLLECT: u32 = 256;
/// Last timestamp that may count seconds; see `arguments.py`.
const LIKE_SECONDS_LAST: i64 = 99_999_999_999;

/// The thread that does the I/O of a process's native clients.
#[pyclass(frozen, module = "txn._core")]
pub(crate) struct ClientThread(pub(crate) Arc<Engine>);

#[pymethods]
impl ClientThread {
    #[new]
    fn new() -> PyResult<Self> {
        let os_error = |error: io::Error| PyOSError::new_err(error.to_string());
        Engine::start().map(Self).map_err(os_error)
    }
}

/// A producer on the native engine.
#[pyclass(frozen, module = "txn._core")]
struct NativeProducer {
    client: ProducerClient,
    signal: Signal,
    /// True while Python keeps this producer until its records are stored, so `append` may add some.
    is_held: AtomicBool,
    /// Number of calls of `append`.
    appends: AtomicU32,
}

#[pymethods]
impl NativeProducer {
    #[new]
    #[pyo3(signature = (thread, bootstrap_servers, *, client_id, security, transactional_id,
                        transaction_timeout_ms, is_two_phase, linger_ms, batch_size, buffer_memory,
                        max_request_size, delivery_timeout_ms, request_timeout_ms,
                        max_in_flight, compression, retry_backoff_ms, metadata_max_age_ms,
                        unknown_topic_max_ms, makes_topics))]
    #[allow(clippy::too_many_arguments)] // as the stub says
    fn new(
        py: Python<'_>,
        thread: &ClientThread,
        bootstrap_servers: &str,
        client_id: &str,
        security: Option<PyRef<'_, ClientSecurity>>,
        transactional_id: Option<String>,
        transaction_timeout_ms: i32,
        is_two_phase: bool,
        linger_ms: u64,
        batch_size: usize,
        buffer_memory: usize,
        max_request_size: usize,
        delivery_timeout_ms: u64,
        request_timeout_ms: u64,
        max_in_flight: usize,
        compression: &str,
        retry_backoff_ms: u64,
        metadata_max_age_ms: u64,
        unknown_topic_max_ms: u64,
        makes_topics: bool,
    ) -> PyResult<Self> {
        let codec = Codec::from_name(compression)
            .ok_or_else(|| PyValueError::new_err(format!("no codec '{compression}'")))?;
        let settings = Settings {
            transactional_id,
            transaction_timeout_ms,
            is_two_phase,
            linger_ms,
            batch_bytes: batch_size,
            buffer_bytes: buffer_memory,
            request_bytes: max_request_size,
            delivery_timeout_ms,
            request_timeout_ms,
            in_flight_max: max_in_flight,
            codec,
            retry_backoff_ms,
            metadata_age_max_ms: metadata_max_age_ms,
            unknown_topic_max_ms,
            makes_topics,
        };
        let is_held = AtomicBool::new(settings.transactional_id.is_some());
        let signal = Signal::default();
        let security = security.map_or_else(Security::default, |security| {
            security.of_client(py, &signal.token_failure)
        });
        let client =
            ProducerClient::new(&thread.0, bootstrap_servers, client_id, security, settings)
                .map_err(|error| PyValueError::new_err(error.message))?;
        Ok(Self {
            client,
            signal,
            is_held,
            appends: AtomicU32::new(0),
        })
    }

    fn init(&self) {
        self.client.call(|producer, _| producer.init());
    }

    fn begin(&self) -> bool {
        self.client.look(|producer, _| producer.begin().is_ok())
    }

    /// Adds a record of plain arguments and returns true. False: nothing was added, and `send` adds
    /// the record or gives the reason. None: the same, and reports should be collected first.
    ///
    /// Runs no code of Python's, and keeps the interpreter. So no other thread ends the transaction,
    /// releases the producer or forks between the caller's own checks and this.
    #[pyo3(signature = (topic, value, key, headers, partition, timestamp, /))]
    fn append(
        &self,
        topic: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        key: &Bound<'_, PyAny>,
        headers: &Bound<'_, PyAny>,
        partition: &Bound<'_, PyAny>,
        timestamp: &Bound<'_, PyAny>,
    ) -> Option<bool> {
        if !self.is_held.load(Ordering::Acquire) {
            return Some(false);
        }
        let calls = self.appends.fetch_add(1, Ordering::Relaxed);
        if calls % APPENDS_PER_COLLECT == APPENDS_PER_COLLECT - 1 {
            return None;
        }
        Some(
            self.append_plain(topic, value, key, headers, partition, timestamp)
                .is_some(),
        )
    }

    /// Lets `append` add records.
    fn hold(&self) {
        self.is_held.store(true, Ordering::Release);
    }

    /// Ends `hold` if every record is stored or given up. True if `append` adds none now.
    fn release(&self) -> bool {
        self.client.look(|producer, _| {
            if producer.pending() == 0 {
                self.is_held.store(false, Ordering::Release);
            }
        });
        !self.is_held.load(Ordering::Acquire)
    }

    fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }

    /// None: taken.
    #[pyo3(signature = (topic, value, key, headers, partition, timestamp, delivery=None))]
    #[allow(clippy::needless_pass_by_value)] // pyo3 hands arguments over by value
    #[allow(clippy::too_many_arguments)] // as the stub says
    fn send(
        &self,
        topic: &str,
        value: Option<Bound<'_, PyAny>>,
        key: Option<Bound<'_, PyAny>>,
        headers: Option<Vec<HeaderTuple<'_>>>,
        partition: Option<i32>,
        timestamp: Option<i64>,
        delivery: Option<u64>,
    ) -> PyResult<Option<&'static str>> {
        let headers = headers.unwrap_or_default();
        let mut pairs = Vec::with_capacity(headers.len());
        for (name, content) in &headers {
            let content = content.as_ref().map(bytes_of).transpose()?;
            pairs.push((name.to_str()?.as_bytes(), content));
        }
        let record = Record {
            key: key.as_ref().map(bytes_of).transpose()?,
            value: value.as_ref().map(bytes_of).transpose()?,
            headers: &pairs,
            timestamp_ms: timestamp.unwrap_or_else(now_ms),
            delivery,
        };
        Ok(self
            .client
            .send(topic, partition, &record)
            .err()
            .map(|error| refusal(&error)))
    }

    /// The first row that was not taken, and why; the number of rows and None: all were.
    #[allow(clippy::too_many_arguments)] // as the stub says
    fn send_rows(
        &self,
        py: Python<'_>,
        topic: &str,
        first: usize,
        rows: usize,
        key: Option<BinaryBuffers>,
        value: BinaryBuffers,
        headers: Option<HeaderColumn>,
        partition: Option<PyBackedBytes>,
        timestamp_ms: Option<PyBackedBytes>,
    ) -> PyResult<(usize, Option<&'static str>)> {
        let rows = RowBuffers {
            rows,
            key,
            value,
            headers,
            partition,
            timestamp_ms,
        };
        let (row, error) = py
            .detach(|| {
                let rows = rows.rows()?;
                Ok(self.client.send_rows(topic, &rows, first, now_ms()))
            })
            .map_err(|message: String| PyValueError::new_err(message))?;
        Ok((row, error.map(|error| refusal(&error))))
    }

    fn send_offsets(
        &self,
        group: &str,
        generation: i32,
        member_id: String,
        instance_id: Option<String>,
        offsets: Vec<OffsetTuple>,
    ) -> bool {
        let member = GroupMember {
            generation,
            member_id,
            instance_id,
        };
        let offset = |(topic, partition, offset, leader_epoch, metadata)| GroupOffset {
            topic,
            partition,
            offset,
            leader_epoch,
            metadata,
        };
        let offsets = Arc::new(offsets.into_iter().map(offset).collect());
        self.client
            .call(|producer, _| producer.send_offsets(group, member, offsets).is_ok())
    }

    /// Its producer id and epoch, (-1, -1) if it is empty; None: it cannot be prepared.
    fn prepare(&self) -> Option<(i64, i16)> {
        let prepared = self.client.look(|producer, _| producer.prepare());
        prepared.ok().map(|identity| identity.unwrap_or((-1, -1)))
    }

    fn kept(&self) -> Option<(i64, i16)> {
        self.client.look(|producer, _| producer.kept())
    }

    fn end(&self, commit: bool) -> bool {
        self.client.call(|producer, _| producer.end(commit).is_ok())
    }

    /// True if the coordinator has accepted this end, even if a new epoch was refused afterwards.
    fn has_ended(&self, commit: bool) -> bool {
        self.client.look(|producer, _| producer.ended_as()) == Some(commit)
    }

    fn flush(&self) {
        self.client.call(|producer, _| producer.flush());
    }

    /// True once it is so; false after the time-out, and once the producer is closed.
    fn wait(&self, py: Python<'_>, until: &str, timeout_ms: u64) -> PyResult<bool> {
        let outcome = match until {
            "settled" => Awaited::Settled,
            "offsets" => Awaited::Offsets,
            "stored" => Awaited::Stored,
            "reports" => Awaited::Reports,
            "room" => Awaited::Room,
            _ => return Err(PyValueError::new_err(format!("nothing is '{until}'"))),
        };
        let waited = native::wait(py, &self.client, &self.signal, timeout_ms, |producer| {
            producer.has_reached(outcome).then_some(())
        })?;
        Ok(waited.is_some())
    }

    fn status(&self) -> StatusTuple {
        let status = self.client.look(|producer, _| producer.status());
        match status {
            Status::New => ("new", 0, String::new()),
            Status::Working => ("working", 0, String::new()),
            Status::Ready => ("ready", 0, String::new()),
            Status::Open => ("open", 0, String::new()),
            Status::Prepared => ("prepared", 0, String::new()),
            Status::Failed(error) => ("failed", error.code, error.message),
            Status::Fatal(error) => ("fatal", error.code, error.message),
        }
    }

    fn pending(&self) -> u64 {
        self.client.look(|producer, _| producer.pending())
    }

    fn take_failures(&self) -> Vec<FailureTuple> {
        let failures = self.client.look(|producer, _| producer.take_failures());
        let tuple = |f: txn_client::engine::DeliveryFailure| {
            let error = f.error;
            (
                f.topic.to_string(),
                f.partition,
                f.records,
                f.record_bytes,
                error.code,
                error.is_retriable,
                error.message,
            )
        };
        failures.into_iter().map(tuple).collect()
    }

    /// The reports that are not forgotten, and the number to forget them by.
    fn reports(&self) -> (u64, Vec<ReportTuple>) {
        self.client.look(|producer, _| {
            let (first, reports) = producer.reports();
            let (mut tuples, mut end) = (Vec::new(), first);
            for report in reports {
                end += 1;
                tuples.extend(report_tuples(report));
            }
            (end, tuples)
        })
    }

    fn forget_reports(&self, end: u64) {
        self.client.look(|producer, _| producer.forget_reports(end));
    }

    fn has_connected(&self) -> bool {
        self.client.look(|producer, _| producer.has_connected())
    }

    fn connect_errors(&self) -> Vec<ConnectTuple> {
        let errors = self.client.look(|producer, _| producer.connect_errors());
        connect_tuples(errors)
    }

    fn last_error(&self) -> Option<String> {
        let last = |producer: &mut Producer, _| producer.last_error().map(|e| e.message.clone());
        self.client.look(last)
    }

    fn close(&self) {
        self.client.close();
    }
}

impl NativeProducer {
    /// Adds a record of plain arguments; None if one of them is not plain, or the record is refused.
    fn append_plain(
        &self,
        topic: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        key: &Bound<'_, PyAny>,
        headers: &Bound<'_, PyAny>,
        partition: &Bound<'_, PyAny>,
        timestamp: &Bound<'_, PyAny>,
    ) -> Option<()> {
        let headers = plain_headers(headers)?;
        let mut pairs = Vec::with_capacity(headers.len());
        for (name, content) in &headers {
            let content = match content {
                Some(content) => Some(bytes_of(content).ok()?),
                None => None,
            };
            pairs.push((name.to_str().ok()?.as_bytes(), content));
        }
        let partition = if partition.is_none() {
            None
        } else {
            // A negative one stands for the partition of the key: `send` is told so.
            Some(plain_int(partition).filter(|&chosen: &i32| chosen >= 0)?)
        };
        let timestamp_ms = if timestamp.is_none() {
            now_ms()
        } else {
            // Python refuses 0 and less, and warns of what may count seconds.
            plain_int(timestamp).filter(|&ms: &i64| ms > LIKE_SECONDS_LAST)?
        };
        let record = Record {
            key: nullable_bytes(key)?,
            value: nullable_bytes(value)?,
            headers: &pairs,
            timestamp_ms,
            delivery: None,
        };
        let topic = topic.cast::<PyString>().ok()?.to_str().ok()?;
        self.client.send(topic, partition, &record).ok()
    }
}

/// An `int` itself: a subclass, or another type with `__index__`, would run code of Python's.
fn plain_int<'py, T: FromPyObject<'py, 'py>>(number: &'py Bound<'py, PyAny>) -> Option<T> {
    let number = number.cast_exact::<PyInt>().ok()?;
    number.extract().ok()
}

/// Headers as a list or a dict itself, or none; `None` if they are anything else.
fn plain_headers<'py>(headers: &Bound<'py, PyAny>) -> Option<Vec<HeaderTuple<'py>>> {
    if headers.is_none() {
        return Some(Vec::new());
    }
    if let Ok(pairs) = headers.cast_exact::<PyList>() {
        return pairs.extract().ok();
    }
    let pairs = headers.cast_exact::<PyDict>().ok()?;
    let pair = |(name, content): (Bound<'py, PyAny>, Bound<'py, PyAny>)| {
        let name = name.cast_into::<PyString>().ok()?;
        Some((name, (!content.is_none()).then_some(content)))
    };
    pairs.iter().map(pair).collect()
}

/// The bytes of a key or a value, `Some(None)` if it is null; `None` if it has another type.
#[allow(clippy::option_option)] // null is a value
fn nullable_bytes<'a>(content: &'a Bound<'_, PyAny>) -> Option<Option<&'a [u8]>> {
    if content.is_none() {
        return Some(None);
    }
    bytes_of(content).ok().map(Some)
}

/// Why a record was not taken, for Python.
fn refusal(error: &SendError) -> &'static str {
    match error {
        SendError::Full => "full",
        SendError::TooLarge { .. } => "too-large",
        SendError::NotOpen => "not-open",
        SendError::Closed => "closed",
        SendError::Failed(_) => "failed",
        SendError::Fatal(_) => "fatal",
    }
}

fn report_tuples(report: &Report) -> impl Iterator<Item = ReportTuple> {
    report.records.iter().map(|record| {
        let (mut offset, mut timestamp_ms, mut bytes, mut failed) =
            (-1, record.timestamp_ms, 0, None);
        match &report.outcome {
            Outcome::Stored {
                base_offset,
                append_time_ms,
            } => {
                if *base_offset >= 0 {
                    offset = base_offset + i64::from(record.index);
                }
                if *append_time_ms >= 0 {
                    timestamp_ms = *append_time_ms;
                }
            }
            Outcome::Failed {
                error,
                record_bytes,
            } => {
                bytes = *record_bytes;
                failed = Some((error.code, error.is_retriable, error.message.clone()));
            }
            Outcome::Dropped => failed = Some((0, false, "it was dropped".to_owned())),
        }
        (
            record.number,
            report.topic.to_string(),
            report.partition,
            offset,
            timestamp_ms,
            bytes,
            failed,
        )
    })
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

/// The bytes of a key, a value or a header, which Python keeps.
fn bytes_of<'a>(content: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    if let Ok(bytes) = content.cast::<PyBytes>() {
        return Ok(bytes.as_bytes());
    }
    let text = content.cast::<PyString>().map_err(|_| {
        let kind = content.get_type();
        PyTypeError::new_err(format!("str or bytes, not {kind}"))
    })?;
    Ok(text.to_str()?.as_bytes())
}

/// Adds this file's classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ClientThread>()?;
    module.add_class::<NativeProducer>()
}
