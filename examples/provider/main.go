// Command provider is an example of a Holdfast provider: it offers two modules, one that turns
// text around and one that takes its time. README.md says how to run it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/provider"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, os.Args[1:], log); err != nil {
		log.Error("the provider ended", "err", err)
		os.Exit(1)
	}
}

// config is what the command line says.
type config struct{ link, name, namespace, group, executor, token, ca, cert, key, tlsCert, tlsKey string }

func parse(args []string) (config, error) {
	var c config
	f := flag.NewFlagSet("provider", flag.ContinueOnError)
	f.StringVar(&c.link, "link", "127.0.0.1:9090", "the region's link")
	f.StringVar(&c.name, "name", "text-1", "which provider of its token this is")
	f.StringVar(&c.namespace, "module-namespace", "text", "prefix of the modules' names")
	f.StringVar(&c.group, "group", "text", "what several of these have in common")
	f.StringVar(&c.executor, "executor", "127.0.0.1:9091", "where to take executions: the region must reach it")
	f.StringVar(&c.ca, "ca", os.Getenv("HOLDFAST_CA"), "speak TLS to the link, and trust this authority (PEM file)")
	f.StringVar(&c.cert, "client-cert", os.Getenv("HOLDFAST_CLIENT_CERT"), "certificate to show to the link")
	f.StringVar(&c.key, "client-key", os.Getenv("HOLDFAST_CLIENT_KEY"), "its key")
	f.StringVar(&c.tlsCert, "tls-cert", "", "take executions over TLS, with this certificate (PEM file); the region trusts it by its servers' --ca")
	f.StringVar(&c.tlsKey, "tls-key", "", "its key")
	c.token = os.Getenv("HOLDFAST_PROVIDER_TOKEN")
	return c, f.Parse(args)
}

// security is nil without an authority: then the link is spoken to in the clear.
func (c config) security() (*tls.Config, error) {
	if c.ca == "" {
		return nil, nil //nolint:nilnil // nil is what a plain connection has
	}
	pem, err := os.ReadFile(c.ca)
	if err != nil {
		return nil, err
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !out.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", c.ca)
	}
	if c.cert == "" {
		return out, nil
	}
	own, err := tls.LoadX509KeyPair(c.cert, c.key)
	out.Certificates = []tls.Certificate{own}
	return out, err
}

// served is nil without a certificate: then executions come in the clear.
func (c config) served() (*tls.Config, error) {
	if c.tlsCert == "" {
		return nil, nil //nolint:nilnil // nil is what a plain listener has
	}
	own, err := tls.LoadX509KeyPair(c.tlsCert, c.tlsKey)
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}}, err
}

// run serves until the context ends or the region has drained this provider.
func run(ctx context.Context, args []string, log *slog.Logger) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	security, err := c.security()
	if err != nil {
		return err
	}
	served, err := c.served()
	if err != nil {
		return err
	}
	executor, err := provider.NewExecutor(provider.ExecutorOptions{Modules: modules(), MaxInFlight: 8, TLS: served, Logger: log})
	if err != nil {
		return err
	}
	link, err := provider.New(provider.Options{
		Address: c.link, TLS: security, Insecure: security == nil, Name: c.name, ModuleNamespace: c.namespace, Group: c.group,
		ExecutorAddress: c.executor, Executor: executor, Logger: log,
		Token:    func(context.Context) (string, error) { return c.token, nil },
		OnState:  func(s provider.Status) { log.Info("link", "state", s.State, "connection", s.ConnectionID) },
		OnReport: func(modules []string) { log.Info("the region offers", "modules", modules) },
		OnDrain:  func(d provider.Drain) { log.Info("draining", "reason", d.Reason, "until", d.Deadline) },
	})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.executor)
	if err != nil {
		return err
	}

	// The link ends first, so that the region sends nothing more; then what is at work.
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	done := make(chan error, 1)
	go func() { done <- executor.Serve(serving, listener) }()
	err = link.Run(ctx)
	end()
	var drained *provider.DrainedError
	if errors.As(err, &drained) {
		log.Info("done", "why", err)
		err = nil
	}
	return errors.Join(err, <-done)
}

func modules() []provider.Module {
	return []provider.Module{
		{
			Name: "reverse", Description: "Turns a text around.",
			InputSchema:  `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`,
			OutputSchema: `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`,
			Handle:       reverse,
		},
		{
			Name: "wait", Description: "Takes as many seconds as it is told, to watch a drain with.",
			InputSchema:  `{"type":"object","properties":{"seconds":{"type":"number","minimum":0}},"required":["seconds"]}`,
			OutputSchema: `{"type":"object","properties":{"waited":{"type":"string"}}}`,
			Handle:       wait,
		},
	}
}

func reverse(_ context.Context, input []byte) ([]byte, error) {
	var text struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(input, &text); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	runes := []rune(text.Text)
	slices.Reverse(runes)
	text.Text = string(runes)
	return json.Marshal(text)
}

func wait(ctx context.Context, input []byte) ([]byte, error) {
	var in struct {
		Seconds float64 `json:"seconds"`
	}
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	length := time.Duration(in.Seconds * float64(time.Second))
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
		return fmt.Appendf(nil, `{"waited":%q}`, length), nil
	}
}
