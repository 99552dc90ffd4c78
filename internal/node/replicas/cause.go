package replicas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// probed is what a probe came to: how far it got, and what it read. Of the bytes of an answer only first is kept, which
// tells one protocol from another and is never shown (X10).
type probed struct {
	connected bool
	err       error
	first     []byte // the first bytes of the answer
	cut       bool   // its head was longer than answerLimit
	status    int
}

// The causes that mean that the probe reached no program, or none that stays.
const (
	causeRefused = "connection refused"
	causeClosed  = "connection closed before an answer"
	causeReset   = "connection reset before an answer"
)

// unreached reports whether a cause may mean that nothing listens on the port. Behind the port of a container its engine
// may accept the connection.
func unreached(cause string) bool {
	return cause == causeRefused || cause == causeClosed || cause == causeReset
}

// causeOf says why a probe failed, "" if it succeeded.
func causeOf(check fleet.HealthCheck, p probed) string {
	switch {
	case p.err != nil && !p.connected:
		return causeOfDial(check, p.err)
	case p.err != nil:
		return causeOfAnswer(check, p)
	case check.Type == fleet.HealthTCP, accepts(check, p.status):
		return ""
	}
	return causeOfStatus(check, p.status)
}

// accepts reports whether a status is one that the check wants.
func accepts(check fleet.HealthCheck, status int) bool {
	if check.ExpectedStatus != 0 {
		return status == check.ExpectedStatus
	}
	return status >= http.StatusOK && status < http.StatusBadRequest
}

func causeOfStatus(check fleet.HealthCheck, status int) string {
	got, want := strconv.Itoa(status), "200 to 399"
	if text := http.StatusText(status); text != "" {
		got += " " + text
	}
	if check.ExpectedStatus != 0 {
		want = strconv.Itoa(check.ExpectedStatus)
	}
	if status >= http.StatusMultipleChoices && status < http.StatusBadRequest {
		got += " (a redirect is not followed)"
	}
	return fmt.Sprintf("status %s, expected %s", got, want)
}

func causeOfDial(check fleet.HealthCheck, err error) string {
	var number syscall.Errno
	switch {
	case timedOut(err):
		return fmt.Sprintf("no connection within %g s", check.Timeout)
	case errors.Is(err, syscall.ECONNREFUSED):
		return causeRefused
	case errors.As(err, &number):
		return "no connection: " + number.Error()
	}
	return "no connection"
}

func causeOfAnswer(check fleet.HealthCheck, p probed) string {
	switch {
	case timedOut(p.err) && len(p.first) == 0:
		return fmt.Sprintf("connected, no answer within %g s", check.Timeout)
	case fleet.KindOf(p.err) == fleet.Invalid:
		return "the path of the check is invalid"
	case p.cut:
		return fmt.Sprintf("the header of the answer is larger than %d KiB", answerLimit>>10)
	case len(p.first) == 0 && errors.Is(p.err, syscall.ECONNRESET), errors.Is(p.err, syscall.EPIPE):
		return causeReset
	case len(p.first) == 0 && (errors.Is(p.err, io.EOF) || errors.Is(p.err, io.ErrUnexpectedEOF)):
		return causeClosed
	}
	if other := protocolOf(p.first); other != "" {
		return other
	}
	switch {
	case timedOut(p.err):
		return fmt.Sprintf("the header of the answer is incomplete after %g s", check.Timeout)
	case errors.Is(p.err, io.EOF), errors.Is(p.err, io.ErrUnexpectedEOF), errors.Is(p.err, syscall.ECONNRESET):
		return "connection closed within the header of the answer"
	}
	return "the header of the answer is malformed"
}

// httpName begins an answer of HTTP/1.
const httpName = "HTTP/1."

// protocolOf says what else than HTTP/1 an answer is, by its first bytes; "" for HTTP/1, as far as these show.
func protocolOf(first []byte) string {
	switch {
	case len(first) > 1 && (first[0] == 0x15 || first[0] == 0x16) && first[1] == 3:
		return "the port speaks TLS, the check plain HTTP"
	case len(first) > 3 && first[0] == 0 && first[3] == 4: // a SETTINGS frame
		return "the port speaks HTTP/2 only, the check HTTP/1.1"
	case bytes.HasPrefix([]byte(httpName), first), bytes.HasPrefix(first, []byte(httpName)):
		return ""
	}
	return "the answer has no HTTP status line (HTTP/0.9, or another protocol)"
}

// timedOut reports whether the time of the probe was over; what blocked then fails in one of several ways.
func timedOut(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// checkText names a check, without the query of its request.
func checkText(check fleet.HealthCheck, address string) string {
	if check.Type == fleet.HealthTCP {
		return "TCP connection to " + address
	}
	path, _, _ := strings.Cut(check.Path, "?")
	path, _, _ = strings.Cut(path, "#")
	text := sentence(check.Method + " /" + strings.TrimPrefix(path, "/"))
	if most := fleet.MaxCheck - len(" on ") - len(address); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text + " on " + address
}
