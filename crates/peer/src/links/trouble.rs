//! Why a private service is unreachable, as text.

use std::io;

use ::link::client::DialError;
use config::PrivateService;
use proto::ResetCode;
use proto::greeting::Refusal;
use transport::CarrierError;

/// The error that there is no token for the service.
pub(super) fn no_token(service: &PrivateService) -> String {
    format!(
        "this client has no token for it: add `token`, `token_file` or `tls` to its forward, or an \
         entry for {service} to `visits`"
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
        // Another attempt may find room.
        ResetCode::Limit => {
            return io::Error::new(io::ErrorKind::ConnectionReset, limit(service)).into();
        }
        ResetCode::Aborted
        | ResetCode::Refused
        | ResetCode::Timeout
        | ResetCode::Denied
        | ResetCode::Shutdown
        | ResetCode::Internal
        | ResetCode::Moved
        | ResetCode::Other(_) => {
            let text = format!("the stream through the server was reset: {code}");
            return io::Error::new(io::ErrorKind::ConnectionReset, text).into();
        }
    };
    CarrierError::Config(text)
}

fn limit(service: &PrivateService) -> String {
    format!("a limit of the server or of client {} is reached", service.client)
}

/// The error of a server of an older version.
pub(super) fn too_old() -> CarrierError {
    let text = "the server is too old for private services; update the server";
    CarrierError::Config(text.to_owned())
}

/// The reason of a failed attempt that the next attempt would not change. `None`: the next may
/// succeed.
pub(super) fn lasting(
    service: &PrivateService,
    by_certificate: bool,
    error: &DialError,
) -> Option<String> {
    let client = &service.client;
    match error {
        DialError::Carrier(CarrierError::Certificate(text)) => {
            Some(format!("client {client} is not trusted: {text}"))
        }
        DialError::Carrier(CarrierError::Config(text)) => Some(text.clone()),
        DialError::Greet(greet) if greet.refusal() == Some(Refusal::BadCredential) => {
            Some(if by_certificate {
                format!(
                    "client {client} refuses the certificate: `visitor_tls` of the service there \
                     must name its authority, it must have the name of this client and be valid, \
                     and this client may have no token in `visitors`"
                )
            } else {
                format!(
                    "client {client} refuses the token: it must be that of this client in \
                     `visitors` of the service there"
                )
            })
        }
        DialError::Greet(greet) if greet.refusal() == Some(Refusal::Limit) => None,
        DialError::Carrier(_) | DialError::Greet(_) => {
            error.is_refusal().then(|| error.to_string())
        }
    }
}

/// The reason of a failed attempt after which the next may succeed.
pub(super) fn passing(service: &PrivateService, error: &DialError) -> String {
    match error {
        DialError::Greet(greet) if greet.refusal() == Some(Refusal::Limit) => limit(service),
        DialError::Carrier(_) | DialError::Greet(_) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use ::link::GreetError;
    use proto::greeting::GreetingError;

    use super::*;

    #[test]
    fn a_limit_may_have_room_at_the_next_attempt_and_a_missing_right_may_not() {
        let service: PrivateService = "home/ssh".parse().unwrap();
        let refusal =
            |refusal| DialError::Greet(GreetError::Greeting(GreetingError::Refused(refusal)));
        let reset = |code| DialError::Carrier(refused(&service, code));
        for error in [reset(ResetCode::Limit), refusal(Refusal::Limit)] {
            assert_eq!(lasting(&service, false, &error), None);
            let why = passing(&service, &error);
            assert!(why.contains("a limit of the server or of client home is reached"), "{why}");
        }
        assert!(lasting(&service, false, &reset(ResetCode::Unknown)).is_some());
        assert!(lasting(&service, true, &refusal(Refusal::BadCredential)).is_some());
    }
}
