//! Visitors whose path is cut: no FIN, no RST, no answer any more.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use testkit::cage::{far_v4, in_cage, ip, on, uplinks};

use crate::harness::{Origin, SOON, Scheme, Setup, connect, free_port, wait, wait_listening};

/// A vanished visitor is gone by then: 5 min, and a reserve for a busy machine.
const GONE: Duration = Duration::from_secs(330);

/// The host of the visitors.
const ELSEWHERE: &str = "elsewhere";

/// Programs of the visitors; they end with the value.
#[derive(Default)]
struct Visitors(Vec<Child>);

impl Visitors {
    /// Opens connections to this port. Each says a byte and reads nothing.
    fn visit(&mut self, port: u16, count: usize) {
        let far = far_v4(0);
        let script = format!(
            "for n in $(seq {count}); do exec {{fd}}<>/dev/tcp/{far}/{port}; printf x >&$fd; done; \
             echo open; sleep 900"
        );
        let mut program = on(ELSEWHERE);
        program.args(["bash", "-c", &script]).stdout(Stdio::piped());
        let mut program = program.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "open\n");
        self.0.push(program);
    }
}

impl Drop for Visitors {
    fn drop(&mut self) {
        for program in &mut self.0 {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

#[test]
fn visitors_that_vanish_are_gone_within_5_min_and_a_paused_download_stays() {
    in_cage(|| {
        uplinks(ELSEWHERE, 1);
        vanish();
    });
}

fn vanish() {
    let echo = Origin::echo();
    // Each visitor gets bytes until it takes no more.
    let source = Origin::start(|mut socket| while socket.write_all(&[7; 65_536]).is_ok() {});
    let mut setup = Setup::new(Scheme::TLS);
    let [idle, busy] = [(); 2].map(|()| free_port());
    setup.allow.extend([idle, busy]);
    writeln!(setup.server_lines, "public_bind: 0.0.0.0").unwrap();
    write!(
        setup.client_lines,
        "services:\n\
         \x20 - {{ name: idle, target: \"{}\", public: \"tcp://:{idle}\" }}\n\
         \x20 - {{ name: busy, target: \"{}\", public: \"tcp://:{busy}\" }}\n",
        echo.port(),
        source.port()
    )
    .unwrap();
    let mut running = setup.start();
    [idle, busy].into_iter().for_each(|port| wait_listening(port, SOON));
    // A download that its visitor has paused, on a path that works.
    let mut paused = connect(busy);
    let before = [running.server.descriptors(), running.client().descriptors()];

    let mut elsewhere = Visitors::default();
    elsewhere.visit(idle, 20);
    elsewhere.visit(busy, 20);
    wait("the visitors are served", SOON, || {
        (running.server.descriptors() >= before[0] + 40).then_some(())
    });
    std::thread::sleep(Duration::from_secs(2));
    ip(ELSEWHERE, "link set near0 down");
    let begun = Instant::now();
    let mut left = before;
    wait("the visitors are gone on both ends", GONE, || {
        left = [running.server.descriptors(), running.client().descriptors()];
        // A link may make a connection meanwhile.
        (left[0] <= before[0] + 3 && left[1] <= before[1] + 3).then_some(())
    });
    println!("gone after {:?}: {before:?} -> {left:?}", begun.elapsed());
    std::thread::sleep(GONE.saturating_sub(begun.elapsed()));
    let mut bytes = vec![0; 16 << 20];
    paused.read_exact(&mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7), "the paused download goes on");
}
