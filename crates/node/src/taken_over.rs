//! Visitors that a previous process has accepted but cannot serve, because the links of their
//! client are here: they are handed to the listener of the address at which they arrived.

use std::net::TcpStream;
use std::time::Duration;

use net::handover;
use net::inherited::Visitors;
use relay::adopt;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{Instant, sleep};

use crate::session::{HOLD, Handle};

/// The poll interval for the listener of a visitor whose client is about to register.
const LOOK: Duration = Duration::from_millis(10);

/// The maximum number of visitors that wait for a listener.
const WAITING: usize = 1024;

/// Takes the visitors of a previous process, if there is one, on the first worker.
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

/// Waits until the listener of a visitor exists, or until the next generation exists, to which the
/// client may connect without having connected here.
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
