//! A client that visits a private service tells the addresses of its programs, and may tell any.

use super::*;

/// The tokens of the visitors, which the service has for them.
const OF_LAPTOP: &str = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA1bC2dE3fG";
const OF_PHONE: &str = "cD5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA1bC2dE3fGaB3";

/// Tells the first thing that happens to a stream: `None` for bytes, or the code of a reset.
#[derive(Debug)]
struct First(RefCell<Option<oneshot::Sender<Option<ResetCode>>>>);

impl First {
    fn tell(&self, what: Option<ResetCode>) {
        if let Some(tell) = self.0.take() {
            let _ = tell.send(what);
        }
    }
}

impl Outlet for First {
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        self.tell(None);
        pieces.drain(..).map(|piece| piece.len()).sum()
    }
    fn finish(&self) {}
    fn reset(&self, code: ResetCode) {
        self.tell(Some(code));
    }
    fn stop(&self, _code: ResetCode) {}
    fn room(&self) {}
}

/// Streams that a client holds until it is dropped, with what happened to each first.
struct Held {
    outcomes: Vec<Option<ResetCode>>,
    _release: oneshot::Sender<()>,
}

impl Held {
    fn served(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.is_none()).count()
    }
}

/// Opens a stream to the service `home/few` for each of these claims, on the link of a client.
async fn open(client: &Client, claims: Vec<Option<SocketAddr>>) -> Held {
    let (reply, outcomes) = oneshot::channel();
    let (release, released) = oneshot::channel::<()>();
    let all = move |worker: &Rc<Worker>| {
        let mut links = worker.state.all_links().into_iter();
        let (_, link) = links.find(|(session, _)| session.name == "home/few").unwrap();
        let (mut inlets, mut firsts) = (Vec::new(), Vec::new());
        for visitor in claims {
            let (tell, first) = oneshot::channel();
            let target = Target::Service("few".to_owned());
            let open = Open { target, visitor, priority: Priority::Normal, fields: None };
            let inlet = link.open(open, Rc::new(First(RefCell::new(Some(tell))))).unwrap();
            inlet.send(&mut BytesMut::zeroed(proto::HEAD_ROOM + 1));
            inlets.push(inlet);
            firsts.push(first);
        }
        tokio::task::spawn_local(async move {
            let mut outcomes = Vec::new();
            for first in firsts {
                outcomes.push(first.await.unwrap());
            }
            let _ = reply.send(outcomes);
            let _ = released.await;
            drop(inlets);
        });
    };
    client.workers.handles()[0].call(all).await.unwrap();
    let outcomes = timeout(SOON, outcomes).await.unwrap().unwrap();
    Held { outcomes, _release: release }
}

#[tokio::test]
async fn the_limit_of_a_source_counts_the_client_that_visits_whatever_addresses_it_claims() {
    let text = format!(
        "listen: tcp://127.0.0.1:0\nworkers: 1\nclients:\n  - {{ name: home, token: {TOKEN} }}\n  - \
         {{ name: laptop, token: {OF_LAPTOP}, allow: {{ visit: home/few }} }}\n  - {{ name: phone, \
         token: {OF_PHONE}, allow: {{ visit: home/few }} }}\n"
    );
    let text = Text { name: "server.yaml", text: &text };
    let config = loaded(config::load_server(Some(text), &ServerFlags::default(), &sources()));
    let server = Server::start(config, None).await.unwrap();
    let url = server.listen()[0].clone();
    let client = async |name: &str, token: &str, more: String| {
        let text = format!(
            "servers: {url}\nname: {name}\ntoken: {token}\nworkers: 1\nconnections: 1\nretry: {{ \
             min: 5ms, max: 20ms }}\n{more}"
        );
        let text = Text { name: "client.yaml", text: &text };
        let config = config::load_client(Some(text), &ClientFlags::default(), &sources());
        Client::start(loaded(config)).await.unwrap()
    };
    let origin = Origin::echo().unwrap();
    let service = format!(
        "services:\n  - {{ name: few, target: \"tcp://{}\", public: private, visitors: [{{ name: \
         laptop, token: {OF_LAPTOP} }}, {{ name: phone, token: {OF_PHONE} }}], limits: {{ source: \
         {{ streams: 2 }} }} }}\n",
        origin.address()
    );
    let home = client("home", TOKEN, service).await;
    let ports = [free_port(), free_port()];
    let forward = |port: SocketAddr, token: &str| {
        format!(
            "forwards:\n  - {{ listen: \"tcp://{port}\", target: \"service://home/few\", p2p: relay, \
             token: {token} }}\n"
        )
    };
    let laptop = client("laptop", OF_LAPTOP, forward(ports[0], OF_LAPTOP)).await;
    let phone = client("phone", OF_PHONE, forward(ports[1], OF_PHONE)).await;
    for port in ports {
        drop(timeout(SOON, visit(port, "first")).await.unwrap());
    }
    // The streams before may not have ended yet.
    let held = async |claims: Vec<Option<SocketAddr>>| {
        let poll = async {
            loop {
                let held = open(&laptop, claims.clone()).await;
                assert!(held.served() <= 2, "{:?}", held.outcomes);
                let mut refused = held.outcomes.iter().flatten();
                assert!(refused.all(|code| *code == ResetCode::Limit), "{:?}", held.outcomes);
                if held.served() == 2 {
                    return held;
                }
            }
        };
        timeout(SOON, poll).await.unwrap()
    };
    let forged = |n: u8| Some(SocketAddr::from(([198, 51, 100, n], 1000)));
    for claims in
        [(0..10).map(|_| forged(7)).collect(), (0..10).map(forged).collect(), vec![None; 10]]
    {
        drop(held(claims).await);
    }
    // A client that claims the address of the programs of another takes nothing from that one.
    let local = |port| Some(SocketAddr::from(([127, 0, 0, 1], port)));
    let held = held((1..=10).map(local).collect()).await;
    let visitors = [visit(ports[1], "one").await, visit(ports[1], "two").await];
    drop((held, visitors));
    phone.close().await;
    laptop.close().await;
    home.close().await;
    server.close().await;
}
