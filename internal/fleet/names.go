package fleet

// Names of objects are DNS labels (RFC 1123), unique per kind in a region, instances per site.
type (
	SiteName     string
	NodeName     string
	InstanceName string
	TemplateName string
	ProjectName  string
)

// DefaultProject is the project whose objects all projects share.
const DefaultProject ProjectName = "default"

// Uses reports whether objects of this project may refer to objects of another, and run there.
func (p ProjectName) Uses(other ProjectName) bool { return other == p || other == DefaultProject }

// Ids that the region assigns.
type (
	DeliveryID  string // 32 hex digits; the two internal endpoints call it deploymentId
	OperationID string // 32 hex digits
	Hash        string // SHA-256 in 64 hex digits
)

const labelHint = "a name has 1 to 63 of a-z, 0-9 and '-', and starts and ends with a letter or digit"

// ValidateName rejects what is not a DNS label; field is the place in the input.
func ValidateName(field, name string) error {
	if isLabel(name) {
		return nil
	}
	return Errorf(Invalid, "%.80q is not a name", name).At(field).WithHint(labelHint)
}

// ValidateHash rejects what is not 64 lower-case hex digits.
func ValidateHash(field string, h Hash) error {
	if isHex(string(h), 64) {
		return nil
	}
	return Errorf(Invalid, "invalid SHA-256: want 64 lower-case hex digits").At(field)
}

// ValidID reports whether s has the form of a delivery or operation id.
func ValidID(s string) bool { return isHex(s, 32) }

// isHex avoids a regular expression, because a batch calls it thousands of times.
func isHex(s string, digits int) bool {
	if len(s) != digits {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func isLabel(s string) bool {
	if len(s) < 1 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '-' {
			return false
		}
	}
	return true
}
