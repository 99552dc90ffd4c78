package fleet

import (
	"slices"
	"strconv"
	"strings"
)

const (
	// MaxSecrets limits the marks of one spec.
	MaxSecrets = 100
	// MaxSecretBytes limits the length of one mark.
	MaxSecretBytes = 1024
)

// ValidateSecrets rejects invalid JSON pointers (RFC 6901). One that matches nothing is allowed: the config may
// gain the place later.
func ValidateSecrets(field string, pointers []string) error {
	if err := boundMarks(field, pointers); err != nil {
		return err
	}
	for i, p := range pointers {
		if !isPointer(p) {
			return Errorf(Invalid, "invalid JSON pointer").At(field + "/" + strconv.Itoa(i)).
				WithHint(`write it as /db/password; in a name, ~1 stands for "/" and ~0 for "~"`)
		}
	}
	return nil
}

func isPointer(p string) bool {
	if p == "" {
		return true // the whole document
	}
	rest := strings.NewReplacer("~0", "", "~1", "").Replace(p)
	return strings.HasPrefix(p, "/") && !strings.Contains(rest, "~")
}

func validateSecretEnv(names []string) error {
	if err := boundMarks("/secretEnv", names); err != nil {
		return err
	}
	for i, name := range names {
		if err := validateEnvName("/secretEnv/"+strconv.Itoa(i), name); err != nil {
			return err
		}
	}
	return nil
}

func boundMarks(field string, marks []string) error {
	if len(marks) > MaxSecrets {
		return Errorf(Invalid, "%d marks given; the limit is %d", len(marks), MaxSecrets).At(field).
			WithHint("mark an object instead of its members")
	}
	for i, m := range marks {
		if len(m) > MaxSecretBytes {
			return Errorf(Invalid, "the mark has %d bytes; the limit is %d", len(m), MaxSecretBytes).At(field + "/" + strconv.Itoa(i))
		}
	}
	return nil
}

// KeepMarks adds the marks of another spec: returning to an earlier spec must not reveal what was marked since.
func (s InstanceSpec) KeepMarks(of InstanceSpec) InstanceSpec {
	if s.Artifact == nil {
		s.Secrets = union(s.Secrets, of.Secrets)
	}
	s.SecretEnv = union(s.SecretEnv, of.SecretEnv)
	return s
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, m := range b {
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}
