package fleet

import (
	"errors"
	"log/slog"
	"strings"
)

// Detail is an error as logs show it: its text, and the causes that an Error does not show. Answers and workflow
// history never contain it (X10).
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

// LogDetail is a ReplaceAttr that makes a log handler write errors with their causes.
func LogDetail(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindAny {
		return a
	}
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(Detail(err))
	}
	return a
}
