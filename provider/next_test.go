package provider

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"
)

// C38, C39, C42, C43, C74
func TestNext(t *testing.T) {
	t.Parallel()
	lost, again := errors.New("lost"), &registerAgainError{"unknown"}
	refused := &RefusedError{Code: codes.PermissionDenied, Message: "no"}
	drained := &DrainedError{Reason: "upgrade"}
	rejoin := func(o *Options) { o.Rejoin = true }
	forever := func(o *Options) { o.MaxReconnectAttempts = -1 }
	cases := map[string]struct {
		end      ending
		failures int
		change   func(*Options)
		want     step
	}{
		"the first failure waits a second":                {end: ending{err: lost}, want: step{failures: 1, pause: time.Second}},
		"the fourth waits eight":                          {end: ending{err: lost}, failures: 3, want: step{failures: 4, pause: 8 * time.Second}},
		"the ninth waits a minute":                        {end: ending{err: lost}, failures: 8, want: step{failures: 9, pause: time.Minute}},
		"the tenth is the last":                           {end: ending{err: lost}, failures: 9, want: step{stop: true, done: ErrUnreachable}},
		"unless it never gives up":                        {end: ending{err: lost}, failures: 1e6, change: forever, want: step{failures: 1e6 + 1, pause: time.Minute}},
		"one that lived begins anew":                      {end: ending{err: lost, lived: true}, failures: 9, want: step{pause: time.Second}},
		"one that is not known registers at once":         {end: ending{err: again, lived: true}, failures: 9, want: step{pause: 250 * time.Millisecond}},
		"one that never lived does not":                   {end: ending{err: again}, failures: 1, want: step{failures: 2, pause: 2 * time.Second}},
		"a refusal stops":                                 {end: ending{err: refused}, want: step{stop: true, done: refused}},
		"a refusal stops one that lived":                  {end: ending{err: refused, lived: true}, want: step{stop: true, done: refused}},
		"one that was replaced stops":                     {end: ending{err: ErrReplaced, lived: true}, want: step{stop: true, done: ErrReplaced}},
		"but not by what it asked for itself":             {end: ending{err: ErrReplaced, lived: true, late: true}, failures: 3, want: step{pause: time.Second}},
		"a drain stops":                                   {end: ending{err: drained, lived: true}, want: step{stop: true, done: drained}},
		"a drain of one that never lived stops":           {end: ending{err: drained}, want: step{stop: true, done: drained}},
		"a drain of one that rejoins waits for a moment":  {end: ending{err: drained, lived: true}, change: rejoin, want: step{pause: time.Second}},
		"closing is no error":                             {end: ending{err: errClosed, lived: true}, want: step{stop: true}},
		"closing before it lived is no error, nor late":   {end: ending{err: errClosed}, failures: 9, want: step{stop: true}},
		"a server that closes after an ack is no failure": {end: ending{err: errStreamEnded, lived: true}, want: step{pause: time.Second}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t, "x:1", func(o *Options) { o.Backoff, o.MaxReconnectAttempts = Backoff{}, 0 })
			if c.change != nil {
				c.change(&o)
			}
			o, err := o.withDefaults()
			require.NoError(t, err)
			got := o.next(c.end, c.failures, 0.5)
			require.ErrorIs(t, got.done, c.want.done)
			if errors.Is(got.done, ErrUnreachable) {
				require.ErrorIs(t, got.done, lost, "the last failure is in the chain")
				require.ErrorContains(t, got.done, "10 attempts in a row")
			}
			got.done, c.want.done = nil, nil
			require.Equal(t, c.want, got)
		})
	}
}

// C39, C74
func TestBackoffPause(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b, err := Backoff{
			Initial: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "initial")),
			Jitter:  rapid.Float64Range(0.01, 1).Draw(t, "jitter"),
		}.withDefaults()
		require.NoError(t, err)
		failures, chance := rapid.IntRange(0, 1000).Draw(t, "failures"), rapid.Float64Range(0, 1).Draw(t, "chance")
		d := b.pause(failures, chance)
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.LessOrEqual(t, d, b.Max, "never above the most")
		require.LessOrEqual(t, d, b.pause(failures+1, chance), "never less after one more failure")
		require.LessOrEqual(t, b.pause(failures, 0), d, "spread by chance")
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	executor, err := NewExecutor(ExecutorOptions{})
	require.NoError(t, err)
	for name, change := range map[string]func(*Options){
		"no address":                    func(o *Options) { o.Address = "" },
		"an address with a scheme":      func(o *Options) { o.Address = "http://region:9090" },
		"an address without a port":     func(o *Options) { o.Address = "region" },
		"no name":                       func(o *Options) { o.Name = "" },
		"no token":                      func(o *Options) { o.Token = nil },
		"an executor without a place":   func(o *Options) { o.Executor = executor },
		"a namespace without modules":   func(o *Options) { o.ModuleNamespace = "acme" },
		"a group without modules":       func(o *Options) { o.Group = "g" },
		"a negative interval":           func(o *Options) { o.HeartbeatInterval = -1 },
		"a backoff that shrinks":        func(o *Options) { o.Backoff = Backoff{Initial: 2, Max: 1} },
		"a backoff spread too wide":     func(o *Options) { o.Backoff.Jitter = 1.5 },
		"a backoff of a negative pause": func(o *Options) { o.Backoff.Initial = -1 },
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			_, err := New(options(t, "x:1", change))
			require.ErrorContains(t, err, "provider: ")
		})
	}
	for given, want := range map[string]string{"a": "a:9091", "a:1": "a:1", "10.0.0.7": "10.0.0.7:9091", "[::1]:1": "[::1]:1"} { // C84
		o, err := options(t, "x:1", func(o *Options) {
			o.Executor, o.ModuleNamespace, o.ExecutorAddress = executor, "acme", given
		}).withDefaults()
		require.NoError(t, err)
		require.Equal(t, want, o.ExecutorAddress)
	}
}
