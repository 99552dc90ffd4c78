package fleet

import "strings"

// maxEnvName bounds the name of an environment variable.
const maxEnvName = 256

// EnvHint says what names of environment variables may be.
const EnvHint = "use letters, digits, '_', '.' and '-', not a digit first"

// ValidEnvName says whether a name can stand in an environment and in what prints one: a newline in it would
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

// validateEnvName refuses what is not the name of an environment variable.
func validateEnvName(field, name string) error {
	if ValidEnvName(name) {
		return nil
	}
	return Errorf(Invalid, "invalid environment name %.80q", name).At(field).WithHint(EnvHint)
}

// validateEnv checks the environment that a program is declared with.
func validateEnv(field string, env map[string]string) error {
	for name, value := range env {
		if err := validateEnvName(field, name); err != nil {
			return err
		}
		if strings.ContainsRune(value, 0) {
			return Errorf(Invalid, "the value of %s contains a NUL byte, which no environment can hold", name).At(field)
		}
		if strings.HasPrefix(name, "HOLDFAST_") {
			return Errorf(Invalid, "names that start with HOLDFAST_ are set by the node").At(field)
		}
	}
	return nil
}
