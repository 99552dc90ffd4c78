package fleet

import "strings"

// maxEnvName limits the name of an environment variable.
const maxEnvName = 256

// EnvHint describes valid names of environment variables.
const EnvHint = "use letters, digits, '_', '.' and '-', not a digit first"

// ValidEnvName reports whether a name is safe in an environment and wherever one is printed: a newline in it would
// read as another variable.
func ValidEnvName(name string) bool {
	if name == "" || len(name) > maxEnvName || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool { return !isEnvRune(r) }) < 0
}

func isEnvRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.' || r == '-'
}

// validateEnvName rejects invalid names of environment variables.
func validateEnvName(field, name string) error {
	if ValidEnvName(name) {
		return nil
	}
	return Errorf(Invalid, "invalid environment name %.80q", name).At(field).WithHint(EnvHint)
}

// validateEnv checks the declared environment of a program.
func validateEnv(field string, env map[string]string) error {
	for name, value := range env {
		if err := validateEnvName(field, name); err != nil {
			return err
		}
		if strings.ContainsRune(value, 0) {
			return Errorf(Invalid, "the value of %s contains a NUL byte, which no environment can hold", name).At(field)
		}
		if strings.HasPrefix(name, "HOLDFAST_") {
			return Errorf(Invalid, "names that start with HOLDFAST_ are reserved for the node").At(field)
		}
	}
	return nil
}
