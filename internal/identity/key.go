// Package identity is how a node proves who it is and opens what is sealed to it, and how
// both sides make and compare random tokens.
package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/crypto/curve25519"
	"golang.org/x/crypto/nacl/box"

	"github.com/holdfast-io/holdfast/internal/durable"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Key is a node's secret half. It lies beside the store and not in it, so that a lost
// store is rebuilt under the same identity. While it is changed there are two halves, see
// rotate.go.
type Key struct {
	node   fleet.NodeName
	region string
	half
	next    *half     // offered to the region, or about to be
	retired *[32]byte // sealing key of before the last change
	// commands are the region's public keys: what they did not sign, the node does not act on.
	commands []ed25519.PublicKey
}

// half is what a change of the key replaces.
type half struct {
	signing ed25519.PrivateKey
	sealing [32]byte
}

// keyFile is the JSON of node.key.
type keyFile struct {
	Node   fleet.NodeName `json:"node"`
	Region string         `json:"region,omitempty"` // set once the region enrolled this key
	halfFile
	Next    *halfFile `json:"next,omitempty"`
	Retired []byte    `json:"retired,omitempty"`
	// Commands are public, and here because the file is the node's to write alone.
	Commands [][]byte `json:"commands,omitempty"`
}

// halfFile has the Ed25519 seed and the X25519 private key, both base64.
type halfFile struct {
	Signing []byte `json:"signing"`
	Sealing []byte `json:"sealing"`
}

// Generate makes a new key for a node.
func Generate(node fleet.NodeName) (Key, error) {
	h, err := generate()
	return Key{node: node, half: h}, err
}

func generate() (half, error) {
	_, signing, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return half{}, fmt.Errorf("generate signing key: %w", err)
	}
	_, sealing, err := box.GenerateKey(rand.Reader)
	if err != nil {
		return half{}, fmt.Errorf("generate sealing key: %w", err)
	}
	return half{signing: signing, sealing: *sealing}, nil
}

// Load reads a key file; one that others may read is refused, a missing one is not_found.
func Load(path string) (Key, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Key{}, fleet.Errorf(fleet.NotFound, "no node key at %s", path)
	}
	if err != nil {
		return Key{}, fmt.Errorf("look at node key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Key{}, fleet.Errorf(fleet.Denied, "node key %s is readable by others", path).
			WithHint("chmod 600 it, and rotate the key if others may have read it")
	}
	raw, err := os.ReadFile(path) //nolint:gosec // the path is the node's own configuration
	if err != nil {
		return Key{}, fmt.Errorf("read node key: %w", err)
	}
	return parse(path, raw)
}

// parse never quotes the file: what is broken about it may still be a secret.
func parse(path string, raw []byte) (Key, error) {
	var f keyFile
	if json.Unmarshal(raw, &f) != nil || !f.whole() || f.Next != nil && !f.Next.whole() || len(f.Retired) != 0 && len(f.Retired) != 32 {
		return Key{}, fleet.Errorf(fleet.Invalid, "node key %s is damaged", path).
			WithHint("remove it and enrol the node again, which revokes the old key")
	}
	k := Key{node: f.Node, region: f.Region, half: f.half()}
	if f.Next != nil {
		next := f.Next.half()
		k.next = &next
	}
	if len(f.Retired) == 32 {
		k.retired = (*[32]byte)(f.Retired)
	}
	return k.Commanded(f.Commands), nil
}

func (f halfFile) whole() bool { return len(f.Signing) == ed25519.SeedSize && len(f.Sealing) == 32 }

func (f halfFile) half() half {
	h := half{signing: ed25519.NewKeyFromSeed(f.Signing)}
	copy(h.sealing[:], f.Sealing)
	return h
}

func (h half) file() halfFile { return halfFile{Signing: h.signing.Seed(), Sealing: h.sealing[:]} }

// Save writes the key with mode 0600, whole or not at all.
func (k Key) Save(path string) error {
	f := keyFile{Node: k.node, Region: k.region, halfFile: k.file()}
	if k.next != nil {
		next := k.next.file()
		f.Next = &next
	}
	if k.retired != nil {
		f.Retired = k.retired[:]
	}
	for _, key := range k.commands {
		f.Commands = append(f.Commands, key)
	}
	raw, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode node key: %w", err)
	}
	return durable.WriteFile(path, raw)
}

// Node is the name that the key signs for.
func (k Key) Node() fleet.NodeName { return k.node }

// Region is the region that enrolled the key, "" when none did yet.
func (k Key) Region() string { return k.region }

// Enrolled gives the key as it is after a region took it.
func (k Key) Enrolled(region string) Key { k.region = region; return k }

// CommandKeys are the public keys of the region that signs this node's commands.
func (k Key) CommandKeys() []ed25519.PublicKey { return k.commands }

// Commanded gives the key with other public keys of the region; what is no key is left out.
func (k Key) Commanded(keys [][]byte) Key {
	k.commands = nil
	for _, key := range keys {
		if len(key) == ed25519.PublicKeySize {
			k.commands = append(k.commands, key)
		}
	}
	return k
}

// CommandedAs gives the key with another's public keys of the region.
func (k Key) CommandedAs(other Key) Key { k.commands = other.commands; return k }

// SameCommands says that two keys take the same commands.
func (k Key) SameCommands(other Key) bool {
	return slices.EqualFunc(k.commands, other.commands, func(a, b ed25519.PublicKey) bool { return a.Equal(b) })
}

// SigningPublic is the half that verifies this node's tokens.
func (h half) SigningPublic() ed25519.PublicKey {
	return ed25519.PublicKey(append([]byte(nil), h.signing[ed25519.SeedSize:]...))
}

// SealingPublic is the half that tokens for this node are sealed to.
func (h half) SealingPublic() (*[32]byte, error) { return sealingPublic(&h.sealing) }

func sealingPublic(sealing *[32]byte) (*[32]byte, error) {
	raw, err := curve25519.X25519(sealing[:], curve25519.Basepoint)
	if err != nil {
		return nil, fmt.Errorf("derive sealing key: %w", err)
	}
	var pub [32]byte
	copy(pub[:], raw)
	return &pub, nil
}

// String keeps the secret out of logs.
func (k Key) String() string { return "key of " + string(k.node) }

// GoString keeps the secret out of %#v.
func (k Key) GoString() string { return k.String() }

// EncodePublic gives a public half as the base64 text that travels.
func EncodePublic(half []byte) string { return base64.StdEncoding.EncodeToString(half) }

// DecodePublic reads a public half of 32 bytes, signing or sealing.
func DecodePublic(field, text string) (*[32]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != 32 {
		return nil, fleet.Errorf(fleet.Invalid, "not a public key of 32 bytes in base64").At(field)
	}
	var half [32]byte
	copy(half[:], raw)
	return &half, nil
}
