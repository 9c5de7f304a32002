package tutti

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
