//! Adds and removes services and forwards of a client's file.

use std::path::Path;
use std::rc::Rc;

use proto::{HttpOptions, Network};

use super::value::Value;
use super::{Action, EditError, OPERATIONS_MAX, Operation, edit, refused};
use crate::mistakes::parse;
use crate::model::{Forward, PRIVATE, PeerPath, PeerTls, Service, TargetTls, Token, Trust};
use crate::section::{Cx, Item, Sources};
use crate::yaml::{At, Kind, Node};
use crate::{Lists, Secret};

/// Adds `lists` to the text of a client's file, and keeps everything else of the text. An entry
/// replaces the entries that have its name, one of its ports or its address. `file` is the file's
/// name in problems.
///
/// # Errors
/// An entry of the file would have to be split, or cannot be edited. Then nothing is edited.
pub fn publish(file: &str, text: &str, lists: &Lists) -> Result<String, EditError> {
    let root = parse(file, text).map_err(EditError::File)?;
    let services = Entries::services(&root);
    let forwards = Entries::forwards(&root);
    let mut operations = Vec::new();
    let new = lists.services.iter().map(|service| of_services(vec![service.clone()]));
    services.add(new.collect(), file, &mut operations)?;
    let new = lists.forwards.iter().map(|forward| of_forwards(vec![forward.clone()]));
    forwards.add(new.collect(), file, &mut operations)?;
    all(file, text, &operations)
}

/// Removes the service of this name, or the forward that listens at this address, from the text of
/// a client's file, with the comment lines directly above the entry: they would otherwise precede
/// another entry. `None`: the text has no such entry.
///
/// # Errors
/// The entry would have to be split, or cannot be edited.
pub fn unpublish(file: &str, text: &str, what: &str) -> Result<Option<String>, EditError> {
    let root = parse(file, text).map_err(EditError::File)?;
    for entries in [Entries::services(&root), Entries::forwards(&root)] {
        for (n, made) in entries.made.iter().enumerate() {
            let mut rest = made.clone();
            if !rest.remove(what) {
                continue;
            }
            if !rest.is_empty() {
                return Err(refused(format!(
                    "{file}: {}[{n}] has more than `{what}`: edit the file by hand",
                    entries.key
                )));
            }
            let remove = Operation::remove(format!("/{}/{n}", entries.key));
            let line = match entries.nodes.get(n).map(|node| &node.at) {
                Some(At::Text { line, .. }) => *line,
                _ => 0,
            };
            return all(file, &without_heading(text, line), &[remove]).map(Some);
        }
    }
    Ok(None)
}

/// The text without the comment lines directly above an item whose dash is on this line (from 1).
/// Only comment lines in the column of the dash belong to the item.
fn without_heading(text: &str, line: usize) -> String {
    let mut lines: Vec<_> = text.split_inclusive('\n').collect();
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let Some(item) = line.checked_sub(1).filter(|at| *at < lines.len()) else {
        return text.to_owned();
    };
    let own = indent(lines[item]);
    if !lines[item][own..].starts_with('-') {
        return text.to_owned();
    }
    let is_heading = |line: &&&str| indent(line) == own && line[own..].starts_with('#');
    let count = lines[..item].iter().rev().take_while(is_heading).count();
    lines.drain(item - count..item);
    lines.concat()
}

/// Adds a text to the list at the key `key`, or removes it from the list.
///
/// # Errors
/// The list cannot be edited.
pub fn list_text(
    file: &str,
    text: &str,
    key: &str,
    what: &str,
    is_in: bool,
) -> Result<String, EditError> {
    let root = parse(file, text).map_err(EditError::File)?;
    let escaped = what.replace("${", "$${");
    let items = child(&root, key).map(|node| items(&node)).unwrap_or_default();
    let is_it = |node: &Rc<Node>| node.text() == Some(&escaped);
    let operation = match (items.iter().position(is_it), is_in) {
        (Some(n), false) => Operation::remove(format!("/{key}/{n}")),
        (None, true) => append(key, !items.is_empty(), Value::Text(escaped)),
        (Some(_), true) | (None, false) => return Ok(text.to_owned()),
    };
    all(file, text, &[operation])
}

