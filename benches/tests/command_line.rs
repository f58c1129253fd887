//! The binary `load` as its caller sees it: lines of JSON, and exit statuses.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn load(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_load"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command
}

fn output(line: &str) -> Output {
    load(line).output().unwrap()
}

/// An origin that ends with the test.
struct Origin {
    process: Child,
    address: String,
}

impl Origin {
    fn start(kind: &str) -> Self {
        let mut command = load(&format!("origin {kind} --listen 127.0.0.1:0"));
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(said["kind"], kind);
        Self { process, address: said["listening"].as_str().unwrap().to_owned() }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn lines(line: &str) -> Vec<Value> {
    let output = output(line);
    let said = String::from_utf8(output.stdout).unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaint.is_empty(), "{line}: {complaint}");
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_program_says_one_line_and_idle_two() {
    let (echo, sink, source) =
        (Origin::start("echo"), Origin::start("sink"), Origin::start("source"));
    let (echo, sink, source) = (&echo.address, &sink.address, &source.address);
    let udp = Origin::start("udp");
    let udp = &udp.address;
    for (line, program) in [
        (format!("bulk --target {sink} --direction up --seconds 0.2 --write 1KiB"), "bulk"),
        (format!("bulk --target {source} --direction down --seconds 0.2 --streams 4"), "bulk"),
        (format!("requests --target {echo} --echo 64 --connections 3 --seconds 0.2"), "requests"),
        (format!("connections --target {echo} --seconds 0.2 --concurrency 2"), "connections"),
        (format!("echo --target {echo} --bulk sink:{sink} --seconds 0.2"), "echo"),
        (format!("echo --target {echo} --bulk source:{source} --seconds 0.2"), "echo"),
        (format!("udp --target {udp} --rate 500 --flows 2 --seconds 0.2"), "udp"),
    ] {
        let said = lines(&line);
        assert_eq!(said.len(), 1, "{line}: {said:?}");
        assert_eq!((&said[0]["program"], &said[0]["errors"]), (&program.into(), &0.into()));
    }
    let said = lines(&format!("idle --target {echo} --connections 50 --hold 0.1 --sources 3"));
    let events: Vec<_> = said.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["open", "end"]);
    assert!(said.iter().all(|line| line["verified"] == 50), "{said:?}");
}

#[test]
fn nonsense_is_wrong_usage_and_says_nothing_to_a_reader_of_json() {
    for line in [
        "",
        "fly",
        "bulk",
        "bulk --target 127.0.0.1:1 --seconds 0",
        "bulk --target 127.0.0.1:1 --seconds 1 --write 2MiB",
        "bulk --target 127.0.0.1:1 --seconds 1 --streams 0",
        "bulk --target nowhere --seconds 1",
        "requests --target 127.0.0.1:1 --seconds 1 --http --echo 1",
        "requests --target 127.0.0.1:1 --seconds 1 --path x",
        "requests --target 127.0.0.1:1 --seconds 1 --connections 1000000",
        "requests --target 192.0.2.1:1 --seconds 1 --sources 2",
        "connections --target 127.0.0.1:1 --seconds 1 --speed 3",
        "echo --target 127.0.0.1:1 --seconds 1 --bulk 127.0.0.1:2",
        "echo --target 127.0.0.1:1 --seconds 1 --pause -1",
        "idle --target 127.0.0.1:1 --hold 1",
        "idle --target 127.0.0.1:1 --hold 1 --connections 999999",
        "udp --target 127.0.0.1:1 --seconds 1 --payload 67",
        "udp --target 127.0.0.1:1 --seconds 1 --rate 5 --search",
        "udp --target 127.0.0.1:1 --seconds 1 --flows 1001",
        "origin",
        "origin teapot --listen 127.0.0.1:0",
        "origin echo",
    ] {
        let output = output(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(complaint.starts_with("load: ") && complaint.lines().count() == 1, "{complaint}");
        assert!(output.stdout.is_empty(), "{line}");
    }
    let output = output("origin echo --listen 192.0.2.1:1");
    assert_eq!(output.status.code(), Some(1), "an address that is not ours is no wrong usage");
}
