package postgres

import (
	"math"
	"time"
)

// TextOf is never nil: NULL is no empty list.
func TextOf[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// WaveNumber is one that the schema can hold; there are MaxFleetWaves and one at most.
func WaveNumber(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// SecondsOf is a time that the database gives in seconds.
func SecondsOf(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
