//! Who sets an option of a socket: the crate `net`, by `net::SocketOptions`. An option that each
//! accept and each dial sets by itself costs a change of all of them, and the next place forgets
//! it.

use super::proc::DEV;
use super::sources::Sources;

/// The crate of the options.
const OWN: &str = "net";

/// The demo is a program on either side of a tunnel, which has no options.
const DEMO: &str = "crates/tunnel/src/demo/";

/// The setters by the begins of their names: those of std, tokio, socket2, rustix and nix.
const SETTERS: &[&str] = &[
    "bind_device",
    "set_bind_device",
    "set_broadcast",
    "set_ip_",
    "set_ipv4_",
    "set_ipv6_",
    "set_keepalive",
    "set_linger",
    "set_mark",
    "set_multicast_",
    "set_nodelay",
    "set_only_v6",
    "set_quickack",
    "set_recv_buffer_size",
    "set_recv_tclass",
    "set_recv_tos",
    "set_reuse_",
    "set_send_buffer_size",
    "set_socket_",
    "set_tclass",
    "set_tcp_",
    "set_tos",
    "set_traffic_class",
    "set_ttl",
    "set_unicast_hops",
    "set_zero_linger",
    "setsockopt",
];

/// What is no option of a connection: the sender of a message of the own processes, and a trial
/// whether an address is free.
const OTHER: &[&str] = &["set_socket_passcred", "set_socket_reuseaddr"];

/// Calls and imports of a setter outside the crate of the options, tests left out.
pub(super) fn breaches(sources: &Sources) -> Vec<String> {
    let mut found = Vec::new();
    for (path, source) in &sources.files {
        let folder = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        let is_free = |name: &str| name == OWN || name.starts_with("kcp-go") || DEV.contains(&name);
        if folder.is_none_or(|(name, _)| is_free(name)) || path.starts_with(DEMO) {
            continue;
        }
        let modules = &source.facts.modules;
        let calls = source.facts.calls.iter().map(|call| (call.name.as_str(), call.line));
        let last = |path: &'_ [String]| path.last().map_or("", String::as_str).to_owned();
        let paths = modules.iter().flat_map(|module| {
            let uses = module.uses.iter().map(|one| (last(&one.path), one.line));
            uses.chain(module.mentions.iter().map(|one| (last(&one.path), one.line)))
        });
        let named = calls.map(|(name, line)| (name.to_owned(), line)).chain(paths);
        let mut of_file: Vec<_> = named.filter(|(name, _)| is_setter(name)).collect();
        of_file.sort_by_key(|(_, line)| *line);
        found.extend(of_file.into_iter().map(|(name, line)| {
            format!(
                "{path}:{line}: `{name}` sets an option of a socket: add the option to \
                 `net::SocketOptions`, which bind, accept and dial apply"
            )
        }));
    }
    found
}

fn is_setter(name: &str) -> bool {
    SETTERS.iter().any(|setter| name.starts_with(setter)) && !OTHER.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, code: &str) -> Vec<String> {
        breaches(&Sources::sample(&[(path, code)]))
    }

    #[test]
    fn a_setter_outside_the_crate_of_the_options_is_refused_with_its_line() {
        let code = "fn f(s: S) {\n    s.set_nodelay(true);\n    sockopt::set_ip_tos(&s, 4);\n}\n";
        let found = of("crates/relay/src/a.rs", code);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/relay/src/a.rs:2: `set_nodelay` sets an option"));
        assert!(found[1].starts_with("crates/relay/src/a.rs:3: `set_ip_tos` sets"), "{found:?}");
        let imported = "use rustix::net::sockopt::set_socket_recv_buffer_size_force as grow;";
        assert_eq!(of("crates/relay/src/a.rs", imported).len(), 1);
        let inside = "fn f(s: S) { tokio::select! { _ = x => { s.set_zero_linger(); } } }";
        assert_eq!(of("crates/relay/src/a.rs", inside).len(), 1);
    }

    #[test]
    fn the_crate_of_the_options_tests_and_other_words_are_free() {
        let code = "fn f(s: S) { s.set_nodelay(true); }";
        for path in [
            "crates/net/src/a.rs",
            "crates/testkit/src/a.rs",
            "crates/lab/src/a.rs",
            "crates/kcp-go/tokio/src/a.rs",
            "crates/relay/tests/a.rs",
            "crates/relay/src/a/tests.rs",
            "crates/tunnel/src/demo/origin.rs",
            "benches/src/a.rs",
        ] {
            assert_eq!(of(path, code), [""; 0], "{path}");
        }
        let test = "#[cfg(test)] mod tests { fn f(s: S) { s.set_nodelay(true); } }";
        let other = "fn f(s: S) { s.set_send_limit(1); set_socket_passcred(&s, true); }";
        for code in [test, other, "// set_nodelay(true)"] {
            assert_eq!(of("crates/relay/src/a.rs", code), [""; 0], "{code}");
        }
    }
}
