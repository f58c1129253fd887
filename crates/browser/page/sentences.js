// What a person reads when something does not work: what it is, and what to do.

/** Why a visit is over, or waits. */
export function stateSentence(word, client, service) {
  switch (word) {
    case "code":
      return `The server does not know this code. A code works once and for ten minutes: ask the owner
        of ${client}/${service} for a new one.`;
    case "login":
      return `The server does not let this visitor in any more. Ask the owner of ${client}/${service}
        for a new code.`;
    case "token":
      return `${client} refuses this visit: it was revoked, or a newer code took its place. Ask the
        owner of ${client}/${service} for a new code.`;
    case "unknown":
      return `The server knows no private service ${client}/${service} that this visitor may visit.`;
    case "denied":
      return `${client} takes no browsers as visitors of ${service}. Its owner permits them by
        “browser: true” of the service.`;
    case "elsewhere":
      return `This visit was opened in another place, and went there.`;
    case "unproven":
      return `The other side could not prove that it is the one that the code was made for. Something
        in between may change the bytes.`;
    case "broken":
      return `This page has failed. Load it again; nothing of the visit is lost.`;
    case "away":
      return `${client} is not connected to the server.`;
    case "silent":
      return `${client} does not answer.`;
    case "offline":
      return `The server does not answer.`;
    default:
      return "";
  }
}

/** Why there is no response. */
export function failureSentence(word, client, service) {
  switch (word) {
    case "refused":
      return `The program behind ${service} takes no connections. Is it running on ${client}?`;
    case "timeout":
    case "unreachable":
      return `${client} does not reach the program behind ${service}.`;
    case "limit":
      return `${client} has too many connections. Try again in a moment.`;
    case "no-http":
      return `The service ${service} is not a web site. A visit of it needs the program tunnel.`;
    case "unknown":
      return `${client} has no service ${service} any more.`;
    case "shutdown":
    case "lost":
      return `${client} was restarted, and the request was lost. Try again.`;
    case "bad":
      return `The request cannot be sent.`;
    case "slow":
      return `${client} does not answer.`;
    default:
      return `The connection to ${service} was cut off.`;
  }
}
