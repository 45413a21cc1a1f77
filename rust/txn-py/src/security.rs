//! `ClientSecurity` and `read_keystore`: the security of `KafkaClient`'s connections.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMapping};
use txn_client::security::{self, Secret, Security, SecuritySettings, TokenSource};

/// (CA, certificate, key), each as PEM.
type KeystoreTuple<'py> = (
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
);

/// The exception of a token's callable, kept for the call that it ends.
#[derive(Clone, Default)]
pub struct TokenFailure(Arc<Mutex<Option<PyErr>>>);

impl TokenFailure {
    /// The exception since the last call, if there is one.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, error: Option<PyErr>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

/// TLS and SASL of every connection of a client.
#[pyclass(frozen, module = "txn._core")]
pub struct ClientSecurity {
    security: Security,
    token: Option<Py<PyAny>>,
}

impl ClientSecurity {
    /// The security for one client, whose token failures go to `failure`.
    pub fn of_client(&self, py: Python<'_>, failure: &TokenFailure) -> Security {
        let Some(token) = &self.token else {
            return self.security.clone();
        };
        let (token, failure) = (token.clone_ref(py), failure.clone());
        let ask = move || {
            Python::attach(|py| {
                failure.put(None);
                let given = token
                    .call0(py)
                    .and_then(|given| given.extract::<String>(py));
                given.map(|given| Secret::new(&given)).map_err(|error| {
                    let kind = error.get_type(py).name();
                    let kind = kind.map_or_else(|_| "an exception".to_owned(), |k| k.to_string());
                    failure.put(Some(error));
                    format!("its callable ended with {kind}; see the cause")
                })
            })
        };
        self.security.clone().with_token(TokenSource::new(ask))
    }
}

/// A PEM text that may have a key; other bytes are no PEM.
fn secret(pem: &[u8]) -> Secret {
    Secret::new(&String::from_utf8_lossy(pem))
}

#[pymethods]
impl ClientSecurity {
    #[new]
    #[pyo3(signature = (protocol, *, ca_pem = None, certificate_pem = None, key_pem = None,
                        key_password = None, check_hostname = true, check_certificate = true,
                        mechanism = None, username = None, password = None, token = None,
                        extensions = None))]
    #[allow(clippy::too_many_arguments)] // as the stub says
    fn new(
        protocol: String,
        ca_pem: Option<&[u8]>,
        certificate_pem: Option<&[u8]>,
        key_pem: Option<&[u8]>,
        key_password: Option<&str>,
        check_hostname: bool,
        check_certificate: bool,
        mechanism: Option<String>,
        username: Option<String>,
        password: Option<&str>,
        token: Option<Bound<'_, PyAny>>,
        extensions: Option<&Bound<'_, PyMapping>>,
    ) -> PyResult<Self> {
        if token.as_ref().is_some_and(|token| !token.is_callable()) {
            return Err(PyTypeError::new_err(
                "token is a callable without arguments",
            ));
        }
        let mut pairs = Vec::new();
        if let Some(extensions) = extensions {
            for item in extensions.items()? {
                pairs.push(item.extract::<(String, String)>()?);
            }
        }
        let settings = SecuritySettings {
            protocol,
            ca_pem: ca_pem.map(<[u8]>::to_vec),
            certificate_pem: certificate_pem.map(secret),
            key_pem: key_pem.map(secret),
            key_password: key_password.map(Secret::new),
            skips_hostname: !check_hostname,
            skips_certificate: !check_certificate,
            mechanism,
            username,
            password: password.map(Secret::new),
            // `of_client` puts the callable in its place.
            token: token
                .as_ref()
                .map(|_| TokenSource::new(|| Err("no client asks".to_owned()))),
            extensions: pairs,
        };
        let security = Security::new(&settings).map_err(PyValueError::new_err)?;
        Ok(Self {
            security,
            token: token.map(Bound::unbind),
        })
    }

    fn __repr__(&self) -> String {
        let mechanism = self.security.mechanism();
        let mechanism = mechanism.map_or(String::new(), |name| format!(", mechanism='{name}'"));
        format!("ClientSecurity('{}'{mechanism})", self.security.protocol())
    }
}

/// The certificates and the key of a PKCS#12 keystore, as PEM.
#[pyfunction]
fn read_keystore<'py>(
    py: Python<'py>,
    data: &[u8],
    password: Option<&str>,
) -> PyResult<KeystoreTuple<'py>> {
    let password = password.map(Secret::new);
    let read = py.detach(|| security::read_keystore(data, password.as_ref()));
    let store = read.map_err(PyValueError::new_err)?;
    let bytes = |text: &str| PyBytes::new(py, text.as_bytes());
    Ok((
        store.ca_pem.as_deref().map(bytes),
        store.certificate_pem.as_deref().map(bytes),
        store.key_pem.as_ref().map(|key| bytes(key.reveal())),
    ))
}

/// True for an exception that a call reports as its own; an exit or an interrupt goes through as it is.
pub fn is_reported(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py)
}

/// Adds this file's class and function to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ClientSecurity>()?;
    module.add_function(wrap_pyfunction!(read_keystore, module)?)
}
