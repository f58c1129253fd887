//! nginx with TLS in front of WebSockets, a set-up of many users. `tunnel-nginx` is the tunnel
//! behind nginx. `nginx-wss` is nginx alone, between two `load bridge` processes that only speak
//! WebSocket for each visitor. `nginx-tls` is nginx with TLS for HTTP in front of the tunnel.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use testkit::stage::program;

use super::certificates::certificates;
use super::scene::{Scene, free};
use crate::bench::load_program;

/// nginx alone, with a WebSocket per visitor.
pub(super) fn alone(scene: &mut Scene<'_>) -> Result<()> {
    certificates(scene)?;
    let load = load_program(scene.site);
    let bridge = |listen: SocketAddr| {
        let mut command = Command::new(&load);
        command.args(["bridge", "--listen", &listen.to_string()]);
        command
    };
    let mut places = Vec::new();
    for way in scene.ways.clone() {
        let between = free();
        let mut command = bridge(between);
        command.args(["--target", &way.target.to_string()]);
        scene.spawn(&format!("client-{}", way.name), &mut command)?;
        scene.wait_listening(between)?;
        places.push((way.name, between));
    }
    let front = start(scene, &places)?;
    for way in scene.ways.clone() {
        let mut command = bridge(way.entrance);
        command.args(["--server", &format!("wss://{front}/{}", way.name), "--ca", "ca.crt"]);
        scene.spawn(&format!("server-{}", way.name), &mut command)?;
    }
    Ok(())
}

/// Starts nginx with the certificates of the scene, and returns its address. Each place is a path
/// and the address of its server.
pub(super) fn start(
    scene: &mut Scene<'_>,
    places: &[(&'static str, SocketAddr)],
) -> Result<SocketAddr> {
    let address = free();
    let file = scene.write("nginx.conf", &conf(scene.dir, address, places))?;
    let mut command = Command::new(program("nginx"));
    command.arg("-p").arg(scene.dir).arg("-e").arg("stderr").arg("-c").arg(file);
    scene.spawn("nginx", &mut command)?;
    scene.wait_listening(address)?;
    Ok(address)
}

/// Starts nginx with the certificates of the scene, as a proxy of HTTP from TLS at `front` to `to`.
pub(super) fn start_tls(scene: &mut Scene<'_>, front: SocketAddr, to: SocketAddr) -> Result<()> {
    let file = scene.write("nginx.conf", &tls_conf(scene.dir, front, to))?;
    let mut command = Command::new(program("nginx"));
    command.arg("-p").arg(scene.dir).arg("-e").arg("stderr").arg("-c").arg(file);
    scene.spawn("nginx", &mut command)?;
    scene.wait_listening(front)
}

/// Keeps connections to the target, which the manual recommends; there are more of them than
/// visitors of the cases with a floor. Answers are never written to a file.
fn tls_conf(dir: &Path, front: SocketAddr, to: SocketAddr) -> String {
    format!(
        "{}upstream target {{ server {to}; keepalive 1024; keepalive_requests 1000000000; }}\n\
           keepalive_requests 1000000000;\n\
           server {{\n\
             listen {front} ssl http2 backlog=4096;\n\
             ssl_certificate {dir}/server.crt; ssl_certificate_key {dir}/server.key;\n\
             ssl_protocols TLSv1.3;\n\
             location / {{ proxy_pass http://target; proxy_http_version 1.1; \
             proxy_set_header Connection \"\"; proxy_set_header Host $http_host; \
             proxy_max_temp_file_size 0; }}\n\
           }}\n}}\n",
        begin(dir),
        dir = dir.display(),
    )
}

/// The begin of a configuration. One process, so that its resources can be measured.
fn begin(dir: &Path) -> String {
    format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr error;\n\
         events {{ worker_connections 25000; }}\n\
         http {{\n\
           access_log off;\n\
           client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;\n\
           fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi;\n\
           scgi_temp_path {dir}/scgi;\n",
        dir = dir.display(),
    )
}

/// As `examples/nginx/nginx.conf`.
fn conf(dir: &Path, address: SocketAddr, places: &[(&'static str, SocketAddr)]) -> String {
    let mut text = format!(
        "{}\
           server {{\n\
             listen {address} ssl backlog=4096;\n\
             ssl_certificate {dir}/server.crt; ssl_certificate_key {dir}/server.key;\n\
             ssl_protocols TLSv1.2 TLSv1.3;\n",
        begin(dir),
        dir = dir.display(),
    );
    for (name, to) in places {
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "location = /{name} {{ proxy_pass http://{to}; proxy_http_version 1.1; \
             proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; \
             proxy_set_header Host $host; proxy_buffering off; proxy_buffer_size 64k; \
             proxy_buffers 4 64k; proxy_read_timeout 60s; }}"
        );
    }
    text + "}\n}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_a_location() {
        let [address, to] = [1, 2].map(|port| ([127, 0, 0, 1], port).into());
        let text = conf(Path::new("/d"), address, &[("web", to)]);
        assert!(text.contains("listen 127.0.0.1:1 ssl"), "{text}");
        assert!(text.contains("location = /web { proxy_pass http://127.0.0.1:2;"), "{text}");
    }

    #[test]
    fn https_leads_to_kept_connections() {
        let [front, to] = [1, 2].map(|port| ([127, 0, 0, 1], port).into());
        let text = tls_conf(Path::new("/d"), front, to);
        assert!(text.contains("upstream target { server 127.0.0.1:2; keepalive "), "{text}");
        assert!(text.contains("listen 127.0.0.1:1 ssl"), "{text}");
        assert_eq!(text.matches('{').count(), text.matches('}').count(), "{text}");
    }
}
