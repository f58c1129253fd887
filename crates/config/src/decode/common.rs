//! Decodes keys and values that both roles have.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use proto::greeting::{StoredCredential, TokenError};

use super::values::{count, path, positive, span, switch};
use super::{Item, Section, otlp, secrecy, unknown, values};
use crate::keys::{ADMIN, REQUESTS, ROTATE, Table, UPGRADE, WINDOW};
use crate::model::{
    AccessLog, Admin, Common, FormerLimits, LogFile, LogFormat, LogLevel, RequestFormat,
    RequestLog, Token,
};
use crate::yaml::Kind;
use crate::{BadValue, Role, Secret, Size, Span};

/// The hint for a refused token.
const MAKE_TOKEN: &str = "make one with `tunnel generate token`";

/// The hint for a missing token if only a token is possible.
pub(crate) const TOKEN_WANTED: &str =
    "make one with `tunnel generate token`, or name a file with `token_file:`";

/// Permitted range of a window, in bytes. A window that is smaller than one frame would stall the
/// stream, and a larger window would use too much memory.
const WINDOW_RANGE: (u64, u64) = (16 << 10, 1 << 30);

/// Smallest memory budget, in bytes. A smaller budget holds only a few streams with useful windows.
const MEMORY_MIN: u64 = 16 << 20;

/// Default of `log.rotate.size`, in bytes: about 80,000 lines.
const LOG_SIZE: u64 = 10 << 20;

/// Smallest `log.rotate.size`, in bytes. With a smaller limit, a busy daemon would rotate the file
/// every few seconds.
const LOG_SIZE_MIN: u64 = 64 << 10;

/// Default of `admin.listen`.
const ADMIN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7070);

/// The keys of the read-only token.
const READ_KEYS: [&str; 2] = ["read_token", "read_token_file"];

/// Default of `log.rotate.keep`: number of older files.
const LOG_KEEP: u32 = 5;

/// Largest `log.rotate.keep`: each rotation renames all older files.
const LOG_KEEP_MAX: u32 = 1000;

/// Default of `keepalive`, in milliseconds: half of the shortest idle timeout of NATs and proxies
/// in practice.
const KEEPALIVE: u64 = 15_000;

/// Default of `window.initial`, in bytes: enough for one stream at 10 ms and 200 Mbit/s. Windows
/// grow by themselves.
const WINDOW_INITIAL: u64 = 256 << 10;

/// Default of `window.max`, in bytes: enough for 100 ms at 1.3 Gbit/s.
const WINDOW_MAX: u64 = 16 << 20;

/// Default of `upgrade.former_max`: 16 processes share a port of UDP, and two of them are the
/// serving process and its successor.
const FORMER: usize = 14;

/// The largest number of former processes: each takes 10 MB or more.
const FORMER_MAX: usize = 100;

/// Decodes the keys of all roles. `of_log`: the keys of `log`. `role`: the role of the file.
pub(crate) fn common(s: &Section<'_>, of_log: &Table, role: Role) -> Common {
    if s.key("type").is_some() {
        s.value("type", |text| of_type(text, role));
    }
    let window = s.section("window", &WINDOW);
    let window_of = |key, default| match &window {
        Some(w) if w.key(key).is_some() => w.value(key, window_size),
        Some(_) | None => Some(Size::from_bytes(default)),
    };
    let mut sizes = (window_of("initial", WINDOW_INITIAL), window_of("max", WINDOW_MAX));
    // The default applies only where the file has no such key.
    if let (Some(initial), Some(max)) = &mut sizes
        && window.as_ref().is_none_or(|window| window.key("initial").is_none())
    {
        *initial = (*initial).min(*max);
    }
    if let (Some(window), (Some(initial), Some(max))) = (&window, sizes)
        && initial > max
    {
        window.bad("initial", BadValue::new(format!("{initial} is more than window.max ({max})")));
    }
    let log = s.section("log", of_log);
    let log = log.as_ref();
    let log_format = log.and_then(|l| l.value("format", format)).unwrap_or(LogFormat::Text);
    if let (Some(log), LogFormat::Journald) = (log, log_format)
        && log.key("file").is_some()
    {
        let bad = BadValue::new("with `format: journald` the log goes to the journal");
        log.bad("file", bad.hint("leave `file` out, or say `format: text`"));
    }
    Common {
        state_dir: path(s, "state_dir"),
        workers: count(s, "workers"),
        memory_budget: s.key("memory_budget").and_then(|_| s.value("memory_budget", memory)),
        window_initial: sizes.0.unwrap_or(Size::from_bytes(WINDOW_INITIAL)),
        window_max: sizes.1.unwrap_or(Size::from_bytes(WINDOW_MAX)),
        keepalive: positive(s, "keepalive", KEEPALIVE).unwrap_or(Span::from_millis(KEEPALIVE)),
        resume_timeout: span(s, "resume_timeout", 60_000),
        drain_timeout: span(s, "drain_timeout", 120_000),
        upgrade: upgrade(s),
        log_level: log.and_then(|l| l.value("level", level)).unwrap_or(LogLevel::Info),
        log_format,
        log_file: log.and_then(log_file),
        log_access: log.and_then(log_access).unwrap_or_default(),
        log_requests: log.and_then(log_requests),
        control: path(s, "control"),
        watch: s.value("watch", switch).unwrap_or(false),
        otlp: otlp::otlp(s),
        quic: super::quic::quic(s),
        kcp: super::kcp::kcp(s),
        admin: s.section("admin", &ADMIN).and_then(|admin| self::admin(&admin)),
    }
}

