// Asks for each case of the standard input, `METHOD CASE PAUSE`, then for a marker over the same
// connection, if Node keeps it. Prints `CASE PAUSE ANSWER` for each.
const http = require('http');
const port = Number(process.argv[2]);
const lines = require('fs').readFileSync(0, 'utf8').trim().split('\n');

function ask(agent, method, path) {
  return new Promise((done) => {
    const request = http.request({ port, host: '127.0.0.1', method, path, agent, insecureHTTPParser: false });
    const timer = setTimeout(() => request.destroy(), 1000);
    const end = (text) => { clearTimeout(timer); done(text); };
    request.on('response', (response) => {
      let body = '';
      response.setEncoding('latin1');
      response.on('data', (part) => { body += part; });
      response.on('end', () => end(`${response.statusCode} ${body}`));
      response.on('error', () => end('error'));
    });
    request.on('upgrade', (_, socket) => { socket.destroy(); end('error'); });
    request.on('error', () => end('error'));
    request.end();
  });
}

async function work() {
  for (let line = lines.pop(); line; line = lines.pop()) {
    const [method, number, pause] = line.split(' ');
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    await ask(agent, method, `/case/${number}/${pause}`);
    const answer = await ask(agent, 'GET', '/probe');
    agent.destroy();
    console.log(`${number} ${pause} ${JSON.stringify(answer)}`);
  }
}

for (let n = 0; n < 16; n++) work();
