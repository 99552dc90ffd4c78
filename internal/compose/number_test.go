package compose_test

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/compose"
)

// N106
func TestIntegersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	for _, src := range []string{
		"0", "1", "-1", "999999999999999", "9007199254740991", "9007199254740992", "9007199254740993", "-9007199254740993",
		"9223372036854775807", "18446744073709551615", "18446744073709551616", "12345678901234567890123", "1000000000000000000000",
		strings.Repeat("9", 10_000), "1" + strings.Repeat("0", 400), "-1" + strings.Repeat("0", 400),
	} {
		require.Equal(t, src, canonical(t, src))
		require.Equal(t, `{"a":[`+src+`]}`, canonical(t, ` { "a" : [ `+src+` ] } `))
	}
	require.Equal(t, "[0,0]", canonical(t, "[-0,0]"))
}

// N106
func TestOtherNumbersAreTheNearestDouble(t *testing.T) {
	t.Parallel()
	zeros := func(n int) string { return strings.Repeat("0", n) }
	// Half-way between 1 and the next double, so that the last digit decides.
	const halfway = "1.00000000000000011102230246251565404236316680908203125"
	rows := []struct{ src, want string }{
		{"0.1", "0.1"},
		{"1.0", "1"},
		{"1.50", "1.5"},
		{"1e3", "1000"},
		{"1e-3", "0.001"},
		{"-12.5E+1", "-125"},
		{"-73.983947999999998", "-73.983948"},
		{"0.1000000000000000055511151231257827", "0.1"},
		{"333333333.33333329", "333333333.3333333"}, // the sample of RFC 8785
		{"3.14159265358979323846", "3.141592653589793"},
		{"9007199254740993.0", "9007199254740992"},
		{"9007199254740993.0e0", "9007199254740992"},
		{"9007199254740994.000", "9007199254740994"},
		{"18446744073709551616.0", "18446744073709552000"},
		{"12345678901234567890123.0", "1.2345678901234568e+22"},
		{"1e20", "100000000000000000000"},
		{"1e21", "1e+21"},
		{"1E23", "1e+23"},
		{"4.9e-324", "5e-324"},
		{"3e-324", "5e-324"},
		{"1.7976931348623157e308", "1.7976931348623157e+308"},
		{"1.7976931348623158e308", "1.7976931348623157e+308"},
		{"2.2250738585072014e-308", "2.2250738585072014e-308"},
		{halfway, "1"}, // to the even one
		{halfway + "0", "1"},
		{halfway + zeros(2000) + "1", "1.0000000000000002"},
		{halfway + zeros(2000) + "1e0", "1.0000000000000002"},
		{halfway[:len(halfway)-1] + "4" + strings.Repeat("9", 2000), "1"},
		{"1" + zeros(400) + "e-400", "1"},
		{"1" + zeros(330) + "1e-331", "1"},
		{"0." + zeros(30_000) + "1e30001", "1"}, // strconv alone reads 0
		{"0.0", "0"},
		{"-0.0", "0"},
		{"0e999999999999", "0"},
		{"-0." + zeros(100) + "e99999999999999999999", "0"},
	}
	for _, r := range rows {
		require.Equal(t, r.want, canonical(t, r.src), "%.60s", r.src)
	}
}

// N106
func TestNumbersThatNoDoubleHolds(t *testing.T) {
	t.Parallel()
	const overflow, vanishes = "the number is beyond the range of a double", "the number is so small that a double would be 0"
	rows := []struct{ src, message string }{
		{"1e309", overflow},
		{"1.7976931348623159e308", overflow},
		{"1e400", overflow},
		{"-1e999999999", overflow},
		{"1e99999999999999999999999999", overflow},
		{strings.Repeat("9", 10_000) + ".0", overflow},
		{"17976931348623158" + strings.Repeat("0", 292) + ".5", ""}, // rounds to the largest
		{"17976931348623159" + strings.Repeat("0", 292) + ".5", overflow},
		{"2e-324", vanishes},
		{"1e-400", vanishes},
		{"-1e-400", vanishes},
		{"-1e-99999999999999999999999999", vanishes},
		{"0." + strings.Repeat("0", 400) + "1", vanishes},
		{"0." + strings.Repeat("0", 323) + "2", vanishes},
	}
	for _, r := range rows {
		_, err := compose.Canonical([]byte(`{"a":`+r.src+`}`), compose.DefaultLimits())
		if r.message == "" {
			require.NoError(t, err, "%.40s", r.src)
			continue
		}
		e := refusal(t, err)
		require.Equal(t, r.message, e.Message, "%.40s", r.src)
		require.Equal(t, "/a", e.Field)
		require.Contains(t, e.Hint, "artifactFile")
	}
}

func minusOfZero(src string) string {
	if src == "-0" {
		return "-"
	}
	return ""
}

// The rule, said with exact arithmetic: N106
func TestNumberRuleAgainstRationals(t *testing.T) {
	t.Parallel()
	literal := rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			f := rapid.Float64().Draw(t, "f")
			return strconv.FormatFloat(f, 'e', rapid.IntRange(-1, 40).Draw(t, "digits"), 64)
		case 1: // beside the middle of two doubles, where one digit decides
			f := rapid.Float64Range(1e-300, 1e300).Draw(t, "f")
			low, high := new(big.Rat).SetFloat64(f), new(big.Rat).SetFloat64(math.Nextafter(f, math.Inf(1)))
			middle := low.Add(low, high).Quo(low, big.NewRat(2, 1)).FloatString(1100)
			return middle + rapid.SampledFrom([]string{"", "0", "1", "e0", "e-2"}).Draw(t, "end")
		case 2:
			return rapid.StringMatching(`-?(0|[1-9][0-9]{0,400})`).Draw(t, "integer")
		}
		return rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?`).Draw(t, "literal")
	})
	rapid.Check(t, func(t *rapid.T) {
		src := literal.Draw(t, "src")
		out, err := compose.Canonical([]byte(src), compose.DefaultLimits())
		if !strings.ContainsAny(src, ".eE") {
			require.NoError(t, err)
			require.Equal(t, strings.TrimPrefix(src, minusOfZero(src)), string(out))
			return
		}
		value, ok := new(big.Rat).SetString(src)
		require.True(t, ok)
		f, _ := value.Float64()
		if math.IsInf(f, 0) || f == 0 && value.Sign() != 0 {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, reference(t, strconv.AppendFloat(nil, f, 'e', -1, 64)), string(out))
		again, err := compose.Canonical(out, compose.DefaultLimits())
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
	})
}
