//! What a listener offers to browsers beside carriers: a page whose WebSocket becomes a carrier.

use std::fmt;

use bytes::Bytes;

/// A request that may be for a page.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// The field `Host`.
    pub host: &'a str,
    /// The path, without a query.
    pub path: &'a str,
    /// The field `Origin`: the page that opens a WebSocket.
    pub origin: Option<&'a str>,
}

/// The answer to a [`Wish`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// A whole response, head and body; the length of its head.
    Page(Bytes, usize),
    /// A WebSocket here is a carrier of the page.
    Link,
    /// The page of another site opens a WebSocket, which it must not.
    Foreign,
}

/// Pages of a listener.
pub trait Pages: fmt::Debug + Send + Sync {
    /// What the listener offers; `None`: the request is for something else.
    fn offer(&self, wish: Wish<'_>) -> Option<Offer>;
}
