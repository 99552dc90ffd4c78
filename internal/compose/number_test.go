package compose_test

import (
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/compose"
)

// N106
func TestNumbersThatADoubleHolds(t *testing.T) {
	t.Parallel()
	zeros := func(n int) string { return strings.Repeat("0", n) }
	rows := []struct{ src, want string }{
		{"0.1", "0.1"},
		{"1.50", "1.5"},
		{"1e-3", "0.001"},
		{"-12.5E+1", "-125"},
		{"999999999999999", "999999999999999"},
		{"9007199254740991", "9007199254740991"},
		{"9007199254740992", "9007199254740992"},
		{"9007199254740994.000", "9007199254740994"},
		{"18446744073709551616", "18446744073709552000"}, // 2^64 is held exactly
		{"18446744073709552000", "18446744073709552000"}, // as RFC 8785 writes it
		{"1e22", "1e+22"},
		{"1E23", "1e+23"},
		{"1.7976931348623157e308", "1.7976931348623157e+308"},
		{"2.2250738585072014e-308", "2.2250738585072014e-308"},
		{"1" + zeros(400) + "e-400", "1"},
		{"0." + zeros(30_000) + "1e30001", "1"}, // strconv alone reads 0
		{"0e999999999999", "0"},
	}
	for _, r := range rows {
		require.Equal(t, r.want, canonical(t, r.src))
	}
}

// N106
func TestNumbersThatADoubleWouldChange(t *testing.T) {
	t.Parallel()
	const inexact, beyond = "a double cannot hold the number exactly", "the number is beyond the range of a double"
	rows := []struct{ src, message string }{
		{"9007199254740993", inexact},
		{"-9007199254740993", inexact},
		{"9007199254740993.0e0", inexact},
		{"9223372036854775807", inexact},
		{"18446744073709551615", inexact},
		{"0.1000000000000000055511151231257827", inexact},
		{"333333333.33333329", inexact}, // which the sample of RFC 8785 rounds
		{"3.14159265358979323846", inexact},
		{"4.9e-324", inexact},
		{"1" + strings.Repeat("0", 330) + "1e-331", inexact},
		{strings.Repeat("9", 10_000), beyond},
		{"1e309", beyond},
		{"1.7976931348623159e308", beyond},
		{"1e400", beyond},
		{"-1e999999999", beyond},
		{"1e99999999999999999999999999", beyond},
		{"2e-324", beyond},
		{"1e-400", beyond},
		{"-1e-99999999999999999999999999", beyond},
	}
	for _, r := range rows {
		_, err := compose.Canonical([]byte(r.src), compose.DefaultLimits())
		require.Equal(t, r.message, refusal(t, err).Message, "%.40s", r.src)
	}
}

// The rule, said with exact arithmetic: N106
func TestNumberRuleAgainstRationals(t *testing.T) {
	t.Parallel()
	literal := rapid.Custom(func(t *rapid.T) string {
		if rapid.Bool().Draw(t, "near a double") {
			f := rapid.Float64().Draw(t, "f")
			return strconv.FormatFloat(f, 'e', rapid.IntRange(-1, 40).Draw(t, "digits"), 64)
		}
		if rapid.Bool().Draw(t, "integer") {
			return rapid.StringMatching(`-?[1-9][0-9]{0,25}`).Draw(t, "integer literal")
		}
		return rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?`).Draw(t, "literal")
	})
	rapid.Check(t, func(t *rapid.T) {
		src := literal.Draw(t, "src")
		out, err := compose.Canonical([]byte(src), compose.DefaultLimits())
		value, ok := new(big.Rat).SetString(src)
		require.True(t, ok)
		f, rangeErr := strconv.ParseFloat(src, 64)
		if rangeErr != nil || f == 0 && value.Sign() != 0 {
			require.Error(t, err)
			return
		}
		shortest, ok := new(big.Rat).SetString(strconv.FormatFloat(f, 'e', -1, 64))
		require.True(t, ok)
		exact := new(big.Rat).SetFloat64(f)
		if value.Cmp(shortest) != 0 && (!value.IsInt() || value.Cmp(exact) != 0) {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		back, err := strconv.ParseFloat(string(out), 64)
		require.NoError(t, err)
		require.InDelta(t, f, back, 0)
	})
}
