package agent_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/hex"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/wire"
)

const holdingPlan = onePlan + "inventory: {facts: true, resources: true}\n"

// runHeld executes a run that leaves facts and, if the server wants it, a catalog. The method waits until the agent
// has collected facts again.
func (l *lab) runHeld(f *facter, facts, catalog string) {
	l.t.Helper()
	l.ruby.does(func(p *puppet) tutti.Result {
		p.say(ask{"op": "hiera"})
		gate := p.say(ask{"op": "gate", "catalog": ask{"digest": tutti.DigestOf([]byte("catalog"))}})
		files := map[string]string{"facts.json": facts, "facts-held.json": facts}
		if gate.Holds {
			files["catalog-held.json"] = catalog
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
				l.t.Error(err)
			}
		}
		return changed()
	})
	f.set(facts)
	l.end(l.job())
	f.collected(l.t)
}

// held returns the parts that the agent has sent, in order, as text. A part that the node has left out is its reason.
func (l *lab) held(part tutti.InventoryPart) []string {
	l.t.Helper()
	var out []string
	for _, message := range l.line.payloads(wire.OpInventory) {
		in, content, err := wire.DecodeInventory(message)
		if err != nil {
			l.t.Fatal(err)
		}
		text := in.Left
		if in.Left == "" {
			r, err := gzip.NewReader(bytes.NewReader(content))
			if err != nil {
				l.t.Fatal(err)
			}
			raw, err := io.ReadAll(r)
			if err != nil {
				l.t.Fatal(err)
			}
			text = string(raw)
		}
		if in.Part == part {
			out = append(out, text)
		}
	}
	return out
}

func (l *lab) untilHeld(part tutti.InventoryPart, want ...string) {
	l.t.Helper()
	l.line.wait("the "+string(part)+" of the node", func() bool { return len(l.held(part)) >= len(want) })
	if diff := cmp.Diff(want, l.held(part)); diff != "" {
		l.t.Errorf("the %s: -want +sent\n%s", part, diff)
	}
}

// TestTheAgentSendsItsInventory: the agent sends facts and catalog once. It sends them again if they change, and to a
// server that does not have them.
func TestTheAgentSendsItsInventory(t *testing.T) {
	f := &facter{watch: t.TempDir(), collect: make(chan struct{}, 100)}
	use := func(o *agent.Options) { o.Facts, o.Beat = f, 10*time.Millisecond }
	l := newLab(t, nil)
	l.fleet.Push(holdingPlan)
	l.start(use)
	l.runHeld(f, `{"os":"one"}`, `{"resources":[1]}`)
	l.untilHeld(tutti.InventoryFacts, `{"os":"one"}`)
	l.untilHeld(tutti.InventoryCatalog, `{"resources":[1]}`)
	l.runHeld(f, `{"os":"one"}`, `{"resources":[2]}`)
	l.untilHeld(tutti.InventoryCatalog, `{"resources":[1]}`, `{"resources":[2]}`)
	l.runHeld(f, `{"os":"two"}`, `{"resources":[2]}`)
	l.untilHeld(tutti.InventoryFacts, `{"os":"one"}`, `{"os":"two"}`)
	l.untilHeld(tutti.InventoryCatalog, `{"resources":[1]}`, `{"resources":[2]}`)

	l.fleet.Push(onePlan) // the server lets the inventory go
	l.runHeld(f, `{"os":"three"}`, `{"resources":[3]}`)
	l.fleet.Push(holdingPlan)
	l.kill()
	l.start(use)
	l.untilHeld(tutti.InventoryFacts, `{"os":"one"}`, `{"os":"two"}`, `{"os":"three"}`)
	l.untilHeld(tutti.InventoryCatalog, `{"resources":[1]}`, `{"resources":[2]}`, `{"resources":[2]}`)
}

// TestALargeInventoryIsLeftOut: the agent sends the reason in place of a catalog that the server would not take.
func TestALargeInventoryIsLeftOut(t *testing.T) {
	noise := make([]byte, 5<<20)
	_, _ = rand.Read(noise) // never fails
	cases := map[string]string{
		"the node has more than 32 MiB of catalog":           strings.Repeat(" ", 32<<20+1),
		"the node has more than 4 MiB of compressed catalog": hex.EncodeToString(noise),
	}
	for _, left := range slices.Sorted(maps.Keys(cases)) {
		t.Run(left, func(t *testing.T) {
			f := &facter{watch: t.TempDir(), collect: make(chan struct{}, 100)}
			l := newLab(t, nil)
			l.fleet.Push(holdingPlan)
			l.start(func(o *agent.Options) { o.Facts, o.Beat = f, 10*time.Millisecond })
			l.runHeld(f, `{}`, cases[left])
			l.untilHeld(tutti.InventoryCatalog, left)
		})
	}
}
