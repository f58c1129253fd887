//! Payload moves as pages over a carrier: every byte of both daemons, from the first
//! (`TUNNEL_PAGES=always`). The variable exists in a build with debug assertions, which also find
//! bytes that are lost in a pipe.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, sendfile};
use rustix::io::ioctl_fionread;
use rustix::pipe::fcntl_getpipe_size;

use crate::harness::{LONG, Origin, Scheme, Setup, bytes, connect, wait};

const MB: u64 = 1_000_000;

/// Pipes of a daemon with one worker: 96, of two descriptors each, and those of its logs.
const PIPES_MOST: usize = 2 * 96 + 4;

/// The room of these pipes in bytes: 256 KiB of pages each, and that of the logs.
const PIPED_MOST: u64 = 96 * (256 << 10) + 2 * (64 << 10);

fn paged(scheme: Scheme, lines: &str) -> Setup {
    let mut setup = Setup::with_assertions(scheme);
    for lines_of in [&mut setup.server_lines, &mut setup.client_lines] {
        lines_of.push_str("workers: 1\n");
        lines_of.push_str(lines);
    }
    setup.server_env.push(("TUNNEL_PAGES", "always".into()));
    setup.client_env.push(("TUNNEL_PAGES", "always".into()));
    setup
}

/// The descriptors of pipes of a process.
fn pipes(process: u32) -> usize {
    let Ok(all) = fs::read_dir(format!("/proc/{process}/fd")) else { return 0 };
    let links = all.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|link| link.as_os_str().as_encoded_bytes().starts_with(b"pipe:")).count()
}

/// What the pipes of a process hold: their number, the bytes in them, and the bytes that they have
/// room for. The system counts no page of a pipe as memory of the process.
#[derive(Clone, Copy, Debug, Default)]
struct InPipes {
    count: usize,
    held: u64,
    room: u64,
}

fn in_pipes(process: u32) -> InPipes {
    let mut all = InPipes::default();
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { return all };
    for path in files.flatten().map(|file| file.path()) {
        let is_output = fs::read_link(&path).is_ok_and(|link| {
            let is_pipe = link.as_os_str().as_encoded_bytes().starts_with(b"pipe:");
            is_pipe && is_for_reading(process, &path)
        });
        // The descriptor may be gone meanwhile. Opening it makes another of the same pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let (true, Ok(pipe)) = (is_output, rustix::fs::open(&path, flags, Mode::empty())) {
            all.count += 1;
            all.held += ioctl_fionread(&pipe).unwrap();
            all.room += fcntl_getpipe_size(&pipe).unwrap() as u64;
        }
    }
    all
}

