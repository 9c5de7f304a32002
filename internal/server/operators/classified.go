package operators

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/internal/server/core"
)

// Classified stores the answers of the site's ENC.
type Classified struct{ *Operators }

// Classified returns the nodes about which the ENC is asked, and the nodes that have an answer. The value says whether
// there is an answer.
func (s Classified) Classified(ctx context.Context) (map[tutti.NodeName]bool, error) {
	out := map[tutti.NodeName]bool{}
	err := s.Look(ctx, func(v explain.View) error {
		for name, n := range v.Registry.Nodes {
			// A step may run a node of a Puppet Server with `puppet apply`.
			if n.Classified != nil || v.WhyObserved(name) == "" {
				out[name] = n.Classified != nil
			}
		}
		return nil
	})
	return out, err
}

// Classify stores an answer. Only another answer than before is an event. A nil answer says that there is no ENC any
// more.
func (s Classified) Classify(ctx context.Context, node tutti.NodeName, answer *tutti.Classification) error {
	if answer != nil {
		if err := answer.Validate(); err != nil {
			return err
		}
	}
	is, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	err = s.Do(ctx, func(tx *core.Tx) error {
		n := tx.Registry.Nodes[node]
		if n == nil { // the node was removed meanwhile
			return nil
		}
		was, err := json.Marshal(n.Classified)
		if err == nil && string(was) != string(is) {
			tx.Emit(core.ActorServer, &tutti.NodeClassified{Node: node, Classification: answer})
		}
		return err
	})
	if err == nil && answer != nil {
		presence.Classified(s.Presence, node, time.Now(), nil)
	}
	return err
}

// Unclassified notes that the ENC has given no answer. The last answer stays.
func (s Classified) Unclassified(node tutti.NodeName, cause error) {
	presence.Classified(s.Presence, node, time.Now(), cause)
}
