//! Tests edits on random trees in random styles with comments everywhere. The expected result is
//! the same operation on the tree, and a list with the owner of each comment.
#![allow(clippy::wildcard_enum_match_arm, reason = "what is no list and no map is one thing here")]

use proptest::prelude::*;

use super::render::{flow, has_lines, scalar};
use super::{Action, Operation, Value, edit, read};

type Steps = Vec<usize>;

/// A sequence of random decisions. After its end, all decisions are 0.
struct Choices(std::vec::IntoIter<u8>);

impl Choices {
    fn of(&mut self, n: usize) -> usize {
        usize::from(self.0.next().unwrap_or(0)) % n
    }

    fn maybe(&mut self) -> bool {
        self.of(3) == 1
    }
}

/// Writes a tree, and records the owner of each comment. If an owner is removed with its children,
/// their comments are removed as well.
struct Writer {
    choices: Choices,
    lines: Vec<String>,
    comments: Vec<Steps>,
}

impl Writer {
    fn comment(&mut self, owner: &[usize]) -> String {
        self.comments.push(owner.to_vec());
        format!("# c{}.", self.comments.len() - 1)
    }

    fn push(&mut self, text: &str) {
        if let Some(last) = self.lines.last_mut() {
            last.push_str(text);
        }
    }

    fn trail(&mut self, owner: &[usize]) {
        if self.choices.maybe() {
            let comment = self.comment(owner);
            self.push(&format!("  {comment}"));
        }
    }

    /// Writes blank lines and comments of a collection before one of its children.
    fn between(&mut self, owner: &[usize], column: usize) {
        match self.choices.of(6) {
            1 => self.lines.push(String::new()),
            2 => {
                let comment = self.comment(owner);
                self.lines.push(format!("{}{comment}", " ".repeat(column)));
            }
            _ => {}
        }
    }

    fn key(&mut self, key: &str) -> String {
        if self.choices.maybe() { format!("\"{key}\"") } else { scalar(key) }
    }

    fn one(&mut self, value: &Value) -> String {
        match value {
            Value::Null => ["", " ~", " null"][self.choices.of(3)].to_owned(),
            Value::Text(text) if !text.contains('\n') && self.choices.maybe() => {
                format!(" '{}'", text.replace('\'', "''"))
            }
            _ => format!(" {}", flow(value)),
        }
    }

    /// Writes brackets, on one line or several.
    fn brackets(&mut self, value: &Value, owner: &[usize], column: usize) {
        let (open, close, pairs): (_, _, Vec<(String, &Value)>) = match value {
            Value::List(items) => ("[", "]", items.iter().map(|v| (String::new(), v)).collect()),
            Value::Map(entries) => {
                ("{", "}", entries.iter().map(|(k, v)| (k.clone(), v)).collect())
            }
            _ => return self.push(&flow(value)),
        };
        let (tall, trailing) = (self.choices.maybe(), self.choices.maybe() && !pairs.is_empty());
        self.push(open);
        let count = pairs.len();
        for (i, (key, child)) in pairs.into_iter().enumerate() {
            let mine = [owner, &[i]].concat();
            if tall {
                self.lines.push(" ".repeat(column + 2));
            } else if self.choices.maybe() {
                self.push(" ");
            }
            if open == "{" {
                let key = self.key(&key);
                self.push(&format!("{key}: "));
            }
            self.brackets(child, &mine, column + 2);
            if i + 1 < count || trailing {
                self.push(",");
                self.push([" ", ""][usize::from(tall)]);
            }
            if tall {
                self.trail(&mine);
            }
        }
        if tall {
            self.lines.push(" ".repeat(column));
        }
        self.push(close);
    }

