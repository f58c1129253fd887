//! The examples of README.md and of `docs/*.md`, taken from the text of the documents. Every block
//! of code is an example that is tried, or has an invisible remark above it that says why it is
//! none:
//!
//! ```text
//! <!-- no example: the output of cargo -->
//! ```
//!
//! | block | what is tried |
//! |---|---|
//! | `yaml` | the decoder takes it. A fragment is completed by the keys of [`SERVER`] or [`CLIENT`] that it lacks. A comment `# server.yaml` or `# client.yaml` in its first line names the file and its role. A fragment without it belongs to the role that its keys tell, else to both roles |
//! | commands | lines behind `$ `, or else lines that begin with `tunnel`, `sudo tunnel` or `curl`. The command line parses a `tunnel` command. A `curl` command to the admin API asks for a path and method of `openapi.json`; a JSON Patch changes the `# server.yaml` above it in the same document, and the decoder takes the result |
//! | `tunnel check` | prints what the file above it in the same document gives |

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use config::{
    ClientFlags, Problem, ProxyFlags, Role, ServerFlags, Sources, Text, load_client, load_proxy,
    load_server,
};

use crate::cli::Cli;

/// The keys that a fragment of a server's file lacks.
const SERVER: &[(&str, &str)] = &[("listen", "listen: tls://[::]:7000\n")];

/// The keys that a fragment of a client's file lacks.
const CLIENT: &[(&str, &str)] = &[
    ("servers", "servers: tls://example.com:7000\n"),
    ("name", "name: home\n"),
    ("token_file", "token_file: home.token\n"),
];

const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

/// A block of code of a document.
#[derive(Debug)]
struct Block {
    line: usize,
    /// The word behind the fence.
    language: String,
    text: String,
    /// Why the block is no example.
    remark: Option<String>,
}

/// Every block of a document.
fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    let mut above = "";
    for (n, line) in text.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, Some(language)) => {
                let remark = above.trim().strip_prefix("<!-- no example: ");
                let remark = remark.and_then(|rest| rest.strip_suffix(" -->"));
                let (language, remark) = (language.to_owned(), remark.map(str::to_owned));
                open = Some(Block { line: n + 1, language, text: String::new(), remark });
            }
            (None, None) => {}
        }
        if !line.trim().is_empty() {
            above = line;
        }
    }
    assert!(open.is_none(), "a block without an end");
    found
}

/// The commands of a block, each with the output below it.
fn commands(text: &str) -> Vec<(Vec<String>, Vec<&str>)> {
    let has_prompt = text.lines().any(|line| line.starts_with("$ "));
    let mut lines = text.lines().peekable();
    let mut found: Vec<(Vec<String>, Vec<&str>)> = Vec::new();
    while let Some(line) = lines.next() {
        let command = match line.strip_prefix("$ ") {
            Some(command) => Some(command),
            None if has_prompt => None,
            None => Some(line).filter(|line| {
                ["tunnel ", "sudo tunnel ", "curl "].iter().any(|begin| line.starts_with(begin))
            }),
        };
        let command = command.map(|command| command.strip_prefix("sudo ").unwrap_or(command));
        let Some(command) = command else {
            if let Some((_, output)) = found.last_mut() {
                output.push(line);
            }
            continue;
        };
        // What stands behind several blanks explains the command.
        let mut command = command.split("   ").next().unwrap_or_default();
        if command.starts_with("tunnel ") {
            // The shell takes the name of a file away.
            command = command.split(" > ").next().unwrap_or_default();
        }
        let mut command = command.to_owned();
        let mut parsed = words(&command);
        while parsed.is_none() {
            let next = lines.next().expect("the command goes on in the next line");
            command.push('\n');
            command.push_str(next);
            parsed = words(&command);
        }
        found.extend(parsed.map(|words| (words, Vec::new())));
    }
    found
}

/// The words of a shell command. `None`: it goes on in the next line.
fn words(command: &str) -> Option<Vec<String>> {
    let (mut found, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, '\\') => match chars.next() {
                None => return None,
                Some('\n') => {}
                Some(c) => word.get_or_insert_default().push(c),
            },
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if open == c => quote = None,
            (None, c) if c.is_whitespace() => found.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    found.extend(word);
    quote.is_none().then_some(found)
}