fn upgrade(s: &Section<'_>) -> FormerLimits {
    let s = s.section("upgrade", &UPGRADE);
    let number = |text: &str| {
        let bad = || {
            BadValue::new(format!("`{text}` is not a number of former processes"))
                .hint(format!("0 to {FORMER_MAX}"))
        };
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let most = text.parse().ok().filter(|most| is_number && *most <= FORMER_MAX);
        most.ok_or_else(bad)
    };
    let most = s.as_ref().filter(|s| s.key("former_max").is_some());
    let longest = s.as_ref().filter(|s| s.key("former_for").is_some());
    FormerLimits {
        most: most.and_then(|s| s.value("former_max", number)).unwrap_or(FORMER),
        longest: longest.and_then(|s| positive(s, "former_for", 0)),
    }
}

fn admin(s: &Section<'_>) -> Option<Admin> {
    let listen = match s.key("listen") {
        None => Some(ADMIN_LISTEN),
        Some(_) => s.value("listen", |text| {
            let bad = |_| BadValue::new(format!("`{text}` is not an address with a port"));
            text.parse::<SocketAddr>().map_err(|why| bad(why).hint("like 127.0.0.1:7070"))
        }),
    };
    let token = tokens(s, 1, Kept::OrHashed, Some(TOKEN_WANTED)).pop();
    let read = tokens_of(s, READ_KEYS, 1, Kept::OrHashed, None).pop();
    let listen = listen?;
    if let Some(item) = s.key("listen")
        && !listen.ip().is_loopback()
    {
        let bad = BadValue::new("no TLS on an address others can reach");
        s.cx.warn(
            item.at(),
            &item.path,
            bad.hint("bind 127.0.0.1, or put a proxy with TLS in front"),
        );
    }
    if let (Some(token), Some(read)) = (&token, &read)
        && is_same(token, read)
    {
        let [inline, file] = READ_KEYS;
        let key = if s.key(inline).is_some() { inline } else { file };
        let bad = BadValue::new("the same token as `admin.token`, which permits everything");
        s.bad(key, bad.hint(MAKE_TOKEN));
    }
    let hosts = values::entries(s, "hosts");
    let origin = s.parse("origin");
    Some(Admin { listen, token: token?, read_token: read, hosts, origin })
}

/// Whether two tokens are equal; each may be written as its hash.
fn is_same(one: &Token, other: &Token) -> bool {
    let stored = |token: &Token| StoredCredential::of(token.secret.reveal()).ok();
    // Both were checked, so both are present.
    stored(one).is_some_and(|one| stored(other).as_ref() == Some(&one))
}

fn log_file(log: &Section<'_>) -> Option<LogFile> {
    let rotate = log.section("rotate", &ROTATE);
    let has_file = log.key("file").is_some()
        || log.key("requests").is_some()
        || matches!(access_text(log), Some(AccessText::File));
    if rotate.is_some() && !has_file {
        log.bad("rotate", BadValue::new("there is no `file` to rotate").hint("add `file: …`"));
    }
    let (size, keep) = rotation(rotate.as_ref());
    Some(LogFile { path: path(log, "file")?, size, keep })
}

