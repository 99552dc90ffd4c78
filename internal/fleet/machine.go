package fleet

// Arrow is one legal transition.
type Arrow[S, E ~string] struct {
	From S
	On   E
	To   S
}

// Machine is the whole of a state machine, as data.
type Machine[S, E ~string] []Arrow[S, E]

// Next is the only way to move: an arrow that is not in the table is illegal_state.
func (m Machine[S, E]) Next(from S, on E) (S, error) {
	for _, a := range m {
		if a.From == from && a.On == on {
			return a.To, nil
		}
	}
	return from, Errorf(IllegalState, "%s is not possible in state %s", string(on), string(from))
}

// Leads says whether any event leads from one state straight to another.
func (m Machine[S, E]) Leads(from, to S) bool {
	for _, a := range m {
		if a.From == from && a.To == to {
			return true
		}
	}
	return false
}
