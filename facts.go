package tutti

// FactsSeen says which facts a node has, collected after a run and by its settings.
// Facts themselves stay on the node.
type FactsSeen struct {
	Run   RunID  `json:"run"`
	Facts Digest `json:"facts"` // without the volatile ones of the run's order
	// Changed are the names of those that are not what the run compiled with, sorted, at most
	// MaxFactsNamed.
	Changed []string `json:"changed,omitempty"`
}

// Bounds of what a node says of its facts.
const (
	MaxFactsNamed = 10
	maxFactName   = 200 // bytes
)

// Validate refuses what no agent says.
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
