use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use domain::base::iana::Rcode;
use tempfile::TempDir;
use tokio::net::UdpSocket;
use tokio::time::sleep;

use super::ask::Answering;
use super::wire::{DnsReply, Record};
use super::*;
use crate::resolve::services::ServiceRecord;

/// A name server without a network. It knows names, and takes 20 ms.
#[derive(Clone, Default)]
struct Zone(Arc<Mutex<Names>>);

#[derive(Default)]
struct Names {
    known: HashMap<(String, RecordKind), (Vec<Record>, u64)>,
    /// Names that exist without an address.
    bare: HashSet<String>,
    /// Names about which the servers fail, or are silent.
    failing: HashSet<String>,
    /// The kind of question that this server refuses.
    refusing: Option<(SocketAddr, RecordKind)>,
    silent: HashSet<(String, RecordKind)>,
    asked: Vec<(String, RecordKind)>,
    servers: Vec<SocketAddr>,
}

impl Exchange for Zone {
    fn ask(&self, server: SocketAddr, question: &Question, _: bool) -> Answering {
        let mut names = self.0.lock().unwrap();
        let key = (question.name.clone(), question.kind);
        names.asked.push(key.clone());
        names.servers.push(server);
        let (is_silent, fails) = (names.silent.contains(&key), names.failing.contains(&key.0));
        let fails = fails || names.refusing == Some((server, key.1));
        let known = names.known.get(&key).cloned();
        let exists = known.is_some() || names.bare.contains(&key.0);
        Box::pin(async move {
            if is_silent {
                std::future::pending::<()>().await;
            }
            sleep(Duration::from_millis(20)).await;
            if fails {
                return Err(Trouble::Refusal(Rcode::SERVFAIL));
            }
            let (found, ttl) = known.unwrap_or((Vec::new(), 4));
            Ok(DnsReply { found, exists, ttl: Some(Duration::from_secs(ttl)) })
        })
    }
}

impl Zone {
    fn know(&self, name: &str, ip: &str, ttl: u64) {
        let ip: IpAddr = ip.parse().unwrap();
        let kind = if ip.is_ipv4() { RecordKind::A } else { RecordKind::Aaaa };
        self.0
            .lock()
            .unwrap()
            .known
            .insert((name.to_owned(), kind), (vec![Record::Address(ip)], ttl));
    }

    /// Learns the service at `name` with this record, besides the records that it has.
    fn offer(&self, name: &str, (priority, port, target): (u16, u16, &str), ttl: u64) {
        let record = ServiceRecord { priority, weight: 1, port, target: target.to_owned() };
        let mut names = self.0.lock().unwrap();
        let known = names.known.entry((name.to_owned(), RecordKind::Srv)).or_default();
        known.0.push(Record::Service(record));
        known.1 = ttl;
    }

    /// The names that were asked about since the last call, without repetition.
    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut self.0.lock().unwrap().asked);
        asked.retain(|(_, kind)| *kind != RecordKind::Aaaa);
        asked.into_iter().map(|(name, _)| name).collect()
    }
}

struct Rig {
    zone: Zone,
    stub: Arc<Stub<Zone>>,
    dir: TempDir,
}

impl Rig {
    fn new(resolv_conf: &str, hosts: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("resolv.conf"), resolv_conf).unwrap();
        fs::write(dir.path().join("hosts"), hosts).unwrap();
        let zone = Zone::default();
        Self { stub: Arc::new(Stub::new(files(&dir, 53), zone.clone())), zone, dir }
    }

    /// The addresses of a name, or the kind of the error and its text.
    async fn find(&self, host: &str) -> Result<Vec<String>, String> {
        find(&self.stub, host).await
    }
}

fn files(dir: &TempDir, port: u16) -> LookupFiles {
    let path = |name| dir.path().join(name);
    LookupFiles { resolv_conf: path("resolv.conf"), hosts: path("hosts"), port }
}

async fn find<E: Exchange>(stub: &Stub<E>, host: &str) -> Result<Vec<String>, String> {
    let known = match stub.known(host) {
        Some(known) => known,
        None => stub.look_up(&host.into()).await,
    };
    match known {
        Ok(addresses) => Ok(addresses.iter().map(ToString::to_string).collect()),
        Err(failure) => {
            let error = failure.again();
            Err(format!("{:?}: {error}", error.kind()))
        }
    }
}

fn found(ips: &[&str]) -> Result<Vec<String>, String> {
    Ok(ips.iter().map(|ip| (*ip).to_owned()).collect())
}

