//go:build !race

package lease

const slower = 0
