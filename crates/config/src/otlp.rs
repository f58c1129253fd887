//! The address of an OpenTelemetry collector as users write it: `http://127.0.0.1:4318`.

use std::fmt;
use std::str::FromStr;

use crate::endpoint::{path, port, split};
use crate::{BadValue, Host};

/// A collector that accepts OTLP over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// The collector's host.
    pub host: Host,
    /// The collector's port, at least 1.
    pub port: u16,
    /// The path before `/v1/metrics`, without a slash at the end; empty in most cases.
    pub path: String,
}

impl FromStr for Collector {
    type Err = BadValue;

    /// Parses the address. The text may contain a password, so no message repeats it.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| BadValue::new(format!("not a collector: {why}"));
        let hint = "for example http://127.0.0.1:4318";
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        match scheme {
            "http" => {}
            "https" => {
                let hint = "let a collector on this machine take http:// and speak TLS to others";
                return Err(bad("this version pushes metrics without TLS").hint(hint));
            }
            _ => return Err(bad("it is http://host:port").hint(hint)),
        }
        let (place, way) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if place.contains('@') {
            let hint = "a password goes into `headers`, as `Authorization: Basic …`";
            return Err(bad("no user in front of its host").hint(hint));
        }
        let way = way.trim_end_matches('/');
        let is_path = way.is_empty() || !way.contains('?') && path(way).is_ok();
        if !is_path {
            return Err(bad("what follows host:port is no path").hint(hint));
        }
        let not_a_place = |_| bad("what follows is not host:port").hint(hint);
        let (host, number) = split(place).map_err(not_a_place)?;
        let number = number.ok_or_else(|| bad("no port").hint("mostly 4318"))?;
        let port = port(number).ok().filter(|port| *port > 0);
        let port = port.ok_or_else(|| bad("no port").hint("mostly 4318"))?;
        Ok(Self { host: host.parse().map_err(not_a_place)?, port, path: way.to_owned() })
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]
mod tests {
    use super::*;

    #[test]
    fn collectors_are_http_and_say_their_port() {
        for (text, shown) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
            ("http://[::1]:4318/", "http://[::1]:4318"),
            ("http://collector.example:80/in/otlp/", "http://collector.example:80/in/otlp"),
        ] {
            assert_eq!(text.parse::<Collector>().unwrap().to_string(), shown);
        }
        for bad in [
            "https://a:4318",
            "grpc://a:4317",
            "a:4318",
            "http://a",
            "http://a:0",
            "http://me:secret-word@a:4318",
            "http://:4318",
            "http://a:4318/?key=secret-word",
            "http://a:4318/a b",
            "",
        ] {
            let bad = bad.parse::<Collector>().unwrap_err();
            assert!(bad.message.starts_with("not a collector: "), "{bad:?}");
            assert!(!format!("{bad:?}").contains("secret-word"));
        }
    }
}
