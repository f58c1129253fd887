//! A client whose two servers have paths through each other.

use std::num::NonZeroUsize;

use testkit::wire::{Entry, Wire};

use super::*;

/// The servers `fra` and `nyc`, each with a wire between the client and its first listener.
struct Stage {
    servers: [Server; 2],
    /// The ports of the listeners, two of each server.
    ports: [[u16; 2]; 2],
    direct: [Wire; 2],
    /// The public port of the service at `fra`.
    public: SocketAddr,
    origin: Origin,
}

const NAMES: [&str; 2] = ["fra", "nyc"];

/// The right of the client at both servers to go to any port of this machine.
const RIGHT: &str = "via: ['127.0.0.1:1-65535']";

impl Stage {
    /// Starts the servers. `right` and `features` are those of `nyc`.
    async fn start(right: &str, features: Features) -> Self {
        let (public, origin) = (free_port(), Origin::echo().unwrap());
        let mut servers = Vec::new();
        for (right, features) in [(RIGHT, Features::OURS), (right, features)] {
            let text = format!(
                "listen: [tcp://127.0.0.1:0, tcp://127.0.0.1:0]\nworkers: 1\npublic_bind: \
                 127.0.0.1\nclients:\n  - {{ name: home, token: {TOKEN}, allow: {{ tcp: [{}], \
                 {right} }} }}\n",
                public.port()
            );
            let text = Text { name: "server.yaml", text: &text };
            let config =
                loaded(config::load_server(Some(text), &ServerFlags::default(), &sources()));
            let link = memory::link_config(&config.common);
            servers.push(
                Server::start_with(config, None, (link, features), None, None).await.unwrap(),
            );
        }
        let port = |url: &String| url.rsplit(':').next().unwrap().parse::<u16>().unwrap();
        let ports: Vec<[u16; 2]> = servers
            .iter()
            .map(|server| [0, 1].map(|nth: usize| port(&server.listen()[nth])))
            .collect();
        let ports: [_; 2] = ports.try_into().unwrap();
        let direct = ports.map(|[first, _]| Wire::to(first));
        Self { servers: servers.try_into().unwrap(), ports, direct, public, origin }
    }

    /// The direct path to a server.
    fn direct(&self, server: usize) -> String {
        format!("tcp://127.0.0.1:{}", self.direct[server].port())
    }

    /// The path to a server through the other server.
    fn through(&self, server: usize) -> String {
        let (port, via) = (self.ports[server][0], NAMES[1 - server]);
        format!("{{ url: 'tcp://127.0.0.1:{port}', via: {via} }}")
    }

    /// The configuration of a client with these paths to `fra` and to `nyc`, and these lines.
    fn config(&self, paths: [&[String]; 2], more: &str) -> ClientConfig {
        let mut text = String::from("servers:\n");
        for (name, paths) in NAMES.iter().zip(paths).filter(|(_, paths)| !paths.is_empty()) {
            text.push_str(&format!("  - {{ name: {name}, paths: [{}] }}\n", paths.join(", ")));
        }
        text.push_str(&format!(
            "name: home\ntoken: {TOKEN}\nworkers: 1\nconnections: 1\nretry: {{ min: 5ms, max: 50ms \
             }}\n{more}services:\n  - {{ name: echo, target: 'tcp://{}', public: 'tcp://:{}', \
             servers: fra }}\n",
            self.origin.address(),
            self.public.port()
        ));
        let text = Text { name: "client.yaml", text: &text };
        loaded(config::load_client(Some(text), &ClientFlags::default(), &sources()))
    }

    /// Breaks the direct path to a server: its connections are reset, and so are new ones.
    fn cut(&self, server: usize) {
        self.direct[server].entry(Entry::Refused);
        self.direct[server].kill();
    }

