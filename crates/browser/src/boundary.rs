//! The functions that the page calls. Each function takes its bytes from the input buffer and
//! leaves its bytes in the output buffer; the page queries the addresses of both, so no address is
//! passed in. Each instance of the module has one visit, and times are milliseconds since an origin
//! that the page chooses.
//!
//! `unsafe` marks names that the linker must keep; only this file defines such names.
#![expect(unsafe_code, reason = "a function has to keep its name, so that the page can call it")]

use std::cell::RefCell;
use std::time::Duration;

use proto::Instant;

use crate::{Body, Request, Visit, Visitor};

/// A number that is never assigned to a request.
const NONE: u32 = 0;

#[derive(Default)]
struct Place {
    visit: Option<Visit>,
    input: Vec<u8>,
    output: Vec<u8>,
}

thread_local! {
    static PLACE: RefCell<Place> = RefCell::default();
}

/// Runs `work` with the visit and the input.
fn with<T: Default>(work: impl FnOnce(&mut Visit, &[u8]) -> T) -> T {
    PLACE.with_borrow_mut(|place| {
        let Place { visit, input, .. } = place;
        visit.as_mut().map(|visit| work(visit, input)).unwrap_or_default()
    })
}

fn at(now: f64) -> Instant {
    Instant::after(Duration::try_from_secs_f64(now / 1000.0).unwrap_or_default())
}

/// Makes room for an input of this size, and returns its address.
#[unsafe(no_mangle)]
pub extern "C" fn input(length: usize) -> *mut u8 {
    PLACE.with_borrow_mut(|place| {
        place.input.clear();
        place.input.resize(length, 0);
        place.input.as_mut_ptr()
    })
}

/// The address of the output.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    PLACE.with_borrow(|place| place.output.as_ptr())
}

/// Starts a visit. Input: 32 random bytes, then lines: `code` or `token`, the name of the visitor,
/// its secret, the service, the token of the service. Returns the length of the output: a line with
/// the reason of a failure, or 0.
#[unsafe(no_mangle)]
pub extern "C" fn begin(now: f64) -> usize {
    PLACE.with_borrow_mut(|place| {
        let made = read(at(now), &place.input);
        place.input.fill(0);
        place.output.clear();
        match made {
            Ok(visit) => place.visit = Some(visit),
            Err(why) => place.output.extend_from_slice(why.as_bytes()),
        }
        place.output.len()
    })
}

fn read(now: Instant, input: &[u8]) -> Result<Visit, String> {
    let (seed, text) = input.split_first_chunk().ok_or("too little")?;
    let text = str::from_utf8(text).map_err(|error| error.to_string())?;
    let lines: Vec<_> = text.split('\n').collect();
    let [kind, name, secret, service, token] = lines[..] else { return Err("too little".into()) };
    let is_code = kind == "code";
    let visitor = Visitor { name, secret, is_code, service, token, seed: *seed };
    Visit::new(now, &visitor).map_err(|error| error.to_string())
}

/// The page offers a data channel. Input: its session description, or nothing if it cannot offer
/// one.
#[unsafe(no_mangle)]
pub extern "C" fn offer(now: f64) {
    with(|visit, input| visit.offer(at(now), str::from_utf8(input).unwrap_or_default()));
}

/// A connection to the server was opened. Slot 0 is the data channel, here and below.
#[unsafe(no_mangle)]
pub extern "C" fn dial(now: f64, slot: u32) {
    with(|visit, _| visit.dial(at(now), slot));
}

/// Input: bytes of a connection.
#[unsafe(no_mangle)]
pub extern "C" fn handle(now: f64, slot: u32) {
    with(|visit, input| visit.handle(at(now), slot, input));
}

/// A connection was lost.
#[unsafe(no_mangle)]
pub extern "C" fn lost(now: f64, slot: u32) {
    with(|visit, _| visit.lost(at(now), slot));
}

/// Sets whether a connection accepts bytes at present: 1 if it does not.
#[unsafe(no_mangle)]
pub extern "C" fn pause(slot: u32, paused: u32) {
    with(|visit, _| visit.pause(slot, paused != 0));
}

/// Starts a request. Input: lines: method, target, host, then the fields. `length` is the length of
/// the body: -1 for no body, -2 for an unknown length. Returns the number of the request, or 0.
#[unsafe(no_mangle)]
pub extern "C" fn ask(now: f64, length: f64) -> u32 {
    with(|visit, input| {
        let Ok(text) = str::from_utf8(input) else { return NONE };
        let mut lines = text.splitn(4, '\n');
        let mut next = || lines.next().unwrap_or_default();
        let body = match length {
            -2.0 => Body::Unknown,
            length if length >= 0.0 => Body::Length(length as u64),
            _ => Body::None,
        };
        let (method, target, host, fields) = (next(), next(), next(), next());
        visit.ask(at(now), &Request { method, target, host, fields, body }).unwrap_or(NONE)
    })
}

/// Input: bytes of the body of a request. Returns 1 if the next bytes must wait for room.
#[unsafe(no_mangle)]
pub extern "C" fn body(now: f64, request: u32) -> u32 {
    with(|visit, input| u32::from(!visit.body(at(now), request, input)))
}

/// The body of a request is complete.
#[unsafe(no_mangle)]
pub extern "C" fn end_body(now: f64, request: u32) {
    with(|visit, _| visit.end_body(at(now), request));
}

/// The page no longer needs the response.
#[unsafe(no_mangle)]
pub extern "C" fn cancel(now: f64, request: u32) {
    with(|visit, _| visit.cancel(at(now), request));
}

/// This number of bytes of a response was delivered by the page.
#[unsafe(no_mangle)]
pub extern "C" fn took(now: f64, request: u32, bytes: usize) {
    with(|visit, _| visit.took(at(now), request, bytes));
}

/// A timer has expired. Returns the milliseconds until the next timer, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn tick(now: f64) -> f64 {
    let next = with(|visit, _| {
        let now = at(now);
        if visit.poll_timeout().is_some_and(|next| next <= now) {
            visit.handle_timeout(now);
        }
        visit.poll_timeout().map(|next| next.duration_since(now))
    });
    next.map_or(-1.0, |next| next.as_secs_f64() * 1000.0)
}

/// Writes the next event to the output. Returns its length; 0 if there is no event.
#[unsafe(no_mangle)]
pub extern "C" fn poll(now: f64) -> usize {
    PLACE.with_borrow_mut(|place| {
        let Place { visit, output, .. } = place;
        output.clear();
        if let Some(news) = visit.as_mut().and_then(|visit| visit.poll(at(now))) {
            news.write(output);
        }
        output.len()
    })
}
