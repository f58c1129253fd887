//! The thread that resolves names. The runtime of a worker ends with the worker, but a lookup has
//! callers on several workers.

use std::future;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;

use tokio::runtime::{Builder, Handle};

/// Starts the thread at the first lookup.
pub(super) fn handle() -> io::Result<Handle> {
    static NAMES: Mutex<Option<Handle>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*names {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("names".to_owned())
        .spawn(move || runtime.block_on(future::pending::<()>()))?;
    *names = Some(handle.clone());
    Ok(handle)
}
