//! Visitors behind a reverse proxy of `trusted_proxies`: each request is judged, logged and passed
//! on by the address of its own visitor.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use super::{Doors, connect, fetch};
use crate::harness::{Nginx, Origin, Scheme, free_port};

/// A web server that answers with the lines in which it learns of a visitor, joined by `|`.
fn origin() -> Origin {
    Origin::start(|socket| {
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        let mut introduction = String::new();
        loop {
            let mut received = vec![introduction.clone()];
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                let line = line.trim_end().to_lowercase();
                if line.starts_with("proxy ") {
                    introduction = line[..line.rfind(' ').unwrap()].to_owned();
                    received[0].clone_from(&introduction);
                } else if line.starts_with("x-") {
                    received.push(line);
                } else if line.is_empty() {
                    break;
                }
            }
            received.retain(|line| !line.is_empty());
            let body = received.join("|");
            let length = body.len();
            if write!(&socket, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").is_err()
            {
                return;
            }
        }
    })
}

/// The answer to a request over a kept connection: the status, or the body of 200.
fn ask(socket: &mut BufReader<TcpStream>, host: &str, fields: &str) -> String {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
    socket.get_ref().write_all(request.as_bytes()).unwrap();
    let (mut status, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        socket.read_line(&mut line).unwrap();
        let line = line.trim_end().to_lowercase();
        if let Some(rest) = line.strip_prefix("http/1.1 ") {
            rest[..3].clone_into(&mut status);
        } else if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        } else if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    socket.read_exact(&mut body).unwrap();
    if status == "200" { String::from_utf8(body).unwrap() } else { status }
}

fn doors() -> Doors {
    let mut doors = Doors::new(Scheme::TCP);
    doors.setup.server_lines.push_str("trusted_proxies: [127.0.0.1]\n");
    doors
}

#[test]
fn lists_judge_each_visitor_behind_a_trusted_proxy() {
    let doors = doors();
    let (http, web) = (doors.http, origin());
    let lists = [
        ("allowed", ", allow_from: [203.0.113.0/24]"),
        ("denied", ", deny_from: [203.0.113.0/24]"),
        ("open", ""),
    ];
    let options =
        [("plain", ""), ("options", ", forwarded: true"), ("pass", ", pass_through: true")];
    let services: Vec<_> = lists
        .iter()
        .flat_map(|(list, keys)| {
            let named = move |(name, more): &(&str, &str)| {
                (format!("http://{list}-{name}.example"), format!("{keys}{more}"))
            };
            options.iter().map(named)
        })
        .collect();
    let services: Vec<_> =
        services.iter().map(|(public, keys)| (&**public, web.port(), &**keys)).collect();
    let mut doors = doors;
    doors.setup.more_rights.push("pass_through: true".to_owned());
    let running = doors.start(&services);
    // One connection of the proxy carries the requests of all visitors to all services.
    let mut proxy = BufReader::new(connect(http));
    let inside = "X-Forwarded-For: 198.51.100.1, 203.0.113.9\r\n";
    let outside = "X-Forwarded-For: 203.0.113.9, 198.51.100.1\r\n";
    for (name, _) in options {
        for (fields, allowed, denied) in [
            (inside, true, false),
            (outside, false, true),
            ("X-Forwarded-For: 203.0.113.9, 127.0.0.1\r\n", true, false),
            ("Forwarded: for=\"[::ffff:203.0.113.9]:80\"\r\n", true, false),
            ("X-Real-IP: 203.0.113.9\r\n", true, false),
            // The proxy itself.
            ("", false, true),
            // No address, and a field that the visitor has added.
            ("X-Forwarded-For: unknown\r\n", false, false),
            ("X-Forwarded-For: 203.0.113.9.\r\n", false, false),
            ("X-Forwarded-For: 203.0.113.9\r\nForwarded: for=198.51.100.1\r\n", false, false),
            ("X-Forwarded-For: 198.51.100.1\r\nX-Real-IP: 203.0.113.9\r\n", false, false),
        ] {
            for (list, may) in [("allowed", allowed), ("denied", denied), ("open", true)] {
                let said = ask(&mut proxy, &format!("{list}-{name}.example"), fields);
                assert_eq!(said != "403", may, "{list}-{name}: {fields:?}: {said}");
            }
        }
    }
    let refused = running.status("server").unwrap().to_string();
    assert!(refused.contains("visitor_denied"), "{refused}");
}

#[test]
fn the_target_learns_each_visitor_of_a_kept_connection_of_nginx() {
    let doors = doors();
    let (http, dir, web) = (doors.http, doors.setup.dir().to_owned(), origin());
    let _running = doors.start(&[
        ("http://header.example", web.port(), ", proxy_protocol: v1"),
        ("http://fields.example", web.port(), ", forwarded: true"),
        ("http://allowed.example", web.port(), ", allow_from: [127.0.0.2]"),
    ]);
    let front = dir.join("front");
    fs::create_dir(&front).unwrap();
    let port = free_port();
    let conf = format!(
        "error_log stderr error; events {{ }}\nhttp {{ access_log off;\n\
         upstream doors {{ server 127.0.0.1:{http}; keepalive 1; }}\n\
         server {{ listen 127.0.0.1:{port};\n\
         location / {{ proxy_pass http://doors; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; proxy_set_header Host $host;\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         proxy_set_header X-Real-IP \"\"; proxy_set_header Forwarded \"\"; }} }} }}\n"
    );
    let _nginx = Nginx::start_with(&front, &conf, port);
    let visit = |from: &str, host: &str| {
        let forged = ["-H", "X-Forwarded-For: 127.0.0.2", "-H", "X-Real-IP: 127.0.0.2"];
        let url = format!("http://{host}/");
        let args = ["--interface", from, "--write-out", "%{http_code}", &url];
        fetch(port, &[&args[..], &forged, &["-H", "Forwarded: for=127.0.0.2"]].concat())
    };
    for from in ["127.0.0.2", "127.0.0.3", "127.0.0.2"] {
        let said = visit(from, "header.example");
        assert!(said.starts_with(&format!("proxy tcp4 {from} ")), "{from}: {said}");
        let said = visit(from, "fields.example");
        let list = format!("x-forwarded-for: 127.0.0.2, {from}, 127.0.0.1|");
        assert!(said.contains(&list), "{said}");
        assert!(said.contains(&format!("x-real-ip: {from}")), "{said}");
        let code = if from == "127.0.0.2" { "200" } else { "403" };
        assert!(visit(from, "allowed.example").ends_with(code), "{from}");
    }
}
