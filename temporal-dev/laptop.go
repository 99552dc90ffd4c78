package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/region"
)

const (
	regionName   = "local"
	temporalName = "temporal"
	serverName   = "server"
	tokenFile    = "token"
)

// output is where a region writes for its operator.
type output struct {
	progress, trouble io.Writer
	hurry             <-chan struct{} // closed to skip a clean stop
}

// laptop is one running region.
type laptop struct {
	opts       options
	out        output
	saying     sync.Mutex // one line at a time
	dir        *dataDir
	addrs      addresses
	token      string
	authority  *authority  // nil in the clear
	people     certs.Pair  // the client certificate for people
	secure     *tls.Config // this program's TLS for the API, nil without TLS
	self       string      // this program
	supervisor *supervisor
	api        *apiClient
	peers      region.PeerConfig // how its servers meet other regions
	began      time.Time
}

// runRegion starts everything, delivers the examples, and runs until the context ends (with --once: until the
// deliveries have ended). It stops what it started.
func runRegion(ctx context.Context, opts options, out output) error {
	if err := checkRegions(opts.data, opts.regions); err != nil {
		return err
	}
	if opts.regions > 1 {
		return runRegions(ctx, opts, out)
	}
	l, err := openLaptop(opts, out)
	if err != nil {
		return err
	}
	defer l.dir.close()
	defer l.stop()
	control, err := serveControl(l.dir.path, l.supervisor, nil)
	if err != nil {
		return err
	}
	defer control.close()
	if err := l.bringUp(ctx); err != nil {
		if ctx.Err() != nil && !opts.once {
			return nil // interrupted, which is how a region ends
		}
		return err
	}
	if !opts.once {
		<-ctx.Done()
	}
	return nil
}

// openLaptop claims the data directory and the addresses; nothing runs yet.
func openLaptop(opts options, out output) (*laptop, error) {
	l, err := newRegion(opts, out, newSupervisor(out.trouble))
	if err != nil {
		return nil, err
	}
	doc := l.devDoc()
	l.supervisor.onChange(func(views []processView) { l.writeDoc(doc.with(views)) })
	return l, nil
}

// newRegion makes one of the regions of a supervisor.
func newRegion(opts options, out output, s *supervisor) (*laptop, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	if opts, err = onNetwork(opts); err != nil {
		return nil, err
	}
	dir, err := openDataDir(opts.data)
	if err != nil {
		return nil, err
	}
	l := &laptop{opts: opts, out: out, dir: dir, self: self, supervisor: s, began: time.Now()}
	if err := l.claim(); err != nil {
		dir.close()
		return nil, err
	}
	if opts.network.Peers != "" {
		l.peers = region.PeerConfig{Listen: l.addrs.dial(addrPeers), URL: l.peersURL()}
	}
	l.api = newClient(l.apiURL(), l.token, l.secure)
	return l, nil
}

func (l *laptop) claim() error {
	known, err := l.dir.readState()
	if err != nil {
		return err
	}
	if l.addrs, err = choose(listeners(l.opts), known.Ports); err != nil {
		return err
	}
	known.Ports = l.addrs.ports()
	if err := l.dir.writeState(known); err != nil {
		return fmt.Errorf("keep the ports: %w", err)
	}
	if l.token, err = l.dir.secret(tokenFile); err != nil {
		return err
	}
	for _, folder := range []string{"logs", "nodes", "temporal"} {
		if err := os.MkdirAll(l.dir.file(folder), 0o700); err != nil {
			return fmt.Errorf("make the data directory: %w", err)
		}
	}
	return l.certify()
}

func (l *laptop) devDoc() devDoc {
	return devDoc{
		Region: l.opts.regionName(), API: l.apiURL(), TLS: l.devTLS(), Link: l.addrs.dial(addrLink), Temporal: l.addrs.dial(addrTemporal),
		Namespace: temporalNamespace, Web: l.addrs.url(addrWeb), Token: l.token,
	}
}

func (l *laptop) writeDoc(doc any) {
	if err := writeJSON(l.dir.file(devFile), doc); err != nil {
		l.supervisor.trouble("%s could not be written: %v", devFile, err)
	}
}

// certify makes the client certificates for people and for this program.
func (l *laptop) certify() (err error) {
	if !l.opts.tls {
		return nil
	}
	if l.authority, err = openAuthority(l.dir); err != nil {
		return err
	}
	if l.people, err = l.authority.pair(tlsOperator); err != nil {
		return err
	}
	l.secure, err = certs.Client(l.authority.calls(l.people))
	return err
}

// apiURL is the URL of the API.
func (l *laptop) apiURL() string {
	if l.opts.tls {
		return "https://" + l.addrs.dial(addrAPI)
	}
	return l.addrs.url(addrAPI)
}

