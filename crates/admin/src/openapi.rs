//! The operations of commands in `openapi.json`. `cargo xtask docs` writes what follows from the
//! table of commands, and leaves the rest to people.
//!
//! | part of an operation | written |
//! |---|---|
//! | path and method, `operationId`, names of the parameters | from the table |
//! | whether there is a body, its example, names of its keys, which keys are required | from the table |
//! | status codes of errors, the responses 400, 401, 403, 413, 415 and 429 | from the table |
//! | summary, schemas, successful response, descriptions of the other errors | by people; a new route or name gets a first version |
//! | all other members and responses | by people |
//!
//! Operations of the routes of HTTP alone are written by people. An operation that neither the
//! table nor the running API has is removed.

use std::fs;
use std::path::Path;

use config::edit::Value;
use ops::Role;
use ops::command::{About, ApiRoute, Entry, Form, Json, Method, TABLE};
use serde_json::json;

use super::tests::{api, get};

type Members = Vec<(String, Value)>;

/// A route of a command.
struct Row {
    about: About,
    /// The names of the fields of the command.
    fields: &'static [&'static str],
    route: ApiRoute,
}

/// Where the parameters of an operation differ from the fields of its command.
struct Difference {
    /// The `operationId`.
    of: &'static str,
    /// The fields that are no parameters.
    without: &'static [&'static str],
    /// The parameters of the query that are no fields of the command.
    with: &'static [&'static str],
}

const DIFFERENCES: &[Difference] = &[
    // The segment `stream` of the path has the kind as well.
    Difference { of: "kill", without: &["kind"], with: &[] },
    Difference { of: "requests", without: &["class"], with: &["status"] },
    // `PUT` sets the filter.
    Difference { of: "log_get", without: &["filter"], with: &[] },
    // The segment `name` of the path is the service, or the visitor.
    Difference { of: "test", without: &["service"], with: &[] },
    Difference { of: "uninvite", without: &["visitor"], with: &[] },
    // The method says that the hold is off.
    Difference { of: "hold_delete", without: &["page", "retry_after", "off"], with: &[] },
    // The API reads these itself (`live`).
    Difference { of: "events", without: &[], with: &["topics", "changes"] },
];

/// The responses that most operations have, behind the others of an operation, in this order.
const COMMON: [(&str, &str); 4] = [
    ("400", "The request makes no sense."),
    ("401", "The token is missing or wrong. The answer to a wrong token waits for 0.1 to 3.2 s."),
    ("429", "Too many wrong tokens of this address at a time; this token was not judged."),
    ("403", "Asked by a name, or by a page of another site."),
];

/// The description of 403 for a request that the token that only reads does not permit.
const NOT_FOR_READERS: &str =
    "Asked by a name, or by a page of another site, or with the token that only reads.";

/// The responses to a wrong body.
const OF_BODY: [(&str, &str); 2] =
    [("413", "The body is too long."), ("415", "The body is no JSON.")];