/// The size and the number of log files.
fn rotation(rotate: Option<&Section<'_>>) -> (Size, u32) {
    let of = |key| rotate.filter(|rotate| rotate.key(key).is_some());
    let size = of("size").and_then(|rotate| rotate.value("size", log_size));
    let keep = of("keep").and_then(|rotate| rotate.value("keep", log_keep));
    (size.unwrap_or(Size::from_bytes(LOG_SIZE)), keep.unwrap_or(LOG_KEEP))
}

/// The kinds of values that `access` accepts.
enum AccessText {
    Switch(bool),
    File,
}

fn access_text(log: &Section<'_>) -> Option<AccessText> {
    let item = log.key("access")?;
    let Kind::Scalar { text, .. } = &item.node.kind else { return None };
    Some(text.parse().map_or(AccessText::File, AccessText::Switch))
}

/// Decodes `access`: `true`, `false`, or the path of a file, which is rotated as `file` is.
fn log_access(log: &Section<'_>) -> Option<AccessLog> {
    match access_text(log) {
        Some(AccessText::Switch(true)) => Some(AccessLog::On),
        Some(AccessText::Switch(false)) => Some(AccessLog::Off),
        Some(AccessText::File) | None => {
            let path = path(log, "access")?;
            let is_same =
                log.key("file").is_some() && self::path(log, "file").as_ref() == Some(&path);
            if is_same {
                let bad = BadValue::new("the same file as `file`");
                log.bad("access", bad.hint("`access: true` writes into the log"));
            }
            let (size, keep) = rotation(log.section("rotate", &ROTATE).as_ref());
            Some(AccessLog::File(LogFile { path, size, keep }))
        }
    }
}

/// Decodes `requests`: the path of a file, or a map with the path and the contents of the lines.
/// The file is rotated as `file` is.
fn log_requests(log: &Section<'_>) -> Option<RequestLog> {
    let item = log.key("requests")?;
    let item = if let Kind::Map(_) = item.node.kind { item } else { item.keyed("file") };
    let section = Section::open(log.cx, item, &REQUESTS)?;
    if section.key("file").is_none() {
        section.missing("file", "the file of the lines, like /var/log/tunnel/requests.log");
        return None;
    }
    let file = section.value("file", |text| match text.parse::<bool>() {
        Ok(_) => Err(BadValue::new(format!("`{text}` is no file"))
            .hint("`requests: /var/log/tunnel/requests.log`, or remove the key")),
        Err(_) if text.is_empty() => Err(BadValue::new("an empty path")),
        Err(_) => Ok(PathBuf::from(text)),
    })?;
    let is_other = |key: &&&str| {
        let item = log.key(key);
        let kind = item.as_ref().map(|item| &item.node.kind);
        matches!(kind, Some(Kind::Scalar { text, .. }) if Path::new(text) == file)
    };
    if let Some(other) = ["file", "access"].iter().find(is_other) {
        let bad = BadValue::new(format!("the same file as `log.{other}`"));
        section.bad("file", bad.hint("name another file"));
    }
    let (size, keep) = rotation(log.section("rotate", &ROTATE).as_ref());
    Some(RequestLog {
        file: LogFile { path: file, size, keep },
        format: section.value("format", request_format).unwrap_or_default(),
        query: section.value("query", switch).unwrap_or_default(),
        user: section.value("user", switch).unwrap_or_default(),
    })
}

fn request_format(text: &str) -> Result<RequestFormat, BadValue> {
    match text {
        "combined" => Ok(RequestFormat::Combined),
        "json" => Ok(RequestFormat::Json),
        _ => Err(unknown(&format!("format `{text}`"), text, &["combined", "json"])),
    }
}

fn log_size(text: &str) -> Result<Size, BadValue> {
    let size: Size = text.parse()?;
    if size.bytes() < LOG_SIZE_MIN {
        return Err(BadValue::new(format!("`{text}` is too little")).hint("64KiB or more"));
    }
    Ok(size)
}

fn log_keep(text: &str) -> Result<u32, BadValue> {
    let bad = || BadValue::new(format!("`{text}` is not a count of files")).hint("0 to 1000");
    text.parse().ok().filter(|n| *n <= LOG_KEEP_MAX).ok_or_else(bad)
}

