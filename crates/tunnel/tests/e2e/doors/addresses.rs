//! The address that a target believes to have, and the address that its visitors use.

use std::fs;

use super::{Doors, certificate, fetch};
use crate::harness::{Nginx, Scheme};

#[test]
fn nginx_behind_tls_keeps_its_visitors_and_moves_their_files() {
    let doors = Doors::with(Scheme::TLS, "", ", certificates: [{ cert: one.crt, key: one.key }]");
    let (tls, dir) = (doors.tls, doors.setup.dir().to_owned());
    certificate(&dir, "one", "DNS:a.example.com,DNS:b.example.com");
    let nginx = Nginx::start(
        &dir,
        "location / { dav_methods PUT MOVE; }\n\
         location = /login { add_header Set-Cookie 's=1; Domain=localhost' always; \
         return 302 /shop/; }",
    );
    let port = nginx.port;
    fs::create_dir_all(dir.join("www/shop")).unwrap();
    fs::write(dir.join("www/shop/index.html"), "shop").unwrap();
    let rewrite = format!(", host_rewrite: \"localhost:{port}\"");
    let _running = doors.start(&[
        ("https://a.example.com", port, ""),
        ("https://b.example.com", port, &rewrite),
        ("https://*", port, ""),
    ]);
    let get = |args: &[&str]| fetch(tls, &[&["--insecure"], args].concat());
    let code = ["--output", "/dev/null", "--write-out", "%{http_code}"];
    for host in ["a.example.com", "b.example.com"] {
        let site = format!("https://{host}");
        let redirect = get(&["--head", &format!("{site}/shop")]).to_lowercase();
        assert!(redirect.contains(&format!("location: {site}/shop/\r\n")), "{redirect}");
        let login = get(&["--head", &format!("{site}/login")]).to_lowercase();
        let domain = if host.starts_with('a') { "; domain=localhost" } else { "" };
        assert!(login.contains(&format!("location: {site}/shop/\r\n")), "{login}");
        assert!(login.contains(&format!("set-cookie: s=1{domain}\r\n")), "{login}");
        let (old, new) = (format!("{site}/{host}-old"), format!("{site}/{host}-new"));
        let put = get(&[&code[..], &["--request", "PUT", "--data-binary", "x", &old]].concat());
        assert_eq!(put, "201");
        let destination = format!("Destination: {new}");
        let moved = ["--request", "MOVE", "--header", &destination, &old];
        assert_eq!(get(&[&code[..], &moved].concat()), "204");
        assert_eq!(get(&[&new]), "x");
    }
    // A visitor that asks by address names no host in the handshake.
    assert_eq!(get(&["https://127.0.0.1/shop/"]), "shop");
    assert_eq!(get(&["--http1.1", "https://127.0.0.1/shop/"]), "shop");
}
