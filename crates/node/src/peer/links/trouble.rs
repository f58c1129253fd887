//! Why a private service is not reached, in words.

use std::io;

use ::link::client::DialError;
use config::PrivateService;
use proto::ResetCode;
use proto::greeting::Refusal;
use transport::CarrierError;

/// There is no token for the service.
pub(super) fn no_token(service: &PrivateService) -> String {
    format!(
        "this client has no token for it: add `token` or `token_file` to its forward, or an entry \
         for {service} to `visits`"
    )
}

/// The error of a stream that the server or the other client has reset.
pub(super) fn refused(service: &PrivateService, code: ResetCode) -> CarrierError {
    let client = &service.client;
    let text = match code {
        ResetCode::Unknown => format!(
            "the server refuses: `allow.visit` of this client there must have {service}, client \
             {client} must name this client in `visitors`, and the service must exist"
        ),
        ResetCode::Unreachable => format!("client {client} is away"),
        ResetCode::Limit => "a limit of streams is reached (`limits` on the server)".to_owned(),
        ResetCode::Aborted
        | ResetCode::Refused
        | ResetCode::Timeout
        | ResetCode::Denied
        | ResetCode::Shutdown
        | ResetCode::Internal
        | ResetCode::Other(_) => {
            let text = format!("the stream through the server was reset: {code}");
            return io::Error::new(io::ErrorKind::ConnectionReset, text).into();
        }
    };
    CarrierError::Config(text)
}

/// The server of an older version.
pub(super) fn too_old() -> CarrierError {
    let text = "the server is too old for private services; update the server";
    CarrierError::Config(text.to_owned())
}

/// The reason of a failed attempt that the next attempt would not change. `None`: the next may
/// succeed.
pub(super) fn lasting(service: &PrivateService, error: &DialError) -> Option<String> {
    match error {
        DialError::Carrier(CarrierError::Config(text)) => Some(text.clone()),
        DialError::Greet(greet) if greet.refusal() == Some(Refusal::BadCredential) => {
            Some(format!(
                "client {} refuses the token: it must be that of this client in `visitors` of the \
                 service there",
                service.client
            ))
        }
        DialError::Carrier(_) | DialError::Greet(_) => {
            error.is_refusal().then(|| error.to_string())
        }
    }
}