/// The summary of a file.
fn decoded(role: Role, text: &str) -> Result<Vec<String>, Vec<Problem>> {
    let env = |name: &str| (!name.to_ascii_lowercase().ends_with("_proxy")).then(|| TOKEN.into());
    // Two token files of a configuration may have to differ.
    let read = |path: &Path| match path.extension().and_then(|end| end.to_str()) {
        Some("txt") => Ok("203.0.113.0/24\n".to_owned()),
        Some("csv") => Ok("203.0.113.0/25,DE\n203.0.113.128/25,AT\n".to_owned()),
        _ => Ok(format!("{TOKEN}{}", path.file_name().unwrap().display())),
    };
    let sources = Sources { env: &env, read: &read };
    let file = Some(Text { name: "example", text });
    match role {
        Role::Server => load_server(file, &ServerFlags::default(), &sources)
            .map(|loaded| loaded.config.summary()),
        Role::Client => load_client(file, &ClientFlags::default(), &sources)
            .map(|loaded| loaded.config.summary()),
        Role::Proxy => {
            load_proxy(file, &ProxyFlags::default(), &sources).map(|loaded| loaded.config.summary())
        }
    }
}

/// The role and the text of a fragment with the keys that it lacks.
fn completed(role: Role, text: &str) -> String {
    let base: &[(&str, &str)] = match role {
        Role::Server => SERVER,
        Role::Client => CLIENT,
        Role::Proxy => &[],
    };
    let begins = |key: &str| text.lines().any(|line| line.starts_with(&format!("{key}:")));
    // What names the servers of a client stands in the place of the servers.
    let is_found = ["servers_from", "srv"].into_iter().any(begins);
    let has = |key: &str| begins(key) || is_found && key == "servers";
    let lacks = base.iter().filter(|(key, _)| !has(key));
    lacks.map(|(_, line)| *line).fold(text.to_owned(), |text, line| text + line)
}

/// The name of the file in the first line of a block.
fn named(text: &str) -> Option<(&str, Role)> {
    let name = text.strip_prefix("# ")?.split([';', '\n', ' ']).next()?;
    match name {
        "server.yaml" => Some((name, Role::Server)),
        "client.yaml" => Some((name, Role::Client)),
        "proxy.yaml" => Some((name, Role::Proxy)),
        _ => None,
    }
}

/// What was tried of the documents, by kind.
type Counts = BTreeMap<&'static str, usize>;

/// A document while its blocks are tried.
struct Document<'a> {
    name: &'a str,
    /// The files that the document has shown so far, as it shows them.
    files: BTreeMap<String, (Role, String)>,
    counts: &'a mut Counts,
}

impl Document<'_> {
    fn count(&mut self, kind: &'static str) {
        *self.counts.entry(kind).or_default() += 1;
    }

    fn yaml(&mut self, at: &str, text: &str) {
        let named = named(text);
        if let Some((name, role)) = named {
            self.files.insert(name.to_owned(), (role, text.to_owned()));
        }
        let roles = match named.map(|(_, role)| role).or_else(|| Role::of(text)) {
            Some(role) => vec![role],
            None => vec![Role::Server, Role::Client],
        };
        for role in roles {
            if let Err(problems) = decoded(role, &completed(role, text)) {
                panic!("{at} as a file of a {role:?}: {problems:#?}");
            }
        }
        self.count("yaml");
    }

    fn tunnel(&mut self, at: &str, words: &[String], output: &[&str]) {
        if let Err(error) = Cli::try_parse_from(words) {
            panic!("{at}: {error}");
        }
        self.count("tunnel");
        let [_, check, flag, file] = words else { return };
        if (check.as_str(), flag.as_str()) != ("check", "--config") {
            return;
        }
        let (role, text) = self.files.get(file).unwrap_or_else(|| panic!("{at}: no {file} above"));
        assert_eq!(decoded(*role, text).unwrap(), output, "{at}");
        self.count("tunnel check");
    }

    fn curl(&mut self, at: &str, words: &[String]) {
        let value = |flag: &str| {
            let n = words.iter().position(|word| word == flag)?;
            words.get(n + 1).map(String::as_str)
        };
        let url = words.iter().find(|word| word.starts_with("http://")).expect("a URL");
        let path = url.splitn(4, '/').nth(3).unwrap_or_default();
        let path = format!("/{}", path.split('?').next().unwrap_or_default());
        if !path.starts_with("/api/") {
            // A visitor.
            self.count("curl");
            return;
        }
        let api: serde_json::Value =
            serde_json::from_str(include_str!("../../admin/src/openapi.json")).unwrap();
        let method = value("-X").unwrap_or("GET").to_ascii_lowercase();
        assert!(api["paths"][&path][&method].is_object(), "{at}: {method} {path}");
        self.count("curl");
        if method != "patch" {
            return;
        }
        let kind = words.iter().any(|word| word == "Content-Type: application/json-patch+json");
        assert!(kind, "{at}: the media type");
        let body = value("-d").expect("a body");
        let operations =
            ops::command::operations(body.as_bytes()).unwrap_or_else(|e| panic!("{at}: {e}"));
        let (_, text) = self.files.get("server.yaml").expect("the file above the request");
        let edited = config::edit::edit("server.yaml", text, &operations)
            .unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_ne!(edited, *text);
        decoded(Role::Server, &edited).unwrap_or_else(|problems| panic!("{at}: {problems:#?}"));
        self.count("JSON Patch");
    }

    fn commands(&mut self, at: &str, text: &str) {
        let commands = commands(text);
        let mut known = 0;
        for (words, output) in &commands {
            match words[0].as_str() {
                "tunnel" => self.tunnel(at, words, output),
                "curl" => self.curl(at, words),
                _ => continue,
            }
            known += 1;
        }
        assert!(known > 0, "{at}: neither a command that can be tried nor a remark `no example`");
        self.count("commands");
    }

    fn all(&mut self, text: &str) {
        for Block { line, language, text, remark } in blocks(text) {
            let at = format!("{}:{line}", self.name);
            match (&remark, language.as_str()) {
                (Some(reason), _) => {
                    println!("{at}: no example: {reason}");
                    self.count("no example");
                }
                (None, "yaml") => self.yaml(&at, &text),
                (None, "") => self.commands(&at, &text),
                (None, other) => panic!("{at}: a block of {other} needs the remark `no example`"),
            }
        }
    }
}

