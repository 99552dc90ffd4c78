// Package db is what sqlc makes of the queries.
package db

// Connection is what the queries go to.
func (q *Queries) Connection() DBTX { return q.db }
