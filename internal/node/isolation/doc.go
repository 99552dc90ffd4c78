// Package isolation separates the commands of different projects on a node: each project has its own user (uid
// and gid) on the node.
//
//	command of a project ─▶ User ─▶ uid known? ──yes──▶ run as it
//	                                   │ no
//	                                   ▼
//	                      free one of the range ─▶ uids.json (synced) ─▶ run as it
//
// Who owns which truth: uids.json, beside node.key, maps projects to uids. A uid is never given to another
// project, so none is reused while anything of its project remains. If the file was lost, uids that own a
// directory of an instance or a replica are skipped. Guardians confine the commands (guardian.Confinement).
//
// Failures:
//   - the agent is not root, isolation is turned off, or the machine does not allow it (Probe): Why
//     gives the reason. Commands run as the agent's user, and commands of projects other than the
//     site's are refused with isolation_missing.
//   - the range is used up: further projects are refused, with a hint.
//   - uids.json is damaged: the agent does not start; a guess would give files to the wrong project.
package isolation
