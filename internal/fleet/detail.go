package fleet

import (
	"errors"
	"log/slog"
	"strings"
)

// Detail is what logs say of an error: its text, and the causes that an Error keeps to
// itself. Answers and workflow history never show it (X10).
func Detail(err error) string { return withCauses(err.Error(), err) }

func withCauses(text string, err error) string {
	for _, cause := range causesOf(err) {
		if said := cause.Error(); !strings.Contains(text, said) {
			text += ": " + strings.TrimPrefix(said, text+": ")
		}
		text = withCauses(text, cause)
	}
	return text
}

func causesOf(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if cause := errors.Unwrap(err); cause != nil {
		return []error{cause}
	}
	return nil
}

// LogDetail has a log handler write errors with their causes: it is a ReplaceAttr.
func LogDetail(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindAny {
		return a
	}
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(Detail(err))
	}
	return a
}
