package api

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Client speaks the HTTP contract of one region. It is safe for concurrent use; its errors
// are *Error with the kind, field and hint that the region gave.
type Client struct {
	base  string
	token string
	http  *http.Client
	// pauses are the waits between tries of one call: their number bounds the retries.
	pauses []time.Duration
	retry  func(Retry)
}

// Retry tells that a call is made again after a pause.
type Retry struct {
	Attempt int // the one that failed, from 1
	Of      int
	Pause   time.Duration
	Err     error
}

// ClientOption changes how a Client works.
type ClientOption func(*Client)

// WithTransport sends requests through another transport.
func WithTransport(t http.RoundTripper) ClientOption {
	return func(c *Client) { c.http = &http.Client{Transport: t} }
}

// WithTLS sets what https:// is spoken with: authorities to trust, a certificate to show.
func WithTLS(config *tls.Config) ClientOption {
	return func(c *Client) {
		t := newTransport()
		t.TLSClientConfig = config
		c.http = &http.Client{Transport: t}
	}
}

// WithPauses sets the waits between tries of one call; none means a single try.
func WithPauses(pauses ...time.Duration) ClientOption {
	return func(c *Client) { c.pauses = pauses }
}

// WithRetryNotice has f called before each pause, so that a person sees why it takes long.
func WithRetryNotice(f func(Retry)) ClientOption {
	return func(c *Client) { c.retry = f }
}

// NewClient makes a client of the region at address (http:// or https://). The token may
// be empty for the few calls that need none.
func NewClient(address, token string, options ...ClientOption) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fleet.Errorf(Invalid, "invalid region address %.200q", address).At("address").
			WithHint("give scheme and host, for example https://holdfast.example.com")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fleet.Errorf(Invalid, "the address contains more than scheme, host and path").At("address").
			WithHint("send the token in a header, never in the address")
	}
	c := &Client{
		base: strings.TrimRight(u.String(), "/"), token: token,
		http:   &http.Client{Transport: newTransport()},
		pauses: []time.Duration{200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second},
		retry:  func(Retry) {},
	}
	for _, option := range options {
		option(c)
	}
	return c, nil
}

// Address is the region that the client speaks to.
func (c *Client) Address() string { return c.base }

const (
	dialTimeout = 10 * time.Second
	// answerTimeout is above the longest long poll.
	answerTimeout = 90 * time.Second
)

// newTransport bounds every wait on the network but those for a body, which may be long.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: answerTimeout,
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second,
	}
}
