//! Removes rights from the entry of a client: the opposite of `allow`.

use super::allow::{Parsed, SHARED, edit_client, entry, key_of, text_of};
use super::value::Value;
use super::{Action, EditError, NewRights, Operation, read, refused};
use crate::{HostRight, PortRight};

/// The remainder of a present right after a denied right is removed from it.
enum Rest<R> {
    /// The denied right is not a part of it.
    Whole,
    /// The remaining rights; empty if everything is denied.
    Parts(Vec<R>),
    /// The denied right is a part that cannot be removed.
    Indivisible,
}

/// Removes rights from the entry of the client `name`, and keeps everything else of the text. A
/// port is removed from a range. A wildcard removes the hosts that it covers. `file` is the file's
/// name in problems.
///
/// # Errors
/// A text is not a valid right (the problem names the flag, such as `--tcp`), the entry does not
/// have the right, a wildcard or a network would have to be split, or the file has no entry of this
/// name. Then nothing is edited.
pub fn deny(file: &str, text: &str, name: &str, gone: NewRights<'_>) -> Result<String, EditError> {
    let Parsed { tcp, udp, http, tls, forward, via, visit, shared } = gone.parse()?;
    let tree = read(file, text).map_err(EditError::File)?;
    let (path, entry) = entry(file, &tree, name)?;
    let there = |key| key_of(entry, "allow").and_then(|allow| key_of(allow, key));
    let at = |key| format!("{path}/allow/{key}");
    let mut operations = Vec::new();
    for (key, list) in [("tcp", tcp), ("udp", udp)] {
        operations.extend(cuts(name, key, &at(key), there(key), list, port)?);
    }
    for (key, list) in [("http", http), ("tls", tls)] {
        operations.extend(cuts(name, key, &at(key), there(key), list, host)?);
    }
    for (key, list) in [("forward", forward), ("via", via)] {
        operations.extend(cuts(name, key, &at(key), there(key), list, same)?);
    }
    let (key, present) = ("visit", there("visit"));
    operations.extend(cuts(name, key, &at(key), present, visit, same)?);
    if shared {
        match there(SHARED) {
            None | Some(Value::Null | Value::Bool(false)) => {
                return Err(refused(format!(
                    "--{SHARED}: client {name} has no right to share addresses (hint: `tunnel clients \
                     show {name}` lists its rights)"
                )));
            }
            // An expression such as `${SHARED}` may be true as well.
            Some(_) => operations.push(Operation::remove(at(SHARED))),
        }
    }
    edit_client(file, text, name, &operations)
}

fn port(one: &PortRight, gone: &PortRight) -> Rest<PortRight> {
    one.without(gone).map_or(Rest::Whole, Rest::Parts)
}

/// The rest of a right that is removed as a whole or not at all.
fn same<R: PartialEq>(one: &R, gone: &R) -> Rest<R> {
    if one == gone { Rest::Parts(Vec::new()) } else { Rest::Whole }
}

fn host(one: &HostRight, gone: &HostRight) -> Rest<HostRight> {
    if gone.contains(one) {
        Rest::Parts(Vec::new())
    } else if one.contains(gone) {
        Rest::Indivisible
    } else {
        Rest::Whole
    }
}

