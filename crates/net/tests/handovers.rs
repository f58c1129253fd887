//! Random sequences of upgrades, clients that sleep, and crashes, with a process for each
//! generation: a client that comes back finds its port free for the process that serves, and a port
//! that a living process has refuses no connect. The program starts itself as each generation.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use net::handover;
use net::inherited::{self, Inherited};

/// Set in the process of a generation.
const ROLE: &str = "NET_TEST_GENERATION";

/// What a generation answers begins with this.
const ANSWER: &str = "@";

const CLIENTS: usize = 4;
const STEPS: usize = 14;
const SEEDS: u64 = 10;

/// A generation, which does what its standard input says.
#[test]
fn generation() {
    if env::var_os(ROLE).is_none() {
        return;
    }
    let mut bound: BTreeMap<u16, Vec<TcpListener>> = BTreeMap::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (word, what) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match word {
            "take" => take(Path::new(what)),
            "give" => {
                let to = UnixStream::connect(what).unwrap();
                handover::give(&to).unwrap();
                (&to).write_all(b"text").unwrap();
                "done".to_owned()
            }
            "more" => format!("{}", handover::give_more(what == "all").unwrap()),
            "rounds" => inherited::rounds().to_string(),
            "serve" => {
                handover::serve();
                "done".to_owned()
            }
            "gone" => {
                handover::hand_over();
                "done".to_owned()
            }
            "bind" => {
                let port = what.parse().unwrap();
                match net::listen_group(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), 1) {
                    Ok(group) => {
                        bound.insert(port, group);
                        "done".to_owned()
                    }
                    Err(error) => error.to_string(),
                }
            }
            "close" => {
                bound.remove(&what.parse().unwrap());
                "done".to_owned()
            }
            other => panic!("{other}"),
        };
        println!("\n{ANSWER}{answer}");
    }
}

/// Takes the sockets of the former generation, and listens for further ones in a thread.
fn take(path: &Path) -> String {
    let listener = UnixListener::bind(path).unwrap();
    println!("\n{ANSWER}listening");
    let (from, _) = listener.accept().unwrap();
    handover::wait();
    let (all, _) = Inherited::receive_before_text(&from).unwrap();
    all.offer();
    thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let visitors = inherited::visitors().unwrap().unwrap();
            while visitors.next().await.is_some() {}
        });
    });
    "done".to_owned()
}

