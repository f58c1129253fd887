use super::*;

/// A ClientHello as a list of its parts.
struct Builder {
    extensions: Vec<(u16, Vec<u8>)>,
}

fn vector8(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn vector16(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

impl Builder {
    /// The extensions that browsers send, GREASE included, in the order of Chromium.
    fn browser() -> Self {
        let extensions = vec![
            (0x0a0a, vec![]),
            (23, vec![]),
            (0xff01, vec![0]),
            (10, vector16(&[0x2a, 0x2a, 0x11, 0xec, 0, 29, 0, 23])),
            (43, vector8(&[0x1a, 0x1a, 3, 4, 3, 3])),
            (0x1a1a, vec![0]),
        ];
        Self { extensions }
    }

    fn with(mut self, kind: u16, data: Vec<u8>) -> Self {
        self.extensions.push((kind, data));
        self
    }

    fn names(self, names: &[(u8, &[u8])]) -> Self {
        let list = names.iter().flat_map(|(kind, name)| [vec![*kind], vector16(name)].concat());
        self.with(SERVER_NAME, vector16(&list.collect::<Vec<_>>()))
    }

    fn alpn(self, protocols: &[&[u8]]) -> Self {
        let list = protocols.iter().flat_map(|protocol| vector8(protocol));
        self.with(APPLICATION_PROTOCOLS, vector16(&list.collect::<Vec<_>>()))
    }

    /// The key shares of X25519MLKEM768 (1,216 bytes) and X25519.
    fn post_quantum(self) -> Self {
        let shares = [&[0x11, 0xec][..], &vector16(&[7; 1216]), &[0, 29], &vector16(&[8; 32])];
        self.with(51, vector16(&shares.concat()))
    }

    /// The handshake message.
    fn message(&self) -> Vec<u8> {
        let extensions = self
            .extensions
            .iter()
            .flat_map(|(kind, data)| [kind.to_be_bytes().to_vec(), vector16(data)].concat());
        let body = [
            &[3, 3][..],
            &[9; 32],
            &vector8(&[5; 32]),
            &vector16(&[0x3a, 0x3a, 0x13, 1, 0x13, 2]),
            &vector8(&[0]),
            &vector16(&extensions.collect::<Vec<_>>()),
        ];
        message(&body.concat())
    }
}

fn message(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[CLIENT_HELLO], &length[1..], body].concat()
}

/// The message in records of this many bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[22, 3, 1][..], &vector16(part)].concat()).collect()
}

/// Looks at the bytes whole, in two pieces cut at each byte, and one byte at a time.
fn look(bytes: &[u8]) -> Sniff<Hello> {
    let whole = HelloSniffer::default().look(bytes);
    for cut in 0..bytes.len() {
        let mut sniffer = HelloSniffer::default();
        let mut outcome = sniffer.look(&bytes[..cut]);
        if outcome == Sniff::More {
            outcome = sniffer.look(bytes);
        }
        assert_eq!(outcome, whole, "cut at {cut}");
    }
    let mut sniffer = HelloSniffer::default();
    let mut ends = (0..=bytes.len()).map(|end| sniffer.look(&bytes[..end]));
    assert_eq!(ends.find(|outcome| *outcome != Sniff::More).unwrap_or(Sniff::More), whole);
    whole
}

fn name(builder: &Builder) -> Option<String> {
    let outcome = look(&records(&builder.message(), RECORD));
    let Sniff::Found(hello) = outcome else { panic!("{outcome:?}") };
    hello.server_name.map(String::from)
}

#[test]
fn name_and_protocols_are_read_however_the_hello_is_cut() {
    let builder = Builder::browser().names(&[(0, b"App.Example.com")]).alpn(&[b"h2", b"http/1.1"]);
    let small = builder.message();
    let large = builder.post_quantum().message();
    assert!(large.len() > 1300);
    let three = large.len().div_ceil(3);
    for (message, size) in
        [(&small, RECORD), (&small, 1), (&small, 3), (&large, three), (&large, 7)]
    {
        let outcome = look(&records(message, size));
        let Sniff::Found(hello) = &outcome else { panic!("{outcome:?}") };
        assert_eq!(hello.server_name.as_deref(), Some("app.example.com"));
        assert!(hello.offers(b"h2") && hello.offers(b"http/1.1") && !hello.offers(b"h3"));
        assert_eq!(*hello.alpn[0], *b"h2");
    }
}

/// The ClientHello of `openssl s_client -servername app.example.com -alpn h2,http/1.1` (OpenSSL
/// 3.0).
#[test]
fn the_hello_of_openssl_is_read() {
    const HELLO: &[u8] = include_bytes!("openssl.hello");
    let Sniff::Found(hello) = look(HELLO) else { panic!("no hello") };
    assert_eq!(hello.server_name.as_deref(), Some("app.example.com"));
    assert_eq!(hello.alpn, [Box::from(&b"h2"[..]), Box::from(&b"http/1.1"[..])]);
}

/// The ClientHello of rustls with X25519MLKEM768.
#[test]
fn the_hello_of_rustls_is_read() {
    const HELLO: &[u8] = include_bytes!("rustls.hello");
    assert!(HELLO.len() > 1400);
    let Sniff::Found(hello) = look(HELLO) else { panic!("no hello") };
    assert_eq!(hello.server_name.as_deref(), Some("app.example.com"));
    assert_eq!(hello.alpn, [Box::from(&b"h2"[..]), Box::from(&b"http/1.1"[..])]);
}

