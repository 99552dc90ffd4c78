package compose

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// parser validates one document and fills its index. Duplicate names are found where the
// members are sorted, which spares the tokenizer's set of all names.
type parser struct {
	document
	tokens  *jsontext.Decoder
	limits  Limits
	wrong   int64    // the offset of what was refused
	number  []byte   // scratch for one canonical number
	members []uint32 // scratch for sorting one object
}

func parse(src []byte, l Limits) (*document, error) {
	if int64(len(src)) > l.MaxBytes {
		return nil, refuseSize(int64(len(src)), l.MaxBytes)
	}
	p := &parser{
		document: document{src: src},
		// From a bytes.Buffer the decoder reads in place, without a copy.
		tokens: jsontext.NewDecoder(bytes.NewBuffer(src), jsontext.AllowDuplicateNames(true)),
		limits: l,
	}
	_, err := p.value(node{}, 0)
	if err == nil {
		err = p.ends()
	}
	var e *fleet.Error
	if errors.As(err, &e) {
		return nil, &refused{e, p.wrong}
	}
	return &p.document, err
}

// ends refuses what follows the document.
func (p *parser) ends() error {
	end := p.tokens.InputOffset()
	if _, err := p.tokens.ReadToken(); errors.Is(err, io.EOF) {
		return nil
	}
	p.wrong = end + int64(len(p.src[end:])-len(bytes.TrimLeft(p.src[end:], " \t\r\n")))
	if comment(p.src, p.wrong) {
		return refuseComment("", p.wrong)
	}
	return refuseAt("", "malformed JSON: there is more after the document's end at byte %d", end).
		WithHint("send one JSON document")
}

// value reads one value within depth containers into n, and gives its number.
func (p *parser) value(n node, depth int) (uint32, error) {
	if k := p.tokens.PeekKind(); k == jsontext.KindBeginObject || k == jsontext.KindBeginArray {
		return p.container(n, depth+1)
	}
	raw, err := p.tokens.ReadValue()
	if err != nil {
		return 0, p.malformed(err)
	}
	size := len(raw)
	if raw.Kind() == jsontext.KindNumber {
		if p.number, err = appendNumber(p.number[:0], raw); err != nil {
			p.wrong = p.tokens.InputOffset() - int64(len(raw))
			return 0, refuseAt(p.tokens.StackPointer(), "%s", err.Error()).
				WithHint(ByteForByte)
		}
		size = len(p.number)
	}
	n.at, n.end = p.span(raw)
	return p.add(n, size)
}

// add counts a value, and its share of the canonical form.
func (p *parser) add(n node, size int) (uint32, error) {
	if p.index.n >= p.limits.MaxValues {
		p.wrong = int64(n.at)
		return 0, refuseValues(p.tokens.StackPointer(), p.limits.MaxValues)
	}
	p.size += int64(size)
	return p.index.add(n), nil
}

// children are the values of a container while it is read.
type children struct {
	parent uint32
	object bool
	depth  int
	last   uint32
	count  int
	sorted bool
}

func (p *parser) container(n node, depth int) (uint32, error) {
	open, err := p.tokens.ReadToken()
	if err != nil {
		return 0, p.malformed(err)
	}
	if depth > p.limits.MaxDepth {
		p.wrong = p.tokens.InputOffset() - 1
		return 0, refuseAt(p.tokens.StackPointer(), "nested deeper than %d levels", p.limits.MaxDepth)
	}
	n.at = offset32(p.tokens.InputOffset() - 1)
	id, err := p.add(n, len("{}"))
	if err != nil {
		return 0, err
	}
	kids := children{parent: id, object: open.Kind() == jsontext.KindBeginObject, depth: depth, sorted: true}
	for !p.atEnd() {
		if err := p.child(&kids); err != nil {
			return 0, err
		}
	}
	if _, err := p.tokens.ReadToken(); err != nil {
		return 0, p.malformed(err)
	}
	p.index.node(id).end = offset32(p.tokens.InputOffset())
	p.size += int64(max(kids.count-1, 0)) // commas
	if kids.sorted {
		return id, nil
	}
	return id, p.sort(id, kids.count)
}

func (p *parser) atEnd() bool {
	k := p.tokens.PeekKind()
	return k == jsontext.KindEndObject || k == jsontext.KindEndArray
}

// child reads the next member or element and links it behind the one before.
func (p *parser) child(kids *children) error {
	var n node
	if kids.object {
		name, err := p.tokens.ReadValue()
		if err != nil {
			return p.malformed(err)
		}
		n.name, n.nameEnd = p.span(name)
		p.size += int64(len(name)) + int64(len(":"))
	}
	id, err := p.value(n, kids.depth)
	if err != nil {
		return err
	}
	if kids.count == 0 {
		p.index.node(kids.parent).first = id
	} else {
		if kids.object && kids.sorted {
			kids.sorted = compareNames(p.name(kids.last), p.name(id)) < 0
		}
		p.index.node(kids.last).next = id
	}
	kids.last = id
	kids.count++
	return nil
}

// sort puts the members of an object into canonical order, where equal names meet.
func (p *parser) sort(object uint32, count int) error {
	p.members = slices.Grow(p.members[:0], count)
	for id := p.index.node(object).first; id != 0; id = p.index.node(id).next {
		p.members = append(p.members, id)
	}
	slices.SortFunc(p.members, func(a, b uint32) int { return compareNames(p.name(a), p.name(b)) })
	last := &p.index.node(object).first
	for i, id := range p.members {
		if i > 0 && compareNames(p.name(p.members[i-1]), p.name(id)) == 0 {
			return p.duplicate(id)
		}
		*last = id
		last = &p.index.node(id).next
	}
	*last = 0
	return nil
}

// duplicate is called with the decoder just behind the object.
func (p *parser) duplicate(id uint32) error {
	name, err := jsontext.AppendUnquote(nil, p.name(id))
	if err != nil {
		return p.malformed(err)
	}
	p.wrong = int64(p.index.node(id).name)
	at := p.tokens.StackPointer().AppendToken(string(name))
	return refuseAt(at, "duplicate key").WithHint("keep one of the two")
}

func (p *parser) malformed(err error) error {
	p.wrong = p.tokens.InputOffset()
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		p.wrong = syntax.ByteOffset
	}
	return refuseText(err, p.src, p.wrong)
}

// span says where in the source the value lies that was just read.
func (p *parser) span(raw jsontext.Value) (at, end uint32) {
	offset := p.tokens.InputOffset()
	return offset32(offset - int64(len(raw))), offset32(offset)
}

func offset32(n int64) uint32 {
	return uint32(n) //nolint:gosec // Limits.effective keeps documents below 4 GiB
}
