//go:build !race && !mutate

package lease

const slower = 0
