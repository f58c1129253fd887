//! Examples of each operation, with the texts before and after it.

use super::*;

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn number(n: u32) -> Value {
    Value::Number(n.to_string())
}

fn map(entries: &[(&str, Value)]) -> Value {
    Value::Map(entries.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect())
}

fn op(path: &str, action: Action) -> Operation {
    Operation { path: path.to_owned(), action }
}

fn add(path: &str, value: Value) -> Operation {
    op(path, Action::Add(value))
}

fn replace(path: &str, value: Value) -> Operation {
    op(path, Action::Replace(value))
}

fn remove(path: &str) -> Operation {
    op(path, Action::Remove)
}

#[track_caller]
fn becomes(before: &str, operation: Operation, after: &str) {
    let found = edit("f.yaml", before, &[operation]).map_err(|why| why.to_string());
    assert_eq!(found.as_deref(), Ok(after), "{before}");
}

#[track_caller]
fn refused(before: &str, operation: Operation, why: &str) {
    let found = edit("f.yaml", before, &[operation]).unwrap_err().to_string();
    assert!(found.contains(why), "{found}");
}

#[test]
fn a_scalar_is_replaced_in_place() {
    for (before, after) in [
        ("a: 1 # c\n", "a: 7 # c\n"),
        ("a:   '1'   # c", "a:   7   # c"),
        ("a:\n", "a: 7\n"),
        ("a: # c\r\nb: 1\r\n", "a: 7 # c\r\nb: 1\r\n"),
        ("a: \"x\n  y\" # c\nb: 1\n", "a: 7 # c\nb: 1\n"),
        ("a: x\n  y # c\nb: 1\n", "a: 7 # c\nb: 1\n"),
        ("a: |- # c\n  x\n\n  y\n# d\nb: 1\n", "a: 7 # c\n# d\nb: 1\n"),
        ("a: >\n  x\n", "a: 7\n"),
        ("a:\n  x # c\nb: 1\n", "a:\n  7 # c\nb: 1\n"),
        ("{ a: 1, b: 2 }", "{ a: 7, b: 2 }"),
        ("{ a, b: 2 }", "{ a: 7, b: 2 }"),
        ("{ a: , b: 2 }", "{ a: 7 , b: 2 }"),
        ("\"a\": 1\n", "\"a\": 7\n"),
        ("a: # c\n  - x # d\n  - y\n# e\nb: 1\n", "a: 7 # c\n# e\nb: 1\n"),
        ("a: { b: 1, # c\n  d: 2 } # e\n", "a: 7 # e\n"),
        ("a: &x 1\nb: 2\n", "a: 7\nb: 2\n"),
        ("b: &x 1\na: *x\n", "b: &x 1\na: 7\n"),
        ("# ü\na: ü # ü\n", "# ü\na: 7 # ü\n"),
    ] {
        becomes(before, replace("/a", number(7)), after);
    }
}

#[test]
fn a_value_of_several_lines_comes_in_the_style_of_what_was_there() {
    let value = map(&[("x", number(1)), ("w", map(&[("z", text("10s"))]))]);
    for (before, after) in [
        ("a: 1 # c\nb: 2\n", "a: # c\n  x: 1\n  w:\n    z: 10s\nb: 2\n"),
        ("a:\nb: 2\n", "a:\n  x: 1\n  w:\n    z: 10s\nb: 2\n"),
        ("a: { q: 1 } # c\n", "a: { x: 1, w: { z: 10s } } # c\n"),
        (
            "a:\n    q: 1 # c\n    # d\n    r: 2\nb: 1\n",
            "a:\n    x: 1\n    w:\n      z: 10s\nb: 1\n",
        ),
        ("a: {}", "a:\n  x: 1\n  w:\n    z: 10s"),
        ("a: |\n  x\nb: 1\n", "a:\n  x: 1\n  w:\n    z: 10s\nb: 1\n"),
        ("a: 1\r\nb: 2\r\n", "a:\r\n  x: 1\r\n  w:\r\n    z: 10s\r\nb: 2\r\n"),
    ] {
        becomes(before, replace("/a", value.clone()), after);
    }
    for (before, after) in [
        ("l:\n  - 1 # c\n  - 2\n", "l:\n  - x: 1 # c\n    w:\n      z: 10s\n  - 2\n"),
        ("l:\n- q: 1 # c\n  r: 2\n- 2\n", "l:\n- x: 1\n  w:\n    z: 10s\n- 2\n"),
        ("l:\n-\n- 2\n", "l:\n- x: 1\n  w:\n    z: 10s\n- 2\n"),
        ("l: [1, 2]\n", "l: [{ x: 1, w: { z: 10s } }, 2]\n"),
    ] {
        becomes(before, replace("/l/0", value.clone()), after);
    }
}

