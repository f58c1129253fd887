//! What the answer of the service means.

use anyhow::{Context as _, ensure};
use hyper::http::StatusCode;

/// The client's entry in the form of an entry under `clients`: JSON is also YAML. `None`: there is
/// no such client (status 403 or 404).
///
/// # Errors
/// Any other status than 200, a body that is not a JSON map, or an entry with another name.
pub(super) fn entry(name: &str, status: StatusCode, body: &[u8]) -> anyhow::Result<Option<String>> {
    if matches!(status, StatusCode::NOT_FOUND | StatusCode::FORBIDDEN) {
        return Ok(None);
    }
    ensure!(status == StatusCode::OK, "it answers {status}; 200, 403 or 404 would say something");
    let mut entry: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(body).context("its answer is not a map in JSON")?;
    let named = entry.insert("name".to_owned(), name.into());
    ensure!(named.is_none_or(|named| named == name), "it answers with the entry of another client");
    Ok(Some(serde_json::to_string(&entry)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_clear_is_an_answer() {
        let entry = |status: u16, body: &str| {
            entry("home", StatusCode::from_u16(status).unwrap(), body.as_bytes())
        };
        assert_eq!(entry(404, "<html>").unwrap(), None);
        assert_eq!(entry(403, "").unwrap(), None);
        let read = entry(200, r#"{"token": "x"}"#).unwrap().unwrap();
        assert_eq!(read, r#"{"name":"home","token":"x"}"#);
        assert!(entry(200, r#"{"name": "home"}"#).unwrap().is_some());
        for (status, body) in
            [(200, ""), (200, "[]"), (200, r#"{"name": "other"}"#), (204, ""), (301, ""), (500, "")]
        {
            assert!(entry(status, body).is_err(), "{status} {body}");
        }
    }
}
