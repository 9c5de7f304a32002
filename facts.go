package tutti

// FactsSeen says which facts a node has. The agent collects the facts after a run, with the node's
// settings. Facts themselves stay on the node.
type FactsSeen struct {
	Run   RunID  `json:"run"`
	Facts Digest `json:"facts"` // Facts is the digest of all facts except those that the run's order lists as volatile.
	// Changed lists the names of facts that differ from the facts of the run's compile. The list is
	// sorted and has at most MaxFactsNamed names.
	Changed []string `json:"changed,omitempty"`
}

// These constants bound what a node reports about its facts.
const (
	MaxFactsNamed = 10
	maxFactName   = 200 // bytes
)

// Validate refuses values that no agent sends.
func (f FactsSeen) Validate() error {
	if err := f.Run.Validate(); err != nil {
		return err
	}
	if len(f.Changed) > MaxFactsNamed {
		return Errorf(CodeInvalid, "facts: %d names, at most %d", len(f.Changed), MaxFactsNamed)
	}
	for _, name := range f.Changed {
		if name == "" || len(name) > maxFactName {
			return Errorf(CodeInvalid, "facts: a name of %d bytes, at most %d", len(name), maxFactName)
		}
	}
	return Wrap(CodeInvalid, f.Facts.Validate(), "facts")
}