#[test]
fn a_key_is_added_behind_its_siblings() {
    for (before, after) in [
        ("a: 1 # c\n# d\n", "a: 1 # c\nk: 7\n# d\n"),
        ("a: 1", "a: 1\nk: 7"),
        ("", "k: 7\n"),
        ("# only\n# comments", "# only\n# comments\nk: 7\n"),
        ("a: 1\r\n", "a: 1\r\nk: 7\r\n"),
        ("a: |\n  x\n\n\n", "a: |\n  x\nk: 7\n\n\n"),
        ("a:\n  - b: 1\n# end", "a:\n  - b: 1\nk: 7\n# end"),
        ("{ a: 1 }", "{ a: 1, k: 7 }"),
        ("{\n  a: 1 # c\n}", "{\n  a: 1, # c\n  k: 7\n}"),
        ("{\n  a: 1, # c\n  b: 2, # d\n}\n", "{\n  a: 1, # c\n  b: 2, # d\n  k: 7,\n}\n"),
        ("\u{feff}a: 1\n", "\u{feff}a: 1\nk: 7\n"),
        ("k: 1\na: 2\n", "k: 7\na: 2\n"),
    ] {
        becomes(before, add("/k", number(7)), after);
    }
    becomes(
        "a:\n  - name: x\n    b: 1 # c\n",
        add("/a/x/k", number(7)),
        "a:\n  - name: x\n    b: 1 # c\n    k: 7\n",
    );
    becomes("a: { b: {} }\n", add("/a/b/k", number(7)), "a: { b: { k: 7 } }\n");
    becomes("a: {} # c\n", add("/a/k", number(7)), "a: # c\n  k: 7\n");
}

#[test]
fn an_item_is_added_in_the_style_of_its_siblings() {
    let client = map(&[("name", text("x")), ("port", number(1))]);
    for (before, path, after) in [
        (
            "l: # c\n  - { name: a } # d\n# e\n",
            "/l/-",
            "l: # c\n  - { name: a } # d\n  - { name: x, port: 1 }\n# e\n",
        ),
        ("l:\n- name: a\n  b: 1\n", "/l/-", "l:\n- name: a\n  b: 1\n- name: x\n  port: 1\n"),
        ("l:\n- name: a\n", "/l/0", "l:\n- name: x\n  port: 1\n- name: a\n"),
        (
            "l:\n  - 1 # c\n  # d\n  - 2\n",
            "/l/1",
            "l:\n  - 1 # c\n  - name: x\n    port: 1\n  # d\n  - 2\n",
        ),
        ("l: []\nb: 1\n", "/l/-", "l:\n  - name: x\n    port: 1\nb: 1\n"),
        ("l: [1, 2]\n", "/l/1", "l: [1, { name: x, port: 1 }, 2]\n"),
        ("l: [1, 2,]\n", "/l/-", "l: [1, 2, { name: x, port: 1 },]\n"),
    ] {
        becomes(before, add(path, client.clone()), after);
    }
}

#[test]
fn what_is_removed_goes_whole_with_its_own_comment() {
    for (before, path, after) in [
        ("a: 1 # c\nb: 2 # d\n", "/a", "b: 2 # d\n"),
        ("# x\na: 1\n# y\nb:\n  - 1 # z\n  # in\n  - 2 # w\n# v", "/b", "# x\na: 1\n# y\n# v"),
        ("a: 1\nb: 2", "/b", "a: 1"),
        ("a: 1\n", "/a", ""),
        ("l:\n  - name: a # c\n    # d\n    b: 1\n", "/l/0/name", "l:\n  - # d\n    b: 1\n"),
        ("l:\n  - name: a # c\n    b: 1\n  - 2\n", "/l/a", "l:\n  - 2\n"),
        ("l: # c\n  - 1\nb: 2\n", "/l/0", "l: [] # c\nb: 2\n"),
        ("l:\n- - 1\n  - 2\n", "/l/0/0", "l:\n- - 2\n"),
        ("l: [1, 2, 3]\n", "/l/0", "l: [2, 3]\n"),
        ("l: [1, 2, 3]\n", "/l/2", "l: [1, 2]\n"),
        ("l: [1]\n", "/l/0", "l: []\n"),
        ("l: [1, 2,]\n", "/l/1", "l: [1, ]\n"),
        ("l: [ # a\n  1, # b\n  2, # c\n  3 # d\n]\n", "/l/1", "l: [ # a\n  1, # b\n  3 # d\n]\n"),
        ("l: [ # a\n  1, # b\n  2 # c\n]\n", "/l/1", "l: [ # a\n  1, # b\n   # c\n]\n"),
        ("a: |\n  x\n  y\nb: 1\r\nc: 2\r\n", "/b", "a: |\n  x\n  y\nc: 2\r\n"),
        ("a: { b: 1 }\n", "/a/b", "a: { }\n"),
    ] {
        becomes(before, remove(path), after);
    }
}

