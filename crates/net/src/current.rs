//! What listeners go by, and can be given anew while they listen.

use std::sync::{Arc, Mutex, PoisonError};

/// A value that connections accepted from now on are to have. Clones are the same.
#[derive(Debug)]
pub struct Current<T>(Arc<Mutex<Arc<T>>>);

impl<T> Current<T> {
    /// Puts another one in its place. What began with the one before goes on with it.
    pub fn replace(&self, value: Arc<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// The one of this moment.
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
