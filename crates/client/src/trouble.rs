//! Why the server is unreachable, as a line of text. The line contains the failure, and advice
//! where URL and error together suggest it.

use std::io;

use link::GreetError;
use link::client::DialError;
use ops::status::SessionState;
use proto::greeting::Refusal;
use transport::CarrierError;

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// URL, error and advice.
    pub(super) text: String,
    /// The state of the session after the attempt.
    pub(super) state: SessionState,
}

impl Trouble {
    pub(super) fn new(url: &str, error: &DialError) -> Self {
        let refusal = match error {
            DialError::Greet(error) => error.refusal(),
            DialError::Carrier(_) => None,
        };
        let state = match refusal {
            Some(Refusal::Superseded) => SessionState::Superseded,
            Some(_) | None if error.is_refusal() => SessionState::Refused,
            Some(_) | None => SessionState::Unreachable,
        };
        Self { text: format!("{url}: {error}{}", advice(url, error)), state }
    }
}

fn advice(url: &str, error: &DialError) -> &'static str {
    match error {
        DialError::Carrier(CarrierError::Io(error))
            if error.kind() == io::ErrorKind::ConnectionRefused =>
        {
            "; is the server running, and is that its port?"
        }
        // The time-out also occurs where no process listens, because most hosts on the path do not
        // report a closed UDP port.
        DialError::Carrier(CarrierError::Io(error))
            if error.kind() == io::ErrorKind::TimedOut && url.starts_with("quic://") =>
        {
            "; is quic:// among the server's `listen`, and does a firewall let UDP through?"
        }
        DialError::Carrier(CarrierError::Io(error))
            if error.kind() == io::ErrorKind::TimedOut && url.starts_with("kcp://") =>
        {
            "; is kcp:// among the server's `listen`, and does a firewall let UDP through?"
        }
        DialError::Carrier(CarrierError::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
            "; is that its address, and does a firewall let us through?"
        }
        // A TLS port expects a different first byte and then closes, as any other service does.
        DialError::Greet(GreetError::Timeout) if plain(url) => TLS,
        DialError::Greet(GreetError::Io(error))
            if plain(url) && error.kind() == io::ErrorKind::UnexpectedEof =>
        {
            TLS
        }
        DialError::Carrier(_) | DialError::Greet(_) => "",
    }
}

/// The advice for a server that does not answer the greeting.
const TLS: &str = "; if that port of the server is tls://, say tls:// here as well";

fn plain(url: &str) -> bool {
    url.starts_with("tcp://")
}

#[cfg(test)]
mod tests {
    use proto::greeting::GreetingError;

    use super::*;

    fn eof() -> DialError {
        GreetError::Io(io::Error::new(io::ErrorKind::UnexpectedEof, "closed")).into()
    }

    #[test]
    fn a_port_that_does_not_greet_back_may_be_one_of_tls() {
        let said = |url, error: DialError| Trouble::new(url, &error).text;
        assert!(said("tcp://a:1", eof()).ends_with("say tls:// here as well"));
        assert!(said("tcp://a:1", GreetError::Timeout.into()).ends_with("here as well"));
        assert_eq!(said("tls://a:1", eof()), "tls://a:1: the greeting was cut off: closed");
    }

    #[test]
    fn silence_over_udp_may_be_a_firewall_that_knows_only_tcp() {
        let timeout = || DialError::Carrier(io::Error::from(io::ErrorKind::TimedOut).into());
        let said = |url: &str| Trouble::new(url, &timeout()).text;
        for scheme in ["quic", "kcp"] {
            let wanted =
                format!("; is {scheme}:// among the server's `listen`, and does a firewall");
            let said = said(&format!("{scheme}://a:1"));
            assert!(said.contains(&wanted) && said.ends_with("let UDP through?"), "{said}");
        }
        assert!(!said("tls://a:1").contains("UDP"));
    }

    #[test]
    fn a_failed_attempt_has_the_state_of_its_session() {
        let refused = |refusal| DialError::Greet(GreetingError::Refused(refusal).into());
        let state = |error: DialError| Trouble::new("tls://a:1", &error).state;
        assert_eq!(state(refused(Refusal::Superseded)), SessionState::Superseded);
        assert_eq!(state(refused(Refusal::Limit)), SessionState::Refused);
        assert_eq!(state(refused(Refusal::Unavailable)), SessionState::Unreachable);
        let closed = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(state(CarrierError::Io(closed).into()), SessionState::Unreachable);
    }
}
