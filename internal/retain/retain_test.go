package retain_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/retain"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The function `log` returns events with these bodies. Each event happens an hour after the event
// before it.
func log(bodies ...tutti.Body) []tutti.Event {
	var out []tutti.Event
	for i, b := range bodies {
		out = append(out, tutti.Event{Seq: uint64(i + 1), At: epoch.Add(time.Duration(i) * time.Hour), Body: b})
	}
	return out
}

func needed(events []tutti.Event) []uint64 {
	l := retain.New()
	for _, e := range events {
		l.Add(e)
	}
	var out []uint64
	for _, e := range events {
		if l.Needs(e) {
			out = append(out, e.Seq)
		}
	}
	return out
}

func TestEveryKindHasARule(t *testing.T) {
	for _, kind := range tutti.Kinds() {
		if !retain.Known(kind) {
			t.Errorf("no rule says which %s events are still needed", kind)
		}
	}
}

func TestNeeded(t *testing.T) {
	type seqs = []uint64
	job := func(id tutti.JobID, code string) tutti.Body {
		return &tutti.JobStarted{Job: id, Code: tutti.DigestOf([]byte(code))}
	}
	push := func(code string) tutti.Body {
		return &tutti.CodePushed{Environment: "production", Code: tutti.DigestOf([]byte(code))}
	}
	retire := func(codes ...string) tutti.Body {
		out := &tutti.CodeRetired{Environment: "production"}
		for _, code := range codes {
			out.Codes = append(out.Codes, tutti.DigestOf([]byte(code)))
		}
		return out
	}
	gone := &tutti.CodeRetired{Environment: "production", Gone: true}
	hold := func(code, released string) tutti.Body {
		return &tutti.CodePushed{Environment: "production", Code: tutti.DigestOf([]byte(code)), Held: true, Released: tutti.DigestOf([]byte(released))}
	}
	release := func(code string) tutti.Body {
		return &tutti.CodeReleased{Environment: "production", Code: tutti.DigestOf([]byte(code))}
	}
	want := func(run tutti.RunID, job tutti.JobID) tutti.Body {
		return &tutti.RunWanted{Order: tutti.Order{Run: run, Node: "n", Job: job}}
	}
	set := func(key string, owner tutti.NodeName) tutti.Body {
		return &tutti.ValueSet{Key: key, Owner: owner, Value: json.RawMessage("1")}
	}
	answer := &tutti.NodeClassified{Node: "n", Classification: &tutti.Classification{}}
	unset := func(key string, owner tutti.NodeName) tutti.Body { return &tutti.ValueUnset{Key: key, Owner: owner} }
	seal := func(id string, owner tutti.NodeName) tutti.Body {
		return &tutti.SecretSealed{Secret: tutti.Secret{Key: "s", ID: id}, Owner: owner}
	}
	claim := &tutti.RunClaimed{Run: "r", Node: "n"}
	ended := &tutti.RunFinished{Result: tutti.Result{Run: "r"}}
	reported := func(run tutti.RunID) tutti.Body {
		return &tutti.RunFinished{Result: tutti.Result{Run: run, Outcome: tutti.Changed, Report: tutti.DigestOf(nil)}}
	}
	join := &tutti.NodeEnrolled{Node: "n", Token: "t"}
	leave := &tutti.NodeRemoved{Node: "n"}
	token := func(lives time.Duration) tutti.Body {
		return &tutti.TokenCreated{Token: "t", Expires: epoch.Add(lives)}
	}
	old := -31 * 24 * time.Hour

	cases := []struct {
		reason string
		log    []tutti.Event
		want   seqs
	}{
		{"the last fleet file", log(&tutti.FleetSet{}, &tutti.FleetSet{}), seqs{2}},
		{"a denial never", log(&tutti.Denied{}), nil},
		{"nor what nodes were asked", log(&tutti.RemoteAsked{}, &tutti.RemoteAnswered{}), nil},
		{"the last codes", log(push("a"), push("b")), seqs{1, 2}},
		{"none that was retired", log(push("a"), push("b"), retire("a")), seqs{2, 3}},
		{"the code with which nodes go on", log(push("a"), hold("b", "a"), hold("c", "a"), retire("a", "b")), seqs{1, 3, 4}},
		{"not after the release", log(push("a"), hold("b", "a"), release("b"), retire("a")), seqs{2, 3, 4}},
		{"the code of a job that is there", log(push("a"), job("j", "a"), push("b"), retire("a")), seqs{1, 2, 3, 4}},
		{"not that of a job that was retired", log(push("a"), job("j", "a"), &tutti.JobFinished{Job: "j"}, push("b"), retire("a"), &tutti.JobRetired{Job: "j"}), seqs{4, 5}},
		{"no code of an environment that was removed", log(push("a"), push("b"), gone), seqs{3}},
		{"the code of a job, also of an environment that was removed", log(push("a"), job("j", "a"), gone), seqs{1, 2, 3}},
		{"the code of an environment that has come back", log(push("a"), gone, push("b")), seqs{2, 3}},
		{"the last push of the same code", log(push("a"), job("j", "a"), push("b"), push("a"), push("b")), seqs{2, 4, 5}},

		{"a secret with all its pieces", log(seal("a", ""), seal("b", ""), seal("b", ""), seal("b", "n")), seqs{2, 3, 4}},
		{"not after it was unset", log(seal("a", ""), seal("a", ""), unset("s", "")), nil},
		{"what unset it, as long as a piece counts for its run", log(join, seal("a", "n"), claim, seal("a", "n"), unset("s", "")), seqs{1, 4, 5}},

		{"what replaced a change that counts, also if its node has left", log(join, claim, set("k", "n"), unset("k", ""), set("k", "m"),
			&tutti.NodeRemoved{Node: "m"}), seqs{1, 3, 5, 6}},
		{"not after the change does not count any more", log(join, claim, set("k", "n"), unset("k", ""), set("k", "m"),
			&tutti.NodeRemoved{Node: "m"}, &tutti.RunClaimed{Run: "q", Node: "n"}), seqs{1, 6}},

		{"a token until 30 days after its end", log(token(old + 25*time.Hour)), seqs{1}},
		{"a token's end as long as the token", log(token(time.Hour), &tutti.TokenRevoked{Token: "t"}), seqs{1, 2}},
		{"and no longer", log(token(old), &tutti.TokenRevoked{Token: "t"}), nil},
		{"a token as long as who joined by it", log(token(old), join), seqs{1, 2}},
		{"not after who joined by it has left; its key stays out", log(token(old), join, leave), seqs{2, 3}},
		{"that a name may be taken", log(join, &tutti.NodeReplaceable{Node: "n"}), seqs{1, 2}},
		{"not after it was taken", log(join, &tutti.NodeReplaceable{Node: "n"}, join), seqs{1, 3}},

		{"the first answer of the ENC and the last one", log(join, answer, answer, answer), seqs{1, 2, 4}},
		{"after there was none, the first one since", log(join, answer, &tutti.NodeClassified{Node: "n"}, answer, answer, answer), seqs{1, 4, 6}},
		{"that there is none", log(join, answer, answer, &tutti.NodeClassified{Node: "n"}), seqs{1, 4}},
		{"the first answer about this machine", log(join, answer, leave, join, answer, answer, answer), seqs{1, 3, 4, 5, 7}},
		{"the last groups with where", log(join, &tutti.NodeMatched{Node: "n"}, &tutti.NodeMatched{Node: "n"}, &tutti.NodeMatched{Node: "m"}), seqs{1, 3, 4}},

		{"all of a job", log(job("j", "a"), &tutti.StepStarted{Job: "j"}, &tutti.StepFinished{Job: "j"}, want("r", "j"), &tutti.RunLost{Run: "r"},
			&tutti.JobCancelled{Job: "j"}, &tutti.JobFinished{Job: "j"}), seqs{1, 2, 3, 4, 5, 6, 7}},
		{"nothing of a job that was retired but the last run of a node", log(job("j", "a"), want("q", "j"), &tutti.RunClaimed{Run: "q", Node: "n"},
			&tutti.RunGated{Run: "q"}, &tutti.RunFinished{Result: tutti.Result{Run: "q"}}, want("r", "j"), claim, &tutti.RunGated{Run: "r"}, ended,
			&tutti.StepFinished{Job: "j"}, &tutti.JobFinished{Job: "j"}, &tutti.JobRetired{Job: "j"}), seqs{6, 7, 8, 9}},
		{"and the last run of it that has told of resources", log(job("j", "a"), want("q", "j"), reported("q"), want("r", "j"), claim, ended,
			&tutti.JobFinished{Job: "j"}, &tutti.JobRetired{Job: "j"}), seqs{2, 3, 4, 5, 6}},
		{"not one whose report came late", log(job("j", "a"), want("q", "j"), &tutti.RunLost{Run: "q"}, want("r", "j"), claim, reported("r"), reported("q"),
			&tutti.JobFinished{Job: "j"}, &tutti.JobRetired{Job: "j"}), seqs{4, 5, 6}},
		{"not even that once the node has left", log(job("j", "a"), want("r", "j"), claim, ended, &tutti.JobFinished{Job: "j"}, &tutti.JobRetired{Job: "j"}, leave), seqs{7}},
		{"nothing about a run that nobody ordered", log(claim, ended), nil},

		{"the last exports of a node", log(&tutti.ExportsSet{Node: "n"}, &tutti.ExportsSet{Node: "n"}, &tutti.ExportsSet{Node: "m"}), seqs{2, 3}},
		{"none of a node that has left", log(&tutti.ExportsSet{Node: "n"}, leave), seqs{2}},
		{"what withdrew something, also behind a run that published", log(&tutti.ExportsSet{Node: "n"}, &tutti.ExportsSet{Node: "n", Run: "r"}), seqs{1, 2}},
		{"the last one of these", log(&tutti.ExportsSet{Node: "n"}, &tutti.ExportsSet{Node: "n"}, &tutti.ExportsSet{Node: "n", Run: "r"}), seqs{2, 3}},
		{"an overlay while its job goes on", log(job("j", "a"), &tutti.ExportsSet{Node: "n", Job: "j", Overlay: true}), seqs{1, 2}},
		{"and no longer", log(job("j", "a"), &tutti.ExportsSet{Node: "n", Job: "j", Overlay: true}, &tutti.JobFinished{Job: "j"}), seqs{1, 3}},
		{"not once its node exports in that job, whatever it exports later", log(job("j", "a"), &tutti.ExportsSet{Node: "n", Job: "j", Overlay: true},
			&tutti.ExportsSet{Node: "n", Job: "j"}, &tutti.ExportsSet{Node: "n"}), seqs{1, 4}},

		{"the last value of a key", log(set("k", ""), set("k", ""), set("l", "")), seqs{2, 3}},
		{"not one that was withdrawn, nor that it was", log(set("k", ""), unset("k", "")), nil},
		{"not one of a node that has left", log(set("k", "n"), leave), seqs{2}},
		{"what an operator took over stays", log(set("k", "n"), set("k", ""), leave), seqs{2, 3}},
		{"changes since a node's last claim count", log(set("k", "n"), job("j", "a"), want("r", "j"), claim, set("k", "n"), set("k", "n")), seqs{2, 3, 4, 5, 6}},
		{"a withdrawal, if a change before it counts", log(job("j", "a"), want("r", "j"), claim, set("k", "n"), unset("k", "")), seqs{1, 2, 3, 4, 5}},

		{"the last word on a pause", log(&tutti.Paused{Target: "a"}, &tutti.Paused{Target: "a"}, &tutti.Paused{}), seqs{2, 3}},
		{"none that has ended", log(&tutti.Paused{Target: "a"}, &tutti.Unpaused{Target: "a"}), nil},
		{"nor that of a node that has left", log(&tutti.Paused{Target: "n"}, &tutti.Paused{}, leave), seqs{2, 3}},

		{"the last snapshot", log(&tutti.SnapshotTaken{}, &tutti.SnapshotTaken{}), seqs{2}},
		{"certificates since an operator was revoked", log(&tutti.OperatorIssued{Operator: "a"}, &tutti.OperatorIssued{Operator: "b"},
			&tutti.OperatorRevoked{Operator: "a"}, &tutti.OperatorIssued{Operator: "a"}), seqs{2, 3, 4}},
	}
	for _, tc := range cases {
		t.Run(tc.reason, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, needed(tc.log)); diff != "" {
				t.Errorf("needed: -want +got\n%s", diff)
			}
		})
	}
}
