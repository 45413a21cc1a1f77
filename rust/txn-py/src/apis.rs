//! `txn._core.apis`: the table of Kafka's APIs.

use pyo3::prelude::*;
use txn_net::{FETCH_VERSIONS, PRODUCE_VERSIONS};
use txn_protocol::apis;

/// (key, name, first and last version that reactors answer).
type ApiRow = (i16, &'static str, Option<(i16, i16)>);

/// The APIs by key: key, Kafka's name, versions that reactors answer.
#[pyfunction(name = "apis")]
fn all_apis() -> Vec<ApiRow> {
    let row = |api: &apis::Api| {
        let versions = match api.key {
            apis::PRODUCE => Some(PRODUCE_VERSIONS),
            apis::FETCH => Some(FETCH_VERSIONS),
            _ => None,
        };
        let ends = versions.map(|versions| (*versions.start(), *versions.end()));
        (api.key, api.name, ends)
    };
    apis::apis().map(row).collect()
}

/// Adds the function to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(all_apis, module)?)
}
