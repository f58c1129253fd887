//! What a board makes of looks, and which lines its readers get.

use std::time::Duration;

use ops::ClientChanges;
use ops::clients::{Held, Refused};
use ops::status::{Carrier, Down, ServiceState, Tcp};
use serde_json::{Value, json};
use tokio::time::advance;

use super::*;

fn service(name: &str, bytes_in: u64) -> Service {
    let state = ServiceState::Up.into();
    Service { name: name.into(), bytes_in, state, ..Service::default() }
}

fn session(peer: &str, services: Vec<Service>) -> Session {
    let state = SessionState::Up.into();
    Session { peer: peer.into(), services, state, ..Session::default() }
}

fn client(name: &str, links: u64) -> Client {
    Client { name: name.into(), links, ..Client::default() }.settled()
}

/// A look at a server.
fn look(sessions: Vec<(u64, Session)>, clients: Vec<Client>) -> StatusDelta {
    let clients = Some(ClientChanges { list: clients, gone: Vec::new() });
    StatusDelta { sessions, clients, ..StatusDelta::default() }
}

/// A reader of changes, as a page is one.
#[derive(Default)]
struct Reader {
    after: u64,
    rows: BTreeMap<String, Value>,
    /// The rows of the last line.
    keys: Vec<String>,
    was_whole: bool,
}

impl Reader {
    fn read(&mut self, line: Option<String>, key: &str) {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        self.was_whole = line["whole"].as_bool().unwrap();
        if self.was_whole {
            assert!(line.get("after").is_none());
            self.rows.clear();
        } else {
            assert_eq!(line["after"], self.after, "the line goes on from the last one");
        }
        for id in line["gone"].as_array().into_iter().flatten() {
            assert!(self.rows.remove(id.as_str().unwrap()).is_some(), "{id}");
        }
        self.keys.clear();
        for row in line["list"].as_array().unwrap() {
            self.keys.push(row[key].as_str().unwrap().to_owned());
            self.rows.insert(row[key].as_str().unwrap().to_owned(), row.clone());
        }
        self.after = line["revision"].as_u64().unwrap();
        assert_eq!(line["total"], self.rows.len());
    }

    fn services(&mut self, board: &Board) -> &[String] {
        self.read(board.services_line(Some(self.after)), "id");
        &self.keys
    }

    fn clients(&mut self, board: &Board) -> &[String] {
        self.read(board.clients_line(Some(self.after)), "name");
        &self.keys
    }

    /// The rows are those that a whole line has.
    fn agrees(&self, whole: Option<String>, key: &str) {
        let whole: Value = serde_json::from_str(&whole.unwrap()).unwrap();
        assert!(whole.get("whole").is_none(), "a reader that asked for no changes gets none");
        let all = whole["list"].as_array().unwrap().iter();
        let all: BTreeMap<_, _> =
            all.map(|row| (row[key].as_str().unwrap().to_owned(), row.clone())).collect();
        assert_eq!(self.rows, all);
    }
}

async fn second(board: &mut Board, delta: StatusDelta) {
    advance(Duration::from_secs(1)).await;
    board.update(delta, Instant::now());
}

#[tokio::test(start_paused = true)]
async fn a_server_of_a_client_is_in_charge_or_stands_by() {
    let mut board = Board::default();
    let server = |name: &str, standby, why: &str| Session {
        standby,
        why: why.into(),
        ..session(name, Vec::new())
    };
    let of_client =
        |sessions, whole| StatusDelta { whole, sessions, clients: None, ..StatusDelta::default() };
    let begin = vec![
        (1, server("fra", false, "the first server that answers")),
        (2, server("nyc", true, "server fra has the services")),
    ];
    second(&mut board, of_client(begin, true)).await;
    let mut reader = Reader::default();
    reader.clients(&board);
    let charges = |reader: &Reader| ["fra", "nyc"].map(|name| reader.rows[name]["charge"].clone());
    assert_eq!(charges(&reader), [json!("in_charge"), json!("standby")]);
    let taken = vec![
        (1, server("fra", true, "server nyc has the services")),
        (2, server("nyc", false, "server fra is silent")),
    ];
    second(&mut board, of_client(taken, false)).await;
    assert_eq!(reader.clients(&board), ["fra", "nyc"], "the rows have changed");
    assert_eq!(charges(&reader), [json!("standby"), json!("in_charge")]);
    // With `use: all` a server has no part to tell.
    let all = vec![(1, server("fra", false, "")), (2, server("nyc", false, ""))];
    second(&mut board, of_client(all, true)).await;
    reader.clients(&board);
    assert_eq!(charges(&reader), [Value::Null, Value::Null]);
}

