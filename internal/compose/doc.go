// Package compose makes one JSON config out of its layers (base template, compositions in
// order, overrides) and gives the canonical form whose SHA-256 is the revision hash. The
// same layers give the same bytes on every machine; the package holds no state and no clock.
//
//	layer ─ validate, canonicalise ─┐
//	layer ─ validate, canonicalise ─┴─ merge ─▶ canonical form ─ SHA-256 ─▶ revision hash
//
// Merging is RFC 7396. The first layer is the target document and every later one a patch:
// objects merge member by member, everything else (arrays too) replaces, null removes. Only
// a patch removes: nulls in the first layer stay, and so do nulls within the arrays of a
// patch, which replace as they are. An object that a patch brings anew is stripped of nulls
// like any other part of the patch.
//
// The canonical form is RFC 8785, but for integers beyond the range of those that a double holds exactly:
//
//   - a number without ".", "e" or "E" keeps its digits, whatever its size (RFC 8785 would round it): programs read
//     ids and counters from it. -0 is 0;
//   - any other number is the nearest double, in the form of RFC 8785: 1.0 is 1, 1e3 is 1000, and
//     -73.983947999999998 is -73.983948, which every program that reads doubles takes for the same.
//
// So every canonical text of RFC 8785 is its own canonical form here, and 2^64 may come as 18446744073709551616
// (kept) or as 18446744073709551616.0 (18446744073709552000).
//
// Refused, with the JSON pointer: malformed text, duplicate names, lone surrogates, and a number that would overflow
// a double (1e400) or become 0 (1e-400).
//
// Errors never hold a value of the document, only names (in the pointer), byte offsets and
// limits.
//
// Memory: nothing is decoded into Go values. One pass of the tokenizer validates and fills an
// index of 24 bytes per value that points into the source; object members are sorted there,
// and one walk writes the result into a buffer of the right size. Merging reads two sorted
// canonical texts side by side and copies whole members. A string-heavy layer costs about
// its own size once, and once more when it is merged; the index is bounded by
// Limits.MaxValues. Budget bounds how many bytes are worked on at once.
package compose
