//! Sends a kept request to the target of its service again, dialled as for visitors. The new
//! request is kept like any other.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use ops::requests::RequestDetail;
use relay::{Layered, lead, proxy_header};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::services::service as service_of;
use super::shared::ClientShared;
use capture::requests::{Marks, Original, Store};
use node::session::{Handle, Worker};
use targets::Local;

/// The longest wait for the end of the response. Then the connection is closed, and the answer
/// shows the part that has arrived.
const LONGEST: Duration = Duration::from_secs(30);

/// The wait for the store after the connection was closed.
const CLOSE: Duration = Duration::from_secs(1);

/// The size of the buffer for each direction, in bytes.
const WINDOW: usize = 64 << 10;

/// Replays a request. `None`: there is no such request. The answer contains no secrets.
///
/// # Errors
/// The request cannot be replayed, or the target did not answer. The message is for the user.
pub(crate) async fn replay(
    store: &Arc<Store>,
    shared: &Arc<ClientShared>,
    handles: &[Handle],
    id: u64,
) -> anyhow::Result<Option<RequestDetail>> {
    let original = match store.original(id) {
        Ok(original) => original,
        Err(None) => return Ok(None),
        Err(Some(why)) => bail!("request {id} cannot be replayed: {why}"),
    };
    let worker = usize::try_from(id).unwrap_or_default() % handles.len().max(1);
    let handle = handles.get(worker).context("the daemon is stopping")?;
    let (done, mut ended) = oneshot::channel();
    // The connection is closed when this value is dropped.
    let (open, closed) = oneshot::channel::<()>();
    let shared = Arc::clone(shared);
    let began = handle.call(move |worker| {
        let Original { service, bytes } = original;
        let Some(local) = service_of(worker, &shared, &service).filter(|local| local.keeps())
        else {
            return false;
        };
        let marks = Rc::new(Marks { of: id, done: RefCell::new(Some(done)) });
        spawn_local(send(Rc::clone(worker), local, marks, bytes, closed));
        true
    });
    let is_begun = began.await.context("the daemon is stopping")?;
    anyhow::ensure!(is_begun, "the requests of its service are kept no more");
    let outcome = match timeout(LONGEST, &mut ended).await {
        Ok(outcome) => outcome,
        Err(_) => {
            drop(open);
            timeout(CLOSE, ended).await.context("a worker does not answer")?
        }
    };
    let id =
        outcome.context("the target cannot be reached, or its answer is no HTTP; see the log")?;
    Ok(store.one(id, false))
}

/// Transfers the request and its response until the response has ended or `closed` resolves.
async fn send(
    worker: Rc<Worker>,
    local: Rc<Local>,
    marks: Rc<Marks>,
    request: Vec<u8>,
    closed: oneshot::Receiver<()>,
) {
    let (near, far) = duplex(WINDOW);
    let budget = Rc::clone(&worker.state.budget);
    // The PROXY protocol header marks the connection as the proxy's own.
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let header = local.header.as_ref().map(|how| proxy_header(how.version, None, nowhere));
    let visitor = Layered::new(far, Bytes::new());
    let leading = lead(visitor, budget, |inlet| local.replay(marks, header, inlet));
    let (mut reader, mut writer) = tokio::io::split(near);
    let asking = async {
        // A target may answer before it has read everything, and close.
        let _ = writer.write_all(&request).await;
        std::future::pending::<()>().await;
    };
    let reading = async {
        let mut scrap = vec![0; WINDOW];
        while reader.read(&mut scrap).await.is_ok_and(|bytes| bytes > 0) {}
    };
    tokio::select! {
        () = leading => {}
        () = asking => {}
        () = reading => {}
        _ = closed => {}
    }
}
