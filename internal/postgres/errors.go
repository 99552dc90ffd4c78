package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// failed turns an error of the driver into a fleet error; what already is one stays as it is. The statement is named, and what people
// read says whether asking again helps.
func failed(statement string, err error) error {
	if err == nil {
		return nil
	}
	var known *fleet.Error
	if errors.As(err, &known) {
		return err
	}
	kind := kindOf(err)
	e := &fleet.Error{Kind: kind, Message: fmt.Sprintf("%s (%s)", saysOf[kind], statement), Err: fmt.Errorf("%s: %w", statement, err)}
	if IsCode(err, bodyCollected) {
		e.Message, e.Hint = "what this refers to was collected at the same moment", "send the request again"
	}
	if IsCode(err, zeroByte) || IsCode(err, zeroInJSON) {
		e.Kind, e.Message, e.Hint = fleet.Invalid, "a text with a zero byte", "no text may have one"
	}
	return e
}

// NoRow is the error of a query that has to find a row, and gives a list.
func NoRow(query string) error { return failed(query, pgx.ErrNoRows) }

// inCode is an error of a transaction: those of statements are named already, any other but the end of a context is the code's.
func inCode(err error) error {
	var known *fleet.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return failed("transaction", err)
	}
	return &fleet.Error{Kind: fleet.Internal, Message: "a transaction was given up", Err: err}
}

// saysOf is what people read of the kinds that kindOf gives.
var saysOf = map[fleet.Kind]string{
	fleet.NotFound:     "the database has no such row",
	fleet.Unavailable:  "the database does not answer now",
	fleet.Conflict:     "another write came first",
	fleet.Precondition: "what this refers to is not there",
	fleet.Internal:     "the database refused a statement",
}

// Unreadable is that something stored is not what this version writes there; nil without an error.
func Unreadable(what string, err error) error {
	if err == nil {
		return nil
	}
	return &fleet.Error{Kind: fleet.Internal, Message: "cannot read " + what + " as it is stored", Err: err}
}

// What Postgres says of a zero byte, in a text and escaped in JSON.
const (
	zeroByte   = "22021"
	zeroInJSON = "22P05"
)

// bodyCollected is what hold_bodies raises.
const bodyCollected = "HF001"

// IsCode reports whether the database refused with a code (SQLSTATE).
func IsCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}

func kindOf(err error) fleet.Kind {
	if errors.Is(err, pgx.ErrNoRows) {
		return fleet.NotFound
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fleet.Unavailable
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return fleet.Unavailable // no answer from the server at all
	}
	switch {
	case pg.Code == "23505" || pg.Code == "40001" || pg.Code == "40P01":
		return fleet.Conflict // unique violation, serialization failure, deadlock
	case pg.Code == "23503":
		return fleet.Precondition // foreign key
	case pg.Code == bodyCollected:
		return fleet.Unavailable
	case pg.Code[:2] == "08" || pg.Code[:2] == "57" || pg.Code[:2] == "53":
		return fleet.Unavailable // connection, shutdown, resources
	}
	return fleet.Internal
}

// Cause is what Postgres said of an error, or why it was not reached; "" if neither is known. It is for those who may read the database:
// answers of the API leave it out.
func Cause(err error) string {
	if pg := new(pgconn.PgError); errors.As(err, &pg) {
		return fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code)
	}
	if connect := new(pgconn.ConnectError); errors.As(err, &connect) {
		lines := strings.Split(connect.Error(), "\n\t") // one for each address, which is tried with and without TLS
		return strings.Join(slices.Compact(lines), " ")
	}
	return ""
}

// NoRows reports whether a query found no row.
func NoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// OrNotFound is err, or that there is no such object, with what to do.
func OrNotFound(err error, kind, name, hint string) error {
	if err != nil {
		return err
	}
	return fleet.Errorf(fleet.NotFound, "%s %s not found", kind, name).At(kind).WithHint(hint)
}

// MissingTemplate is err, or that a field names a template that is not declared.
func MissingTemplate(err error, name fleet.TemplateName, field string) error {
	if !NoRows(err) {
		return err
	}
	return fleet.Errorf(fleet.NotFound, "this generation of template %s not found", name).At(field).
		WithHint("holdfast get templates")
}
