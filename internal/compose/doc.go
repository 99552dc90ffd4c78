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
// The canonical form is RFC 8785. What it could not give back faithfully is refused with its
// JSON pointer: malformed text, duplicate names, lone surrogates, and numbers that would
// change:
//
//   - an integral value is accepted when a double holds exactly that value, or when it is
//     the shortest decimal that reads back as its double (as RFC 8785 writes 2^64:
//     18446744073709552000). The second half is what lets a canonical form be accepted again;
//   - any other value is accepted when it is that shortest decimal: 0.1, 1.50 and 1e-3 are,
//     0.1000000000000000055511151231257827 is not;
//   - too large for a double, or so small that it would become zero, is refused.
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