/// Applies all operations, in batches that are small enough for one edit.
fn all(file: &str, text: &str, operations: &[Operation]) -> Result<String, EditError> {
    let mut text = text.to_owned();
    for part in operations.chunks(OPERATIONS_MAX) {
        text = edit(file, &text, part)?;
    }
    Ok(text)
}

const fn of_services(services: Vec<Service>) -> Lists {
    Lists { services, forwards: Vec::new() }
}

const fn of_forwards(forwards: Vec<Forward>) -> Lists {
    Lists { services: Vec::new(), forwards }
}

/// The entries of one list of the file.
struct Entries {
    key: &'static str,
    prefix: Option<String>,
    nodes: Vec<Rc<Node>>,
    /// The services or forwards that each entry defines. Empty for an entry with a problem.
    made: Vec<Lists>,
}

impl Entries {
    fn services(root: &Rc<Node>) -> Self {
        let prefix = child(root, "id_prefix").filter(|node| !node.is_null());
        let prefix = prefix.and_then(|node| node.text().map(str::to_owned));
        let of = prefix.clone();
        Self::new(root, "services", prefix, move |cx, item| {
            of_services(crate::decode::services_of(cx, item, of.as_deref()))
        })
    }

    fn forwards(root: &Rc<Node>) -> Self {
        Self::new(root, "forwards", None, |cx, item| {
            of_forwards(crate::decode::forward_of(cx, item).into_iter().collect())
        })
    }