impl Row {
    fn all() -> Vec<Self> {
        let of_entry = |entry: &'static Entry| {
            let row = |route: &ApiRoute| Self {
                about: entry.about,
                fields: entry.fields(),
                route: *route,
            };
            entry.about.routes.iter().map(row)
        };
        TABLE.iter().flat_map(of_entry).collect()
    }

    fn path(&self) -> String {
        format!("/api/v1{}", self.route.path)
    }

    /// Whether requests to a path of the document arrive at a path of this form.
    fn takes(&self, path: &str) -> bool {
        let own = self.path();
        let is_same = |(own, other): (&str, &str)| own == other || own.starts_with('{');
        own.split('/').count() == path.split('/').count()
            && own.split('/').zip(path.split('/')).all(is_same)
    }

    fn method(&self) -> String {
        self.route.method.name().to_ascii_lowercase()
    }

    /// The name of the command, and the method if the command has several routes.
    fn id(&self) -> String {
        match self.about.routes {
            [] | [_] => self.about.name.to_owned(),
            [_, ..] => format!("{}_{}", self.about.name, self.method()),
        }
    }

    /// The named segments of the path.
    fn segments(&self) -> impl Iterator<Item = &'static str> + Clone {
        let segments = self.route.path.split('/');
        segments.filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
    }

    /// The fields that the path does not have.
    fn other_fields(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().copied().filter(|name| self.segments().all(|segment| segment != *name))
    }

    /// Place and name of each parameter.
    fn parameters(&self) -> Vec<(&'static str, &'static str)> {
        let mut all: Vec<_> = self.segments().map(|name| ("path", name)).collect();
        all.extend(self.about.has_tag.then_some(("header", "If-Match")));
        if self.route.body.is_none() {
            let differs = DIFFERENCES.iter().find(|differs| differs.of == self.id());
            let (without, with) = differs.map_or((&[][..], &[][..]), |d| (d.without, d.with));
            let fields = self.other_fields().filter(|name| !without.contains(name));
            all.extend(fields.chain(with.iter().copied()).map(|name| ("query", name)));
        }
        all
    }

    /// Writes what the table says of the route into its operation.
    fn write(&self, operation: &mut Members) {
        let id = ("operationId".to_owned(), text(&self.id()));
        operation.retain(|(name, _)| *name != id.0);
        operation.insert(0, id);
        or_insert(operation, "summary", || text(&format!("{}.", self.about.help)));
        self.write_parameters(operation);
        self.write_body(operation);
        let responses = or_insert(operation, "responses", || map([]));
        self.write_responses(members(responses));
    }

    fn write_parameters(&self, operation: &mut Members) {
        let mut wanted = self.parameters();
        if wanted.is_empty() {
            operation.retain(|(name, _)| name != "parameters");
            return;
        }
        let list = or_insert(operation, "parameters", || Value::List(Vec::new()));
        let Value::List(list) = list else { panic!("`parameters` is a list") };
        list.retain_mut(|parameter| {
            let parameter = members(parameter);
            let is_it = |(place, name): &(&str, &str)| {
                find(parameter, "in") == Some(&text(place))
                    && find(parameter, "name") == Some(&text(name))
            };
            let at = wanted.iter().position(is_it);
            at.map(|at| wanted.remove(at)).is_some()
        });
        list.extend(wanted.into_iter().map(|(place, name)| {
            let required = ("required", Value::Bool(true));
            let mut parameter = vec![("name", text(name)), ("in", text(place))];
            parameter.extend((place == "path").then_some(required));
            parameter.push(("schema", map([("type", text("string"))])));
            map(parameter)
        }));
    }

    fn write_body(&self, operation: &mut Members) {
        let Some(form) = self.route.body else {
            operation.retain(|(name, _)| name != "requestBody");
            return;
        };
        let Json(example) = serde_json::from_str(form.example).unwrap();
        let body = members(or_insert(operation, "requestBody", || map([])));
        set(body, "required", Value::Bool(true));
        let content = members(or_insert(body, "content", || map([])));
        or_insert(content, "application/json", || map([]));
        for (_, media) in content {
            let media = members(media);
            or_insert(media, "schema", || match form.is {
                "an object" => map([
                    ("type", text("object")),
                    ("additionalProperties", Value::Bool(false)),
                    ("properties", map([])),
                ]),
                _ => map([]),
            });
            set(media, "example", example.clone());
        }
    }

    fn write_responses(&self, responses: &mut Members) {
        let is_read = self.route.method == Method::Get && !self.about.is_private;
        let has_body = self.route.body.is_some();
        if responses.iter().all(|(status, _)| status.as_str() >= "300") {
            let json = map([("application/json", map([("schema", map([]))]))]);
            let done = map([("description", text("The answer.")), ("content", json)]);
            responses.push(("200".to_owned(), done));
        }
        if let Some(why) = self.about.missing {
            or_insert(responses, "404", || problem(&sentence(why)));
        }
        if !self.about.roles.is_empty() {
            let why = "Not possible at the moment, or not with a daemon of this role.";
            or_insert(responses, "409", || problem(why));
        }
        if has_body {
            or_insert(responses, "422", || problem("Not accepted; nothing has changed."));
        }
        responses.retain(|(status, _)| has_body || OF_BODY.iter().all(|(of, _)| of != status));
        for (status, why) in COMMON.into_iter().chain(OF_BODY.into_iter().filter(|_| has_body)) {
            let why = if status == "403" && !is_read { NOT_FOR_READERS } else { why };
            set(responses, status, problem(why));
        }
        responses.sort_by_key(|(status, _)| {
            (COMMON.iter().position(|(common, _)| common == status), status.clone())
        });
    }

    /// Writes the names of the keys of an object in a body, and which of them are required.
    fn write_keys(&self, document: &mut Members) {
        let Some(form) = self.route.body.filter(|form| form.is == "an object") else { return };
        let (path, method) = (self.path(), self.method());
        let at = ["paths", &path, &method, "requestBody", "content", "application/json", "schema"];
        let mut schema = at_path(document, &at);
        if let Some(Value::Text(other)) = find(schema, "$ref") {
            let other = other.strip_prefix("#/").expect("a schema of this document").to_owned();
            schema = at_path(document, &other.split('/').collect::<Vec<_>>());
        }
        let wanted: Vec<_> =
            self.other_fields().filter(|name| !form.without.contains(name)).collect();
        let properties = members(or_insert(schema, "properties", || map([])));
        properties.retain(|(name, _)| wanted.contains(&name.as_str()));
        for name in wanted {
            or_insert(properties, name, || map([]));
        }
        if form.required.is_empty() {
            schema.retain(|(name, _)| name != "required");
        } else {
            let required = form.required.iter().map(|name| text(name)).collect();
            set(schema, "required", Value::List(required));
        }
    }
}

