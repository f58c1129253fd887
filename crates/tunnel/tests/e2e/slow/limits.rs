//! The limit that `tunnel speedtest` names. The throughput of a simulated path depends on the
//! machine, so these cases run alone. `measure/verdict.rs` tests the choice of the limit by itself.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{Scheme, Setup};
use crate::measure::json;

#[test]
fn a_narrow_path_is_the_limit() {
    // About 16 Mbit/s each way.
    let mut setup = Setup::alone(Scheme::TLS);
    let path = Path { delay: Duration::ZERO, rate: 2e6 };
    setup.server_url = Some(format!("tls://{}", path.open(setup.server_port())));
    let running = setup.start();
    running.wait_links(2);
    let speed = json(&running, &["speedtest", "--seconds", "3", "--json"]);
    for way in ["up", "down"] {
        assert_eq!(speed[way]["limit"], "path", "{speed:#}");
    }
}

#[test]
fn a_small_window_on_a_long_path_is_the_limit() {
    let mut setup = Setup::alone(Scheme::TLS);
    // Long enough that a busy machine adds little to it.
    let path = Path { delay: Duration::from_millis(200), rate: 1e9 };
    setup.server_url = Some(format!("tls://{}", path.open(setup.server_port())));
    for lines in [&mut setup.server_lines, &mut setup.client_lines] {
        lines.push_str("window: { initial: 64KiB, max: 64KiB }\n");
    }
    let running = setup.start();
    running.wait_links(2);
    let speed = json(&running, &["speedtest", "--seconds", "5", "--json"]);
    for way in ["up", "down"] {
        assert_eq!(speed[way]["limit"], "window", "{speed:#}");
    }
    let ping = json(&running, &["ping", "-c", "1", "--json"]);
    assert!(ping["min_micros"].as_u64().unwrap() >= 400_000, "{ping}");
}

/// A path with a delay and a rate (bytes per second) each way, for every connection alike.
#[derive(Clone, Copy)]
struct Path {
    delay: Duration,
    rate: f64,
}

impl Path {
    /// Where it begins; it leads to this port.
    fn open(self, to: u16) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    self.carry(from, to);
                }
            }
        });
        address
    }

    fn carry(self, mut from: TcpStream, mut to: TcpStream) {
        // What is on its way: little where the rate is low, else the queue would be the path.
        let pieces = if self.delay.is_zero() { 1 } else { 4096 };
        let (send, receive) = sync_channel::<(Instant, Vec<u8>)>(pieces);
        thread::spawn(move || {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                if send.send((Instant::now() + self.delay, buffer[..n].to_vec())).is_err() {
                    break;
                }
            }
        });
        thread::spawn(move || -> io::Result<()> {
            for (due, piece) in receive {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                thread::sleep(Duration::from_secs_f64(piece.len() as f64 / self.rate));
                to.write_all(&piece)?;
            }
            to.shutdown(Shutdown::Write)
        });
    }
}
