package declaration

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// fleetDocuments are the documents of a group of instances, by their hash.
type fleetDocuments map[fleet.Hash][]byte

// read loads what fits into one chunk with one query; load reads what is larger.
func (c *fleetComposer) read(ctx context.Context, group []*fleetComposing) (fleetDocuments, error) {
	wanted := map[fleet.Hash]bool{}
	want := func(hash fleet.Hash, size int64) {
		if size <= postgres.ChunkSize {
			wanted[hash] = true
		}
	}
	if p := c.change.Patch; p != nil {
		want(p.Hash, p.Size)
	}
	for _, next := range group {
		for _, doc := range []*fleet.Content{next.change.Spec.Config, next.change.Spec.Overrides} {
			if doc != nil {
				want(doc.Hash, doc.Size)
			}
		}
		if _, made := c.bases[next.pin]; !made {
			for _, l := range c.chains[next.pin].layers {
				want(l.Hash, l.Size)
			}
		}
	}
	hashes := make([]fleet.Hash, 0, len(wanted))
	for hash := range wanted {
		hashes = append(hashes, hash)
	}
	docs, err := c.m.WholeBodies(ctx, hashes)
	return docs, err
}

func (d fleetDocuments) load(ctx context.Context, m *Maker, l Layer) ([]byte, error) {
	if text, ok := d[l.Hash]; ok {
		return text, nil
	}
	text, err := m.Load(ctx, l.Name, l.Hash)
	if err == nil {
		d[l.Hash] = text
	}
	return text, err
}

// keptBodies gathers bodies until they are stored together.
type keptBodies struct {
	m       *Maker
	seen    map[keptBody]bool
	pending []pendingBody
	size    int64
}

type keptBody struct {
	project fleet.ProjectName
	hash    fleet.Hash
}

type pendingBody struct {
	keptBody
	text []byte
}

// keep names a body that the next flush stores.
func (k *keptBodies) keep(project fleet.ProjectName, text []byte) fleet.Content {
	content := compose.ContentOf(text)
	body := keptBody{project, content.Hash}
	if !k.seen[body] {
		k.seen[body] = true
		k.pending = append(k.pending, pendingBody{body, text})
		k.size += content.Size
	}
	return content
}

// flush stores what was kept, of one project and at most fleetGroup bytes at a time.
func (k *keptBodies) flush(ctx context.Context) error {
	slices.SortStableFunc(k.pending, func(a, b pendingBody) int { return cmp.Compare(a.project, b.project) })
	for from := 0; from < len(k.pending); {
		to, size := from, 0
		var texts [][]byte
		var hashes []fleet.Hash
		for to < len(k.pending) && k.pending[to].project == k.pending[from].project {
			if size += len(k.pending[to].text); size > fleetGroup && to > from {
				break
			}
			texts, hashes = append(texts, k.pending[to].text), append(hashes, k.pending[to].hash)
			to++
		}
		if err := k.m.putBodies(ctx, k.pending[from].project, texts, hashes); err != nil {
			return err
		}
		from = to
	}
	k.pending, k.size = nil, 0
	return nil
}
