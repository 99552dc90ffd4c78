package fleet

import "regexp"

// Names of objects are DNS labels (RFC 1123), unique per kind in a region, instances per site.
type (
	SiteName     string
	NodeName     string
	InstanceName string
	TemplateName string
	ProjectName  string
)

// Ids that the region gives out.
type (
	DeliveryID  string // 32 hex digits, the two internal endpoints call it deploymentId
	OperationID string // 32 hex digits
	Hash        string // SHA-256 in 64 hex digits
)

var (
	label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	hex64 = regexp.MustCompile(`^[0-9a-f]{64}$`)
	hex32 = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

const labelHint = "a name has 1 to 63 of a-z, 0-9 and '-', and starts and ends with a letter or digit"

// ValidateName refuses what is no DNS label; field is the place in the input.
func ValidateName(field, name string) error {
	if label.MatchString(name) {
		return nil
	}
	return Errorf(Invalid, "%.80q is not a name", name).At(field).WithHint(labelHint)
}

// ValidateHash refuses what is not 64 lower-case hex digits.
func ValidateHash(field string, h Hash) error {
	if hex64.MatchString(string(h)) {
		return nil
	}
	return Errorf(Invalid, "not a SHA-256 in 64 lower-case hex digits").At(field)
}

// ValidID says whether s has the form of a delivery or operation id.
func ValidID(s string) bool { return hex32.MatchString(s) }

// InstanceSubject is the id of an instance's entity workflow, and the name by which its
// outbox rows and operations know it.
func InstanceSubject(site SiteName, name InstanceName) string {
	return "instance." + string(site) + "." + string(name)
}

// NodeSubject is the id under which a node is reconciled, and the name by which its outbox
// rows and operations know it.
func NodeSubject(node NodeName) string { return "node." + string(node) }

// SiteSubject is the id under which a site's lease is moved, and the name by which its outbox
// rows and operations know it.
func SiteSubject(site SiteName) string { return "site." + string(site) }
