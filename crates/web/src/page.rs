//! The server's own responses.

use bytes::Bytes;

/// The pages that replace those of the server. In each page `{reason}` stands for the reason and
/// `{status}` for the status code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// The HTML page for a host that no service has.
    pub not_found: Option<Box<str>>,
    /// The HTML page for a service whose target cannot be reached (502, 503, 504).
    pub unavailable: Option<Box<str>>,
}

impl Pages {
    /// The length of the longest page.
    pub(crate) fn longest(&self) -> usize {
        let pages = [&self.not_found, &self.unavailable];
        pages.into_iter().flatten().map(|page| page.len()).max().unwrap_or(0)
    }
}

pub(crate) const CONTENT_TYPE: &str = "text/html; charset=utf-8";

/// A complete HTTP/1.1 response with `Connection: close`, for a visitor whose bytes are carried
/// without a proxy. The reason is one sentence in plain text.
#[must_use]
pub fn page(status: u16, reason: &str, pages: &Pages) -> Bytes {
    page_until(status, reason, pages, None)
}

/// As [`page`], with the delay in seconds after which the visitor may retry (`Retry-After`).
#[must_use]
pub fn page_until(status: u16, reason: &str, pages: &Pages, retry_after: Option<u32>) -> Bytes {
    let body = body(status, reason, pages);
    let length = body.len();
    let phrase = phrase(status);
    let retry = retry_after.map_or_else(String::new, |after| format!("Retry-After: {after}\r\n"));
    Bytes::from(format!(
        "HTTP/1.1 {status} {phrase}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\n{retry}Connection: close\r\n\r\n{body}"
    ))
}

/// The HTML of a page for one response.
pub(crate) fn own(page: &str, status: u16, reason: &str) -> String {
    let reason = escaped(reason);
    filled(page, &[("{reason}", &reason), ("{status}", &status.to_string())])
}

/// The HTML of a page.
pub(crate) fn body(status: u16, reason: &str, pages: &Pages) -> String {
    let reason = escaped(reason);
    let replaced = match status {
        404 => pages.not_found.as_deref(),
        502..=504 => pages.unavailable.as_deref(),
        _ => None,
    };
    if let Some(page) = replaced {
        return filled(page, &[("{reason}", &reason), ("{status}", &status.to_string())]);
    }
    let phrase = phrase(status);
    format!(
        "<!DOCTYPE html>\n<html><head><title>{status} {phrase}</title></head>\n\
         <body><h1>{status} {phrase}</h1>\n<p>{reason}</p></body></html>\n"
    )
}

fn phrase(status: u16) -> &'static str {
    hyper::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Error")
}

/// The page with its variables replaced in one pass, so that no value is parsed as a variable.
fn filled(page: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(page.len() + 64);
    let mut rest = page;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        let variable = values.iter().find(|(name, _)| from.starts_with(name));
        let (shown, length) = variable.map_or(("{", 1), |&(name, value)| (value, name.len()));
        text.push_str(shown);
        rest = &from[length..];
    }
    text.push_str(rest);
    text
}

/// Escapes text for HTML, and replaces control characters.
pub(crate) fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c if c.is_control() => html.push('\u{fffd}'),
            c => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_a_complete_answer() {
        let answer = page(404, "No service has the host <b>&\"x\"</b>\n.", &Pages::default());
        let answer = std::str::from_utf8(&answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(
            head,
            format!(
                "HTTP/1.1 404 Not Found\r\nContent-Type: text/html; charset=utf-8\r\n\
                 Content-Length: {}\r\nCache-Control: no-store\r\nConnection: close",
                body.len()
            )
        );
        assert!(body.contains("<h1>404 Not Found</h1>"), "{body}");
        assert!(body.contains("host &lt;b&gt;&amp;&quot;x&quot;&lt;/b&gt;\u{fffd}."), "{body}");
    }

    #[test]
    fn a_page_says_when_to_try_again() {
        let answer = page_until(502, "Away.", &Pages::default(), Some(30));
        let answer = std::str::from_utf8(&answer).unwrap();
        assert!(answer.contains("\r\nRetry-After: 30\r\nConnection: close\r\n\r\n"), "{answer}");
        assert_eq!(own("{status}: {reason}", 503, "a<b"), "503: a&lt;b");
    }

    #[test]
    fn pages_of_404_and_502_are_replaced_and_others_are_not() {
        let pages = Pages {
            not_found: Some("Nothing {here}: {reason}".into()),
            unavailable: Some("{status} {reason} {".into()),
        };
        assert_eq!(body(404, "a<b {status}", &pages), "Nothing {here}: a&lt;b {status}");
        assert_eq!(body(502, "down", &pages), "502 down {");
        assert!(body(400, "bad", &pages).contains("<h1>400 Bad Request</h1>"));
    }
}
