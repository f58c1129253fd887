//! Adds rights to the entry of a client. The entry is an item under `clients` of a server's file,
//! or a file of its own, which holds an enrolled client.

use super::value::Value;
use super::{EditError, Operation, edit, read, refused};
use crate::{BadValue, ForwardRight, HostRight, PortRight, VisitRight};

/// The key under `allow` of the right to share addresses with other clients. It is a switch.
pub(super) const SHARED: &str = "shared";

/// Rights to add, in the form of the keys under `allow`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRights<'a> {
    /// `allow.tcp`
    pub tcp: &'a [String],
    /// `allow.udp`
    pub udp: &'a [String],
    /// `allow.http`
    pub http: &'a [String],
    /// `allow.tls`
    pub tls: &'a [String],
    /// `allow.forward`
    pub forward: &'a [String],
    /// `allow.via`
    pub via: &'a [String],
    /// `allow.visit`
    pub visit: &'a [String],
    /// `allow.shared`
    pub shared: bool,
}

/// Adds rights to the entry of the client `name`, and keeps everything else of the text. A right
/// that the entry has already is not added again, nor is a port within a range or a host below a
/// wildcard that the entry has. `file` is the file's name in problems.
///
/// # Errors
/// A text is not a valid right (the problem names the flag, such as `--tcp`), the file has no entry
/// of this name, or the entry cannot be edited. Then nothing is edited.
pub fn allow(file: &str, text: &str, name: &str, new: NewRights<'_>) -> Result<String, EditError> {
    let Parsed { tcp, udp, http, tls, forward, via, visit, shared } = new.parse()?;
    let tree = read(file, text).map_err(EditError::File)?;
    let (path, entry) = entry(file, &tree, name)?;
    let there = |key| key_of(entry, "allow").and_then(|allow| key_of(allow, key));
    let tcp = missing(tcp, there("tcp"), PortRight::contains);
    let udp = missing(udp, there("udp"), PortRight::contains);
    let http = missing(http, there("http"), HostRight::contains);
    let tls = missing(tls, there("tls"), HostRight::contains);
    let forward = missing(forward, there("forward"), PartialEq::eq);
    let via = missing(via, there("via"), PartialEq::eq);
    let visit = missing(visit, there("visit"), PartialEq::eq);
    let all = [
        ("tcp", tcp),
        ("udp", udp),
        ("http", http),
        ("tls", tls),
        ("forward", forward),
        ("via", via),
        ("visit", visit),
    ];
    let new = all.into_iter().filter(|(_, new)| !new.is_empty());
    let switch = (shared && there(SHARED) != Some(&Value::Bool(true)))
        .then(|| (SHARED.to_owned(), Value::Bool(true)));
    let operations = match key_of(entry, "allow") {
        None | Some(Value::Null) => {
            let lists = new.map(|(key, new)| (key.to_owned(), Value::List(new)));
            let rights: Vec<_> = lists.chain(switch).collect();
            let has_new = !rights.is_empty();
            let allow = Operation::add(format!("{path}/allow"), Value::Map(rights));
            has_new.then_some(allow).into_iter().collect()
        }
        Some(_) => new
            .flat_map(|(key, new)| additions(&format!("{path}/allow/{key}"), there(key), new))
            .chain(switch.map(|(key, on)| Operation::add(format!("{path}/allow/{key}"), on)))
            .collect::<Vec<_>>(),
    };
    edit_client(file, text, name, &operations)
}

/// Edits the entry of a client. An error names the file and the client.
pub(super) fn edit_client(
    file: &str,
    text: &str,
    name: &str,
    operations: &[Operation],
) -> Result<String, EditError> {
    edit(file, text, operations).map_err(|why| match why {
        EditError::Refused(why) => refused(format!("{file}: client {name}: {why}")),
        EditError::File(_) | EditError::TestFailed(_) => why,
    })
}