/// Whether a descriptor is that of the end of a pipe from which bytes are read: the flags in
/// `fdinfo` end with the access mode (proc(5)).
fn is_for_reading(process: u32, path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let info = fs::read_to_string(format!("/proc/{process}/fdinfo/{name}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.is_some_and(|flags| flags.trim().ends_with('0'))
}

/// The resident memory of a process in bytes.
fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Reads `total` bytes, sends as many, and reads the end.
fn both_ways(total: u64) -> Origin {
    Origin::start(move |stream| {
        bytes::expect(&stream, total);
        bytes::send(&stream, total);
        stream.shutdown(Shutdown::Write).unwrap();
        bytes::expect_end(&stream);
    })
}

fn visit_both_ways(port: u16, total: u64) {
    let visitor = connect(port);
    bytes::send(&visitor, total);
    bytes::expect(&visitor, total);
    bytes::expect_end(&visitor);
}

/// Two visits at a time over carriers that are killed each `every` bytes, until there were `kills`.
/// Each visit moves a quarter of `total` or all of it, up and then down.
pub(crate) fn survive(scheme: Scheme, total: u64, every: i64, kills: u64) {
    let (first, second) = (both_ways(total), both_ways(total / 4));
    let mut setup = paged(scheme, "").service("one", first.port()).service("two", second.port());
    // A carrier that lived less than a second is a failure, after which a client waits twice as
    // long each time. By default that is 1.1 s after most kills, and three hours after 10,000.
    setup.client_lines.push_str("retry: { min: 1ms, max: 10ms }\n");
    let mut running = setup.wired().start();
    let processes = [running.server.id(), running.client().id()];
    let idle = processes.map(pipes);
    running.wire().kill_every(every);
    let ports = [running.public("one"), running.public("two")];
    let mut most = [0; 2];
    loop {
        std::thread::scope(|scope| {
            let visits = [
                scope.spawn(move || visit_both_ways(ports[0], total)),
                scope.spawn(move || visit_both_ways(ports[1], total / 4)),
            ];
            while visits.iter().any(|visit| !visit.is_finished()) {
                let now = processes.map(pipes);
                most = [most[0].max(now[0]), most[1].max(now[1])];
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        first.wait_one(LONG);
        second.wait_one(LONG);
        if running.wire().kills() >= kills {
            break;
        }
    }
    for (idle, most) in idle.into_iter().zip(most) {
        assert!(most > idle, "bytes moved as pages: {idle} descriptors before, {most} meanwhile");
        assert!(most <= PIPES_MOST, "{most}");
    }
}

#[test]
fn carriers_killed_under_load_lose_no_byte_of_pages() {
    survive(Scheme::TCP, 32 * MB, 4 << 20, 12);
}

#[test]
fn web_sockets_killed_under_load_lose_no_byte_of_pages() {
    survive(Scheme::WS, 32 * MB, 4 << 20, 12);
}

#[test]
fn a_file_that_its_origin_overwrites_changes_no_other_byte() {
    const SIZE: usize = 32 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, vec![b'a'; SIZE]).unwrap();
    let of_origin = path.clone();
    let origin = Origin::start(move |stream| {
        let file = File::open(&of_origin).unwrap();
        let mut left = SIZE;
        while left > 0 {
            left -= sendfile(&stream, &file, None, left).unwrap();
        }
        stream.shutdown(Shutdown::Write).unwrap();
        bytes::expect_end(&stream);
    });
    let beside = both_ways(20 * MB);
    let setup =
        paged(Scheme::TCP, "").service("file", origin.port()).service("beside", beside.port());
    let running = setup.wired().start();
    running.wire().kill_every(3 << 20);
    let (file_port, beside_port) = (running.public("file"), running.public("beside"));
    let is_over = Arc::new(AtomicBool::new(false));
    let overwriting = {
        let is_over = Arc::clone(&is_over);
        std::thread::spawn(move || {
            let file = File::options().write(true).open(&path).unwrap();
            let mut rounds = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                let content = if rounds.is_multiple_of(2) { b'b' } else { b'c' };
                let piece = vec![content; 64 << 10];
                for at in (0..SIZE).step_by(piece.len()) {
                    file.write_all_at(&piece, at as u64).unwrap();
                }
                rounds += 1;
            }
            rounds
        })
    };
    let other = std::thread::spawn(move || visit_both_ways(beside_port, 20 * MB));
    let mut visitor = connect(file_port);
    let (mut seen, mut buffer) = (0, vec![0; 256 << 10]);
    loop {
        let n = visitor.read(&mut buffer).unwrap();
        if n == 0 {
            break;
        }
        assert!(buffer[..n].iter().all(|byte| b"abc".contains(byte)), "a byte of the file alone");
        seen += n;
    }
    drop(visitor);
    assert_eq!(seen, SIZE, "the length and the end do not depend on the content");
    other.join().unwrap();
    is_over.store(true, Ordering::Relaxed);
    assert!(overwriting.join().unwrap() > 0, "the file was overwritten meanwhile");
    origin.wait_one(LONG);
    beside.wait_one(LONG);
    assert!(running.wire().kills() >= 5, "{}", running.wire().kills());
}

/// Readers that stop hold memory of the daemon, and pages in pipes, which are memory of the system:
/// both together stay below the budget. Then the pages of all of them are freed.
#[test]
fn stalled_readers_hold_bounded_pages_within_the_budget() {
    const READERS: usize = 60;
    const BUDGET: u64 = 64 << 20;
    /// Beside the budget: buffers and pipes that the worker keeps for their next use, and what the
    /// allocator keeps.
    const BESIDE: u64 = 48 << 20;
    let endless = Origin::start(|mut stream| {
        let piece = [7; 64 << 10];
        while stream.write_all(&piece).is_ok() {}
    });
    let moving = both_ways(20 * MB);
    let setup = paged(Scheme::TCP, "memory_budget: 64MiB\n");
    let setup = setup.service("endless", endless.port()).service("moving", moving.port());
    let mut running = setup.start();
    let processes = [running.server.id(), running.client().id()];
    let before = processes.map(resident);
    let stalled: Vec<_> = (0..READERS).map(|_| connect(running.public("endless"))).collect();
    for mut visitor in &stalled {
        visitor.read_exact(&mut [0; 1000]).unwrap();
    }
    let look = || {
        let mut kept = 0;
        for (process, before) in processes.into_iter().zip(before) {
            let (pages, memory) = (in_pipes(process), resident(process));
            assert!(2 * pages.count <= PIPES_MOST, "{pages:?} beside {READERS} stalled readers");
            assert!(pages.held <= pages.room && pages.room <= PIPED_MOST, "{pages:?}");
            let taken = memory.saturating_sub(before) + pages.held;
            assert!(taken <= BUDGET + BESIDE, "{taken} bytes, {pages:?}");
            kept += pages.held;
        }
        kept
    };
    wait("pages of stalled readers in pipes", LONG, || (look() > 0).then_some(()));
    visit_both_ways(running.public("moving"), 20 * MB);
    moving.wait_one(LONG);
    look();
    drop(stalled);
    let is_empty = |process: &u32| in_pipes(*process).held == 0;
    wait("empty pipes", LONG, || processes.iter().all(is_empty).then_some(()));
    visit_both_ways(running.public("moving"), 20 * MB);
    moving.wait_one(LONG);
}
