package data

import (
	"encoding/json"
	"testing"

	"github.com/tutti-project/tutti"
)

// An ENC may give another answer each time. The state keeps only the answers that a node has now.
func TestFormerAnswersAreForgotten(t *testing.T) {
	s := NewState()
	classify := func(node tutti.NodeName, class string) {
		c := &tutti.Classification{Classes: map[string]json.RawMessage{class: json.RawMessage("null")}}
		s.Apply(tutti.Event{Seq: s.seq + 1, Body: &tutti.NodeClassified{Node: node, Classification: c}})
	}
	for _, class := range []string{"a", "b", "c", "c"} {
		classify("one", class)
		classify("two", class)
	}
	SetGroups(s, "one", nil)
	if len(s.ownAnswers) != 2 || len(s.owns) != 3 {
		t.Errorf("%d answers of %d, want 2 of 3", len(s.ownAnswers), len(s.owns))
	}
	for _, node := range []tutti.NodeName{"one", "two"} {
		s.Apply(tutti.Event{Seq: s.seq + 1, Body: &tutti.NodeRemoved{Node: node}})
	}
	if len(s.ownAnswers) != 0 || len(s.owns) != 0 {
		t.Errorf("%d answers of %d after the nodes were removed", len(s.ownAnswers), len(s.owns))
	}
}
