package compose_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Bodies are stored by these hashes. Literals of the build before integers kept their digits: none of them may
// ever change. N106
func TestStoredTextsKeepTheirHashes(t *testing.T) {
	t.Parallel()
	rows := []struct {
		says, text string
		hash       fleet.Hash
		sources    []string // gave the text, and still do
	}{
		{
			"whole numbers",
			`[0,0,0,0,0,1,-1,10,999999999999999,-999999999999999,9007199254740991,9007199254740992,9007199254740994,-9007199254740992]`,
			"21ca9b102bb4805376b4807ee7f4dd3c4994e7998cafa07175f416b22c45ed83",
			[]string{`[0,-0,0.0,-0.0,0e9,1,-1,10,999999999999999,-999999999999999,9007199254740991,9007199254740992,` +
				`9007199254740994.0,-9007199254740992]`},
		},
		{
			"large whole numbers, as a double is written",
			`[18446744073709552000,18446744073709552000,295147905179352830000,36893488147419103000,100000000000000000000,1e+21,` +
				`100000000000000000000,1e+21,1e+22,123456789012345680000]`,
			"770a10b917f1e30571746ab677fbd98c344bdadffcc34d7c49ad106e6e2d3ab8",
			[]string{`[18446744073709551616.0,18446744073709552e3,295147905179352830000,36893488147419103232e0,100000000000000000000,` +
				`1000000000000000000000.0,1e20,1e21,1E22,123456789012345680000]`},
		},
		{
			"fractions and exponents",
			`[1,1000,1.5,0.001,-125,0.1,-73.983948,0.000001,1e-7,5e-324,-5e-324,2.2250738585072014e-308,1.7976931348623157e+308,` +
				`333333333.3333333,1424953923781206.2]`,
			"bc7cd4cf57a36ef52a57f83245b508686800084f19e2335b1185bfb3c4556b73",
			[]string{`[1.0,1e3,1.50,1e-3,-12.5E+1,0.1,-73.983948,0.000001,1e-7,5e-324,-5e-324,2.2250738585072014e-308,` +
				`1.7976931348623157e308,333333333.3333333,1424953923781206.2]`},
		},
		{
			"strings, names and nesting",
			`{"a":{"":{},"y":"\u0000\u0001\b\t\n\f\r\"\\/` + "\u007f\u2028" + `","z":"é€😀€😀"},"b":[true,false,null],` +
				`"€":[[],[[]],{}],"😀":2,"` + "\ufb33" + `":1}`,
			"05ee37308fdd5b5f140dbe291f760e1421b93536d3c9876b9e9d42dec049f7db",
			[]string{`{"b":[true,false,null],"a":{"z":"é€😀\u20ac\ud83d\ude00","y":"\u0000\u0001\b\t\n\f\r\"\\\/\u007f\u2028","":{}},` +
				`"\ufb33":1,"😀":2,"€":[[],[[]],{}]}`},
		},
		{
			"a config",
			`{"ids":[9007199254740991,-9007199254740991],"limits":{"cpu":0.25,"memory":536870912},"name":"press 7 ","ratio":0.01,"replicas":3}`,
			"f15790b66d1f53770fffbb94abd2eaa75260c6dd37d3f1c99f196b992c635bb4",
			[]string{` { "replicas" : 3 , "limits" : { "cpu" : 0.25 , "memory" : 536870912 } , "ids" : [ 9007199254740991 , -9007199254740991 ] , ` +
				`"ratio" : 1.0e-2 , "name":"press 7\u0020" } `},
		},
	}
	for _, r := range rows {
		t.Run(r.says, func(t *testing.T) {
			t.Parallel()
			for _, src := range append(r.sources, r.text) {
				out := canonical(t, src)
				require.Equal(t, r.text, out)
				require.Equal(t, r.hash, compose.HashOf([]byte(out)))
			}
		})
	}
}
