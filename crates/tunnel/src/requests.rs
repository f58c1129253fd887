//! `tunnel requests`: lists the latest requests of a client's visitors, shows one in full, or
//! replays one.

use anyhow::{bail, ensure};
use ops::command::{Replay, ShowRequest};
use ops::requests::{
    HttpField, HttpMessage, KeptBody, RequestDetail, RequestFilter, RequestProgress, SeenRequest,
    SeenRequests,
};
use ops::status::bytes;
use ops::term::{self, Column, Drawn, Screen, Sheet, Table};

use crate::cli::RequestsArgs;
use crate::instances::ask;

/// The error about a request that is no longer kept.
const GONE: &str = "no such request (any more): only the last ones are kept";

/// Lists requests, shows one, or replays one.
pub(crate) fn requests(args: &RequestsArgs) -> anyhow::Result<()> {
    let Some(id) = args.id else {
        let filter = RequestFilter {
            service: args.service.clone(),
            method: args.method.clone(),
            class: args.status,
            path: args.path.clone(),
            since: None,
        };
        let mut seen = ask(&args.which, filter)?;
        let omitted = seen.requests.len().saturating_sub(args.limit);
        seen.requests.drain(..omitted);
        let draw = |seen: &SeenRequests| list(seen, omitted, Screen::of_stdout(args.wide));
        return term::show(&seen, args.json, draw);
    };
    let detail = if args.replay {
        ask(&args.which, Replay { id })?
    } else {
        ask(&args.which, ShowRequest { id, secrets: args.secrets })?
    };
    let Some(detail) = detail else { bail!(GONE) };
    term::show(&detail, args.json, |detail| detailed(detail, Screen::of_stdout(true)))?;
    ensure!(
        !args.replay || detail.seen.progress == RequestProgress::Complete,
        "the response did not come to its end"
    );
    Ok(())
}

fn list(seen: &SeenRequests, omitted: usize, screen: Screen) -> Drawn {
    let mut table = Table::new(vec![
        Column::new("number"),
        Column::new("time").worth(60),
        Column::new("service").text().worth(50),
        Column::new("visitor").address().worth(40),
        Column::new("method").text(),
        Column::new("path").text(),
        Column::new("status"),
        Column::new("took").worth(30),
        Column::new("in").worth(20),
        Column::new("out").worth(20),
    ]);
    for one in &seen.requests {
        table.row([
            one.id.to_string(),
            clock(one.unix_millis),
            one.service.clone(),
            one.visitor.clone().unwrap_or_else(|| "-".to_owned()),
            if one.method.is_empty() { "-".to_owned() } else { one.method.clone() },
            if one.path.is_empty() { "-".to_owned() } else { one.path.clone() },
            outcome(one),
            one.whole_micros.map_or_else(|| "-".to_owned(), millis),
            bytes(one.request_bytes),
            bytes(one.response_bytes),
        ]);
    }
    let mut sheet = Sheet::new(screen);
    if seen.requests.is_empty() {
        sheet.line(
            "no requests are kept (hint: `requests: true` at a service with an http:// or https:// \
             name, or `tunnel share`)",
        );
    }
    sheet.table(&table);
    if omitted > 0 {
        sheet.line(format_args!("and {omitted} older: --limit"));
    }
    if seen.lost > 0 {
        let lost = term::count(seen.lost, "request");
        sheet.line(format_args!("{lost} not kept, because memory was short"));
    }
    sheet.finish()
}

/// The status, or the progress of the request.
fn outcome(one: &SeenRequest) -> String {
    let progress = match one.progress {
        RequestProgress::Open => Some("open"),
        RequestProgress::Cut => Some("cut"),
        RequestProgress::Complete | RequestProgress::Unknown => None,
    };
    match (one.status, progress) {
        (Some(status), Some(progress)) => format!("{status} {progress}"),
        (Some(status), None) => status.to_string(),
        (None, progress) => progress.unwrap_or("-").to_owned(),
    }
}

