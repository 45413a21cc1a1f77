//! An interrupt by the user, such as Ctrl-C, which a waiting call checks.

use std::fmt;
use std::sync::Arc;

/// Asked between attempts, and while an answer is awaited; true stops the call (Ctrl-C).
#[derive(Clone)]
pub struct Interrupt(Arc<dyn Fn() -> bool + Send + Sync>);

impl Interrupt {
    /// An interrupt that a function reports.
    pub fn new(is_raised: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_raised))
    }

    /// True if the user asked to stop.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}