/// Writes what the rows say into the document. `is_fixed`: whether the API has a method and a path
/// that no row takes.
fn write(document: &mut Members, rows: &[Row], is_fixed: &dyn Fn(&str, &str) -> bool) {
    let paths = members(or_insert(document, "paths", || map([])));
    paths.retain_mut(|(path, operations)| {
        let operations = members(operations);
        let is_of_command = rows.iter().any(|row| row.takes(path));
        operations.retain(|(method, _)| {
            let is_row = || rows.iter().any(|row| row.method() == *method && row.path() == *path);
            if is_of_command { is_row() } else { is_fixed(method, path) }
        });
        !operations.is_empty()
    });
    for row in rows {
        let operations = members(or_insert(paths, &row.path(), || map([])));
        row.write(members(or_insert(operations, &row.method(), || map([]))));
    }
    for row in rows {
        row.write_keys(document);
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn map<'a>(members: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Map(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// An error response.
fn problem(why: &str) -> Value {
    let schema = map([("$ref", text("#/components/schemas/Problem"))]);
    let json = map([("application/json", map([("schema", schema)]))]);
    map([("description", text(why)), ("content", json)])
}

/// A reason as a sentence.
fn sentence(why: &str) -> String {
    let (first, rest) = why.split_at(1);
    format!("{}{rest}.", first.to_uppercase())
}

fn members(value: &mut Value) -> &mut Members {
    let Value::Map(members) = value else { panic!("{value:?} is no object") };
    members
}

fn find<'a>(members: &'a [(String, Value)], name: &str) -> Option<&'a Value> {
    members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// The member of this name. A new one is the last.
fn or_insert<'a>(
    members: &'a mut Members,
    name: &str,
    new: impl FnOnce() -> Value,
) -> &'a mut Value {
    let at = members.iter().position(|(key, _)| key == name).unwrap_or_else(|| {
        members.push((name.to_owned(), new()));
        members.len() - 1
    });
    &mut members[at].1
}

fn set(members: &mut Members, name: &str, value: Value) {
    *or_insert(members, name, || Value::Null) = value;
}