#[test]
fn anchors_may_stand_elsewhere_but_nothing_is_edited_in_an_alias_or_under_its_hands() {
    let file = "a: &x { k: 1 }\nb: *x\nc: 3\n";
    becomes(file, replace("/c", number(7)), "a: &x { k: 1 }\nb: *x\nc: 7\n");
    becomes(file, replace("/b", number(7)), "a: &x { k: 1 }\nb: 7\nc: 3\n");
    becomes(file, remove("/b"), "a: &x { k: 1 }\nc: 3\n");
    refused(file, replace("/b/k", number(7)), "under an alias");
    refused(file, add("/b/l", number(7)), "under an alias");
    refused(file, replace("/a/k", number(7)), "anchor");
    refused(file, remove("/a"), "anchor");
    assert!(edit("f", file, &[op("/b/k", Action::Test(number(1)))]).is_ok());
}

#[test]
fn all_operations_are_applied_or_none() {
    let file = "a: 1\nl: [{ name: x, port: 1 }]\n";
    let good = [
        op("/l/x", Action::Test(map(&[("port", number(1)), ("name", text("x"))]))),
        replace("/l/x/name", text("z")),
        add("/l/z/more", Value::Null),
        remove("/a"),
    ];
    assert_eq!(edit("f", file, &good).unwrap(), "l: [{ name: z, port: 1, more: null }]\n");
    let failed = edit("f", file, &[remove("/a"), op("/l/x/port", Action::Test(text("1")))]);
    let Err(EditError::TestFailed(why)) = failed else { panic!("{failed:?}") };
    assert_eq!(why, "operation 1 (/l/x/port): something else stands there");
    refused(file, add("/l/x", number(1)), "`replace` changes it");
    refused(file, remove("/b"), "nothing of this name");
    refused(file, replace("", number(1)), "name a key");
    refused(file, add("/a/b", number(1)), "one value");
    refused(file, add("/b/c", number(1)), "nothing of this name");
    refused("a: 1\na: 2\n", remove("/a"), "given twice");
    refused("a: [\n", remove("/a"), "f.yaml:1:4: the `[` that opens here is not closed");
    let many = vec![remove("/a"); OPERATIONS_MAX + 1];
    assert!(matches!(edit("f", file, &many), Err(EditError::Refused(_))));
    let deep = (0..40).fold(Value::Null, |value, _| Value::List(vec![value]));
    refused(file, add("/b", deep), "too deeply");
}

#[test]
fn what_is_not_shown_is_no_value_and_no_message_repeats_one() {
    let token = "q7Xb2LmZ0aKc9RtYv4WnPs";
    let file = format!("token: {token}\n");
    for value in [text(SECRET), map(&[("a", Value::List(vec![text("x(secret)")]))])] {
        refused(&file, replace("/token", value.clone()), "leave it out");
        refused(&file, op("/token", Action::Test(value)), "leave it out");
    }
}

#[test]
fn a_test_tells_nothing_of_a_secret() {
    let token = "q7Xb2LmZ0aKc9RtYv4WnPs";
    let file = format!("token: {token}\nservices: [{{ name: s, basic_auth: \"a:b\" }}]\n");
    let said = |path: &str, value: Value| {
        edit("f", &file, &[op(path, Action::Test(value))]).unwrap_err().to_string()
    };
    for path in ["/token", "/services/s/basic_auth", "/services/s", "/services", ""] {
        let wrong = said(path, text("q8"));
        assert!(wrong.contains("compares no secrets"), "{wrong}");
        for right in
            [text(token), text("a:b"), map(&[("name", text("s")), ("basic_auth", text("a:b"))])]
        {
            assert_eq!(said(path, right), wrong, "{path}");
        }
    }
    assert!(edit("f", &file, &[op("/services/s/name", Action::Test(text("s")))]).is_ok());
}

#[test]
fn texts_of_all_kinds_read_back_as_they_were_given() {
    for odd in [
        "",
        " ",
        "a: b",
        "- a",
        "# c",
        "null",
        "7",
        "1e5",
        "\n",
        "a\nb",
        "\t",
        "\u{0}",
        "\"'",
        "ü\u{2028}\u{feff}",
        "{a}",
        "*x",
        "&x",
        "!t",
        "%",
        "@",
        "`",
        "${A}",
        "\u{10ffff}",
        "a #b",
        "?",
        "|",
    ] {
        for file in ["a: 1\n", "{ a: 1 }", "a:\n  - 1\n"] {
            let after = edit("f", file, &[replace("/a", text(odd))]).unwrap();
            let check = op("/a", Action::Test(text(odd)));
            assert_eq!(edit("f", &after, &[check]).as_deref(), Ok(&*after), "{odd:?}");
            let key = map(&[(odd, number(1))]);
            edit("f", file, &[replace("/a", key)]).unwrap();
        }
    }
}
