//! A web server in Python: it tells each visitor its name and the request, and echoes WebSocket
//! messages.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::stage::Daemon;

use crate::harness::{SOON, free_port, program, wait_listening};

const SCRIPT: &str = r#"
import base64, hashlib, http.server, json, struct, sys, threading
name = sys.argv[2]

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    wbufsize = 1 << 16

    def say(self, body, kind='text/plain'):
        body = body.encode()
        self.send_response(200)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        self.send_header('Server-Secret', 'x')
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    def do_GET(self):
        if self.headers.get('Upgrade', '').lower() == 'websocket':
            return self.socket()
        if self.path.startswith('/done'):
            print('heard', self.path, flush=True)
        if self.path == '/page':
            return self.say('''<script>
              const socket = new WebSocket(location.href.replace('http', 'ws').replace('page', 'socket'));
              socket.onopen = () => socket.send('hello');
              socket.onmessage = (message) => fetch('/done/' + message.data);
            </script>''', 'text/html')
        if self.path == '/chunked':
            self.send_response(200)
            self.send_header('Transfer-Encoding', 'chunked')
            self.end_headers()
            for part in (b'one ', b'two ', name.encode()):
                self.wfile.write(b'%x\r\n%s\r\n' % (len(part), part))
            self.wfile.write(b'0\r\n\r\n')
            return
        if self.path == '/close':
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'until the end')
            self.close_connection = True
            return
        self.say(json.dumps({'name': name, 'path': self.path, 'fields': dict(self.headers)}))

    do_HEAD = do_GET

    def do_POST(self):
        left, size = int(self.headers.get('Content-Length', 0)), 0
        while left:
            part = self.rfile.read(min(left, 1 << 16))
            left -= len(part)
            size += len(part)
        self.say('%s got %d' % (name, size))

    def socket(self):
        key = self.headers['Sec-WebSocket-Key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
        self.send_response(101)
        self.send_header('Upgrade', 'websocket')
        self.send_header('Connection', 'Upgrade')
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_header('Sec-WebSocket-Accept', accept)
        self.end_headers()
        self.wfile.flush()
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                break
            length = head[1] & 127
            if length == 126:
                length = struct.unpack('>H', self.rfile.read(2))[0]
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[n % 4] for n, b in enumerate(self.rfile.read(length)))
            self.wfile.write(bytes([0x81, len(data)]) + data)
            self.wfile.flush()
        self.close_connection = True

    def log_message(self, *arguments):
        pass

class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

Server(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
"#;

/// A running web server.
pub(super) struct Web {
    pub(super) port: u16,
    pub(super) process: Daemon,
}

impl Web {
    /// Starts a server that calls itself `name`, with its files in `dir`.
    pub(super) fn start(dir: &Path, name: &str) -> Self {
        let (port, script) = (free_port(), dir.join(format!("{name}.py")));
        fs::write(&script, SCRIPT).unwrap();
        let mut python = Command::new(program("python3"));
        python.arg(&script).arg(port.to_string()).arg(name);
        let process = Daemon::start(&format!("web-{name}"), dir, &mut python);
        wait_listening(port, SOON);
        Self { port, process }
    }
}