    fn new(
        root: &Rc<Node>,
        key: &'static str,
        prefix: Option<String>,
        decode: impl Fn(&Cx<'_>, Item) -> Lists,
    ) -> Self {
        let nodes = child(root, key).map(|node| items(&node)).unwrap_or_default();
        let read = |_: &Path| Err(String::new());
        let sources = Sources { env: &|_| None, read: &read };
        let cx = Cx::new("", &sources);
        let item = |node: &Rc<Node>| Item { node: Rc::clone(node), path: String::new() };
        let made = nodes.iter().map(|node| decode(&cx, item(node))).collect();
        Self { key, prefix, nodes, made }
    }

    /// Adds the operations that merge `new` into this list.
    fn add(
        &self,
        new: Vec<Lists>,
        file: &str,
        operations: &mut Vec<Operation>,
    ) -> Result<(), EditError> {
        let (mut gone, mut added) = (Vec::new(), Vec::new());
        for lists in new {
            let mut is_placed = false;
            for (n, made) in self.made.iter().enumerate() {
                let mut both = made.clone();
                both.add(lists.clone());
                let (before, left) = (made.len(), both.len() - lists.len());
                if left == before {
                    continue;
                }
                if left > 0 {
                    return Err(refused(format!(
                        "{file}: {}[{n}] would have to be divided: edit the file by hand",
                        self.key
                    )));
                }
                if is_placed || gone.contains(&n) {
                    gone.push(n);
                } else {
                    is_placed = true;
                    self.replace(n, &lists, operations);
                }
            }
            if !is_placed {
                added.extend(self.value(&lists));
            }
        }
        gone.sort_unstable();
        gone.dedup();
        let remove = |n: &usize| Operation::remove(format!("/{}/{n}", self.key));
        operations.extend(gone.iter().rev().map(remove));
        let mut is_list = self.nodes.len() > gone.len();
        for value in added {
            operations.push(append(self.key, is_list, value));
            is_list = true;
        }
        Ok(())
    }

    /// Replaces the `n`th entry. The other keys of a map stay.
    fn replace(&self, n: usize, lists: &Lists, operations: &mut Vec<Operation>) {
        let Some(value) = self.value(lists) else { return };
        let path = format!("/{}/{n}", self.key);
        let (Some(Kind::Map(old)), Value::Map(new)) =
            (self.nodes.get(n).map(|node| &node.kind), &value)
        else {
            operations.push(Operation { path, action: Action::Replace(value) });
            return;
        };
        // A proxy has no target, and an entry with a target has no passwords of a proxy.
        let is_proxy = |has: &dyn Fn(&str) -> bool| self.key == "forwards" && !has("target");
        let was = is_proxy(&|key| old.iter().any(|entry| entry.key == key));
        let is = is_proxy(&|key| new.iter().any(|(of, _)| of == key));
        if was != is {
            operations.push(Operation { path, action: Action::Replace(value) });
            return;
        }
        for (key, value) in new.iter().cloned() {
            let is_there = old.iter().any(|entry| entry.key == *key);
            // A name that was derived from the port is derived from the new port as well.
            if key != "name" || is_there {
                operations.push(Operation::add(format!("{path}/{key}"), value));
            }
        }
        // A service that is published again without an end loses its former end.
        let has_end = new.iter().any(|(key, _)| key == UNTIL);
        if !has_end && old.iter().any(|entry| entry.key == UNTIL) {
            operations.push(Operation::remove(format!("{path}/{UNTIL}")));
        }
    }

    /// The entry as a YAML value of the file.
    fn value(&self, lists: &Lists) -> Option<Value> {
        let service = lists.services.first().map(|service| self.service(service));
        service.or_else(|| lists.forwards.first().map(forward))
    }

    fn service(&self, service: &Service) -> Value {
        let name = &service.name;
        let prefix = self.prefix.as_ref().map(|prefix| format!("{prefix}-")).unwrap_or_default();
        let mut public: Vec<_> =
            service.public.iter().map(|public| text_value(&public.to_string())).collect();
        let public = match public.len() {
            0 => text_value(PRIVATE),
            1 => public.remove(0),
            _ => Value::List(public),
        };
        let entries = [
            ("name", text_value(name.strip_prefix(&prefix).unwrap_or(name))),
            ("public", public),
            ("target", text_value(&service.target.to_string())),
        ];
        map(entries.into_iter().chain(options(service)))
    }
}

const UNTIL: &str = "until";

/// The keys of [`ServiceOptions`](crate::ServiceOptions) that a service has.
fn options(service: &Service) -> Vec<(&'static str, Value)> {
    let HttpOptions { basic_auth, hashes, path, host_rewrite, .. } = &service.terms.http;
    let inline = service.user_file.as_ref().map_or(hashes.len(), |file| file.inline);
    let pairs = basic_auth.iter().chain(hashes.iter().take(inline)).map(String::as_str);
    let pairs = pairs.chain(service.exit.basic_auth.iter().map(Secret::reveal));
    let pairs: Vec<_> = pairs.map(text_value).collect();
    let networks = service.visitors.allow_from.as_deref();
    let text = |network: &Network| text_value(&network.to_string());
    let networks = networks.map(|all| Value::List(all.iter().map(text).collect()));
    [
        ("basic_auth", (!pairs.is_empty()).then_some(Value::List(pairs))),
        ("path", path.as_deref().map(text_value)),
        ("allow_from", networks),
        (UNTIL, service.until.map(|until| text_value(&until.to_string()))),
        ("host_rewrite", host_rewrite.as_deref().map(text_value)),
        ("target_tls", target_tls(&service.target_tls)),
        ("broadcast", service.broadcast.then_some(Value::Bool(true))),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key, value?)))
    .collect()
}

/// How the certificate of the target is verified, as far as a command sets it.
fn target_tls(tls: &TargetTls) -> Option<Value> {
    let entry = match tls.trust.as_ref() {
        None => ("insecure", Value::Bool(true)),
        Some(Trust::Ca(file)) => ("ca", text_value(&file.to_string_lossy())),
        Some(Trust::System | Trust::Pins(_)) => return None,
    };
    Some(map([entry]))
}

fn forward(forward: &Forward) -> Value {
    let listen = ("listen", text_value(&forward.listen.to_string()));
    match &forward.target {
        Some(target) => {
            let target = [listen, ("target", text_value(&target.to_string()))];
            let p2p = (forward.p2p != PeerPath::Auto)
                .then(|| ("p2p", text_value(&forward.p2p.to_string())));
            let token = forward.token.as_ref().map(|Token { secret, file }| match file {
                Some(file) => ("token_file", text_value(&file.to_string_lossy())),
                None => ("token", text_value(secret.reveal())),
            });
            let tls = forward.tls.as_ref().map(|tls| ("tls", certificates(tls)));
            map(target.into_iter().chain(token).chain(tls).chain(p2p))
        }
        None => map([listen]),
    }
}

