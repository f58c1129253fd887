//! Two ends on loopback, with the link between them replaced by channels.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use net::udp::WANTED;
use punch::{Kinds, Signal};
use tokio::sync::mpsc;
use transport::{Carrier, Incoming};
use transport_quic::QuicSettings;
use transport_quic::punched::{Begin, Failure, PunchSettings, Puncher, Trial};

/// The deadline of a test, many times the time that it takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

type Says = mpsc::Sender<Vec<u8>>;
type Heard = mpsc::Receiver<Vec<u8>>;

pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let within = async { tokio::time::timeout(DEADLINE, test).await };
    assert!(local.block_on(&runtime, within).is_ok(), "not done within {DEADLINE:?}");
}

pub(crate) fn puncher() -> Puncher {
    let settings = PunchSettings {
        quic: QuicSettings::default(),
        buffers: WANTED,
        kinds: Kinds::default(),
        ports: None,
        loopback: true,
    };
    Puncher::new(settings).unwrap()
}

/// Carries signals until `done`.
pub(crate) async fn carrying<T>(
    trial: &Trial,
    says: &Says,
    heard: &mut Heard,
    done: impl Future<Output = T>,
) -> T {
    let mut done = pin!(done);
    loop {
        tokio::select! {
            biased;
            done = &mut done => return done,
            signal = trial.signal() => drop(says.try_send(signal)),
            Some(signal) = heard.recv() => trial.handle_signal(&signal).unwrap(),
        }
    }
}

pub(crate) async fn visit(
    puncher: &Puncher,
    says: Says,
    mut heard: Heard,
) -> Result<Carrier, Failure> {
    let trial = puncher.visitor(&Begin { round: 1, ..Begin::default() })?;
    carrying(&trial, &says, &mut heard, trial.dial()).await
}

pub(crate) async fn answer(
    puncher: &Puncher,
    mut heard: Heard,
    says: Says,
) -> Result<Box<dyn Incoming>, Failure> {
    let first = heard.recv().await.unwrap();
    let trial = publisher(puncher, &first);
    carrying(&trial, &says, &mut heard, trial.accept()).await
}

pub(crate) fn publisher(puncher: &Puncher, first: &[u8]) -> Trial {
    let round = Signal::decode(first).unwrap().round;
    let trial = puncher.publisher(&Begin { round, ..Begin::default() }).unwrap();
    trial.handle_signal(first).unwrap();
    trial
}

/// Both ends of a direct path.
pub(crate) struct Ends {
    pub(crate) dialled: Carrier,
    pub(crate) accepted: Carrier,
    pub(crate) visitor: Trial,
    pub(crate) publisher: Trial,
}

pub(crate) async fn connected() -> Ends {
    let puncher = puncher();
    let (says, mut said) = mpsc::channel(64);
    let (answers, mut heard) = mpsc::channel(64);
    let visitor = puncher.visitor(&Begin { round: 7, ..Begin::default() }).unwrap();
    let publisher = publisher(&puncher, &visitor.signal().await);
    let dial = carrying(&visitor, &says, &mut heard, visitor.dial());
    let accept = carrying(&publisher, &answers, &mut said, async {
        publisher.accept().await.unwrap().handshake().await
    });
    let (dialled, accepted) = tokio::join!(dial, accept);
    Ends { dialled: dialled.unwrap(), accepted: accepted.unwrap(), visitor, publisher }
}