    /// Writes a value after a key or dash in this column.
    fn value(&mut self, value: &Value, owner: &[usize], column: usize, is_item: bool) {
        if !value.is_collection() || flow(value).len() == 2 {
            if let Value::Text(text) = value
                && text.ends_with('\n')
                && text.bytes().all(|b| b == b'\n' || b.is_ascii_alphanumeric())
            {
                self.push(" |");
                self.trail(owner);
                let indent = " ".repeat(column + 3);
                self.lines.extend(text.lines().map(|line| format!("{indent}{line}")));
                return;
            }
            let text = self.one(value);
            self.push(&text);
            return self.trail(owner);
        }
        match self.choices.of(if has_lines(value) { 3 } else { 2 }) {
            1 => {
                self.push(" ");
                self.brackets(value, owner, column + 1);
                self.trail(owner);
            }
            _ => self.block(value, owner, column, is_item),
        }
    }

    fn block(&mut self, value: &Value, owner: &[usize], column: usize, is_item: bool) {
        let is_list = matches!(value, Value::List(_));
        let compact = is_item && self.choices.maybe();
        let deeper = if !is_item && is_list { self.choices.of(4) } else { 1 + self.choices.of(4) };
        let below = column + if compact { 2 } else { deeper };
        if compact {
            self.push(" ");
        } else {
            self.trail(owner);
        }
        let children: Vec<(String, &Value)> = match value {
            Value::List(items) => items.iter().map(|v| (String::new(), v)).collect(),
            Value::Map(entries) => entries.iter().map(|(k, v)| (k.clone(), v)).collect(),
            _ => Vec::new(),
        };
        for (i, (key, child)) in children.into_iter().enumerate() {
            if i > 0 || !compact {
                self.between(owner, below);
                self.lines.push(" ".repeat(below));
            }
            let mine = [owner, &[i]].concat();
            if is_list {
                self.push("-");
            } else {
                let key = self.key(&key);
                self.push(&format!("{key}:"));
            }
            self.value(child, &mine, below, is_list);
        }
    }
}

fn write(tree: &Value, choices: Vec<u8>) -> (String, Vec<Steps>) {
    let choices = Choices(choices.into_iter());
    let mut writer = Writer { choices, lines: Vec::new(), comments: Vec::new() };
    if let Value::Map(entries) = tree {
        for (i, (key, value)) in entries.iter().enumerate() {
            writer.between(&[], 0);
            let key = writer.key(key);
            writer.lines.push(format!("{key}:"));
            writer.value(value, &[i], 0, false);
        }
    }
    writer.between(&[], 0);
    let newline = ["\n", "\n", "\r\n"][writer.choices.of(3)];
    let mut text = writer.lines.join(newline);
    // A literal text needs the line break of its last line.
    let ends_so = text.contains(" |");
    if ends_so || writer.choices.of(4) > 0 {
        text.push_str(newline);
    }
    (text, writer.comments)
}

fn tree() -> impl Strategy<Value = Value> {
    let texts = ["", "a", "tls://h:1", "a: b", "x #y", "10s", "null", "7", "it's", "p\nq\n", "ü"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (0..100u32).prop_map(|n| Value::Number(n.to_string())),
        prop::sample::select(texts.to_vec()).prop_map(|t| Value::Text(t.to_owned())),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
            map(inner, 0..4),
        ]
    })
}

fn map(
    inner: impl Strategy<Value = Value>,
    size: std::ops::Range<usize>,
) -> impl Strategy<Value = Value> {
    let keys = ["a", "b", "n", "k/~", "7", "q r", "é"];
    prop::collection::btree_map(prop::sample::select(keys.to_vec()), inner, size)
        .prop_map(|map| Value::Map(map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()))
}

/// The paths of all nodes of a tree.
fn places(value: &Value, at: &mut Steps, out: &mut Vec<Steps>) {
    let mut step = 0;
    while let Some(child) = value.child(step) {
        at.push(step);
        out.push(at.clone());
        places(child, at, out);
        at.pop();
        step += 1;
    }
}

fn get_mut<'a>(tree: &'a mut Value, steps: &[usize]) -> &'a mut Value {
    steps.iter().fold(tree, |node, step| node.child_mut(*step).unwrap())
}

