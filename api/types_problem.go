package api

import "net/http"

// ProblemPrefix is what every problem type starts with; the kind follows.
const ProblemPrefix = "holdfast:problems/"

// Error makes a problem an error, as huma wants it.
func (p *Problem) Error() string { return p.Detail }

// GetStatus tells huma the status of the answer.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType tells huma the media type of the answer.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders tells huma which headers go with the answer.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h.Set("Retry-After", "1")
	}
	return h
}
