package decide

// Circle is where a template refers to one that it is itself composed of.
type Circle struct {
	Template int // its place among the templates
	Part     int // the place of the reference among its parts
}

// ByComposition puts each template behind those that it is composed of, by their places;
// parts are the names that each refers to, and at finds those that are among them.
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
	done, under []bool // seen, and on the way from the root to here
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
