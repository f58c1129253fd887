//! Load over kept connections whose requests name two hosts in turn.

use std::fs;
use std::process::Command;

use super::Doors;
use crate::harness::{Nginx, Scheme, program, run};

/// Each thread of wrk asks for two hosts in turn, and compares each answer with its host.
const SCRIPT: &str = r#"
turn, wrong, right = 0, 0, 0
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init() wrong, right = 0, 0 end
request = function()
  turn = (turn + 1) % 3
  local host = turn == 0 and "b" or "a"
  return wrk.format("GET", "/" .. host, { Host = host .. ".example.com" })
end
response = function(status, headers, body)
  if status == 200 and headers["X-Path"] == headers["X-Name"] then right = right + 1 else wrong = wrong + 1 end
end
done = function()
  local w, r = 0, 0
  for _, thread in ipairs(threads) do w = w + thread:get("wrong"); r = r + thread:get("right") end
  print("right " .. r .. " wrong " .. w)
end
"#;

#[test]
fn two_hosts_on_kept_connections_are_never_mixed_up() {
    let doors = Doors::new(Scheme::TLS);
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    let origin = |name: &str| {
        let own = dir.join(name);
        fs::create_dir_all(&own).unwrap();
        let says = "add_header X-Path $uri always;";
        Nginx::start(
            &own,
            &format!(
                "location / {{ {says} add_header X-Name /{name} always; return 200 {name}; }}"
            ),
        )
    };
    let (a, b) = (origin("a"), origin("b"));
    let _running =
        doors.start(&[("http://a.example.com", a.port, ""), ("http://b.example.com", b.port, "")]);
    fs::write(dir.join("two.lua"), SCRIPT).unwrap();
    let mut wrk = Command::new(program("wrk"));
    wrk.args(["-t2", "-c20", "-d3s", "-s"]).arg(dir.join("two.lua"));
    let said = run(wrk.arg(format!("http://127.0.0.1:{http}/")));
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    println!("{said}");
    let counts = said.lines().find(|line| line.starts_with("right")).unwrap();
    let counts: Vec<u64> = counts.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(counts[0] > 100 && counts[1] == 0, "{said}");
    assert!(!said.contains("Socket errors"), "{said}");
}
