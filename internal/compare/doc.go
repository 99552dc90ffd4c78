// Package compare finds what differs between the objects that a region owns and their copies in another region, without
// sending what is equal. docs/copies.md draws it.
//
// The region with the copies asks. Objects are in ranges by the first bits of their uid, which are random, so a range has
// some 32 objects. It sends one sum for each range; the owner answers with the sums of the objects of each range that
// differs. Then it fetches the objects whose sums it does not have, and asks by name about copies that the owner did not send.
package compare
