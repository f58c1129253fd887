//! Loads a checked model from texts and flags. Flags become a part of the same tree and replace the
//! file's keys before decoding. So both obey the same rules, and the file's value is used only if
//! the flag is absent.

use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;

use crate::decode::balancer::proxy;
use crate::decode::client::{client, kept};
use crate::decode::server::{grant, server};
use crate::edit::former::{NO_VARIABLE, NO_VARIABLE_HINT, has_variable};
use crate::mistakes::{self, Mistake, parse};
use crate::model::{ClientConfig, ClientGrant, Common, ProxyConfig, ServerConfig, entry};
use crate::section::{Cx, Item, Sources};
use crate::yaml::{At, Entry, Kind, Node};
use crate::{ClientFlags, Kept, Lists, Problem, ProxyFlags, ServerFlags, ServiceOptions};

/// A checked model and its warnings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded<T> {
    /// The model.
    pub config: T,
    /// Warnings, which do not prevent a start.
    pub warnings: Vec<Problem>,
}

/// Whether a text is YAML with at least one key. The problems of any other text do not depend on
/// its role.
#[must_use]
pub fn has_keys(text: &str) -> bool {
    let root = parse("", text);
    root.is_ok_and(|root| matches!(&root.kind, Kind::Map(entries) if !entries.is_empty()))
}

/// The text of a file.
///
/// # Errors
/// The bytes are not UTF-8: the place of the first wrong byte.
pub fn text_of(file: &str, bytes: Vec<u8>) -> Result<String, Problem> {
    let (bytes, at) = match String::from_utf8(bytes) {
        Ok(text) => return Ok(text),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            (error.into_bytes(), at)
        }
    };
    let before = String::from_utf8_lossy(&bytes[..at]);
    let last = before.rsplit('\n').next().unwrap_or_default();
    let what = match &bytes[..] {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "the file is UTF-16".to_owned(),
        _ => format!("the byte {:#04x} is not UTF-8", bytes[at]),
    };
    Err(Problem {
        file: file.to_owned(),
        line: 1 + before.matches('\n').count(),
        column: 1 + last.chars().count(),
        key_path: String::new(),
        message: what,
        hint: Some("save the file as UTF-8 in the editor".to_owned()),
    })
}

/// The files of lists of networks (`@FILE`) that a text names, even if the text has problems. Empty
/// if the text is not YAML.
#[must_use]
pub fn list_files(text: &str, sources: &Sources<'_>) -> Vec<PathBuf> {
    let Ok(root) = parse("", text) else { return Vec::new() };
    entry::list_files(&Cx::new("", sources), &root)
}

/// The value of a top-level key as written, even if the file has other problems. `None` if the text
/// is not YAML.
#[must_use]
pub fn scalar(text: &str, key: &str) -> Option<String> {
    let root = parse("", text).ok()?;
    let Kind::Map(entries) = &root.kind else { return None };
    let entry = entries.iter().find(|entry| entry.key == key)?;
    entry.value.text().map(str::to_owned)
}

/// The line and column, both from 1, of the value at a key path such as `servers[0].tls.ca`. This
/// position serves problems that appear only when the model is applied to the machine.
#[must_use]
pub fn locate(text: &str, key_path: &str) -> Option<(usize, usize)> {
    let mut node = parse("", text).ok()?;
    for step in key_path.split(['.', '[']) {
        node = match (&node.kind, step.strip_suffix(']')) {
            (Kind::List(items), Some(index)) => items.get(index.parse::<usize>().ok()?)?,
            (Kind::Map(entries), None) => &entries.iter().find(|entry| entry.key == step)?.value,
            // A single value counts as a list with one item.
            (Kind::Scalar { .. } | Kind::Map(_), Some("0")) => &node,
            _ => return None,
        }
        .clone();
    }
    match node.at {
        At::Text { line, column } => Some((line, column)),
        At::Flag(_) => None,
    }
}

/// A file's name, as it appears in problems, and its text.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Name or path.
    pub name: &'a str,
    /// Content.
    pub text: &'a str,
}

