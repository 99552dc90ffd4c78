package testkit

import (
	"fmt"
	"os"
	"sync/atomic"
)

// ownPort is below the ports that the kernel gives to those that ask for any.
const ownPort = 11235

// addresses numbers the addresses of this test binary.
var addresses atomic.Int64

// Address is host and port of this machine that nobody else listens at or will: a test may listen
// there late, or again.
func Address() string {
	process, n := os.Getpid(), addresses.Add(1)
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+(process>>8)%250, process%256, n%256, ownPort)
}
