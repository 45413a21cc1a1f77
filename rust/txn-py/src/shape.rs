//! `txn._core.BodyShape`: what a request's body is made of.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use txn_net::{Shape, Step};

/// Where in the bodies of one version of a request lengths, counts and tagged fields are.
#[pyclass(frozen, module = "txn._core")]
pub struct BodyShape(Shape);

#[pymethods]
impl BodyShape {
    #[new]
    fn new(steps: Vec<(u8, usize)>, is_flexible: bool) -> PyResult<Self> {
        let steps = steps.into_iter().map(step).collect::<PyResult<_>>()?;
        Shape::new(steps, is_flexible)
            .map(Self)
            .ok_or_else(|| PyValueError::new_err("a step reaches beyond the last"))
    }

    fn plain<'py>(&self, body: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyBytes>> {
        match self.0.plain(body.as_bytes()) {
            Ok(None) => Ok(body.clone()),
            Ok(Some(kept)) => Ok(PyBytes::new(body.py(), &kept)),
            Err(malformed) => Err(PyValueError::new_err(malformed.to_string())),
        }
    }
}

fn step((kind, size): (u8, usize)) -> PyResult<Step> {
    Ok(match kind {
        0 => Step::Fixed(size),
        1 => Step::String,
        2 => Step::Bytes,
        3 => Step::Array(size),
        4 => Step::Nullable(size),
        5 => Step::Tags,
        6 => Step::NullableString,
        7 => Step::NullableBytes,
        8 => Step::NullableArray(size),
        _ => return Err(PyValueError::new_err("there is no such step")),
    })
}

/// Adds the class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BodyShape>()
}