/// The object at the end of these names.
fn at_path<'a>(document: &'a mut Members, names: &[&str]) -> &'a mut Members {
    names.iter().fold(document, |object, name| {
        members(or_insert(object, name, || panic!("the document lacks `{name}`")))
    })
}

/// The JSON in one line.
fn line(value: &Value) -> String {
    serde_json::to_string(&Json(value)).unwrap()
}

/// The JSON of an object. `member` gives the space before a member, and the JSON of its value.
fn object(value: &Value, member: &dyn Fn(&str, &Value) -> (&'static str, String)) -> String {
    let Value::Map(members) = value else { panic!("{value:?} is no object") };
    let each = members.iter().map(|(name, value)| {
        let (space, value) = member(name, value);
        format!("{space}{}:{value}", line(&text(name)))
    });
    format!("{{{}}}", each.collect::<Vec<_>>().join(","))
}

/// The text of the file: a line for each operation and for each schema.
fn file(document: &Value) -> String {
    let operations = |_: &str, path: &Value| ("\n", object(path, &|_, it| ("\n  ", line(it))));
    let component = |name: &str, all: &Value| match name {
        "schemas" => ("", object(all, &|_, schema| ("\n", line(schema)))),
        _ => ("", line(all)),
    };
    let part = |name: &str, part: &Value| match name {
        "paths" => ("\n", object(part, &operations)),
        "components" => ("\n", object(part, &component)),
        _ => ("", line(part)),
    };
    object(document, &part) + "\n"
}

/// `UPDATE=1` writes the document.
#[test]
fn the_document_has_what_the_table_of_commands_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/openapi.json");
    let page = fs::read_to_string(&path).unwrap();
    let Json(mut document) = serde_json::from_str(&page).unwrap();
    let rows = Row::all();
    for differs in DIFFERENCES {
        let row = rows.iter().find(|row| row.id() == differs.of).expect(differs.of);
        assert!(differs.without.iter().all(|name| row.fields.contains(name)), "{}", differs.of);
    }
    let api = api();
    let status = |method: &str, path: &str| {
        get(&api, &format!("{method} {}", path.replace(['{', '}'], "")), "").0
    };
    // A path that the API has refuses other methods.
    write(members(&mut document), &rows, &|method, path| {
        status("BREW", path) == 405 && status(&method.to_uppercase(), path) != 405
    });
    let expected = file(&document);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, expected).unwrap();
        return;
    }
    let only = |sign: char, here: &str, there: &str| -> String {
        let only = here.lines().filter(|line| there.lines().all(|other| other != *line));
        let brief = |line: &str| line.chars().take(80).collect::<String>();
        only.map(|line| format!("{sign} {}…\n", brief(line))).collect()
    };
    assert!(
        page == expected,
        "run `cargo xtask docs`: openapi.json differs from the table of commands in these lines:\n\
         {}{}",
        only('-', &page, &expected),
        only('+', &expected, &page),
    );
}

/// The members of a document with the operations of these rows.
fn with(mut document: Value, rows: &[Row]) -> Value {
    write(members(&mut document), rows, &|method, path| (method, path) == ("get", "/fixed"));
    document
}

/// A command `fake`, with a route that has this body.
fn fake(method: Method, body: Option<Form>) -> Row {
    let about = About {
        name: "fake",
        help: "Show a fake",
        routes: &[],
        roles: &[Role::Client],
        missing: Some("no such fake"),
        ..TABLE[0].about
    };
    let route = ApiRoute { method, path: "/fakes/{name}", body, query: "" };
    Row { about, fields: &["name", "size"], route }
}

fn json(value: &Value) -> serde_json::Value {
    serde_json::to_value(Json(value)).unwrap()
}

