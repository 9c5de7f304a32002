package tutti

import "fmt"

// Owed is a refresh that a run has triggered and that no run has done since then (ADR 0029). Puppet
// forgets such a refresh, because the next run of Puppet finds that the change is already made.
type Owed struct {
	Resource string `json:"resource"`
	Run      RunID  `json:"run"` // the first run that owes the refresh
}

// Owes returns a line that names the owed refreshes. The line is empty if there are no owed refreshes.
func (r Result) Owes() string {
	if len(r.Owed) == 0 {
		return ""
	}
	text := fmt.Sprintf("refresh of %s is owed since run %s", InLine(r.Owed[0].Resource), r.Owed[0].Run)
	if more := len(r.Owed) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// validOwed checks the owed refreshes that a node reports.
func (r Result) validOwed() error {
	if len(r.Owed) > MaxFailures {
		return Errorf(CodeInvalid, "result of run %s: %d owed refreshes, at most %d", r.Run, len(r.Owed), MaxFailures)
	}
	for _, o := range r.Owed {
		if err := o.Run.Validate(); err != nil || o.Resource == "" {
			return Errorf(CodeInvalid, "result of run %s: owed refresh of resource %q since run %q", r.Run, o.Resource, string(o.Run))
		}
	}
	return nil
}
