use std::net::Ipv4Addr;

use domain::base::iana::Rcode;
use tokio::time::sleep;

use super::super::wire::{Record, RecordKind};
use super::*;

use Does::{Denies, Fails, Knows, Nothing};

const WAIT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
enum Does {
    /// Answers with the server's own address.
    Knows,
    Denies,
    Fails,
    Nothing,
}

/// Servers that do something after a number of milliseconds.
struct Script {
    servers: Mutex<Vec<(Does, u64)>>,
    asked: Mutex<Vec<usize>>,
}

fn address(index: usize) -> SocketAddr {
    let last = u8::try_from(index).unwrap();
    SocketAddr::new(Ipv4Addr::new(10, 0, 0, last).into(), 53)
}

fn index(server: SocketAddr) -> usize {
    (0..9).find(|index| address(*index) == server).unwrap()
}

impl Exchange for Script {
    fn ask(&self, server: SocketAddr, _: &Question, _: bool) -> Answering {
        let index = index(server);
        self.asked.lock().unwrap().push(index);
        let (does, after) = self.servers.lock().unwrap()[index];
        Box::pin(async move {
            sleep(Duration::from_millis(after)).await;
            let reply =
                |found: Vec<Record>| DnsReply { exists: !found.is_empty(), found, ttl: None };
            match does {
                Knows => Ok(reply(vec![Record::Address(server.ip())])),
                Denies => Ok(reply(Vec::new())),
                Fails => Err(Trouble::Refusal(Rcode::SERVFAIL)),
                Nothing => std::future::pending().await,
            }
        })
    }
}

struct Rig {
    script: Script,
    health: Arc<Health>,
}

impl Rig {
    fn new(servers: &[(Does, u64)]) -> Self {
        let script = Script { servers: Mutex::new(servers.into()), asked: Mutex::default() };
        Self { script, health: Arc::default() }
    }

    /// Asks, and returns whose answer counted, whether it had an address, after how many
    /// milliseconds, and which servers were asked. `None`: no server answered.
    async fn ask(&self) -> (Option<(usize, bool)>, u128, Vec<usize>) {
        self.script.asked.lock().unwrap().clear();
        let servers: Vec<_> = (0..self.script.servers.lock().unwrap().len()).map(address).collect();
        let question = Question { name: "app.test".into(), kind: RecordKind::A };
        let start = Instant::now();
        let outcome = ask(&self.script, &self.health, &servers, &question, (WAIT, false)).await;
        if let Err(troubles) = &outcome {
            assert_eq!(troubles.len(), servers.len());
        }
        let outcome = outcome.ok().map(|(server, reply)| (index(server), !reply.found.is_empty()));
        let asked = self.script.asked.lock().unwrap().clone();
        (outcome, start.elapsed().as_millis(), asked)
    }

    fn set(&self, index: usize, does: (Does, u64)) {
        self.script.servers.lock().unwrap()[index] = does;
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_server_counts_and_no_other_is_asked() {
    let rig = Rig::new(&[(Knows, 40), (Denies, 0)]);
    assert_eq!(rig.ask().await, (Some((0, true)), 40, vec![0]));
    let rig = Rig::new(&[(Denies, 40), (Knows, 0)]);
    assert_eq!(rig.ask().await, (Some((0, false)), 40, vec![0]), "NXDOMAIN is an answer");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_is_followed_by_the_next_at_once() {
    let rig = Rig::new(&[(Fails, 3), (Fails, 4), (Denies, 5)]);
    assert_eq!(rig.ask().await, (Some((2, false)), 12, vec![0, 1, 2]));
    assert_eq!(rig.ask().await, (Some((2, false)), 12, vec![0, 1, 2]), "it is not silent");
    assert_eq!(Rig::new(&[(Fails, 3), (Fails, 4)]).ask().await, (None, 7, vec![0, 1]));
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_is_contradicted_by_addresses_and_by_nothing_else() {
    // A name of a VPN whose server has to ask another one.
    let rig = Rig::new(&[(Knows, 1_800), (Denies, 1)]);
    assert_eq!(rig.ask().await, (Some((0, true)), 1_800, vec![0, 1]));
    let rig = Rig::new(&[(Denies, 1_800), (Knows, 1)]);
    assert_eq!(rig.ask().await, (Some((1, true)), 1_001, vec![0, 1]));
}

#[tokio::test(start_paused = true)]
async fn a_silent_first_server_costs_one_visitor_a_second_and_the_others_nothing() {
    let rig = Rig::new(&[(Nothing, 0), (Knows, 10)]);
    assert_eq!(rig.ask().await, (Some((1, true)), 1_010, vec![0, 1]));
    for _ in 0..3 {
        assert_eq!(rig.ask().await, (Some((1, true)), 10, vec![0, 1]));
    }
    // Its silence says little against a server that answers.
    rig.set(1, (Denies, 10));
    assert_eq!(rig.ask().await, (Some((1, false)), 500, vec![0, 1]));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_speaks_again_comes_first_again() {
    let rig = Rig::new(&[(Nothing, 0), (Knows, 10)]);
    rig.ask().await;
    // Its answer comes after that of the other, and is heard.
    rig.set(0, (Knows, 40));
    assert_eq!(rig.ask().await, (Some((1, true)), 10, vec![0, 1]));
    sleep(Duration::from_millis(50)).await;
    assert_eq!(rig.ask().await, (Some((0, true)), 40, vec![0]));
}

#[tokio::test(start_paused = true)]
async fn a_question_whose_answer_never_comes_makes_no_server_silent_that_answers_others() {
    let rig = Rig::new(&[(Nothing, 0), (Knows, 10)]);
    let question = rig.ask();
    let other = async {
        sleep(Duration::from_millis(500)).await;
        rig.health.heard(address(0));
    };
    tokio::join!(question, other);
    rig.set(0, (Knows, 40));
    assert_eq!(rig.ask().await, (Some((0, true)), 40, vec![0]));
}

#[tokio::test(start_paused = true)]
async fn no_address_is_believed_from_a_later_server_once_the_first_was_silent_for_the_whole_wait() {
    let rig = Rig::new(&[(Nothing, 0), (Denies, 10)]);
    assert_eq!(rig.ask().await, (Some((1, false)), 5_000, vec![0, 1]));
    assert_eq!(rig.ask().await, (Some((1, false)), 500, vec![0, 1]));
}

#[tokio::test(start_paused = true)]
async fn servers_that_are_all_silent_are_asked_in_order_the_next_time() {
    let rig = Rig::new(&[(Nothing, 0), (Nothing, 0)]);
    assert_eq!(rig.ask().await, (None, 6_000, vec![0, 1]));
    rig.set(0, (Knows, 40));
    rig.set(1, (Denies, 0));
    assert_eq!(rig.ask().await, (Some((0, true)), 40, vec![0]));
}

#[tokio::test(start_paused = true)]
async fn few_questions_linger() {
    let rig = Rig::new(&[(Nothing, 0), (Knows, 10)]);
    for _ in 0..2 * LINGERING {
        rig.ask().await;
    }
    assert!(rig.health.lingering.load(Ordering::Relaxed) <= LINGERING);
    sleep(2 * WAIT).await;
    assert_eq!(rig.health.lingering.load(Ordering::Relaxed), 0);
}
