package documents

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAML 1.1 and YAML 1.2 read some plain texts as different numbers, or only one of them reads a number: 01067 is 567 or
// 1067, 08 is 8 or a text, 1:30 is 90 or a text. What this package does not read as the same number is refused: neither
// another number nor a text may reach a config by surprise. The patterns are those of the YAML types repository and of
// the core schema of YAML 1.2, without what no parser reads as a number (1.1 writes fractions so that 10.0.0.1 would be
// one).
var (
	leadingZero = regexp.MustCompile(`^[-+]?0[0-9_]+$`)
	numberLike  = regexp.MustCompile(`^[-+]?(?:` + strings.Join([]string{
		`[0-9][0-9_]*`,       // decimal, octal in 1.1
		`0[bB][01_]+`,        // 1.1
		`0[oO][0-7]+`,        // 1.2
		`0[xX][0-9a-fA-F_]+`, // both
		`(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?`, // both
		`[1-9][0-9_]*(?::[0-5]?[0-9])+`,                                     // sexagesimal, 1.1
		`[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*`,                            // the same with a fraction
	}, "|") + `)$`)
	based = regexp.MustCompile(`^[-+]?0[bBoOxX]`)
)

// LooksLikeNumber reports whether a parser of YAML 1.1 or 1.2 may read a plain text as a number.
func LooksLikeNumber(text string) bool { return numberLike.MatchString(text) }

// plain tells whether a text was written without quotes and without a tag.
func plain(n *yaml.Node) bool {
	return n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0
}

const (
	quoteIt = "%.40q is no number, or another one, in some versions of YAML: quote it if it is text, else write it in decimal"
	tooFar  = "%.40q is beyond the range of a double: quote it if it is text"
)

// plainText writes a text, unless it was written like a number.
func (w *yamlWriter) plainText(n *yaml.Node) error {
	switch {
	case !plain(n) || !LooksLikeNumber(n.Value):
		return w.text(n.Value)
	case json.Valid([]byte(n.Value)):
		return at(n, tooFar, n.Value)
	}
	return at(n, quoteIt, n.Value)
}

// number writes a number of YAML with its digits: the forms that JSON lacks (1_000, +1, .5, 0x1f) become the one that
// it has.
func (w *yamlWriter) number(n *yaml.Node) error {
	text := n.Value
	switch {
	case leadingZero.MatchString(text):
		return at(n, quoteIt, text)
	case based.MatchString(text):
		i, ok := new(big.Int).SetString(strings.TrimPrefix(strings.ReplaceAll(text, "_", ""), "+"), 0)
		if !ok {
			return at(n, quoteIt, text)
		}
		text = i.String()
	default:
		text = decimal(text)
	}
	if !json.Valid([]byte(text)) {
		return at(n, "%s has no form in JSON", n.Value)
	}
	if !held(text) {
		return at(n, tooFar, n.Value)
	}
	w.out.WriteString(text)
	return nil
}

// decimal is a decimal number of YAML in the grammar of JSON.
func decimal(text string) string {
	text = strings.TrimPrefix(strings.ReplaceAll(text, "_", ""), "+")
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	mantissa, exponent := text, ""
	if e := strings.IndexAny(text, "eE"); e >= 0 {
		mantissa, exponent = text[:e], text[e:]
	}
	whole, fraction, split := strings.Cut(mantissa, ".")
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	if split {
		if fraction == "" {
			fraction = "0"
		}
		whole += "." + fraction
	}
	return sign + whole + exponent
}

// held tells whether a number keeps its digits, or has a double that is not 0 unless the number is.
func held(text string) bool {
	mantissa := text
	if e := strings.IndexAny(text, "eE"); e >= 0 {
		mantissa = text[:e]
	} else if !strings.Contains(text, ".") {
		return true
	}
	f, err := strconv.ParseFloat(text, 64)
	return err == nil && (f != 0 || !strings.ContainsAny(mantissa, "123456789"))
}