#[test]
fn a_name_that_is_no_dns_name_is_no_name() {
    assert_eq!(name(&Builder::browser()), None);
    let of = |bytes: &[u8]| name(&Builder::browser().names(&[(0, bytes)]));
    assert_eq!(of(b"A.example.").as_deref(), Some("a.example"));
    for bytes in [&b"192.0.2.1"[..], b"::1", b"a b", b"a..b", b"", b".", b"a\0", b"a:80", b"\xff"] {
        assert_eq!(of(bytes), None, "{}", bytes.escape_ascii());
    }
    // With several names none is chosen; a name of an unknown type is ignored.
    assert_eq!(name(&Builder::browser().names(&[(0, b"a.example"), (0, b"b.example")])), None);
    let other = Builder::browser().names(&[(7, b"x"), (0, b"a.example")]);
    assert_eq!(name(&other).as_deref(), Some("a.example"));
}

#[test]
fn a_hello_without_extensions_has_no_name() {
    let body = [&[3, 1][..], &[9; 32], &[0], &vector16(&[0, 47]), &vector8(&[0])].concat();
    assert_eq!(look(&records(&message(&body), RECORD)), Sniff::Found(Hello::default()));
}

#[test]
fn what_follows_the_hello_does_not_matter() {
    let message = Builder::browser().names(&[(0, b"a.example")]).message();
    let hello = records(&message, RECORD);
    let garbage = [&hello[..], &[0xff; 40]].concat();
    let same_record = records(&[&message[..], &[0xff; 40]].concat(), RECORD);
    for bytes in [garbage, same_record] {
        let Sniff::Found(hello) = look(&bytes) else { panic!("no hello") };
        assert_eq!(hello.server_name.as_deref(), Some("a.example"));
    }
}

#[test]
fn the_number_of_kept_protocols_is_bounded() {
    let many: Vec<_> = (0..200_u8).map(|number| [number]).collect();
    let many: Vec<_> = many.iter().map(|name| &name[..]).collect();
    let hello = records(&Builder::browser().alpn(&many).message(), RECORD);
    let Sniff::Found(hello) = look(&hello) else { panic!("no hello") };
    assert_eq!(hello.alpn.len(), ALPN);
}

#[test]
fn what_is_no_hello_is_known_early() {
    for (bytes, known) in [
        (&b"\x80\x2e\x01\x03\x01\x00"[..], 1),
        (b"GET / HTTP/1.1\r\n", 1),
        (b"\x16\x02\x00\x00\x10", 2),
        (b"\x15\x03\x01\x00\x02\x02\x28", 1),
        (b"\x16\x03\x01\x00\x00", 5),
        (b"\x16\x03\x01\x40\x01", 5),
        // A ServerHello.
        (b"\x16\x03\x03\x00\x40\x02\x00", 6),
        // A claimed length above the limit: 16 KiB including the header of 4 bytes.
        (b"\x16\x03\x01\x02\x00\x01\x00\x3f\xfd\x03\x03", 9),
        (b"\x16\x03\x01\x02\x00\x01\xff\xff\xff\x03\x03", 9),
    ] {
        let mut sniffer = HelloSniffer::default();
        let first = (1..=bytes.len()).find(|end| sniffer.look(&bytes[..*end]) == Sniff::Not);
        assert_eq!(first, Some(known), "{}", bytes.escape_ascii());
    }
    assert_eq!(look(b"\x16\x03\x01\x02\x00\x01\x00\x3f\xfc\x03\x03"), Sniff::More);
}

#[test]
fn a_malformed_hello_is_refused() {
    let twice = Builder::browser().names(&[(0, b"a")]).names(&[(0, b"a")]);
    let cut_name = Builder::browser().with(SERVER_NAME, vec![0, 9, 0, 0, 9, b'a']);
    let long_list = Builder::browser().with(SERVER_NAME, vec![0, 9, 0, 0, 1, b'a']);
    let empty_protocol = Builder::browser().alpn(&[b"h2", b""]);
    let no_protocol = Builder::browser().alpn(&[]);
    for builder in [twice, cut_name, long_list, empty_protocol, no_protocol] {
        assert_eq!(look(&records(&builder.message(), RECORD)), Sniff::Not);
    }
    // Each length inside the message, made larger by 1.
    let message = Builder::browser().names(&[(0, b"a.example")]).message();
    for at in [38, 38 + 32 + 2, 38 + 32 + 2 + 7, 38 + 32 + 2 + 9] {
        let mut broken = message.clone();
        broken[at] += 1;
        assert_eq!(look(&records(&broken, RECORD)), Sniff::Not, "byte {at}");
    }
}

/// 20,000 records of one byte: the sniffer gives up, and its memory is bounded by what arrived.
#[test]
fn a_hello_over_the_limit_is_refused() {
    let large = Builder::browser().with(21, vec![0; 15 << 10]).message();
    assert!(matches!(HelloSniffer::default().look(&records(&large, RECORD)), Sniff::Found(_)));
    let mut sniffer = HelloSniffer::default();
    assert_eq!(sniffer.look(&records(&large, 1)), Sniff::Not);
    assert!(sniffer.message.capacity() < 2 * WIRE);
    let mut sniffer = HelloSniffer::default();
    assert_eq!(sniffer.look(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03"), Sniff::More);
    assert!(sniffer.message.capacity() < 64);
}
