package guardian

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// answerLimit is how long a reader of the socket may take for one answer.
const answerLimit = time.Second

// server turns connections into calls of the loop.
type server struct {
	dir      string
	listener *net.UnixListener
	calls    chan<- call
	ended    <-chan struct{}
	now      func() time.Time

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
	wg     sync.WaitGroup
}

// serve listens in the run directory; the caller holds its lock, so an existing socket is a dead guardian's.
func (s *server) serve() error {
	if err := s.unlink(); err != nil {
		return err
	}
	err := withSocket(s.dir, func(address *net.UnixAddr) (err error) {
		s.listener, err = net.ListenUnix("unix", address)
		return err
	})
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.listener.SetUnlinkOnClose(false) // its address is not valid later, see withSocket
	s.wg.Go(s.accept)
	return nil
}

// withSocket gives a short name for the socket of a directory, through an open descriptor: the path may be
// longer than the 108 bytes of a socket address.
func withSocket(dir string, use func(*net.UnixAddr) error) error {
	opened, err := os.Open(dir) //nolint:gosec // below the runtime's root
	if err != nil {
		return fmt.Errorf("open run directory: %w", err)
	}
	name := fmt.Sprintf("/proc/self/fd/%d/%s", opened.Fd(), socketFile)
	return errors.Join(use(&net.UnixAddr{Name: name, Net: "unix"}), opened.Close())
}

func (s *server) unlink() error {
	if err := os.Remove(filepath.Join(s.dir, socketFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove socket: %w", err)
	}
	return nil
}

func (s *server) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select { // out of descriptors or aborted by the peer; the listener still works
			case <-time.After(again):
				continue
			case <-s.ended:
				return
			}
		}
		if s.add(conn) {
			s.wg.Go(func() { s.converse(conn) })
		}
	}
}

func (s *server) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close() // nothing was sent on it
		return false
	}
	s.conns[conn] = true
	return true
}

// converse answers the requests of one connection in order. It closes the connection of a peer that disconnects
// or sends invalid data.
func (s *server) converse(conn net.Conn) {
	defer func() {
		_ = conn.Close() // every answer was written or has failed
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()
	// One request must not fill the memory; the limit starts again with each.
	limited := &io.LimitedReader{R: conn, N: maxMessage}
	decoder, encoder := json.NewDecoder(limited), json.NewEncoder(conn)
	for {
		limited.N = maxMessage
		answer := make(chan response, 1)
		c := call{answer: answer}
		if decoder.Decode(&c.request) != nil {
			return
		}
		select {
		case s.calls <- c:
		case <-s.ended:
			return
		}
		select {
		case r := <-answer:
			if s.write(conn, encoder, r) != nil {
				return
			}
		case <-s.ended:
			select { // stops are answered just before the end
			case r := <-answer:
				_ = s.write(conn, encoder, r) // the connection closes now in any case
			default:
			}
			return
		}
	}
}

func (s *server) write(conn net.Conn, encoder *json.Encoder, r response) error {
	return errors.Join(conn.SetWriteDeadline(s.now().Add(answerLimit)), encoder.Encode(r))
}

// close waits until every answer was written; it cuts connections that only listen.
func (s *server) close() {
	_ = s.listener.Close() // nothing to save
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // fails only when it is closed already
	}
	s.mu.Unlock()
	s.wg.Wait()
}