#[tokio::test(start_paused = true)]
async fn lines_have_the_rows_that_came_changed_and_went() {
    let mut board = Board::default();
    let (mut services, mut clients, mut late) =
        (Reader::default(), Reader::default(), Reader::default());
    let whole = StatusDelta {
        whole: true,
        ..look(
            vec![
                (1, session("a", vec![service("web", 0), service("ssh", 0)])),
                (2, session("b", vec![service("db", 0)])),
            ],
            vec![client("a", 1), client("b", 1), client("c", 0)],
        )
    };
    second(&mut board, whole).await;
    assert_eq!(services.services(&board), ["1.0", "1.1", "2.0"]);
    assert_eq!(clients.clients(&board), ["a", "b", "c"]);
    assert!(services.was_whole && clients.was_whole);
    late.services(&board);

    // Nothing has changed: a line without rows.
    second(&mut board, look(vec![], vec![])).await;
    assert!(services.services(&board).is_empty() && !services.was_whole);
    assert!(clients.clients(&board).is_empty() && !clients.was_whole);

    // A service moves: its row and that of its client, and both once more when it rests.
    let moved = session("a", vec![service("web", 500), service("ssh", 0)]);
    second(&mut board, look(vec![(1, moved)], vec![])).await;
    assert_eq!(
        (services.services(&board), clients.clients(&board)),
        (&["1.0".into()][..], &["a".into()][..])
    );
    assert_eq!(services.rows["1.0"]["in_bytes_per_second"], 500);
    assert_eq!(clients.rows["a"]["in_bytes_per_second"], 500);
    assert_eq!(clients.rows["a"]["bytes_in"], 500);
    second(&mut board, look(vec![], vec![])).await;
    assert_eq!(
        (services.services(&board), clients.clients(&board)),
        (&["1.0".into()][..], &["a".into()][..])
    );
    assert_eq!(services.rows["1.0"]["in_bytes_per_second"], 0);
    second(&mut board, look(vec![], vec![])).await;
    assert!(services.services(&board).is_empty() && clients.clients(&board).is_empty());

    // A client comes, another goes, and a session ends.
    let come = StatusDelta {
        gone: vec![2],
        clients: Some(ClientChanges { list: vec![client("d", 1)], gone: vec!["c".into()] }),
        ..look(vec![(3, session("d", vec![service("dns", 0)]))], vec![])
    };
    second(&mut board, come).await;
    assert_eq!(services.services(&board), ["3.0"]);
    assert_eq!(clients.clients(&board), ["b", "d"], "b has lost its service");
    services.agrees(board.services_line(None), "id");
    clients.agrees(board.clients_line(None), "name");
    assert_eq!(services.rows.len(), 3);

    // A reader that had no line for five seconds gets each row once.
    assert_eq!(late.services(&board), ["1.0", "3.0"]);
    assert!(!late.was_whole);
    late.agrees(board.services_line(None), "id");

    // The daemon tells all again: what is missing is gone, and what is the same is not told.
    let anew = StatusDelta {
        whole: true,
        ..look(vec![(3, session("d", vec![service("dns", 0)]))], vec![client("d", 1)])
    };
    second(&mut board, anew).await;
    assert!(services.services(&board).is_empty() && clients.clients(&board).is_empty());
    assert_eq!((services.rows.len(), clients.rows.len()), (1, 1));
    services.agrees(board.services_line(None), "id");
}