/// The operations that add values at a path that holds a list, one value, or nothing.
fn additions(path: &str, present: Option<&Value>, new: Vec<Value>) -> Vec<Operation> {
    let mut all = match present {
        Some(Value::List(_)) => {
            return new
                .into_iter()
                .map(|value| Operation::add(format!("{path}/-"), value))
                .collect();
        }
        None | Some(Value::Null) => Vec::new(),
        Some(one) => vec![one.clone()],
    };
    all.extend(new);
    vec![Operation::add(path.to_owned(), Value::List(all))]
}

/// The rights of [`NewRights`], each with its text.
pub(super) struct Parsed {
    pub(super) tcp: Vec<(PortRight, Value)>,
    pub(super) udp: Vec<(PortRight, Value)>,
    pub(super) http: Vec<(HostRight, Value)>,
    pub(super) tls: Vec<(HostRight, Value)>,
    pub(super) forward: Vec<(ForwardRight, Value)>,
    pub(super) via: Vec<(ForwardRight, Value)>,
    pub(super) visit: Vec<(VisitRight, Value)>,
    pub(super) shared: bool,
}

impl NewRights<'_> {
    /// # Errors
    /// A text is not a valid right; the problem names the flag.
    pub(super) fn parse(&self) -> Result<Parsed, EditError> {
        Ok(Parsed {
            tcp: rights("--tcp", self.tcp)?,
            udp: rights("--udp", self.udp)?,
            http: rights("--http", self.http)?,
            tls: rights("--tls", self.tls)?,
            forward: rights("--forward", self.forward)?,
            via: rights("--via", self.via)?,
            visit: rights("--visit", self.visit)?,
            shared: self.shared,
        })
    }
}

fn rights<R: std::str::FromStr<Err = BadValue>>(
    flag: &str,
    texts: &[String],
) -> Result<Vec<(R, Value)>, EditError> {
    let read = |text: &String| {
        let right = text.parse::<R>().map_err(|bad| refused(format!("{flag}: {}", bad.line())))?;
        // The file expands environment variables; the flag does not.
        Ok((right, Value::plain(&text.replace("${", "$${"))))
    };
    texts.iter().map(read).collect()
}

/// The pointer to the entry of a client, and the entry.
///
/// # Errors
/// The file has no entry of this name.
pub(super) fn entry<'a>(
    file: &str,
    tree: &'a Value,
    name: &str,
) -> Result<(String, &'a Value), EditError> {
    let none = || refused(format!("{file}: no entry under `clients` has the name {name}"));
    find(tree, name).ok_or_else(none)
}

fn find<'a>(tree: &'a Value, name: &str) -> Option<(String, &'a Value)> {
    let is_named = |entry: &Value| key_of(entry, "name").and_then(text_of) == Some(name);
    if is_named(tree) {
        return Some((String::new(), tree));
    }
    let Some(Value::List(clients)) = key_of(tree, "clients") else { return None };
    let index = clients.iter().position(is_named)?;
    Some((format!("/clients/{index}"), clients.get(index)?))
}

/// The texts of the new rights that no present right covers.
fn missing<R: std::str::FromStr>(
    new: Vec<(R, Value)>,
    present: Option<&Value>,
    is_enough: impl Fn(&R, &R) -> bool,
) -> Vec<Value> {
    let items = match present {
        Some(Value::List(items)) => items.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    let mut has: Vec<R> =
        items.iter().filter_map(text_of).filter_map(|text| text.parse().ok()).collect();
    let mut texts = Vec::new();
    for (right, text) in new {
        if !has.iter().any(|one| is_enough(one, &right)) {
            has.push(right);
            texts.push(text);
        }
    }
    texts
}

pub(super) fn key_of<'a>(map: &'a Value, key: &str) -> Option<&'a Value> {
    let Value::Map(entries) = map else { return None };
    entries.iter().find(|(found, _)| found == key).map(|(_, value)| value)
}

