// h2spec against one address, in its strict form: `h2spec HOST PORT`. The host is the name
// in the TLS handshake, too. The exit code is 0 if every case passes.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/summerwind/h2spec"
	"github.com/summerwind/h2spec/config"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: h2spec HOST PORT")
		os.Exit(2)
	}
	port, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	good, err := h2spec.Run(&config.Config{
		Host:         os.Args[1],
		Port:         port,
		Path:         "/",
		Timeout:      5 * time.Second,
		MaxHeaderLen: 4000,
		Strict:       true,
		TLS:          true,
		Insecure:     true,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !good {
		os.Exit(1)
	}
}
