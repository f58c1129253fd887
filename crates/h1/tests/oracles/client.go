// Asks for each case of the standard input, `METHOD CASE PAUSE`, then for a marker over the same
// connection, if Go keeps it. Prints `CASE PAUSE ANSWER` for each.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

func ask(transport *http.Transport, method, url string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "error"
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "error"
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "error"
	}
	return fmt.Sprintf("%d %s", response.StatusCode, body)
}

func main() {
	lines := make(chan string)
	var workers sync.WaitGroup
	var output sync.Mutex
	for n := 0; n < 16; n++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for line := range lines {
				var method, number, pause string
				fmt.Sscan(line, &method, &number, &pause)
				transport := &http.Transport{MaxConnsPerHost: 1, DisableCompression: true}
				base := "http://127.0.0.1:" + os.Args[1]
				ask(transport, method, base+"/case/"+number+"/"+pause)
				answer := ask(transport, "GET", base+"/probe")
				transport.CloseIdleConnections()
				output.Lock()
				fmt.Printf("%s %s %q\n", number, pause, answer)
				output.Unlock()
			}
		}()
	}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		lines <- input.Text()
	}
	close(lines)
	workers.Wait()
}
