//! `kcp`: settings of this side's KCP sessions and UDP sockets. A preset supplies values, and the
//! other keys replace them.

use std::ops::RangeInclusive;

use super::udp::{MTU, buffer, digits, mtu};
use super::{Section, unknown};
use crate::keys::KCP;
use crate::model::{Kcp, KcpCongestion, KcpFec, KcpPreset};
use crate::{BadValue, Rate, Span};

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

/// The longest `ack_delay`, in milliseconds: a longer delay would reach the smallest timeouts in
/// use.
const ACK_DELAY_MAX: u64 = 100;

/// Permitted `least_timeout`, in milliseconds. A shorter timeout would expire because of the delays
/// of a busy receiver alone; a longer timeout retransmits a lost last packet too late.
const LEAST_TIMEOUT: RangeInclusive<u64> = 10..=1000;

/// Permitted `rate`, in bytes per second. A lower rate delays the keepalive behind a single packet;
/// a sender cannot reach a higher rate.
const RATE: RangeInclusive<u64> = 16 << 10..=10 << 30;

pub(super) fn kcp(s: &Section<'_>) -> Kcp {
    let s = s.section("kcp", &KCP);
    let s = s.as_ref();
    let preset = s.and_then(|s| s.value("preset", preset)).unwrap_or_default();
    let auto = Kcp {
        preset,
        congestion: KcpCongestion::Bbr,
        fec: KcpFec::Auto,
        send_window: WINDOW,
        receive_window: WINDOW,
        ack_delay: Span::from_millis(5),
        least_timeout: Span::from_millis(30),
        mtu: mtu(s, MTU),
        receive_buffer: buffer(s, "receive_buffer"),
        send_buffer: buffer(s, "send_buffer"),
    };
    // kcptun's interval is the delay of acknowledgements, and its `nodelay` the least timeout.
    let kcptun = |interval, least_timeout| Kcp {
        congestion: KcpCongestion::None,
        fec: FEC_KCPTUN,
        send_window: WINDOW_KCPTUN,
        receive_window: WINDOW_KCPTUN,
        ack_delay: Span::from_millis(interval),
        least_timeout: Span::from_millis(least_timeout),
        ..auto
    };
    let kcp = match preset {
        KcpPreset::Auto => auto,
        KcpPreset::Normal => kcptun(40, 100),
        KcpPreset::Fast => kcptun(30, 100),
        KcpPreset::Fast2 => kcptun(20, 30),
        KcpPreset::Fast3 => kcptun(10, 30),
    };
    s.map_or(kcp, |s| replaced(s, kcp))
}

/// The values of a preset, replaced by those of the other keys.
fn replaced(s: &Section<'_>, preset: Kcp) -> Kcp {
    let ack_delay = s.value("ack_delay", |text| time(text, 0..=ACK_DELAY_MAX));
    let least_timeout = s.value("least_timeout", |text| time(text, LEAST_TIMEOUT));
    Kcp {
        congestion: congestion(s).unwrap_or(preset.congestion),
        fec: fec(s).unwrap_or(preset.fec),
        send_window: s.value("send_window", window).unwrap_or(preset.send_window),
        receive_window: s.value("receive_window", window).unwrap_or(preset.receive_window),
        ack_delay: ack_delay.unwrap_or(preset.ack_delay),
        least_timeout: least_timeout.unwrap_or(preset.least_timeout),
        ..preset
    }
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
    if s.key("rate").is_none() {
        return s.value("congestion", named);
    }
    if s.key("congestion").is_some() {
        let bad = BadValue::new("a fixed rate takes the place of `congestion`");
        s.bad("rate", bad.hint("remove one of them"));
    }
    s.value("rate", rate).map(KcpCongestion::Fixed)
}

fn named(text: &str) -> Result<KcpCongestion, BadValue> {
    let all = KcpCongestion::NAMED;
    let found = all.into_iter().find(|congestion| congestion.name() == text);
    let names = all.map(KcpCongestion::name);
    found.ok_or_else(|| unknown(&format!("congestion control `{text}`"), text, &names))
}

fn rate(text: &str) -> Result<Rate, BadValue> {
    let rate: Rate = text.parse()?;
    if !RATE.contains(&rate.bytes()) {
        let bad = BadValue::new(format!("`{text}` is out of range"));
        return Err(bad.hint("16KiB/s to 10GiB/s"));
    }
    Ok(rate)
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

fn time(text: &str, range: RangeInclusive<u64>) -> Result<Span, BadValue> {
    let span: Span = text.parse()?;
    let (least, most) = (Span::from_millis(*range.start()), Span::from_millis(*range.end()));
    if !(least..=most).contains(&span) {
        let bad = BadValue::new(format!("`{text}` is out of range"));
        return Err(bad.hint(format!("{least} to {most}")));
    }
    Ok(span)
}
