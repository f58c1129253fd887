//! The daemon's side of the control socket.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use logging::RepeatLimit;
use net::guarded::{Guard, is_own_process};
use net::handover;
use ops::command::{self, AnyCommand, Connect, Context, FailedCommand};
use ops::socket_file::{self, PRIVATE, SocketFile};
use ops::state::create_private;
use ops::{Daemon, Life};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use crate::socket_path::SocketPath;

/// Longest request, in bytes: it can hold hundreds of services to publish. A longer line is a
/// mistake.
const MAX_REQUEST: u64 = 64 << 10;

/// Idle timeout of a connection, and longest wait for a reader. A silent connection belongs to a
/// forgotten shell.
const IDLE: Duration = Duration::from_secs(60);

/// Pause after an error of the listener. The usual cause is a full descriptor table.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// The largest number of connections at a time, and the backlog of the listener.
const CONNECTIONS: usize = 16;

/// A bound control socket. The socket file is removed when this value is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    file: SocketFile,
    /// Keeps targets away from the socket, and from the sockets of other daemons next to it.
    _guards: (Guard, Option<Guard>),
    /// Whether a process belongs to this daemon, which has no reason to send requests: it would act
    /// for a visitor.
    is_own: fn(u32) -> bool,
}

impl ControlSocket {
    /// Binds the socket with mode 0600, and replaces the socket file of a daemon that has ended.
    /// Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// The path cannot be bound. The error contains the path, and says whether another daemon or
    /// another kind of file is in the way.
    pub fn bind(socket: &SocketPath) -> io::Result<Self> {
        let path = &socket.path;
        let named = |path: &Path, e: io::Error| {
            io::Error::new(e.kind(), format!("control socket {}: {e}", path.display()))
        };
        if let Some(folder) = path.parent() {
            create_private(folder).map_err(|e| named(path, e))?;
        }
        let made = match Self::listen(path) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && socket.fixed => {
                let taken = "another running tunnel has it; give this one another with --control";
                Err(named(path, io::Error::new(io::ErrorKind::AddrInUse, taken)))
            }
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                let path = socket.beside();
                Self::listen(&path).map_err(|e| named(&path, e))
            }
            made => made.map_err(|e| named(path, e)),
        };
        let mut made = made?;
        // A folder that the user has chosen may contain sockets of other programs.
        if let Some(folder) = path.parent().filter(|_| !socket.fixed) {
            made._guards.1 = Some(Guard::folder(folder).map_err(|e| named(path, e))?);
        }
        Ok(made)
    }

    fn listen(path: &Path) -> io::Result<Self> {
        let (socket, file) = socket_file::listen(path, PRIVATE, CONNECTIONS as i32)?;
        let _guards = (Guard::socket(path)?, None);
        Ok(Self {
            listener: UnixListener::from_std(socket)?,
            file,
            _guards,
            is_own: is_own_process,
        })
    }

    /// The path of the socket file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Accepts and serves connections until the future is dropped, or, after a hand-over, until the
    /// last connection has ended.
    pub async fn serve(self, source: Arc<dyn Daemon>, life: Life) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut conversations = tokio::task::JoinSet::new();
        let complaints = RepeatLimit::new();
        handover::serving().await;
        loop {
            // The semaphore is never closed, so the result is always `Ok`.
            let place = Arc::clone(&places).acquire_owned().await;
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = handover::handed_over() => break,
            };
            match accepted {
                Ok((stream, _)) if peer_of(&stream).is_some_and(self.is_own) => {
                    if complaints.pass((), Instant::now()).is_some() {
                        tracing::warn!(
                            "the control socket has refused a connection of this daemon itself: a \
                             service, a forward or an exit leads visitors to it (hint: `tunnel \
                             status` lists the targets)"
                        );
                    }
                    conversations.spawn(async move {
                        let _place = place;
                        drop(refuse(stream).await);
                    });
                }
                Ok((stream, _)) => {
                    let (source, life) = (Arc::clone(&source), life.clone());
                    conversations.spawn(async move {
                        let _place = place;
                        // The client is a command line tool, which reports its own errors.
                        drop(converse(stream, source.as_ref(), &life).await);
                    });
                }
                Err(e) => {
                    if complaints.pass((), Instant::now()).is_some() {
                        tracing::warn!(error = %e, "the control socket cannot accept connections: {e}");
                    }
                    sleep(EXHAUSTED).await;
                }
            }
            while conversations.try_join_next().is_some() {}
        }
        // New connections go to the next generation of the daemon. Open connections continue.
        drop(self.listener);
        while conversations.join_next().await.is_some() {}
    }
}

/// The process that has connected. `None`: the system does not reveal it, as for a process of
/// another container.
fn peer_of(stream: &UnixStream) -> Option<u32> {
    u32::try_from(stream.peer_cred().ok()?.pid()?).ok()
}

/// Answers a client that is a process of this daemon, without reading its request.
async fn refuse(mut stream: UnixStream) -> io::Result<()> {
    let why =
        "the control socket is for people of this machine, and not for visitors of the tunnel";
    write(&mut stream, failed(anyhow::Error::msg(why))?).await
}

