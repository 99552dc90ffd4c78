// Package shuffled shows that the predicates of rule tables change nothing. With it, some of what a package's tests decide is decided after
// all predicates of the table were evaluated once, in a random order: one that writes what another reads, or what becomes of the decision,
// fails the tests that say what is decided.
package shuffled

import (
	"math/rand/v2"
	"reflect"
)

// some is of how many decisions one is shuffled: predicates that verify signatures take their time.
const some = 4

// Rules has the first predicate of each table evaluate all of the table before it answers, in one of some decisions. A table is a
// slice of structs whose field when is the predicate; the first match wins. It returns the number of tables, so that a package variable
// can hold it:
//
//	var _ = shuffled.Rules(aRules, bRules)
func Rules(tables ...any) int {
	for _, t := range tables {
		shuffle(reflect.ValueOf(t))
	}
	return len(tables)
}

func shuffle(table reflect.Value) {
	var whens []reflect.Value
	for i := range table.Len() {
		when := table.Index(i).FieldByName("when")
		whens = append(whens, reflect.NewAt(when.Type(), when.Addr().UnsafePointer()).Elem()) // as the field is not exported
	}
	first := reflect.ValueOf(whens[0].Interface())
	all := append([]reflect.Value{first}, whens[1:]...)
	whens[0].Set(reflect.MakeFunc(first.Type(), func(args []reflect.Value) []reflect.Value {
		if rand.IntN(some) == 0 {
			for _, i := range rand.Perm(len(all)) {
				all[i].Call(args)
			}
		}
		return first.Call(args)
	}))
}