const ONE: &str = "nameserver 10.0.0.1\nsearch a.test b.test\n";

#[tokio::test(start_paused = true)]
async fn a_name_has_the_addresses_of_both_families_and_the_file_comes_before_the_servers() {
    let rig = Rig::new(ONE, "10.9.9.9 listed db.test\n");
    rig.zone.know("db.test", "10.0.0.7", 60);
    rig.zone.know("app.test", "10.0.0.8", 60);
    rig.zone.know("app.test", "::8", 60);
    assert_eq!(rig.find("db.test").await, found(&["10.9.9.9"]));
    assert_eq!(rig.zone.asked(), [""; 0], "the file has it");
    assert_eq!(rig.find("app.test").await, found(&["10.0.0.8", "::8"]));
}

#[tokio::test(start_paused = true)]
async fn search_domains_are_tried_in_order_and_the_text_names_what_was_asked() {
    let rig = Rig::new(ONE, "");
    rig.zone.know("db.b.test", "10.0.0.7", 60);
    assert_eq!(rig.find("db").await, found(&["10.0.0.7"]));
    assert_eq!(rig.zone.asked(), ["db.a.test", "db.b.test"]);
    let error = rig.find("none").await.unwrap_err();
    assert_eq!(
        error,
        "NotFound: there is no such name, says the name server 10.0.0.1 (asked for none.a.test, \
         none.b.test, none)"
    );
    let error = rig.find("none.").await.unwrap_err();
    assert_eq!(error, "NotFound: there is no such name, says the name server 10.0.0.1");
    rig.zone.0.lock().unwrap().bare.insert("mail.test".into());
    let error = rig.find("mail.test.").await.unwrap_err();
    assert_eq!(error, "NotFound: the name has no address, says the name server 10.0.0.1");
    // A domain that a server cannot look up hides no later one.
    rig.zone.0.lock().unwrap().failing.insert("app.a.test".into());
    rig.zone.know("app.b.test", "10.0.0.8", 60);
    assert_eq!(rig.find("app").await, found(&["10.0.0.8"]));
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_for_its_time_and_then_asked_for_again() {
    let rig = Rig::new(ONE, "");
    rig.zone.know("app.test", "10.0.0.8", 3);
    for _ in 0..5 {
        rig.find("app.test").await.unwrap();
    }
    assert_eq!(rig.zone.asked(), ["app.test"]);
    rig.zone.know("app.test", "10.0.0.9", 3);
    sleep(Duration::from_millis(2_900)).await;
    assert_eq!(rig.find("app.test").await, found(&["10.0.0.8"]));
    sleep(Duration::from_millis(200)).await;
    assert_eq!(rig.find("app.test").await, found(&["10.0.0.9"]));
    // That there is no such name holds for the time of the zone, here 4 s.
    rig.find("new.test.").await.unwrap_err();
    rig.zone.know("new.test", "10.0.0.1", 3);
    sleep(Duration::from_millis(3_900)).await;
    rig.find("new.test.").await.unwrap_err();
    sleep(Duration::from_millis(200)).await;
    assert_eq!(rig.find("new.test.").await, found(&["10.0.0.1"]));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_kept_for_a_second_and_names_each_server() {
    let rig = Rig::new("nameserver 10.0.0.1\nnameserver 10.0.0.2\n", "");
    rig.zone.0.lock().unwrap().failing.insert("app.test".into());
    let error = rig.find("app.test").await.unwrap_err();
    assert_eq!(
        error,
        "Other: the name server 10.0.0.1 failed (SERVFAIL: it got no answer itself), 10.0.0.2 \
         failed (SERVFAIL: it got no answer itself) (hint: the name servers are those of \
         /etc/resolv.conf)"
    );
    rig.zone.asked();
    rig.find("app.test").await.unwrap_err();
    assert_eq!(rig.zone.asked(), [""; 0]);
    rig.zone.0.lock().unwrap().failing.clear();
    rig.zone.know("app.test", "10.0.0.8", 3);
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(rig.find("app.test").await, found(&["10.0.0.8"]));
}

#[tokio::test(start_paused = true)]
async fn servers_that_are_silent_end_the_search_and_a_missing_file_names_this_machine() {
    let rig = Rig::new(ONE, "");
    for kind in [RecordKind::A, RecordKind::Aaaa] {
        rig.zone.0.lock().unwrap().silent.insert(("app.a.test".into(), kind));
    }
    let start = Instant::now();
    let error = rig.find("app").await.unwrap_err();
    assert!(error.contains("10.0.0.1 gave no answer within 5 s (hint"), "{error}");
    assert_eq!(start.elapsed().as_secs(), 5);
    let none = Rig::new("", "");
    fs::remove_file(none.dir.path().join("resolv.conf")).unwrap();
    none.zone.0.lock().unwrap().failing.insert("app.test".into());
    let error = none.find("app.test").await.unwrap_err();
    assert!(error.contains("127.0.0.1 failed") && error.contains("names no server"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_drops_questions_about_ipv6_delays_a_name_little() {
    let rig = Rig::new(ONE, "");
    rig.zone.know("app.test", "10.0.0.8", 60);
    rig.zone.0.lock().unwrap().silent.insert(("app.test".into(), RecordKind::Aaaa));
    let start = Instant::now();
    assert_eq!(rig.find("app.test").await, found(&["10.0.0.8"]));
    assert_eq!(start.elapsed(), Duration::from_millis(270));
}

#[tokio::test(start_paused = true)]
async fn of_addresses_of_two_servers_those_of_the_first_count() {
    let rig = Rig::new("nameserver 10.0.0.1\nnameserver 10.0.0.2\n", "");
    rig.zone.know("app.test", "10.0.0.8", 60);
    rig.zone.know("app.test", "2001:db8::8", 60);
    let first = "10.0.0.1:53".parse().unwrap();
    rig.zone.0.lock().unwrap().refusing = Some((first, RecordKind::Aaaa));
    assert_eq!(rig.find("app.test").await, found(&["10.0.0.8"]));
    rig.zone.0.lock().unwrap().refusing = Some((first, RecordKind::A));
    assert_eq!(rig.find("app.test.").await, found(&["2001:db8::8"]));
}

#[tokio::test(start_paused = true)]
async fn a_dial_that_fails_brings_a_look_at_the_files_and_a_new_question() {
    let rig = Rig::new(ONE, "10.9.9.9 db\n");
    rig.zone.know("app.test", "10.0.0.8", 60);
    rig.find("db").await.unwrap();
    rig.find("app.test").await.unwrap();
    rig.zone.asked();
    sleep(Duration::from_millis(1_100)).await;
    rig.zone.know("app.test", "10.0.0.9", 60);
    rig.stub.forget("app.test");
    assert_eq!(rig.find("app.test").await, found(&["10.0.0.9"]));
    fs::write(rig.dir.path().join("hosts"), "10.9.9.8 db and more\n").unwrap();
    rig.stub.forget("db");
    assert_eq!(rig.find("db").await, found(&["10.9.9.8"]));
}

#[tokio::test(start_paused = true)]
async fn many_callers_cause_one_question_and_whoever_leaves_takes_nothing_from_the_others() {
    let rig = Rig::new(ONE, "");
    rig.zone.know("app.test", "10.0.0.8", 60);
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let stub = Arc::clone(&rig.stub);
            tokio::spawn(async move { find(&stub, "app.test").await })
        })
        .collect();
    sleep(Duration::from_millis(10)).await;
    // Not the first, which looks up for all: its task is the resolver's own, which nobody ends.
    callers[1].abort();
    for (number, caller) in callers.into_iter().enumerate() {
        if number != 1 {
            assert_eq!(caller.await.unwrap(), found(&["10.0.0.8"]));
        }
    }
    assert_eq!(rig.zone.asked(), ["app.test"]);
    assert!(rig.stub.lock().flights.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_is_cut_off_leaves_no_trace() {
    let rig = Rig::new(ONE, "");
    rig.zone.know("app.test", "10.0.0.8", 60);
    let first = tokio::spawn({
        let stub = Arc::clone(&rig.stub);
        async move { find(&stub, "app.test").await }
    });
    sleep(Duration::from_millis(10)).await;
    first.abort();
    let _ = first.await;
    assert!(rig.stub.lock().flights.is_empty());
    assert_eq!(rig.find("app.test").await, found(&["10.0.0.8"]));
}

#[tokio::test(start_paused = true)]
async fn changed_files_are_read_anew() {
    let rig = Rig::new(ONE, "10.9.9.9 db\n");
    rig.zone.know("app.test", "10.0.0.8", 60);
    assert_eq!(rig.find("db").await, found(&["10.9.9.9"]));
    rig.find("app.test").await.unwrap();
    fs::write(rig.dir.path().join("hosts"), "10.9.9.8 db app.test\n").unwrap();
    assert_eq!(rig.find("db").await, found(&["10.9.9.9"]), "looked at every 2 s");
    sleep(CHECK).await;
    assert_eq!(rig.find("db").await, found(&["10.9.9.8"]));
    assert_eq!(rig.find("app.test").await, found(&["10.9.9.8"]), "no answer outlives the files");
    fs::write(rig.dir.path().join("resolv.conf"), "nameserver 10.0.0.2\nsearch c.test\n").unwrap();
    sleep(CHECK).await;
    rig.zone.asked();
    rig.find("new").await.unwrap_err();
    assert_eq!(rig.zone.asked(), ["new.c.test", "new"]);
    assert_eq!(rig.zone.0.lock().unwrap().servers.last().unwrap().to_string(), "10.0.0.2:53");
    fs::remove_file(rig.dir.path().join("hosts")).unwrap();
    sleep(CHECK).await;
    rig.find("db").await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn servers_take_turns_where_that_is_wanted() {
    let servers = "nameserver 10.0.0.1\nnameserver 10.0.0.2\noptions rotate\n";
    let rig = Rig::new(servers, "");
    for name in ["a.test.", "b.test.", "c.test."] {
        rig.find(name).await.unwrap_err();
    }
    let asked = rig.zone.0.lock().unwrap().servers.clone();
    let asked: HashSet<_> = asked.chunks(2).map(|both| both[0].ip().to_string()).collect();
    assert_eq!(asked.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_text_that_is_no_name_is_asked_of_nobody() {
    let rig = Rig::new(ONE, "10.9.9.9 strange!name\n");
    for host in ["", "a b", "fe80::1%eth0", "bücher.test", "-/x"] {
        let error = rig.find(host).await.unwrap_err();
        assert!(error.starts_with("NotFound: this is no host name"), "{host}: {error}");
    }
    assert_eq!(rig.zone.asked(), [""; 0]);
    assert_eq!(rig.find("strange!name").await, found(&["10.9.9.9"]));
}

/// The places of a service with the time of the answer, or the kind of the error and its text.
async fn services(rig: &Rig, name: &str) -> Result<(Vec<String>, u64), String> {
    match rig.stub.services(name).await {
        Ok(found) => {
            let place = |record: &ServiceRecord| format!("{}:{}", record.target, record.port);
            Ok((found.records.iter().map(place).collect(), found.ttl.as_secs()))
        }
        Err(failure) => {
            let error = failure.again();
            Err(format!("{:?}: {error}", error.kind()))
        }
    }
}

fn places(places: &[&str], ttl: u64) -> Result<(Vec<String>, u64), String> {
    Ok((places.iter().map(|place| (*place).to_owned()).collect(), ttl))
}

#[tokio::test(start_paused = true)]
async fn a_service_is_asked_of_the_servers_alone_and_its_answer_is_kept_for_its_time() {
    let rig = Rig::new(ONE, "10.9.9.9 _tunnel._tcp.test\n");
    rig.zone.offer("_tunnel._tcp.test", (10, 7000, "fra.test"), 3);
    rig.zone.offer("_tunnel._tcp.test", (10, 7001, "ams.test"), 3);
    let both = places(&["fra.test:7000", "ams.test:7001"], 3);
    assert_eq!(services(&rig, "_tunnel._tcp.test").await, both);
    assert_eq!(services(&rig, "_tunnel._tcp.test").await, both);
    assert_eq!(rig.zone.asked(), ["_tunnel._tcp.test"]);
    rig.zone.offer("_tunnel._tcp.test", (5, 7002, "waw.test"), 600);
    sleep(Duration::from_secs(3)).await;
    let three = places(&["fra.test:7000", "ams.test:7001", "waw.test:7002"], 600);
    assert_eq!(services(&rig, "_tunnel._tcp.test").await, three);
    // An address of the name is another answer.
    assert_eq!(rig.find("_tunnel._tcp.test").await, found(&["10.9.9.9"]));
    // A change of the files ends what is kept.
    rig.zone.asked();
    fs::write(rig.dir.path().join("resolv.conf"), "nameserver 10.0.0.2\n").unwrap();
    sleep(CHECK).await;
    assert_eq!(services(&rig, "_tunnel._tcp.test").await, three);
    assert_eq!(rig.zone.asked(), ["_tunnel._tcp.test"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_there_is_an_error_that_says_why() {
    let rig = Rig::new("nameserver 10.0.0.1\nsearch corp.test\n", "");
    let name = "_tunnel._tcp.none.test";
    let error = services(&rig, name).await.unwrap_err();
    let searched = "(asked for _tunnel._tcp.none.test, _tunnel._tcp.none.test.corp.test)";
    assert_eq!(
        error,
        format!("NotFound: there is no such name, says the name server 10.0.0.1 {searched}")
    );
    rig.zone.0.lock().unwrap().bare.insert("_tunnel._tcp.bare.test".into());
    let error = services(&rig, "_tunnel._tcp.bare.test.").await.unwrap_err();
    assert_eq!(error, "NotFound: the name has no SRV record, says the name server 10.0.0.1");
    rig.zone.offer("_tunnel._tcp.shut.test", (0, 0, ""), 60);
    let error = services(&rig, "_tunnel._tcp.shut.test").await.unwrap_err();
    assert!(error.contains("does not offer this service"), "{error}");
    // A record without a target beside others says nothing.
    rig.zone.offer("_tunnel._tcp.shut.test", (0, 1, "fra.test"), 60);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(services(&rig, "_tunnel._tcp.shut.test").await, places(&["fra.test:1"], 60));
    let error = services(&rig, "no name").await.unwrap_err();
    assert!(error.starts_with("NotFound: this is no host name"), "{error}");
    // The search list makes short names longer, as it does for addresses.
    rig.zone.offer("_tunnel._tcp.corp.test", (0, 1, "ams.test"), 60);
    assert_eq!(services(&rig, "_tunnel._tcp").await, places(&["ams.test:1"], 60));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_the_first_server_cannot_look_up_is_asked_of_the_next() {
    let rig = Rig::new("nameserver 10.0.0.1\nnameserver 10.0.0.2\n", "");
    rig.zone.offer("_tunnel._tcp.test", (10, 7000, "fra.test"), 60);
    let first = "10.0.0.1:53".parse().unwrap();
    rig.zone.0.lock().unwrap().refusing = Some((first, RecordKind::Srv));
    assert_eq!(services(&rig, "_tunnel._tcp.test").await, places(&["fra.test:7000"], 60));
    rig.zone.0.lock().unwrap().failing.insert("_tunnel._tcp.bad.test".into());
    let error = services(&rig, "_tunnel._tcp.bad.test.").await.unwrap_err();
    assert!(error.starts_with("Other: the name server 10.0.0.1 failed"), "{error}");
    rig.zone.0.lock().unwrap().silent.insert(("_tunnel._tcp.mute.test".into(), RecordKind::Srv));
    let start = Instant::now();
    let error = services(&rig, "_tunnel._tcp.mute.test").await.unwrap_err();
    assert!(error.contains("gave no answer"), "{error}");
    assert_eq!(start.elapsed().as_secs(), 6);
}

/// Over real sockets: the first server knows the name and takes its time, the second says at once
/// that there is no such name, as with a VPN.
#[tokio::test]
async fn the_first_of_two_servers_has_the_word_over_real_sockets() {
    use super::packets::{A, ANSWER, NO_NAME, a, asked, reply};
    let (first, second) = loop {
        let first = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).await.unwrap();
        let port = first.local_addr().unwrap().port();
        if let Ok(second) = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 3), port)).await {
            break (first, second);
        }
    };
    let port = first.local_addr().unwrap().port();
    let serve = |socket: UdpSocket, knows: bool| async move {
        let mut packet = [0; 512];
        loop {
            let (size, from) = socket.recv_from(&mut packet).await.unwrap();
            let question = &packet[..size];
            let answer = match asked(question) {
                (name, A) if knows && name == "gate.corp.test" => {
                    sleep(Duration::from_millis(40)).await;
                    reply(question, ANSWER, &[a("gate.corp.test", 5, [127, 0, 0, 1])], &[])
                }
                _ if knows => reply(question, ANSWER, &[], &[]),
                _ => reply(question, NO_NAME, &[], &[]),
            };
            socket.send_to(&answer, from).await.unwrap();
        }
    };
    tokio::spawn(serve(first, true));
    tokio::spawn(serve(second, false));
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("resolv.conf"), "nameserver 127.0.0.2\nnameserver 127.0.0.3\n")
        .unwrap();
    let stub = Stub::new(files(&dir, port), Sockets);
    assert_eq!(find(&stub, "gate.corp.test").await, found(&["127.0.0.1"]));
}
