//! A visitor of HTTP/2 made of raw frames, and a path with a delay.

use std::{cell::RefCell, collections::HashMap, rc::Rc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    sync::mpsc,
    task::{AbortHandle, spawn_local},
    time::{Instant, sleep_until},
};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![size[1], size[2], size[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A field without compression (RFC 7541 section 6.2.2).
pub(crate) fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    for text in [name, value] {
        // A length of 127 bytes and more continues in further bytes (section 5.1).
        match text.len() {
            length @ 0..127 => field.push(u8::try_from(length).unwrap()),
            length => {
                field.push(127);
                let mut rest = length - 127;
                while rest >= 128 {
                    field.push(u8::try_from(rest % 128).unwrap() | 128);
                    rest /= 128;
                }
                field.push(u8::try_from(rest).unwrap());
            }
        }
        field.extend_from_slice(text.as_bytes());
    }
    field
}

/// The fields of a request for `a.example`.
pub(crate) fn request(method: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let pseudo =
        [(":method", method), (":scheme", "http"), (":path", "/"), (":authority", "a.example")];
    let fields = pseudo.iter().chain(more).map(|(name, value)| literal(name, value));
    fields.collect::<Vec<_>>().concat()
}

/// What a visitor has seen of one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The blocks of fields.
    pub(crate) heads: Vec<Vec<u8>>,
    pub(crate) body: usize,
    pub(crate) ended: bool,
    /// The code of RST_STREAM.
    pub(crate) reset: Option<u32>,
    /// Bytes by which the window of the stream was enlarged.
    pub(crate) granted: u64,
}

/// A visitor that acknowledges settings, answers pings, and grants its connection all that it
/// takes. Windows of streams stay as they are.
pub(crate) struct Peer {
    tasks: [AbortHandle; 2],
    sender: mpsc::Sender<Vec<u8>>,
    seen: Rc<RefCell<HashMap<u32, Seen>>>,
    /// The code of GOAWAY.
    pub(crate) goaway: Rc<RefCell<Option<u32>>>,
}

impl Peer {
    /// Begins a connection with these settings.
    pub(crate) fn new(io: DuplexStream, settings: &[(u16, u32)]) -> Self {
        let (mut reader, mut writer) = tokio::io::split(io);
        let (sender, mut frames) = mpsc::channel::<Vec<u8>>(4096);
        let mut begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let settings: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        begin.extend(frame(SETTINGS, 0, 0, &settings));
        // The window of the connection never limits.
        begin.extend(frame(WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes()));
        let writing = spawn_local(async move {
            let _ = writer.write_all(&begin).await;
            while let Some(frame) = frames.recv().await {
                if writer.write_all(&frame).await.is_err() {
                    break;
                }
            }
        });
        let seen = Rc::<RefCell<HashMap<u32, Seen>>>::default();
        let goaway = Rc::<RefCell<Option<u32>>>::default();
        let (all, end, answers) = (Rc::clone(&seen), Rc::clone(&goaway), sender.clone());
        let reading = spawn_local(async move {
            let mut head = [0; 9];
            while reader.read_exact(&mut head).await.is_ok() {
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
                let mut payload = vec![0; length];
                if reader.read_exact(&mut payload).await.is_err() {
                    break;
                }
                let (kind, flags) = (head[3], head[4]);
                let number = |at: usize| {
                    payload.get(at..at + 4).map(|n| u32::from_be_bytes(n.try_into().unwrap()))
                };
                match kind {
                    SETTINGS if flags & ACK == 0 => {
                        let _ = answers.send(frame(SETTINGS, ACK, 0, b"")).await;
                    }
                    PING if flags & ACK == 0 => {
                        let _ = answers.send(frame(PING, ACK, 0, &payload)).await;
                    }
                    GOAWAY => *end.borrow_mut() = number(4),
                    _ => {}
                }
                let mut all = all.borrow_mut();
                let seen = all.entry(stream).or_default();
                match kind {
                    HEADERS => seen.heads.push(payload.clone()),
                    DATA => seen.body += length,
                    RST_STREAM => seen.reset = number(0),
                    WINDOW_UPDATE => seen.granted += u64::from(number(0).unwrap_or(0)),
                    _ => {}
                }
                seen.ended |= matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0;
            }
        });
        let tasks = [writing.abort_handle(), reading.abort_handle()];
        Self { tasks, sender, seen, goaway }
    }

    /// Sends a frame as soon as the connection takes it.
    pub(crate) async fn send(&self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let _ = self.sender.send(frame(kind, flags, stream, payload)).await;
    }

    /// Sends bytes of a body in frames of `size` bytes.
    pub(crate) async fn body(&self, stream: u32, mut bytes: usize, size: usize) {
        while bytes > 0 {
            let part = bytes.min(size);
            self.send(DATA, 0, stream, &vec![b'x'; part]).await;
            bytes -= part;
        }
    }

    pub(crate) fn seen(&self, stream: u32) -> Seen {
        self.seen.borrow().get(&stream).cloned().unwrap_or_default()
    }

    /// Whether the head of the last answer on the stream has status 200 (RFC 7541 appendix A).
    pub(crate) fn is_ok(&self, stream: u32) -> bool {
        self.seen(stream).heads.last().is_some_and(|head| head.first() == Some(&0x88))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// A path that carries `rate` bytes per second each way, `delay` later. Returns the near end.
pub(crate) fn path(far: DuplexStream, rate: u64, delay: Duration) -> DuplexStream {
    let (near, inner) = duplex(64 * 1024);
    let (inner_reader, inner_writer) = tokio::io::split(inner);
    let (far_reader, far_writer) = tokio::io::split(far);
    spawn_local(one_way(inner_reader, far_writer, rate, delay));
    spawn_local(one_way(far_reader, inner_writer, rate, delay));
    near
}

async fn one_way(
    mut reader: impl tokio::io::AsyncRead + Unpin,
    mut writer: impl tokio::io::AsyncWrite + Unpin + 'static,
    rate: u64,
    delay: Duration,
) {
    // As much as the path holds at its rate, and a queue in front of it.
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(4096);
    spawn_local(async move {
        while let Some((at, bytes)) = pieces.recv().await {
            sleep_until(at).await;
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = writer.shutdown().await;
    });
    let mut leaves = Instant::now();
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = reader.read(&mut buffer).await {
        let time = Duration::from_nanos(length as u64 * 1_000_000_000 / rate);
        leaves = leaves.max(Instant::now()) + time;
        sleep_until(leaves).await;
        if sender.send((leaves + delay, buffer[..length].to_vec())).await.is_err() {
            return;
        }
    }
}
