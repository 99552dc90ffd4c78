// Package definition makes of what a person declares what a node runs. Each type of deployment has
// a generator, a small type with Generate and Validate, found in a registry. What a type's server
// documents (its command, port, health path) is data: a root section, and a section per type, as
// JSON files that are embedded and may be overridden. They are merged under the declaration field by
// field:
//
//	settings/root.json ─▶ settings/TYPE.json ─▶ the declaration ─▶ fleet.Definition ─▶ canonical JSON
//
// Everything here is pure; nothing is stored or started.
package definition
