package decide

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxListed limits a list in a sentence, in bytes: with all its lists a sentence has about 1 KB. It is stored with
// the deployment, and recorded in the histories of workflows that read it (X9).
const maxListed = 200

// list writes as many as fit, and how many more there are.
func list[T any](all []T) string {
	var out strings.Builder
	for i, one := range all {
		word := fmt.Sprint(one)
		if i == 0 {
			word = cutTo(word, maxListed)
		} else if word = ", " + word; out.Len()+len(word) > maxListed {
			return fmt.Sprintf("%s … and %d more", out.String(), len(all)-i)
		}
		out.WriteString(word)
	}
	return out.String()
}

func labelList(labels map[string]string) string {
	var out []string
	for name, value := range labels {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return list(out)
}

// cutTo truncates between characters.
func cutTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}
