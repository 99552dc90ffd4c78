package link_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// reported waits for the next report.
func (l *live) reported() []string {
	l.t.Helper()
	m := l.await("report", func(m *nodev1.ConnectResponse) bool { return m.GetActiveModulesReport() != nil })
	return m.GetActiveModulesReport().GetActiveModules()
}

// C33, C45, C46, C47, C60: both loops go on for as long as the server lives. Each second one ends
// who is silent; the other tells every Active connection, again and again, which of the modules
// that it offered the server believes active.
func TestLoops(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	timing := quick()
	timing.Report = 100 * time.Millisecond
	timing.StreamRequired = time.Minute
	s := r.serve(timing)
	c := r.client(s)
	one := c.connect(offer(func(in *nodev1.RegisterRequest) {
		in.Modules = append(in.Modules, &nodev1.Module{Name: "no name"})
	}))
	two := c.connect(offer(named("vision-2"), func(in *nodev1.RegisterRequest) { in.ModuleNamespace = "acme.sound" }))
	stopOne, stopTwo := one.keep(timing.HeartbeatEvery), two.keep(timing.HeartbeatEvery)
	for range 3 {
		require.Equal(t, []string{"detect", "track"}, one.reported(), "without what was rejected")
		require.Equal(t, []string{"detect", "track"}, two.reported())
	}

	stopOne()
	r.ends(one.id, fleet.HeartbeatLapsed)
	two.reported()
	r.drain(two.id, "upgrade", time.Minute)
	two.drainRequest()
	two.ackDrain(1)
	r.eventually("it drains", func() bool { return r.row(two.id).State == fleet.ConnectionDraining })
	for len(two.in) > 0 { // what was on its way
		<-two.in
	}
	two.acked()
	two.await("an ack and no report", func(m *nodev1.ConnectResponse) bool {
		require.Nil(t, m.GetActiveModulesReport(), "to Active connections only")
		return m.GetHeartbeatAck() != nil
	})
	stopTwo()

	third := c.connect(offer(named("vision-3")))
	third.keep(timing.HeartbeatEvery)
	third.reported()
	s.stop()
	require.Error(t, third.ended(), "with the server its loops end")
}
