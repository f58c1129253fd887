//! Faults of etcd.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use testkit::cage::on;
use testkit::stage::{LONG, run, wait};

use crate::busy::Busy;
use crate::clients::{ONE, TWO};
use crate::etcd::{MEMBERS, behind, text};
use crate::stage::{NODES, Stage};
use crate::verdict::BOUND;

const SECOND: Duration = Duration::from_secs(1);

/// What a visitor waits at most who has nothing to do with etcd, on a busy machine.
const UNTOUCHED: Duration = Duration::from_secs(2);

/// The bytes that a member stores at most where it gets full.
const QUOTA: &str = "16777216";

/// The keys that fill a member.
const FILLING: &str = "/filling/";

fn untouched(stage: &Stage) {
    for wanted in [ONE, TWO] {
        stage.serves_all(wanted, UNTOUCHED, Duration::ZERO);
    }
}

/// The leader is killed three times, and comes back.
pub(crate) fn leader_killed() {
    let mut busy = Busy::with_claims(Stage::new("leader-killed", 3, &[]), &NODES[..3]);
    for _ in 0..3 {
        let stage = &mut busy.stage;
        let leader = stage.etcd.leader();
        stage.history.begin(None, "the leader of etcd is killed");
        stage.etcd.kill(leader);
        sleep(8 * SECOND);
        stage.etcd.begin(leader);
        stage.etcd.wait_quorum();
        stage.history.end(None);
        sleep(3 * SECOND);
    }
    untouched(&busy.end());
}

/// All members are away for a minute.
pub(crate) fn stopped() {
    let mut busy = Busy::with_claims(Stage::new("all-of-etcd-stopped", 3, &[]), &NODES[..3]);
    sleep(8 * SECOND);
    let stage = &mut busy.stage;
    stage.history.begin(None, "all members of etcd are killed");
    (0..3).for_each(|member| stage.etcd.kill(member));
    sleep(60 * SECOND);
    (0..3).for_each(|member| stage.etcd.begin(member));
    stage.etcd.wait_quorum();
    stage.history.end(None);
    let begun = Instant::now();
    stage.wait_nodes();
    println!("all nodes agree {:?} after the quorum", begun.elapsed());
    assert!(begun.elapsed() < 5 * SECOND, "all nodes agree soon");
    sleep(8 * SECOND);
    untouched(&busy.end());
}

/// The number of connections of nodes with a member.
fn connections(member: usize) -> usize {
    let words = ["ss", "-Htn", "state", "established", "sport", "=", ":2379"];
    let listed = run(on(MEMBERS[member]).args(words));
    String::from_utf8_lossy(&listed.stdout).lines().count()
}

/// The member to which the nodes are connected stops without a word.
pub(crate) fn member_silent() {
    let mut busy = Busy::with_claims(Stage::new("member-silent", 3, &[]), &NODES[..3]);
    sleep(3 * SECOND);
    let counts = [0, 1, 2].map(connections);
    println!("connections of nodes: {counts:?}");
    let member = (0..3).max_by_key(|member| counts[*member]).unwrap();
    busy.stage.history.begin(None, &format!("SIGSTOP of {}", MEMBERS[member]));
    busy.stage.etcd.signal(member, Signal::STOP);
    sleep(SECOND);
    let begun = Instant::now();
    for (client, wanted) in [("one", ONE), ("two", TWO)] {
        let newer = busy.renew(client, &["c", "b", "a"]);
        busy.stage.wait_served(wanted, &NODES[..3], Some(newer), BOUND);
    }
    println!("all nodes lead to the newer processes {:?} after the begin", begun.elapsed());
    sleep((20 * SECOND).saturating_sub(begun.elapsed()));
    busy.stage.etcd.signal(member, Signal::CONT);
    busy.stage.etcd.wait_quorum();
    busy.stage.history.end(None);
    sleep(5 * SECOND);
    busy.end();
}

/// No member has room for another record, until somebody makes room.
pub(crate) fn full() {
    let stage = Stage::new("etcd-full", 3, &["--quota-backend-bytes", QUOTA]);
    let mut busy = Busy::with_claims(stage, &NODES[..3]);
    sleep(5 * SECOND);
    let stage = &mut busy.stage;
    stage.history.begin(None, "etcd is full");
    let value = text(&"x".repeat(1 << 20));
    let refused = (0..64).find_map(|nth| {
        let put = json!({ "key": text(&format!("{FILLING}{nth}")), "value": value });
        stage.etcd.post(0, "/v3/kv/put", &put).err()
    });
    println!("etcd refuses: {refused:?}");
    assert!(refused.is_some_and(|it| it.contains("space")), "etcd is full");
    // Longer than a lease lives.
    sleep(25 * SECOND);
    let all = json!({ "key": text(FILLING), "range_end": text(&behind(FILLING)) });
    let post = |member, path, body| stage.etcd.post(member, path, &body).unwrap();
    post(0, "/v3/kv/deleterange", all);
    let now = stage.etcd.post(0, "/v3/kv/range", &json!({ "key": text("x") })).unwrap();
    post(
        0,
        "/v3/kv/compaction",
        json!({ "revision": now["header"]["revision"], "physical": true }),
    );
    for member in 0..3 {
        post(member, "/v3/maintenance/defragment", json!({}));
    }
    let alarms = post(0, "/v3/maintenance/alarm", json!({ "action": "GET" }));
    for alarm in alarms["alarms"].as_array().unwrap() {
        let off = json!({
            "action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": alarm["alarm"],
        });
        post(0, "/v3/maintenance/alarm", off);
    }
    let put = json!({ "key": text("x"), "value": "" });
    wait("etcd to write again", LONG, || stage.etcd.post(0, "/v3/kv/put", &put).ok());
    stage.history.end(None);
    sleep(8 * SECOND);
    untouched(&busy.end());
}

/// etcd goes back to an older copy, so that its revisions fall.
pub(crate) fn restored() {
    let mut busy = Busy::new(Stage::new("etcd-restored", 3, &[]), &NODES[..3]);
    let file = busy.stage.file("older.db");
    busy.stage.etcd.save(&file);
    // What the copy does not know.
    for (client, wanted) in [("one", ONE), ("two", TWO)] {
        let newer = busy.renew(client, &["c", "b", "a"]);
        busy.stage.wait_served(wanted, &NODES[..3], Some(newer), LONG);
    }
    sleep(5 * SECOND);
    busy.stage.history.begin(None, "etcd goes back to an older copy");
    busy.stage.etcd.restore(&file);
    busy.stage.history.end(None);
    let begun = Instant::now();
    busy.stage.wait_nodes();
    println!("all nodes agree {:?} after the copy is there", begun.elapsed());
    sleep(BOUND);
    busy.compete(&NODES[..3]);
    sleep(10 * SECOND);
    busy.end();
}