pub(super) fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) | Value::Number(text) => Some(text),
        Value::Null | Value::Bool(_) | Value::List(_) | Value::Map(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(text: &str, tcp: &[&str], forward: &[&str]) -> Result<String, String> {
        let [tcp, forward] = [tcp, forward].map(|l| l.iter().map(ToString::to_string).collect());
        let [tcp, forward]: [Vec<_>; 2] = [tcp, forward];
        let new = NewRights { tcp: &tcp, forward: &forward, ..NewRights::default() };
        allow("f.yaml", text, "home", new).map_err(|why| why.to_string())
    }

    #[track_caller]
    fn becomes(before: &str, tcp: &[&str], forward: &[&str], after: &str) {
        assert_eq!(allowed(before, tcp, forward).as_deref(), Ok(after));
        // The second time, nothing is missing.
        assert_eq!(allowed(after, tcp, forward).as_deref(), Ok(after));
    }

    #[test]
    fn a_right_is_added_to_the_entry_and_comments_stay() {
        let file = "# Mine.\nclients:\n  - name: other\n    allow: { tcp: 22 }\n  - name: home # at home\n    \
                    token_file: t\n    allow:\n      tcp: [10022]   # ssh\n";
        becomes(file, &["22"], &[], &file.replace("[10022]", "[10022, 22]"));
        let all = file.replace("[10022]   # ssh\n", "[10022, \"20000-20010\"]   # ssh\n");
        becomes(file, &["20000-20010"], &[], &all);
        becomes(file, &["10022"], &[], file);
        let both = format!("{file}      forward: [\"10.0.0.0/8:*\"]\n");
        becomes(file, &["10022"], &["10.0.0.0/8:*"], &both);

        let own = "# Made by it.\nname: \"home\"\ntoken: \"x\"\nallow: { tcp: [\"10000-10999\"], \
                   forward: [] }\n";
        let more = own.replace("10999\"]", "10999\", 22]").replace("[]", "[\"unix:/a\"]");
        becomes(own, &["22", "22", "10022"], &["unix:/a"], &more);
    }

    #[test]
    fn rights_to_hosts_are_added_unless_a_wildcard_covers_them() {
        let allowed = |text: &str, http: &[&str], tls: &[&str]| {
            let [http, tls]: [Vec<_>; 2] =
                [http, tls].map(|list| list.iter().map(ToString::to_string).collect());
            let new = NewRights { http: &http, tls: &tls, ..NewRights::default() };
            allow("f.yaml", text, "home", new).map_err(|why| why.to_string())
        };
        let file = "name: home\nallow: { tcp: [22], http: \"*.example.com\" }\n";
        for covered in ["app.example.com", "*.home.example.com", "*.example.com"] {
            assert_eq!(allowed(file, &[covered], &[]).as_deref(), Ok(file), "{covered}");
        }
        let now = allowed(file, &["example.com", "/a[0-9]/"], &["*"]).unwrap();
        assert_eq!(
            now,
            "name: home\nallow: { tcp: [22], http: [\"*.example.com\", example.com, \
             \"/a[0-9]/\"], tls: [\"*\"] }\n"
        );
        assert_eq!(allowed(&now, &["/a[0-9]/"], &["vpn.example", "*.a.example"]), Ok(now.clone()));
        let said = allowed(file, &["10.0.0.1"], &[]).unwrap_err();
        assert!(said.starts_with("--http: `10.0.0.1` is not a host name"), "{said}");
        assert!(allowed(file, &[], &["a b"]).unwrap_err().starts_with("--tls: "));
    }

    #[test]
    fn a_right_to_go_to_another_server_is_added_and_taken_away() {
        let via = ["fra.example.com:7000".to_owned()];
        let rights = NewRights { via: &via, ..NewRights::default() };
        let file = "name: home\nallow: { tcp: [53] }\n";
        let now = allow("f.yaml", file, "home", rights).unwrap();
        assert!(now.contains("via: [\"fra.example.com:7000\"]"), "{now}");
        assert_eq!(allow("f.yaml", &now, "home", rights).unwrap(), now);
        let left = crate::edit::deny("f.yaml", &now, "home", rights).unwrap();
        assert!(left.contains("tcp: [53]") && !left.contains("fra"), "{left}");
    }

    #[test]
    fn ports_of_udp_are_rights_of_their_own() {
        let udp = ["53".to_owned(), "10500".to_owned()];
        let new = NewRights { udp: &udp, ..NewRights::default() };
        let allowed = |text: &str| allow("f.yaml", text, "home", new).map_err(|w| w.to_string());
        let file = "name: home\nallow: { tcp: [53], udp: [\"10000-10999\"] }\n";
        let now = file.replace("10999\"]", "10999\", 53]");
        assert_eq!(allowed(file), Ok(now.clone()));
        assert_eq!(allowed(&now), Ok(now));
        let new = NewRights { udp: &["x".to_owned()], ..NewRights::default() };
        let said = allow("f.yaml", file, "home", new).unwrap_err().to_string();
        assert!(said.starts_with("--udp: `x` is not a port"), "{said}");
    }

    #[test]
    fn the_right_to_share_is_switched_on_once() {
        let switched = |text: &str, tcp: &[String]| {
            let new = NewRights { tcp, shared: true, ..NewRights::default() };
            allow("f.yaml", text, "home", new).map_err(|why| why.to_string())
        };
        for (before, after) in [
            ("name: home\n", "name: home\nallow:\n  shared: true\n"),
            (
                "name: home\nallow: { tcp: 22 } # x\n",
                "name: home\nallow: { tcp: 22, shared: true } # x\n",
            ),
            (
                "name: home\nallow:\n  shared: false # no\n",
                "name: home\nallow:\n  shared: true # no\n",
            ),
            ("name: home\nallow: { shared: }\n", "name: home\nallow: { shared: true }\n"),
        ] {
            assert_eq!(switched(before, &[]).as_deref(), Ok(after));
            assert_eq!(switched(after, &[]).as_deref(), Ok(after));
        }
        let both = "name: home\nallow:\n  tcp: [22]\n  shared: true\n";
        assert_eq!(switched("name: home\n", &["22".to_owned()]).as_deref(), Ok(both));
    }

    #[test]
    fn one_right_without_a_list_and_an_entry_without_rights_get_a_list() {
        becomes(
            "clients: [{ name: home, allow: { tcp: 80 } }]\n",
            &["22"],
            &[],
            "clients: [{ name: home, allow: { tcp: [80, 22] } }]\n",
        );
        becomes("name: home\n", &["22"], &[], "name: home\nallow:\n  tcp: [22]\n");
        becomes("name: home\nallow:\n", &["22"], &[], "name: home\nallow:\n  tcp: [22]\n");
        becomes(
            "name: home\nallow: {}\n",
            &[],
            &["a:1"],
            "name: home\nallow:\n  forward: [\"a:1\"]\n",
        );
    }

    #[test]
    fn a_range_is_enough_for_its_ports_at_its_own_address_only() {
        let file = "name: home\nallow: { tcp: [\"10000-10999\"] }\n";
        becomes(file, &["10500-10600"], &[], file);
        for more in ["9999-10001", "127.0.0.1:10022"] {
            assert!(allowed(file, &[more], &[]).unwrap().contains(more), "{more}");
        }
    }

    #[test]
    fn what_is_no_right_and_who_is_no_client_are_told() {
        let why =
            |text: &str, tcp: &[&str], forward: &[&str]| allowed(text, tcp, forward).unwrap_err();
        let said = why("name: home\n", &["22", "x"], &[]);
        assert!(said.starts_with("--tcp: `x` is not a port"), "{said}");
        assert!(why("name: home\n", &["0"], &[]).contains("hint: 1-65535"));
        assert!(why("name: home\n", &[], &["x"]).starts_with("--forward: "));
        assert!(why("clients: [{ name: other }]\n", &["22"], &[]).contains("name home"));
        let said = why("clients: [{ name: home, allow: 7 }]\n", &["22"], &[]);
        assert!(said.starts_with("f.yaml: client home: "), "{said}");
    }
}