/// Loads a server's configuration from an optional file and flags.
///
/// # Errors
/// All problems, in file order.
pub fn load_server(
    file: Option<Text<'_>>,
    flags: &ServerFlags,
    sources: &Sources<'_>,
) -> Result<Loaded<ServerConfig>, Vec<Problem>> {
    load(file, flags.tree(), &[], sources, |cx, root| {
        watching(cx, server(cx, root)?, |server| &mut server.common)
    })
}

/// Loads a client's configuration from an optional file and flags.
///
/// # Errors
/// All problems, in the order of the file.
pub fn load_client(
    file: Option<Text<'_>>,
    flags: &ClientFlags,
    sources: &Sources<'_>,
) -> Result<Loaded<ClientConfig>, Vec<Problem>> {
    let added: &[&str] = if flags.only { &[] } else { &["services", "forwards"] };
    load(file, flags.tree(), added, sources, |cx, root| {
        watching(cx, client(cx, root)?, |client| &mut client.common)
    })
}

/// Loads a proxy's configuration from an optional file and flags. The entry from the flags is added
/// to the entries of the file.
///
/// # Errors
/// All problems, in the order of the file.
pub fn load_proxy(
    file: Option<Text<'_>>,
    flags: &ProxyFlags,
    sources: &Sources<'_>,
) -> Result<Loaded<ProxyConfig>, Vec<Problem>> {
    load(file, flags.tree(), &["proxies"], sources, |cx, root| {
        watching(cx, proxy(cx, root)?, |proxy| &mut proxy.common)
    })
}

/// Loads the lists that a client keeps in its state directory. `prefix` is `id_prefix`.
///
/// # Errors
/// All problems, in the order of the file.
pub fn load_kept(
    file: Text<'_>,
    prefix: Option<&str>,
    sources: &Sources<'_>,
) -> Result<Loaded<Kept>, Vec<Problem>> {
    load(Some(file), Vec::new(), &[], sources, |cx, root| kept(cx, root, prefix))
}

/// Loads services and forwards from the short forms of the command line. `prefix` is `id_prefix`.
///
/// # Errors
/// All problems, in the order of the arguments.
pub fn load_lists(
    publish: &[String],
    forward: &[String],
    prefix: Option<&str>,
    sources: &Sources<'_>,
) -> Result<Loaded<Lists>, Vec<Problem>> {
    load_published((publish, &ServiceOptions::default()), forward, prefix, sources)
}

/// Loads services, which share the same options, and forwards as [`load_lists`] does.
///
/// # Errors
/// All problems, in the order of the arguments.
pub fn load_published(
    (publish, options): (&[String], &ServiceOptions),
    forward: &[String],
    prefix: Option<&str>,
    sources: &Sources<'_>,
) -> Result<Loaded<Lists>, Vec<Problem>> {
    let (publish, options, forward) = (publish.to_vec(), options.clone(), forward.to_vec());
    let flags = ClientFlags { publish, options, forward, ..ClientFlags::default() };
    let kept = load(None, flags.tree(), &[], sources, |cx, root| kept(cx, root, prefix))?;
    Ok(Loaded { config: kept.config.lists, warnings: kept.warnings })
}

/// Loads services and forwards as [`load_published`] does, from a request to a running daemon. An
/// environment variable is an error: a requester must not read the environment.
///
/// # Errors
/// All problems, in the order of the arguments.
pub fn load_asked(
    (publish, options): (&[String], &ServiceOptions),
    forward: &[String],
    prefix: Option<&str>,
    sources: &Sources<'_>,
) -> Result<Loaded<Lists>, Vec<Problem>> {
    let bad = |flag: &str| {
        let mistake = Mistake {
            line: 0,
            column: 0,
            message: NO_VARIABLE.to_owned(),
            hint: NO_VARIABLE_HINT.to_owned(),
        };
        problem(flag, mistake)
    };
    let texts = publish.iter().map(|text| ("--publish", text));
    let texts = texts.chain(forward.iter().map(|text| ("--forward", text)));
    let wrong = texts.filter(|(_, text)| has_variable(text));
    let problems: Vec<_> = wrong.map(|(flag, _)| bad(flag)).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let sources = Sources { env: &|_| None, read: sources.read };
    load_published((publish, options), forward, prefix, &sources)
}

