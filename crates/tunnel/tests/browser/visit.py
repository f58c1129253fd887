"""A browser visits a private service: `visit.py TUNNEL CHROMIUM FOLDER`. The folder gets screenshots.

Each function `test_…` proves what its name says; they share a server, a client and a browser, and
run in their order. Standard library alone."""

import gzip
import hashlib
import http.server
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from chromium import LONG, Chromium

BIG = bytes(range(256)) * (5 * (1 << 20) // 256)
# A domain of this machine. All names below it are one site for a browser.
DOMAIN = "tunnel.localhost"
TOKEN = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ"
HOME = b"""<!doctype html><html lang=en><meta charset=utf-8><title>Home</title>
<link rel=stylesheet href=/style.css><h1 id=title>The private wiki</h1>
<p>It came through the tunnel.</p><img id=image src=/image.svg alt=image width=96 height=96>
<form method=post action=/post id=form><input name=word value="hello &amp; bye"><button>Send</button>
</form><p><a id=away href=/redirect>A redirect</a></p>"""
# Code of a hostile service in the frame that hands ports to the service worker. It asks for a port of
# its own, and sends by it what no service worker sends.
HOOK = b"""addEventListener("message", (event) => {
  if (event.data !== "port") return;
  event.stopImmediatePropagation();
  const port = event.ports[0];
  const say = (message) => port.postMessage({ id: 7, ...message });
  say({ kind: "ask", method: "POST", target: "/hostile", fields: [], length: -2 });
  for (let size = 256; size < 1 << 20; size *= 2) say({ kind: "body", bytes: new Array(size).fill(65) });
  say({ kind: "body", bytes: { byteLength: 4, length: 1 << 20 } });
  say({ kind: "took", bytes: 1e12 });
  say({ kind: "ask", method: "GET", target: "/smuggled\\nevil\\nhost: evil", fields: [], length: -1 });
  for (let id = 8; id < 1000; id += 1) {
    port.postMessage({ id, kind: "ask", method: "POST", target: "/hostile", fields: [], length: 9 });
  }
  port.postMessage(null);
  parent.postMessage("failed Your visit has expired. Enter the code at evil.example.", "*");
  window.hooked = true;
}, true);
parent.postMessage("need", "*");"""
SVG = b"""<svg xmlns="http://www.w3.org/2000/svg" width="2" height="2"><circle cx="1" cy="1" r="1"
fill="#1f9d55"/></svg>"""


def lower(fields):
    return {name.lower(): value for name, value in fields.items()}


class Origin(http.server.BaseHTTPRequestHandler):
    """The service."""

    protocol_version = "HTTP/1.1"
    seen = []
    # The second half of `/halves` is sent when this is set.
    goes_on = threading.Event()

    def log_message(self, *_):
        pass

    def answer(self, status, kind, body, *fields):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", len(body))
        for name, value in fields:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        Origin.seen.append((self.command, self.path, lower(self.headers)))
        html = "text/html; charset=utf-8"
        match self.path.split("?")[0]:
            case "/":
                # What common frameworks send.
                fields = [("X-Frame-Options", "DENY"), ("Referrer-Policy", "no-referrer"),
                          ("Content-Security-Policy", "base-uri 'self', frame-ancestors 'none'"),
                          ("Clear-Site-Data", '"*"'), ("Set-Cookie", "a=b; Domain=tunnel.localhost")]
                self.answer(200, html, HOME, *fields)
            case "/leave.js":
                self.answer(200, "text/javascript", b"window.tried = true; top.location = 'about:blank'")
            case "/hook.js":
                self.answer(200, "text/javascript", HOOK)
            case "/bytes":
                name = "attachment; filename=\"\x80\xff\xe2\x82\xac.txt\""
                self.answer(200, "text/plain", b"", ("Content-Disposition", name))
            case "/reset":
                self.answer(205, "text/plain", b"nobody reads this")
            case "/twice":
                self.answer(200, "text/plain", b"hello", ("Content-Length", 6))
            case "/style.css":
                self.answer(200, "text/css", b"h1 { color: rgb(12, 34, 56); }")
            case "/image.svg":
                self.answer(200, "image/svg+xml", SVG)
            case "/big":
                self.answer(200, "application/octet-stream", BIG)
            case "/halves":
                self.send_response(200)
                self.send_header("Content-Length", len(BIG))
                self.end_headers()
                self.wfile.write(BIG[: len(BIG) // 2])
                Origin.goes_on.wait(LONG)
                self.wfile.write(BIG[len(BIG) // 2 :])
            case "/odd":
                self.send_response(999, "Odd")
                self.send_header("Content-Length", 0)
                self.end_headers()
            case "/packed":
                packed = gzip.compress(b"it was packed")
                self.answer(200, "text/plain", packed, ("Content-Encoding", "gzip"))
            case "/redirect":
                self.answer(302, html, b"", ("Location", "/?redirected"))
            case "/chunks":
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for word in [b"one ", b"two ", b"three"]:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(word), word))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            case _:
                self.answer(404, html, b"nothing here")

    do_HEAD = do_GET

    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        Origin.seen.append((self.command, self.path, lower(self.headers)))
        said = {"length": len(body), "hash": hashlib.sha256(body).hexdigest()}
        if len(body) < 1000:
            said["text"] = body.decode()
        self.answer(200, "application/json", json.dumps(said).encode())


class Evil(http.server.BaseHTTPRequestHandler):
    """Another site: `/METHOD/REFERRER?ADDRESS` is a form that sends itself, `/frame?ADDRESS` has a
    frame, `/link?ADDRESS` goes there."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        what, _, address = self.path.partition("?")
        what = what.split("/")[1:]
        match what[0]:
            case "frame":
                body = f"<iframe src='{address}' onload='window.done = true'></iframe>"
            case "link":
                body = f"<script>location.href = '{address}'</script>"
            case method:
                body = f"""<meta name=referrer content={what[1]}><form method={method}
                    action='{address}'><input name=word value=evil></form>
                    <script>document.forms[0].submit()</script>"""
        body = f"<!doctype html><title>Evil</title>{body}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", len(body))
        self.end_headers()
        self.wfile.write(body)


class Site(http.server.ThreadingHTTPServer):
    # The kernel drops connections beyond it, which dial again after a second.
    request_queue_size = 1024

    def handle_error(self, *_):
        """A visitor that leaves within an answer is no news."""


def free_ports():
    """A port that no connection of this machine takes while the server is away, and a port whose
    number begins with that of the first."""
    for port in random.sample(range(2000, 3200), 100):
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port, Site(("127.0.0.1", port * 10 + 1), Evil)
        except OSError:
            continue
    raise AssertionError("no port is free")


class Rig:
    """A server, a client with a private service, and a browser."""

    def __init__(self, tunnel, chromium, shots):
        self.tunnel, self.chromium, self.shots = tunnel, chromium, shots
        self.browser = None
        os.makedirs(shots, exist_ok=True)
        self.folder = tempfile.TemporaryDirectory(prefix="tunnel-visit-")
        self.port, self.evil = free_ports()
        threading.Thread(target=self.evil.serve_forever, daemon=True).start()
        self.origin = Site(("127.0.0.1", 0), Origin)
        threading.Thread(target=self.origin.serve_forever, daemon=True).start()
        self.processes = {}
        self.write("server.yaml", f"""
listen: ws://127.0.0.1:{self.port}/
state_dir: {self.path("server")}
control: {self.path("server.sock")}
http: {{ domain: {DOMAIN}, browser: true }}
clients:
  - {{ name: home, token: {TOKEN}, allow: {{ invite: true }} }}
""")
        self.client_file()
        self.home = f"http://visit.{DOMAIN}:{self.port}/"

    def begin(self):
        self.start("server")
        self.start("client")
        self.browser = Chromium(self.chromium)

    def client_file(self, browser="true"):
        self.write("client.yaml", f"""
servers: ws://127.0.0.1:{self.port}/
name: home
token: {TOKEN}
state_dir: {self.path("client")}
control: {self.path("client.sock")}
retry: {{ min: 100ms, max: 1s }}
resume_timeout: 5m
services:
  - name: web
    target: tcp://127.0.0.1:{self.origin.server_address[1]}
    public: private
    visitors: []
    browser: {browser}
""")

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), 0o600)

    def start(self, role):
        with open(self.path(f"{role}.log"), "ab") as log:
            self.processes[role] = subprocess.Popen(
                [self.tunnel, role, "--config", self.path(f"{role}.yaml")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
        # The state is asked for until the role serves.
        self.wait(lambda: self.ask("status", role).returncode == 0, f"{role} runs")

    def kill(self, role):
        process = self.processes.pop(role)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def ask(self, *words):
        *command, role = words
        return subprocess.run(
            [self.tunnel, *command, "--config", self.path(f"{role}.yaml")],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG, check=False,
        )

    def status(self):
        """The links of the client with other clients."""
        told = self.ask("status", "--json", "client")
        assert told.returncode == 0, told.stderr
        sessions = json.loads(told.stdout).get("sessions", [])
        return [link for session in sessions for link in session.get("links", [])]

    def wait(self, condition, what):
        end = time.monotonic() + LONG
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"never: {what}")
            time.sleep(0.05)

    def code(self, name):
        said = []

        def has():
            said.append(self.ask("visit", "--new", "web", "--name", name, "client"))
            return said[-1].returncode == 0

        # The client may be about to log in.
        self.wait(has, "a code")
        return re.search(r"visit1\.\S+", said[-1].stdout).group(0)

    def open(self, page, code):
        page.until("document.readyState === 'complete' && document.getElementById('enter')")
        page.run(f"document.getElementById('code').value = {json.dumps(code)}")
        page.run("document.querySelector('#enter button').click()")

    def close(self):
        if self.browser:
            self.browser.close()
        for role in ["client", "server"]:
            if role in self.processes:
                self.kill(role)
        self.origin.shutdown()
        self.evil.shutdown()
        self.folder.cleanup()

    def logs(self):
        for role in ["server", "client"]:
            with open(self.path(f"{role}.log"), encoding="utf-8") as file:
                print(f"--- {role}\n{file.read()[-3000:]}")


BODY = "document.body.innerText"
SENTENCE = "document.getElementById('sentence').textContent"
NOTICE = f"!document.getElementById('notice').hidden && {SENTENCE}"
TROUBLE = """!document.getElementById('trouble').hidden
    && document.getElementById('trouble').textContent"""
STATE = "document.getElementById('state')"
CONNECTED = f"{STATE}.className === 'live'"
DIRECTLY = f"{CONNECTED} && {STATE}.textContent === 'Direct connection to home'"


HASHED = """(async (body) => Array.from(
    new Uint8Array(await crypto.subtle.digest('SHA-256', body)),
    (byte) => byte.toString(16).padStart(2, '0')).join(''))"""
BIG_HASH = hashlib.sha256(BIG).hexdigest()


def shots(rig, page, name):
    """Screenshots for people."""
    for width, height in [(1280, 800), (360, 740)]:
        for dark in [False, True]:
            page.size(width, height, dark)
            kind = "dark" if dark else "light"
            page.shot(os.path.join(rig.shots, f"{name}-{width}-{kind}.png"))
    page.size(1280, 800)


def test_a_code_that_is_none_or_unknown_gets_a_sentence(rig):
    page = rig.page = rig.browser.page(rig.home)
    forbid_direct_paths(page)
    rig.open(page, "visit1.AAAA")
    assert "damaged" in page.until(TROUBLE)
    rig.open(page, "hello")
    assert "visit1." in page.until(f"({TROUBLE}).includes('no code') && ({TROUBLE})")
    shots(rig, page, "start")
    page.run("document.querySelector('details').open = true")
    shots(rig, page, "limits")
    page.run("document.querySelector('details').open = false")
    used = rig.code("used")
    rig.code("used")
    rig.open(page, used)
    said = page.until(f"({TROUBLE}).includes('ten minutes') && ({TROUBLE})")
    assert "home/web" in said, said
    shots(rig, page, "wrong-code")


def test_a_code_opens_the_service_with_its_style_and_image(rig):
    page = rig.page
    rig.open(page, rig.code("guest"))
    page.until(CONNECTED, "connected")
    site = rig.site = page.frame("document.getElementById('title')")
    color = site.until("getComputedStyle(document.querySelector('h1')).color.includes('12, 34, 56')")
    assert color
    site.until("document.getElementById('image').naturalWidth > 0", "an image")
    shots(rig, page, "service")
    assert "visit1" not in page.run("location.href")


def test_downloads_forms_uploads_and_redirects_work(rig):
    site = rig.site
    big = site.run(f"fetch('/big').then((r) => r.arrayBuffer()).then({HASHED})")
    assert big == BIG_HASH, big
    assert site.run("fetch('/packed').then((r) => r.text())") == "it was packed"
    assert site.run("fetch('/chunks').then((r) => r.text())") == "one two three"
    assert site.run("fetch('/nothing').then((r) => r.status)") == 404
    assert site.run("fetch('/', { method: 'HEAD' }).then((r) => r.status)") == 200
    assert site.run("fetch('/odd').then((r) => r.status)") == 500
    assert site.run("fetch('/reset').then(async (r) => r.status + await r.text())") == "205"
    assert site.run("fetch('/twice').then((r) => r.status)") == 502
    name = site.run("fetch('/bytes').then((r) => r.headers.get('content-disposition'))")
    # Chromium shows bytes beyond ASCII in another coding, but keeps the field.
    assert name.startswith("attachment; filename=") and name.endswith(".txt\""), name
    many = "Array.from({ length: 150 }, () => fetch('/chunks').then((r) => r.text()))"
    assert set(site.run(f"Promise.all({many})")) == {"one two three"}
    # 5 MB with a length, 10 MB in chunks.
    for size in [5 << 20, 10 << 20]:
        said = site.run(f"""fetch('/post', {{ method: 'POST', body: new Uint8Array({size}).fill(7) }})
            .then((r) => r.json())""")
        assert said["length"] == size, said
        assert said["hash"] == hashlib.sha256(bytes([7]) * size).hexdigest()
    site.run("document.getElementById('away').click()")
    site.until("location.search === '?redirected' && document.getElementById('form')", "redirect")
    site.run("document.querySelector('#form button').click()")
    text = site.until("location.pathname === '/post' && document.body.innerText")
    assert json.loads(text)["text"] == "word=hello+%26+bye", text
    fields = Origin.seen[-1][2]
    assert fields["origin"] == site.run("location.origin"), fields
    assert fields["host"] == site.run("location.host"), fields


def seen(word):
    return [fields for _, path, fields in Origin.seen if word in path]


def test_no_other_site_acts_in_the_name_of_the_visitor(rig):
    address = rig.site.run("location.origin")
    host, port = address.split("//")[1].split(":")[0], rig.evil.server_address[1]
    # Of the same site (another service of the server), of another site, and an origin whose text
    # begins with that of the service.
    for evil in [f"evil.{DOMAIN}", "evil.localhost", host]:
        for policy in ["no-referrer", "unsafe-url", "origin"]:
            page = rig.browser.page(f"http://{evil}:{port}/post/{policy}?{address}/post-evil")
            said = page.until(f"location.href === '{address}/post-evil' && {BODY}", "an answer")
            assert "not sent" in said or "address of a private service" in said, said
            page.close()
        page = rig.browser.page(f"http://{evil}:{port}/frame?{address}/framed-evil")
        page.until("window.done", "a frame")
        page.close()
    assert not seen("evil"), seen("evil")
    # A link is followed, and the service can tell.
    page = rig.browser.page(f"http://{host}:{port}/link?{address}/linked")
    page.until(f"location.href === '{address}/linked' && {BODY}", "an answer")
    page.close()
    (fields,) = seen("linked")
    assert fields["sec-fetch-site"] == "cross-site" and "referer" not in fields, fields
    rig.site.run("fetch('/own')")
    assert seen("own")[0]["sec-fetch-site"] == "same-origin", seen("own")


def test_a_hostile_page_of_the_service_leaves_neither_its_frame_nor_breaks_the_visit(rig):
    page, site = rig.page, rig.site
    load = """new Promise((done) => {
        const script = parent.frames[0].document.createElement("script");
        script.src = "/NAME.js";
        script.onload = script.onerror = done;
        parent.frames[0].document.body.append(script);
    }).then(() => true)"""
    site.run(load.replace("NAME", "leave"))
    site.until("parent.frames[0].tried", "the script has run")
    time.sleep(0.5)
    assert page.run("location.href") == rig.home
    site.run(load.replace("NAME", "hook"))
    site.until("parent.frames[0].hooked", "the script has run")
    assert site.run("fetch('/chunks', { cache: 'no-store' }).then((r) => r.text())") == "one two three"
    assert not seen("smuggled")
    assert not page.run(NOTICE), page.run(NOTICE)
    assert page.run("location.href") == rig.home


def test_a_visit_is_kept_over_a_reload_and_its_secret_stays_out_of_the_origin_of_the_service(rig):
    page = rig.page
    # The frame of the service sees neither the page around it nor what the page keeps.
    script = "(() => { try { return parent.document.title } catch (e) { return e.name } })()"
    assert rig.site.run(script) == "SecurityError"
    assert rig.site.run("localStorage.length") == 0
    page.go(rig.home)
    page.until("document.querySelector('#list li')", "the list")
    forbid_direct_paths(page)
    shots(rig, page, "kept")
    page.run("document.querySelector('#list button').click()")
    page.until(CONNECTED, "connected again")
    rig.site = page.frame("document.getElementById('title')")


def test_the_death_of_the_publisher_gets_a_sentence_and_its_return_is_noticed(rig):
    page, site = rig.page, rig.site
    rig.kill("client")
    # A link that carries nothing is asked after 15 s, one that has something to say at once.
    site.run("void fetch('/big').then((r) => r.status).then((s) => { window.late = s })")
    said = page.until(NOTICE, "a sentence")
    assert "home" in said and "tries again" in said, said
    shots(rig, page, "away")
    site.until("window.late === 502", "an answer and no spinner")
    site.run("location.href = '/?away'")
    said = site.until(SENTENCE, "a sentence in the place of the service")
    assert "home" in said, said
    shots(rig, page, "no-answer")
    rig.start("client")
    began = time.monotonic()
    page.until(CONNECTED, "connected again")
    # The page's own timer brings it back, after 2 to 5 s. Without it the page would wait for a word of
    # the server, which comes after 15 s of silence.
    assert time.monotonic() - began < 14
    site.run("document.querySelector('a').click()")
    site.until("location.search === '?away' && document.getElementById('title')", "the service")


def forbid_direct_paths(page):
    """From here on the page finds no direct path. A path that was found early would carry the
    downloads that are to stop with the server."""
    page.run("""(() => {
        window.connection_of_browser = window.RTCPeerConnection;
        window.RTCPeerConnection = class { constructor() { throw new Error("forbidden"); } };
    })()""")


def download(rig):
    """Begins a download, and waits for half of it."""
    site = rig.site
    site.run(f"""window.read = 0; window.whole = ''; void fetch('/halves').then(async ({{ body }}) => {{
        const pieces = [];
        for (const reader = body.getReader(); ; ) {{
            const {{ done, value }} = await reader.read();
            if (done) return new Blob(pieces).arrayBuffer();
            window.read += value.length;
            pieces.push(value);
        }}
    }}).then({HASHED}).then((hash) => {{ window.whole = hash }}, (e) => {{ window.whole = `${{e}}` }})""")
    site.until(f"window.read === {len(BIG) // 2}", "half of it")


def test_a_download_goes_on_where_it_stopped_when_the_server_dies_and_returns(rig):
    page, site = rig.page, rig.site
    download(rig)
    rig.kill("server")
    said = page.until(NOTICE, "a sentence")
    assert "server does not answer" in said, said
    rig.start("server")
    page.until(CONNECTED, "connected again")
    Origin.goes_on.set()
    whole = site.until("window.whole", "all of it")
    assert whole == BIG_HASH, whole
    assert site.run("fetch('/chunks').then((r) => r.text())") == "one two three"


def test_a_download_goes_on_over_the_data_channel_when_the_server_dies(rig):
    page, site = rig.page, rig.site
    assert page.run(CONNECTED) and not page.run(DIRECTLY)
    page.run("window.RTCPeerConnection = window.connection_of_browser")
    # The page seeks a direct path in each new link with the client.
    rig.kill("client")
    rig.start("client")
    page.until(DIRECTLY, "a direct path")
    shots(rig, page, "direct")
    told = rig.status()
    assert [link["path"]["state"] for link in told if link.get("path")] == ["direct"], told
    Origin.goes_on.clear()
    download(rig)
    rig.kill("server")
    page.run("new Promise((done) => setTimeout(done, 2000))")
    Origin.goes_on.set()
    whole = site.until("window.whole", "all of it")
    assert whole == BIG_HASH, whole
    # More than a window, and a request that begins now.
    site.run(f"void fetch('/post', {{ method: 'POST', body: new Uint8Array(6 << 20).fill(7) }})"
             ".then((r) => r.json()).then((said) => { window.said = said.hash })")
    said = site.until("window.said", "an answer")
    assert said == hashlib.sha256(bytes([7]) * (6 << 20)).hexdigest()
    assert page.run(DIRECTLY) and not page.run(NOTICE)
    # The publisher dies as well.
    rig.kill("client")
    said = page.until(NOTICE, "a sentence")
    assert "server does not answer" in said, said
    rig.start("server")
    rig.start("client")
    page.until(DIRECTLY, "a direct path again")


def test_the_program_behind_the_service_is_missing(rig):
    rig.origin.shutdown()
    rig.origin.server_close()
    assert rig.site.run("fetch('/').then((r) => r.text())").count("takes no connections")
    rig.site.run("location.href = '/'")
    rig.site.until("document.getElementById('sentence')", "the sentence")
    shots(rig, rig.page, "no-program")


def test_a_service_that_takes_no_browsers_and_a_revoked_visit_get_sentences(rig):
    rig.client_file(browser="false")
    assert rig.ask("reload", "client").returncode == 0
    page = rig.page
    rig.open(page, "")
    page.go("about:blank")
    agree = "window.confirm = (text) => { window.asked = text; return true; }"
    page.command("Page.addScriptToEvaluateOnNewDocument", source=agree)
    page.go(rig.home + "#" + rig.code("second"))
    said = page.until(NOTICE, "a sentence")
    assert "takes no browsers" in said, said
    assert "as guest" in page.run("window.asked") and "as second" in page.run("window.asked")
    # The former log-in stays, because the new one has not reached the service.
    assert page.run("JSON.parse(localStorage.visits).map((visit) => visit.name).join()") == "guest,second"


def test_the_link_of_the_demo_opens_its_origin_as_a_private_service(rig):
    demo = subprocess.Popen(
        [rig.tunnel, "demo"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, env={**os.environ, "HOME": rig.folder.name},
    )
    # A demo that prints no link is ended too, so that the wait for a line ends.
    timer = threading.Timer(LONG, demo.kill)
    timer.start()
    try:
        said = []
        for line in demo.stdout:
            said.append(line)
            if "/#visit1." in line:
                break
        assert "/#visit1." in said[-1], said
        page = rig.browser.page(said[-1].strip())
        page.until(f"{CONNECTED} && {STATE}.textContent.includes('through the server')", "connected")
        site = page.frame("document.querySelector('h1')?.textContent === 'It came through the tunnel'")
        download = site.run("fetch('/bytes/5000000').then((r) => r.arrayBuffer()).then((b) => b.byteLength)")
        assert download == 5000000, download
        assert "visit1" not in page.run("location.href")
        shots(rig, page, "demo")
        page.close()
    finally:
        timer.cancel()
        demo.terminate()
        demo.wait(LONG)
    assert demo.returncode == 0, demo.returncode


def main():
    tunnel, chromium, folder = sys.argv[1:4]
    wanted = sys.argv[4:]
    rig = Rig(os.path.abspath(tunnel), chromium, folder)
    tests = [name for name in globals() if name.startswith("test_")]
    passed, name = 0, "the start"
    try:
        rig.begin()
        for name in tests:
            if wanted and name not in wanted:
                continue
            began = time.monotonic()
            globals()[name](rig)
            passed += 1
            print(f"ok   {name} ({time.monotonic() - began:.1f} s)", flush=True)
    except Exception:  # The reason is printed, with what the programs said.
        print(f"FAIL {name}", flush=True)
        traceback.print_exc()
        print("\n".join(["--- browser", *(rig.browser.log[-30:] if rig.browser else [])]))
        rig.logs()
        return 1
    finally:
        rig.close()
    print(f"\ntest result: ok. {passed} passed; 0 failed; 0 ignored")
    return 0


if __name__ == "__main__":
    sys.exit(main())