fn detailed(detail: &RequestDetail, screen: Screen) -> Drawn {
    let RequestDetail { seen, request, interim, response, no_replay } = detail;
    let mut sheet = Sheet::new(screen);
    let visitor = seen.visitor.as_deref().unwrap_or("an unknown address");
    sheet.line(format_args!(
        "request {} to {} at {} from {visitor}: {}",
        seen.id,
        seen.service,
        clock(seen.unix_millis),
        outcome(seen)
    ));
    if let Some(of) = seen.replay_of {
        sheet.line(format_args!("a replay of request {of}"));
    }
    let times = [("first byte", seen.first_byte_micros), ("whole", seen.whole_micros)];
    for (what, micros) in times {
        if let Some(micros) = micros {
            sheet.line(format_args!("{what} after {}", millis(micros)));
        }
    }
    if let Some(messages) = seen.messages {
        sheet.line(format_args!(
            "messages: {} from the visitor, {} from the target",
            messages.incoming, messages.outgoing
        ));
    }
    let all = request.iter().chain(interim).chain(response);
    for message in all {
        sheet.gap();
        shown(&mut sheet, message);
    }
    if let Some(why) = no_replay {
        sheet.gap();
        sheet.line(format_args!("no replay: {why}"));
    }
    sheet.finish()
}

fn shown(sheet: &mut Sheet, message: &HttpMessage) {
    let HttpMessage { line, fields, trailers, body } = message;
    sheet.line(line);
    let field = |sheet: &mut Sheet, field: &HttpField| {
        sheet.line(format_args!("{}: {}", field.name, field.value));
    };
    fields.iter().for_each(|one| field(sheet, one));
    let KeptBody { bytes: all, text, base64, cut, left_out } = body;
    if *all > 0 {
        sheet.gap();
        if *left_out {
            sheet.line(format_args!("(a body of {}, left out: memory was short)", bytes(*all)));
        } else if let Some(text) = text {
            text.lines().for_each(|line| sheet.line(line));
        } else if base64.is_some() {
            sheet.line(format_args!("(a body of {} that is no text: --json)", bytes(*all)));
        }
        if *cut {
            sheet.line(format_args!("(cut: the body has {})", bytes(*all)));
        }
    }
    trailers.iter().for_each(|one| field(sheet, one));
}

fn millis(micros: u64) -> String {
    let (whole, tenths) = (micros / 1000, micros % 1000 / 100);
    if whole < 100 { format!("{whole}.{tenths} ms") } else { format!("{whole} ms") }
}

/// The time of the day in UTC.
fn clock(unix_millis: u64) -> String {
    let seconds = unix_millis / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> SeenRequest {
        SeenRequest {
            id: 7,
            service: "web".into(),
            unix_millis: 3_723_000,
            progress: RequestProgress::Complete,
            method: "GET".into(),
            path: "/a\u{1b}[31m".into(),
            status: Some(200),
            whole_micros: Some(12_345),
            ..SeenRequest::default()
        }
    }

    #[test]
    fn a_list_has_a_line_for_each_request_and_no_control_character_of_a_visitor() {
        let open = SeenRequest { id: 8, progress: RequestProgress::Open, status: None, ..seen() };
        let all = SeenRequests { requests: vec![seen(), open], lost: 2, memory_bytes: 1 };
        let text = list(&all, 5, Screen::narrow(200)).as_str().to_owned();
        assert!(text.contains("01:02:03Z") && text.contains("12.3 ms"), "{text}");
        assert!(text.contains("open") && text.contains("5 older"), "{text}");
        assert!(text.contains("2 requests not kept") && !text.contains('\u{1b}'), "{text}");
        let none = list(&SeenRequests::default(), 0, Screen::narrow(80));
        assert!(none.as_str().contains("requests: true"));
    }

    #[test]
    fn a_request_in_full_has_heads_and_bodies() {
        let message = |head: &[u8], body: &[u8]| {
            HttpMessage::of(head, b"", KeptBody::of(body, body.len() as u64 + 1, false), false)
        };
        let detail = RequestDetail {
            seen: SeenRequest { replay_of: Some(3), ..seen() },
            request: Some(message(b"GET /a HTTP/1.1\r\nCookie: a\r\n\r\n", b"\0")),
            response: Some(message(b"HTTP/1.1 200 OK\r\n\r\n", b"\x1b[2Jx\nsecond")),
            no_replay: Some("because".into()),
            ..RequestDetail::default()
        };
        let text = detailed(&detail, Screen::narrow(200)).as_str().to_owned();
        for part in ["replay of request 3", "Cookie: (secret)", "no text: --json", "no replay"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains('\u{1b}'));
    }
}
