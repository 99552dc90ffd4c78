package compose

import "github.com/go-json-experiment/json/jsontext"

// Marks is a tree of the JSON pointers of a document that are secret. What lies below a
// secret needs no mark; nil marks nothing.
type Marks struct {
	Secret bool
	Below  map[string]*Marks
}

// MarksOf makes the tree of some pointers.
func MarksOf(pointers []string) *Marks {
	root := &Marks{}
	for _, p := range pointers {
		at := root
		for token := range jsontext.Pointer(p).Tokens() {
			if at.Below[token] == nil {
				if at.Below == nil {
					at.Below = map[string]*Marks{}
				}
				at.Below[token] = &Marks{}
			}
			at = at.Below[token]
		}
		at.Secret = true
	}
	return root
}

// Member gives the marks of a member or element.
func (m *Marks) Member(name string) *Marks {
	if m == nil {
		return nil
	}
	return m.Below[name]
}