fn documents() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(here.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        docs.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    found.sort();
    found.insert(0, here.join("../../README.md"));
    found
}

#[test]
fn every_example_of_the_documents_is_what_the_program_takes() {
    let mut counts = Counts::new();
    let mut fences = 0;
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        Document { name, files: BTreeMap::new(), counts: &mut counts }.all(&text);
        fences += text.lines().filter(|line| line.trim_start().starts_with("```")).count();
    }
    println!("{counts:?}");
    // No block is passed over, and the patterns above still find something of each kind.
    let tried: usize = ["yaml", "commands", "no example"].iter().map(|kind| counts[kind]).sum();
    assert_eq!(tried * 2, fences);
    for kind in ["yaml", "tunnel", "tunnel check", "curl", "JSON Patch"] {
        assert!(counts.contains_key(kind), "{kind}");
    }
}

#[test]
fn the_image_opens_the_ports_of_the_sample() {
    let text = include_str!("../Dockerfile");
    let (_, run) = text.split_once("docker run ").unwrap();
    let (run, _) = run.split_once("\n#\n").unwrap();
    let sample = config::sample::SERVER;
    for port in ["7000", "10000-10100"] {
        assert!(run.contains(&format!("-p {port}:{port}")), "{run}");
        assert!(sample.contains(port), "{sample}");
    }
    assert!(text.contains("\nEXPOSE 7000/tcp 7000/udp\n"));
}

#[test]
fn a_wrong_example_is_found() {
    let tried = |text: &str| {
        let text = text.replace("~~~", "```");
        let tried = std::panic::catch_unwind(move || {
            let mut counts = Counts::new();
            Document { name: "x.md", files: BTreeMap::new(), counts: &mut counts }.all(&text);
        });
        tried.is_ok()
    };
    let file = "~~~yaml\n# server.yaml\nlisten: tls://[::]:7000\nclients:\n  - { name: home, \
                token_file: t }\n~~~\n";
    let patch = |path: &str| {
        format!(
            "{file}~~~\n$ curl -X PATCH -H 'Content-Type: application/json-patch+json' \\\n  \
             http://127.0.0.1:7070/api/v1/config -d '[\n  {{\"op\": \"replace\", \"path\": \
             \"{path}\", \"value\": \"x\"}}]'\n~~~\n"
        )
    };
    assert!(tried(file) && tried(&patch("/clients/home/name")));
    assert!(!tried(&patch("/clients/home/limits")));
    assert!(tried("~~~\ntunnel status\n~~~\n") && !tried("~~~\ntunnel statos\n~~~\n"));
    assert!(!tried("~~~yaml\nworker: 1\n~~~\n") && tried("~~~yaml\nworkers: 1\n~~~\n"));
    let output = "~~~\nsome output\n~~~\n";
    assert!(!tried(output) && tried(&format!("<!-- no example: output -->\n{output}")));
    let check = |said: &str| format!("{file}~~~\n$ tunnel check --config server.yaml\n{said}~~~\n");
    assert!(!tried(&check("listen tls://[::]:7001\n")));
}
