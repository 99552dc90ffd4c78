// Package schema checks JSON against the JSON schemas that providers send.
//
// Neither side is trusted. A schema may be malformed, refer to other documents, or be made to
// take for ever; a document may be large, deep, or say a name twice. So schemas are bounded
// in length, nothing is ever loaded, compiled schemas are kept in a bounded cache, each check
// has a bounded number of steps, and the bytes that are checked at once are bounded.
//
// Refusals name the place in the document and what the schema allows there, never the value.
package schema
