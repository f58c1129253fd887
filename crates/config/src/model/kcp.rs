//! `kcp`: settings of this side's KCP sessions and UDP sockets. A preset supplies values, and the
//! other keys replace them.

use crate::model::udp::{buffer, digits, mtu};
use crate::values::ranged;
use std::fmt;
use std::ops::RangeInclusive;

use crate::key_table::KeyTable;
use crate::problem::unknown;
use crate::section::Section;
use crate::{BadValue, Rate, Size, Span};

/// Segments of a window in `auto`: 100 ms at 900 Mbit/s with segments of 1,400 bytes.
const WINDOW: u16 = 8192;

/// Segments of a window in the presets after kcptun, whose server has this default.
const WINDOW_KCPTUN: u16 = 1024;

/// FEC of the presets after kcptun, whose defaults are `-ds 10 -ps 3`.
const FEC_KCPTUN: KcpFec = KcpFec::Fixed { data: 10, parity: 3 };

/// The most data packets of a group: `kcp::own::fec::DATA_MAX`.
const DATA_MAX: u16 = 64;

/// The most parity packets of a group: `kcp::own::fec::PARITY_MAX`.
const PARITY_MAX: u16 = 48;

/// Permitted `ack_delay`: a longer delay would reach the smallest timeouts in use.
const ACK_DELAY: RangeInclusive<Span> = Span::from_millis(0)..=Span::from_millis(100);

/// Permitted `least_timeout`. A shorter timeout would expire because of the delays of a busy
/// receiver alone; a longer timeout retransmits a lost last packet too late.
const LEAST_TIMEOUT: RangeInclusive<Span> = Span::from_millis(10)..=Span::from_millis(1000);

/// Permitted `rate`. A lower rate delays the keepalive behind a single packet; a sender cannot
/// reach a higher rate.
const RATE: RangeInclusive<Rate> = Rate::from_bytes(16 << 10)..=Rate::from_bytes(10 << 30);

/// The default and the largest value of `mtu`, in bytes.
const MTU: u16 = 16_336;

/// The default of the buffers.
const BUFFER: Size = Size::from_bytes(4 << 20);

/// Settings of this side's KCP sessions and UDP sockets. A preset is resolved: every field has its
/// effective value. The sockets live as long as the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, KeyTable)]
#[keys(compare = "kcp", read = kcp)]
pub struct Kcp {
    /// The named set of defaults of congestion, fec, windows, ack_delay and least_timeout.
    #[key("`auto`, `normal`, `fast`, `fast2`, `fast3`", default = "auto", reconnect)]
    pub preset: KcpPreset,
    /// The congestion control of the data that this end sends over KCP.
    ///
    /// A fixed rate counts as a congestion control, so a change between a rate and an algorithm
    /// changes both keys.
    #[key("`bbr`, `classic`, `none`", default = "bbr", note = "of the preset", reconnect,
        differs = |kcp: &Self| kcp.congestion.name())]
    #[row(rate: "rate, 16KiB/s-10GiB/s", none = "`congestion` decides", reconnect,
        text = "The fixed send rate over KCP, regardless of loss, instead of congestion control.",
        differs = |kcp: &Self| kcp.congestion.rate())]
    pub congestion: KcpCongestion,
    /// Forward error correction (FEC) of sent KCP packets, by parity packets.
    #[key("`auto`, `off` or `data/parity`", default = "auto", note = "of the preset", reconnect)]
    pub fec: KcpFec,
    /// The largest number of unacknowledged segments of a KCP session.
    #[key("number, 1-65535", default = "8192", note = "of the preset", reconnect)]
    pub send_window: u16,
    /// The largest number of segments that the receiver of a KCP session buffers.
    #[key("number, 1-65535", default = "8192", note = "of the preset", reconnect)]
    pub receive_window: u16,
    /// The longest delay of a KCP acknowledgement that waits for further acknowledgements.
    #[key("duration, 0-100ms", default = "5ms", note = "of the preset", reconnect)]
    pub ack_delay: Span,
    /// The shortest timeout after which an unacknowledged KCP packet is retransmitted.
    #[key("duration, 10ms-1s", default = "30ms", note = "of the preset", reconnect)]
    pub least_timeout: Span,
    /// The largest UDP payload that MTU discovery tries over KCP, in bytes.
    ///
    /// 1200 disables MTU discovery.
    #[key("number, 1200-16336", default = "16336", reconnect)]
    pub mtu: u16,
    /// The receive buffer of each UDP socket of KCP; the system may grant less.
    #[key("size, 64KiB-64MiB", default = "4MiB", restart)]
    pub receive_buffer: Size,
    /// The send buffer of each UDP socket of KCP; the system may grant less.
    #[key("size, 64KiB-64MiB", default = "4MiB", restart)]
    pub send_buffer: Size,
}

