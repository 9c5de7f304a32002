package converge_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

// The method `clone` simulates a copy of a machine that runs at the same time as the machine. The server accepts
// nothing from either machine until somebody decides which one is the node.
func (l *life) clone(n tutti.NodeName) string {
	if l.engine.Active[n] != "" || l.untold[n] != nil {
		return "nothing"
	}
	l.twice[n], l.gone[n] = true, true
	l.append(&tutti.NodeConflicted{Node: n, Why: "two machines have its key"})
	return "a copy of " + string(n)
}

// The method `keep` simulates a person's decision about which of the two machines is the node. If the copy becomes
// the node, the server hears that the node is another machine. The state of the copy is unknown, or an earlier state
// of the node.
func (l *life) keep(n tutti.NodeName) string {
	delete(l.twice, n)
	delete(l.gone, n)
	l.append(&tutti.NodeKept{Node: n})
	if l.d.IntN(2) == 0 {
		return "the end of the copy of " + string(n)
	}
	last := l.engine.Last(n)
	l.has(n, "")
	if len(l.earlier[n]) > 0 && l.d.IntN(2) == 0 {
		l.has(n, l.earlier[n][l.d.IntN(len(l.earlier[n]))])
	}
	if last.Applied != nil && last.SetBack == nil { // as the server does
		l.append(&tutti.NodeSetBack{Node: n, Run: last.Applied.Run, Begun: last.Applied.Fence, Moved: true})
	}
	return "the end of " + string(n) + ", whose copy is the node"
}

// The method `restore` resets the server to a backup. The machines keep their state, and report again what they have
// reported since the backup.
func (l *life) restore() string {
	s := l.sim
	joined := slices.IndexFunc(s.log, func(e tutti.Event) bool { _, is := e.Body.(*tutti.CodePushed); return is }) + 1
	for i, e := range s.log {
		switch e.Body.(type) {
		case *tutti.NodeEnrolled, *tutti.NodeConflicted, *tutti.NodeKept: // a backup from before this event would lack a machine, or the decision which machine is the node
			joined = max(joined, i+1)
		}
	}
	var backups []int
	for _, cut := range s.cuts {
		if cut > joined && cut < len(s.log) {
			backups = append(backups, cut)
		}
	}
	if len(backups) == 0 || len(l.twice) > 0 {
		return "nothing"
	}
	end := backups[l.d.IntN(len(backups))]
	since := slices.Clone(s.log[end:])
	s.log = s.log[:end:end]
	s.cuts = slices.DeleteFunc(s.cuts, func(cut int) bool { return cut > end })
	s.late = nil
	for _, e := range s.log {
		if b, is := e.Body.(*tutti.CodePushed); is {
			s.code, s.nodes, s.pushed = b.Code, s.manifests[b.Code], *b
		}
	}
	s.fold()
	s.append(&tutti.EpochBegun{Epoch: tutti.Epoch{Number: s.engine.Epoch.Number + 1, Random: fmt.Sprint("restored at ", len(s.log))}})
	l.tellAgain(since)
	return "a restore of the server"
}

// tellAgain simulates what nodes report to a server that has forgotten the events in `since`.
func (l *life) tellAgain(since []tutti.Event) {
	wanted, results, passed := map[tutti.RunID]uint64{}, map[tutti.RunID]tutti.Result{}, map[tutti.RunID]bool{}
	begun, back := map[tutti.NodeName]uint64{}, map[tutti.NodeName]bool{}
	var foreign []*tutti.RunForeign
	for _, e := range since {
		switch b := e.Body.(type) {
		case *tutti.RunWanted:
			wanted[b.Order.Run] = e.Seq
		case *tutti.RunClaimed:
			begun[b.Node] = wanted[b.Run]
			if r := l.engine.Runs[b.Run]; r != nil { // the run's order is in the backup
				begun[b.Node] = r.Fence.Seq
			}
		case *tutti.RunGated:
			passed[b.Run] = passed[b.Run] || b.Verdict == tutti.GateGo
		case *tutti.RunFinished:
			results[b.Result.Run] = b.Result
		case *tutti.NodeSetBack:
			back[b.Node] = true
		case *tutti.RunForeign:
			again := *b
			again.Whole, again.Ago = false, 0 // a report that is repeated is never a whole run
			foreign = append(foreign, &again)
		}
	}
	for _, n := range l.names() {
		if r := l.engine.Runs[l.engine.Active[n]]; r != nil {
			if result, ended := results[r.Run]; ended {
				l.append(&tutti.RunFinished{Result: result})
			} else if passed[r.Run] {
				l.append(&tutti.RunFinished{Result: tutti.Result{Run: r.Run, Outcome: tutti.Interrupted, Message: "the process is gone"}})
				if r.Mode == tutti.ModeApply {
					l.has(n, "")
				}
			}
		}
		if begun[n] > 0 || back[n] {
			l.append(&tutti.NodeSetBack{Node: n, Begun: tutti.Fence{Epoch: l.engine.Epoch.Number - 1, Seq: begun[n]}})
		}
	}
	for _, f := range foreign {
		l.append(f)
	}
}

// TestARestoreDuringARun: a node publishes while it applies. Then a backup from before the publication is restored.
// The node reports its result again, but the server lacks the values. The node must run once more.
func TestARestoreDuringARun(t *testing.T) {
	for _, tc := range []struct {
		reason string
		values map[string]string
		lost   bool // the run was given up before the backup
		want   converge.Need
	}{
		{"it published", map[string]string{"v/a": "1"}, false, converge.Apply},
		{"it had nothing to publish", nil, false, converge.Nothing},
		{"it was given up, and published", map[string]string{"v/a": "1"}, true, converge.Apply},
	} {
		s := newSim(t, map[tutti.NodeName]*manifest{"a": {compile: func(answers) catalog { return catalog{values: tc.values, extra: "x"} }}})
		id := s.begin(tutti.ModeApply, tutti.ConvergeStep{})
		backup := 0
		for !s.engine.Jobs[id].Ended() {
			if r := s.engine.Last("a").Passed; r != nil && backup == 0 {
				backup = len(s.log)
			}
			s.step(first)
			s.settle()
		}
		run := s.engine.Last("a").Passed
		if got := s.standing("a"); got.Need != converge.Nothing || backup == 0 || len(s.publishedBy("a")) != len(tc.values) {
			t.Fatalf("%s: before: needs %s, backup at %d of %d", tc.reason, got.Need, backup, len(s.log))
		}
		s.log = s.log[:backup:backup]
		s.fold()
		if tc.lost {
			s.append(&tutti.RunLost{Run: run.Run, Reason: "silent"})
		}
		s.append(&tutti.EpochBegun{Epoch: tutti.Epoch{Number: 2, Random: "other"}})
		s.append(&tutti.RunFinished{Result: *run.Result})
		if got := s.standing("a"); got.Need != tc.want {
			t.Errorf("%s: after the restore it needs %s (%s), want %s", tc.reason, got.Need, got.Why(), tc.want)
		}
		s.all(first)
		if got := s.publishedBy("a"); len(got) != len(tc.values) {
			t.Errorf("%s: in the end it publishes %v", tc.reason, got)
		}
	}
}
