// Package bodycache keeps the bodies that were used last, within a number of bytes.
package bodycache

import (
	"bytes"
	"sync"
)

// over is about what a kept body takes besides its bytes.
const over = 256

// Cache keeps bodies by keys that name their content, so nothing in it is ever stale. It is safe for concurrent use.
type Cache[K comparable] struct {
	each, all int

	mu    sync.Mutex
	size  int
	order []K // oldest first
	kept  map[K][]byte
}

// New makes a cache that keeps bodies of at most each bytes, and at most all bytes of them.
func New[K comparable](each, all int) *Cache[K] {
	return &Cache[K]{each: each, all: all, kept: map[K][]byte{}}
}

// Put keeps a body, which must not change any more. The oldest go to make room.
func (c *Cache[K]) Put(key K, body []byte) {
	if len(body) > c.each {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.kept[key]; known {
		return
	}
	if cap(body) > len(body)+over {
		body = bytes.Clone(body)
	}
	c.kept[key], c.order, c.size = body, append(c.order, key), c.size+len(body)+over
	for c.size > c.all {
		oldest := c.order[0]
		c.size -= len(c.kept[oldest]) + over
		delete(c.kept, oldest)
		c.order = c.order[1:]
	}
}

// Get gives a body that is kept.
func (c *Cache[K]) Get(key K) (body []byte, kept bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, kept = c.kept[key]
	return body, kept
}

// Of gives those of some bodies that are kept, and names the rest.
func (c *Cache[K]) Of(keys []K) (kept map[K][]byte, rest []K) {
	kept = make(map[K][]byte, len(keys))
	for _, key := range keys {
		if body, known := c.Get(key); known {
			kept[key] = body
		} else {
			rest = append(rest, key)
		}
	}
	return kept, rest
}
