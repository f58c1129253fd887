//! The conformance suite that every transport passes unchanged.
//!
//! [`check`] runs every case against a [`Fixture`]. Each case has its own thread and runtime and
//! must end within [`DEADLINE`]. A transport's test consists of the fixture and one call:
//!
//! ```text
//! #[test]
//! fn my_transport_conforms() {
//!     testkit::conformance::check(&MyFixture::new());
//! }
//! ```

mod bytes;
mod drive;
mod handshake;
mod lifecycle;
mod worker;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use transport::{Carrier, Dialer, Listener};

pub use drive::{Sum, pattern, read_some, write_all};

/// The time limit of one case: five times the duration of the slowest case on a busy machine of two
/// cores.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Makes listeners and dialers of one transport.
pub trait Fixture: fmt::Debug {
    /// A fresh listener on a free port and a dialer that reaches it. Called on a runtime.
    fn make(&self) -> (Box<dyn Listener>, Box<dyn Dialer>);

    /// Opens a connection that never sends a byte, not even the first byte of a handshake. `None`
    /// if the transport has no handshake.
    fn silent(&self, _address: SocketAddr) -> Option<std::net::TcpStream> {
        None
    }

    /// Whether a dialled peer must prove something before the handshake is done. If so, garbage
    /// instead of the handshake is an error.
    fn shakes_hands(&self) -> bool;
}

/// One property of a transport.
type Case = (&'static str, fn(&dyn Fixture) -> LocalCase<'_>);

type LocalCase<'a> = std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs the whole suite against `fixture`.
///
/// # Panics
///
/// Panics when the transport does not conform. The panic names the case on standard error.
pub fn check(fixture: &dyn Fixture) {
    let cases: &[Case] = &[
        ("bytes are exact both ways at once", |f| Box::pin(bytes::both_ways_at_once(f))),
        ("a large transfer is whole", |f| Box::pin(bytes::large_transfer(f))),
        ("many small and empty frames", |f| Box::pin(bytes::many_frames(f))),
        ("one byte at a time", |f| Box::pin(bytes::one_byte_at_a_time(f))),
        ("given up polls lose nothing", |f| Box::pin(bytes::given_up_polls(f))),
        ("half-close by the dialer", |f| Box::pin(lifecycle::half_close(f, true))),
        ("half-close by the acceptor", |f| Box::pin(lifecycle::half_close(f, false))),
        ("a writer waits for its reader", |f| Box::pin(lifecycle::backpressure(f))),
        ("an abort is an error, not an end", |f| Box::pin(lifecycle::abort(f))),
        ("reader and writer have wakers of their own", |f| Box::pin(lifecycle::wakers(f))),
        ("a lane moves between workers", |f| Box::pin(worker::moves(f))),
        ("both ends name the cipher", |f| Box::pin(handshake::cipher(f))),
        ("silent peers block nobody", |f| Box::pin(handshake::silent_peers(f))),
        ("a dropped handshake closes", |f| Box::pin(handshake::dropped(f))),
        ("garbage instead of a handshake", |f| Box::pin(handshake::garbage(f))),
    ];
    for (name, case) in cases {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime for the test");
        let local = tokio::task::LocalSet::new();
        let within = async { tokio::time::timeout(DEADLINE, case(fixture)).await };
        let outcome = local.block_on(&runtime, within);
        assert!(outcome.is_ok(), "{name}: not done within {DEADLINE:?}");
    }
}

/// A connected pair of carriers: the dialled carrier and the accepted carrier.
pub(crate) async fn connect(fixture: &dyn Fixture) -> (Carrier, Carrier) {
    let (mut listener, dialer) = fixture.make();
    let address = listener.local_addr();
    let mut accepting = pin!(async {
        let incoming = std::future::poll_fn(|cx| listener.poll_accept(cx)).await.expect("accept");
        incoming.handshake().await.expect("the acceptor's handshake")
    });
    let mut dialling = pin!(async { dialer.dial(address).await.expect("the dialer's handshake") });
    let (mut dialled, mut accepted) = tokio::join!(dialling.as_mut(), accepting.as_mut());
    // The peers have logged in, because an unauthenticated peer has little room.
    dialled.lane.authenticated();
    accepted.lane.authenticated();
    (dialled, accepted)
}
