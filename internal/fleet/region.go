package fleet

import (
	"crypto/ed25519"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// KindRegion is a region as it declares itself.
const KindRegion ObjectKind = "region"

// RegionName names a region.
type RegionName string

// RegionKey names a region's object.
func RegionKey(name RegionName) ObjectKey { return ObjectKey{Kind: KindRegion, Name: string(name)} }

// RegionSpec is what a region declares of itself when a server starts.
type RegionSpec struct {
	Location string `json:"location,omitempty"`
	// LocalNetworkID names the network that the region shares with others nearby.
	LocalNetworkID string `json:"localNetworkId,omitempty"`
	// APIURL is where users reach the API, as the region says; "" if it does not say.
	APIURL  string        `json:"apiUrl,omitempty"`
	Version RegionVersion `json:"version"`
}

// RegionVersion is what a region serves and stores.
type RegionVersion struct {
	API  string `json:"api"`
	Data string `json:"data"`
}

// RegionAbout is what a region tells its peers of itself: what it declares, and how many of its servers run which build.
type RegionAbout struct {
	// UID and Generation are those of its object there; a region of an earlier version names none.
	UID        string         `json:"uid,omitempty"`
	Generation int64          `json:"generation,omitempty"`
	Spec       RegionSpec     `json:"spec"`
	Builds     map[string]int `json:"builds,omitempty"`
}

const (
	maxRegionText   = 200
	maxRegionBuilds = 100
)

// Validate bounds what a peer tells.
func (a RegionAbout) Validate() error {
	if len(a.Builds) > maxRegionBuilds {
		return Errorf(Invalid, "%d builds given; the limit is %d", len(a.Builds), maxRegionBuilds).At("/builds")
	}
	texts := a.UID + a.Spec.Version.API + a.Spec.Version.Data + a.Spec.Location + a.Spec.LocalNetworkID + a.Spec.APIURL
	for build := range a.Builds {
		texts += build
	}
	if len(texts) > maxRegionText*maxRegionBuilds || strings.ContainsRune(texts, 0) {
		return Errorf(Invalid, "the texts are too long, or have a NUL character")
	}
	return a.Spec.Validate()
}

// Validate limits the texts, and checks the form of the URL.
func (s RegionSpec) Validate() error {
	for _, t := range []struct{ field, text string }{{"/location", s.Location}, {"/localNetworkId", s.LocalNetworkID}} {
		if len(t.text) > maxRegionText {
			return Errorf(Invalid, "the text has %d bytes; the limit is %d", len(t.text), maxRegionText).At(t.field)
		}
	}
	if u, err := url.Parse(s.APIURL); s.APIURL != "" && (err != nil || len(s.APIURL) > maxAddress || u.Host == "" ||
		u.Scheme != "https" && u.Scheme != "http" || u.String() != u.Scheme+"://"+u.Host+u.EscapedPath()) {
		return Errorf(Invalid, "invalid URL of the API %.80q: want https://HOST:PORT", s.APIURL).At("/apiUrl")
	}
	return nil
}

// MemberRecord is what members pass on about a region. The member that admitted the region signed its name and key;
// the region itself signed its address. Of each part, the higher number is the newer one.
type MemberRecord struct {
	Name       RegionName        `json:"name"`
	Key        ed25519.PublicKey `json:"key"`
	Number     int64             `json:"number"`
	AdmittedBy RegionName        `json:"admittedBy"`
	Admission  []byte            `json:"admission"`

	Address          string `json:"address"`
	AddressNumber    int64  `json:"addressNumber"`
	AddressSignature []byte `json:"addressSignature"`
}

// RegionMember is a record with what this region decided about it.
type RegionMember struct {
	MemberRecord
	Self, Disabled, Removed bool
}

// Validate checks the form of a record; the signatures are checked separately.
func (r MemberRecord) Validate() error {
	if err := ValidateName("/name", string(r.Name)); err != nil {
		return err
	}
	if len(r.Key) != ed25519.PublicKeySize || r.Number < 1 || r.AddressNumber < 1 {
		return Errorf(Invalid, "invalid record of region %s: want a key of %d bytes and numbers from 1", r.Name, ed25519.PublicKeySize)
	}
	return ValidatePeerAddress("/address", r.Address)
}

const maxAddress = 300

// ValidatePeerAddress checks where a region is reached by its peers: https://HOST:PORT.
func ValidatePeerAddress(field, address string) error {
	u, err := url.Parse(address)
	if err != nil || len(address) > maxAddress || u.Scheme != "https" || u.Host == "" || u.String() != "https://"+u.Host {
		return badPeerAddress(field, address)
	}
	host, port, err := net.SplitHostPort(u.Host)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || host == "" || n == 0 {
		return badPeerAddress(field, address)
	}
	return nil
}

func badPeerAddress(field, address string) error {
	return Errorf(Invalid, "invalid peer address %.80q: want https://HOST:PORT", address).At(field).
		WithHint("give the address of the other region's --peers listener")
}

// What is signed begins with its kind and version, so that no signature of another kind fits.
const (
	admissionVersion = "holdfast-region-admission/1"
	addressVersion   = "holdfast-region-address/1"
)

// SignAdmission has a member vouch for the name and key of a region.
func (r MemberRecord) SignAdmission(by RegionName, key ed25519.PrivateKey) MemberRecord {
	r.AdmittedBy = by
	r.Admission = ed25519.Sign(key, r.admission())
	return r
}

// AdmissionBy reports whether the holder of a key signed the name and key of this record.
func (r MemberRecord) AdmissionBy(key ed25519.PublicKey) bool {
	return len(key) == ed25519.PublicKeySize && ed25519.Verify(key, r.admission(), r.Admission)
}

// SignAddress has the region itself state its address.
func (r MemberRecord) SignAddress(key ed25519.PrivateKey) MemberRecord {
	r.AddressSignature = ed25519.Sign(key, r.address())
	return r
}

// OwnAddress reports whether the region itself signed the address.
func (r MemberRecord) OwnAddress() bool {
	return len(r.Key) == ed25519.PublicKeySize && ed25519.Verify(r.Key, r.address(), r.AddressSignature)
}

func (r MemberRecord) admission() []byte {
	return signedTerms(admissionVersion, string(r.Name), string(r.Key), strconv.FormatInt(r.Number, 10), string(r.AdmittedBy))
}

func (r MemberRecord) address() []byte {
	return signedTerms(addressVersion, string(r.Name), string(r.Key), strconv.FormatInt(r.AddressNumber, 10), r.Address)
}

// signedTerms puts each term after its length, so that no two records read alike.
func signedTerms(terms ...string) []byte {
	var out []byte
	for _, t := range terms {
		out = strconv.AppendInt(out, int64(len(t)), 10)
		out = append(append(append(out, ':'), t...), '\n')
	}
	return out
}
