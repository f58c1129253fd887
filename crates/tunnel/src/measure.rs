//! The output of `tunnel ping` and `tunnel speedtest`, as text and as JSON.

use std::io::{IsTerminal, Write, stderr};
use std::time::Instant;

use anyhow::{Context, bail};
use ops::command::{News, PingLinks, TestSpeed};
use ops::measure::{Direction, Flow, Ping, Pong, Progress, Speed};
use ops::term::{self, Drawn, Screen, Sheet, Unwritten, Waiting};
use serde::Serialize;

use crate::cli::{PingArgs, SpeedArgs};
use crate::instances;

/// Width of the progress bar, in characters.
const BAR: u64 = 30;

/// The width of a progress line besides the bar.
const BESIDE: u64 = 34;

/// Milliseconds between two progress lines if standard error is not a terminal.
const PLAIN_NEWS: u64 = 1000;

/// The results of all rounds.
#[derive(Debug, Default, Serialize)]
struct Answers {
    peer: String,
    pings: Vec<Numbered>,
    sent: u64,
    received: u64,
    omitted: usize,
    #[serde(flatten)]
    times: Option<Times>,
}

#[derive(Debug, Serialize)]
struct Numbered {
    seq: u64,
    #[serde(flatten)]
    pong: Pong,
}

/// Statistics of the round trips, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Times {
    min_micros: u64,
    avg_micros: u64,
    max_micros: u64,
    /// Standard deviation, the `mdev` of ping(8).
    mdev_micros: u64,
}

impl Times {
    fn of(all: &[u64]) -> Option<Self> {
        let (min, max) = (*all.iter().min()?, *all.iter().max()?);
        let count = all.len() as u128;
        let sum: u128 = all.iter().map(|n| u128::from(*n)).sum();
        let avg = sum / count;
        let spread: u128 = all.iter().map(|n| u128::from(*n).abs_diff(avg).pow(2)).sum();
        Some(Self {
            min_micros: min,
            avg_micros: u64::try_from(avg).unwrap_or(u64::MAX),
            max_micros: max,
            mdev_micros: u64::try_from((spread / count).isqrt()).unwrap_or(u64::MAX),
        })
    }
}

/// Measures round trips to the other side over every link.
pub(crate) fn ping(args: &PingArgs) -> anyhow::Result<()> {
    let instance = instances::find(&args.which)?;
    let mut answers = Answers::default();
    let begin = Instant::now();
    for seq in 1..=args.count.get() {
        let due = args.interval * u32::try_from(seq - 1).unwrap_or(u32::MAX);
        term::pause(due.saturating_sub(begin.elapsed()))?;
        let what = "waiting for the answers of the other side";
        let round =
            Waiting::during(what, || control::ask(&instance, PingLinks::within(args.timeout)))?;
        if !args.json {
            show_round(&round, seq)?;
        }
        let Ping { peer, trouble, links, omitted, ok: _ } = round;
        (answers.peer, answers.omitted) = (peer, omitted);
        if links.is_empty() {
            // Without a link, the round counts as one lost ping.
            let error = Some(trouble.unwrap_or_else(|| "no link".to_owned()));
            answers.pings.push(Numbered { seq, pong: Pong { error, ..Pong::default() } });
        }
        answers.pings.extend(links.into_iter().map(|pong| Numbered { seq, pong }));
    }
    let times: Vec<u64> = answers.pings.iter().filter_map(|ping| ping.pong.micros).collect();
    (answers.sent, answers.received) = (answers.pings.len() as u64, times.len() as u64);
    answers.times = Times::of(&times);
    if args.json {
        term::out(serde_json::to_string_pretty(&answers)?)?;
    } else if let Some(times) = answers.times {
        term::out(summary(answers.sent, answers.received, times))?;
    }
    if answers.received == 0 {
        bail!("nothing came back from {}", answers.peer);
    }
    Ok(())
}

