//! The line about a request. All texts come from a visitor: no byte of them may end a line, close a
//! quote, or control a terminal.

use std::io::Write as _;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proto::text::is_forbidden;

/// The largest size of one visitor text in a line, in bytes. A URL may be 32 KiB long.
const TEXT_MAX: usize = 4096;

/// A visitor's request that received a response. A text is as the visitor sent it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// The address of the visitor; `None` for a visitor without one.
    pub visitor: Option<IpAddr>,
    /// The user name, if the log includes it.
    pub user: Option<&'a [u8]>,
    /// The method; `None`: the visitor's bytes were not a request.
    pub method: Option<&'a [u8]>,
    /// The path.
    pub path: Option<&'a [u8]>,
    /// The query, if the log includes it.
    pub query: Option<&'a [u8]>,
    /// The protocol: `HTTP/1.1`, `HTTP/2.0`.
    pub protocol: Option<&'a str>,
    /// The host that the request is for.
    pub host: Option<&'a [u8]>,
    /// The header field `Referer`.
    pub referer: Option<&'a [u8]>,
    /// The header field `User-Agent`.
    pub user_agent: Option<&'a [u8]>,
    /// The status of the response; 499: the visitor left before it.
    pub status: u16,
    /// Size of the response body, in bytes.
    pub bytes: u64,
    /// The time from the request header to the response header.
    pub first_byte: Option<Duration>,
    /// The time from the request header to the end of the response.
    pub duration: Duration,
    /// Whether the response was sent completely.
    pub is_complete: bool,
    /// The service and its client.
    pub service: Option<(&'a str, &'a str)>,
}

impl Request<'_> {
    /// The combined format of Apache and nginx, with further fields at the end.
    pub(super) fn combined(&self, line: &mut Vec<u8>) {
        match self.visitor {
            // Writing to a vector cannot fail.
            Some(address) => drop(write!(line, "{address}")),
            None => line.push(b'-'),
        }
        line.extend_from_slice(b" - ");
        match self.user.filter(|user| !user.is_empty()) {
            Some(user) => plain(line, user, true),
            None => line.push(b'-'),
        }
        line.extend_from_slice(b" [");
        Date::now().common(line);
        line.extend_from_slice(b"] \"");
        match self.method {
            None => line.push(b'-'),
            Some(method) => {
                plain(line, method, true);
                line.push(b' ');
                plain(line, self.path.unwrap_or(b"-"), true);
                if let Some(query) = self.query {
                    line.push(b'?');
                    plain(line, query, true);
                }
                let _ = write!(line, " {}", self.protocol.unwrap_or("-"));
            }
        }
        let _ = write!(line, "\" {} {}", self.status, self.bytes);
        for text in [self.referer, self.user_agent] {
            line.extend_from_slice(b" \"");
            plain(line, text.unwrap_or(b"-"), false);
            line.push(b'"');
        }
        line.extend_from_slice(b" host=");
        plain(line, self.host.unwrap_or(b"-"), true);
        if let Some((service, client)) = self.service {
            line.extend_from_slice(b" service=");
            plain(line, service.as_bytes(), true);
            line.extend_from_slice(b" client=");
            plain(line, client.as_bytes(), true);
        }
        let _ = write!(line, " seconds={:.3}", self.duration.as_secs_f64());
        if let Some(first) = self.first_byte {
            let _ = write!(line, " first_byte={:.3}", first.as_secs_f64());
        }
        if !self.is_complete {
            line.extend_from_slice(b" cut");
        }
        line.push(b'\n');
    }

    /// One JSON object.
    pub(super) fn json(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(b"{\"timestamp\":\"");
        Date::now().rfc3339(line);
        line.push(b'"');
        if let Some(address) = self.visitor {
            let _ = write!(line, ",\"visitor\":\"{address}\"");
        }
        let protocol = self.protocol.map(str::as_bytes);
        let (service, client) = match self.service {
            Some((service, client)) => (Some(service.as_bytes()), Some(client.as_bytes())),
            None => (None, None),
        };
        for (name, text) in [
            ("user", self.user),
            ("service", service),
            ("client", client),
            ("host", self.host),
            ("method", self.method),
            ("path", self.path),
            ("query", self.query),
            ("protocol", protocol),
            ("referer", self.referer),
            ("user_agent", self.user_agent),
        ] {
            if let Some(text) = text {
                let _ = write!(line, ",\"{name}\":\"");
                json_text(line, text);
                line.push(b'"');
            }
        }
        let Self { status, bytes, duration, is_complete, .. } = self;
        let seconds = duration.as_secs_f64();
        let _ = write!(line, ",\"status\":{status},\"bytes\":{bytes},\"seconds\":{seconds:.6}");
        if let Some(first) = self.first_byte {
            let _ = write!(line, ",\"first_byte_seconds\":{:.6}", first.as_secs_f64());
        }
        let _ = writeln!(line, ",\"complete\":{is_complete}}}");
    }
}

