// Package waits is for packages whose tests spend most of their time on waiting.
package waits

import (
	"flag"
	"runtime"
	"strconv"
)

// Parallel has TestMain run twice as many tests at once as there are cores, unless its caller says how many.
func Parallel() {
	flag.Parse() //nolint:revive // a TestMain calls this
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))) // it is a number
	}
}
