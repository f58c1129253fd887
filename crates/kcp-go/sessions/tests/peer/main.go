// The other end of the interoperability tests: sessions of kcp-go, which shares no code with this
// repository.
//
// It listens, or dials with -dial, and says on standard output, a line each:
//
//	port N                     the port on which it listens now
//	received N SHA-256         a session has received the N bytes of -receive
//	sent N SHA-256             a session has written the N bytes of -send
//	error TEXT                 something failed
//
// A line "listen DATA PARITY" on standard input ends all sessions and listens on the same port
// with other numbers of shards. The end of standard input ends the program, so that it does not
// outlive the test that started it.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"

	"github.com/xtaci/kcp-go/v5"
)

// Settings of all sessions, by the names that kcptun gives them.
var (
	dial         = flag.String("dial", "", "dial this address instead of listening")
	crypt        = flag.String("crypt", "null", "the cipher, by its name in kcptun")
	passphrase   = flag.String("passphrase", "it's a secrect", "the key is derived from it as in kcptun")
	rawKey       = flag.String("key", "", "the key as hexadecimal digits, in place of a passphrase")
	dataShards   = flag.Int("datashard", 0, "data shards of a group; 0 turns FEC off")
	parityShards = flag.Int("parityshard", 0, "parity shards of a group; 0 turns FEC off")
	mtu          = flag.Int("mtu", 1350, "bytes of the longest datagram")
	sendWindow   = flag.Int("sndwnd", 1024, "segments in flight")
	recvWindow   = flag.Int("rcvwnd", 1024, "segments that wait for the reader")
	noDelay      = flag.Int("nodelay", 1, "the first parameter of SetNoDelay")
	interval     = flag.Int("interval", 10, "milliseconds between two flushes")
	resend       = flag.Int("resend", 2, "the threshold of the fast retransmission")
	noControl    = flag.Int("nc", 1, "1 turns the congestion window off")
	ackNoDelay   = flag.Bool("acknodelay", false, "acknowledge each datagram at once")
	stream       = flag.Bool("stream", true, "bytes of two writes may share a segment")
	echo         = flag.Bool("echo", false, "send back what arrives")
	oob          = flag.Bool("oob", false, "send back datagrams out of band")
	receive      = flag.Int64("receive", 0, "tell the hash of so many received bytes")
	send         = flag.Int64("send", 0, "send so many bytes that differ everywhere")
	seed         = flag.Uint64("seed", 1, "chooses the bytes of -send")
)

// Lines of two sessions do not mix.
var output sync.Mutex

func say(format string, values ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", values...)
}

func check(err error) {
	if err != nil {
		say("error %v", err)
		os.Exit(1)
	}
}

func main() {
	flag.Parse()
	block, err := cipherOf(*crypt)
	check(err)
	if *dial != "" {
		session, err := kcp.DialWithOptions(*dial, block, *dataShards, *parityShards)
		check(err)
		go serve(session)
	} else {
		go listen(block)
	}
	commands(block)
}

// The present listener and its sessions.
var (
	listening net.PacketConn
	listener  *kcp.Listener
)

func listen(block kcp.BlockCrypt) {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	check(err)
	accept(socket, block, *dataShards, *parityShards)
}

func accept(socket net.PacketConn, block kcp.BlockCrypt, data, parity int) {
	var err error
	listening = socket
	listener, err = kcp.ServeConn(block, data, parity, socket)
	check(err)
	// A window of the test leaves in one burst.
	_ = listener.SetReadBuffer(4 << 20)
	go func(listener *kcp.Listener) {
		for {
			session, err := listener.AcceptKCP()
			if err != nil {
				return
			}
			go serve(session)
		}
	}(listener)
	say("port %d", socket.LocalAddr().(*net.UDPAddr).Port)
}

func commands(block kcp.BlockCrypt) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var data, parity int
		if _, err := fmt.Sscanf(lines.Text(), "listen %d %d", &data, &parity); err != nil {
			check(fmt.Errorf("%q: %w", lines.Text(), err))
		}
		address := listening.LocalAddr().String()
		_ = listener.Close()
		_ = listening.Close()
		socket, err := net.ListenPacket("udp", address)
		check(err)
		accept(socket, block, data, parity)
	}
}

func serve(session *kcp.UDPSession) {
	session.SetStreamMode(*stream)
	session.SetMtu(*mtu)
	session.SetWindowSize(*sendWindow, *recvWindow)
	session.SetNoDelay(*noDelay, *interval, *resend, *noControl)
	session.SetACKNoDelay(*ackNoDelay)
	if *dial != "" {
		_ = session.SetReadBuffer(4 << 20)
	}
	if *oob {
		check(session.SetOOBHandler(func(payload []byte) {
			copied := append([]byte(nil), payload...)
			go session.SendOOB(copied)
		}))
	}
	if *send > 0 {
		go source(session)
	}
	sink(session)
}

// Reads until the session ends, and tells the hash of the first bytes.
func sink(session *kcp.UDPSession) {
	hash, count := sha256.New(), int64(0)
	if *receive == 0 {
		count = -1
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := session.Read(buffer)
		if err != nil {
			return
		}
		if count >= 0 {
			hash.Write(buffer[:n])
			count += int64(n)
		}
		if count >= *receive {
			say("received %d %x", count, hash.Sum(nil))
			count = -1
		}
		if *echo {
			if _, err := session.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
}

// Writes the bytes of -send, and tells their hash.
func source(session *kcp.UDPSession) {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], *seed)
	hash := sha256.New()
	bytes := io.TeeReader(io.LimitReader(rand.NewChaCha8(key), *send), hash)
	buffer := make([]byte, 16<<10)
	for {
		n, err := bytes.Read(buffer)
		if err == io.EOF {
			break
		}
		check(err)
		if _, err := session.Write(buffer[:n]); err != nil {
			return
		}
	}
	say("sent %d %x", *send, hash.Sum(nil))
}