/// Loads one client from a file of its own, with the same keys as an entry of `clients`. Ports
/// without an address get the address `public_bind`. `ports` is the largest number of ports that
/// the client may publish without `limits.ports`.
///
/// # Errors
/// All problems, in the order of the file.
pub fn load_grant(
    file: Text<'_>,
    public_bind: IpAddr,
    ports: u32,
    sources: &Sources<'_>,
) -> Result<Loaded<ClientGrant>, Vec<Problem>> {
    load(Some(file), Vec::new(), &[], sources, |cx, root| grant(cx, root, public_bind, ports))
}

/// A configuration with the files that were read for it and are watched.
fn watching<T>(cx: &Cx<'_>, mut config: T, common: fn(&mut T) -> &mut Common) -> Option<T> {
    common(&mut config).watched = cx.watched.take();
    Some(config)
}

/// Decodes the tree of the file and the flags. A flag replaces the file's key; for the keys
/// `added`, its list is appended to the file's list.
fn load<T>(
    file: Option<Text<'_>>,
    flags: Vec<Entry>,
    added: &[&str],
    sources: &Sources<'_>,
    decode: impl FnOnce(&Cx<'_>, Item) -> Option<T>,
) -> Result<Loaded<T>, Vec<Problem>> {
    let name = file.map_or("command line", |f| f.name);
    let mut root = match file {
        Some(f) => parse(f.name, f.text).and_then(|root| map(f, root)).map_err(|why| vec![why])?,
        None => Node::new(Kind::Map(Vec::new()), At::Flag("command line")),
    };
    if !flags.is_empty() {
        root = overlay(&root, flags, added);
    }
    let cx = Cx::new(name, sources);
    let lacks_keys = matches!(&root.kind, Kind::Map(entries) if entries.is_empty());
    let config = decode(&cx, Item { node: root, path: String::new() });
    let (mut problems, mut warnings) = (cx.problems.into_inner(), cx.warnings.into_inner());
    if lacks_keys && file.is_some() && !problems.is_empty() {
        // One problem instead of a problem for each key.
        problems = vec![nothing(name)];
    }
    for said in [&mut problems, &mut warnings] {
        said.sort_by_key(|p| (p.line, p.column));
    }
    match config {
        Some(config) if problems.is_empty() => Ok(Loaded { config, warnings }),
        _ => Err(problems),
    }
}

/// Refuses a file that consists of a single value.
fn map(file: Text<'_>, root: Rc<Node>) -> Result<Rc<Node>, Problem> {
    if !matches!(root.kind, Kind::Scalar { .. }) {
        return Ok(root);
    }
    let found = mistakes::no_map(file.text).unwrap_or_else(|| Mistake {
        line: 1,
        column: 1,
        message: "the file is one value without a key".to_owned(),
        hint: "write `key: value`, for example `listen: tls://[::]:7000`".to_owned(),
    });
    Err(problem(file.name, found))
}

/// The error for a file that is empty or has only comments.
fn nothing(file: &str) -> Problem {
    let hint = "`tunnel generate config server`, `client` or `proxy` prints a file to begin with";
    let (message, hint) = ("the file has no keys".to_owned(), hint.to_owned());
    problem(file, Mistake { line: 1, column: 1, message, hint })
}

fn problem(file: &str, mistake: Mistake) -> Problem {
    let Mistake { line, column, message, hint } = mistake;
    let (file, key_path, hint) = (file.to_owned(), String::new(), Some(hint));
    Problem { file, line, column, key_path, message, hint }
}

/// Groups of keys: a flag for one key removes the other keys of the group from the file.
const EXCLUSIVE: &[&[&str]] = &[&["token", "token_file"], &["pin", "ca"]];

/// The file's map with the flags' entries in place of the file's entries. Maps are merged, and so
/// are the lists of the keys `added`.
fn overlay(base: &Rc<Node>, flags: Vec<Entry>, added: &[&str]) -> Rc<Node> {
    let Kind::Map(entries) = &base.kind else { return Rc::clone(base) };
    let mut entries = entries.clone();
    for mut flag in flags {
        if let Kind::Map(inner) = &flag.value.kind
            && let Some(old) = entries.iter().find(|e| e.key == flag.key)
            && matches!(old.value.kind, Kind::Map(_))
        {
            flag.value = overlay(&old.value, inner.clone(), &[]);
        }
        if added.contains(&flag.key.as_str())
            && let Kind::List(new) = &flag.value.kind
            && let Some(old) = entries.iter().find(|e| e.key == flag.key)
            && let Kind::List(items) = &old.value.kind
        {
            let all = items.iter().chain(new).cloned().collect();
            flag.value = Node::new(Kind::List(all), old.value.at);
        }
        let group = EXCLUSIVE.iter().find(|g| g.contains(&flag.key.as_str()));
        let others: Vec<&str> = group.map(|g| g.to_vec()).unwrap_or_default();
        entries.retain(|e| {
            let from_flag = matches!(e.at, At::Flag(_));
            e.key != flag.key && (from_flag || !others.contains(&e.key.as_str()))
        });
        entries.push(flag);
    }
    Node::new(Kind::Map(entries), base.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_no_variable_of_the_environment() {
        let env = |_: &str| Some("secret".to_owned());
        let sources = Sources { env: &env, read: &|_| Err(String::new()) };
        let load = |publish: &str, forward: &str| {
            let lists = [publish, forward].map(|text| {
                Some(text.to_owned())
                    .filter(|text| !text.is_empty())
                    .into_iter()
                    .collect::<Vec<_>>()
            });
            let options = ServiceOptions::default();
            load_asked((&lists[0], &options), &lists[1], None, &sources)
        };
        for (publish, forward) in
            [("1=unix:///x/${A}", ""), ("${A}", ""), ("", "tcp://127.0.0.1:1=tcp://${A}:1")]
        {
            let problems = load(publish, forward).unwrap_err();
            let said = problems.iter().map(ToString::to_string).collect::<String>();
            assert!(said.contains("is filled in only where") && !said.contains("secret"), "{said}");
        }
        let lists = load("1=unix:///x/$${A}", "").unwrap().config;
        assert_eq!(lists.services[0].target.to_string(), "unix:///x/${A}");
    }

    #[test]
    fn the_files_of_lists_are_known_of_a_text_with_problems() {
        let env = |name: &str| (name == "DIR").then(|| "/lists".to_owned());
        let sources = Sources { env: &env, read: &|_| Err(String::new()) };
        let files = |text: &str| {
            let files = list_files(text, &sources).into_iter();
            files.map(|file| file.display().to_string()).collect::<Vec<_>>().join(" ")
        };
        let text = "allow_from: \"@a:DE,AT\"\ntypo: \"@b\"\nservices:\n  \
                    - { deny_from: [10.0.0.1, \"@${DIR}/c\", \"@${NONE}/d\"] }\n";
        assert_eq!(files(text), "a /lists/c");
        assert_eq!(files("allow_from: \"@a\"\n- b"), "");
    }

    #[test]
    fn a_key_path_is_found_where_it_stands() {
        let text = "servers:\n  - { url: \"tls://a:1\", tls: { ca: a.pem } }\n  - tls://b:1\n\
                    tls:\n  cert: c.pem\n";
        assert_eq!(locate(text, "tls.cert"), Some((5, 9)));
        assert_eq!(locate(text, "servers[0].tls.ca"), Some((2, 36)));
        assert_eq!(locate(text, "servers[1]"), Some((3, 5)));
        for absent in ["tls.key", "servers[2]", "servers[1].tls.ca", "tls[1]", "", "["] {
            assert_eq!(locate(text, absent), None, "{absent}");
        }
        assert_eq!(locate("servers: tls://b:1\n", "servers[0]"), Some((1, 10)));
    }
}
