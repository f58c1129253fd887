// @ts-check
// What the connections of a peer say together.

/** @param {any} peer */
const used = (peer) => (peer.carriers ?? []).filter((/** @type {any} */ one) => !one.standby);

/** @param {any} peer */
export const transports = (peer) => [...new Set(used(peer).map((/** @type {any} */ one) => one.transport))].join(", ");

/** The least round trip, in microseconds. @param {any} peer @returns {number|null} */
export function quickest(peer) {
  const all = used(peer).map((/** @type {any} */ one) => one.rtt_micros).filter((/** @type {any} */ one) => one != null);
  return all.length > 0 ? Math.min(...all) : null;
}

/** Sent and lost of one connection, in whatever it sends. @param {any} carrier @returns {[number, number]|null} */
export function counts(carrier) {
  const { tcp, quic, kcp } = carrier;
  if (quic) return [quic.sent_packets, quic.lost_packets];
  if (kcp) return [kcp.sent_packets, kcp.lost_packets];
  if (tcp?.sent_segments != null) return [tcp.sent_segments, tcp.retransmitted_segments ?? 0];
  return null;
}

/** The part of what was sent that was lost. @param {any} peer @returns {number|null} */
export function loss(peer) {
  let [sent, lost] = [0, 0];
  for (const one of used(peer)) {
    const pair = counts(one);
    sent += pair?.[0] ?? 0;
    lost += pair?.[1] ?? 0;
  }
  return sent > 0 ? lost / sent : null;
}
