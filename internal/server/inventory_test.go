package server_test

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

const holdsAll = everyFleet + "inventory: {facts: true, resources: true}\n"

// The function `hold` lets a node send a part of its inventory.
func hold(t testing.TB, n *servertest.Node, part tutti.InventoryPart, content string, change ...func(*wire.Inventory)) error {
	t.Helper()
	in := wire.Inventory{Part: part, Held: tutti.Held{
		Blob: tutti.DigestOf([]byte(content)), State: tutti.DigestOf([]byte(content)), At: time.Now().UTC(), Environment: "production",
	}}
	for _, f := range change {
		f(&in)
	}
	message, err := wire.EncodeInventory(in, []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.Fleet.Handle(wire.WithTicket(t.Context(), n.Ticket), n.Key, wire.OpInventory, message)
	return err
}

func mustHold(t testing.TB, n *servertest.Node, part tutti.InventoryPart, content string) {
	t.Helper()
	if err := hold(t, n, part, content); err != nil {
		t.Fatal(err)
	}
}

// The function `wanted` returns what the answer to a claim says about the inventory.
func wanted(t *testing.T, n *servertest.Node) map[tutti.InventoryPart]tutti.Digest {
	t.Helper()
	var out wire.Claimed
	if err := n.Call(wire.OpClaim, wire.Claim{Version: "1", Knows: tutti.Capabilities()}, &out); err != nil {
		t.Fatal(err)
	}
	if out.Inventory == nil {
		return nil
	}
	return out.Inventory.Parts
}

func TestTheServerHoldsTheLastInventory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t)
		web := p.Join("web-01")
		kept := func(reason string, want map[string]bool) {
			t.Helper()
			time.Sleep(2 * time.Hour)
			if err := p.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for content := range want {
				has, err := p.Blobs.Has(t.Context(), tutti.DigestOf([]byte(content)))
				if err != nil {
					t.Fatal(err)
				}
				got[content] = has
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: -want +kept\n%s", reason, diff)
			}
		}
		asks := func(reason string, want map[tutti.InventoryPart]tutti.Digest) {
			t.Helper()
			if diff := cmp.Diff(want, wanted(t, p.db)); diff != "" {
				t.Errorf("%s: -want +wanted\n%s", reason, diff)
			}
		}
		digest := func(text string) tutti.Digest { return tutti.DigestOf([]byte(text)) }

		p.Push(everyFleet)
		asks("a fleet file without the key", nil)
		wantCode(t, hold(t, p.db, tutti.InventoryFacts, "unasked"), tutti.CodeRefused, "does not ask")

		setFleet(t, p.Fleet, holdsAll)
		asks("nothing is held", map[tutti.InventoryPart]tutti.Digest{tutti.InventoryFacts: "", tutti.InventoryCatalog: ""})
		mustHold(t, p.db, tutti.InventoryFacts, "one")
		mustHold(t, p.db, tutti.InventoryFacts, "two")
		mustHold(t, p.db, tutti.InventoryCatalog, "catalog")
		mustHold(t, web, tutti.InventoryFacts, "web")
		asks("the last content is held", map[tutti.InventoryPart]tutti.Digest{tutti.InventoryFacts: digest("two"), tutti.InventoryCatalog: digest("catalog")})
		kept("replaced content goes", map[string]bool{"unasked": false, "one": false, "two": true, "catalog": true, "web": true})

		if err := p.RemoveNode(servertest.Operator(), "web-01"); err != nil {
			t.Fatal(err)
		}
		kept("the inventory goes with its node", map[string]bool{"two": true, "catalog": true, "web": false})

		setFleet(t, p.Fleet, everyFleet+"inventory: {resources: true}\n")
		setFleet(t, p.Fleet, holdsAll)
		asks("facts were dropped", map[tutti.InventoryPart]tutti.Digest{tutti.InventoryFacts: "", tutti.InventoryCatalog: digest("catalog")})
		kept("dropped content goes", map[string]bool{"two": false, "catalog": true})
	})
}

func TestAHostileInventory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		p := startPast(t, func(o *server.Options) {
			o.Space = func() error {
				if full.Load() {
					return tutti.Errorf(tutti.CodeUnavailable, "the disk is full")
				}
				return nil
			}
		})
		p.Push(holdsAll)
		web := p.Join("web-01")
		p.Join("db-02")
		p.Start("deploy", tutti.ModeApply)
		run := p.db.MustClaim().Run
		for _, tc := range []struct {
			reason string
			node   *servertest.Node
			change func(*wire.Inventory)
			code   tutti.Code
			text   string
		}{
			{"a run of another node", web, func(in *wire.Inventory) { in.Run = run }, tutti.CodeRefused, "not a run of node web-01"},
			{"a clock in the future", web, func(in *wire.Inventory) { in.At = time.Now().Add(2 * time.Hour) }, tutti.CodeInvalid, "correct the wrong clock"},
			{"another digest", web, func(in *wire.Inventory) { in.Blob = in.State[:len(in.State)-1] + "0" }, tutti.CodeConflict, "send it again"},
			{"no state", web, func(in *wire.Inventory) { in.State = "" }, tutti.CodeInvalid, "state"},
			{"an unknown part", web, func(in *wire.Inventory) { in.Part = "keys" }, tutti.CodeInvalid, "unknown part"},
			{"a reason and content", web, func(in *wire.Inventory) { in.Blob, in.Left = "", "too large" }, tutti.CodeInvalid, "with content"},
			{"a long environment", web, func(in *wire.Inventory) { in.Environment = string(bytes.Repeat([]byte("x"), 300)) }, tutti.CodeInvalid, "300 bytes"},
		} {
			t.Log(tc.reason)
			wantCode(t, hold(t, tc.node, tutti.InventoryFacts, "x"+tc.reason, tc.change), tc.code, tc.text)
			time.Sleep(time.Minute)
		}
		large := string(make([]byte, tutti.MaxFactsBlob+1))
		wantCode(t, hold(t, web, tutti.InventoryFacts, large), tutti.CodeInvalid, "at most")
		full.Store(true)
		wantCode(t, hold(t, web, tutti.InventoryFacts, "x"), tutti.CodeUnavailable, "the disk is full")
		full.Store(false)

		var err error // the bytes of an hour
		for i := range 20 {
			catalog := bytes.Repeat([]byte{byte(i)}, tutti.MaxCatalogBlob)
			if err = hold(t, web, tutti.InventoryCatalog, string(catalog)); err != nil {
				break
			}
			time.Sleep(time.Minute)
		}
		wantCode(t, err, tutti.CodeUnavailable, "32 MiB an hour")
		mustHold(t, p.db, tutti.InventoryFacts, "others are not limited")
		for i := range 20 { // the messages of a minute
			err = errors.Join(err, hold(t, p.db, tutti.InventoryFacts, string(rune('a'+i))))
		}
		wantCode(t, hold(t, p.db, tutti.InventoryFacts, "more"), tutti.CodeUnavailable, "6 times a minute")
	})
}