fn pointer(mut tree: &Value, steps: &[usize]) -> String {
    let mut out = String::new();
    for step in steps {
        out.push('/');
        match tree {
            Value::Map(entries) => {
                out.push_str(&entries[*step].0.replace('~', "~0").replace('/', "~1"));
            }
            _ => out.push_str(&step.to_string()),
        }
        tree = tree.child(*step).unwrap();
    }
    out
}

/// An operation, the tree after it, and the owner whose comments it removes.
fn operation(
    tree: &Value,
    choices: &mut Choices,
    value: Value,
) -> (Operation, Value, Option<Steps>) {
    let mut all = Vec::new();
    places(tree, &mut Steps::new(), &mut all);
    let mut after = tree.clone();
    let (what, which) = (choices.of(4), choices.of(255));
    let collections: Vec<_> = all
        .iter()
        .cloned()
        .chain([Steps::new()])
        .filter(|steps| get_mut(&mut after.clone(), steps).is_collection())
        .collect();
    let to = collections[which % collections.len()].clone();
    if what < 2 || all.is_empty() {
        let (path, index) = (pointer(tree, &to), choices.of(5));
        let segment = match get_mut(&mut after, &to) {
            Value::List(items) => {
                let step = index.min(items.len());
                items.insert(step, value.clone());
                step.to_string()
            }
            Value::Map(entries) => {
                entries.push(("new".to_owned(), value.clone()));
                "new".to_owned()
            }
            _ => unreachable!(),
        };
        let operation = Operation { path: format!("{path}/{segment}"), action: Action::Add(value) };
        return (operation, after, None);
    }
    let steps = all[which % all.len()].clone();
    let path = pointer(tree, &steps);
    if what == 2 {
        *get_mut(&mut after, &steps) = value.clone();
        return (Operation { path, action: Action::Replace(value) }, after, Some(steps));
    }
    let (last, above) = steps.split_last().unwrap();
    let left = match get_mut(&mut after, above) {
        Value::List(items) => {
            items.remove(*last);
            items.len()
        }
        Value::Map(entries) => {
            entries.remove(*last);
            entries.len()
        }
        _ => unreachable!(),
    };
    // `[]` has no lines, so no comment can stay between them.
    let gone = if left == 0 && !above.is_empty() { above.to_vec() } else { steps.clone() };
    (Operation { path, action: Action::Remove }, after, Some(gone))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn an_edit_does_what_it_says_and_keeps_every_other_comment(
        tree in map(tree(), 0..5),
        value in tree(),
        style in prop::collection::vec(any::<u8>(), 0..200),
        choices in prop::collection::vec(any::<u8>(), 4),
    ) {
        let (text, comments) = write(&tree, style);
        prop_assert_eq!(read("f", &text).as_ref().map(flow).map_err(ToString::to_string), Ok(flow(&tree)), "{}", text);
        let (operation, expected, gone) = operation(&tree, &mut Choices(choices.into_iter()), value);
        let after = edit("f", &text, std::slice::from_ref(&operation));
        let Ok(after) = after else {
            return Err(TestCaseError::fail(format!("{text}\n{} {:?}\n{after:?}", operation.path, operation.action)));
        };
        prop_assert_eq!(read("f", &after).as_ref().map(flow).ok(), Some(flow(&expected)), "{}", after);
        for (i, owner) in comments.iter().enumerate() {
            let is_gone = gone.as_ref().is_some_and(|gone| owner.starts_with(gone));
            let found = after.matches(&format!("# c{i}.")).count();
            prop_assert!(found == 1 || is_gone && found == 0, "comment {} in\n{}\nafter {}\n{}", i, text, operation.path, after);
        }
        prop_assert!(!text.contains("\r\n") || !after.replace("\r\n", "").contains('\n'), "line ends: {:?}", after);
    }
}
