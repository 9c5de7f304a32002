package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// eventView defines how people see events of one kind.
type eventView struct {
	// The function `act` returns the text for the audit trail. The text says what happened, but not
	// who did it. If `act` is nil, the trail shows the kind and the id of the event.
	act func(tutti.Body) string
	// The function `line` returns the plain lines that a person who watches the job sees. If `line`
	// is nil, there are no lines.
	line func(*progress, tutti.Event) []string
	// The function `above` returns the lines that stay above the live tree, and whether they report
	// a problem. If `above` is nil, there are no such lines.
	above func(*progress, tutti.Event) (lines []string, bad bool)
}

// eventViews has a row for each kind of event. The row defines how people see events of this kind.
// If people do not see these events, the row is empty.
var eventViews = map[string]eventView{
	"epoch.begun": {act: inTrail(func(b *tutti.EpochBegun) string { return "began epoch " + b.String() + " of the log" })},
	"fleet.set":   {act: inTrail(func(b *tutti.FleetSet) string { return "set the fleet file of " + b.Fleet.Name })},
	"code.pushed": {act: inTrail(func(b *tutti.CodePushed) string {
		return fmt.Sprintf("pushed code for %s: %.19s%s%s", b.Environment, b.Code, commitText(b.Source), heldText(*b))
	})},
	"code.retired": {act: inTrail(func(b *tutti.CodeRetired) string {
		if b.Gone {
			return "removed the environment " + b.Environment
		}
		return fmt.Sprintf("let %s of %s go", count(len(b.Codes), "earlier code"), b.Environment)
	})},
	"code.released": {act: inTrail(func(b *tutti.CodeReleased) string {
		return because(fmt.Sprintf("released the code of %s: %.19s", b.Environment, b.Code), b.Reason)
	})},
	"code.signed": {act: inTrail(func(b *tutti.CodeResigned) string {
		return fmt.Sprintf("signed the code of %s again: %.19s, counter %d", b.Environment, b.Code, b.Counter)
	})},
	"keys.trusted": {act: inTrail(func(b *tutti.KeysTrusted) string {
		return fmt.Sprintf("let %s sign code: %s", count(len(b.Keys), "key"), keyNames(b.Keys))
	})},
	"target.paused": {act: inTrail(func(b *tutti.Paused) string {
		return because("paused "+targetName(b.Target)+untilText(b.Until), b.Reason)
	})},
	"reports.retired": {act: inTrail(func(*tutti.ReportsRetired) string { return "let reports go" })},
	"target.unpaused": {act: inTrail(func(b *tutti.Unpaused) string { return "unpaused " + targetName(b.Target) })},

	"token.created": {act: inTrail(func(b *tutti.TokenCreated) string {
		return fmt.Sprintf("created token %s for %s%s", b.Token, b.Name, inGroups(b.Groups))
	})},
	"token.revoked": {act: inTrail(func(b *tutti.TokenRevoked) string { return "revoked token " + string(b.Token) })},
	"node.enrolled": {act: inTrail(func(b *tutti.NodeEnrolled) string {
		return fmt.Sprintf("node %s joined%s", b.Node, inGroups(b.Groups))
	})},
	"joinca.set": {act: inTrail(func(b *tutti.JoinCASet) string {
		if b.CA == "" {
			return "ended joins with Puppet certificates"
		}
		return "let machines join with certificates of a Puppet CA"
	})},
	"node.pending": {act: inTrail(func(b *tutti.NodePending) string {
		return because(fmt.Sprintf("node %s waits for approval", b.Node), b.Why)
	})},
	"node.approved": {act: inTrail(func(b *tutti.NodeApproved) string {
		return fmt.Sprintf("approved node %s%s", b.Node, inGroups(b.Groups))
	})},
	"node.rejected":    {act: inTrail(func(b *tutti.NodeRejected) string { return "rejected node " + string(b.Node) })},
	"node.replaceable": {act: inTrail(func(b *tutti.NodeReplaceable) string { return "let node " + string(b.Node) + " be replaced" })},
	"node.removed":     {act: inTrail(removedText)},
	"node.setback":     {act: inTrail(setBackText)},
	"node.connected":   {},
	"node.conflicted":  {act: inTrail(func(b *tutti.NodeConflicted) string { return "node " + string(b.Node) + ": " + b.Why })},
	"node.kept":        {act: inTrail(func(b *tutti.NodeKept) string { return "kept one machine as node " + string(b.Node) })},

	"node.facts":  {},
	"node.pinned": {},
	"ca.rotated":  {act: inTrail(rotatedText)},
	"node.trusts": {},

	"node.inventory":    {},
	"inventory.dropped": {},
	"node.classified":   {},
	"node.matched":      {},

	"job.started":   {act: inTrail(startedAct), line: inWatch(startedLine)},
	"job.cancelled": {act: inTrail(func(b *tutti.JobCancelled) string { return because("cancelled job "+string(b.Job), b.Reason) }), line: inWatch(cancelledLine)},
	"job.finished": {act: inTrail(func(b *tutti.JobFinished) string {
		return because(fmt.Sprintf("job %s %s", b.Job, b.Verdict), b.Message)
	})},
	"job.retired": {act: inTrail(func(b *tutti.JobRetired) string { return "let job " + string(b.Job) + " go" })},

	"step.started":      {line: inWatch(stepStartedLine)},
	"step.finished":     {line: inWatch(stepFinishedLine)},
	"converge.finished": {},
	"lease.changed":     {line: leaseLine, above: badNews(leaseLine)},

	"run.wanted":   {},
	"run.claimed":  {line: claimedLine},
	"run.compiled": {line: atGate},
	"run.asked":    {},
	"run.proved":   {},
	"run.refused":  {},
	"run.gated":    {line: atGate, above: badNews(atGate)},
	"run.finished": {line: endLine, above: endAbove},
	"run.lost":     {line: endLine, above: endAbove},
	"run.foreign":  {},

	"exports.set": {},
	"value.set":   {act: inTrail(func(b *tutti.ValueSet) string { return "set value " + b.Key })},
	"node.boxed": {act: inTrail(func(b *tutti.NodeBoxed) string {
		return fmt.Sprintf("gave node %s another key for its secrets", b.Node)
	})},
	"secret.sealed": {act: inTrail(func(b *tutti.SecretSealed) string {
		return fmt.Sprintf("sealed secret %s for %s, to %s", b.Key, strings.Join(b.For, ", "), count(len(b.Pieces), "node"))
	})},
	"value.unset": {act: inTrail(func(b *tutti.ValueUnset) string { return "unset value " + b.Key })},

	"operator.issued": {act: inTrail(func(b *tutti.OperatorIssued) string {
		return fmt.Sprintf("issued a certificate for operator %s until %s%s", b.Operator, b.Expires.Local().Format(time.DateOnly), withCodeKey(b))
	})},
	"operators.trusted": {act: inTrail(func(b *tutti.OperatorsTrusted) string {
		return fmt.Sprintf("let %s sign actions: %s", count(len(b.Operators), "operator"), cmp.Or(strings.Join(b.Operators, ", "), "nobody"))
	})},
	"operator.revoked": {act: inTrail(func(b *tutti.OperatorRevoked) string { return because("revoked operator "+b.Operator, b.Reason) })},
	"audit.denied":     {act: inTrail(func(b *tutti.Denied) string { return because("denied: "+b.What, b.Reason) })},
	"snapshot.taken":   {},

	"remote.asked": {act: inTrail(func(b *tutti.RemoteAsked) string {
		return because(fmt.Sprintf("asks %d nodes to %s (%s)", len(b.Nodes), b.Action, b.On), b.Message)
	})},
	"remote.answered": {act: inTrail(func(b *tutti.RemoteAnswered) string {
		return fmt.Sprintf("asked for %s (%s): %s", strings.TrimSpace(string(b.Action)+" "+b.What), b.On, decisions(b.Decisions))
	})},
}

