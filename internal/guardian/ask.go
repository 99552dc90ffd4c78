package guardian

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// ask sends one request and waits for the answer or the end of the context.
func ask(ctx context.Context, dir string, req request) (answer response, err error) {
	var conn *net.UnixConn
	err = withSocket(dir, func(address *net.UnixAddr) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", address.Name)
		if err == nil {
			conn, _ = c.(*net.UnixConn)
		}
		return err
	})
	if err != nil {
		return response{}, fmt.Errorf("reach guardian: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // ends the calls below
	defer stop()
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return response{}, fmt.Errorf("ask guardian: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxMessage)).Decode(&answer); err != nil {
		return response{}, fmt.Errorf("read the guardian's answer: %w", err)
	}
	return answer, nil
}
