//! Echo over KCP, for use with programs on kcp-go: a server that sends back what it gets, and a
//! client that sends standard input and prints what comes.
//!
//! ```text
//! cargo run -p kcp-tokio --example echo -- server 127.0.0.1:4000 --crypt aes-128-gcm --key secret
//! cargo run -p kcp-tokio --example echo -- client 127.0.0.1:4000 --crypt aes-128-gcm --key secret
//! ```
//!
//! A server or client in Go is the other end of it:
//!
//! ```go
//! key := pbkdf2.Key([]byte("secret"), []byte("kcp-go"), 4096, 32, sha1.New)
//! block, _ := kcp.NewAESGCMCrypt(key[:16])
//! session, _ := kcp.DialWithOptions("127.0.0.1:4000", block, 10, 3) // --fec 10/3
//! session.SetStreamMode(true)
//! ```
//!
//! The program `tests/peer` of crate `kcp-go` does that by flags: `-dial 127.0.0.1:4000 -crypt
//! aes-128-gcm -passphrase secret -datashard 10 -parityshard 3`.

#![allow(clippy::print_stderr, reason = "a program of the command line")]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use kcp_go::engine::Control;
use kcp_go::envelope::Seal;
use kcp_go::fec::Ratio;
use kcp_go::session;
use kcp_go::wire::Conversation;
use kcp_go_crypto::{Crypt, derive};
use kcp_tokio::{Config, Listener, Stream, Udp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const USAGE: &str = "\
echo server ADDRESS [OPTIONS]
echo client ADDRESS [OPTIONS]
  --crypt NAME    null, aes-128-gcm (default), aes-192-gcm, aes-256-gcm, chacha20-poly1305
  --key TEXT      the passphrase, of which the key is derived as kcptun does it
  --fec D/P       so many shards of data and of parity, as 10/3; none by default
  --window N      segments in flight and segments that wait for the reader; 1024 by default
  --mtu N         bytes of the longest datagram; 1350 by default
  --rate N        a fixed rate in bytes per second, in place of BBR";

type Failure = Box<dyn Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let (Some(role), Some(address)) = (words.next(), words.next()) else {
        return Err(USAGE.into());
    };
    let address: SocketAddr = address.parse()?;
    // One number for each session, so that a server does not take it for the last one.
    let conversation = Conversation(u32::from_le_bytes(random()?));
    let (config, seal) = settings(words, session::Config::new(conversation))?;
    match &*role {
        "server" => serve(address, config, seal).await,
        "client" => converse(address, conversation, config, seal).await,
        _ => Err(USAGE.into()),
    }
}

fn random() -> Result<[u8; 4], Failure> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Reads the options.
fn settings(
    mut words: impl Iterator<Item = String>,
    mut session: session::Config,
) -> Result<(Config, Arc<dyn Seal>), Failure> {
    let (mut crypt, mut key) = ("aes-128-gcm".to_owned(), "it's a secrect".to_owned());
    while let Some(option) = words.next() {
        let value = words.next().ok_or_else(|| format!("{option} needs a value\n{USAGE}"))?;
        match &*option {
            "--crypt" => crypt = value,
            "--key" => key = value,
            "--fec" => {
                let (data, parity) = value.split_once('/').ok_or("--fec wants D/P")?;
                let ratio = Ratio::new(data.parse()?, parity.parse()?).ok_or("--fec: too many")?;
                session.encode = Some(ratio);
                session.decode = Some(ratio);
            }
            "--window" => {
                session.engine.send_window = value.parse()?;
                session.engine.receive_window = value.parse()?;
            }
            "--mtu" => session.datagram = value.parse()?,
            "--rate" => session.engine.control = Control::Fixed(value.parse()?),
            _ => return Err(format!("{option} is unknown\n{USAGE}").into()),
        }
    }
    let crypt: Crypt = crypt.parse()?;
    Ok((Config::new(session), Arc::from(crypt.envelope(&derive(&key)))))
}

async fn socket(address: SocketAddr) -> std::io::Result<Udp> {
    let socket = Udp::bind(address).await?;
    socket.set_buffers(4 << 20, 4 << 20)?;
    Ok(socket)
}

async fn serve(address: SocketAddr, config: Config, seal: Arc<dyn Seal>) -> Result<(), Failure> {
    let listener = Listener::bind(socket(address).await?, config, seal)?;
    eprintln!("listening on {}", listener.address());
    loop {
        let (stream, peer) = listener.accept().await?;
        eprintln!("{peer} came");
        tokio::spawn(async move {
            let end = echo(&stream).await;
            eprintln!("{peer} is gone: {end:?}");
        });
    }
}

/// Sends back what comes, without a copy.
async fn echo(stream: &Stream) -> std::io::Result<()> {
    loop {
        let bytes = stream.read_bytes(64 << 10).await?;
        stream.write_bytes(bytes).await?;
    }
}

async fn converse(
    peer: SocketAddr,
    conversation: Conversation,
    config: Config,
    seal: Arc<dyn Seal>,
) -> Result<(), Failure> {
    let any: SocketAddr = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
    let mut stream = Stream::connect(socket(any).await?, peer, conversation, config, seal)?;
    let (mut input, mut output) = (tokio::io::stdin(), tokio::io::stdout());
    let mut buffer = vec![0; 16 << 10];
    let (mut sent, mut received) = (0, 0);
    let mut is_open = true;
    // KCP has no end of a stream: an echo is over when as much has come as was sent.
    while is_open || received < sent {
        tokio::select! {
            count = input.read(&mut buffer), if is_open => {
                let count = count?;
                is_open = count > 0;
                stream.write_all(&buffer[..count]).await?;
                sent += count;
            }
            bytes = stream.read_bytes(16 << 10) => {
                let bytes = bytes?;
                received += bytes.len();
                output.write_all(&bytes).await?;
                output.flush().await?;
            }
        }
    }
    stream.shutdown().await?;
    eprintln!("{sent} bytes, round trip {:?}", stream.round_trip());
    Ok(())
}
