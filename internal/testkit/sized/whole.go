//go:build (slow && !race) || mutate

package sized

const whole = true
