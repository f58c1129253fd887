//! Two haproxy processes in TCP mode, in sequence: the same path as a tunnel, without a mux.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::Result;

use super::scene::{Hop, Scene};
use crate::peers::program;

pub(super) fn start(scene: &mut Scene<'_>) -> Result<()> {
    let program = program(scene.site, "haproxy")?;
    for (name, hops) in scene.two_hops() {
        let file = scene.write(&format!("{name}.cfg"), &config(&hops))?;
        // -db: one process in the foreground.
        scene.spawn(name, Command::new(&program).arg("-db").arg("-f").arg(file))?;
    }
    Ok(())
}

/// The configuration uses splicing, which the manual recommends for bulk data. A thread per core
/// and buffers of 16 KiB are defaults, and the manual advises against larger buffers. `TCP_NODELAY`
/// is always on, and the limit of connections follows from the limit of descriptors.
pub(super) fn config(hops: &[Hop]) -> String {
    let mut text = String::from(
        "defaults\n    mode tcp\n    option splice-auto\n    timeout connect 5s\n    \
         timeout client 1h\n    timeout server 1h\n",
    );
    for Hop { name, from, to } in hops {
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
        let [from, to] = [1, 2].map(|port| ([127, 0, 0, 1], port).into());
        let text = config(&[Hop { name: "web", from, to }]);
        assert!(
            text.ends_with("listen web\n    bind 127.0.0.1:1\n    server web 127.0.0.1:2\n"),
            "{text}"
        );
    }
}
