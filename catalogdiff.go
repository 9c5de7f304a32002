package tutti

import "regexp"

// CatalogDiff is the difference between the catalogs of two compiles on one node (ADR 0038).
type CatalogDiff struct {
	Changes []CatalogChange `json:"changes"`          // sorted by resource and parameter
	Left    int             `json:"left,omitempty"`   // how many more changes there are
	Before  RunID           `json:"before,omitempty"` // the two compiles
	After   RunID           `json:"after,omitempty"`
}

// CatalogChange is one difference between two catalogs.
type CatalogChange struct {
	Kind ChangeKind `json:"change"`
	// Resource is a reference such as File[/etc/motd]. Resource is empty if the change is not about one resource.
	Resource string `json:"resource,omitempty"`
	// Parameter is empty if the whole resource was added or removed.
	Parameter string `json:"parameter,omitempty"`
	// Text says for people what changed, in lines. Text is empty if the other fields say everything.
	Text string `json:"text,omitempty"`
	// Sensitive is true if the value is not shown, because it is or may contain a secret.
	Sensitive bool `json:"sensitive,omitempty"`
}

// ChangeKind is the kind of a difference between two catalogs.
type ChangeKind string

// The kinds.
const (
	ChangeAdded   ChangeKind = "added"
	ChangeRemoved ChangeKind = "removed"
	ChangeChanged ChangeKind = "changed"
)

// ChangeKinds are all kinds.
var ChangeKinds = []ChangeKind{ChangeAdded, ChangeRemoved, ChangeChanged}

// Bounds of a CatalogDiff, so that it fits into a RemoteReply.
const (
	MaxCatalogChanges = 500
	MaxChangeText     = 2 << 10  // bytes of one text
	MaxCatalogDiff    = 96 << 10 // bytes of all texts
)

// ContentUnknown is the text of a difference between equal catalogs whose files nobody could compare.
const ContentUnknown = "the catalogs are equal; the content of files that they name is not known"

// ServedQuestion asks a node to compare catalogs that its Puppet Server would compile for nodes in two environments (ADR
// 0038). The node must not store anything.
type ServedQuestion struct {
	A     string     `json:"a"` // an environment
	B     string     `json:"b"`
	Nodes []NodeName `json:"nodes"`
}

// MaxServed bounds the nodes of a ServedQuestion.
const MaxServed = 10

var servedEnvironmentRE = regexp.MustCompile(`^[a-z0-9_]{1,100}$`)

// Validate refuses names that are not environments or nodes.
func (q ServedQuestion) Validate() error {
	for _, name := range []string{q.A, q.B} {
		if !servedEnvironmentRE.MatchString(name) {
			return Errorf(CodeInvalid, "%q is not the name of an environment: lower-case letters, digits and '_' only, as in Puppet", name)
		}
	}
	if len(q.Nodes) == 0 || len(q.Nodes) > MaxServed {
		return Errorf(CodeInvalid, "a comparison of %d nodes: at least 1 and at most %d", len(q.Nodes), MaxServed)
	}
	for _, n := range q.Nodes {
		if err := n.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// ServedDiff is the comparison for one node. If an environment did not compile for the node, Failed has the reason, and
// Diff is nil.
type ServedDiff struct {
	Node   NodeName          `json:"node"`
	Diff   *CatalogDiff      `json:"diff,omitempty"`
	Failed map[string]string `json:"failed,omitempty"` // by environment
}
