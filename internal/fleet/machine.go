package fleet

// arrow is one transition of a machine.
type arrow[S, E comparable] struct {
	from S
	on   E
	to   S
}

// machine has every transition; all others are refused.
type machine[S, E comparable] []arrow[S, E]

func (m machine[S, E]) next(from S, on E) (S, bool) {
	for _, a := range m {
		if a.from == from && a.on == on {
			return a.to, true
		}
	}
	return from, false
}

// from lists the states in which an event is allowed.
func (m machine[S, E]) from(on E) []S {
	var states []S
	for _, a := range m {
		if a.on == on {
			states = append(states, a.from)
		}
	}
	return states
}
