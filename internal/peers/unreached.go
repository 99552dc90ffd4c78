package peers

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Unreached says in the words of an operator why a call did not reach a region.
func Unreached(to fleet.RegionName, req *http.Request, err error) error {
	return unreached("region "+string(to), req, err)
}

func unreached(who string, req *http.Request, err error) *fleet.Error {
	e := fleet.Errorf(fleet.Unavailable, "%s is unreachable at %s: %s", who, req.URL.Host, cause(err))
	e.Err = err
	return e
}

func cause(err error) string {
	var call *url.Error
	if errors.As(err, &call) {
		err = call.Err
	}
	var slow net.Error
	var alert *net.OpError
	var other *fleet.Error
	switch {
	case errors.As(err, &other):
		return other.Message // the key is not the pinned one
	case errors.As(err, new(tls.RecordHeaderError)), errors.Is(err, http.ErrSchemeMismatch):
		return "another program listens there"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.As(err, &alert) && alert.Op == "remote error":
		return "the other side closes the connection"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no server listens there"
	case errors.As(err, &slow) && slow.Timeout():
		return "no answer; is the link cut, or its server paused?"
	}
	return err.Error()
}
