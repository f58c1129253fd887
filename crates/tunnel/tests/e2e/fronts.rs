//! The examples for Apache and Caddy in front of a real server, and the common behaviour of all
//! reverse proxies.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use testkit::certs::Authority;
use testkit::stage::Daemon;

use crate::harness::{
    LONG, Origin, SOON, Scheme, Setup, connect, free_port, program, wait_listening,
};

/// One of the examples of the repository.
pub(crate) fn example(name: &str) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    fs::read_to_string(examples.join(name)).unwrap()
}

/// An example with one place as it is here.
pub(crate) fn put(example: &str, from: &str, to: &str) -> String {
    assert!(example.contains(from), "{from} in {example}");
    example.replace(from, to)
}

/// Certificates for a front at this address, and a client that is sent there.
pub(crate) fn seal(setup: &mut Setup, front: SocketAddr) {
    let authority = Authority::new("an authority of a front").unwrap();
    authority.server(&["127.0.0.1", "::1"]).unwrap().save(setup.dir(), "tunnel").unwrap();
    authority.save(setup.dir()).unwrap();
    setup.server_url = Some(format!("wss://{front}/tunnel"));
    setup.client_tls = Some(format!("{{ ca: {}/ca.pem }}", setup.dir().display()));
}

/// A stream through this front goes on when the front was ended and started again, and the server
/// knows the client by the address that the front tells: the client comes by IPv6, the front by
/// IPv4.
fn serves(name: &str, command: impl Fn(&Setup, SocketAddr) -> Command) {
    let mut setup = Setup::new(Scheme::WS);
    let port = free_port();
    let front = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    seal(&mut setup, front);
    setup.server_lines.push_str("trusted_proxies: [ 127.0.0.1 ]\n");
    // Whatever else a client claims to be.
    setup.client_lines.push_str("headers: { Forwarded: for=192.0.2.9, X-Real-IP: 192.0.2.9 }\n");
    let (mut command, dir) = (command(&setup, front), setup.dir().to_owned());
    let mut start = || {
        let front = Daemon::start(name, &dir, &mut command);
        wait_listening(port, SOON);
        front
    };
    let mut front = start();
    let origin = Origin::echo();
    let mut running = setup.service("echo", origin.port()).start();
    running.wait_echo(running.public("echo"));
    let status = running.status("server").unwrap();
    let peer = status["sessions"][0]["links"][0]["carriers"][0]["peer"].to_string();
    assert_eq!(peer, "\"::1\"", "{status}");
    // The kernel is asked for the connection that there is: that of the front.
    let sent = &status["sessions"][0]["links"][0]["carriers"][0]["tcp"]["sent_segments"];
    assert!(sent.as_u64() > Some(0), "{status}");

    let mut visitor = connect(running.public("echo"));
    visitor.set_read_timeout(Some(LONG)).unwrap();
    let mut echo = |byte: u8| {
        visitor.write_all(&[byte]).unwrap();
        let mut back = [0];
        visitor.read_exact(&mut back).unwrap();
        assert_eq!(back, [byte]);
    };
    echo(1);
    front.terminate();
    front.wait_end(SOON);
    running.client().wait_line(&["carrier lost"], SOON);
    front = start();
    echo(2);
    running.client().wait_line(&["resumed over wss://"], SOON);
    drop(front);
}

#[test]
fn apache_serves_by_its_example() {
    serves("apache", |setup, front| {
        let (dir, module) = (setup.dir().display(), "LoadModule");
        let modules = "/usr/lib/apache2/modules/mod_";
        let fragment = put(
            &example("apache/tunnel.conf"),
            "http://127.0.0.1:7080/",
            &format!("http://127.0.0.1:{}/", setup.server_port()),
        );
        let conf = format!(
            "ServerRoot {dir}\nPidFile {dir}/apache.pid\nErrorLog /dev/stderr\n\
             DefaultRuntimeDir {dir}\nServerName localhost\nListen {front}\n\
             {module} headers_module {modules}headers.so\n\
             {module} mpm_event_module {modules}mpm_event.so\n\
             {module} authz_core_module {modules}authz_core.so\n\
             {module} proxy_module {modules}proxy.so\n\
             {module} proxy_http_module {modules}proxy_http.so\n\
             {module} ssl_module {modules}ssl.so\n\
             <IfModule unixd_module>\nUser nobody\nGroup nogroup\n</IfModule>\n\
             <VirtualHost {front}>\nSSLEngine on\n\
             SSLCertificateFile {dir}/tunnel.crt\nSSLCertificateKeyFile {dir}/tunnel.key\n\
             {fragment}\n</VirtualHost>\n"
        );
        let file = setup.dir().join("apache.conf");
        fs::write(&file, conf).unwrap();
        let mut command = Command::new(program("apache2"));
        // One process: killed children of Apache's parent would keep the port.
        command.arg("-X").arg("-f").arg(file);
        command
    });
}

#[test]
fn caddy_serves_by_its_example() {
    serves("caddy", |setup, front| {
        let dir = setup.dir().display();
        let site = put(
            &example("caddy/Caddyfile"),
            "tunnel.example.com {",
            &format!("https://{front} {{\n\tbind ::1\n\ttls {dir}/tunnel.crt {dir}/tunnel.key"),
        );
        let site = put(&site, " 127.0.0.1:7080", &format!(" 127.0.0.1:{}", setup.server_port()));
        // Nothing but this one port.
        let conf = format!("{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{site}");
        let file = setup.dir().join("Caddyfile");
        fs::write(&file, conf).unwrap();
        let mut command = Command::new(program("caddy"));
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
        command.env("HOME", setup.dir()).env("XDG_DATA_HOME", setup.dir());
        command
    });
}