func (l *laptop) bringUp(ctx context.Context) error {
	l.say("data in %s", l.dir.path)
	if err := l.startStores(ctx); err != nil {
		return err
	}
	if err := l.startServer(ctx); err != nil {
		return err
	}
	sites := siteNames(l.opts.sites)
	if err := l.startNodes(ctx, sites); err != nil {
		return err
	}
	if err := l.deliver(ctx, sites); err != nil {
		if l.opts.once || ctx.Err() != nil {
			return err
		}
		l.supervisor.trouble("%v; the region stays up for you to investigate", err)
	}
	l.say("the region%s is up after %s", prefixed(" ", l.opts.region), seconds(time.Since(l.began)))
	l.whereToLook()
	return nil
}

// stop ends everything that was started.
func (l *laptop) stop() {
	if len(l.supervisor.list()) == 0 {
		return
	}
	began := time.Now()
	l.supervisor.close(l.out.hurry)
	l.say("stopped in %s", seconds(time.Since(began)))
}

func (l *laptop) say(format string, args ...any) {
	l.saying.Lock()
	defer l.saying.Unlock()
	_, _ = fmt.Fprintf(l.out.progress, format+"\n", args...)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// phase runs a step and prints how long it took.
func (l *laptop) phase(what string, step func() error) error {
	began := time.Now()
	if err := step(); err != nil {
		return err
	}
	l.say("%s in %s", what, seconds(time.Since(began)))
	return nil
}

func (l *laptop) startStores(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 2)
	go func() { failed <- l.phase("temporal and its web ready", func() error { return l.startTemporal(ctx) }) }()
	go func() { failed <- l.phase("postgres ready", func() error { return l.startPostgres(ctx) }) }()
	var first error
	for range 2 {
		if err := <-failed; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	return first
}

func (l *laptop) startTemporal(ctx context.Context) error {
	config := temporalConfig{
		Dir: l.dir.file("temporal"), Frontend: l.addrs[addrTemporal].String(), Web: l.addrs[addrWeb].String(),
		History: l.addrs[addrHistory].Port, Matching: l.addrs[addrMatching].Port, Worker: l.addrs[addrWorker].Port,
	}
	p := l.supervisor.add(l.childSpec(rankTemporal, temporalName, []string{childTemporal},
		func(context.Context) (any, error) { return config, nil }))
	return startAndWait(ctx, p, temporalReady(l.addrs.dial(addrTemporal), l.addrs.url(addrWeb)))
}

func (l *laptop) startPostgres(ctx context.Context) error {
	db, err := openDatabase(ctx, l.dir, machineSearch(downloadCache(l.dir)), l.addrs[addrPostgres])
	if err != nil {
		return err
	}
	sp := db.spec(l.dir.log(postgresName))
	sp.name = l.opts.process(sp.name)
	p := l.supervisor.add(sp)
	return startAndWait(ctx, p, db.ready)
}

func (l *laptop) startServer(ctx context.Context) error {
	password, err := l.dir.secret(passwordFile)
	if err != nil {
		return err
	}
	db := database{listen: l.addrs[addrPostgres], password: password}
	own, err := l.authority.pair(serverName, l.addrs[addrAPI].IP.String())
	if err != nil {
		return err
	}
	in := serverInput{
		TLS: l.authority.serves(own), Executors: l.authority.calls(own),
		Database: db.url(postgresDatabase), Temporal: l.addrs.dial(addrTemporal), Listen: l.addrs[addrAPI].String(), Link: l.addrs[addrLink].String(),
		URL: l.apiURL(), Web: l.addrs.url(addrWeb), Token: l.token, Definitions: l.opts.definitions, Pace: l.opts.pace,
		Region: l.opts.regionName(), Name: l.opts.process(serverName), Peers: l.peers,
	}
	p := l.supervisor.add(l.childSpec(rankServer, serverName, []string{childServer},
		func(context.Context) (any, error) { return in, nil }))
	return l.phase("server ready", func() error {
		return startAndWait(ctx, p, func(ctx context.Context) error { return l.api.ready(ctx) })
	})
}

func (l *laptop) whereToLook() {
	l.say("\nAPI           %s", l.apiURL())
	l.say("Temporal Web  %s/namespaces/%s/workflows", l.addrs.url(addrWeb), temporalNamespace)
	l.say("Temporal      %s, namespace %s", l.addrs.dial(addrTemporal), temporalNamespace)
	l.say("processes     %s (temporal-dev ps | stop NAME | start NAME --data %s)", l.dir.file(devFile), l.opts.control())
	l.say("\n  export HOLDFAST_ADDRESS=%s", l.apiURL())
	l.say("  read -r HOLDFAST_TOKEN <%s; export HOLDFAST_TOKEN", quote(l.dir.file(tokenFile)))
	if l.opts.tls {
		l.say("  export HOLDFAST_CA=%s HOLDFAST_CLIENT_CERT=%s HOLDFAST_CLIENT_KEY=%s", quote(l.authority.ca()), quote(l.people.Cert), quote(l.people.Key))
	}
	l.say("  temporal workflow start --address %s --namespace %s --task-queue holdfast \\", l.addrs.dial(addrTemporal), temporalNamespace)
	l.say("    --type DeployInstance --input '{\"site\":\"plant-1\",\"instance\":\"press-7\"}'\n")
}

// prefixed is a text after its prefix, or nothing.
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// quote makes one shell word.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
