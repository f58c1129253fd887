//! evproxy: a proxy based on epoll, two processes in sequence as with haproxy, one worker per core,
//! no limits. Set up from its documentation; not run on the
//! machine where this module was written.

use std::process::Command;

use anyhow::Result;
use serde_json::json;

use super::scene::{Hop, Scene};
use crate::peers::program;

pub(super) fn start(scene: &mut Scene<'_>) -> Result<()> {
    let program = program(scene.site, "evproxy")?;
    for (name, hops) in scene.two_hops() {
        let file = scene.write(&format!("{name}.json"), &config(&hops))?;
        scene.spawn(name, Command::new(&program).arg("-f").arg(file))?;
    }
    Ok(())
}

fn config(hops: &[Hop]) -> String {
    let proxies: Vec<_> = hops
        .iter()
        .map(|hop| {
            json!({
                "type": "tcp",
                "bindaddr": hop.from.to_string(),
                "upstreamaddrs": hop.to.to_string(),
                // In seconds. evproxy's own configuration file sets none.
                "dialtimeout": 15,
                "writetimeout": 30,
            })
        })
        .collect();
    format!("{:#}\n", json!({ "workernum": 0, "proxyconfig": proxies }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_origin_is_a_proxy_of_its_own() {
        let [from, to] = [1, 2].map(|port| ([127, 0, 0, 1], port).into());
        let text = config(&[Hop { name: "web", from, to }]);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["proxyconfig"][0]["bindaddr"], "127.0.0.1:1");
        assert_eq!(value["proxyconfig"][0]["upstreamaddrs"], "127.0.0.1:2");
    }
}