/// A named set of values, `kcp.preset`. All but `auto` are named after kcptun's modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KcpPreset {
    /// Congestion control and FEC that follow the path.
    #[default]
    Auto,
    /// kcptun's `normal`: nodelay 0, interval 40, resend 2, nc 1.
    Normal,
    /// kcptun's `fast`: nodelay 0, interval 30, resend 2, nc 1.
    Fast,
    /// kcptun's `fast2`: nodelay 1, interval 20, resend 2, nc 1.
    Fast2,
    /// kcptun's `fast3`: nodelay 1, interval 10, resend 2, nc 1.
    Fast3,
}

impl KcpPreset {
    /// All presets, the default first.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Normal, Self::Fast, Self::Fast2, Self::Fast3];

    /// The word in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Normal => "normal",
            Self::Fast => "fast",
            Self::Fast2 => "fast2",
            Self::Fast3 => "fast3",
        }
    }
}

/// What limits the rate of a KCP session: `kcp.congestion`, or `kcp.rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KcpCongestion {
    /// BBR: follows a model of the path, so loss alone does not slow it down. Paced.
    Bbr,
    /// The window of KCP with `nc = 0`: slow start, halved after a loss. Paced.
    Classic,
    /// Only the windows (`nc = 1`). Not paced.
    None,
    /// A fixed rate, regardless of loss. Paced.
    Fixed(Rate),
}

impl KcpCongestion {
    /// The words of the key `congestion`.
    pub(crate) const NAMED: [Self; 3] = [Self::Bbr, Self::Classic, Self::None];

    /// The word in the file; `rate` for a fixed rate, which has a key of its own.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bbr => "bbr",
            Self::Classic => "classic",
            Self::None => "none",
            Self::Fixed(_) => "rate",
        }
    }

    /// The fixed rate.
    #[must_use]
    pub const fn rate(self) -> Option<Rate> {
        match self {
            Self::Fixed(rate) => Some(rate),
            Self::Bbr | Self::Classic | Self::None => None,
        }
    }
}

/// Forward error correction, `kcp.fec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KcpFec {
    /// The number of parity packets follows the loss on the path.
    Auto,
    /// No parity packets.
    Off,
    /// A fixed ratio.
    Fixed {
        /// Data packets of a group, 1 to 64.
        data: u8,
        /// Parity packets of a group, 1 to 48.
        parity: u8,
    },
}

impl fmt::Display for KcpFec {
    /// The value in the file: `auto`, `off`, `10/3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Fixed { data, parity } => write!(f, "{data}/{parity}"),
        }
    }
}

