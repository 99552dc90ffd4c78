package compose

// node is one value of a document: where its text lies, and its place in the tree. It holds
// offsets instead of slices so that the index of 2 million values stays at 48 MB.
type node struct {
	name, nameEnd uint32 // the quoted name of a member; both 0 for anything else
	at, end       uint32
	first, next   uint32 // child, sibling; 0 is none, for the root is neither
}

// index holds the nodes of one document in blocks, because growing one long slice would
// for a moment need more than twice its size.
type index struct {
	blocks [][]node
	n      int
}

const blockSize = 4096

// add gives the number of the new node. It may move the first block: pointers that node()
// gave are void afterwards.
func (x *index) add(n node) uint32 {
	id := uint32(x.n) //nolint:gosec // Limits.effective keeps the count below 2^31
	switch {
	case x.n == 0:
		x.blocks = append(x.blocks, nil)
	case x.n%blockSize == 0:
		x.blocks = append(x.blocks, make([]node, 0, blockSize))
	}
	last := len(x.blocks) - 1
	x.blocks[last] = append(x.blocks[last], n)
	x.n++
	return id
}

func (x *index) node(id uint32) *node { return &x.blocks[id/blockSize][id%blockSize] }

// document is a validated source with its index, whose members are in canonical order.
type document struct {
	src   []byte
	index index
	// size is at least the length of the canonical form, and exactly it up to escapes in
	// strings that have a shorter form.
	size int64
}

func (d *document) name(id uint32) []byte {
	n := d.index.node(id)
	return d.src[n.name:n.nameEnd]
}

// canonical writes the canonical form.
func (d *document) canonical() []byte { return d.appendValue(make([]byte, 0, d.size), 0) }

func (d *document) appendValue(dst []byte, id uint32) []byte {
	n := d.index.node(id)
	raw := d.src[n.at:n.end]
	switch raw[0] {
	case '{', '[':
		return d.appendChildren(dst, n)
	case '"':
		return appendString(dst, raw)
	case 't', 'f', 'n':
		return append(dst, raw...)
	default:
		dst, _ = appendNumber(dst, raw) // was accepted when it was read
		return dst
	}
}

func (d *document) appendChildren(dst []byte, parent *node) []byte {
	dst = append(dst, d.src[parent.at])
	for id := parent.first; id != 0; {
		child := d.index.node(id)
		if id != parent.first {
			dst = append(dst, ',')
		}
		if child.nameEnd != 0 {
			dst = append(appendString(dst, d.src[child.name:child.nameEnd]), ':')
		}
		dst = d.appendValue(dst, id)
		id = child.next
	}
	return append(dst, d.src[parent.end-1])
}
