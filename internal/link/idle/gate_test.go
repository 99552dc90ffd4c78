package idle

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/decide"
)

const (
	term = 30 * time.Second
	poll = workflowservice.WorkflowService_PollActivityTaskQueue_FullMethodName
	// workerPoll is how long the SDK lets a poll last.
	workerPoll = 70 * time.Second
)

// now is the bubble's clock.
var now = time.Now //nolint:forbidigo // synctest makes it a clock of the test's own

// world is a gate between a worker's poller and a Temporal, in a bubble of time.
type world struct {
	*Gate
	t       *testing.T
	tasks   chan string  // what Temporal has
	polls   atomic.Int32 // that reached Temporal
	open    atomic.Int32 // that wait there
	mu      sync.Mutex
	tokens  []string
	stop    context.CancelFunc
	done    chan struct{}
	weather atomic.Pointer[weather]
}

// weather is what the poller meets; the test changes it while that waits.
type weather struct {
	working bool
	fails   error // of each poll
	slow    bool  // polls are not answered before their deadline
}

func (w *world) turns(to weather) { w.weather.Store(&to) }

// inWorld runs a test with a poller that polls until the test ends.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, tasks: make(chan string, 10), done: make(chan struct{})}
		w.turns(weather{})
		w.Gate = New(now, func() bool { return w.weather.Load().working })
		ctx, stop := context.WithCancel(t.Context())
		w.stop = stop
		go w.poller(ctx)
		synctest.Wait()
		test(w)
		stop()
		<-w.done
		require.Zero(t, w.Asking())
	})
}