/// Decodes the section: the values of a preset, replaced by those of the other keys.
fn kcp(s: &Section<'_>) -> Option<Kcp> {
    let preset = s.value("preset", preset).unwrap_or_default();
    // kcptun's interval is the delay of acknowledgements, and its `nodelay` the least timeout.
    let (of_kcptun, ack_delay, least_timeout) = match preset {
        KcpPreset::Auto => (false, 5, 30),
        KcpPreset::Normal => (true, 40, 100),
        KcpPreset::Fast => (true, 30, 100),
        KcpPreset::Fast2 => (true, 20, 30),
        KcpPreset::Fast3 => (true, 10, 30),
    };
    let (usual, usual_fec, usual_window) = if of_kcptun {
        (KcpCongestion::None, FEC_KCPTUN, WINDOW_KCPTUN)
    } else {
        (KcpCongestion::Bbr, KcpFec::Auto, WINDOW)
    };
    let time = |key, range, usual| {
        let usual = Span::from_millis(usual);
        s.value(key, |text| ranged(text, range)).unwrap_or(usual)
    };
    Some(Kcp {
        preset,
        congestion: congestion(s).unwrap_or(usual),
        fec: fec(s).unwrap_or(usual_fec),
        send_window: s.value("send_window", window).unwrap_or(usual_window),
        receive_window: s.value("receive_window", window).unwrap_or(usual_window),
        ack_delay: time("ack_delay", ACK_DELAY, ack_delay),
        least_timeout: time("least_timeout", LEAST_TIMEOUT, least_timeout),
        mtu: s.value("mtu", |text| mtu(text, MTU)).unwrap_or(MTU),
        receive_buffer: s.value("receive_buffer", buffer).unwrap_or(BUFFER),
        send_buffer: s.value("send_buffer", buffer).unwrap_or(BUFFER),
    })
}

fn preset(text: &str) -> Result<KcpPreset, BadValue> {
    let found = KcpPreset::ALL.into_iter().find(|preset| preset.name() == text);
    // Lists all names: the nearest known word to `fast4` would not show the choice.
    let names = KcpPreset::ALL.map(KcpPreset::name).join(", ");
    let bad = || BadValue::new(format!("unknown preset `{text}`"));
    found.ok_or_else(|| bad().hint(format!("known here: {names}")))
}

/// Decodes `congestion` and `rate`, which exclude each other.
fn congestion(s: &Section<'_>) -> Option<KcpCongestion> {
    if !s.has("rate") {
        return s.value("congestion", named);
    }
    if s.has("congestion") {
        let bad = BadValue::new("a fixed rate takes the place of `congestion`");
        s.bad("rate", bad.hint("remove one of them"));
    }
    s.value("rate", |text| ranged(text, RATE)).map(KcpCongestion::Fixed)
}

fn named(text: &str) -> Result<KcpCongestion, BadValue> {
    let all = KcpCongestion::NAMED;
    let found = all.into_iter().find(|congestion| congestion.name() == text);
    let names = all.map(KcpCongestion::name);
    found.ok_or_else(|| unknown(&format!("congestion control `{text}`"), text, &names))
}

fn fec(s: &Section<'_>) -> Option<KcpFec> {
    let fec = s.value("fec", protection)?;
    if let (KcpFec::Fixed { data, parity }, Some(item)) = (fec, s.key("fec"))
        && parity > data
    {
        let bad = BadValue::new(format!("`{fec}` sends more parity than data"));
        let hint = format!("the number of data packets comes first: `{parity}/{data}`");
        // The inverted ratio must be a permitted value of the key.
        let bad = if u16::from(data) <= PARITY_MAX { bad.hint(hint) } else { bad };
        s.cx.warn(item.at(), &item.path, bad);
    }
    Some(fec)
}

fn protection(text: &str) -> Result<KcpFec, BadValue> {
    let bad = || BadValue::new(format!("`{text}` is no forward error correction"));
    let hint =
        format!("auto, off, or data/parity packets, 1/1 to {DATA_MAX}/{PARITY_MAX}, such as 10/3");
    match text {
        "auto" => return Ok(KcpFec::Auto),
        "off" => return Ok(KcpFec::Off),
        _ => {}
    }
    let (data, parity) = text.split_once('/').ok_or_else(|| bad().hint(hint.clone()))?;
    let (data, parity) = (digits(data), digits(parity));
    if parity == Some(0) {
        return Err(bad().hint("`off` sends no parity packets"));
    }
    let part = |n: Option<u16>, max| n.filter(|n| (1..=max).contains(n))?.try_into().ok();
    match (part(data, DATA_MAX), part(parity, PARITY_MAX)) {
        (Some(data), Some(parity)) => Ok(KcpFec::Fixed { data, parity }),
        _ => Err(bad().hint(hint)),
    }
}

fn window(text: &str) -> Result<u16, BadValue> {
    digits(text).filter(|n| *n > 0).ok_or_else(|| {
        BadValue::new(format!("`{text}` is not a number of segments")).hint("1 to 65535")
    })
}
