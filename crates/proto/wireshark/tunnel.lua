-- Wireshark dissector of the tunnel protocol (crates/proto/SPEC.md): the greeting, the frames and
-- the control messages over tcp://, tls://, ws://, wss:// and quic://, and the packets of kcp://.
-- README.md in this folder describes the installation and the decryption of a capture.

local bits = bit32 or bit
local band, bor, bxor, bnot = bits.band, bits.bor, bits.bxor, bits.bnot
local lshift, rshift = bits.lshift, bits.rshift

-- Names of numbers ---------------------------------------------------------------------------

local KINDS = {
  [1] = "OPEN", [2] = "DATA", [3] = "FIN", [4] = "RESET", [5] = "STOP", [6] = "CREDIT",
  [7] = "DATAGRAM", [8] = "PING", [9] = "PONG", [10] = "RESUME", [11] = "GOAWAY", [12] = "CONTROL",
}
local GREETINGS = {
  [1] = "Nonce", [2] = "Hello", [3] = "Proof", [4] = "Accept", [5] = "Signature", [6] = "Refused",
  [7] = "Introduce", [8] = "Introduction", [9] = "Early", [10] = "EarlySignature",
}
local CONTROLS = {
  [1] = "Register", [2] = "Registered", [3] = "FlowOpen", [4] = "FlowClose", [0x81] = "Strained",
  [0x82] = "Signal", [0x83] = "Invite", [0x84] = "Invited", [0x85] = "Stun",
}
local RESETS = {
  [1] = "connection aborted", [2] = "connection refused", [3] = "connect timed out",
  [4] = "target unreachable", [5] = "not allowed", [6] = "limit reached", [7] = "no such service",
  [8] = "link ended", [9] = "internal error",
}
local GOAWAYS = {
  [0] = "use another link", [1] = "orderly end", [2] = "no stream is left",
  [0x101] = "unknown frame kind", [0x102] = "bad frame length",
  [0x103] = "frame for a stream that was never opened", [0x105] = "gap in a stream",
  [0x106] = "credit exceeded", [0x107] = "contradiction", [0x108] = "unreadable content",
  [0x109] = "RESUME out of place", [0x10a] = "flood",
}
local REFUSALS = {
  [1] = "BadCredential", [2] = "Superseded", [3] = "UnknownLink", [4] = "Version", [5] = "Limit",
  [6] = "Denied", [7] = "Malformed", [8] = "Unavailable", [9] = "Binding", [10] = "NameTaken",
  [11] = "CertificateName",
}
local PRIORITIES = { [0] = "interactive", [1] = "normal", [2] = "bulk" }
local TARGETS = {
  [0] = "service", [1] = "dialled", [2] = "measurement", [3] = "dialled, reported",
  [4] = "private service", [5] = "service with a mark",
}
local INTENTS = {
  [0] = "new link", [1] = "adds a carrier", [2] = "replaces a carrier", [3] = "token for a code",
}
local PACKETS = {
  [0x40] = "Hello", [0x41] = "Cookie", [0x42] = "Opening", [0x43] = "Reset", [0x50] = "sealed",
  [0x51] = "sealed, other phase", [0x52] = "bootstrap",
}
local BODIES = {
  [0] = "nothing", [1] = "segments", [2] = "segments, data shard", [3] = "parity shard",
  [4] = "datagram", [5] = "datagram, data shard", [6] = "signal",
}
local SIGNALS = { [0] = "path challenge", [1] = "answer", [2] = "close", [3] = "padding" }
local MAGIC = "TNL1"

-- Fields ---------------------------------------------------------------------------------------