/// The operations that remove `gone` from the rights at a path.
fn cuts<R: std::str::FromStr + ToString>(
    name: &str,
    key: &str,
    path: &str,
    present: Option<&Value>,
    gone: Vec<(R, Value)>,
    rest: impl Fn(&R, &R) -> Rest<R>,
) -> Result<Vec<Operation>, EditError> {
    let (items, is_list) = match present {
        Some(Value::List(items)) => (items.as_slice(), true),
        Some(one) => (std::slice::from_ref(one), false),
        None => (&[][..], true),
    };
    // The remainder of each item. An item that cannot be read is left unchanged.
    let mut left: Vec<Option<Vec<R>>> =
        items.iter().map(|item| text_of(item)?.parse().ok().map(|right| vec![right])).collect();
    let mut is_cut = vec![false; left.len()];
    for (denied, _) in gone {
        let mut was_there = false;
        for (n, rights) in left.iter_mut().enumerate() {
            for one in rights.take().into_iter().flatten() {
                let kept = match rest(&one, &denied) {
                    Rest::Whole => vec![one],
                    Rest::Parts(parts) => {
                        (was_there, is_cut[n]) = (true, true);
                        parts
                    }
                    Rest::Indivisible => {
                        let (one, denied) = (one.to_string(), denied.to_string());
                        return Err(refused(format!(
                            "--{key}: client {name} has {denied} by the right {one}, which cannot be \
                             divided (hint: deny {one}, and allow the hosts that it keeps)"
                        )));
                    }
                };
                rights.get_or_insert_default().extend(kept);
            }
        }
        if !was_there {
            let denied = denied.to_string();
            return Err(refused(format!(
                "--{key}: client {name} has no right {denied} (hint: `tunnel clients show {name}` \
                 lists its rights)"
            )));
        }
    }
    let mut operations = Vec::new();
    for n in (0..items.len()).rev().filter(|n| is_cut[*n]) {
        let parts = left[n].take().unwrap_or_default();
        let values: Vec<_> = parts.iter().map(|right| Value::plain(&right.to_string())).collect();
        if !is_list {
            let action = Action::Replace(Value::List(values));
            operations.push(Operation { path: path.to_owned(), action });
            continue;
        }
        let at = format!("{path}/{n}");
        let mut values = values.into_iter();
        let action = values.next().map_or(Action::Remove, Action::Replace);
        operations.push(Operation { path: at, action });
        let more = values.map(|value| Operation {
            path: format!("{path}/{}", n + 1),
            action: Action::Add(value),
        });
        operations.extend(more);
    }
    Ok(operations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(text: &str, tcp: &[&str], http: &[&str], forward: &[&str]) -> Result<String, String> {
        let [tcp, http, forward]: [Vec<_>; 3] =
            [tcp, http, forward].map(|list| list.iter().map(ToString::to_string).collect());
        let gone = NewRights { tcp: &tcp, http: &http, forward: &forward, ..NewRights::default() };
        deny("f.yaml", text, "home", gone).map_err(|why| why.to_string())
    }

    #[test]
    fn a_right_is_taken_out_and_a_range_keeps_its_other_ports() {
        let file = "# Mine.\nclients:\n  - name: home # at home\n    allow:\n      \
                    tcp: [22, \"10000-10999\", 443]   # ssh\n      forward: \"10.0.0.0/8:*\"\n";
        let now = denied(file, &["22", "10500-10600"], &[], &[]).unwrap();
        let list = "[\"10000-10499\", \"10601-10999\", 443]";
        assert_eq!(now, file.replace("[22, \"10000-10999\", 443]", list));
        let now = denied(&now, &["10000-10999", "443"], &[], &[]).unwrap();
        assert_eq!(now, file.replace("[22, \"10000-10999\", 443]", "[]"));
        let now = denied(file, &[], &[], &["10.0.0.0/8:*"]).unwrap();
        assert_eq!(now, file.replace("\"10.0.0.0/8:*\"", "[]"));
        let one = "name: home\nallow: { tcp: \"1-3\" }\n";
        assert_eq!(denied(one, &["2"], &[], &[]).unwrap(), "name: home\nallow: { tcp: [1, 3] }\n");
    }

    #[test]
    fn a_wildcard_takes_away_what_it_covers_and_is_not_divided() {
        let file = "name: home\nallow: { http: [\"*.example.com\", a.b.example, b.example] }\n";
        assert_eq!(
            denied(file, &[], &["*.b.example"], &[]).unwrap(),
            file.replace(", a.b.example", "")
        );
        let said = denied(file, &[], &["app.example.com"], &[]).unwrap_err();
        assert!(said.contains("by the right *.example.com, which cannot be divided"), "{said}");
        assert_eq!(denied(file, &[], &["*"], &[]).unwrap(), "name: home\nallow: { http: [] }\n");
    }

    #[test]
    fn the_right_to_share_is_taken_out() {
        let denied = |text: &str| {
            let gone = NewRights { shared: true, ..NewRights::default() };
            deny("f.yaml", text, "home", gone).map_err(|why| why.to_string())
        };
        for (before, after) in [
            (
                "name: home\nallow: { tcp: 22, shared: true } # x\n",
                "name: home\nallow: { tcp: 22 } # x\n",
            ),
            ("name: home\nallow:\n  shared: true\n  tcp: 22\n", "name: home\nallow:\n  tcp: 22\n"),
            ("name: home\nallow: { shared: \"${SHARED}\" }\n", "name: home\nallow: { }\n"),
        ] {
            assert_eq!(denied(before).as_deref(), Ok(after));
            let said = denied(after).unwrap_err();
            assert!(said.starts_with("--shared: client home has no right to share "), "{said}");
        }
        assert!(denied("name: home\nallow: { shared: false }\n").is_err());
    }

    #[test]
    fn a_right_that_the_client_does_not_have_is_told_and_nothing_changes() {
        for file in ["name: home\n", "name: home\nallow: { tcp: [\"127.0.0.1:22\", 23] }\n"] {
            let said = denied(file, &["22"], &[], &[]).unwrap_err();
            assert!(said.starts_with("--tcp: client home has no right 22 "), "{said}");
        }
        assert!(denied("name: home\n", &["x"], &[], &[]).unwrap_err().starts_with("--tcp: `x`"));
        assert!(denied("name: a\n", &["22"], &[], &[]).unwrap_err().contains("name home"));
    }
}
