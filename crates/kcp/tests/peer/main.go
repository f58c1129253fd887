package main

import _ "github.com/xtaci/kcp-go/v5"

func main() {}
