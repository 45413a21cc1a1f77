//! `txn._core.TlsContext`: the certificates of a listener, as Python sees them.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use txn_net::{
    CertificateIdentity, ClientAuth, PrincipalOf, TlsListener, TlsOptions, TlsOptionsError,
};

/// The TLS of one listener.
#[pyclass(frozen, module = "txn._core")]
pub struct TlsContext(pub Arc<TlsListener>);

/// The same as Python's `TlsFiles`: certificate chain, key, key password, trusted certificates,
/// client auth, protocols, cipher suites.
#[derive(FromPyObject)]
struct Files(
    Vec<u8>,
    Vec<u8>,
    Option<String>,
    Vec<u8>,
    String,
    Vec<String>,
    Vec<String>,
);

impl Files {
    fn options(self) -> PyResult<TlsOptions> {
        let Self(
            certificate_chain,
            key,
            key_password,
            trusted,
            client_auth,
            protocols,
            cipher_suites,
        ) = self;
        let client_auth = match &*client_auth {
            "none" => ClientAuth::None,
            "requested" => ClientAuth::Requested,
            "required" => ClientAuth::Required,
            other => return Err(PyValueError::new_err(format!("no client auth {other:?}"))),
        };
        let speaks = |version: &str| protocols.iter().any(|one| one == version);
        Ok(TlsOptions {
            client_auth,
            has_tls12: speaks("TLSv1.2"),
            has_tls13: speaks("TLSv1.3"),
            certificate_chain,
            key,
            key_password,
            trusted,
            cipher_suites,
        })
    }
}

fn refusal(error: TlsOptionsError) -> PyErr {
    PyValueError::new_err(error.0)
}

#[pymethods]
impl TlsContext {
    #[new]
    fn new(py: Python<'_>, files: Files, principal_of: Py<PyAny>) -> PyResult<Self> {
        let options = files.options()?;
        let made = py.detach(|| TlsListener::new(&options, naming(principal_of)));
        Ok(Self(Arc::new(made.map_err(refusal)?)))
    }

    fn replace(&self, py: Python<'_>, files: Files) -> PyResult<()> {
        let options = files.options()?;
        py.detach(|| self.0.replace(&options)).map_err(refusal)
    }

    #[getter]
    fn expires_at(&self) -> i64 {
        self.0.expires_at()
    }

    #[getter]
    fn identity(&self) -> (String, Vec<Vec<u8>>) {
        let CertificateIdentity {
            subject,
            alternative_names,
        } = self.0.identity();
        (subject, alternative_names)
    }
}

/// Lets reactors ask Python for principals. An exception is reported as unraisable, and refuses
/// the client.
fn naming(principal_of: Py<PyAny>) -> PrincipalOf {
    Box::new(move |subject| {
        Python::try_attach(|py| {
            let principal_of = principal_of.bind(py);
            let named = principal_of.call1((subject,));
            match named.and_then(|named| named.extract()) {
                Ok(principal) => principal,
                Err(error) => {
                    error.write_unraisable(py, Some(principal_of));
                    None
                }
            }
        })
        .flatten() // the interpreter is going away
    })
}

/// Adds this file's classes and functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TlsContext>()
}
