package converge_test

import (
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

// The method `cancelled` starts a proof of node a with the present code. The proof compiles and is cancelled at its
// gate.
func (s *sim) cancelled(catalog string) {
	s.ids++
	id := tutti.RunID("00000000-0000-0000-0003-00000000000" + string(rune('0'+s.ids%10)))
	s.append(&tutti.RunWanted{Order: tutti.Order{Run: id, Node: "a", Mode: tutti.ModeApply, Proof: true, Code: s.code, Environment: "production"}})
	s.append(&tutti.RunClaimed{Run: id, Node: "a"})
	if catalog != "" {
		s.append(&tutti.RunCompiled{Run: id, Reads: &tutti.Questions{}, CatalogReport: tutti.CatalogReport{Catalog: tutti.DigestOf([]byte(catalog))}})
		s.append(&tutti.RunGated{Run: id, Verdict: tutti.GateStop, Reason: "cancelled"})
	}
	s.append(&tutti.RunFinished{Result: tutti.Result{Run: id, Stopped: true, StartedAt: s.now, EndedAt: s.now}})
}

// TestAProofThatShowedAnotherCatalog: a proof that has shown another catalog is
// cancelled. The cancelled proof does not make its node good.
func TestAProofThatShowedAnotherCatalog(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": reads()})
	s.all(first)
	s.needs(t, "it has run", converge.Nothing)
	s.now = s.now.Add(time.Minute)
	s.cancelled("another")
	s.needs(t, "a proof has shown another catalog", converge.Apply)
	s.cancelled("")
	s.needs(t, "another one was cancelled before it compiled", converge.Apply)
	s.all(first)
	s.needs(t, "it has run again", converge.Nothing)
}
