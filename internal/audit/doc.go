// Package audit bounds what is written down of refusals: a flood of them fills neither a table
// nor memory, and still every one is counted.
package audit