// keyNames shortens the ids of keys to their beginnings.
func keyNames(keys []tutti.Digest) string {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = fmt.Sprintf("%.19s", key)
	}
	return strings.Join(names, " and ")
}

// eventViewOf returns the view for an event. For a kind that this release does not know, the view
// shows the name of the kind.
func eventViewOf(body tutti.Body) eventView {
	if view, known := eventViews[body.Kind()]; known {
		if _, later := body.(*tutti.UnknownEvent); !later {
			return view
		}
	}
	return eventView{act: unknownAct, line: unknownLine, above: unknownAbove}
}

// inTrail makes the function `act` of a view. The argument of inTrail is a function for one kind of
// body.
func inTrail[B tutti.Body](f func(B) string) func(tutti.Body) string {
	return func(b tutti.Body) string { return f(b.(B)) }
}

// inWatch makes the function `line` of a view, from a function that returns one line for one kind
// of body.
func inWatch[B tutti.Body](f func(*progress, tutti.Event, B) string) func(*progress, tutti.Event) []string {
	return func(p *progress, e tutti.Event) []string { return []string{f(p, e, e.Body.(B))} }
}

// badNews makes the function `above` of a view. The function `above` then returns the lines of
// the function `line`, and reports them as a problem.
func badNews(line func(*progress, tutti.Event) []string) func(*progress, tutti.Event) ([]string, bool) {
	return func(p *progress, e tutti.Event) ([]string, bool) { return line(p, e), true }
}

func removedText(b *tutti.NodeRemoved) string {
	if b.Replaced {
		return "ended the earlier enrolment of node " + string(b.Node)
	}
	return "removed node " + string(b.Node)
}

func setBackText(b *tutti.NodeSetBack) string {
	if b.Run == "" {
		return fmt.Sprintf("the log lacks the last order that node %s has begun (%d in epoch %d): the server was set back", b.Node, b.Begun.Seq, b.Begun.Epoch)
	}
	if b.Moved {
		return fmt.Sprintf("node %s is another machine, or was installed again, since run %s", b.Node, b.Run)
	}
	if b.During {
		return fmt.Sprintf("node %s was set back to before run %s ended", b.Node, b.Run)
	}
	return fmt.Sprintf("node %s was set back to before run %s", b.Node, b.Run)
}

func unknownAct(b tutti.Body) string {
	return tutti.Plain(b.Kind(), maxLine) + " (not known to this release)"
}

func unknownLine(_ *progress, e tutti.Event) []string {
	return []string{fmt.Sprintf("%s by %s (not known to this release)", tutti.Plain(e.Body.Kind(), maxLine), tutti.Plain(e.By, maxLine))}
}

func unknownAbove(p *progress, e tutti.Event) ([]string, bool) {
	return []string{e.At.Local().Format(time.TimeOnly) + "  " + unknownLine(p, e)[0]}, false
}
