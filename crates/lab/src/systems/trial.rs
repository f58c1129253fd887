//! `cargo xtask systems`: starts each system once with a small echo as its origin and sends bytes
//! through it. A broken set-up is found before anything is measured.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{slice, thread};

use anyhow::{Context as _, Result, bail, ensure};
use testkit::stage::{Nginx, Origin as Echo};

use super::{Origin, System, WEB, all};
use xtask::options;
use xtask::site::Site;

/// The bytes sent through the system and back: more than the socket buffers on the way hold.
const BYTES: usize = 8 << 20;

/// The time limit for these bytes, with the slowest system on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// `cargo xtask systems [NAME…]`.
pub(crate) fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let mut chosen = Vec::new();
    let parsed = choose(args).map(|systems| chosen = systems);
    options::then(parsed, || try_all(&Site::here()?, &chosen))
}

fn choose(args: impl Iterator<Item = String>) -> Result<Vec<&'static System>> {
    let named: Vec<_> = args.collect();
    if let Some(unknown) = named.iter().find(|name| all().iter().all(|s| s.name != **name)) {
        let names: Vec<_> = all().iter().map(|system| system.name).collect();
        bail!("no such system: {unknown}; there are {}", names.join(", "));
    }
    let wanted = |system: &&System| named.is_empty() || named.iter().any(|n| n == system.name);
    Ok(all().iter().filter(wanted).collect())
}

fn try_all(site: &Site, systems: &[&System]) -> Result<()> {
    let echoes = [Echo::echo(), Echo::echo()];
    let origin = |name, echo: &Echo| Origin { name, address: ([127, 0, 0, 1], echo.port()).into() };
    let origins = [origin("first", &echoes[0]), origin("second", &echoes[1])];
    let mut failures = 0;
    for system in systems {
        if let Some(reason) = system.lacking(site) {
            println!("{:17} left out: {reason}", system.name);
            continue;
        }
        match try_one(site, system, &origins) {
            Ok(line) => println!("{:17} {line}", system.name),
            Err(error) => {
                failures += 1;
                println!("{:17} FAILED: {error:#}", system.name);
            }
        }
    }
    ensure!(failures == 0, "{failures} systems carry nothing");
    Ok(())
}

fn try_one(site: &Site, system: &System, origins: &[Origin]) -> Result<String> {
    let dir = site.target.join("systems").join(system.name);
    // Remove the files of an earlier run.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let nginx = system.is_for_http().then(|| Nginx::start(&dir, "location = / { return 200; }"));
    let web = nginx
        .as_ref()
        .map(|nginx| Origin { name: WEB, address: ([127, 0, 0, 1], nginx.port).into() });
    let start = Instant::now();
    let mut running = system.start(site, &dir, web.as_ref().map_or(origins, slice::from_ref), 0)?;
    let ready = start.elapsed();
    if web.is_some() {
        // The start has seen an answer of the origin.
        running.check()?;
        return Ok(format!(
            "{:16} ready after {} ms, a request was answered, processes {:?}",
            system.version(site).unwrap_or_default(),
            ready.as_millis(),
            running.pids()
        ));
    }
    for origin in origins {
        echo(&running.visit(origin.name)?)?;
    }
    running.check()?;
    Ok(format!(
        "{:16} ready after {} ms, {} MiB echoed by {} origins, processes {:?}",
        system.version(site).unwrap_or_default(),
        ready.as_millis(),
        BYTES >> 20,
        origins.len(),
        running.pids()
    ))
}

/// Sends bytes and checks that the same bytes come back.
fn echo(mut visitor: &TcpStream) -> Result<()> {
    visitor.set_read_timeout(Some(DEADLINE))?;
    visitor.set_write_timeout(Some(DEADLINE))?;
    let sent: Vec<u8> = (0..BYTES).map(|i| (i * 31 + i / 251) as u8).collect();
    let mut got = vec![0; BYTES];
    thread::scope(|scope| {
        let mut own = visitor;
        let sent = &sent;
        let writer = scope.spawn(move || own.write_all(sent));
        visitor.read_exact(&mut got).context("reading the echo")?;
        writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))?.context("writing")
    })?;
    ensure!(got == sent, "other bytes came back");
    visitor.shutdown(Shutdown::Both)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_systems_are_tried_and_unknown_names_are_refused() {
        let names = |args: &[&str]| {
            let chosen = choose(args.iter().map(ToString::to_string))?;
            anyhow::Ok(chosen.iter().map(|system| system.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["tunnel-tcp", "direct"]).unwrap(), ["direct", "tunnel-tcp"]);
        assert_eq!(names(&[]).unwrap().len(), all().len());
        let error = names(&["carrier-pigeon"]).unwrap_err().to_string();
        assert!(error.contains("carrier-pigeon") && error.contains("direct"), "{error}");
    }
}
