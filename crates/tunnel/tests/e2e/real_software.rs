//! Traffic of third-party software through services and forwards.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::{Command, Output};

use crate::harness::{
    Iperf3, Nginx, Origin, Scheme, Setup, bytes, connect, program, run, start_sshd,
};

const MB: u64 = 1_000_000;

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// Runs it; a status other than 0 fails the test with what it printed.
fn succeed(command: &mut Command) -> String {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output));
    text(&output)
}

#[test]
fn wrk_gets_every_answer_of_nginx() {
    for &scheme in Scheme::ALL {
        let setup = Setup::new(scheme);
        let nginx = Nginx::start(setup.dir(), "");
        let running = setup.service("web", nginx.port).start();
        let url = format!("http://127.0.0.1:{}/small", running.public("web"));
        let report = succeed(Command::new(program("wrk")).args(["-t1", "-c100", "-d3s", &url]));
        println!("{scheme:?}: {report}");
        // wrk prints these lines only when something went wrong.
        assert!(!report.contains("Socket errors"), "{report}");
        assert!(!report.contains("Non-2xx"), "{report}");
        let requests = report.lines().find_map(|line| line.trim().split_once(" requests in "));
        let requests: u64 = requests.unwrap().0.parse().unwrap();
        assert!(requests > 1_000, "only {requests} requests in 3 s");
    }
}

#[test]
fn curl_gets_chunked_and_kept_alive_answers() {
    let setup = Setup::new(Scheme::TLS);
    // Without a length in advance nginx sends chunks: sub_filter forgets the length.
    let nginx = Nginx::start(
        setup.dir(),
        "location /chunked/ { alias www/; ssi on; ssi_types *; chunked_transfer_encoding on; }",
    );
    let big = setup.dir().join("www/big");
    bytes::send(File::create(&big).unwrap(), 20 * MB);
    fs::write(setup.dir().join("www/page"), "x".repeat(300_000)).unwrap();
    let running = setup.service("web", nginx.port).start();
    let base = format!("http://127.0.0.1:{}", running.public("web"));
    let curl = || {
        let mut command = Command::new(program("curl"));
        command.args(["--silent", "--show-error", "--fail", "--max-time", "60"]);
        command
    };

    let copy = running.file("copy");
    succeed(curl().arg("--output").arg(&copy).arg(format!("{base}/big")));
    bytes::expect(File::open(&copy).unwrap(), 20 * MB);

    let chunked = text(&run(curl().args(["--include", &format!("{base}/chunked/page")])));
    assert!(chunked.to_lowercase().contains("transfer-encoding: chunked"), "{chunked:.400}");
    assert_eq!(chunked.matches('x').count() / 300_000, 1, "the whole body");

    let urls: Vec<_> = (0..50).map(|n| format!("{base}/small?{n}")).collect();
    let kept = succeed(curl().arg("--verbose").args(&urls));
    assert_eq!(kept.matches("hello from nginx").count(), 50);
    assert_eq!(kept.matches("Re-using existing connection").count(), 49, "one connection for all");
}

/// The scenario of the oldest tunnel of this family: `iperf3 -s` there, a forward here.
#[test]
fn iperf3_runs_both_ways_through_service_and_forward() {
    let setup = Setup::new(Scheme::TLS);
    let iperf3 = Iperf3::start(setup.dir());
    let running = setup.service("iperf", iperf3.port).forward(iperf3.port).start();
    for port in [running.public("iperf"), running.local()] {
        for direction in [&[][..], &["-R"]] {
            iperf3.wait_idle();
            let port = port.to_string();
            let mut command = Command::new(program("iperf3"));
            command.args(["-c", "127.0.0.1", "-p", &port, "-n", "300M", "-J"]).args(direction);
            let report: serde_json::Value = serde_json::from_str(&succeed(&mut command)).unwrap();
            assert!(report.get("error").is_none(), "{report}");
            let received = &report["end"]["sum_received"];
            let (bytes, rate) = (&received["bytes"], received["bits_per_second"].as_f64());
            println!("port {port} {direction:?}: {:.2} Gbit/s", rate.unwrap() / 1e9);
            assert_eq!(report["end"]["sum_sent"]["bytes"], 300 << 20, "{report}");
            // The sender says on another connection that it is done, and the receiver counts no
            // more: what is under way then is missing. That is up to 6 MB without any tunnel
            // between (iperf3 3.12 on loopback); here it is one window (16 MiB) and the kernel's
            // buffers of three connections. Whether bytes are whole is for the tests of `survival`.
            assert!(bytes.as_u64().unwrap() >= (300 - 16 - 3 * 6) << 20, "{received}");
        }
    }
}

#[test]
fn rsync_over_ssh_brings_200_mb_unharmed() {
    let setup = Setup::new(Scheme::TLS);
    let (port, _sshd, options) = start_sshd(setup.dir());
    let running = setup.service("ssh", port).start();
    let port = running.public("ssh").to_string();

    let mut ssh = Command::new(program("ssh"));
    ssh.args(&options).args(["-p", &port, "127.0.0.1", "echo through && exit 0"]);
    assert_eq!(succeed(&mut ssh).trim(), "through");

    let (source, there, back) =
        (running.file("source"), running.file("there"), running.file("back"));
    bytes::send(File::create(&source).unwrap(), 200 * MB);
    let shell = format!("ssh {} -p {port}", options.join(" "));
    let rsync = || {
        let mut command = Command::new(program("rsync"));
        command.args(["--whole-file", "--inplace", "-e", &shell]);
        command
    };
    succeed(rsync().arg(&source).arg(format!("127.0.0.1:{}", there.display())));
    succeed(rsync().arg(format!("127.0.0.1:{}", there.display())).arg(&back));
    let sums = succeed(Command::new("sha256sum").arg(&source).arg(&there).arg(&back));
    let sums: Vec<_> = sums.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(sums.len(), 3);
    assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
}

#[test]
fn a_server_that_speaks_first_is_heard_without_a_client_byte() {
    for &scheme in Scheme::ALL {
        let banner = b"220 I speak first\r\n";
        let origin = Origin::start(move |mut stream| {
            stream.write_all(banner).unwrap();
            bytes::expect_end(&stream);
        });
        let running = Setup::new(scheme).service("smtp", origin.port()).start();
        let mut visitor = connect(running.public("smtp"));
        let mut heard = [0; 19];
        std::io::Read::read_exact(&mut visitor, &mut heard).unwrap();
        assert_eq!(&heard, banner);
        drop(visitor);
        origin.wait_one(crate::harness::SOON);
    }
}