fn certificates(tls: &PeerTls) -> Value {
    let path = |path: &Path| text_value(&path.to_string_lossy());
    let own = tls.identity.iter();
    let own = own.flat_map(|pair| [("cert", path(&pair.cert)), ("key", path(&pair.key))]);
    map([("ca", path(&tls.ca))].into_iter().chain(own))
}

fn map<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// The text as a YAML value. The file expands environment variables, so `${` is escaped.
fn text_value(text: &str) -> Value {
    Value::Text(text.replace("${", "$${"))
}

/// The operation that appends to a list, or creates the list.
fn append(key: &str, is_list: bool, value: Value) -> Operation {
    if is_list {
        Operation::add(format!("/{key}/-"), value)
    } else {
        Operation::add(format!("/{key}"), Value::List(vec![value]))
    }
}

fn child(root: &Rc<Node>, key: &str) -> Option<Rc<Node>> {
    let Kind::Map(entries) = &root.kind else { return None };
    entries.iter().find(|entry| entry.key == key).map(|entry| Rc::clone(&entry.value))
}

fn items(node: &Rc<Node>) -> Vec<Rc<Node>> {
    match &node.kind {
        Kind::List(items) => items.clone(),
        Kind::Scalar { .. } | Kind::Map(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::load_lists;

    fn lists(publish: &[&str], forward: &[&str]) -> Lists {
        let sources = Sources { env: &|_| None, read: &|_| Err(String::new()) };
        let [publish, forward] =
            [publish, forward].map(|l| l.iter().map(ToString::to_string).collect::<Vec<_>>());
        load_lists(&publish, &forward, None, &sources).unwrap().config
    }

    fn published(text: &str, publish_: &[&str], forward: &[&str]) -> Result<String, String> {
        publish("f.yaml", text, &lists(publish_, forward)).map_err(|why| why.to_string())
    }

    #[test]
    fn an_entry_is_appended_and_comments_stay() {
        let file = "# Mine.\nservers: tls://a\nservices:\n  # The shell.\n  - name: ssh\n    \
                    public: tcp://:10022 # fixed\n    target: tcp://127.0.0.1:22\n# End.\n";
        let now = published(file, &["10080=3000"], &["5203=5201"]).unwrap();
        let new = "  - name: tcp-10080\n    public: \"tcp://:10080\"\n    \
                   target: \"tcp://localhost:3000\"\n";
        let end = "forwards:\n  - listen: \"tcp://127.0.0.1:5203\"\n    \
                   target: \"tcp://localhost:5201\"\n";
        let (entries, comment) = file.split_at(file.find("# End").unwrap());
        assert_eq!(now.replace(comment, ""), format!("{entries}{new}{end}"));
        assert!(now.contains(comment), "{now}");
        // Both are there now.
        assert_eq!(published(&now, &["10080=3000"], &["5203=5201"]).as_deref(), Ok(&*now));
        // The same port: the other keys and the comments of the entry stay.
        let turned = published(&now, &["10022=2222"], &["5203=b:1"]).unwrap();
        let expected = now
            .replace("target: tcp://127.0.0.1:22\n", "target: \"tcp://localhost:2222\"\n")
            .replace("public: tcp://:10022", "public: \"tcp://:10022\"")
            .replace("name: ssh", "name: tcp-10022")
            .replace("localhost:5201", "b:1");
        assert_eq!(turned, expected);
        let back = unpublish("f", &now, "tcp-10080").unwrap().unwrap();
        let back = unpublish("f", &back, "tcp://127.0.0.1:5203").unwrap().unwrap();
        assert!(!back.contains("10080") && back.contains("ssh") && back.contains("forwards: []"));
        assert_eq!(unpublish("f", &back, "tcp-10080"), Ok(None));
    }

    #[test]
    fn a_file_without_lists_gets_them_and_a_prefix_is_not_written_twice() {
        let now = published("name: a\nid_prefix: a\n", &["3000"], &[]).unwrap();
        assert_eq!(
            now,
            "name: a\nid_prefix: a\nservices:\n  - name: tcp-3000\n    public: \"tcp://:0\"\n    \
             target: \"tcp://localhost:3000\"\n"
        );
        assert!(unpublish("f", &now, "a-tcp-3000").unwrap().is_some());
        assert!(published("", &["3000"], &[]).unwrap().starts_with("services:\n"));
    }

    #[test]
    fn a_service_by_name_is_written_as_it_was_said() {
        let file = "id_prefix: a\nservices:\n  - name: app\n    public: http://a.example # mine\n    \
                    target: tcp://b:1\n    path: /api\n";
        let now = published(file, &["http://{name}.example.com=3000"], &[]).unwrap();
        assert_eq!(
            now,
            format!(
                "{file}  - name: http-name.example.com\n    public: \"http://{{name}}.example.com\"\n    \
                 target: \"tcp://localhost:3000\"\n"
            )
        );
        assert_eq!(published(&now, &["http://{name}.example.com=3000"], &[]), Ok(now.clone()));
        // Another path is another service.
        assert!(published(file, &["http://a.example=2"], &[]).unwrap().starts_with(file));
        let whole = file.replace("    path: /api\n", "");
        let turned = published(&whole, &["http://a.example=2"], &[]).unwrap();
        assert!(turned.contains("target: \"tcp://localhost:2\"") && !turned.contains("tcp://b:1"));
        assert!(unpublish("f", &now, "a-http-name.example.com").unwrap().is_some());
    }

    #[test]
    fn options_of_a_command_are_written_and_read_back() {
        let sources = Sources { env: &|_| None, read: &|_| Err(String::new()) };
        let options = crate::ServiceOptions {
            name: Some("app".into()),
            basic_auth: vec![Secret::new("ann:${HOME}"), Secret::new("bob:b")],
            path: Some("/api".into()),
            allow_from: vec!["192.0.2.0/24".into()],
            until: Some("2026-12-01T18:00:00Z".into()),
            host_rewrite: Some("localhost:3000".into()),
            target_ca: Some("/etc/ca.pem".into()),
            insecure: false,
            broadcast: false,
        };
        let load = |text: &str, options: &crate::ServiceOptions| {
            let publish = [text.to_owned()];
            crate::load_published((&publish, options), &[], None, &sources)
        };
        let lists = load("http://a.example=https://127.0.0.1:3000", &options).unwrap().config;
        let text = publish("f", "", &lists).unwrap();
        let file = crate::Text { name: "f", text: &text };
        let read = crate::load_kept(file, None, &sources).unwrap().config.lists;
        let [mut read, made] = [&read, &lists].map(|lists| lists.services[0].clone());
        read.kept = made.kept;
        assert_eq!(read, made, "{text}");
        assert_eq!(made.terms.http.basic_auth, ["ann:${HOME}", "bob:b"]);
        // Published again without an end: the end goes, and the other keys stay.
        let again = load(
            "http://a.example=https://127.0.0.1:3000",
            &crate::ServiceOptions {
                path: Some("/api".into()),
                name: Some("app".into()),
                ..crate::ServiceOptions::default()
            },
        );
        let now = publish("f", &text, &again.unwrap().config).unwrap();
        assert!(!now.contains("until") && now.contains("bob:b"), "{now}");
        assert!(now.contains("ca: /etc/ca.pem") && now.contains("host_rewrite"), "{now}");
        let insecure = crate::ServiceOptions { insecure: true, ..crate::ServiceOptions::default() };
        let lists = load("http://a.example=https://127.0.0.1:3000", &insecure).unwrap();
        assert!(lists.warnings.iter().any(|warning| warning.to_string().contains("not verified")));
        let text = publish("f", "", &lists.config).unwrap();
        assert!(text.contains("insecure: true"), "{text}");

        let wol = crate::ServiceOptions { broadcast: true, ..crate::ServiceOptions::default() };
        let lists = load("udp://:9=udp://255.255.255.255:9", &wol).unwrap().config;
        let text = publish("f", "", &lists).unwrap();
        assert!(text.contains("broadcast: true"), "{text}");
        let file = crate::Text { name: "f", text: &text };
        let read = crate::load_kept(file, None, &sources).unwrap().config.lists;
        assert!(read.services[0].broadcast && lists.services[0].broadcast);

        let wrong = |text: &str, options: crate::ServiceOptions| {
            let problems = load(text, &options).unwrap_err();
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let nothing = crate::ServiceOptions::default;
        let why = wrong(
            "1=1",
            crate::ServiceOptions { allow_from: vec!["10.0.0.0/33".into()], ..nothing() },
        );
        assert!(why.starts_with("--allow-from: services[0].allow_from"), "{why}");
        assert!(why.contains("`10.0.0.0/33` is not an address or a network (hint: for example"));
        let why = wrong("1=1", crate::ServiceOptions { path: Some("/a".into()), ..nothing() });
        assert!(why.starts_with("--path: ") && why.contains("http:// and https:// names"), "{why}");
        let why = wrong("1=1", crate::ServiceOptions { insecure: true, ..nothing() });
        assert!(why.starts_with("--insecure: ") && why.contains("https://"), "{why}");
        let secret = vec![Secret::new("no colon")];
        let why =
            wrong("http://a.example=1", crate::ServiceOptions { basic_auth: secret, ..nothing() });
        assert!(why.starts_with("--basic-auth: ") && !why.contains("no colon"), "{why}");
        let publish = ["1=1", "2=2"].map(str::to_owned);
        let named = crate::ServiceOptions { name: Some("x".into()), ..nothing() };
        let why = crate::load_published((&publish, &named), &[], None, &sources).unwrap_err();
        let why = why[0].to_string();
        assert!(why.contains("a second service named x (hint: publish one service with"), "{why}");
    }

    #[test]
    fn a_removed_entry_takes_its_comment_with_it_and_no_other() {
        let of = |entries: &str| format!("# Mine.\nservices:\n{entries}# End.\n");
        let without = |entries: &str| unpublish("f", &of(entries), "tcp-1").unwrap().unwrap();
        for (before, after) in [
            ("  # one\n  # of two lines\n  - 1=1 # here\n  - 2=2\n", "  - 2=2\n"),
            ("  # all\n\n  # one\n  - 1=1\n  # two\n  - 2=2\n", "  # all\n\n  # two\n  - 2=2\n"),
            ("  - 2=2 # two\n# low\n  - 1=1\n", "  - 2=2 # two\n# low\n"),
            ("  - 2=2\n  # one\n  - name: tcp-1\n    public: 1\n    target: 1\n", "  - 2=2\n"),
        ] {
            assert_eq!(without(before), of(after));
        }
        let crlf = "services:\r\n- 2=2\r\n# one\r\n- 1=1\r\n";
        assert_eq!(unpublish("f", crlf, "tcp-1").unwrap().unwrap(), "services:\r\n- 2=2\r\n");
        let flow = "# all\nservices: ['1=1', '2=2']\n";
        let now = unpublish("f", flow, "tcp-1").unwrap().unwrap();
        assert_eq!(now, "# all\nservices: ['2=2']\n");
    }

    #[test]
    fn a_part_of_a_range_is_not_edited_but_told() {
        let file = "services: [{ name: r, public: 1-3, target: 1-3 }, '7=8', 9]\n";
        let why = published(file, &["2=5"], &[]).unwrap_err();
        assert!(why.contains("f.yaml: services[0] would have to be divided"), "{why}");
        let why = unpublish("f.yaml", file, "r-2").unwrap_err().to_string();
        assert!(why.contains("more than `r-2`"), "{why}");
        let now = published(file, &["7=9", "9"], &[]).unwrap();
        assert!(now.contains("tcp://localhost:9") && !now.contains("7=8"), "{now}");
        assert!(unpublish("f", &now, "tcp-7").unwrap().is_some());
    }

    #[test]
    fn a_text_enters_and_leaves_a_list() {
        let put = |text: &str, what, is_in| list_text("f", text, "without", what, is_in).unwrap();
        let one = put("", "ssh", true);
        assert_eq!(one, "without: [ssh]\n");
        let two = put(&one, "unix:///${A}", true);
        assert_eq!(put(&two, "unix:///${A}", true), two);
        assert_eq!(put(&two, "unix:///${A}", false), one);
        assert_eq!(put(&one, "other", false), one);
    }
}