// poller is the SDK's: one poll after the other, with pauses that double after those that failed.
func (w *world) poller(ctx context.Context) {
	defer close(w.done)
	for again := 200 * time.Millisecond; ctx.Err() == nil; {
		limited, cancel := context.WithTimeout(ctx, workerPoll)
		out := &workflowservice.PollActivityTaskQueueResponse{}
		err := w.Unary(limited, poll, nil, out, nil, w.temporal)
		cancel()
		if len(out.GetTaskToken()) > 0 {
			w.mu.Lock()
			w.tokens = append(w.tokens, string(out.GetTaskToken()))
			w.mu.Unlock()
		}
		if err == nil {
			again = 200 * time.Millisecond
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
		again = min(2*again, 10*time.Second)
	}
}

// temporal answers a task when it has one, and nothing a second before the deadline.
func (w *world) temporal(ctx context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
	w.polls.Add(1)
	met := w.weather.Load()
	if met.fails != nil {
		return met.fails
	}
	w.open.Add(1)
	defer w.open.Add(-1)
	end, _ := ctx.Deadline()
	if met.slow {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	select {
	case task := <-w.tasks:
		reply.(*workflowservice.PollActivityTaskQueueResponse).TaskToken = []byte(task)
		return nil
	case <-time.After(min(end.Sub(now())-time.Second, time.Minute)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *world) got() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.tokens)
}

func (w *world) pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // of the bubble: it takes no time
	synctest.Wait()
}

// rests passes the time in which any poll ends, and wants none after it.
func (w *world) rests() {
	w.t.Helper()
	w.pass(term + askLeast + askRoom)
	require.Zero(w.t, w.open.Load(), "a poll waits at Temporal")
	before := w.polls.Load()
	w.pass(time.Hour)
	require.Equal(w.t, before, w.polls.Load(), "a node that idles polls")
}

func TestGate(t *testing.T) {
	t.Parallel()
	t.Run("a node that connects and is not wanted never polls", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.Connected(term)
			w.rests()
			require.Zero(t, w.polls.Load())
		})
	})
	t.Run("a wake lets its poll through at once, and it idles again", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.Connected(term)
			w.rests()
			w.tasks <- "one"
			w.Wake()
			synctest.Wait()
			require.Equal(t, []string{"one"}, w.got())
			w.rests()
		})
	})
	t.Run("a task that comes within the term finds it asking", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.Connected(term)
			w.Wake()
			for range 10 {
				w.pass(term - time.Millisecond)
				require.EqualValues(t, 1, w.open.Load())
				w.tasks <- "more" // each begins the term anew
				synctest.Wait()
			}
			require.Len(t, w.got(), 10)
			w.rests()
		})
	})
	t.Run("a wake at any moment of going idle is not lost", func(t *testing.T) {
		for at := time.Duration(0); at <= term+askLeast+askRoom; at += 250 * time.Millisecond {
			inWorld(t, func(w *world) {
				w.Connected(term)
				w.Wake()
				w.pass(at)
				w.Wake()
				w.pass(term - time.Millisecond)
				w.tasks <- "late"
				synctest.Wait()
				require.Equal(t, []string{"late"}, w.got(), "woken after %s", at)
			})
		}
	})
	t.Run("many wakes are as one", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.Connected(term)
			for range 100 {
				w.Wake()
				synctest.Wait()
			}
			require.EqualValues(t, 1, w.polls.Load())
			w.rests()
		})
	})
	t.Run("a wake before the stream's terms are known counts", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.Wake()
			w.Connected(term)
			synctest.Wait()
			require.EqualValues(t, 1, w.open.Load())
			w.rests()
		})
	})
	t.Run("a node at work continues to poll, and idles when it is done", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.Connected(term)
			w.turns(weather{working: true})
			w.Wake()
			w.pass(10 * time.Minute)
			require.EqualValues(t, 1, w.open.Load())
			w.turns(weather{})
			w.rests()
		})
	})
	t.Run("one that is drained asks for nothing new until its stream is back, however much it has at work", func(t *testing.T) { // C11, C68
		inWorld(t, func(w *world) {
			w.Connected(term)
			w.turns(weather{working: true})
			w.Wake()
			synctest.Wait()
			require.EqualValues(t, 1, w.open.Load())
			w.Draining()
			w.Wake()
			w.rests()
			w.Lost()
			w.Connected(term)
			synctest.Wait()
			require.EqualValues(t, 1, w.open.Load())
			w.turns(weather{})
			w.rests()
		})
	})
	t.Run("without a stream it asks after a while, and rests when that is back", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.Connected(term)
			w.rests()
			w.Lost()
			w.pass(decide.StreamLimit - time.Millisecond)
			require.Zero(t, w.polls.Load(), "most streams come back sooner")
			w.pass(time.Millisecond)
			require.EqualValues(t, 1, w.open.Load())
			w.pass(10 * time.Minute)
			require.EqualValues(t, 1, w.open.Load())
			w.Connected(term)
			w.rests()
		})
	})
	t.Run("a stream that never comes does not silence the node", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.Lost() // again
			w.tasks <- "one"
			w.pass(decide.StreamLimit)
			require.Equal(t, []string{"one"}, w.got())
		})
	})
	t.Run("a region that cannot wake nodes is polled all the time", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.Connected(0)
			w.pass(24*time.Hour + time.Second)
			require.EqualValues(t, 1, w.open.Load())
		})
	})
	t.Run("a wake outlasts an outage of Temporal", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.Connected(term)
			w.turns(weather{fails: status.Error(codes.Unavailable, "Temporal is away")})
			w.Wake()
			w.pass(time.Hour)
			w.turns(weather{})
			w.tasks <- "one"
			w.pass(againLast + againLast/2)
			require.Equal(t, []string{"one"}, w.got())
			w.rests()
		})
	})
	t.Run("a task is taken soon after an outage, whenever that ends", func(t *testing.T) {
		for outage := time.Minute; outage < 3*time.Minute; outage += time.Second {
			inWorld(t, func(w *world) {
				w.Connected(term)
				w.turns(weather{fails: status.Error(codes.Unavailable, "the region is away")})
				w.Wake()
				w.pass(outage)
				w.turns(weather{})
				w.tasks <- "one"
				w.pass(againLast + againLast/2) // the longest pause with its jitter
				require.Equal(t, []string{"one"}, w.got(), "after %s", outage)
			})
		}
	})
	t.Run("a region that answers polls too late does not keep it awake", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.Connected(term)
			w.turns(weather{slow: true})
			w.Wake()
			w.rests()
		})
	})
	t.Run("polls that fail without a stream do not keep it awake later", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.turns(weather{fails: status.Error(codes.Unavailable, "the link is away")})
			w.pass(time.Hour)
			require.Positive(t, w.polls.Load())
			w.turns(weather{})
			w.Connected(term)
			w.pass(time.Minute) // of one that was let through before
			require.Zero(t, w.open.Load())
			w.rests()
		})
	})
	t.Run("a worker that stops has its polls back", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.Connected(term)
			w.rests()
			w.Close()
			synctest.Wait()
			require.EqualValues(t, 1, w.open.Load(), "ShutdownWorker ends it there")
		})
	})
}

func TestGateLetsTheRestThrough(t *testing.T) {
	t.Parallel()
	g := New(now, func() bool { return false })
	called := false
	call := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		called = true
		return nil
	}
	require.NoError(t, g.Unary(t.Context(), workflowservice.WorkflowService_RecordActivityTaskHeartbeat_FullMethodName, nil, nil, nil, call))
	require.True(t, called)
	t.Run("and a poll that is cancelled is", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Equal(t, codes.Canceled, status.Code(g.Unary(ctx, poll, nil, nil, nil, call)))
	})
}
