// The other end of the interoperability tests: WebRTC by pion, which shares no code with the crate
// webrtc. Arguments: the role (`offer` or `answer`), the address of the signalling, and the number of
// bytes in each direction.
package main

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/webrtc/v4"
)

const (
	message = 16_384
	closed  = 1 << 20 // Bytes of the channel that closes without an end.
)

func ask(method, address, body string) string {
	request, err := http.NewRequest(method, address, strings.NewReader(body))
	check(err)
	answer, err := http.DefaultClient.Do(request)
	check(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	check(err)
	if answer.StatusCode != http.StatusOK {
		log.Fatalf("%s %s: %s", method, address, answer.Status)
	}
	return string(text)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// stream is bytes over a channel: messages, an empty one as the end.
type stream struct {
	channel *webrtc.DataChannel
	arrived chan []byte // nil: the channel was closed.
	room    chan struct{}
	open    chan struct{}
}

func newStream(channel *webrtc.DataChannel) *stream {
	s := &stream{channel, make(chan []byte, 4096), make(chan struct{}, 1), make(chan struct{})}
	channel.SetBufferedAmountLowThreshold(256 << 10)
	channel.OnBufferedAmountLow(func() {
		select {
		case s.room <- struct{}{}:
		default:
		}
	})
	channel.OnMessage(func(m webrtc.DataChannelMessage) { s.arrived <- append([]byte{}, m.Data...) })
	channel.OnClose(func() { s.arrived <- nil })
	channel.OnOpen(func() { close(s.open) })
	return s
}

func (s *stream) send(data []byte) {
	<-s.open
	for len(data) > 0 {
		for s.channel.BufferedAmount() > 1<<20 {
			<-s.room
		}
		n := min(len(data), message)
		check(s.channel.Send(data[:n]))
		data = data[n:]
	}
}

func (s *stream) finish() {
	<-s.open
	check(s.channel.Send([]byte{}))
}

// drained waits until nothing is left to be sent.
func (s *stream) drained() {
	for s.channel.BufferedAmount() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *stream) readAll() []byte {
	var data bytes.Buffer
	for {
		piece := <-s.arrived
		if piece == nil {
			check(errors.New("closed before the end"))
		}
		if len(piece) == 0 {
			return data.Bytes()
		}
		data.Write(piece)
	}
}

func connection() *webrtc.PeerConnection {
	var settings webrtc.SettingEngine
	// Everything stays on this machine.
	settings.SetIncludeLoopbackCandidate(true)
	settings.SetIPFilter(func(ip net.IP) bool { return ip.IsLoopback() })
	settings.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	pc, err := webrtc.NewAPI(webrtc.WithSettingEngine(settings)).
		NewPeerConnection(webrtc.Configuration{})
	check(err)
	return pc
}

// describe sets the local description, and returns it with all candidates.
func describe(pc *webrtc.PeerConnection, description webrtc.SessionDescription, err error) string {
	check(err)
	done := webrtc.GatheringCompletePromise(pc)
	check(pc.SetLocalDescription(description))
	<-done
	return pc.LocalDescription().SDP
}

func offer(signalling string, total int) {
	pc := connection()
	channel, err := pc.CreateDataChannel("echo", nil)
	check(err)
	echo := newStream(channel)
	own, err := pc.CreateOffer(nil)
	sdp := ask("POST", signalling+"/offer", describe(pc, own, err))
	check(pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: sdp}))

	sent := make([]byte, total)
	_, err = rand.Read(sent)
	check(err)
	back := make(chan []byte)
	go func() { back <- echo.readAll() }()
	echo.send(sent)
	echo.finish()
	hashes := [2][32]byte{sha256.Sum256(sent), sha256.Sum256(<-back)}
	if hashes[0] != hashes[1] {
		log.Fatalf("%x", hashes)
	}
	fmt.Printf("ok: echo %x\n", hashes[0])

	channel, err = pc.CreateDataChannel("close", nil)
	check(err)
	closing := newStream(channel)
	closing.send(sent[:closed])
	closing.drained()
	check(channel.Close())
	fmt.Println("ok: close")

	channel, err = pc.CreateDataChannel("abort", nil)
	check(err)
	aborted := newStream(channel)
	aborted.send([]byte("x"))
	if <-aborted.arrived != nil {
		log.Fatal("an abort is no end")
	}
	fmt.Println("ok: abort")
	ask("POST", signalling+"/said", "ok")
	check(pc.Close())
}

func answer(signalling string) {
	pc := connection()
	channels := make(chan *stream)
	pc.OnDataChannel(func(channel *webrtc.DataChannel) {
		s := newStream(channel)
		go func() { channels <- s }()
	})
	sdp := ask("GET", signalling+"/offer", "")
	check(pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: sdp}))
	own, err := pc.CreateAnswer(nil)
	ask("POST", signalling+"/answer", describe(pc, own, err))
	s := <-channels
	fmt.Println("ok: label", s.channel.Label())
	for {
		piece := <-s.arrived
		if piece == nil {
			check(errors.New("closed before the end"))
		}
		if len(piece) == 0 {
			break
		}
		s.send(piece)
	}
	s.finish()
	for <-s.arrived != nil {
	}
	ask("POST", signalling+"/said", "ok")
	check(pc.Close())
}

func main() {
	total, err := strconv.Atoi(os.Args[3])
	check(err)
	// The test ends first: 60 s, and 1 s for each 300 kB.
	limit := 100*time.Second + time.Duration(total/200_000)*time.Second
	time.AfterFunc(limit, func() { log.Fatal("not within ", limit) })
	switch os.Args[1] {
	case "offer":
		offer(os.Args[2], total)
	case "answer":
		answer(os.Args[2])
	}
}
