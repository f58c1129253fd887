//! Accepts the lanes that the peer opens on a carrier. One task accepts them; a small task per lane
//! reads it.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::BytesMut;
use proto::{CarrierNumber, Event, LaneInput, Side, Violation};
use tokio::task::JoinSet;
use transport::RecvLane;

use crate::guard::guarded;
use crate::inner::Inner;
use crate::io::CarrierIo;
use crate::lanes::{Early, StreamLanes};
use crate::read_end::ReadEnd;
use crate::reader::{self, Input};

/// Accepts lanes until the carrier is lost. Dropping the future ends the tasks of the lanes.
pub(crate) async fn run(
    link: &Rc<Inner>,
    io: &Rc<CarrierIo>,
    stream_lanes: &Rc<StreamLanes>,
) -> ReadEnd {
    let mut tasks = JoinSet::new();
    let mut count = 0;
    let side = link.machine.borrow().side();
    poll_fn(|cx| {
        while let Poll::Ready(Some(_)) = tasks.poll_join_next(cx) {}
        loop {
            stream_lanes.set_open(tasks.len());
            let accepted = stream_lanes.poll_accept(cx);
            let lane = match accepted {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(ReadEnd::Lost(error)),
                Poll::Ready(Ok(lane)) => lane,
            };
            let (inner, io, stream_lanes) =
                (Rc::clone(link), Rc::clone(io), Rc::clone(stream_lanes));
            count += 1;
            let work = async move {
                let mut source =
                    OwnLane { lane, input: LaneInput::new(), stream_lanes, number: count, side };
                let outcome = reader::run(&inner, &io, &mut source, BytesMut::new()).await;
                outcome.report(&inner, io.number);
            };
            tasks.spawn_local(guarded(Rc::downgrade(link), work));
        }
    })
    .await
}

/// A lane of a single stream.
struct OwnLane {
    lane: Box<dyn RecvLane>,
    input: LaneInput,
    stream_lanes: Rc<StreamLanes>,
    /// The number of the lane among the lanes of its carrier.
    number: u64,
    /// The side of this end of the link.
    side: Side,
}

impl Input for OwnLane {
    /// A lane gets its larger buffer once it belongs to a stream. So a lane without a stream costs
    /// little memory.
    const FIRST: usize = 2 << 10;
    /// Hundreds of lanes may each have a buffer, so the buffer is small. It holds the smallest
    /// window of a stream.
    const TIGHT: usize = 16 << 10;

    fn is_early(&self) -> bool {
        self.input.waits()
    }

    fn wait(&self, cx: &Context<'_>) {
        let stream = self.input.stream().unwrap_or_default();
        let is_peers = stream.opener() != Some(self.side);
        self.stream_lanes.wait(cx, Early { is_peers, stream, lane: self.number });
    }

    /// The end of the lane carries no information: the lane carried FIN before, or RESET arrives on
    /// the first lane.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        _io: &CarrierIo,
        buf: &mut BytesMut,
    ) -> Poll<io::Result<Option<usize>>> {
        Poll::Ready(match ready!(self.lane.poll_read(cx, buf)) {
            Ok(0) => Ok(None),
            Ok(n) => Ok(Some(n)),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(None),
            Err(error) => Err(error),
        })
    }

    fn handle(
        &mut self,
        machine: &mut proto::Link,
        now: Instant,
        number: CarrierNumber,
        buf: &mut BytesMut,
    ) -> Result<Option<Event>, Violation> {
        machine.handle_lane(now, number, &mut self.input, buf)
    }
}