local tunnel = Proto("tunnel", "Tunnel")
local kcp = Proto("tunnel_kcp", "Tunnel packet (kcp://)")
local f = {
  magic = ProtoField.string("tunnel.magic", "Magic"),
  mark = ProtoField.uint8("tunnel.mark", "Layout of lanes", base.HEX),
  token = ProtoField.bytes("tunnel.reset_token", "Token of a later Reset"),
  greeting = ProtoField.uint8("tunnel.greeting", "Message", base.DEC, GREETINGS),
  oldest = ProtoField.uint16("tunnel.hello.oldest", "Oldest version"),
  newest = ProtoField.uint16("tunnel.hello.newest", "Newest version"),
  features = ProtoField.uint64("tunnel.features", "Features", base.HEX),
  hello_flags = ProtoField.uint8("tunnel.hello.flags", "Flags", base.HEX),
  instance = ProtoField.bytes("tunnel.hello.instance", "Instance"),
  client = ProtoField.string("tunnel.hello.name", "Client"),
  intent = ProtoField.uint8("tunnel.hello.intent", "Intent", base.DEC, INTENTS),
  link = ProtoField.bytes("tunnel.link", "Link id"),
  carrier = ProtoField.uint32("tunnel.carrier", "Carrier number"),
  version = ProtoField.uint16("tunnel.accept.version", "Version"),
  resume_timeout = ProtoField.uint32("tunnel.accept.resume_timeout", "resume_timeout (s)"),
  keepalive = ProtoField.uint32("tunnel.accept.keepalive", "keepalive (s)"),
  refusal = ProtoField.uint16("tunnel.refused", "Refusal", base.DEC, REFUSALS),
  kind = ProtoField.uint8("tunnel.kind", "Kind", base.DEC, KINDS, 0x1f),
  flags = ProtoField.uint8("tunnel.flags", "Flags", base.HEX, nil, 0xe0),
  length = ProtoField.uint24("tunnel.length", "Length"),
  stream = ProtoField.uint32("tunnel.stream", "Stream"),
  flow = ProtoField.uint32("tunnel.flow", "Flow"),
  limit = ProtoField.uint64("tunnel.limit", "Credit limit"),
  consumed = ProtoField.uint64("tunnel.consumed", "Consumed"),
  priority = ProtoField.uint8("tunnel.open.priority", "Priority", base.DEC, PRIORITIES),
  target_kind = ProtoField.uint8("tunnel.open.kind", "Target kind", base.DEC, TARGETS),
  target = ProtoField.string("tunnel.open.target", "Target"),
  visitor = ProtoField.string("tunnel.open.visitor", "Visitor"),
  fields = ProtoField.bytes("tunnel.open.fields", "Fields of the PROXY header"),
  offset = ProtoField.uint32("tunnel.offset", "Offset (low half)"),
  payload = ProtoField.bytes("tunnel.payload", "Payload"),
  reset = ProtoField.uint16("tunnel.code", "Code", base.DEC, RESETS),
  goaway = ProtoField.uint16("tunnel.goaway", "Code", base.HEX, GOAWAYS),
  ping = ProtoField.uint64("tunnel.ping", "Value", base.HEX),
  highest = ProtoField.uint32("tunnel.resume.highest", "Highest stream seen"),
  received = ProtoField.uint64("tunnel.resume.received", "Received"),
  ended = ProtoField.uint8("tunnel.resume.flags", "Entry flags", base.HEX),
  control = ProtoField.uint8("tunnel.control", "Control message", base.HEX, CONTROLS),
  service = ProtoField.string("tunnel.service", "Service"),
  address = ProtoField.string("tunnel.address", "Address"),
  generation = ProtoField.uint64("tunnel.generation", "Generation"),
  dscp = ProtoField.uint8("tunnel.dscp", "DSCP"),
  text = ProtoField.string("tunnel.text", "Text"),
}
tunnel.fields = f
local k = {
  kind = ProtoField.uint8("tunnel_kcp.kind", "Packet", base.HEX, PACKETS),
  connection = ProtoField.bytes("tunnel_kcp.connection", "Connection of the receiver"),
  client = ProtoField.bytes("tunnel_kcp.client", "Client's id"),
  server = ProtoField.bytes("tunnel_kcp.server", "Server's id"),
  version = ProtoField.uint8("tunnel_kcp.version", "Version"),
  proof = ProtoField.bytes("tunnel_kcp.proof", "Proof"),
  number = ProtoField.uint64("tunnel_kcp.number", "Packet number"),
  body = ProtoField.uint8("tunnel_kcp.body", "Body", base.DEC, BODIES, 7),
  ack = ProtoField.uint32("tunnel_kcp.ack.largest", "Acknowledges up to packet (low half)"),
  una = ProtoField.uint32("tunnel_kcp.ack.una", "Next segment"),
  window = ProtoField.uint16("tunnel_kcp.ack.window", "Window (segments)"),
  group = ProtoField.uint16("tunnel_kcp.group", "Group"),
  index = ProtoField.uint8("tunnel_kcp.index", "Index in the group"),
  sn = ProtoField.uint32("tunnel_kcp.sn", "Segment"),
  payload = ProtoField.bytes("tunnel_kcp.payload", "Payload"),
  signal = ProtoField.uint8("tunnel_kcp.signal", "Signal", base.DEC, SIGNALS),
}
kcp.fields = k
local malformed = ProtoExpert.new("tunnel.malformed", "Does not follow SPEC.md",
  expert.group.MALFORMED, expert.severity.ERROR)
local sealed = ProtoExpert.new("tunnel_kcp.undecrypted",
  "Not decrypted: the key log has no EXPORTER_SECRET for it, or the cipher is not AES-128-GCM",
  expert.group.DECRYPTION, expert.severity.NOTE)
tunnel.experts = { malformed }
kcp.experts = { sealed }
kcp.prefs.keylog = Pref.string("Key log file", "",
  "The file of SSLKEYLOGFILE; empty: that of the preferences of TLS")

-- Streams of bytes -------------------------------------------------------------------------------
--
-- A direction of a connection is in one of the phases "mark", "magic", "greeting" and "frames".
-- Wireshark dissects a packet again whenever it is shown, in any order. So the state at the
-- beginning of each call is saved when a packet is dissected for the first time. Fields of other
-- dissectors, such as the number of a stream, are unknown at that time.

local directions = {}

local function direction(key, phase)
  local known = directions[key]
  if not known then
    known = { phase = phase, rest = "", control = "", calls = {}, at = -1, nth = 0 }
    directions[key] = known
  end
  return known
end

-- Begins a call for a packet. Returns the saved state.
local function begin(dir, pinfo)
  if dir.at ~= pinfo.number then dir.at, dir.nth = pinfo.number, 0 end
  local calls = dir.calls[pinfo.number]
  if not calls then calls = {}; dir.calls[pinfo.number] = calls end
  if pinfo.visited and dir.nth >= #calls then dir.nth = 0 end
  dir.nth = dir.nth + 1
  if not pinfo.visited then
    calls[dir.nth] = { phase = dir.phase, rest = dir.rest, control = dir.control }
  end
  local now = calls[dir.nth] or { phase = "frames", rest = "", control = "" }
  return { phase = now.phase, rest = now.rest, control = now.control, is_server = dir.is_server }
end

local function finish(dir, now, pinfo)
  if not pinfo.visited then dir.phase, dir.rest, dir.control = now.phase, now.rest, now.control end
end

