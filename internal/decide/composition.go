package decide

// Circle is a reference from a template back to itself, directly or through other templates.
type Circle struct {
	Template int // index of the template
	Part     int // index of the reference in its parts
}

// ByComposition orders templates so that each comes after the templates it includes, or any objects by a relation like
// it. Parts holds the names that each template includes; at finds the index of a name, if it is one of these templates.
func ByComposition(parts [][]string, at func(name string) (place int, found bool)) (order []int, circles []Circle) {
	v := &compositions{parts: parts, at: at, done: make([]bool, len(parts)), under: make([]bool, len(parts))}
	for i := range parts {
		v.visit(i)
	}
	return v.order, v.circles
}

type compositions struct {
	parts       [][]string
	at          func(name string) (int, bool)
	done, under []bool // visited, and on the current path
	order       []int
	circles     []Circle
}

func (v *compositions) visit(i int) {
	if v.done[i] {
		return
	}
	v.under[i] = true
	for part, name := range v.parts[i] {
		next, found := v.at(name)
		switch {
		case !found:
		case v.under[next]:
			v.circles = append(v.circles, Circle{i, part})
		default:
			v.visit(next)
		}
	}
	v.under[i], v.done[i] = false, true
	v.order = append(v.order, i)
}
