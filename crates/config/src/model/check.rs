//! The model of `health`: how the health of a target is checked.

use std::sync::Arc;

use crate::key_table::KeyTable;
use crate::problem::unknown;
use crate::section::Section;
use crate::yaml::Kind;
use crate::{BadValue, Span, values};

/// A health check of a target: the client connects to it, and may send a request.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(read = check)]
pub struct Check {
    /// The time between two health checks of a target {of}.
    #[key("duration, at least 1s", default = "10s")]
    pub interval: Span,
    /// Limits the time that a target {of} has to pass a health check.
    ///
    /// The target must accept the connection and answer the request.
    #[key("duration, at most the interval", default = "2s", note = "at most the interval")]
    pub timeout: Span,
    /// The path of the HTTP request with which a health check queries a target {of}.
    ///
    /// A healthy target answers with a status from 200 to 399. `None`: no request is sent.
    #[key("path of a request over HTTP", none = "the check connects")]
    pub path: Option<Arc<str>>,
    /// The datagram health check of the UDP targets {of}.
    #[key("`dns`, or a map", map, keys = OwnDatagrams, none = "flows find out")]
    pub udp: Option<DatagramCheck>,
}

/// How the health of a UDP target is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatagramCheck {
    /// A DNS query, which any reply except SERVFAIL satisfies.
    Dns,
    /// A datagram from the configuration.
    Own {
        /// The datagram to send.
        send: Arc<[u8]>,
        /// The expected start of the reply.
        expect: Arc<[u8]>,
    },
}

/// Default of `interval`, in milliseconds.
const INTERVAL: u64 = 10_000;

/// Shortest `interval`. More frequent health checks would load the target.
const INTERVAL_MIN: Span = Span::from_millis(1_000);

/// Default of `timeout`, limited by the interval: a slower target is of no use to visitors.
const TIMEOUT: Span = Span::from_millis(2_000);

/// The longest datagram of a health check, in bytes: it fits into one packet on every path.
const PAYLOAD_MAX: usize = 1_200;

/// The longest `health.path`.
const PATH_MAX: usize = 1024;

/// The keys of a datagram health check.
#[derive(KeyTable)]
pub(crate) struct OwnDatagrams {
    /// The datagram that a health check sends to a UDP target {of}.
    #[key("text or `hex:…`, at most 1,200 bytes", read = payload,
        required = "the datagram that the target answers, as text or as hex:…")]
    send: Arc<[u8]>,
    /// The bytes with which a UDP target {of} must begin its answer.
    #[key("text or `hex:…`, at most 1,200 bytes", none = "any answer", read = payload)]
    expect: Option<Arc<[u8]>>,
}

/// Decodes the section. `None` after a problem with the times.
pub(crate) fn check(s: &Section<'_>) -> Option<Check> {
    let interval = values::positive(s, "interval", Span::from_millis(INTERVAL))?;
    let timeout = values::positive(s, "timeout", TIMEOUT.min(interval))?;
    if interval < INTERVAL_MIN {
        let bad = BadValue::new(format!("{interval} is too often"));
        s.bad("interval", bad.hint(format!("{INTERVAL_MIN} or more")));
        return None;
    }
    if timeout > interval {
        let bad = BadValue::new(format!("{timeout} is longer than the interval ({interval})"));
        s.bad("timeout", bad);
        return None;
    }
    let (path, udp) = (s.value("path", request_path), datagrams(s));
    Some(Check { interval, timeout, path, udp })
}

/// Decodes `health.udp`: the name of a protocol, or a datagram and the expected reply.
fn datagrams(health: &Section<'_>) -> Option<DatagramCheck> {
    let item = health.key("udp")?;
    if matches!(item.node.kind, Kind::Scalar { .. }) {
        return health.value("udp", |text| match text {
            "dns" => Ok(DatagramCheck::Dns),
            _ => Err(unknown("protocol", text, &["dns"]).hint(
                "`dns`, or { send: TEXT, expect: TEXT }: what is sent, and how the answer begins",
            )),
        });
    }
    let own: OwnDatagrams = health.map("udp", Check::map("udp"))?;
    if own.expect.is_none()
        && let Some(udp) = Section::quiet(health.cx, item)
        && udp.has("expect")
    {
        return None;
    }
    Some(DatagramCheck::Own { send: own.send, expect: own.expect.unwrap_or_default() })
}

/// The bytes of a datagram: a text, or hexadecimal digits after `hex:`.
fn payload(text: &str) -> Result<Arc<[u8]>, BadValue> {
    let bad = |why: String| BadValue::new(why).hint("for example ping, or hex:0001ff");
    let bytes = match text.strip_prefix("hex:") {
        None => text.as_bytes().to_vec(),
        Some(digits) => {
            let nibble = |digit: u8| char::from(digit).to_digit(16);
            let byte = |pair: &[u8]| match pair {
                [high, low] => u8::try_from(nibble(*high)? * 16 + nibble(*low)?).ok(),
                _ => None,
            };
            let bytes: Option<Vec<_>> = digits.as_bytes().chunks(2).map(byte).collect();
            bytes.ok_or_else(|| bad(format!("`{text}` has no pairs of hexadecimal digits")))?
        }
    };
    if bytes.len() > PAYLOAD_MAX {
        return Err(bad(format!("{} bytes are too many: {PAYLOAD_MAX} at most", bytes.len())));
    }
    Ok(bytes.into())
}

/// The path of a request, possibly with a query.
fn request_path(text: &str) -> Result<Arc<str>, BadValue> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    if text.starts_with('/') && text.bytes().all(is_plain) && text.len() <= PATH_MAX {
        return Ok(text.into());
    }
    Err(BadValue::new(format!("`{text}` is no path of a request")).hint("for example /healthz"))
}
