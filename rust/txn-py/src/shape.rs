//! `txn._core.BodyShape`: the shape of a request's body.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use txn_protocol::shape::{Shape, Step};

/// Bodies with more bytes are looked through without the interpreter.
const QUICK_BYTES: usize = 64 << 10;

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

    #[pyo3(signature = (body, items_max=None))]
    fn plain<'py>(
        &self,
        body: &Bound<'py, PyBytes>,
        items_max: Option<usize>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = body.as_bytes();
        let items_max = items_max.unwrap_or(usize::MAX);
        let look = || self.0.plain(bytes, items_max);
        let looked = if bytes.len() > QUICK_BYTES {
            body.py().detach(look)
        } else {
            look()
        };
        match looked {
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
