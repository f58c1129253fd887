//! Traces of one or two state machines: what leaves at each step, what it returns, and the whole
//! state after it.
//!
//! The file `kcp-go-drawn-traces.json` was recorded in the same way from kcp-go v5.6.72: settings,
//! steps, losses and changes of datagrams were drawn by chance. Of many traces those were kept that
//! notice changes of rules that the others do not notice. Of the state it has what changed.

use std::collections::BTreeMap;

use kcp_go::classic::{Classic, Config, Flush, Packet, ReceiveError, SendError};
use kcp_go::wire::{Conversation, Malformed, Millis, Sn};
use serde_json::{Map, Value, json};

use crate::vectors::json::{cases, hex, number};

#[test]
fn every_trace_of_kcp_go_is_followed_to_the_last_counter() {
    let traces = cases("kcp_traces");
    assert_eq!(traces.len(), 15);
    for trace in traces {
        follow(&trace);
    }
}

#[test]
fn drawn_traces_are_followed_as_well() {
    let traces: Value = serde_json::from_str(include_str!("kcp-go-drawn-traces.json")).unwrap();
    traces.as_array().unwrap().iter().for_each(follow);
}

fn follow(trace: &Value) {
    let mut states: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    let ends = trace["endpoints"].as_object().unwrap();
    let mut ends: BTreeMap<_, _> =
        ends.iter().map(|(name, settings)| (name.as_str(), end(settings))).collect();
    for (at, step) in trace["steps"].as_array().unwrap().iter().enumerate() {
        let context = format!("{} step {at}: {}", trace["name"], step["op"]);
        let name = step["ep"].as_str().unwrap();
        let end = ends.get_mut(name).unwrap();
        let mut sent = Vec::new();
        take(end, step, &mut sent, &context);
        let expected: Vec<_> = step["out"].as_array().unwrap().iter().map(hex).collect();
        assert_eq!(sent, expected, "{context}");
        let expected = states.entry(name).or_default();
        expected.extend(step["state"].as_object().unwrap().clone());
        assert_eq!(state(end), Value::Object(expected.clone()), "{context}");
    }
}

fn end(settings: &Value) -> Classic {
    let mtu = number(&settings["mtu"]);
    assert_eq!(number::<u16>(&settings["mss"]), mtu - 24);
    Classic::new(Config {
        conversation: Conversation(number(&settings["conv"])),
        mtu,
        is_quick: settings["nodelay"] != 0,
        interval: number(&settings["interval"]),
        resend: number(&settings["resend"]),
        is_controlled: settings["nc"] == 0,
        send_window: number(&settings["snd_wnd"]),
        receive_window: number(&settings["rcv_wnd"]),
        is_stream: settings["stream"] != 0,
    })
}

/// Takes one step and compares what it returns.
fn take(end: &mut Classic, step: &Value, sent: &mut Vec<Vec<u8>>, context: &str) {
    let now = Millis(number(&step["t"]));
    let mut sink = |datagram: &[u8]| sent.push(datagram.to_vec());
    match step["op"].as_str().unwrap() {
        "send" => {
            let code = match end.send(&hex(&step["data"])) {
                Ok(()) => 0,
                Err(SendError::Empty) => -1,
                Err(SendError::TooLong) => -2,
            };
            assert_eq!(step["ret"], code, "{context}");
        }
        "input" => {
            let packet = match step["pkt"].as_str().unwrap() {
                "regular" => Packet::Regular,
                "fec" => Packet::Recovered,
                other => panic!("{context}: {other}"),
            };
            let ack_no_delay = step["ack_nodelay"].as_bool().unwrap();
            let code = match end.input(now, packet, ack_no_delay, &hex(&step["data"]), &mut sink) {
                Ok(()) => 0,
                Err(Malformed::Foreign) => -1,
                Err(Malformed::Length) => -2,
                Err(Malformed::Command) => -3,
            };
            assert_eq!(step["ret"], code, "{context}");
        }
        "recv" => {
            let mut buffer = vec![0; number(&step["buflen"])];
            match end.recv(&mut buffer) {
                Ok(length) => {
                    assert_eq!(step["ret"], length, "{context}");
                    assert_eq!(hex(&step["data"]), buffer[..length], "{context}");
                }
                Err(ReceiveError::Empty) => assert_eq!(step["ret"], -1, "{context}"),
                Err(ReceiveError::Short) => assert_eq!(step["ret"], -2, "{context}"),
            }
        }
        "flush_full" => assert_eq!(end.flush(now, Flush::Full, &mut sink), step["next"]),
        "flush_ackonly" => assert_eq!(end.flush(now, Flush::AcksOnly, &mut sink), step["next"]),
        "preset" => preset(end, &step["set"]),
        other => panic!("{context}: {other}"),
    }
}

fn preset(end: &mut Classic, set: &Value) {
    let names: Vec<_> = set.as_object().unwrap().keys().map(String::as_str).collect();
    match *names {
        ["rmt_wnd"] => end.assume_window(number(&set["rmt_wnd"])),
        ["rcv_nxt"] => end.start_at(Sn(0), Sn(number(&set["rcv_nxt"]))),
        ["snd_nxt", "snd_una"] if set["snd_nxt"] == set["snd_una"] => {
            end.start_at(Sn(number(&set["snd_nxt"])), Sn(0));
        }
        _ => panic!("{names:?}"),
    }
}

/// The counters by the names of the trace.
fn state(end: &Classic) -> Value {
    let c = end.counters();
    json!({
        "acklist": c.owed,
        "cwnd": c.congestion_window,
        "incr": c.congestion_bytes,
        "link_state": if c.is_dead { u32::MAX } else { 0 },
        "probe": u8::from(c.asks) + 2 * u8::from(c.tells),
        "probe_wait": c.probe_wait,
        "rcv_buf": c.ahead,
        "rcv_nxt": c.receive_next.0,
        "rcv_queue": c.ready,
        "rmt_wnd": c.remote_window,
        "rto": c.timeout,
        "rttvar": c.variation,
        "snd_buf": c.flying,
        "snd_nxt": c.send_next.0,
        "snd_queue": c.waiting,
        "snd_una": c.send_una.0,
        "srtt": c.round_trip,
        "ssthresh": c.threshold,
        "ts_probe": c.probe_at.0,
    })
}