fn show_round(round: &Ping, seq: u64) -> Result<(), Unwritten> {
    if round.links.is_empty() {
        let why = round.trouble.as_deref().unwrap_or("no link");
        term::out(format_args!("seq {seq}  {}: {why}", round.peer))?;
    }
    for pong in &round.links {
        // A client has one server, so the name is needed only on a server.
        let name = (pong.peer != round.peer).then_some(&*pong.peer);
        term::out(pong_line(pong, seq, name))?;
    }
    if round.omitted > 0 {
        let links = term::count(round.omitted as u64, "more link");
        term::out(format_args!("seq {seq}  {links}, asked the next times"))?;
    }
    Ok(())
}

fn pong_line(pong: &Pong, seq: u64, name: Option<&str>) -> String {
    let what = match (&pong.micros, &pong.error) {
        (Some(micros), _) => format!("{} ms", ms(*micros)),
        (None, Some(why)) => why.clone(),
        (None, None) => "nothing".to_owned(),
    };
    let to = format!("{} {}", pong.transport, pong.address);
    let to = if to.trim().is_empty() { String::new() } else { format!("  {to}") };
    let name = name.map_or_else(String::new, |name| format!("  {name}"));
    format!("seq {seq}  link {}{name}{to}  {what}", pong.link)
}

fn summary(sent: u64, received: u64, times: Times) -> String {
    let Times { min_micros, avg_micros, max_micros, mdev_micros } = times;
    let [min, avg, max, mdev] = [min_micros, avg_micros, max_micros, mdev_micros].map(ms);
    format!("{sent} sent, {received} came back; min/avg/max/mdev {min}/{avg}/{max}/{mdev} ms")
}

fn ms(micros: u64) -> String {
    format!("{}.{:03}", micros / 1000, micros % 1000)
}

/// Measures the throughput in both directions.
pub(crate) fn speedtest(args: &SpeedArgs) -> anyhow::Result<()> {
    let instance = instances::find(&args.which)?;
    let bar = stderr().is_terminal();
    let mut plain = PLAIN_NEWS;
    let mut show = |progress: &Progress| {
        if args.json {
        } else if bar {
            draw(progress);
        } else if progress.elapsed_millis < plain.saturating_sub(PLAIN_NEWS) {
            // The elapsed time has become smaller, so the other direction has started.
            plain = PLAIN_NEWS;
        } else if progress.elapsed_millis >= plain {
            plain = progress.elapsed_millis / PLAIN_NEWS * PLAIN_NEWS + PLAIN_NEWS;
            term::err(plain_line(progress));
        }
    };
    let outcome = control::follow(&instance, TestSpeed::lasting(args.seconds), |news| {
        if let News::Progress(progress) = &news {
            show(progress);
        }
        Ok(true)
    });
    if bar && !args.json {
        clear();
    }
    let speed = outcome?.context("the daemon gives no result")?;
    term::show(&speed, args.json, |speed| text(speed, Screen::of_stdout(false)))
}

fn text(speed: &Speed, screen: Screen) -> Drawn {
    let mut sheet = Sheet::new(screen);
    let links = term::count(speed.links as u64, "link");
    sheet.line(format_args!("to {} over {links}", speed.peer));
    for (direction, flow) in [(Direction::Up, &speed.up), (Direction::Down, &speed.down)] {
        sheet.line(flow_line(direction, flow));
    }
    sheet.finish()
}

fn flow_line(direction: Direction, flow: &Flow) -> String {
    let busy = match (flow.client_busy_percent, flow.server_busy_percent) {
        (Some(here), Some(there)) => format!("; busiest worker {here} % here, {there} % there"),
        (Some(here), None) => format!("; busiest worker {here} % here"),
        (None, Some(there)) => format!("; busiest worker {there} % there"),
        (None, None) => String::new(),
    };
    format!(
        "{:4}  {}, {} MB in {:.1} s; limit: {}{busy}",
        direction.name(),
        rate(flow.bits_per_second),
        flow.bytes / 1_000_000,
        flow.micros as f64 / 1e6,
        flow.limit.explain(),
    )
}

/// A bit rate in decimal units, as is usual for networks.
fn rate(bits: u64) -> String {
    let bits = bits as f64;
    for (unit, name) in [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")] {
        if bits >= unit {
            return format!("{:.2} {name}", bits / unit);
        }
    }
    format!("{bits:.0} bit/s")
}

