package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

const (
	writtenDigits = `{"big":12345678901234567890,"negative":-0,"one":1.0,"thousand":1e3,"place":-73.983947999999998,` +
		`"secret":98765432109876543210}`
	keptDigits  = `{"big":12345678901234567890,"negative":0,"one":1,"place":-73.983948,"secret":98765432109876543210,"thousand":1000}`
	nextDigit   = `{"big":12345678901234567891,"negative":0,"one":1,"place":-73.983948,"secret":98765432109876543211,"thousand":1000}`
	hidesDigits = `"secrets":["/secret"]`
)

// N106, N107, X10, X19: numbers keep their digits from a PUT to what nodes fetch, what people read and what plans show: with a double in
// between, 12345678901234567890 would equal 12345678901234567891.
func TestDigitsAreKept(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	r.put(press7Path, `{"config":`+writtenDigits+`,`+hidesDigits+`}`)
	config := func(token string) string { return string(r.configAs(token).body) }

	t.Run("in the body and its hash", func(t *testing.T) {
		a := r.configAs(r.operator)
		require.Equal(t, keptDigits, string(a.body))
		require.Equal(t, serve.Quoted(string(compose.HashOf([]byte(keptDigits)))), a.header.Get("ETag"))
	})

	t.Run("beside a secret", func(t *testing.T) {
		require.Equal(t, strings.Replace(keptDigits, "98765432109876543210", literal, 1), config(r.viewer))
	})

	t.Run("in a template, and what is merged with it", func(t *testing.T) {
		r.put("/api/v1/templates/digits", `{"base":`+writtenDigits+`}`)
		require.Contains(t, string(r.get("/api/v1/templates/digits").body), string(compose.HashOf([]byte(keptDigits))))
		path := "/api/v1/sites/plant-1/instances/merged"
		r.put(path, `{"template":"digits","overrides":{"more":12345678901234567891}}`)
		merged := strings.Replace(keptDigits, `"negative"`, `"more":12345678901234567891,"negative"`, 1)
		require.Equal(t, merged, string(r.call(r.operator, http.MethodGet, path+"/config?revision=desired", nil).body))
	})

	t.Run("in a plan, which sees one digit, and in the apply of it", func(t *testing.T) {
		r.holds("plant-1-a", "press-7")
		same := many("", instanceManifest("press-7", `{"config":`+keptDigits+`,`+hidesDigits+`}`))
		require.False(t, r.plan(same).Changes, "the same numbers in other words")
		body := many("", instanceManifest("press-7", `{"config":`+nextDigit+`,`+hidesDigits+`}`))
		p := r.plan(body)
		o := planOf(t, p, "press-7")
		require.Equal(t, compose.HashOf([]byte(nextDigit)), o.Hash)
		require.Equal(t, `replace /big 12345678901234567890>12345678901234567891; replace /secret `+literal+`>`+literal,
			changesOf(o.Nodes[0].Difference))
		require.Zero(t, r.apply(many(bound(t, p), instanceManifest("press-7", `{"config":`+nextDigit+`,`+hidesDigits+`}`))).Failed)
		require.Equal(t, nextDigit, config(r.operator))
		require.False(t, r.plan(body).Changes)
	})

	t.Run("or are refused", func(t *testing.T) {
		const beyond, small = "the number is beyond the range of a double", "the number is so small that a double would be 0"
		for number, why := range map[string]string{"1e400": beyond, "-1e400": beyond, "1e-400": small} {
			p := r.call(r.admin, http.MethodPut, press7Path, `{"config":{"a":[1,`+number+`]}}`).problem(t)
			require.Equal(t, []any{http.StatusBadRequest, "/config/a/1"}, []any{p.Status, p.Field}, number)
			require.Contains(t, p.Detail, why)
			refused := planOf(t, r.plan(many("", instanceManifest("press-7", `{"config":{"a":[1,`+number+`]}}`))), "press-7")
			require.NotNil(t, refused.Problem)
			require.Equal(t, p.Detail, refused.Problem.Detail)
		}
		require.Equal(t, nextDigit, config(r.operator), "nothing was stored")
	})
}
