//! A setting of a listener that can be replaced while the listener is open.

use std::sync::{Arc, Mutex, PoisonError};

/// A value that each new connection reads. Clones share the value.
#[derive(Debug)]
pub struct Current<T>(Arc<Mutex<Arc<T>>>);

impl<T> Current<T> {
    /// Replaces the value. Existing connections keep the value with which they began.
    pub fn replace(&self, value: Arc<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// The current value.
    #[must_use]
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Clone for Current<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> From<Arc<T>> for Current<T> {
    fn from(value: Arc<T>) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }
}

impl<T> From<T> for Current<T> {
    fn from(value: T) -> Self {
        Arc::new(value).into()
    }
}