fn so_far(progress: &Progress) -> String {
    rate(progress.bytes.saturating_mul(8000) / progress.elapsed_millis.max(1))
}

fn plain_line(progress: &Progress) -> String {
    let seconds = progress.elapsed_millis / 1000;
    format!("{:4}  {seconds} s, {} so far", progress.direction.name(), so_far(progress))
}

fn bar_line(progress: &Progress, screen: Screen) -> String {
    // A longer line could not be overwritten completely.
    let room = screen.columns().and_then(|columns| u64::try_from(columns).ok());
    let bar = room.map_or(BAR, |room| BAR.min(room.saturating_sub(BESIDE)));
    let part = progress.elapsed_millis.min(progress.span_millis);
    let full = (part * bar / progress.span_millis.max(1)).min(bar);
    let bar: String = (0..bar).map(|n| if n < full { '#' } else { '-' }).collect();
    let seconds = progress.elapsed_millis as f64 / 1000.0;
    format!("{:4}  [{bar}] {seconds:4.1} s  {}", progress.direction.name(), so_far(progress))
}

fn draw(progress: &Progress) {
    let line = bar_line(progress, Screen::of_stderr());
    // The line overwrites the previous line. A failed write to standard error cannot be reported.
    drop(write!(stderr(), "\r\x1b[K{line}").and_then(|()| stderr().flush()));
}

fn clear() {
    drop(write!(stderr(), "\r\x1b[K").and_then(|()| stderr().flush()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use ops::measure::Limit;

    #[test]
    fn times_are_those_of_ping() {
        assert_eq!(Times::of(&[]), None);
        let times = Times::of(&[1000, 2000, 3000, 2000]).unwrap();
        assert_eq!(
            summary(5, 4, times),
            "5 sent, 4 came back; min/avg/max/mdev 1.000/2.000/3.000/0.707 ms"
        );
    }

    #[test]
    fn a_line_says_the_round_trip_or_why_there_is_none() {
        let pong = Pong {
            link: 2,
            transport: "tls".into(),
            address: "192.0.2.2:7000".into(),
            micros: Some(7912),
            ..Pong::default()
        };
        assert_eq!(pong_line(&pong, 3, None), "seq 3  link 2  tls 192.0.2.2:7000  7.912 ms");
        let line = "seq 3  link 2  home  tls 192.0.2.2:7000  7.912 ms";
        assert_eq!(pong_line(&pong, 3, Some("home")), line);
        let lost = Pong { link: 1, error: Some("no connection".into()), ..Pong::default() };
        assert_eq!(pong_line(&lost, 3, None), "seq 3  link 1  no connection");
    }

    #[test]
    fn progress_fills_the_bar_and_results_name_the_limit() {
        let mut progress = Progress {
            direction: Direction::Up,
            elapsed_millis: 2500,
            span_millis: 5000,
            bytes: 312_500_000,
        };
        let bar = format!("up    [{}{}]  2.5 s  1.00 Gbit/s", "#".repeat(15), "-".repeat(15));
        assert_eq!(bar_line(&progress, Screen::PLAIN), bar);
        assert!(bar_line(&progress, Screen::narrow(40)).len() < 40);
        progress.elapsed_millis = 9000;
        assert!(bar_line(&progress, Screen::PLAIN).contains(&"#".repeat(30)));
        assert_eq!(plain_line(&progress), "up    9 s, 277.78 Mbit/s so far");
        let flow = Flow {
            bytes: 589_000_000,
            micros: 5_000_000,
            bits_per_second: 942_400_000,
            limit: Limit::Path,
            client_busy_percent: Some(41),
            server_busy_percent: None,
        };
        assert_eq!(
            flow_line(Direction::Down, &flow),
            "down  942.40 Mbit/s, 589 MB in 5.0 s; limit: path (the connection took no more); \
             busiest worker 41 % here"
        );
        assert_eq!([999, 1_500, 2_000_000].map(rate), ["999 bit/s", "1.50 kbit/s", "2.00 Mbit/s"]);
    }
}
