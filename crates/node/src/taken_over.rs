//! Visitors that a former process has accepted and cannot serve, because their client has its links
//! here: they go to the listener at whose address they came.

use std::net::TcpStream;
use std::time::Duration;

use net::handover;
use net::inherited::Visitors;
use relay::adopt;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{Instant, sleep};

use crate::session::{HOLD, Handle};

/// The time between two looks for the listener of a visitor, whose client is about to register.
const LOOK: Duration = Duration::from_millis(10);

/// The visitors that wait for a listener, at most.
const WAITING: usize = 1024;

/// Takes the visitors of a former process, if there is one, on the first worker.
pub async fn adopt_visitors(handles: &[Handle]) -> anyhow::Result<()> {
    let Some(first) = handles.first() else { return Ok(()) };
    let taken = first.call(|_| -> std::io::Result<()> {
        if let Some(visitors) = net::inherited::visitors()? {
            spawn_local(take(visitors));
        }
        Ok(())
    });
    taken.await??;
    Ok(())
}

async fn take(visitors: Visitors) {
    let mut waiting = JoinSet::new();
    while let Some(visitor) = visitors.next().await {
        while waiting.try_join_next().is_some() {}
        if let Err(visitor) = adopt(visitor)
            && waiting.len() < WAITING
        {
            waiting.spawn_local(wait(visitor));
        }
    }
    while waiting.join_next().await.is_some() {}
}

/// Waits until the listener of a visitor is there, or until the next generation is there, to which
/// the client may go without having come here.
async fn wait(mut visitor: TcpStream) {
    let until = Instant::now() + HOLD;
    while let Err(back) = adopt(visitor) {
        visitor = back;
        if handover::pass(&visitor).is_ok() || Instant::now() >= until {
            return;
        }
        sleep(LOOK).await;
    }
}