fn memory(text: &str) -> Result<Size, BadValue> {
    let size: Size = text.parse()?;
    if size.bytes() < MEMORY_MIN {
        return Err(BadValue::new(format!("`{text}` is too little")).hint("16MiB or more"));
    }
    Ok(size)
}

fn window_size(text: &str) -> Result<Size, BadValue> {
    let size: Size = text.parse()?;
    let (min, max) = WINDOW_RANGE;
    if !(min..=max).contains(&size.bytes()) {
        return Err(BadValue::new(format!("`{text}` is out of range")).hint("16KiB to 1GiB"));
    }
    Ok(size)
}

fn level(text: &str) -> Result<LogLevel, BadValue> {
    let all = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];
    let found = all.into_iter().find(|l| l.name() == text);
    found.ok_or_else(|| {
        unknown(&format!("level `{text}`"), text, &["error", "warn", "info", "debug", "trace"])
    })
}

/// Checks `type`, which decides the role of a file whose other keys do not.
fn of_type(text: &str, role: Role) -> Result<(), BadValue> {
    match Role::named(text) {
        Some(named) if named == role => Ok(()),
        Some(_) => Err(BadValue::new(format!("this is a {}'s file", role.name()))),
        None => Err(unknown(&format!("type `{text}`"), text, &["server", "client", "proxy"])),
    }
}

fn format(text: &str) -> Result<LogFormat, BadValue> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        "journald" => Ok(LogFormat::Journald),
        _ => Err(unknown(&format!("format `{text}`"), text, &["text", "json", "journald"])),
    }
}

/// The permitted forms of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Only the token itself, which a client needs to log in.
    Plain,
    /// The token or its hash, where the token is only compared.
    OrHashed,
}

/// Decodes `token` or `token_file`, with at most `most` tokens. `without` is the hint for a missing
/// token; `None` makes the token optional.
pub(crate) fn tokens(
    s: &Section<'_>,
    most: usize,
    kept: Kept,
    without: Option<&str>,
) -> Vec<Token> {
    tokens_of(s, ["token", "token_file"], most, kept, without)
}

/// Decodes the tokens of these two keys: the token itself, and its file.
fn tokens_of(
    s: &Section<'_>,
    [inline, file]: [&str; 2],
    most: usize,
    kept: Kept,
    without: Option<&str>,
) -> Vec<Token> {
    let (key, item) = match (s.key(inline), s.key(file)) {
        (Some(_), Some(_)) => {
            let bad = BadValue::new(format!("{inline} and {file} together"));
            s.bad(file, bad.hint("keep one of them"));
            return Vec::new();
        }
        (Some(item), None) => (inline, item),
        (None, Some(item)) => (file, item),
        (None, None) => {
            if let Some(hint) = without {
                s.missing(inline, hint);
            }
            return Vec::new();
        }
    };
    let items = s.cx.one_or_list(&item);
    if items.is_empty() || items.len() > most {
        let wanted = if most == 1 { "exactly one" } else { "one or two (old and new)" };
        s.bad(key, BadValue::new(format!("{} tokens, {wanted} wanted", items.len())));
    }
    items.iter().take(most).filter_map(|item| token(s, item, key == file, kept)).collect()
}

fn token(s: &Section<'_>, item: &Item, from_file: bool, kept: Kept) -> Option<Token> {
    s.cx.value(item, |text| {
        if !from_file {
            return Ok(Token { secret: check(text, kept)?, file: None });
        }
        let read = (s.cx.sources.read)(Path::new(text)).map(Secret::new);
        let read = read.map_err(|why| secrecy::unreadable(text, &why))?;
        let secret = check(read.reveal().trim_end(), kept)?;
        Ok(Token { secret, file: Some(PathBuf::from(text)) })
    })
}

/// Checks a token by the greeting's rules. No message contains the text.
fn check(text: &str, kept: Kept) -> Result<Secret, BadValue> {
    let refused = |why: TokenError| match why.to_string().split_once("; ") {
        Some((why, hint)) => BadValue::new(why).hint(hint),
        None => BadValue::new(why.to_string()).hint(MAKE_TOKEN),
    };
    match kept {
        Kept::Plain => drop(proto::greeting::Token::new(text).map_err(refused)?),
        Kept::OrHashed => drop(StoredCredential::of(text).map_err(refused)?),
    }
    Ok(Secret::new(text))
}