#[test]
fn a_new_route_has_a_complete_operation() {
    let problem = |why: &str| {
        let schema = json!({ "$ref": "#/components/schemas/Problem" });
        json!({ "description": why, "content": { "application/json": { "schema": schema } } })
    };
    let path = json!({
        "name": "name", "in": "path", "required": true, "schema": { "type": "string" }
    });
    let mut responses = json!({
        "200": { "description": "The answer.", "content": { "application/json": { "schema": {} } } },
        "400": problem(COMMON[0].1),
        "401": problem(COMMON[1].1),
        "403": problem("Asked by a name, or by a page of another site."),
        "404": problem("No such fake."),
        "409": problem("Not possible at the moment, or not with a daemon of this role."),
        "429": problem(COMMON[2].1),
    });
    let read = json!({
        "operationId": "fake",
        "summary": "Show a fake.",
        "parameters": [path, { "name": "size", "in": "query", "schema": { "type": "string" } }],
        "responses": responses,
    });
    let form = Form::object(r#"{"size":"1"}"#, &["size"]);
    let rows = [fake(Method::Get, None), fake(Method::Put, Some(form))];
    let made = with(map([]), &rows);
    responses["403"] = problem(NOT_FOR_READERS);
    responses["413"] = problem("The body is too long.");
    responses["415"] = problem("The body is no JSON.");
    responses["422"] = problem("Not accepted; nothing has changed.");
    let schema = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": { "size": {} },
        "required": ["size"],
    });
    let media = json!({ "schema": schema, "example": { "size": "1" } });
    let change = json!({
        "operationId": "fake",
        "summary": "Show a fake.",
        "parameters": [path],
        "requestBody": { "required": true, "content": { "application/json": media } },
        "responses": responses,
    });
    let paths = json!({ "/api/v1/fakes/{name}": { "get": read, "put": change } });
    assert_eq!(json(&made), json!({ "paths": paths }));
    let codes = [r#""200":"#, r#""404":"#, r#""409":"#, r#""400":"#, r#""401":"#, r#""403":"#];
    let text = file(&made);
    let places = codes.map(|code| text.find(code).unwrap());
    assert!(places.is_sorted(), "{text}");
    assert_eq!(text.lines().count(), 5, "a line for each operation: {text}");
}

#[test]
fn prose_and_schemas_are_kept_and_what_has_gone_is_removed() {
    let form = Form::object(r#"{"size":"1"}"#, &["size"]);
    let put = || [fake(Method::Put, Some(form))];
    let made = file(&with(map([]), &put()));
    let edited = made
        .replace("Show a fake.", "It is a fake.")
        .replace("No such fake.", "Never heard of.")
        .replace(r#""schema":{"type":"string"}"#, r#""schema":{"enum":["a"]},"description":"N.""#)
        .replace(r#""size":{}"#, r#""size":{"type":"string"},"gone":{}"#)
        .replace(r#""413":"#, r#""412":{"description":"Changed."},"413":"#);
    let Json(document) = serde_json::from_str(&edited).unwrap();
    assert_eq!(file(&with(document, &put())), edited.replace(r#","gone":{}"#, ""));

    let Json(document) = serde_json::from_str(&edited).unwrap();
    let without_body = file(&with(document, &[fake(Method::Put, None)]));
    for gone in ["requestBody", "413", "415", "gone"] {
        assert!(!without_body.contains(gone), "{gone}: {without_body}");
    }
    assert!(without_body.contains(r#""412""#) && without_body.contains("It is a fake."));

    let fixed = r#"{"paths":{"/fixed":{"get":{},"put":{}},"/api/v1/fakes/{name}":{"get":{}}}}"#;
    let Json(document) = serde_json::from_str(fixed).unwrap();
    assert_eq!(json(&with(document, &[])), json!({ "paths": { "/fixed": { "get": {} } } }));

    // The API answers at these paths: to it, they are the path of the command.
    let renamed = made.replace("{name}", "{other}").replace(r#""fake""#, r#""old""#);
    let former = renamed.replace("{other}", "all");
    for old in [renamed, former] {
        let Json(mut document) = serde_json::from_str(&old).unwrap();
        write(members(&mut document), &put(), &|_, _| true);
        assert_eq!(file(&document), made);
    }
}
