//! One process between visitors and origins, without a tunnel: `tunnel proxy` with one worker, and
//! haproxy with one thread.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::Result;
use testkit::stage::tunnel;

use super::haproxy;
use super::scene::{Hop, Scene};
use super::way::Way;
use crate::peers::program;

pub(super) fn ours(scene: &mut Scene<'_>) -> Result<()> {
    let file = scene.write("proxy.yaml", &config(&scene.ways))?;
    let control = scene.dir.join("proxy.sock");
    let mut command = tunnel(&scene.site.tunnel, &["proxy", "--workers", "1", "--config"]);
    command.arg(file).arg("--control").arg(control);
    scene.spawn("proxy", &mut command)
}

fn config(ways: &[Way]) -> String {
    let mut text = String::from("proxies:\n");
    for way in ways {
        let (Way { name, entrance, target, .. }, scheme) = (way, way.scheme());
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "  - {{ name: {name}, listen: \"{scheme}://{entrance}\", target: \
             \"{scheme}://{target}\" }}"
        );
    }
    text
}

pub(super) fn haproxy(scene: &mut Scene<'_>) -> Result<()> {
    let program = program(scene.site, "haproxy")?;
    let hop = |way: &Way| Hop { name: way.name, from: way.entrance, to: way.target };
    let hops: Vec<_> = scene.ways.iter().map(hop).collect();
    let text = format!("global\n    nbthread 1\n{}", haproxy::config(&hops));
    let file = scene.write("haproxy.cfg", &text)?;
    scene.spawn("haproxy", Command::new(&program).arg("-db").arg("-f").arg(file))
}

#[cfg(test)]
mod tests {
    use super::super::UDP;
    use super::super::way::tests::way;
    use super::*;

    #[test]
    fn each_origin_is_an_entry_of_its_own() {
        assert_eq!(
            config(&[way("web", 1, 2), way(UDP, 3, 4)]),
            "proxies:\n  - { name: web, listen: \"tcp://127.0.0.1:1\", target: \
             \"tcp://127.0.0.1:2\" }\n  - { name: udp, listen: \"udp://127.0.0.1:3\", target: \
             \"udp://127.0.0.1:4\" }\n"
        );
    }
}
