//go:build race

package sized

const raced = true
