package natsbus

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/tutti-project/tutti"
)

// TestAPanicKeepsNoRoom: one caller stores for the others and panics. The others get an error, and
// later callers can store.
func TestAPanicKeepsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		newPut := func() *put { return &put{done: make(chan error, 1), lead: make(chan struct{})} }
		leader, second := newPut(), newPut()
		leads := g.join(leader)
		if !leads || g.join(second) {
			t.Fatal("the first one leads")
		}
		func() {
			defer func() {
				if p := recover(); fmt.Sprint(p) != "a mistake" {
					t.Errorf("recovered %v", p)
				}
			}()
			g.lead(func(all []*put) {
				all[0].done <- nil // it is stored
				panic("a mistake")
			})
		}()
		for i, want := range []tutti.Code{"", tutti.CodeInternal} {
			select {
			case err := <-[]*put{leader, second}[i].done:
				if tutti.CodeOf(err) != want {
					t.Errorf("put %d: %v, want code %q", i, err, want)
				}
			default:
				t.Errorf("put %d has no outcome, and waits for ever", i)
			}
		}
		if next := newPut(); !g.join(next) {
			t.Error("nobody stores any more")
		}
	})
}
