//! What the tests have in the place of systemd: the socket to which a daemon speaks, by the
//! protocol of sd_notify(3), and a start with sockets, by that of sd_listen_fds(3).

use std::ffi::OsString;
use std::iter;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use crate::harness::{SOON, program};
use crate::inherited::hand_over;

/// Descriptors of a message that the stub takes.
const DESCRIPTORS: usize = 64;

/// The socket of a unit. A thread reads it, so that no daemon waits for the test.
pub(crate) struct Manager {
    messages: Receiver<Message>,
    address: SocketAddr,
    /// The content of `NOTIFY_SOCKET`.
    name: OsString,
}

/// A message of a daemon.
#[derive(Debug)]
pub(crate) struct Message {
    /// The process that sent it, as the kernel says.
    pub(crate) pid: u32,
    fields: Vec<(String, String)>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Message {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|field| field.0 == name).map(|field| field.1.as_str())
    }

    pub(crate) fn says(&self, name: &str, value: &str) -> bool {
        self.field(name) == Some(value)
    }
}

impl Manager {
    /// A socket with a file.
    pub(crate) fn at(path: &Path) -> Self {
        Self::of(SocketAddr::from_pathname(path).unwrap(), path.into())
    }

    /// A socket in the abstract namespace.
    pub(crate) fn named(name: &str) -> Self {
        let address = SocketAddr::from_abstract_name(name).unwrap();
        Self::of(address, format!("@{name}").into())
    }

    fn of(address: SocketAddr, name: OsString) -> Self {
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        set_socket_passcred(&socket, true).unwrap();
        let (sender, messages) = channel();
        // The thread ends with the first message after the test.
        thread::spawn(move || read(&socket, &sender));
        Self { messages, address, name }
    }

    /// The variable that names the socket.
    pub(crate) fn variable(&self) -> (&'static str, OsString) {
        ("NOTIFY_SOCKET", self.name.clone())
    }

    /// The next message.
    pub(crate) fn next(&self) -> Message {
        self.messages.recv_timeout(SOON).expect("a message of the daemon")
    }

    /// The next message with this field. The messages before it are passed over.
    pub(crate) fn wait(&self, name: &str, value: &str) -> Message {
        loop {
            let message = self.next();
            if message.says(name, value) {
                return message;
            }
        }
    }

    /// All messages that daemons have sent.
    pub(crate) fn rest(&self) -> Vec<Message> {
        // A message of the test comes after them.
        let end = UnixDatagram::unbound().unwrap();
        end.send_to_addr(b"END=1", &self.address).unwrap();
        iter::repeat_with(|| self.next()).take_while(|message| !message.says("END", "1")).collect()
    }
}

fn read(socket: &UnixDatagram, to: &Sender<Message>) {
    loop {
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS), ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 8 << 10];
        let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
        let got = recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
        assert!(!got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC), "too long");
        let mut message = Message { pid: 0, fields: Vec::new(), descriptors: Vec::new() };
        for item in ancillary.drain() {
            match item {
                RecvAncillaryMessage::ScmRights(some) => message.descriptors.extend(some),
                RecvAncillaryMessage::ScmCredentials(of) => {
                    message.pid = of.pid.as_raw_nonzero().get().unsigned_abs();
                }
                _ => {}
            }
        }
        let text = std::str::from_utf8(&bytes[..got.bytes]).unwrap();
        let fields = text.lines().map(|line| line.split_once('=').expect("NAME=VALUE"));
        message.fields = fields.map(|(name, value)| (name.into(), value.into())).collect();
        if to.send(message).is_err() {
            return;
        }
    }
}

/// Becomes the command of its arguments, with the descriptors that come from a Unix socket.
const ACTIVATE: &str = r"
import fcntl, os, socket, sys
path, names, *command = sys.argv[1:]
way, all = socket.socket(socket.AF_UNIX), []
way.connect(path)
while True:
    message, some, _, _ = socket.recv_fds(way, 64, 64)
    if not message:
        break
    all += some
way.close()
# Out of the way of the numbers from 3 on.
all = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 200) for one in all]
for number, one in enumerate(all):
    os.dup2(one, 3 + number, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(all)), LISTEN_FDNAMES=names)
os.execvp(command[0], command)
";

/// The words before a command that starts it with these sockets and their names, as systemd does.
/// `at` is the path of a socket that is used once.
pub(crate) fn started_with(at: &Path, sockets: Vec<(String, OwnedFd)>) -> Vec<OsString> {
    let (names, sockets): (Vec<_>, Vec<_>) = sockets.into_iter().unzip();
    let (_, path) = hand_over(at, sockets);
    let words = [program("python3").into(), "-c".into(), ACTIVATE.into(), path];
    words.into_iter().chain(iter::once(names.join(":").into())).collect()
}

/// The sockets that a unit keeps over the death of its process.
#[derive(Default)]
pub(crate) struct Store(Vec<(String, OwnedFd)>);

impl Store {
    /// Does what a message asks for.
    pub(crate) fn hear(&mut self, message: Message) {
        let name = message.field("FDNAME").map(str::to_owned);
        if message.says("FDSTORE", "1") {
            let name = name.expect("a name");
            assert!(!name.contains(':') && !message.descriptors.is_empty(), "{name}");
            self.0.extend(message.descriptors.into_iter().map(|socket| (name.clone(), socket)));
        } else if message.says("FDSTOREREMOVE", "1") {
            self.0.retain(|stored| Some(&stored.0) != name.as_ref());
        }
    }

    /// The sockets for the next process. The store keeps them as well.
    pub(crate) fn all(&self) -> Vec<(String, OwnedFd)> {
        self.0.iter().map(|(name, one)| (name.clone(), one.try_clone().unwrap())).collect()
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.iter().map(|stored| stored.0.as_str()).collect()
    }

    /// Hears until these names are stored, each as a group of `count` sockets.
    pub(crate) fn fill(&mut self, manager: &Manager, names: &[&str], count: usize) {
        let has = |store: &Self, name: &str| {
            store.0.iter().filter(|stored| stored.0 == name).count() == count
        };
        while !names.iter().all(|name| has(self, name)) {
            self.hear(manager.next());
        }
        assert_eq!(self.0.len(), names.len() * count, "{:?}", self.names());
    }
}
