//! Real sockets of loopback. A datagram arrives within the call that sends it.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, UdpSocket as Visitor};
use std::time::Duration;

use nix::sys::socket::setsockopt;

use super::super::dialling;
use super::*;
use crate::no_check::NoCheck;

#[derive(Debug, Default)]
struct Counts {
    sent: Cell<(usize, usize)>,
    lost: RefCell<Vec<(Loss, usize)>>,
}

impl Tally for Counts {
    fn sent(&self, datagrams: usize, bytes: usize) {
        let (all, sum) = self.sent.get();
        self.sent.set((all + datagrams, sum + bytes));
    }

    fn lost(&self, loss: Loss, datagrams: usize) {
        self.lost.borrow_mut().push((loss, datagrams));
    }
}

/// `None` on a machine without the family.
fn listener(address: &str) -> Option<FlowSocket> {
    let group = crate::udp::flow_group(address.parse().unwrap(), 1).ok()?;
    Some(FlowSocket::listen(group.sockets.into_iter().next().unwrap()).unwrap())
}

fn port(socket: &FlowSocket) -> u16 {
    socket.local_addr().unwrap().port()
}

fn visitor(address: impl Into<IpAddr>) -> Visitor {
    let visitor = Visitor::bind((address.into(), 0)).unwrap();
    visitor.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    visitor
}

