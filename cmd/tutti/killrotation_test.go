//go:build killpoints

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/killpoint"
)

// The list `rotates` has the names of the kill points of a CA rotation. The load of the machine decides how often a
// process passes some of these points. So the test kills the process only when it passes a point for the first time.
var rotates = []string{"rotation.json", "bus-names.json", "bus-nodes.jwt", "bus-operator.nk", "bus-log.nk", "ca.key", "ca.crt", "server.key", "server.crt", "ca.rotated", "server.rotates", "server.rotated", "membership.json", "agent.pinned"}

// The type `turned` is the part of a rotation's result that must not depend on a kill.
type turned struct {
	Phases  []tutti.RotationPhase // the phases in the log
	Was     int                   // number of CAs that the rotation has removed
	One     bool                  // only one set is trusted again
	Pins    map[string]int        // number of CAs that each node trusts
	Behind  int
	Verdict tutti.Verdict // verdict of a job after the rotation
}

// TestARotationKilledAtEveryPoint rotates the CA once and records every kill point that server and agent pass. After
// that, the test repeats the rotation for each point, kills the process there, and repeats each step that got no
// answer. The rotation must end as it does without a kill.
func TestARotationKilledAtEveryPoint(t *testing.T) {
	tpl := newTemplate(t, killSite)
	noted := t.TempDir()
	to := map[string]string{}
	for _, name := range []string{serverProcess, dbProcess} {
		to[name] = killpoint.To + "=" + filepath.Join(noted, name)
	}
	want, err := tpl.turn(t, to)
	if err != nil {
		t.Fatal(err)
	}
	good := turned{
		Phases: []tutti.RotationPhase{"begun", "switched", "finished"}, Was: 1, One: true,
		Pins: map[string]int{dbProcess: 1, webProcess: 1}, Verdict: tutti.VerdictSucceeded,
	}
	if diff := cmp.Diff(good, want); diff != "" {
		t.Fatalf("without a kill: -want +got\n%s", diff)
	}
	cases := []killCase{{serverProcess, "server.appends node.pinned#1"}, {serverProcess, "server.stored node.pinned#1"}}
	for _, name := range []string{serverProcess, dbProcess} {
		for _, c := range casesOf(t, name, filepath.Join(noted, name)) {
			if slices.ContainsFunc(rotates, func(of string) bool { return strings.Contains(c.point, of) }) {
				cases = append(cases, c)
			}
		}
	}
	if len(cases) < 60 {
		t.Errorf("%d points were passed, want those of each file, append and step", len(cases))
	}
	got, errs := make([]turned, len(cases)), make([]error, len(cases))
	next := make(chan int)
	var working sync.WaitGroup
	for range 4 { // four workers at once, because a worker mostly waits
		working.Go(func() {
			for i := range next {
				got[i], errs[i] = tpl.turn(t, map[string]string{cases[i].process: killpoint.At + "=" + cases[i].point})
			}
		})
	}
	for i := range cases {
		next <- i
	}
	close(next)
	working.Wait()
	for i, c := range cases {
		t.Run(c.process+" "+c.point, func(t *testing.T) {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			if diff := cmp.Diff(want, got[i]); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// The method `turn` rotates the CA of a copy of the fleet, and returns the state after the rotation.
func (tpl template) turn(t *testing.T, env map[string]string) (turned, error) {
	f := tpl.fleet(t, env)
	defer f.clear(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), killDeadline, fmt.Errorf("the rotation does not end within %s", killDeadline))
	defer cancel()
	var out turned
	for _, step := range []tutti.RotationStep{tutti.RotationBegin, tutti.RotationSwitch, tutti.RotationFinish} {
		in := api.RotateCA{Step: step}
		if step == tutti.RotationFinish {
			in.LeaveOperators, in.Last = []string{"admin"}, true // the operator admin makes no calls in this test
		}
		err := again(ctx, func() error { _, err := f.client.RotateCA(ctx, in); return err })
		if err == nil {
			err = f.followed(ctx)
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w", step, err)
		}
	}
	if strings.HasPrefix(env[serverProcess]+env[dbProcess], killpoint.At+"=") {
		if err := f.died(ctx); err != nil {
			return out, err
		}
	}
	err := f.lookAt(ctx, &out)
	if err != nil {
		return out, err
	}
	f.plan = "deploy"
	job, err := f.outcome(ctx)
	out.Verdict = job.Verdict
	return out, err
}

// The method `followed` waits until every node has followed the rotation and has reported this.
func (f *killFleet) followed(ctx context.Context) error {
	return again(ctx, func() error {
		r, err := f.client.ShowCARotation(ctx)
		if err != nil {
			return err
		}
		for _, b := range r.Behind {
			if b.Node != "" {
				return tutti.Errorf(tutti.CodeUnavailable, "node %s is behind: %s", b.Node, b.Why)
			}
		}
		return nil
	})
}

func (f *killFleet) lookAt(ctx context.Context, out *turned) error {
	err := again(ctx, func() error {
		out.Phases = nil
		return f.client.ReadAudit(ctx, api.ReadAudit{}, func(entry api.AuditEntry) error {
			var e tutti.Event
			if err := json.Unmarshal(entry.Raw, &e); err != nil {
				return err
			}
			if b, is := e.Body.(*tutti.CARotated); is {
				out.Phases = append(out.Phases, b.Phase)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	keys, err := identity.Load(filepath.Join(f.dir, serverProcess, "identity"))
	if err != nil {
		return err
	}
	sets, err := keys.KeySets()
	if err != nil {
		return err
	}
	out.Was, out.One, out.Pins = len(sets.Was), sets.Phase == "", map[string]int{}
	for _, node := range []string{dbProcess, webProcess} {
		on, err := identity.LoadMembership(filepath.Join(f.dir, node, "identity"))
		if err != nil {
			return err
		}
		pins, err := identity.CAPins([]byte(on.CA))
		if err != nil {
			return err
		}
		out.Pins[node] = len(pins)
	}
	return nil
}