/// A process of a generation, as the test sees it.
struct Generation {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Generation {
    fn start() -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "generation", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, "yes").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Self { child, to, from }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        while self.from.read_line(&mut line).unwrap() > 0 {
            if let Some(answer) = line.strip_prefix(ANSWER) {
                return answer.trim_end().to_owned();
            }
            line.clear();
        }
        panic!("a generation has ended");
    }

    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }

    fn does(&mut self, line: &str) {
        assert_eq!(self.ask(line), "done", "{line}");
    }

    /// Waits until the further sockets of the former generation have come.
    fn has_rounds(&mut self, rounds: u64) {
        while self.ask("rounds").parse::<u64>().unwrap() < rounds {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A client with its port.
struct Client {
    port: u16,
    /// The number of the generation that has its entrance. `None`: that one has died.
    at: Option<u64>,
    sleeps: bool,
}

struct World {
    dir: PathBuf,
    /// The generations that live, with their numbers. The last one serves.
    all: Vec<(u64, Generation)>,
    clients: Vec<Client>,
    /// Counts generations and hand-overs.
    count: u64,
    random: u64,
    history: Vec<String>,
}

impl World {
    fn pick(&mut self, below: usize) -> usize {
        // Numerical Recipes: enough for a choice, and the same on each machine.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.random >> 33).unwrap() % below
    }

    /// The client begins anew at the process that serves.
    fn comes(&mut self, client: usize) {
        let port = self.clients[client].port;
        let (number, serving) = self.all.last_mut().unwrap();
        let number = *number;
        let bound = serving.ask(&format!("bind {port}"));
        assert_eq!(bound, "done", "client {client} after {:#?}", self.history);
        let before = self.clients[client].at.replace(number).filter(|before| *before != number);
        if let Some((_, former)) = self.all.iter_mut().find(|(of, _)| Some(*of) == before) {
            former.does(&format!("close {port}"));
        }
    }

    fn awake_come(&mut self) {
        for client in 0..self.clients.len() {
            let serving = self.all.last().unwrap().0;
            let one = &self.clients[client];
            if !one.sleeps && one.at != Some(serving) {
                self.comes(client);
            }
        }
    }

    /// The last generation starts the next one. A client may come to it meanwhile.
    fn hands_over(&mut self, late: Option<usize>) {
        self.count += 1;
        let path = self.dir.join(format!("{}", self.count));
        let mut next = Generation::start();
        next.say(&format!("take {}", path.display()));
        assert_eq!(next.hear(), "listening");
        let (_, former) = self.all.last_mut().unwrap();
        former.does(&format!("give {}", path.display()));
        assert_eq!(next.hear(), "done");
        if let Some(late) = late {
            self.comes(late);
        }
        let (_, former) = self.all.last_mut().unwrap();
        former.ask("more");
        next.has_rounds(1);
        next.does("serve");
        former.does("gone");
        self.all.push((self.count, next));
    }

    fn step(&mut self) {
        let client = self.pick(CLIENTS);
        match self.pick(6) {
            0 => {
                self.clients[client].sleeps = true;
                self.history.push(format!("client {client} sleeps"));
            }
            1 => {
                self.clients[client].sleeps = false;
                self.history.push(format!("client {client} wakes"));
            }
            2 if self.all.len() > 1 => {
                self.history
                    .push("the process that serves dies, and the former one begins another".into());
                let (dead, process) = self.all.pop().unwrap();
                drop(process);
                let lost = self.clients.iter_mut().filter(|client| client.at == Some(dead));
                lost.for_each(|client| client.at = None);
                // Each former process passes on what the older ones have.
                for nth in 1..self.all.len() {
                    let rounds = self.all[nth].1.ask("rounds").parse::<u64>().unwrap();
                    self.all[nth - 1].1.ask("more all");
                    self.all[nth].1.has_rounds(rounds + 1);
                }
                self.hands_over(None);
            }
            3 => {
                self.history
                    .push(format!("an upgrade, and client {client} wakes and comes amid it"));
                self.clients[client].sleeps = false;
                let serving = self.all.last().unwrap().0;
                let is_there = self.clients[client].at == Some(serving);
                self.hands_over((!is_there).then_some(client));
            }
            _ => {
                self.history.push("an upgrade".into());
                self.hands_over(None);
            }
        }
        // An upgrade may come before the clients have moved.
        if self.pick(3) > 0 {
            self.history.push("those awake come".into());
            self.awake_come();
        }
        let serving = self.all.len() - 1;
        let has_clients = |number: u64| self.clients.iter().any(|client| client.at == Some(number));
        // A former process ends after the older ones.
        let ended = self.all[..serving].iter().take_while(|(number, _)| !has_clients(*number));
        let ended = ended.count();
        self.all.drain(..ended);
        for client in self.clients.iter().filter(|client| client.at.is_some()) {
            let visitor = TcpStream::connect((Ipv4Addr::LOCALHOST, client.port));
            assert!(visitor.is_ok(), "{} after {:#?}", client.port, self.history);
        }
    }
}

#[test]
fn a_client_that_comes_back_finds_its_port_after_any_upgrades_and_crashes() {
    for seed in 0..SEEDS {
        let dir = tempfile::tempdir().unwrap();
        // The ports are free again as soon as this listener is closed: nothing has connected.
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken: Vec<TcpListener> = (0..CLIENTS).map(|_| free()).collect();
        let port = |one: TcpListener| one.local_addr().unwrap().port();
        // Some publish for the first time amid an upgrade.
        let client = |(nth, port)| Client { port, at: None, sleeps: nth % 2 == 1 };
        let clients = taken.into_iter().map(port).enumerate().map(client).collect();
        let all = vec![(0, Generation::start())];
        let history = vec![format!("seed {seed}")];
        let dir = dir.path().to_owned();
        let mut world = World { dir, all, clients, count: 0, random: seed, history };
        std::fs::create_dir_all(&world.dir).unwrap();
        world.awake_come();
        for _ in 0..STEPS {
            world.step();
        }
        world.clients.iter_mut().for_each(|client| client.sleeps = false);
        world.hands_over(None);
        world.awake_come();
        std::fs::remove_dir_all(&world.dir).unwrap();
    }
}