/// Reads until `count` datagrams have come.
async fn arrivals(socket: &FlowSocket, count: usize) -> Vec<(Route, Vec<u8>)> {
    let mut got = Vec::new();
    let counts = Counts::default();
    poll_fn(|cx| {
        let take = |arrival: Arrival<'_>| {
            let route = arrival.route;
            got.extend(arrival.datagrams().map(|datagram| (route, datagram.to_vec())));
        };
        let Poll::Pending = socket.poll_read(cx, &counts, take);
        if got.len() >= count { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    got
}

async fn flush(socket: &FlowSocket, counts: &Counts) {
    poll_fn(|cx| socket.poll_flush(cx, counts)).await;
}

fn filled(length: usize) -> Bytes {
    (0..length).map(|at| (at % 251) as u8).collect()
}

fn families() -> [(&'static str, IpAddr); 4] {
    [
        ("0.0.0.0:0", Ipv4Addr::LOCALHOST.into()),
        ("[::]:0", Ipv4Addr::LOCALHOST.into()),
        ("[::]:0", std::net::Ipv6Addr::LOCALHOST.into()),
        ("[::1]:0", std::net::Ipv6Addr::LOCALHOST.into()),
    ]
}

#[tokio::test]
async fn payloads_of_all_sizes_arrive_whole_in_both_directions() {
    for (bind, from) in families() {
        let Some(socket) = listener(bind) else { continue };
        let visitor = visitor(from);
        let to = SocketAddr::new(from, port(&socket));
        let counts = Counts::default();
        for length in [0, 1, 40, 1_200, 1_452, 1_453, 1_500, 4_096, 9_000, 32_768, 65_507] {
            visitor.send_to(&filled(length), to).unwrap();
            let got = arrivals(&socket, 1).await;
            assert_eq!((got.len(), &*got[0].1), (1, &*filled(length)), "{bind} {from}");
            socket.send(got[0].0, filled(length), &counts);
            flush(&socket, &counts).await;
            let mut answer = vec![0; 65_535];
            let (size, by) = visitor.recv_from(&mut answer).unwrap();
            assert_eq!((by, &answer[..size]), (to, &*filled(length)));
        }
        assert!(counts.lost.borrow().is_empty(), "{counts:?}");
    }
}

#[tokio::test]
async fn an_answer_leaves_from_the_address_that_the_visitor_dialled() {
    for bind in ["0.0.0.0:0", "[::]:0"] {
        let Some(socket) = listener(bind) else { continue };
        for dialled in [[127, 0, 0, 1], [127, 0, 0, 2], [127, 9, 8, 7]] {
            let visitor = visitor(Ipv4Addr::new(127, 0, 0, 3));
            let to = SocketAddr::from((dialled, port(&socket)));
            visitor.send_to(b"?", to).unwrap();
            let route = arrivals(&socket, 1).await[0].0;
            assert_eq!(route.local.unwrap().to_canonical(), IpAddr::from(dialled));
            let counts = Counts::default();
            // A batch and a single datagram.
            for _ in 0..3 {
                socket.send(route, filled(100), &counts);
            }
            socket.send(route, filled(2_000), &counts);
            flush(&socket, &counts).await;
            for length in [100, 100, 100, 2_000] {
                let (size, by) = visitor.recv_from(&mut [0; 4_000]).unwrap();
                assert_eq!((size, by), (length, to), "{bind}");
            }
        }
    }
}

#[tokio::test]
async fn batches_keep_the_boundaries_of_datagrams_and_their_order() {
    let sizes = [[1_200; 70].as_slice(), &[700, 1_200, 1_200, 0, 0, 9, 9, 9, 3, 8], &[1; 130]];
    let sizes = sizes.concat();
    let target = listener("127.0.0.1:0").unwrap();
    let to = target.local_addr().unwrap();
    let socket = FlowSocket::connect(dialling(to).unwrap(), to).unwrap();
    let counts = Counts::default();
    for (number, &size) in sizes.iter().enumerate() {
        socket.send(socket.route().unwrap(), vec![number as u8; size].into(), &counts);
    }
    flush(&socket, &counts).await;
    let got = arrivals(&target, sizes.len()).await;
    for (number, ((_, datagram), &size)) in got.iter().zip(&sizes).enumerate() {
        assert_eq!(*datagram, vec![number as u8; size], "{number}");
    }
    assert_eq!(got.len(), sizes.len());
    assert_eq!(counts.sent.get(), (sizes.len(), sizes.iter().sum()));
}

#[tokio::test]
async fn peers_that_answer_at_once_get_their_own_datagrams() {
    let socket = listener("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    // More than there are batches.
    let visitors: Vec<_> = (0..20).map(|_| visitor(Ipv4Addr::LOCALHOST)).collect();
    for turn in 0..5_u8 {
        for visitor in &visitors {
            visitor.send_to(&[turn; 10], to).unwrap();
        }
    }
    let counts = Counts::default();
    for (route, datagram) in arrivals(&socket, 100).await {
        socket.send(route, datagram.into(), &counts);
    }
    flush(&socket, &counts).await;
    for visitor in &visitors {
        for turn in 0..5 {
            let mut answer = [0; 20];
            assert_eq!(visitor.recv(&mut answer).unwrap(), 10);
            assert_eq!(answer[..10], [turn; 10]);
        }
    }
}

#[tokio::test]
async fn where_the_kernel_refuses_a_batch_no_datagram_is_lost() {
    let target = visitor(Ipv4Addr::LOCALHOST);
    let to = target.local_addr().unwrap();
    let socket = FlowSocket::connect(dialling(to).unwrap(), to).unwrap();
    setsockopt(&socket.socket, NoCheck, &true).unwrap();
    let counts = Counts::default();
    for _ in 0..2 {
        for _ in 0..5 {
            socket.send(socket.route().unwrap(), filled(500), &counts);
        }
        flush(&socket, &counts).await;
        for _ in 0..5 {
            assert_eq!(target.recv(&mut [0; 3_000]).unwrap(), 500);
        }
    }
    assert!(socket.pause.get() > 0, "it is not asked again at once");
    assert_eq!((counts.sent.get(), counts.lost.borrow().len()), ((10, 5_000), 0));
}

#[tokio::test]
async fn a_peer_that_cannot_be_reached_costs_no_other_a_datagram() {
    let socket = listener("127.0.0.1:0").unwrap();
    let friend = visitor(Ipv4Addr::LOCALHOST);
    let to_friend = Route { peer: friend.local_addr().unwrap(), local: None, dscp: 0 };
    let lost = [
        // The kernel refuses both addresses with EINVAL.
        Route { peer: "127.0.0.1:0".parse().unwrap(), local: None, dscp: 0 },
        Route { local: Some("192.0.2.77".parse().unwrap()), ..to_friend },
    ];
    let counts = Counts::default();
    for _ in 0..2 {
        for route in lost {
            socket.send(route, filled(10), &counts);
            socket.send(route, filled(10), &counts);
        }
        socket.send(to_friend, filled(20), &counts);
        socket.send(to_friend, filled(20), &counts);
        // Larger than a packet.
        socket.send(to_friend, filled(65_508), &counts);
        flush(&socket, &counts).await;
        for _ in 0..2 {
            assert_eq!(friend.recv(&mut [0; 100]).unwrap(), 20);
        }
    }
    let of = |loss| {
        let lost = counts.lost.borrow();
        lost.iter().filter(|one| one.0 == loss).map(|one| one.1).sum::<usize>()
    };
    assert_eq!((of(Loss::Unreachable), of(Loss::TooBig)), (8, 2), "{counts:?}");
    assert_eq!(counts.sent.get().0, 4);
    assert_eq!(socket.pause.get(), 0, "segmentation was not the reason");
}

#[tokio::test]
async fn a_target_that_refuses_ends_nothing_and_is_counted() {
    let gone = visitor(Ipv4Addr::LOCALHOST).local_addr().unwrap();
    let socket = FlowSocket::connect(dialling(gone).unwrap(), gone).unwrap();
    let counts = Counts::default();
    let send = |length| socket.send(socket.route().unwrap(), filled(length), &counts);
    // Each but the first learns of the refusal of the one before, and leaves all the same.
    for _ in 0..3 {
        send(10);
        flush(&socket, &counts).await;
    }
    assert_eq!(counts.sent.get().0, 3);
    assert_eq!(*counts.lost.borrow(), [(Loss::Unreachable, 1); 2]);
    // The last refusal does not wake the reader, and does not make it spin.
    let mut turns = 0;
    let reading = poll_fn(|cx| {
        turns += 1;
        let Poll::Pending = socket.poll_read(cx, &counts, |_| panic!("nothing was sent"));
        Poll::<()>::Pending
    });
    assert!(tokio::time::timeout(Duration::from_millis(100), reading).await.is_err());
    assert!(turns < 10, "{turns}");
    // The target comes up, and the same socket reaches it.
    let back = Visitor::bind(gone).unwrap();
    send(7);
    flush(&socket, &counts).await;
    let (_, by) = back.recv_from(&mut [0; 10]).unwrap();
    assert_eq!(by, socket.local_addr().unwrap());
    back.send_to(b"here", by).unwrap();
    assert_eq!(arrivals(&socket, 1).await[0].1, b"here");
    assert_eq!(counts.lost.borrow().len(), 3);
    // A refusal that the reader meets first hides no datagram.
    let gone = back.local_addr().unwrap();
    drop(back);
    send(1);
    flush(&socket, &counts).await;
    let back = Visitor::bind(gone).unwrap();
    back.send_to(b"again", by).unwrap();
    assert_eq!(arrivals(&socket, 1).await[0].1, b"again");
}

#[tokio::test]
async fn a_full_socket_keeps_its_batches_and_loses_what_comes_later() {
    let socket = listener("127.0.0.1:0").unwrap();
    let friend = visitor(Ipv4Addr::LOCALHOST);
    let route = Route { peer: friend.local_addr().unwrap(), local: None, dscp: 0 };
    let counts = Counts::default();
    socket.send(route, filled(5), &counts);
    // Loopback is never full.
    socket.is_full.set(true);
    socket.send(route, filled(6), &counts);
    assert_eq!(*counts.lost.borrow(), [(Loss::Full, 1)]);
    flush(&socket, &counts).await;
    assert_eq!(friend.recv(&mut [0; 100]).unwrap(), 5);
    socket.send(route, filled(7), &counts);
    socket.flush_last(&counts);
    assert_eq!(friend.recv(&mut [0; 100]).unwrap(), 7);
}

#[tokio::test]
async fn a_reader_lets_others_run_and_loses_nothing() {
    let socket = listener("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    let visitors: Vec<_> = (0..200).map(|_| visitor(Ipv4Addr::LOCALHOST)).collect();
    for visitor in &visitors {
        visitor.send_to(b"x", to).unwrap();
    }
    let mut per_turn = Vec::new();
    let counts = Counts::default();
    poll_fn(|cx| {
        let mut now = 0;
        let Poll::Pending = socket.poll_read(cx, &counts, |arrival| now += arrival.count());
        per_turn.push(now);
        if per_turn.iter().sum::<usize>() == 200 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    assert!(per_turn.iter().all(|&now| now <= MESSAGES + 16), "{per_turn:?}");
}

/// Sends an answer to a detached socket, attaches it in a runtime of its own, and returns what
/// arrives there, and the port.
fn elsewhere(detached: DetachedSocket) -> (Vec<u8>, u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = detached.attach().unwrap();
        assert_eq!(socket.route().unwrap().dscp, 46);
        let counts = Counts::default();
        let got = arrivals(&socket, 1).await;
        socket.send(socket.route().unwrap(), Bytes::from_static(b"again"), &counts);
        flush(&socket, &counts).await;
        (got[0].1.clone(), port(&socket))
    })
}

#[tokio::test]
async fn a_socket_that_moves_to_another_worker_keeps_its_port_and_what_waits_in_it() {
    let target = visitor(Ipv4Addr::LOCALHOST);
    let at = target.local_addr().unwrap();
    let socket = FlowSocket::connect(dialling(at).unwrap(), at).unwrap().marked(46);
    let (from, counts) = (socket.local_addr().unwrap(), Counts::default());
    socket.send(socket.route().unwrap(), Bytes::from_static(b"last"), &counts);
    socket.flush_last(&counts);
    let detached = socket.detach().unwrap();
    target.send_to(b"waits", from).unwrap();
    let there = std::thread::spawn(move || elsewhere(detached));
    assert_eq!(there.join().unwrap(), (b"waits".to_vec(), from.port()));
    let mut space = [0; 8];
    for expected in [&b"last"[..], b"again"] {
        let (length, by) = target.recv_from(&mut space).unwrap();
        assert_eq!((&space[..length], by), (expected, from));
    }
}

#[test]
fn an_idle_socket_is_small() {
    assert!(size_of::<FlowSocket>() <= 192, "{}", size_of::<FlowSocket>());
}

/// The network of loopback has the broadcast address 127.255.255.255.
#[tokio::test]
async fn a_broadcast_address_needs_consent_and_each_machine_answers_from_its_own() {
    let machine = visitor(Ipv4Addr::UNSPECIFIED);
    let at = machine.local_addr().unwrap().port();
    let target = SocketAddr::from(([127, 255, 255, 255], at));
    let refused = FlowSocket::connect(dialling(target).unwrap(), target).unwrap_err();
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::ACCESS));

    let socket = FlowSocket::broadcast(dialling(target).unwrap(), target).unwrap();
    let counts = Counts::default();
    let route = socket.route().unwrap();
    for _ in 0..2 {
        socket.send(route, Bytes::from_static(b"wake"), &counts);
    }
    poll_fn(|cx| socket.poll_flush(cx, &counts)).await;
    assert_eq!(counts.sent.get(), (2, 8));
    let (_, asker) = machine.recv_from(&mut [0; 8]).unwrap();
    // The port of the target says that a machine was asked; nobody else has a say.
    visitor(Ipv4Addr::LOCALHOST).send_to(b"stranger", (Ipv4Addr::LOCALHOST, asker.port())).unwrap();
    machine.send_to(b"awake", (Ipv4Addr::LOCALHOST, asker.port())).unwrap();
    let got = arrivals(&socket, 1).await;
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].1, b"awake");
    assert_eq!(got[0].0.peer, SocketAddr::from(([127, 0, 0, 1], at)));
}

#[tokio::test]
async fn consent_to_broadcast_changes_nothing_for_the_address_of_one_machine() {
    let (machine, other) = (visitor(Ipv4Addr::LOCALHOST), visitor(Ipv4Addr::LOCALHOST));
    let target = machine.local_addr().unwrap();
    let socket = FlowSocket::broadcast(dialling(target).unwrap(), target).unwrap();
    let own = socket.local_addr().unwrap();
    other.send_to(b"stranger", own).unwrap();
    machine.send_to(b"answer", own).unwrap();
    let got = arrivals(&socket, 1).await;
    assert_eq!(got.iter().map(|(_, bytes)| &bytes[..]).collect::<Vec<_>>(), [b"answer"]);
}

#[tokio::test]
async fn a_flow_comes_from_the_source_and_the_interface_of_its_dial() {
    let target = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = target.local_addr().unwrap();
    let source = Some("127.0.0.2".parse().unwrap());
    let interface = crate::options::Interface::new("lo");
    let options = crate::SocketOptions { source, interface, ..crate::SocketOptions::DEFAULT };
    let socket = dialling(to).unwrap();
    options.at_connect(&socket).unwrap();
    let socket = FlowSocket::connect(socket, to).unwrap();
    let own = socket.local_addr().unwrap();
    assert!(Some(own.ip()) == source && own.port() > 0, "{own}");
}
