// Package isolation keeps the commands of one project on a node from those of others: each project has a user (uid
// and gid) of its own on the node.
//
//	command of a project ─▶ User ─▶ uid known? ──yes──▶ run as it
//	                                   │ no
//	                                   ▼
//	                      free one of the range ─▶ uids.json (synced) ─▶ run as it
//
// Who owns which truth: uids.json, beside node.key, says which uid is whose. A uid is never given to another project,
// so none is reused while anything of its project remains; where the file was lost, uids that own a directory of an
// instance or a replica are skipped. Guardians confine the commands (guardian.Confinement).
//
// Failures:
//   - the agent is not root, was told not to, or the machine does not let it (Probe): Why says so, commands run as
//     the agent's user, and those of other projects than the site's are refused with isolation_missing.
//   - the range is used up: further projects are refused, with what to do.
//   - uids.json is damaged: the agent does not start; to guess would hand files to strangers.
package isolation