    /// Visits the service as soon as it is published.
    async fn wait_visitor(&self) -> TcpStream {
        let connect = async {
            loop {
                if let Ok(visitor) = TcpStream::connect(self.public).await {
                    return visitor;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let mut visitor = timeout(SOON, connect).await.unwrap();
        converse(&mut visitor, "hello").await;
        visitor
    }

    async fn stop(self, client: Client) {
        client.close().await;
        for server in self.servers {
            server.close().await;
        }
    }
}

/// The carriers to a server: the other server on the way, and whether the carrier is a standby.
async fn carriers(client: &Client, server: usize) -> Vec<(Option<String>, bool)> {
    let sessions = client.status().await.sessions;
    let own = sessions.into_iter().filter(|session| session.peer == NAMES[server]);
    let carriers = own.flat_map(|session| session.links).flat_map(|link| link.carriers);
    carriers.map(|carrier| (carrier.via.map(Into::into), carrier.standby)).collect()
}

/// Waits until the carriers to a server are so.
async fn wait_carriers(
    client: &Client,
    server: usize,
    limit: Duration,
    is_so: impl Fn(&[(Option<String>, bool)]) -> bool,
) {
    let poll = async {
        while !is_so(&carriers(client, server).await) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let found = timeout(limit, poll).await;
    assert!(found.is_ok(), "{}: {:?}", NAMES[server], client.status().await.sessions);
}

fn has_detour(carriers: &[(Option<String>, bool)]) -> bool {
    carriers.iter().any(|(via, _)| via.is_some())
}

#[tokio::test]
async fn a_link_takes_its_detour_when_its_own_loss_has_cut_the_idle_detour_off() {
    let stage = Stage::start(RIGHT, Features::OURS).await;
    let paths = [0, 1].map(|server| [stage.direct(server), stage.through(server)]);
    let config = stage.config([&paths[0], &paths[1]], "spread: backup\n");
    let client = Client::start(config).await.unwrap();
    let standby = async {
        loop {
            for server in [0, 1] {
                if has_detour(&carriers(&client, server).await) {
                    return server;
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    // The servers have paths through each other, and the first standby excludes the other.
    let server = timeout(SOON, standby).await.unwrap();
    let other = 1 - server;
    wait_carriers(&client, other, SOON, |carriers| carriers == [(None, false)]).await;
    stage.cut(other);
    let detour = Some(NAMES[server].to_owned());
    // Without the end of carriers inside a silent link it is 35 s; `crate::detours` has the exact
    // time in virtual time.
    wait_carriers(&client, other, SOON, |carriers| carriers == [(detour.clone(), false)]).await;
    wait_carriers(&client, server, SOON, |carriers| carriers == [(None, false)]).await;
    stage.stop(client).await;
}

#[tokio::test]
async fn a_client_that_stops_does_not_wait_for_a_carrier_that_took_a_detour_meanwhile() {
    let stage = Stage::start(RIGHT, Features::OURS).await;
    let fra = [stage.direct(0), stage.through(0)];
    let client = Client::start(stage.config([&fra, &[stage.direct(1)]], "")).await.unwrap();
    wait_carriers(&client, 1, SOON, |carriers| carriers == [(None, false)]).await;
    let mut visitor = stage.wait_visitor().await;
    let detour = Some("nyc".to_owned());
    let meanwhile = async {
        // The client has told its servers that it stops, and the visitor stays.
        tokio::time::sleep(Duration::from_millis(100)).await;
        stage.cut(0);
        wait_carriers(&client, 0, SOON, |carriers| carriers == [(detour.clone(), false)]).await;
        converse(&mut visitor, "over the detour").await;
        drop(visitor);
    };
    let (drained, ()) = tokio::join!(timeout(SOON, client.drain()), meanwhile);
    drained.expect("the links have no stream but the carrier");
    client.close().await;
    // The goodbye has passed the other server.
    let sessions = stage.servers[0].status().await.sessions;
    assert!(sessions.iter().all(|session| session.links.is_empty()), "{sessions:?}");
    for server in stage.servers {
        server.close().await;
    }
}

/// The figures of the path to `fra` through `nyc`: attempts, failures, and whether the path was
/// measured.
async fn figures(client: &Client) -> (u64, u64, bool) {
    let sessions = client.status().await.sessions;
    let own = sessions.iter().find(|session| session.peer == "fra").unwrap();
    let path = own.paths.iter().find(|path| path.path.contains("via nyc")).unwrap();
    (path.attempts, path.failures, path.rtt_micros.is_some())
}

#[tokio::test]
async fn a_path_through_a_server_that_is_away_is_no_failure_and_is_measured_when_it_is_there() {
    let stage = Stage::start(RIGHT, Features::OURS).await;
    stage.cut(1);
    let fra = [stage.direct(0), stage.through(0)];
    let folder = tempfile::tempdir().unwrap();
    let more = format!("choose: measured\nstate_dir: {}\n", folder.path().display());
    let config = stage.config([&fra, &[stage.direct(1)]], &more);
    let client = Client::start(config).await.unwrap();
    wait_carriers(&client, 0, SOON, |carriers| carriers == [(None, false)]).await;
    // A probe waits 2 s for the other server.
    tokio::time::sleep(Duration::from_millis(2800)).await;
    assert_eq!(figures(&client).await, (0, 0, false));
    stage.direct[1].entry(Entry::Open);
    let measured = async {
        while !figures(&client).await.2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, measured).await.unwrap();
    assert_eq!(figures(&client).await.1, 0);
    stage.stop(client).await;
}

/// Waits until the client has so many links to `nyc`, former links included.
async fn wait_links_to_nyc(client: &Client, count: usize) {
    let poll = async {
        loop {
            let sessions = client.status().await.sessions;
            let own = sessions.iter().filter(|session| session.peer == "nyc");
            if own.map(|session| session.links.len()).sum::<usize>() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let found = timeout(SOON, poll).await;
    assert!(found.is_ok(), "{:?}", client.status().await.sessions);
}

#[tokio::test]
async fn a_detour_follows_a_reload_that_changes_or_removes_the_other_server() {
    let stage = Stage::start(RIGHT, Features::OURS).await;
    stage.cut(0);
    let fra = [stage.direct(0), stage.through(0)];
    let client = Client::start(stage.config([&fra, &[stage.direct(1)]], "")).await.unwrap();
    let mut visitor = stage.wait_visitor().await;
    let detour = Some("nyc".to_owned());
    let is_detour = |carriers: &[(Option<String>, bool)]| carriers == [(detour.clone(), false)];
    wait_carriers(&client, 0, SOON, is_detour).await;

    let second = format!("tcp://127.0.0.1:{}", stage.ports[1][1]);
    client.apply(stage.config([&fra, &[second]], "")).await.unwrap();
    wait_links_to_nyc(&client, 1).await;
    wait_carriers(&client, 0, SOON, is_detour).await;
    converse(&mut visitor, "over the new link").await;

    stage.direct[0].entry(Entry::Open);
    client.apply(stage.config([&fra[..1], &[]], "")).await.unwrap();
    wait_links_to_nyc(&client, 0).await;
    wait_carriers(&client, 0, SOON, |carriers| !has_detour(carriers)).await;
    converse(&mut visitor, "over the direct path").await;

    // The stream of a link without another path stays on its detour.
    drop(visitor);
    client.apply(stage.config([&fra[1..], &[stage.direct(1)]], "")).await.unwrap();
    wait_links_to_nyc(&client, 1).await;
    wait_carriers(&client, 0, SOON, is_detour).await;
    let mut visitor = stage.wait_visitor().await;
    client.apply(stage.config([&fra[..1], &[]], "")).await.unwrap();
    wait_carriers(&client, 0, SOON, |carriers| carriers.len() == 2).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(has_detour(&carriers(&client, 0).await));
    converse(&mut visitor, "over the detour alone").await;
    drop(visitor);
    wait_links_to_nyc(&client, 0).await;
    stage.stop(client).await;
}

#[tokio::test]
async fn a_reload_adds_a_server_and_reaches_another_server_through_it_alone() {
    let stage = Stage::start(RIGHT, Features::OURS).await;
    let fra = [stage.direct(0), stage.through(0)];
    let client = Client::start(stage.config([&fra[..1], &[]], "")).await.unwrap();
    let mut visitor = stage.wait_visitor().await;
    let other = stage.config([&fra[1..], &[stage.direct(1)]], "");

    // A server that is away is no way: nothing changes.
    stage.cut(1);
    let refused = client.apply(other.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("there is no connection with what has changed"), "{refused}");
    let servers = || async { client.status().await.sessions.into_iter().map(|one| one.peer) };
    assert_eq!(servers().await.collect::<Vec<_>>(), ["fra"]);
    assert_eq!(carriers(&client, 0).await, [(None, false)]);
    converse(&mut visitor, "over the direct path").await;

    stage.direct[1].entry(Entry::Open);
    client.apply(other).await.unwrap();
    assert!(servers().await.any(|server| server == "nyc"));
    converse(&mut visitor, "over the former link").await;
    drop(visitor);
    let detour = Some("nyc".to_owned());
    wait_carriers(&client, 0, SOON, |carriers| carriers == [(detour.clone(), false)]).await;
    drop(stage.wait_visitor().await);
    stage.stop(client).await;
}

#[tokio::test]
async fn a_server_that_was_connected_ahead_gets_the_services() {
    let stage = Stage::start(RIGHT, Features::OURS).await;
    let fra = [stage.direct(0), stage.through(0)];
    let of_nyc = |mut config: ClientConfig| {
        config.services[0].servers.clear();
        config.connections = NonZeroUsize::new(2);
        config
    };
    let client = Client::start(of_nyc(stage.config([&fra[..1], &[]], ""))).await.unwrap();
    drop(stage.wait_visitor().await);
    client.apply(of_nyc(stage.config([&fra[1..], &[stage.direct(1)]], ""))).await.unwrap();
    wait_links_to_nyc(&client, 2).await;
    // Both servers are on this machine, so the address is in use.
    let all = client.shared.uplinks.all();
    let nyc = all.iter().find(|uplink| **uplink.label() == *"nyc").unwrap();
    let asked = async {
        while nyc.published.outcome("echo").is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, asked).await.expect("nyc is asked to publish the service");
    stage.stop(client).await;
}

#[tokio::test]
async fn a_server_that_does_not_know_detours_is_named_and_another_path_is_used() {
    let old = Features(Features::OURS.0 & !Features::DETOURS.0);
    let stage = Stage::start(RIGHT, old).await;
    stage.cut(0);
    let fra = [stage.through(0), stage.direct(0)];
    let client = Client::start(stage.config([&fra, &[stage.direct(1)]], "")).await.unwrap();
    let poll = async {
        loop {
            let sessions = client.status().await.sessions;
            let own = sessions.iter().find(|session| session.peer == "fra").unwrap();
            if own.state.to_string().contains("server nyc is too old to lead to other servers") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, poll).await.expect("the reason is told");
    stage.direct[0].entry(Entry::Open);
    wait_carriers(&client, 0, SOON, |carriers| carriers == [(None, false)]).await;
    stage.stop(client).await;
}