async fn converse(stream: UnixStream, source: &dyn Daemon, life: &Life) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut stream).take(MAX_REQUEST);
        if timeout(IDLE, bounded.read_until(b'\n', &mut line)).await?? == 0 {
            return Ok(());
        }
        let whole = line.ends_with(b"\n");
        let reply = match command::read_line(&line) {
            _ if !whole => failed(anyhow!("a request is one line of at most {MAX_REQUEST} bytes"))?,
            Ok(command) => match command.of_type::<Connect>() {
                Some(command) => return connect(stream, command, source).await,
                None => answer(&mut stream, command.as_ref(), source, life).await?,
            },
            Err(why) => failed(why)?,
        };
        write(stream.get_mut(), reply).await?;
        if !whole {
            return Ok(());
        }
    }
}

/// Runs a command. Writes the intermediate answers, and returns the final answer. If the connection
/// ends before, the command ends as well.
async fn answer(
    stream: &mut BufReader<UnixStream>,
    command: &dyn AnyCommand,
    daemon: &dyn Daemon,
    life: &Life,
) -> io::Result<Vec<u8>> {
    let (news, mut inbox) = mpsc::channel(1);
    let cx = Context { daemon, over: "the control socket", life, news };
    let mut outcome = command.run(&cx);
    loop {
        tokio::select! {
            outcome = &mut outcome => {
                return outcome.and_then(|answer| Ok(answer.line()?)).or_else(failed);
            }
            Some(news) = inbox.recv() => write(stream.get_mut(), serde_json::to_vec(&news)?).await?,
        }
    }
}

/// Hands the connection over as the byte stream to a target. A refusal is the last answer.
async fn connect(
    stream: BufReader<UnixStream>,
    command: &Connect,
    source: &dyn Daemon,
) -> io::Result<()> {
    let is_early = !stream.buffer().is_empty();
    let socket = stream.into_inner().into_std()?;
    // The daemon owns the socket from now on, except after a refusal. This copy is dropped on
    // return, so that the other end sees the end of the stream.
    let own = socket.try_clone()?;
    let outcome = if is_early {
        Err(anyhow!("bytes arrived before the answer"))
    } else {
        command.connect(source, socket).await
    };
    match outcome {
        Ok(()) => Ok(()),
        Err(why) => write(&mut UnixStream::from_std(own)?, failed(why)?).await,
    }
}

async fn write(stream: &mut UnixStream, mut line: Vec<u8>) -> io::Result<()> {
    line.push(b'\n');
    timeout(IDLE, stream.write_all(&line)).await?
}

