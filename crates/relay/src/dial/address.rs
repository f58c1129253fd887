//! The address of a target, as a configuration file or a peer writes it: `tcp://host:port`,
//! `udp://host:port` or `unix:///path`.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use proto::{ScopedAddr, UnixAddr, UnixAddrError};

/// The longest host name (RFC 1035 section 2.3.4, with the final dot).
const HOST_MAX: usize = 254;

/// The address of a target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TargetAddr {
    /// A target over TCP.
    Tcp {
        /// A host name or an IP address; IPv6 without brackets, a link-local address with its
        /// interface after `%`.
        host: String,
        /// 1 to 65535.
        port: u16,
    },
    /// A target over UDP: for a flow, never for a stream.
    Udp {
        /// A host name or an IP address; IPv6 without brackets, a link-local address with its
        /// interface after `%`.
        host: String,
        /// 1 to 65535.
        port: u16,
    },
    /// A Unix socket of this machine.
    Unix(UnixAddr),
}

/// Why a text is no target address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The scheme is none of `tcp`, `udp` and `unix`.
    #[error("a target begins with tcp://, udp:// or unix://")]
    Scheme,
    /// The address of the Unix socket is malformed.
    #[error(transparent)]
    Unix(UnixAddrError),
    /// The port is missing, or is no number from 1 to 65535.
    #[error("a target ends with a port from 1 to 65535")]
    Port,
    /// The host is empty, too long, or contains a character that no host name has.
    #[error("a target needs a host; IPv6 addresses stand in brackets")]
    Host,
}

impl FromStr for TargetAddr {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        if let Some(rest) = text.strip_prefix("tcp://") {
            return place(rest).map(|(host, port)| Self::Tcp { host, port });
        }
        if let Some(rest) = text.strip_prefix("udp://") {
            return place(rest).map(|(host, port)| Self::Udp { host, port });
        }
        match text.parse() {
            Ok(address) => Ok(Self::Unix(address)),
            Err(UnixAddrError::Scheme) => Err(TargetError::Scheme),
            Err(error) => Err(TargetError::Unix(error)),
        }
    }
}

/// Reads `host:port`.
fn place(text: &str) -> Result<(String, u16), TargetError> {
    let (host, port) = text.rsplit_once(':').ok_or(TargetError::Port)?;
    if !port.bytes().all(|b| b.is_ascii_digit()) {
        return Err(TargetError::Port);
    }
    let port = port.parse().ok().filter(|&p: &u16| p != 0).ok_or(TargetError::Port)?;
    let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    if let Some(at) = bracketed.and_then(|inner| inner.parse::<ScopedAddr>().ok()) {
        return Ok((at.to_string(), port));
    }
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
    Ok((bracketed.unwrap_or(host).to_owned(), port))
}

impl fmt::Display for TargetAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write(f, "tcp", host, *port),
            Self::Udp { host, port } => write(f, "udp", host, *port),
            Self::Unix(address) => address.fmt(f),
        }
    }
}

fn write(f: &mut fmt::Formatter<'_>, scheme: &str, host: &str, port: u16) -> fmt::Result {
    if host.contains(':') {
        write!(f, "{scheme}://[{host}]:{port}")
    } else {
        write!(f, "{scheme}://{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        for text in [
            "tcp://example.com:80",
            "tcp://10.0.0.1:65535",
            "tcp://[::1]:5201",
            "udp://example.com:53",
            "udp://[::1]:51820",
            "unix:///run/app.sock",
            "unix://@app",
            "tcp://[fe80::1%eth0]:22",
            "udp://[ff02::fb%3]:5353",
        ] {
            assert_eq!(text.parse::<TargetAddr>().map(|t| t.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for (text, error) in [
            ("udp://a", TargetError::Port),
            ("udp://[a]:5", TargetError::Host),
            ("sctp://a:1", TargetError::Scheme),
            ("a:1", TargetError::Scheme),
            ("unix://a", TargetError::Unix(UnixAddrError::Relative)),
            ("unix:///a/../b", TargetError::Unix(UnixAddrError::Detour)),
            ("tcp://a", TargetError::Port),
            ("tcp://a:0", TargetError::Port),
            ("tcp://a:65536", TargetError::Port),
            ("tcp://a:+5", TargetError::Port),
            ("tcp://a:", TargetError::Port),
            ("tcp://:5", TargetError::Host),
            ("tcp://::1:5", TargetError::Host),
            ("tcp://[a]:5", TargetError::Host),
            ("tcp://[2001:db8::1%eth0]:5", TargetError::Host),
            ("tcp://[fe80::1%]:5", TargetError::Host),
            ("tcp://a%eth0:5", TargetError::Host),
            ("tcp://a b:5", TargetError::Host),
            ("tcp://a/b:5", TargetError::Host),
        ] {
            assert_eq!(text.parse::<TargetAddr>(), Err(error), "{text}");
        }
    }
}
