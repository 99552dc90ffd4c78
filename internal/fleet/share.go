package fleet

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Share is a number of replicas: a count (3), or a part of the target ("25%").
type Share struct {
	Count   int
	Percent int // of 100, 0 for a count
}

// of is the share of a target.
func (s Share) of(target int, round func(float64) float64) int {
	if s.Percent == 0 {
		return s.Count
	}
	return int(round(float64(target) * float64(s.Percent) / 100))
}

// Zero reports whether it is nothing of any target.
func (s Share) Zero() bool { return s == Share{} }

func (s Share) String() string {
	if s.Percent > 0 {
		return strconv.Itoa(s.Percent) + "%"
	}
	return strconv.Itoa(s.Count)
}

// ParseShare reads "3" or "25%".
func ParseShare(text string) (Share, error) {
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || percent && n > 100 || n > maxShare {
		return Share{}, Errorf(Invalid, "invalid number of replicas %.20q: use a count such as 2, or a part of the target such as \"25%%\"", text)
	}
	if percent {
		return Share{Percent: n}, nil
	}
	return Share{Count: n}, nil
}

// maxShare bounds a count.
const maxShare = 10_000

// MarshalJSON writes a number, or a string with a percent sign.
func (s Share) MarshalJSON() ([]byte, error) {
	if s.Percent > 0 {
		return json.Marshal(s.String())
	}
	return json.Marshal(s.Count)
}

// UnmarshalJSON reads a number, or a string.
func (s *Share) UnmarshalJSON(b []byte) (err error) {
	var text string
	if json.Unmarshal(b, &text) != nil {
		text = string(b)
	}
	if *s, err = ParseShare(text); err != nil {
		return fmt.Errorf("read a share: %w", err)
	}
	return nil
}