local function ends(pinfo)
  return tostring(pinfo.src) .. ":" .. pinfo.src_port, tostring(pinfo.dst) .. ":" .. pinfo.dst_port
end

-- Adds consecutive fields: pairs of a field and its length in bytes.
local function add_all(tree, range, at, fields)
  for i = 1, #fields, 2 do
    tree:add(fields[i], range(at, fields[i + 1]))
    at = at + fields[i + 1]
  end
end

-- Greeting ---------------------------------------------------------------------------------------

local function hello(body, tree)
  add_all(tree, body, 0, { f.oldest, 2, f.newest, 2, f.features, 8, f.hello_flags, 1, f.instance, 16 })
  local length = body(61, 1):uint()
  local at = 62 + length
  local intent = body(at, 1):uint()
  add_all(tree, body, 62, { f.client, length, f.intent, 1 })
  if intent == 1 or intent == 2 then
    add_all(tree, body, at + 1, { f.link, 16, f.carrier, 4 })
  end
end

local function accept(body, tree)
  add_all(tree, body, 0, {
    f.version, 2, f.features, 8, f.link, 16, f.carrier, 4, f.resume_timeout, 4, f.keepalive, 4,
  })
end

-- Control messages ---------------------------------------------------------------------------------

local function each_tlv(range, act)
  local at = 0
  while at + 4 <= range:len() do
    local kind, length = range(at, 1):uint(), range(at + 1, 3):uint()
    if at + 4 + length > range:len() then return end
    if length > 0 then act(kind, range(at + 4, length)) end
    at = at + 4 + length
  end
end

local function service_fields(range, tree)
  local branch = tree:add(tunnel, range, "Service")
  each_tlv(range, function(kind, value)
    if kind == 1 then
      branch:add(f.service, value)
      branch:append_text(" " .. value:string())
    elseif kind == 2 then branch:add(f.address, value)
    elseif kind == 3 then branch:add(f.priority, value)
    elseif kind == 5 and value:len() > 2 then branch:add(f.text, value(2))
    elseif kind == 14 then branch:add(f.dscp, value)
    end
  end)
end

local function visitor_of(range, tree)
  local family = range(0, 1):uint()
  if family == 4 and range:len() >= 7 then
    local text = tostring(range(1, 4):ipv4()) .. ":" .. range(5, 2):uint()
    tree:add(f.visitor, range(0, 7), text)
  elseif family == 6 and range:len() >= 19 then
    local text = "[" .. tostring(range(1, 16):ipv6()) .. "]:" .. range(17, 2):uint()
    tree:add(f.visitor, range(0, 19), text)
  end
end

-- The length of a visitor address by its family, in bytes.
local VISITOR_SIZES = { [0] = 1, [4] = 7, [6] = 19 }

-- Priority, target, visitor and TLVs, as in OPEN and FlowOpen. Returns the target.
local function open_body(range, tree)
  tree:add(f.priority, range(0, 1))
  tree:add(f.target_kind, range(1, 1))
  local length = range(2, 2):uint()
  if length > 0 then tree:add(f.target, range(4, length)) end
  visitor_of(range(4 + length), tree)
  local size = VISITOR_SIZES[range(4 + length, 1):uint()]
  if size and range:len() > 4 + length + size then
    each_tlv(range(4 + length + size), function(kind, value)
      if kind == 1 then tree:add(f.fields, value) end
    end)
  end
  return length > 0 and range(4, length):string() or ""
end

local function control_message(kind, body, tree)
  if not body then return end
  if kind == 1 or kind == 2 then
    each_tlv(body, function(field, value)
      if field == 1 then tree:add(f.generation, value)
      elseif field == 2 then service_fields(value, tree)
      end
    end)
  elseif kind == 3 then
    tree:add(f.flow, body(0, 4))
    open_body(body(4), tree)
  elseif kind == 4 then
    tree:add(f.flow, body(0, 4))
    tree:add(f.reset, body(4, 2))
  end
end

