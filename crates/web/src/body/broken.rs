//! The reason why the body of a request broke off.

/// The reason why the body of a request broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the message of the visitor broke off: {0}")]
    Message(hyper::Error),
    #[error("the stream of the visitor broke off: {0}")]
    Stream(#[source] h2::Error),
    #[error("the connection of the visitor ended")]
    Left,
    #[error("memory is short")]
    Memory,
}
