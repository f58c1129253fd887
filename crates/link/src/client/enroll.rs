//! Exchanges a one-time code for a token: a greeting without a link.

use std::future::poll_fn;

use proto::InstanceId;
use proto::greeting::{
    ClientSetup, EnrolledToken, Features, GreetingError, Identity, NONCE_LENGTH, Name, Token,
    Versions,
};

use super::error::DialError;
use crate::dial::{Path, dial};
use crate::greet::{self, GreetError};

/// Sends a one-time code to the server and returns the token of `name`. The server has stored its
/// half of the token when the future is ready. A code is valid once: another path to the server
/// should be tried only if the error is not a refusal by the server.
///
/// # Errors
/// No connection over this path could be established, or the code is unknown or no longer valid.
pub async fn enroll(path: &Path, name: Name, code: Token) -> Result<EnrolledToken, DialError> {
    let mut carrier = dial(path).await?;
    let setup = ClientSetup {
        binding: greet::binding(&carrier.peer),
        name,
        identity: Identity::Code(code),
        instance: InstanceId(crate::random()),
        takeover: false,
        attach: None,
        versions: Versions::OURS,
        features: Features::ALONE,
        nonce: crate::random::<NONCE_LENGTH>(),
    };
    let (accepted, _) = greet::greet_server(&mut carrier, setup, None).await?;
    // The server closes the connection as well, so the client need not wait for the delivery of its
    // close.
    poll_fn(|cx| carrier.lane.poll_close(cx)).await.ok();
    let token = accepted.token.ok_or(GreetingError::Answer("no token for the code"));
    Ok(token.map_err(GreetError::from)?)
}