-- Reassembles the messages of CONTROL frames, which are a separate byte stream.
local function control(now, range, tree, told)
  local all = now.control .. range:raw()
  local whole = ByteArray.new(all, true):tvb("Control stream")
  local at = 0
  while at + 4 <= whole:len() do
    local kind, length = whole(at, 1):uint(), whole(at + 1, 3):uint()
    if at + 4 + length > whole:len() then break end
    local branch = tree:add(tunnel, whole(at, 4 + length), CONTROLS[kind] or "Control message")
    branch:add(f.control, whole(at, 1))
    control_message(kind, length > 0 and whole(at + 4, length) or nil, branch)
    told[#told + 1] = CONTROLS[kind] or "control message"
    at = at + 4 + length
  end
  now.control = all:sub(at + 1)
end

-- Frames -------------------------------------------------------------------------------------------

local function resume(body, tree)
  tree:add(f.highest, body(0, 4))
  for at = 4, body:len() - 29, 29 do
    local entry = tree:add(tunnel, body(at, 29), "Stream " .. body(at, 4):uint())
    add_all(entry, body, at,
      { f.stream, 4, f.ended, 1, f.received, 8, f.consumed, 8, f.limit, 8 })
  end
end

local function frame(now, range, tree, told)
  local kind, flags = band(range(0, 1):uint(), 0x1f), band(range(0, 1):uint(), 0xe0)
  local length, stream = range(1, 3):uint(), range(4, 4):uint()
  local name = KINDS[kind] or "unknown frame"
  local branch = tree:add(tunnel, range, name)
  branch:add(f.kind, range(0, 1))
  branch:add(f.flags, range(0, 1))
  branch:add(f.length, range(1, 3))
  branch:add(kind == 7 and f.flow or f.stream, range(4, 4))
  local body = length > 0 and range(8, length) or nil
  local word = stream > 0 and name .. " " .. stream or name
  told[#told + 1] = word
  if not body then
    return
  elseif kind == 1 then
    branch:add(f.limit, body(0, 8))
    local target = open_body(body(8), branch)
    branch:append_text(" " .. target)
    told[#told] = word .. " " .. target
  elseif kind == 2 then
    branch:add(f.offset, body(0, 4))
    branch:add(f.payload, body(4))
  elseif kind == 3 then branch:add(f.offset, body(0, 4))
  elseif kind == 4 or kind == 5 then branch:add(f.reset, body(0, 2))
  elseif kind == 6 then
    branch:add(f.limit, body(0, 8))
    branch:add(f.consumed, body(8, 8))
    if band(flags, 0x40) ~= 0 then branch:append_text(", the end was seen") end
  elseif kind == 7 then branch:add(f.payload, body)
  elseif kind == 8 or kind == 9 then branch:add(f.ping, body(0, 8))
  elseif kind == 10 then resume(body, branch)
  elseif kind == 11 then branch:add(f.goaway, body(0, 2))
  elseif kind == 12 then
    branch:add(f.offset, body(0, 4))
    control(now, body(4), branch, told)
  end
end

-- Dissects the unit at the beginning of a range. Returns its length; or nil and the number of
-- missing bytes; or only nil if the bytes violate the specification.
local function unit(now, range, tree, told)
  local have = range:len()
  if now.phase == "mark" then
    local length = now.is_server and now.has_token and 17 or 1
    if have < length then return nil, length - have end
    -- The capture begins later, or the client has changed its address.
    local is_mark = range(0, 1):uint() == 1
      and (have < length + 4 or range(length, 4):string() == MAGIC)
    if not is_mark then
      now.phase = "frames"
      return 0
    end
    tree:add(f.mark, range(0, 1))
    if length > 1 then tree:add(f.token, range(1, 16)) end
    now.phase = "magic"
    return length
  elseif now.phase == "magic" then
    if have < 4 then return nil, 4 - have end
    if range(0, 4):string() ~= MAGIC then
      -- Wireshark drops the WebSocket messages that arrive together with the HTTP response. An
      -- Accept has at least 38 bytes, and a RESET has 2.
      local is_accept = range(0, 1):uint() == 4 and range(1, 3):uint() >= 38
      now.phase = is_accept and "greeting" or "frames"
      return 0
    end
    tree:add(f.magic, range(0, 4))
    now.phase = "greeting"
    return 4
  elseif have < 4 then
    return nil, 4 - have
  end
  local kind, length = range(0, 1):uint(), range(1, 3):uint()
  -- An Introduction may follow the Proof of a client; a PING is shorter.
  local is_introduction = now.is_proven and kind == 8 and length >= 64
  if now.phase == "greeting" or is_introduction then
    if not GREETINGS[kind] or length > 4096 then return nil end
    if have < 4 + length then return nil, 4 + length - have end
    local branch = tree:add(tunnel, range(0, 4 + length), GREETINGS[kind])
    branch:add(f.greeting, range(0, 1))
    told[#told + 1] = GREETINGS[kind]
    local body = length > 0 and range(4, length) or nil
    if kind == 2 and length >= 64 then hello(body, branch)
    elseif kind == 4 and length >= 38 then accept(body, branch)
    elseif kind == 6 and length >= 2 then branch:add(f.refusal, body(0, 2))
    elseif body then branch:add(f.payload, body)
    end
    -- A Proof, a Signature and an EarlySignature are the last messages of their end.
    if kind == 3 or kind == 5 or kind == 10 then now.phase = "frames" end
    return 4 + length
  end
  if have < 8 then return nil, 8 - have end
  kind = band(kind, 0x1f)
  local flag = band(range(0, 1):uint(), 0x80)
  if (not KINDS[kind] and flag == 0) or length > 0x100004 then return nil end
  if have < 8 + length then return nil, 8 + length - have end
  frame(now, range(0, 8 + length), tree, told)
  return 8 + length
end

-- Dissects all units of a range. Returns the number of dissected bytes, and the number of bytes
-- missing for the next unit.
local function units(now, range, tree, told)
  local at = 0
  while at < range:len() do
    local length, missing = unit(now, range(at), tree, told)
    if not length then
      if missing then return at, missing end
      tree:add_proto_expert_info(malformed)
      return range:len(), nil
    end
    at = at + length
  end
  return at, nil
end

local function summary(pinfo, told)
  pinfo.cols.protocol = "TUNNEL"
  if #told > 0 then
    pinfo.cols.info:append((pinfo.cols.info and " " or "") .. "[" .. table.concat(told, ", ") .. "]")
  end
end

-- A stream that Wireshark reassembles: Wireshark buffers incomplete units.
local function reassembled(tvb, pinfo, tree, key, phase)
  local dir = direction(key, phase)
  local now = begin(dir, pinfo)
  now.is_proven = now.phase == "frames"
  local branch, told = tree:add(tunnel, tvb()), {}
  local read, missing = units(now, tvb(), branch, told)
  finish(dir, now, pinfo)
  if missing then
    pinfo.desegment_offset = read
    pinfo.desegment_len = missing
  end
  summary(pinfo, told)
  return tvb:len()
end

-- A stream in pieces that Wireshark does not reassemble: WebSocket messages, KCP segments.
local function piecewise(range, pinfo, tree, dir)
  local now = begin(dir, pinfo)
  now.has_token = dir.has_token
  now.is_proven = now.phase == "frames"
  local whole = range
  if #now.rest > 0 then
    whole = ByteArray.new(now.rest .. range:raw(), true):tvb("Tunnel, reassembled")()
  end
  local branch, told = tree:add(tunnel, whole), {}
  local read = units(now, whole, branch, told)
  now.rest = read < whole:len() and whole(read):raw() or ""
  finish(dir, now, pinfo)
  summary(pinfo, told)
end

local function stream_of(phase, pinfo)
  local from, to = ends(pinfo)
  return table.concat({ phase, from, to }, " "), phase
end

function tunnel.dissector(tvb, pinfo, tree)
  if tvb:len() == 0 then return 0 end
  return reassembled(tvb, pinfo, tree, stream_of("magic", pinfo))
end

-- The streams of a connection. The greeting is at the beginning of the first one, and the others
-- have only frames, so they share the phase of the connection.
local over_quic = Proto("tunnel_quic", "Tunnel over QUIC")
function over_quic.dissector(tvb, pinfo, tree)
  if tvb:len() == 0 then return 0 end
  return reassembled(tvb, pinfo, tree, stream_of("mark", pinfo))
end

-- The messages of a WebSocket.
local web_socket = Proto("tunnel_ws", "Tunnel over WebSocket")
function web_socket.dissector(tvb, pinfo, tree)
  if tvb:len() == 0 then return 0 end
  piecewise(tvb(), pinfo, tree, direction(stream_of("magic", pinfo)))
  return tvb:len()
end

-- Native datagrams of a carrier: a packet of a flow.
local function flow_packet(range, tree)
  if range:len() < 4 then return end
  local branch = tree:add(tunnel, range, "Datagram of a flow")
  local first = range(0, 4):uint()
  branch:add(f.flow, range(0, 4), band(first, 0x7fffffff))
  local head = band(first, 0x80000000) ~= 0 and 10 or 4
  if range:len() > head then branch:add(f.payload, range(head)) end
end

-- Cryptography, for kcp:// alone: Wireshark decrypts TLS and QUIC by itself ----------------------

local SHA = {}
do
  local primes, n = {}, 2
  while #primes < 64 do
    local is_prime = true
    for _, p in ipairs(primes) do
      if n % p == 0 then is_prime = false; break end
    end
    if is_prime then primes[#primes + 1] = n end
    n = n + 1
  end
  -- The first 32 bits of the fraction of a root, by integers: a double has too few bits for cubes.
  local function fraction(p, degree)
    local root = math.floor(p ^ (1 / degree))
    local part, rest = 0, p ^ (1 / degree) - root
    for _ = 1, 32 do
      rest = rest * 2
      local bit_of = math.floor(rest)
      part, rest = part * 2 + bit_of, rest - bit_of
    end
    return part
  end
  SHA.k, SHA.h = {}, {}
  for i = 1, 64 do SHA.k[i] = fraction(primes[i], 3) end
  for i = 1, 8 do SHA.h[i] = fraction(primes[i], 2) end
end

local function word(value)
  return string.char(band(rshift(value, 24), 255), band(rshift(value, 16), 255),
    band(rshift(value, 8), 255), band(value, 255))
end

local function rotate(value, by)
  return bor(rshift(value, by), lshift(value, 32 - by))
end

-- A number from 0 to 2^32 - 1: BitOp has signed results, and sums of doubles may be larger.
local function u32(value)
  return value % 4294967296
end

local function sha256(text)
  local length = #text
  text = text .. "\128" .. string.rep("\0", (55 - length) % 64) .. word(math.floor(length / 2 ^ 29))
    .. word(u32(length * 8))
  local h = {}
  for i = 1, 8 do h[i] = SHA.h[i] end
  for at = 1, #text, 64 do
    local w = {}
    for i = 1, 16 do
      local a, b, c, d = text:byte(at + i * 4 - 4, at + i * 4 - 1)
      w[i] = ((a * 256 + b) * 256 + c) * 256 + d
    end
    for i = 17, 64 do
      local x, y = w[i - 15], w[i - 2]
      local s0 = bxor(rotate(x, 7), rotate(x, 18), rshift(x, 3))
      local s1 = bxor(rotate(y, 17), rotate(y, 19), rshift(y, 10))
      w[i] = u32(w[i - 16] + u32(s0) + w[i - 7] + u32(s1))
    end
    local a, b, c, d, e, g, i, j = h[1], h[2], h[3], h[4], h[5], h[6], h[7], h[8]
    for n = 1, 64 do
      local s1 = bxor(rotate(e, 6), rotate(e, 11), rotate(e, 25))
      local choice = bxor(band(e, g), band(bnot(e), i))
      local t1 = u32(j + u32(s1) + u32(choice) + SHA.k[n] + w[n])
      local s0 = bxor(rotate(a, 2), rotate(a, 13), rotate(a, 22))
      local majority = bxor(band(a, b), band(a, c), band(b, c))
      local t2 = u32(u32(s0) + u32(majority))
      j, i, g, e, d, c, b, a = i, g, e, u32(d + t1), c, b, a, u32(t1 + t2)
    end
    for n, value in ipairs({ a, b, c, d, e, g, i, j }) do h[n] = u32(h[n] + value) end
  end
  local out = {}
  for i = 1, 8 do out[i] = word(h[i]) end
  return table.concat(out)
end

local function xored(text, value)
  return (text:gsub(".", function(c) return string.char(u32(bxor(c:byte(), value)) % 256) end))
end

local function hmac(key, text)
  if #key > 64 then key = sha256(key) end
  key = key .. string.rep("\0", 64 - #key)
  return sha256(xored(key, 0x5c) .. sha256(xored(key, 0x36) .. text))
end

-- HKDF-Expand of RFC 5869.
local function expand(secret, info, length)
  local out, last, n = "", "", 1
  while #out < length do
    last = hmac(secret, last .. info .. string.char(n))
    out, n = out .. last, n + 1
  end
  return out:sub(1, length)
end

-- HKDF-Expand-Label of RFC 8446 section 7.1; `label` has its prefix.
local function expand_label(secret, label, context, length)
  local head = string.char(math.floor(length / 256), length % 256, #label)
  return expand(secret, head .. label .. string.char(#context) .. context, length)
end

local AES = { s = {} }
do
  -- The inverse in the field and the affine map of FIPS 197 section 5.1.1.
  local p, q = 1, 1
  local function left(x, by) return band(bor(lshift(x, by), rshift(x, 8 - by)), 255) end
  repeat
    p = band(bxor(p, lshift(p, 1), band(p, 0x80) ~= 0 and 0x1b or 0), 255)
    q = bxor(q, lshift(q, 1))
    q = bxor(q, lshift(q, 2))
    q = band(bxor(q, lshift(q, 4)), 255)
    if band(q, 0x80) ~= 0 then q = bxor(q, 0x09) end
    AES.s[p] = band(bxor(q, left(q, 1), left(q, 2), left(q, 3), left(q, 4), 0x63), 255)
  until p == 1
  AES.s[0] = 0x63
end

local function doubled(x)
  return band(bxor(lshift(x, 1), band(x, 0x80) ~= 0 and 0x1b or 0), 255)
end

-- The 11 round keys of AES-128, as bytes.
local function schedule(key)
  local w, rcon = { key:byte(1, 16) }, 1
  for i = 17, 176, 4 do
    local a, b, c, d = w[i - 4], w[i - 3], w[i - 2], w[i - 1]
    if (i - 1) % 16 == 0 then
      a, b, c, d = bxor(AES.s[b], rcon), AES.s[c], AES.s[d], AES.s[a]
      rcon = doubled(rcon)
    end
    w[i], w[i + 1] = bxor(w[i - 16], a), bxor(w[i - 15], b)
    w[i + 2], w[i + 3] = bxor(w[i - 14], c), bxor(w[i - 13], d)
  end
  return w
end

local SHIFTED = { 1, 6, 11, 16, 5, 10, 15, 4, 9, 14, 3, 8, 13, 2, 7, 12 }

local function encrypted(keys, block)
  local s, t = {}, {}
  for i = 1, 16 do s[i] = bxor(block[i], keys[i]) end
  for round = 1, 10 do
    for i = 1, 16 do t[i] = AES.s[s[SHIFTED[i]]] end
    if round < 10 then
      for c = 1, 16, 4 do
        local a, b, g, d = t[c], t[c + 1], t[c + 2], t[c + 3]
        local all = bxor(a, b, g, d)
        t[c] = bxor(a, all, doubled(bxor(a, b)))
        t[c + 1] = bxor(b, all, doubled(bxor(b, g)))
        t[c + 2] = bxor(g, all, doubled(bxor(g, d)))
        t[c + 3] = bxor(d, all, doubled(bxor(d, a)))
      end
    end
    for i = 1, 16 do s[i] = bxor(t[i], keys[round * 16 + i]) end
  end
  return s
end

-- AES-128-GCM without verification of the tag (NIST SP 800-38D): captured packets may be truncated.
local function opened(key, nonce, text)
  local out = {}
  for at = 1, #text, 16 do
    local n = 2 + (at - 1) / 16
    local block = { nonce:byte(1, 12) }
    block[13], block[14] = math.floor(n / 2 ^ 24) % 256, math.floor(n / 2 ^ 16) % 256
    block[15], block[16] = math.floor(n / 256) % 256, n % 256
    local stream = encrypted(key, block)
    local part = { text:byte(at, math.min(at + 15, #text)) }
    for i = 1, #part do part[i] = string.char(band(bxor(part[i], stream[i]), 255)) end
    out[#out + 1] = table.concat(part)
  end
  return table.concat(out)
end

-- The keys of one direction and phase.
local function keys_of(secret)
  return {
    key = schedule(expand_label(secret, "tnl kcp key", "", 16)),
    iv = expand_label(secret, "tnl kcp iv", "", 12),
  }
end

local function of_phase(way, phase)
  if not way[phase] then
    local secret = way.secret
    if phase == 1 then secret = expand_label(secret, "tnl kcp ku", "", 32) end
    way[phase] = keys_of(secret)
  end
  return way[phase]
end

-- The key log --------------------------------------------------------------------------------------

local exporters = {}
local function load_exporters()
  local path = kcp.prefs.keylog
  if path == "" and get_preference then
    local ok, found = pcall(get_preference, "tls.keylog_file")
    path = ok and found or ""
  end
  if not path or path == "" then path = os.getenv("SSLKEYLOGFILE") or "" end
  local file = path ~= "" and io.open(path, "r")
  if not file then return end
  for line in file:lines() do
    local random, secret = line:match("^EXPORTER_SECRET (%x+) (%x+)")
    if random then exporters[random:lower()] = secret end
  end
  file:close()
end

-- The secret of a connection. The file is read again for each connection that is not known yet:
-- during a live capture, connections begin later.
local function exporter_of(known)
  if not exporters[known.random] and not known.is_looked_up then
    known.is_looked_up = true
    load_exporters()
  end
  return exporters[known.random]
end

local function bytes_of(hex)
  return (hex:gsub("%x%x", function(two) return string.char(tonumber(two, 16)) end))
end

local function hex_of(text)
  return (text:gsub(".", function(c) return string.format("%02x", c:byte()) end))
end

-- Packets of kcp:// ------------------------------------------------------------------------------

-- The connections, by both connection ids.
local connections = {}

local function connect(server, client)
  local known = connections[server]
  if known and known.client == client then return known end
  local secret = hmac("tunnel kcp bootstrap 1", server .. client)
  known = {
    client = client, server = server,
    bootstrap = { up = { secret = expand(secret, "client", 32) },
                  down = { secret = expand(secret, "server", 32) } },
    lanes = {},
  }
  connections[server], connections[client] = known, known
  return known
end

-- The random of a ClientHello and the suite of a ServerHello, in the first bytes of each direction.
local function look_at_hello(known, way, payload)
  -- A record of 5 bytes, a message of 4, the version of 2, the random of 32.
  if payload:byte(1) ~= 22 or #payload < 44 then return end
  if way == "up" and payload:byte(6) == 1 then
    known.random = hex_of(payload:sub(12, 43))
  elseif way == "down" and payload:byte(6) == 2 then
    local suite = 45 + payload:byte(44)
    known.suite = (payload:byte(suite) or 0) * 256 + (payload:byte(suite + 1) or 0)
  end
end

-- The secrets of sealed packets (SPEC.md, Lanes): 64 bytes of the exporter of TLS.
local function seal(known)
  if known.sealed or not known.random or known.suite ~= 0x1301 then return known.sealed end
  local secret = exporter_of(known)
  if not secret then return nil end
  local empty = sha256("")
  local derived =
    expand_label(bytes_of(secret), "tls13 EXPORTER-tunnel-kcp-packets", empty, 32)
  local material = expand_label(derived, "tls13 exporter", empty, 64)
  known.sealed = { up = { secret = material:sub(1, 32) }, down = { secret = material:sub(33, 64) } }
  return known.sealed
end

local function integer(range, at)
  local size = ({ [0] = 1, [1] = 2, [2] = 4 })[rshift(range(at, 1):uint(), 6)] or 8
  return at + size
end

-- Skips an acknowledgement. Returns the offset after it.
local function acknowledgement(range, at, has_marks, tree)
  tree:add(k.ack, range(at, 4))
  at = integer(range, at + 4)
  tree:add(k.una, range(at, 4))
  tree:add(k.window, range(at + 4, 2))
  at = at + 6
  for _ = 1, 2 do
    local count = range(at, 1):uint()
    at = at + 1
    for _ = 1, 2 * count do at = integer(range, at) end
  end
  return has_marks and integer(range, at) or at
end

-- Adds a segment. Returns the bytes that are now in order, if there are any.
local function in_order(lane, sn, payload)
  if sn < lane.next or lane.waiting[sn] then return "" end
  lane.waiting[sn] = payload
  local out = {}
  while lane.waiting[lane.next] do
    out[#out + 1] = lane.waiting[lane.next]
    lane.waiting[lane.next] = nil
    lane.next = lane.next + 1
  end
  return table.concat(out)
end

-- Adds a part of a segment. Returns the whole payload once all parts have arrived.
local function joined(lane, sn, offset, follows, payload)
  local parts = lane.parts[sn] or {}
  lane.parts[sn] = parts
  parts[offset] = { payload = payload, follows = follows }
  local out, at = {}, 0
  while parts[at] do
    out[#out + 1] = parts[at].payload
    if not parts[at].follows then
      lane.parts[sn] = nil
      return table.concat(out)
    end
    if #parts[at].payload == 0 then return nil end
    at = at + #parts[at].payload
  end
  return nil
end

local function segments(range, tree, take)
  local sn, at = range(0, 4):uint(), 4
  while at < range:len() do
    local form = range(at, 1):uint()
    local from = at
    at = at + 1
    if band(form, 2) ~= 0 then at = at + 1 end
    local offset, follows = 0, false
    if band(form, 8) ~= 0 then
      offset = band(range(at, 2):uint(), 0x7fff)
      follows = band(range(at, 2):uint(), 0x8000) ~= 0
      at = at + 2
    end
    local length
    if band(form, 1) ~= 0 then
      length = range(at, 2):uint()
      at = at + 2
    else
      length = range:len() - at
    end
    if at + length > range:len() then return end
    local branch = tree:add(k.sn, range(from, at - from + length), sn)
    local payload = length > 0 and range(at, length) or nil
    if payload then branch:add(k.payload, payload) end
    take(sn, payload and payload:raw() or "", band(form, 8) ~= 0, offset, follows)
    at, sn = at + length, sn + 1
  end
end

-- The content of a packet after its decryption.
local function content(known, session, way, text, pinfo, tree)
  local range = ByteArray.new(text, true):tvb("Content")()
  local flags, at = range(0, 1):uint(), 1
  local branch = tree:add(kcp, range, "Content")
  branch:add(k.body, range(0, 1))
  if band(flags, 64) ~= 0 then at = at + 3 end
  if band(flags, 8) ~= 0 then at = acknowledgement(range, at, band(flags, 32) ~= 0, branch) end
  local body = band(flags, 7)
  if body == 2 or body == 3 or body == 5 then
    branch:add(k.group, range(at, 2))
    branch:add(k.index, range(at + 2, 1))
    at = at + 3
  end
  local rest = at < range:len() and range(at) or nil
  if not rest then return end
  local name = session .. way
  if body == 1 or body == 2 then
    local lane = known.lanes[name]
    if not lane then
      lane = { next = 0, waiting = {}, parts = {}, given = {} }
      known.lanes[name] = lane
    end
    -- The bytes that a packet completes are known when it is dissected for the first time.
    local whole = pinfo.visited and lane.given[pinfo.number] or ""
    segments(rest, branch, function(sn, payload, is_part, offset, follows)
      if pinfo.visited then return end
      if session == "bootstrap" and sn == 0 and offset == 0 then
        look_at_hello(known, way, payload)
      end
      if is_part then payload = joined(lane, sn, offset, follows, payload) end
      if payload then whole = whole .. in_order(lane, sn, payload) end
    end)
    if not pinfo.visited then lane.given[pinfo.number] = whole end
    if session == "sealed" and #whole > 0 then
      local dir = direction("kcp " .. hex_of(known.server) .. way, "mark")
      dir.is_server, dir.has_token = way == "down", true
      piecewise(ByteArray.new(whole, true):tvb("Lane")(), pinfo, tree, dir)
    end
  elseif body == 4 or body == 5 then flow_packet(rest, branch)
  elseif body == 6 then branch:add(k.signal, rest(0, 1))
  end
end

local function session_packet(tvb, pinfo, tree)
  local kind = tvb(0, 1):uint()
  tree:add(k.kind, tvb(0, 1))
  tree:add(k.connection, tvb(1, 8))
  tree:add(k.number, tvb(9, 8))
  local known = connections[tvb(1, 8):raw()]
  if not known then return end
  local way = known.server == tvb(1, 8):raw() and "up" or "down"
  local session = kind == 0x52 and "bootstrap" or "sealed"
  local secrets = session == "bootstrap" and known.bootstrap or seal(known)
  if not secrets then
    tree:add_proto_expert_info(sealed)
    return
  end
  local keys = of_phase(secrets[way], kind == 0x51 and 1 or 0)
  local nonce, number = { keys.iv:byte(1, 12) }, { tvb(9, 8):raw():byte(1, 8) }
  for i = 1, 8 do nonce[i + 4] = band(bxor(nonce[i + 4], number[i]), 255) end
  for i = 1, 12 do nonce[i] = string.char(nonce[i]) end
  if tvb:len() < 17 + 1 + 16 then return end
  local text = opened(keys.key, table.concat(nonce), tvb(17, tvb:len() - 33):raw())
  content(known, session, way, text, pinfo, tree)
end

function kcp.dissector(tvb, pinfo, tree)
  if tvb:len() < 25 then return 0 end
  local kind = tvb(0, 1):uint()
  pinfo.cols.protocol = "TUNNEL-KCP"
  pinfo.cols.info = PACKETS[kind] or ""
  local branch = tree:add(kcp, tvb(), "Tunnel packet, " .. (PACKETS[kind] or "unknown"))
  if kind == 0x40 then
    branch:add(k.kind, tvb(0, 1))
    branch:add(k.version, tvb(9, 1))
    branch:add(k.client, tvb(10, 8))
  elseif kind == 0x41 then
    branch:add(k.kind, tvb(0, 1))
    branch:add(k.client, tvb(1, 8))
    branch:add(k.version, tvb(9, 1))
    branch:add(k.server, tvb(10, 8))
    branch:add(k.proof, tvb(22, 16))
  elseif kind == 0x42 then
    branch:add(k.kind, tvb(0, 1))
    branch:add(k.server, tvb(1, 8))
    branch:add(k.client, tvb(9, 8))
    branch:add(k.proof, tvb(21, 16))
    connect(tvb(1, 8):raw(), tvb(9, 8):raw())
    if tvb:len() > 37 + 17 then session_packet(tvb(37):tvb(), pinfo, branch) end
  elseif kind == 0x43 then
    branch:add(k.kind, tvb(0, 1))
    branch:add(k.server, tvb(1, 8))
    branch:add(f.token, tvb(9, 16))
  else
    session_packet(tvb, pinfo, branch)
  end
  return tvb:len()
end

-- Registration of the dissectors ------------------------------------------------------------------

-- tcp:// begins with the magic of either end.
local function is_plain(tvb, pinfo, tree)
  if tvb:len() < 4 or tvb(0, 4):string() ~= MAGIC then return false end
  pinfo.conversation = tunnel
  tunnel.dissector(tvb, pinfo, tree)
  return true
end

-- kcp:// begins with a Hello, which is longer than every answer and has zeros at its end.
local function is_kcp(tvb, pinfo, tree)
  if tvb:len() < 1200 or tvb(0, 1):uint() ~= 0x40 or tvb(9, 1):uint() ~= 1 then return false end
  if tvb(18, tvb:len() - 18):raw():find("[^\0]") then return false end
  pinfo.conversation = kcp
  kcp.dissector(tvb, pinfo, tree)
  return true
end

function tunnel.init()
  directions, connections, exporters = {}, {}, {}
end

tunnel:register_heuristic("tcp", is_plain)
kcp:register_heuristic("udp", is_kcp)
DissectorTable.get("tls.alpn"):add("tunnel/1", tunnel)
DissectorTable.get("ws.protocol"):add("tunnel.1", web_socket)
DissectorTable.get("quic.proto"):add("tunnel/1", over_quic)