#[tokio::test(start_paused = true)]
async fn a_service_in_the_place_of_another_has_no_rate_of_it() {
    let mut board = Board::default();
    let mut reader = Reader::default();
    let one = |services| look(vec![(1, session("a", services))], vec![]);
    second(&mut board, one(vec![service("web", 10), service("ssh", 9_000)])).await;
    reader.services(&board);
    second(&mut board, one(vec![service("ssh", 9_500)])).await;
    assert_eq!(reader.services(&board), ["1.0"]);
    assert_eq!(reader.rows["1.0"]["name"], "ssh");
    assert_eq!(reader.rows["1.0"]["in_bytes_per_second"], 0, "the row before was of another one");
    let sums: Vec<_> = board.sums.iter().map(|(name, sum)| (name.as_str(), sum.bytes.0)).collect();
    assert_eq!(sums, [("client:a", 9_500), ("service:ssh", 9_500)]);
    let end = StatusDelta { gone: vec![1], ..look(vec![], vec![]) };
    second(&mut board, end).await;
    assert!(board.sums.is_empty() && board.peers.is_empty() && board.moving.is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_many_services_the_busiest_are_listed() {
    let mut board = Board::default();
    let mut reader = Reader::default();
    let all = |last: u64| {
        (0..LISTED as u64 + 5).map(move |n| service(&format!("s{n}"), u64::from(n == 1_003) * last))
    };
    second(&mut board, look(vec![(1, session("a", all(0).collect()))], vec![])).await;
    let line: Value = serde_json::from_str(&board.services_line(Some(0)).unwrap()).unwrap();
    assert_eq!((&line["total"], line["list"].as_array().unwrap().len()), (&1_005.into(), LISTED));
    reader.after = board.revision;
    second(&mut board, look(vec![(1, session("a", all(100).collect()))], vec![])).await;
    let line: Value =
        serde_json::from_str(&board.services_line(Some(reader.after)).unwrap()).unwrap();
    assert_eq!(line["list"][0]["name"], "s1003");
    assert_eq!((line["list"].as_array().unwrap().len(), &line["gone"]), (1, &json!(["1.999"])));
    let busiest: Value = serde_json::from_str(&board.busiest_line(6).unwrap()).unwrap();
    assert_eq!((&busiest["total"], &busiest["list"][0]["name"]), (&1_005.into(), &"s1003".into()));
    assert_eq!(busiest["list"].as_array().unwrap().len(), 1, "the others rest");
    second(&mut board, look(vec![], vec![])).await;
    let busiest: Value = serde_json::from_str(&board.busiest_line(6).unwrap()).unwrap();
    assert_eq!(busiest["list"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn what_needs_somebody_is_told_when_it_changes() {
    let mut board = Board::default();
    let down = Down { seconds: 4, reason: "refused".into(), ..Down::default() };
    let mut failed = Service { down: Some(down), ..service("db", 0) };
    failed.settle();
    let refused = Refused { seconds_ago: 3_590, reason: "no".into(), ..Refused::default() };
    let late = Client { refused: Some(refused), ..client("b", 1) };
    let held = Client { hold: Some(Held::default()), ..client("c", 0) }.settled();
    let all = look(
        vec![(1, session("a", vec![service("web", 0), failed]))],
        vec![client("a", 1), late, held],
    );
    second(&mut board, all).await;
    let (mut sent, mut other) = (None, None);
    let needs = |board: &Board, sent: &mut Option<u64>| {
        board.needs_line(sent).map(|line| serde_json::from_str::<Value>(&line).unwrap())
    };
    let line = needs(&board, &mut sent).unwrap();
    assert_eq!(
        (&line["troubled_services_total"], &line["troubled_clients_total"]),
        (&1.into(), &2.into())
    );
    assert_eq!(line["troubled_services"][0]["state"], "target_down");
    assert_eq!(line["troubled_services"][0]["down"]["seconds"], 4);
    assert_eq!(
        (&line["troubled_clients"][0]["name"], &line["troubled_clients"][1]["name"]),
        (&"b".into(), &"c".into())
    );
    second(&mut board, look(vec![], vec![])).await;
    assert_eq!(needs(&board, &mut sent), None, "it is as it was");
    assert_eq!(needs(&board, &mut other).unwrap()["troubled_services"][0]["down"]["seconds"], 5);
    // The refusal is history after an hour.
    for _ in 0..10 {
        second(&mut board, look(vec![], vec![])).await;
    }
    let line = needs(&board, &mut sent).unwrap();
    assert_eq!(
        (&line["troubled_clients_total"], &line["troubled_clients"][0]["name"]),
        (&1.into(), &"c".into())
    );
    assert_eq!(line["troubled_clients"][0]["hold"]["seconds"], 11, "seconds go on");
}

#[tokio::test(start_paused = true)]
async fn a_client_has_its_servers_and_seconds_go_on() {
    let mut board = Board::default();
    let mut reader = Reader::default();
    let delta = |state: SessionState| StatusDelta {
        whole: true,
        sessions: vec![(0, Session { state: state.into(), ..session("server", vec![]) })],
        ..StatusDelta::default()
    };
    second(&mut board, delta(SessionState::Up)).await;
    assert_eq!(reader.clients(&board), ["server"]);
    second(&mut board, delta(SessionState::Up)).await;
    assert!(reader.clients(&board).is_empty());
    second(&mut board, delta(SessionState::Unreachable)).await;
    assert_eq!(reader.clients(&board), ["server"]);
    assert_eq!(reader.rows["server"]["state"], "unreachable");
    assert!(board.needs_line(&mut None).unwrap().contains("unreachable"));
    // The server of a session has another name now.
    let other = StatusDelta {
        whole: true,
        sessions: vec![(0, session("other", vec![]))],
        ..StatusDelta::default()
    };
    second(&mut board, other).await;
    assert_eq!(reader.clients(&board), ["other"]);
    reader.agrees(board.clients_line(None), "name");
    assert_eq!(board.peers.len(), 1);
}

#[test]
fn figures_of_connections_stay_until_the_kernel_is_asked_again() {
    let link = |serial, number, rtt_micros: Option<u64>| {
        let tcp = rtt_micros.map(|micros| Tcp { rtt_micros: Some(micros), ..Tcp::default() });
        let carriers = vec![Carrier { number, tcp, ..Carrier::default() }];
        Link { serial, carriers, ..Link::default() }
    };
    let old = [link(1, 1, Some(7)), link(2, 1, Some(8)), link(3, 1, Some(9))];
    let mut new = [link(1, 1, None), link(2, 2, None), link(3, 1, Some(10))];
    keep_figures(&mut new, &old);
    let rtts = new.map(|link| link.carriers[0].tcp.and_then(|tcp| tcp.rtt_micros));
    assert_eq!(rtts, [Some(7), None, Some(10)]);
}
