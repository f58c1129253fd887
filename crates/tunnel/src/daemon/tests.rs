//! Tests of the frame with a role that only records its calls.

use std::path::Path;
use std::sync::Mutex;

use ops::command::{ReadStatus, Stop};
use ops::status::{DaemonState, Status};
use ops::{Certificates, Daemon, Foreseen, Reloaded, Role, SendFuture, Settings};
use tokio::sync::Notify;

use super::*;

#[derive(Default)]
struct Recorded {
    seen: Mutex<Vec<&'static str>>,
    up: Notify,
    drained: Notify,
    api: Option<std::net::SocketAddr>,
}

impl Recorded {
    fn note(&self, what: &'static str) {
        self.seen.lock().unwrap().push(what);
    }
}

impl Daemon for Recorded {
    fn role(&self) -> Role {
        Role::Server
    }

    fn status(&self) -> SendFuture<'_, Status> {
        Box::pin(async { Status { state: DaemonState::Running.into(), ..Status::default() } })
    }
}

impl Serving for Recorded {
    fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        self.note("reload");
        Box::pin(async { Ok(Reloaded::default()) })
    }
    fn check(&self, _: String) -> anyhow::Result<Foreseen> {
        Ok(Foreseen::default())
    }
    fn summary(&self) -> String {
        self.up.notify_one();
        "recording".into()
    }
    fn common(&self) -> Common {
        let api = self.api.map(|at| format!("admin: {{ listen: {at}, token_file: t }}\n"));
        let text = "listen: tcp://[::1]:1\nclients: [{ name: a, token_file: t }]\n";
        let text = format!("{text}{}", api.unwrap_or_default());
        let text = Some(config::Text { name: "server.yaml", text: &text });
        let read = |_: &Path| Ok("q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi".to_owned());
        let sources = config::Sources { env: &|_| None, read: &read };
        let loaded = config::load_server(text, &config::ServerFlags::default(), &sources);
        loaded.unwrap().config.common
    }
    fn certificates(&self) -> &dyn Certificates {
        self
    }
    fn drain(&self) -> SendFuture<'_, ()> {
        self.note("drain");
        Box::pin(async {
            self.drained.notified().await;
            self.note("drained");
        })
    }
    fn close(&self) -> SendFuture<'_, ()> {
        self.note("close");
        Box::pin(async {})
    }
}

impl Certificates for Recorded {
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    fn renew(&self) -> SendFuture<'_, anyhow::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

fn frame(dir: &Path) -> Frame {
    let control = SocketPath { path: dir.join("c.sock"), fixed: true };
    let (warnings, binary) = (Vec::new(), Binary::of_process());
    let control = Some(control);
    let shares = Shares::default();
    let (configuration, former, life) = Default::default();
    Frame { control, is_needed: true, warnings, shares, configuration, binary, former, life }
}

#[tokio::test]
async fn a_stop_over_the_socket_drains_then_closes_and_shows_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let role = Arc::new(Recorded::default());
    let (started, frame): (Arc<dyn Serving>, _) = (role.clone(), frame(dir.path()));
    let path = frame.control.as_ref().unwrap().path.clone();
    let asked = path.clone();
    let asks = async {
        role.up.notified().await;
        let talk = tokio::task::spawn_blocking(move || {
            let connect = || control::Instance::connect(&asked).unwrap();
            let before = control::ask(&connect(), ReadStatus {}).unwrap();
            control::ask(&connect(), Stop { now: false }).unwrap();
            (before, control::ask(&connect(), ReadStatus {}).unwrap())
        });
        let (before, after) = talk.await.unwrap();
        role.drained.notify_one();
        (before, after)
    };
    let life = Life::new();
    let running = live(frame, &life, async || Ok(started));
    let (outcome, (before, after)) = tokio::join!(running, asks);
    outcome.unwrap();
    assert_eq!(before.state, DaemonState::Running);
    assert_eq!(before.pid, std::process::id());
    assert_eq!(after.state, DaemonState::Draining);
    assert_eq!(*role.seen.lock().unwrap(), ["drain", "drained", "close"]);
    assert!(!path.exists());
}

