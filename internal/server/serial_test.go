package server_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti/internal/servertest"
)

// In a serial group, a reaction does not begin on the nodes that come after a disconnected node. The server says that
// these nodes wait for the disconnected node.
func TestAReactionHeedsASerialGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		a, b := f.Join("a"), f.Join("b")
		time.Sleep(time.Hour) // node a is silent for this time
		b.Claimed()
		f.Push("fleet: f\nreactive: true\ngroups: {all: {nodes: [a, b], serial: true}}\n")
		time.Sleep(10 * time.Second)
		if o := b.Claimed(); o != nil {
			t.Fatalf("b is told to run: %+v", o)
		}
		got, err := f.ExplainNode(servertest.Operator(), "b")
		if want := "serial group all stops at a: not connected: it runs when that node is good"; err != nil || got.Standing.Rests != want {
			t.Errorf("b does not run by itself because %q, %v; want %q", got.Standing.Rests, err, want)
		}
		if got, err := f.ExplainNode(servertest.Operator(), "a"); err != nil || strings.Contains(got.Standing.Rests, "serial") {
			t.Errorf("a: %q, %v", got.Standing.Rests, err)
		}
		if o := a.Claimed(); o != nil {
			t.Fatalf("a is told to run at once: %+v", o)
		}
		time.Sleep(10 * time.Second)
		a.Pass()
		b.Claimed()
		time.Sleep(10 * time.Second)
		b.Pass()
	})
}
