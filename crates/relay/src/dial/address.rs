//! A target as a person or a peer writes it: `tcp://host:port`.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Longest name of a host (RFC 1035 section 2.3.4, with the final dot).
const HOST_MAX: usize = 254;

/// Host and port of a TCP target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetAddr {
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    /// 1 to 65535.
    pub port: u16,
}

/// Why a text is no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Only TCP targets exist.
    #[error("a target begins with tcp://")]
    Scheme,
    /// Missing, or not a number from 1 to 65535.
    #[error("a target ends with a port from 1 to 65535")]
    Port,
    /// Empty, too long, or with characters that no name has.
    #[error("a target needs a host; IPv6 addresses stand in brackets")]
    Host,
}

impl FromStr for TargetAddr {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let rest = text.strip_prefix("tcp://").ok_or(TargetError::Scheme)?;
        let (host, port) = rest.rsplit_once(':').ok_or(TargetError::Port)?;
        if !port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(TargetError::Port);
        }
        let port = port.parse().ok().filter(|&p: &u16| p != 0).ok_or(TargetError::Port)?;
        let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let valid = match bracketed {
            Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
            None => {
                !host.is_empty()
                    && host.len() <= HOST_MAX
                    && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
            }
        };
        if !valid {
            return Err(TargetError::Host);
        }
        Ok(Self { host: bracketed.unwrap_or(host).to_owned(), port })
    }
}

impl fmt::Display for TargetAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "tcp://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "tcp://{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        for text in ["tcp://example.com:80", "tcp://10.0.0.1:65535", "tcp://[::1]:5201"] {
            assert_eq!(text.parse::<TargetAddr>().map(|t| t.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for (text, error) in [
            ("udp://a:1", TargetError::Scheme),
            ("a:1", TargetError::Scheme),
            ("tcp://a", TargetError::Port),
            ("tcp://a:0", TargetError::Port),
            ("tcp://a:65536", TargetError::Port),
            ("tcp://a:+5", TargetError::Port),
            ("tcp://a:", TargetError::Port),
            ("tcp://:5", TargetError::Host),
            ("tcp://::1:5", TargetError::Host),
            ("tcp://[a]:5", TargetError::Host),
            ("tcp://a b:5", TargetError::Host),
            ("tcp://a/b:5", TargetError::Host),
        ] {
            assert_eq!(text.parse::<TargetAddr>(), Err(error), "{text}");
        }
    }
}