/// The line about a failure.
fn failed(why: impl Into<anyhow::Error>) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&FailedCommand::from(why.into()))?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener as StdListener;

    use ops::WrongConfig;
    use ops::command::{News, ReadStatus};
    use ops::status::{Status, sample};
    use ops::{Connector, Phase, Role, SendFuture};

    use super::*;
    use crate::ask::{self, Instance};

    struct Fixed;

    impl Daemon for Fixed {
        fn role(&self) -> Role {
            Role::Server
        }

        fn status(&self) -> SendFuture<'_, Status> {
            Box::pin(async { sample() })
        }
    }

    fn socket(dir: &tempfile::TempDir, fixed: bool) -> SocketPath {
        SocketPath { path: dir.path().join("d/server.sock"), fixed }
    }

    async fn raw(path: &Path, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await.unwrap();
        line
    }

    #[tokio::test]
    async fn status_and_stop_are_answered_and_the_file_is_private_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let socket = ControlSocket::bind(&socket(&dir, true)).unwrap();
        let path = socket.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let life = Life::new();
        let serving = tokio::spawn(socket.serve(Arc::new(Fixed), life.clone()));

        let asked = path.clone();
        let status = tokio::task::spawn_blocking(move || {
            ask::ask(&Instance::connect(&asked).unwrap(), ReadStatus {})
        });
        assert_eq!(status.await.unwrap().unwrap(), sample());
        assert_eq!(life.phase(), Phase::Running);
        let stop = raw(&path, b"{\"command\":\"stop\"}\n").await;
        assert_eq!(stop, format!("{{\"stopping\":{{\"pid\":{}}}}}\n", std::process::id()));
        assert_eq!(life.phase(), Phase::Draining);

        serving.abort();
        assert!(serving.await.unwrap_err().is_cancelled());
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_process_of_the_daemon_gets_no_answer_to_its_request() {
        let dir = tempfile::tempdir().unwrap();
        let mut socket = ControlSocket::bind(&socket(&dir, true)).unwrap();
        socket.is_own = |id| id == std::process::id();
        let (path, life) = (socket.path().to_owned(), Life::new());
        let serving = tokio::spawn(socket.serve(Arc::new(Fixed), life.clone()));
        let said = raw(&path, b"{\"command\":\"stop\"}\n").await;
        assert!(said.contains("not for visitors of the tunnel"), "{said}");
        assert_eq!(life.phase(), Phase::Running);
        serving.abort();
    }

    #[tokio::test]
    async fn no_target_leads_to_the_socket_while_it_is_bound() {
        let dir = tempfile::tempdir().unwrap();
        let socket = ControlSocket::bind(&socket(&dir, true)).unwrap();
        let path = socket.path().to_owned();
        assert!(net::guarded::leads_to_socket(&path));
        drop(socket);
        assert!(!net::guarded::leads_to_socket(&path));
    }

    /// A daemon whose only target echoes.
    struct Echo;

    impl Daemon for Echo {
        fn role(&self) -> Role {
            Role::Server
        }

        fn status(&self) -> SendFuture<'_, Status> {
            Box::pin(async { sample() })
        }

        fn connector(&self) -> Option<&dyn Connector> {
            Some(self)
        }
    }

    impl Connector for Echo {
        fn connect(
            &self,
            target: ops::connect::Target,
            socket: std::os::unix::net::UnixStream,
        ) -> SendFuture<'_, anyhow::Result<()>> {
            Box::pin(async move {
                anyhow::ensure!(target.to_string() == "tcp://echo:7", "{target} refused");
                let mut socket = UnixStream::from_std(socket)?;
                // With the first bytes of the target.
                socket.write_all(&[ops::connect::CONNECTED, b"hello "].concat()).await?;
                tokio::spawn(async move {
                    let (mut from, mut to) = socket.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
                Ok(())
            })
        }
    }

    #[tokio::test]
    async fn a_connection_becomes_the_stream_to_a_target_or_has_the_reason() {
        use std::io::{Read, Write};
        let line = serde_json::to_vec(&News::Ok).unwrap();
        assert_eq!([&line[..], b"\n"].concat(), ops::connect::CONNECTED);

        let dir = tempfile::tempdir().unwrap();
        let socket = ControlSocket::bind(&socket(&dir, true)).unwrap();
        let path = socket.path().to_owned();
        let serving = tokio::spawn(socket.serve(Arc::new(Echo), Life::new()));
        let asked = path.clone();
        let connect =
            move |target: &str| ask::connect(Instance::connect(&asked).unwrap(), target.to_owned());
        let echoed = tokio::task::spawn_blocking(move || {
            let refused = connect("other:7").unwrap_err();
            assert!(format!("{refused:#}").ends_with("tcp://other:7 refused"), "{refused:#}");
            assert!(connect("udp://echo:7").unwrap_err().is::<WrongConfig>());
            let ask::Connected { mut socket, mut early } = connect("echo:7").unwrap();
            socket.write_all(b"world").unwrap();
            socket.shutdown(std::net::Shutdown::Write).unwrap();
            socket.read_to_end(&mut early).unwrap();
            early
        });
        assert_eq!(echoed.await.unwrap(), b"hello world", "no byte is lost at the hand-over");
        let both = raw(&path, b"{\"command\":\"connect\",\"target\":\"echo:7\"}\nearly").await;
        assert!(both.contains("before the answer"), "{both}");
        serving.abort();
    }

    #[tokio::test]
    async fn nonsense_and_endless_lines_get_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let socket = ControlSocket::bind(&socket(&dir, true)).unwrap();
        let path = socket.path().to_owned();
        let serving = tokio::spawn(socket.serve(Arc::new(Fixed), Life::new()));
        let example = "such as {\\\"command\\\":\\\"status\\\"}";
        for (request, why) in [
            (&b"hello\n"[..], example),
            (b"{\"command\":3}\n", example),
            (b"[]\n", example),
            (b"\xff\xfe\n", example),
            (
                b"{\"command\":\"explode\"}\n",
                "does not know the command `explode`; after an update",
            ),
            (b"{\"command\":\"kill\",\"link\":1}\n", "the command `kill` lacks a field"),
            (b"{\"command\":\"kill\",\"link\":-1,\"stream\":1}\n", "a field has a wrong value"),
            (&[b'x'; 64 << 10], "one line of at most 65536 bytes"),
        ] {
            let answer = raw(&path, request).await;
            assert!(answer.starts_with("{\"error\":") && answer.contains(why), "{answer}");
        }
        serving.abort();
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_a_live_one_and_another_file_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let socket = socket(&dir, true);
        create_private(socket.path.parent().unwrap()).unwrap();
        drop(StdListener::bind(&socket.path).unwrap());
        let first = ControlSocket::bind(&socket).unwrap();

        let error = ControlSocket::bind(&socket).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("--control"), "{error}");
        let second = ControlSocket::bind(&SocketPath { fixed: false, ..socket.clone() }).unwrap();
        assert_ne!(first.path(), second.path());
        drop(first);

        fs::write(&socket.path, "precious").unwrap();
        assert!(ControlSocket::bind(&socket).is_err());
        assert_eq!(fs::read_to_string(&socket.path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_path_too_long_for_a_socket_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x".repeat(120));
        let error = ControlSocket::bind(&SocketPath { path, fixed: true }).unwrap_err();
        assert!(error.to_string().contains("xxx"), "{error}");
    }
}