/// The start of a text, in whole characters if it is UTF-8.
fn short(text: &[u8]) -> (&[u8], bool) {
    if text.len() <= TEXT_MAX {
        return (text, false);
    }
    let is_inner = |at: &usize| text[*at] & 0xc0 == 0x80;
    let end = (TEXT_MAX - 3..=TEXT_MAX).rev().find(|at| !is_inner(at)).unwrap_or(TEXT_MAX);
    (&text[..end], true)
}

/// A text as nginx escapes it: quotes, backslashes and all bytes that are not printable ASCII are
/// `\xHH`. With `is_word`, so are blanks.
fn plain(line: &mut Vec<u8>, text: &[u8], is_word: bool) {
    let (text, is_cut) = short(text);
    for &byte in text {
        match byte {
            b'"' | b'\\' => drop(write!(line, "\\x{byte:02X}")),
            b' ' if is_word => line.extend_from_slice(b"\\x20"),
            b' '..=b'~' => line.push(byte),
            _ => drop(write!(line, "\\x{byte:02X}")),
        }
    }
    if is_cut {
        line.extend_from_slice(b"...");
    }
}

/// A text inside the quotes of JSON (RFC 8259 section 7). Characters that control a terminal or a
/// log are escaped as well.
fn json_text(line: &mut Vec<u8>, text: &[u8]) {
    let (text, is_cut) = short(text);
    for part in text.utf8_chunks() {
        for c in part.valid().chars() {
            match c {
                '"' => line.extend_from_slice(b"\\\""),
                '\\' => line.extend_from_slice(b"\\\\"),
                c if is_forbidden(c) => drop(write!(line, "\\u{:04x}", u32::from(c))),
                c => line.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !part.invalid().is_empty() {
            line.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    if is_cut {
        line.extend_from_slice("…".as_bytes());
    }
}

/// A moment in UTC.
struct Date {
    year: i64,
    month: usize,
    day: u64,
    /// Seconds of the day.
    second: u64,
    micros: u32,
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Date {
    fn now() -> Self {
        // A clock before 1970 is not set.
        Self::of(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// The date by the civil calendar. Howard Hinnant, "chrono-Compatible Low-Level Date
    /// Algorithms": an era has 400 years, and a year begins in March.
    fn of(since_1970: Duration) -> Self {
        let seconds = since_1970.as_secs();
        let days = seconds / 86_400 + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        Self {
            year: i64::try_from(era * 400 + year + next).unwrap_or(i64::MAX),
            month: usize::try_from(month).unwrap_or(1),
            day,
            second: seconds % 86_400,
            micros: since_1970.subsec_micros(),
        }
    }

    /// As in the combined format: `26/Nov/2026:05:01:14 +0000`.
    fn common(&self, line: &mut Vec<u8>) {
        let Self { year, day, .. } = self;
        let month = MONTHS[self.month.saturating_sub(1) % 12];
        let (hour, minute, second) = self.clock();
        let _ = write!(line, "{day:02}/{month}/{year}:{hour:02}:{minute:02}:{second:02} +0000");
    }

    /// RFC 3339: `2026-11-26T05:01:14.000123Z`.
    fn rfc3339(&self, line: &mut Vec<u8>) {
        let Self { year, month, day, micros, .. } = self;
        let (hour, minute, second) = self.clock();
        let _ = write!(
            line,
            "{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z"
        );
    }

    const fn clock(&self) -> (u64, u64, u64) {
        (self.second / 3600, self.second / 60 % 60, self.second % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &[u8] = b"/a\" 200 1\n192.0.2.9 - - \\\x1b[2J\x7f\xc3\xa9\xe2\x80\xae\xff";

    fn asked() -> Request<'static> {
        Request {
            visitor: Some(IpAddr::from([192, 0, 2, 1])),
            user: None,
            method: Some(b"GET"),
            path: Some(b"/index.html"),
            query: None,
            protocol: Some("HTTP/1.1"),
            host: Some(b"a.example"),
            referer: Some(b"https://b.example/"),
            user_agent: Some(b"curl/8.5 (x)"),
            status: 200,
            bytes: 512,
            first_byte: Some(Duration::from_millis(12)),
            duration: Duration::from_micros(20_500),
            is_complete: true,
            service: Some(("web", "home")),
        }
    }

    fn combined(request: &Request<'_>) -> String {
        let mut line = Vec::new();
        request.combined(&mut line);
        String::from_utf8(line).unwrap()
    }

    fn json(request: &Request<'_>) -> (String, serde_json::Value) {
        let mut line = Vec::new();
        request.json(&mut line);
        let line = String::from_utf8(line).unwrap();
        let value = serde_json::from_str(&line).unwrap();
        (line, value)
    }

    #[test]
    fn a_line_has_the_combined_format_and_what_follows_it() {
        let line = combined(&asked());
        let (begin, rest) = line.split_once(" +0000] ").unwrap();
        assert!(begin.starts_with("192.0.2.1 - - ["), "{begin}");
        assert_eq!(
            rest,
            "\"GET /index.html HTTP/1.1\" 200 512 \"https://b.example/\" \"curl/8.5 (x)\" \
             host=a.example service=web client=home seconds=0.021 first_byte=0.012\n"
        );
        let cut = Request { first_byte: None, is_complete: false, service: None, ..asked() };
        assert!(combined(&cut).ends_with(" host=a.example seconds=0.021 cut\n"));
        let asked = Request { query: Some(b"q=1"), user: Some(b"an na"), ..asked() };
        assert!(combined(&asked).contains("192.0.2.1 - an\\x20na ["), "{}", combined(&asked));
        assert!(combined(&asked).contains("\"GET /index.html?q=1 HTTP/1.1\""));
        let none = combined(&Request { status: 400, ..Request::default() });
        assert!(none.starts_with("- - - [") && none.contains("] \"-\" 400 0 \"-\" \"-\" host=- "));
    }

    #[test]
    fn a_line_as_json_has_every_figure() {
        let (line, value) = json(&asked());
        assert!(line.ends_with("}\n") && line.lines().count() == 1, "{line}");
        assert_eq!(
            (&value["service"], &value["client"], &value["status"], &value["bytes"]),
            (&"web".into(), &"home".into(), &200.into(), &512.into())
        );
        assert_eq!(value["seconds"], 0.0205);
        assert_eq!(value["first_byte_seconds"], 0.012);
        assert_eq!(value["complete"], true);
        assert!(value.get("query").is_none() && value.get("user").is_none(), "{line}");
        let (_, value) = json(&Request { status: 400, ..Request::default() });
        assert!(value.get("visitor").is_none() && value.get("method").is_none());
    }

    #[test]
    fn no_text_of_a_visitor_forges_a_line_or_commands_a_terminal() {
        let hostile = Request {
            user: Some(HOSTILE),
            method: Some(HOSTILE),
            path: Some(HOSTILE),
            query: Some(HOSTILE),
            host: Some(HOSTILE),
            referer: Some(HOSTILE),
            user_agent: Some(HOSTILE),
            ..asked()
        };
        let line = combined(&hostile);
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.trim_end().bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line}");
        assert_eq!(line.matches('"').count(), 6, "{line}");
        assert!(line.contains("\\x22\\x20200\\x201\\x0A192.0.2.9"), "{line}");
        let (line, value) = json(&hostile);
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(!line.trim_end().contains(is_forbidden), "{line}");
        assert_eq!(value["path"].as_str().unwrap(), String::from_utf8_lossy(HOSTILE));
    }

    #[test]
    fn a_long_text_is_cut() {
        let long = "é".repeat(5000);
        let request = Request { path: Some(long.as_bytes()), ..asked() };
        let (line, value) = json(&request);
        assert!(line.len() < 5000, "{}", line.len());
        assert_eq!(value["path"].as_str().unwrap(), format!("{}…", "é".repeat(2048)));
        assert!(combined(&request).contains("\\xA9... HTTP/1.1"));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, common, rfc3339) in [
            (0, "01/Jan/1970:00:00:00 +0000", "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "29/Feb/2000:00:00:00 +0000", "2000-02-29T00:00:00.000000Z"),
            (1_795_669_274, "26/Nov/2026:05:01:14 +0000", "2026-11-26T05:01:14.000000Z"),
            (4_107_542_399, "28/Feb/2100:23:59:59 +0000", "2100-02-28T23:59:59.000000Z"),
            (4_107_542_400, "01/Mar/2100:00:00:00 +0000", "2100-03-01T00:00:00.000000Z"),
        ] {
            let date = Date::of(Duration::from_secs(seconds));
            let mut text = Vec::new();
            date.common(&mut text);
            text.push(b' ');
            date.rfc3339(&mut text);
            assert_eq!(String::from_utf8(text).unwrap(), format!("{common} {rfc3339}"));
        }
    }
}
