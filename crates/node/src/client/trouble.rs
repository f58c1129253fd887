//! Why the server is not reached, in a line for people: what failed, and what to do where the URL
//! and the error together tell more than either.

use std::io;

use link::GreetError;
use link::client::DialError;
use proto::greeting::Refusal;
use transport::CarrierError;

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// URL, error and advice.
    pub(super) text: String,
    /// A newer process of this client serves in our place.
    pub(super) superseded: bool,
}

impl Trouble {
    pub(super) fn new(url: &str, error: &DialError) -> Self {
        let superseded = matches!(
            error,
            DialError::Greet(error) if error.refusal() == Some(Refusal::Superseded)
        );
        Self { text: format!("{url}: {error}{}", advice(url, error)), superseded }
    }
}

fn advice(url: &str, error: &DialError) -> &'static str {
    match error {
        DialError::Carrier(CarrierError::Io(error))
            if error.kind() == io::ErrorKind::ConnectionRefused =>
        {
            "; is the server running, and is that its port?"
        }
        // Where nothing listens, too: most hosts on the way tell nobody.
        DialError::Carrier(CarrierError::Io(error))
            if error.kind() == io::ErrorKind::TimedOut && url.starts_with("quic://") =>
        {
            "; is quic:// among the server's `listen`, and does a firewall let UDP through?"
        }
        DialError::Carrier(CarrierError::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
            "; is that its address, and does a firewall let us through?"
        }
        // A port of TLS waits for another first byte, then closes, as does any other service.
        DialError::Greet(GreetError::Timeout) if plain(url) => TLS,
        DialError::Greet(GreetError::Io(error))
            if plain(url) && error.kind() == io::ErrorKind::UnexpectedEof =>
        {
            TLS
        }
        DialError::Carrier(_) | DialError::Greet(_) => "",
    }
}

/// What to look at where a server does not greet back.
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
        let said = |url| Trouble::new(url, &timeout()).text;
        assert!(said("quic://a:1").ends_with("does a firewall let UDP through?"));
        assert!(!said("tls://a:1").contains("UDP"));
    }

    #[test]
    fn who_was_superseded_is_known() {
        let refused = |refusal| DialError::Greet(GreetingError::Refused(refusal).into());
        assert!(Trouble::new("tls://a:1", &refused(Refusal::Superseded)).superseded);
        assert!(!Trouble::new("tls://a:1", &refused(Refusal::Limit)).superseded);
    }
}
