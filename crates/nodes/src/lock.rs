//! Locks that are held for a lookup in a table or a change of it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. A panic elsewhere leaves a table consistent, because each change is one call.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
