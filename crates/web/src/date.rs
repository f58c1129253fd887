//! The `Date` field of responses (RFC 9110 section 6.6.1), which hyper adds only to those of
//! HTTP/1.

use std::{
    cell::RefCell,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hyper::header::HeaderValue;

thread_local! {
    /// The cached text, with its second since the Unix epoch.
    static TEXT: RefCell<(u64, Option<HeaderValue>)> = const { RefCell::new((0, None)) };
}

/// The current time.
pub(crate) fn now() -> HeaderValue {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    TEXT.with_borrow_mut(|(second, text)| match text {
        Some(text) if *second == since => text.clone(),
        _ => {
            let time = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(since));
            let value = HeaderValue::try_from(time);
            let value = value.unwrap_or_else(|_| HeaderValue::from_static(""));
            (*second, *text) = (since, Some(value.clone()));
            value
        }
    })
}
