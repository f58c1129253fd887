//! A status for tests.

use super::*;

/// A UDP service of a client.
pub fn sample_flows() -> Service {
    Service {
        name: "dns".into(),
        address: "udp://0.0.0.0:5353".into(),
        state: ServiceState::Up.into(),
        flows: 3,
        flows_total: 40,
        bytes_in: 4000,
        bytes_out: 9000,
        datagrams_in: 100,
        datagrams_out: 99,
        dropped: BTreeMap::from([("oversize".to_owned(), 1), ("queue".to_owned(), 7)]),
        ..Service::default()
    }
}

/// A named service that has answered requests.
pub fn sample_requests() -> Service {
    let bucket = |up_to_micros, count| Bucket { up_to_micros, count };
    let requests = Requests {
        statuses: BTreeMap::from([("2xx".to_owned(), 7), ("5xx".to_owned(), 1)]),
        first_byte: vec![bucket(Some(5_000), 6), bucket(Some(10_000), 0), bucket(None, 2)],
        first_byte_micros: 20_500_000,
    };
    Service {
        name: "web".into(),
        address: "https://a.example".into(),
        state: ServiceState::Up.into(),
        streams_total: 4,
        requests: Some(requests),
        ..Service::default()
    }
}

/// A carrier over `kcp://`, on a path that loses packets.
pub fn sample_kcp() -> Carrier {
    let kcp = Kcp {
        sent_packets: 20_000,
        lost_packets: 1_000,
        retransmitted_packets: 60,
        parity_packets: 1_200,
        recovered_packets: 940,
        window_bytes: 1 << 20,
        mtu: 1472,
        rtt_micros: 98_700,
    };
    Carrier {
        number: 1,
        transport: "kcp".into(),
        peer: "192.0.2.7:40001".into(),
        rtt_micros: Some(97_650),
        kcp: Some(kcp),
        ..Carrier::default()
    }
}

/// A server with one session and a service.
pub fn sample() -> Status {
    let tcp = Tcp {
        sent_segments: Some(2_000),
        retransmitted_segments: Some(25),
        retransmitted_bytes: Some(36_200),
        queue_bytes: Some(20_480),
        ..Tcp::default()
    };
    let sent = Sent {
        segments: Some(9_000),
        retransmitted_segments: Some(30),
        retransmitted_bytes: Some(43_440),
        ..Sent::default()
    };
    let carrier = Carrier {
        number: 2,
        transport: "tls".into(),
        peer: "192.0.2.7:40000".into(),
        via: None,
        rtt_micros: Some(12_345),
        cipher: Some("TLS_AES_128_GCM_SHA256".into()),
        backend: Some("ring".into()),
        standby: false,
        tcp: Some(tcp),
        quic: None,
        kcp: None,
    };
    let service = Service {
        name: "ssh".into(),
        address: "tcp://0.0.0.0:10022".into(),
        state: ServiceState::Up.into(),
        streams: 1,
        streams_total: 20,
        bytes_in: 1536,
        bytes_out: 3 << 30,
        ..Service::default()
    };
    Status {
        role: Role::Server,
        version: "0.1.0".into(),
        pid: 42,
        uptime_seconds: 3_700,
        state: DaemonState::Running.into(),
        listen: vec!["tls://0.0.0.0:7000".into()],
        pins: vec!["sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".into()],
        memory: Memory { budget_bytes: 3 << 30, used_bytes: 1536, refused: 0 },
        descriptors: Descriptors { open: 24, limit: Some(1024), room: Some(936) },
        udp: Some(Udp { receive_buffer_bytes: 4 << 20, send_buffer_bytes: 2 << 20 }),
        sessions: vec![Session {
            peer: "home".into(),
            state: SessionState::Up.into(),
            links: vec![
                Link {
                    serial: 7,
                    state: LinkState::Up.into(),
                    path: None,
                    streams: 1,
                    flows: 0,
                    dropped: BTreeMap::from([("early".to_owned(), 2)]),
                    retained_bytes: 0,
                    carriers: vec![carrier],
                    worker: 1,
                },
                Link { serial: 8, state: LinkState::Stalled.into(), ..Link::default() },
            ],
            services: vec![service],
            sent: BTreeMap::from([("tls".into(), sent)]),
            ..Session::default()
        }],
        ..Status::default()
    }
}
