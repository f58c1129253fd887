//! QR codes (ISO/IEC 18004) of texts that a user carries to another machine.

use std::fmt::Write as _;

use qrcodegen::{QrCode, QrCodeEcc};
use serde::{Deserialize, Serialize};

/// Light modules around the code, which scanners need.
const MARGIN: i32 = 4;

/// A QR code as a drawing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qr {
    /// The number of modules per side, without the margin of 4.
    pub size: i32,
    /// The dark modules as a path of SVG, in modules.
    pub path: String,
}

/// The code of a text; `None`: the text is longer than a code can be, 2,953 bytes.
pub fn qr(text: &str) -> Option<Qr> {
    let code = QrCode::encode_text(text, QrCodeEcc::Low).ok()?;
    let (size, mut path) = (code.size(), String::new());
    for y in 0..size {
        let mut x = 0;
        while x < size {
            let run = (x..size).take_while(|x| code.get_module(*x, y)).count();
            let run = i32::try_from(run).unwrap_or(0);
            if run > 0 {
                // Writing to a string cannot fail.
                let _ = write!(path, "M{x} {y}h{run}v1h-{run}z");
            }
            x += run.max(1);
        }
    }
    Some(Qr { size, path })
}

/// The code of a text for a terminal, whatever its colours: two rows of modules in a line, drawn
/// light on dark by escapes (ECMA-48: SGR). `None` as of [`qr`].
pub fn lines(text: &str) -> Option<String> {
    let code = QrCode::encode_text(text, QrCodeEcc::Low).ok()?;
    let mut out = String::new();
    for y in (-MARGIN..code.size() + MARGIN).step_by(2) {
        // White on black: light modules are drawn, dark modules are left out.
        out.push_str("\x1b[97;40m");
        for x in -MARGIN..code.size() + MARGIN {
            let is_light = |y| !code.get_module(x, y);
            // The row after the last is not drawn.
            let below = y + 1 < code.size() + MARGIN && is_light(y + 1);
            out.push(match (is_light(y), below) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            });
        }
        out.push_str("\x1b[0m\n");
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawing_and_lines_have_the_modules_of_the_code() {
        let text = "tunnel client --enroll enroll1.q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";
        let code = QrCode::encode_text(text, QrCodeEcc::Low).unwrap();
        let Qr { size, path } = qr(text).unwrap();
        assert_eq!(size, code.size());
        let mut dark = std::collections::HashSet::new();
        for part in path.split('M').skip(1) {
            let (place, rest) = part.split_once('h').unwrap();
            let (x, y) = place.split_once(' ').unwrap();
            let run: i32 = rest.split_once('v').unwrap().0.parse().unwrap();
            let x: i32 = x.parse().unwrap();
            dark.extend((x..x + run).map(|x| (x, y.parse::<i32>().unwrap())));
        }
        let drawn = lines(text).unwrap();
        let rows: Vec<Vec<char>> = drawn
            .lines()
            .map(|line| line.replace("\x1b[97;40m", "").replace("\x1b[0m", "").chars().collect())
            .collect();
        for y in -MARGIN..size + MARGIN {
            for x in -MARGIN..size + MARGIN {
                let is_dark = code.get_module(x, y);
                assert_eq!(dark.contains(&(x, y)), is_dark, "{x} {y}");
                let (row, column) = ((y + MARGIN) / 2, x + MARGIN);
                let shown = rows[usize::try_from(row).unwrap()][usize::try_from(column).unwrap()];
                let light = if (y + MARGIN) % 2 == 0 { ['█', '▀'] } else { ['█', '▄'] };
                assert_eq!(light.contains(&shown), !is_dark, "{x} {y}");
            }
        }
    }

    #[test]
    fn a_text_that_is_too_long_has_no_code() {
        assert!(qr(&"x".repeat(2_953)).is_some());
        assert_eq!(qr(&"x".repeat(2_954)), None);
        assert_eq!(lines(&"x".repeat(2_954)), None);
    }
}
