//! Two sessions of own packets over keys that are updated each few packets.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kcp::own::wire::ConnectionId;
use kcp::own::{Config, Session};
use kcp_crypto::{Algorithm, RollingKeys};

/// Packets are lost and overtake each other; all bytes arrive, and both directions have changed
/// their phase many times.
#[test]
fn a_transfer_goes_on_while_keys_are_updated() {
    for algorithm in [Algorithm::Aes128Gcm, Algorithm::Aes256Gcm, Algorithm::ChaCha20Poly1305] {
        let mut now = Instant::now();
        let id = ConnectionId([1; 8]);
        let end = |seal, open| {
            let keys = RollingKeys::new(algorithm, &[seal; 32], &[open; 32], 150).unwrap();
            // Little is under way, so that an end that only receives sends many packets.
            let config = Config { send_window: 8, ..Config::new((id, id), 1_200) };
            Session::new(config, Box::new(keys), now)
        };
        let mut ends = [end(1, 2), end(2, 1)];
        let mut left = Bytes::from(vec![7; 10_000_000]);
        let (mut read, mut phases, mut state) = (0, [(0, 0); 2], 1_u64);
        let mut under_way: [Vec<Vec<u8>>; 2] = [Vec::new(), Vec::new()];
        for _ in 0..20_000 {
            ends[0].write(now, &mut left);
            for n in 0..2 {
                ends[n].handle_timeout(now);
                let mut packet = Vec::new();
                while ends[n].poll_transmit(now, &mut packet).is_some() {
                    let phase = packet[0] & 1;
                    phases[n] = (phases[n].0 + u32::from(phases[n].1 != phase), phase);
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let packet = std::mem::take(&mut packet);
                    match state >> 60 {
                        0 => {}
                        1 => under_way[n].insert(under_way[n].len().saturating_sub(3), packet),
                        _ => under_way[n].push(packet),
                    }
                }
            }
            now += Duration::from_millis(5);
            for n in 0..2 {
                for mut packet in under_way[1 - n].drain(..) {
                    assert!(ends[n].handle_datagram(now, &mut packet, false).is_some(), "it opens");
                }
            }
            read +=
                std::iter::from_fn(|| ends[1].read(usize::MAX)).map(|it| it.len()).sum::<usize>();
            if read == 10_000_000 {
                break;
            }
        }
        assert_eq!(read, 10_000_000);
        assert!(phases[0].0 >= 20 && phases[1].0 >= 4, "{phases:?}");
    }
}
