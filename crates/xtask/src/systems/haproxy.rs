//! Two haproxy processes in TCP mode, one behind the other: the same path that a tunnel has, without
//! a mux.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use super::scene::{Scene, free};
use crate::peers::program;

pub(super) fn start(scene: &mut Scene<'_>) -> Result<()> {
    let program = program(scene.site, "haproxy")?;
    let between: Vec<_> = scene.ways.iter().map(|_| free()).collect();
    let hops = |from: &[SocketAddr], to: &[SocketAddr]| {
        let names = scene.ways.iter().map(|way| way.name);
        config(names.zip(from.iter().copied().zip(to.iter().copied())))
    };
    let entrances: Vec<_> = scene.ways.iter().map(|way| way.entrance).collect();
    let targets: Vec<_> = scene.ways.iter().map(|way| way.target).collect();
    let texts = [("server", hops(&entrances, &between)), ("client", hops(&between, &targets))];
    for (name, text) in texts {
        let file = scene.write(&format!("{name}.cfg"), &text)?;
        // -db: one process in the foreground.
        scene.spawn(name, Command::new(&program).arg("-db").arg("-f").arg(file))?;
    }
    Ok(())
}

/// Splicing, as its manual recommends for bulk. `TCP_NODELAY` is its default; the limit of
/// connections follows from that of descriptors.
fn config(hops: impl Iterator<Item = (&'static str, (SocketAddr, SocketAddr))>) -> String {
    let mut text = String::from(
        "defaults\n    mode tcp\n    option splice-auto\n    timeout connect 5s\n    \
         timeout client 1h\n    timeout server 1h\n",
    );
    for (name, (from, to)) in hops {
        // Writing into a string cannot fail.
        let _ = write!(text, "listen {name}\n    bind {from}\n    server {name} {to}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_origin_is_a_proxy_of_its_own() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let text = config([("web", (address(1), address(2)))].into_iter());
        assert!(
            text.ends_with("listen web\n    bind 127.0.0.1:1\n    server web 127.0.0.1:2\n"),
            "{text}"
        );
    }
}
