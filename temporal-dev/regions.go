package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/region"
)

// regionNames are the regions of --regions 2 and 3, each in a folder of its name.
var regionNames = []string{"eu", "us", "ap"}

// regionsDoc is DIR/dev.json with several regions.
type regionsDoc struct {
	Regions []devDoc `json:"regions"`
}

// laptops are several regions that know each other. One supervisor has the processes of all.
type laptops struct {
	dir        *dataDir
	all        []*laptop
	wires      *relays
	supervisor *supervisor
	began      time.Time
}

// runRegions runs several regions until the context ends, as runRegion does with one.
func runRegions(ctx context.Context, opts options, out output) error {
	s := &laptops{supervisor: newSupervisor(out.trouble), wires: newRelays(), began: time.Now()}
	defer s.wires.close()
	if err := s.open(opts, out); err != nil {
		return err
	}
	defer s.close()
	defer s.all[0].stop()
	control, err := serveControl(s.dir.path, s.supervisor, s.wires)
	if err != nil {
		return err
	}
	defer control.close()
	if err := s.bringUp(ctx); err != nil {
		if ctx.Err() != nil && !opts.once {
			return nil // interrupted, which is how regions end
		}
		return err
	}
	if !opts.once {
		<-ctx.Done()
	}
	return nil
}

// open claims the directories and addresses of all regions, and connects their peer listeners by relays.
func (s *laptops) open(opts options, out output) (err error) {
	if s.dir, err = openDataDir(opts.data); err != nil {
		return err
	}
	for i, name := range regionNames[:opts.regions] {
		of := opts
		of.region, of.data, of.firstNode = name, filepath.Join(opts.data, name), i*2*opts.sites
		if free := net.JoinHostPort(loopback, "0"); i > 0 { // the first has the addresses of the command line
			of.api, of.temporal, of.web = free, free, free
		}
		l, err := newRegion(of, out, s.supervisor)
		if err != nil {
			s.close()
			return err
		}
		s.all = append(s.all, l)
	}
	if err := s.connect(); err != nil {
		s.close()
		return err
	}
	s.supervisor.onChange(s.document)
	return nil
}

// connect makes a relay for each direction in which one region calls another.
func (s *laptops) connect() error {
	for _, from := range s.all {
		from.peers = region.PeerConfig{Listen: from.addrs.dial(addrPeers), URL: from.peersURL(), Via: map[string]string{}}
		for _, to := range s.all {
			if from == to {
				continue
			}
			address := to.addrs.dial(addrPeers)
			y, err := s.wires.serve(from.opts.region, to.opts.region, func() (string, error) { return address, nil })
			if err != nil {
				return err
			}
			from.peers.Via[address] = y.Addr().String()
		}
	}
	return nil
}

func (l *laptop) peersURL() string { return "https://" + l.addrs.dial(addrPeers) }

// document writes dev.json, for all regions and for each.
func (s *laptops) document(views []processView) {
	var doc regionsDoc
	for _, l := range s.all {
		var own []processView
		for _, v := range views {
			if strings.HasPrefix(v.Name, l.opts.region+"/") {
				own = append(own, v)
			}
		}
		one := l.devDoc().with(own)
		one.Peers = l.addrs.dial(addrPeers)
		l.writeDoc(one)
		doc.Regions = append(doc.Regions, one)
	}
	if err := writeJSON(s.dir.file(devFile), doc); err != nil {
		s.supervisor.trouble("%s could not be written: %v", devFile, err)
	}
}

func (s *laptops) close() {
	for _, l := range s.all {
		l.dir.close()
	}
	s.dir.close()
}

func (s *laptops) bringUp(ctx context.Context) error {
	for _, l := range s.all {
		if err := l.bringUp(ctx); err != nil {
			return err
		}
	}
	joined := 0
	for _, l := range s.all[1:] {
		is, err := l.join(ctx, s.all[0])
		if err != nil {
			return err
		}
		if is {
			joined++
		}
	}
	if err := s.acquainted(ctx, joined == len(s.all)-1); err != nil {
		return err
	}
	s.all[0].say("the regions are up after %s: %s", seconds(time.Since(s.began)), strings.Join(regionNames[:len(s.all)], ", "))
	s.all[0].say("to cut a link: temporal-dev cut eu us --data %s", s.dir.path)
	return nil
}

// regionView is what the laptop reads of GET /api/v1/regions.
type regionView struct {
	Name   string `json:"name"`
	Status struct {
		Reachable bool `json:"reachable"`
		Disabled  bool `json:"disabled"`
		Followed  *struct {
			LagSeconds *float64 `json:"lagSeconds"`
		} `json:"followed"`
	} `json:"status"`
}

// connected reports whether a region calls a peer, and has what the peer shares.
func (r regionView) connected() bool {
	return r.Status.Reachable && r.Status.Followed != nil && r.Status.Followed.LagSeconds != nil
}

func (c *apiClient) regions(ctx context.Context) (map[string]regionView, error) {
	var list struct {
		Items []regionView `json:"items"`
	}
	err := c.call(ctx, http.MethodGet, "/api/v1/regions", nil, &list)
	known := map[string]regionView{}
	for _, r := range list.Items {
		known[r.Name] = r
	}
	return known, err
}

// join makes a region a member through another one, unless it knows that one already.
func (l *laptop) join(ctx context.Context, through *laptop) (joined bool, err error) {
	known, err := l.api.regions(ctx)
	if _, already := known[through.opts.region]; err != nil || already {
		return false, err
	}
	var invitation struct {
		Token string `json:"token"`
	}
	if err := through.api.call(ctx, http.MethodPost, "/api/v1/region-invitations", map[string]string{"name": l.opts.region}, &invitation); err != nil {
		return false, fmt.Errorf("invite region %s: %w", l.opts.region, err)
	}
	in := map[string]string{"address": through.peersURL(), "token": invitation.Token}
	if err := l.api.call(ctx, http.MethodPost, "/api/v1/regions/join", in, nil); err != nil {
		return false, fmt.Errorf("join region %s to %s: %w", l.opts.region, through.opts.region, err)
	}
	return true, nil
}

// acquainted waits until each region lists the others as connected. Whom a region of a later start knows is the operator's
// choice: it waits for those, and reports one that does not come instead of giving up.
func (s *laptops) acquainted(ctx context.Context, first bool) error {
	for _, l := range s.all {
		err := pollErr(ctx, readyTimeout, func(ctx context.Context) error {
			known, err := l.api.regions(ctx)
			if err != nil {
				return err
			}
			return l.strangerAmong(s.all, known, first)
		})
		switch {
		case err == nil:
		case first || ctx.Err() != nil:
			return err
		default:
			s.supervisor.trouble("%v; the regions stay up for you to investigate", err)
		}
	}
	return nil
}

// strangerAmong names a region that this one does not list as connected, of all or of those that it has enabled.
func (l *laptop) strangerAmong(others []*laptop, known map[string]regionView, all bool) error { //nolint:revive // a start is the first or a later one
	for _, other := range others {
		r, is := known[other.opts.region]
		if other == l || !all && (!is || r.Status.Disabled) {
			continue
		}
		if !r.connected() {
			return fmt.Errorf("region %s is not connected with %s", l.opts.region, other.opts.region)
		}
	}
	return nil
}