#[tokio::test]
async fn who_is_stopping_does_not_reload() {
    let (role, life) = (Arc::new(Recorded::default()), Life::new());
    let running = RunningDaemon::new(
        role.clone(),
        life.clone(),
        None,
        Vec::new(),
        (Binary::of_process(), Shares::default()),
    );
    running.reload().await.unwrap();
    life.drain();
    assert_eq!(running.reload().await.unwrap_err().to_string(), "it is stopping");
    assert_eq!(*role.seen.lock().unwrap(), ["reload"]);
}

#[tokio::test]
async fn a_second_wish_to_end_cuts_the_drain() {
    let dir = tempfile::tempdir().unwrap();
    let (role, life) = (Arc::new(Recorded::default()), Life::new());
    let (started, frame): (Arc<dyn Serving>, _) = (role.clone(), frame(dir.path()));
    let ends = async {
        role.up.notified().await;
        life.drain();
        life.end();
    };
    let (outcome, ()) = tokio::join!(live(frame, &life, async || Ok(started)), ends);
    outcome.unwrap();
    assert_eq!(role.seen.lock().unwrap().last(), Some(&"close"));
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_at_its_deadline() {
    let (role, life) = (Recorded::default(), Life::new());
    let started = tokio::time::Instant::now();
    drain(&role, Duration::from_secs(120), &life).await;
    assert_eq!(started.elapsed().as_secs(), 120);
}

#[tokio::test]
async fn a_role_whose_api_cannot_start_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let api = Some(taken.local_addr().unwrap());
    let role = Arc::new(Recorded { api, ..Recorded::default() });
    let started: Arc<dyn Serving> = role.clone();
    let outcome = live(frame(dir.path()), &Life::new(), async || Ok(started)).await;
    assert!(outcome.unwrap_err().to_string().contains("admin API on 127.0.0.1"));
    assert_eq!(*role.seen.lock().unwrap(), ["close"]);
}

#[tokio::test]
async fn a_role_that_cannot_start_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let frame = frame(dir.path());
    let start = async || Err::<Arc<dyn Serving>, _>(anyhow::anyhow!("port taken"));
    let socket = frame.control.as_ref().unwrap().path.clone();
    let error = live(frame, &Life::new(), start).await.unwrap_err();
    assert_eq!(error.to_string(), "port taken");
    assert!(!socket.exists());
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_role_starts_lets_a_quick_start_end_and_no_slow_one() {
    let life = Life::new();
    let after = async |milliseconds| {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        Ok(milliseconds)
    };
    let stop = async || life.drain();
    let (role, ()) = tokio::join!(started(after(100), &life), stop());
    assert_eq!(role.unwrap(), Some(100));
    let begun = tokio::time::Instant::now();
    assert_eq!(started(after(60_000), &life).await.unwrap(), None);
    assert_eq!(begun.elapsed(), LAST_STEPS);
    life.end();
    assert_eq!(started(after(100), &life).await.unwrap(), None);
    assert_eq!(begun.elapsed(), LAST_STEPS);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_process_is_told_at_once_through_all_that_came_after_it() {
    let (role, life, formers) =
        (Recorded::default(), Life::new(), Formers::accompany(None, async {}, Life::new()));
    // Numbers that no process has.
    let listed = |pid: u32| {
        let process = FormerProcess { pid: (4 << 20) + pid, ..FormerProcess::default() };
        Listed { process, slot: None }
    };
    formers.note(vec![listed(2), listed(1)]);
    let reports = watch::Sender::new(Vec::new());
    let mut reported = reports.subscribe();
    let hearing = async {
        reported.wait_for(|list| list.len() == 3).await.unwrap();
        let begun = tokio::time::Instant::now();
        formers.note(vec![listed(2)]);
        reported.wait_for(|list| list.len() == 2).await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
    };
    tokio::select! {
        () = report(&role, &formers, &life, &reports) => {}
        () = hearing => {}
    }
}
