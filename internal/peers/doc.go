// Package peers is both ends of the links between regions (docs/regions.md).
//
//	region join ─▶ POST /peer/v1/join (token) ─▶ record: name, key, address
//	each peer, every few seconds: GET /peer/v1/members ─▶ decide.Members ─▶ store
//
// Every connection is mutual TLS 1.3, and each side pins the other's public key: names in certificates, their dates and
// authorities mean nothing. The store owns who is a member. A caller with an unknown key reaches only the join; a disabled or
// removed one reaches nothing. What regions send each other beyond that is mounted by Handle and called with Peer.Client.
package peers
