//! Flame graphs: every frame stands on its caller and is as wide as its share of all samples
//! (Brendan Gregg, "The Flame Graph", 2016). The output is one SVG file for a browser. A click on a
//! frame widens it, a click on the background goes back.
//!
//! The code is here because the well-known crate, inferno, has a licence (CDDL) that `.deny.toml`
//! does not allow.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::stacks::{Frame, Stacks};
use crate::plot::escaped;

const WIDTH: f64 = 1400.0;
const ROW: f64 = 17.0;
/// The space for the title and the line that names a frame.
const HEAD: f64 = 48.0;

/// The least width of a frame, as a share of all samples. Narrower frames are invisible and left
/// out.
const LEAST: f64 = 0.0005;

/// The average width of a letter.
const LETTER: f64 = 6.6;

/// Zooms by changing positions and widths; names are cut to fit.
const SCRIPT: &str = r#"
const rows = [...document.querySelectorAll("g.f")], all = +document.documentElement.dataset.width;
const said = document.getElementById("said");
function show(x0, w0, depth) {
  for (const g of rows) {
    let x = +g.dataset.x, w = +g.dataset.w, under = +g.dataset.d < depth;
    const out = under ? (x > x0 + 1e-6 || x + w < x0 + w0 - 1e-6)
                      : (x < x0 - 1e-6 || x + w > x0 + w0 + 1e-6);
    g.style.display = out ? "none" : "";
    if (out) continue;
    x = under ? 0 : (x - x0) / w0 * all; w = under ? all : w / w0 * all;
    const [r, t] = [g.querySelector("rect"), g.querySelector("text")];
    r.setAttribute("x", x); r.setAttribute("width", Math.max(w - 0.5, 0.2));
    t.setAttribute("x", x + 3);
    const n = Math.floor((w - 6) / 6.6), name = g.dataset.n;
    t.textContent = n < 3 ? "" : name.length <= n ? name : name.slice(0, n - 1) + "…";
  }
}
for (const g of rows) {
  g.addEventListener("click", () => show(+g.dataset.x, +g.dataset.w, +g.dataset.d));
  g.addEventListener("mouseover", () => said.textContent = g.querySelector("title").textContent);
}
"#;

/// A function, and the functions that it called.
#[derive(Debug, Default)]
struct Node {
    count: u64,
    calls: BTreeMap<Frame, Self>,
}

impl Node {
    fn of(stacks: &Stacks) -> Self {
        let mut ground = Self::default();
        for (frames, count) in stacks.iter() {
            ground.count += count;
            let mut node = &mut ground;
            for frame in frames {
                node = node.calls.entry(frame.clone()).or_default();
                node.count += count;
            }
        }
        ground
    }

    fn depth(&self, least: u64) -> u32 {
        let calls = self.calls.values().filter(|call| call.count >= least);
        calls.map(|call| call.depth(least) + 1).max().unwrap_or(0)
    }
}

/// A whole SVG file.
pub(super) fn svg(title: &str, stacks: &Stacks) -> String {
    let ground = Node::of(stacks);
    let least = ((ground.count as f64 * LEAST).ceil() as u64).max(1);
    let height = HEAD + ROW * f64::from(ground.depth(least) + 1) + 8.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" data-width=\"{WIDTH}\" font-family=\"monospace\" \
         font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"18\" font-size=\"15\">{}</text>\n\
         <text x=\"8\" y=\"36\" id=\"said\">{} samples; blue: the program, orange: the kernel</text>\n",
        escaped(title),
        ground.count
    );
    let scale = WIDTH / ground.count.max(1) as f64;
    let frame = Frame { name: "all".to_owned(), kernel: false };
    let mut drawing = Drawing { text: &mut text, height, scale, all: ground.count, least };
    drawing.draw(&frame, &ground, 0, 0);
    let _ = write!(text, "<script><![CDATA[{SCRIPT}]]></script>\n</svg>\n");
    text
}

#[derive(Debug)]
struct Drawing<'a> {
    text: &'a mut String,
    height: f64,
    /// The width of one sample.
    scale: f64,
    all: u64,
    least: u64,
}

impl Drawing<'_> {
    /// Draws a node and all nodes above it, `before` samples from the left.
    fn draw(&mut self, frame: &Frame, node: &Node, before: u64, depth: u32) {
        let (x, width) = (before as f64 * self.scale, node.count as f64 * self.scale);
        let y = self.height - 8.0 - ROW * f64::from(depth + 1);
        let share = 100.0 * node.count as f64 / self.all.max(1) as f64;
        let name = escaped(&frame.name);
        // Writing into a string cannot fail.
        let _ = writeln!(
            self.text,
            "<g class=\"f\" data-x=\"{x:.3}\" data-w=\"{width:.3}\" data-d=\"{depth}\" \
             data-n=\"{name}\"><title>{name}: {} samples, {share:.2} %</title>\
             <rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{:.1}\" fill=\"{}\"/>\
             <text x=\"{:.2}\" y=\"{:.1}\">{}</text></g>",
            node.count,
            (width - 0.5).max(0.2),
            ROW - 1.0,
            colour(frame),
            x + 3.0,
            y + 12.0,
            escaped(&fitting(&frame.name, width))
        );
        let mut before = before;
        for (frame, call) in &node.calls {
            if call.count >= self.least {
                self.draw(frame, call, before, depth + 1);
            }
            before += call.count;
        }
    }
}

/// As much of a name as fits; empty if too little fits.
fn fitting(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / LETTER).max(0.0) as usize;
    if room < 3 {
        String::new()
    } else if name.chars().count() <= room {
        name.to_owned()
    } else {
        name.chars().take(room - 1).chain(['…']).collect()
    }
}

/// A colour that differs a little between neighbours and is the same for a function everywhere.
fn colour(frame: &Frame) -> String {
    let sum = frame.name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
    let light = 70 + sum % 14;
    let hue = if frame.kernel { 30 } else { 207 };
    format!("hsl({hue},75%,{light}%)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::stacks::tests::stacks;

    #[test]
    fn frames_are_as_wide_as_their_share_and_stand_on_their_caller() {
        let drawn = svg("a < b", &stacks());
        let line = |name: &str| {
            let name = format!("data-n=\"{name}\"");
            drawn.lines().find(|line| line.contains(&name)).unwrap_or_else(|| panic!("{drawn}"))
        };
        assert!(line("all").contains("data-x=\"0.000\" data-w=\"1400.000\" data-d=\"0\""));
        assert!(line("client").contains("data-x=\"0.000\" data-w=\"466.667\" data-d=\"1\""));
        assert!(line("server").contains("data-x=\"466.667\" data-w=\"933.333\" data-d=\"1\""));
        let send = line("tcp_sendmsg");
        assert!(send.contains("data-d=\"5\"") && send.contains("2 samples, 66.67 %"), "{send}");
        assert!(send.contains("hsl(30,"), "the kernel's colour: {send}");
        assert!(drawn.contains("a &lt; b") && drawn.contains("&lt;u8 as core::fmt::Debug&gt;"));
        assert_eq!(drawn.matches("<g ").count(), drawn.matches("</g>").count());
    }

    #[test]
    fn names_are_cut_to_what_fits() {
        assert_eq!(fitting("tcp_sendmsg", 200.0), "tcp_sendmsg");
        assert_eq!(fitting("tcp_sendmsg", 46.0), "tcp_s…");
        assert_eq!(fitting("tcp_sendmsg", 20.0), "");
    }
}
